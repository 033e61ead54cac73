-- Removes exactly the entry that was seen.
local election, token, seen = unpack(arguments)
local entry = call('HGET', ENTRIES, election .. '\0' .. token)
if entry and version_of(entry) ~= seen then
  return {'refused', id, change}
end
remove(election, token)
return {'ok', id, change}
