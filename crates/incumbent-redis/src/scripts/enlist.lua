-- Puts an entry at the end of the line: the token is drawn and the entry is there in one step.
local session, election, incarnation, name_and_said = unpack(ARGV, FIRST)
local refusal = refusal_of(session)
if refusal then
  return refusal
end
local there, there_as = place_in(session, election)
if there and there_as == incarnation then
  return stand(session, election, there, incarnation)
end
if there then
  return {'already', id, change, lineage, whole(clock), there, there_as}
end
local office, record = office_of(election)
local ahead, said, remaining = ahead_of(election, '\1')
-- Before anything is written: it would have to wait anyway.
if not ahead and hold_for(session) > 0 then
  return {'hold', id, change, lineage, whole(clock), whole(hold_for(session))}
end
local token = digits(change + 1)
-- First what was not read: everything else is known to be what it should.
if not ahead then
  call('HSET', LED, election, token)
end
draw()
local key = election .. '\0' .. token
call('HSET', ENTRIES, key, token .. session .. incarnation .. name_and_said, '', token)
call('ZADD', PLACES, 0, session .. '\0' .. key .. incarnation)
call('ZADD', LINES, 0, key)
if not ahead then
  tell('h', election, 'other')
end
return standing(office, record, token, incarnation, token, ahead, said, remaining)
