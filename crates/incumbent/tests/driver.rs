//! What stands between the machine and the store: calls that are answered late or never, a store
//! that panics, and a client that is closed, in virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use incumbent::fence::{BoxFuture, Fence, FenceError, FencingToken};
use incumbent::health::Fitness;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::store::{Alarm, Clock, ElectionName, Store, Timestamp, TokioClock};
use incumbent::{Candidacy, CandidacyError, Client, CloseError, Leadership, LossReason, Role, StandError};
use incumbent_testkit::{Call, FaultStore, Faults, Mishap};

const TTL: Duration = Duration::from_secs(15);

/// Openings, renewals and calls are given up after this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A memory store on tokio's clock, behind faults.
struct Fixture {
    clock: Arc<Jumping>,
    store: MemoryStore,
    faults: Faults,
}

impl Fixture {
    fn new() -> Fixture {
        let clock = Arc::new(Jumping { base: TokioClock::new(), jumped: AtomicU64::new(0) });
        let store = MemoryStore::with_clock(Shape::FAIR, Arc::new(TokioClock::new()));
        Fixture { store, clock, faults: Faults::none() }
    }

    async fn client(&self) -> Client {
        let store = FaultStore::new(Arc::new(self.store.clone()), self.faults.clone());
        Client::builder().ttl(TTL).clock(self.clock.clone()).with_store(store).await.unwrap()
    }

    /// Somebody else, who has no faults, and no clock that jumps.
    async fn follower(&self) -> Candidacy {
        let clock = Arc::new(TokioClock::new());
        let client = Client::builder().ttl(TTL).clock(clock).with_store(self.store.clone()).await.unwrap();
        client.election("e").unwrap().candidate("b").stand().await.unwrap()
    }

    async fn stand(&self) -> Candidacy {
        self.client().await.election("e").unwrap().candidate("a").stand().await.unwrap()
    }

    /// One that has led and left, and has its session still.
    async fn client_after_a_term(&self) -> Client {
        let client = self.client().await;
        let mut candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
        lead(&mut candidacy).await.resign().await.unwrap();
        client
    }

    async fn values(&self) -> Vec<String> {
        let line = self.store.line(&ElectionName::new("e").unwrap(), 100).await.unwrap();
        line.entries.iter().map(|entry| String::from_utf8(entry.value.to_vec()).unwrap()).collect()
    }
}

/// A clock that can be moved while nothing else runs, as a suspended machine's does.
#[derive(Debug)]
struct Jumping {
    base: TokioClock,
    jumped: AtomicU64,
}

impl Clock for Jumping {
    fn now(&self) -> Timestamp {
        self.base.now() + Duration::from_nanos(self.jumped.load(Ordering::Relaxed))
    }

    fn alarm(&self) -> std::io::Result<Box<dyn Alarm>> {
        self.base.alarm()
    }
}

async fn lead(candidacy: &mut Candidacy) -> Leadership {
    candidacy.elected().await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_opening_that_was_given_up_never_replaces_the_session_in_use() {
    for late in [PATIENCE * 6 / 5, PATIENCE * 2, PATIENCE * 4] {
        let fixture = Fixture::new();
        // The session is opened, and its answer comes when another one is in use already.
        fixture.faults.next(Call::OpenSession, Mishap::DelayAnswer(late));
        let mut candidacy = fixture.stand().await;
        let office = lead(&mut candidacy).await;
        tokio::time::sleep(TTL * 3).await;
        office.check().expect("no fault, no change of office");
        assert_eq!(fixture.faults.calls(Call::OpenSession), 2);
        drop(candidacy);
        office.resign().await.expect("certain");
        assert_eq!(fixture.values().await.len(), 0, "the entry has certainly left the line");
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_given_up_is_dropped_before_the_next_begins() {
    let fixture = Fixture::new();
    for call in [Call::OpenSession, Call::Enlist, Call::Renew, Call::Withdraw] {
        fixture.faults.next(call, Mishap::Hang);
    }
    let mut candidacy = fixture.stand().await;
    let office = lead(&mut candidacy).await;
    tokio::time::sleep(TTL * 2).await;
    office.check().expect("one renewal that hangs costs nobody the office");
    drop(candidacy);
    office.resign().await.expect("certain, after some tries");
    for call in [Call::OpenSession, Call::Enlist, Call::Renew, Call::Withdraw] {
        assert!(fixture.faults.calls(call) > 1, "{call:?}");
        assert_eq!(fixture.faults.most_at_once(call), 1, "{call:?}");
        assert_eq!(fixture.faults.under_way(call), 0, "{call:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_could_not_end_its_session_says_so() {
    let cases = [
        (Mishap::Refuse, CloseError::Unconfirmed),
        (Mishap::LoseAnswer, CloseError::Unconfirmed),
        (Mishap::Hang, CloseError::TimedOut { waited: TTL }),
    ];
    for (mishap, error) in cases {
        let fixture = Fixture::new();
        let client = fixture.client_after_a_term().await;
        fixture.faults.next(Call::Close, mishap);
        assert_eq!(client.clone().close(TTL).await, Err(error), "{mishap:?}");
        assert_eq!(client.close(TTL).await, Err(error), "{mishap:?}: nor when it is asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_slow_to_end_has_as_long_as_its_user_waits() {
    let fixture = Fixture::new();
    let client = fixture.client_after_a_term().await;
    fixture.faults.next(Call::Close, Mishap::DelayAnswer(TTL * 5));
    client.close(TTL * 10).await.expect("it was slow, and it was done");
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_in_line_while_a_client_is_being_closed() {
    let fixture = Fixture::new();
    let client = fixture.client_after_a_term().await;
    fixture.faults.next(Call::Close, Mishap::DelayAnswer(TTL / 2));
    let election = client.election("e").unwrap();
    // The session is being ended when another handle of the same client asks for a place.
    let (closed, stands) = tokio::join!(client.close(TTL), async {
        tokio::time::sleep(TTL / 4).await;
        election.candidate("late").stand().await
    });
    closed.expect("it was slow, and it was done");
    assert!(matches!(stands, Err(StandError::Candidacy(CandidacyError::Closed))), "{stands:?}");
    let line = fixture.store.line(&ElectionName::new("e").unwrap(), 9).await.unwrap();
    assert_eq!(line.entries, [], "nothing of it is left");
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_work_has_not_stopped_in_time_says_so_and_closes_later() {
    let fixture = Fixture::new();
    let client = fixture.client().await;
    let mut candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let waited = Duration::from_millis(1);
    assert_eq!(client.clone().close(waited).await, Err(CloseError::TimedOut { waited }));
    drop(office);
    client.close(TTL).await.expect("the work has stopped");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_driver_that_has_panicked() {
    let fixture = Fixture::new();
    let client = fixture.client().await;
    let election = client.election("e").unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    fixture.faults.next(Call::Renew, Mishap::Panic);
    assert_eq!(office.lost().await.reason(), LossReason::Closing);
    office.check().unwrap_err();
    office.resign().await.expect_err("the entry is still there");
    assert!(matches!(candidacy.elected().await, Err(CandidacyError::Closed)));
    assert!(matches!(candidacy.withdraw().await, Err(CandidacyError::Closed)));
    election.candidate("b").stand().await.expect_err("closed");
    assert_eq!(client.close(TTL).await, Err(CloseError::Unconfirmed), "the session was not ended");
}

#[tokio::test(start_paused = true)]
async fn a_proclamation_returns_when_others_can_see_its_value_or_a_later_one() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.stand().await;
    let office = lead(&mut candidacy).await;
    fixture.faults.next(Call::Publish, Mishap::DelayAnswer(Duration::from_secs(1)));
    fixture.faults.next(Call::Publish, Mishap::DelayRequest(Duration::from_secs(1)));
    let proclaim = async |value: &'static str| {
        office.proclaim(value).await.unwrap();
        assert!(
            *fixture.values().await[0] >= *value,
            "{value} has returned, and others see {:?}",
            fixture.values().await
        );
    };
    tokio::join!(proclaim("1"), proclaim("2"), proclaim("3"));
    assert_eq!(fixture.values().await, ["3"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_later_term_proclaims_does_not_speak_for_an_earlier_one() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.stand().await;
    let office = lead(&mut candidacy).await;
    let term = office.term();
    fixture.faults.next(Call::Publish, Mishap::Hang);
    let mut early = Box::pin(term.proclaim("1"));
    assert!(early.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    // Nobody looks at it until the candidate leads again.
    office.resign().await.unwrap();
    lead(&mut candidacy).await.proclaim("2").await.unwrap();
    early.await.expect_err("it was never seen under its token");
}

#[tokio::test(start_paused = true)]
async fn check_fails_at_once_past_the_deadline_though_nobody_had_time_to_notice() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.stand().await;
    let office = lead(&mut candidacy).await;
    let before = office.token().get();
    office.check().unwrap();
    // The machine slept, and this line is the first to run.
    fixture.clock.jumped.store(TTL.as_nanos() as u64, Ordering::Relaxed);
    assert_eq!(office.check().unwrap_err().reason(), LossReason::LocalDeadline);
    assert_eq!(office.remaining(), Duration::ZERO);
    // The clock being put right again, or a renewal that succeeds now, revives nothing.
    fixture.clock.jumped.store(0, Ordering::Relaxed);
    office.check().unwrap_err();
    tokio::time::sleep(TTL).await;
    office.check().unwrap_err();
    drop(office);
    assert!(lead(&mut candidacy).await.token().get() > before, "a new term has a new token");
}

#[tokio::test(start_paused = true)]
async fn an_office_whose_end_somebody_saw_by_the_clock_is_free_for_the_next() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.stand().await;
    let mut follower = fixture.follower().await;
    let office = lead(&mut candidacy).await;
    // The machine slept, and this line is the first to run; then the clock is put right again.
    fixture.clock.jumped.store(TTL.as_nanos() as u64, Ordering::Relaxed);
    office.check().unwrap_err();
    fixture.clock.jumped.store(0, Ordering::Relaxed);
    // Nobody leads now, so the office must not stay with one who can still renew.
    lead(&mut follower).await.check().unwrap();
    office.check().unwrap_err();
}

/// Calls the token stale, so many times.
#[derive(Debug)]
struct Stale(AtomicU64);

impl Fence for Stale {
    fn raise<'a>(&'a self, _: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let stale = FenceError::Stale { mark: to.token, token: to.token };
        Box::pin(async move { if left.is_ok() { Err(stale) } else { Ok(()) } })
    }
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_calls_the_token_stale_is_asked_again_and_ends_no_candidacy() {
    let fixture = Fixture::new();
    let election = fixture.client().await.election("e").unwrap();
    let mut candidacy = election.candidate("a").fence(Stale(AtomicU64::new(1))).stand().await.unwrap();
    lead(&mut candidacy).await.check().expect("first in line, says the store");
    drop(candidacy);
    let fixture = Fixture::new();
    let election = fixture.client().await.election("e").unwrap();
    // Called stale although it leads: the store was replaced. An operator settles that at the
    // fence, and the candidacy is still there when it is settled.
    let mut candidacy = election.candidate("a").fence(Stale(AtomicU64::new(2))).stand().await.unwrap();
    lead(&mut candidacy).await.check().expect("the fence was reset");
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_ttl_may_be_shorter_now_ends_its_term_is_closed_and_replaced() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.stand().await;
    let office = lead(&mut candidacy).await;
    let mut follower = fixture.follower().await;

    fixture.faults.shorten(TTL / 2);

    office.term().stopping().await;
    office.term().check().expect("there is time to stop");
    drop(office);
    let next = lead(&mut follower).await;
    drop(next);
    follower.withdraw().await.unwrap();
    lead(&mut candidacy).await;
    assert_eq!(fixture.faults.calls(Call::OpenSession), 2);
    assert_eq!(fixture.faults.calls(Call::Close), 1, "the first one is closed");
    assert_eq!(fixture.values().await.len(), 1);
}

/// An enlistment that was given up may still arrive there.
#[tokio::test(start_paused = true)]
async fn a_client_has_not_closed_for_certain_before_a_session_that_it_replaced_is_closed() {
    for (mishap, certain) in [(Mishap::DelayRequest(PATIENCE / 2), true), (Mishap::Hang, false)] {
        let fixture = Fixture::new();
        let client = fixture.client().await;
        let candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
        fixture.faults.next(Call::Close, mishap);
        fixture.faults.shorten(TTL / 2);
        while fixture.faults.under_way(Call::Close) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let closed = client.close(TTL).await;
        assert_eq!(fixture.faults.under_way(Call::Close), 0, "{mishap:?}");
        match certain {
            true => closed.unwrap(),
            false => assert!(matches!(closed, Err(CloseError::Unconfirmed)), "{closed:?}"),
        }
        drop(candidacy);
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_of_which_nothing_is_known_any_more_ends_its_term_at_once() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.stand().await;
    let office = lead(&mut candidacy).await;
    let mut follower = fixture.follower().await;
    fixture.faults.shorten(Duration::ZERO);
    let next = lead(&mut follower).await;
    assert!(office.term().check().is_err(), "two lead at once");
    next.term().check().unwrap();
}

/// Tokio's clock, and how often its alarms have rung.
#[derive(Clone, Debug)]
struct Counting {
    base: Arc<TokioClock>,
    rung: Arc<AtomicU64>,
}

struct CountingAlarm {
    base: Box<dyn Alarm>,
    rung: Arc<AtomicU64>,
}

impl Clock for Counting {
    fn now(&self) -> Timestamp {
        self.base.now()
    }

    fn alarm(&self) -> std::io::Result<Box<dyn Alarm>> {
        Ok(Box::new(CountingAlarm { base: self.base.alarm()?, rung: self.rung.clone() }))
    }
}

impl Alarm for CountingAlarm {
    fn set(&mut self, at: Option<Timestamp>) {
        self.base.set(at);
    }

    fn poll_ring(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let rings = self.base.poll_ring(cx);
        self.rung.fetch_add(u64::from(rings.is_ready()), Ordering::Relaxed);
        rings
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_wake_and_read_for_their_heartbeat_only_where_it_shows_who_is_ahead() {
    for (shape, ttl) in [(Shape::OBSERVED, TTL), (Shape::ONE_HOST, TTL), (Shape::ONE_HOST, TTL * 4)] {
        let fixture = Fixture { store: MemoryStore::with_clock(shape, Arc::new(TokioClock::new())), ..Fixture::new() };
        let clock = Counting { base: Arc::new(TokioClock::new()), rung: Arc::default() };
        let stand = async |faults: &Faults, clock| {
            let store = FaultStore::new(Arc::new(fixture.store.clone()), faults.clone());
            let client = Client::builder().ttl(ttl).clock(clock).with_store(store).await.unwrap();
            client.election("e").unwrap().candidate("a").stand().await.unwrap()
        };
        let mut leader = stand(&Faults::none(), fixture.clock.clone() as Arc<dyn Clock>).await;
        let _office = lead(&mut leader).await;
        let _waits = stand(&fixture.faults, Arc::new(clock.clone())).await;
        tokio::time::sleep(ttl).await;
        let calls = || [Call::Renew, Call::Standing, Call::Line, Call::Watch].map(|call| fixture.faults.calls(call));
        let (before, rung) = (calls(), clock.rung.load(Ordering::Relaxed));
        tokio::time::sleep(ttl * 20).await;
        let after = calls();
        assert_eq!(after[0] - before[0], 60, "three heartbeats in a TTL: {shape:?}");
        assert_eq!(after[1..], before[1..], "reads beside them: {shape:?}");
        assert_eq!(clock.rung.load(Ordering::Relaxed) - rung, 60, "wake-ups beside them: {shape:?}, {ttl:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_is_dropped_late_leaves_the_next_term_alone() {
    let fixture = Fixture::new();
    let mut a = fixture.stand().await;
    let first = lead(&mut a).await;
    let mut b = fixture.follower().await;
    let mut handing = Box::pin(first.transfer_to("b", TTL));
    // It is polled until its request is on the way, and not for a while after that: its task has
    // other things to do.
    for _ in 0..20 {
        let _ = handing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        tokio::task::yield_now().await;
        if !matches!(a.role(), Role::Leading { .. }) {
            break;
        }
    }
    let theirs = lead(&mut b).await;
    theirs.resign().await.unwrap();
    let second = lead(&mut a).await;
    second.check().unwrap();
    drop(handing);
    // In virtual time: whatever the driver does with it is done by then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    second.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_office_that_nobody_has_taken_is_given_back_by_leaving_and_by_nothing_else() {
    let fixture = Fixture::new();
    let client = fixture.client().await;
    let mut a = client.election("e").unwrap().candidate("a").stand().await.unwrap();
    let mut b = fixture.follower().await;
    // In virtual time: the driver has elected it by then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(a.role(), Role::Leading { .. }), "{:?}", a.role());
    a.set_fitness(Fitness::Fit);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let office = tokio::time::timeout(Duration::from_millis(1), a.elected()).await;
    office.expect("elected already").unwrap().expect("an election that goes on").resign().await.unwrap();
    // Behind b, whose office a waits for.
    lead(&mut b).await.resign().await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(a.role(), Role::Leading { .. }), "{:?}", a.role());
    drop(a);
    // The client goes on, and so does its session.
    let next = tokio::time::timeout(Duration::from_millis(100), lead(&mut b)).await;
    next.expect("given back").check().unwrap();
    client.close(TTL).await.unwrap();
}
