-- Where an entry stands.
local session, election, token = ARGV[5], ARGV[6], ARGV[7]
if not remaining_of(session) then
  return {'gone', id, change}
end
local held, incarnation = place_in(session, election)
if held ~= token then
  local version, record = office_of(election)
  return {'lost', id, change, version, record}
end
return standing(election, token, incarnation)
