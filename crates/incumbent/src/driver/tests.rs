//! In which order handles are told, and things are done.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use incumbent_core::{Candidate, ElectionName, LossReason, Rng, StoreId, TermNo, Token};
use incumbent_store::TokioClock;

use super::*;
use crate::port::{CandidacyState, Port};

const SEAT: CandidacyId = CandidacyId(0);

/// What a machine says.
enum Says {
    Event(Event),
    /// Something that lets another leader begin.
    Send(&'static str),
}

/// A machine that says what a test wants, and more once it is told that the work has stopped.
struct Script {
    queue: VecDeque<Says>,
    when_released: Vec<Says>,
    /// What was sent, and how far the candidacy had come by then.
    sent: Arc<Mutex<Vec<(&'static str, Role)>>>,
    seat: Arc<CandidacyState>,
}

impl Side for Script {
    fn stand(&mut self, _: Stand) -> Result<(), CandidacyError> {
        Ok(())
    }
    fn command(&mut self, _: CandidacyId, command: Command) {
        if command == Command::Release {
            self.queue.extend(self.when_released.drain(..));
        }
    }
    fn close(&mut self) {}
    fn tick(&mut self) {}
    fn next_timeout(&self) -> Option<Timestamp> {
        None
    }
    fn poll_work(&mut self, _: &mut Context<'_>) -> bool {
        !self.queue.is_empty()
    }
    fn next_told(&mut self, _: &mut Context<'_>) -> Option<Told> {
        loop {
            match self.queue.pop_front()? {
                Says::Event(event) => return Some(Told::Event(SEAT, event)),
                Says::Send(what) => {
                    let role = self.seat.state().role.clone();
                    self.sent.lock().unwrap_or_else(|error| panic!("{error}")).push((what, role));
                }
            }
        }
    }
    fn fencing_token(&self, claim: &Claim) -> Option<FencingToken> {
        Some(FencingToken::new(claim.token()?, StoreId::new("a script")))
    }
    fn name_of(&self, member: MemberId) -> Arc<str> {
        member.to_string().into()
    }
    fn error(&mut self, _: CandidacyId) -> CandidacyError {
        CandidacyError::Closed
    }
    fn patience(&self) -> Duration {
        Duration::ZERO
    }
}

fn elected() -> Says {
    let token = Token::new(7).unwrap_or_else(|| panic!("a token"));
    Says::Event(Event::Elected { term: TermNo(1), claim: Claim::Term(token), deadline: Timestamp::MAX })
}

/// Drives a machine that says this, then this once the work has stopped. What was sent, and when.
fn sent(says: Vec<Says>, when_released: Vec<Says>, claimed: bool) -> (Vec<(&'static str, Role)>, Arc<CandidacyState>) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let (port, requests) = Port::new(clock.clone(), Rng::from_number(1), Flaws::default());
    let (seat, sent) = (CandidacyState::new(Arc::new(OnceLock::new())), Arc::new(Mutex::new(Vec::new())));
    let side = Script { queue: [elected()].into(), when_released, sent: sent.clone(), seat: seat.clone() };
    let mut driver = Driver::new(side, clock, requests, Settings::default(), Flaws::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let candidate = Candidate {
        election: ElectionName::new("e").unwrap_or_else(|error| panic!("{error}")),
        name: "a".into(),
        value: Bytes::new(),
        fenced: false,
        hold_until_stopped: false,
        first_contact: None,
    };
    let stand = Stand { seat: SEAT, candidate, fences: Vec::new(), shared: seat.clone() };
    assert!(port.send(Request::Stand(Box::new(stand))));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(driver.poll(&mut cx).is_pending());
    if claimed {
        assert!(seat.state().elected.take().is_some());
    }
    driver.side.queue.extend(says);
    assert!(driver.poll(&mut cx).is_pending());
    let sent = std::mem::take(&mut *sent.lock().unwrap_or_else(|error| panic!("{error}")));
    (sent, seat)
}

#[tokio::test]
async fn a_term_is_over_for_its_handles_before_what_the_machine_says_next_is_done() {
    let says = vec![
        Says::Send("before"),
        Says::Event(Event::Unelected(LossReason::Superseded)),
        Says::Send("what lets another begin"),
        Says::Event(Event::Vacant),
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
        Says::Event(Event::Vacant),
    ];
    let (sent, seat) = sent(says, when_released, false);
    let leads = Role::Leading { token: Token::new(7) };
    assert_eq!(sent, [("first", leads), ("what lets another begin", Role::Out(LossReason::Paused))]);
    assert_eq!(seat.state().role, Role::Following { ahead: None, token: None });
}
