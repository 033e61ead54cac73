//! A server whose time a test sets, and whose scripts it may get wrong. Between a store and the
//! server, the text of every script is changed: it reads the time where the test has written it.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_redis::redis::{self, Cmd, Script};
use incumbent_redis::{RedisOptions, RedisStore};
use incumbent_testkit::servers::RedisServer;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};

use crate::clock::ByHand;
use crate::harness::connection;

/// The wall clock when a test begins.
const BEGINNING: Duration = Duration::from_secs(1_700_000_000);
const TIME: &str = "call('TIME')";
const TIME_OF_TEST: &str = "call('MGET', 'seconds', 'micros')";
/// All keys of a store.
pub(crate) const KEYS: [&str; 8] = ["m", "s", "l", "e", "p", "o", "z", "h"];
/// What no script is called.
const UNKNOWN: &str = "0000000000000000000000000000000000000000";

/// What is written in a script, and what is put there instead.
pub(crate) type Flaw = (&'static str, &'static str);

pub(crate) struct TimedServer {
    _server: RedisServer,
    endpoint: String,
    /// Straight to the server.
    direct: MultiplexedConnection,
    /// What the stores read.
    clock: Arc<ByHand>,
    scripts: Arc<Mutex<Scripts>>,
}

impl TimedServer {
    pub(crate) async fn start(flaws: &'static [Flaw]) -> TimedServer {
        let server = RedisServer::start().await;
        let direct = connection(&server).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let scripts = Arc::new(Mutex::new(Scripts { flaws, unused: flaws.to_vec(), names: HashMap::new() }));
        tokio::spawn(accept(listener, server.endpoint(), scripts.clone()));
        let clock = Arc::new(ByHand::default());
        let timed = TimedServer { _server: server, endpoint, direct, clock, scripts };
        timed.set_time(Duration::ZERO).await;
        timed
    }

    /// The store whose keys begin with this.
    pub(crate) fn open(&self, prefix: &str) -> RedisStore {
        let client = redis::Client::open(format!("redis://{}", self.endpoint)).unwrap();
        RedisStore::with_clock(&client, &RedisOptions::new().prefix(prefix), self.clock.clone()).unwrap()
    }

    /// How much time has passed since the test began.
    pub(crate) async fn set_time(&self, passed: Duration) {
        self.clock.set(passed);
        let wall = BEGINNING + passed;
        let mut set = redis::cmd("MSET");
        set.arg("seconds").arg(wall.as_secs()).arg("micros").arg(wall.subsec_micros());
        set.exec_async(&mut self.direct.clone()).await.unwrap();
    }

    /// Keeps what the store has now, as a replica that will lag.
    pub(crate) async fn keep(&self, prefix: &str) {
        self.copy(&KEYS, &format!("{{{prefix}}}:"), &format!("kept-{prefix}:")).await;
    }

    /// Another history of the server goes on from here, or from what was kept.
    pub(crate) async fn fail_over(&self, prefix: &str, to_what_was_kept: bool) {
        let mut promote = redis::pipe();
        promote.cmd("REPLICAOF").arg("127.0.0.1").arg(1).cmd("REPLICAOF").arg("NO").arg("ONE");
        promote.exec_async(&mut self.direct.clone()).await.unwrap();
        if to_what_was_kept {
            self.put_back(prefix, &KEYS).await;
        }
    }

    /// These keys of the store are what was kept.
    pub(crate) async fn put_back(&self, prefix: &str, keys: &[&str]) {
        self.copy(keys, &format!("kept-{prefix}:"), &format!("{{{prefix}}}:")).await;
    }

    /// These keys of the store are gone.
    pub(crate) async fn forget(&self, prefix: &str, keys: &[&str]) {
        let keys = Vec::from_iter(keys.iter().map(|key| format!("{{{prefix}}}:{key}")));
        let mut forget = redis::cmd("DEL");
        forget.arg(keys).exec_async(&mut self.direct.clone()).await.unwrap();
    }

    /// The sessions that the store keeps, and the marks that it sets for some of them.
    pub(crate) async fn sessions(&self, prefix: &str) -> Vec<String> {
        let mut sessions = redis::cmd("ZRANGE");
        sessions.arg(format!("{{{prefix}}}:s")).arg(0).arg(-1);
        let names: Vec<String> = sessions.query_async(&mut self.direct.clone()).await.unwrap();
        // One without a name is always there.
        names.into_iter().filter(|name| !name.is_empty()).collect()
    }

    async fn copy(&self, keys: &[&str], from: &str, to: &str) {
        let mut copy = redis::pipe();
        for key in keys {
            copy.cmd("COPY").arg(format!("{from}{key}")).arg(format!("{to}{key}")).arg("REPLACE");
        }
        let copied: Vec<u8> = copy.query_async(&mut self.direct.clone()).await.unwrap();
        assert_eq!(copied, vec![1; keys.len()]);
    }

    /// What no script that was run has written in it.
    fn unused_flaws(&self) -> Vec<Flaw> {
        self.scripts.lock().unwrap().unused.clone()
    }
}

/// Plays histories, each from its seed, up to the first that goes wrong. That seed alone plays the
/// same history again.
pub(crate) async fn play(
    flaws: &'static [Flaw],
    mut seeds: Range<u64>,
    history: impl AsyncFn(&TimedServer, u64) -> Result<(), String>,
) -> Result<(), String> {
    let server = TimedServer::start(flaws).await;
    let played = loop {
        let Some(seed) = seeds.next() else { break Ok(()) };
        if let Err(why) = history(&server, seed).await {
            break Err(format!("with seed {seed}: {why}"));
        }
    };
    assert_eq!(server.unused_flaws(), [], "the case is no case: {played:?}");
    played
}

struct Scripts {
    flaws: &'static [Flaw],
    unused: Vec<Flaw>,
    /// What the server calls a script, by what a store calls it.
    names: HashMap<Vec<u8>, String>,
}

impl Scripts {
    fn change(&mut self, command: &mut [Vec<u8>]) {
        let [verb, script, ..] = command else { return };
        match &verb[..] {
            b"EVALSHA" => *script = self.names.get(script).map_or(UNKNOWN, String::as_str).as_bytes().to_vec(),
            b"EVAL" => {
                let text = String::from_utf8(script.clone()).unwrap();
                let changed = self.changed(&text);
                self.names.insert(name_of(&text).into(), name_of(&changed));
                *script = changed.into_bytes();
            }
            _ => {}
        }
    }

    fn changed(&mut self, text: &str) -> String {
        assert_eq!(
            (text.matches("'TIME'").count(), text.matches(TIME).count()),
            (1, 1),
            "the time is read once: {text}"
        );
        self.unused.retain(|(right, _)| !text.contains(right));
        let timed = text.replace(TIME, TIME_OF_TEST);
        self.flaws.iter().fold(timed, |text, (right, wrong)| text.replace(right, wrong))
    }
}

fn name_of(script: &str) -> String {
    Script::new(script).get_hash().to_owned()
}

async fn accept(listener: TcpListener, server: String, scripts: Arc<Mutex<Scripts>>) {
    while let Ok((store, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(&server).await else { continue };
        tokio::spawn(forward(store, server, scripts.clone()));
    }
}

async fn forward(store: TcpStream, server: TcpStream, scripts: Arc<Mutex<Scripts>>) -> io::Result<()> {
    store.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((commands, mut answers), (mut server, mut forwarded)) = (store.into_split(), server.into_split());
    tokio::spawn(async move { tokio::io::copy(&mut server, &mut answers).await });
    let mut commands = BufReader::new(commands);
    loop {
        let mut words = read_command(&mut commands).await?;
        scripts.lock().unwrap().change(&mut words);
        let mut command = Cmd::new();
        command.arg(words);
        forwarded.write_all(&command.get_packed_command()).await?;
    }
}

/// A command is `*`, the number of its words, and each of them: `$`, its length, and what it says.
async fn read_command(commands: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    for _ in 0..read_number(commands, b'*').await? {
        let mut word = vec![0; read_number(commands, b'$').await?];
        commands.read_exact(&mut word).await?;
        commands.read_exact(&mut [0; 2]).await?;
        words.push(word);
    }
    Ok(words)
}

async fn read_number(commands: &mut BufReader<OwnedReadHalf>, kind: u8) -> io::Result<usize> {
    let mut line = String::new();
    commands.read_line(&mut line).await?;
    let number = line.strip_prefix(char::from(kind)).and_then(|number| number.trim_end().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
