-- A transaction of a leader, in plain SQL. Run it under a leadership, which says the election and its token:
--
--   incumbent run jobs/nightly -- sh -c \
--     'psql -v ON_ERROR_STOP=1 -v election="$INCUMBENT_ELECTION" -v token="$INCUMBENT_TOKEN" -f fence.sql'

BEGIN;
SELECT incumbent.fence(:'election', :token);
UPDATE account SET balance = balance - 10 WHERE id = 7;
COMMIT;
