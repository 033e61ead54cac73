//! Known-bad ways to tell handles what has happened. All that a sound driver knows of them is where
//! it asks.

use std::task::Context;

use incumbent_core::{CandidacyId, Cas, Event};

use super::{Driver, Side};
use crate::flaw::DriverFlaw;

impl<S: Side> Driver<S> {
    /// Tells an event in a known-bad way, if it has one; else it comes back.
    pub(super) fn distort(&mut self, cx: &mut Context<'_>, id: CandidacyId, event: Event) -> Option<Event> {
        let handles = self.candidacies.get(&id);
        let term = handles.and_then(|handles| handles.term.as_ref());
        match (self.flaws.on, event) {
            (Some(DriverFlaw::LapsedRevived), Event::Deadline(deadline)) => {
                if let Some(term) = term {
                    term.revive(deadline);
                }
            }
            (Some(DriverFlaw::ProclaimedByAnother), Event::Proclaimed(_, cas)) => {
                if let (Some(handles), Some(term)) = (handles, term) {
                    let all = handles.shared.state().proclaims;
                    term.proclaimed.set((all, cas == Cas::Done));
                }
            }
            (Some(DriverFlaw::EventsLate), event) => {
                self.to_tell.push((id, event));
                cx.waker().wake_by_ref();
            }
            (_, event) => return Some(event),
        }
        None
    }

    /// What should have been told in the last turn.
    pub(super) fn tell_late(&mut self, cx: &mut Context<'_>) {
        for (id, event) in std::mem::take(&mut self.to_tell) {
            self.tell(cx, id, event);
        }
    }
}
