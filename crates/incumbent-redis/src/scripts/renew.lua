-- Proves that a session lives, and names a page of its places: so many after this one, and the last
-- of them if there may be more. A place whose entry is in no line any more (somebody put an old copy
-- of the lines back) is no place: another may lead, and its owner is told that it is gone.
local session, after, limit = unpack(ARGV, FIRST)
local from = after == '' and '[' .. session .. '\0' or '(' .. after
local page = call('ZRANGEBYLEX', PLACES, from, '(' .. session .. '\1', 'LIMIT', 0, limit)
local keys = {}
for number, place in ipairs(page) do
  keys[number] = sub(place, SESSION + 2, -INCARNATION - 1)
end
-- Of nothing it cannot be asked.
local in_line = #keys > 0 and call('ZMSCORE', LINES, unpack(keys))
local refusal = refusal_of(session)
if refusal then
  return refusal
end
local places = {}
for number, place in ipairs(page) do
  if in_line[number] then
    places[#places + 1] = place
  end
end
extend(session)
return {'ok', id, change, lineage, whole(clock), places, #page == tonumber(limit) and page[#page] or ''}
