-- Replaces the office record, if it still has the version that was read. A tombstone that stays
-- keeps its end.
local election, was, record, ended, keep, after = unpack(arguments)
if office_of(election) ~= was then
  return {'refused', id, change}
end
local ends = digits(0)
if ended ~= '' then
  local row = call('HGET', OFFICES, election)
  local there = row and parse_office(row)
  ends = there and there.ended == ended and there.ends or digits(clock + tonumber(keep))
end
write_office(election, record, ended, ends, after)
return {'ok', id, change}
