-- What every step begins with: is everything there, is it the same history, and what time is it? And
-- what the steps have in common. Who is due to go is asked in sweep.lua, by the steps that include it.

local META, SESSIONS, LINES, ENTRIES, PLACES, OFFICES, TOMBSTONES, LED = unpack(KEYS)
-- An identity to found with, the store that the caller's session belongs to, and what the caller
-- knows of which store, and of which history of it.
local FRESH, SESSION_STORE, KNOWN_STORE, KNOWN_CHANGE, KNOWN_LINEAGE = unpack(ARGV, 1, 5)
-- Whether the caller's session was renewed less than a TTL ago, by the caller's clock.
local PROVEN = ARGV[6] == 'proven'
-- Whether replicas are to confirm the step.
local CONFIRMED = ARGV[7] == 'waited'
-- What the store's clock shows by now at least, by the caller's: what it showed there last, and how
-- long ago that was. That is old when it arrives, and so never too much.
local SHOWN = tonumber(ARGV[8])
-- Where the step's own arguments begin.
local FIRST = 9
local FORMAT = '1'
-- Widths of what is written with a fixed one.
local TOKEN, TTL, SESSION, INCARNATION = 16, 11, 27, 32
-- No failover loses more changes than this, and no store makes more in a second, on average.
local LOST_AT_MOST, PER_SECOND = 2 ^ 28, 2 ^ 20
-- Numbers are exact up to 2^53. No step draws more than what this leaves.
local HIGHEST = 2 ^ 53 - LOST_AT_MOST
local EXPIRE_AT_ONCE = 200
-- In milliseconds: how much of the time counts that passed while no session was open, and the
-- longest TTL that is granted.
local UNSEEN_AT_MOST, LONGEST_TTL = 1000, 3600000

local meta = call('HMGET', META, 'format', 'id', 'change', 'lineage', 'clock', 'wall', 'hold', 'taken_over',
  'longest', 'shortest')
if meta[1] and meta[1] ~= FORMAT then
  return redis.error_reply('INCFORMAT ' .. meta[1])
end
local id, change, known_lineage = meta[2], meta[3], meta[4]
local clock, clock_wall, hold = tonumber(meta[5] or 0), tonumber(meta[6] or 0), tonumber(meta[7] or 0)
-- When another history began, if one ever did; the longest TTL that was granted since; and a TTL
-- that no open session goes below, or 0.
local taken_over = tonumber(meta[8] or '') or -math.huge
local longest, shortest = tonumber(meta[9] or 0), tonumber(meta[10] or 0)
local keys_there = call('EXISTS', unpack(KEYS))
local is_whole = keys_there == #KEYS
-- Without the last, which may be unknown.
for field = 1, 9 do
  is_whole = is_whole and meta[field]
end

-- Where the counter goes on.
local going_on = tonumber(change or 0)
-- Where the changes of a store would be by now that had made as many as it may, ever since 1970:
-- below 2^53 until 2242.
local change_by_clock = math.floor(wall / 1000 * PER_SECOND)
local is_taken_over = is_whole and known_lineage ~= lineage
if is_taken_over then
  -- Another may have gone on from the same change, and is left for this one: the later, the higher.
  local since = math.floor(math.max(0, wall - clock_wall) * PER_SECOND / 1000)
  going_on = math.max(going_on + LOST_AT_MOST + since, change_by_clock)
end
-- The newest number that such a step has drawn before, which it keeps there. Who knows nothing of this
-- store cannot tell an old counter from the right one, and would draw its numbers a second time.
local newest = DRAWS and tonumber(call('HGET', ENTRIES, '') or '') or 0
-- Something is missing; or somebody put an old copy back into a running server: what comes now was
-- there before, and is not to be trusted. Even so tokens are higher than before.
local knows_more = is_whole and KNOWN_STORE == id and tonumber(KNOWN_CHANGE) > going_on
if knows_more and not is_taken_over and KNOWN_LINEAGE ~= lineage then
  -- The caller has met one that went on from this store elsewhere: it was replaced.
  return redis.error_reply('INCREPLACED another primary has gone on from its elections')
end
local is_founded = not is_whole or knows_more or newest > going_on
if is_founded then
  going_on = math.max(change_by_clock, tonumber(KNOWN_CHANGE) + 1, tonumber(change or 0) + 1, newest + 1)
end
if going_on >= HIGHEST then
  return redis.error_reply('INCHIGHEST ' .. whole(going_on))
end

-- The longest TTL of the sessions that are known; 0 if there is none.
local function longest_known()
  local row = call('ZREVRANGEBYLEX', PLACES, '(U', '[T', 'LIMIT', 0, 1)[1]
  return row and tonumber(sub(row, 2, 1 + TTL)) or 0
end

if is_founded then
  -- Begins anew. Where a store was before, a leader may be in office that has not been told.
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
  clock, clock_wall, hold, longest, shortest = 0, wall, forgotten, 0, 0
  taken_over = was_known and 0 or -math.huge
  call('HSET', META, 'format', FORMAT, 'id', id, 'change', change, 'lineage', lineage, 'clock', '0',
    'wall', whole(wall), 'hold', whole(hold), 'taken_over', was_known and '0' or '', 'longest', '0',
    'shortest', '0')
  -- To all who wait for anything: tokens went on, and so nobody would see it by those.
  redis.pcall('PUBLISH', sub(META, 1, -2) .. '-', 'founded')
elseif KNOWN_STORE ~= '' and KNOWN_STORE ~= id and taken_over < 0 then
  -- One came first who did not know that a store was here before.
  taken_over = 0
  call('HSET', META, 'taken_over', '0')
end

-- The store's own clock, in milliseconds. It follows the wall clock by steps of at most half the
-- shortest TTL: one that jumps ahead expires nobody who renews in time, and one that jumps back
-- gives the dead no more time. All that has passed counts where the caller says so, too: by what it has
-- seen the store's clock show, and has counted since, by a clock that does not jump. Else those with a
-- shorter TTL who died would keep others with a longer one in office.
local passed = wall - clock_wall
-- Before so much has passed that the next step would have to cut something off.
if passed < 0 or passed * 8 >= shortest then
  local row = call('ZRANGEBYLEX', PLACES, '[T', '(U', 'LIMIT', 0, 1)[1]
  shortest = row and tonumber(sub(row, 2, 1 + TTL)) or 0
  local may_forget_one = math.max(hold, taken_over + LONGEST_TTL) > clock
  -- Where no session is open, nobody can be expired; but one that is forgotten may be in office.
  local most = shortest > 0 and math.floor(shortest / 2) or may_forget_one and UNSEEN_AT_MOST or passed
  local shown = KNOWN_STORE == id and KNOWN_LINEAGE == lineage and SHOWN or 0
  clock = clock + math.max(0, math.min(passed, math.max(most, shown - clock)))
  clock_wall = wall
  call('HSET', META, 'clock', whole(clock), 'wall', whole(wall), 'shortest', whole(shortest))
else
  clock = clock + passed
end

-- The next number: tokens, versions and the names of sessions are all drawn from here.
local function draw()
  change = digits(change + 1)
  call('HSET', META, 'change', change)
  return change
end

-- Only a hint: a user without rights on the channel must not be left with half a step.
local function tell(kind, what, news)
  redis.pcall('PUBLISH', sub(META, 1, -2) .. kind .. ':' .. what, news)
end

-- An entry: version, session, incarnation, length of the name in four hexadecimal digits, name,
-- what the candidate says.
local function session_of(entry)
  return sub(entry, TOKEN + 1, TOKEN + SESSION)
end

local function incarnation_of(entry)
  return sub(entry, TOKEN + SESSION + 1, TOKEN + SESSION + INCARNATION)
end

local function first_of(election)
  local key = call('ZRANGEBYLEX', LINES, '[' .. election .. '\0', '(' .. election .. '\1', 'LIMIT', 0, 1)[1]
  return key and sub(key, -TOKEN)
end

-- Takes an entry out of line. All keys but one have been read before the first write, and that one
-- is written first: what somebody made something else of stops the step before it has done anything.
local function remove(election, token)
  local key = election .. '\0' .. token
  local entry = call('HGET', ENTRIES, key)
  if not entry then
    call('ZREM', LINES, key)
    return
  end
  local was_first, was_led = first_of(election) == token, call('HGET', LED, election) == token
  call('ZREM', PLACES, session_of(entry) .. '\0' .. key .. incarnation_of(entry))
  draw()
  call('ZREM', LINES, key)
  call('HDEL', ENTRIES, key)
  if was_led then
    call('HDEL', LED, election)
  end
  tell('e', key, 'gone')
  if was_first then
    tell('h', election, 'other')
  end
end

local function ttl_of(session)
  return sub(session, -TTL)
end

-- Whoever calls this has read the sessions.
local function drop_session(session)
  for _, place in ipairs(call('ZRANGEBYLEX', PLACES, '[' .. session .. '\0', '(' .. session .. '\1')) do
    remove(sub(place, SESSION + 2, -TOKEN - INCARNATION - 2), sub(place, -TOKEN - INCARNATION, -INCARNATION - 1))
    -- Somebody may have taken its entry away.
    call('ZREM', PLACES, place)
  end
  call('ZREM', PLACES, 'T' .. ttl_of(session) .. session)
  call('ZREM', SESSIONS, session, 'R' .. session)
end

-- Starts a session's TTL.
local function extend(session)
  call('ZADD', SESSIONS, whole(clock + ttl_of(session)), session)
end

if is_taken_over and not is_founded then
  -- Another history goes on from here: the server was restarted, or another one took over, and the
  -- newest changes may be lost. So tokens leap over those; entries that never led have to come again,
  -- above the leap; nobody takes office until every leader that may be forgotten has given up; and a
  -- failover costs no session its life that was renewed in time, which only its owner can say: those
  -- that are marked with an R it has not said it of yet.
  local sessions, longest_before = call('ZRANGEBYSCORE', SESSIONS, '-inf', '(+inf'), longest_known()
  change = digits(going_on)
  for _, key in ipairs(call('ZRANGEBYLEX', LINES, '(', '+')) do
    local election, token = sub(key, 1, -TOKEN - 2), sub(key, -TOKEN)
    if call('HGET', LED, election) ~= token then
      remove(election, token)
    end
  end
  for _, session in ipairs(sessions) do
    extend(session)
    call('ZADD', SESSIONS, '+inf', 'R' .. session)
  end
  -- The longest TTL that was granted since the last time, whether or not its session is known. The
  -- TTL of one that is not known, and longer than any before it, cannot be: see hold_for.
  hold = math.max(hold, clock + math.max(longest, longest_before))
  taken_over, longest = clock, longest_before
  call('HSET', META, 'change', change, 'lineage', lineage, 'hold', whole(hold), 'taken_over', whole(taken_over),
    'longest', whole(longest))
end

-- An office record: version, end of its tombstone, lengths of what follows but for the last, what
-- tells one tombstone from another, the record, and the record without the tombstone.
-- Whoever calls this has read the records.
local function write_office(election, record, ended, ends, after)
  if record ~= '' and ended ~= '' then
    call('ZADD', TOMBSTONES, whole(ends), election)
  else
    call('ZREM', TOMBSTONES, election)
  end
  local version = draw()
  if record == '' then
    call('HDEL', OFFICES, election)
  else
    local lengths = format('%08.0f%08.0f', #ended, #record)
    call('HSET', OFFICES, election, version .. ends .. lengths .. ended .. record .. after)
  end
  tell('o', election, 'other')
end

-- Version and record, as answers have them, and the tombstone: what tells it from another, and when
-- it ends. One whose time has passed is taken away here.
local function office_of(election)
  local row = call('HGET', OFFICES, election)
  if not row then
    return '', '', '', ''
  end
  local ends, ended_bytes, record_bytes = sub(row, 17, 32), sub(row, 33, 40), sub(row, 41, 48)
  if not (tonumber(ends) and tonumber(ended_bytes) and tonumber(record_bytes)) then
    error(redis.error_reply('INCDAMAGED the office record cannot be read'))
  end
  if ended_bytes + 0 > 0 and ends + 0 <= clock then
    write_office(election, sub(row, 49 + ended_bytes + record_bytes), '', digits(0), '')
    return office_of(election)
  end
  local ended, record = sub(row, 49, 48 + ended_bytes), sub(row, 49 + ended_bytes, 48 + ended_bytes + record_bytes)
  return sub(row, 1, 16), record, ended, ends
end

if SESSION_STORE ~= '' and SESSION_STORE ~= id then
  return {'reset', id, change, lineage, whole(clock)}
end
-- Replicas confirm what a connection wrote. There are versions in which they would confirm
-- everything on a new one that has written nothing.
if CONFIRMED then
  call('HSET', META, 'waited', FRESH)
end
