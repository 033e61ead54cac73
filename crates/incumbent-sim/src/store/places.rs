//! Whom an office or a place is handed to. The first in line at a vacancy takes office, or hands
//! its place to one that is better: it never just goes away. A leader that is about to leave hands
//! over to the best.

use incumbent_core::{CandidacyId, ElectionName, Entry, EntryId, Held, Merit, Nonce, Office, Token};

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

    /// A leader that is about to leave writes the record: does it ask the best in the line that it
    /// read last, of those whom it has not asked?
    pub(crate) fn check_departure(
        &mut self,
        process: usize,
        candidacy: CandidacyId,
        name: &ElectionName,
        office: &Office,
    ) {
        let known = self.server.office(self.now, name).handover.map(|handover| handover.nonce);
        let Some(user) = self.processes[process].users.get_mut(&candidacy) else { return };
        let asks = office.handover.as_ref().filter(|asks| asks.refused.is_none() && !asks.is_unasked());
        let asks = asks.filter(|asks| Some(asks.nonce) != known);
        let (Some(asks), Some(term), Some(departure)) = (asks, &user.term, &mut user.departure) else { return };
        let Some(heir) = asks.heir.as_ref().map(|heir| heir.token).filter(|_| asks.from == term.token) else { return };
        let merit = user.told.line.iter().find(|entry| entry.token == heir).map(|entry| entry.merit);
        if departure.iter().any(|(nonce, _)| *nonce == asks.nonce) {
            // Written once more: its first try had no answer, or the record has moved on since.
            return;
        }
        let is_asked = |entry: &Entry| departure.iter().any(|(_, asked)| *asked == entry.token);
        let others = user.told.line.iter().filter(|entry| entry.token > term.token && !is_asked(entry));
        let is_better = |entry: &Entry| merit.is_none_or(|merit| entry.merit.is_better_than(merit));
        let better = others.clone().find(|entry| is_better(entry)).map(|entry| entry.token);
        departure.push((asks.nonce, heir));
        if let Some(better) = better {
            let text = format!("{:?} asks {heir:?} to take its office, and {better:?} is better", asks.from);
            self.fail("FITNESS", text);
        }
    }

    /// A candidacy says that it is ready for this handover: has its user got ready for it?
    pub(crate) fn check_readiness(
        &mut self,
        process: usize,
        candidacy: CandidacyId,
        held: &Held,
        ready: Option<Nonce>,
    ) {
        let Some(user) = self.processes[process].users.get(&candidacy).filter(|user| user.prepares) else { return };
        let is_known = |nonce: &Nonce| user.readied.contains(nonce) || user.told.at_vacancy.contains(nonce);
        if let Some(nonce) = ready.filter(|nonce| !is_known(nonce)) {
            let text = format!("{:?} says that it is ready for {nonce:?}, and is not", held.token);
            self.fail("HEIR", text);
        }
    }

    /// A leader stops its work for an heir. If it asked that one since it is about to leave, nobody
    /// whom it has not asked is fit while its heir is not, in the line that it read last.
    pub(crate) fn check_heir(&mut self, process: usize, candidacy: CandidacyId, token: Token) {
        let Some(user) = self.processes[process].users.get(&candidacy) else { return };
        let Some(departure) = &user.departure else { return };
        let mut behind = user.told.line.iter().filter(|entry| entry.token > token);
        let Some(heir) = behind.next() else { return };
        let is_ours = departure.iter().any(|(nonce, _)| heir.ready == Some(*nonce));
        let is_asked = |entry: &Entry| departure.iter().any(|(_, asked)| *asked == entry.token);
        let fit = behind.find(|entry| !entry.merit.unwell && !is_asked(entry)).map(|entry| entry.token);
        if let Some(fit) = fit.filter(|_| is_ours && heir.merit.unwell) {
            let text = format!("{token:?} hands over to {:?}, which is unwell, and {fit:?} is fit", heir.token);
            self.fail("FITNESS", text);
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
        let is_barred = first.is_none_or(|first| first.paused || first.benched || first.ended.is_some());
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
