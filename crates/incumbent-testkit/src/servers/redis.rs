//! Redis: one server, or several that know nothing of each other until a test tells them.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::process::{Process, Scratch, comes_up};
use crate::free_port;

/// How often a start is tried: somebody else may take a port in between.
const STARTS: usize = 5;
/// A server that is stopped takes a connection and never answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A Redis server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct RedisServer {
    args: Vec<String>,
    environment: Vec<String>,
    port: u16,
    log: PathBuf,
    process: Option<Process>,
    scratch: Scratch,
}

impl RedisServer {
    /// Starts a server that writes nothing to a disk, and waits until it answers.
    pub async fn start() -> RedisServer {
        RedisServer::start_with(&[]).await
    }

    /// The same with further arguments, e.g. `--appendonly yes`. `{port}` becomes its port, and
    /// `{folder}` the folder of its data.
    pub async fn start_with(args: &[&str]) -> RedisServer {
        RedisServer::start_in(args, || Scratch::new("redis")).await
    }

    /// The same with its data on a disk: for benchmarks.
    pub async fn start_on_disk(args: &[&str]) -> RedisServer {
        RedisServer::start_in(args, || Scratch::on_disk("redis")).await
    }

    /// Starts a Sentinel that replaces `primary`, which it calls `primary`, by a replica once that
    /// has been silent for half a second.
    pub async fn start_sentinel(primary: &RedisServer) -> RedisServer {
        let monitor = format!(
            "sentinel monitor primary 127.0.0.1 {} 1\nsentinel down-after-milliseconds primary 500\n",
            primary.port
        );
        for _ in 0..STARTS {
            let mut sentinel = RedisServer::prepare(&[], Scratch::new("sentinel"));
            let folder = sentinel.scratch.path();
            let config = folder.join("sentinel.conf");
            let place = format!("port {}\nbind 127.0.0.1\ndir {}\n", sentinel.port, folder.display());
            std::fs::write(&config, place + &monitor).expect("a file");
            sentinel.args = vec![config.display().to_string(), "--sentinel".to_owned()];
            sentinel.run();
            if sentinel.answers_soon().await {
                return sentinel;
            }
        }
        panic!("a Sentinel does not start; is Redis installed (`scripts/setup redis`)?");
    }

    async fn start_in(args: &[&str], scratch: impl Fn() -> Scratch) -> RedisServer {
        for _ in 0..STARTS {
            let mut server = RedisServer::prepare(args, scratch());
            server.run();
            if server.answers_soon().await {
                return server;
            }
        }
        panic!("redis-server does not start; is it installed (`scripts/setup redis`)?");
    }

    fn prepare(extra: &[&str], scratch: Scratch) -> RedisServer {
        let port = free_port();
        let folder = scratch.path().display().to_string();
        let plain =
            ["--port", "{port}", "--bind", "127.0.0.1", "--dir", "{folder}", "--save", "", "--appendonly", "no"];
        let filled = |arg: &&str| arg.replace("{port}", &port.to_string()).replace("{folder}", &folder);
        // Of two that contradict each other the later one counts.
        let args = plain.iter().chain(extra).map(filled).collect();
        RedisServer { args, environment: Vec::new(), port, log: scratch.path().join("log"), process: None, scratch }
    }

    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL for it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.endpoint())
    }

    /// The folder of its data, which goes with it.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// What it had to say.
    pub fn logs(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Kills it without warning.
    pub fn kill(&mut self) {
        drop(self.process.take());
    }

    /// Starts it again on the same port with the same data, and waits until it answers.
    pub async fn restart(&mut self) {
        for _ in 0..STARTS {
            self.kill();
            self.run();
            if self.answers_soon().await {
                return;
            }
        }
        panic!("it does not start again: {}", self.logs());
    }

    fn run(&mut self) {
        let program = self.environment.iter().cloned().chain(["redis-server".to_owned()]);
        let args: Vec<_> = program.chain(self.args.iter().cloned()).collect();
        self.process = Some(Process::start("env", &args, &self.log));
    }

    /// Environment variables for its next start, each as `NAME=value`.
    pub fn set_environment(&mut self, variables: &[String]) {
        self.environment = variables.to_vec();
    }

    /// Adds arguments, which count from its next start on. Of two that contradict each other the
    /// later one counts.
    pub fn configure(&mut self, args: &[&str]) {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    /// Stops it in its tracks: connections stay, nothing answers.
    pub fn pause(&self) {
        self.process.iter().for_each(Process::pause);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.iter().for_each(Process::resume);
    }

    /// Runs Redis' own command, and what it said. What contains an error is no reason to panic:
    /// only the caller knows what it asked for.
    pub fn cli(&self, args: &[&str]) -> String {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(args).output();
        let output = output.expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    async fn answers_soon(&self) -> bool {
        comes_up(self.process.as_ref(), || self.answers()).await
    }

    /// Whether it speaks, be it only to ask for a password. One that reads its data in says so, and
    /// does not count; with TLS it answers nothing to this, but takes the connection.
    async fn answers(&self) -> bool {
        let answer = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.ok()?;
            if self.args.iter().any(|arg| arg == "--tls-port") {
                return Some(true);
            }
            stream.write_all(b"PING\r\n").await.ok()?;
            let mut answer = [0; 64];
            let length = stream.read(&mut answer).await.ok()?;
            Some(answer[..length].starts_with(b"+PONG") || answer[..length].starts_with(b"-NOAUTH"))
        };
        tokio::time::timeout(ANSWER_WITHIN, answer).await.ok().flatten().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_forgets_when_it_is_killed_unless_it_has_a_file() {
        for (args, kept) in [(&[][..], ""), (&["--appendonly", "yes"], "here")] {
            let mut server = RedisServer::start_with(args).await;
            assert_eq!(server.cli(&["SET", "key", "here"]), "OK");
            server.restart().await;
            assert_eq!(server.cli(&["GET", "key"]), kept, "{args:?}");
        }
    }
}
