-- Replaces what an entry says, if it still says what it said.
local session, election, token, was, said = unpack(ARGV, FIRST)
local key = election .. '\0' .. token
local entry = place_in(session, election) == token and call('HGET', ENTRIES, key)
if not entry or sub(entry, 1, TOKEN) ~= was then
  return {'refused', id, change, lineage, whole(clock)}
end
-- What never changes of it: the owner, and the name, with its length before it.
local name = TOKEN + SESSION + INCARNATION + 4
local owner_and_name = sub(entry, TOKEN + 1, name + tonumber(sub(entry, name - 3, name), 16))
local is_first = first_of(election) == token
local version = draw()
call('HSET', ENTRIES, key, version .. owner_and_name .. said, '', version)
tell('e', key, 'said')
if is_first then
  tell('h', election, 'said')
end
return {'ok', id, change, lineage, whole(clock), version}
