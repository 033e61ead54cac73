-- Commands one after the other, each with the number of its words before it.
local at = 1
while ARGV[at] do
  local words = tonumber(ARGV[at])
  redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return redis.status_reply('OK')
