//! Writes that only a sitting leader can make.

use std::process::Command;
use std::sync::Arc;

use incumbent_redis::redis::Value;
use incumbent_redis::{GuardedScript, RedisFence, RedisStore, RedisWrite};
use incumbent_store::fence::{Fence, FenceError, FencingToken};
use incumbent_store::{ElectionName, Held, Place, Store, StoreError, StoreId, Token};
use incumbent_testkit::TempDir;
use incumbent_testkit::conformance::unique;
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::RedisServer;

use crate::harness::{LONG, Redis, TTL, client, entry, held, jobs, lead, shared, until};

fn token(number: u64) -> FencingToken {
    FencingToken::new(Token::new(number).unwrap(), StoreId::new("some-store"))
}

/// A fence with keys of its own, and the names of its mark and of what it guards.
struct Guarded {
    server: &'static RedisServer,
    store: RedisStore,
    fence: RedisFence,
    mark: String,
    key: String,
}

async fn guarded() -> Guarded {
    let server = shared().await;
    let store = Redis::on(server).open();
    let (mark, key) = (format!("mark-{:x}", unique()), format!("key-{:x}", unique()));
    let fence = RedisFence::new(&store, &jobs(), mark.clone());
    Guarded { server, store, fence, mark, key }
}

impl Guarded {
    async fn raise(&self, to: u64) -> Result<(), FenceError> {
        self.fence.raise(&jobs(), token(to)).await
    }

    fn get(&self) -> String {
        self.server.cli(&["GET", &self.key])
    }
}

#[tokio::test]
async fn a_newer_token_writes_and_an_older_one_does_not_however_large_they_are() {
    let guarded = guarded().await;
    // Neighbours that are equal as floating-point numbers.
    let (older, newer) = ((1 << 53), (1 << 53) + 1);
    guarded.raise(older).await.unwrap();
    let set = |value: &str| [RedisWrite::set(guarded.key.as_str(), value)];
    guarded.fence.write(&token(older), set("older")).await.unwrap();
    guarded.raise(newer).await.unwrap();
    let refused = guarded.fence.write(&token(older), set("late")).await;
    assert!(matches!(refused, Err(FenceError::Stale { mark, .. }) if mark.get() == newer), "{refused:?}");
    assert_eq!(guarded.get(), "older", "nothing was written");
    guarded.fence.write(&token(newer), set("newer")).await.unwrap();
    // A token above the mark raises it.
    guarded.fence.write(&token(newer + 8), set("newest")).await.unwrap();
    assert!(matches!(guarded.raise(newer).await, Err(FenceError::Stale { .. })));
    assert_eq!(guarded.get(), "newest");
}

#[tokio::test]
async fn several_writes_are_one_step() {
    let guarded = guarded().await;
    guarded.raise(5).await.unwrap();
    let hash = format!("{}-hash", guarded.key);
    guarded.server.cli(&["SET", &guarded.key, "old"]);
    let writes = [
        RedisWrite::del(guarded.key.as_str()),
        RedisWrite::hset(hash.as_str(), "field", "value"),
        RedisWrite::new("HINCRBY", hash.as_str(), ["count".into(), "2".into()]),
    ];
    guarded.fence.write(&token(5), writes).await.unwrap();
    assert_eq!(guarded.server.cli(&["EXISTS", &guarded.key]), "0");
    assert_eq!(guarded.server.cli(&["HMGET", &hash, "field", "count"]), "value\n2");
}

/// A script that fails in between would leave half a step.
#[tokio::test]
async fn more_words_than_a_script_can_take_are_refused_before_anything_is_done() {
    let guarded = guarded().await;
    guarded.raise(5).await.unwrap();
    let push = |words: usize| RedisWrite::new("RPUSH", guarded.key.as_str(), vec![b"x".to_vec(); words - 3]);
    let add = |count| (0..count).map(|_| RedisWrite::new("INCR", format!("{}-n", guarded.key), [])).collect::<Vec<_>>();
    let script = GuardedScript::new("return {#KEYS, #ARGV}");
    let run = async |token_shown, count| {
        let words = vec![b"x".to_vec(); count];
        guarded.fence.run(&token(token_shown), &script, &words, &words).await
    };
    guarded.fence.write(&token(5), [push(7_000)]).await.unwrap();
    guarded.fence.write(&token(5), add(2_333)).await.unwrap();
    assert_eq!(run(5, 7_000).await.unwrap(), Value::Array(vec![Value::Int(7_000); 2]));
    // A token above the mark would have raised it.
    for refused in [
        guarded.fence.write(&token(6), [RedisWrite::del(guarded.key.as_str()), push(6_998)]).await,
        guarded.fence.write(&token(6), add(2_334)).await,
        run(6, 7_001).await.map(drop),
    ] {
        assert!(matches!(&refused, Err(FenceError::Misuse { what }) if what.contains("7000")), "{refused:?}");
    }
    assert_eq!(guarded.server.cli(&["LLEN", &guarded.key]), "6997");
    assert_eq!(guarded.server.cli(&["GET", &format!("{}-n", guarded.key)]), "2333");
    guarded.fence.write(&token(5), [push(4)]).await.unwrap();
}

#[tokio::test]
async fn where_the_mark_is_gone_nobody_writes_until_it_is_raised_or_reset() {
    let guarded = guarded().await;
    let write = async |number| guarded.fence.write(&token(number), [RedisWrite::set(guarded.key.as_str(), "x")]).await;
    let refused = write(5).await.unwrap_err().to_string();
    assert!(refused.contains("there is no mark") && refused.contains(&guarded.mark), "{refused}");
    guarded.raise(5).await.unwrap();
    guarded.server.cli(&["DEL", &guarded.mark]);
    assert!(write(4).await.is_err() && write(5).await.is_err());
    assert_eq!(guarded.get(), "");
    guarded.fence.reset(&StoreId::new("some-store"), "the mark was deleted").await.unwrap();
    write(5).await.unwrap();
    assert!(matches!(write(4).await, Err(FenceError::Stale { .. })));
}

/// Digits of another width would compare wrongly.
#[tokio::test]
async fn a_mark_that_cannot_be_read_lets_nobody_write() {
    let guarded = guarded().await;
    for damaged in [
        "5",
        "000000000000000005\nsome-store\njobs/nightly",
        "00000000000000000005\nsome-store\njobs/nightly",
        "0000000000000000005\n\njobs/nightly",
        "0000000000000000005\nsome-store",
    ] {
        guarded.server.cli(&["SET", &guarded.mark, damaged]);
        let refused = guarded.fence.write(&token(7), [RedisWrite::set(guarded.key.as_str(), "x")]).await;
        let said = refused.as_ref().map_or_else(ToString::to_string, |()| "nothing".to_owned());
        assert!(said.contains("cannot be read"), "{damaged:?}: {said}");
    }
    assert_eq!(guarded.get(), "");
}

/// Its operator has given it up and made another one, and newer leaders have raised the mark since.
#[tokio::test]
async fn a_reset_that_comes_late_lowers_no_mark() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server.endpoint()).await;
    let fence = |endpoint: &str| {
        let store = RedisStore::from_url(&format!("redis://{endpoint}")).unwrap();
        RedisFence::new(&store, &jobs(), "mark")
    };
    let (operator, leaders) = (fence(&proxy.endpoint()), fence(&server.endpoint()));
    let store = StoreId::new("some-store");
    let replaced = FencingToken::new(Token::new(9).unwrap(), StoreId::new("replaced"));
    // The server knows the scripts from then on.
    leaders.reset(&replaced.store, "a test").await.unwrap();
    leaders.raise(&jobs(), replaced).await.unwrap();
    // Its connection is there, and its first question is answered: where does the mark stand?
    assert!(operator.raise(&jobs(), token(4)).await.is_err());
    server.cli(&["CONFIG", "RESETSTAT"]);
    let late = tokio::spawn({
        let (operator, store) = (operator.clone(), store.clone());
        proxy.set(Way::HoldAnswers);
        async move { operator.reset(&store, "a test").await }
    });
    until("it has asked", async || server.cli(&["INFO", "commandstats"]).contains("cmdstat_get:")).await;
    proxy.set(Way::HoldQuestions);
    leaders.reset(&store, "again").await.unwrap();
    leaders.raise(&jobs(), token(6)).await.unwrap();
    proxy.set(Way::Forward);
    let refused = late.await.unwrap();
    assert!(
        refused.as_ref().is_err_and(|why| why.to_string().contains("somebody has raised or reset it")),
        "{refused:?}"
    );
    let stale = leaders.write(&token(5), [RedisWrite::set("key", "stale")]).await;
    assert!(matches!(stale, Err(FenceError::Stale { mark, .. }) if mark.get() == 6), "{stale:?}");
}

#[tokio::test]
async fn tokens_of_another_store_or_election_do_not_compare() {
    let guarded = guarded().await;
    guarded.raise(5).await.unwrap();
    let other = FencingToken::new(Token::new(900).unwrap(), StoreId::new("another"));
    let refused = guarded.fence.write(&other, [RedisWrite::del(guarded.key.as_str())]).await;
    match refused {
        Err(FenceError::StoreReplaced { mark, mark_store, .. }) => {
            assert_eq!((mark, mark_store.as_str()), (Token::new(5), "some-store"));
        }
        other => panic!("{other:?}"),
    }
    guarded.fence.reset(&other.store, "restored from a backup").await.unwrap();
    assert!(matches!(guarded.raise(900).await, Err(FenceError::StoreReplaced { mark: None, .. })));
    let stranger = RedisFence::new(&guarded.store, &ElectionName::new("other").unwrap(), guarded.mark.as_str());
    let refused = stranger.write(&other, [RedisWrite::del(guarded.key.as_str())]).await;
    assert!(matches!(refused, Err(FenceError::Misuse { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_script_of_ones_own_has_its_own_keys_and_arguments_and_answers_what_it_likes() {
    let guarded = guarded().await;
    guarded.raise(5).await.unwrap();
    let script = GuardedScript::new("return {redis.call('APPEND', KEYS[1], ARGV[1]), #KEYS, #ARGV}");
    let (keys, args) = ([guarded.key.clone().into_bytes()], [b"abc".to_vec()]);
    let answer = guarded.fence.run(&token(5), &script, &keys, &args).await.unwrap();
    assert_eq!(answer, Value::Array(vec![Value::Int(3), Value::Int(1), Value::Int(1)]));
    let refused = guarded.fence.run(&token(4), &script, &keys, &args).await;
    assert!(matches!(refused, Err(FenceError::Stale { .. })), "{refused:?}");
    assert_eq!(guarded.get(), "abc");
    let script = GuardedScript::new("return redis.error_reply('SOLDOUT nothing is left')");
    match guarded.fence.run(&token(5), &script, &keys, &args).await {
        Err(FenceError::Misuse { what }) => assert!(what.contains("nothing is left"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn other_languages_put_the_same_text_before_their_script() {
    let guarded = guarded().await;
    guarded.raise(5).await.unwrap();
    let fence = include_str!("../../src/scripts/incumbent_fence.lua");
    let text = format!("{fence}\nreturn redis.call('SET', KEYS[1], ARGV[1])");
    let write = |number: u64, value: &str| {
        let digits = format!("{number:019}");
        let arguments = ["write", &digits, "some-store", "jobs/nightly", value];
        let keys = ["EVAL", &text, "2", &guarded.mark, &guarded.key];
        guarded.server.cli(&[&keys[..], &arguments].concat())
    };
    assert_eq!(write(6, "theirs"), "OK");
    assert!(write(5, "late").contains("FENCED 0000000000000000006"));
    assert_eq!(guarded.get(), "theirs");
}

/// The commands of the page are run as they stand there.
#[tokio::test]
async fn the_page_on_fencing_says_how_a_shell_raises_a_mark_and_writes_behind_it() {
    let server = RedisServer::start().await;
    let folder = TempDir::new("fence");
    let fence = include_str!("../../src/scripts/incumbent_fence.lua");
    std::fs::write(folder.path().join("incumbent_fence.lua"), fence).unwrap();
    let page = include_str!("../../../../docs/fencing.md");
    let (_, section) = page.split_once("\n## In Redis, from any language\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks: Vec<_> = section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    let [raise, write] = blocks[..] else { panic!("{blocks:?}") };
    let as_leader = |token: &str, lines: &str| {
        // Another server than the one of this host.
        let lines = lines.replace("redis-cli", &format!("redis-cli -p {}", server.port()));
        let variables = [("TOKEN", token), ("STORE_ID", "redis-8c5f"), ("ELECTION", "jobs")];
        let variables = variables.map(|(name, value)| (format!("INCUMBENT_{name}"), value));
        let said =
            Command::new("sh").args(["-euc", &lines]).current_dir(folder.path()).envs(variables).output().unwrap();
        (said.status.success(), String::from_utf8(said.stdout).unwrap() + &String::from_utf8(said.stderr).unwrap())
    };
    let state = || server.cli(&["HGET", "orders:42", "state"]);
    let unraised = as_leader("42", &[raise.lines().next().unwrap(), write].join("\n"));
    assert!(!unraised.0 && unraised.1.contains("FENCENOMARK"), "{unraised:?}");
    let raised = as_leader("42", raise);
    assert!(raised.0, "{raised:?}");
    let written = as_leader("42", &[raise, write].concat());
    assert!(written.0 && state() == "paid", "{written:?}");
    assert!(as_leader("43", raise).0);
    // Beside `incumbent run` its variables are not set; and a word is mistyped soon.
    for (from, to) in [("$INCUMBENT_STORE_ID", ""), ("$INCUMBENT_ELECTION", ""), (", raise", ", rise")] {
        let refused = as_leader("44", &raise.replace(from, to));
        assert!(!refused.0 && refused.1.contains("FENCEWORDS"), "{from}: {refused:?}");
    }
    assert_eq!(server.cli(&["GET", "orders:mark"]), "0000000000000000043\nredis-8c5f\njobs");
    server.cli(&["HSET", "orders:42", "state", "sent"]);
    let refused = as_leader("42", &[raise.lines().next().unwrap(), write].join("\n"));
    assert!(!refused.0 && refused.1.contains("FENCED 0000000000000000043"), "{refused:?}");
    assert_eq!(state(), "sent");
}

#[tokio::test]
async fn a_fence_is_raised_when_its_candidate_is_elected() {
    let guarded = guarded().await;
    let election = client(&guarded.store).await.election(jobs().as_str()).unwrap();
    let mut candidacy = election.candidate("ours").fence(Arc::new(guarded.fence.clone())).stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let shown = office.term().token().clone();
    let mark = guarded.server.cli(&["GET", &guarded.mark]);
    assert_eq!(mark, format!("{:019}\n{}\njobs/nightly", shown.token.get(), shown.store));
    guarded.fence.write(&shown, [RedisWrite::set(guarded.key.as_str(), "led")]).await.unwrap();
    assert_eq!(guarded.get(), "led");
}

/// Whatever the server keeps, and as it says beforehand.
#[tokio::test]
async fn beside_the_leader_of_a_store_that_was_emptied_another_may_lead_and_a_fence_lets_in_that_one_alone() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let redis = Redis::on(&server);
    let store = redis.open();
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(promised.contains("comes first may lead beside the old leader for a TTL. A fence lets in"), "{promised}");
    let (fence, set) = (RedisFence::new(&store, &jobs(), "mark"), |value: &str| [RedisWrite::set("key", value)]);
    let lead = async |store: RedisStore, number| {
        let session = store.open_session(LONG).await.unwrap();
        let standing = session.enlist(&jobs(), &entry(number)).await.unwrap();
        assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
        FencingToken::new(held(&standing).token, session.store_id())
    };
    let before = lead(store, 1).await;
    fence.raise(&jobs(), before.clone()).await.unwrap();
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");

    let next = lead(redis.open(), 2).await;
    let late = fence.write(&before, set("late")).await;
    assert!(matches!(late, Err(FenceError::Misuse { .. })), "there is no mark: {late:?}");
    fence.raise(&jobs(), next.clone()).await.unwrap();
    let late = fence.write(&before, set("late")).await;
    assert!(matches!(late, Err(FenceError::StoreReplaced { .. })), "{late:?}");
    fence.write(&next, set("led")).await.unwrap();
    assert_eq!(server.cli(&["GET", "key"]), "led");
}

/// A leader that was paused for longer than its TTL does not know when it goes on.
#[tokio::test]
async fn who_wakes_after_its_ttl_is_told_so_and_writes_nothing_behind_its_successors_mark() {
    let guarded = guarded().await;
    let (first, second) =
        (guarded.store.open_session(TTL).await.unwrap(), guarded.store.open_session(LONG).await.unwrap());
    let shown = |held: &Held| FencingToken::new(held.token, first.store_id());
    let led = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    guarded.fence.raise(&jobs(), shown(&led)).await.unwrap();
    let next = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    until("its TTL has passed", async || {
        matches!(second.standing(&next, None).await.unwrap().place, Place::Leading(_))
    })
    .await;
    guarded.fence.raise(&jobs(), shown(&next)).await.unwrap();

    let late = guarded.fence.write(&shown(&led), [RedisWrite::set(guarded.key.as_str(), "late")]).await;
    assert!(matches!(late, Err(FenceError::Stale { mark, .. }) if mark == next.token), "{late:?}");
    assert_eq!(guarded.get(), "", "nothing was written");
    let standing = first.standing(&led, None).await;
    assert!(matches!(standing, Err(StoreError::SessionGone)), "{standing:?}");
    let renewed = first.renew(std::slice::from_ref(&led)).await;
    assert!(matches!(renewed, Err(StoreError::SessionGone)), "{renewed:?}");
    guarded.fence.write(&shown(&next), [RedisWrite::set(guarded.key.as_str(), "led")]).await.unwrap();
    assert_eq!(guarded.get(), "led");
}

#[tokio::test]
async fn a_mark_outlives_a_server_that_is_killed_and_keeps_everything() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let store = Redis::on(&server).open();
    let fence = RedisFence::new(&store, &jobs(), "mark");
    let write = async |number: u64| fence.write(&token(number), [RedisWrite::set("key", number.to_string())]).await;
    fence.raise(&jobs(), token(5)).await.unwrap();
    for newest in [5, 6] {
        write(newest).await.unwrap();
        server.restart().await;
        // The first that is asked after it notices that the connection is lost.
        until("it answers", async || match write(newest - 1).await {
            Err(FenceError::Stale { mark, .. }) => mark.get() == newest,
            Err(FenceError::Unavailable { .. }) => false,
            other => panic!("{other:?}"),
        })
        .await;
        assert_eq!(server.cli(&["GET", "key"]), newest.to_string());
    }
}
