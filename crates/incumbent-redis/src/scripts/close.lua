-- Ends a session, and takes all its entries out of line.
drop_session(arguments[1])
return {'ok', id, change}
