//! Who is woken by what, and what waiting costs.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use incumbent_postgres::PostgresStore;
use incumbent_postgres::tokio_postgres::{self, AsyncMessage, Client, NoTls};
use incumbent_store::{
    Cas, Deposed, ElectionName, EntryId, Held, MAX_NAME_BYTES, Office, Place, Publication, Session, Store, Version,
    Watched,
};
use incumbent_testkit::servers::PostgresServer;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::harness::{
    TTL, entry, held, make, name, raw, shared, store, until, until_blocked, waits_for_standbys, within,
};

/// So long that half of it is longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

/// One who does nothing but listen, and what it hears.
async fn listen(url: &str, channel: &str) -> (Client, mpsc::UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (hears, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = hears.send(notification.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("LISTEN \"{channel}\"")).await.unwrap();
    (client, heard)
}

#[tokio::test]
async fn a_notification_that_is_lost_is_made_up_for_by_a_renewal() {
    let server = shared().await;
    let url = format!("{}?schema=tells_nobody", server.url());
    make(&store(&url)).await;
    server.sql(
        "CREATE OR REPLACE FUNCTION tells_nobody.tell_1(e bytea, what text, t bigint) RETURNS void \
         LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT'",
    );
    // At the seam, where nothing else looks again.
    let (leader_store, store) = (store(&url), store(&url));
    let election = name("lost");
    let leader = leader_store.open_session(20 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let follower = store.open_session(20 * TTL).await.unwrap();
    let standing = follower.enlist(&election, &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&standing), standing.office.version);
    watched.ahead = Some(leads.entry.clone());
    let wake = tokio::spawn(follower.watch(&watched, standing.cursor));
    until("it waits", async || store.watches() == 1).await;
    assert!(store.promises().await.unwrap().watches);
    let channel = make(&store).await;
    let (_listening, mut heard) = listen(&server.url(), channel.as_str()).await;
    leader.withdraw(&leads, None).await.unwrap();
    server.sql(&format!("NOTIFY \"{channel}\", 'later'"));
    while let Some(said) = within(heard.recv()).await {
        assert!(said == "later" || said.starts_with("listening"), "the case is no case: {said} was told");
        if said == "later" {
            break;
        }
    }
    assert!(!wake.is_finished(), "one that does nothing but listen waits on");
    let own = [held(&standing)];
    until("it is woken", async || {
        follower.renew(&own).await.unwrap();
        wake.is_finished()
    })
    .await;
    wake.await.unwrap().unwrap();
}

/// Every notification wakes every backend of the database that listens, whatever it listens to.
#[tokio::test]
async fn renewals_and_those_who_join_behind_others_are_told_to_nobody() {
    let server = shared().await;
    let store = store(&format!("{}?schema=quiet", server.url()));
    let channel = make(&store).await;
    let (_listening, mut heard) = listen(&server.url(), channel.as_str()).await;
    let election = name("quiet");
    let leader = store.open_session(20 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let told = format!("{} h", hex(&election));
    assert_eq!(within(heard.recv()).await.unwrap(), told, "there is another head");
    let follower = store.open_session(20 * TTL).await.unwrap();
    let follows = held(&follower.enlist(&election, &entry(2)).await.unwrap());
    for _ in 0..3 {
        leader.renew(std::slice::from_ref(&leads)).await.unwrap();
        follower.renew(std::slice::from_ref(&follows)).await.unwrap();
        follower.standing(&follows, None).await.unwrap();
    }
    leader.withdraw(&leads, None).await.unwrap();
    let told = format!("{} g{} h", hex(&election), leads.token);
    assert_eq!(within(heard.recv()).await.unwrap(), told, "nothing was told in between");
}

#[tokio::test]
async fn what_a_leader_says_and_what_the_office_record_says_is_told() {
    let server = shared().await;
    let store = store(&format!("{}?schema=told", server.url()));
    let channel = make(&store).await;
    let (_listening, mut heard) = listen(&server.url(), channel.as_str()).await;
    let election = name("told");
    let [leader, follower] = [store.open_session(20 * TTL).await.unwrap(), store.open_session(20 * TTL).await.unwrap()];
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    follower.enlist(&election, &entry(2)).await.unwrap();
    // That it is elected may be told late, and by itself, or not at all.
    let elected = format!("{} h", hex(&election));
    let mut next = async || loop {
        let said = within(heard.recv()).await.unwrap();
        if said != elected {
            return said;
        }
    };
    let was = store.line(&election, 1).await.unwrap().entries[0].version;
    leader.publish(&leads, was, &Publication::new("another")).await.unwrap().unwrap();
    assert_eq!(next().await, format!("{} e{} h", hex(&election), leads.token));
    let mut office = Office::default();
    office.deposed = Some(Deposed::new(leads.token));
    assert_eq!(store.set_office(&election, Version::NONE, &office).await.unwrap(), Cas::Done);
    assert_eq!(next().await, format!("{} o", hex(&election)));
}

#[tokio::test]
async fn what_was_refused_is_told_to_nobody() {
    let server = shared().await;
    let store = store(&format!("{}?schema=refused", server.url()));
    let channel = make(&store).await;
    let election = name("refused");
    let leader = store.open_session(20 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let mut seen = store.line(&election, 1).await.unwrap().entries.remove(0);
    seen.version = Version(seen.version.0 - 1);
    let (_listening, mut heard) = listen(&server.url(), channel.as_str()).await;
    let nobody = EntryId::new("7");
    assert_eq!(leader.withdraw(&leads, Some(&nobody)).await.unwrap(), Cas::Refused);
    assert_eq!(store.evict(&election, &seen).await.unwrap(), Cas::Refused);
    assert_eq!(leader.publish(&leads, seen.version, &Publication::new("stale")).await.unwrap(), None);
    let mut office = store.line(&election, 1).await.unwrap().office;
    office.deposed = Some(Deposed::new(leads.token));
    assert_eq!(store.set_office(&election, seen.version, &office).await.unwrap(), Cas::Refused);
    // In between, what was done: a publication, a record, and its end.
    let said = store.line(&election, 1).await.unwrap().entries[0].version;
    assert!(leader.publish(&leads, said, &Publication::new("done")).await.unwrap().is_some());
    assert_eq!(store.set_office(&election, Version::NONE, &office).await.unwrap(), Cas::Done);
    let mut blank = store.line(&election, 1).await.unwrap().office;
    blank.deposed = None;
    assert_eq!(store.set_office(&election, blank.version, &blank).await.unwrap(), Cas::Done);
    assert_eq!(store.set_office(&election, blank.version, &blank).await.unwrap(), Cas::Refused);
    leader.withdraw(&leads, None).await.unwrap();
    assert_eq!(leader.publish(&leads, seen.version, &Publication::new("late")).await.unwrap(), None);
    server.sql(&format!("NOTIFY \"{channel}\", 'later'"));
    let mut told = Vec::new();
    while told.last().is_none_or(|last| last != "later") {
        told.push(within(heard.recv()).await.unwrap());
    }
    // That it is elected may be told late, and by itself.
    told.retain(|said| *said != format!("{} h", hex(&election)));
    let done = [format!("e{} h", leads.token), "o".to_owned(), "o".to_owned(), format!("g{} h", leads.token)];
    let mut expected = Vec::from_iter(done.iter().map(|words| format!("{} {words}", hex(&election))));
    expected.push("later".to_owned());
    assert_eq!(told, expected);
}

fn hex(election: &ElectionName) -> String {
    election.as_str().bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Only one that listens hears of the handover: both sessions are too long for anybody to look.
#[tokio::test]
async fn a_connection_that_stops_listening_is_made_again() {
    let server = shared().await;
    let follower = format!("{}?application_name=listens_again", server.url());
    let pair = Pair::stand(&name("again"), &server.url(), &follower).await;
    let listens = "SELECT pid FROM pg_stat_activity \
        WHERE application_name = 'listens_again' AND query LIKE 'SET idle_session_timeout%'";
    let mut pid = String::new();
    until("it listens", async || {
        pid = server.sql(listens);
        !pid.is_empty()
    })
    .await;
    server.sql(&format!("SELECT pg_terminate_backend({pid})"));
    until("another one listens", async || !["", &*pid].contains(&&*server.sql(listens))).await;
    until("it is known", async || pair.follower_store.promises().await.unwrap().watches).await;
    assert!(!pair.wake.is_finished(), "it waits");
    pair.hand_over().await;
}

#[tokio::test]
async fn an_idle_follower_costs_its_renewals_and_nothing_else() {
    let server = shared().await;
    let url = format!("{}?schema=idle", server.url());
    let leader = store(&url).open_session(40 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&name("idle"), &entry(1)).await.unwrap());
    let logged = format!("{url}&options=-c%20log_statement%3Dall");
    let client = incumbent::Client::builder().ttl(TTL).with_store(store(&logged)).await.unwrap();
    let _follows = client.election(leads.election.as_str()).unwrap().candidate("follower").stand().await.unwrap();
    // What the follower alone asks for: all of it, and renewals.
    let run = || {
        let logs = server.logs();
        ["", "renew_1("].map(|function| logs.matches(&format!("FROM \"idle\".{function}")).count())
    };
    until("it waits", async || server.logs().contains("FROM \"idle\".changed_1(") && run()[1] > 0).await;
    let mut windows = Vec::new();
    // A machine that stands still makes a renewal late, and whoever is in doubt asks: then it is
    // looked at again. One that asks by itself does so each time.
    while windows.len() < 5 {
        let before = run();
        // For longer than a candidate waits that is told nothing before it looks for itself.
        until("it has renewed several times", async || run()[1] >= before[1] + 8).await;
        let after = run();
        let (all, renewals) = (after[0] - before[0], after[1] - before[1]);
        if all == renewals {
            return;
        }
        windows.push((all, renewals));
    }
    panic!("calls, and renewals among them: {windows:?}");
}

/// A transaction that was forgotten, or a commit that waits for a standby.
#[tokio::test]
async fn a_follower_rests_while_somebody_keeps_a_dead_leader_from_being_removed() {
    let server = shared().await;
    let url = format!("{}?schema=kept", server.url());
    let election = name("kept");
    let leader = store(&url).open_session(TTL).await.unwrap();
    leader.enlist(&election, &entry(1)).await.unwrap();
    let keeps = raw(&server.url()).await;
    keeps.batch_execute("BEGIN; SELECT FROM kept.session FOR UPDATE").await.unwrap();
    let logged = format!("{url}&options=-c%20log_statement%3Dall");
    let client = incumbent::Client::builder().ttl(TTL).with_store(store(&logged)).await.unwrap();
    let mut follows = client.election(election.as_str()).unwrap().candidate("follower").stand().await.unwrap();
    let run = || {
        let logs = server.logs();
        ["", "renew_1("].map(|function| logs.matches(&format!("FROM \"kept\".{function}")).count())
    };
    let expired = "SELECT count(*) FROM kept.session WHERE expires_at <= clock_timestamp()";
    until("the leader is dead, and there", async || server.sql(expired) == "1").await;
    let before = run();
    until("the follower has renewed several times", async || run()[1] >= before[1] + 5).await;
    let after = run();
    let (all, renewals) = (after[0] - before[0], after[1] - before[1]);
    assert!(all <= 40 + 8 * renewals, "{all} calls, and {renewals} of them are renewals");
    keeps.batch_execute("ROLLBACK").await.unwrap();
    crate::harness::lead(&mut follows).await;
}

#[tokio::test]
async fn a_renewal_sees_whether_what_is_ahead_is_as_it_was() {
    let store = store(&shared().await.url());
    let election = name("as-it-was");
    let leader = store.open_session(40 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let follower = store.open_session(20 * TTL).await.unwrap();
    let standing = follower.enlist(&election, &entry(2)).await.unwrap();
    let follows = held(&standing);
    let behind = async || follower.renew(std::slice::from_ref(&follows)).await.unwrap().behind;
    let seen = behind().await;
    let [seen] = &seen[..] else { panic!("{seen:?}") };
    assert!(seen.held == follows && seen.ahead.is(&leads) && seen.office == standing.office.version, "{seen:?}");
    assert_eq!(leader.renew(std::slice::from_ref(&leads)).await.unwrap().behind, [], "nobody is ahead of it");

    let published = store.line(&election, 1).await.unwrap().entries[0].version;
    leader.publish(&leads, published, &Publication::new("another")).await.unwrap().unwrap();
    assert_eq!(behind().await, [], "it says something else");
    follower.standing(&follows, None).await.unwrap();
    assert_eq!(behind().await.len(), 1);

    let mut office = standing.office.clone();
    office.deposed = Some(Deposed::new(leads.token));
    store.set_office(&election, Version::NONE, &office).await.unwrap();
    assert_eq!(behind().await, [], "the office record says something else");
    follower.standing(&follows, None).await.unwrap();
    assert_eq!(behind().await.len(), 1);

    leader.withdraw(&leads, None).await.unwrap();
    assert_eq!(behind().await, [], "nobody is ahead");
}

#[tokio::test]
async fn the_end_of_a_silent_leader_is_timed_and_not_told() {
    let store = store(&shared().await.url());
    let election = name("silent");
    let silent = store.open_session(Duration::from_secs(2)).await.unwrap();
    let leads = held(&silent.enlist(&election, &entry(1)).await.unwrap());
    // Long enough for it not to look by itself.
    let follower = store.open_session(LONG).await.unwrap();
    let standing = follower.enlist(&election, &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&standing), standing.office.version);
    watched.ahead = Some(leads.entry.clone());
    within(follower.watch(&watched, standing.cursor)).await.unwrap();
    until("it leads", async || {
        matches!(follower.standing(&held(&standing), None).await.unwrap().place, Place::Leading(_))
    })
    .await;
    assert!(silent.renew(&[leads]).await.is_err(), "what was removed is not revived");
}

/// A leader, and one behind it that waits for its end. Only a notification can tell: both have long
/// enough for nobody to look.
struct Pair {
    leader: Arc<dyn Session>,
    leads: Held,
    wake: JoinHandle<Result<(), incumbent_store::StoreError>>,
    follower_store: PostgresStore,
    _follower: Arc<dyn Session>,
}

impl Pair {
    /// The follower goes by a URL of its own.
    async fn stand(election: &ElectionName, leader: &str, follower: &str) -> Pair {
        let (leader_store, follower_store) = (store(leader), store(follower));
        let leader = leader_store.open_session(LONG).await.unwrap();
        let leads = held(&leader.enlist(election, &entry(1)).await.unwrap());
        let follower = follower_store.open_session(LONG).await.unwrap();
        let standing = follower.enlist(election, &entry(2)).await.unwrap();
        // There are connections for calls and for renewals now.
        follower.renew(&[held(&standing)]).await.unwrap();
        let mut watched = Watched::new(held(&standing), standing.office.version);
        watched.ahead = Some(leads.entry.clone());
        let wake = tokio::spawn(follower.watch(&watched, standing.cursor));
        until("it waits", async || follower_store.watches() == 1).await;
        follower_store.promises().await.unwrap();
        Pair { leader, leads, wake, follower_store, _follower: follower }
    }

    async fn hand_over(self) {
        assert_eq!(self.leader.withdraw(&self.leads, None).await.unwrap(), Cas::Done);
        within(self.wake).await.unwrap().unwrap();
    }
}

/// Nothing of it runs once its close has come back.
#[tokio::test]
async fn who_closes_its_session_and_exits_has_told_those_behind_it_in_each_election() {
    let url = shared().await.url();
    let elections = [name("closes"), name("closes")];
    let (stands, in_line) = tokio::sync::oneshot::channel();
    let (go, goes) = std::sync::mpsc::channel();
    let process = std::thread::spawn({
        let (url, elections) = (url.clone(), elections.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let session = runtime.block_on(async {
                let session = store(&url).open_session(LONG).await.unwrap();
                let mut leads = Vec::new();
                for (number, election) in (1..).zip(&elections) {
                    leads.push(held(&session.enlist(election, &entry(number)).await.unwrap()));
                }
                stands.send(leads).unwrap();
                session
            });
            goes.recv().unwrap();
            runtime.block_on(session.close()).unwrap();
        }
    });
    let leads = in_line.await.unwrap();
    let store = store(&url);
    let follower = store.open_session(LONG).await.unwrap();
    let mut wakes = Vec::new();
    for (election, leads) in elections.iter().zip(&leads) {
        let standing = follower.enlist(election, &entry(7)).await.unwrap();
        let mut watched = Watched::new(held(&standing), standing.office.version);
        watched.ahead = Some(leads.entry.clone());
        wakes.push(tokio::spawn(follower.watch(&watched, standing.cursor)));
    }
    until("it waits in both", async || store.watches() == 2).await;
    assert!(store.promises().await.unwrap().watches);
    assert!(!wakes.iter().any(JoinHandle::is_finished), "nothing has happened");
    go.send(()).unwrap();
    for wake in wakes {
        within(wake).await.unwrap().unwrap();
    }
    process.join().unwrap();
}

#[tokio::test]
async fn elections_with_the_longest_of_names_are_told_of() {
    let url = shared().await.url();
    let mut longest = name("long").as_str().to_owned();
    while longest.len() + 'ü'.len_utf8() <= MAX_NAME_BYTES {
        longest.push('ü');
    }
    let election = ElectionName::new(&longest).unwrap();
    Pair::stand(&election, &url, &url).await.hand_over().await;
}

#[tokio::test]
async fn a_write_of_which_nobody_can_be_told_is_done_all_the_same() {
    let server = shared().await;
    let url = format!("{}?schema=cannot_tell", server.url());
    make(&store(&url)).await;
    server.sql(
        "CREATE OR REPLACE FUNCTION cannot_tell.tell_1(e bytea, what text, t bigint) RETURNS void LANGUAGE plpgsql \
         AS 'BEGIN RAISE EXCEPTION ''too many notifications in the NOTIFY queue''; END'",
    );
    let session = store(&url).open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("untold"), &entry(1)).await.unwrap());
    assert_eq!(within(session.withdraw(&leads, None)).await.unwrap(), Cas::Done);
}

/// Who notifies takes a lock of the whole cluster, and has it through the commit. A withdrawal
/// notifies behind its commit; beside it, one that does it before.
#[tokio::test]
async fn a_withdrawal_whose_commit_waits_for_a_standby_holds_up_no_notification() {
    let server = PostgresServer::start().await;
    let session = store(&server.url()).open_session(20 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("hangs"), &entry(1)).await.unwrap());
    server.sql("CREATE TABLE line (token bigint); INSERT INTO line VALUES (1)");
    let (notifies_before, other) = (raw(&server.url()).await, raw(&server.url()).await);
    waits_for_standbys(&server, "nobody").await;
    let until_waiting = async |commits: &str| {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until("the commit waits", async || server.sql(waiting) == commits).await;
    };
    let withdrawal = tokio::spawn(async move { session.withdraw(&leads, None).await });
    until_waiting("1").await;
    within(other.batch_execute("NOTIFY other")).await.unwrap();
    assert!(!withdrawal.is_finished(), "the case is no case: its commit is over");

    let waits =
        tokio::spawn(
            async move { notifies_before.batch_execute("BEGIN; DELETE FROM line; NOTIFY line; COMMIT").await },
        );
    until_waiting("2").await;
    let notification = tokio::spawn(async move { other.batch_execute("NOTIFY another").await });
    until_blocked(&server, "NOTIFY another").await;
    waits_for_standbys(&server, "").await;
    within(notification).await.unwrap().unwrap();
    within(waits).await.unwrap().unwrap();
    assert_eq!(within(withdrawal).await.unwrap().unwrap(), Cas::Done);
}

/// As many connections as it takes for calls and renewals.
#[tokio::test]
async fn those_who_get_no_connection_to_listen_on_look_for_themselves() {
    let server = shared().await;
    server.sql("CREATE ROLE has_two LOGIN CONNECTION LIMIT 2");
    make(&store(&server.url())).await;
    server.sql("GRANT USAGE ON SCHEMA incumbent TO has_two");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA incumbent TO has_two");
    let follower = server.url().replace("postgres@", "has_two@");
    let pair = Pair::stand(&name("two"), &server.url(), &follower).await;
    assert!(!pair.wake.is_finished(), "it waits");
    pair.hand_over().await;
}

/// A call that waits for a lock has the only connection that there is room for.
#[tokio::test]
async fn a_call_that_gets_no_connection_of_its_own_waits_for_one_that_is_out() {
    let server = shared().await;
    // Renewals have the other one.
    server.sql("CREATE ROLE has_one_for_calls LOGIN CONNECTION LIMIT 2");
    make(&store(&format!("{}?schema=full", server.url()))).await;
    server.sql("GRANT USAGE ON SCHEMA \"full\" TO has_one_for_calls");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA \"full\" TO has_one_for_calls");
    let url = format!("{}?schema=full", server.url().replace("postgres@", "has_one_for_calls@"));
    let store = store(&url);
    let session = store.open_session(20 * TTL).await.unwrap();
    let election = name("full");
    let leads = held(&session.enlist(&election, &entry(1)).await.unwrap());
    session.renew(std::slice::from_ref(&leads)).await.unwrap();
    let others = raw(&server.url()).await;
    others.batch_execute("BEGIN; SELECT FROM \"full\".election FOR UPDATE").await.unwrap();
    let withdrawal = tokio::spawn({
        let (session, leads) = (session.clone(), leads.clone());
        async move { session.withdraw(&leads, None).await }
    });
    until("it waits for the lock, or has given up", async || {
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'has_one_for_calls' AND wait_event_type = 'Lock'";
        server.sql(waits) != "0" || withdrawal.is_finished()
    })
    .await;
    assert_eq!(within(store.line(&election, 10)).await.unwrap().entries.len(), 1);
    others.batch_execute("ROLLBACK").await.unwrap();
    // It may have given up before.
    let _ = within(withdrawal).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_listens_outlives_a_limit_for_idle_ones() {
    let server = shared().await;
    server.sql("CREATE ROLE not_idle LOGIN SUPERUSER");
    server.sql("ALTER ROLE not_idle SET idle_session_timeout = '3s'");
    let follower = server.url().replace("postgres@", "not_idle@");
    let pair = Pair::stand(&name("idle-limit"), &server.url(), &follower).await;
    let listens = "SELECT pid FROM pg_stat_activity WHERE usename = 'not_idle' AND query LIKE 'SET idle_session%'";
    let pid = server.sql(listens);
    assert!(!pid.is_empty());
    // One that was idle for less than the one that listens is ended.
    let idle = raw(&follower).await;
    until("the limit has been reached", async || idle.is_closed()).await;
    assert_eq!(server.sql(listens), pid);
    pair.hand_over().await;
}
