-- What the steps of a session that wants to lead have in common.

-- How long it waits yet before it may take office. A leader that is forgotten may have a longer TTL
-- than all that are known; its rivals, as a rule, have the same.
local function hold_for(session)
  return math.max(hold, taken_over + ttl_of(session)) - clock
end

-- What a step answers that belongs to a session which cannot make it; nil: it lives. One whose time
-- has passed is never revived. After a change of history its owner says that it was renewed in time,
-- in a message that it sent knowing of the change: else another may have led since.
local function refusal_of(session)
  local ends, is_unheard = unpack(call('ZMSCORE', SESSIONS, session, 'R' .. session))
  local is_living = ends and ends + 0 > clock
  if is_living and not is_unheard then
    return
  end
  if is_living and KNOWN_LINEAGE ~= lineage then
    return {'again', id, change, lineage, whole(clock)}
  end
  if is_living and PROVEN then
    call('ZREM', SESSIONS, 'R' .. session)
    return
  end
  if ends then
    drop_session(session)
  end
  return {'gone', id, change, lineage, whole(clock)}
end

-- The newest of those in line before this point, what it says, and how long its session has yet. Those
-- who are due go first: nobody leads past one of them while it is there.
local function ahead_of(election, point)
  while true do
    local key = call('ZREVRANGEBYLEX', LINES, '(' .. election .. point, '[' .. election .. '\0', 'LIMIT', 0, 1)[1]
    if not key then
      return
    end
    local entry = call('HGET', ENTRIES, key)
    local ends = entry and call('ZSCORE', SESSIONS, session_of(entry))
    if ends and ends + 0 > clock then
      return sub(key, -TOKEN), entry, ends - clock
    end
    if ends then
      drop_session(session_of(entry))
    end
    remove(election, sub(key, -TOKEN))
  end
end

-- What is answered to an entry: who is ahead, if anybody is, what that one says, and for how long it
-- may be silent.
local function standing(office, record, token, incarnation, published, ahead, said, remaining)
  if not ahead then
    return {'leads', id, change, lineage, whole(clock), office, record, published, token, incarnation}
  end
  return {'behind', id, change, lineage, whole(clock), office, record, published, token, incarnation, ahead, said, whole(remaining)}
end

-- Where an entry stands that is in line. Leaders are made here, and where an entry is put at the end
-- of a line in which nobody is.
local function stand(session, election, token, incarnation)
  local key = election .. '\0' .. token
  local entry, in_line = call('HGET', ENTRIES, key), call('ZSCORE', LINES, key)
  -- Before anything is written, since it may be damaged.
  local office, record = office_of(election)
  if not entry or not in_line then
    -- Somebody has taken it away.
    return {'lost', id, change, lineage, whole(clock), office, record}
  end
  local ahead, said, remaining = ahead_of(election, '\0' .. token)
  if not ahead and call('HGET', LED, election) ~= token then
    if hold_for(session) > 0 then
      return {'hold', id, change, lineage, whole(clock), whole(hold_for(session))}
    end
    -- Survives a change of lineage.
    call('HSET', LED, election, token)
  end
  return standing(office, record, token, incarnation, sub(entry, 1, TOKEN), ahead, said, remaining)
end
