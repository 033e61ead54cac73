-- A page of the elections: the names after this one in the lines, so many at most, and on the first
-- page also those that have an office record. What follows a name in the lines begins with \0.
local after, limit = ARGV[FIRST], tonumber(ARGV[FIRST + 1])
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
if after == '' then
  -- A right that nothing else needs.
  offices = redis.pcall('HKEYS', OFFICES)
  if offices.err then
    return redis.error_reply('NOPERM ' .. offices.err)
  end
end
return {'ok', id, change, names, offices}
