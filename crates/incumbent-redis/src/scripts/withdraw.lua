-- Takes our entry out of line; with an heir, only while the heir's is there.
local session, election, token, heir = unpack(ARGV, FIRST)
if place_in(session, election) ~= token then
  return {'ok', id, change}
end
if heir ~= '' and call('HEXISTS', ENTRIES, election .. '\0' .. heir) == 0 then
  return {'refused', id, change}
end
remove(election, token)
return {'ok', id, change}
