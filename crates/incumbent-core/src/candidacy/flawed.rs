//! What only a known-bad candidate does. All that a sound one knows of it is where it asks.

use super::{Candidacy, Following, State};
use crate::outbox::Outbox;
use crate::time::Timestamp;

impl Candidacy {
    /// Takes a hint that the one ahead is gone for a win.
    pub(super) fn win_unverified(&mut self, now: Timestamp, out: &mut Outbox) {
        if let State::Following(Following { held: Some(held), .. }) = &self.state {
            let held = held.clone();
            self.on_first_in_line(now, held, out);
        }
    }

    /// Closes a term whose work was only asked to stop.
    pub(super) fn close_early(&mut self, now: Timestamp, out: &mut Outbox) {
        if !self.look
            && let Some(closing) = self.closing()
        {
            self.call(now, closing, out);
        }
    }
}
