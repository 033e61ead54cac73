-- What every script begins with: is this server a primary, which history has it, and what time is
-- it? A script is not rolled back. So it is made of parts (who is due goes, one of them after the
-- other; then the step itself), each of which reads all that it needs before it writes: what fails in
-- one leaves those before it made, and each of them is whole by itself. And each call makes the functions of its script anew, which costs more than many a command: what is
-- done in one place stands there.

local call, find, format, sub = redis.call, string.find, string.format, string.sub

local function digits(number)
  return format('%016.0f', number)
end

local function whole(number)
  return format('%.0f', number)
end

local replication = call('INFO', 'replication')
if not find(replication, 'role:master', 1, true) then
  return redis.error_reply('INCREPLICA this server is a replica')
end
-- 40 digits.
local _, before_lineage = find(replication, 'master_replid:', 1, true)
local lineage = sub(replication, before_lineage + 1, before_lineage + 40)
local time = call('TIME')
local wall = time[1] * 1000 + math.floor(time[2] / 1000)
