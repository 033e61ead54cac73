//! Asks other hosts what their processes claim, by way of a command. A command that does not answer
//! is killed with all that it started.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::signal::unix::SignalKind;
use tokio::time::timeout;

use crate::claims::HostClaims;
use crate::failure::Failure;
use crate::json::VERSION;
use crate::process_group::ProcessGroup;
use crate::signal_listener::SignalListener;

/// How long a host has to say what its processes claim.
const ANSWER: Duration = Duration::from_secs(10);
/// More than a thousand hosts have to say.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// What the command says: a line of JSON for each host.
pub(super) async fn ask(line: &str) -> Result<Vec<HostClaims>, String> {
    let mut running = Running::start(line, &[]).map_err(|error| error.to_string())?;
    let said = match timeout(ANSWER, running.end()).await {
        Err(_) => return Err(format!("no answer within {} s", ANSWER.as_secs())),
        Ok(said) => said.map_err(|error| error.to_string())?,
    };
    let lines: Vec<_> = said.out.lines().filter(|line| !line.trim().is_empty()).collect();
    if !said.status.success() || lines.is_empty() {
        let why = said.err.lines().last().unwrap_or("it said nothing");
        return Err(format!("{}: {why}", said.status));
    }
    lines.into_iter().map(parse).collect()
}

/// What a command says that may take as long as it takes.
pub(super) async fn run(line: &str, env: &[(&str, &str)]) -> std::io::Result<CommandOutput> {
    Running::start(line, env)?.end().await
}

fn parse(line: &str) -> Result<HostClaims, String> {
    let claims: HostClaims = serde_json::from_str(line).map_err(|error| format!("no claims: {error}"))?;
    if claims.v == VERSION {
        Ok(claims)
    } else {
        Err(format!("claims of version {}, which this build does not know", claims.v))
    }
}

/// A command in a process group of its own, which is killed unless it has ended.
struct Running {
    child: Child,
    group: ProcessGroup,
}

pub(super) struct CommandOutput {
    pub(super) status: ExitStatus,
    pub(super) out: String,
    pub(super) err: String,
}

impl Running {
    fn start(line: &str, env: &[(&str, &str)]) -> std::io::Result<Running> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).envs(env.iter().copied()).process_group(0);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Running { group: ProcessGroup::of(&child), child })
    }

    /// Reads all that it says, and only then waits for it: until that is done its number cannot be
    /// another's.
    async fn end(&mut self) -> std::io::Result<CommandOutput> {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let (out, err) = tokio::try_join!(read(out), read(err))?;
        let status = self.child.wait().await?;
        self.group.has_ended();
        Ok(CommandOutput { status, out, err })
    }
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(MAX_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Waits for a signal that ends this process, and answers with the exit code that says so. Commands
/// that are asking have groups of their own, and do not hear it.
pub(super) async fn interrupted() -> Result<u8, Failure> {
    let mut term = SignalListener::new(SignalKind::terminate())?;
    let mut int = SignalListener::new(SignalKind::interrupt())?;
    let mut hup = SignalListener::new(SignalKind::hangup())?;
    Ok(tokio::select! {
        () = term.heard() => 143,
        () = int.heard() => 130,
        () = hup.heard() => 129,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use incumbent_testkit::TempDir;
    use incumbent_testkit::patience::until;
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    /// Whether nobody has the lock, which a command and all that it started hold while they live.
    fn is_free(lock: &Path) -> bool {
        flock(fs::File::open(lock).unwrap(), FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    #[tokio::test]
    async fn a_command_that_is_given_up_is_killed_with_all_that_it_started() {
        let folder = TempDir::new("ask");
        let lock = folder.path().join("lock");
        let line = format!("exec 9>{0}; flock 9; sleep 1000 & sleep 1000; true", lock.display());
        {
            let mut running = Running::start(&line, &[]).unwrap();
            tokio::select! {
                _ = running.end() => panic!("it ended"),
                () = until("the command holds it", async || lock.exists() && !is_free(&lock)) => {}
            }
        }
        until("nobody holds it", async || is_free(&lock)).await;
    }

    #[tokio::test]
    async fn what_is_no_claims_is_said_with_why() {
        let host = r#"{"v":1,"host":"db1","claims":[],"unread":[]}"#;
        assert_eq!(ask(&format!("echo '{host}'; echo '{host}'")).await.unwrap().len(), 2);
        for (line, why) in [
            ("echo nonsense", "no claims"),
            ("echo '{\"v\":9,\"host\":\"x\",\"claims\":[],\"unread\":[]}'", "version 9"),
            ("echo refused >&2; exit 255", "exit status: 255: refused"),
            ("true", "it said nothing"),
        ] {
            let said = ask(line).await.unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
