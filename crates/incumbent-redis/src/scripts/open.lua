-- Opens a session. Its name says its TTL.
local session = draw() .. ARGV[5]
extend(session)
call('ZADD', PLACES, 0, 'T' .. ttl_of(session) .. session)
return {'ok', id, change, session}
