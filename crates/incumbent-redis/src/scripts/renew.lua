-- Proves that a session lives, and names all its places.
local session = arguments[1]
local refusal = refusal_of(session)
if refusal then
  return refusal
end
extend(session)
return {'ok', id, change, places_of(session)}
