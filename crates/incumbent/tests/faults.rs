//! The library against a store that misbehaves, in virtual time: what users see when renewals fail,
//! answers get lost and sessions expire.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::store::{
    Cas, Clock, Cursor, ElectionName, Entry, Fut, Line, LineKind, Office, Seen, Session, Store, StoreId, TokioClock,
    Version, Wake,
};
use incumbent::{
    Candidacy, CandidacyError, Client, ConnectError, Leadership, LossReason, Observation, Promises, ResignError,
    TokenStrength, TransferError,
};
use incumbent_testkit::{Call, FaultStore, Faults, Mishap, Odds};

const TTL: Duration = Duration::from_secs(15);

/// One memory store on tokio's clock, with clients that each have faults of their own.
struct Fixture {
    clock: Arc<dyn Clock>,
    store: MemoryStore,
}

impl Fixture {
    fn new(shape: Shape) -> Fixture {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        Fixture { store: MemoryStore::with_clock(shape, clock.clone()), clock }
    }

    async fn client(&self, faults: &Faults) -> Client {
        let store = FaultStore::new(Arc::new(self.store.clone()), faults.clone());
        Client::builder().ttl(TTL).clock(self.clock.clone()).with_store(store).await.unwrap()
    }

    async fn stand(&self, name: &str, faults: &Faults) -> Candidacy {
        self.client(faults).await.election("e").unwrap().candidate(name).stand().await.unwrap()
    }

    async fn names(&self) -> Vec<String> {
        let line = self.store.line(&ElectionName::new("e").unwrap(), 100).await.unwrap();
        line.entries.iter().map(|entry| entry.name.as_deref().unwrap().to_owned()).collect()
    }

    async fn until_empty(&self) {
        while !self.names().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn lead(candidacy: &mut Candidacy) -> Leadership {
    candidacy.elected().await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_the_store_hands_the_office_on() {
    for mishap in [Mishap::Refuse, Mishap::Hang, Mishap::LoseRequest] {
        let fixture = Fixture::new(Shape::FAIR);
        let faults = Faults::none();
        let mut first = fixture.stand("a", &faults).await;
        let mut second = fixture.stand("b", &Faults::none()).await;
        let office = lead(&mut first).await;
        // Renewed for a while, so that the deadline has moved.
        tokio::time::sleep(TTL * 3).await;
        faults.cut(mishap);
        assert_eq!(office.stopping().await.reason(), LossReason::LocalDeadline, "{mishap:?}");
        office.check().expect("there is a grace to stop in");
        let grace = office.remaining();
        assert!(grace > Duration::from_secs(2) && grace <= Duration::from_secs(3), "{grace:?}");
        assert_eq!(office.lost().await.reason(), LossReason::LocalDeadline);
        let lost_at = fixture.clock.now();
        office.check().unwrap_err();
        let next = lead(&mut second).await;
        assert!(fixture.clock.now() > lost_at, "{mishap:?}: the second led before the first had stopped");
        assert!(next.token().get() > office.token().get());
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_deadline_costs_nobody_the_office() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    let mut candidacy = fixture.stand("a", &faults).await;
    let office = lead(&mut candidacy).await;
    for _ in 0..20 {
        faults.cut(Mishap::Refuse);
        tokio::time::sleep(Duration::from_secs(6)).await;
        faults.heal();
        tokio::time::sleep(Duration::from_secs(6)).await;
        office.check().expect("still in office");
        assert!(!office.term().is_stopping());
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_whose_session_expired_gets_back_in_line_by_itself() {
    for shape in Shape::ALL {
        let fixture = Fixture::new(shape);
        let (faults, fine) = (Faults::none(), Faults::none());
        let mut first = fixture.stand("a", &faults).await;
        let mut second = fixture.stand("b", &fine).await;
        let office = lead(&mut first).await;
        faults.cut(Mishap::Hang);
        office.lost().await;
        drop(office);
        let office = lead(&mut second).await;
        tokio::time::sleep(TTL * 3).await;
        faults.heal();
        if shape.line == LineKind::Fair {
            while fixture.names().await.len() < 2 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            assert_eq!(fixture.names().await, ["b", "a"], "{shape:?}");
        }
        office.check().expect("undisturbed");
        drop(second);
        drop(office);
        lead(&mut first).await.check().expect("in office again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_enlistment_whose_answer_was_lost_is_settled_and_counts_once() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    faults.next(Call::Enlist, Mishap::LoseAnswer);
    faults.next(Call::Enlist, Mishap::LoseRequest);
    faults.next(Call::Enlist, Mishap::Hang);
    faults.next(Call::Enlist, Mishap::Refuse);
    let mut candidacy = fixture.stand("a", &faults).await;
    lead(&mut candidacy).await.check().unwrap();
    assert_eq!(fixture.names().await, ["a"]);
    assert_eq!(faults.calls(Call::Enlist), 5);
}

#[tokio::test(start_paused = true)]
async fn an_enlistment_given_up_while_its_outcome_is_unknown_leaves_nothing() {
    for mishap in [Mishap::LoseAnswer, Mishap::LoseRequest, Mishap::DelayRequest(Duration::from_secs(3)), Mishap::Hang]
    {
        let fixture = Fixture::new(Shape::FAIR);
        let faults = Faults::none();
        let client = fixture.client(&faults).await;
        let election = client.election("e").unwrap();
        faults.next(Call::Enlist, mishap);
        let standing = election.candidate("a").stand();
        assert!(tokio::time::timeout(Duration::from_millis(1), standing).await.is_err(), "{mishap:?}");
        tokio::time::sleep(TTL * 2).await;
        assert!(fixture.names().await.is_empty(), "{mishap:?}");
        // The session lives on, and the election is free for the next candidate.
        let mut candidacy = election.candidate("b").stand().await.unwrap();
        lead(&mut candidacy).await.check().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_is_driven_to_the_end() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    let mut candidacy = fixture.stand("a", &faults).await;
    let mut second = fixture.stand("b", &Faults::none()).await;
    for mishap in [Mishap::LoseRequest, Mishap::LoseAnswer, Mishap::Refuse, Mishap::Double] {
        faults.next(Call::Withdraw, mishap);
    }
    lead(&mut candidacy).await.resign().await.expect("certain, after some tries");
    lead(&mut second).await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resignation_that_the_store_does_not_confirm_says_so_and_goes_on() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    let mut candidacy = fixture.stand("a", &faults).await;
    let office = lead(&mut candidacy).await;
    drop(candidacy);
    faults.cut(Mishap::Hang);
    let unknown = office.resign().await;
    assert!(matches!(unknown, Err(ResignError::OutcomeUnknown { .. })), "{unknown:?}");
    faults.heal();
    fixture.until_empty().await;
}

#[tokio::test(start_paused = true)]
async fn a_hint_that_was_lost_is_made_up_for_by_looking_again() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    let mut first = fixture.stand("a", &Faults::none()).await;
    for _ in 0..3 {
        faults.next(Call::Watch, Mishap::Hang);
    }
    let mut second = fixture.stand("b", &faults).await;
    let office = lead(&mut first).await;
    drop(first);
    office.resign().await.unwrap();
    lead(&mut second).await.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_observer_says_when_it_cannot_see_and_when_it_can_again() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    let mut observer = fixture.client(&faults).await.election("e").unwrap().observe();
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
    faults.cut(Mishap::Refuse);
    assert_eq!(observer.next().await, Some(Observation::Stale));
    let mut candidacy = fixture.stand("a", &Faults::none()).await;
    let office = lead(&mut candidacy).await;
    faults.heal();
    assert_eq!(observer.next().await, Some(Observation::Current));
    let Some(Observation::Leader(leader)) = observer.next().await else { panic!("no leader") };
    assert_eq!(leader.token, Some(office.token().token));
}

/// Two stores under one address: the second takes over when told to.
#[derive(Debug)]
struct Replaced {
    stores: [MemoryStore; 2],
    now: AtomicU64,
    /// Both go by the name of the first, as one that was wiped and started again may.
    alike: bool,
}

impl Replaced {
    fn current(&self) -> &MemoryStore {
        &self.stores[self.now.load(Ordering::Relaxed) as usize]
    }
}

#[derive(Clone, Debug)]
struct Address(Arc<Replaced>);

impl Store for Address {
    fn promises(&self) -> Fut<'_, Promises> {
        self.0.current().promises()
    }
    fn identity(&self) -> Fut<'_, StoreId> {
        if self.0.alike { self.0.stores[0].identity() } else { self.0.current().identity() }
    }
    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        self.0.current().open_session(ttl)
    }
    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        self.0.current().line(election, limit)
    }
    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        self.0.current().watch(election, seen, from)
    }
    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        self.0.current().set_office(election, was, to)
    }
    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        self.0.current().evict(election, seen)
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_replaced_is_an_error_and_never_a_silent_reset() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let stores = [(); 2].map(|()| MemoryStore::with_clock(Shape::FAIR, clock.clone()));
    let address = Address(Arc::new(Replaced { stores: stores.clone(), now: AtomicU64::new(0), alike: false }));
    let calls = Faults::none();
    let store = FaultStore::new(Arc::new(address.clone()), calls.clone());
    let client = Client::builder().ttl(TTL).clock(clock.clone()).with_store(store).await.unwrap();
    let election = client.election("e").unwrap();
    let mut observer = election.observe();
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
    // Let the old store's tokens be higher than any of the new one's.
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    for _ in 0..5 {
        lead(&mut candidacy).await.resign().await.unwrap();
    }
    let office = lead(&mut candidacy).await;
    while !matches!(observer.next().await, Some(Observation::Leader(leader)) if leader.token == Some(office.token().token))
    {
    }
    let theirs = Client::builder().ttl(TTL).clock(clock).with_store(stores[1].clone()).await.unwrap();
    let mut other = theirs.election("e").unwrap().candidate("b").stand().await.unwrap();
    let _theirs = lead(&mut other).await;
    address.0.now.store(1, Ordering::Relaxed);
    // The old store forgets the session before it is gone for good, so that another has to be
    // opened.
    stores[0].forget_sessions();
    office.lost().await;
    drop(office);
    let error = candidacy.elected().await.unwrap_err();
    assert!(matches!(error, CandidacyError::StoreReplaced { .. }), "{error:?}");
    assert_eq!(calls.calls(Call::Close), 1, "the session with the other store is in nobody's use");
    loop {
        match observer.next().await.unwrap() {
            Observation::StoreReset => break,
            Observation::Leader(leader) => {
                assert!(leader.token > incumbent::Token::new(5), "a token went back unannounced")
            }
            _ => {}
        }
    }
    assert!(matches!(observer.next().await, Some(Observation::Leader(leader)) if leader.name.as_deref() == Some("b")));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_wiped_and_kept_its_name_is_a_reset_for_those_who_watch() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let stores = [(); 2].map(|()| MemoryStore::with_clock(Shape::FAIR, clock.clone()));
    let lead_in = async |store: &MemoryStore, terms: usize| {
        let client = Client::builder().ttl(TTL).clock(clock.clone()).with_store(store.clone()).await.unwrap();
        let mut candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
        for _ in 1..terms {
            lead(&mut candidacy).await.resign().await.unwrap();
        }
        let office = lead(&mut candidacy).await;
        (candidacy, office)
    };
    let (_old_candidacy, old) = lead_in(&stores[0], 5).await;
    let (_new_candidacy, new) = lead_in(&stores[1], 1).await;
    assert!(new.token().get() < old.token().get());
    let address = Address(Arc::new(Replaced { stores: stores.clone(), now: AtomicU64::new(0), alike: true }));
    let client = Client::builder().ttl(TTL).clock(clock.clone()).with_store(address.clone()).await.unwrap();
    let mut observer = client.election("e").unwrap().observe();
    assert!(
        matches!(observer.next().await, Some(Observation::Leader(leader)) if leader.token == Some(old.token().token))
    );
    address.0.now.store(1, Ordering::Relaxed);
    assert_eq!(observer.next().await, Some(Observation::StoreReset));
    assert!(
        matches!(observer.next().await, Some(Observation::Leader(leader)) if leader.token == Some(new.token().token))
    );
}

#[tokio::test(start_paused = true)]
async fn whatever_the_store_does_there_is_one_leader_at_a_time_and_one_at_the_end() {
    let odds = Odds {
        lose_request: 60,
        lose_answer: 60,
        refuse: 60,
        delay_request: 60,
        delay_answer: 60,
        double: 60,
        longest_delay: Duration::from_secs(9),
    };
    for (seed, shape) in (0..45).zip(Shape::ALL.into_iter().cycle()) {
        let fixture = Fixture::new(shape);
        let leading = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        let mut all = Vec::new();
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            let faults = Faults::seeded(seed * 10 + number as u64, odds);
            all.push(faults.clone());
            let (client, leading) = (fixture.client(&faults).await, leading.clone());
            tasks.push(tokio::spawn(async move {
                let mut candidacy = client.election("e").unwrap().candidate(name).stand().await.unwrap();
                let mut tokens = Vec::new();
                while let Ok(Some(office)) = candidacy.elected().await {
                    assert_eq!(leading.fetch_add(1, Ordering::Relaxed), 0, "seed {seed}: two at a time");
                    tokens.push(office.token().get());
                    tokio::select! {
                        _ = office.stopping() => {}
                        () = tokio::time::sleep(Duration::from_secs(20)) => {}
                    }
                    leading.fetch_sub(1, Ordering::Relaxed);
                    drop(office);
                }
                tokens
            }));
        }
        tokio::time::sleep(TTL * 40).await;
        all.iter().for_each(Faults::heal);
        tokio::time::sleep(TTL * 4).await;
        // Leaders resign now and then. A follower whose wake-up was lost in silence before the
        // healing learns of it at its next periodic look, at most two TTLs later.
        let led = async {
            while leading.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let led = tokio::time::timeout(TTL * 2 + TTL / 3, led).await;
        assert!(led.is_ok(), "seed {seed}: nobody leads after all is well again");
        for task in &tasks {
            assert!(!task.is_finished(), "seed {seed}: a candidate gave up");
            task.abort();
        }
        fixture.until_empty().await;
    }
}

#[tokio::test]
async fn settings_that_cannot_be_safe_are_refused_with_the_arithmetic() {
    let refused = Client::builder().ttl(TTL).grace(Duration::from_secs(8)).connect("memory://refused").await;
    let Err(ConnectError::Settings(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("3.315s more"), "{error}");
}

#[tokio::test]
async fn urls_that_name_no_store_are_refused_without_repeating_them() {
    let unknown = Client::connect("wombat://user:secret@host").await.unwrap_err().to_string();
    assert!(unknown.contains("wombat") && !unknown.contains("secret"), "{unknown}");
    let malformed = Client::connect("no colon and a secret").await.unwrap_err().to_string();
    assert!(!malformed.contains("secret"), "{malformed}");
}

#[tokio::test]
async fn a_store_with_weaker_tokens_than_required_is_refused() {
    let builder = Client::builder().require(TokenStrength::Durable);
    let refused = builder.with_store(MemoryStore::new(Shape::FAIR)).await;
    assert!(matches!(refused, Err(ConnectError::WeakTokens { .. })), "{refused:?}");
    let builder = Client::builder().require(TokenStrength::Process);
    assert!(builder.with_store(MemoryStore::new(Shape::FAIR)).await.is_ok());
}

#[tokio::test]
async fn everything_runs_in_spawned_tasks_on_the_real_clock() {
    type BoxError = Box<dyn std::error::Error + Send + Sync>;
    let client = Client::connect("memory://spawned").await.unwrap();
    let election = client.election("jobs").unwrap();
    let candidate = election.candidate("a");
    let running = tokio::spawn(async move {
        let mut terms = Vec::new();
        // State that lives across terms belongs to the closure.
        let work = async move |term: incumbent::Term| {
            terms.push(term.token().get());
            // Spawned work has a copy of the term.
            let copy = term.clone();
            tokio::spawn(async move { copy.check() }).await??;
            Ok::<_, BoxError>(terms.len())
        };
        candidate.run(work).await
    });
    assert_eq!(running.await.unwrap().unwrap(), Some(1));
    let looping = tokio::spawn(async move {
        // In the loop, state may be borrowed from around it.
        let mut terms = Vec::new();
        let mut candidacy = election.candidate("a").stand().await?;
        while let Some(office) = candidacy.elected().await? {
            let worked = office.guard(async {
                terms.push(office.token().get());
                tokio::task::yield_now().await;
                Ok::<_, BoxError>(())
            });
            worked.await?;
            office.resign().await?;
            if terms.len() == 3 {
                break;
            }
        }
        Ok::<_, BoxError>(terms.is_sorted())
    });
    assert!(looping.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_leadership_that_is_over_at_once_costs_the_store_no_watch() {
    let (fixture, faults) = (Fixture::new(Shape::FAIR), Faults::none());
    let election = fixture.client(&faults).await.election("e").unwrap();
    // In a task: what a runtime blocks on has its turn last.
    let rounds = tokio::spawn(async move {
        for _ in 0..10 {
            let office = election.candidate("a").try_once().await.unwrap().unwrap();
            office.resign().await.unwrap();
        }
        election.candidate("a").try_once().await.unwrap().unwrap()
    });
    let office = rounds.await.unwrap();
    assert_eq!(faults.calls(Call::Enlist), 11);
    // Virtual time passes when nobody has anything left to do.
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(faults.calls(Call::Watch), 1, "one that lasts is watched");
    // And it hears of what happens to it.
    let seen = fixture.store.line(&ElectionName::new("e").unwrap(), 1).await.unwrap().entries.remove(0);
    fixture.store.evict(&ElectionName::new("e").unwrap(), &seen).await.unwrap();
    assert_eq!(office.lost().await.reason(), LossReason::EntryDeleted);
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_own_transfer_comes_after_an_operators_is_back_in_line() {
    let fixture = Fixture::new(Shape::FAIR);
    let faults = Faults::none();
    let mut first = fixture.stand("a", &faults).await;
    let mut second = fixture.stand("b", &Faults::none()).await;
    let office = lead(&mut first).await;
    let operator = fixture.client(&Faults::none()).await.election("e").unwrap().operator();
    let handed = tokio::spawn(async move { operator.transfer("b", TTL).await });
    assert_eq!(office.stopping().await.reason(), LossReason::Transferred);
    // The leader's own transfer reads the line for longer than its grace lasts.
    faults.next(Call::Line, Mishap::DelayAnswer(Duration::from_secs(4)));
    let late = office.transfer_to("b", TTL).await.unwrap_err();
    assert!(matches!(late, TransferError::Lost(lost) if lost.reason() == LossReason::Transferred), "{late}");
    handed.await.unwrap().unwrap();
    lead(&mut second).await.leave().await.unwrap();
    lead(&mut first).await.check().unwrap();
}
