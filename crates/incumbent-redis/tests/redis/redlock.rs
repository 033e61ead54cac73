//! Redlock on five real servers.

use std::sync::Arc;
use std::time::Duration;

use incumbent::{Client, OperatorError, ReadError};
use incumbent_redis::{RedisFence, RedisWrite, RedlockStore};
use incumbent_store::fence::FenceError;
use incumbent_store::{ElectionName, LineKind, Place, Store, StoreError, StoreId, TokenStrength};
use incumbent_testkit::conformance::{Harness, Time, unique};
use incumbent_testkit::hostile::{Case, Exception, Host};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::{Certificates, RedisServer, WallClock};
use tokio::sync::OnceCell;

use crate::access::{REDLOCK, rights};
use crate::harness::{Redis, entry, held, jobs, lead, until, within};

/// Long enough for a slow machine: each server has a tenth of it to answer.
const TTL: Duration = Duration::from_secs(4);
const SERVERS: usize = 5;
const KEEPS_EVERYTHING: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// Five servers that know nothing of each other.
struct Five(Vec<RedisServer>);

impl Five {
    async fn start(args: &[&str]) -> Five {
        let mut servers = Vec::new();
        for _ in 0..SERVERS {
            servers.push(RedisServer::start_with(args).await);
        }
        Five(servers)
    }

    fn url(&self) -> String {
        format!("redlock://{}", self.0.iter().map(RedisServer::endpoint).collect::<Vec<_>>().join(","))
    }

    fn store(&self) -> RedlockStore {
        RedlockStore::from_url(&self.url()).unwrap()
    }

    /// Founds the store, as if that were long ago.
    async fn season(&self) {
        until("the store is founded", async || settled(&self.store()).await.is_ok()).await;
        for server in &self.0 {
            server.cli(&["HSET", "{incumbent}:redlock", "age", "99999999999"]);
        }
    }

    /// A field of one server's hash.
    fn field(&self, server: usize, field: &str) -> String {
        self.0[server].cli(&["HGET", "{incumbent}:redlock", field])
    }

    async fn client(&self, ttl: Duration) -> Client {
        Client::builder().ttl(ttl).with_store(self.store()).await.unwrap()
    }
}

/// A candidate comes, and founds or mends the store.
async fn settled(store: &RedlockStore) -> Result<StoreId, StoreError> {
    Ok(store.open_session(TTL * 2).await?.store_id())
}

/// The servers that the suites share, each test with elections of its own.
async fn shared() -> &'static Five {
    static SERVERS: OnceCell<Five> = OnceCell::const_new();
    let start = async || {
        let five = Five::start(&[]).await;
        five.season().await;
        five
    };
    SERVERS.get_or_init(start).await
}

impl Harness for &'static Five {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(Five::store(self))
    }

    fn ttl(&self) -> Duration {
        TTL
    }
}

incumbent_testkit::conformance!(five_servers, Time::Real, shared().await);
incumbent_testkit::elections!(elections_on_five_servers, Time::Real, shared().await);

/// Five servers that keep what they were told.
struct Hosts {
    five: Five,
    wall_clock: WallClock,
}

impl Host for Hosts {
    const EXCEPTIONS: &'static [Exception] = &[
        Exception::new(Case::HungEndpoint, "a server has one address, and others stand in for one that hangs"),
        Exception::new(Case::CutAfterTheRequest, "an election has one lock, and no line in which to stand"),
        Exception::new(Case::TenThousand, "an election has one lock, and no line in which to stand"),
    ];
    const TTL: Duration = Duration::from_secs(5);

    async fn start() -> Hosts {
        let wall_clock = WallClock::new();
        let mut five = Five::start(&KEEPS_EVERYTHING).await;
        for server in &mut five.0 {
            server.set_environment(wall_clock.environment());
            server.restart().await;
        }
        five.season().await;
        Hosts { five, wall_clock }
    }

    fn addresses(&self) -> Vec<String> {
        self.five.0.iter().map(RedisServer::endpoint).collect()
    }

    fn store(&self, addresses: &[String]) -> Option<Arc<dyn Store>> {
        if addresses.len() != SERVERS {
            return None;
        }
        Some(Arc::new(RedlockStore::from_url(&format!("redlock://{}", addresses.join(","))).unwrap()))
    }

    async fn crowd(&self, _election: &ElectionName, _count: usize) {}

    async fn restart_with_less(&mut self) -> bool {
        for server in &mut self.five.0 {
            server.configure(&["--maxclients", "32"]);
            server.restart().await;
        }
        true
    }

    async fn fill(&mut self) -> bool {
        self.five.0.iter().for_each(|server| drop(server.cli(&["CONFIG", "SET", "maxmemory", "1"])));
        true
    }

    async fn make_room(&mut self) {
        self.five.0.iter().for_each(|server| drop(server.cli(&["CONFIG", "SET", "maxmemory", "0"])));
    }

    async fn set_wall_clock(&mut self, seconds_off: i64) -> bool {
        self.wall_clock.set(seconds_off);
        true
    }
}

incumbent_testkit::hostile!(hostile, Hosts);

#[tokio::test]
async fn two_of_five_may_be_dead_and_with_three_dead_nobody_leads_and_the_error_says_why() {
    let mut five = Five::start(&KEEPS_EVERYTHING).await;
    five.season().await;
    let election = five.client(TTL).await.election("jobs").unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    five.0[1].kill();
    five.0[3].kill();
    // Nothing but renewals keeps it in office for so long.
    assert!(tokio::time::timeout(TTL * 2, office.lost()).await.is_err());
    let other = five.client(TTL).await.election("others").unwrap();
    let second = within(other.candidate("b").try_once()).await.unwrap().expect("three will do");
    second.check().unwrap();

    five.0[4].kill();
    within(office.lost()).await;
    within(second.lost()).await;
    let error = five.store().open_session(TTL).await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, StoreError::Unavailable { .. }) && said.contains("it takes 3 of 5 servers"), "{said}");
    assert!(said.contains(&five.0[4].endpoint()), "{said}");
    drop((office, second));
    // They come back with all that they were told.
    five.0[1].restart().await;
    lead(&mut candidacy).await.check().unwrap();
}

#[tokio::test]
async fn a_fence_takes_the_tokens_of_those_whom_a_majority_elects() {
    let five = shared().await;
    // The servers of a Redlock keep its locks only; what is guarded is elsewhere.
    let guarded = Redis::on(crate::harness::shared().await).open();
    let name = ElectionName::new(&format!("fenced-{:x}", unique())).unwrap();
    let (mark, key) = (format!("{{{name}}}:mark"), format!("{{{name}}}:key"));
    let fence = RedisFence::new(&guarded, &name, mark);
    let election = five.client(TTL).await.election(name.as_str()).unwrap();
    let mut candidacy = election.candidate("a").fence(Arc::new(fence.clone())).stand().await.unwrap();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let office = lead(&mut candidacy).await;
        let token = office.term().token().clone();
        fence.write(&token, [RedisWrite::set(key.as_str(), "led")]).await.unwrap();
        tokens.push(token);
        within(office.resign()).await.unwrap();
    }
    let late = fence.write(&tokens[0], [RedisWrite::set(key.as_str(), "late")]).await;
    assert!(matches!(late, Err(FenceError::Stale { mark, .. }) if mark == tokens[1].token), "{late:?}");
    fence.write(&tokens[1], [RedisWrite::del(key.as_str())]).await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_emptied_is_told_what_the_others_know_and_its_leader_leads_on() {
    let mut five = Five::start(&[]).await;
    five.season().await;
    let election = five.client(TTL).await.election("jobs").unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let store = five.field(0, "store");
    five.0[2].cli(&["FLUSHALL"]);
    five.0[3].restart().await;
    until("both belong to the store again", async || [2, 3].iter().all(|server| five.field(*server, "store") == store))
        .await;
    for server in [2, 3] {
        let counter: u64 = five.field(server, "counter").parse().unwrap();
        assert!(counter >= office.token().get(), "{counter}");
        assert_eq!(five.field(server, "wait"), TTL.as_millis().to_string());
    }
    assert!(!store.contains(&five.field(2, "server")), "it has another name");
    office.check().unwrap();
}

#[tokio::test]
async fn a_restart_counts_as_a_loss_unless_every_write_was_on_the_disk() {
    let mut five = Five::start(&[]).await;
    for (server, fsync) in [(0, "everysec"), (1, "always")] {
        five.0[server] = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", fsync]).await;
    }
    five.season().await;
    let names = |five: &Five| [0, 1].map(|server| five.field(server, "server"));
    let before = names(&five);
    for server in [0, 1] {
        five.0[server].restart().await;
        assert_eq!(five.field(server, "server"), before[server], "it has its data");
    }
    settled(&five.store()).await.unwrap();
    let after = names(&five);
    assert_eq!([after[0] == before[0], after[1] == before[1]], [false, true], "{before:?}, {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_which_a_majority_is_copied_to_backups_at_once_have_lost_nothing() {
    let five = Five::start(&["--repl-diskless-sync-delay", "0"]).await;
    five.season().await;
    let names = || (0..SERVERS).map(|server| five.field(server, "server")).collect::<Vec<_>>();
    let lineage = |server: &RedisServer| {
        let info = server.cli(&["INFO", "replication"]);
        info.lines().find(|line| line.starts_with("master_replid:")).unwrap().to_owned()
    };
    let (id, before) = (five.store().identity().await.unwrap(), names());
    let lineages: Vec<_> = five.0.iter().map(lineage).collect();
    let election = five.client(TTL).await.election("jobs").unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    drop(lead(&mut candidacy).await);
    tokio::task::block_in_place(|| {
        std::thread::scope(|scope| {
            for server in &five.0[..3] {
                let file = server.scratch().path().join("backup.rdb");
                scope.spawn(move || server.cli(&["--rdb", &file.display().to_string()]));
            }
        });
    });
    for (server, before) in five.0[..3].iter().zip(&lineages) {
        assert_ne!(lineage(server), *before, "the backup was made");
    }
    // Each refuses while it has a copier. Then it is asked again, and is what it was.
    lead(&mut candidacy).await.check().unwrap();
    until("all are asked", async || {
        (0..3).all(|server| lineage(&five.0[server]).ends_with(&five.field(server, "lineage")))
    })
    .await;
    assert_eq!((five.store().identity().await.unwrap(), names()), (id, before));
}

#[tokio::test]
async fn a_server_that_read_a_snapshot_when_it_was_restarted_counts_as_emptied() {
    let mut five = Five::start(&KEEPS_EVERYTHING).await;
    five.season().await;
    let before = five.field(0, "server");
    assert_eq!((five.0[0].cli(&["SAVE"]), five.field(0, "kept")), ("OK".to_owned(), "always".to_owned()));
    five.0[0].configure(&["--appendonly", "no"]);
    five.0[0].restart().await;
    assert_eq!(five.field(0, "server"), before, "it has what was saved");
    settled(&five.store()).await.unwrap();
    assert_ne!(five.field(0, "server"), before);
}

/// A client's way to each server.
async fn ways(five: &Five) -> Vec<Proxy> {
    let mut ways = Vec::new();
    for server in &five.0 {
        ways.push(Proxy::start(&server.endpoint()).await);
    }
    ways
}

fn through(ways: &[Proxy]) -> RedlockStore {
    let addresses = ways.iter().map(Proxy::endpoint).collect::<Vec<_>>().join(",");
    RedlockStore::from_url(&format!("redlock://{addresses}")).unwrap()
}

#[tokio::test]
async fn what_a_server_kept_is_not_believed_of_the_process_that_follows_it() {
    const TTL: Duration = Duration::from_secs(20);
    let mut five = Five::start(&KEEPS_EVERYTHING).await;
    five.season().await;
    let before = five.field(0, "server");
    let (first_ways, second_ways) = (ways(&five).await, ways(&five).await);
    let (first, second) = (through(&first_ways), through(&second_ways));
    let (first, second) = (first.open_session(TTL).await.unwrap(), second.open_session(TTL).await.unwrap());
    assert_eq!((five.0[0].cli(&["SAVE"]), five.field(0, "kept")), ("OK".to_owned(), "always".to_owned()));
    // The one leads by servers 0, 1 and 2; the other reaches 0, 3 and 4, and has given up a call to
    // server 0.
    first_ways[3..].iter().for_each(|way| way.set(Way::Cut));
    second_ways[1..3].iter().for_each(|way| way.set(Way::Cut));
    let leading = held(&within(first.enlist(&jobs(), &entry(1))).await.unwrap());
    second_ways[0].set(Way::Stall);
    second.renew(&[]).await.unwrap_err();
    // Server 0 has read what it had saved before.
    five.0[0].configure(&["--appendonly", "no"]);
    five.0[0].restart().await;
    assert_eq!((five.field(0, "server"), five.field(0, "kept")), (before.clone(), "always".to_owned()));
    second_ways[0].set(Way::Forward);
    until("it is noticed", async || {
        let standing = second.enlist(&jobs(), &entry(2)).await;
        let leads = standing.as_ref().is_ok_and(|standing| matches!(standing.place, Place::Leading(_)));
        assert!(!leads, "beside {leading:?}: {standing:?}");
        five.field(0, "server") != before
    })
    .await;
}

#[tokio::test]
async fn what_a_server_keeps_is_read_again_by_those_who_ask_which_store_it_is() {
    let five = Five::start(&KEEPS_EVERYTHING).await;
    five.season().await;
    let store = five.store();
    let changes = [
        ("appendfsync", "everysec", ""),
        ("appendfsync", "always", "always"),
        ("no-appendfsync-on-rewrite", "yes", ""),
    ];
    for (setting, value, kept) in changes {
        five.0[0].cli(&["CONFIG", "SET", setting, value]);
        until("it is noticed", async || settled(&store).await.is_ok() && five.field(0, "kept") == kept).await;
    }
}

/// A few others are looked at with each step, at random.
#[tokio::test]
async fn a_lock_that_somebody_has_damaged_is_refused_to_its_election_and_to_no_other() {
    let five = Five::start(&[]).await;
    five.season().await;
    for server in &five.0 {
        for number in 0..40 {
            let cut = if number % 2 == 0 { "x" } else { "00000000500" };
            server.cli(&["HSET", "{incumbent}:redlock", &format!("/damaged-{number}"), cut]);
        }
    }
    let store = five.store();
    let session = within(store.open_session(TTL)).await.unwrap();
    for number in 0..10 {
        let election = ElectionName::new(&format!("whole-{number}")).unwrap();
        let standing = within(session.enlist(&election, &entry(number))).await.unwrap();
        assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    }
    let damaged = ElectionName::new("damaged-1").unwrap();
    let refused = within(session.enlist(&damaged, &entry(99))).await.unwrap_err();
    assert!(refused.to_string().contains("damaged data: taking the lock"), "{refused}");
    assert!(refused.to_string().contains("the lock of this election cannot be read"), "{refused}");
}

#[tokio::test]
async fn a_key_of_another_type_is_somebody_elses_if_it_is_the_one_of_a_redlock() {
    let five = Five::start(&[]).await;
    for server in &five.0 {
        // A store on one server would have this one.
        server.cli(&["SET", "{incumbent}:m", "theirs"]);
    }
    five.season().await;
    five.0[..3].iter().for_each(|server| drop(server.cli(&["DEL", "{incumbent}:redlock"])));
    five.0[..3].iter().for_each(|server| drop(server.cli(&["SET", "{incumbent}:redlock", "theirs"])));
    let refused = settled(&five.store()).await.unwrap_err().to_string();
    assert!(refused.contains("\"{incumbent}:redlock\" is a string of somebody else's"), "{refused}");
    assert!(refused.contains("?prefix="), "{refused}");
}

#[tokio::test]
async fn a_majority_that_was_emptied_is_founded_anew_by_an_operators_word() {
    let five = Five::start(&[]).await;
    five.season().await;
    let before = settled(&five.store()).await.unwrap();
    five.0[..3].iter().for_each(|server| drop(server.cli(&["FLUSHALL"])));
    let said = settled(&five.store()).await.unwrap_err().to_string();
    assert!(said.contains("3 of 5 servers are empty"), "{said}");
    let word = said.split("refound=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let anew = RedlockStore::from_url(&format!("{}?refound={word}", five.url())).unwrap();
    let is = within(settled(&anew)).await.unwrap();
    assert!(is != before && is.as_str() == word, "{is}");
    until("all belong to it", async || {
        settled(&five.store()).await.is_ok_and(|now| now == is)
            && (0..SERVERS).all(|server| five.field(server, "store") == word)
    })
    .await;
}

#[tokio::test]
async fn tokens_grow_over_restarts_of_servers_that_forget() {
    const TTL: Duration = Duration::from_secs(2);
    const TERMS: usize = 40;
    let mut five = Five::start(&[]).await;
    five.season().await;
    let store = five.store();
    let (mut terms, mut highest, mut restarted) = (0, None, 0);
    let mut session = store.open_session(TTL).await.unwrap();
    until("all terms are over", async || {
        if terms == TERMS {
            return true;
        }
        if let Ok(standing) = session.enlist(&jobs(), &entry(terms as u128 + 1)).await {
            let Place::Leading(held) = standing.place else { return false };
            assert!(highest < Some(held.token), "{:?} after {highest:?}", held.token);
            highest = Some(held.token);
            _ = session.withdraw(&held, None).await;
            terms += 1;
            // One at a time: the next is emptied when the last one counts again.
            let counts = (0..SERVERS).all(|server| five.field(server, "age").len() > 3);
            if terms % 4 == 0 && counts {
                five.0[restarted % SERVERS].restart().await;
                restarted += 1;
            }
        }
        // Servers that are slow do not always let one open another.
        if session.renew(&[]).await.is_err()
            && let Ok(fresh) = store.open_session(TTL).await
        {
            session = fresh;
        }
        false
    })
    .await;
    assert!(restarted > 0);
}

#[tokio::test]
async fn what_it_cannot_do_is_said_beforehand_and_refused() {
    let five = shared().await;
    let promises = five.store().promises().await.unwrap();
    assert_eq!((promises.line, promises.office_record, promises.watches), (LineKind::Single, false, false));
    let said = promises.caveats.join(" ");
    for part in ["rests on time", "3 of them away", "2 of them away", "transfer", "refound"] {
        assert_eq!(said.contains(part), part != "3 of them away", "{part}: {said}");
    }
    let operator = five.client(TTL).await.election("jobs/refused").unwrap().operator();
    let refused = operator.pause(TTL).await;
    let Err(OperatorError::Read(ReadError::Store(StoreError::Unsupported { what }))) = refused else {
        panic!("{refused:?}")
    };
    assert!(what.contains("no office record"), "{what}");
}

#[tokio::test]
async fn tokens_are_durable_where_every_server_writes_before_it_answers_and_not_where_one_does_not() {
    let five = Five::start(&KEEPS_EVERYTHING).await;
    five.season().await;
    let store = five.store();
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Durable);
    five.0[3].cli(&["CONFIG", "SET", "appendfsync", "everysec"]);
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Volatile);
    assert_eq!(shared().await.store().promises().await.unwrap().tokens, TokenStrength::Volatile);
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused_and_left_alone() {
    let five = Five::start(&[]).await;
    five.season().await;
    five.0[..3].iter().for_each(|server| drop(server.cli(&["HSET", "{incumbent}:redlock", "format", "2"])));
    let hashes = || (0..3).map(|server| five.0[server].cli(&["HGETALL", "{incumbent}:redlock"])).collect::<Vec<_>>();
    let before = hashes();
    for refused in [five.store().identity().await.map(drop), five.store().open_session(TTL).await.map(drop)] {
        let Err(StoreError::Foreign { what }) = refused else { panic!("{refused:?}") };
        assert!(what.contains("format 2") && what.contains("or a newer one"), "{what}");
    }
    assert_eq!(hashes(), before);
    // Two of them keep nobody from leading by the others.
    five.0[0].cli(&["HSET", "{incumbent}:redlock", "format", "1"]);
    until("three will do", async || settled(&five.store()).await.is_ok()).await;
}

#[tokio::test]
async fn what_an_earlier_version_wrote_without_the_newest_field_is_kept() {
    let five = Five::start(&[]).await;
    five.season().await;
    let session = five.store().open_session(TTL).await.unwrap();
    let leading = held(&within(session.enlist(&jobs(), &entry(1))).await.unwrap());
    let names = || (0..SERVERS).map(|server| five.field(server, "server")).collect::<Vec<_>>();
    let before = (five.field(0, "store"), names());
    five.0.iter().for_each(|server| drop(server.cli(&["HDEL", "{incumbent}:redlock", "asked"])));
    let renewal = session.renew(std::slice::from_ref(&leading)).await.unwrap();
    assert_eq!(renewal.gone, []);
    assert_eq!(settled(&five.store()).await.unwrap().as_str(), before.0);
    assert_eq!((five.field(0, "store"), names()), before);
}

#[tokio::test]
async fn servers_that_evict_any_key_are_refused_unless_that_is_allowed() {
    let five = Five::start(&["--maxmemory-policy", "allkeys-lru"]).await;
    match settled(&five.store()).await {
        Err(StoreError::Misuse { what }) => assert!(what.contains("allkeys-lru"), "{what}"),
        other => panic!("{other:?}"),
    }
    let allowed = RedlockStore::from_url(&format!("{}?eviction=allow", five.url())).unwrap();
    until("the store is founded", async || settled(&allowed).await.is_ok()).await;
}

#[tokio::test]
async fn servers_are_reached_over_tls_with_a_certificate_on_both_sides() {
    let certificates = Certificates::new("IP:127.0.0.1");
    let at = |file: &str| certificates.file(file);
    let (certificate, key, ca) = (at("server.pem"), at("server.key"), at("ca.pem"));
    let tls = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let five = Five::start(&[&["--port", "0", "--tls-port", "{port}"][..], &tls].concat()).await;
    let url = format!("{}?ca={ca}", five.url().replace("redlock://", "redlocks://"));
    let both = format!("{url}&cert={}&key={}", at("client.pem"), at("client.key"));
    let store = RedlockStore::from_url(&both).unwrap();
    until("the store is founded", async || settled(&store).await.is_ok()).await;
    let bare = settled(&RedlockStore::from_url(&url).unwrap()).await;
    assert!(matches!(bare, Err(StoreError::Unavailable { .. })), "no certificate of ours: {bare:?}");
}

#[tokio::test]
async fn a_server_with_replicas_is_refused() {
    let five = Five::start(&[]).await;
    five.season().await;
    let mut replicas = Vec::new();
    for server in &five.0[1..4] {
        let replica = RedisServer::start().await;
        replica.cli(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
        until("it has a replica", async || server.cli(&["INFO", "replication"]).contains("connected_slaves:1")).await;
        replicas.push(replica);
    }
    let said = settled(&five.store()).await.unwrap_err().to_string();
    assert!(said.contains("must have none"), "{said}");
}

#[tokio::test]
async fn a_user_with_the_least_rights_leads() {
    let five = Five::start(&[]).await;
    let rights = format!("~{{incumbent}}* {}", rights(REDLOCK));
    for server in &five.0 {
        let set: Vec<&str> =
            ["ACL", "SETUSER", "me", "on", ">secret", "resetkeys"].into_iter().chain(rights.split(' ')).collect();
        assert_eq!(server.cli(&set), "OK");
    }
    let url = five.url().replace("redlock://", "redlock://me:secret@");
    let store = RedlockStore::from_url(&url).unwrap();
    assert!(!format!("{store:?}").contains("secret"));
    until("the store is founded", async || settled(&store).await.is_ok()).await;
    five.season().await;
    let session = store.open_session(TTL).await.unwrap();
    let standing = within(session.enlist(&jobs(), &entry(1))).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    let wrong = RedlockStore::from_url(&five.url().replace("redlock://", "redlock://me:hunter2@")).unwrap();
    let said = settled(&wrong).await.unwrap_err().to_string();
    assert!(!said.contains("hunter2"), "{said}");
}
