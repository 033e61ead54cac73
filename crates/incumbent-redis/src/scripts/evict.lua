-- Removes exactly the entry that was seen.
local election, token, incarnation, seen = unpack(ARGV, FIRST)
local entry = call('HGET', ENTRIES, election .. '\0' .. token)
if entry and incarnation_of(entry) ~= incarnation then
  return {'ok', id, change, lineage, whole(clock)}
end
if entry and sub(entry, 1, TOKEN) ~= seen then
  return {'refused', id, change, lineage, whole(clock)}
end
remove(election, token)
return {'ok', id, change, lineage, whole(clock)}
