//! Users, passwords and rights.

use std::collections::BTreeSet;
use std::time::Duration;

use incumbent::Client;
use incumbent_redis::{GuardedScript, RedisFence, RedisStore, RedisWrite};
use incumbent_store::fence::{Fence, FenceError, FencingToken};
use incumbent_store::{
    Cas, ElectionName, Ended, Nonce, Office, Paused, Place, Publication, Store, StoreError, StoreId, Token,
    TokenStrength, Version, Watched,
};
use incumbent_testkit::servers::{Certificates, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::harness::{LONG, client, entry, held, jobs, lead, until, within};

const STORE: &str = include_str!("../../src/lib.rs");
pub(crate) const REDLOCK: &str = include_str!("../../src/redlock/mod.rs");
/// What connections need beside the scripts.
const CONNECTIONS: [&str; 8] = ["evalsha", "eval", "info", "type", "subscribe", "unsubscribe", "hello", "ping"];

/// The least rights, as the head of the crate or of Redlock says them.
pub(crate) fn rights(documented: &str) -> String {
    let (_, section) = documented.split_once("//! # Rights\n").unwrap();
    let rights = section.split('`').nth(1).unwrap().replace("//!", " ");
    rights.split_whitespace().filter(|word| word.starts_with('+')).collect::<Vec<_>>().join(" ")
}

/// The commands that a script calls.
fn called_by(script: &str) -> BTreeSet<String> {
    let script = std::fs::read_to_string(format!("{}/src/scripts/{script}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let calls = script.split("call('").skip(1).map(|call| call.split('\'').next().unwrap().to_lowercase());
    calls.collect()
}

#[test]
fn the_least_rights_are_what_scripts_and_connections_need_and_no_more() {
    let scripts = std::fs::read_dir(format!("{}/src/scripts", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut commands: BTreeSet<_> = CONNECTIONS.map(str::to_owned).into();
    for script in scripts {
        let script = script.unwrap().file_name().into_string().unwrap();
        // A Redlock's, and those of fences, whose rights go with what they guard.
        if !["redlock.lua", "incumbent_fence.lua", "reset.lua", "writes.lua"].contains(&script.as_str()) {
            commands.extend(called_by(&script));
        }
    }
    let documented: BTreeSet<_> = rights(STORE).split(' ').map(|right| right[1..].to_owned()).collect();
    assert_eq!(documented, commands);
    let (_, on_the_page) = documented_user().split_once("&{incumbent}* ").unwrap();
    assert_eq!(on_the_page, rights(STORE), "the page for those who set it up");

    let nothing_to_wait_for = ["subscribe", "unsubscribe"];
    let connections = CONNECTIONS.into_iter().filter(|command| !nothing_to_wait_for.contains(command));
    let mut commands: BTreeSet<_> = connections.map(str::to_owned).collect();
    commands.extend(called_by("server.lua"));
    commands.extend(called_by("redlock.lua"));
    let redlock: BTreeSet<_> = rights(REDLOCK).split(' ').map(|right| right[1..].to_owned()).collect();
    assert_eq!(redlock, commands);
    // As the page says.
    let more: Vec<_> = redlock.difference(&documented).collect();
    assert_eq!(more, ["hrandfield"]);
}

/// The command that makes a user, as the page for those who set it up has it: one line, which can
/// be pasted.
fn documented_user() -> &'static str {
    let page = include_str!("../../../../docs/choosing-a-store.md");
    let mut lines = page.lines().filter(|line| line.starts_with("ACL SETUSER "));
    let line = lines.next().unwrap();
    assert_eq!(lines.next(), None);
    line
}

#[tokio::test]
async fn the_documented_command_makes_a_user_who_leads_and_lists_with_any_prefix() {
    let server = RedisServer::start().await;
    for prefix in ["incumbent", "team"] {
        let command = documented_user().replace("{incumbent}", &format!("{{{prefix}}}"));
        assert_eq!(server.cli(&command.split(' ').collect::<Vec<_>>()), "OK", "{command}");
        let url = format!("redis://incumbent:PASSWORD@{}?prefix={prefix}", server.endpoint());
        let client = Client::connect(&url).await.unwrap();
        let mut candidacy = client.election("jobs").unwrap().candidate("a").stand().await.unwrap();
        let _office = lead(&mut candidacy).await;
        assert_eq!(client.elections().await.unwrap().len(), 1);
    }
}

/// Redis says which command, but not of one inside of a script.
#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    let server = RedisServer::start().await;
    let all = rights(STORE);
    for missing in ["+type", "+evalsha", "+hmget", "+zadd"] {
        let user = format!("without{missing}");
        let rest: Vec<_> = all.split(' ').filter(|right| *right != missing).collect();
        add_user(&server, &user, &format!("&{{incumbent}}* {}", rest.join(" ")));
        let refused = store_of(&server, &user).open_session(LONG).await;
        let Err(error @ StoreError::Denied { .. }) = refused else { panic!("{missing}: {refused:?}") };
        assert!(error.to_string().to_lowercase().contains(&missing[1..]), "{missing}: {error}");
    }
    // Keys of another prefix than those that the user was given.
    add_user(&server, "least", &format!("&{{incumbent}}* {all}"));
    let url = format!("redis://least:pass@{}?prefix=team", server.endpoint());
    let refused = RedisStore::from_url(&url).unwrap().open_session(LONG).await;
    let Err(error @ StoreError::Denied { .. }) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("{team}:m"), "{error}");
}

fn add_user(server: &RedisServer, name: &str, rights: &str) {
    let rule = format!("ACL SETUSER {name} on >pass ~{{incumbent}}* {rights}");
    let words: Vec<_> = rule.split_whitespace().collect();
    assert_eq!(server.cli(&words), "OK", "{rule}");
}

fn store_of(server: &RedisServer, user: &str) -> RedisStore {
    RedisStore::from_url(&format!("redis://{user}:pass@{}", server.endpoint())).unwrap()
}

#[tokio::test]
async fn the_least_rights_are_enough_for_everything() {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let least = format!("&{{incumbent}}* {}", rights(STORE));
    add_user(&server, "least", &least);
    let store = store_of(&server, "least");
    let promises = store.promises().await.unwrap();
    assert_eq!(promises.tokens, TokenStrength::Volatile, "what cannot be read is not promised");
    let promised = promises.caveats.join(" ");
    assert!(promised.contains("CONFIG GET") && !promised.contains("channels"), "{promised}");
    let election = client(&store).await.election("jobs").unwrap();
    let mut first = election.candidate("first").stand().await.unwrap();
    let office = lead(&mut first).await;
    let other = client(&store).await.election("jobs").unwrap();
    let mut second = other.candidate("second").stand().await.unwrap();
    within(office.resign()).await.unwrap();
    drop(lead(&mut second).await);
    within(other.operator().pause(LONG)).await.unwrap();
    assert_eq!(store.elections(10).await.unwrap(), [election.name().clone()]);
    // And one right more is enough for the promises.
    add_user(&server, "more", &format!("{least} +config|get"));
    assert_eq!(store_of(&server, "more").promises().await.unwrap().tokens, TokenStrength::Durable);
}

/// A right that is missing after the first write would leave half a step.
#[tokio::test]
async fn the_least_rights_are_enough_for_what_is_rare() {
    let server = RedisServer::start().await;
    add_user(&server, "least", &format!("&{{incumbent}}* {}", rights(STORE)));
    let store = store_of(&server, "least");
    // Another history begins, in which one entry led and one did not.
    let (first, second) = (store.open_session(LONG).await.unwrap(), store.open_session(LONG).await.unwrap());
    let leading = held(&first.enlist(&jobs(), &entry(1)).await.unwrap());
    let behind = held(&second.enlist(&jobs(), &entry(2)).await.unwrap());
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(second.renew(std::slice::from_ref(&behind)).await.unwrap().gone, std::slice::from_ref(&behind));
    // What is published; who withdraws for an heir, and does not; who is evicted.
    first.renew(&[]).await.unwrap();
    let heir = held(&second.enlist(&jobs(), &entry(3)).await.unwrap());
    let seen = store.line(&jobs(), 9).await.unwrap().entries;
    let said = Publication::new("said");
    assert!(first.publish(&leading, seen[0].version, &said).await.unwrap().is_some());
    assert_eq!(first.withdraw(&leading, Some(&behind.entry)).await.unwrap(), Cas::Refused);
    assert_eq!(store.evict(&jobs(), &seen[1]).await.unwrap(), Cas::Done);
    assert_eq!(second.standing(&heir, None).await.unwrap().place, Place::Gone);
    // A tombstone that ends, and a session that is not renewed.
    let ended = Office::default().with_ended(Ended::new(Nonce(1), Duration::from_millis(1)));
    assert_eq!(store.set_office(&jobs(), Version::NONE, &ended).await.unwrap(), Cas::Done);
    let brief = store.open_session(Duration::from_millis(100)).await.unwrap();
    brief.enlist(&jobs(), &entry(4)).await.ok();
    until("both are over", async || {
        let line = store.line(&jobs(), 9).await.unwrap();
        line.office.ended.is_none() && line.entries.len() == 1
    })
    .await;
    // And the store is founded anew.
    assert_eq!(server.cli(&["DEL", "{incumbent}:z"]), "1");
    assert_ne!(store.identity().await.unwrap(), first.store_id());
    first.close().await.unwrap();
}

/// All that a fence does, as this user. The server knows no script.
async fn use_fence(server: &RedisServer, user: &str) -> Result<(), FenceError> {
    server.cli(&["SCRIPT", "FLUSH"]);
    server.cli(&["DEL", "orders:mark", "orders:42"]);
    let fence = RedisFence::new(&store_of(server, user), &jobs(), "orders:mark");
    let token = FencingToken::new(Token::new(5).unwrap(), StoreId::new("some-store"));
    fence.raise(&jobs(), token.clone()).await?;
    fence.write(&token, [RedisWrite::hset("orders:42", "state", "paid")]).await?;
    let script = GuardedScript::new("return redis.call('HSET', KEYS[1], 'state', 'sent')");
    // The server remembers the text of a script that it was shown once.
    for _ in 0..2 {
        fence.run(&token, &script, &["orders:42".into()], &[]).await?;
    }
    fence.reset(&token.store, "a test").await
}

#[tokio::test]
async fn a_fence_needs_the_rights_that_are_documented_and_each_of_them() {
    let server = RedisServer::start().await;
    let (_, documented) = STORE.split_once("//! A fence needs ").unwrap();
    let rights: Vec<_> = documented.split('`').nth(1).unwrap().split(' ').collect();
    let add = |user: &str, rights: &[&str]| {
        let rule = [&["ACL", "SETUSER", user, "on", ">pass", "~orders:*", "+hset"], rights].concat();
        assert_eq!(server.cli(&rule), "OK", "{rule:?}");
    };
    add("least", &rights);
    use_fence(&server, "least").await.unwrap();
    for missing in &rights {
        let user = format!("without{missing}");
        add(&user, &rights.iter().copied().filter(|right| right != missing).collect::<Vec<_>>());
        let refused = use_fence(&server, &user).await;
        assert!(matches!(refused, Err(FenceError::Denied { .. })), "{user}: {refused:?}");
    }
    add("elsewhere", &[&rights[..], &["resetkeys", "~orders:42"]].concat());
    let refused = use_fence(&server, "elsewhere").await;
    assert!(matches!(refused, Err(FenceError::Denied { .. })), "without its mark's key: {refused:?}");
}

/// The server does nothing else while it answers: not for all of them at once.
#[tokio::test]
async fn elections_with_a_record_are_listed_page_by_page() {
    let server = RedisServer::start().await;
    let store = RedisStore::from_url(&server.url()).unwrap();
    let names: Vec<_> = (0..1_200).map(|number| ElectionName::new(&format!("jobs/{number:04}")).unwrap()).collect();
    let paused = Office::default().with_paused(Paused::new("a test"));
    for name in &names {
        store.set_office(name, Version::NONE, &paused).await.unwrap();
    }
    let session = store.open_session(LONG).await.unwrap();
    let in_line = ElectionName::new("line").unwrap();
    session.enlist(&in_line, &entry(1)).await.unwrap();
    let all: Vec<_> = names.iter().cloned().chain([in_line]).collect();
    assert_eq!(store.elections(usize::MAX).await.unwrap(), all);
    assert_eq!(store.elections(2).await.unwrap(), all[..2]);
    let calls = server.cli(&["INFO", "commandstats"]);
    let scans =
        calls.lines().find_map(|line| line.strip_prefix("cmdstat_hscan:calls=")?.split(',').next()?.parse().ok());
    assert!(scans >= Some(4) && !calls.contains("hkeys"), "{calls}");
}

#[tokio::test]
async fn another_database_needs_one_right_more_and_has_elections_of_its_own() {
    let server = RedisServer::start().await;
    let least = format!("&{{incumbent}}* {}", rights(STORE));
    add_user(&server, "least", &least);
    add_user(&server, "more", &format!("{least} +select"));
    let in_database =
        |user: &str| RedisStore::from_url(&format!("redis://{user}:pass@{}/3", server.endpoint())).unwrap();
    let refused = in_database("least").identity().await;
    assert!(matches!(refused, Err(StoreError::Denied { .. })), "{refused:?}");

    let store = in_database("more");
    let session = store.open_session(LONG).await.unwrap();
    let standing = session.enlist(&jobs(), &entry(1)).await.unwrap();
    let wake = tokio::spawn(session.watch(&Watched::new(held(&standing), standing.office.version), standing.cursor));
    until("it waits", async || store.watches() == 1).await;
    session.withdraw(&held(&standing), None).await.unwrap();
    within(wake).await.unwrap().unwrap();
    let keys = |database| server.cli(&["-n", database, "DBSIZE"]);
    assert_eq!((keys("0").as_str(), keys("3").as_str()), ("0", "8"));
    assert_ne!(store_of(&server, "more").identity().await.unwrap(), session.store_id());
}

#[tokio::test]
async fn waiting_for_replicas_needs_one_right_more() {
    let primary = RedisServer::start().await;
    let follows = format!("127.0.0.1 {}", primary.port());
    let _replica = RedisServer::start_with(&["--replicaof", &follows]).await;
    for (user, rights) in [("least", rights(STORE)), ("more", format!("{} +wait", rights(STORE)))] {
        add_user(&primary, user, &format!("&{{incumbent}}* {rights}"));
        let store = RedisStore::from_url(&format!("redis://{user}:pass@{}?wait=1", primary.endpoint())).unwrap();
        let session = store.open_session(LONG).await.unwrap();
        match within(session.renew(&[])).await {
            Ok(_) => assert_eq!(user, "more"),
            Err(error @ StoreError::Denied { .. }) => {
                assert!(user == "least" && error.to_string().contains("waiting for replicas"), "{error}")
            }
            other => panic!("{user}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_user_without_rights_on_the_channels_makes_whole_steps_and_is_told_when_it_waits() {
    let server = RedisServer::start().await;
    add_user(&server, "deaf", &rights(STORE));
    let store = store_of(&server, "deaf");
    let promised = store.promises().await.unwrap().caveats.join(" ");
    assert!(promised.contains("no right on the store's channels"), "{promised}");
    let session = store.open_session(LONG).await.unwrap();
    let standing = session.enlist(&jobs(), &entry(1)).await.unwrap();
    let leading = held(&standing);
    assert_eq!(standing.place, Place::Leading(leading.clone()));
    assert_eq!(session.renew(std::slice::from_ref(&leading)).await.unwrap().gone, []);
    let wake = session.watch(&Watched::new(leading.clone(), standing.office.version), standing.cursor);
    let told = within(wake).await;
    assert!(matches!(told, Err(StoreError::Denied { .. })), "{told:?}");
    session.withdraw(&leading, None).await.unwrap();
    assert_eq!(store.line(&jobs(), 9).await.unwrap().entries, []);
}

#[tokio::test]
async fn a_wrong_password_and_a_missing_right_are_denied_and_a_password_is_not_printed() {
    let server = RedisServer::start_with(&["--requirepass", "hunter2"]).await;
    let right = RedisStore::from_url(&format!("redis://:hunter2@{}/3", server.endpoint())).unwrap();
    right.identity().await.unwrap();
    assert!(!format!("{right:?}").contains("hunter2"), "{right:?}");
    for url in [server.url(), format!("redis://:nonsense@{}", server.endpoint())] {
        let refused = RedisStore::from_url(&url).unwrap().identity().await;
        assert!(matches!(refused, Err(StoreError::Denied { .. })), "{url}: {refused:?}");
        assert!(!format!("{refused:?}").contains("nonsense"), "{refused:?}");
    }
}

/// Nobody waits for what no time can cure.
#[tokio::test]
async fn a_database_that_the_server_does_not_have_is_misuse() {
    let server = RedisServer::start().await;
    let refused = RedisStore::from_url(&format!("redis://{}/99", server.endpoint())).unwrap().identity().await;
    let Err(StoreError::Misuse { what }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("has no such database"), "{what}");
}

#[tokio::test]
async fn a_database_in_a_cluster_is_misuse() {
    let member = RedisServer::start_with(&["--cluster-enabled", "yes"]).await;
    let refused = RedisStore::from_url(&format!("redis://{}/1", member.endpoint())).unwrap().identity().await;
    let Err(StoreError::Misuse { what }) = refused else { panic!("{refused:?}") };
    assert!(what.contains("leave the number after the / of the URL out"), "{what}");
}

/// No time makes a Redis of it.
#[tokio::test]
async fn what_is_not_redis_is_misuse() {
    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = web.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = web.accept().await {
            let mut asked = [0; 16];
            _ = stream.read(&mut asked).await;
            _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    });
    let certificates = Certificates::new("IP:127.0.0.1");
    let with_tls = format!("rediss://{address}?ca={}", certificates.file("ca.pem"));
    for url in [format!("redis://{address}"), with_tls] {
        let refused = RedisStore::from_url(&url).unwrap().identity().await;
        let Err(StoreError::Misuse { what }) = refused else { panic!("{url}: {refused:?}") };
        assert!(what.contains("is not Redis"), "{what}");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_said_with_what_to_look_at() {
    let certificates = Certificates::new("IP:127.0.0.1");
    let at = |file: &str| certificates.file(file);
    let (certificate, key, ca) = (at("server.pem"), at("server.key"), at("ca.pem"));
    let tls = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let server = RedisServer::start_with(&[&["--port", "0", "--tls-port", "{port}"][..], &tls].concat()).await;
    let others = Certificates::new("IP:127.0.0.1");
    let url = |ca: &str| format!("rediss://{}?ca={ca}", server.endpoint());
    for (url, next) in
        [(url(&others.file("ca.pem")), "signed by one that ca= names"), (url(&ca), "check cert= and key=")]
    {
        let refused = RedisStore::from_url(&url).unwrap().identity().await;
        // Certificates are renewed: a leader that meets an old one tries again.
        let Err(error @ StoreError::Unavailable { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains(next), "{error}");
    }
}

#[tokio::test]
async fn tls_with_a_ca_of_ones_own_and_a_certificate_on_both_sides() {
    let certificates = Certificates::new("IP:127.0.0.1");
    let at = |file: &str| certificates.file(file);
    let (certificate, key, ca) = (at("server.pem"), at("server.key"), at("ca.pem"));
    let tls = ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
    let server = RedisServer::start_with(&[&["--port", "0", "--tls-port", "{port}"][..], &tls].concat()).await;
    let url = format!("rediss://{}?ca={ca}", server.endpoint());
    let both = format!("{url}&cert={}&key={}", at("client.pem"), at("client.key"));
    let election = Client::connect(&both).await.unwrap().election("tls").unwrap();
    let mut candidacy = election.candidate("ours").stand().await.unwrap();
    within(lead(&mut candidacy).await.resign()).await.unwrap();

    let bare = RedisStore::from_url(&url).unwrap().identity().await;
    assert!(matches!(bare, Err(StoreError::Unavailable { .. })), "no certificate of ours: {bare:?}");
}
