-- Opens a session. Its name says its TTL. If that is the shortest, the next step cuts off more of
-- what has passed by then: what has passed until now counts.
local ttl = tonumber(ARGV[FIRST])
local session = digits(change + 1) .. ARGV[FIRST]
-- First what may not have been read: everything else is known to be what it should.
call('ZADD', PLACES, 0, 'T' .. ttl_of(session) .. session)
call('HSET', ENTRIES, '', draw())
longest, shortest = math.max(longest, ttl), shortest > 0 and math.min(shortest, ttl) or ttl
call('HSET', META, 'clock', whole(clock), 'wall', whole(wall), 'longest', whole(longest), 'shortest', whole(shortest))
extend(session)
return {'ok', id, change, lineage, whole(clock), session}
