-- Ends a session, and takes all its entries out of line.
drop_session(ARGV[5])
return {'ok', id, change}
