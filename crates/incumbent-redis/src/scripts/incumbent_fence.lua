-- A fence: refuses the writes of a leader that has lost office. Put this text before a script of
-- your own, and what that writes is written in one step with the check, or not at all.
--
-- KEYS[1]  the mark. It never has a TTL, and on a cluster it is in the slot of what it guards:
--          {orders}:mark beside {orders}:42
-- ARGV[1]  'write'; 'waited' if replicas are to confirm it (WAIT); or 'raise' when a leader takes
--          office: only that makes a mark
-- ARGV[2]  the fencing token, in 19 digits with zeros before it, which compare as the numbers do
-- ARGV[3]  the identity of the store that it came from, as in 41@redis-8c5f
-- ARGV[4]  the election
--
-- For what follows, KEYS and ARGV are what comes after these, 7,000 of each at most. Refused with an error: FENCED, and
-- where the mark stands, if a newer leader was here; FENCEREPLACED if the mark comes from another
-- store; FENCEELECTION if it is another election's; FENCENOMARK if there is none; FENCEDAMAGED if it
-- cannot be read; FENCETOKEN and FENCEWORDS if these are not as above.
do
  local mark = redis.call('GET', KEYS[1])
  local token, from, of = ARGV[2], ARGV[3], ARGV[4]
  if not string.match(token, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') then
    return redis.error_reply('FENCETOKEN a token has 19 digits')
  end
  local is_word = ARGV[1] == 'write' or ARGV[1] == 'waited' or ARGV[1] == 'raise'
  -- As a variable that is not set: a mark with an empty line could never be read again.
  if not is_word or not from or not string.match(from, '^[^\n]+$') or not of or of == '' then
    return redis.error_reply('FENCEWORDS write, waited or raise, then the token, the store and the election')
  end
  if not mark and ARGV[1] ~= 'raise' then
    return redis.error_reply('FENCENOMARK there is no mark')
  end
  if mark then
    local stands, its_store, its_election = string.match(mark, '^(%d+)\n([^\n]+)\n(.+)$')
    if not stands or #stands ~= 19 then
      return redis.error_reply('FENCEDAMAGED the mark cannot be read')
    end
    if its_election ~= of then
      return redis.error_reply('FENCEELECTION ' .. its_election)
    end
    if its_store ~= from then
      return redis.error_reply('FENCEREPLACED ' .. stands .. ' ' .. its_store)
    end
    if stands > token then
      return redis.error_reply('FENCED ' .. stands)
    end
  end
  local raised = token .. '\n' .. from .. '\n' .. of
  -- Written even if it stands there, where replicas are to confirm it: a write that is asked for again
  -- may write nothing, and there are versions in which replicas confirm at once what a connection has
  -- not written.
  if mark ~= raised or ARGV[1] ~= 'write' then
    redis.call('SET', KEYS[1], raised)
  end
end
local KEYS, ARGV = {unpack(KEYS, 2)}, {unpack(ARGV, 5)}
