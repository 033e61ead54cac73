-- Replaces what an entry says, if it still says what it said.
local session, election, token, was, said = unpack(arguments)
local key = election .. '\0' .. token
local entry = place_in(session, election) == token and call('HGET', ENTRIES, key)
if not entry or version_of(entry) ~= was then
  return {'refused', id, change}
end
local version = draw()
call('HSET', ENTRIES, key, version .. owner_and_name_of(entry) .. said)
tell('e', key, 'said')
if first_of(election) == token then
  tell('h', election, 'said')
end
return {'ok', id, change, version}
