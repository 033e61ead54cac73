//! PostgreSQL, and a pooler in front of it.

use std::fmt::Write as _;
use std::future::ready;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::process::{Process, Scratch, comes_up};
use crate::free_port;
use crate::patience::{LOOK_EVERY, found};

/// How often a start is tried: somebody else may take a port in between.
const STARTS: usize = 5;

/// How long an immediate stop may take. The server kills those of its processes that do not heed it
/// after five seconds; PostgreSQL 15 has been seen to wait for them for good then.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// The servers refuse to run as root; the packages bring a user for them.
const USER: &str = "postgres";

/// A PostgreSQL server with a superuser `postgres`, trusted from this host. Dropping it kills it
/// and removes its data.
#[derive(Debug)]
pub struct PostgresServer {
    data: PathBuf,
    port: u16,
    log: PathBuf,
    settings: Vec<String>,
    environment: Vec<String>,
    process: Option<Process>,
    scratch: Scratch,
}

/// `pgbouncer` in front of one server, in transaction mode with few connections.
#[derive(Debug)]
pub struct PgBouncer {
    config: PathBuf,
    port: u16,
    log: PathBuf,
    process: Option<Process>,
    _scratch: Scratch,
}

impl PostgresServer {
    /// Starts a server and waits until it answers.
    pub async fn start() -> PostgresServer {
        PostgresServer::start_with(&[]).await
    }

    /// The same with settings, each as `name=value`.
    pub async fn start_with(settings: &[&str]) -> PostgresServer {
        PostgresServer::start_in(Scratch::new("postgres"), settings).await
    }

    /// The same with its data on a disk: for benchmarks.
    pub async fn start_on_disk() -> PostgresServer {
        PostgresServer::start_in(Scratch::on_disk("postgres"), &[]).await
    }

    async fn start_in(scratch: Scratch, settings: &[&str]) -> PostgresServer {
        let mut server = PostgresServer::prepare(scratch, settings);
        let made = run_as_server(
            &tool("initdb"),
            &["-D", text(&server.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"],
        );
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.restart().await;
        server
    }

    /// A standby that follows this server, and waits for nothing: `synchronous_standby_names` is
    /// the server's matter.
    pub async fn start_standby(&self, name: &str, settings: &[&str]) -> PostgresServer {
        let standby = self.start_backup(settings, &["-R", "-d", &format!("application_name={name}")]).await;
        // It answers before it follows, and the server knows of it only then.
        let follows = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{name}' AND state = 'streaming'"
        );
        let following = found(|| ready((self.sql(&follows) == "1").then_some(())));
        assert!(following.await.is_some(), "the standby does not follow: {}", standby.logs());
        standby
    }

    /// A server of its own that begins with this one's data, which was copied while it ran.
    pub async fn start_copy(&self) -> PostgresServer {
        self.start_backup(&[], &[]).await
    }

    async fn start_backup(&self, settings: &[&str], options: &[&str]) -> PostgresServer {
        let mut backup = PostgresServer::prepare(Scratch::new("postgres"), settings);
        let port = self.port.to_string();
        let usual = ["-h", "127.0.0.1", "-p", &port, "-U", USER, "-X", "stream", "-c", "fast", "--no-sync"];
        let copied =
            run_as_server(&tool("pg_basebackup"), &[&["-D", text(&backup.data)], &usual[..], options].concat());
        assert!(copied.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&copied.stderr));
        backup.restart().await;
        backup
    }

    fn prepare(scratch: Scratch, settings: &[&str]) -> PostgresServer {
        give_to_server(scratch.path());
        PostgresServer {
            data: scratch.path().join("data"),
            port: free_port(),
            log: scratch.path().join("log"),
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            environment: Vec::new(),
            process: None,
            scratch,
        }
    }

    /// Environment variables for its next start, each as `NAME=value`.
    pub fn set_environment(&mut self, variables: &[String]) {
        self.environment = variables.to_vec();
    }

    /// Adds a setting, as `name=value`, which counts from its next start on. A later one of the
    /// same name wins.
    pub fn configure(&mut self, setting: &str) {
        self.settings.push(setting.to_owned());
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A URL for it.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@{}/postgres", self.endpoint())
    }

    /// A folder that goes with it.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Kills it and all that it has started without warning, as a power failure would.
    pub fn kill(&mut self) {
        self.kill_within(STOP_WITHIN);
    }

    /// By an immediate stop, if it heeds that: the server's own processes would outlive a killed
    /// parent for a moment, and keep its data in use.
    fn kill_within(&mut self, stop: Duration) {
        let Some(process) = &self.process else { return };
        run_as_server(&tool("pg_ctl"), &["-D", text(&self.data), "-m", "immediate", "-W", "stop"]);
        // That of a server which was stopped in its tracks takes effect when it goes on.
        process.resume();
        let patience = Instant::now() + stop;
        while self.data.join("postmaster.pid").exists() {
            if Instant::now() > patience {
                self.signal("KILL");
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        drop(self.process.take());
    }

    /// Starts it, after killing it if need be, with the same data on the same port, and waits until
    /// it answers.
    pub async fn restart(&mut self) {
        for _ in 0..STARTS {
            self.kill();
            self.run();
            if self.answers_soon().await {
                return;
            }
        }
        panic!("PostgreSQL does not start (`scripts/setup postgres`?): {}", self.logs());
    }

    fn run(&mut self) {
        let mut args = as_server();
        args.extend(self.environment.iter().cloned());
        args.extend([tool("postgres"), "-D".to_owned(), text(&self.data).to_owned()]);
        let usual = [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", text(self.scratch.path())),
            "max_connections=200".to_owned(),
            "max_prepared_transactions=5".to_owned(),
            "shared_buffers=16MB".to_owned(),
        ];
        for setting in usual.iter().chain(&self.settings) {
            args.extend(["-c".to_owned(), setting.clone()]);
        }
        self.process = Some(Process::start("env", &args, &self.log));
    }

    async fn answers_soon(&self) -> bool {
        comes_up(self.process.as_ref(), || ready(answers(&self.url()))).await
    }

    /// Stops every process of it in its tracks: connections stay, nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// To the server and to all that it has started: each connection has a process of its own.
    fn signal(&self, signal: &str) {
        // Those that have ended in between are not there any more.
        let _ = Command::new("kill").arg(format!("-{signal}")).args(self.pids()).output();
    }

    /// Each of them leads a process group of its own.
    fn pids(&self) -> Vec<String> {
        let Some(process) = &self.process else { return Vec::new() };
        let parent = process.pid().to_string();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let children = Vec::from_iter(children.split_whitespace().map(str::to_owned));
        [vec![parent], children].concat()
    }

    /// Makes a primary of a standby, and waits until it is one.
    pub async fn promote(&self) {
        self.sql("SELECT pg_promote()");
    }

    /// Runs SQL as the superuser, and what it said: rows as lines, columns with `|` between them.
    pub fn sql(&self, sql: &str) -> String {
        let said = self.psql().arg(sql).output().expect("psql");
        assert!(said.status.success(), "{sql}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).trim_end().to_owned()
    }

    /// PostgreSQL's own command: what follows is SQL.
    pub fn psql(&self) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-Atq", "-v", "ON_ERROR_STOP=1"]).arg(self.url()).arg("-c");
        psql
    }

    /// What it had to say.
    pub fn logs(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl PgBouncer {
    /// Starts one in front of `server` with `connections` to it, and waits until it answers.
    pub async fn start(server: &PostgresServer, connections: usize) -> PgBouncer {
        PgBouncer::start_with(server, connections, &[]).await
    }

    /// The same with settings, each as `name = value`.
    pub async fn start_with(server: &PostgresServer, connections: usize, settings: &[&str]) -> PgBouncer {
        let scratch = Scratch::new("pgbouncer");
        give_to_server(scratch.path());
        let (config, log) = (scratch.path().join("ini"), scratch.path().join("log"));
        let mut bouncer = PgBouncer { config, port: free_port(), log, process: None, _scratch: scratch };
        let mut text = String::new();
        let _ = write!(
            text,
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
             unix_socket_dir =\nauth_type = any\nadmin_users = {USER}\npool_mode = transaction\nmax_client_conn = 500\n\
             default_pool_size = {connections}\nignore_startup_parameters = extra_float_digits\n{}\n",
            server.port,
            bouncer.port,
            settings.join("\n")
        );
        // With `auth_type = any` everybody becomes the user that the database names.
        let text = text.replace("host=127.0.0.1 port", &format!("user={USER} host=127.0.0.1 port"));
        std::fs::write(&bouncer.config, text).expect("a file");
        bouncer.restart().await;
        bouncer
    }

    /// Starts it again on the same port: connections through it are lost, those of the server too.
    pub async fn restart(&mut self) {
        for _ in 0..STARTS {
            self.process = None;
            let mut args = as_server();
            args.extend([which("pgbouncer"), text(&self.config).to_owned()]);
            self.process = Some(Process::start("env", &args, &self.log));
            if comes_up(self.process.as_ref(), || ready(answers(&self.url()))).await {
                return;
            }
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        panic!("pgbouncer does not start (`scripts/setup pgbouncer`?): {log}");
    }

    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A URL for what is behind it.
    pub fn url(&self) -> String {
        format!("postgres://{USER}@{}/postgres", self.endpoint())
    }
}

fn answers(url: &str) -> bool {
    Command::new("psql").args(["-Atqc", "SELECT 1"]).arg(url).output().expect("psql").status.success()
}

/// `env` runs what follows as somebody whom the servers accept. As root that is the packages' user:
/// `setpriv` becomes the program, so that its pid is the one that is known.
fn as_server() -> Vec<String> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    ["setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "env"].map(str::to_owned).to_vec()
}

fn run_as_server(program: &str, args: &[&str]) -> Output {
    let mut command = Command::new("env");
    command.args(as_server()).arg(program).args(args).current_dir("/");
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Hands a folder over to whom the servers run as.
fn give_to_server(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("our folder");
    if rustix::process::geteuid().is_root() {
        let given = Command::new("chown").arg(USER).arg(folder).status().expect("chown");
        assert!(given.success(), "there is no user {USER}: `scripts/setup postgres`");
    }
}

/// One of the server's programs, which are in no search path.
fn tool(name: &str) -> String {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let programs = versions.map(|version| version.path().join("bin").join(name)).filter(|program| program.exists());
    programs.max().map_or_else(|| name.to_owned(), |program| text(&program).to_owned())
}

fn which(name: &str) -> String {
    let usual = format!("/usr/sbin/{name}");
    if Path::new(&usual).exists() { usual } else { name.to_owned() }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path that is UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_keeps_its_data_when_it_is_killed_and_answers_nothing_while_it_is_stopped() {
        let mut server = PostgresServer::start_with(&["fsync=off"]).await;
        server.sql("CREATE TABLE kept AS SELECT 7 AS number");
        server.restart().await;
        assert_eq!(server.sql("SELECT number FROM kept"), "7");
        assert_eq!(server.sql("SHOW fsync"), "off");
        server.pause();
        let mut asked = server.psql();
        asked.env("PGCONNECT_TIMEOUT", "2").arg("SELECT 1");
        assert!(!asked.output().unwrap().status.success());
        server.resume();
        assert_eq!(server.sql("SELECT 1"), "1");
    }

    #[tokio::test]
    async fn a_server_that_does_not_heed_its_stop_is_killed_with_all_that_it_has_started() {
        let mut server = PostgresServer::start_with(&["fsync=off"]).await;
        server.sql("CREATE TABLE kept AS SELECT 7 AS number");
        // The stop goes to a process that there cannot be: its id is above the highest.
        std::fs::write(server.data.join("postmaster.pid"), "4194305\n").unwrap();
        let pids = server.pids();
        assert!(pids.len() > 1, "{pids:?}");
        server.kill_within(Duration::ZERO);
        // Nobody may have reaped them.
        let process = |pid: &String| incumbent_store::Process::read(pid.parse().unwrap()).unwrap();
        let is_gone = |pid: &String| process(pid).is_none_or(|process| process.ended);
        let ended = found(|| ready(pids.iter().all(is_gone).then_some(())));
        assert!(ended.await.is_some(), "of {pids:?} some are left");
        server.restart().await;
        assert_eq!(server.sql("SELECT number FROM kept"), "7");
    }

    #[tokio::test]
    async fn a_standby_follows_until_it_is_promoted() {
        let primary = PostgresServer::start().await;
        let standby = primary.start_standby("other", &[]).await;
        assert_eq!(standby.sql("SELECT pg_is_in_recovery()"), "t");
        standby.promote().await;
        assert_eq!(standby.sql("SELECT pg_is_in_recovery()"), "f");
    }

    #[tokio::test]
    async fn a_pooler_gives_its_few_connections_to_many() {
        let server = PostgresServer::start().await;
        let mut bouncer = PgBouncer::start(&server, 2).await;
        bouncer.restart().await;
        let asked = Command::new("psql").args(["-Atqc", "SELECT 1"]).arg(bouncer.url()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "1\n");
    }
}
