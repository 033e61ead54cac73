-- Puts an entry at the end of the line: the token is drawn and the entry is there in one step.
local session, election, incarnation, name_and_said = unpack(arguments)
local refusal = refusal_of(session)
if refusal then
  return refusal
end
local token, there = place_in(session, election)
if token and there ~= incarnation then
  return {'already', id, change, token, there}
end
if not token then
  -- Before anything is written: it would have to wait anyway.
  if hold_for(session) > 0 and not ahead_of(election, digits(2 ^ 53)) then
    return {'hold', id, change, whole(hold_for(session))}
  end
  local was_empty = not first_of(election)
  token = draw()
  local key = election .. '\0' .. token
  call('HSET', ENTRIES, key, token .. session .. incarnation .. name_and_said)
  call('ZADD', PLACES, 0, session .. '\0' .. key .. incarnation)
  call('ZADD', LINES, 0, key)
  if was_empty then
    tell('h', election, 'other')
  end
end
return standing(session, election, token, incarnation)
