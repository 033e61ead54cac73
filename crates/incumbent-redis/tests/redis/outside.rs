//! What others do to our keys, and servers that are not what they were.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, TryFutureExt, join_all};
use incumbent::{CandidacyError, Observation};
use incumbent_store::{Cas, Head, Office, Paused, Place, Publication, Standing, Store, StoreError, Version, Watched};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, TTL, client, enlisted, entry, held, jobs, lead, named, shared, until, within};

pub(crate) const KEYS: [&str; 8] = ["m", "s", "l", "e", "p", "o", "z", "h"];

#[tokio::test]
async fn each_key_that_is_deleted_founds_the_store_anew_and_every_session_is_told() {
    join_all(KEYS.map(without_key)).await;
}

async fn without_key(key: &str) {
    let server = shared().await;
    let redis = Redis::on(server);
    let (store, other) = (redis.open(), redis.open());
    let promised = store.promises().await.unwrap().caveats.join(" ");
    let said = "A store any of whose keys is deleted (DEL, FLUSHALL, eviction) is founded anew (store_reset), and nobody \
                takes office before the longest TTL that is left in the others has passed, nor before the candidate's own \
                has.";
    assert!(promised.contains(said), "{promised}");
    let before = store.identity().await.unwrap();
    let session = store.open_session(TTL).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    assert_eq!(server.cli(&["DEL", &redis.key(key)]), "1", "{key}");

    let late = other.open_session(TTL).await.unwrap();
    let beside = late.enlist(&jobs(), &entry(2)).await;
    assert!(matches!(beside, Err(StoreError::Unavailable { .. })), "{key}: the leader has not been told: {beside:?}");
    let newer = enlisted(&*late).await;
    assert!(newer.token > leading.token, "{key}: tokens grow all the same");
    assert_ne!(late.store_id(), before, "{key}");
    assert_eq!(other.line(&jobs(), 9).await.unwrap().entries.len(), 1, "{key}: nothing is left of what was");

    let renewed = session.renew(std::slice::from_ref(&leading)).await;
    assert!(matches!(renewed, Err(StoreError::SessionGone)), "{key}: {renewed:?}");
    let standing = session.standing(&leading, None).await;
    assert!(matches!(standing, Err(StoreError::SessionGone)), "{key}: {standing:?}");
    let woken = session.watch(&Watched::new(leading.clone(), Default::default()), Default::default());
    within(woken).await.unwrap();
    assert_eq!(session.withdraw(&leading, None).await.unwrap(), Cas::Done, "{key}: it is certainly gone");
    session.close().await.unwrap();
    assert_eq!(store.identity().await.unwrap(), late.store_id(), "{key}");
}

#[tokio::test]
async fn a_founding_waits_for_the_longest_ttl_that_it_finds_in_what_was_left() {
    let server = shared().await;
    for key in ["m", "p", "h"] {
        let redis = Redis::on(server);
        redis.open().open_session(LONG).await.unwrap().enlist(&jobs(), &entry(1)).await.unwrap();
        assert_eq!(server.cli(&["DEL", &redis.key(key)]), "1", "{key}");
        let store = redis.open();
        store.identity().await.unwrap();
        // More than the short TTL passes, and far less than the long one.
        server.cli(&["HINCRBY", &redis.key("m"), "wall", &format!("-{}", 2 * TTL.as_millis())]);
        let late = store.open_session(TTL).await.unwrap();
        let beside = late.enlist(&jobs(), &entry(2)).await;
        assert!(matches!(beside, Err(StoreError::Unavailable { .. })), "{key}: {beside:?}");
    }
    // Where it finds none, for that of the one who asks.
    let redis = Redis::on(server);
    redis.open().open_session(LONG).await.unwrap().enlist(&jobs(), &entry(1)).await.unwrap();
    assert_eq!(server.cli(&["DEL", &redis.key("m"), &redis.key("p")]), "2");
    let beside = redis.open().open_session(LONG).await.unwrap().enlist(&jobs(), &entry(2)).await;
    assert!(matches!(beside, Err(StoreError::Unavailable { .. })), "{beside:?}");
}

#[tokio::test]
async fn an_old_copy_that_is_put_back_into_a_running_server_is_not_believed() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let session = store.open_session(TTL).await.unwrap();
    let before = session.store_id();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(
        promised.contains("put back into a running server (RESTORE) founds it anew if it is the counter's"),
        "{promised}"
    );
    server.cli(&["COPY", &redis.key("m"), &redis.key("copy")]);
    let drawn = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    server.cli(&["COPY", &redis.key("copy"), &redis.key("m"), "REPLACE"]);

    assert_ne!(store.identity().await.unwrap(), before);
    assert!(matches!(session.renew(&[]).await, Err(StoreError::SessionGone)));
    let session = store.open_session(TTL).await.unwrap();
    let next = enlisted(&*session).await;
    assert!(next.token > drawn.token, "{next:?} after {drawn:?}");
}

#[tokio::test]
async fn old_copies_of_all_keys_are_noticed_by_one_who_knew_the_newer_ones() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(
        promised.contains("put back together, are noticed only when one asks who knew the newer ones"),
        "{promised}"
    );
    let session = store.open_session(TTL).await.unwrap();
    let copy = |key: &str| redis.key(&format!("copy-{key}"));
    for key in KEYS {
        server.cli(&["COPY", &redis.key(key), &copy(key)]);
    }
    let drawn = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    for key in KEYS {
        assert_eq!(server.cli(&["COPY", &copy(key), &redis.key(key), "REPLACE"]), "1", "{key}");
    }
    // One who comes fresh is shown the old store.
    assert_eq!(redis.open().identity().await.unwrap(), session.store_id());

    assert_ne!(store.identity().await.unwrap(), session.store_id());
    assert!(matches!(session.renew(&[]).await, Err(StoreError::SessionGone)));
    let next = enlisted(&*store.open_session(TTL).await.unwrap()).await;
    assert!(next.token > drawn.token, "{next:?} after {drawn:?}");
}

/// Who knows nothing of the store cannot tell that its counter went back.
#[tokio::test]
async fn an_old_counter_that_is_put_back_gives_one_who_comes_fresh_no_number_a_second_time() {
    let server = shared().await;
    for drawn_by in ["open", "enlist", "publish", "set_office"] {
        let redis = Redis::on(server);
        let store = redis.open();
        let session = store.open_session(TTL).await.unwrap();
        let standing = session.enlist(&named("kept"), &entry(1)).await.unwrap();
        server.cli(&["COPY", &redis.key("m"), &redis.key("copy")]);
        let mut newest = None;
        // More than a fresh client draws before it is in line.
        for number in 0..5 {
            match drawn_by {
                "open" => drop(store.open_session(TTL).await.unwrap()),
                "enlist" => {
                    let drawn = held(&session.enlist(&jobs(), &entry(number)).await.unwrap());
                    session.withdraw(&drawn, None).await.unwrap();
                    newest = Some(drawn.token);
                }
                "publish" => {
                    let publication = Publication::new(format!("{number}"));
                    let was = store.line(&named("kept"), 1).await.unwrap().entries[0].version;
                    session.publish(&held(&standing), was, &publication).await.unwrap().unwrap();
                }
                _ => {
                    let was = store.line(&jobs(), 1).await.unwrap().office.version;
                    let paused = Office::default().with_paused(Paused::new(number.to_string().as_str()));
                    assert_eq!(store.set_office(&jobs(), was, &paused).await.unwrap(), Cas::Done);
                }
            }
        }
        server.cli(&["COPY", &redis.key("copy"), &redis.key("m"), "REPLACE"]);

        let fresh = redis.open().open_session(TTL).await.unwrap();
        assert_ne!(fresh.store_id(), session.store_id(), "{drawn_by}: another store, and so it is told");
        assert!(matches!(session.renew(&[]).await, Err(StoreError::SessionGone)), "{drawn_by}");
        let next = enlisted(&*fresh).await;
        assert!(Some(next.token) > newest, "{drawn_by}: {next:?} after {newest:?}");
    }
}

/// A leader that came after an old copy of `key` was taken, and another candidate that comes when
/// it has been put back. `knew`: the leader's session was there before.
async fn forgotten_by(key: &str, knew: bool) -> (bool, bool) {
    let redis = Redis::on(shared().await);
    let store = redis.open();
    let before = store.open_session(LONG).await.unwrap();
    let left = held(&before.enlist(&jobs(), &entry(1)).await.unwrap());
    let known = store.open_session(LONG).await.unwrap();
    shared().await.cli(&["COPY", &redis.key(key), &redis.key("copy")]);
    before.withdraw(&left, None).await.unwrap();
    let leader = if knew { known } else { store.open_session(LONG).await.unwrap() };
    let leading = held(&leader.enlist(&jobs(), &entry(2)).await.unwrap());
    shared().await.cli(&["COPY", &redis.key("copy"), &redis.key(key), "REPLACE"]);

    let newcomer = redis.open().open_session(LONG).await.unwrap();
    let place = newcomer.enlist(&jobs(), &entry(3)).await.unwrap();
    let leads = |standing: &Standing| matches!(standing.place, Place::Leading(_));
    let told = match leader.renew(std::slice::from_ref(&leading)).await {
        Ok(renewal) => renewal.gone == [leading.clone()],
        Err(StoreError::SessionGone) => true,
        other => panic!("{key}: {other:?}"),
    };
    let still_leads = leader.standing(&leading, None).await.is_ok_and(|standing| leads(&standing));
    assert_eq!(still_leads, !told, "{key}: a standing says the same as a renewal");
    if leads(&place) && knew {
        // It comes again, behind the other.
        let Err(StoreError::AlreadyInLine(old)) = leader.enlist(&jobs(), &entry(4)).await else { panic!("{key}") };
        assert_eq!(leader.withdraw(&old, None).await.unwrap(), Cas::Done);
        assert!(!leads(&leader.enlist(&jobs(), &entry(4)).await.unwrap()), "{key}");
        assert!(leads(&newcomer.standing(&held(&place), None).await.unwrap()), "{key}");
    }
    if told && !leads(&place) {
        // Who is shown as the first one is nobody's.
        let shown = store.line(&jobs(), 1).await.unwrap().entries.remove(0);
        assert!(shown.is(&leading), "{key}: {shown:?}");
        assert_eq!(store.evict(&jobs(), &shown).await.unwrap(), Cas::Done);
        assert!(leads(&newcomer.standing(&held(&place), None).await.unwrap()), "{key}");
    }
    (leads(&place), told)
}

#[tokio::test]
async fn a_leader_that_an_old_copy_of_a_key_has_forgotten_is_told_by_its_next_renewal() {
    let promised = Redis::on(shared().await).open().promises().await.unwrap().caveats.join(" ");
    let says = |what: &str| assert!(promised.contains(what), "{what}: {promised}");
    says("orders may be undone in silence (key o)");
    for key in ["o", "z", "h"] {
        for knew in [true, false] {
            assert_eq!(forgotten_by(key, knew).await, (false, false), "{key}: whoever leads goes on");
        }
    }
    says("a leader may be forgotten (s, l, e): another may lead beside it until its next renewal, which tells it");
    for (key, knew) in [("s", false), ("l", true), ("l", false), ("e", true), ("e", false)] {
        assert_eq!(forgotten_by(key, knew).await, (true, true), "{key}");
    }
    says("or be told and shown all the same (p), and nobody leads until it is deposed or its session ends");
    for knew in [true, false] {
        assert_eq!(forgotten_by("p", knew).await, (false, true));
    }
}

/// The last place of a page may be the one.
#[tokio::test]
async fn a_place_that_is_in_no_line_any_more_hides_none_of_those_behind_it() {
    let server = shared().await;
    let redis = Redis::on(server);
    let session = redis.open().open_session(LONG).await.unwrap();
    let mut places = Vec::new();
    for number in 0..502 {
        places.push(held(&session.enlist(&named(&format!("jobs/{number:03}")), &entry(1)).await.unwrap()));
    }
    assert_eq!(session.renew(&places).await.unwrap().gone, []);
    let out = &places[499];
    let script = format!("return redis.call('ZREM', KEYS[1], \"{}\\000{}\")", out.election, out.entry.as_str());
    assert_eq!(server.cli(&["EVAL", &script, "1", &redis.key("l")]), "1");
    let renewal = session.renew(&places).await.unwrap();
    assert_eq!((renewal.gone.as_slice(), renewal.stray), (std::slice::from_ref(out), Vec::new()));
}

/// Orders may be undone then, and leaders forgotten. But a fence lets none of them in.
#[tokio::test]
async fn an_old_copy_of_any_other_key_gives_no_token_twice() {
    let server = shared().await;
    for key in &KEYS[1..] {
        let redis = Redis::on(server);
        let store = redis.open();
        let promised = store.promises().await.unwrap().caveats.join(" ");
        assert!(promised.contains("With that of another no token comes again"), "{promised}");
        let session = store.open_session(TTL).await.unwrap();
        let kept = held(&session.enlist(&named("kept"), &entry(1)).await.unwrap());
        server.cli(&["COPY", &redis.key(key), &redis.key("copy")]);
        let other = store.open_session(TTL).await.unwrap();
        let left = held(&other.enlist(&jobs(), &entry(2)).await.unwrap());
        other.withdraw(&left, None).await.unwrap();
        let last = held(&other.enlist(&jobs(), &entry(3)).await.unwrap());
        server.cli(&["COPY", &redis.key("copy"), &redis.key(key), "REPLACE"]);

        let fresh = redis.open().open_session(TTL).await.unwrap();
        let next = enlisted(&*fresh).await;
        assert!(next.token > last.token.max(kept.token), "{key}: {next:?} after {last:?}");
        let again = enlisted(&*store.open_session(TTL).await.unwrap()).await;
        assert!(again.token > next.token, "{key}: {again:?} after {next:?}");
    }
}

/// A script is not rolled back: what it cannot read it finds out before it writes.
#[tokio::test]
async fn a_step_that_meets_a_damaged_entry_changes_nothing() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let standing = session.enlist(&jobs(), &entry(1)).await.unwrap();
    let leading = held(&standing);
    let (entries, led) = (redis.key("e"), redis.key("h"));
    let entry = format!("{}\\000{}", jobs(), leading.entry.as_str());
    // Names with a byte that no argument of a command can have.
    let eval =
        |script: &str, key: &str| server.cli(&["EVAL", &format!("local entry = \"{entry}\" {script}"), "1", key]);
    let counter = || server.cli(&["HGET", &redis.key("m"), "change"]);
    eval("redis.call('HSET', KEYS[1], entry, string.sub(redis.call('HGET', KEYS[1], entry), 1, 16))", &entries);
    let before = counter();
    let publication = Publication::new("said");
    let published = session.publish(&leading, standing.published, &publication).await;
    assert!(published.is_err(), "{published:?}");
    assert_eq!(counter(), before, "nothing was drawn");

    assert_eq!(eval("return redis.call('HDEL', KEYS[1], entry)", &entries), "1");
    assert_eq!(server.cli(&["HDEL", &led, jobs().as_str()]), "1");
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries, []);
    assert_eq!(session.standing(&leading, None).await.unwrap().place, Place::Gone);
    assert_eq!(server.cli(&["HEXISTS", &led, jobs().as_str()]), "0", "it was not told that it leads");
}

/// What is in these keys but for the store's clock, in short.
pub(crate) fn content(server: &RedisServer, redis: &Redis, keys: &[&str]) -> String {
    // A large hash has no order.
    let script = "local all = {}
        for _, key in ipairs(KEYS) do
          local kind = redis.call('TYPE', key).ok
          if string.sub(key, -2) == ':m' then
            table.insert(all, table.concat(redis.call('HMGET', key, 'id', 'change', 'lineage', 'hold', 'longest'), ' '))
          elseif kind == 'hash' then
            for _, field in ipairs(redis.call('HKEYS', key)) do
              table.insert(all, key .. field .. '=' .. redis.call('HGET', key, field))
            end
          else
            table.insert(all, key .. table.concat(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'), ' '))
          end
        end
        table.sort(all)
        return redis.sha1hex(table.concat(all, ' '))";
    let (count, keys) = (keys.len().to_string(), keys.iter().map(|key| redis.key(key)).collect::<Vec<_>>());
    let keys = keys.iter().map(String::as_str);
    server.cli(&["EVAL", script, &count].into_iter().chain(keys).collect::<Vec<_>>())
}

type Made<'a> = BoxFuture<'a, Result<(), StoreError>>;

/// Types are looked at with every new connection. Meanwhile somebody may use one of our names.
#[tokio::test]
async fn a_step_that_needs_a_key_of_somebody_elses_is_refused_and_changes_nothing() {
    let server = shared().await;
    for key in KEYS {
        let redis = Redis::on(server);
        let store = redis.open();
        let mut sessions = Vec::new();
        let mut places = Vec::new();
        for number in 0..3 {
            let session = store.open_session(LONG).await.unwrap();
            places.push(held(&session.enlist(&jobs(), &entry(number)).await.unwrap()));
            sessions.push(session);
        }
        let seen = store.line(&jobs(), 9).await.unwrap().entries;
        let (first, second) = (&sessions[0], &sessions[1]);
        let (said, paused) = (Publication::new("said"), Office::default().with_paused(Paused::new("a test")));
        let rest: Vec<_> = KEYS.into_iter().filter(|other| *other != key).collect();
        server.cli(&["SET", &redis.key(key), "theirs"]);

        let (jobs, elsewhere, new) = (jobs(), named("elsewhere"), entry(9));
        let steps: [(&str, &str, Made<'_>); 9] = [
            ("open", "mszep", store.open_session(LONG).map_ok(drop).boxed()),
            ("enlist", "mspleoh", first.enlist(&elsewhere, &new).map_ok(drop).boxed()),
            ("standing", "mspleoh", first.standing(&places[0], None).map_ok(drop).boxed()),
            ("publish", "mszple", first.publish(&places[0], seen[0].version, &said).map_ok(drop).boxed()),
            ("set_office", "mszoe", store.set_office(&jobs, Version::NONE, &paused).map_ok(drop).boxed()),
            ("renew", "mszpl", first.renew(&places[..1]).map_ok(drop).boxed()),
            ("withdraw", "mszpleh", second.withdraw(&places[1], None).map_ok(drop).boxed()),
            ("evict", "mszpleh", store.evict(&jobs, &seen[2]).map_ok(drop).boxed()),
            ("close", "mszpleh", first.close().map_ok(drop).boxed()),
        ];
        for (step, needs, made) in steps {
            let before = content(server, &redis, &rest);
            let answer = made.await;
            if needs.contains(key) {
                assert!(matches!(answer, Err(StoreError::Corrupt { .. })), "{step} without {key}: {answer:?}");
                assert_eq!(content(server, &redis, &rest), before, "{step} without {key}");
            } else {
                answer.unwrap_or_else(|error| panic!("{step} without {key}: {error}"));
            }
        }
        assert_eq!(server.cli(&["GET", &redis.key(key)]), "theirs");
        if key == "o" {
            let answer = store.elections(9).await;
            assert!(matches!(answer, Err(StoreError::Corrupt { .. })), "it is no right that is missing: {answer:?}");
        }
        // Another prefix would be another store, with a leader beside this one's.
        match redis.open().identity().await {
            Err(StoreError::Corrupt { what }) => {
                assert!(what.contains(&redis.key(key)) && !what.contains("prefix"), "{what}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_step_that_meets_a_damaged_office_record_changes_nothing() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    server.cli(&["HSET", &redis.key("o"), jobs().as_str(), "damaged"]);
    let before = content(server, &redis, &KEYS);
    let paused = Office::default().with_paused(Paused::new("a test"));
    for answer in [
        session.enlist(&jobs(), &entry(1)).await.map(drop),
        store.line(&jobs(), 9).await.map(drop),
        store.set_office(&jobs(), Version::NONE, &paused).await.map(drop),
    ] {
        assert!(matches!(answer, Err(StoreError::Corrupt { .. })), "{answer:?}");
    }
    assert_eq!(content(server, &redis, &KEYS), before);
    // It is found before somebody is told that it leads, too.
    let leading = held(&session.enlist(&named("elsewhere"), &entry(1)).await.unwrap());
    server.cli(&["HSET", &redis.key("o"), "elsewhere", "damaged"]);
    server.cli(&["HDEL", &redis.key("h"), "elsewhere"]);
    let before = content(server, &redis, &KEYS);
    let standing = session.standing(&leading, None).await;
    assert!(matches!(standing, Err(StoreError::Corrupt { .. })), "{standing:?}");
    assert_eq!(content(server, &redis, &KEYS), before);
}

/// As an older version left it.
#[tokio::test]
async fn data_that_does_not_say_the_shortest_ttl_is_the_same_store() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    assert_eq!(server.cli(&["HDEL", &redis.key("m"), "shortest"]), "1");
    assert_eq!(session.renew(std::slice::from_ref(&leading)).await.unwrap().gone, []);
    assert_eq!(store.identity().await.unwrap(), session.store_id());
}

/// A `volatile-*` policy evicts what has one.
#[tokio::test]
async fn no_key_has_a_ttl() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    let session = store.open_session(TTL).await.unwrap();
    session.enlist(&jobs(), &entry(1)).await.unwrap();
    session.renew(&[]).await.unwrap();
    for key in KEYS {
        assert_eq!(server.cli(&["PTTL", &redis.key(key)]), "-1", "{key}");
    }
}

#[tokio::test]
async fn a_client_of_ones_own_reaches_the_same_store_as_a_url() {
    let server = shared().await;
    let prefix = format!("own-{:x}", incumbent_testkit::conformance::unique());
    let client = redis::Client::open(server.url()).unwrap();
    let options = incumbent_redis::RedisOptions::new().prefix(&prefix);
    let ours = incumbent_redis::RedisStore::new(&client, &options).unwrap();
    let theirs = incumbent_redis::RedisStore::from_url(&format!("{}?prefix={prefix}", server.url())).unwrap();
    assert_eq!(ours.identity().await.unwrap(), theirs.identity().await.unwrap());
    let session = ours.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    assert!(theirs.line(&jobs(), 9).await.unwrap().entries[0].is(&leading));
}

/// Above 2^53 two neighbours are one number, and two would be given one token.
#[tokio::test]
async fn before_scripts_cannot_count_any_further_every_step_is_refused_and_changes_nothing() {
    let server = RedisServer::start().await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let meta = redis.key("m");
    let refused = async |changed: &str, field: &str, value: &str| {
        let was = server.cli(&["HGET", &meta, field]);
        server.cli(&["HSET", &meta, field, value]);
        let left = server.cli(&["DUMP", &meta]);
        for answer in [session.renew(&[]).await.map(drop), session.enlist(&jobs(), &entry(1)).await.map(drop)] {
            match answer {
                Err(error @ StoreError::Unavailable { .. }) => assert!(error.to_string().contains("2^53"), "{error}"),
                other => panic!("{changed}: {other:?}"),
            }
        }
        assert_eq!(server.cli(&["DUMP", &meta]), left, "{changed}");
        server.cli(&["HSET", &meta, field, &was]);
    };
    refused("the counter", "change", &format!("{:016}", (1_u64 << 53) - 2)).await;
    session.renew(&[]).await.unwrap();
    // Another history begins, and three centuries have passed since the last step.
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    refused("the clock", "wall", "-8000000000000").await;
    session.renew(&[]).await.unwrap();
}

#[tokio::test]
async fn a_leader_whose_store_was_emptied_is_told_and_stands_again_with_a_higher_token() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = Redis::on(&server).open();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(
        promised.contains("If all are deleted (FLUSHALL), that begins only once one has come who knew the old store"),
        "{promised}"
    );
    let election = client(&store).await.election("jobs").unwrap();
    let mut candidacy = election.candidate("ours").stand().await.unwrap();
    let first = lead(&mut candidacy).await;
    let before = first.term().token().clone();
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    within(first.term().lost()).await;
    drop(first);
    let told = within(candidacy.elected()).await;
    assert!(matches!(told, Err(CandidacyError::StoreReplaced { .. })), "{told:?}");
    let election = client(&store).await.election("jobs").unwrap();
    let mut candidacy = election.candidate("ours").stand().await.unwrap();
    let after = lead(&mut candidacy).await.term().token().clone();
    assert!(after.token > before.token && after.store != before.store, "{before} and then {after}");
}

/// Tokens go on, and so it could not be seen by those.
#[tokio::test]
async fn an_observer_is_told_that_the_store_was_emptied_before_it_is_shown_the_next_leader() {
    for waits in [true, false] {
        let server = RedisServer::start().await;
        let redis = Redis::on(&server);
        let first = redis.open().open_session(LONG).await.unwrap();
        let left = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
        let mut observer = client(&redis.open()).await.election(jobs().as_str()).unwrap().observe();
        match within(observer.next()).await {
            Some(Observation::Leader(leader)) => assert_eq!(leader.token, Some(left.token)),
            other => panic!("{other:?}"),
        }
        if waits {
            let subscribed = async || server.cli(&["PUBSUB", "CHANNELS"]).contains(":h:jobs/nightly");
            tokio::select! {
                early = observer.next() => panic!("{early:?}"),
                () = until("it waits", subscribed) => {}
            }
        }
        assert_eq!(server.cli(&["FLUSHALL"]), "OK");
        let second = redis.open().open_session(LONG).await.unwrap();
        let elected = second.enlist(&jobs(), &entry(2)).await.unwrap();
        assert!(matches!(elected.place, Place::Leading(_)), "the observer has not asked yet: {elected:?}");

        assert_eq!(within(observer.next()).await, Some(Observation::StoreReset), "{waits}");
        match within(observer.next()).await {
            Some(Observation::Leader(leader)) => assert_eq!(leader.token, Some(held(&elected).token)),
            other => panic!("{waits}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn who_begins_to_wait_after_the_store_was_emptied_does_not_wait_for_another_one() {
    let server = RedisServer::start().await;
    let redis = Redis::on(&server);
    let store = redis.open();
    redis.open().open_session(LONG).await.unwrap().enlist(&jobs(), &entry(1)).await.unwrap();
    let line = store.line(&jobs(), 9).await.unwrap();
    let wakes = [Head::Ignored, line.seen().head].map(|head| {
        let mut seen = line.seen();
        seen.head = head;
        store.watch(&jobs(), &seen, line.cursor)
    });
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    redis.open().identity().await.unwrap();
    for woken in wakes {
        let told = within(woken).await;
        assert!(matches!(told, Err(StoreError::Unavailable { .. })), "{told:?}");
    }
}

#[tokio::test]
async fn what_a_session_holds_goes_with_it_though_its_entry_was_taken_away() {
    let server = shared().await;
    let redis = Redis::on(server);
    let session = redis.open().open_session(LONG).await.unwrap();
    session.enlist(&jobs(), &entry(1)).await.unwrap();
    let script = "for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do \
                  if field ~= '' then redis.call('HDEL', KEYS[1], field) end end";
    server.cli(&["EVAL", script, "1", &redis.key("e")]);
    session.close().await.unwrap();
    // Each keeps the member that says nothing.
    assert_eq!(["l", "p", "s"].map(|key| server.cli(&["ZCARD", &redis.key(key)])), ["1"; 3]);
}

#[tokio::test]
async fn a_key_of_somebody_elses_is_named_and_left_alone() {
    let server = shared().await;
    let redis = Redis::on(server);
    server.cli(&["SET", &redis.key("l"), "theirs"]);
    match redis.open().open_session(LONG).await {
        Err(StoreError::Foreign { what }) => {
            assert!(what.contains(&redis.key("l")) && what.contains("only if no candidate has ever used"), "{what}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(server.cli(&["GET", &redis.key("l")]), "theirs");
    assert_eq!(server.cli(&["EXISTS", &redis.key("m")]), "0");
}

#[tokio::test]
async fn what_a_newer_version_wrote_is_refused_with_a_sentence_and_left_alone() {
    let server = shared().await;
    let redis = Redis::on(server);
    let store = redis.open();
    store.identity().await.unwrap();
    server.cli(&["HSET", &redis.key("m"), "format", "2"]);
    // Even if one of the keys that this version knows is not there.
    server.cli(&["DEL", &redis.key("h")]);
    match store.identity().await {
        Err(StoreError::Foreign { what }) => assert!(what.contains("format 2") && what.contains("newer"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.cli(&["HGET", &redis.key("m"), "format"]), "2");
    assert_eq!(server.cli(&["EXISTS", &redis.key("h")]), "0");
}

#[tokio::test]
async fn a_replica_makes_nobody_a_leader_whether_or_not_it_takes_writes() {
    let primary = RedisServer::start().await;
    let redis = Redis::on(&primary);
    let session = redis.open().open_session(LONG).await.unwrap();
    session.enlist(&jobs(), &entry(1)).await.unwrap();
    for writable in ["yes", "no"] {
        let follows = ["--replicaof", &format!("127.0.0.1 {}", primary.port()), "--replica-read-only", writable];
        let replica = RedisServer::start_with(&follows).await;
        let synchronised = async || replica.cli(&["INFO", "replication"]).contains("master_link_status:up");
        until("the replica has everything", synchronised).await;
        assert_eq!(replica.cli(&["EXISTS", &redis.key("m")]), "1");
        let store = redis.moved_to(&replica.endpoint()).open();
        for answer in [store.identity().await.map(|_| ()), store.line(&jobs(), 9).await.map(|_| ())] {
            let Err(error @ StoreError::Unavailable { .. }) = answer else { panic!("{writable}: {answer:?}") };
            assert!(error.to_string().contains("name the primary, or Sentinels"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_long_line_is_read_in_pages_and_is_one_moments() {
    // Of its own: requests are counted.
    let server = RedisServer::start().await;
    let store = Redis::on(&server).open();
    let pages = || {
        let commands = server.cli(&["INFO", "commandstats"]);
        let count = |line: &str| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u32>().ok();
        assert_eq!(server.cli(&["CONFIG", "RESETSTAT"]), "OK");
        commands.lines().find_map(count)
    };
    let mut last = None;
    for number in 0..1100 {
        let session = store.open_session(LONG).await.unwrap();
        last = Some(held(&session.enlist(&jobs(), &entry(number)).await.unwrap()));
    }
    // So that the server knows the script.
    store.line(&jobs(), 1).await.unwrap();
    pages();
    let line = store.line(&jobs(), 10_000).await.unwrap();
    assert_eq!(pages(), Some(3), "500 entries each");
    assert!(line.entries.len() == 1100 && !line.more && line.entries.is_sorted_by_key(|entry| entry.token));
    assert!(line.entries.last().unwrap().is(&last.unwrap()));
    let part = store.line(&jobs(), 700).await.unwrap();
    assert!(part.entries == line.entries[..700] && part.more);
    // Nothing is missing where what they say is large.
    let large = named("large");
    for number in 0..40 {
        let session = store.open_session(LONG).await.unwrap();
        let entry = incumbent_store::NewEntry::new(entry(number).incarnation, "n", vec![7; 60_000]);
        session.enlist(&large, &entry).await.unwrap();
    }
    pages();
    let line = store.line(&large, 10_000).await.unwrap();
    assert_eq!(pages(), Some(3), "a mebibyte each");
    assert!(line.entries.len() == 40 && !line.more && line.entries.iter().all(|entry| entry.value.len() == 60_000));
}

#[tokio::test]
async fn nobody_leads_past_more_of_the_dead_than_expire_at_once() {
    let redis = Redis::on(shared().await);
    let store = redis.open();
    let last = store.open_session(LONG).await.unwrap();
    for number in 0..450 {
        let session = store.open_session(Duration::from_millis(300)).await.unwrap();
        // Some have gone by the time others come.
        session.enlist(&jobs(), &entry(number)).await.unwrap();
    }
    let waiting = held(&last.enlist(&jobs(), &entry(1000)).await.unwrap());
    until("it leads", async || {
        let standing = last.standing(&waiting, None).await.unwrap();
        let ahead =
            store.line(&jobs(), 10).await.unwrap().entries.iter().filter(|entry| entry.token < waiting.token).count();
        assert!(!matches!(standing.place, Place::Leading(_)) || ahead == 0, "{ahead} are ahead");
        matches!(standing.place, Place::Leading(_))
    })
    .await;
    let line = store.line(&jobs(), 10).await.unwrap();
    assert_eq!(line.seen().head, Head::Is(waiting.entry.clone()));
}

#[tokio::test]
async fn a_long_line_that_changes_while_it_is_read_shows_nobody_twice() {
    let redis = Redis::on(shared().await);
    let (store, reader) = (redis.open(), redis.open());
    let mut members = Vec::new();
    for number in 0..600 {
        let session = store.open_session(LONG).await.unwrap();
        let held = held(&session.enlist(&jobs(), &entry(number)).await.unwrap());
        members.push((session, held));
    }
    // One after the other goes from the front to the end, from one page to the next.
    let moving = async {
        for (session, held) in &members {
            session.withdraw(held, None).await.unwrap();
            session.enlist(&jobs(), &entry(held.incarnation.to_bits())).await.unwrap();
        }
    };
    let reading = async {
        loop {
            let entries = reader.line(&jobs(), 10_000).await.unwrap().entries;
            let who: HashSet<_> = entries.iter().map(|entry| entry.incarnation).collect();
            assert_eq!(who.len(), entries.len(), "somebody is there twice");
        }
    };
    tokio::select! {
        () = moving => {}
        () = reading => {}
    }
}

#[tokio::test]
async fn who_withdraws_a_place_whose_entry_was_taken_away_can_stand_again() {
    let server = shared().await;
    let redis = Redis::on(server);
    let session = redis.open().open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let taken = format!("return redis.call('HDEL', KEYS[1], \"{}\\000{}\")", jobs(), leading.entry.as_str());
    assert_eq!(server.cli(&["EVAL", &taken, "1", &redis.key("e")]), "1");
    assert_eq!(session.standing(&leading, None).await.unwrap().place, Place::Gone);
    match session.enlist(&jobs(), &entry(2)).await {
        Err(StoreError::AlreadyInLine(held)) => assert_eq!(session.withdraw(&held, None).await.unwrap(), Cas::Done),
        other => panic!("{other:?}"),
    }
    let again = session.enlist(&jobs(), &entry(2)).await.unwrap();
    assert!(matches!(again.place, Place::Leading(_)), "{again:?}");
}

/// One election that is over, and whose record somebody has damaged, is refused to those who need
/// it and to nobody else.
#[tokio::test]
async fn a_damaged_record_of_an_election_that_is_over_stops_no_other() {
    let server = RedisServer::start().await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let session = store.open_session(LONG).await.unwrap();
    let leads = held(&session.enlist(&jobs(), &entry(1)).await.unwrap());
    let over = named("over");
    let ended = incumbent_store::Ended::new(incumbent_store::Nonce(7), Duration::from_millis(300));
    assert_eq!(store.set_office(&over, Version::NONE, &Office::default().with_ended(ended)).await.unwrap(), Cas::Done);
    server.cli(&["HSET", &redis.key("o"), over.as_str(), "damaged"]);
    until("its tombstone is swept", async || {
        session.renew(std::slice::from_ref(&leads)).await.expect("another election is damaged");
        server.cli(&["ZSCORE", &redis.key("z"), over.as_str()]).is_empty()
    })
    .await;
    redis.open().open_session(LONG).await.unwrap();
    assert!(matches!(store.line(&over, 1).await, Err(StoreError::Corrupt { .. })));
}
