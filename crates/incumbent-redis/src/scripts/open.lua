-- Opens a session. Its name says its TTL. If that is the shortest, the next step cuts off more of
-- what has passed by then: what has passed until now counts.
set_clock()
local session = draw() .. arguments[1]
extend(session)
call('ZADD', PLACES, 0, 'T' .. ttl_of(session) .. session)
if tonumber(ttl_of(session)) > longest then
  call('HSET', META, 'longest', whole(tonumber(ttl_of(session))))
end
return {'ok', id, change, session}
