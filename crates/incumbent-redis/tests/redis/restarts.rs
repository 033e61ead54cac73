//! Servers that are killed, lose what was not written, or are replaced by a replica that lags
//! behind: each with what was promised beforehand.

use std::fs::OpenOptions;

use incumbent_redis::RedisStore;
use incumbent_store::{Held, Place, Session, Store, StoreError, TokenStrength};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, TTL, appended, enlisted, entry, held, jobs, named, until, within};

/// A connection that was lost is noticed by the next step, which fails.
async fn renewed(session: &dyn Session, held: &Held) {
    until("the session is renewed", async || match session.renew(std::slice::from_ref(held)).await {
        Ok(renewal) => {
            assert_eq!(renewal.gone, []);
            true
        }
        Err(StoreError::Unavailable { .. }) => false,
        Err(other) => panic!("{other:?}"),
    })
    .await;
}

#[tokio::test]
async fn a_leader_outlives_a_server_that_is_killed_and_those_behind_it_come_again() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Durable);
    let (first, second) = (store.open_session(LONG).await.unwrap(), store.open_session(LONG).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let waiting = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());

    server.restart().await;

    renewed(&*first, &leading).await;
    assert_eq!(first.standing(&leading, None).await.unwrap().place, Place::Leading(leading.clone()));
    assert_eq!(first.store_id(), store.identity().await.unwrap(), "it is the same store");
    assert_eq!(second.renew(std::slice::from_ref(&waiting)).await.unwrap().gone, std::slice::from_ref(&waiting));
    let again = held(&second.enlist(&jobs(), &entry(3)).await.unwrap());
    assert!(again.token > waiting.token);
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries.len(), 2, "the leader is known");
}

#[tokio::test]
async fn nobody_takes_office_before_a_leader_that_may_be_forgotten_has_given_up() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes"]).await;
    let store = Redis::on(&server).open();
    store.identity().await.unwrap();
    server.restart().await;
    until("it answers", async || store.identity().await.is_ok()).await;
    let session = store.open_session(TTL).await.unwrap();
    for refused in [session.enlist(&jobs(), &entry(1)).await.map(drop), store.line(&jobs(), 9).await.map(drop)] {
        match refused {
            Err(error @ StoreError::Unavailable { .. }) => {
                assert!(error.to_string().contains("takes office for another"), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }
    enlisted(&*session).await;
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries.len(), 1);
}

async fn takes_office(session: &dyn Session, held: &Held) {
    until("it takes office", async || {
        session.renew(&[]).await.unwrap();
        matches!(session.standing(held, None).await, Ok(standing) if matches!(standing.place, Place::Leading(_)))
    })
    .await;
}

#[tokio::test]
async fn tokens_grow_over_a_power_failure_that_lost_the_newest_of_them() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    assert_eq!(store.promises().await.unwrap().tokens, TokenStrength::Volatile);
    let before = store.identity().await.unwrap();
    let length = std::fs::metadata(appended(&server)).unwrap().len();
    let mut newest = None;
    for number in 0..100 {
        let session = store.open_session(LONG).await.unwrap();
        newest = newest.max(Some(held(&session.enlist(&jobs(), &entry(number)).await.unwrap()).token));
    }
    server.kill();
    // What the power failure took with it.
    OpenOptions::new().write(true).open(appended(&server)).unwrap().set_len(length).unwrap();
    server.restart().await;

    let store = redis.open();
    assert_eq!(store.identity().await.unwrap(), before, "the same store, as far as it knows");
    let session = store.open_session(TTL).await.unwrap();
    let next = enlisted(&*session).await;
    assert!(Some(next.token) > newest, "{next:?} after {newest:?}");
}

/// What one asks for on a connection that may have been lost: it is made again.
async fn answered<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut answer = None;
    until("it answers", async || {
        answer = Some(ask().await).filter(|answer| !matches!(answer, Err(StoreError::Unavailable { .. })));
        answer.is_some()
    })
    .await;
    answer.unwrap()
}

#[tokio::test]
async fn who_is_lost_in_a_power_failure_is_told_and_nobody_leads_beside_it() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    for part in ["loses up to a second of writes", "nobody new takes office before the longest TTL"] {
        assert!(promised.contains(part), "{promised}");
    }
    let kept = store.open_session(LONG).await.unwrap();
    let leads = held(&kept.enlist(&named("kept"), &entry(1)).await.unwrap());
    let length = std::fs::metadata(appended(&server)).unwrap().len();
    let lost = store.open_session(LONG).await.unwrap();
    let leading = held(&lost.enlist(&jobs(), &entry(2)).await.unwrap());
    let lost_place = held(&kept.enlist(&named("lost"), &entry(3)).await.unwrap());
    server.kill();
    OpenOptions::new().write(true).open(appended(&server)).unwrap().set_len(length).unwrap();
    server.restart().await;

    let places = [leads.clone(), lost_place.clone()];
    let renewal = answered(async || kept.renew(&places).await).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![lost_place], vec![]), "who is known is told what was lost");
    let standing = kept.standing(&leads, None).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leads), "and goes on with what was not");
    let told = [lost.renew(&[]).await.map(drop), lost.standing(&leading, None).await.map(drop)];
    assert!(told.iter().all(|told| matches!(told, Err(StoreError::SessionGone))), "{told:?}");
    let beside = kept.enlist(&jobs(), &entry(4)).await;
    assert!(matches!(beside, Err(StoreError::Unavailable { .. })), "beside {leading:?}: {beside:?}");
}

#[tokio::test]
async fn a_server_that_writes_nothing_down_is_another_store_after_a_restart() {
    let mut server = RedisServer::start().await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let session = store.open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    server.restart().await;
    until("it answers", async || store.identity().await.is_ok()).await;
    assert_ne!(store.identity().await.unwrap(), session.store_id());
    assert!(matches!(session.renew(&[]).await, Err(StoreError::SessionGone)));
    let session = store.open_session(TTL).await.unwrap();
    let next = enlisted(&*session).await;
    assert!(next.token > leading.token, "{next:?} after {leading:?}");
}

/// The leader believes for a TTL that it leads, and the server has forgotten all about it.
#[tokio::test]
async fn nobody_takes_office_at_once_on_an_emptied_server_where_a_store_was_known() {
    let mut server = RedisServer::start().await;
    let redis = Redis::on(&server);
    let (store, fresh) = (redis.open(), redis.open());
    let leader = store.open_session(LONG).await.unwrap();
    let elected = leader.enlist(&jobs(), &entry(1)).await.unwrap();
    assert!(matches!(elected.place, Place::Leading(_)));
    for first_knows in [true, false] {
        server.restart().await;
        if !first_knows {
            fresh.identity().await.unwrap();
        }
        until("one has come who knows it", async || store.identity().await.is_ok()).await;
        let next = redis.open().open_session(LONG).await.unwrap();
        let second = next.enlist(&jobs(), &entry(2)).await;
        assert!(matches!(second, Err(StoreError::Unavailable { .. })), "beside {elected:?}: {second:?}");
        let line = store.line(&jobs(), 9).await;
        assert!(matches!(line, Err(StoreError::Unavailable { .. })), "nobody can say who leads: {line:?}");
    }
    // Where nobody knew of a store, there is no reason to wait.
    server.restart().await;
    let session = redis.open().open_session(LONG).await.unwrap();
    assert!(matches!(session.enlist(&jobs(), &entry(3)).await.unwrap().place, Place::Leading(_)));
}

/// A primary, a replica that has everything, and a store that reaches the primary through a proxy.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    proxy: Proxy,
    redis: Redis,
}

impl Pair {
    async fn start() -> Pair {
        let primary = RedisServer::start().await;
        let follows = format!("127.0.0.1 {}", primary.port());
        let replica = RedisServer::start_with(&["--replicaof", &follows]).await;
        let proxy = Proxy::start(&primary.endpoint()).await;
        let redis = Redis::at(&proxy.endpoint());
        let pair = Pair { primary, replica, proxy, redis };
        pair.synchronised().await;
        pair
    }

    async fn synchronised(&self) {
        let offset = |server: &RedisServer, field: &str| {
            let info = server.cli(&["INFO", "replication"]);
            info.lines().find_map(|line| line.strip_prefix(field)).map(|offset| offset.trim().to_owned())
        };
        until("the replica has everything", async || {
            let link = offset(&self.replica, "master_link_status:").as_deref() == Some("up");
            link && offset(&self.primary, "master_repl_offset:") == offset(&self.replica, "slave_repl_offset:")
        })
        .await;
    }

    /// From now on the replica hears nothing.
    fn cut_off(&self) {
        self.replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    }

    fn promote(&self) {
        self.replica.cli(&["REPLICAOF", "NO", "ONE"]);
        self.proxy.turn_to(&self.replica.endpoint());
    }

    /// A client of the old primary that has heard of nothing.
    fn left_behind(&self) -> RedisStore {
        self.redis.moved_to(&self.primary.endpoint()).open()
    }
}

/// One that has met its successor, and is led back to it, by an old address for example: what is
/// missing there was not taken away.
#[tokio::test]
async fn a_replaced_primary_is_left_by_who_knows_of_its_successor_and_not_founded_anew() {
    let pair = Pair::start().await;
    let old = pair.left_behind();
    let first = old.open_session(LONG).await.unwrap();
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let store = pair.redis.open();
    let second = store.open_session(LONG).await.unwrap();
    pair.synchronised().await;
    pair.promote();
    for way in [Way::Cut, Way::Forward] {
        pair.proxy.set(way);
    }
    until("it is met", async || second.renew(&[]).await.is_ok()).await;
    // Fresh ones, and those that only read, know of it as well as those that have moved over.
    let (opened, seen) = (pair.redis.open(), pair.redis.open());
    answered(async || opened.open_session(LONG).await).await.unwrap();
    answered(async || seen.identity().await).await.unwrap();

    pair.proxy.turn_to(&pair.primary.endpoint());
    for way in [Way::Cut, Way::Forward] {
        pair.proxy.set(way);
    }
    let identity = old.identity().await.unwrap();
    for store in [&store, &opened, &seen] {
        until("it is told", async || match store.identity().await {
            Err(error) => error.to_string().contains("another primary has gone on"),
            Ok(identity) => panic!("{identity:?}"),
        })
        .await;
    }
    assert_eq!(old.identity().await.unwrap(), identity);
    assert_eq!(first.renew(std::slice::from_ref(&leading)).await.unwrap().gone, []);
}

/// What it would answer is old, and a step that writes nothing it could make.
#[tokio::test]
async fn a_replica_answers_no_step_of_a_session_whose_connection_ends_up_there() {
    let pair = Pair::start().await;
    let session = pair.redis.open().open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    session.renew(&[]).await.unwrap();
    pair.synchronised().await;
    let steps = async || {
        let places = std::slice::from_ref(&leading);
        [
            session.standing(&leading, None).await.map(drop),
            session.renew(places).await.map(drop),
            session.enlist(&named("elsewhere"), &entry(2)).await.map(drop),
            session.withdraw(&leading, None).await.map(drop),
            session.close().await,
        ]
    };
    // One that takes no writes says so by itself, and one that does has to be asked.
    for (is_read_only, says) in [("yes", "read only replica"), ("no", "INCREPLICA")] {
        pair.replica.cli(&["CONFIG", "SET", "replica-read-only", is_read_only]);
        pair.proxy.turn_to(&pair.replica.endpoint());
        let mut answers = steps().await;
        until("the replica is asked", async || {
            answers = steps().await;
            answers.iter().all(|answer| format!("{answer:?}").contains(says))
        })
        .await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(StoreError::Unavailable { .. }))), "{answers:?}");
    }
    // Nothing was changed meanwhile.
    pair.proxy.turn_to(&pair.primary.endpoint());
    renewed(&*session, &leading).await;
    assert_eq!(session.standing(&leading, None).await.unwrap().place, Place::Leading(leading));
}

#[tokio::test]
async fn a_replica_that_lags_behind_and_takes_over_gives_no_token_twice_and_makes_no_second_leader() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let waiting = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    pair.synchronised().await;
    pair.cut_off();
    // What the replica never hears of: the leader leaves, and the next one takes office.
    let old = pair.left_behind();
    first.withdraw(&leading, None).await.unwrap();
    let lost = old.open_session(TTL).await.unwrap();
    let elected = second.standing(&waiting, None).await.unwrap();
    assert_eq!(elected.place, Place::Leading(waiting.clone()));
    let last = held(&lost.enlist(&jobs(), &entry(3)).await.unwrap());

    pair.promote();

    // The new primary knows the old leader, who knows better, and not that the next one leads.
    until("the connection is made again", async || second.renew(&[]).await.is_ok()).await;
    assert_eq!(second.renew(std::slice::from_ref(&waiting)).await.unwrap().gone, std::slice::from_ref(&waiting));
    assert_eq!(first.renew(&[]).await.unwrap().stray, std::slice::from_ref(&leading));
    first.withdraw(&leading, None).await.unwrap();
    let third = store.open_session(TTL).await.unwrap();
    // Meanwhile the one who leads may still believe so: nobody is elected.
    let refused = third.enlist(&jobs(), &entry(4)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    let shown = store.line(&jobs(), 9).await;
    assert!(matches!(shown, Err(StoreError::Unavailable { .. })), "nobody can say who leads: {shown:?}");
    // Whatever the old primary still gives is below all that the new one gives.
    let late = held(&lost.enlist(&named("late"), &entry(5)).await.unwrap());
    let next = enlisted(&*third).await;
    assert!(next.token > last.token.max(late.token), "after {last:?} and {late:?}");
}

/// The new primary knows the leader that has left, and not the one that leads. Whoever stands
/// behind the first moves up only when the second has given up.
#[tokio::test]
async fn nobody_moves_up_behind_a_known_leader_while_a_forgotten_one_may_be_in_office() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    let (first, second) = (store.open_session(LONG).await.unwrap(), store.open_session(LONG).await.unwrap());
    let left = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let forgotten = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    pair.synchronised().await;
    pair.cut_off();
    first.withdraw(&left, None).await.unwrap();
    let elected = second.standing(&forgotten, None).await.unwrap();
    assert_eq!(elected.place, Place::Leading(forgotten.clone()));
    pair.promote();

    let mut third = None;
    until("the connection is made again", async || {
        third = store.open_session(LONG).await.ok();
        third.is_some()
    })
    .await;
    let third = third.unwrap();
    let behind = third.enlist(&jobs(), &entry(3)).await.unwrap();
    assert!(matches!(behind.place, Place::Behind { .. }), "{behind:?}");
    first.withdraw(&left, None).await.unwrap();
    let next = held(&behind);
    let early = third.standing(&next, None).await;
    assert!(matches!(early, Err(StoreError::Unavailable { .. })), "beside {elected:?}: {early:?}");
    // The TTL passes, half of it in each step.
    let pass = format!("-{}", LONG.as_millis());
    for _ in 0..3 {
        pair.replica.cli(&["HINCRBY", &pair.redis.key("m"), "wall", &pass]);
        third.renew(&[]).await.unwrap();
    }
    assert_eq!(third.standing(&next, None).await.unwrap().place, Place::Leading(next));
}

#[tokio::test]
async fn a_failover_costs_neither_the_leader_its_office_nor_a_session_its_life() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    pair.synchronised().await;
    pair.cut_off();
    pair.replica.cli(&["REPLICAOF", "NO", "ONE"]);
    // Its time has passed, as far as the new primary knows: the last renewals may be lost.
    let (meta, sessions) = (pair.redis.key("m"), pair.redis.key("s"));
    let clock = pair.replica.cli(&["HGET", &meta, "clock"]);
    let name = pair.replica.cli(&["ZRANGE", &sessions, "0", "0"]);
    assert_eq!(pair.replica.cli(&["ZADD", &sessions, "XX", "CH", &clock, &name]), "1");
    pair.proxy.turn_to(&pair.replica.endpoint());
    renewed(&*session, &leading).await;
    let standing = within(session.standing(&leading, None)).await.unwrap();
    assert_eq!(standing.place, Place::Leading(leading));
}

/// The first was told that it leads, stood still for longer than its TTL, and the primary elected
/// the second. The replica that takes over knows neither; the second believes for a TTL that it
/// leads.
#[tokio::test]
async fn one_whose_time_had_passed_is_not_revived_by_a_failover_to_lead_beside_its_successor() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    let first = store.open_session(TTL).await.unwrap();
    let old = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    pair.synchronised().await;
    pair.cut_off();
    let second = store.open_session(LONG).await.unwrap();
    let new = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    takes_office(&*second, &new).await;
    assert!(new.token > old.token);

    pair.promote();

    let mut answer = None;
    until("the connection is made again", async || {
        answer = Some(first.standing(&old, None).await);
        !matches!(answer, Some(Err(StoreError::Unavailable { .. })))
    })
    .await;
    assert!(matches!(answer, Some(Err(StoreError::SessionGone))), "{old:?} after {new:?}: {answer:?}");
}

/// What was sent before a change of history says nothing about the time after it.
#[tokio::test]
async fn a_message_that_was_under_way_for_a_ttl_does_not_show_that_its_session_was_renewed_in_time() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let session = Redis::at(&proxy.endpoint()).open().open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    proxy.set(Way::Stall);
    let meanwhile = async {
        // How long it is under way.
        tokio::time::sleep(TTL).await;
        server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
        server.cli(&["REPLICAOF", "NO", "ONE"]);
        proxy.set(Way::Forward);
    };
    let (late, ()) = tokio::join!(session.standing(&leading, None), meanwhile);
    assert!(matches!(late, Err(StoreError::SessionGone)), "{late:?}");
}

/// The one session, or the one in this election: the TTL of those who ask is the best that is
/// known.
#[tokio::test]
async fn nobody_takes_office_at_once_where_the_one_session_is_forgotten() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    store.identity().await.unwrap();
    pair.synchronised().await;
    pair.cut_off();
    let forgotten = store.open_session(LONG).await.unwrap();
    let elected = forgotten.enlist(&jobs(), &entry(1)).await.unwrap();
    assert!(matches!(elected.place, Place::Leading(_)));
    pair.promote();
    let mut next = None;
    until("the connection is made again", async || {
        next = store.open_session(LONG).await.ok();
        next.is_some()
    })
    .await;
    let second = next.unwrap().enlist(&jobs(), &entry(2)).await;
    assert!(matches!(second, Err(StoreError::Unavailable { .. })), "beside {elected:?}: {second:?}");
}

/// The replica knows of sessions with a short TTL only, and that there were longer ones.
#[tokio::test]
async fn nobody_takes_office_before_a_forgotten_leader_with_a_longer_ttl_has_given_up() {
    let pair = Pair::start().await;
    let store = pair.redis.open();
    store.open_session(LONG).await.unwrap().close().await.unwrap();
    let known = store.open_session(TTL).await.unwrap();
    pair.synchronised().await;
    pair.cut_off();
    let forgotten = store.open_session(LONG).await.unwrap();
    let elected = forgotten.enlist(&jobs(), &entry(1)).await.unwrap();
    assert!(matches!(elected.place, Place::Leading(_)));
    pair.promote();
    until("a session is opened", async || store.open_session(TTL).await.is_ok()).await;
    let (meta, pass) = (pair.redis.key("m"), format!("-{}", TTL.as_millis()));
    drop(known);
    // Several times the short TTL passes, half of it in each step, and far less than the long one.
    for _ in 0..6 {
        pair.replica.cli(&["HINCRBY", &meta, "wall", &pass]);
        store.identity().await.unwrap();
    }
    let late = store.open_session(TTL).await.unwrap();
    let second = late.enlist(&jobs(), &entry(2)).await;
    assert!(matches!(second, Err(StoreError::Unavailable { .. })), "beside {elected:?}: {second:?}");
}

/// The first replica is lost before the second has heard of it: both go on from one change, of
/// which a store this young is so near to the wall clock that the leap alone would be the same.
#[tokio::test]
async fn two_replicas_that_take_over_from_the_same_change_give_no_token_twice() {
    let mut primary = RedisServer::start().await;
    let redis = Redis::on(&primary);
    let id = redis.open().identity().await.unwrap();
    let follows = format!("127.0.0.1 {}", primary.port());
    let start = async || RedisServer::start_with(&["--replicaof", &follows]).await;
    let replicas = [start().await, start().await];
    for replica in &replicas {
        until("it follows", async || replica.cli(&["HGET", &redis.key("m"), "id"]) == id.as_str()).await;
        replica.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    }
    primary.kill();
    let mut newest = None;
    for replica in &replicas {
        replica.cli(&["REPLICAOF", "NO", "ONE"]);
        let session = redis.moved_to(&replica.endpoint()).open().open_session(TTL).await.unwrap();
        assert_eq!(session.store_id(), id);
        let next = enlisted(&*session).await.token;
        assert!(Some(next) > newest, "{next:?} after {newest:?}");
        newest = Some(next);
    }
}
