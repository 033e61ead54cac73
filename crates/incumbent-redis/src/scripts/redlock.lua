-- One server of a Redlock, which keeps everything in one hash: whether it belongs to a store, the
-- counter that tokens are drawn above, and a lock for each election that has one.

local KEY = KEYS[1]
-- What to call this server if it turns out to be empty; of which process the caller has read whether
-- it writes to its disk before it answers, and whether it does; the store that the caller means, if
-- it means one; and what to do.
local FRESH, RUN, KEPT, STORE, VERB = unpack(ARGV, 1, 5)
local FORMAT = '1'
-- The widths of what a lock begins with: what is left of its time, when that was counted, its TTL,
-- the counter when it was taken, the newest attempt of its owner that has asked for it, its token,
-- the version of what it says, its session, incarnation.
local LEFT, WALL, TTL, BASE, ATTEMPT, TOKEN, VERSION, SESSION, INCARNATION = 11, 16, 11, 16, 16, 16, 16, 27, 32
-- By so much one clock may be faster than another while something is waited for.
local DRIFT = 1.01

local function argument(number)
  return ARGV[5 + number]
end

local function millis(number)
  return format('%011.0f', number)
end

-- Another one with every start.
local run = string.match(call('INFO', 'server'), 'run_id:(%x+)')
if run ~= RUN then
  return redis.error_reply('INCRESTARTED what the caller has read of this server was another process')
end

-- One that takes over would not know the newest locks.
if not find(replication, 'connected_slaves:0', 1, true) then
  return redis.error_reply('INCREPLICATED this server has replicas (a backup over the network is one while it ' ..
    'lasts), and a server of a Redlock must have none')
end

local meta = call('HMGET', KEY, 'format', 'server', 'store', 'counter', 'longest', 'wait', 'age', 'aged',
  'lineage', 'kept', 'asked', 'run')
if meta[1] and meta[1] ~= FORMAT then
  return redis.error_reply('INCFORMAT ' .. meta[1])
end
local server, store, counter, longest, wait, age, aged = unpack(meta, 2, 8)
-- The longest TTL of those who were told to wait: it decides nothing, and is for those who look.
local asked = meta[11] or '0'

-- It knows nothing, and says so until it is told which store it belongs to. Each emptiness has a
-- name of its own: what was meant for an earlier one does not end this one.
local function empty()
  call('DEL', KEY)
  server, store, counter, longest, wait, age, aged = FRESH, '', digits(0), millis(0), '0', '0', whole(wall)
  asked = '0'
  call('HSET', KEY, 'format', FORMAT, 'server', server, 'store', store, 'counter', counter, 'longest', longest,
    'wait', wait, 'age', age, 'aged', aged, 'lineage', lineage, 'kept', KEPT, 'run', run, 'asked', asked)
end

-- Without the last two: a server that was never asked lacks nothing, and an earlier version did not
-- write which process it was.
local is_whole = true
for field = 1, 10 do
  is_whole = is_whole and meta[field]
end
local is_other_lineage = meta[9] ~= lineage
-- Each process has a lineage of its own, but not only one: it has another when a first replica comes,
-- as every backup is (SYNC), or when what is kept for replicas is thrown away (repl-backlog-ttl).
-- Nothing is lost by these, and then the server names no second lineage.
local is_restarted = is_other_lineage
if meta[12] then
  is_restarted = meta[12] ~= run
end
-- Else it was a replica, and the second one is its primary's, or its own from before: this may be an
-- older copy of what was on anybody's disk.
local is_promoted = is_other_lineage and not find(replication, 'master_replid2:' .. string.rep('0', 40), 1, true)
-- After a restart the newest locks are lost unless everything was on its disk and that is what it
-- has read. One that does not append now may have read an older snapshot.
local is_behind = is_restarted and (meta[10] ~= 'always' or KEPT ~= 'always')
if not is_whole or is_promoted or is_behind then
  empty()
elseif is_other_lineage or meta[10] ~= KEPT or meta[12] ~= run then
  call('HSET', KEY, 'lineage', lineage, 'kept', KEPT, 'run', run)
end

local function answer(word, ...)
  return {word, server, store, counter, longest, ...}
end

-- How much of a time has passed, counted in steps of at most half of it: a wall clock that jumps
-- ahead ends no lock that is renewed in time, and one that jumps back gives the dead no more time.
local function passed_since(since, of)
  return math.max(0, math.min(wall - since, math.floor(of / 2)))
end

local function save(election, lock)
  call('HSET', KEY, '/' .. election, millis(lock.left) .. digits(lock.wall) .. millis(lock.ttl) .. lock.base ..
    lock.attempt .. lock.token .. lock.version .. lock.session .. lock.incarnation .. lock.said)
end

-- The lock of an election, if there is one and its time has not passed.
local function load(election)
  local row = call('HGET', KEY, '/' .. election)
  if not row then
    return
  end
  local at = 0
  local function take(bytes)
    at = at + bytes
    return sub(row, at - bytes + 1, at)
  end
  local lock = {left = tonumber(take(LEFT)), wall = tonumber(take(WALL)), ttl = tonumber(take(TTL))}
  lock.base, lock.attempt, lock.token, lock.version = take(BASE), take(ATTEMPT), take(TOKEN), take(VERSION)
  lock.session, lock.incarnation, lock.said = take(SESSION), take(INCARNATION), sub(row, at + 1)
  if not (lock.left and lock.wall and lock.ttl) or #lock.incarnation < INCARNATION then
    error(redis.error_reply('INCDAMAGED the lock of this election cannot be read'))
  end
  local passed = passed_since(lock.wall, lock.ttl)
  if passed >= lock.left then
    call('HDEL', KEY, '/' .. election)
    return
  end
  -- Before so much has passed that the next step would have to cut something off.
  local is_due = wall < lock.wall or passed * 8 >= lock.ttl
  lock.left, lock.wall = lock.left - passed, wall
  if is_due then
    save(election, lock)
  end
  return lock
end

-- What others see of a lock; nothing, if there is none.
local function shown(lock)
  return lock and lock.token .. lock.version .. lock.session .. lock.incarnation .. lock.said or ''
end

-- What gives up an earlier attempt does not reach it any more.
local function asked_by(lock, attempt)
  if lock.attempt < attempt then
    lock.attempt = attempt
  end
end

local function restart(election, lock, ttl)
  lock.left, lock.wall, lock.ttl = ttl, wall, ttl
  save(election, lock)
end

if VERB == 'look' then
  return answer('ok')
end

if VERB == 'seed' then
  local named, higher, known_longest = argument(1), argument(2), argument(3)
  if store ~= '' or server ~= named then
    return answer('refused')
  end
  -- Nobody knows a counter when a store is founded: it goes on from the wall clock, so that tokens
  -- are higher than those of a store that was lost.
  store, counter = STORE, higher ~= '' and higher or digits(wall / 1000 * 2 ^ 20)
  longest, wait, age, aged = known_longest, whole(tonumber(known_longest)), '0', whole(wall)
  call('HSET', KEY, 'store', store, 'counter', counter, 'longest', longest, 'wait', wait, 'age', age, 'aged', aged)
  return answer('ok')
end

if VERB == 'empty' then
  if store ~= '' and store == argument(1) then
    empty()
  end
  return answer('ok')
end

if store == '' or (STORE ~= '' and STORE ~= store) then
  return answer('other')
end

if VERB == 'read' then
  local lock = load(argument(1))
  local needed = math.max(wait, asked) * DRIFT
  -- Not in steps: nobody is given a lock by it, and where nobody asks for one no step is taken.
  local counted = age + math.max(0, wall - aged)
  if not lock and counted < needed then
    return answer('wait', whole(needed - counted))
  end
  return answer('locks', {shown(lock)})
end

if VERB == 'acquire' then
  local election, session, incarnation, attempt = argument(1), argument(2), argument(3), argument(4)
  local ttl, said = argument(5), argument(6)
  local ttl_millis = tonumber(ttl)
  -- What it knew may have been lost a moment ago, a lock of somebody who still leads among it.
  local needed = math.max(tonumber(wait), ttl_millis) * DRIFT
  if tonumber(age) < needed then
    age, aged = whole(tonumber(age) + passed_since(tonumber(aged), needed)), whole(wall)
    asked = whole(math.max(asked, ttl_millis))
    call('HSET', KEY, 'age', age, 'aged', aged, 'asked', asked)
    if tonumber(age) < needed then
      return answer('wait', whole(needed - tonumber(age)))
    end
  end
  -- Locks of elections that nobody asks for any more. One that somebody has damaged is refused to
  -- those who need it, and to nobody else.
  for _, field in ipairs(call('HRANDFIELD', KEY, 3)) do
    if sub(field, 1, 1) == '/' then
      pcall(load, sub(field, 2))
    end
  end
  local lock = load(election)
  if lock and (lock.session ~= session or (lock.incarnation ~= incarnation and lock.token ~= digits(0))) then
    return answer('locks', {shown(lock)})
  end
  if not lock or lock.incarnation ~= incarnation then
    lock = {attempt = attempt, token = digits(0), version = digits(1)}
    lock.session, lock.incarnation, lock.said = session, incarnation, said
  end
  lock.base = counter
  asked_by(lock, attempt)
  restart(election, lock, ttl_millis)
  if longest < ttl then
    longest = ttl
    call('HSET', KEY, 'longest', longest)
  end
  return answer('locks', {shown(lock)})
end

if VERB == 'number' then
  local election, session, incarnation, attempt = argument(1), argument(2), argument(3), argument(4)
  local token = argument(5)
  local lock = load(election)
  if not lock or lock.session ~= session or lock.incarnation ~= incarnation or token <= lock.base then
    return answer('refused')
  end
  -- One that comes late is of an attempt that was given up, and a later one may lead.
  if attempt < lock.attempt then
    return answer('refused')
  end
  lock.token, lock.base = token, token
  -- It may not have heard what this attempt asked for first.
  asked_by(lock, attempt)
  save(election, lock)
  if counter < token then
    counter = token
    call('HSET', KEY, 'counter', counter)
  end
  return answer('ok')
end

if VERB == 'renew' then
  local session, ttl, named = argument(1), tonumber(argument(2)), tonumber(argument(3))
  local locks, at = {}, 4
  for _ = 1, named do
    local election, lock = argument(at), load(argument(at))
    -- A lock that is gone is not made again.
    if lock and lock.session == session and lock.token == argument(at + 1) then
      restart(election, lock, ttl)
    end
    locks[#locks + 1], at = shown(lock), at + 2
  end
  while argument(at) do
    locks[#locks + 1], at = shown(load(argument(at))), at + 1
  end
  return answer('locks', locks)
end

if VERB == 'release' then
  local session, incarnation, token, attempt, at = argument(1), argument(2), argument(3), argument(4), 5
  while argument(at) do
    local lock = load(argument(at))
    -- One that comes late does not reach what was taken since.
    local is_meant = incarnation == '' or (lock and lock.incarnation == incarnation and lock.token <= token and
      lock.attempt <= attempt)
    if lock and lock.session == session and is_meant then
      call('HDEL', KEY, '/' .. argument(at))
    end
    at = at + 1
  end
  return answer('ok')
end

if VERB == 'publish' then
  local election, session, token, was = argument(1), argument(2), argument(3), argument(4)
  local lock = load(election)
  if not lock or lock.session ~= session or lock.token ~= token or lock.version > was then
    return answer('refused')
  end
  -- A name stays, with its length before it.
  local name = 4 + tonumber(sub(lock.said, 1, 4), 16)
  lock.version, lock.said = argument(5), sub(lock.said, 1, name) .. argument(6)
  save(election, lock)
  return answer('ok')
end

if VERB == 'evict' then
  local election, token, incarnation, version = argument(1), argument(2), argument(3), argument(4)
  local lock = load(election)
  if not lock or lock.token ~= token or lock.incarnation ~= incarnation then
    return answer('ok')
  end
  if lock.version > version then
    return answer('refused')
  end
  call('HDEL', KEY, '/' .. election)
  return answer('ok')
end

return redis.error_reply('ERR no such request: ' .. VERB)
