//! Candidates in processes of their own, which are killed and stopped.

use std::path::PathBuf;
use std::process::Stdio;

use incumbent_testkit::servers::ZooKeeperEnsemble;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::harness::{PERSISTENT, TTL, ZooKeeper, in_line, lead, name, raw, shared, stand, until, within};

/// The example `candidate` in a process of its own. It goes with this handle.
struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    told: ChildStdin,
}

impl Process {
    fn start(server: &ZooKeeperEnsemble, chroot: &str, election: &str, path: &str) -> Process {
        let url = format!("{}{chroot}?tick=200ms", server.url());
        let mut child = Command::new(program())
            .args([&url, election, "process", &TTL.as_secs().to_string(), path])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = child.stdin.take().unwrap();
        Process { child, said, told }
    }

    async fn says(&mut self) -> String {
        within(self.said.next_line()).await.unwrap().expect("it has more to say")
    }

    async fn ask(&mut self, question: &str) -> String {
        self.tell(question).await;
        self.says().await
    }

    async fn tell(&mut self, order: &str) {
        self.told.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

/// Where cargo has put the example, beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join("candidate");
    assert!(program.exists(), "{} is not built: cargo build -p incumbent-zookeeper --examples", program.display());
    program
}

#[tokio::test]
async fn a_leader_that_is_killed_is_followed_by_the_next_in_line() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("killed"));
    let mut process = Process::start(shared().await, &zookeeper.chroot, "killed", "/");
    let elected = process.says().await;
    let token: u64 = elected.strip_prefix("elected ").unwrap().parse().unwrap();
    let mut candidacy = stand(&store, &name, "next").await;
    in_line(&store, &name, 2).await;

    process.signal(Signal::KILL);

    let office = lead(&mut candidacy).await;
    assert!(office.term().token().get() > token);
}

#[tokio::test]
async fn a_leader_stopped_for_longer_than_its_session_finds_itself_out_of_office_and_writes_nothing() {
    let server = shared().await;
    let zookeeper = ZooKeeper::on(server);
    let (store, name) = (zookeeper.open(), name("stopped"));
    let path = format!("{}-data", zookeeper.chroot);
    let client = raw(&server.endpoints()).await;
    client.create(&path, b"", &PERSISTENT).await.unwrap();
    let mut process = Process::start(server, &zookeeper.chroot, "stopped", &path);
    assert!(process.says().await.starts_with("elected "));
    assert_eq!(process.ask("check").await, "leading");
    assert_eq!(process.ask("write first").await, "written");
    let mut candidacy = stand(&store, &name, "next").await;
    in_line(&store, &name, 2).await;

    process.signal(Signal::STOP);

    let office = lead(&mut candidacy).await;
    // Its first thoughts when it goes on.
    process.tell("check").await;
    process.tell("write late").await;
    process.signal(Signal::CONT);

    let check = process.says().await;
    assert!(check.starts_with("lost: "), "{check}");
    assert_eq!(process.says().await, "refused");
    office.term().check().unwrap();
    let (data, _) = client.get_data(&path).await.unwrap();
    assert_eq!(data, b"first");
    drop(process.told);
    until("it has gone", async || process.child.try_wait().unwrap().is_some()).await;
}
