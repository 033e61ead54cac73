//! The fence inside the users' own transactions: stale tokens are refused at every level of
//! isolation, and a paused leader does not hold up its successor for ever. Fences that lock less
//! are shown to let stale writes in, or to keep a successor waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_postgres::tokio_postgres::{self, Client, SimpleQueryMessage};
use incumbent_postgres::{PostgresFence, PostgresStore};
use incumbent_store::fence::{Fence as _, FenceError, FencingToken};
use incumbent_store::{ElectionName, Held, Place, Session, Store, StoreId, Token};
use incumbent_testkit::servers::PostgresServer;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::harness::{TTL, entry, held, lead, make, name, raw, shared, sqlstate, store, until, until_blocked, within};

pub(crate) const LEVELS: [&str; 4] = ["READ COMMITTED", "READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// READ UNCOMMITTED is another word for READ COMMITTED.
fn has_one_snapshot(level: &str) -> bool {
    !level.starts_with("READ ")
}

/// Two leaders, one after the other, and a fence for them.
struct Fixture {
    schema: &'static str,
    store: PostgresStore,
    fence: PostgresFence,
    election: ElectionName,
    old: FencingToken,
    new: FencingToken,
    /// The sessions, which keep their TTL known.
    sessions: Vec<Arc<dyn Session>>,
}

impl Fixture {
    async fn new(test: &str) -> Fixture {
        Fixture::with_ttl(test, TTL).await
    }

    /// The server ends transactions that are idle for half the TTL.
    async fn with_ttl(test: &str, ttl: Duration) -> Fixture {
        Fixture::in_schema("incumbent", test, ttl).await
    }

    async fn in_schema(schema: &'static str, test: &str, ttl: Duration) -> Fixture {
        Fixture::at(shared().await, schema, test, ttl).await
    }

    async fn at(server: &PostgresServer, schema: &'static str, test: &str, ttl: Duration) -> Fixture {
        let store = store(&format!("{}?schema={schema}", server.url()));
        let election = name(test);
        let mut tokens = Vec::new();
        let mut sessions = Vec::new();
        for number in 0..2 {
            let session = store.open_session(ttl).await.unwrap();
            let Held { token, .. } = held(&session.enlist(&election, &entry(number)).await.unwrap());
            tokens.push(FencingToken::new(token, session.store_id()));
            sessions.push(session);
        }
        let fence = PostgresFence::new(&store, &election);
        let (old, new) = (tokens[0].clone(), tokens[1].clone());
        Fixture { schema, store, fence, election, old, new, sessions }
    }

    /// What a program in another language writes.
    async fn sql(&self, client: &Client, token: &FencingToken) -> Result<(), tokio_postgres::Error> {
        let (election, token) = (self.election.as_str(), i64::try_from(token.get()).unwrap());
        let sql = format!("SELECT {}.fence($1, $2)", self.schema);
        client.execute(&sql, &[&election, &token]).await.map(drop)
    }

    async fn raise(&self, token: &FencingToken) -> Result<(), FenceError> {
        self.fence.raise(&self.election, token.clone()).await
    }
}

async fn client() -> Client {
    raw(&shared().await.url()).await
}

async fn begin(client: &Client, level: &str) {
    client.batch_execute(&format!("ROLLBACK; BEGIN ISOLATION LEVEL {level}; SELECT 1")).await.unwrap();
}

#[tokio::test]
async fn a_stale_leader_is_refused_at_every_level_even_with_an_older_snapshot() {
    let client = client().await;
    for level in LEVELS {
        let fixture = Fixture::new("stale").await;
        fixture.raise(&fixture.old).await.unwrap();
        begin(&client, level).await;
        fixture.sql(&client, &fixture.old).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();

        begin(&client, level).await;
        fixture.raise(&fixture.new).await.unwrap();
        let refused = sqlstate(fixture.sql(&client, &fixture.old).await);
        assert_eq!(refused.as_deref(), Some(refusal(level)), "{level}");
        begin(&client, level).await;
        assert_eq!(sqlstate(fixture.sql(&client, &fixture.old).await).as_deref(), Some("IN409"), "{level}, again");
        client.batch_execute("ROLLBACK").await.unwrap();
        let stale = fixture.raise(&fixture.old).await.unwrap_err();
        assert!(matches!(stale, FenceError::Stale { mark, .. } if mark == fixture.new.token), "{stale:?}");
    }
}

/// Where there was no mark, an older snapshot shows none, and the token would raise it.
#[tokio::test]
async fn a_stale_leader_is_refused_at_every_level_though_its_snapshot_is_older_than_the_first_mark() {
    let client = client().await;
    for level in LEVELS {
        let fixture = Fixture::new("first-mark").await;
        begin(&client, level).await;
        fixture.raise(&fixture.new).await.unwrap();
        let refused = sqlstate(fixture.sql(&client, &fixture.old).await);
        assert_eq!(refused.as_deref(), Some(refusal(level)), "{level}");
        begin(&client, level).await;
        assert_eq!(sqlstate(fixture.sql(&client, &fixture.old).await).as_deref(), Some("IN409"), "{level}, again");
    }
}

/// The successor has raised the mark and not committed: nobody knows yet which of them counts.
#[tokio::test]
async fn a_stale_leader_waits_at_every_level_for_a_raise_that_is_not_committed_and_is_refused() {
    let (successor, stale, other) = (client().await, client().await, client().await);
    let pid: i32 = stale.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    for (level, first) in LEVELS.into_iter().flat_map(|level| [(level, false), (level, true)]) {
        let fixture = Fixture::with_ttl("uncommitted", 20 * TTL).await;
        if !first {
            fixture.raise(&fixture.old).await.unwrap();
        }
        raise_in_transaction(&successor, level, &fixture).await;
        begin(&stale, level).await;
        let commit = async {
            until("it waits", async || {
                let waits = "SELECT cardinality(pg_blocking_pids($1)) > 0";
                other.query_one(waits, &[&pid]).await.unwrap().get(0)
            })
            .await;
            successor.batch_execute("COMMIT").await.unwrap();
        };
        let (refused, ()) = tokio::join!(fixture.sql(&stale, &fixture.old), commit);
        assert_eq!(sqlstate(refused).as_deref(), Some(refusal(level)), "{level}, the first mark: {first}");
    }
}

/// Above READ COMMITTED it is run again as often as somebody else commits in between.
async fn raise_in_transaction(client: &Client, level: &str, fixture: &Fixture) {
    until("it raises the mark", async || {
        let first = format!("ROLLBACK; BEGIN ISOLATION LEVEL {level}");
        client.batch_execute(&first).await.unwrap();
        let asked = sqlstate(fixture.sql(client, &fixture.new).await);
        assert!(matches!(asked.as_deref(), None | Some("40001")), "{level}: {asked:?}");
        asked.is_none()
    })
    .await;
}

/// A new leader looks what is left to do, and its first transaction raises the mark.
#[tokio::test]
async fn a_new_leader_that_raises_the_mark_sees_all_that_the_one_before_has_written() {
    let (old, new, other) = (client().await, Writer::new().await, client().await);
    // With a number of its own from the beginning, as one that has asked another fence before, its
    // transaction is not the newest when it asks. And its snapshot lists those that are open only
    // if one that is newer has been committed.
    let [plain, numbered, listed] = [(false, false), (true, false), (false, true)];
    let cases = [(0, plain), (0, numbered), (1, numbered), (1, plain), (1, listed), (2, plain), (2, listed)];
    let cases = LEVELS.into_iter().flat_map(|level| cases.map(|case| (level, case)));
    for (level, (when, (is_numbered, is_listed))) in cases {
        let fixture = Fixture::with_ttl("predecessor", 200 * TTL).await;
        fixture.raise(&fixture.old).await.unwrap();
        let job = format!("done_{:x}", incumbent_testkit::conformance::unique());
        old.batch_execute(&format!("CREATE TABLE {job} (job int)")).await.unwrap();
        let (write, count) = (format!("INSERT INTO {job} VALUES (7)"), format!("SELECT count(*) FROM {job}"));
        // The one before has written when the snapshot is taken, or writes later.
        begin(&old, LEVELS[0]).await;
        fixture.sql(&old, &fixture.old).await.unwrap();
        if when > 0 {
            old.batch_execute(&write).await.unwrap();
        }
        if is_listed {
            other.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
        }
        begin(&new.client, level).await;
        if is_numbered {
            new.client.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
        }
        if when == 0 {
            old.batch_execute(&write).await.unwrap();
        }
        // It commits before the fence is asked, or while that waits.
        let mut asked = if when < 2 {
            old.batch_execute("COMMIT").await.unwrap();
            fixture.sql(&new.client, &fixture.new).await
        } else {
            let commit = async {
                until("it waits", async || {
                    let waits = "SELECT cardinality(pg_blocking_pids($1)) > 0";
                    old.query_one(waits, &[&new.pid]).await.unwrap().get(0)
                })
                .await;
                old.batch_execute("COMMIT").await.unwrap();
            };
            tokio::join!(fixture.sql(&new.client, &fixture.new), commit).0
        };
        if has_one_snapshot(level) {
            assert_eq!(sqlstate(asked).as_deref(), Some("40001"), "{level}, {when}, {is_numbered}, {is_listed}");
            raise_in_transaction(&new.client, level, &fixture).await;
            asked = Ok(());
        }
        asked.unwrap();
        let seen: i64 = new.client.query_one(&count, &[]).await.unwrap().get(0);
        assert_eq!(seen, 1, "{level}, {when}, {is_numbered}, {is_listed}: job 7 would be done again");
        new.client.batch_execute("COMMIT").await.unwrap();
    }
}

/// A user that does not wait for the disk loses what it has written last, and no more than that.
#[tokio::test]
async fn a_mark_that_was_raised_outlives_a_crash_whether_or_not_its_user_waits_for_the_disk() {
    let mut server = PostgresServer::start_with(&["wal_writer_delay=10s"]).await;
    let fixture = Fixture::at(&server, "incumbent", "durable", TTL).await;
    for commit in ["off", "local"] {
        let client = raw(&server.url()).await;
        client.batch_execute(&format!("SET synchronous_commit = {commit}; BEGIN")).await.unwrap();
        fixture.sql(&client, &fixture.new).await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
        server.restart().await;
        let client = raw(&server.url()).await;
        assert_eq!(sqlstate(fixture.sql(&client, &fixture.old).await).as_deref(), Some("IN409"), "{commit}");
        server.sql("DELETE FROM incumbent.mark");
    }
}

/// For programs whose library attaches no fence, and which one that works with SQL alone calls.
#[tokio::test]
async fn a_new_leader_that_has_lower_tokens_refused_waits_for_those_that_are_open_and_for_no_others() {
    let (open, client) = (client().await, client().await);
    let fixture = Fixture::with_ttl("refuses", 200 * TTL).await;
    let refuse = async |token: i64, store: &str| {
        let (election, sql) = (fixture.election.as_str(), "SELECT incumbent.refuse_lower($1, $2, $3)");
        sqlstate(client.execute(sql, &[&election, &token, &Some(store).filter(|store| *store != "ours")]).await)
    };
    let number = |token: &FencingToken| i64::try_from(token.get()).unwrap();
    let (old, new) = (number(&fixture.old), number(&fixture.new));
    assert_eq!(refuse(old, "ours").await, None);
    // Who has raised the mark holds it until its end.
    fixture.sql(&open, &fixture.old).await.unwrap();
    begin(&open, LEVELS[0]).await;
    fixture.sql(&open, &fixture.old).await.unwrap();
    assert_eq!(refuse(new, "ours").await, None, "it waits for nobody");
    for level in LEVELS {
        begin(&client, level).await;
        assert_eq!(sqlstate(fixture.sql(&client, &fixture.old).await).as_deref(), Some("IN409"), "{level}");
        client.batch_execute("ROLLBACK").await.unwrap();
    }
    open.batch_execute("COMMIT").await.expect("it was let in before");
    within(fixture.sql(&client, &fixture.new)).await.unwrap();

    assert_eq!(refuse(old, "ours").await.as_deref(), Some("IN409"));
    assert_eq!(refuse(new, "etcd-1").await.as_deref(), Some("IN410"));
    for (token, store) in [(0, "ours"), (new, ""), (i64::MAX, "ours")] {
        assert_eq!(refuse(token, store).await.as_deref(), Some("22023"), "{token} of {store:?}");
    }
}

/// Several of a new leader's first transactions at once: one raises the mark, and the next has the
/// lock alone for nothing.
#[tokio::test]
async fn a_transaction_that_has_waited_to_raise_a_mark_that_was_raised_meanwhile_keeps_nobody_from_wanting_more() {
    let fixture = Fixture::with_ttl("waited-for-nothing", 200 * TTL).await;
    let (first, second) = (Writer::new().await, Writer::new().await);
    begin(&first.client, LEVELS[0]).await;
    fixture.sql(&first.client, &fixture.old).await.unwrap();
    begin(&second.client, LEVELS[0]).await;
    let commit = async {
        second.until_behind(&first).await;
        first.client.batch_execute("COMMIT").await.unwrap();
    };
    let (asked, ()) = tokio::join!(fixture.sql(&second.client, &fixture.old), commit);
    asked.unwrap();
    let (election, token) = (fixture.election.as_str(), i64::try_from(fixture.new.token.get()).unwrap());
    let refuse = "SELECT incumbent.refuse_lower($1, $2)";
    first.client.execute(refuse, &[&election, &token]).await.expect("it waits for nobody");
    assert_eq!(sqlstate(fixture.sql(&first.client, &fixture.old).await).as_deref(), Some("IN409"));
    second.client.batch_execute("COMMIT").await.expect("it was let in before");
}

/// What is said of a mark that is newer than the snapshot.
fn refusal(level: &str) -> &'static str {
    if has_one_snapshot(level) { "40001" } else { "IN409" }
}

#[tokio::test]
async fn the_helper_says_what_the_sql_says() {
    let fixture = Fixture::new("helper").await;
    let mut client = client().await;
    let transaction = client.transaction().await.unwrap();
    fixture.fence.check(&transaction, &fixture.new).await.unwrap();
    transaction.commit().await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let stale = fixture.fence.check(&transaction, &fixture.old).await.unwrap_err();
    assert!(matches!(stale, FenceError::Stale { mark, .. } if mark == fixture.new.token), "{stale:?}");
    drop(transaction);
    let strange = FencingToken::new(fixture.new.token, StoreId::new("another"));
    let transaction = client.transaction().await.unwrap();
    let replaced = fixture.fence.check(&transaction, &strange).await.unwrap_err();
    assert!(
        matches!(&replaced, FenceError::StoreReplaced { mark_store, .. } if *mark_store == fixture.new.store),
        "{replaced:?}"
    );
    drop(transaction);
    fixture.fence.reset(&StoreId::new("another"), "a test").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    fixture.fence.check(&transaction, &strange).await.unwrap();
}

/// For a shell or a program in another language.
#[tokio::test]
async fn the_error_at_a_token_of_another_store_says_what_an_operator_runs_to_settle_it() {
    let fixture = Fixture::new("settled").await;
    let client = client().await;
    let election = format!("{} at 100% of O'Brien", fixture.election);
    let ask = async |store: &str| {
        client.execute("SELECT incumbent.fence($1, 7, $2)", &[&election, &store]).await.map_err(|error| {
            let said = error.as_db_error().unwrap();
            (said.code().code().to_owned(), said.hint().unwrap_or_default().to_owned())
        })
    };
    ask("etcd-1").await.unwrap();
    let (code, hint) = ask("etcd-2").await.unwrap_err();
    assert_eq!(code, "IN410");
    assert!(hint.contains("no leader of the store etcd-1 runs"), "{hint}");
    let (_, run) = hint.split_once(": ").expect("what to run");
    client.batch_execute(run).await.unwrap();
    ask("etcd-2").await.unwrap();
    assert_eq!(ask("etcd-1").await.unwrap_err().0, "IN410");
}

#[tokio::test]
async fn a_token_that_was_never_given_locks_nobody_out() {
    let fixture = Fixture::new("never-given").await;
    let client = client().await;
    let never = FencingToken::new(Token::new(Token::MAX).unwrap(), fixture.new.store.clone());
    assert_eq!(sqlstate(fixture.sql(&client, &never).await).as_deref(), Some("22023"));
    fixture.sql(&client, &fixture.new).await.unwrap();
}

/// A program that leads two of them has mixed them up.
#[tokio::test]
async fn a_token_of_another_election_locks_nobody_out() {
    let (one, client) = (Fixture::new("one").await, client().await);
    let other = Fixture::new("other").await;
    let asked = async |token| sqlstate(one.sql(&client, token).await);
    assert_eq!(asked(&other.new).await.as_deref(), Some("22023"), "above all that was given");
    assert!(matches!(one.raise(&other.new).await, Err(FenceError::Misuse { .. })));
    // A number is drawn, and no token given.
    one.sessions[1].close().await.unwrap();
    assert_eq!(asked(&other.new).await.as_deref(), Some("IN409"), "below what was drawn last");
    assert!(matches!(one.raise(&other.new).await, Err(FenceError::Stale { .. })));
    // Nor does an older library, which announces nothing.
    let (e, FencingToken { token, store }) = (format!("convert_to('{}', 'UTF8')", one.election), &other.new);
    let older = format!("SELECT token > {token} FROM incumbent.raise_mark_1({e}, {token}, '{store}')");
    assert_eq!(shared().await.sql(&older), "t", "it is told that it is stale");
    assert_eq!(asked(&one.old).await, None);
}

/// The fence of a schema of its own, in which each of these pieces gives way to the other.
async fn change_fence(schema: &'static str, pieces: &[[&str; 2]]) {
    Fixture::in_schema(schema, schema, TTL).await;
    let server = shared().await;
    let is = server.sql(&format!("SELECT pg_get_functiondef('{schema}.fence'::regproc)"));
    let changed = pieces.iter().fold(is, |is, [piece, other]| {
        assert!(is.contains(piece), "no {piece} in {is}");
        is.replace(piece, other)
    });
    server.sql(&changed);
}

const LOCKS: &str = "PERFORM pg_advisory_xact_lock_shared";
const LOCKS_NOT: [&str; 2] = [LOCKS, "PERFORM"];

/// The mark rises between the fence and the COMMIT.
#[tokio::test]
async fn a_fence_that_looks_without_a_lock_lets_a_stale_write_in_at_every_level() {
    change_fence("looks_only", &[LOCKS_NOT, [" FOR SHARE", ""]]).await;
    let client = client().await;
    for level in LEVELS {
        let fixture = Fixture::in_schema("looks_only", "looks-only", 20 * TTL).await;
        fixture.raise(&fixture.old).await.unwrap();
        begin(&client, level).await;
        fixture.sql(&client, &fixture.old).await.unwrap();
        within(fixture.raise(&fixture.new)).await.unwrap();
        client.batch_execute("COMMIT").await.expect("it is caught here, too");
    }
}

/// The mark rises between the first look of the transaction and the fence.
#[tokio::test]
async fn a_fence_without_a_row_lock_lets_a_stale_write_in_above_read_committed() {
    change_fence("no_row_lock", &[[" FOR SHARE", ""]]).await;
    let client = client().await;
    for level in LEVELS {
        let fixture = Fixture::in_schema("no_row_lock", "no-row-lock", 20 * TTL).await;
        fixture.raise(&fixture.old).await.unwrap();
        begin(&client, level).await;
        fixture.raise(&fixture.new).await.unwrap();
        let asked = sqlstate(fixture.sql(&client, &fixture.old).await);
        assert_eq!(asked.is_none(), has_one_snapshot(level), "{level}");
        client.batch_execute("COMMIT").await.unwrap();
    }
}

/// One writer has asked the fence, a raise waits for it, and another writer asks.
struct Queue {
    fixture: Fixture,
    first: Writer,
    raise: Writer,
    raised: JoinHandle<()>,
}

/// A connection, and its backend.
struct Writer {
    client: Arc<Client>,
    pid: i32,
}

impl Writer {
    async fn new() -> Writer {
        let client = client().await;
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
        Writer { client: Arc::new(client), pid }
    }

    /// Waits until it waits for this other one alone.
    async fn until_behind(&self, other: &Writer) {
        let (asks, pids) = (client().await, vec![other.pid]);
        until("it waits for the other", async || {
            let waits: Vec<i32> = asks.query_one("SELECT pg_blocking_pids($1)", &[&self.pid]).await.unwrap().get(0);
            waits == pids
        })
        .await;
    }
}

impl Queue {
    async fn new(schema: &'static str) -> Queue {
        // So long that no writer is ended for being idle.
        let fixture = Fixture::in_schema(schema, "queue", 200 * TTL).await;
        fixture.raise(&fixture.old).await.unwrap();
        let (first, raise) = (Writer::new().await, Writer::new().await);
        begin(&first.client, LEVELS[0]).await;
        fixture.sql(&first.client, &fixture.old).await.unwrap();
        // As raise_mark_1 does it, but it does not give up.
        let (new, by) = (&fixture.new, raise.client.clone());
        let sql = format!(
            "SELECT {schema}.raise_locked_1(convert_to('{}', 'UTF8'), {}, '{}')",
            fixture.election, new.token, new.store
        );
        let raised = tokio::spawn(async move { by.batch_execute(&sql).await.unwrap() });
        raise.until_behind(&first).await;
        Queue { fixture, first, raise, raised }
    }
}

#[tokio::test]
async fn a_writer_that_asks_the_fence_while_a_raise_waits_waits_behind_it() {
    let Queue { fixture, first, raise, raised } = Queue::new("incumbent").await;
    let second = Writer::new().await;
    let commit = async {
        second.until_behind(&raise).await;
        first.client.batch_execute("COMMIT").await.unwrap();
    };
    let (refused, ()) = tokio::join!(fixture.sql(&second.client, &fixture.old), commit);
    assert_eq!(sqlstate(refused).as_deref(), Some("IN409"));
    within(raised).await.unwrap();
}

/// Who shares a row is joined by others, past the one that waits for it: each of them keeps the
/// raise waiting, and so on for as long as they overlap.
#[tokio::test]
async fn a_fence_that_shares_a_row_keeps_a_raise_waiting_for_those_who_came_after_it() {
    let always = ["\"shares_a_row\".has_one_snapshot_1()", "true"];
    let keeps_it = ["RAISE SQLSTATE 'IN000'", "NULL"];
    change_fence("shares_a_row", &[LOCKS_NOT, always, keeps_it]).await;
    let Queue { fixture, mut first, raise, raised } = Queue::new("shares_a_row").await;
    for _ in 0..5 {
        let next = Writer::new().await;
        begin(&next.client, LEVELS[0]).await;
        within(fixture.sql(&next.client, &fixture.old)).await.expect("the mark has not risen");
        first.client.batch_execute("COMMIT").await.unwrap();
        raise.until_behind(&next).await;
        first = next;
    }
    assert!(!raised.is_finished());
    first.client.batch_execute("COMMIT").await.unwrap();
    within(raised).await.unwrap();
}

/// Its transactions overlap, and each lasts for longer than a raise is tried.
#[tokio::test]
async fn a_stale_leader_with_an_open_transaction_gets_no_other_one_in_once_a_raise_has_been_tried() {
    let (open, older, newer) = (client().await, client().await, client().await);
    for level in LEVELS {
        // So long that the server does not end the open transaction by itself.
        let fixture = Fixture::with_ttl("overlaps", 200 * TTL).await;
        fixture.raise(&fixture.old).await.unwrap();
        begin(&open, level).await;
        fixture.sql(&open, &fixture.old).await.unwrap();
        begin(&older, level).await;
        let held_up = fixture.raise(&fixture.new).await.unwrap_err();
        assert!(held_up.to_string().contains("an earlier leader has not ended"), "{held_up}");
        let refused = sqlstate(within(fixture.sql(&older, &fixture.old)).await);
        assert_eq!(refused.as_deref(), Some(refusal(level)), "{level}");
        for level in LEVELS {
            begin(&newer, level).await;
            let refused = sqlstate(within(fixture.sql(&newer, &fixture.old)).await);
            assert_eq!(refused.as_deref(), Some("IN409"), "{level}");
        }
        let stale = fixture.raise(&fixture.old).await.unwrap_err();
        assert!(matches!(stale, FenceError::Stale { mark, .. } if mark == fixture.new.token), "{stale:?}");
        open.batch_execute("COMMIT").await.expect("it was let in before");
        older.batch_execute("ROLLBACK").await.unwrap();
        within(fixture.raise(&fixture.new)).await.unwrap();
    }
}

/// It has looked before the mark was wanted, and gets its lock while nobody tries to raise it.
#[tokio::test]
async fn a_writer_that_has_waited_for_its_lock_is_refused_if_a_raise_is_wanted_by_then() {
    let (fixture, holder, writer) = (Fixture::new("looked").await, Writer::new().await, Writer::new().await);
    fixture.raise(&fixture.old).await.unwrap();
    let e = format!("convert_to('{}', 'UTF8')", fixture.election);
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock(incumbent.fence_key_1({e}))");
    holder.client.batch_execute(&lock).await.unwrap();
    let want = async {
        writer.until_behind(&holder).await;
        let want = format!("SELECT incumbent.want_mark_1({e}, {}, '{}')", fixture.new.token, fixture.new.store);
        shared().await.sql(&want);
        holder.client.batch_execute("ROLLBACK").await.unwrap();
    };
    let (refused, ()) = tokio::join!(fixture.sql(&writer.client, &fixture.old), want);
    assert_eq!(sqlstate(refused).as_deref(), Some("IN409"));
}

/// Whoever asks for it, the library of today or an older one, which announces nothing.
#[tokio::test]
async fn a_raise_with_a_token_of_another_store_leaves_the_mark_as_it_is() {
    let (fixture, client) = (Fixture::new("foreign").await, client().await);
    let token = |number, store| FencingToken::new(Token::new(number).unwrap(), StoreId::new(store));
    fixture.raise(&token(7, "etcd-1")).await.unwrap();
    let replaced = fixture.raise(&token(9, "etcd-2")).await.unwrap_err();
    assert!(
        matches!(&replaced, FenceError::StoreReplaced { mark_store, .. } if mark_store.as_str() == "etcd-1"),
        "{replaced:?}"
    );
    let e = format!("convert_to('{}', 'UTF8')", fixture.election);
    let older = format!("SELECT token || ' ' || store FROM incumbent.raise_mark_1({e}, 9, 'etcd-2')");
    assert_eq!(shared().await.sql(&older), "7 etcd-1");
    let (election, number, store) = (fixture.election.as_str(), 8_i64, "etcd-1");
    let ask = "SELECT incumbent.fence($1, $2, $3)";
    client.execute(ask, &[&election, &number, &store]).await.unwrap();
}

/// A raise of the past, or of what no raise can reach, is wanted by nobody.
#[tokio::test]
async fn a_raise_that_cannot_succeed_shuts_out_nobody() {
    let (fixture, client) = (Fixture::new("wanted").await, client().await);
    let store = &fixture.new.store;
    let wants = async |token: &FencingToken| fixture.raise(token).await.unwrap_err();
    let never = wants(&FencingToken::new(Token::new(Token::MAX).unwrap(), store.clone())).await;
    assert!(matches!(never, FenceError::Misuse { .. }), "{never:?}");
    fixture.sql(&client, &fixture.old).await.unwrap();
    let foreign = wants(&FencingToken::new(fixture.new.token, StoreId::new("another"))).await;
    assert!(matches!(foreign, FenceError::StoreReplaced { .. }), "{foreign:?}");
    fixture.sql(&client, &fixture.old).await.unwrap();
    fixture.raise(&fixture.new).await.unwrap();
    assert!(matches!(wants(&fixture.old).await, FenceError::Stale { .. }));
    fixture.sql(&client, &fixture.new).await.unwrap();
    let wanted = "SELECT token = wanted FROM incumbent.mark WHERE election = convert_to($1, 'UTF8')";
    let wanted: bool = client.query_one(wanted, &[&fixture.election.as_str()]).await.unwrap().get(0);
    assert!(wanted, "it went down");
    // An operator may say so.
    fixture.fence.reset(store, "a test").await.unwrap();
    fixture.sql(&client, &fixture.old).await.unwrap();
}

/// Version 5 kept no word of what is wanted.
#[tokio::test]
async fn a_mark_of_the_fifth_version_goes_on_in_the_latest() {
    let schema = "of_the_fifth";
    let fixture = Fixture::in_schema(schema, "fifth", TTL).await;
    fixture.raise(&fixture.old).await.unwrap();
    let server = shared().await;
    server.sql(&format!("DROP FUNCTION {schema}.want_mark_1"));
    server.sql(&format!("ALTER TABLE {schema}.mark DROP COLUMN wanted"));
    server.sql(&format!("UPDATE {schema}.store SET version = 5"));
    let latest = PostgresFence::new(&store(&format!("{}?schema={schema}", server.url())), &fixture.election);
    let client = client().await;
    latest.raise(&fixture.election, fixture.old.clone()).await.unwrap();
    fixture.sql(&client, &fixture.old).await.unwrap();
    latest.raise(&fixture.election, fixture.new.clone()).await.unwrap();
    assert_eq!(sqlstate(fixture.sql(&client, &fixture.old).await).as_deref(), Some("IN409"));
}

/// Such as a variable of a shell's that is not set.
#[tokio::test]
async fn a_fence_without_an_election_a_token_or_the_name_of_a_store_is_refused() {
    let fixture = Fixture::new("without").await;
    let client = client().await;
    let (election, token) = (format!("'{}'", fixture.election), fixture.new.get().to_string());
    let empty_store = format!("{token}, ''");
    let wrong = [
        ("''", &*token),
        ("NULL", &token),
        (&election, "NULL"),
        (&election, "0"),
        (&election, "-1"),
        (&election, &empty_store),
    ];
    for (election, token) in wrong {
        let refused = client.batch_execute(&format!("SELECT incumbent.fence({election}, {token})")).await;
        assert_eq!(sqlstate(refused).as_deref(), Some("22023"), "{election} {token}");
    }
    let nameless = FencingToken::new(fixture.new.token, StoreId::new(""));
    assert!(matches!(fixture.raise(&nameless).await, Err(FenceError::Limit { .. })));
    client.batch_execute(&format!("SELECT incumbent.fence({election}, {token})")).await.unwrap();
}

/// As the documentation says.
#[tokio::test]
async fn a_transaction_that_only_reads_may_ask_where_the_mark_stands_already_and_in_read_committed() {
    let client = client().await;
    for level in LEVELS {
        let fixture = Fixture::new("reads").await;
        let ask = async || {
            client.batch_execute(&format!("ROLLBACK; BEGIN ISOLATION LEVEL {level} READ ONLY")).await.unwrap();
            sqlstate(fixture.sql(&client, &fixture.old).await)
        };
        // Whatever else is committed in between has it run again.
        let mut raising = None;
        until("it is refused", async || {
            raising = ask().await;
            raising.as_deref() != Some("40001")
        })
        .await;
        assert_eq!(raising.as_deref(), Some("25006"), "{level}");
        fixture.raise(&fixture.old).await.unwrap();
        let refused = has_one_snapshot(level).then_some("25006");
        assert_eq!(ask().await.as_deref(), refused, "{level}");
    }
}

/// It is active for the server, which waits for what it has to say, and not idle.
#[tokio::test]
async fn a_leader_that_is_paused_in_a_copy_is_named_to_its_successor_and_can_be_ended() {
    let fixture = Fixture::new("copy").await;
    let (client, operator) = (client().await, client().await);
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    client.batch_execute("CREATE TEMP TABLE copied (line text); BEGIN").await.unwrap();
    fixture.sql(&client, &fixture.old).await.unwrap();
    let _copies = client.copy_in::<_, bytes::Bytes>("COPY copied FROM STDIN").await.unwrap();
    let held_up = fixture.raise(&fixture.new).await.unwrap_err().to_string();
    assert!(held_up.contains(&format!("has not ended: the backend {pid}")), "{held_up}");
    operator.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    within(raise_until_done(fixture.fence.clone(), fixture.election.clone(), fixture.new.clone())).await;
}

/// As many raises hang as may be out at once.
#[tokio::test]
async fn an_election_is_led_and_left_while_raises_of_the_same_client_wait_for_earlier_leaders_of_others() {
    let server = shared().await;
    let store = store(&format!("{}?schema=raises_hang", server.url()));
    make(&store).await;
    server.sql(
        "CREATE OR REPLACE FUNCTION raises_hang.raise_mark_1(e bytea, t bigint, of text) \
         RETURNS TABLE (token bigint, store text) LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp \
         AS 'SELECT pg_sleep(3600); SELECT 1::bigint, $3'",
    );
    // Of elections that are kept elsewhere: here this one has given no token.
    let token = FencingToken::new(Token::new(1).unwrap(), StoreId::new("elsewhere"));
    let mut hanging = JoinSet::new();
    for _ in 0..4 {
        let (election, token) = (name("raise-hangs"), token.clone());
        let fence = PostgresFence::new(&store, &election);
        hanging.spawn(async move { fence.raise(&election, token).await });
    }
    let asked = "SELECT count(*) FROM pg_stat_activity \
        WHERE query LIKE '%raises_hang%raise_mark_1%' AND wait_event = 'PgSleep'";
    until("all are asked", async || server.sql(asked) == "4").await;
    let client = incumbent::Client::builder().ttl(TTL).with_store(store).await.unwrap();
    let election = client.election(name("does-not-hang").as_str()).unwrap();
    let mut candidacy = within(election.candidate("a").stand()).await.unwrap();
    within(within(lead(&mut candidacy)).await.resign()).await.unwrap();
    assert_eq!((server.sql(asked).as_str(), hanging.try_join_next().is_none()), ("4", true), "they hang");
}

/// The same where nobody has raised the mark with the office: the new leader's first transaction
/// does, for as long as its user lets it wait.
#[tokio::test]
async fn a_transaction_that_raises_the_mark_names_whom_it_waits_for_and_does_not_wait_for_ever() {
    let fixture = Fixture::new("copy-sql").await;
    let (client, successor) = (client().await, client().await);
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    client.batch_execute("CREATE TEMP TABLE copied (line text); BEGIN").await.unwrap();
    fixture.sql(&client, &fixture.old).await.unwrap();
    let _copies = client.copy_in::<_, bytes::Bytes>("COPY copied FROM STDIN").await.unwrap();
    // Not set, it waits for ten seconds.
    for own in ["100ms", "0"] {
        successor.batch_execute(&format!("SET lock_timeout = '{own}'")).await.unwrap();
        let refused = within(fixture.sql(&successor, &fixture.new)).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.code().code(), "55P03", "{own}");
        assert!(refused.message().contains(&format!("has not ended: the backend {pid}")), "{own}: {refused}");
    }
    successor.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    until("it gets through", async || fixture.sql(&successor, &fixture.new).await.is_ok()).await;
}

/// The next statements wait for as long as they did before.
#[tokio::test]
async fn a_transaction_that_has_raised_the_mark_waits_for_other_locks_as_its_user_says() {
    let client = client().await;
    for own in ["0", "100ms", "1h"] {
        let fixture = Fixture::new("own-limit").await;
        client.batch_execute(&format!("SET lock_timeout = '{own}'; BEGIN")).await.unwrap();
        fixture.sql(&client, &fixture.new).await.unwrap();
        let waits: String = client.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0);
        assert_eq!(waits, own);
        client.batch_execute("COMMIT").await.unwrap();
    }
}

/// Writers show the old token without a pause, at every level, while the mark rises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_of_a_lower_token_is_accepted_once_the_mark_has_risen() {
    for level in LEVELS {
        let fixture = Arc::new(Fixture::new("writers").await);
        let setup = client().await;
        let table = format!("written_{:x}", incumbent_testkit::conformance::unique());
        setup.batch_execute(&format!("CREATE TABLE {table} (token bigint)")).await.unwrap();
        fixture.raise(&fixture.old).await.unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let refusals = Arc::new(Mutex::new(Vec::new()));
        let writers = (0..16).map(|_| {
            let (fixture, over, refusals, table) = (fixture.clone(), over.clone(), refusals.clone(), table.clone());
            tokio::spawn(async move {
                let client = client().await;
                let write = format!("INSERT INTO {table} VALUES ({})", fixture.old.get());
                while !over.load(Ordering::SeqCst) {
                    begin(&client, level).await;
                    match fixture.sql(&client, &fixture.old).await {
                        Ok(()) => client.batch_execute(&format!("{write}; COMMIT")).await.unwrap(),
                        refused => refusals.lock().unwrap().extend(sqlstate(refused)),
                    }
                }
            })
        });
        let writers = Vec::from_iter(writers);
        let count =
            async || -> i64 { setup.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0) };
        until("they write", async || count().await > 20).await;
        within(fixture.raise(&fixture.new)).await.unwrap();
        let written = count().await;
        until("they are refused", async || refusals.lock().unwrap().len() > 20).await;
        over.store(true, Ordering::SeqCst);
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(count().await, written, "{level}: writes were accepted after the mark had risen");
        assert!(refusals.lock().unwrap().iter().all(|code| code == "IN409" || code == "40001"));
    }
}

/// A program that was never told: a transaction each millisecond, until all is over. How often it
/// was refused.
async fn write_on(url: String, level: &str, leads: Held, over: Arc<AtomicBool>) -> u64 {
    let client = raw(&url).await;
    let (election, token) = (leads.election, leads.token);
    let write = format!(
        "BEGIN ISOLATION LEVEL {level}; SELECT incumbent.fence('{election}', {token}); \
         INSERT INTO written VALUES ({token}, '{level}'); COMMIT"
    );
    let mut pace = tokio::time::interval(Duration::from_millis(1));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut refused = 0;
    while !over.load(Ordering::SeqCst) {
        pace.tick().await;
        if let Some(code) = sqlstate(client.batch_execute(&write).await) {
            assert!(code == "IN409" || code == "40001", "{code}");
            refused += 1;
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
    refused
}

/// Leaders that are replaced when their time is over, and do not notice: some of their work writes
/// on, and some is paused right before its COMMIT, for a while or for good. At every level of
/// isolation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_write_of_a_lower_token_is_accepted_through_failovers_and_pauses() {
    let server = PostgresServer::start_with(&["track_commit_timestamp=on"]).await;
    server.sql("CREATE TABLE written (token bigint, level text)");
    let (store, election) = (store(&server.url()), name("failovers"));
    let fence = PostgresFence::new(&store, &election);
    let over = Arc::new(AtomicBool::new(false));
    let (mut sessions, mut paused, mut writers) = (Vec::new(), Vec::<Client>::new(), Vec::new());
    for number in 1..=4 {
        let session = store.open_session(20 * TTL).await.unwrap();
        let leads = held(&session.enlist(&election, &entry(number)).await.unwrap());
        let (token, older) =
            (leads.token, format!("SELECT session FROM incumbent.entry WHERE token < {}", leads.token));
        server.sql(&format!("UPDATE incumbent.session SET expires_at = clock_timestamp() WHERE id IN ({older})"));
        let standing = session.standing(&leads, None).await.unwrap();
        assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");

        let to = FencingToken::new(token, session.store_id());
        let mut raise = tokio::spawn(raise_until_done(fence.clone(), election.clone(), to));
        let waits = tokio::select! {
            raised = &mut raise => raised.map(|()| false).unwrap(),
            () = until_blocked(&server, "raise_mark_1"), if !paused.is_empty() => true,
        };
        // The first goes on while the raise waits for both; the second, never.
        if let Some(first) = paused.first() {
            let committed = first.batch_execute("COMMIT").await;
            assert!(committed.is_err() || waits, "the mark rose while it was open");
        }
        if waits {
            raise.await.unwrap();
        }
        if let Some(second) = paused.last() {
            let committed = second.batch_execute("COMMIT").await;
            assert!(committed.is_err(), "the mark rose while it was open");
        }
        let lower = format!("SELECT count(*) FROM written WHERE token < {token}");
        let written = server.sql(&lower);

        for level in LEVELS {
            writers.push((number, tokio::spawn(write_on(server.url(), level, leads.clone(), over.clone()))));
        }
        until("it writes at every level", async || {
            let levels = format!("SELECT level FROM written WHERE token = {token} GROUP BY level HAVING count(*) > 50");
            server.sql(&levels).lines().count() == LEVELS.len()
        })
        .await;
        assert_eq!(server.sql(&lower), written, "writes were accepted after the mark had risen");
        // Half of it is how long its transactions may be idle.
        server.sql("UPDATE incumbent.session SET ttl_us = 6000000");
        // One level at a time: at the others the mark waits for another lock.
        let level = LEVELS[sessions.len() % LEVELS.len()];
        paused =
            vec![pause_before_commit(&server, level, &leads).await, pause_before_commit(&server, level, &leads).await];
        sessions.push(session);
    }
    over.store(true, Ordering::SeqCst);
    for (number, writer) in writers {
        let refused = writer.await.unwrap();
        assert!((refused > 0) == (number < 4), "{number} was refused {refused} times");
    }
    let stale = "SELECT count(*) FROM (SELECT token < max(token) OVER (ORDER BY pg_xact_commit_timestamp(xmin)) \
        AS stale FROM written) w WHERE stale";
    assert_eq!(server.sql(stale), "0", "committed after what a higher token has written");
}

/// As the library does it.
async fn raise_until_done(fence: PostgresFence, election: ElectionName, token: FencingToken) {
    while let Err(error) = fence.raise(&election, token.clone()).await {
        assert!(error.is_transient(), "{error}");
    }
}

/// A transaction that has asked the fence, and written.
async fn pause_before_commit(server: &PostgresServer, level: &str, leads: &Held) -> Client {
    let client = raw(&server.url()).await;
    begin(&client, level).await;
    let (election, token) = (&leads.election, leads.token);
    let write = format!("SELECT incumbent.fence('{election}', {token}); INSERT INTO written VALUES ({token})");
    client.batch_execute(&write).await.unwrap();
    client
}

#[tokio::test]
async fn a_leader_that_is_paused_before_its_commit_holds_up_its_successor_for_half_a_ttl() {
    let fixture = Fixture::new("paused").await;
    let paused = client().await;
    let (election, token) = (&fixture.election, fixture.old.get());
    // In one message: it is idle after that.
    let show = "SHOW idle_in_transaction_session_timeout";
    let asked = format!("BEGIN; SELECT incumbent.fence('{election}', {token}); {show}");
    assert_eq!(shown(&paused.simple_query(&asked).await.unwrap()), ["1500ms"], "half a TTL");
    // The raise gives up and names whom it waits for, or gets through once the server has ended the
    // transaction.
    until("the successor gets through", async || match fixture.raise(&fixture.new).await {
        Ok(()) => true,
        Err(error) => {
            assert!(error.to_string().contains("the backend"), "{error}");
            false
        }
    })
    .await;
    assert!(paused.batch_execute("COMMIT").await.is_err(), "the server has ended it");
}

/// What the statements behind a call of the fence say.
fn shown(said: &[SimpleQueryMessage]) -> Vec<&str> {
    let said = said.iter().filter_map(|part| match part {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    said.skip(1).collect()
}

/// What the user has set is kept if it is less, and counts again once the transaction has ended.
#[tokio::test]
async fn a_transaction_may_be_idle_for_half_a_ttl_after_the_fence_and_for_no_longer_than_its_user_says() {
    let fixture = Fixture::new("idle").await;
    let client = client().await;
    let show = "SHOW idle_in_transaction_session_timeout";
    // In one message: it would be ended while it is being asked.
    let (election, token) = (&fixture.election, fixture.new.get());
    let asks = format!("BEGIN; SELECT incumbent.fence('{election}', {token}); {show}; COMMIT; {show}");
    // Half of the usual TTL where the leader's election is elsewhere.
    let elsewhere =
        format!("BEGIN; SELECT incumbent.fence('{election}/elsewhere', {token}, 'etcd-7'); {show}; COMMIT; {show}");
    for (asks, own, bound) in [
        (&asks, "0", "1500ms"),
        (&asks, "1min", "1500ms"),
        (&asks, "1499ms", "1499ms"),
        (&elsewhere, "0", "7500ms"),
        (&elsewhere, "1min", "7500ms"),
        (&elsewhere, "1499ms", "1499ms"),
    ] {
        client.batch_execute(&format!("SET idle_in_transaction_session_timeout = '{own}'")).await.unwrap();
        let said = client.simple_query(asks).await.unwrap();
        assert_eq!(shown(&said), [bound, own]);
    }
}

/// It knew that its office was over, and writes on in its transaction.
#[tokio::test]
async fn a_leader_whose_entry_is_gone_may_be_idle_for_half_of_the_usual_ttl() {
    let fixture = Fixture::new("withdrawn").await;
    let client = client().await;
    fixture.raise(&fixture.old).await.unwrap();
    fixture.sessions[0].close().await.unwrap();
    let (election, token) = (&fixture.election, fixture.old.get());
    let asks = format!(
        "BEGIN; SELECT incumbent.fence('{election}', {token}); SHOW idle_in_transaction_session_timeout; COMMIT"
    );
    let said = client.simple_query(&asks).await.unwrap();
    let bounds =
        said.iter().filter(|part| matches!(part, SimpleQueryMessage::Row(row) if row.get(0) == Some("7500ms")));
    assert_eq!(bounds.count(), 1, "{said:?}");
}

/// What the documentation warns of, and what it says to do: ROLLBACK TO a savepoint that was set
/// before the fence was asked gives its lock back. Asked again after it, the fence holds.
#[tokio::test]
async fn a_savepoint_that_is_rolled_back_takes_the_fence_with_it_until_it_is_asked_again() {
    let fixture = Fixture::with_ttl("savepoint", 20 * TTL).await;
    fixture.raise(&fixture.old).await.unwrap();
    let client = client().await;
    begin(&client, LEVELS[0]).await;
    client.batch_execute("SAVEPOINT before").await.unwrap();
    fixture.sql(&client, &fixture.old).await.unwrap();
    let waits = fixture.raise(&fixture.new).await.unwrap_err();
    assert!(waits.is_transient(), "{waits}");
    client.batch_execute("ROLLBACK TO before").await.unwrap();
    fixture.raise(&fixture.new).await.unwrap();
    assert_eq!(sqlstate(fixture.sql(&client, &fixture.old).await).as_deref(), Some("IN409"));
    // Outside of savepoints, none that is rolled back matters.
    begin(&client, LEVELS[0]).await;
    fixture.sql(&client, &fixture.new).await.unwrap();
    client.batch_execute("SAVEPOINT after; ROLLBACK TO after").await.unwrap();
    let session = fixture.store.open_session(TTL).await.unwrap();
    let third = held(&session.enlist(&fixture.election, &entry(3)).await.unwrap());
    let waits = fixture.raise(&FencingToken::new(third.token, session.store_id())).await.unwrap_err();
    assert!(waits.is_transient(), "{waits}");
}

#[tokio::test]
async fn a_prepared_transaction_is_named_to_those_who_wait_for_it() {
    let fixture = Fixture::new("prepared").await;
    let client = client().await;
    begin(&client, LEVELS[0]).await;
    fixture.sql(&client, &fixture.old).await.unwrap();
    let name = format!("prepared_{:x}", incumbent_testkit::conformance::unique());
    client.batch_execute(&format!("PREPARE TRANSACTION '{name}'")).await.unwrap();
    let waits = fixture.raise(&fixture.new).await.unwrap_err();
    assert!(waits.is_transient() && waits.to_string().contains("pg_prepared_xacts"), "{waits}");
    client.batch_execute(&format!("ROLLBACK PREPARED '{name}'")).await.unwrap();
    fixture.raise(&fixture.new).await.unwrap();
}

#[tokio::test]
async fn an_office_is_taken_with_the_fence_raised() {
    let fixture = Fixture::new("attached").await;
    let client = incumbent::Client::builder().ttl(TTL).with_store(fixture.store.clone()).await.unwrap();
    let election = client.election(name("attached").as_str()).unwrap();
    let fence = PostgresFence::new(&fixture.store, election.name());
    let mut candidacy = election.candidate("a").fence(fence).stand().await.unwrap();
    let leadership = lead(&mut candidacy).await;
    let mark =
        shared().await.sql(&format!("SELECT token FROM incumbent.mark WHERE election = '{}'::bytea", election.name()));
    assert_eq!(mark, leadership.token().get().to_string());
    tokio::time::timeout(Duration::from_secs(60), leadership.resign()).await.unwrap().unwrap();
}
