//! The first in line, with those behind it and the office record.

use std::ops::{Deref, DerefMut};

use incumbent_core::*;

use crate::driven::{CANDIDACY, Driven, TTL, candidate, other};

/// It has token 5, and renews its session all the while.
pub(crate) struct FirstInLine {
    driven: Driven,
    /// What it has said of itself.
    merit: Merit,
    pub(crate) held: Held,
    pub(crate) behind: Vec<Entry>,
    pub(crate) office: Office,
}

impl Deref for FirstInLine {
    type Target = Driven;
    fn deref(&self) -> &Driven {
        &self.driven
    }
}

impl DerefMut for FirstInLine {
    fn deref_mut(&mut self) -> &mut Driven {
        &mut self.driven
    }
}

/// Somebody else in line, that says this of itself.
pub(crate) fn with_merit(number: u64, merit: Merit) -> Entry {
    let mut entry = other(number);
    entry.merit = merit;
    entry
}

impl FirstInLine {
    /// It enlists with this priority and this word, and was told nothing yet.
    pub(crate) fn enlisting(priority: Option<i32>, unwell: bool, behind: Vec<Entry>) -> FirstInLine {
        FirstInLine::enlisting_as(Candidate { priority, ..candidate() }, unwell, behind)
    }

    pub(crate) fn enlisting_as(candidate: Candidate, unwell: bool, behind: Vec<Entry>) -> FirstInLine {
        let priority = candidate.priority;
        let mut driven = Driven::new(Settings::for_ttl(TTL));
        driven.renews = true;
        driven.handle(Input::Stand(CANDIDACY, candidate));
        driven.command(Command::Unwell(unwell));
        driven.open();
        let Some((_, Op::Enlist(_, entry))) = &driven.call else { panic!("{:?}", driven.call) };
        let merit = entry.merit;
        assert_eq!(merit, Merit::new(unwell, priority.unwrap_or(0)));
        let held = driven.enlisted(5);
        FirstInLine { driven, merit, held, behind, office: Office::default() }
    }

    pub(crate) fn unwell(&mut self, unwell: bool) {
        self.merit.unwell = unwell;
        self.command(Command::Unwell(unwell));
    }

    /// Answers a look: it is first, and the record is as it is.
    pub(crate) fn stands(&mut self) {
        assert!(matches!(self.call, Some((_, Op::Enlist(..) | Op::Standing(..)))), "{:?}", self.call);
        let (place, office) = (Place::Leading(self.held.clone()), self.office.clone());
        self.driven.stands(place, office);
    }

    /// Answers with the line.
    pub(crate) fn reads_line(&mut self) {
        assert!(matches!(self.call, Some((_, Op::Line(..)))), "{:?}", self.call);
        let mut own = with_merit(5, self.merit);
        own.incarnation = Some(self.held.incarnation);
        let entries = std::iter::once(own).chain(self.behind.clone()).collect();
        let line = Line::new(entries, false, self.office.clone(), Cursor(8));
        self.answer(Ok(Answer::Line(Box::new(line))));
    }

    /// The record as it is written down now, and read again.
    pub(crate) fn writes(&mut self) -> Office {
        let Some((_, Op::SetOffice(_, _, to))) = self.call.clone() else { panic!("{:?}", self.call) };
        self.answer(Ok(Answer::Cas(Cas::Done)));
        self.office = to.with_version(Version(self.office.version.0 + 1));
        self.stands();
        self.office.clone()
    }

    /// Something has changed that is watched.
    pub(crate) fn wakes(&mut self) {
        self.wake();
        self.stands();
    }

    /// Somebody has changed the record.
    pub(crate) fn reads(&mut self, office: Office) {
        self.office = office.with_version(Version(self.office.version.0 + 1));
        self.wakes();
    }

    pub(crate) fn is_told_to_stop(&self) -> Option<LossReason> {
        self.events().into_iter().find_map(|event| match event {
            Event::Stopping { why, .. } => Some(why),
            _ => None,
        })
    }
}
