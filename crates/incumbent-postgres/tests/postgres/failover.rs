//! Other servers, lost connections and cancelled waits: what is certain, and what is not.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use incumbent_postgres::{PostgresFence, PostgresStore};
use incumbent_store::fence::{Fence as _, FenceError, FencingToken};
use incumbent_store::{Held, Place, Publication, Session, Store, StoreError, Token, TokenStrength, Version};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::{PgBouncer, PostgresServer, Scratch};
use tokio::time::Instant;

use crate::fence::LEVELS;
use crate::harness::{
    TTL, asked, entry, held, is_blocked, lead, make, name, raw, sqlstate, stand_for, store, until, until_blocked,
    waits_for_standbys, within,
};

#[tokio::test]
async fn after_a_failover_tokens_leap_and_nobody_leads_until_the_former_leader_has_stopped_believing() {
    let mut primary = PostgresServer::start().await;
    let election = name("failover");
    let before = store(&primary.url());
    let session = before.open_session(TTL).await.unwrap();
    let old = held(&session.enlist(&election, &entry(1)).await.unwrap());
    let standby = primary.start_standby("other", &[]).await;
    let promises = before.promises().await.unwrap();
    assert_eq!(promises.tokens, TokenStrength::Durable);
    assert!(promises.caveats.iter().any(|caveat| caveat.contains("Standbys")), "{:?}", promises.caveats);
    let refused = store(&standby.url()).open_session(TTL).await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused:?}");
    let named = format!("the server at {} is a standby", standby.endpoint());
    assert!(refused.to_string().contains(&named), "{refused}");
    primary.kill();
    standby.promote().await;

    let after = store(&standby.url());
    assert_eq!(after.identity().await.unwrap(), session.store_id());
    let next = after.open_session(4 * TTL).await.unwrap();
    // The default TTL is longer than the one that was in use, and counts.
    let quiet = next.enlist(&election, &entry(2)).await.unwrap_err();
    assert!(matches!(quiet, StoreError::Unavailable { .. }) && quiet.to_string().contains("nobody leads"), "{quiet}");
    // Those who only look are told, too.
    let quiet = after.line(&election, 9).await.unwrap().quiet.expect("nobody may lead yet");
    assert!(quiet > Duration::ZERO && quiet <= Duration::from_secs(15), "{quiet:?}");
    standby.sql("UPDATE incumbent.store SET quiet_until = clock_timestamp() + interval '1 second'");
    let mut standing = None;
    until("somebody leads", async || {
        standing = next.enlist(&election, &entry(2)).await.ok();
        standing.is_some()
    })
    .await;
    let leads = held(&standing.unwrap());
    assert!(leads.token.get() > old.token.get() + (1 << 32), "{leads:?} after {old:?}");
    let line = after.line(&election, 9).await.unwrap();
    assert!(line.entries.len() == 1 && line.entries[0].is(&leads) && line.quiet.is_none(), "{line:?}");
}

/// A primary and its standby, of which the primary waits for the standby or is cut off from it: the
/// standby then knows nothing of what comes.
struct Two {
    primary: PostgresServer,
    standby: PostgresServer,
}

impl Two {
    async fn start(waits: bool, longest: Duration) -> Two {
        let primary = PostgresServer::start().await;
        make(&store(&primary.url())).await;
        // Nobody is granted more here. The wait after a failover is then as short as it may be.
        primary.sql(&format!("UPDATE incumbent.store SET longest_us = {}", longest.as_micros()));
        let standby = primary.start_standby("other", &[]).await;
        let two = Two { primary, standby };
        if waits {
            two.wait_for_the_standby().await;
        } else {
            two.cut_off_the_standby().await;
        }
        two
    }

    async fn wait_for_the_standby(&self) {
        waits_for_standbys(&self.primary, "other").await;
        let waits = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        until("it is waited for", async || self.primary.sql(waits) == "1").await;
    }

    async fn cut_off_the_standby(&self) {
        cut_off(&self.primary, &self.standby).await;
    }
}

async fn cut_off(primary: &PostgresServer, standby: &PostgresServer) {
    let caught_up = "SELECT pg_current_wal_lsn() = replay_lsn FROM pg_stat_replication";
    until("it knows what was before", async || primary.sql(caught_up) == "t").await;
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''");
    standby.sql("SELECT pg_reload_conf()");
    until("it is cut off", async || standby.sql("SELECT count(*) FROM pg_stat_wal_receiver") == "0").await;
}

#[tokio::test]
async fn candidates_move_over_to_a_standby_that_confirmed_and_never_do_two_of_them_lead() {
    move_over(Two::start(true, 3 * TTL).await).await;
}

/// The standby knows of no session and no token, and nothing of the mark.
#[tokio::test]
async fn candidates_move_over_to_a_standby_that_knew_nothing_of_them_and_never_do_two_of_them_lead() {
    move_over(Two::start(false, 3 * TTL).await).await;
}

/// Programs that run on, with the fence where their work writes. Their TTL, which is the longest
/// that was granted, is longer than a slow machine takes to promote the standby. Nobody leads until
/// it has passed, and then somebody does soon.
async fn move_over(Two { mut primary, standby }: Two) {
    let election = name("moves");
    let url = |standby: &str| format!("postgres://postgres@{},{standby}/postgres", primary.endpoint());
    // Nobody tells the first one that its session is gone: it has nothing but its deadline.
    let proxy = Proxy::start(&standby.endpoint()).await;
    proxy.set(Way::Cut);
    let (first_url, second_url) = (url(&proxy.endpoint()), url(&standby.endpoint()));
    let ttl = 3 * TTL;
    let mut first = stand_for(ttl, &first_url, &election, "first").await;
    let before = lead(&mut first).await;
    let mut second = stand_for(ttl, &second_url, &election, "second").await;
    let in_line = "SELECT count(*), max(token) FROM incumbent.entry";
    until("both are in line", async || primary.sql(in_line).starts_with("2|")).await;
    let last = primary.sql(in_line);
    primary.kill();
    standby.promote().await;
    let promoted = Instant::now();
    let mut after = lead(&mut second).await;
    if last.ends_with(&after.token().get().to_string()) {
        // On a busy machine it has led before, too.
        drop(after);
        after = lead(&mut second).await;
    }
    let took = promoted.elapsed();
    println!("somebody led {took:?} after the standby was promoted");
    assert!(took <= ttl + 4 * ttl, "somebody led only {took:?} after the standby was promoted");
    assert!(before.term().check().is_err(), "{before:?} leads, and {after:?} does");
    let (old, new) = (before.token().get(), after.token().get());
    assert!(new > old + (1 << 32), "{new} after {old}");
    assert_eq!(asked(&standby, &election, old).await.as_deref(), Some("IN409"));
    assert_eq!(asked(&standby, &election, new).await, None);
    drop(before);
    proxy.set(Way::Forward);
    let names = "SELECT convert_from(name, 'UTF8') FROM incumbent.entry ORDER BY name";
    until("each has one entry", async || standby.sql(names) == "first\nsecond").await;
}

/// The standby was cut off before the mark rose: it stands there as it did while the first one led.
#[tokio::test]
async fn a_token_that_the_fence_has_refused_is_refused_by_the_standby_that_takes_over() {
    let mut primary = PostgresServer::start().await;
    let election = name("refused");
    let before = store(&primary.url());
    let fence = PostgresFence::new(&before, &election);
    let mut tokens = Vec::new();
    let mut standby = None;
    for number in 0..2 {
        let session = before.open_session(20 * TTL).await.unwrap();
        let leads = held(&session.enlist(&election, &entry(number)).await.unwrap());
        let token = FencingToken::new(leads.token, session.store_id());
        fence.raise(&election, token.clone()).await.unwrap();
        if standby.is_none() {
            let elsewhere = format!("SELECT incumbent.fence('{election}/etcd', 7, 'etcd-7')");
            primary.sql(&elsewhere);
            let other = primary.start_standby("other", &[]).await;
            cut_off(&primary, &other).await;
            standby = Some(other);
        }
        tokens.push(token);
    }
    let (standby, [first, second]) = (standby.unwrap(), [&tokens[0], &tokens[1]]);
    assert_eq!(asked(&primary, &election, first.get()).await.as_deref(), Some("IN409"));
    assert_eq!(asked(&standby, &election, first.get()).await.as_deref(), Some("25006"), "it is no primary");
    primary.kill();
    standby.promote().await;

    let refused = async |when: &str| {
        let mut client = raw(&standby.url()).await;
        for token in [first, second] {
            for level in LEVELS {
                // At the stricter ones whatever is committed meanwhile has it run again.
                until("it is refused", async || {
                    let asks =
                        format!("BEGIN ISOLATION LEVEL {level}; SELECT incumbent.fence('{election}', {})", token.get());
                    let code = sqlstate(client.batch_execute(&asks).await);
                    client.batch_execute("ROLLBACK").await.unwrap();
                    assert!(matches!(code.as_deref(), Some("IN409" | "40001")), "{when}: {code:?} at {level}");
                    code.as_deref() == Some("IN409")
                })
                .await;
            }
            let transaction = client.transaction().await.unwrap();
            let stale = fence.check(&transaction, token).await.unwrap_err();
            assert!(matches!(stale, FenceError::Stale { mark, .. } if mark > token.token), "{when}: {stale:?}");
        }
    };
    refused("before the leap").await;
    let after = store(&standby.url());
    let session = after.open_session(20 * TTL).await.unwrap();
    refused("after the leap").await;
    let raised = PostgresFence::new(&after, &election).raise(&election, second.clone()).await.unwrap_err();
    assert!(matches!(raised, FenceError::Stale { mark, .. } if mark > second.token), "{raised:?}");
    standby.sql("UPDATE incumbent.store SET quiet_until = '-infinity'");
    let leads = held(&session.enlist(&election, &entry(3)).await.unwrap());
    assert_eq!(asked(&standby, &election, leads.token.get()).await, None);
    // Elections that are kept elsewhere know of no leap.
    standby.sql(&format!("SELECT incumbent.fence('{election}/etcd', 7, 'etcd-7')"));
}

/// Each has a leader then, as is said. But no token of the old one is as high as those of the new.
#[tokio::test]
async fn tokens_of_a_primary_that_goes_on_beside_its_successor_stay_below_those_of_that() {
    let two = Two::start(false, TTL).await;
    let election = name("beside");
    let [old, new] = [&two.primary, &two.standby].map(|server| store(&server.url()));
    let enlist = async |store: &PostgresStore, number: u128| {
        let session = store.open_session(20 * TTL).await.unwrap();
        let mut standing = None;
        until("it is in line", async || {
            standing = session.enlist(&election, &entry(number)).await.ok();
            standing.is_some()
        })
        .await;
        held(&standing.unwrap()).token
    };
    two.standby.promote().await;
    let beside = enlist(&old, 1).await;
    let first = enlist(&new, 2).await;
    let later = enlist(&old, 3).await;
    assert!(beside < first && later < first, "{beside:?}, {later:?} and {first:?}");
    // Of those that still lead there, too.
    let fence = PostgresFence::new(&new, &election);
    fence.raise(&election, FencingToken::new(first, new.identity().await.unwrap())).await.unwrap();
    assert_eq!(asked(&two.standby, &election, later.get()).await.as_deref(), Some("IN409"));
}

/// Neither knows of the other: both begin with what the primary had told them.
#[tokio::test]
async fn two_standbys_of_one_primary_that_take_over_in_turn_give_no_token_twice() {
    let mut primary = PostgresServer::start().await;
    let election = name("in-turn");
    make(&store(&primary.url())).await;
    let standbys = [primary.start_standby("first", &[]).await, primary.start_standby("second", &[]).await];
    primary.kill();
    let mut highest = None;
    for mut standby in standbys {
        standby.promote().await;
        let session = store(&standby.url()).open_session(20 * TTL).await.unwrap();
        standby.sql("UPDATE incumbent.store SET quiet_until = '-infinity'");
        for _ in 0..20 {
            let leads = held(&session.enlist(&election, &entry(1)).await.unwrap());
            assert!(highest < Some(leads.token), "{leads:?} after {highest:?}");
            highest = Some(leads.token);
            session.withdraw(&leads, None).await.unwrap();
        }
        standby.kill();
    }
}

/// Nothing is known then of what was given: a leap would go back to the first number, and a fence
/// has no lock to wait for.
#[tokio::test]
async fn where_the_row_of_the_store_cannot_be_seen_nothing_leaps_and_no_fence_lets_anybody_through() {
    let server = crate::harness::shared().await;
    server.sql("CREATE ROLE rowless LOGIN");
    server.sql("GRANT CREATE ON DATABASE postgres TO rowless");
    for (schema, hide) in [
        ("row_removed", "DELETE FROM row_removed.store"),
        ("row_hidden", "ALTER TABLE row_hidden.store ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"),
    ] {
        let url = format!("postgres://rowless@{}/postgres", server.endpoint());
        let (store, of) = (store(&format!("{url}?schema={schema}")), raw(&url).await);
        let session = store.open_session(20 * TTL).await.unwrap();
        let leads = [held(&session.enlist(&name("rowless"), &entry(1)).await.unwrap())];
        session.renew(&leads).await.unwrap();
        let fence = format!("SELECT {schema}.fence('{}', {})", leads[0].election, leads[0].token);
        of.batch_execute(&fence).await.unwrap();
        let stands_at = || server.sql(&format!("SELECT last_value FROM {schema}.number"));
        let before = stands_at();
        server.sql(hide);
        let refused = session.renew(&leads).await.unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&format!("\"{schema}\".store cannot be seen")), "{refused}");
        assert_eq!(stands_at(), before, "{schema}");
        assert_eq!(sqlstate(of.batch_execute(&fence).await).as_deref(), Some("IN004"), "{schema}");
        let refused = crate::harness::store(&format!("{url}?schema={schema}")).identity().await.unwrap_err();
        assert!(refused.to_string().contains("its table store cannot be seen"), "{refused}");
    }
}

/// Whatever comes first: numbers leap, sessions end, and nobody leads for the longest TTL.
#[tokio::test]
async fn the_first_step_on_another_server_leaps_whichever_it_is() {
    let server = crate::harness::shared().await;
    let store = store(&format!("{}?schema=first_step", server.url()));
    make(&store).await;
    // All that may be called, but for what reads in one statement, tells, or is the user's own; and
    // the sweep, which its owner may call.
    let steps = server.sql(
        "SELECT DISTINCT regexp_replace(proname, '_[0-9]+$', '') FROM pg_proc \
         WHERE pronamespace = 'first_step'::regnamespace AND (prosecdef OR proname ~ '^sweep_') \
            AND proname !~ '^(about|changed|elections|line|tell|fence|refuse_lower)(_|$)'",
    );
    for first in steps.lines() {
        let election = name(first);
        let session = store.open_session(20 * TTL).await.unwrap();
        server.sql("UPDATE first_step.store SET quiet_until = '-infinity'");
        let leads = held(&session.enlist(&election, &entry(1)).await.unwrap());
        let line = store.line(&election, 1).await.unwrap();
        let (fence, token) =
            (PostgresFence::new(&store, &election), FencingToken::new(leads.token, session.store_id()));
        let before: u64 = server.sql("SELECT last_value FROM first_step.number").parse().unwrap();
        server.sql("UPDATE first_step.store SET history = 'another'");
        match first {
            "open" => drop(store.open_session(TTL).await),
            "renew" => drop(session.renew(std::slice::from_ref(&leads)).await),
            "enlist" => drop(session.enlist(&name("other"), &entry(2)).await),
            "standing" => drop(session.standing(&leads, None).await),
            "publish" => drop(session.publish(&leads, line.entries[0].version, &Publication::new("late")).await),
            "withdraw" => drop(session.withdraw(&leads, None).await),
            "close" => drop(session.close().await),
            "evict" => drop(store.evict(&election, &line.entries[0]).await),
            "set_office" => drop(store.set_office(&election, Version::NONE, &line.office).await),
            // As the library does it, and as an older one did.
            "want_mark" => drop(fence.raise(&election, token).await),
            "raise_mark" => drop(
                server
                    .sql(&format!("SELECT first_step.raise_mark_1('{election}', {}, '{}')", token.token, token.store)),
            ),
            "reset_mark" => drop(fence.reset(&token.store, "a test").await),
            "sweep" => drop(server.sql("SELECT first_step.sweep_1('1 hour')")),
            unknown => panic!("what does {unknown} do on another server?"),
        }
        let leapt = "SELECT history <> 'another', \
            (SELECT count(*) FROM first_step.session JOIN first_step.entry ON id = session), \
            quiet_until = leapt_at + longest_us * interval '1 microsecond', longest_us FROM first_step.store";
        assert_eq!(server.sql(leapt), format!("t|0|t|{}", (20 * TTL).as_micros()), "{first}");
        let after: u64 = server.sql("SELECT last_value FROM first_step.number").parse().unwrap();
        assert!(after >= before + (1 << 32), "{first}: {after} after {before}");
        let gone = session.renew(std::slice::from_ref(&leads)).await;
        assert!(matches!(gone, Err(StoreError::SessionGone)), "{first}: {gone:?}");
    }
}

/// The standbys of one primary count from the same number, however often each has tried.
#[tokio::test]
async fn a_leap_that_is_rolled_back_is_none() {
    let server = PostgresServer::start().await;
    make(&store(&server.url())).await;
    server.sql("UPDATE incumbent.store SET history = 'another'");
    let stands_at = || server.sql("SELECT last_value FROM incumbent.number");
    let before = stands_at();
    server.sql("BEGIN; SELECT incumbent.open_1(1000000); ROLLBACK");
    assert_eq!(stands_at(), before);
    server.sql("SELECT incumbent.open_1(1000000)");
    assert_ne!(stands_at(), before);
}

/// The second would end the session that the first has opened.
#[tokio::test]
async fn of_two_first_steps_at_once_on_another_server_one_leaps() {
    let server = PostgresServer::start().await;
    make(&store(&server.url())).await;
    let (first, other) = (raw(&server.url()).await, raw(&server.url()).await);
    let other = Arc::new(other);
    let open = "SELECT incumbent.open_1(60000000)";
    until("one has waited for the other", async || {
        server.sql("UPDATE incumbent.store SET history = 'another'");
        first.batch_execute(&format!("BEGIN; {open}")).await.unwrap();
        let second = tokio::spawn({
            let other = other.clone();
            async move { other.batch_execute(open).await }
        });
        until("it waits, or has given up", async || is_blocked(&server, "open_1") || second.is_finished()).await;
        first.batch_execute("COMMIT").await.unwrap();
        let second = sqlstate(within(second).await.unwrap());
        // On a slow machine it gives up waiting.
        assert!(matches!(second.as_deref(), None | Some("55P03")), "{second:?}");
        second.is_none()
    })
    .await;
    assert_eq!(server.sql("SELECT count(*) FROM incumbent.session"), "2");
}

/// How far a leap goes grows with the time since the last one, which then is less than none.
#[tokio::test]
async fn numbers_leap_up_though_the_clock_was_put_back_since_the_last_leap() {
    let server = crate::harness::shared().await;
    make(&store(&format!("{}?schema=leaps_up", server.url()))).await;
    let stands_at = || server.sql("SELECT last_value FROM leaps_up.number").parse::<u64>().unwrap();
    let before = stands_at();
    server.sql("UPDATE leaps_up.store SET history = 'another', leapt_at = leapt_at + interval '1 day'");
    server.sql("SELECT leaps_up.open_1(1000000)");
    assert!(stands_at() >= before + (1 << 32), "{} after {before}", stands_at());
}

/// What was answered is on the standby that confirms: a leader with a longer TTL than the usual one
/// is known there, and waited for.
#[tokio::test]
async fn a_standby_that_confirms_knows_all_that_was_answered_when_it_takes_over() {
    let mut primary = PostgresServer::start().await;
    let election = name("confirmed");
    let before = store(&primary.url());
    make(&before).await;
    let standby = primary.start_standby("confirms", &[]).await;
    waits_for_standbys(&primary, "confirms").await;
    until("it is waited for", async || {
        primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
    })
    .await;
    let caveats = before.promises().await.unwrap().caveats;
    assert!(caveats.iter().any(|caveat| caveat.contains("has confirmed")), "{caveats:?}");
    let session = before.open_session(20 * TTL).await.unwrap();
    let old = held(&session.enlist(&election, &entry(1)).await.unwrap());
    primary.kill();
    standby.promote().await;
    assert_eq!(standby.sql("SELECT token FROM incumbent.entry"), old.token.to_string());
    assert_eq!(standby.sql("SELECT longest_us FROM incumbent.store"), (20 * TTL).as_micros().to_string());
    let next = store(&standby.url()).open_session(TTL).await.unwrap();
    let quiet = next.enlist(&election, &entry(2)).await.unwrap_err();
    assert!(quiet.to_string().contains("nobody leads"), "{quiet}");
}

#[tokio::test]
async fn a_database_that_is_copied_beside_the_original_is_another_history() {
    let server = crate::harness::shared().await;
    server.sql("CREATE DATABASE original");
    let url = |database: &str| format!("postgres://postgres@{}/{database}", server.endpoint());
    let original = store(&url("original"));
    let session = original.open_session(TTL).await.unwrap();
    let old = held(&session.enlist(&name("dump"), &entry(1)).await.unwrap());
    drop((session, original));
    until("nobody is connected", async || {
        server.sql("SELECT count(*) FROM pg_stat_activity WHERE datname = 'original'") == "0"
    })
    .await;
    server.sql("CREATE DATABASE copied TEMPLATE original");
    let copy = store(&url("copied"));
    let session = copy.open_session(TTL).await.unwrap();
    let refused = session.enlist(&old.election, &entry(2)).await.unwrap_err();
    assert!(refused.to_string().contains("nobody leads"), "{refused}");
}

/// An operator looks into last night's dump, say. Programs go on with the original.
#[tokio::test]
async fn a_dump_that_is_restored_beside_the_original_gives_no_token_of_it_and_leaves_it_alone() {
    let server = crate::harness::shared().await;
    let [dumped, restored] = ["dumped", "restored"].map(|database| {
        server.sql(&format!("CREATE DATABASE {database}"));
        format!("postgres://postgres@{}/{database}", server.endpoint())
    });
    let (original, election) = (store(&dumped), name("beside"));
    let enlist = async |session: &dyn Session, number| session.enlist(&election, &entry(number)).await;
    let leader = original.open_session(60 * TTL).await.unwrap();
    let leads = held(&enlist(&*leader, 1).await.unwrap());
    let dump = run("pg_dump", &["-n", "incumbent", "-d", &dumped]);
    let second = original.open_session(60 * TTL).await.unwrap();
    let after_the_dump = held(&enlist(&*second, 2).await.unwrap());
    restore(&dump, &restored);

    let copy = store(&restored);
    assert_eq!(copy.identity().await.unwrap(), leader.store_id(), "the same store, it says");
    let there = copy.open_session(60 * TTL).await.unwrap();
    let quiet = enlist(&*there, 3).await.unwrap_err();
    assert!(quiet.to_string().contains("nobody leads"), "{quiet}");
    let no_wait = "UPDATE incumbent.store SET quiet_until = '-infinity'";
    raw(&restored).await.batch_execute(no_wait).await.unwrap();
    let copied = enlist(&*there, 3).await.unwrap();
    assert!(matches!(copied.place, Place::Leading(_)), "{copied:?}");
    let copied = held(&copied);

    leader.renew(std::slice::from_ref(&leads)).await.unwrap();
    let standing = leader.standing(&leads, None).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    let third = original.open_session(60 * TTL).await.unwrap();
    let later = held(&enlist(&*third, 4).await.unwrap());
    let tokens = [&leads, &after_the_dump, &later, &copied].map(|held| held.token);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    // Who goes to the wrong database is stale in the copy, and locks nobody out of the original.
    let ask = async |url: &str, token: Token| {
        sqlstate(raw(url).await.batch_execute(&format!("SELECT incumbent.fence('{election}', {token})")).await)
    };
    assert_eq!(ask(&restored, copied.token).await, None);
    assert_eq!(ask(&restored, later.token).await.as_deref(), Some("IN409"));
    assert_eq!(ask(&dumped, copied.token).await.as_deref(), Some("22023"));
    assert_eq!(ask(&dumped, leads.token).await, None);
}

/// Data alone that comes into tables which are there, and files that were copied, as by a backup,
/// and are a server of its own: `explain` says so, and what to do.
#[tokio::test]
async fn a_copy_that_looks_like_the_original_leaps_once_it_is_told_that_it_is_one() {
    let server = PostgresServer::start().await;
    let (original, election) = (store(&server.url()), name("copies"));
    let caveats = original.promises().await.unwrap().caveats;
    let told = "UPDATE incumbent.store SET history = ''";
    assert!(caveats.iter().any(|caveat| caveat.contains(told)), "{caveats:?}");
    let session = original.open_session(60 * TTL).await.unwrap();
    let data = run("pg_dump", &["-a", "-n", "incumbent", "-d", &server.url()]);
    let files = server.start_copy().await;
    // A server that crashes draws none of the next 32 numbers again.
    let mut highest = None;
    for _ in 0..40 {
        let drawn = held(&session.enlist(&election, &entry(1)).await.unwrap());
        session.withdraw(&drawn, None).await.unwrap();
        highest = Some(drawn.token);
    }
    let tables = "SELECT string_agg('incumbent.' || relname, ', ') FROM pg_class \
        WHERE relnamespace = 'incumbent'::regnamespace AND relkind = 'r'";
    server.sql(&format!("TRUNCATE {}", server.sql(tables)));
    restore(&data, &server.url());

    for copy in [&server, &files] {
        let drawn = async || {
            let session = store(&copy.url()).open_session(60 * TTL).await.unwrap();
            copy.sql("UPDATE incumbent.store SET quiet_until = '-infinity'");
            let drawn = held(&session.enlist(&election, &entry(2)).await.unwrap());
            session.close().await.unwrap();
            Some(drawn.token)
        };
        assert!(drawn().await <= highest, "the case is no case: it has leapt by itself");
        copy.sql(told);
        assert!(drawn().await > highest);
    }
}

/// Directly, and through a pooler: a step that writes, and a proof of life.
#[tokio::test]
async fn a_wait_for_a_standby_that_was_cancelled_is_an_unknown_outcome() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, 2).await;
    // The server warns of it, and this role does not want to hear of that, nor to wait at all.
    server.sql("ALTER ROLE postgres SET client_min_messages = error");
    server.sql("ALTER ROLE postgres SET synchronous_commit = off");
    for url in [server.url(), pooler.url()] {
        let session = store(&url).open_session(20 * TTL).await.unwrap();
        let leads = held(&session.enlist(&name("cancelled"), &entry(1)).await.unwrap());
        waits_for_standbys(&server, "nobody").await;
        let renewal = tokio::spawn({
            let session = session.clone();
            async move { session.renew(&[]).await.map(drop) }
        });
        let withdrawal = tokio::spawn(async move { session.withdraw(&leads, None).await.map(drop) });
        for (step, outcome) in [("renew_1", renewal), ("withdraw_1", withdrawal)] {
            // Another may begin to wait only after the first look.
            until("the wait is cancelled", async || {
                server.sql(&format!(
                    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' \
                     AND query LIKE '%{step}%'"
                ));
                outcome.is_finished()
            })
            .await;
            let outcome = outcome.await.unwrap();
            assert!(matches!(outcome, Err(StoreError::OutcomeUnknown { .. })), "{step} at {url}: {outcome:?}");
        }
        waits_for_standbys(&server, "").await;
    }
}

/// By itself, as a library of before the sixth version asks for it, which announces nothing.
#[tokio::test]
async fn a_raise_that_is_repeated_after_its_wait_for_a_standby_was_cancelled_waits_again() {
    let server = PostgresServer::start().await;
    let session = store(&server.url()).open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("raised"), &entry(1)).await.unwrap());
    let raise = format!(
        "SELECT token FROM incumbent.raise_mark_1(convert_to('{}', 'UTF8'), {}, '{}')",
        leads.election,
        leads.token,
        session.store_id()
    );
    waits_for_standbys(&server, "nobody").await;
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%raise_mark_1(%'";
    let marks = "SELECT token FROM incumbent.mark";
    for time in ["first", "second"] {
        let (client, raise) = (raw(&server.url()).await, raise.clone());
        let asked = tokio::spawn(async move { client.batch_execute(&raise).await });
        until("it waits for the standby", async || {
            assert!(!asked.is_finished(), "the {time} one is answered");
            server.sql(&format!("SELECT count(*) {waiting}")) == "1"
        })
        .await;
        server.sql(&format!("SELECT count(pg_cancel_backend(pid)) {waiting}"));
        asked.await.unwrap().expect("the server only warns of it");
        assert_eq!(server.sql(marks), leads.token.to_string());
    }
}

/// Renewals hang then, and only those who read are answered: they say why.
#[tokio::test]
async fn a_standby_that_is_waited_for_and_is_not_there_is_named_to_those_who_look() {
    let server = PostgresServer::start().await;
    server.sql("CREATE ROLE looks LOGIN");
    let store = store(&server.url());
    make(&store).await;
    server.sql("GRANT USAGE ON SCHEMA incumbent TO looks");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA incumbent TO looks");
    let looks = crate::harness::store(&server.url().replace("postgres@", "looks@"));
    let election = name("stalled");
    let stalled = async |by: &PostgresStore| within(by.line(&election, 1)).await.unwrap().stalled;
    assert_eq!(stalled(&store).await, None);
    waits_for_standbys(&server, "FIRST 1 (other, third)").await;
    for by in [&store, &looks] {
        let said = stalled(by).await.expect("it is not there");
        assert!(said.contains("is set (FIRST 1 (other, third)), and no such standby is connected"), "{said}");
    }
    let named = server.start_standby("other", &[]).await;
    for by in [&store, &looks] {
        until("it is there", async || stalled(by).await.is_none()).await;
    }
    waits_for_standbys(&server, "2 (other, third)").await;
    assert!(stalled(&store).await.is_some(), "one of two");
    drop(named);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_unknown_and_repeating_it_settles_it() {
    let server = PostgresServer::start().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let store = store(&format!("postgres://postgres@{}/postgres", proxy.endpoint()));
    let session = store.open_session(20 * TTL).await.unwrap();
    let election = name("cut");
    proxy.set(Way::HoldAnswers);
    let enlistment = tokio::spawn({
        let (session, election) = (session.clone(), election.clone());
        async move { session.enlist(&election, &entry(1)).await }
    });
    until("the server has done it", async || server.sql("SELECT count(*) FROM incumbent.entry") == "1").await;
    proxy.reset();
    let lost = within(enlistment).await.unwrap();
    assert!(matches!(lost, Err(StoreError::OutcomeUnknown { .. })), "{lost:?}");
    proxy.set(Way::Forward);
    let again = within(session.enlist(&election, &entry(1))).await.unwrap();
    assert!(matches!(again.place, Place::Leading(_)), "{again:?}");
    assert_eq!(server.sql("SELECT count(*) FROM incumbent.entry"), "1");
}

/// Such as the raise of a fence while a transaction of an earlier leader is open: other elections
/// of the same client go on.
#[tokio::test]
async fn a_call_that_is_not_answered_holds_up_no_other() {
    let server = crate::harness::shared().await;
    let store = store(&format!("{}?schema=hangs", server.url()));
    let session = store.open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("hangs"), &entry(1)).await.unwrap());
    server.sql(
        "CREATE OR REPLACE FUNCTION hangs.evict_2(e bytea, t bigint, i bytea, version bigint) RETURNS boolean \
         LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT pg_sleep(3600); SELECT true'",
    );
    let line = store.line(&leads.election, 1).await.unwrap();
    let mut hangs = pin!(store.evict(&leads.election, &line.entries[0]));
    let asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%hangs%evict_2%' AND wait_event = 'PgSleep'";
    let asked = until("it is asked", async || server.sql(asked) == "1");
    tokio::select! {
        evicted = &mut hangs => panic!("it hangs: {evicted:?}"),
        () = asked => {}
    }
    let standing = within(session.standing(&leads, None)).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)));
}

/// Who takes an office tells others, and nobody waits for that, nor gives it up. More of them hang
/// than there are turns for calls.
#[tokio::test]
async fn hints_that_hang_do_not_hold_up_calls_for_long() {
    let server = PostgresServer::start().await;
    let session = store(&server.url()).open_session(20 * TTL).await.unwrap();
    server.sql(
        "CREATE OR REPLACE FUNCTION incumbent.tell_1(e bytea, what text, t bigint) RETURNS void LANGUAGE sql \
         SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT pg_sleep(3600)'",
    );
    for number in 0..9 {
        let leads = held(&within(session.enlist(&name("hint"), &entry(number))).await.unwrap());
        let standing = within(session.standing(&leads, None)).await.unwrap();
        assert!(matches!(standing.place, Place::Leading(_)));
    }
}

/// A commit with a notification keeps all others from being committed, and waits for a standby.
#[tokio::test]
async fn a_proof_of_hearing_that_hangs_does_not_hold_up_calls_for_long() {
    let server = PostgresServer::start().await;
    let store = store(&server.url());
    make(&store).await;
    waits_for_standbys(&server, "nobody").await;
    let in_the_way = raw(&server.url()).await;
    let commit = tokio::spawn(async move { in_the_way.batch_execute("CREATE TABLE a (); NOTIFY a").await });
    until("it waits", async || server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != "0")
        .await;
    let promises = tokio::spawn({
        let store = store.clone();
        async move { store.promises().await }
    });
    until_blocked(&server, "listening").await;
    within(store.line(&name("proof"), 1)).await.unwrap();
    assert!(!within(promises).await.unwrap().unwrap().watches, "nothing is heard");
    commit.abort();
}

/// The same for what is told of a step, which itself is committed: the standby has its commit, and
/// is slow to apply it, and for that only others wait.
#[tokio::test]
async fn a_step_is_answered_though_what_is_told_of_it_cannot_be_committed() {
    let Two { primary, standby } = Two::start(true, TTL).await;
    let session = store(&primary.url()).open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("told"), &entry(1)).await.unwrap());
    standby.sql("SELECT pg_wal_replay_pause()");
    until("it is slow", async || standby.sql("SELECT pg_is_wal_replay_paused()") == "t").await;
    let in_the_way = raw(&primary.url()).await;
    in_the_way.batch_execute("SET synchronous_commit = remote_apply").await.unwrap();
    let commit = tokio::spawn(async move { in_the_way.batch_execute("CREATE TABLE a (); NOTIFY a").await });
    until("it waits", async || {
        primary.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") == "1"
    })
    .await;
    within(session.withdraw(&leads, None)).await.unwrap();
    assert_eq!(primary.sql("SELECT count(*) FROM incumbent.entry"), "0");
    assert!(!commit.is_finished(), "the case is no case: it no longer waits");
    standby.sql("SELECT pg_wal_replay_resume()");
    within(commit).await.unwrap().unwrap();
}

/// Those of a role for reports, say: what begins with them waits until all who write as
/// SERIALIZABLE have ended.
#[tokio::test]
async fn the_defaults_of_a_role_for_transactions_hold_up_no_step_and_no_new_connection() {
    let server = crate::harness::shared().await;
    let url = format!("{}?schema=of_reports", server.url());
    make(&store(&url)).await;
    server.sql("CREATE ROLE reports LOGIN");
    for default in ["isolation = serializable", "read_only = on", "deferrable = on"] {
        server.sql(&format!("ALTER ROLE reports SET default_transaction_{default}"));
    }
    server.sql("GRANT USAGE ON SCHEMA of_reports TO reports");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA of_reports TO reports");
    let writes = raw(&server.url()).await;
    writes.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM of_reports.session").await.unwrap();
    let store = store(&url.replace("postgres@", "reports@"));
    let session = within(store.open_session(20 * TTL)).await.unwrap();
    let leads = held(&within(session.enlist(&name("reports"), &entry(1))).await.unwrap());
    within(session.renew(std::slice::from_ref(&leads))).await.unwrap();
    assert_eq!(within(store.line(&leads.election, 1)).await.unwrap().entries.len(), 1);
    within(store.promises()).await.unwrap();
    within(session.withdraw(&leads, None)).await.unwrap();
    within(session.close()).await.unwrap();
    writes.batch_execute("COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_call_that_nobody_polls_and_nobody_gives_up_holds_up_no_other() {
    let store = store(&crate::harness::shared().await.url());
    let session = store.open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("unpolled"), &entry(1)).await.unwrap());
    let mut unpolled = session.standing(&leads, None);
    let polled_once = poll_fn(|cx| Poll::Ready(unpolled.as_mut().poll(cx).is_pending())).await;
    assert!(polled_once, "it waits for an answer");
    within(session.standing(&leads, None)).await.unwrap();
    assert!(matches!(within(unpolled).await.unwrap().place, Place::Leading(_)));
}

#[tokio::test]
async fn backends_that_are_terminated_cost_nobody_the_office() {
    let server = PostgresServer::start().await;
    let client = incumbent::Client::builder().ttl(2 * TTL).with_store(store(&server.url())).await.unwrap();
    let mut candidacy = client.election("kept").unwrap().candidate("a").stand().await.unwrap();
    let leadership = lead(&mut candidacy).await;
    for _ in 0..5 {
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'incumbent'");
        leadership.proclaim("still here").await.unwrap();
    }
    leadership.term().check().unwrap();
    leadership.resign().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_was_put_back_keeps_nobody_in_line_for_longer_than_a_ttl() {
    let server = crate::harness::shared().await;
    let store = store(&server.url());
    let election = name("clock");
    let silent = store.open_session(Duration::from_secs(2)).await.unwrap();
    let ahead = held(&silent.enlist(&election, &entry(1)).await.unwrap());
    let follower = store.open_session(20 * TTL).await.unwrap();
    let behind = held(&follower.enlist(&election, &entry(2)).await.unwrap());
    put_clock_back(server, &ahead);
    let token = ahead.token;
    let longer = format!(
        "SELECT count(*) FROM incumbent.session JOIN incumbent.entry ON id = session \
         WHERE token = {token} AND expires_at > clock_timestamp() + ttl_us * interval '1 microsecond'"
    );
    assert_eq!(server.sql(&longer), "1");
    follower.standing(&behind, None).await.unwrap();
    assert_eq!(server.sql(&longer), "0", "a look shortens it");
    until("the next one leads", async || {
        matches!(follower.standing(&behind, None).await.unwrap().place, Place::Leading(_))
    })
    .await;
}

/// A follower whose renewals see nothing new does not look for itself.
#[tokio::test]
async fn a_follower_leads_past_a_dead_leader_though_the_clock_was_put_back() {
    let server = crate::harness::shared().await;
    let election = name("clock-followed");
    let silent = store(&server.url()).open_session(5 * TTL).await.unwrap();
    let ahead = held(&silent.enlist(&election, &entry(1)).await.unwrap());
    let client = incumbent::Client::builder().ttl(TTL).with_store(store(&server.url())).await.unwrap();
    let mut follower = client.election(election.as_str()).unwrap().candidate("follower").stand().await.unwrap();
    let ends = || {
        server.sql(&format!(
            "SELECT max(expires_at) FROM incumbent.session JOIN incumbent.entry \
        ON id = session WHERE election = '{}' AND token > {}",
            election.as_str(),
            ahead.token
        ))
    };
    until("it is in line", async || !ends().is_empty()).await;
    let first = ends();
    until("it has renewed", async || ends() != first).await;
    put_clock_back(server, &ahead);
    lead(&mut follower).await;
}

/// As the server sees the session of an entry after its clock was put back by an hour.
fn put_clock_back(server: &PostgresServer, held: &Held) {
    server.sql(&format!(
        "UPDATE incumbent.session SET expires_at = expires_at + interval '1 hour' WHERE id = \
         (SELECT session FROM incumbent.entry WHERE token = {})",
        held.token
    ));
}

/// An operator restores last night's dump into the database that it came from.
#[tokio::test]
async fn a_dump_that_is_restored_into_its_own_database_gives_no_token_twice() {
    let server = PostgresServer::start().await;
    let election = name("restored");
    let before = store(&server.url());
    let session = before.open_session(20 * TTL).await.unwrap();
    let first = held(&session.enlist(&election, &entry(1)).await.unwrap());
    let identity = session.store_id();
    let url = server.url();
    let dump = run("pg_dump", &["-n", "incumbent", "--clean", "--if-exists", "-d", &url]);
    session.withdraw(&first, None).await.unwrap();
    let later = held(&session.enlist(&election, &entry(2)).await.unwrap());
    session.close().await.unwrap();
    restore(&dump, &url);

    let after = store(&url);
    assert_eq!(after.identity().await.unwrap(), identity, "the same store, it says");
    let session = after.open_session(20 * TTL).await.unwrap();
    session.enlist(&election, &entry(3)).await.expect_err("nobody leads at once");
    server.sql("UPDATE incumbent.store SET quiet_until = clock_timestamp()");
    let next = held(&session.enlist(&election, &entry(3)).await.unwrap());
    assert!(next.token > later.token, "{next:?} after {later:?}");
}

/// What a standby that was promoted knows: a session with a short TTL, and nothing of the leader
/// with a long one. What it never got is taken away by hand.
#[tokio::test]
async fn nobody_leads_before_a_forgotten_leader_with_a_longer_ttl_has_stopped_believing() {
    let server = PostgresServer::start().await;
    let election = name("forgotten");
    let store = store(&server.url());
    store.open_session(TTL).await.unwrap();
    let forgotten = store.open_session(Duration::from_secs(60)).await.unwrap();
    forgotten.enlist(&election, &entry(1)).await.unwrap();
    server.sql("DELETE FROM incumbent.entry");
    server.sql("DELETE FROM incumbent.session WHERE ttl_us > 50000000");
    server.sql("UPDATE incumbent.store SET history = 'another'");
    let next = store.open_session(TTL).await.unwrap();
    next.enlist(&election, &entry(2)).await.expect_err("the former leader may believe that it leads");
    let longest = server.sql("SELECT longest_us FROM incumbent.store WHERE quiet_until > clock_timestamp()");
    assert_eq!(longest.trim(), "60000000");
}

#[tokio::test]
async fn a_session_is_granted_an_hour_at_most() {
    let server = PostgresServer::start().await;
    let session = store(&server.url()).open_session(Duration::from_secs(30 * 24 * 3_600)).await.unwrap();
    assert_eq!(session.liveness().ttl, Duration::from_secs(3_600));
    session.close().await.unwrap();
    // Whoever takes part may call the function, too.
    for (asked, granted) in [(i64::MAX, "3600000000"), (i64::MIN, "100000")] {
        let open = format!("SELECT granted_us FROM incumbent.open_1({asked})");
        assert_eq!(server.sql(&open), granted, "{asked}");
    }
    assert_eq!(server.sql("SELECT longest_us FROM incumbent.store"), "3600000000");
}

fn restore(dump: &[u8], url: &str) {
    let folder = Scratch::new("dump");
    let file = folder.path().join("sql");
    std::fs::write(&file, dump).unwrap();
    run("psql", &["-q", "-1", "-v", "ON_ERROR_STOP=1", "-d", url, "-f", file.to_str().unwrap()]);
}

/// Runs a program of PostgreSQL's, and answers with what it printed.
fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let output = std::process::Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
