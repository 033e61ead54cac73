-- Replaces a mark, if it says what it said when that was decided: what it said. A reset that was given
-- up may come late, and lower what newer leaders have raised since.
local was = redis.call('GET', KEYS[1])
if (was or '') ~= ARGV[2] then
  return redis.error_reply('INCRAISED the mark says something else')
end
redis.call('SET', KEYS[1], ARGV[1])
return was
