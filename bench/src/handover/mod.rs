//! Planned handovers under load: client, leader, fence.
//!
//! A client sends numbered writes one after the other to a process that leads; that one writes them
//! through a fence and answers. A write that is refused, or whose answer is missing, is sent again
//! to another process under the same number. Meanwhile the office is handed over again and again.
//! The resource behind the fence keeps every number that it took, and when: what was written twice,
//! lost or refused is counted there, and the gap of a handover is the longest time between two
//! writes that it took.
//!
//! It knows of no store: the program that starts the candidates says where they stand, and they may
//! be another library's.

#![allow(clippy::expect_used, reason = "a benchmark that cannot measure stops")]

pub mod candidate;
mod client;
mod ledger;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use incumbent::store::lock;
use incumbent::{CandidateInfo, Election};
use incumbent_testkit::patience::until;
use incumbent_testkit::resource::serve;
use incumbent_testkit::servers::Process;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::Times;
use client::Client;
use ledger::Ledger;

/// Those who stand. Nobody who is next has only just come back.
pub const CANDIDATES: u16 = 3;
/// Taken before a handover, and by the next leader before it is said to be over.
const WRITES: usize = 20;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the office is handed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// An operator transfers it to the next in line.
    Transfer,
    /// The leader is told to go, as before a restart, and stands again afterwards.
    Leave,
}

/// A process that stands: what comes after the program are its first arguments; the name of the
/// election and the address of the resource follow.
pub type Command = (String, Vec<String>);

/// One election, its candidates, the client and the resource.
#[derive(Debug)]
pub struct Contest {
    order: Order,
    election: Election,
    candidates: Candidates,
    ledger: Arc<Mutex<Ledger>>,
    client: Client,
    gaps: Times,
}

/// Processes, and what they complain of.
#[derive(Debug)]
struct Candidates(Vec<(Process, PathBuf)>);

/// What became of a contest.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The longest time between two writes that were taken, for each handover.
    pub gaps: Times,
    /// How often the office was handed over.
    pub handovers: usize,
    /// How many terms there were: one more, if nothing else moved the office.
    pub terms: usize,
    /// What the client was told had been written.
    pub writes: u64,
    /// Numbers that the resource took more than once.
    pub twice: usize,
    /// Writes that the client was told of, and the resource does not have.
    pub lost: usize,
    /// Writes that the fence refused.
    pub refused: usize,
    /// How often the client sent a write again.
    pub resent: u64,
}

impl Contest {
    /// Starts the candidates, and waits until they are in line. What they complain of goes to
    /// `folder`.
    pub fn start(
        runtime: &Runtime,
        election: Election,
        order: Order,
        command: impl Fn(u16) -> Command,
        folder: &Path,
    ) -> Contest {
        let ledger = Arc::<Mutex<Ledger>>::default();
        let taking = ledger.clone();
        let resource = serve(move |what, token| lock(&taking).answer(what, token));
        let candidates = (1..=CANDIDATES).map(|who| {
            let (program, mut args) = command(who);
            args.extend([election.name().to_string(), resource.to_string()]);
            let log = folder.join(format!("log-{}-{who}", election.name()));
            (Process::start(&program, &args, &log), log)
        });
        let candidates = Candidates(candidates.collect());
        let line = runtime.block_on(complete_line(&election));
        let client = Client::new(line.iter().map(address).collect());
        Contest { order, election, candidates, ledger, client, gaps: Times::default() }
    }

    /// Has the office handed over while the client writes.
    ///
    /// # Panics
    ///
    /// If it never is, or nobody takes a write.
    pub fn hand_over(&mut self, runtime: &Runtime) {
        let line = runtime.block_on(complete_line(&self.election));
        for _ in 0..WRITES {
            self.client.write();
        }
        let (before, ordered_at) = (lock(&self.ledger).token(), Instant::now());
        let ordered = self.give_order(runtime, &line[1]);
        let is_carried_out = || ordered.as_ref().is_none_or(JoinHandle::is_finished);
        while !is_carried_out() || lock(&self.ledger).taken_above(before) < WRITES {
            assert!(ordered_at.elapsed() < PATIENCE, "{:?} of {} takes for ever", self.order, self.election.name());
            self.client.write();
        }
        if let Some(ordered) = ordered {
            runtime.block_on(ordered).expect("no panic");
        }
        self.gaps.push(lock(&self.ledger).longest_gap_since(ordered_at));
    }

    fn give_order(&mut self, runtime: &Runtime, heir: &CandidateInfo) -> Option<JoinHandle<()>> {
        match self.order {
            Order::Leave => {
                self.client.tell_leader(candidate::LEAVE);
                None
            }
            Order::Transfer => {
                let operator = self.election.operator();
                let heir = heir.name.as_deref().expect("a name").to_owned();
                // It may be refused, and then the leader leads on: the heir is not ready yet.
                let transferred = async move || operator.transfer(heir.as_str(), PATIENCE).await.is_ok();
                Some(runtime.spawn(async move { until("a transfer", transferred).await }))
            }
        }
    }

    /// What became of it. Ends the candidates.
    pub fn finish(self) -> Outcome {
        drop(self.candidates);
        let ledger = lock(&self.ledger);
        let (writes, resent) = (self.client.acknowledged(), self.client.resent());
        Outcome {
            handovers: self.gaps.count(),
            gaps: self.gaps,
            terms: ledger.terms(),
            writes,
            twice: ledger.twice(),
            lost: ledger.lost(writes),
            refused: ledger.refused(),
            resent,
        }
    }
}

impl Drop for Candidates {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = self.0.iter().map(|(_, log)| std::fs::read_to_string(log).unwrap_or_default());
            eprintln!("{}", said.collect::<String>());
        }
    }
}

/// Those in line, the leader first, once all are.
async fn complete_line(election: &Election) -> Vec<CandidateInfo> {
    let mut line = Vec::new();
    until("everybody in line", async || {
        let Ok(status) = election.status().await.map(|reading| reading.into_inner()) else { return false };
        let is_complete = !status.vacant && status.candidates.len() == usize::from(CANDIDATES);
        line = status.candidates;
        is_complete
    })
    .await;
    line
}

/// What a candidate advertises.
fn address(candidate: &CandidateInfo) -> SocketAddr {
    let text = std::str::from_utf8(&candidate.value).expect("an address");
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}
