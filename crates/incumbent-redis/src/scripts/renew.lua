-- Proves that a session lives, and names all its places.
local session = ARGV[5]
if not remaining_of(session) then
  return {'gone', id, change}
end
extend(session)
return {'ok', id, change, places_of(session)}
