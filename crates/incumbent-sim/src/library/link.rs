//! One client's way to the store. Each call is a task of its own, so that what was given up still
//! arrives: late, twice, in another order, or never.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_core::{
    Cas, Cursor, ElectionName, Entry, EntryId, Held, Incarnation, Line, Liveness, NewEntry, Office, Publication,
    Renewal, Rng, Seen, Standing, StoreId, Token, Version, Watched,
};
use incumbent_store::{Awaited, Fut, Promises, Session, Store, StoreError, Wake, lock};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::checker::Checker;
use super::scenario::Weather;
use super::server::{Server, at_once};

/// What becomes of every call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Open,
    /// Calls are refused at once.
    Refused,
    /// Requests wait until the way is open again, and then arrive.
    Hung,
}

/// What the library may have out once at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Slot {
    /// An opening or a renewal.
    Attempt,
    /// A call of a candidacy, to enlist or about the entry with this token.
    Candidacy(Incarnation, Option<Token>),
    /// What any handle may ask at any time.
    Free,
}

/// Whose way it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkOf {
    pub(crate) weather: Weather,
    /// The TTL that is asked for, and the one that is granted.
    pub(crate) ttl: Duration,
    pub(crate) granted: Duration,
    /// Somebody acts through it who removes entries although their owners live.
    pub(crate) operator: bool,
    /// Calls that begin too early are a violation.
    pub(crate) counted: bool,
    /// Publications replace whatever is there: a known-bad variant.
    pub(crate) unguarded: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Link(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    who: String,
    server: Arc<Server>,
    checker: Arc<Checker>,
    operator: bool,
    counted: bool,
    unguarded: bool,
    granted: Duration,
    ttl: Duration,
    way: Awaited<Way>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    weather: Weather,
    under_way: BTreeMap<Slot, u64>,
    /// Requests and answers on their way, whether or not anybody waits for them.
    on_the_way: u64,
    renewals: u64,
}

/// What happens to one call.
#[derive(Clone, Copy, Debug)]
struct Fate {
    request: Duration,
    answer: Duration,
    /// The request arrives once more, so much later.
    again: Option<Duration>,
    lost: Lost,
    /// What was lost is noticed.
    noticed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    Nothing,
    Request,
    Answer,
    /// Nothing is sent, and that is certain.
    Refused,
}

type Step<T> = Arc<dyn Fn(&Server) -> Result<T, StoreError> + Send + Sync>;

impl Link {
    pub(crate) fn new(who: String, server: Arc<Server>, checker: Arc<Checker>, rng: Rng, what: LinkOf) -> Link {
        let LinkOf { weather, ttl, granted, operator, counted, unguarded } = what;
        let state = State { rng, weather, under_way: BTreeMap::new(), on_the_way: 0, renewals: 0 };
        let (way, state) = (Awaited::new(Way::Open), Mutex::new(state));
        Link(Arc::new(Inner { who, server, checker, operator, counted, unguarded, granted, ttl, way, state }))
    }

    pub(crate) fn set_way(&self, way: Way) {
        self.0.way.set(way);
    }

    pub(crate) fn set_weather(&self, weather: Weather) {
        self.0.state().weather = weather;
    }

    /// How many calls wait for an answer, and how many requests and answers are on their way.
    pub(crate) fn left_over(&self) -> (u64, u64) {
        let state = self.0.state();
        (state.under_way.values().sum(), state.on_the_way)
    }

    fn call<T: Send + 'static>(
        &self,
        slot: Slot,
        what: String,
        step: impl Fn(&Server) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Fut<'static, T> {
        let (link, step): (_, Step<T>) = (self.clone(), Arc::new(step));
        Box::pin(async move {
            let _begun = Begun::new(&link, slot, &what);
            let fate = link.0.draw(what.starts_with("renew"));
            let (answer, answered) = oneshot::channel();
            link.0.state().on_the_way += 1;
            tokio::spawn(link.clone().travel(fate, what, step, answer));
            match answered.await {
                Ok(answer) => answer,
                Err(_) => pending().await,
            }
        })
    }

    async fn travel<T: Send + 'static>(
        self,
        fate: Fate,
        what: String,
        step: Step<T>,
        answer: oneshot::Sender<Result<T, StoreError>>,
    ) {
        let _on_the_way = OnTheWay(&self);
        let generation = self.0.server.generation();
        sleep(fate.request).await;
        if self.0.way.get() == Way::Refused || fate.lost == Lost::Refused {
            let refused = StoreError::Unavailable { what, source: None };
            let _ = answer.send(Err(refused));
            return;
        }
        self.0.way.wait_for(|way| way != Way::Hung).await;
        // Connections do not outlive the store, and a caller that waits notices that.
        if self.0.server.generation() != generation {
            let _ = answer.send(Err(StoreError::OutcomeUnknown { what, source: None }));
            return;
        }
        let done = (fate.lost != Lost::Request).then(|| self.arrive(&what, &step));
        if let Some(later) = fate.again.filter(|_| done.is_some()) {
            self.0.state().on_the_way += 1;
            let link = self.clone();
            let what = format!("{what}, again");
            tokio::spawn(async move {
                let _on_the_way = OnTheWay(&link);
                sleep(later).await;
                if link.0.server.generation() == generation {
                    let _ = link.arrive(&what, &step);
                }
            });
        }
        sleep(fate.answer).await;
        let replaced = self.0.server.generation() != generation;
        match done.filter(|_| fate.lost == Lost::Nothing && !replaced) {
            Some(done) => drop(answer.send(done)),
            None if fate.noticed || replaced => {
                drop(answer.send(Err(StoreError::OutcomeUnknown { what, source: None })))
            }
            // No answer ever comes: the caller gives up.
            None => {}
        }
    }

    /// One step of the store.
    fn arrive<T>(&self, what: &str, step: &Step<T>) -> Result<T, StoreError> {
        let done = step(&self.0.server);
        let outcome = done.as_ref().map_or_else(|error| error.to_string(), |_| "done".to_owned());
        self.0.checker.say(&self.0.who, format_args!("{what}: {outcome}"));
        self.0.checker.look_at_all();
        done
    }
}

impl Inner {
    fn draw(&self, renewal: bool) -> Fate {
        let mut state = self.state();
        let State { rng, weather, .. } = &mut *state;
        let mut within = |longest: Duration| Duration::from_nanos(rng.below(longest.as_nanos() as u64 + 1));
        let usual = [within(weather.delay), within(weather.delay)];
        let late = [within(weather.latest), within(weather.latest), within(weather.latest)];
        let mut happens = |share: u64| rng.below(1000) < share;
        let request = if happens(weather.late) { late[0] } else { usual[0] };
        let answer = if happens(weather.late) { late[1] } else { usual[1] };
        let again = happens(weather.doubled).then_some(late[2]);
        let (lost_request, lost_answer, refused) =
            (happens(weather.lost), happens(weather.lost), happens(weather.refused));
        let noticed = happens(500);
        let lost = match (lost_request, lost_answer, refused) {
            (true, ..) => Lost::Request,
            (_, true, _) => Lost::Answer,
            (.., true) => Lost::Refused,
            _ => Lost::Nothing,
        };
        let fate = Fate { request, answer, again, lost, noticed };
        if renewal && weather.renewals_at_the_edge { self.at_the_edge(&mut state, fate) } else { fate }
    }

    /// Of three renewals the first goes well and the second is lost. The third is sent when the
    /// deadline is near, and answered at any time until it is given up.
    fn at_the_edge(&self, state: &mut State, fate: Fate) -> Fate {
        state.renewals += 1;
        match state.renewals % 3 {
            1 => fate,
            2 => Fate { lost: Lost::Request, noticed: false, ..fate },
            _ => {
                let patience = self.ttl.as_nanos() as u64 / 3;
                Fate { answer: Duration::from_nanos(state.rng.below(patience)), ..fate }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A call that somebody waits for. It is over when this is dropped, answered or given up.
struct Begun<'a>(&'a Link, Slot);

impl<'a> Begun<'a> {
    fn new(link: &'a Link, slot: Slot, what: &str) -> Begun<'a> {
        let before = {
            let mut state = link.0.state();
            let count = state.under_way.entry(slot).or_default();
            *count += 1;
            *count - 1
        };
        if before > 0 && slot != Slot::Free && link.0.counted {
            let text = format!("{}: {what} begins while one before it is under way", link.0.who);
            link.0.checker.fail("HELD", text);
        }
        Begun(link, slot)
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.state();
        if let Some(count) = state.under_way.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                state.under_way.remove(&self.1);
            }
        }
    }
}

struct OnTheWay<'a>(&'a Link);

impl Drop for OnTheWay<'_> {
    fn drop(&mut self) {
        self.0.0.state().on_the_way -= 1;
    }
}

impl Store for Link {
    fn promises(&self) -> Fut<'_, Promises> {
        self.call(Slot::Free, "promises".into(), |server| at_once(server.store().promises()))
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        let ttl = if ttl == self.0.ttl { self.0.granted } else { ttl };
        let link = self.clone();
        self.call(Slot::Attempt, "open_session".into(), move |server| {
            let inner = at_once(server.store().open_session(ttl))?;
            let (link, generation) = (link.clone(), server.generation());
            Ok(Arc::new(LinkSession { link, generation, inner }) as Arc<dyn Session>)
        })
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        let election = election.clone();
        self.call(Slot::Free, format!("line {election}"), move |server| at_once(server.store().line(&election, limit)))
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        self.wait(self.0.server.store().watch(election, seen, from))
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        let (election, to) = (election.clone(), to.clone());
        self.call(Slot::Free, format!("set_office {election}"), move |server| {
            at_once(server.store().set_office(&election, was, &to))
        })
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        let (election, seen, link) = (election.clone(), seen.clone(), self.clone());
        self.call(Slot::Free, format!("evict {election} {}", seen.token), move |server| {
            link.evict_now(server, &election, &seen)
        })
    }
}

impl Link {
    /// A hint on its way: it comes late, or never, or the watch is lost.
    fn wait(&self, wake: Wake) -> Wake {
        let fate = self.0.draw(false);
        let lost = {
            let mut state = self.0.state();
            let share = state.weather.hints_lost;
            state.rng.below(1000) < share
        };
        let link = self.clone();
        let generation = self.0.server.generation();
        Box::pin(async move {
            let hint = async {
                wake.await?;
                if lost {
                    pending::<()>().await;
                }
                sleep(fate.answer).await;
                link.0.way.wait_for(|way| way != Way::Hung).await;
                if fate.lost == Lost::Nothing { Ok(()) } else { Err(gone("the watch broke")) }
            };
            // Connections do not outlive the store, even if the hint is lost.
            tokio::select! {
                biased;
                () = link.0.server.replaced(generation) => Err(gone("the watch was lost")),
                _ = link.0.way.wait_for(|way| way == Way::Refused) => Err(gone("the watch was cut")),
                hint = hint => hint,
            }
        })
    }

    /// S9: it removes the entry that was seen, and no other.
    fn evict_now(&self, server: &Server, election: &ElectionName, seen: &Entry) -> Result<Cas, StoreError> {
        let (checker, number) = (&self.0.checker, self.0.checker.number(election));
        let before = server.line(election).entries;
        if self.0.operator && before.iter().any(|entry| entry.token == seen.token && entry.version == seen.version) {
            checker.removed_early(number, (server.generation(), seen.token));
        }
        let done = at_once(server.store().evict(election, seen));
        let after = server.line(election).entries;
        let other = |entry: &&Entry| entry.token != seen.token && !after.iter().any(|left| left.token == entry.token);
        if let Some(entry) = before.iter().find(other) {
            checker.fail("S9", format!("evicting {} has removed {}", seen.token, entry.token));
        }
        done
    }
}

fn gone(what: &str) -> StoreError {
    StoreError::Unavailable { what: what.to_owned(), source: None }
}

fn slot_of(held: &Held) -> Slot {
    Slot::Candidacy(held.incarnation, Some(held.token))
}

#[derive(Debug)]
struct LinkSession {
    link: Link,
    generation: u32,
    inner: Arc<dyn Session>,
}

impl LinkSession {
    fn call<T: Send + 'static>(
        &self,
        slot: Slot,
        what: String,
        step: impl Fn(&dyn Session) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Fut<'static, T> {
        let (generation, inner) = (self.generation, self.inner.clone());
        self.link.call(slot, what, move |server| {
            // Another store has never heard of this session.
            if server.generation() == generation { step(&*inner) } else { Err(StoreError::SessionGone) }
        })
    }
}

impl Session for LinkSession {
    fn liveness(&self) -> Liveness {
        self.inner.liveness()
    }

    fn store_id(&self) -> StoreId {
        self.inner.store_id()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        let held = held.to_vec();
        self.call(Slot::Attempt, "renew".into(), move |session| at_once(session.renew(&held)))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        let (election, entry) = (election.clone(), entry.clone());
        let slot = Slot::Candidacy(entry.incarnation, None);
        self.call(slot, format!("enlist {election}"), move |session| at_once(session.enlist(&election, &entry)))
    }

    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        let (held, behind) = (held.clone(), behind.cloned());
        let what = format!("standing {} {}", held.election, held.token);
        self.call(slot_of(&held), what, move |session| at_once(session.standing(&held, behind.as_ref())))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        self.link.wait(self.inner.watch(watched, from))
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        let (held, said) = (held.clone(), said.clone());
        let what = format!("publish {} {} {:?}", held.election, held.token, said.value);
        let unguarded = self.link.0.unguarded;
        self.call(slot_of(&held), what, move |session| {
            let was = if unguarded { at_once(session.standing(&held, None))?.published } else { was };
            at_once(session.publish(&held, was, &said))
        })
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        let (held, heir, link, generation) = (held.clone(), heir.cloned(), self.link.clone(), self.generation);
        let what = format!("withdraw {} {}", held.election, held.token);
        let token = held.token;
        let election = link.0.checker.number(&held.election);
        // One that meets a stray of its own and one that sweeps strays may withdraw the same entry
        // at the same time.
        let sent = self.call(Slot::Free, what, move |session| at_once(session.withdraw(&held, heir.as_ref())));
        Box::pin(async move {
            link.0.checker.withdraws(election, (generation, token));
            sent.await
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        let (generation, inner) = (self.generation, self.inner.clone());
        self.link.call(Slot::Free, "close".into(), move |server| {
            // What another store has never heard of is closed.
            if server.generation() == generation { at_once(inner.close()) } else { Ok(()) }
        })
    }
}
