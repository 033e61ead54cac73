//! The store that misbehaves does what it was asked to do, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test speaks by panicking")]

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{
    ElectionName, Fault, Held, Incarnation, NewEntry, Place, Seen, Session, Standing, Store, StoreError, TokioClock,
    Version, Watched,
};
use incumbent_testkit::{Call, FaultStore, Faults, Mishap, Odds};
use tokio::time::{Instant, timeout};

const TTL: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(1);

fn election() -> ElectionName {
    ElectionName::new("jobs/nightly").unwrap()
}

fn entry() -> NewEntry {
    NewEntry::new(Incarnation::from_bits(1), "node-1", "value")
}

struct Fixture {
    memory: MemoryStore,
    store: FaultStore,
    faults: Faults,
    session: Arc<dyn Session>,
}

async fn fixture() -> Fixture {
    let memory = MemoryStore::with_clock(Shape::FAIR, Arc::new(TokioClock::new()));
    let faults = Faults::none();
    let store = FaultStore::new(Arc::new(memory.clone()), faults.clone());
    let session = store.open_session(TTL).await.unwrap();
    Fixture { memory, store, faults, session }
}

impl Fixture {
    async fn enlist(&self) -> Result<Standing, StoreError> {
        self.session.enlist(&election(), &entry()).await
    }

    async fn in_line(&self) -> usize {
        self.memory.line(&election(), 10).await.unwrap().entries.len()
    }
}

fn leading(standing: Standing) -> Held {
    let Place::Leading(held) = standing.place else { panic!("{standing:?}") };
    held
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_is_not_done_and_a_lost_answer_is() {
    let fixture = fixture().await;
    fixture.faults.next(Call::Enlist, Mishap::LoseRequest);
    fixture.faults.next(Call::Enlist, Mishap::LoseAnswer);
    assert_eq!(fixture.enlist().await.unwrap_err().fault(), Fault::OutcomeUnknown);
    assert_eq!(fixture.in_line().await, 0);
    assert_eq!(fixture.enlist().await.unwrap_err().fault(), Fault::OutcomeUnknown);
    assert_eq!(fixture.in_line().await, 1);
    let held = leading(fixture.enlist().await.unwrap());
    assert_eq!((held.incarnation, fixture.in_line().await), (entry().incarnation, 1));
    assert_eq!(fixture.faults.calls(Call::Enlist), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_not_done_and_a_doubled_one_is_done_twice() {
    let fixture = fixture().await;
    fixture.faults.next(Call::Enlist, Mishap::Refuse);
    fixture.faults.next(Call::Enlist, Mishap::Double);
    assert_eq!(fixture.enlist().await.unwrap_err().fault(), Fault::Unavailable);
    assert_eq!(fixture.in_line().await, 0);
    let calls = fixture.memory.calls();
    leading(fixture.enlist().await.unwrap());
    assert_eq!(fixture.memory.calls(), calls + 2);
    assert_eq!(fixture.in_line().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_request_is_done_late_and_a_delayed_answer_only_comes_late() {
    for (mishap, in_line_meanwhile) in [(Mishap::DelayRequest(LATE), 0), (Mishap::DelayAnswer(LATE), 1)] {
        let fixture = fixture().await;
        fixture.faults.next(Call::Enlist, mishap);
        let began = Instant::now();
        let entry = entry();
        let election = election();
        let mut call = fixture.session.enlist(&election, &entry);
        assert!(timeout(LATE / 2, &mut call).await.is_err());
        assert_eq!(fixture.in_line().await, in_line_meanwhile, "{mishap:?}");
        leading(call.await.unwrap());
        assert_eq!(began.elapsed(), LATE);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_cut_off_every_call_fails_and_afterwards_none_does() {
    let fixture = fixture().await;
    fixture.faults.cut(Mishap::Refuse);
    assert!(fixture.enlist().await.is_err());
    assert!(fixture.store.line(&election(), 1).await.is_err());
    assert!(fixture.store.watch(&election(), &Seen::new(Version::NONE), Default::default()).await.is_err());
    fixture.faults.spare(Call::Renew);
    assert!(fixture.session.renew(&[]).await.is_ok());
    assert!(fixture.session.renew(&[]).await.is_err());
    fixture.faults.cut(Mishap::Hang);
    assert!(timeout(100 * LATE, fixture.session.renew(&[])).await.is_err());
    fixture.faults.heal();
    assert_eq!(fixture.session.renew(&[]).await.unwrap_err().fault(), Fault::SessionGone, "it was silent for too long");
    assert!(fixture.store.line(&election(), 1).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_never_wakes_and_a_late_one_wakes_late() {
    let fixture = fixture().await;
    let held = leading(fixture.enlist().await.unwrap());
    let cursor = fixture.store.line(&election(), 1).await.unwrap().cursor;
    fixture.faults.next(Call::Watch, Mishap::LoseAnswer);
    fixture.faults.next(Call::Watch, Mishap::DelayAnswer(LATE));
    let watched = Watched::new(held.clone(), Version::NONE);
    let mut lost = fixture.session.watch(&watched, cursor);
    let late = fixture.session.watch(&watched, cursor);
    let in_time = fixture.session.watch(&watched, cursor);
    fixture.session.withdraw(&held, None).await.unwrap();
    let began = Instant::now();
    in_time.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    late.await.unwrap();
    assert_eq!(began.elapsed(), LATE);
    assert!(lost.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_mishaps() {
    let odds = Odds {
        lose_request: 100,
        lose_answer: 100,
        refuse: 100,
        delay_request: 100,
        delay_answer: 100,
        double: 100,
        longest_delay: LATE,
    };
    let mut histories = Vec::new();
    for seed in [7, 7, 8] {
        let memory = MemoryStore::with_clock(Shape::FAIR, Arc::new(TokioClock::new()));
        let store = FaultStore::new(Arc::new(memory), Faults::seeded(seed, odds));
        let mut history = Vec::new();
        for _ in 0..200 {
            let began = Instant::now();
            let outcome = store.line(&election(), 1).await.map(|_| ()).map_err(|error| error.fault());
            history.push((outcome, began.elapsed()));
        }
        histories.push(history);
    }
    assert_eq!(histories[0], histories[1]);
    assert_ne!(histories[0], histories[2]);
    let failed = histories[0].iter().filter(|(outcome, _)| outcome.is_err()).count();
    assert!((20..120).contains(&failed), "three in ten fail: {failed} of 200");
}
