-- Proves that a session lives, and names a page of its places: so many after this one.
local session, after, limit = unpack(ARGV, FIRST)
local refusal = refusal_of(session)
if refusal then
  return refusal
end
local from = after == '' and '[' .. session .. '\0' or '(' .. after
local places = call('ZRANGEBYLEX', PLACES, from, '(' .. session .. '\1', 'LIMIT', 0, limit)
extend(session)
return {'ok', id, change, places}
