-- Opens a session. Its name says its TTL. If that is the shortest, the next step cuts off more of
-- what has passed by then: what has passed until now counts.
set_clock()
local session = draw() .. ARGV[5]
extend(session)
call('ZADD', PLACES, 0, 'T' .. ttl_of(session) .. session)
return {'ok', id, change, session}
