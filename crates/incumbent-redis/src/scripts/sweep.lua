-- Those who are due go, a few at a time. A step that depends on one looks at that one itself, and one
-- that depends on no other leaves this to the rest: every session renews.
for _, session in ipairs(call('ZRANGEBYSCORE', SESSIONS, '-inf', whole(clock), 'LIMIT', 0, EXPIRE_AT_ONCE)) do
  drop_session(session)
end
for _, election in ipairs(call('ZRANGEBYSCORE', TOMBSTONES, '-inf', whole(clock), 'LIMIT', 0, EXPIRE_AT_ONCE)) do
  -- One that somebody has damaged is refused to those who need it, and to nobody else.
  if not pcall(office_of, election) then
    call('ZREM', TOMBSTONES, election)
  end
end
