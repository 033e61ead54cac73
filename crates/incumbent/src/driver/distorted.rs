//! Known-bad ways to carry out what the machine asks for. All that a sound driver knows of them is
//! where it asks.

use std::task::Context;

use futures_util::future::AbortHandle;
use incumbent_core::{Answer, Cas, Event, Op, Output, SeatId};

use super::{Done, Driver, raise};
use crate::fence::FencingToken;
use crate::flaw::DriverFlaw;

#[derive(Default)]
pub(super) struct Distorted {
    /// The attempt that is out is an opening.
    opening: bool,
    /// To be dropped once the next one has begun.
    to_drop: Vec<AbortHandle>,
    /// To be told in the next turn.
    to_tell: Vec<(SeatId, Event)>,
}

impl Driver {
    /// Carries an output out in a known-bad way, if it has one; else it comes back.
    pub(super) fn distort(&mut self, cx: &mut Context<'_>, output: Output) -> Option<Output> {
        let Some(flaw) = self.flaws.on else { return Some(output) };
        let begins = matches!(output, Output::OpenSession(..) | Output::Renew { .. } | Output::Call(..));
        match (flaw, output) {
            (DriverFlaw::LateOpeningAdopted | DriverFlaw::RenewalUnanswered, Output::GiveUpAttempt(_))
                if self.distorted.opening => {}
            (DriverFlaw::RenewalUnanswered, Output::Renew { epoch, .. }) if self.session(epoch).is_none() => {}
            (DriverFlaw::RenewalsKept, Output::GiveUpAttempt(_)) if !self.distorted.opening => {}
            (DriverFlaw::CallsKept, Output::GiveUpCall(_)) => {}
            (DriverFlaw::DroppedLate, Output::GiveUpAttempt(_)) => {
                self.distorted.to_drop.extend(self.attempt.take());
            }
            (DriverFlaw::DroppedLate, Output::GiveUpCall(seat)) => {
                self.distorted.to_drop.extend(self.calls.remove(&seat));
            }
            (DriverFlaw::DroppedLate, output) if begins => {
                self.carry_out(cx, output);
                self.distorted.to_drop.drain(..).for_each(|late| late.abort());
            }
            (DriverFlaw::LapsedRevived, Output::Event(seat, Event::Deadline(deadline))) => {
                if let Some(term) = self.seats.get(&seat).and_then(|chair| chair.term.as_ref()) {
                    term.revive(deadline);
                }
            }
            (DriverFlaw::ProclaimedByAnother, Output::Event(seat, Event::Proclaimed(_, cas))) => {
                if let Some(chair) = self.seats.get(&seat)
                    && let Some(term) = &chair.term
                {
                    let all = chair.shared.state().proclaims;
                    term.proclaimed.change(|_| Some((all, cas == Cas::Done)));
                }
            }
            (DriverFlaw::EventsLate, Output::Event(seat, event)) => {
                self.distorted.to_tell.push((seat, event));
                cx.waker().wake_by_ref();
            }
            (DriverFlaw::OfficeBeforeFences, Output::Call(seat, call, _, Op::RaiseFences(token))) => {
                let chair = self.seats.get(&seat)?;
                let token = FencingToken::new(token, self.store_id.clone()?);
                let raise = raise(chair.election.clone(), chair.fences.clone(), token);
                self.begin(Box::pin(async move {
                    let _ = raise.await;
                    Done::Discarded
                }));
                self.begin(Box::pin(async move { Done::Answer(seat, call, Ok(Answer::Raised)) }));
            }
            (_, output) => {
                match &output {
                    Output::OpenSession(..) => self.distorted.opening = true,
                    Output::Renew { .. } => self.distorted.opening = false,
                    _ => {}
                }
                return Some(output);
            }
        }
        None
    }

    /// What should have been told in the last turn.
    pub(super) fn tell_late(&mut self, cx: &mut Context<'_>) {
        for (seat, event) in std::mem::take(&mut self.distorted.to_tell) {
            self.tell(cx, seat, event);
        }
    }
}
