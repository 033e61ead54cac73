//! The first in line at a vacancy: it takes office, or hands its place to one that is better. It
//! never just goes away.

use incumbent_core::{CandidacyId, EntryId, Held, Merit};

use super::users::Deed;
use super::world::{Happening, World};

impl World {
    /// The heir of a place that is on its way to it goes away, just then.
    pub(crate) fn heir_leaves(&mut self, held: &Held, heir: &EntryId) {
        let line = self.server.line(self.now, &held.election);
        let heir = line.iter().find(|entry| entry.id == *heir).map(|entry| entry.token);
        let election = self.names.iter().position(|name| *name == held.election);
        let maker = election.zip(heir).and_then(|(election, heir)| self.checker.maker(election, heir));
        if let Some((process, boot, candidacy, ..)) = maker {
            self.after(0, Happening::Deed(Deed::Leave { process, boot, candidacy }));
        }
    }

    /// A candidacy gives up its place, for the first time.
    pub(crate) fn check_place(&mut self, process: usize, candidacy: CandidacyId, held: &Held, heir: Option<&EntryId>) {
        let Some(user) = self.processes[process].users.get(&candidacy) else { return };
        let election = user.election;
        // Where terms are on record, one of an earlier term may be closed first: by then the reason
        // may be gone again.
        // So it may where an entry of an earlier enlistment was found, and goes for the next one.
        let is_stray = user.enlisted.is_some_and(|incarnation| incarnation != held.incarnation);
        if self.checker.was_elected(election, held.token) || self.recorded[election] || is_stray {
            return;
        }
        if let Some(heir) = heir {
            let own = Merit::new(user.unwell, user.priority.unwrap_or(0));
            let is_better = user.told.line.iter().any(|entry| entry.id == *heir && entry.merit.is_better_than(own));
            return self.checker.gives_place(self.now, election, held.token, is_better);
        }
        let first = user.told.first_in_line.as_ref().filter(|first| first.token == held.token);
        let is_barred = first.is_none_or(|first| first.paused || first.ended.is_some());
        let has_to = user.leaving || user.failed || !user.healthy || self.closing;
        // Fences that do not answer may be within reach of the next in line; and a session that
        // is to be replaced takes its entries along.
        let may_have_to = user.fenced || self.scenario.luck.reconnects > 0;
        if !is_barred && !has_to && !may_have_to {
            let text = format!("{:?} of e{election} was first in line, and goes away", held.token);
            self.fail("PLACE", text);
        }
    }
}
