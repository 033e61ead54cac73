//! What a transfer would do, found out by reading alone. It says what is so now: whether the heir
//! is ready in time, only the transfer itself can tell.

use std::fmt;
use std::time::Duration;

use incumbent_core::{Entry, Heir, Line};

use crate::observer::CandidateInfo;

/// What a transfer would do now: see
/// [`foresee_transfer`](crate::Operator::foresee_transfer).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forecast {
    /// Who would be asked to hand over.
    pub leader: CandidateInfo,
    /// Who would lead.
    pub heir: CandidateInfo,
    /// Those between them, in the order of the line: they would go to its end.
    pub step_aside: Vec<CandidateInfo>,
    /// The heir leads, and nothing would be done.
    pub leads_already: bool,
    /// What may still keep it from coming about.
    pub doubts: Vec<Doubt>,
}

/// What may keep a transfer from coming about that nobody refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// The election is paused: all candidates are about to leave the line.
    Paused,
    /// The first in line is not in office yet, or no longer.
    NotInOffice,
    /// The heir has said that it is unwell.
    HeirUnwell,
    /// The heir has not been heard from for this long, which is more than half of its TTL.
    HeirSilent(Duration),
}

impl Doubt {
    /// For programs. The words are part of the format.
    pub fn word(self) -> &'static str {
        match self {
            Doubt::Paused => "paused",
            Doubt::NotInOffice => "not_in_office",
            Doubt::HeirUnwell => "heir_unwell",
            Doubt::HeirSilent(_) => "heir_silent",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Paused => f.write_str("the election is paused, and its candidates are leaving the line"),
            Doubt::NotInOffice => f.write_str("the first in line is not in office yet, or no longer"),
            Doubt::HeirUnwell => f.write_str("the heir is unwell"),
            Doubt::HeirSilent(silent) => write!(f, "the heir has not been heard from for {silent:.1?}"),
        }
    }
}

impl Forecast {
    /// Of a transfer that nobody refuses. The heir is in this line, and so is a leader.
    pub(crate) fn new(line: &Line, leader: &Entry, heir: &Heir) -> Forecast {
        let is_heir = |entry: &&Entry| Heir::of(entry).as_ref() == Some(heir);
        let behind = line.entries.iter().skip(1);
        let entry = line.entries.iter().find(is_heir).unwrap_or(leader);
        let is_pending = line.office.pending(leader).is_some();
        let is_leader = is_heir(&leader);
        let between = behind.take_while(|entry| !is_leader && !is_heir(entry));
        let silent = entry.observed.filter(|_| !is_leader).and_then(|observed| {
            let silent = observed.silent?;
            (silent > observed.ttl / 2).then_some(Doubt::HeirSilent(silent))
        });
        let doubts = [
            line.office.paused.is_some().then_some(Doubt::Paused),
            is_pending.then_some(Doubt::NotInOffice),
            entry.merit.unwell.then_some(Doubt::HeirUnwell),
            silent,
        ];
        Forecast {
            leader: leader.into(),
            heir: entry.into(),
            step_aside: between.map(CandidateInfo::from).collect(),
            leads_already: is_leader && !is_pending,
            doubts: doubts.into_iter().flatten().collect(),
        }
    }
}
