-- What every step begins with: is this the primary, is everything there, what time is it, who is
-- due to go? And what the steps have in common. Nothing here may fail once something was written: a
-- script is not rolled back.

local META, SESSIONS, LINES, ENTRIES, PLACES, OFFICES, TOMBSTONES, LED = unpack(KEYS)
-- An identity to found with, the store that the caller's session belongs to, and what the caller
-- knows of which store, and of which history of it.
local FRESH, SESSION_STORE, KNOWN_STORE, KNOWN_CHANGE, KNOWN_LINEAGE = unpack(ARGV, 1, 5)
-- Whether the caller's session was renewed less than a TTL ago, by the caller's clock.
local PROVEN = ARGV[6] == 'proven'
-- Whether replicas are to confirm the step.
local CONFIRMED = ARGV[7] == 'waited'
local arguments = {unpack(ARGV, 8)}
local FORMAT = '1'
-- Widths of what is written with a fixed one.
local TOKEN, TTL, SESSION, INCARNATION = 16, 11, 27, 32
-- No failover loses more changes than this, and no store makes more in a second, on average.
local LOST_AT_MOST, PER_SECOND = 2 ^ 28, 2 ^ 20
-- Numbers are exact up to 2^53. No step draws more than what this leaves.
local HIGHEST = 2 ^ 53 - LOST_AT_MOST
-- A step that waited no longer than this need not ask how far the clock may advance. No TTL is
-- shorter than twice this.
local SHORT_MS = 50
local EXPIRE_AT_ONCE = 200

local call = redis.call

local function digits(number)
  return string.format('%016.0f', number)
end

local function whole(number)
  return string.format('%.0f', number)
end

local replication = call('INFO', 'replication')
if not string.find(replication, 'role:master', 1, true) then
  return redis.error_reply('INCREPLICA this server is a replica')
end
local lineage = string.match(replication, 'master_replid:(%x+)')
local time = call('TIME')
local seconds = tonumber(time[1]) + tonumber(time[2]) / 1000000
local wall = math.floor(seconds * 1000)
-- Where the changes of a store would be by now that had made as many as it may, ever since 1970:
-- below 2^53 until 2242.
local change_by_clock = math.floor(seconds * PER_SECOND)

local meta = call('HMGET', META, 'format', 'id', 'change', 'lineage', 'clock', 'wall', 'hold', 'taken_over',
  'longest')
if meta[1] and meta[1] ~= FORMAT then
  return redis.error_reply('INCFORMAT ' .. meta[1])
end
local id, change, known_lineage = meta[2], meta[3], meta[4]
local clock, clock_wall, hold = tonumber(meta[5] or 0), tonumber(meta[6] or 0), tonumber(meta[7] or 0)
local taken_over, longest = tonumber(meta[8] or '') or -math.huge, tonumber(meta[9] or 0)
local keys_there = call('EXISTS', unpack(KEYS))
local is_whole = keys_there == #KEYS
for field = 1, #meta do
  is_whole = is_whole and meta[field]
end

-- Where the counter goes on.
local going_on = tonumber(change or 0)
local is_taken_over = is_whole and known_lineage ~= lineage
if is_taken_over then
  -- Another may have gone on from the same change, and is left for this one: the later, the higher.
  local since = math.floor(math.max(0, wall - clock_wall) * PER_SECOND / 1000)
  going_on = math.max(going_on + LOST_AT_MOST + since, change_by_clock)
end
-- Something is missing; or somebody put an old copy back into a running server: what comes now was
-- there before, and is not to be trusted. Even so tokens are higher than before.
local is_founded = not is_whole or KNOWN_STORE == id and tonumber(KNOWN_CHANGE) > going_on
if is_founded then
  going_on = math.max(change_by_clock, tonumber(KNOWN_CHANGE) + 1, tonumber(change or 0) + 1)
end
if going_on >= HIGHEST then
  return redis.error_reply('INCHIGHEST ' .. whole(going_on))
end

-- The longest TTL of the sessions that are known.
local function longest_known()
  local session = call('ZREVRANGEBYLEX', PLACES, '(U', '[T', 'LIMIT', 0, 1)[1]
  return session and tonumber(string.sub(session, 2, 1 + TTL)) or 0
end

-- Begins anew. Where a store was before, a leader may be in office that has not been told.
local function found()
  local forgotten = math.max(longest, longest_known(), hold - clock)
  local was_known = KNOWN_STORE ~= '' or keys_there > 0
  call('DEL', unpack(KEYS))
  for _, key in ipairs({LINES, PLACES}) do
    call('ZADD', key, 0, '')
  end
  for _, key in ipairs({SESSIONS, TOMBSTONES}) do
    call('ZADD', key, '+inf', '')
  end
  for _, key in ipairs({ENTRIES, OFFICES, LED}) do
    call('HSET', key, '', '')
  end
  id, change, known_lineage = FRESH, digits(going_on), lineage
  clock, clock_wall, hold, longest = 0, wall, forgotten, 0
  taken_over = was_known and 0 or -math.huge
  call('HSET', META, 'format', FORMAT, 'id', id, 'change', change, 'lineage', lineage, 'clock', '0',
    'wall', whole(wall), 'hold', whole(hold), 'taken_over', was_known and '0' or '', 'longest', '0')
end
if is_founded then
  found()
elseif KNOWN_STORE ~= '' and KNOWN_STORE ~= id and taken_over < 0 then
  -- One came first who did not know that a store was here before.
  taken_over = 0
  call('HSET', META, 'taken_over', '0')
end

-- The store's own clock, in milliseconds. It follows the wall clock by steps of at most half the
-- shortest TTL: one that jumps ahead expires nobody who renews in time, and one that jumps back
-- gives the dead no more time. What a caller's clock has counted is not asked for: it is old when it
-- arrives, and would vouch for time that had not passed.
local function set_clock()
  call('HSET', META, 'clock', whole(clock), 'wall', whole(wall))
end

local function advance_clock()
  local passed = wall - clock_wall
  local most = math.huge
  if passed > SHORT_MS then
    local shortest = call('ZRANGEBYLEX', PLACES, '[T', '(U', 'LIMIT', 0, 1)[1]
    most = shortest and math.floor(tonumber(string.sub(shortest, 2, 1 + TTL)) / 2) or passed
  end
  clock = clock + math.max(0, math.min(passed, most))
  -- Before so much has passed that the next step would have to cut something off.
  if passed < 0 or passed * 4 >= most then
    set_clock()
  end
end
advance_clock()

-- The next number: tokens, versions and the names of sessions are all drawn from here.
local function draw()
  change = digits(tonumber(change) + 1)
  call('HSET', META, 'change', change)
  return change
end

-- Only a hint: a user without rights on the channel must not be left with half a step.
local function tell(kind, what, news)
  redis.pcall('PUBLISH', string.sub(META, 1, -2) .. kind .. ':' .. what, news)
end

-- An entry: version, session, incarnation, length of the name in four hexadecimal digits, name,
-- what the candidate says.
local function version_of(entry)
  return string.sub(entry, 1, TOKEN)
end

local function session_of(entry)
  return string.sub(entry, TOKEN + 1, TOKEN + SESSION)
end

local function incarnation_of(entry)
  return string.sub(entry, TOKEN + SESSION + 1, TOKEN + SESSION + INCARNATION)
end

-- What never changes of it.
local function owner_and_name_of(entry)
  local name = TOKEN + SESSION + INCARNATION + 4
  return string.sub(entry, TOKEN + 1, name + tonumber(string.sub(entry, name - 3, name), 16))
end

local function first_of(election)
  local key = call('ZRANGEBYLEX', LINES, '[' .. election .. '\0', '(' .. election .. '\1', 'LIMIT', 0, 1)[1]
  return key and string.sub(key, -TOKEN)
end

-- Takes an entry out of line.
local function remove(election, token)
  local key = election .. '\0' .. token
  local entry = call('HGET', ENTRIES, key)
  if not entry then
    call('ZREM', LINES, key)
    return
  end
  local was_first = first_of(election) == token
  draw()
  call('ZREM', LINES, key)
  call('HDEL', ENTRIES, key)
  call('ZREM', PLACES, session_of(entry) .. '\0' .. key .. incarnation_of(entry))
  if call('HGET', LED, election) == token then
    call('HDEL', LED, election)
  end
  tell('e', key, 'gone')
  if was_first then
    tell('h', election, 'other')
  end
end

-- Election, token and incarnation of a place.
local function parse_place(place)
  local incarnation = string.sub(place, -INCARNATION)
  local token = string.sub(place, -TOKEN - INCARNATION, -INCARNATION - 1)
  return string.sub(place, SESSION + 2, -TOKEN - INCARNATION - 2), token, incarnation
end

local function places_of(session)
  return call('ZRANGEBYLEX', PLACES, '[' .. session .. '\0', '(' .. session .. '\1')
end

-- Token and incarnation of a session's entry in an election.
local function place_in(session, election)
  local prefix = session .. '\0' .. election
  local place = call('ZRANGEBYLEX', PLACES, '[' .. prefix .. '\0', '(' .. prefix .. '\1', 'LIMIT', 0, 1)[1]
  if place then
    local _, token, incarnation = parse_place(place)
    return token, incarnation
  end
end

local function ttl_of(session)
  return string.sub(session, -TTL)
end

local function drop_session(session)
  call('ZREM', SESSIONS, session)
  call('ZREM', PLACES, 'T' .. ttl_of(session) .. session, 'R' .. session)
  for _, place in ipairs(places_of(session)) do
    local election, token = parse_place(place)
    remove(election, token)
  end
end

-- Starts a session's TTL.
local function extend(session)
  call('ZADD', SESSIONS, whole(clock + tonumber(ttl_of(session))), session)
end

-- How long a session has yet; nil if it is gone. One whose time has passed is never revived.
local function remaining_of(session)
  local score = call('ZSCORE', SESSIONS, session)
  if not score then
    return
  end
  local remaining = tonumber(score) - clock
  if remaining > 0 then
    return remaining
  end
  drop_session(session)
end

-- Another history goes on from here: the server was restarted, or another one took over, and the
-- newest changes may be lost. So tokens leap over those; entries that never led have to come again,
-- above the leap; nobody takes office until every leader that may be forgotten has given up; and a
-- failover costs no session its life that was renewed in time, which only its owner can say: those
-- that are marked with an R it has not said it of yet.
local function take_over()
  change = digits(going_on)
  for _, key in ipairs(call('ZRANGEBYLEX', LINES, '(', '+')) do
    local election, token = string.sub(key, 1, -TOKEN - 2), string.sub(key, -TOKEN)
    if call('HGET', LED, election) ~= token then
      remove(election, token)
    end
  end
  for _, session in ipairs(call('ZRANGEBYSCORE', SESSIONS, '-inf', '(+inf')) do
    extend(session)
    call('ZADD', PLACES, 0, 'R' .. session)
  end
  -- The longest TTL that was granted since the last time, whether or not its session is known. The
  -- TTL of one that is not known, and longer than any before it, cannot be: see hold_for.
  hold = math.max(hold, clock + math.max(longest, longest_known()))
  taken_over, longest = clock, longest_known()
  call('HSET', META, 'change', change, 'lineage', lineage, 'hold', whole(hold), 'taken_over', whole(taken_over),
    'longest', whole(longest))
end
if is_taken_over and not is_founded then
  take_over()
end

-- An office record: version, end of its tombstone, lengths of what follows but for the last, what
-- tells one tombstone from another, the record, and the record without the tombstone.
local function parse_office(row)
  local ended, record = tonumber(string.sub(row, 33, 40)), tonumber(string.sub(row, 41, 48))
  return {
    version = string.sub(row, 1, 16),
    ends = string.sub(row, 17, 32),
    ended = string.sub(row, 49, 48 + ended),
    record = string.sub(row, 49 + ended, 48 + ended + record),
    after = string.sub(row, 49 + ended + record),
  }
end

-- Version and record, as answers have them.
local function office_of(election)
  local row = call('HGET', OFFICES, election)
  if not row then
    return '', ''
  end
  local office = parse_office(row)
  return office.version, office.record
end

local function write_office(election, record, ended, ends, after)
  local version = draw()
  if record == '' then
    call('HDEL', OFFICES, election)
  else
    local lengths = string.format('%08.0f%08.0f', #ended, #record)
    call('HSET', OFFICES, election, version .. ends .. lengths .. ended .. record .. after)
  end
  if record ~= '' and ended ~= '' then
    call('ZADD', TOMBSTONES, whole(tonumber(ends)), election)
  else
    call('ZREM', TOMBSTONES, election)
  end
  tell('o', election, 'other')
end

-- A few at a time: whoever depends on one looks at that one itself.
for _, session in ipairs(call('ZRANGEBYSCORE', SESSIONS, '-inf', whole(clock), 'LIMIT', 0, EXPIRE_AT_ONCE)) do
  drop_session(session)
end
for _, election in ipairs(call('ZRANGEBYSCORE', TOMBSTONES, '-inf', whole(clock), 'LIMIT', 0, EXPIRE_AT_ONCE)) do
  local office = parse_office(call('HGET', OFFICES, election))
  write_office(election, office.after, '', digits(0), '')
end

if SESSION_STORE ~= '' and SESSION_STORE ~= id then
  return {'reset', id, change}
end
-- Replicas confirm what a connection wrote. There are versions in which they would confirm
-- everything on a new one that has written nothing.
if CONFIRMED then
  call('HSET', META, 'waited', FRESH)
end

-- How long this session waits yet before it may take office. A leader that is forgotten may have a
-- longer TTL than all that are known; its rivals, as a rule, have the same.
local function hold_for(session)
  return math.max(hold, taken_over + tonumber(ttl_of(session))) - clock
end

-- What a step answers that belongs to a session which cannot make it; nil: it lives. After a change
-- of history its owner says that it was renewed in time, in a message that it sent knowing of the
-- change: else another may have led since.
local function refusal_of(session)
  if not remaining_of(session) then
    return {'gone', id, change}
  end
  if not call('ZSCORE', PLACES, 'R' .. session) then
    return
  end
  if KNOWN_LINEAGE ~= lineage then
    return {'again', id, change, lineage}
  end
  if not PROVEN then
    drop_session(session)
    return {'gone', id, change}
  end
  call('ZREM', PLACES, 'R' .. session)
end

-- The newest of those older than this token, what it says, and how long its session has yet. Those
-- who are due go first: nobody leads past one of them while it is there.
local function ahead_of(election, token)
  while true do
    local newest = '(' .. election .. '\0' .. token
    local key = call('ZREVRANGEBYLEX', LINES, newest, '[' .. election .. '\0', 'LIMIT', 0, 1)[1]
    if not key then
      return
    end
    local entry = call('HGET', ENTRIES, key)
    local remaining = entry and remaining_of(session_of(entry))
    if remaining then
      return string.sub(key, -TOKEN), entry, remaining
    end
    remove(election, string.sub(key, -TOKEN))
  end
end

-- The only maker of leaders.
local function standing(session, election, token, incarnation)
  local entry = call('HGET', ENTRIES, election .. '\0' .. token)
  local ahead, said, remaining = ahead_of(election, token)
  local place = 'behind'
  if not ahead then
    place, ahead, said, remaining = 'leads', '', '', 0
    if call('HGET', LED, election) ~= token then
      if hold_for(session) > 0 then
        return {'hold', id, change, whole(hold_for(session))}
      end
      -- Survives a change of lineage.
      call('HSET', LED, election, token)
    end
  end
  local version, record = office_of(election)
  local answer = {place, id, change, version, record, version_of(entry), token, incarnation}
  answer[9], answer[10], answer[11] = ahead, said, whole(remaining)
  return answer
end
