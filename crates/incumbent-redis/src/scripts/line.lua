-- A page of the line: so many entries after this token, and no more bytes than that. The server
-- stands still meanwhile.
local election, after, limit, bytes = unpack(ARGV, FIRST)
limit, bytes = tonumber(limit), tonumber(bytes)
local first = first_of(election)
-- A leader that is forgotten may be in office: neither the first in line nor nobody is shown as if it
-- could be known.
local wait = math.max(hold, taken_over + longest) - clock
if wait > 0 and not (first and call('HGET', LED, election) == first) then
  return {'hold', id, change, lineage, whole(clock), whole(wait)}
end
local from = after == '' and '[' .. election .. '\0' or '(' .. election .. '\0' .. after
local keys = call('ZRANGEBYLEX', LINES, from, '(' .. election .. '\1', 'LIMIT', 0, limit + 1)
local entries = {}
local taken = 0
for _, key in ipairs(keys) do
  if taken == limit or bytes <= 0 then
    break
  end
  local entry = call('HGET', ENTRIES, key)
  -- One that somebody has taken away stands for nobody.
  if entry then
    entries[#entries + 1] = sub(key, -TOKEN)
    entries[#entries + 1] = entry
    bytes = bytes - #entry
  end
  taken = taken + 1
end
local version, record = office_of(election)
return {'ok', id, change, lineage, whole(clock), version, record, taken < #keys and 'more' or '', entries}
