-- Takes our entry out of line; with an heir, only while the heir's is there.
local session, election, token, heir = unpack(ARGV, FIRST)
local there, incarnation = place_in(session, election)
if there ~= token then
  return {'ok', id, change, lineage, whole(clock)}
end
if heir ~= '' and call('HEXISTS', ENTRIES, election .. '\0' .. heir) == 0 then
  return {'refused', id, change, lineage, whole(clock)}
end
remove(election, token)
-- Where somebody has taken the entry away, the place is left.
call('ZREM', PLACES, session .. '\0' .. election .. '\0' .. token .. incarnation)
return {'ok', id, change, lineage, whole(clock)}
