-- Replaces a mark, whatever it says: what it was.
local was = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1])
return was
