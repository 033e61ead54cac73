//! What the driver keeps for a candidacy, and what its handles are told.

use std::sync::Arc;

use incumbent_core::{ElectionName, LossReason, Timestamp};

use crate::candidacy::{CandidacyEvent, Role};
use crate::port::{SharedCandidacy, TermState};

pub(super) struct Handles {
    pub(super) election: ElectionName,
    pub(super) shared: Arc<SharedCandidacy>,
    pub(super) term: Option<Arc<TermState>>,
}

impl Handles {
    pub(super) fn new(election: ElectionName, shared: Arc<SharedCandidacy>) -> Handles {
        Handles { election, shared, term: None }
    }

    pub(super) fn role(&self, role: Role) {
        self.shared.change(|state| state.role = role.clone());
        self.shared.tell(|| CandidacyEvent::Role(role));
    }

    pub(super) fn on_elected(&mut self, term: TermState) {
        let shown = term.token.as_ref().map(|token| token.token);
        let term = Arc::new(term);
        self.term = Some(term.clone());
        self.shared.change(|state| {
            state.role = Role::Leading { token: shown };
            state.elected = Some(term);
        });
        self.shared.tell(|| CandidacyEvent::Elected(shown));
    }

    pub(super) fn on_stopping(&self, why: LossReason, hard_stop: Timestamp) {
        if let Some(term) = &self.term {
            term.stop(why, hard_stop);
        }
        self.shared.tell(|| CandidacyEvent::Stopping(why));
    }

    pub(super) fn on_unelected(&self, why: LossReason) {
        if let Some(term) = &self.term {
            term.end(why);
        }
        if matches!(why, LossReason::Expired | LossReason::EntryDeleted | LossReason::Deposed) {
            self.released(true);
        }
        self.shared.change(|state| state.role = Role::Out(why));
        self.shared.tell(|| CandidacyEvent::Unelected(why));
    }

    /// What the last term was held by is gone, if `certain`; else nobody will ever know.
    pub(super) fn released(&self, certain: bool) {
        if let Some(term) = &self.term {
            term.release(certain);
        }
    }

    /// The candidacy is over.
    pub(super) fn finish(self, certain: bool) {
        if let Some(term) = &self.term {
            term.end(LossReason::Closing);
        }
        self.released(certain);
        self.shared.change(|state| state.finish(certain));
    }
}
