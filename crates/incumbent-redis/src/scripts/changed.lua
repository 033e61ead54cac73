-- Is anything no longer as it was seen? Asked once the news would come.
local election, office, from, head, said = unpack(ARGV, FIRST)
local changed = office_of(election) ~= office
-- '': it does not matter.
if head == 'nobody' then
  changed = changed or first_of(election)
elseif head ~= '' then
  changed = changed or first_of(election) ~= head
end
if said ~= '' then
  local entry = call('HGET', ENTRIES, election .. '\0' .. said)
  changed = changed or not entry or sub(entry, 1, TOKEN) > from
end
for number = FIRST + 5, #ARGV do
  changed = changed or call('HEXISTS', ENTRIES, election .. '\0' .. ARGV[number]) == 0
end
return {changed and 'changed' or 'same', id, change, lineage, whole(clock)}
