-- Replaces the office record, if it still has the version that was read. A tombstone that stays
-- keeps its end.
local election, was, record, ended, keep, after = unpack(ARGV, FIRST)
local version, _, ended_before, ends_before = office_of(election)
if version ~= was then
  return {'refused', id, change, lineage, whole(clock)}
end
local ends = digits(0)
if ended ~= '' then
  ends = ended_before == ended and ends_before or digits(clock + keep)
end
write_office(election, record, ended, ends, after)
call('HSET', ENTRIES, '', change)
return {'ok', id, change, lineage, whole(clock)}
