-- A page of the elections: the names after this one in the lines, so many at most, and about as many
-- of those that have an office record, from this cursor on. What follows a name in the lines begins
-- with \0. A limit of 0 and an empty cursor: all of that kind have been read.
local after, limit, cursor = ARGV[FIRST], tonumber(ARGV[FIRST + 1]), ARGV[FIRST + 2]
local names = {}
local from = '(' .. after .. (after == '' and '' or '\1')
while #names < limit do
  local next = call('ZRANGEBYLEX', LINES, from, '+', 'LIMIT', 0, 1)[1]
  if not next then
    break
  end
  names[#names + 1] = sub(next, 1, -TOKEN - 2)
  from = '(' .. names[#names] .. '\1'
end
local offices = {}
if cursor ~= '' then
  local page = call('HSCAN', OFFICES, cursor, 'COUNT', ARGV[FIRST + 3])
  cursor = page[1] == '0' and '' or page[1]
  for number = 1, #page[2], 2 do
    offices[#offices + 1] = page[2][number]
  end
end
return {'ok', id, change, lineage, whole(clock), names, cursor, offices}
