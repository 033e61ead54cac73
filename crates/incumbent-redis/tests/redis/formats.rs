//! What stands in Redis in format 1, byte by byte: it is read as another version may have written
//! it, and written so that another version can read it. Another layout needs another format.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use incumbent_redis::RedlockStore;
use incumbent_store::{
    Cas, Ended, Entry, Incarnation, Merit, NewEntry, Nonce, Office, Paused, Place, Publication, Store, Version,
};
use incumbent_testkit::servers::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::harness::{LONG, Redis, connection, held, jobs, shared, until};

/// What stands in one key: fields of a hash with their values, or members of a sorted set with
/// their scores.
type Rows = BTreeMap<String, String>;

fn rows<const N: usize>(rows: [(&str, &str); N]) -> Rows {
    rows.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn write(connection: &mut MultiplexedConnection, key: &str, is_hash: bool, rows: &Rows) {
    for (name, value) in rows {
        let (command, words) = if is_hash { ("HSET", [name, value]) } else { ("ZADD", [value, name]) };
        redis::cmd(command).arg(key).arg(&words).exec_async(connection).await.unwrap();
    }
}

async fn read(connection: &mut MultiplexedConnection, key: &str, is_hash: bool) -> Rows {
    let mut command = redis::cmd(if is_hash { "HGETALL" } else { "ZRANGE" });
    command.arg(key);
    if !is_hash {
        command.arg(&["0", "-1", "WITHSCORES"]);
    }
    command.query_async(connection).await.unwrap()
}

fn lineage(server: &RedisServer) -> String {
    said(server, "master_replid:")
}

fn said(server: &RedisServer, field: &str) -> String {
    let info = server.cli(&["INFO"]);
    info.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim().to_owned()
}

fn wall() -> String {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().to_string()
}

/// What differs from store to store, and from run to run.
struct Variable {
    /// The counter, before two sessions were opened.
    founded: u64,
    id: String,
    lineage: String,
    clock: String,
    wall: String,
    /// By the store's clock.
    sessions_end: [String; 2],
    tombstone_ends: String,
}

/// One who leads, and one who stands behind it and has said something since; a record with a
/// tombstone.
fn format_1(variable: &Variable) -> [(&'static str, bool, Rows); 8] {
    let Variable { founded, id, lineage, clock, wall, sessions_end: [first_ends, second_ends], tombstone_ends } =
        variable;
    let number = |after: u64| format!("{:016}", founded + after);
    let (first, second) = (format!("{}00000600000", number(1)), format!("{}00000600000", number(2)));
    let (leads, behind) = (format!("jobs/nightly\0{}", number(3)), format!("jobs/nightly\0{}", number(4)));
    let (one, two) = ("00000000000000000000000000000001", "00000000000000000000000000000002");
    let said = "unwell priority=7 0000000000000005host:2b";
    let entries = [
        format!("{}{first}{one}0005first----------------host:1", number(3)),
        format!("{}{second}{two}0006second{said}", number(5)),
    ];
    let places = [format!("{first}\0{leads}{one}"), format!("{second}\0{behind}{two}")];
    let record = "incumbent 1\npaused a test\nended.id 7\nended.keep 600.000000000\n";
    let office =
        format!("{}{tombstone_ends:0>16}00000008000000627 600000{record}incumbent 1\npaused a test\n", number(6));
    let (newest, token) = (number(6), number(3));
    let (lasts, ttls) = ("600000", [format!("T00000600000{first}"), format!("T00000600000{second}")]);
    let mut meta = rows([("format", "1"), ("id", id), ("change", &newest), ("lineage", lineage), ("clock", clock)]);
    meta.extend(rows([("wall", wall), ("hold", "0"), ("taken_over", ""), ("longest", lasts), ("shortest", lasts)]));
    [
        ("m", true, meta),
        ("s", false, rows([("", "inf"), (&first, first_ends), (&second, second_ends)])),
        ("l", false, rows([("", "0"), (&leads, "0"), (&behind, "0")])),
        ("e", true, rows([("", &newest), (&leads, &entries[0]), (&behind, &entries[1])])),
        ("p", false, rows([("", "0"), (&places[0], "0"), (&places[1], "0"), (&ttls[0], "0"), (&ttls[1], "0")])),
        ("o", true, rows([("", ""), ("jobs/nightly", &office)])),
        ("z", false, rows([("", "inf"), ("jobs/nightly", tombstone_ends)])),
        ("h", true, rows([("", ""), ("jobs/nightly", &token)])),
    ]
}

fn one() -> NewEntry {
    NewEntry::new(Incarnation::from_bits(1), "first", b"host:1".to_vec())
}

fn two() -> NewEntry {
    NewEntry::new(Incarnation::from_bits(2), "second", b"host:2".to_vec())
}

fn said_by_two() -> Publication {
    Publication::new("host:2b").ready(Some(Nonce(5))).merit(Merit::new(true, 7))
}

fn ended() -> Office {
    Office::default().with_paused(Paused::new("a test")).with_ended(Ended::new(Nonce(7), LONG))
}

#[tokio::test]
async fn what_this_version_writes_is_format_1() {
    let server = shared().await;
    let (redis, mut connection) = (Redis::on(server), connection(server).await);
    let store = redis.open();
    let id = store.identity().await.unwrap().to_string();
    let founded = server.cli(&["HGET", &redis.key("m"), "change"]).parse().unwrap();
    let (first, second) = (store.open_session(LONG).await.unwrap(), store.open_session(LONG).await.unwrap());
    first.enlist(&jobs(), &one()).await.unwrap();
    let behind = second.enlist(&jobs(), &two()).await.unwrap();
    second.publish(&held(&behind), behind.published, &said_by_two()).await.unwrap().unwrap();
    assert_eq!(store.set_office(&jobs(), Version::NONE, &ended()).await.unwrap(), Cas::Done);

    let (mut keys, mut written) = (Vec::new(), BTreeMap::new());
    for (key, is_hash) in
        [("m", true), ("s", false), ("l", false), ("e", true), ("p", false), ("o", true), ("z", false), ("h", true)]
    {
        keys.push((key, is_hash));
        written.insert(key, read(&mut connection, &redis.key(key), is_hash).await);
    }
    let whole = |key: &str, name: &str| {
        let value = written[key].get(name).unwrap_or_else(|| panic!("{name:?} in {:?}", written[key]));
        assert!(value.parse::<u64>().is_ok(), "{name}: {value}");
        value.clone()
    };
    let session_ends = |after| whole("s", &format!("{:016}00000600000", founded + after));
    let variable = Variable {
        founded,
        id,
        lineage: lineage(server),
        clock: whole("m", "clock"),
        wall: whole("m", "wall"),
        sessions_end: [session_ends(1), session_ends(2)],
        tombstone_ends: whole("z", "jobs/nightly"),
    };
    for (key, _, rows) in format_1(&variable) {
        assert_eq!(written[key], rows, "{key}");
    }
}

#[tokio::test]
async fn what_stands_in_format_1_is_read_and_goes_on() {
    let server = shared().await;
    let (redis, mut connection) = (Redis::on(server), connection(server).await);
    let variable = Variable {
        founded: 40,
        id: "redis-of-another-version".to_owned(),
        lineage: lineage(server),
        clock: "1000".to_owned(),
        wall: wall(),
        sessions_end: ["601000".to_owned(), "601000".to_owned()],
        tombstone_ends: "601000".to_owned(),
    };
    for (key, is_hash, rows) in format_1(&variable) {
        write(&mut connection, &redis.key(key), is_hash, &rows).await;
    }

    let store = redis.open();
    assert_eq!(store.identity().await.unwrap().as_str(), variable.id);
    let line = store.line(&jobs(), 9).await.unwrap();
    assert_eq!(line.office, ended().with_version(Version(46)));
    let [leads, behind] = &line.entries[..] else { panic!("{line:?}") };
    check(leads, &one(), 43);
    check(behind, &two(), 44);
    let said = said_by_two();
    assert_eq!((behind.version, behind.ready, behind.merit), (Version(45), said.ready, said.merit));
    let session = store.open_session(LONG).await.unwrap();
    let third = NewEntry::new(Incarnation::from_bits(3), "third", b"host:3".to_vec());
    let standing = session.enlist(&jobs(), &third).await.unwrap();
    assert_eq!(held(&standing).token.get(), 48, "the next after its session");
    assert!(matches!(&standing.place, Place::Behind { ahead, .. } if ahead.id == behind.id), "{standing:?}");
    for entry in [leads, behind] {
        assert_eq!(store.evict(&jobs(), entry).await.unwrap(), Cas::Done);
    }
    let standing = session.standing(&held(&standing), None).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
}

fn check(entry: &Entry, new: &NewEntry, token: u64) {
    assert_eq!((entry.token.get(), entry.incarnation), (token, Some(new.incarnation)), "{entry:?}");
    assert_eq!(entry.name.as_deref(), Some(&*new.name));
    assert!(entry.value.starts_with(&new.value), "{entry:?}");
}

/// What one server of a Redlock keeps while somebody leads.
struct Lock<'a> {
    server: &'a str,
    store: &'a str,
    lineage: &'a str,
    /// The process. An earlier version wrote none.
    run: Option<&'a str>,
    /// The counter, which is the newest token.
    token: u64,
    session: &'a str,
    /// What is left of its time, and when that was counted.
    left: &'a str,
    counted: &'a str,
    aged: &'a str,
}

fn redlock_format_1(lock: &Lock<'_>) -> Rows {
    let Lock { server, store, lineage, run, token, session, left, counted, aged } = lock;
    let (counter, one) = (format!("{token:016}"), "00000000000000000000000000000001");
    let numbers = format!("{left}{counted:0>16}00000600000{counter}0000000000000001{counter}0000000000000001");
    let lock = format!("{numbers}{session}{one}0005first----------------host:1");
    let mut all = rows([("format", "1"), ("server", server), ("store", store), ("counter", &counter), ("wait", "0")]);
    all.extend(rows([("lineage", lineage), ("longest", "00000600000"), ("kept", ""), ("asked", "0"), ("aged", aged)]));
    all.extend(rows([("age", OLD), ("/jobs/nightly", &lock)]));
    all.extend(run.map(|run| ("run".to_owned(), run.to_owned())));
    all
}

/// A server has known for so long what it knows.
const OLD: &str = "99999999999";
const REDLOCK: &str = "{incumbent}:redlock";

async fn three() -> ([RedisServer; 3], RedlockStore) {
    let servers = [RedisServer::start().await, RedisServer::start().await, RedisServer::start().await];
    let addresses: Vec<_> = servers.iter().map(RedisServer::endpoint).collect();
    let store = RedlockStore::from_url(&format!("redlock://{}", addresses.join(","))).unwrap();
    (servers, store)
}

#[tokio::test]
async fn what_this_version_writes_on_a_server_of_a_redlock_is_format_1() {
    let (servers, store) = three().await;
    until("it is founded", async || store.open_session(LONG).await.is_ok()).await;
    for server in &servers {
        server.cli(&["HSET", REDLOCK, "age", OLD]);
    }
    let session = store.open_session(LONG).await.unwrap();
    let leading = held(&session.enlist(&jobs(), &one()).await.unwrap());
    for server in &servers {
        let written = read(&mut connection(server).await, REDLOCK, true).await;
        let lock = &written["/jobs/nightly"];
        let (left, counted, session) = (&lock[..11], &lock[11..27], &lock[102..129]);
        assert!(session.bytes().all(|byte| byte.is_ascii_hexdigit()), "{lock}");
        for number in [left, counted, &written["aged"]] {
            assert!(number.parse::<u64>().is_ok(), "{number}");
        }
        let expected = redlock_format_1(&Lock {
            server: &written["server"],
            store: store.identity().await.unwrap().as_str(),
            lineage: &lineage(server),
            run: Some(&said(server, "run_id:")),
            token: leading.token.get(),
            session,
            left,
            counted,
            aged: &written["aged"],
        });
        assert_eq!(written, expected);
    }
}

const OF_ANOTHER_VERSION: &str = "redlock-00000001-00000002-00000003";

/// What another version wrote on servers: of this lineage, by this process.
async fn write_to_three(servers: &[RedisServer; 3], of: impl Fn(&RedisServer) -> (String, Option<String>)) {
    let now = wall();
    for (server, name) in servers.iter().zip(["00000001", "00000002", "00000003"]) {
        let (lineage, run) = of(server);
        let (store, session) = (OF_ANOTHER_VERSION, "0123456789abcdef0123456789a");
        let (lineage, run, left, counted, aged) = (&lineage, run.as_deref(), "00000600000", &now, &now);
        let lock = Lock { server: name, store, lineage, run, token: 41, session, left, counted, aged };
        write(&mut connection(server).await, REDLOCK, true, &redlock_format_1(&lock)).await;
    }
}

#[tokio::test]
async fn what_stands_on_servers_of_a_redlock_in_format_1_is_read_and_goes_on() {
    let (servers, store) = three().await;
    let id = OF_ANOTHER_VERSION;
    // One of them has another lineage since, as after a backup.
    let backed_up = servers[0].port();
    write_to_three(&servers, |server| {
        let was = if server.port() == backed_up { "0".repeat(40) } else { lineage(server) };
        (was, Some(said(server, "run_id:")))
    })
    .await;

    assert_eq!(store.identity().await.unwrap().as_str(), id);
    assert_eq!(servers[0].cli(&["HGET", REDLOCK, "server"]), "00000001", "it was not restarted");
    let line = store.line(&jobs(), 9).await.unwrap();
    let [leads] = &line.entries[..] else { panic!("{line:?}") };
    check(leads, &one(), 41);
    let session = store.open_session(LONG).await.unwrap();
    let standing = session.enlist(&jobs(), &two()).await.unwrap();
    assert!(matches!(&standing.place, Place::Behind { ahead, .. } if ahead.id == leads.id), "{standing:?}");
    assert_eq!(store.evict(&jobs(), leads).await.unwrap(), Cas::Done);
    let standing = session.enlist(&jobs(), &two()).await.unwrap();
    assert_eq!((held(&standing).token.get(), matches!(standing.place, Place::Leading(_))), (42, true), "{standing:?}");
}

#[tokio::test]
async fn what_an_earlier_version_wrote_on_servers_of_a_redlock_is_read_where_the_lineage_says_that_nothing_is_lost() {
    let (servers, store) = three().await;
    let restarted = servers[2].port();
    write_to_three(&servers, |server| {
        (if server.port() == restarted { "0".repeat(40) } else { lineage(server) }, None)
    })
    .await;

    assert_eq!(store.identity().await.unwrap().as_str(), OF_ANOTHER_VERSION);
    let names = servers.each_ref().map(|server| server.cli(&["HGET", REDLOCK, "server"]));
    assert_eq!(names[..2], ["00000001", "00000002"]);
    assert_ne!(names[2], "00000003", "it may have been restarted");
    let line = store.line(&jobs(), 9).await.unwrap();
    assert_eq!(line.entries.iter().map(|entry| entry.token.get()).collect::<Vec<_>>(), [41]);
}
