//! The judge of what candidates in processes of their own wrote down: whether a rule was broken.
//!
//! All are on one host, so that their clocks are one clock. It knows nothing of how the candidates
//! were treated, but for deaths of which the store learns at once.

use std::collections::BTreeMap;
use std::fmt;

/// A candidate's number.
pub type Who = u16;

/// One line of a candidate's diary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// When, in nanoseconds of the boot-time clock.
    pub at: u64,
    /// Who wrote it.
    pub who: Who,
    /// The process that wrote it.
    pub life: u32,
    /// What it says.
    pub what: What,
}

/// What a candidate writes down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// A process begins.
    Started,
    /// It is in office.
    Elected {
        /// The token, which for consensus is the number of the term.
        term: u64,
        /// Until when.
        deadline: u64,
    },
    /// It may believe in its office until then.
    Deadline(u64),
    /// The term is over, and why.
    Unelected(String),
    /// Somebody leads, in this term.
    Leader(Who, u64),
    /// Nobody leads.
    Vacant,
    /// Something that is not judged.
    Other(String),
    /// Its process was killed, at this time or after it, and the store learns of deaths at once.
    Killed,
}

impl Report {
    /// A line: the time, the process, and what it says. `None`: it means nothing.
    pub fn parse(who: Who, line: &str) -> Option<Report> {
        let mut words = line.split(' ');
        let (at, life) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let what = match (words.next()?, words.next(), words.next()) {
            ("started", None, None) => What::Started,
            ("elected", Some(term), Some(deadline)) => {
                What::Elected { term: term.parse().ok()?, deadline: deadline.parse().ok()? }
            }
            ("deadline", Some(deadline), None) => What::Deadline(deadline.parse().ok()?),
            ("unelected", Some(why), None) => What::Unelected(why.to_owned()),
            ("leader", Some(leader), Some(term)) => What::Leader(leader.parse().ok()?, term.parse().ok()?),
            ("vacant", None, None) => What::Vacant,
            ("killed", None, None) => What::Killed,
            ("stopping" | "note", Some(_), _) => What::Other(line.to_owned()),
            _ => return None,
        };
        Some(Report { at, who, life, what })
    }
}

/// A term in which a candidate was in office.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    /// Who.
    pub who: Who,
    /// Its token.
    pub term: u64,
    /// Since when.
    pub from: u64,
    /// The last one that it was given.
    pub deadline: u64,
    /// When it said that the term was over. Being killed ends nothing: nobody else may count on it.
    pub ended: Option<u64>,
}

impl Term {
    /// Until when its holder may have believed in it.
    pub fn until(&self) -> u64 {
        self.ended.unwrap_or(u64::MAX).min(self.deadline)
    }
}

/// A write to a fenced resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// When the resource decided about it.
    pub at: u64,
    /// The token that it came with.
    pub token: u64,
    /// Whether it was made.
    pub accepted: bool,
}

/// The rule that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A term has two leaders, or one of them twice.
    TwoInATerm(Term, Term),
    /// Two could believe at the same time that they lead.
    Overlap(Term, Term),
    /// A later leader has a lower term.
    TermWentBack(Term, Term),
    /// A deadline or an end without an office, or an office within an office.
    OutOfOrder(Report),
    /// Somebody follows a leader that was never elected in that term.
    NeverElected(Report),
    /// A fenced resource took what an earlier leader wrote while a later one was in office.
    StaleWrite(Write, Term),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#?}")
    }
}

/// All reports of all candidates, each one's in order.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    reports: BTreeMap<Who, Vec<Report>>,
}

impl Timeline {
    /// Adds a report to its candidate's.
    pub fn add(&mut self, report: Report) {
        self.reports.entry(report.who).or_default().push(report);
    }

    /// Every term, by when it began.
    pub fn terms(&self) -> Result<Vec<Term>, Broken> {
        let mut terms = Vec::new();
        for reports in self.reports.values() {
            let mut office: Option<Term> = None;
            for report in reports {
                let (at, who) = (report.at, report.who);
                match (&report.what, &mut office) {
                    // Whatever an earlier life had, it has taken with it.
                    (What::Started, _) => terms.extend(office.take()),
                    (What::Elected { term, deadline }, None) => {
                        office = Some(Term { who, term: *term, from: at, deadline: *deadline, ended: None });
                    }
                    (What::Deadline(deadline), Some(term)) => term.deadline = *deadline,
                    (What::Unelected(_) | What::Killed, Some(term)) => {
                        term.ended = Some(at);
                        terms.extend(office.take());
                    }
                    (What::Elected { .. }, Some(_)) | (What::Deadline(_) | What::Unelected(_), None) => {
                        return Err(Broken::OutOfOrder(report.clone()));
                    }
                    (What::Killed, None) | (What::Leader(..) | What::Vacant | What::Other(_), _) => {}
                }
            }
            terms.extend(office);
        }
        terms.sort_by_key(|term| (term.from, term.term));
        Ok(terms)
    }

    /// The rules, over all that was written.
    pub fn check(&self) -> Result<Vec<Term>, Broken> {
        let terms = self.terms()?;
        let mut holders: BTreeMap<u64, &Term> = BTreeMap::new();
        for term in &terms {
            if let Some(other) = holders.insert(term.term, term) {
                return Err(Broken::TwoInATerm(other.clone(), term.clone()));
            }
        }
        // One whose deadline had passed before its process, which may have been stopped, heard of
        // its election never led.
        let led: Vec<&Term> = terms.iter().filter(|term| term.from < term.until()).collect();
        for (at, term) in led.iter().enumerate() {
            for earlier in &led[..at] {
                if earlier.until() > term.from {
                    return Err(Broken::Overlap((*earlier).clone(), (*term).clone()));
                }
                if earlier.term > term.term {
                    return Err(Broken::TermWentBack((*earlier).clone(), (*term).clone()));
                }
            }
        }
        self.check_followers(&holders)?;
        Ok(terms)
    }

    fn check_followers(&self, holders: &BTreeMap<u64, &Term>) -> Result<(), Broken> {
        for report in self.reports.values().flatten() {
            if let What::Leader(leader, term) = report.what
                && holders.get(&term).is_none_or(|holder| holder.who != leader)
            {
                return Err(Broken::NeverElected(report.clone()));
            }
        }
        Ok(())
    }

    /// The rule of fenced resources: from the moment a leader is in office, none takes a write with
    /// an older token.
    pub fn check_writes(&self, writes: &[Write]) -> Result<(), Broken> {
        let terms = self.terms()?;
        for write in writes.iter().filter(|write| write.accepted) {
            let later = terms.iter().find(|term| term.term > write.token && term.from < write.at);
            if let Some(later) = later {
                return Err(Broken::StaleWrite(*write, later.clone()));
            }
        }
        Ok(())
    }

    /// Who leads in which term, as far as a candidate knows.
    pub fn known_by(&self, who: Who) -> Option<(Who, u64)> {
        let news = self.reports.get(&who)?.iter().rev().find_map(|report| match &report.what {
            What::Elected { term, .. } => Some(Some((who, *term))),
            What::Leader(leader, term) => Some(Some((*leader, *term))),
            What::Started | What::Unelected(_) | What::Killed | What::Vacant => Some(None),
            What::Deadline(_) | What::Other(_) => None,
        });
        news.flatten()
    }

    /// The newest term of those who said that they are in office and not that they are not, and its
    /// holder.
    pub fn in_office(&self) -> Option<(Who, u64)> {
        let offices = self.reports.keys().filter_map(|who| self.known_by(*who).filter(|(leader, _)| leader == who));
        offices.max_by_key(|(_, term)| *term)
    }

    /// The last reports of all, in the order of their times: for people.
    pub fn tail(&self, count: usize) -> String {
        let mut all: Vec<&Report> = self.reports.values().flatten().collect();
        all.sort_by_key(|report| report.at);
        let shown = all[all.len().saturating_sub(count)..].iter();
        shown.map(|report| format!("{:>16} {} {:?}\n", report.at, report.who, report.what)).collect()
    }

    /// How many reports there are that fit.
    pub fn count(&self, fits: impl Fn(&Report) -> bool) -> usize {
        self.reports.values().flatten().filter(|report| fits(report)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A forged timeline: member, time, what it wrote.
    fn forged(lines: &[(Who, &str)]) -> Timeline {
        let mut timeline = Timeline::default();
        lines.iter().for_each(|(who, line)| timeline.add(Report::parse(*who, line).unwrap()));
        timeline
    }

    #[test]
    fn terms_one_after_the_other_are_sound_however_they_end() {
        let timeline = forged(&[
            (1, "5 11 started"),
            (1, "10 11 elected 1 30"),
            (1, "20 11 deadline 40"),
            // Killed: its last deadline still counts.
            (1, "45 12 started"),
            (2, "41 21 elected 2 90"),
            (2, "60 21 unelected Transferred"),
            (3, "60 31 elected 5 200"),
            (1, "61 12 leader 3 5"),
        ]);
        let terms = timeline.check().unwrap();
        let seen: Vec<_> = terms.iter().map(|term| (term.who, term.term, term.from, term.until())).collect();
        assert_eq!(seen, [(1, 1, 10, 40), (2, 2, 41, 60), (3, 5, 60, 200)]);
        assert_eq!(timeline.known_by(1), Some((3, 5)));
        assert_eq!(timeline.known_by(2), None);
        assert_eq!(timeline.in_office(), Some((3, 5)));
    }

    #[test]
    fn two_leaders_in_a_term_are_found() {
        let timeline = forged(&[(1, "10 1 elected 4 20"), (2, "50 2 elected 4 60")]);
        assert!(matches!(timeline.check(), Err(Broken::TwoInATerm(..))));
    }

    #[test]
    fn one_leader_twice_in_a_term_is_found() {
        let timeline = forged(&[(1, "10 1 elected 4 20"), (1, "30 2 started"), (1, "50 2 elected 4 60")]);
        assert!(matches!(timeline.check(), Err(Broken::TwoInATerm(..))));
    }

    #[test]
    fn deadlines_that_overlap_are_found_also_those_of_the_killed() {
        let killed = forged(&[(1, "10 1 elected 4 80"), (1, "30 2 started"), (2, "79 3 elected 5 99")]);
        assert!(matches!(killed.check(), Err(Broken::Overlap(..))));
        let moved = forged(&[(1, "10 1 elected 4 20"), (1, "15 1 deadline 60"), (2, "50 3 elected 5 99")]);
        assert!(matches!(moved.check(), Err(Broken::Overlap(..))));
        // Not with the next one, but with the one after it.
        let long = forged(&[(1, "10 1 elected 4 60"), (1, "11 1 unelected Resigned"), (2, "20 3 elected 5 99")]);
        assert!(long.check().is_ok());
        let long = forged(&[(1, "10 1 elected 4 60"), (2, "61 3 elected 5 99"), (3, "70 4 elected 6 80")]);
        assert!(matches!(long.check(), Err(Broken::Overlap(..))));
    }

    #[test]
    fn a_transfer_before_the_old_leader_stopped_is_found() {
        let timeline = forged(&[(1, "10 1 elected 4 80"), (2, "49 2 elected 5 90"), (1, "50 1 unelected Transferred")]);
        assert!(matches!(timeline.check(), Err(Broken::Overlap(..))));
    }

    #[test]
    fn a_term_that_goes_back_is_found() {
        let timeline = forged(&[(1, "10 1 elected 4 20"), (2, "50 2 elected 3 60")]);
        assert!(matches!(timeline.check(), Err(Broken::TermWentBack(..))));
    }

    #[test]
    fn an_election_that_was_over_before_it_was_heard_of_is_no_leadership_but_has_its_term() {
        let late = forged(&[(1, "50 1 elected 4 20"), (2, "30 2 elected 5 60")]);
        assert!(late.check().is_ok());
        let again = forged(&[(1, "50 1 elected 5 20"), (2, "30 2 elected 5 60")]);
        assert!(matches!(again.check(), Err(Broken::TwoInATerm(..))));
    }

    #[test]
    fn an_office_that_comes_back_or_was_never_held_is_found() {
        for line in ["20 1 deadline 90", "20 1 unelected Resigned"] {
            let timeline = forged(&[(1, "10 1 elected 4 80"), (1, "15 1 unelected Resigned"), (1, line)]);
            assert!(matches!(timeline.check(), Err(Broken::OutOfOrder(_))), "{line}");
        }
        let twice = forged(&[(1, "10 1 elected 4 80"), (1, "90 1 elected 5 99")]);
        assert!(matches!(twice.check(), Err(Broken::OutOfOrder(_))));
    }

    #[test]
    fn a_leader_that_nobody_elected_is_found() {
        let other = forged(&[(1, "10 1 elected 4 80"), (2, "15 2 leader 3 4")]);
        assert!(matches!(other.check(), Err(Broken::NeverElected(_))));
        let unknown = forged(&[(1, "10 1 elected 4 80"), (2, "15 2 leader 1 5")]);
        assert!(matches!(unknown.check(), Err(Broken::NeverElected(_))));
    }

    #[test]
    fn a_death_ends_a_term_where_the_store_learns_of_it_and_nothing_before_it() {
        let learnt =
            forged(&[(1, "10 1 elected 4 80"), (1, "30 1 killed"), (1, "35 2 started"), (2, "31 3 elected 5 99")]);
        assert!(learnt.check().is_ok());
        let too_early = forged(&[(1, "10 1 elected 4 80"), (1, "30 1 killed"), (2, "29 3 elected 5 99")]);
        assert!(matches!(too_early.check(), Err(Broken::Overlap(..))));
    }

    #[test]
    fn a_write_of_an_earlier_leader_is_found_if_it_was_taken_after_the_next_one_was_in_office() {
        let timeline = forged(&[(1, "10 1 elected 4 20"), (2, "50 2 elected 5 60")]);
        let write = |at, token, accepted| Write { at, token, accepted };
        let sound = [write(12, 4, true), write(49, 4, true), write(51, 5, true), write(52, 4, false)];
        assert_eq!(timeline.check_writes(&sound), Ok(()));
        let stale = timeline.check_writes(&[write(51, 4, true)]);
        assert!(matches!(stale, Err(Broken::StaleWrite(..))), "{stale:?}");
    }

    #[test]
    fn a_line_that_means_nothing_is_no_report() {
        for line in ["", "x 1 started", "10 1 elected 4", "10 1 deposed", "10 started"] {
            assert_eq!(Report::parse(1, line), None, "{line}");
        }
    }
}
