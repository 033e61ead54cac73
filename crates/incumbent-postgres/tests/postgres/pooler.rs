//! Answers that belong to others: what pgbouncer before 1.21 does after somebody has sent ahead,
//! and that a store believes none of it. Connections that others have, and a fence on those that
//! are given to somebody else after each transaction.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use incumbent_postgres::PostgresFence;
use incumbent_postgres::tokio_postgres::{self, Client, NoTls, SimpleQueryMessage, SimpleQueryRow};
use incumbent_store::fence::{Fence as _, FenceError, FencingToken};
use incumbent_store::{Cas, EntryId, Held, Place, Session, Store, StoreError};
use incumbent_testkit::servers::{PgBouncer, PostgresServer, Scratch};

use crate::harness::{TTL, connect, entry, held, lead, name, raw, sqlstate, store, until, within};

/// Looks like what is answered to a step of the store's, but for the number that it begins with.
const LOOKS_LIKE_OURS: &str = "BEGIN; SELECT '7', 'hex'; SELECT true; COMMIT";

/// A server, and a pooler that has one connection to it.
struct Fixture {
    server: PostgresServer,
    pooler: PgBouncer,
    /// Holds a lock that an answer waits for.
    holder: Client,
}

impl Fixture {
    async fn new() -> Fixture {
        let server = PostgresServer::start().await;
        let pooler = PgBouncer::start(&server, 1).await;
        let holder = raw(&server.url()).await;
        Fixture { server, pooler, holder }
    }

    /// The settings of a connection are the pooler's matter: they are the same for all here, so
    /// that it has none to change in between.
    fn url(&self) -> String {
        format!("{}?application_name=incumbent", self.pooler.url())
    }

    /// One who sends two queries at once and goes away when the first is answered. The answer to
    /// the second waits for a lock, and its connection for the next one who asks.
    async fn somebody_sends_ahead(&self, second: &str) {
        let console = self.console().await;
        until("a connection is left that is not done", async || {
            self.sends_ahead(second).await;
            until("the pooler has noticed", async || self.pools(&console, &["sv_active"]).await == 0).await;
            // It is closed if the pooler read the second query after the first was answered.
            let is_left = self.pools(&console, &["sv_idle", "sv_used"]).await == 1;
            if !is_left {
                self.holder.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
            }
            is_left
        })
        .await;
    }

    async fn sends_ahead(&self, second: &str) {
        self.holder.batch_execute("SELECT pg_advisory_lock(7)").await.unwrap();
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let second = format!("DO $$BEGIN PERFORM pg_advisory_xact_lock(7); END$$; {second}");
        tokio::select! {
            biased;
            first = client.batch_execute("SELECT 1") => first.unwrap(),
            _ = client.batch_execute(&second) => panic!("the lock is held"),
        }
        until("the second query waits", async || self.waits().await).await;
        connection.abort();
        assert!(connection.await.is_err(), "it is gone");
    }

    async fn console(&self) -> Client {
        raw(&self.pooler.url().replace("/postgres", "/pgbouncer")).await
    }

    /// How many connections to the server are in one of these states.
    async fn pools(&self, console: &Client, states: &[&str]) -> u32 {
        let pools = console.simple_query("SHOW POOLS").await.unwrap();
        let pools = rows(&pools).filter(|pool| pool.get("database") == Some("postgres"));
        pools.flat_map(|pool| states.iter().map(|state| pool.get(*state).unwrap().parse::<u32>().unwrap())).sum()
    }

    async fn waits(&self) -> bool {
        let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)";
        self.holder.query_one(waits, &[]).await.unwrap().get(0)
    }

    /// The answer goes out, to the one who has asked since.
    async fn let_it_go(&self) {
        let console = self.console().await;
        until("somebody has been given the connection", async || self.pools(&console, &["sv_active"]).await == 1).await;
        self.holder.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
    }
}

fn rows(answer: &[SimpleQueryMessage]) -> impl Iterator<Item = &SimpleQueryRow> {
    answer.iter().filter_map(|part| match part {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// The case is one: somebody else reads the answer.
#[tokio::test]
async fn a_pooler_hands_on_the_answer_of_one_who_has_sent_ahead() {
    let fixture = Fixture::new().await;
    fixture.somebody_sends_ahead("SELECT 'theirs'").await;
    let (client, connection) = tokio_postgres::connect(&fixture.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let ask = tokio::spawn(async move { client.simple_query("SELECT 'ours'").await });
    fixture.let_it_go().await;
    let answer = within(ask).await.unwrap().unwrap();
    let said: Vec<_> = rows(&answer).filter(|row| !row.is_empty()).filter_map(|row| row.get(0)).collect();
    assert_eq!(said, ["theirs"], "the case is no case: what is tested below would not go wrong");
}

/// There is a connection, and what comes next is asked on it. What was asked before it was dropped
/// may have been answered to the next one in turn.
async fn answered(session: &dyn Session, leads: &Held) {
    until("it is answered", async || match session.standing(leads, None).await {
        Ok(standing) => matches!(standing.place, Place::Leading(_)),
        Err(error) => {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
            false
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_belongs_to_somebody_else_is_not_believed() {
    let fixture = Fixture::new().await;
    let store = store(&fixture.url());
    let session = store.open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("foreign"), &entry(1)).await.unwrap());

    for answer in [LOOKS_LIKE_OURS, "SELECT 1/0", "SELECT", "COMMIT"] {
        answered(&*session, &leads).await;
        fixture.somebody_sends_ahead(answer).await;
        let withdrawal = tokio::spawn({
            let (session, others) = (session.clone(), EntryId::new("7"));
            let leads = leads.clone();
            async move { session.withdraw(&leads, Some(&others)).await }
        });
        fixture.let_it_go().await;
        let withdrawal = within(withdrawal).await.unwrap();
        assert!(matches!(withdrawal, Err(StoreError::OutcomeUnknown { .. })), "{answer}: {withdrawal:?}");

        answered(&*session, &leads).await;
        fixture.somebody_sends_ahead(answer).await;
        let standing = tokio::spawn({
            let (session, leads) = (session.clone(), leads.clone());
            async move { session.standing(&leads, None).await }
        });
        fixture.let_it_go().await;
        let standing = within(standing).await.unwrap();
        assert!(matches!(standing, Err(StoreError::Unavailable { .. })), "{answer}: {standing:?}");
    }
    answered(&*session, &leads).await;
    assert_eq!(within(session.withdraw(&leads, None)).await.unwrap(), Cas::Done);
    assert_eq!(fixture.server.sql("SELECT count(*) FROM incumbent.entry"), "0");
}

/// The lock goes with the transaction, not with the connection; and nothing is prepared by a name,
/// which the next connection would not know.
#[tokio::test]
async fn a_fence_holds_through_a_pooler() {
    let server = PostgresServer::start_with(&["log_statement=all"]).await;
    let pooler = PgBouncer::start(&server, 2).await;
    let election = name("fence");
    // It has no connection in common with those who come through the pooler.
    let direct = PostgresFence::new(&store(&server.url()), &election);
    let store = store(&pooler.url());
    let fence = PostgresFence::new(&store, &election);
    let mut tokens = Vec::new();
    for number in 0..3 {
        let session = store.open_session(20 * TTL).await.unwrap();
        let entered = held(&session.enlist(&election, &entry(number)).await.unwrap());
        tokens.push(FencingToken::new(entered.token, session.store_id()));
    }
    let [old, new, newest] = &tokens[..] else { panic!("{tokens:?}") };
    let mut client = raw(&pooler.url()).await;
    for token in [old, new] {
        fence.raise(&election, token.clone()).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        fence.check(&transaction, token).await.unwrap();
        transaction.commit().await.unwrap();
    }
    let transaction = client.transaction().await.unwrap();
    let stale = fence.check(&transaction, old).await.unwrap_err();
    assert!(matches!(stale, FenceError::Stale { mark, .. } if mark == new.token), "{stale:?}");
    drop(transaction);
    let logs = server.logs();
    assert!(logs.contains("execute <unnamed>") && !logs.contains("execute s"), "something is prepared by a name");

    let sql = |token: &FencingToken| format!("SELECT incumbent.fence('{election}', {})", token.get());
    client.batch_execute(&format!("BEGIN; {}", sql(new))).await.unwrap();
    let waits = within(direct.raise(&election, newest.clone())).await.unwrap_err();
    assert!(waits.is_transient(), "{waits}");
    client.batch_execute("COMMIT").await.unwrap();
    within(direct.raise(&election, newest.clone())).await.unwrap();
    assert_eq!(sqlstate(client.batch_execute(&sql(new)).await).as_deref(), Some("IN409"));
    client.batch_execute(&sql(newest)).await.unwrap();
}

/// All that pgbouncer says comes under one code, also what passes.
#[tokio::test]
async fn what_a_pooler_will_never_let_in_is_told_from_what_it_cannot_serve_now() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start_with(&server, 2, &["auth_type = any", "max_client_conn = 10"]).await;
    let options = store(&format!("{}?options=-csearch_path%3Dx", pooler.url()));
    let refused = within(options.identity()).await.unwrap_err();
    let says = "unsupported startup parameter: options; leave it out of the URL";
    assert!(matches!(&refused, StoreError::Misuse { what } if what.contains(says)), "{refused:?}");
    let mut others = Vec::new();
    while let Ok(other) = connect(&pooler.url()).await {
        others.push(other);
    }
    let full = within(store(&pooler.url()).identity()).await.unwrap_err();
    assert!(matches!(full, StoreError::Unavailable { .. }), "{full:?}");

    let folder = Scratch::new("users");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let users = folder.path().join("users");
    std::fs::write(&users, "\"postgres\" \"\"\n").unwrap();
    let auth_file = format!("auth_file = {}", users.display());
    let pooler = PgBouncer::start_with(&server, 2, &["auth_type = trust", &auth_file]).await;
    let says = "authentication failed; check the user and the password in the URL";
    let refused = within(store(&pooler.url().replace("postgres@", "nobody@")).identity()).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Denied { what, .. } if what.contains(says)), "{refused:?}");
}

/// Its lock is not left on a connection that the pooler gives to somebody else.
#[tokio::test]
async fn who_goes_away_in_the_middle_of_a_fenced_transaction_behind_a_pooler_holds_up_nobody() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, 2).await;
    let (store, election) = (store(&server.url()), name("goes-away"));
    let fence = PostgresFence::new(&store, &election);
    let mut tokens = Vec::new();
    for number in 0..2 {
        // So long that the server does not end the transaction by itself.
        let session = store.open_session(1_000 * TTL).await.unwrap();
        let entered = held(&session.enlist(&election, &entry(number)).await.unwrap());
        tokens.push(FencingToken::new(entered.token, session.store_id()));
    }
    let (client, connection) = tokio_postgres::connect(&pooler.url(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    client.batch_execute(&format!("BEGIN; SELECT incumbent.fence('{election}', {})", tokens[0].get())).await.unwrap();
    let waits = within(fence.raise(&election, tokens[1].clone())).await.unwrap_err();
    assert!(waits.is_transient(), "{waits}");
    connection.abort();
    assert!(connection.await.is_err(), "it is gone");
    until("the raise gets through", async || fence.raise(&election, tokens[1].clone()).await.is_ok()).await;
}

/// The server's connections are a second old at most: each renewal goes by another one.
#[tokio::test]
async fn a_leader_keeps_its_office_while_the_pooler_ends_one_connection_after_the_other() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start_with(&server, 2, &["server_lifetime = 1"]).await;
    let client = incumbent::Client::builder().ttl(4 * TTL).with_store(store(&pooler.url())).await.unwrap();
    let mut candidacy = client.election("kept").unwrap().candidate("a").stand().await.unwrap();
    let leadership = lead(&mut candidacy).await;
    let mut renewed_by = BTreeSet::new();
    until("renewals have gone by several connections", async || {
        let backends =
            server.sql("SELECT pid FROM pg_stat_activity WHERE query LIKE '%renew_1%' AND pid <> pg_backend_pid()");
        renewed_by.extend(backends.lines().map(str::to_owned));
        leadership.term().check().unwrap();
        renewed_by.len() >= 3
    })
    .await;
    leadership.resign().await.unwrap();
}

/// Long transactions of the application's, say: its leader cannot renew. It knows that it leads no
/// longer before another does, and is there again when they have ended.
#[tokio::test]
async fn who_gets_no_connection_since_others_have_them_all_gives_way_and_comes_back() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, 2).await;
    let election = name("used-up");
    let stand = async |url: String| {
        let client = incumbent::Client::builder().ttl(TTL).with_store(store(&url)).await.unwrap();
        client.election(election.as_str()).unwrap().candidate("a").stand().await.unwrap()
    };
    let mut pooled = stand(pooler.url()).await;
    let first = lead(&mut pooled).await;
    let mut direct = stand(server.url()).await;
    let others = [raw(&pooler.url()).await, raw(&pooler.url()).await];
    for other in &others {
        other.batch_execute("BEGIN").await.unwrap();
    }
    let second = lead(&mut direct).await;
    assert!(first.term().check().is_err(), "both lead");
    assert!(second.token().token > first.token().token);
    drop(first);
    for other in &others {
        other.batch_execute("COMMIT").await.unwrap();
    }
    let (line, token) = (store(&server.url()), second.token().token);
    until("it is in line again", async || {
        line.line(&election, 9).await.unwrap().entries.iter().any(|entry| entry.token > token)
    })
    .await;
    second.resign().await.unwrap();
    assert!(lead(&mut pooled).await.token().token > token);
}
