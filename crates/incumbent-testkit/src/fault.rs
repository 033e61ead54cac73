//! A store in front of another that misbehaves: on request, for tests of one mishap, or from a
//! seed, for many.
//!
//! It knows nothing of elections. What it does to a call is what networks and servers do: the
//! request is lost, the answer is lost, either is late, the request arrives twice, or it is
//! refused.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_core::Rng;
use incumbent_store::{
    Cas, Cursor, ElectionName, Entry, EntryId, Fut, Held, Line, Liveness, NewEntry, Office, Promises, Publication,
    Renewal, Seen, Session, Shortened, Standing, Store, StoreError, StoreId, Version, Wake, Watched, lock,
};
use tokio::sync::watch;

/// A method of [`Store`] or [`Session`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Call {
    /// [`Store::promises`].
    Promises,
    /// [`Store::open_session`].
    OpenSession,
    /// [`Store::elections`].
    Elections,
    /// [`Store::line`].
    Line,
    /// [`Store::watch`].
    Watch,
    /// [`Store::set_office`].
    SetOffice,
    /// [`Store::evict`].
    Evict,
    /// [`Session::renew`].
    Renew,
    /// [`Session::enlist`].
    Enlist,
    /// [`Session::standing`].
    Standing,
    /// [`Session::publish`].
    Publish,
    /// [`Session::withdraw`].
    Withdraw,
    /// [`Session::close`].
    Close,
}

/// What happens to a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mishap {
    /// It is not done, and nobody knows: [`StoreError::OutcomeUnknown`].
    LoseRequest,
    /// It is done, and nobody knows: [`StoreError::OutcomeUnknown`]. A watch that loses its answer
    /// never wakes.
    LoseAnswer,
    /// It is not done, and that is certain: [`StoreError::Unavailable`].
    Refuse,
    /// It is done this much later. A watch wakes this much later.
    DelayRequest(Duration),
    /// It is done at once, and answered this much later. A watch wakes this much later.
    DelayAnswer(Duration),
    /// It is done twice, and the second answer counts, as with a retry on the way.
    Double,
    /// It is not done, and there is no answer, until the caller gives up.
    Hang,
    /// It panics, as a store with a bug would.
    Panic,
}

/// How often each mishap happens, of a thousand calls; what is left goes well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Odds {
    /// [`Mishap::LoseRequest`].
    pub lose_request: u16,
    /// [`Mishap::LoseAnswer`].
    pub lose_answer: u16,
    /// [`Mishap::Refuse`].
    pub refuse: u16,
    /// [`Mishap::DelayRequest`], by up to `longest_delay`.
    pub delay_request: u16,
    /// [`Mishap::DelayAnswer`], by up to `longest_delay`.
    pub delay_answer: u16,
    /// [`Mishap::Double`].
    pub double: u16,
    /// The bound on delays.
    pub longest_delay: Duration,
}

/// Decides what happens to the calls of a [`FaultStore`] and its sessions. Clones decide together.
///
/// What was asked for with [`next`](Faults::next) comes first, then [`cut`](Faults::cut), then the
/// seed.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
    shortened: Arc<watch::Sender<Option<Duration>>>,
}

#[derive(Debug, Default)]
struct Plan {
    next: BTreeMap<Call, VecDeque<Option<Mishap>>>,
    always: Option<Mishap>,
    odds: Option<(Rng, Odds)>,
    calls: BTreeMap<Call, u64>,
    under_way: BTreeMap<Call, UnderWay>,
}

#[derive(Clone, Copy, Debug, Default)]
struct UnderWay {
    now: u64,
    most: u64,
}

/// A call that has begun: it is over when this is dropped, answered or given up.
struct Begun<'a>(&'a Faults, Call);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(under_way) = self.0.plan().under_way.get_mut(&self.1) {
            under_way.now -= 1;
        }
    }
}

impl Faults {
    /// None, until they are asked for.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// Random ones, the same for the same seed and the same order of calls.
    pub fn seeded(seed: u64, odds: Odds) -> Faults {
        let faults = Faults::default();
        faults.plan().odds = Some((Rng::from_number(seed), odds));
        faults
    }

    /// From now on the store may count this TTL for the sessions that are open, says
    /// [`Session::shortened`].
    pub fn shorten(&self, ttl: Duration) {
        self.shortened.send_replace(Some(ttl));
    }

    /// What happens to the next such call that nothing has been planned for yet.
    pub fn next(&self, call: Call, mishap: Mishap) {
        self.plan().next.entry(call).or_default().push_back(Some(mishap));
    }

    /// The next such call that nothing has been planned for yet goes well.
    pub fn spare(&self, call: Call) {
        self.plan().next.entry(call).or_default().push_back(None);
    }

    /// From now on this happens to every call, until [`heal`](Faults::heal).
    pub fn cut(&self, mishap: Mishap) {
        self.plan().always = Some(mishap);
    }

    /// From now on nothing happens to any call: no plan, no cut, no seed.
    pub fn heal(&self) {
        let mut plan = self.plan();
        let (calls, under_way) = (std::mem::take(&mut plan.calls), std::mem::take(&mut plan.under_way));
        *plan = Plan { calls, under_way, ..Plan::default() };
    }

    /// How many such calls there have been, whatever became of them.
    pub fn calls(&self, call: Call) -> u64 {
        self.plan().calls.get(&call).copied().unwrap_or(0)
    }

    /// How many such calls are under way: neither answered nor dropped. Not for watches.
    pub fn under_way(&self, call: Call) -> u64 {
        self.plan().under_way.get(&call).map_or(0, |under_way| under_way.now)
    }

    /// How many such calls were ever under way at the same time. Not for watches.
    pub fn most_at_once(&self, call: Call) -> u64 {
        self.plan().under_way.get(&call).map_or(0, |under_way| under_way.most)
    }

    fn begin(&self, call: Call) -> Begun<'_> {
        let mut plan = self.plan();
        let under_way = plan.under_way.entry(call).or_default();
        under_way.now += 1;
        under_way.most = under_way.most.max(under_way.now);
        Begun(self, call)
    }

    fn draw(&self, call: Call) -> Option<Mishap> {
        let mut plan = self.plan();
        *plan.calls.entry(call).or_default() += 1;
        if let Some(planned) = plan.next.get_mut(&call).and_then(VecDeque::pop_front) {
            return planned;
        }
        plan.always.or_else(|| plan.odds.as_mut().and_then(|(rng, odds)| odds.draw(rng)))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        lock(&self.plan)
    }

    /// One call, and whatever happens to it.
    fn pass<'a, T: Send + 'a>(&'a self, call: Call, attempt: impl Fn() -> Fut<'a, T> + Send + 'a) -> Fut<'a, T> {
        Box::pin(async move {
            let _begun = self.begin(call);
            match self.draw(call) {
                None => attempt().await,
                Some(Mishap::LoseRequest) => Err(unknown(call)),
                Some(Mishap::LoseAnswer) => attempt().await.and(Err(unknown(call))),
                Some(Mishap::Refuse) => Err(StoreError::Unavailable { what: format!("{call:?}"), source: None }),
                Some(Mishap::DelayRequest(by)) => {
                    tokio::time::sleep(by).await;
                    attempt().await
                }
                Some(Mishap::DelayAnswer(by)) => {
                    let answer = attempt().await;
                    tokio::time::sleep(by).await;
                    answer
                }
                Some(Mishap::Double) => {
                    // What became of the first is not known to the caller.
                    let _ = attempt().await;
                    attempt().await
                }
                Some(Mishap::Hang) => pending().await,
                Some(Mishap::Panic) => panic!("{call:?} panics, as it was told to"),
            }
        })
    }
}

fn unknown(call: Call) -> StoreError {
    StoreError::OutcomeUnknown { what: format!("{call:?}"), source: None }
}

impl Odds {
    fn draw(&self, rng: &mut Rng) -> Option<Mishap> {
        let mut roll = rng.below(1000);
        // Drawn always, so that one mishap more does not shift all that follow.
        let delay = self.longest_delay.mul_f64(rng.below(1001) as f64 / 1000.0);
        let all = [
            (self.lose_request, Mishap::LoseRequest),
            (self.lose_answer, Mishap::LoseAnswer),
            (self.refuse, Mishap::Refuse),
            (self.delay_request, Mishap::DelayRequest(delay)),
            (self.delay_answer, Mishap::DelayAnswer(delay)),
            (self.double, Mishap::Double),
        ];
        for (odds, mishap) in all {
            match roll.checked_sub(odds.into()) {
                None => return Some(mishap),
                Some(rest) => roll = rest,
            }
        }
        None
    }
}

/// A store that passes every call on, unless its [`Faults`] say otherwise.
#[derive(Clone, Debug)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    faults: Faults,
}

impl FaultStore {
    /// Stands in front of `inner`.
    pub fn new(inner: Arc<dyn Store>, faults: Faults) -> FaultStore {
        FaultStore { inner, faults }
    }

    /// What decides about the calls.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl Faults {
    fn pass_watch(&self, watch: impl FnOnce() -> Wake) -> Wake {
        match self.draw(Call::Watch) {
            None | Some(Mishap::Double) => watch(),
            Some(Mishap::LoseRequest | Mishap::LoseAnswer | Mishap::Hang) => Box::pin(pending()),
            Some(Mishap::Panic) => Box::pin(async { panic!("a watch panics, as it was told to") }),
            Some(Mishap::Refuse) => {
                let lost = StoreError::Unavailable { what: "the watch was lost".to_owned(), source: None };
                Box::pin(std::future::ready(Err(lost)))
            }
            Some(Mishap::DelayRequest(by) | Mishap::DelayAnswer(by)) => {
                let wake = watch();
                Box::pin(async move {
                    let woken = wake.await;
                    tokio::time::sleep(by).await;
                    woken
                })
            }
        }
    }
}

impl Store for FaultStore {
    fn promises(&self) -> Fut<'_, Promises> {
        self.faults.pass(Call::Promises, || self.inner.promises())
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        let opened = self.faults.pass(Call::OpenSession, move || self.inner.open_session(ttl));
        Box::pin(async move {
            let inner = opened.await?;
            Ok(Arc::new(FaultSession { inner, faults: self.faults.clone() }) as Arc<dyn Session>)
        })
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        self.faults.pass(Call::Elections, move || self.inner.elections(limit))
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        self.faults.pass(Call::Line, move || self.inner.line(election, limit))
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        self.faults.pass_watch(|| self.inner.watch(election, seen, from))
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        self.faults.pass(Call::SetOffice, move || self.inner.set_office(election, was, to))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        self.faults.pass(Call::Evict, move || self.inner.evict(election, seen))
    }
}

#[derive(Debug)]
struct FaultSession {
    inner: Arc<dyn Session>,
    faults: Faults,
}

impl Session for FaultSession {
    fn liveness(&self) -> Liveness {
        self.inner.liveness()
    }

    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        self.faults.pass(Call::Renew, move || self.inner.renew(held))
    }

    fn shortened(&self) -> Shortened {
        let (mut faults, inner) = (self.faults.shortened.subscribe(), self.inner.shortened());
        Box::pin(async move {
            tokio::select! {
                Ok(()) = faults.changed() => faults.borrow().unwrap_or_default(),
                ttl = inner => ttl,
            }
        })
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        self.faults.pass(Call::Enlist, move || self.inner.enlist(election, entry))
    }

    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        self.faults.pass(Call::Standing, move || self.inner.standing(held, behind))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        self.faults.pass_watch(|| self.inner.watch(watched, from))
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        self.faults.pass(Call::Publish, move || self.inner.publish(held, was, said))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        self.faults.pass(Call::Withdraw, move || self.inner.withdraw(held, heir))
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.inner.lifeline()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.faults.pass(Call::Close, move || self.inner.close())
    }
}
