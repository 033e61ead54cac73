-- Elections in PostgreSQL: tables, and one function for each step. Every function locks first and
-- reads in a later statement: in READ COMMITTED each statement of a VOLATILE function has a
-- snapshot of its own, so that what was waited for is seen. (One statement that locks and reads
-- works on a snapshot from before the wait: it removed a leader that had just been renewed.)
--
-- Locks are taken in this order: the row of store, rows of election by name, rows of session,
-- entries. Who holds an election skips a session that is locked. Only close_1 waits for one, its own:
-- whoever has locked a session waits for no election.
--
-- Times are clock_timestamp(), never now(), which is when the transaction began.
--
-- Parameters: s session, e election, t token, i incarnation, n name, v value, r ready, m merit, u
-- unwell, of the store; was: the version that is to be replaced. (One that is renamed means DROP FUNCTION, and those
-- who call it then fail in between.)

-- What reads for long, such as a dump, would be waited for while all elections wait for us.
SET LOCAL lock_timeout = '1s';

-- Not IF NOT EXISTS, which asks for the right to create schemas even where there is one.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = {name}) THEN
        CREATE SCHEMA {schema};
    END IF;
END
$$;

-- An older command would put its functions into the place of newer ones.
DO $$
DECLARE
    there int;
BEGIN
    IF to_regclass('{schema}.store') IS NOT NULL THEN
        there := (SELECT max(version) FROM {schema}.store);
        IF there > {version} THEN
            RAISE EXCEPTION 'the schema {schema} has version %, and this makes version {version}: a newer command prints what it needs',
                there USING ERRCODE = '55000';
        END IF;
    END IF;
END
$$;

-- What is true of the whole store. history: which server wrote last, see begin_step.
-- quiet_until: nobody leads before, see leap. longest_us: the longest TTL that was ever granted, and
-- the usual one at least: a standby may not know of the first that was.
-- leapt_to, leapt_at: the number after the last leap, or at first, and when that was.
CREATE TABLE IF NOT EXISTS {schema}.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL,
    version int NOT NULL,
    oldest_library int NOT NULL,
    history text NOT NULL,
    quiet_until timestamptz NOT NULL DEFAULT '-infinity',
    longest_us bigint NOT NULL DEFAULT 15000000,
    leapt_to bigint NOT NULL,
    leapt_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Tokens, versions and cursors: one sequence for all elections, drawn from under an election's lock,
-- so that numbers and what they stand for become visible in one order. Only every second number is
-- drawn: the next one is the version of an office record whose tombstone is over. The start is far
-- above everybody's marks, should the schema be dropped and made again.
DO $$
BEGIN
    IF to_regclass('{schema}.number') IS NULL THEN
        EXECUTE format('CREATE SEQUENCE {schema}.number INCREMENT 2 START %s',
            extract(epoch FROM clock_timestamp())::bigint * 1048576);
    END IF;
END
$$;

-- No index on expires_at: every renewal would write to it.
CREATE TABLE IF NOT EXISTS {schema}.session (
    id bytea PRIMARY KEY,
    ttl_us bigint NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- counter: the last number that was drawn for it.
-- office: the record while its tombstone counts, or if it has none; afterwards: what is left of it
-- then, with the next higher version. office_version: the number that was drawn when it was written.
CREATE TABLE IF NOT EXISTS {schema}.election (
    name bytea PRIMARY KEY,
    counter bigint NOT NULL DEFAULT 0,
    office bytea,
    office_version bigint NOT NULL DEFAULT 0,
    afterwards bytea,
    ended_id bigint,
    tombstone_until timestamptz
) WITH (fillfactor = 50);

-- An entry whose session is gone or has expired is dead, and is removed by the next that looks.
CREATE TABLE IF NOT EXISTS {schema}.entry (
    election bytea NOT NULL,
    token bigint NOT NULL,
    session bytea NOT NULL,
    incarnation bytea NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    ready bigint,
    changed bigint NOT NULL,
    PRIMARY KEY (election, token),
    UNIQUE (session, election)
);
-- Only where it is missing: ALTER TABLE waits for everybody who reads, and everybody else for it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = to_regclass('{schema}.entry') AND attname = 'merit') THEN
        ALTER TABLE {schema}.entry ADD COLUMN merit text NOT NULL DEFAULT '';
        -- Version 2 had a column for the one word that there was.
        IF EXISTS (SELECT FROM pg_catalog.pg_attribute
            WHERE attrelid = to_regclass('{schema}.entry') AND attname = 'unwell') THEN
            UPDATE {schema}.entry SET merit = 'unwell' WHERE unwell;
        END IF;
    END IF;
END
$$;

-- The highest token that a fence has seen, and the store that it came from. wanted: one to which it
-- is to be raised, and lower ones are refused already. Neither goes down, but for a reset.
CREATE TABLE IF NOT EXISTS {schema}.mark (
    election bytea PRIMARY KEY,
    store text NOT NULL,
    token bigint NOT NULL,
    wanted bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = to_regclass('{schema}.mark') AND attname = 'wanted') THEN
        ALTER TABLE {schema}.mark ADD COLUMN wanted bigint NOT NULL DEFAULT 0;
    END IF;
END
$$;

-- The office record as it counts now.
CREATE OR REPLACE VIEW {schema}.office_1 AS
    SELECT name, counter,
        CASE WHEN over THEN afterwards ELSE office END AS office,
        CASE WHEN CASE WHEN over THEN afterwards ELSE office END IS NULL THEN 0
            WHEN over THEN office_version + 1 ELSE office_version END AS version,
        CASE WHEN NOT over THEN tombstone_until END AS tombstone_until,
        CASE WHEN NOT over THEN ended_id END AS ended_id
    FROM (SELECT *, coalesce(tombstone_until <= clock_timestamp(), false) AS over FROM {schema}.election) e;

-- Those in line whose sessions live. By name: columns that come later stand at the end.
CREATE OR REPLACE VIEW {schema}.living_1 AS
    SELECT e.election, e.token, e.session, e.incarnation, e.name, e.value, e.ready, e.changed, s.ttl_us, s.expires_at,
        'unwell' = ANY (string_to_array(e.merit, ' ')) AS unwell, e.merit
    FROM {schema}.entry e JOIN {schema}.session s ON s.id = e.session
    WHERE s.expires_at > clock_timestamp();

-- How long a session has yet: nothing, if it is not there, or if it has more than its TTL: the clock
-- was put back, and a look shortens it. A function, and no view with everybody in line: what asks
-- for the time is not merged into the query around it, which then reads the whole line for one entry.
CREATE OR REPLACE FUNCTION {schema}.left_us_1(expires_at timestamptz, ttl_us bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN expires_at <= clock_timestamp() + ttl_us * interval '1 microsecond'
        THEN (extract(epoch FROM expires_at - clock_timestamp()) * 1000000)::bigint ELSE 0 END
$$;

-- Which server this is: a promoted standby has another timeline; a restored dump another database,
-- or at least another table.
CREATE OR REPLACE FUNCTION {schema}.history_1() RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/'
        || (SELECT oid FROM pg_database WHERE datname = current_database()) || '/'
        || to_regclass('{schema}.store')::oid FROM pg_control_system());
END
$$;

-- The commit waits for the disk, and for the standbys that are waited for, whatever the user's defaults
-- are. Here and not in a SET clause of the function, which ends before the commit.
CREATE OR REPLACE FUNCTION {schema}.commit_durably_1() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$$;

-- What comes first in every step. An isolation level with one snapshot for the whole transaction
-- would undo "lock first, read later".
CREATE OR REPLACE FUNCTION {schema}.begin_step_1() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    here text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a step of an election runs in READ COMMITTED only, and this transaction is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'IN001';
    END IF;
    PERFORM {schema}.commit_durably_1();
    PERFORM set_config('lock_timeout', '2s', true);
    here := {schema}.history_1();
    IF NOT EXISTS (SELECT FROM {schema}.store WHERE history = here) THEN
        PERFORM {schema}.leap_1(here);
    END IF;
    -- The clock was put back after a leap: without this, nobody would lead for as long as that. A step
    -- that is refused because it is too early is rolled back, and this with it; renewals are not.
    IF (SELECT quiet_until > clock_timestamp() + longest_us * interval '1 microsecond' FROM {schema}.store) THEN
        UPDATE {schema}.store SET
            quiet_until = least(quiet_until, clock_timestamp() + longest_us * interval '1 microsecond');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.check_store_1(is_there boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF NOT is_there THEN
        RAISE EXCEPTION 'the row of the table {schema}.store cannot be seen: it was removed, or row-level security hides it'
            USING ERRCODE = 'IN004', HINT = 'No step is safe without it.';
    END IF;
END
$$;

-- Another server than the one that wrote last: a standby that was promoted, or a restored dump.
-- What was told last may be missing here. Tokens leap above all that can have been given; all
-- sessions end; and nobody leads until those who were told otherwise have stopped believing it.
--
-- The leap grows with the time since the last one, faster than anybody draws numbers, and counts
-- from what the standbys of one primary share: of two that are promoted in turn, the second leaps
-- above all that the first has given, which it knows nothing of, if its clock shows no earlier time
-- than the first one's did. 2^32 on top of that make up for about an hour by which a standby's clock
-- may be behind that of the primary; not behind that of another standby, which has added them, too.
-- Not setval(), which stays when the step is rolled back, and would leap again.
CREATE OR REPLACE FUNCTION {schema}.leap_target_1(at timestamptz) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN (SELECT 4294967296 + greatest(
            n.last_value, s.leapt_to + (extract(epoch FROM at - s.leapt_at) * 524288)::bigint * 2)
        FROM {schema}.number n, {schema}.store s);
END
$$;

CREATE OR REPLACE FUNCTION {schema}.leap_1(here text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    at timestamptz;
    target bigint;
BEGIN
    PERFORM FROM {schema}.store FOR UPDATE;
    -- A leap from nowhere would go back to where the sequence began.
    PERFORM {schema}.check_store_1(FOUND);
    IF EXISTS (SELECT FROM {schema}.store WHERE history = here) THEN
        RETURN;
    END IF;
    at := clock_timestamp();
    target := {schema}.leap_target_1(at);
    EXECUTE format('ALTER SEQUENCE {schema}.number RESTART %s', target);
    UPDATE {schema}.store SET
        history = here, quiet_until = at + longest_us * interval '1 microsecond', leapt_to = target, leapt_at = at;
    DELETE FROM {schema}.session;
END
$$;

-- Locks an election and draws a number, in this order: a number that is drawn before the wait for a
-- lock would become visible after higher ones.
CREATE OR REPLACE FUNCTION {schema}.draw_1(e bytea) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    drawn bigint;
BEGIN
    LOOP
        PERFORM FROM {schema}.election WHERE name = e FOR NO KEY UPDATE;
        EXIT WHEN FOUND;
        INSERT INTO {schema}.election (name) VALUES (e) ON CONFLICT DO NOTHING;
    END LOOP;
    -- The record becomes what is seen of it: a tombstone that is over would count again if the clock
    -- were put back, for those who were elected since.
    UPDATE {schema}.election x SET
        counter = nextval('{schema}.number'), office = seen.office,
        office_version = CASE WHEN seen.version = 0 THEN x.office_version ELSE seen.version END,
        afterwards = CASE WHEN seen.tombstone_until IS NOT NULL THEN x.afterwards END,
        ended_id = seen.ended_id, tombstone_until = seen.tombstone_until
        FROM {schema}.office_1 seen WHERE x.name = e AND seen.name = e RETURNING x.counter INTO drawn;
    RETURN drawn;
END
$$;

-- Whether an entry is in line. One that is dead is removed: what is not there will not come back. The
-- election is locked. A session that cannot be locked is being renewed or removed: its entry is left
-- alone, and is there.
CREATE OR REPLACE FUNCTION {schema}.is_there_1(e bytea, t bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    owner bytea := (SELECT x.session FROM {schema}.entry x WHERE x.election = e AND x.token = t);
BEGIN
    IF EXISTS (SELECT FROM {schema}.session WHERE id = owner) THEN
        PERFORM FROM {schema}.session WHERE id = owner FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN true;
        END IF;
        -- The clock was put back: without this, the entry would stay for as long as that.
        UPDATE {schema}.session SET expires_at = clock_timestamp() + ttl_us * interval '1 microsecond'
            WHERE id = owner AND expires_at > clock_timestamp() + ttl_us * interval '1 microsecond';
        DELETE FROM {schema}.session WHERE id = owner AND expires_at <= clock_timestamp();
        IF NOT FOUND THEN
            RETURN true;
        END IF;
    END IF;
    DELETE FROM {schema}.entry x WHERE x.election = e AND x.token = t;
    RETURN false;
END
$$;

-- Looks from our place towards the head, and removes the dead on the way: nobody leads past one
-- that is still there.
CREATE OR REPLACE FUNCTION {schema}.remove_dead_ahead_1(e bytea, t bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ahead bigint;
    removed boolean := false;
BEGIN
    LOOP
        SELECT x.token INTO ahead FROM {schema}.entry x
            WHERE x.election = e AND x.token < t ORDER BY x.token DESC LIMIT 1;
        EXIT WHEN NOT FOUND OR {schema}.is_there_1(e, ahead);
        removed := true;
    END LOOP;
    RETURN removed;
END
$$;

-- Where an entry stands. place: see the library. ahead_left_us: how long the one ahead has, nothing
-- or less if it has to be looked at, see left_us. quiet: nobody leads yet.
DO $$
BEGIN
    IF to_regtype('{schema}.standing') IS NULL THEN
        CREATE TYPE {schema}.standing AS (
            place text, token bigint, incarnation bytea, published bigint,
            ahead_token bigint, ahead_incarnation bytea, ahead_name bytea, ahead_value bytea, ahead_ready bigint,
            ahead_changed bigint, ahead_left_us bigint,
            office bytea, office_version bigint, cursor bigint, head_changed boolean, quiet boolean
        );
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.typrelid = a.attrelid
        WHERE t.oid = to_regtype('{schema}.standing') AND a.attname = 'ahead_unwell') THEN
        ALTER TYPE {schema}.standing ADD ATTRIBUTE ahead_unwell boolean;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.typrelid = a.attrelid
        WHERE t.oid = to_regtype('{schema}.standing') AND a.attname = 'ahead_merit') THEN
        ALTER TYPE {schema}.standing ADD ATTRIBUTE ahead_merit text;
    END IF;
END
$$;

-- In one statement, and so in one snapshot.
CREATE OR REPLACE FUNCTION {schema}.look_1(s bytea, e bytea, t bigint) RETURNS SETOF {schema}.standing
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN QUERY SELECT
        CASE WHEN own.id IS NULL THEN 'session gone' WHEN mine.token IS NULL THEN 'gone'
            WHEN ahead.token IS NULL THEN 'leading' ELSE 'behind' END,
        mine.token, mine.incarnation, mine.changed,
        ahead.token, ahead.incarnation, ahead.name, ahead.value, ahead.ready, ahead.changed,
        ahead.left_us,
        x.office, coalesce(x.version, 0), coalesce(x.counter, 0), false,
        store.quiet_until > clock_timestamp(), 'unwell' = ANY (string_to_array(ahead.merit, ' ')), ahead.merit
    FROM {schema}.store
    LEFT JOIN {schema}.session own ON own.id = s AND own.expires_at > clock_timestamp()
    LEFT JOIN {schema}.entry mine ON mine.election = e AND mine.token = t AND mine.session = s
    LEFT JOIN {schema}.office_1 x ON x.name = e
    LEFT JOIN LATERAL (
        SELECT a.*, {schema}.left_us_1(l.expires_at, l.ttl_us) AS left_us
        FROM {schema}.entry a LEFT JOIN {schema}.session l ON l.id = a.session
        WHERE a.election = e AND a.token < t ORDER BY a.token DESC LIMIT 1
    ) ahead ON true;
END
$$;

-- Without a lock, unless the one ahead has to be removed.
CREATE OR REPLACE FUNCTION {schema}.standing_1(s bytea, e bytea, t bigint) RETURNS {schema}.standing
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen {schema}.standing;
    removed boolean := false;
BEGIN
    PERFORM {schema}.begin_step_1();
    SELECT * INTO seen FROM {schema}.look_1(s, e, t);
    IF seen.place = 'behind' AND seen.ahead_left_us <= 0 THEN
        PERFORM {schema}.draw_1(e);
        removed := {schema}.remove_dead_ahead_1(e, t);
        SELECT * INTO seen FROM {schema}.look_1(s, e, t);
    END IF;
    PERFORM {schema}.check_quiet_1(seen.place = 'leading' AND seen.quiet);
    seen.head_changed := removed AND seen.place = 'leading';
    RETURN seen;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.check_quiet_1(too_early boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF too_early THEN
        RAISE EXCEPTION 'another server has taken over, and nobody leads before %',
            (SELECT quiet_until FROM {schema}.store) USING ERRCODE = 'IN003';
    END IF;
END
$$;

-- Number and visibility are one step: both under the election's lock.
CREATE OR REPLACE FUNCTION {schema}.enlist_3(s bytea, e bytea, i bytea, n bytea, v bytea, m text)
RETURNS {schema}.standing
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    drawn bigint;
    mine record;
    seen {schema}.standing;
BEGIN
    PERFORM {schema}.begin_step_1();
    drawn := {schema}.draw_1(e);
    IF EXISTS (SELECT FROM {schema}.session WHERE id = s AND expires_at > clock_timestamp()) THEN
        INSERT INTO {schema}.entry (election, token, session, incarnation, name, value, merit, changed)
            VALUES (e, drawn, s, i, n, v, m, drawn) ON CONFLICT (session, election) DO NOTHING;
    END IF;
    SELECT x.token, x.incarnation INTO mine FROM {schema}.entry x WHERE x.session = s AND x.election = e;
    PERFORM {schema}.remove_dead_ahead_1(e, mine.token);
    SELECT * INTO seen FROM {schema}.look_1(s, e, mine.token);
    IF mine.incarnation <> i AND seen.place <> 'session gone' THEN
        seen.place := 'already in line';
    END IF;
    PERFORM {schema}.check_quiet_1(seen.place = 'leading' AND seen.quiet);
    seen.head_changed := seen.place = 'leading';
    RETURN seen;
END
$$;

-- For libraries of versions 2, whose candidates say no more of themselves than that they are unwell,
-- and 1, where they say nothing.
CREATE OR REPLACE FUNCTION {schema}.enlist_2(s bytea, e bytea, i bytea, n bytea, v bytea, u boolean)
RETURNS {schema}.standing
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN {schema}.enlist_3(s, e, i, n, v, CASE WHEN u THEN 'unwell' ELSE '' END);
END
$$;

CREATE OR REPLACE FUNCTION {schema}.enlist_1(s bytea, e bytea, i bytea, n bytea, v bytea)
RETURNS {schema}.standing
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN {schema}.enlist_3(s, e, i, n, v, '');
END
$$;

CREATE OR REPLACE FUNCTION {schema}.open_1(ttl_us bigint)
RETURNS TABLE (id bytea, granted_us bigint, store text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    -- An hour at most, whoever calls: after a failover nobody leads for the longest that was granted.
    granted bigint := least(greatest(open_1.ttl_us, 100000), 3600000000);
BEGIN
    PERFORM {schema}.begin_step_1();
    UPDATE {schema}.store x SET longest_us = granted WHERE x.longest_us < granted;
    -- Now and then: what nobody visits any more.
    IF random() < 0.02 THEN
        PERFORM {schema}.sweep_1(interval '1 hour');
    END IF;
    RETURN QUERY INSERT INTO {schema}.session AS x (id, ttl_us, expires_at)
        VALUES (uuid_send(gen_random_uuid()), granted, clock_timestamp() + granted * interval '1 microsecond')
        RETURNING x.id, x.ttl_us, (SELECT s.id FROM {schema}.store s);
END
$$;

-- One row is locked, however many elections the session stands in. The guard stands in a statement
-- after the lock: in the same one it would be looked at before the wait, and not again. No row: the
-- session is gone. Each entry comes with who is ahead of it, and with what is left of that one if it
-- is less than half of our TTL: it may end before our next renewal. And with the versions of that one
-- and of the office record: where both are as they were, nobody need look for more.
CREATE OR REPLACE FUNCTION {schema}.renew_1(s bytea) RETURNS TABLE (
    granted_us bigint, election bytea, token bigint, incarnation bytea, ahead bigint, ahead_left_us bigint,
    ahead_changed bigint, office_version bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    granted bigint;
BEGIN
    PERFORM {schema}.begin_step_1();
    PERFORM FROM {schema}.session WHERE id = s FOR NO KEY UPDATE;
    UPDATE {schema}.session x SET expires_at = clock_timestamp() + x.ttl_us * interval '1 microsecond'
        WHERE x.id = s AND x.expires_at > clock_timestamp() RETURNING x.ttl_us INTO granted;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT granted, mine.election, mine.token, mine.incarnation, older.token,
            CASE WHEN older.left_us < granted / 2 THEN older.left_us END,
            older.changed, coalesce(x.version, 0)
        FROM (SELECT 1) one LEFT JOIN {schema}.entry mine ON mine.session = s
        LEFT JOIN {schema}.office_1 x ON x.name = mine.election
        LEFT JOIN LATERAL (
            SELECT a.token, a.changed, {schema}.left_us_1(l.expires_at, l.ttl_us) AS left_us
            FROM {schema}.entry a LEFT JOIN {schema}.session l ON l.id = a.session
            WHERE a.election = mine.election AND a.token < mine.token ORDER BY a.token DESC LIMIT 1
        ) older ON true;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.publish_3(
    s bytea, e bytea, t bigint, was bigint, v bytea, r bigint, m text
) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    drawn bigint;
BEGIN
    PERFORM {schema}.begin_step_1();
    drawn := {schema}.draw_1(e);
    UPDATE {schema}.entry x SET value = v, ready = r, merit = m, changed = drawn
        WHERE x.election = e AND x.token = t AND x.session = s AND x.changed = was
            AND EXISTS (SELECT FROM {schema}.session WHERE id = s AND expires_at > clock_timestamp());
    RETURN CASE WHEN FOUND THEN drawn END;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.publish_2(
    s bytea, e bytea, t bigint, was bigint, v bytea, r bigint, u boolean
) RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN {schema}.publish_3(s, e, t, was, v, r, CASE WHEN u THEN 'unwell' ELSE '' END);
END
$$;

CREATE OR REPLACE FUNCTION {schema}.publish_1(s bytea, e bytea, t bigint, was bigint, v bytea, r bigint)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN {schema}.publish_3(s, e, t, was, v, r, '');
END
$$;

-- An heir that is not there never will be: of two copies of one withdrawal, the later one cannot find
-- what the earlier one missed, and remove an entry that has been told to stay.
CREATE OR REPLACE FUNCTION {schema}.withdraw_1(s bytea, e bytea, t bigint, heir bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.begin_step_1();
    PERFORM {schema}.draw_1(e);
    IF heir IS NOT NULL AND NOT {schema}.is_there_1(e, heir)
        AND EXISTS (SELECT FROM {schema}.living_1 x WHERE x.election = e AND x.token = t AND x.session = s) THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.entry x WHERE x.election = e AND x.token = t AND x.session = s;
    RETURN true;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.evict_2(e bytea, t bigint, i bytea, version bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.begin_step_1();
    PERFORM {schema}.draw_1(e);
    IF EXISTS (SELECT FROM {schema}.entry x WHERE x.election = e AND x.token = t AND x.incarnation <> i) THEN
        RETURN true;
    END IF;
    DELETE FROM {schema}.entry x WHERE x.election = e AND x.token = t AND x.changed = version;
    RETURN NOT {schema}.is_there_1(e, t);
END
$$;

-- For libraries of versions 1 to 3.
CREATE OR REPLACE FUNCTION {schema}.evict_1(e bytea, t bigint, version bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN {schema}.evict_2(e, t, (SELECT x.incarnation FROM {schema}.entry x WHERE x.election = e AND x.token = t),
        version);
END
$$;

-- says: the record now; says_afterwards: what is left of it once the tombstone's time is over. Both
-- are NULL if they say nothing.
CREATE OR REPLACE FUNCTION {schema}.set_office_1(
    e bytea, was bigint, says bytea, says_afterwards bytea, ended bigint, keep_us bigint
) RETURNS boolean LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    drawn bigint;
    seen record;
BEGIN
    PERFORM {schema}.begin_step_1();
    drawn := {schema}.draw_1(e);
    SELECT version, ended_id, tombstone_until INTO seen FROM {schema}.office_1 WHERE name = e;
    IF seen.version <> was THEN
        RETURN false;
    END IF;
    UPDATE {schema}.election x SET
        office = says,
        office_version = drawn,
        afterwards = says_afterwards,
        ended_id = ended,
        tombstone_until = CASE
            WHEN ended IS NULL THEN NULL
            WHEN seen.ended_id = ended THEN seen.tombstone_until
            ELSE clock_timestamp() + keep_us * interval '1 microsecond' END
        WHERE x.name = e;
    RETURN true;
END
$$;

-- Always one row at least, for the office record. quiet_us: how long nobody leads yet, NULL if
-- somebody may.
CREATE OR REPLACE FUNCTION {schema}.line_4(e bytea, at_most bigint) RETURNS TABLE (
    token bigint, incarnation bytea, name bytea, value bytea, ready bigint, changed bigint,
    office bytea, office_version bigint, cursor bigint, merit text, quiet_us bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
        SELECT x.token, x.incarnation, x.name, x.value, x.ready, x.changed,
            o.office, coalesce(o.version, 0), coalesce(o.counter, 0), x.merit,
            -- No longer than that if the clock was put back, see begin_step.
            CASE WHEN store.quiet_until > clock_timestamp() THEN least(store.longest_us,
                (extract(epoch FROM store.quiet_until - clock_timestamp()) * 1000000)::bigint) END
        FROM {schema}.store
        LEFT JOIN {schema}.office_1 o ON o.name = e
        LEFT JOIN LATERAL (
            SELECT * FROM {schema}.living_1 l WHERE l.election = e ORDER BY l.token LIMIT at_most
        ) x ON true
        ORDER BY x.token;
END
$$;

-- For libraries of versions 3 to 6, 2, and 1.
CREATE OR REPLACE FUNCTION {schema}.line_3(e bytea, at_most bigint) RETURNS TABLE (
    token bigint, incarnation bytea, name bytea, value bytea, ready bigint, changed bigint,
    office bytea, office_version bigint, cursor bigint, merit text
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT x.token, x.incarnation, x.name, x.value, x.ready, x.changed,
        x.office, x.office_version, x.cursor, x.merit FROM {schema}.line_4(e, at_most) x;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.line_2(e bytea, at_most bigint) RETURNS TABLE (
    token bigint, incarnation bytea, name bytea, value bytea, ready bigint, changed bigint,
    office bytea, office_version bigint, cursor bigint, unwell boolean
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT x.token, x.incarnation, x.name, x.value, x.ready, x.changed,
        x.office, x.office_version, x.cursor, 'unwell' = ANY (string_to_array(x.merit, ' '))
        FROM {schema}.line_3(e, at_most) x;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.line_1(e bytea, at_most bigint) RETURNS TABLE (
    token bigint, incarnation bytea, name bytea, value bytea, ready bigint, changed bigint,
    office bytea, office_version bigint, cursor bigint
) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT x.token, x.incarnation, x.name, x.value, x.ready, x.changed,
        x.office, x.office_version, x.cursor FROM {schema}.line_3(e, at_most) x;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.close_1(s bytea) RETURNS TABLE (election bytea, token bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    e bytea;
BEGIN
    PERFORM {schema}.begin_step_1();
    FOR e IN SELECT x.election FROM {schema}.entry x WHERE x.session = s ORDER BY x.election LOOP
        PERFORM {schema}.draw_1(e);
        RETURN QUERY DELETE FROM {schema}.entry x WHERE x.session = s AND x.election = e RETURNING x.election, x.token;
    END LOOP;
    DELETE FROM {schema}.session WHERE id = s;
END
$$;

-- Whether one who waits has something to look at; and how long it has until it should look again,
-- NULL if there is nothing to time. Tokens that are NULL are not waited for. In one statement.
CREATE OR REPLACE FUNCTION {schema}.changed_1(
    e bytea, since bigint, office_version bigint, own bigint, ahead bigint, heir bigint, last bigint,
    watches_head boolean, head bigint
) RETURNS TABLE (changed boolean, left_us bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
        WITH living AS MATERIALIZED (
            SELECT x.token, x.changed, x.expires_at FROM {schema}.living_1 x
            WHERE x.election = e AND x.token IN (own, ahead, heir, last, head)
        ), first AS MATERIALIZED (
            SELECT x.token FROM {schema}.living_1 x WHERE watches_head AND x.election = e ORDER BY x.token LIMIT 1
        )
        SELECT
            coalesce((SELECT version FROM {schema}.office_1 WHERE name = e), 0) <> changed_1.office_version
            OR EXISTS (
                SELECT FROM unnest(ARRAY[own, ahead, heir, last]) AS wanted (token)
                WHERE wanted.token IS NOT NULL AND wanted.token NOT IN (SELECT token FROM living))
            OR EXISTS (
                SELECT FROM living WHERE living.token IN (heir, head) AND living.changed > since)
            OR watches_head AND (SELECT token FROM first) IS DISTINCT FROM head,
            (extract(epoch FROM least(
                (SELECT min(expires_at) FROM living WHERE token IS DISTINCT FROM own),
                (SELECT tombstone_until FROM {schema}.office_1 WHERE name = e)
            ) - clock_timestamp()) * 1000000)::bigint;
END
$$;

-- Which elections have somebody in line or an office record, in the order of their names.
CREATE OR REPLACE FUNCTION {schema}.elections_1(most bigint) RETURNS TABLE (name bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT x.name FROM {schema}.office_1 x
        WHERE x.version > 0 OR EXISTS (SELECT FROM {schema}.living_1 l WHERE l.election = x.name)
        ORDER BY x.name LIMIT most;
END
$$;

-- Tells those who listen, in a transaction of its own behind the one that wrote: inside it, NOTIFY
-- takes a lock of the whole cluster through the commit. what: g for gone, e for another value, o for
-- the office record, h for another head (Change in the library). The payload is a hint: a session that hears it reads again.
CREATE OR REPLACE FUNCTION {schema}.tell_1(e bytea, what text, t bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The step before it was refused: the entry is still in line, or what is there was not written with
    -- the number that the step has drawn on this connection. (Who has written since tells of that.)
    IF what = 'g' AND EXISTS (SELECT FROM {schema}.entry x WHERE x.election = e AND x.token = t)
        OR what = 'e' AND NOT EXISTS (SELECT FROM {schema}.living_1 x
            WHERE x.election = e AND x.token = t AND x.changed = currval('{schema}.number'))
        OR what = 'o' AND NOT EXISTS (SELECT FROM {schema}.election x
            WHERE x.name = e AND x.office_version = currval('{schema}.number')) THEN
        RETURN;
    END IF;
    -- It is a hint: nobody waits for a disk or a standby, nor for long for others who do, and keep that
    -- lock meanwhile. (It is taken at our commit, where these still count.)
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM set_config('lock_timeout', '2s', true);
    PERFORM pg_notify(
        (SELECT id FROM {schema}.store),
        encode(e, 'hex') || ' ' || what || coalesce(t::text, '') || CASE WHEN what IN ('g', 'e')
            AND NOT EXISTS (SELECT FROM {schema}.living_1 x WHERE x.election = e AND x.token < t)
            THEN ' h' ELSE '' END);
END
$$;

-- What nobody visits: sessions that expired, entries without one, elections that say nothing. With
-- the rights of its caller: open_1 has them, and those who take part do not.
CREATE OR REPLACE FUNCTION {schema}.sweep_1(longer_than interval) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    idle record;
BEGIN
    PERFORM {schema}.begin_step_1();
    IF (longer_than >= interval '0') IS NOT TRUE THEN
        RAISE EXCEPTION 'a sweep removes what has expired, and not what will in %', longer_than USING ERRCODE = '22023';
    END IF;
    -- Only those of which something goes: what stays would stand first again, and keep the rest from
    -- its turn.
    FOR idle IN SELECT x.name FROM {schema}.election x JOIN {schema}.office_1 o ON o.name = x.name WHERE NOT EXISTS (
        SELECT FROM {schema}.entry n JOIN {schema}.session s ON s.id = n.session
        WHERE n.election = x.name AND s.expires_at > clock_timestamp() - longer_than
    ) AND (o.version = 0 OR EXISTS (SELECT FROM {schema}.entry n WHERE n.election = x.name))
        ORDER BY x.name LIMIT 100 FOR UPDATE OF x SKIP LOCKED LOOP
        DELETE FROM {schema}.entry n WHERE n.election = idle.name AND NOT EXISTS (
            SELECT FROM {schema}.session s
            WHERE s.id = n.session AND s.expires_at > clock_timestamp() - longer_than);
        DELETE FROM {schema}.election x WHERE x.name = idle.name
            AND NOT EXISTS (SELECT FROM {schema}.entry n WHERE n.election = idle.name)
            AND (SELECT o.version = 0 FROM {schema}.office_1 o WHERE o.name = idle.name);
    END LOOP;
    DELETE FROM {schema}.session WHERE id IN (
        SELECT s.id FROM {schema}.session s WHERE s.expires_at < clock_timestamp() - longer_than
            AND NOT EXISTS (SELECT FROM {schema}.entry n WHERE n.session = s.id)
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$$;

-- The fence: the first statement of a leader's own transaction. Raises IN409 if a newer leader has
-- been here; the check and what the transaction writes are then one step, since the mark cannot rise
-- before it has ended. A shared advisory lock: those who share a row let the next ones in past the
-- one that waits to raise the mark. (A queue is fair only until that one gives up, and overlapping
-- transactions last for longer. So it says what it wants first, see want_mark, and waits only for
-- those that are open.) It looks before it locks, since one who has shared a lock cannot have it alone
-- without the risk of a deadlock.
--
-- Who has the lock, shared or alone, waits for no row but the mark's, and that is kept to the end
-- only by one that has raised it, alone.
CREATE OR REPLACE FUNCTION {schema}.fence(election text, token bigint, store text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    e bytea := convert_to(election, 'UTF8');
    home record;
    of text;
    is_another_server boolean;
    -- The user's own, which counts again afterwards.
    is_unlimited boolean := current_setting('lock_timeout') = '0';
    stands record;
BEGIN
    PERFORM {schema}.check_fence_arguments_1(election, token, store);
    -- Its locks are not those of the primary.
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'a fence guards writes, and this server is a standby, which takes none' USING ERRCODE = '25006';
    END IF;
    SELECT s.id, s.history, s.leapt_to INTO home FROM {schema}.store s;
    PERFORM {schema}.check_store_1(FOUND);
    of := coalesce(store, home.id);
    -- The mark that has refused it may be missing here. Who led before a leap leads no more, and nobody
    -- does between a take-over and the leap, which is left to a step: it locks the row of the store.
    IF of = home.id THEN
        is_another_server := home.history <> {schema}.history_1();
        IF is_another_server THEN
            -- Or it has leapt since.
            PERFORM {schema}.check_snapshot_1();
        END IF;
        IF is_another_server OR token < home.leapt_to THEN
            RAISE EXCEPTION 'token % of % is stale: another server has taken over, or the schema was made, since it was given',
                token, election USING ERRCODE = 'IN409', DETAIL = CASE WHEN is_another_server
                    THEN {schema}.leap_target_1(clock_timestamp()) ELSE home.leapt_to END::text,
                HINT = 'Who had it leads no more. Give up, and do not try again with this token.';
        END IF;
    END IF;
    SELECT m.token, m.store, greatest(m.token, m.wanted) AS lowest INTO stands FROM {schema}.mark m WHERE m.election = e;
    IF stands.store = of AND token < stands.lowest THEN
        NULL;
    ELSIF stands.token IS NULL OR stands.token < token THEN
        -- Longer than one that is idle may be where the TTL is the usual one, see bound_idle_1.
        IF is_unlimited THEN
            PERFORM set_config('lock_timeout', '10s', true);
        END IF;
        SELECT r.token, r.store, r.token AS lowest INTO stands FROM {schema}.raise_in_time_1(e, token, of) r;
        IF is_unlimited THEN
            PERFORM set_config('lock_timeout', '0', true);
        END IF;
    ELSE
        PERFORM pg_advisory_xact_lock_shared({schema}.fence_key_1(e));
        -- A later statement sees what is committed by now; where there is one snapshot, a row lock
        -- finds that the row has changed since (40001). It is given back at once, with the block:
        -- who wants to raise the mark writes to the row while we are open.
        IF {schema}.has_one_snapshot_1() THEN
            BEGIN
                PERFORM FROM {schema}.mark m WHERE m.election = e FOR SHARE;
                RAISE SQLSTATE 'IN000';
            EXCEPTION WHEN SQLSTATE 'IN000' THEN
            END;
        ELSE
            SELECT m.token, m.store, greatest(m.token, m.wanted) AS lowest INTO stands
                FROM {schema}.mark m WHERE m.election = e;
        END IF;
    END IF;
    IF stands.store <> of OR token < stands.lowest THEN
        PERFORM {schema}.refuse_1(election, token, of, stands.store, stands.token, stands.lowest);
    END IF;
    PERFORM {schema}.bound_idle_1(e, token);
END
$$;

-- Raises what a fence says to those whom it does not let through.
CREATE OR REPLACE FUNCTION {schema}.refuse_1(
    election text, token bigint, of text, mark_store text, mark_token bigint, lowest bigint
) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF mark_store <> of THEN
        RAISE EXCEPTION 'the mark of % comes from the store %, and this token from %', election, mark_store, of
            USING ERRCODE = 'IN410', DETAIL = mark_token::text || ' ' || mark_store, HINT = format(
                'An operator decides. Once no leader of the store %s runs: SELECT {schema}.reset_mark_1(convert_to(%L, ''UTF8''), %L)',
                mark_store, election, of);
    END IF;
    RAISE EXCEPTION 'token % of % is stale: the fence was shown %', token, election, lowest
        USING ERRCODE = 'IN409', DETAIL = lowest::text, HINT = 'Another leads. Give up, and do not try again with this token.';
END
$$;

-- What a new leader does first whose library does not attach a fence: by itself, as a statement of its
-- own. Lower tokens are refused from then on, and so its first fence() waits for those only that
-- are open. Without this, transactions of the leader before that overlap keep it waiting for ever.
CREATE OR REPLACE FUNCTION {schema}.refuse_lower(election text, token bigint, store text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    of text := coalesce(store, (SELECT s.id FROM {schema}.store s));
    stands record;
BEGIN
    PERFORM {schema}.check_fence_arguments_1(election, token, store);
    SELECT w.token, w.store INTO stands FROM {schema}.want_mark_1(convert_to(election, 'UTF8'), token, of) w;
    IF stands.store <> of OR token < stands.token THEN
        PERFORM {schema}.refuse_1(election, token, of, stands.store, stands.token, stands.token);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.check_fence_arguments_1(election text, token bigint, store text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF token IS NULL OR token <= 0 OR election IS NULL OR election = '' OR store = '' THEN
        RAISE EXCEPTION 'a fence needs an election and its token, and no store with an empty name' USING ERRCODE = '22023';
    END IF;
END
$$;

-- Whether all statements of the transaction see what the first one saw. READ UNCOMMITTED is another
-- word for READ COMMITTED.
CREATE OR REPLACE FUNCTION {schema}.has_one_snapshot_1() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RETURN current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted');
END
$$;

-- Above READ COMMITTED a transaction does not see what was committed after its snapshot was taken,
-- and nobody knows which of that was written behind a fence: 40001 at whatever it was.
CREATE OR REPLACE FUNCTION {schema}.check_snapshot_1() RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    seen pg_snapshot := pg_current_snapshot();
    later bigint := pg_snapshot_xmax(seen)::text::bigint;
    has_committed boolean := false;
BEGIN
    IF NOT {schema}.has_one_snapshot_1() THEN
        RETURN;
    END IF;
    has_committed := EXISTS (SELECT FROM pg_snapshot_xip(seen) id WHERE pg_xact_status(id) = 'committed');
    -- Those that have begun since, up to the newest, which is not our own: ours may be an old one. There
    -- is no function that tells the newest; whoever asks about the one after it is told that it is wrong.
    BEGIN
        WHILE NOT has_committed LOOP
            has_committed := pg_xact_status(later::text::xid8) = 'committed';
            later := later + 1;
        END LOOP;
    EXCEPTION WHEN invalid_parameter_value THEN
    END;
    IF has_committed THEN
        RAISE EXCEPTION 'others have committed since the snapshot of this transaction was taken'
            USING ERRCODE = '40001', HINT = 'Run the transaction again, with the fence as its first statement.';
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.fence_key_1(e bytea) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    own text := (SELECT id FROM {schema}.store);
BEGIN
    -- Who waits for a lock without a key has none.
    PERFORM {schema}.check_store_1(own IS NOT NULL);
    RETURN hashtextextended(own || encode(e, 'hex'), 0);
END
$$;

-- A leader that is paused between fence() and COMMIT holds up its successor. So the server ends a
-- transaction that is idle for half the leader's TTL; less if the user's own bound is less.
CREATE OR REPLACE FUNCTION {schema}.bound_idle_1(e bytea, t bigint) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Not from pg_settings, which looks up every setting that there is: a fence took 1.4 ms, for 0.16.
    users_ms bigint := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
    bound_ms bigint := coalesce(
        (SELECT s.ttl_us / 2000 FROM {schema}.entry x JOIN {schema}.session s ON s.id = x.session
            WHERE x.election = e AND x.token = t),
        7500);
BEGIN
    IF users_ms = 0 OR users_ms > bound_ms THEN
        PERFORM set_config('idle_in_transaction_session_timeout', greatest(bound_ms, 1)::text, true);
    END IF;
END
$$;

-- Lower tokens than this cannot raise the mark, wherever it stands: 0 for those of other stores. A
-- wrong argument, such as the token of another election, would lock everybody out: so it is that of an
-- entry, or the last number that was drawn for the election.
CREATE OR REPLACE FUNCTION {schema}.lowest_1(e bytea, t bigint, of text) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    first bigint := (SELECT s.leapt_to FROM {schema}.store s WHERE s.id = of);
    counter bigint;
BEGIN
    IF first IS NULL THEN
        RETURN 0;
    END IF;
    IF t < first OR EXISTS (SELECT FROM {schema}.entry x WHERE x.election = e AND x.token = t) THEN
        RETURN first;
    END IF;
    counter := coalesce((SELECT x.counter FROM {schema}.election x WHERE x.name = e), 0);
    IF t > counter THEN
        RAISE EXCEPTION 'this election has never given a token as high as %', t USING ERRCODE = '22023';
    END IF;
    RETURN counter;
END
$$;

-- Where the mark stands for those who show a token of this store: lower ones are refused.
CREATE OR REPLACE FUNCTION {schema}.stands_1(e bytea, of text, lowest bigint)
RETURNS TABLE (token bigint, store text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT CASE WHEN m.store <> of THEN m.token ELSE greatest(m.token, m.wanted, lowest) END,
        coalesce(m.store, of) FROM (SELECT 1) one LEFT JOIN {schema}.mark m ON m.election = e;
END
$$;

-- Takes the lock alone and raises the mark.
CREATE OR REPLACE FUNCTION {schema}.raise_locked_1(e bytea, t bigint, of text)
RETURNS TABLE (token bigint, store text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    lowest bigint;
BEGIN
    -- Lost in a crash, a mark would let those through again whom it has refused.
    PERFORM {schema}.commit_durably_1();
    PERFORM pg_advisory_xact_lock({schema}.fence_key_1(e));
    -- A new leader has to see what was written before: its snapshot may be older than the lock.
    PERFORM {schema}.check_snapshot_1();
    lowest := {schema}.lowest_1(e, t, of);
    -- Not where another transaction with this token has raised it, while we waited for the lock: that
    -- would lock the mark's row, and a successor could not say what it wants.
    IF t >= lowest AND NOT EXISTS (SELECT FROM {schema}.mark m WHERE m.election = e AND m.store = of AND m.token >= t) THEN
        INSERT INTO {schema}.mark AS m (election, store, token) VALUES (e, of, t)
            ON CONFLICT (election) DO UPDATE SET token = excluded.token
            WHERE m.store = excluded.store AND m.token < excluded.token;
    END IF;
    RETURN QUERY SELECT r.token, r.store FROM {schema}.stands_1(e, of, lowest) r;
END
$$;

-- Who has waited for a transaction of the leader before for as long as lock_timeout says is told
-- which ones there are.
CREATE OR REPLACE FUNCTION {schema}.name_holders_1(e bytea) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    key bigint := {schema}.fence_key_1(e);
    holders text;
BEGIN
    SELECT string_agg(coalesce('the backend ' || pid, 'a prepared transaction (see pg_prepared_xacts)'), ', ')
        INTO holders FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32) + objid::bigint = key;
    RAISE EXCEPTION 'a transaction of an earlier leader has not ended: %', coalesce(holders, 'it just has')
        USING ERRCODE = '55P03';
END
$$;

CREATE OR REPLACE FUNCTION {schema}.raise_in_time_1(e bytea, t bigint, of text)
RETURNS TABLE (token bigint, store text) LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT r.token, r.store FROM {schema}.raise_locked_1(e, t, of) r;
EXCEPTION WHEN lock_not_available THEN
    PERFORM {schema}.name_holders_1(e);
END
$$;

-- When an office is taken, before the mark is raised and in a transaction of its own: from its commit
-- on, lower tokens are refused. It waits for no transaction that has asked the fence, unless that one
-- has raised the mark itself. Only what raise_locked_1 would accept is wanted.
CREATE OR REPLACE FUNCTION {schema}.want_mark_1(e bytea, t bigint, of text)
RETURNS TABLE (token bigint, store text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    lowest bigint;
BEGIN
    PERFORM {schema}.begin_step_1();
    lowest := {schema}.lowest_1(e, t, of);
    IF t >= lowest THEN
        BEGIN
            INSERT INTO {schema}.mark AS m (election, store, token, wanted) VALUES (e, of, 0, t)
                ON CONFLICT (election) DO UPDATE SET wanted = excluded.wanted
                WHERE m.store = excluded.store AND greatest(m.token, m.wanted) < excluded.wanted;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM {schema}.name_holders_1(e);
        END;
    END IF;
    RETURN QUERY SELECT r.token, r.store FROM {schema}.stands_1(e, of, lowest) r;
END
$$;

-- Raises the mark when an office is taken.
CREATE OR REPLACE FUNCTION {schema}.raise_mark_1(e bytea, t bigint, of text)
RETURNS TABLE (token bigint, store text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM {schema}.begin_step_1();
    RETURN QUERY SELECT r.token, r.store FROM {schema}.raise_in_time_1(e, t, of) r;
    -- One that is repeated raises nothing, and locks the row all the same, which is a write: its commit
    -- waits for the standby, where the wait of the first one was cancelled.
    PERFORM FROM {schema}.mark m WHERE m.election = e FOR NO KEY UPDATE;
END
$$;

-- An operator's act: from now on the tokens of this store count, from the first one. Answers where the
-- mark stood.
CREATE OR REPLACE FUNCTION {schema}.reset_mark_1(e bytea, of text) RETURNS TABLE (token bigint, store text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM {schema}.begin_step_1();
    PERFORM pg_advisory_xact_lock({schema}.fence_key_1(e));
    RETURN QUERY SELECT m.token, m.store FROM {schema}.mark m WHERE m.election = e;
    INSERT INTO {schema}.mark (election, store, token) VALUES (e, of, 0)
        ON CONFLICT (election) DO UPDATE SET store = excluded.store, token = 0, wanted = 0;
END
$$;

CREATE OR REPLACE FUNCTION {schema}.about() RETURNS TABLE (id text, version int, oldest_library int)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT id, version, oldest_library FROM {schema}.store
$$;

INSERT INTO {schema}.store (id, version, oldest_library, history, leapt_to) VALUES (
    'postgres-' || replace(gen_random_uuid()::text, '-', ''), {version}, 1, {schema}.history_1(),
    (SELECT last_value FROM {schema}.number)
) ON CONFLICT (one) DO UPDATE SET version = greatest(store.version, excluded.version);

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM PUBLIC;
