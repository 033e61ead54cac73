-- Proves that a session lives, and names a page of its places: so many after this one.
local session, after, limit = unpack(ARGV, FIRST)
local refusal = refusal_of(session)
if refusal then
  return refusal
end
extend(session)
local from = after == '' and '[' .. session .. '\0' or '(' .. after
return {'ok', id, change, call('ZRANGEBYLEX', PLACES, from, '(' .. session .. '\1', 'LIMIT', 0, limit)}
