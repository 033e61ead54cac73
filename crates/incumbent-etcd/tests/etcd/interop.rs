//! In one line with candidates that other people wrote: Go's, as `etcdctl elect` uses them.

use std::process::Stdio;

use incumbent::{Observation, OperatorError};
use incumbent_store::{ElectionName, Store};
use incumbent_testkit::servers::EtcdCluster;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::{client, lead, name, shared, store, until, within};

/// A candidate of Go's.
struct GoCandidate {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl GoCandidate {
    fn stand(cluster: &EtcdCluster, election: &ElectionName, value: &str) -> GoCandidate {
        GoCandidate::run(cluster, &["elect", election.as_str(), value])
    }

    fn listen(cluster: &EtcdCluster, election: &ElectionName) -> GoCandidate {
        GoCandidate::run(cluster, &["elect", "-l", election.as_str()])
    }

    fn run(cluster: &EtcdCluster, args: &[&str]) -> GoCandidate {
        let mut command = Command::from(cluster.etcdctl());
        let mut child = command.args(args).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        GoCandidate { child, said }
    }

    /// The next key and value that it prints: its own, once it leads.
    async fn says(&mut self) -> (String, String) {
        let mut line = async || within(self.said.next_line()).await.unwrap().expect("etcdctl goes on");
        (line().await, line().await)
    }

    /// Gives the office back, or leaves the line.
    async fn leave(mut self) {
        let pid = Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        within(self.child.wait()).await.unwrap();
    }
}

#[tokio::test]
async fn etcdctl_leads_and_ours_follows_and_takes_over() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("go-leads"));
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut observer = ours.observe();
    let mut go = GoCandidate::stand(cluster, &election, "go's value");
    assert_eq!(go.says().await.1, "go's value");

    let mut candidacy = ours.candidate("ours").value("our value").stand().await.unwrap();
    let theirs = loop {
        match within(observer.next()).await.unwrap() {
            Observation::Leader(leader) => break leader,
            _ => continue,
        }
    };
    assert_eq!((theirs.name, theirs.id, &theirs.value[..]), (None, None, &b"go's value"[..]));
    until("ours is in line", async || store.line(&election, 9).await.unwrap().entries.len() == 2).await;

    go.leave().await;

    let office = lead(&mut candidacy).await;
    assert!(Some(office.term().token().token) > theirs.token);
    let leader = ours.leader().await.unwrap().into_inner().unwrap();
    assert_eq!(leader.name.as_deref(), Some("ours"));
}

#[tokio::test]
async fn ours_leads_and_etcdctl_follows_and_takes_over() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("ours-leads"));
    let ours = client(&store).await.election(election.as_str()).unwrap();
    // A name that no key can hold as it is.
    let mut candidacy = ours.candidate("ours / 100 % ü").value("our value").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let token = office.term().token().token;

    let mut listener = GoCandidate::listen(cluster, &election);
    let (key, value) = listener.says().await;
    assert!(key.starts_with(&format!("{election}/")), "{key}");
    assert_eq!(value, "our value");
    office.term().proclaim("our second value").await.unwrap();
    assert_eq!(listener.says().await, (key, "our second value".to_owned()));

    let mut go = GoCandidate::stand(cluster, &election, "go's value");
    until("Go's is in line", async || store.line(&election, 9).await.unwrap().entries.len() == 2).await;
    let line = store.line(&election, 9).await.unwrap().entries;
    assert_eq!(line.iter().map(|entry| entry.is_foreign()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(line[0].name.as_deref(), Some("ours / 100 % ü"));

    office.resign().await.unwrap();

    assert_eq!(go.says().await.1, "go's value");
    assert_eq!(listener.says().await.1, "go's value");
    let leader = ours.leader().await.unwrap().into_inner().unwrap();
    assert!(leader.id.is_none() && leader.token > Some(token));
    go.leave().await;
    // Ours went to the end of the line, and is first again.
    lead(&mut candidacy).await;
}

#[tokio::test]
async fn a_transfer_past_gos_candidate_is_refused_and_a_pause_names_it() {
    let cluster = shared().await;
    let (store, election) = (store(cluster), name("go-between"));
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("leader").stand().await.unwrap();
    let _office = lead(&mut candidacy).await;
    let go = GoCandidate::stand(cluster, &election, "go's value");
    until("Go's is in line", async || store.line(&election, 9).await.unwrap().entries.len() == 2).await;
    let theirs = client(&store).await.election(election.as_str()).unwrap();
    let _heir = theirs.candidate("heir").stand().await.unwrap();
    until("the heir is in line", async || store.line(&election, 9).await.unwrap().entries.len() == 3).await;

    let operator = ours.operator();
    let refused = within(operator.transfer("heir", std::time::Duration::from_secs(60))).await.unwrap_err();
    assert!(matches!(refused, OperatorError::Refused(_)), "{refused:?}");
    assert!(refused.to_string().contains("another library"), "{refused}");

    let refused = within(operator.pause(std::time::Duration::from_secs(5))).await.unwrap_err();
    assert!(matches!(refused, OperatorError::Foreign { .. }), "{refused:?}");
    go.leave().await;
}
