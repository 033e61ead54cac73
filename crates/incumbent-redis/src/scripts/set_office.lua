-- Replaces the office record, if it still has the version that was read. A tombstone that stays
-- keeps its end.
local election, was, record, ended, keep, after = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
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
