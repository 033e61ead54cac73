-- Ends a session, and takes all its entries out of line.
drop_session(ARGV[FIRST])
return {'ok', id, change, lineage, whole(clock)}
