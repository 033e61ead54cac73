//! Watching who leads, without being a candidate.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use incumbent_core::{
    Benched, Deposed, ElectionName, Entry, Frozen, Handover, HeldBack, Incarnation, Line, Nonce, Office, Order,
    Pending, Recovery, Servers, Terms, Timestamp, Token,
};
use incumbent_store::{StoreError, StoreId, Wake};
use tokio::time::{Sleep, sleep};

use crate::backend::{ElectionReader, Snapshot, cut_off};
use crate::port::Port;
use crate::witness::{Sighting, Witness};

/// How many looks in a row may show a lower token than an earlier one before that is believed.
pub(crate) const LOOKS_BACKWARD: u32 = 3;

/// Somebody in line, or a member of a group of peers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CandidateInfo {
    /// Its name; a candidate of another library may have none.
    pub name: Option<Arc<str>>,
    /// Its enlistment; a candidate of another library has none, and neither has a member of a
    /// group.
    pub id: Option<Incarnation>,
    /// Nothing but an operator removes it from the line: no session keeps it there.
    pub stays: bool,
    /// What it advertises.
    pub value: Bytes,
    /// Its place in line, and its fencing token once it leads. With consensus only the leader has
    /// one, with bully and ring nobody has.
    pub token: Option<Token>,
    /// It has said that it is [unwell](crate::health): somebody else would be better. Members of a
    /// group do not tell others.
    pub unwell: bool,
    /// Its priority, by which the first in line chooses at a vacancy. Zero if it has none.
    pub priority: i32,
    /// Before it takes office it stops a last leader from outside of whom nobody has said that its
    /// work has stopped. Members of a group do not tell others.
    pub fences: bool,
}

impl From<&Entry> for CandidateInfo {
    fn from(entry: &Entry) -> CandidateInfo {
        CandidateInfo {
            name: entry.name.clone(),
            id: entry.incarnation,
            stays: entry.stays,
            value: entry.value.clone(),
            token: Some(entry.token),
            unwell: entry.merit.unwell,
            priority: entry.merit.priority,
            fences: entry.merit.fences,
        }
    }
}

impl fmt::Display for CandidateInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_deref().unwrap_or("a candidate of another library"))?;
        self.token.map_or(Ok(()), |token| write!(f, " (token {token})"))
    }
}

/// An election as an operator sees it: who is in line, and what has been ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Those in line, oldest first, at most 10,000; among peers, the members that answer. The first
    /// one leads, unless nobody does.
    pub candidates: Vec<CandidateInfo>,
    /// Nobody leads. In a line that is so when nobody stands in it, and also while it is known that
    /// the first one is not in office: see `pending`.
    pub vacant: bool,
    /// What the first in line is at while it is not in office: where terms are
    /// [on record](crate::Candidate::recorded), not yet or no longer; and where it keeps its place
    /// until its work has stopped ([`hold_until_stopped`](crate::Candidate::hold_until_stopped)).
    pub pending: Option<Pending>,
    /// The election is paused, by whom and why: nobody leads, and nobody will.
    pub paused: Option<Order>,
    /// While it is paused: the one candidate that may stand all the same, by name. Once it leads,
    /// the others come back. See [`Operator::resume_first`](crate::Operator::resume_first).
    pub first: Option<Arc<str>>,
    /// The election was ended a while ago. Those who knew it are gone; those who come now start
    /// afresh.
    pub ended: bool,
    /// The leader is asked to hand over.
    pub handover: Option<Handover>,
    /// The last leader that an operator removed.
    pub deposed: Option<Deposed>,
    /// Nothing but a crash moves the office: since when, by whom and why.
    pub frozen: Option<Frozen>,
    /// Whom operators keep out of the line, by name: see
    /// [`Operator::bench`](crate::Operator::bench).
    pub benched: Benched,
    /// The last terms, oldest first, where the election [keeps a record of
    /// them](crate::Candidate::recorded).
    pub terms: Terms,
    /// The office has changed hands for [health](crate::health) too often: it does so no more until
    /// [`Operator::acknowledge`](crate::Operator::acknowledge).
    pub held_back: Option<HeldBack>,
    /// An operator is healing what went wrong here: others let nobody back meanwhile.
    pub recovery: Option<Recovery>,
    /// For how long yet nobody takes office, since another server of the store has taken over, and
    /// the leader of the one before may believe in its office for that long. PostgreSQL says that.
    pub quiet: Option<Duration>,
    /// Why nothing is decided now, though the store answers: it waits for a standby that is not
    /// there, say. Who leads may not be able to renew, and nobody else takes office. PostgreSQL
    /// says that.
    pub stalled: Option<Arc<str>>,
    /// For how long nothing has been heard from the leader. A directory can say that, other stores
    /// cannot.
    pub silence: Option<Silence>,
    /// How many members the group has, where peers elect one of themselves.
    pub group: Option<GroupStatus>,
    /// How many servers have answered, where a majority of them keeps the store: a Redlock.
    pub servers: Option<Servers>,
}

/// For how long nothing has been heard from a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// The time since its last sign of life, a renewal or its enlistment. A healthy leader renews
    /// every third of its TTL.
    pub lasts: Duration,
    /// A leader that has been silent for this long is replaced.
    pub ttl: Duration,
}

/// A group of peers, as it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStatus {
    /// How many members it has.
    pub members: usize,
    /// How many of them answer.
    pub answering: usize,
    /// How many of them a leader needs.
    pub needed: usize,
    /// It has never been complete: its first election waits for all members to be up at the same
    /// time, once.
    pub forming: bool,
    /// Which members that waits for, by name.
    pub waits_for: Vec<Arc<str>>,
    /// Members that answer and do not vote, by name: they have lost their state or cannot write it
    /// down.
    pub not_voting: Vec<Arc<str>>,
    /// Members that refuse to answer, by name, with why: they hold another election, say, or have
    /// another list of members.
    pub refusing: Vec<(Arc<str>, &'static str)>,
}

impl Status {
    /// Who leads.
    pub fn leader(&self) -> Option<&CandidateInfo> {
        self.candidates.first().filter(|_| !self.vacant)
    }

    pub(crate) fn into_leader(self) -> Option<CandidateInfo> {
        self.candidates.into_iter().next().filter(|_| !self.vacant)
    }

    /// With what a store says of its line.
    pub(crate) fn of(line: Line) -> Status {
        let Line { entries, office, quiet, stalled, servers, .. } = line;
        let head = entries.first();
        let pending = head.and_then(|head| office.pending(head));
        let handover = head.and_then(|head| office.handover_from(head.token)).cloned();
        let observed = head.and_then(|head| head.observed);
        let silence = observed.and_then(|observed| Some(Silence { lasts: observed.silent?, ttl: observed.ttl }));
        let vacant = head.is_none() || pending.is_some() || quiet.is_some();
        let status = Status::new(entries.iter().map(CandidateInfo::from).collect(), vacant, office);
        Status { pending, handover, quiet, stalled, silence, servers, ..status }
    }
    /// With what the office record says by itself.
    pub(crate) fn new(candidates: Vec<CandidateInfo>, vacant: bool, office: Office) -> Status {
        let (paused, first) = office.paused.map(|paused| (paused.order, paused.first)).unzip();
        Status {
            candidates,
            vacant,
            pending: None,
            paused,
            first: first.flatten(),
            ended: office.ended.is_some(),
            handover: None,
            deposed: office.deposed,
            frozen: office.frozen,
            benched: office.benched,
            terms: office.terms,
            held_back: office.held_back,
            recovery: office.recovery,
            quiet: None,
            stalled: None,
            silence: None,
            group: None,
            servers: None,
        }
    }
}

/// Something that was read, and when: [`get`](Reading::get) it, or take it out of its age.
#[derive(Clone, Debug)]
pub struct Reading<T> {
    value: T,
    sent_at: Timestamp,
    port: Port,
}

impl<T> Reading<T> {
    pub(crate) fn new(value: T, sent_at: Timestamp, port: Port) -> Reading<T> {
        Reading { value, sent_at, port }
    }

    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        Reading { value: f(self.value), sent_at: self.sent_at, port: self.port }
    }

    /// What was read.
    pub fn get(&self) -> &T {
        &self.value
    }

    /// What was read, without its age.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// How old the answer may be: the time since the question was sent.
    pub fn age(&self) -> Duration {
        self.port.now().since(self.sent_at)
    }
}

/// What an observer sees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observation {
    /// This one leads, with this value.
    Leader(CandidateInfo),
    /// Nobody leads; and what the first in line is at, if it says so.
    Vacant(Option<Pending>),
    /// The election is paused: nobody leads, and nobody will.
    Paused {
        /// Why, for people.
        reason: Arc<str>,
    },
    /// The election has ended. Nothing follows.
    Ended,
    /// The store cannot be read, or the group does not answer: what was seen last may be out of
    /// date.
    Stale,
    /// The store can be read again, and what was seen last is still so, or what follows is.
    Current,
    /// Another store answers now, or one that is older than it was: tokens start anew, and may be
    /// lower than before.
    StoreReset,
}

/// Watches who leads, without being a candidate.
///
/// ```
/// use incumbent::{Client, Observation};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let election = Client::connect("memory://observer").await?.election("jobs")?;
/// let mut observer = election.observe(); // also a `futures::Stream`
/// assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
///
/// let _candidacy = election.candidate("node-1").value("10.0.0.7:80").stand().await?;
/// while let Some(seen) = observer.next().await {
///     match seen {
///         Observation::Leader(leader) => {
///             assert_eq!(leader.value, "10.0.0.7:80"); // where to send requests to
///             break;
///         }
///         Observation::Stale => println!("the store cannot be read: this may be out of date"),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// A stream of what there is to see. It coalesces: what changed and changed back between two looks
/// is not seen, and somebody who takes observations slowly gets the newest. Tokens never go back,
/// unless [`Observation::StoreReset`] comes first.
#[derive(Debug)]
pub struct Observer {
    reader: ElectionReader,
    first_contact: Arc<OnceLock<Option<Nonce>>>,
    witness: Option<Witness>,
    last: Option<Observation>,
    /// The latest leader that was seen, by this observer or by the witness.
    latest: Option<Sighting>,
    store_id: Option<StoreId>,
    /// A read failed or a watch was lost since the store last said who it is: it may be another
    /// one.
    doubted: bool,
    /// How many looks in a row have shown a lower token than an earlier one.
    backward: u32,
    stale: bool,
    over: bool,
    failures: u32,
    doing: Doing,
    /// Seen, but not taken yet.
    next: Option<Observation>,
}

/// A question that the observer owns: it outlives the `next` that asked it.
type Asking<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Which store it is that gave this answer, and what the witness has seen there.
struct Identity {
    /// `None`: there is none yet.
    store: Option<StoreId>,
    seen: Option<Sighting>,
    snapshot: Snapshot,
}

enum Doing {
    /// Read the line next.
    Read,
    Reading(Asking<Snapshot>),
    /// A token went back, or the store could not be read for a while: is it another store?
    Identifying(Asking<Identity>),
    /// Waiting for a hint, and at most so long.
    Waiting(Wake, Pin<Box<Sleep>>),
    Resting(Pin<Box<Sleep>>),
}

impl fmt::Debug for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doing::Read | Doing::Reading(_) => "Reading",
            Doing::Identifying(_) => "Identifying",
            Doing::Waiting(..) => "Waiting",
            Doing::Resting(_) => "Resting",
        })
    }
}

impl Observer {
    pub(crate) fn new(
        reader: ElectionReader,
        first_contact: Arc<OnceLock<Option<Nonce>>>,
        witness: Option<Witness>,
    ) -> Observer {
        Observer {
            reader,
            first_contact,
            witness,
            last: None,
            latest: None,
            store_id: None,
            doubted: true,
            backward: 0,
            stale: false,
            over: false,
            failures: 0,
            doing: Doing::Read,
            next: None,
        }
    }

    /// The next thing to see; `None` after [`Observation::Ended`]. Safe to cancel.
    pub async fn next(&mut self) -> Option<Observation> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Observation>> {
        loop {
            if let Some(observation) = self.next.take() {
                return Poll::Ready(Some(observation));
            }
            if self.over {
                return Poll::Ready(None);
            }
            match &mut self.doing {
                Doing::Read => {
                    let reader = self.reader.clone();
                    let limit = self.reader.attempt();
                    self.doing = Doing::Reading(Box::pin(async move { reader.look_within(1, limit).await }));
                }
                Doing::Reading(reading) => match std::task::ready!(reading.as_mut().poll(cx)) {
                    Ok(snapshot) => {
                        if self.went_back(&snapshot) || self.doubted {
                            self.identify(snapshot);
                        } else {
                            self.see(&snapshot);
                        }
                    }
                    Err(error) => self.fail(&error),
                },
                Doing::Identifying(identity) => match std::task::ready!(identity.as_mut().poll(cx)) {
                    Ok(identity) => self.on_identity(identity),
                    Err(error) => self.fail(&error),
                },
                Doing::Waiting(wake, limit) => {
                    let hint = wake.as_mut().poll(cx);
                    let late = limit.as_mut().poll(cx);
                    match hint {
                        Poll::Ready(Err(error)) => {
                            tracing::debug!(%error, "watch lost");
                            self.doubted = true;
                            self.rest();
                        }
                        Poll::Pending if !late.is_ready() => return Poll::Pending,
                        // A good read alone does not end the growing rests: where every watch is
                        // lost at once, there is one before each.
                        Poll::Ready(Ok(())) | Poll::Pending => {
                            self.failures = 0;
                            self.doing = Doing::Read;
                        }
                    }
                }
                Doing::Resting(rest) => {
                    std::task::ready!(rest.as_mut().poll(cx));
                    self.doing = Doing::Read;
                }
            }
        }
    }

    fn went_back(&self, snapshot: &Snapshot) -> bool {
        let leads = snapshot.status.leader().and_then(Sighting::of);
        self.latest.zip(leads).is_some_and(|(latest, leads)| latest.is_later_than(&leads))
    }

    fn identify(&mut self, snapshot: Snapshot) {
        let backend = self.reader.backend.clone();
        // Once: what it has seen since, it has seen from us, or others have, of a store in use.
        let witness = self.witness.clone().filter(|_| self.store_id.is_none());
        let election = self.reader.election.clone();
        let identity = async move {
            let store = match backend.identity().await {
                Err(StoreError::Missing { .. }) => None,
                store => Some(store?),
            };
            let seen = match (witness, &store) {
                (Some(witness), Some(store)) => seen_by(witness, store.clone(), election).await,
                _ => None,
            };
            Ok(Identity { store, seen, snapshot })
        };
        self.doing = Doing::Identifying(Box::pin(cut_off(self.reader.attempt(), identity)));
    }

    fn on_identity(&mut self, Identity { store, seen, snapshot }: Identity) {
        // Who looks at a place where there is none yet asks again, before a leader is believed.
        let Some(store) = store else { return self.see(&snapshot) };
        self.doubted = false;
        self.latest = self.latest.or(seen);
        match self.store_id.replace(store.clone()) {
            Some(before) if before != store => {
                self.start_anew();
            }
            // The same store with a lower token: an answer from the past. Look again.
            _ if self.went_back(&snapshot) && self.backward < LOOKS_BACKWARD => {
                self.backward += 1;
                self.rest();
            }
            // It stays so: its data was wiped or restored, and it goes by the same name.
            _ if self.went_back(&snapshot) => self.start_anew(),
            _ => self.see(&snapshot),
        }
    }

    fn start_anew(&mut self) {
        self.latest = None;
        self.last = None;
        self.backward = 0;
        self.next = Some(Observation::StoreReset);
        self.doing = Doing::Read;
    }

    /// Takes in what was read, and waits for the next change.
    fn see(&mut self, snapshot: &Snapshot) {
        self.backward = 0;
        self.wait(snapshot);
        let at_first = *self.first_contact.get_or_init(|| snapshot.tombstone);
        let observation = if snapshot.tombstone.is_some() && snapshot.tombstone != at_first {
            Observation::Ended
        } else if let Some(leader) = snapshot.status.leader() {
            self.note(leader);
            Observation::Leader(leader.clone())
        } else if let Some(order) = &snapshot.status.paused {
            Observation::Paused { reason: order.reason.clone() }
        } else {
            Observation::Vacant(snapshot.status.pending)
        };
        self.over = observation == Observation::Ended;
        if std::mem::take(&mut self.stale) {
            // What changed meanwhile is told by the read after this one.
            self.next = Some(Observation::Current);
            self.over = false;
            if self.last.as_ref() != Some(&observation) {
                self.doing = Doing::Read;
            }
        } else if self.last.as_ref() != Some(&observation) {
            self.last = Some(observation.clone());
            self.next = Some(observation);
        }
    }

    /// Remembers this leader, here and for those who come after us.
    fn note(&mut self, leader: &CandidateInfo) {
        let Some(seen) = Sighting::of(leader).filter(|seen| self.latest != Some(*seen)) else { return };
        self.latest = Some(seen);
        let (Some(witness), Some(store)) = (self.witness.clone(), self.store_id.clone()) else { return };
        let election = self.reader.election.clone();
        // Nobody waits for it: a disk that hangs keeps no observer.
        tokio::task::spawn_blocking(move || {
            if let Err(error) = witness.note(&store, &election, seen) {
                tracing::debug!(%error, "cannot write down who leads");
            }
        });
    }

    fn wait(&mut self, snapshot: &Snapshot) {
        let wake = self.reader.watch(snapshot);
        // Hints get lost: look again now and then, and often where there are none at all.
        let limit = Box::pin(sleep(self.reader.settings.renew_every));
        self.doing = Doing::Waiting(wake, limit);
    }

    fn fail(&mut self, error: &StoreError) {
        tracing::debug!(%error, "cannot read who leads");
        self.doubted = true;
        if !self.stale {
            self.stale = true;
            self.next = Some(Observation::Stale);
        }
        self.rest();
    }

    fn rest(&mut self) {
        let longest = self.reader.settings.renew_every / 2;
        let rest = (longest / 64).saturating_mul(1 << self.failures.min(6)).max(Duration::from_millis(1));
        self.failures = self.failures.saturating_add(1);
        self.doing = Doing::Resting(Box::pin(sleep(rest)));
    }
}

/// What the witness has seen. What it cannot say, it does not say.
pub(crate) async fn seen_by(witness: Witness, store: StoreId, election: ElectionName) -> Option<Sighting> {
    let seen = tokio::task::spawn_blocking(move || witness.seen(&store, &election)).await;
    let seen = seen.map_err(std::io::Error::other).and_then(|seen| seen);
    seen.inspect_err(|error| tracing::debug!(%error, "cannot read who led")).ok().flatten()
}

impl Stream for Observer {
    type Item = Observation;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Observation>> {
        self.poll(cx)
    }
}
