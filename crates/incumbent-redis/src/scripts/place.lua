-- Token and incarnation of a session's entry in an election.
local function place_in(session, election)
  local prefix = session .. '\0' .. election
  local place = call('ZRANGEBYLEX', PLACES, '[' .. prefix .. '\0', '(' .. prefix .. '\1', 'LIMIT', 0, 1)[1]
  if place then
    return sub(place, -TOKEN - INCARNATION, -INCARNATION - 1), sub(place, -INCARNATION)
  end
end
