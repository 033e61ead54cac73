-- Where an entry stands.
local session, election, token = unpack(ARGV, FIRST)
local refusal = refusal_of(session)
if refusal then
  return refusal
end
local held, incarnation = place_in(session, election)
if held ~= token then
  local version, record = office_of(election)
  return {'lost', id, change, lineage, whole(clock), version, record}
end
return stand(session, election, token, incarnation)
