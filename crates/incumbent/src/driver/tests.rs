//! In which order handles are told, and things are done; and when the driver wakes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, OnceLock};
use std::task::{Wake, Waker};

use incumbent_core::{Candidate, ElectionName, LastTerm, LossReason, Refusal, Rng, StoreId, Successor, TermNo, Token};
use incumbent_store::TokioClock;

use super::*;
use crate::health::{Fitness, Health};
use crate::port::{CandidacyState, Port, SharedCandidacy, TermState};

const ID: CandidacyId = CandidacyId(0);
const PATIENCE: Duration = Duration::from_secs(10);

/// What a machine says.
enum Says {
    Event(Event),
    /// Something that lets another leader begin.
    Send(&'static str),
    /// Nothing: whether the user hands over is looked up.
    Look,
}

/// A machine that says what a test wants, and more once it is told that the work has stopped, or is
/// handed over.
struct Script {
    queue: VecDeque<Says>,
    when_released: Vec<Says>,
    /// What was sent, and how far the candidacy had come by then.
    sent: Arc<Mutex<Vec<(&'static str, Role)>>>,
    candidacy: Arc<SharedCandidacy>,
    term: Option<Arc<TermState>>,
    /// Whether the user was handing over, at each [`Says::Look`].
    ceding: Vec<bool>,
    timeout: Option<Timestamp>,
}

impl Side for Script {
    fn stand(&mut self, _: Stand) -> Result<(), CandidacyError> {
        Ok(())
    }
    fn command(&mut self, _: CandidacyId, command: Command) {
        if matches!(command, Command::Release | Command::Transfer(..)) {
            self.queue.extend(self.when_released.drain(..));
        }
    }
    fn close(&mut self) {}
    fn tick(&mut self) {
        self.timeout = None;
    }
    fn next_timeout(&self) -> Option<Timestamp> {
        self.timeout
    }
    fn poll_work(&mut self, _: &mut Context<'_>) -> bool {
        !self.queue.is_empty()
    }
    fn next_event(&mut self, _: &mut Context<'_>) -> Option<SideEvent> {
        loop {
            match self.queue.pop_front()? {
                Says::Event(event) => return Some(SideEvent::Event(ID, event)),
                Says::Look => self.ceding.extend(self.term.as_ref().map(|term| term.ceding.load(Ordering::Acquire))),
                Says::Send(what) => {
                    let role = self.candidacy.state().role.clone();
                    self.sent.lock().unwrap_or_else(|error| panic!("{error}")).push((what, role));
                }
            }
        }
    }
    fn fencing_token(&self, title: &Title) -> Option<FencingToken> {
        Some(FencingToken::new(title.token()?, StoreId::new("a script")))
    }
    fn name_of(&self, member: MemberId) -> Arc<str> {
        member.to_string().into()
    }
    fn error(&mut self, _: CandidacyId) -> CandidacyError {
        CandidacyError::Closed
    }
    fn patience(&self) -> Duration {
        PATIENCE
    }
}

fn elected() -> Says {
    let token = Token::new(7).unwrap_or_else(|| panic!("a token"));
    let (title, last_term) = (Title::Term(token), LastTerm::Unknown);
    Says::Event(Event::Elected { term: TermNo(1), title, last_term, deadline: Timestamp::MAX })
}

/// Drives a machine that leads, and says this once the work has stopped.
fn leading(when_released: Vec<Says>) -> (Driver<Script>, Port, Arc<SharedCandidacy>) {
    leading_by(Arc::new(TokioClock::new()), when_released)
}

/// The same, by this clock.
fn leading_by(clock: Arc<dyn Clock>, when_released: Vec<Says>) -> (Driver<Script>, Port, Arc<SharedCandidacy>) {
    let (port, requests) = Port::new(clock.clone(), Rng::from_number(1), Flaws::default());
    let (candidacy, sent) = (SharedCandidacy::new(Arc::new(OnceLock::new())), Arc::default());
    let queue = [elected()].into();
    let (term, ceding, timeout) = (None, Vec::new(), None);
    let side = Script { queue, when_released, sent, candidacy: candidacy.clone(), term, ceding, timeout };
    let mut driver = Driver::new(side, clock, requests, Settings::default(), Flaws::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let candidate = Candidate::new(ElectionName::new("e").unwrap_or_else(|error| panic!("{error}")), "a");
    let stand = Stand {
        id: ID,
        candidate,
        fences: Vec::new(),
        stonith: None,
        ready_hook: None,
        has_stopped: None,
        shared: candidacy.clone(),
    };
    assert!(port.send(Request::Stand(Box::new(stand))));
    assert!(driver.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    (driver, port, candidacy)
}

/// Drives a machine that says this, then this once the work has stopped. What was sent, and when.
fn sent(says: Vec<Says>, when_released: Vec<Says>, claimed: bool) -> (Vec<(&'static str, Role)>, Arc<SharedCandidacy>) {
    let (mut driver, _port, candidacy) = leading(when_released);
    if claimed {
        assert!(candidacy.state().elected.take().is_some());
    }
    driver.side.queue.extend(says);
    assert!(driver.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let sent = std::mem::take(&mut *driver.side.sent.lock().unwrap_or_else(|error| panic!("{error}")));
    (sent, candidacy)
}

/// Hands over to a machine that says this. Whether the user was seen handing over, at each look.
fn handed_over(says: Vec<Says>) -> Vec<bool> {
    let (mut driver, port, candidacy) = leading(says);
    driver.side.term = candidacy.state().elected.take();
    assert!(port.command(ID, Command::Transfer(Successor::Member(MemberId(2)), Duration::MAX)));
    assert!(driver.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let term = driver.side.term.as_ref().unwrap_or_else(|| panic!("a term"));
    driver.side.ceding.push(term.ceding.load(Ordering::Acquire));
    std::mem::take(&mut driver.side.ceding)
}

#[tokio::test]
async fn a_term_that_ends_by_the_transfer_of_its_user_is_known_to_end_so() {
    let says = vec![Says::Look, Says::Event(Event::Unelected(LossReason::Transferred)), Says::Look];
    assert_eq!(handed_over(says), [true; 3]);
    let refused = Says::Event(Event::TransferRefused(Refusal::HeirUnfit));
    assert_eq!(handed_over(vec![Says::Look, refused]), [true, false]);
}

#[tokio::test]
async fn a_term_is_over_for_its_handles_before_what_the_machine_says_next_is_done() {
    let says = vec![
        Says::Send("before"),
        Says::Event(Event::Unelected(LossReason::Superseded)),
        Says::Send("what lets another begin"),
        Says::Event(Event::Follows { leader: None, term: None }),
    ];
    let (sent, _) = sent(says, Vec::new(), true);
    let leads = Role::Leading { token: Token::new(7) };
    assert_eq!(sent, [("before", leads), ("what lets another begin", Role::Out(LossReason::Superseded))]);
}

#[tokio::test]
async fn what_follows_from_telling_an_event_keeps_its_place_in_the_queue() {
    let hard_stop = Timestamp::MAX;
    let says = vec![Says::Event(Event::Stopping { why: LossReason::Paused, hard_stop }), Says::Send("first")];
    let when_released = vec![
        Says::Event(Event::Unelected(LossReason::Paused)),
        Says::Send("what lets another begin"),
        Says::Event(Event::Follows { leader: None, term: None }),
    ];
    let (sent, candidacy) = sent(says, when_released, false);
    let leads = Role::Leading { token: Token::new(7) };
    assert_eq!(sent, [("first", leads), ("what lets another begin", Role::Out(LossReason::Paused))]);
    assert_eq!(candidacy.state().role, Role::Following { ahead: None, token: None });
}

/// Unwell is all that is not fit: one that gets worse is not well for a moment, and one that may
/// stand again does not get in line as somebody fit.
#[test]
fn a_machine_is_told_how_its_candidate_is_in_an_order_in_which_nothing_of_it_is_wrong() {
    let clock = Arc::new(TokioClock::new());
    let (port, mut requests) = Port::new(clock, Rng::from_number(1), Flaws::default());
    let candidacy = SharedCandidacy::new(Arc::new(OnceLock::new()));
    let mut told = |change: &dyn Fn(&mut CandidacyState)| {
        candidacy.change_health(&port, ID, change);
        let told = std::iter::from_fn(|| requests.try_recv().ok());
        told.map(|told| match told {
            Request::Command(ID, Command::Unwell(unwell)) => ("unwell", unwell),
            Request::Command(ID, Command::Healthy(healthy)) => ("healthy", healthy),
            Request::Command(ID, Command::Improving(improving)) => ("improving", improving),
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>()
    };
    let (unwell, healthy) = (|is| ("unwell", is), |is| ("healthy", is));
    assert_eq!(told(&|state| state.said = Fitness::Unwell), [unwell(true)]);
    assert_eq!(told(&|state| state.said = Fitness::Unfit), [healthy(false)]);
    assert_eq!(told(&|state| state.said = Fitness::Unwell), [healthy(true)]);
    assert_eq!(told(&|state| state.said = Fitness::Fit), [unwell(false)]);
    assert_eq!(told(&|state| state.said = Fitness::Unfit), [healthy(false), unwell(true)]);
    assert_eq!(told(&|state| state.said = Fitness::Fit), [unwell(false), healthy(true)]);
    // Its program says so before its checks say anything, and takes it back.
    candidacy.state().checked = None;
    assert_eq!(told(&|state| state.said = Fitness::Unfit), [unwell(true)]);
    assert_eq!(told(&|state| state.said = Fitness::Fit), []);
    assert_eq!(told(&|state| state.checked = Some(Health::fit())), [unwell(false), healthy(true)]);
    // What its checks find is better: its program's word is stronger, and who is fit is that.
    let improving = |is| ("improving", is);
    let finds = |found: Health, improves| {
        move |state: &mut CandidacyState| (state.checked, state.improves) = (Some(found.clone()), improves)
    };
    assert_eq!(told(&finds(Health::unwell("slow"), false)), [unwell(true)]);
    assert_eq!(told(&finds(Health::unwell("slow"), true)), [improving(true)]);
    assert_eq!(told(&|state| state.said = Fitness::Unwell), [improving(false)]);
    assert_eq!(told(&|state| state.said = Fitness::Fit), [improving(true)]);
    assert_eq!(told(&finds(Health::fit(), false)), [unwell(false), improving(false)]);
}

/// A clock that a test moves, and all that its alarm was set to.
#[derive(Clone, Debug, Default)]
struct ByHand {
    now: Arc<AtomicU64>,
    set: Arc<Mutex<Vec<Timestamp>>>,
}

impl ByHand {
    fn pass(&self, time: Duration) {
        self.now.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    fn set_to(&self) -> Vec<Timestamp> {
        self.set.lock().unwrap_or_else(|error| panic!("{error}")).clone()
    }
}

impl Clock for ByHand {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.now.load(Ordering::Relaxed))
    }
    fn alarm(&self) -> io::Result<Box<dyn Alarm>> {
        Ok(Box::new(self.clone()))
    }
}

impl Alarm for ByHand {
    fn set(&mut self, at: Option<Timestamp>) {
        self.set.lock().unwrap_or_else(|error| panic!("{error}")).extend(at);
    }
    fn poll_ring(&mut self, _: &mut Context<'_>) -> Poll<()> {
        let rings = self.set_to().last().is_some_and(|at| self.now() >= *at);
        if rings { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[test]
fn an_alarm_is_set_anew_when_it_would_ring_too_late_or_much_too_early() {
    let clock = ByHand::default();
    let (mut driver, _port, _) = leading_by(Arc::new(clock.clone()), Vec::new());
    let (early, moment) = (driver.early, Duration::from_nanos(1));
    assert!(early > moment);
    let at = clock.now() + early * 4;
    for (timeout, is_set) in
        [(at, true), (at, false), (at + early, false), (at + early + moment, true), (at + early, true), (at, true)]
    {
        let before = clock.set_to();
        driver.side.timeout = Some(timeout);
        driver.set_alarm();
        let anew = is_set.then_some(timeout);
        assert_eq!(clock.set_to(), before.into_iter().chain(anew).collect::<Vec<_>>());
    }
}

/// How often it was woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_driver_to_which_nothing_happens_sleeps() {
    let (mut driver, _port, _) = leading_by(Arc::new(ByHand::default()), Vec::new());
    let woken = Arc::new(Woken::default());
    assert!(driver.poll(&mut Context::from_waker(&woken.clone().into())).is_pending());
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
}

#[test]
fn a_driver_whose_handles_are_gone_cleans_up_until_its_patience_is_over() {
    let clock = ByHand::default();
    let (mut driver, port, _) = leading_by(Arc::new(clock.clone()), Vec::new());
    let poll = |driver: &mut Driver<Script>| driver.poll(&mut Context::from_waker(Waker::noop()));
    drop(port);
    assert!(poll(&mut driver).is_pending());
    driver.side.timeout = Some(clock.now() + PATIENCE / 2);
    assert!(poll(&mut driver).is_pending());
    clock.pass(PATIENCE / 2);
    assert!(poll(&mut driver).is_pending(), "the machine had something to do by then");
    assert_eq!(driver.side.timeout, None);
    clock.pass(PATIENCE / 2);
    assert!(poll(&mut driver).is_ready());
}
