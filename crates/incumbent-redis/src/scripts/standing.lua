-- Where an entry stands.
local session, election, token = unpack(arguments)
local refusal = refusal_of(session)
if refusal then
  return refusal
end
local held, incarnation = place_in(session, election)
if held ~= token then
  local version, record = office_of(election)
  return {'lost', id, change, version, record}
end
return standing(session, election, token, incarnation)
