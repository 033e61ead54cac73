//! Transactions of one session that are asked for at about the same time travel together: one
//! request, one proposal and one write to the servers' disks for many elections.
//!
//! Most of them find what they expect. So first they are made one transaction, with the guards of
//! all: it writes for all, or for none. If one of the guards fails, or they are too many for that,
//! they go as transactions inside a transaction, each with guards of its own.
//!
//! etcd looks at all guards before it writes anything, and all that it creates gets one
//! `create_revision`. So transactions travel together only if none can meet what another one
//! writes: at most one for each election, and none for an election in whose line another's entry
//! would be seen. Everybody's safety rests on that: two entries of one line with one token would
//! both lead.
//!
//! Servers look at the permissions of what is outermost only (seen with 3.4): what is inside would
//! be written whether or not the user may. So the keys are named outermost, too, in the branch that
//! is never taken. A client without a user may do everything or nothing: for it, one key stands for
//! all.
//!
//! No write waits for company. The first few go alone and at once; one that comes while many are on
//! their way goes with the next batch, as soon as the one before it has been answered.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use incumbent_store::{Effect, ElectionName, StoreError, lock};
use prost::Message;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::endpoints::Endpoints;
use crate::error;
use crate::rpc::{Request, RequestOp, TxnRequest};
use crate::txn::Answer;

const WHAT: &str = "writing to several lines at once";

/// How many may be on their way alone.
const ALONE: usize = 4;
/// The most operations, and guards, that servers accept in a transaction.
const MOST_OPERATIONS: usize = 128;
/// Those on the way down to the deepest transaction count, too; no write that travels has more than
/// three.
const MOST: usize = 120;
/// The same where two each are for the permissions.
const MOST_OF_USERS: usize = MOST / 2;
/// Servers take requests of 1.5 MiB.
const MOST_BYTES: usize = 1024 * 1024;
/// How often others get a turn between one batch and the next.
const TURNS: usize = 4;

/// [`Endpoints::txn`] for the transactions of one session.
pub(crate) struct Batches {
    shared: Arc<Shared>,
}

/// A transaction that writes to one election's line, two keys at most, and to nothing else.
struct Write {
    what: &'static str,
    election: ElectionName,
    txn: TxnRequest,
}

impl Write {
    /// The keys that it puts or deletes.
    fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.txn.success.iter().filter_map(|operation| match operation.request.as_ref()? {
            Request::Put(put) => Some(&put.key),
            Request::DeleteRange(delete) => Some(&delete.key),
            Request::Range(_) | Request::Txn(_) => None,
        })
    }
}

struct Shared {
    endpoints: Arc<Endpoints>,
    state: Mutex<State>,
}

struct State {
    /// How many are on their way alone.
    alone: usize,
    waiting: VecDeque<Asked>,
    /// Sends what waits, and ends when nothing does.
    task: Option<JoinHandle<()>>,
    /// How many may travel together: servers may be set to take fewer.
    most: usize,
}

/// A write, and the channel that its caller waits at.
struct Asked {
    write: Write,
    /// It was in a batch that was refused, perhaps for another's sake.
    by_itself: bool,
    tell: Tell,
}

type Tell = oneshot::Sender<Result<Answer, StoreError>>;

impl Batches {
    pub(crate) fn new(endpoints: Arc<Endpoints>) -> Batches {
        let most = if endpoints.anonymous { MOST } else { MOST_OF_USERS };
        let state = State { alone: 0, waiting: VecDeque::new(), task: None, most };
        Batches { shared: Arc::new(Shared { endpoints, state: Mutex::new(state) }) }
    }

    /// One attempt at a transaction that writes to this election's line, two keys at most, and to
    /// nothing else. If it is dropped before it was sent, it never is.
    pub(crate) async fn txn(
        &self,
        what: &'static str,
        election: &ElectionName,
        txn: TxnRequest,
    ) -> Result<Answer, StoreError> {
        match self.shared.enter(Write { what, election: election.clone(), txn }) {
            Entered::Alone(write, _on_its_way) => self.shared.ask(write.what, write.txn).await,
            Entered::Waiting(heard) => heard.await.unwrap_or_else(|_| {
                Err(StoreError::OutcomeUnknown { what: format!("{WHAT}: the runtime has ended"), source: None })
            }),
        }
    }
}

#[allow(clippy::large_enum_variant, reason = "the large one is the usual one, and lives for a moment")]
enum Entered {
    Alone(Write, OnItsWay),
    Waiting(oneshot::Receiver<Result<Answer, StoreError>>),
}

/// One that goes alone.
struct OnItsWay(Arc<Shared>);

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.lock().alone -= 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn enter(self: &Arc<Shared>, write: Write) -> Entered {
        let mut state = self.lock();
        // A task that ended without saying so ended with its runtime.
        let sending = state.task.as_ref().is_some_and(|task| !task.is_finished());
        if !sending && state.alone < ALONE {
            state.alone += 1;
            return Entered::Alone(write, OnItsWay(self.clone()));
        }
        let (tell, heard) = oneshot::channel();
        // Writes whose callers have left must not pile up behind a server that does not answer.
        if state.waiting.len() >= MOST {
            state.waiting.retain(|asked| !asked.tell.is_closed());
        }
        state.waiting.push_back(Asked { write, by_itself: false, tell });
        if !sending {
            state.task = Some(tokio::spawn(send_all(self.clone())));
        }
        Entered::Waiting(heard)
    }
}

/// Sends what waits, batch by batch, until nothing does.
async fn send_all(shared: Arc<Shared>) {
    loop {
        let batch = {
            let mut state = shared.lock();
            let batch = state.next_batch();
            if batch.is_empty() {
                state.task = None;
                return;
            }
            batch
        };
        send(&shared, batch).await;
        // Callers that were just answered may have more to ask, which can come along.
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
}

async fn send(shared: &Shared, batch: Vec<Asked>) {
    let (writes, mut tell): (Vec<_>, Vec<_>) = batch.into_iter().map(|asked| (asked.write, asked.tell)).unzip();
    let answers = tokio::select! {
        answers = shared.answers(&writes) => answers,
        // Every caller has given up its wait.
        () = all_given_up(&mut tell) => return,
    };
    let waited = writes.into_iter().zip(tell);
    match answers {
        Ok(answers) => {
            for ((_, tell), answer) in waited.zip(answers) {
                // A caller that has given up its wait is not told.
                _ = tell.send(answer);
            }
        }
        Err(error) if waited.len() > 1 && is_refusal(&error) => {
            shared.lock().again(waited.collect(), &error);
        }
        Err(error) => {
            for (_, tell) in waited {
                _ = tell.send(Err(error.clone()));
            }
        }
    }
}

impl Shared {
    async fn ask(&self, what: &str, txn: TxnRequest) -> Result<Answer, StoreError> {
        self.endpoints.txn(what, Effect::Write, txn).await
    }

    /// What each of them led to.
    async fn answers(&self, writes: &[Write]) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
        must_not_meet(writes);
        if let [write] = writes {
            return Ok(vec![Ok(self.ask(write.what, write.txn.clone()).await?)]);
        }
        if let Some(txn) = as_one(writes) {
            let mut answer = self.ask(WHAT, txn).await?;
            if answer.succeeded {
                return Ok(writes.iter().map(|write| Ok(answer.next_parts(write.txn.success.len()))).collect());
            }
        }
        let mut answer = self.ask(WHAT, self.nested(writes)).await?;
        Ok(writes.iter().map(|_| answer.next_txn()).collect())
    }

    /// Each for itself.
    fn nested(&self, writes: &[Write]) -> TxnRequest {
        let success = writes.iter().map(|write| RequestOp::txn(write.txn.clone())).collect();
        let named = if self.endpoints.anonymous { 1 } else { usize::MAX };
        let written = writes.iter().flat_map(Write::keys).cloned();
        // With nothing to compare, the first branch is taken.
        let never = written.take(named).map(RequestOp::delete).collect();
        TxnRequest { compare: vec![], success, failure: never }
    }
}

/// Two entries that one transaction makes in one line have one token, and both would lead: servers
/// look at the guards of all before they write anything, and the keys differ, so that nothing else
/// stands against it.
fn must_not_meet(writes: &[Write]) {
    let mut lines = Lines::default();
    assert!(writes.iter().all(|write| lines.add(&write.election)), "two writes to one line would travel together");
}

/// All or none. `None`: no server takes so much.
fn as_one(writes: &[Write]) -> Option<TxnRequest> {
    let guards = writes.iter().map(|write| write.txn.compare.len()).sum::<usize>();
    let operations = writes.iter().map(|write| write.txn.success.len()).sum::<usize>();
    if guards.max(operations) > MOST_OPERATIONS {
        return None;
    }
    let mut all = TxnRequest::default();
    for Write { txn, .. } in writes {
        all.compare.extend_from_slice(&txn.compare);
        all.success.extend_from_slice(&txn.success);
    }
    Some(all)
}

async fn all_given_up(tell: &mut [Tell]) {
    for tell in tell {
        tell.closed().await;
    }
}

/// Whether one of them may have been the reason. A session that is gone is gone for all.
///
/// Without space servers refuse what puts anything, and take what only deletes. One of those that
/// put may have been written all the same: its guards find that out when it comes again.
fn is_refusal(error: &StoreError) -> bool {
    let refused = matches!(error, StoreError::Denied { .. } | StoreError::Limit { .. } | StoreError::Misuse { .. });
    refused || error::is_out_of_space(error)
}

impl State {
    /// Those that can travel together, of those that have waited longest.
    fn next_batch(&mut self) -> Vec<Asked> {
        let (mut batch, mut left) = (Vec::new(), VecDeque::new());
        let (mut lines, mut bytes) = (Lines::default(), 0);
        while batch.len() < self.most
            && let Some(asked) = self.waiting.pop_front()
        {
            if asked.tell.is_closed() {
                continue;
            }
            bytes += asked.write.txn.encoded_len();
            // The line of a write that stays counts, too: no other one overtakes it there.
            let apart = lines.add(&asked.write.election);
            if batch.is_empty() || (apart && !asked.by_itself && bytes <= MOST_BYTES) {
                let by_itself = asked.by_itself;
                batch.push(asked);
                if by_itself {
                    break;
                }
            } else {
                left.push_back(asked);
            }
        }
        left.append(&mut self.waiting);
        self.waiting = left;
        batch
    }

    /// One by one, so that each is told what concerns it.
    fn again(&mut self, batch: Vec<(Write, Tell)>, error: &StoreError) {
        if matches!(error, StoreError::Limit { .. }) {
            self.most = (batch.len() / 2).max(1);
        }
        for (write, tell) in batch.into_iter().rev() {
            self.waiting.push_front(Asked { write, by_itself: true, tell });
        }
    }
}

/// Lines of elections, to see which of them do not meet.
#[derive(Default)]
struct Lines(BTreeSet<String>);

impl Lines {
    /// Whether it cannot be seen from those before, nor they from it.
    fn add(&mut self, election: &ElectionName) -> bool {
        let name = election.as_str();
        let apart = !self.0.contains(name) && !self.has_above(name) && !self.has_below(name);
        self.0.insert(name.to_owned());
        apart
    }

    fn has_above(&self, name: &str) -> bool {
        name.match_indices('/').any(|(end, _)| name.get(..end).is_some_and(|above| self.0.contains(above)))
    }

    fn has_below(&self, name: &str) -> bool {
        let line = format!("{name}/");
        let mut from_there = self.0.range::<str, _>((Bound::Included(line.as_str()), Bound::Unbounded));
        from_there.next().is_some_and(|first| first.starts_with(&line))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent_store::{Held, Incarnation, Place};
    use incumbent_testkit::servers::EtcdCluster;

    use super::*;
    use crate::keys::{self, Owner};
    use crate::session::EtcdSession;
    use crate::{EtcdOptions, EtcdStore, txn};

    type Heard = oneshot::Receiver<Result<Answer, StoreError>>;

    fn write(name: &str, bytes: usize) -> Write {
        let success = vec![RequestOp::put("", vec![b'x'; bytes], 0)];
        let txn = TxnRequest { success, ..TxnRequest::default() };
        Write { what: "asking", election: ElectionName::new(name).unwrap(), txn }
    }

    fn state() -> State {
        State { alone: 0, waiting: VecDeque::new(), task: None, most: MOST }
    }

    impl State {
        fn ask(&mut self, name: &str, bytes: usize) -> Heard {
            let (tell, heard) = oneshot::channel();
            self.waiting.push_back(Asked { write: write(name, bytes), by_itself: false, tell });
            heard
        }

        fn next_names(&mut self) -> Vec<String> {
            self.next_batch().iter().map(|asked| asked.write.election.to_string()).collect()
        }
    }

    #[test]
    fn what_meets_in_a_line_does_not_travel_together_and_keeps_its_order() {
        let mut state = state();
        let names = ["jobs", "jobs-2", "jobs/nightly", "jobs", "a/b/c", "a", "jobs/nightly", "a/b-2"];
        let _waiting: Vec<_> = names.iter().map(|name| state.ask(name, 1)).collect();
        assert_eq!(state.next_names(), ["jobs", "jobs-2", "a/b/c"]);
        assert_eq!(state.next_names(), ["jobs/nightly", "a"]);
        assert_eq!(state.next_names(), ["jobs", "a/b-2"]);
        assert_eq!(state.next_names(), ["jobs/nightly"]);
        assert!(state.next_batch().is_empty());
    }

    #[test]
    fn two_writes_to_one_line_never_leave_in_one_transaction() {
        must_not_meet(&["jobs", "jobs-2", "a/b", "a-b"].map(|name| write(name, 1)));
        for meeting in [["jobs", "jobs"], ["jobs", "jobs/nightly"], ["a/b/c", "a"]] {
            let writes = meeting.map(|name| write(name, 1));
            assert!(std::panic::catch_unwind(|| must_not_meet(&writes)).is_err(), "{meeting:?}");
        }
    }

    /// The known-bad variant: what servers make of two enlistments of a session that travel
    /// together all the same.
    #[tokio::test]
    async fn without_that_rule_two_candidates_lead_with_one_token() {
        let cluster = EtcdCluster::start(1).await;
        let store = EtcdStore::connect(&cluster.endpoints(), &EtcdOptions::new()).unwrap().inner;
        let lease = store.endpoints.grant("a lease", 60).await.unwrap();
        let cluster_id = lease.header.unwrap().cluster_id;
        let session = EtcdSession::new(store.clone(), lease.id, Duration::from_secs(60), cluster_id);
        let election = ElectionName::new("jobs").unwrap();
        let suffix = |number| {
            let incarnation = Incarnation::from_bits(number);
            Owner { lease: lease.id, incarnation, name: "a".into() }.suffix()
        };
        let writes = [1, 2].map(|number| {
            let put = RequestOp::put(store.keys.entry(&election, &suffix(number)), "", lease.id);
            let compare = vec![txn::nothing_in(store.keys.entries_of(&election, lease.id))];
            let txn = TxnRequest { compare, success: vec![put], failure: vec![] };
            Write { what: "enlisting", election: election.clone(), txn }
        });
        let shared = Batches::new(store.endpoints.clone()).shared;

        let mut answer = shared.ask(WHAT, shared.nested(&writes)).await.unwrap();

        assert!(answer.next_txn().unwrap().succeeded && answer.next_txn().unwrap().succeeded);
        let token = txn::token_at(answer.header.revision).unwrap();
        for number in [1, 2] {
            let entry = keys::id_of(&suffix(number), token);
            let held = Held::new(election.clone(), entry, token, Incarnation::from_bits(number));
            let place = session.standing(&held, None).await.unwrap().place;
            assert_eq!(place, Place::Leading(held));
        }
        let together = tokio::spawn(async move { shared.answers(&writes).await.map(drop) }).await;
        assert!(together.unwrap_err().is_panic(), "the rule stands before it");
    }

    #[test]
    fn a_batch_holds_no_more_than_servers_take() {
        let mut state = state();
        let _small: Vec<_> = (0..MOST + 1).map(|number| state.ask(&format!("small-{number}"), 1)).collect();
        assert_eq!((state.next_batch().len(), state.next_batch().len()), (MOST, 1));
        let _large: Vec<_> = ["a", "b", "c"].iter().map(|name| state.ask(name, MOST_BYTES / 2 - 100)).collect();
        let _huge = state.ask("d", 2 * MOST_BYTES);
        assert_eq!(state.next_names(), ["a", "b"]);
        assert_eq!(state.next_names(), ["c"]);
        assert_eq!(state.next_names(), ["d"]);
    }

    #[test]
    fn a_write_whose_caller_has_left_is_not_sent() {
        let mut state = state();
        let (left, _stays) = (state.ask("left", 1), state.ask("stays", 1));
        drop(left);
        assert_eq!(state.next_names(), ["stays"]);
    }

    #[test]
    fn those_of_a_refused_batch_go_one_by_one_and_first() {
        let mut state = state();
        let _waiting: Vec<_> = ["a", "b"].iter().map(|name| state.ask(name, 1)).collect();
        let batch = state.next_batch().into_iter().map(|asked| (asked.write, asked.tell)).collect();
        let _later = [state.ask("c", 1), state.ask("d", 1)];
        state.again(batch, &StoreError::Limit { what: "too many operations".to_owned() });
        assert_eq!(state.most, 1);
        state.most = MOST;
        assert_eq!(state.next_names(), ["a"]);
        assert_eq!(state.next_names(), ["b"]);
        assert_eq!(state.next_names(), ["c", "d"]);
    }
}
