//! What goes wrong where a statement locks and reads at once, and does not here. Each case is shown
//! with a variant that gets it wrong, so that it is known to be one.

use std::sync::Arc;
use std::time::Duration;

use incumbent_postgres::tokio_postgres::Client;
use incumbent_store::{Cas, Held, Place, Session, Store, StoreError};
use incumbent_testkit::proxy::Proxy;
use incumbent_testkit::servers::{PgBouncer, PostgresServer};
use tokio::task::JoinSet;

use crate::harness::{entry, held, is_blocked, make, name, raw, shared, sqlstate, store, until, until_blocked, within};

/// Long enough to open a transaction in, short enough to wait for.
const SHORT: Duration = Duration::from_secs(2);

/// A leader and one behind it. Nobody renews them.
struct Two {
    leader: Arc<dyn Session>,
    leads: Held,
    follower: Arc<dyn Session>,
    follows: Held,
}

impl Two {
    async fn stand(test: &str, ttl: Duration) -> Two {
        Two::stand_for(test, ttl, 10 * SHORT).await
    }

    async fn stand_for(test: &str, leader: Duration, follower: Duration) -> Two {
        let store = store(&shared().await.url());
        let election = name(test);
        let leader = store.open_session(leader).await.unwrap();
        let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
        let follower = store.open_session(follower).await.unwrap();
        let follows = held(&follower.enlist(&election, &entry(2)).await.unwrap());
        Two { leader, leads, follower, follows }
    }

    fn election(&self) -> Vec<u8> {
        self.leads.election.as_str().as_bytes().to_vec()
    }

    async fn follower_leads(&self) -> bool {
        matches!(within(self.follower.standing(&self.follows, None)).await.unwrap().place, Place::Leading(_))
    }

    async fn leader_leads(&self) -> bool {
        matches!(
            within(self.leader.standing(&self.leads, None)).await.map(|standing| standing.place),
            Ok(Place::Leading(_))
        )
    }
}

/// As bytes are written in a statement.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The session that has an entry, as it is in the database.
async fn session_of(held: &Held, client: &Client) -> Vec<u8> {
    let sql = "SELECT session FROM incumbent.entry WHERE election = $1 AND token::text = $2";
    let (election, token) = (held.election.as_str().as_bytes(), held.token.to_string());
    client.query_one(sql, &[&election, &token]).await.unwrap().get(0)
}

/// Waits until what others can see of an entry's session has expired.
async fn until_expired(held: &Held, client: &Client) {
    let session = session_of(held, client).await;
    until("the session has expired", async || {
        let sql = "SELECT expires_at <= clock_timestamp() FROM incumbent.session WHERE id = $1";
        client.query_one(sql, &[&session]).await.unwrap().get(0)
    })
    .await;
}

/// Opens a transaction in which an entry's session is renewed, and leaves it open until others see
/// it expired.
async fn renewed_in_an_open_transaction(held: &Held, client: &Client, other: &Client) {
    let session = session_of(held, client).await;
    client.batch_execute("BEGIN").await.unwrap();
    let renewed = client.query("SELECT * FROM incumbent.renew_1($1)", &[&session]).await.unwrap();
    assert!(!renewed.is_empty(), "it had not expired");
    // For longer than a slow machine takes for the rest.
    let longer = "UPDATE incumbent.session SET expires_at = expires_at + interval '1 minute' WHERE id = $1";
    client.execute(longer, &[&session]).await.unwrap();
    until_expired(held, other).await;
}

#[tokio::test]
async fn a_leader_whose_renewal_is_being_committed_is_not_removed() {
    let url = shared().await.url();
    let (client, other) = (raw(&url).await, raw(&url).await);
    let two = Two::stand("late-renewal", SHORT).await;
    renewed_in_an_open_transaction(&two.leads, &client, &other).await;
    assert!(!two.follower_leads().await, "the renewal may still be committed");
    client.batch_execute("COMMIT").await.unwrap();
    assert!(!two.follower_leads().await);
    assert!(two.leader_leads().await);
}

/// An earlier copy of the withdrawal may still be under way. Were the heir gone now and there
/// later, the copy would remove an entry whose owner was told that it stays, and leads.
#[tokio::test]
async fn an_heir_whose_renewal_is_being_committed_is_not_gone() {
    let url = shared().await.url();
    let (client, other) = (raw(&url).await, raw(&url).await);
    let two = Two::stand_for("late-heir", 60 * SHORT, SHORT).await;
    renewed_in_an_open_transaction(&two.follows, &client, &other).await;
    let withdrawal = within(two.leader.withdraw(&two.leads, Some(&two.follows.entry))).await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    let copy = within(two.leader.withdraw(&two.leads, Some(&two.follows.entry))).await.unwrap();
    assert_eq!([withdrawal, copy], [Cas::Done; 2], "a copy does what was refused");
    assert!(two.follower_leads().await);
}

#[tokio::test]
async fn an_heir_that_was_gone_once_does_not_come_back() {
    let url = shared().await.url();
    let other = raw(&url).await;
    let two = Two::stand_for("gone-heir", 60 * SHORT, SHORT).await;
    until_expired(&two.follows, &other).await;
    let withdrawal = within(two.leader.withdraw(&two.leads, Some(&two.follows.entry))).await.unwrap();
    assert_eq!(withdrawal, Cas::Refused);
    assert!(matches!(two.follower.renew(&[]).await, Err(StoreError::SessionGone)));
    let left = "SELECT count(*) FROM incumbent.entry WHERE election = $1";
    let left: i64 = other.query_one(left, &[&two.election()]).await.unwrap().get(0);
    assert_eq!(left, 1, "what was found dead is removed");
    assert!(two.leader_leads().await);
}

/// What is seen before the wait for the election is old after it: the renewal has been committed
/// meanwhile.
#[tokio::test]
async fn a_leader_that_is_renewed_while_others_wait_for_the_election_is_not_removed() {
    let server = shared().await;
    let (client, other) = (raw(&server.url()).await, raw(&server.url()).await);
    for waits in ["standing_1", "enlist_3"] {
        until("it has waited for the election", async || {
            let two = Two::stand("waits-for-the-election", SHORT).await;
            let session = session_of(&two.leads, &other).await;
            let asks = [session_of(&two.follows, &other).await, two.election()].map(|bytes| hex(&bytes));
            let third = store(&server.url()).open_session(10 * SHORT).await.unwrap();
            client.batch_execute("BEGIN").await.unwrap();
            let lock = "SELECT FROM incumbent.election WHERE name = $1 FOR UPDATE";
            client.query(lock, &[&two.election()]).await.unwrap();
            let renewed = client.query("SELECT * FROM incumbent.renew_1($1)", &[&session]).await.unwrap();
            // For longer than a slow machine takes for the rest.
            let longer = "UPDATE incumbent.session SET expires_at = expires_at + interval '1 minute' WHERE id = $1";
            client.execute(longer, &[&session]).await.unwrap();
            until_expired(&two.leads, &other).await;
            let (follower, follows) = (two.follower.clone(), two.follows.clone());
            let waiting = tokio::spawn(async move {
                if waits == "standing_1" {
                    follower.standing(&follows, None).await
                } else {
                    third.enlist(&follows.election, &entry(3)).await
                }
            });
            let blocked = || asks.iter().any(|bytes| is_blocked(server, &format!("{waits}(%{bytes}")));
            let mut has_waited = false;
            until("it waits, or has given up", async || {
                has_waited = blocked();
                has_waited || waiting.is_finished()
            })
            .await;
            client.batch_execute("COMMIT").await.unwrap();
            let standing = match within(waiting).await.unwrap() {
                // On a busy machine the leader had expired before, or the wait was over too soon.
                _ if renewed.is_empty() => return false,
                Err(StoreError::Unavailable { .. }) => return false,
                standing => standing.unwrap(),
            };
            assert!(!matches!(standing.place, Place::Leading(_)), "{waits}: {standing:?}");
            assert!(two.leader_leads().await, "{waits}");
            has_waited
        })
        .await;
    }
}

/// The same with one statement that locks the session and removes the dead, as it is written at
/// first.
#[tokio::test]
async fn a_statement_that_locks_and_reads_at_once_removes_the_leader_that_was_just_renewed() {
    let server = shared().await;
    let (client, other, challenger) = (raw(&server.url()).await, raw(&server.url()).await, raw(&server.url()).await);
    let two = Two::stand("locking-cte", SHORT).await;
    // Others lock the election and change nothing in it, as renewals in the obvious design do.
    client.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM incumbent.election WHERE name = $1 FOR UPDATE";
    client.query(lock, &[&two.election()]).await.unwrap();
    let session = session_of(&two.leads, &other).await;
    client.query("SELECT * FROM incumbent.renew_1($1)", &[&session]).await.unwrap();
    until_expired(&two.leads, &other).await;
    let election = two.election();
    let challenge = tokio::spawn(async move {
        let sql = "WITH l AS MATERIALIZED (SELECT FROM incumbent.election WHERE name = $1 FOR UPDATE), \
            dead AS MATERIALIZED (SELECT e.token FROM incumbent.entry e JOIN incumbent.session s ON s.id = e.session \
                WHERE e.election = $1 AND s.expires_at <= clock_timestamp() AND (SELECT count(*) FROM l) = 1) \
            DELETE FROM incumbent.entry WHERE election = $1 AND token IN (SELECT token FROM dead)";
        challenger.execute(sql, &[&election]).await.unwrap()
    });
    until_blocked(server, "dead AS MATERIALIZED").await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(challenge.await.unwrap(), 1, "the case is no case: what is tested above would not go wrong");
    assert!(!two.leader_leads().await);
}

#[tokio::test]
async fn a_renewal_that_waited_past_the_end_of_its_session_does_not_revive_it() {
    let server = shared().await;
    let (client, other) = (raw(&server.url()).await, raw(&server.url()).await);
    let two = Two::stand("late-guard", SHORT / 2).await;
    let session = session_of(&two.leads, &client).await;
    client.batch_execute("BEGIN").await.unwrap();
    client.query("SELECT FROM incumbent.session WHERE id = $1 FOR UPDATE", &[&session]).await.unwrap();
    let leader = two.leader.clone();
    let renewal = tokio::spawn(async move { leader.renew(&[]).await });
    let id = hex(&session);
    // On a slow machine it gives up waiting before anybody has seen it.
    until("it waits", async || is_blocked(server, &format!("renew_1%{id}")) || renewal.is_finished()).await;
    until_expired(&two.leads, &other).await;
    client.batch_execute("COMMIT").await.unwrap();
    let renewal = within(renewal).await.unwrap();
    let gave_up = matches!(renewal, Err(StoreError::Unavailable { .. }));
    assert!(matches!(renewal, Err(StoreError::SessionGone)) || gave_up, "{renewal:?}");
    assert!(matches!(two.leader.renew(&[]).await, Err(StoreError::SessionGone)));
}

/// The same with the guard in the statement that waits, as it is written at first.
#[tokio::test]
async fn a_guard_in_the_statement_that_waits_revives_an_expired_session() {
    let server = shared().await;
    let (client, other, bad) = (raw(&server.url()).await, raw(&server.url()).await, raw(&server.url()).await);
    let two = Two::stand("early-guard", 2 * SHORT).await;
    let session = session_of(&two.leads, &client).await;
    client.batch_execute("BEGIN").await.unwrap();
    client.query("SELECT FROM incumbent.session WHERE id = $1 FOR UPDATE", &[&session]).await.unwrap();
    let renewal = tokio::spawn(async move {
        let sql = "UPDATE incumbent.session SET expires_at = clock_timestamp() + interval '1 hour' \
            WHERE id = $1 AND expires_at > clock_timestamp()";
        bad.execute(sql, &[&session]).await.unwrap()
    });
    until_blocked(server, "1 hour").await;
    until_expired(&two.leads, &other).await;
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(within(renewal).await.unwrap(), 1, "the case is no case: what is tested above would not go wrong");
}

/// All that the library may call, but for what reads in one statement, tells, or is a fence's.
#[tokio::test]
async fn steps_refuse_a_transaction_with_one_snapshot() {
    let client = raw(&shared().await.url()).await;
    // There is a schema.
    make(&store(&shared().await.url())).await;
    let steps = "SELECT proname::text, array_to_string(array_fill('NULL'::text, ARRAY[pronargs]), ', ') FROM pg_proc \
        WHERE pronamespace = 'incumbent'::regnamespace AND prosecdef \
            AND proname !~ '^(about|changed|elections|line|tell|fence|refuse_lower)(_|$)'";
    let steps = client.query(steps, &[]).await.unwrap();
    let names = Vec::from_iter(steps.iter().map(|step| step.get::<_, String>(0)));
    for step in ["open_1", "enlist_3", "standing_1", "renew_1", "close_1", "raise_mark_1"] {
        assert!(names.iter().any(|name| name == step), "{step} is missing: {names:?}");
    }
    let mut accepted = Vec::new();
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        for (name, step) in names.iter().zip(&steps) {
            client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}")).await.unwrap();
            let arguments: String = step.get(1);
            let answer = client.query(&format!("SELECT * FROM incumbent.{name}({arguments})"), &[]).await;
            accepted.extend(Some((level, name)).filter(|_| sqlstate(answer).as_deref() != Some("IN001")));
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
    assert_eq!(accepted, []);
}

/// The same without that: it tells of what was, and a leader that was replaced long ago leads.
#[tokio::test]
async fn a_step_in_a_transaction_with_one_snapshot_says_that_a_former_leader_leads() {
    let server = shared().await;
    let store = store(&format!("{}?schema=at_any_level", server.url()));
    let election = name("one-snapshot");
    let follower = store.open_session(10 * SHORT).await.unwrap();
    server.sql(
        "CREATE OR REPLACE FUNCTION at_any_level.begin_step_1() RETURNS void LANGUAGE plpgsql VOLATILE \
         AS 'BEGIN END'",
    );
    for (number, level) in [(1, "REPEATABLE READ"), (3, "SERIALIZABLE")] {
        let leader = store.open_session(10 * SHORT).await.unwrap();
        let leads = held(&leader.enlist(&election, &entry(number)).await.unwrap());
        let follows = held(&follower.enlist(&election, &entry(number + 1)).await.unwrap());
        let asks = raw(&server.url()).await;
        asks.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM at_any_level.session"))
            .await
            .unwrap();
        let of = format!("(SELECT session FROM at_any_level.entry WHERE token = {})", leads.token);
        server.sql(&format!("UPDATE at_any_level.session SET expires_at = clock_timestamp() WHERE id = {of}"));
        let next = follower.standing(&follows, None).await.unwrap();
        assert!(matches!(next.place, Place::Leading(_)), "{next:?}");
        let token = leads.token;
        let sql = format!("SELECT place FROM at_any_level.standing_1({of}, '{election}', {token})");
        let told: String = asks.query_one(&sql, &[]).await.unwrap().get(0);
        assert_eq!(told, "leading", "the case is no case: nothing would be wrong with {level}");
        follower.withdraw(&follows, None).await.unwrap();
    }
}

#[tokio::test]
async fn steps_of_one_session_in_many_elections_lock_one_row_to_renew() {
    let server = shared().await;
    let store = store(&server.url());
    let session = store.open_session(10 * SHORT).await.unwrap();
    let mut standing = Vec::new();
    for number in 0..3 {
        standing.push(held(&session.enlist(&name("many"), &entry(number)).await.unwrap()));
    }
    // Somebody holds all their elections, and renewals do not care.
    let client = raw(&server.url()).await;
    client.batch_execute("BEGIN; SELECT FROM incumbent.election FOR UPDATE").await.unwrap();
    let renewal = within(session.renew(&standing)).await.unwrap();
    assert!(renewal.gone.is_empty() && renewal.stray.is_empty(), "{renewal:?}");
    client.batch_execute("ROLLBACK").await.unwrap();
}

/// Neither a leader nor a follower waits for those who change the line, nor writes.
#[tokio::test]
async fn who_asks_where_it_stands_locks_nothing_and_writes_nothing() {
    let server = shared().await;
    let two = Two::stand("unlocked", 10 * SHORT).await;
    let others = locked(server, &two.leads).await;
    assert!(two.leader_leads().await);
    assert!(!two.follower_leads().await);
    let line = within(store(&server.url()).line(&two.leads.election, 9)).await.unwrap();
    assert_eq!(line.entries.len(), 2);
    others.batch_execute("ROLLBACK").await.unwrap();

    let client = raw(&server.url()).await;
    for (held, place) in [(&two.leads, "leading"), (&two.follows, "behind")] {
        let (session, token) = (session_of(held, &client).await, held.token);
        client.batch_execute("BEGIN").await.unwrap();
        let ask = format!("SELECT place FROM incumbent.standing_1($1, $2, {token})");
        let said: String = client.query_one(&ask, &[&session, &two.election()]).await.unwrap().get(0);
        let writes = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL";
        let writes: bool = client.query_one(writes, &[]).await.unwrap().get(0);
        assert_eq!((&*said, writes), (place, false));
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// By the role's own limit, which is shorter than that of the step.
#[tokio::test]
async fn a_statement_that_the_server_gives_up_has_done_nothing_and_leaves_nothing_locked() {
    let server = shared().await;
    server.sql("CREATE ROLE impatient LOGIN SUPERUSER");
    server.sql("ALTER ROLE impatient SET statement_timeout = '1500ms'");
    let impatient = store(&server.url().replace("postgres@", "impatient@"));
    let session = impatient.open_session(10 * SHORT).await.unwrap();
    let leads = held(&session.enlist(&name("given-up"), &entry(1)).await.unwrap());
    let client = locked(server, &leads).await;
    let refused = within(session.withdraw(&leads, None)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("57014"), "the server gave it up");
    client.batch_execute("ROLLBACK").await.unwrap();
    within(session.withdraw(&leads, None)).await.unwrap();
}

/// Directly, and through a pooler, which has words of its own for it.
#[tokio::test]
async fn a_write_whose_backend_ends_is_an_unknown_outcome_and_leaves_nothing_locked() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, 4).await;
    for url in [server.url(), pooler.url()] {
        let session = store(&url).open_session(20 * SHORT).await.unwrap();
        let leads = held(&session.enlist(&name("ended"), &entry(1)).await.unwrap());
        let client = locked(&server, &leads).await;
        let withdrawal = tokio::spawn(withdraw_until_known(session.clone(), leads.clone()));
        until("its backend is ended", async || {
            server.sql(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE wait_event_type = 'Lock' AND query LIKE '%withdraw_1%'",
            ) != "0"
        })
        .await;
        let unknown = within(withdrawal).await.unwrap();
        assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{url}: {unknown:?}");
        client.batch_execute("ROLLBACK").await.unwrap();
        within(session.withdraw(&leads, None)).await.unwrap();
    }
}

/// The server does not know that nobody waits for it: it goes on once it has the lock.
#[tokio::test]
async fn a_write_whose_network_is_cut_while_it_waits_is_an_unknown_outcome_and_repeating_it_settles_it() {
    let server = PostgresServer::start().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let store = store(&format!("postgres://postgres@{}/postgres", proxy.endpoint()));
    let session = store.open_session(60 * SHORT).await.unwrap();
    let leads = held(&session.enlist(&name("cut"), &entry(1)).await.unwrap());
    let client = locked(&server, &leads).await;
    let withdrawal = tokio::spawn(withdraw_until_known(session.clone(), leads.clone()));
    until("the network is cut", async || {
        if is_blocked(&server, "withdraw_1") {
            proxy.reset();
        }
        withdrawal.is_finished()
    })
    .await;
    let unknown = withdrawal.await.unwrap();
    assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
    client.batch_execute("ROLLBACK").await.unwrap();
    let again = within(withdraw_until_known(session, leads)).await;
    assert!(matches!(again, Ok(Cas::Done)), "{again:?}");
    assert_eq!(server.sql("SELECT count(*) FROM incumbent.entry"), "0");
}

/// On a busy machine it may give up waiting for a lock or for a connection, and has done nothing.
async fn withdraw_until_known(session: Arc<dyn Session>, leads: Held) -> Result<Cas, StoreError> {
    loop {
        let outcome = session.withdraw(&leads, None).await;
        if !matches!(outcome, Err(StoreError::Unavailable { .. })) {
            return outcome;
        }
    }
}

/// Calls that hang have all the turns that there are for calls.
#[tokio::test]
async fn a_renewal_is_answered_while_calls_hang() {
    let server = shared().await;
    let store = store(&format!("{}?schema=all_hang", server.url()));
    let session = store.open_session(60 * SHORT).await.unwrap();
    let leads = held(&session.enlist(&name("hangs"), &entry(1)).await.unwrap());
    server.sql(
        "CREATE OR REPLACE FUNCTION all_hang.evict_2(e bytea, t bigint, i bytea, version bigint) RETURNS boolean \
         LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT pg_sleep(3600); SELECT true'",
    );
    let seen = store.line(&leads.election, 1).await.unwrap().entries.remove(0);
    let mut hanging = JoinSet::new();
    for _ in 0..4 {
        let (store, election, seen) = (store.clone(), leads.election.clone(), seen.clone());
        hanging.spawn(async move { store.evict(&election, &seen).await });
    }
    let asked =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%all_hang%evict_2%' AND wait_event = 'PgSleep'";
    until("all are asked", async || server.sql(asked) == "4").await;
    let standing = session.standing(&leads, None);
    tokio::select! {
        biased;
        renewal = within(session.renew(std::slice::from_ref(&leads))) => drop(renewal.unwrap()),
        standing = standing => panic!("the case is no case: calls have a turn: {standing:?}"),
    }
    assert!(hanging.try_join_next().is_none(), "they hang");
}

/// A transaction of somebody else's that has the election locked.
async fn locked(server: &PostgresServer, leads: &Held) -> Client {
    let client = raw(&server.url()).await;
    client.batch_execute("BEGIN").await.unwrap();
    let election = leads.election.as_str().as_bytes();
    client.query("SELECT FROM incumbent.election WHERE name = $1 FOR UPDATE", &[&election]).await.unwrap();
    client
}

#[tokio::test]
async fn a_call_that_waits_for_a_lock_gives_up_and_leaves_nothing_locked() {
    let server = shared().await;
    let store = store(&server.url());
    let session = store.open_session(10 * SHORT).await.unwrap();
    let leads = held(&session.enlist(&name("locked"), &entry(1)).await.unwrap());
    let client = locked(server, &leads).await;
    let refused = within(session.withdraw(&leads, None)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    client.batch_execute("ROLLBACK").await.unwrap();
    within(session.withdraw(&leads, None)).await.unwrap();
}
