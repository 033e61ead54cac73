//! Primaries that are found: through Sentinels, and in a cluster.

use std::sync::Arc;
use std::time::Duration;

use incumbent_redis::{RedisFence, RedisStore, RedisWrite};
use incumbent_store::fence::{Fence, FenceError, FencingToken};
use incumbent_store::{Cas, Held, Place, Session, Store, StoreError, Token, TokenStrength, Version, Watched};
use incumbent_testkit::free_port;
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, TTL, client, entry, held, jobs, lead, named, until, within};

/// A primary, its replica, and a Sentinel that replaces the one by the other.
struct UnderSentinel {
    primary: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
}

impl UnderSentinel {
    async fn start() -> UnderSentinel {
        let primary = RedisServer::start().await;
        let follows = format!("127.0.0.1 {}", primary.port());
        let replica = RedisServer::start_with(&["--replicaof", &follows]).await;
        let sentinel = RedisServer::start_sentinel(&primary).await;
        let knows_both =
            async || sentinel.cli(&["SENTINEL", "replicas", "primary"]).contains(&replica.port().to_string());
        until("the Sentinel knows the replica", knows_both).await;
        UnderSentinel { primary, replica, sentinel }
    }

    fn store(&self) -> RedisStore {
        RedisStore::from_url(&format!("{}?sentinel=primary", self.sentinel.url())).unwrap()
    }

    /// Waits until what was written is in both places.
    async fn synchronised(&self, key: &str) {
        let dump = |server: &RedisServer| server.cli(&["HGETALL", key]);
        until("the replica has everything", async || dump(&self.primary) == dump(&self.replica)).await;
    }
}

/// Renews until it succeeds. A server that does not answer is given up.
async fn renewed(session: &dyn Session, held: &Held) {
    until("the session is renewed", async || {
        let renewal = tokio::time::timeout(Duration::from_secs(2), session.renew(std::slice::from_ref(held))).await;
        match renewal {
            Ok(Ok(renewal)) => {
                assert_eq!(renewal.gone, []);
                true
            }
            Ok(Err(StoreError::Unavailable { .. })) | Err(_) => false,
            Ok(Err(other)) => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test]
async fn a_leader_outlives_its_primary_and_leads_at_the_one_that_the_sentinels_choose() {
    let mut servers = UnderSentinel::start().await;
    let store = servers.store();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    servers.synchronised("{incumbent}:h").await;
    let watched = Watched::new(leading.clone(), Default::default());
    let lost = tokio::spawn(session.watch(&watched, Default::default()));

    servers.primary.kill();

    renewed(&*session, &leading).await;
    let standing = within(session.standing(&leading, None)).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leading.clone()));
    assert!(servers.replica.cli(&["ROLE"]).starts_with("master"));
    // The watch ended one way or another, and news arrives from the new primary.
    drop(within(lost).await.unwrap());
    let watched = Watched::new(leading.clone(), standing.office.version);
    let mut wake = tokio::spawn(session.watch(&watched, standing.cursor));
    until("it waits", async || store.watches() == 1).await;
    session.withdraw(&leading, None).await.unwrap();
    within(&mut wake).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_leader_outlives_its_primary_and_one_of_three_sentinels() {
    let UnderSentinel { mut primary, replica, sentinel } = UnderSentinel::start().await;
    let [second, third] = [RedisServer::start_sentinel(&primary).await, RedisServer::start_sentinel(&primary).await];
    let mut sentinels = [sentinel, second, third];
    for sentinel in &sentinels {
        // They vote anew soon if none has a majority.
        for (setting, value) in [("quorum", "2"), ("failover-timeout", "2000")] {
            assert_eq!(sentinel.cli(&["SENTINEL", "SET", "primary", setting, value]), "OK");
        }
        until("they know each other and the replica", async || {
            let known = sentinel.cli(&["SENTINEL", "CKQUORUM", "primary"]);
            let replicas = sentinel.cli(&["SENTINEL", "replicas", "primary"]);
            known.contains("3 usable") && replicas.contains(&replica.port().to_string())
        })
        .await;
    }
    let addresses = sentinels.each_ref().map(RedisServer::endpoint).join(",");
    let store = RedisStore::from_url(&format!("redis://{addresses}?sentinel=primary")).unwrap();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let led = |server: &RedisServer| server.cli(&["HGETALL", "{incumbent}:h"]);
    until("the replica has everything", async || led(&primary) == led(&replica)).await;

    // The first that is asked.
    sentinels[0].kill();
    primary.kill();

    renewed(&*session, &leading).await;
    let standing = within(session.standing(&leading, None)).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leading));
    assert!(replica.cli(&["ROLE"]).starts_with("master"));
}

/// Until it is told it makes leaders, as is said beforehand; a fence refuses them, since all of
/// their tokens are lower than those of the new one.
#[tokio::test]
async fn a_primary_that_was_stopped_and_replaced_gives_only_lower_tokens_when_it_is_woken() {
    let servers = UnderSentinel::start().await;
    let store = servers.store();
    let promises = store.promises().await.unwrap();
    assert_eq!(promises.tokens, TokenStrength::Volatile);
    let promised = promises.caveats.join(" ");
    assert!(promised.contains("goes on answering until it is told, and two may lead for as long"), "{promised}");
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    servers.synchronised("{incumbent}:h").await;
    // The Sentinel is not obeyed until we have asked the old one.
    let may_be_told = |may: char| {
        let [old_name, name] = ["slaveof", "replicaof"].map(|command| format!("{may}{command}"));
        assert_eq!(servers.primary.cli(&["ACL", "SETUSER", "default", &old_name, &name]), "OK");
    };
    may_be_told('-');
    servers.primary.pause();
    renewed(&*session, &leading).await;
    servers.primary.resume();
    let old = RedisStore::from_url(&servers.primary.url()).unwrap();
    let left_behind = old.open_session(TTL).await.unwrap();
    let elected = left_behind.enlist(&named("elsewhere"), &entry(2)).await.unwrap();
    let late = held(&elected);
    assert_eq!(elected.place, Place::Leading(late.clone()));
    let other = store.open_session(TTL).await.unwrap();
    let next = held(&other.enlist(&jobs(), &entry(3)).await.unwrap());
    assert!(next.token > late.token, "{next:?} after {late:?}");
    may_be_told('+');
    until("it has been told", async || servers.primary.cli(&["ROLE"]).starts_with("slave")).await;
    until("it answers no steps", async || matches!(old.identity().await, Err(StoreError::Unavailable { .. }))).await;
    renewed(&*session, &leading).await;
    assert_eq!(session.standing(&leading, None).await.unwrap().place, Place::Leading(leading));
    // What it made is gone.
    let told = left_behind.standing(&late, None).await;
    assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
}

/// The one that the Sentinels choose lacks the leader, and the session that has the newest token.
#[tokio::test]
async fn a_lagging_replica_that_the_sentinels_choose_makes_no_second_leader_and_gives_no_token_twice() {
    let mut servers = UnderSentinel::start().await;
    // A replica is chosen only if it lost its primary less than ten of these before the Sentinel
    // did.
    servers.sentinel.cli(&["SENTINEL", "SET", "primary", "down-after-milliseconds", "2000"]);
    let store = servers.store();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(promised.contains("nobody new takes office before the longest TTL"), "{promised}");
    let session = store.open_session(LONG).await.unwrap();
    let lost = store.open_session(LONG).await.unwrap();
    servers.synchronised("{incumbent}:m").await;
    servers.replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    // Else the Sentinel sends it back to its primary.
    let may_be_told = |may: char| {
        let [old_name, name] = ["slaveof", "replicaof"].map(|command| format!("{may}{command}"));
        assert_eq!(servers.replica.cli(&["ACL", "SETUSER", "default", &old_name, &name]), "OK");
    };
    may_be_told('-');
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let newest = held(&lost.enlist(&named("elsewhere"), &entry(2)).await.unwrap());
    servers.primary.kill();
    may_be_told('+');

    let mut told = None;
    until("the replica has taken over", async || {
        told = session.renew(std::slice::from_ref(&leading)).await.ok();
        told.is_some()
    })
    .await;
    assert_eq!(told.unwrap().gone, [leading]);
    let places = std::slice::from_ref(&newest);
    assert_eq!(lost.renew(places).await.unwrap().gone, places);
    let beside = session.enlist(&jobs(), &entry(3)).await;
    assert!(matches!(beside, Err(StoreError::Unavailable { .. })), "beside a leader: {beside:?}");
    // The TTL passes, half of it in each step.
    let pass = format!("-{}", LONG.as_millis());
    for _ in 0..3 {
        servers.replica.cli(&["HINCRBY", "{incumbent}:m", "wall", &pass]);
        session.renew(&[]).await.unwrap();
    }
    let next = session.enlist(&jobs(), &entry(3)).await.unwrap();
    assert_eq!(next.place, Place::Leading(held(&next)));
    assert!(held(&next).token > newest.token, "{next:?} after {newest:?}");
}

/// It takes connections and never answers: each would keep those behind it waiting for three
/// seconds, and together for longer than the leader has.
#[tokio::test]
async fn sentinels_that_hang_cost_no_leader_its_office_and_keep_no_candidate_out() {
    let primary = RedisServer::start().await;
    let [hanging, sentinel] = [(); 2].map(|()| RedisServer::start_sentinel(&primary));
    let (hanging, sentinel) = (hanging.await, sentinel.await);
    let mute = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let mute = mute.each_ref().map(|listener| listener.local_addr().unwrap().to_string()).join(",");
    let url = format!("redis://{},{mute},{}?sentinel=primary", hanging.endpoint(), sentinel.endpoint());
    let ttl = Duration::from_secs(10);
    let connect = async || incumbent::Client::builder().ttl(ttl).connect(&url).await.unwrap();
    let leader = connect().await.election(jobs().as_str()).unwrap();
    let mut candidacy = leader.candidate("ours").stand().await.unwrap();
    let office = within(lead(&mut candidacy)).await;
    let expires = || {
        let sessions = primary.cli(&["ZRANGEBYSCORE", "{incumbent}:s", "-inf", "(+inf", "WITHSCORES"]);
        sessions.lines().nth(1).and_then(|expires| expires.parse::<u64>().ok()).unwrap()
    };

    hanging.pause();
    let before = expires();
    for kind in ["normal", "pubsub"] {
        primary.cli(&["CLIENT", "KILL", "TYPE", kind]);
    }

    let renewed = async || u128::from(expires() - before) > ttl.as_millis();
    let term = office.term();
    tokio::select! {
        lost = term.lost() => panic!("{lost:?}"),
        () = until("it was renewed when its time would have been over", renewed) => {}
    }
    let other = connect().await.election("elsewhere").unwrap();
    within(lead(&mut other.candidate("new").stand().await.unwrap())).await;
    term.check().unwrap();
}

/// The first was cut off from the others: it has not heard of the failover, and cannot decide on
/// one.
#[tokio::test]
async fn a_sentinel_that_names_a_server_which_is_gone_or_no_primary_is_not_the_last_one_asked() {
    let mut primary = RedisServer::start().await;
    let follows = format!("127.0.0.1 {}", primary.port());
    let replica = RedisServer::start_with(&["--replicaof", &follows]).await;
    let stale = RedisServer::start_sentinel(&primary).await;
    assert_eq!(stale.cli(&["SENTINEL", "SET", "primary", "quorum", "2"]), "OK");
    let informed = RedisServer::start_sentinel(&primary).await;
    assert_eq!(informed.cli(&["SENTINEL", "REMOVE", "primary"]), "OK");
    let url = format!("redis://{},{}?sentinel=primary", stale.endpoint(), informed.endpoint());
    let store = RedisStore::from_url(&url).unwrap();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let led = |server: &RedisServer| server.cli(&["HGETALL", "{incumbent}:h"]);
    until("the replica has everything", async || led(&primary) == led(&replica)).await;
    let named = |sentinel: &RedisServer| sentinel.cli(&["SENTINEL", "get-master-addr-by-name", "primary"]);
    let was = named(&stale);

    // Somebody else has replaced it.
    let port = replica.port().to_string();
    assert_eq!(replica.cli(&["REPLICAOF", "NO", "ONE"]), "OK");
    assert_eq!(primary.cli(&["REPLICAOF", "127.0.0.1", &port]), "OK");
    assert_eq!(informed.cli(&["SENTINEL", "MONITOR", "primary", "127.0.0.1", &port, "1"]), "OK");
    renewed(&*session, &leading).await;
    assert_eq!(named(&stale), was, "a replica by now");

    primary.kill();
    let store = RedisStore::from_url(&url).unwrap();
    let other = within(store.open_session(LONG)).await.unwrap();
    let behind = within(other.enlist(&jobs(), &entry(2))).await.unwrap();
    let Place::Behind { ahead, .. } = &behind.place else { panic!("{behind:?}") };
    assert_eq!((ahead.token, named(&stale)), (leading.token, was), "it is gone");
    // Nor is it for news.
    let mut watched = Watched::new(held(&behind), behind.office.version);
    watched.ahead = Some(ahead.id.clone());
    let wake = tokio::spawn(other.watch(&watched, behind.cursor));
    until("it waits", async || store.watches() == 1).await;
    session.withdraw(&leading, None).await.unwrap();
    within(wake).await.unwrap().unwrap();
}

/// Two that know no better, which do not double what is asked of the server.
#[tokio::test]
async fn a_server_that_several_sentinels_name_is_asked_once_and_the_error_says_what_it_was() {
    let primary = RedisServer::start().await;
    let sentinels = [RedisServer::start_sentinel(&primary).await, RedisServer::start_sentinel(&primary).await];
    for sentinel in &sentinels {
        assert_eq!(sentinel.cli(&["SENTINEL", "SET", "primary", "quorum", "3"]), "OK");
    }
    let addresses = sentinels.each_ref().map(RedisServer::endpoint).join(",");
    let store = RedisStore::from_url(&format!("redis://{addresses}?sentinel=primary")).unwrap();
    assert_eq!(primary.cli(&["REPLICAOF", "127.0.0.1", "1"]), "OK");
    let said = within(store.identity()).await.unwrap_err().to_string();
    assert!(said.contains("is a replica") && said.contains(&primary.endpoint()), "{said}");
    // Each dial asks for the types of eight keys, and a Sentinel never does.
    let types = primary.cli(&["INFO", "commandstats"]);
    assert!(types.contains("cmdstat_type:calls=8,"), "{types}");
}

/// A replica that was cut off may take over with what it has, as soon as it is back.
#[tokio::test]
async fn under_sentinels_nothing_is_kept_for_certain_though_no_replica_is_connected() {
    let primary = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let direct = RedisStore::from_url(&primary.url()).unwrap();
    assert_eq!(direct.promises().await.unwrap().tokens, TokenStrength::Durable);
    let sentinel = RedisServer::start_sentinel(&primary).await;
    let store = RedisStore::from_url(&format!("{}?sentinel=primary", sentinel.url())).unwrap();
    let promises = store.promises().await.unwrap();
    assert_ne!(promises.tokens, TokenStrength::Durable);
    assert!(promises.caveats.join(" ").contains("set min-replicas-to-write to 1"), "{promises:?}");
}

#[tokio::test]
async fn a_primary_that_no_sentinel_knows_is_named() {
    let primary = RedisServer::start().await;
    let sentinel = RedisServer::start_sentinel(&primary).await;
    // The first one is not there: the next is asked.
    let url = format!("redis://127.0.0.1:{},{}", free_port(), sentinel.endpoint());
    RedisStore::from_url(&format!("{url}?sentinel=primary")).unwrap().identity().await.unwrap();
    match RedisStore::from_url(&format!("{url}?sentinel=nobody")).unwrap().identity().await {
        Err(error @ StoreError::Unavailable { .. }) => assert!(error.to_string().contains("\"nobody\""), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn sentinels_that_want_a_password_are_given_theirs() {
    let primary = RedisServer::start_with(&["--requirepass", "primarys"]).await;
    let sentinel = RedisServer::start_sentinel(&primary).await;
    let (_, documented) = include_str!("../../src/lib.rs").split_once("At Sentinels a user needs").unwrap();
    let right = documented.split('`').nth(1).unwrap();
    assert_eq!(sentinel.cli(&["ACL", "SETUSER", "asker", "on", ">askers", right]), "OK");
    assert_eq!(sentinel.cli(&["ACL", "SETUSER", "nobody", "on", ">nobodys"]), "OK");
    sentinel.cli(&["ACL", "SETUSER", "default", ">sentinels"]);
    let url = format!("redis://:primarys@{}?sentinel=primary", sentinel.endpoint());
    match RedisStore::from_url(&url).unwrap().identity().await {
        Err(error @ StoreError::Denied { .. }) => assert!(!format!("{error:?}").contains("primarys"), "{error:?}"),
        other => panic!("{other:?}"),
    }
    let without = format!("{url}&sentinel-user=nobody&sentinel-password=nobodys");
    let refused = RedisStore::from_url(&without).unwrap().identity().await;
    assert!(matches!(refused, Err(StoreError::Denied { .. })), "{refused:?}");
    for who in ["sentinel-password=sentinels", "sentinel-user=asker&sentinel-password=askers"] {
        RedisStore::from_url(&format!("{url}&{who}")).unwrap().identity().await.unwrap();
    }
}

#[tokio::test]
async fn several_servers_that_are_no_cluster_are_refused() {
    let (one, other) = (RedisServer::start().await, RedisServer::start().await);
    let store = RedisStore::from_url(&format!("redis://{},{}", one.endpoint(), other.endpoint())).unwrap();
    match store.identity().await {
        Err(StoreError::Misuse { what }) => assert!(what.contains("no member of a cluster"), "{what}"),
        other => panic!("{other:?}"),
    }
}

/// Three members of a cluster, each with a third of the slots.
async fn cluster() -> [RedisServer; 3] {
    let start = async || {
        RedisServer::start_with(&["--cluster-enabled", "yes", "--cluster-port", &free_port().to_string()]).await
    };
    let nodes = [start().await, start().await, start().await];
    for (node, [first, last]) in nodes.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
        assert_eq!(node.cli(&["CLUSTER", "ADDSLOTSRANGE", first, last]), "OK");
    }
    for node in &nodes[1..] {
        let bus = node.cli(&["CONFIG", "GET", "cluster-port"]);
        let bus = bus.lines().last().unwrap();
        assert_eq!(nodes[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), bus]), "OK");
    }
    until("the cluster is whole", async || {
        nodes.iter().all(|node| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    })
    .await;
    nodes
}

/// Which of them keeps this key.
fn owner(nodes: &[RedisServer; 3], key: &str) -> usize {
    let slot: usize = nodes[0].cli(&["CLUSTER", "KEYSLOT", key]).parse().unwrap();
    [0, 5461, 10923].partition_point(|first| *first <= slot) - 1
}

#[tokio::test]
async fn in_a_cluster_the_member_that_keeps_our_keys_is_found_also_when_it_becomes_another() {
    let nodes = cluster().await;
    let slot = nodes[0].cli(&["CLUSTER", "KEYSLOT", "{incumbent}:m"]);
    let slot_owner = owner(&nodes, "{incumbent}:m");
    let [from, to, other] = [0, 1, 2].map(|next| &nodes[(slot_owner + next) % 3]);
    // Those that do not keep them say who does.
    let store = RedisStore::from_url(&format!("redis://{},{}", to.endpoint(), other.endpoint())).unwrap();
    let promises = store.promises().await.unwrap();
    assert_eq!(promises.tokens, TokenStrength::Volatile);
    let promised = promises.caveats.join(" ");
    assert!(promised.contains("cluster-node-timeout") && promised.contains("until it is told"), "{promised}");
    let (session, second) = (store.open_session(TTL * 10).await.unwrap(), store.open_session(TTL * 10).await.unwrap());
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let behind = second.enlist(&jobs(), &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&behind), behind.office.version);
    watched.ahead = Some(leading.entry.clone());
    let wake = tokio::spawn(second.watch(&watched, behind.cursor));

    let ids = [from, to].map(|node| node.cli(&["CLUSTER", "MYID"]));
    to.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]);
    from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]);
    let migrate = |keys: &[&str]| {
        let port = to.port().to_string();
        let keys: Vec<_> = keys.iter().map(|key| format!("{{incumbent}}:{key}")).collect();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        assert_eq!(from.cli(&command), "OK");
    };
    migrate(&["m", "s", "l"]);
    let between = session.withdraw(&leading, None).await;
    assert!(matches!(between, Err(StoreError::Unavailable { .. })), "half of it has moved: {between:?}");
    migrate(&["e", "p", "o", "z", "h"]);
    let between = session.withdraw(&leading, None).await;
    assert!(
        matches!(between, Err(StoreError::Unavailable { .. })),
        "all of it has, and it is not said yet: {between:?}"
    );
    for node in [to, from] {
        assert_eq!(node.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]), "OK");
    }

    // The one that no longer keeps them says so, and the other is asked at once.
    assert_eq!(session.renew(std::slice::from_ref(&leading)).await.unwrap().gone, []);
    let standing = session.standing(&leading, None).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leading.clone()), "nothing was changed");
    // Another server is another history: a candidate that did not lead comes again, with a higher
    // token.
    within(wake).await.unwrap().ok();
    assert_eq!(second.renew(&[]).await.unwrap().stray, []);
    let again = held(&second.enlist(&jobs(), &entry(3)).await.unwrap());
    assert!(again.token > held(&behind).token);
}

/// It subscribes where it was told to, and the others pass on what is published.
#[tokio::test]
async fn an_office_in_a_cluster_changes_hands_though_only_a_member_without_our_keys_is_named() {
    let nodes = cluster().await;
    let slot_owner = owner(&nodes, "{incumbent}:m");
    let (owner, stranger) = (&nodes[slot_owner], &nodes[(slot_owner + 1) % 3]);
    let [first_store, second_store] = [(); 2].map(|()| RedisStore::from_url(&stranger.url()).unwrap());
    let (first, second) =
        (first_store.open_session(LONG).await.unwrap(), second_store.open_session(LONG).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let behind = second.enlist(&jobs(), &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&behind), behind.office.version);
    watched.ahead = Some(leading.entry.clone());
    // The owner knows the script after the first one, which ends at once: what it saw is old.
    let old = Watched::new(held(&behind), Version(1));
    within(second.watch(&old, behind.cursor)).await.unwrap();
    let scripts = || {
        let stats = owner.cli(&["INFO", "commandstats"]);
        let calls = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u32>().ok();
        stats.lines().find_map(calls).unwrap()
    };
    let before = scripts();
    let wake = tokio::spawn(second.watch(&watched, behind.cursor));
    until("it has subscribed, and nothing has changed since", async || scripts() > before).await;

    assert_eq!(first.withdraw(&leading, None).await.unwrap(), Cas::Done);
    within(wake).await.unwrap().unwrap();
    let standing = second.standing(&held(&behind), None).await.unwrap();
    assert_eq!(standing.place, Place::Leading(held(&behind)));
    assert_eq!(stranger.cli(&["DBSIZE"]), "0");
}

/// A mark is where the keys are that it guards, which need not be where the election is.
#[tokio::test]
async fn in_a_cluster_a_leader_raises_a_mark_at_each_member_and_writes_behind_it() {
    let nodes = cluster().await;
    let store = RedisStore::from_url(&format!("redis://{},{}", nodes[0].endpoint(), nodes[1].endpoint())).unwrap();
    // A hash tag of each member's.
    let tag = |node| (0..).map(|tag| format!("{{{tag}}}")).find(|tag| owner(&nodes, tag) == node).unwrap();
    let tags = [tag(0), tag(1), tag(2)];
    let fences = tags.each_ref().map(|tag| RedisFence::new(&store, &jobs(), format!("{tag}:mark")));
    let election = client(&store).await.election(jobs().as_str()).unwrap();
    let candidate = fences.iter().fold(election.candidate("ours"), |ours, fence| ours.fence(Arc::new(fence.clone())));
    let mut candidacy = within(candidate.stand()).await.unwrap();
    let office = within(lead(&mut candidacy)).await;

    let token = office.term().token().clone();
    let newer = FencingToken::new(Token::new(token.token.get() + 1).unwrap(), token.store.clone());
    for ((tag, fence), node) in tags.iter().zip(&fences).zip(&nodes) {
        let set = |tag: &str, value: &str| [RedisWrite::set(format!("{tag}:key"), value)];
        fence.write(&token, set(tag, "led")).await.unwrap();
        fence.raise(&jobs(), newer.clone()).await.unwrap();
        let late = fence.write(&token, set(tag, "late")).await;
        assert!(matches!(late, Err(FenceError::Stale { .. })), "{tag}: {late:?}");
        assert_eq!(node.cli(&["GET", &format!("{tag}:key")]), "led");
        match fence.write(&newer, set("{elsewhere}", "led")).await {
            Err(FenceError::Misuse { what }) => assert!(what.contains("one hash tag"), "{what}"),
            other => panic!("{tag}: {other:?}"),
        }
    }
    office.term().check().unwrap();
}

/// The old primary wakes and has not been told yet: the mark of a term that was made at the new one
/// is raised there, and a write of the term before is refused there.
#[tokio::test]
async fn a_mark_is_raised_where_its_leader_was_made() {
    let servers = UnderSentinel::start().await;
    let store = servers.store();
    let fence = RedisFence::new(&store, &jobs(), "mark");
    // For as long nobody is made a leader at a primary that is new.
    let session = store.open_session(Duration::from_secs(20)).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let of = |held: &Held| FencingToken::new(held.token, session.store_id());
    fence.raise(&jobs(), of(&leading)).await.unwrap();
    servers.synchronised("{incumbent}:h").await;
    let marks = || [&servers.replica, &servers.primary].map(|server| server.cli(&["GET", "mark"]));
    until("the mark is on both", async || marks()[0] == marks()[1]).await;
    assert_eq!(servers.primary.cli(&["ACL", "SETUSER", "default", "-slaveof", "-replicaof"]), "OK");
    servers.primary.pause();
    renewed(&*session, &leading).await;
    servers.primary.resume();

    session.withdraw(&leading, None).await.unwrap();
    let mut next = None;
    until("it leads again", async || {
        session.renew(&[]).await.ok();
        let standing = session.enlist(&jobs(), &entry(2)).await.ok();
        next = standing.filter(|standing| matches!(standing.place, Place::Leading(_)));
        next.is_some()
    })
    .await;
    let next = held(&next.unwrap());
    within(fence.raise(&jobs(), of(&next))).await.unwrap();

    let elsewhere = RedisFence::new(&servers.store(), &jobs(), "mark");
    let late = elsewhere.write(&of(&leading), [RedisWrite::set("key", "late")]).await;
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    fence.write(&of(&next), [RedisWrite::set("key", "led")]).await.unwrap();
    assert_eq!(servers.replica.cli(&["GET", "key"]), "led");
}
