-- Is anything no longer as it was seen? Asked once the news would come.
local election, office, from, head, said = unpack(arguments)
local changed = office_of(election) ~= office
-- '': it does not matter.
if head == 'nobody' then
  changed = changed or first_of(election)
elseif head ~= '' then
  changed = changed or first_of(election) ~= head
end
if said ~= '' then
  local entry = call('HGET', ENTRIES, election .. '\0' .. said)
  changed = changed or not entry or version_of(entry) > from
end
for number = 6, #arguments do
  changed = changed or call('HEXISTS', ENTRIES, election .. '\0' .. arguments[number]) == 0
end
return {changed and 'changed' or 'same', id, change}
