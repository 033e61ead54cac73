-- Removes exactly the entry that was seen.
local election, token, seen = unpack(ARGV, FIRST)
local entry = call('HGET', ENTRIES, election .. '\0' .. token)
if entry and sub(entry, 1, TOKEN) ~= seen then
  return {'refused', id, change}
end
remove(election, token)
return {'ok', id, change}
