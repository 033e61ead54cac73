//! One office, from the win to the word that its work has stopped: stop, confirm, release.
//!
//! [`Tenure`] knows neither stores nor members. What is won is a *title*: an entry that is first in
//! a line, or the promises of a quorum. The machine around it wins the title and gives it up; the
//! tenure says when, and what the user is told. Whatever it answers is to be carried out at once,
//! before anything else is taken in: the user hears that a term is over before the title is given
//! up.

use std::time::Duration;

use crate::machine::{LossReason, TermNo};
use crate::time::Timestamp;

/// How a term ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Rules {
    /// How long the work may take to stop.
    pub(crate) grace: Duration,
    /// Whether the title is kept until the user has said that the work has stopped, however long
    /// that takes. Otherwise it goes at the hard stop.
    pub(crate) hold_until_stopped: bool,
}

/// An office that can be held once at a time, again and again. `H` is what an heir is: an entry of
/// a line, or a member.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Tenure<H> {
    rules: Rules,
    /// Until when the title cannot be another's, as far as it is proven.
    deadline: Timestamp,
    /// The present term, or the last one.
    term: TermNo,
    state: State<H>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State<H> {
    /// No term, and the work of the last one has stopped.
    Idle,
    /// The fences are being raised. The user has been told nothing.
    Taking,
    /// In office.
    Serving,
    /// In office, but the work is to stop.
    Draining { why: LossReason, hard_stop: Timestamp, heir: Option<H> },
    /// Over for the user. The title is kept until the work has stopped.
    Holding { why: LossReason, heir: Option<H> },
    /// Over, and the title is given up or gone; the user has not said yet that the work has
    /// stopped.
    Unstopped,
}

/// What follows from an input.
#[must_use]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step<H> {
    /// Ask the user to stop the work.
    Stopping { why: LossReason, hard_stop: Timestamp },
    /// Tell the user that the term is over, then do this with the title.
    Unelected(LossReason, Then<H>),
    /// Give up a title that the user does not know of, or no longer leads under.
    GiveUp { why: LossReason, heir: Option<H> },
}

/// What becomes of a title when its term is over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Then<H> {
    /// It is kept until the work has stopped.
    Kept,
    /// It is to be given up, to this heir if there is one.
    GivenUp(Option<H>),
    /// It is gone already.
    Gone,
}

/// There is not enough time left for a term: the title has to be proven anew first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLate;

impl<H> Tenure<H> {
    pub(crate) fn new(rules: Rules) -> Tenure<H> {
        Tenure { rules, deadline: Timestamp::ZERO, term: TermNo(0), state: State::Idle }
    }

    /// The title is won: the fences are to be raised. [`Tenure::take_office`] follows, or
    /// [`Tenure::step_back`].
    pub(crate) fn begin(&mut self, now: Timestamp) -> Result<(), TooLate> {
        if !self.has_time(now) {
            return Err(TooLate);
        }
        self.state = State::Taking;
        Ok(())
    }

    /// Every fence is raised: in office, if there is still time for a term.
    pub(crate) fn take_office(&mut self, now: Timestamp) -> Result<(), TooLate> {
        if !self.has_time(now) {
            self.step_back();
            return Err(TooLate);
        }
        self.term.0 += 1;
        self.state = State::Serving;
        Ok(())
    }

    /// The fences could not be raised in time. The title is the embedding machine's to look at
    /// again.
    pub(crate) fn step_back(&mut self) {
        if self.is_taking() {
            self.state = State::Idle;
        }
    }

    /// Lets time pass. It comes before every other input, so that a late answer never meets a term
    /// that should be over.
    pub(crate) fn on_time(&mut self, now: Timestamp) -> Option<Step<H>> {
        match &self.state {
            State::Serving | State::Draining { .. } if now >= self.deadline => self.end(LossReason::LocalDeadline),
            State::Serving if !self.has_time(now) => self.must_stop(now, LossReason::LocalDeadline, None),
            State::Draining { why, hard_stop, .. } if now >= *hard_stop => {
                let why = *why;
                self.end(why)
            }
            _ => None,
        }
    }

    /// Until when the title is proven now, which may be earlier than before. Says whether the user
    /// has to be told.
    pub(crate) fn prove(&mut self, deadline: Timestamp) -> bool {
        self.deadline = deadline;
        self.in_office()
    }

    /// Asks the user to stop the work. The term goes on until the user says so, or until the hard
    /// stop.
    pub(crate) fn must_stop(&mut self, now: Timestamp, why: LossReason, heir: Option<H>) -> Option<Step<H>> {
        match self.state {
            State::Taking => {
                self.state = State::Idle;
                Some(Step::GiveUp { why, heir })
            }
            State::Serving => {
                let hard_stop = self.deadline.min(now + self.rules.grace);
                self.state = State::Draining { why, hard_stop, heir };
                Some(Step::Stopping { why, hard_stop })
            }
            _ => None,
        }
    }

    /// The work has stopped, says the user.
    pub(crate) fn stopped(&mut self) -> Option<Step<H>> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Serving => Some(Step::Unelected(LossReason::Resigned, Then::GivenUp(None))),
            State::Draining { why, heir, .. } => Some(Step::Unelected(why, Then::GivenUp(heir))),
            State::Holding { why, heir } => Some(Step::GiveUp { why, heir }),
            State::Taking => {
                self.state = State::Taking;
                None
            }
            State::Idle | State::Unstopped => None,
        }
    }

    /// The work has stopped, and the user hands the office to an heir that can take it.
    pub(crate) fn cede(&mut self, heir: H) -> Option<Step<H>> {
        if !self.serves() {
            return None;
        }
        self.state = State::Idle;
        Some(Step::Unelected(LossReason::Transferred, Then::GivenUp(Some(heir))))
    }

    /// Ends the term at once, whether or not the work has stopped.
    pub(crate) fn end(&mut self, why: LossReason) -> Option<Step<H>> {
        let heir = match std::mem::replace(&mut self.state, State::Idle) {
            State::Serving => None,
            State::Draining { heir, .. } => heir,
            other => {
                self.state = other;
                return None;
            }
        };
        if self.rules.hold_until_stopped {
            self.state = State::Holding { why, heir };
            return Some(Step::Unelected(why, Then::Kept));
        }
        self.state = State::Unstopped;
        Some(Step::Unelected(why, Then::GivenUp(heir)))
    }

    /// Somebody saw the clock pass the deadline of this term: whatever was proven since does not
    /// revive it.
    pub(crate) fn lapsed(&mut self, term: TermNo) -> Option<Step<H>> {
        if term == self.term { self.end(LossReason::LocalDeadline) } else { None }
    }

    /// The title is gone: the entry or the session is no more, or a newer term is known.
    pub(crate) fn title_gone(&mut self, why: LossReason) -> Option<Step<H>> {
        match self.state {
            State::Serving | State::Draining { .. } => {
                self.state = State::Unstopped;
                Some(Step::Unelected(why, Then::Gone))
            }
            State::Holding { .. } => {
                self.state = State::Unstopped;
                None
            }
            State::Taking => {
                self.state = State::Idle;
                None
            }
            State::Idle | State::Unstopped => None,
        }
    }

    pub(crate) fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The present term, or the last one.
    pub(crate) fn term(&self) -> TermNo {
        self.term
    }

    /// Another candidate is there, which wants this.
    pub(crate) fn set_hold(&mut self, hold_until_stopped: bool) {
        self.rules.hold_until_stopped = hold_until_stopped;
    }

    /// Work has so long to stop, with the TTL that the store has granted.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.rules.grace = grace;
    }

    /// Whether a term that began now would not have to stop at once.
    pub(crate) fn has_time(&self, now: Timestamp) -> bool {
        now < self.deadline - self.rules.grace
    }

    /// Whether the fences are being raised.
    pub(crate) fn is_taking(&self) -> bool {
        matches!(self.state, State::Taking)
    }

    /// Whether a term is under way, and its work is not to stop.
    pub(crate) fn serves(&self) -> bool {
        matches!(self.state, State::Serving)
    }

    /// Whether a term is under way.
    pub(crate) fn in_office(&self) -> bool {
        matches!(self.state, State::Serving | State::Draining { .. })
    }

    /// Whether the term is over for the user, and the title kept until the work has stopped.
    pub(crate) fn is_holding(&self) -> bool {
        matches!(self.state, State::Holding { .. })
    }

    /// Whether there is a title: won, and neither given up nor gone.
    pub(crate) fn has_title(&self) -> bool {
        !matches!(self.state, State::Idle | State::Unstopped)
    }

    /// Whether another term may begin: nothing of the last one is left, its work included.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether no term is under way, and the work of the last one has stopped.
    pub(crate) fn is_between_terms(&self) -> bool {
        matches!(self.state, State::Idle | State::Taking)
    }

    /// Whether a title is lost or given up, and the user has not said yet that the work has
    /// stopped.
    pub(crate) fn is_unstopped(&self) -> bool {
        matches!(self.state, State::Unstopped)
    }

    /// When [`Tenure::on_time`] has something to say.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        match &self.state {
            State::Serving => Some(self.deadline - self.rules.grace),
            State::Draining { hard_stop, .. } => Some((*hard_stop).min(self.deadline)),
            State::Idle | State::Taking | State::Holding { .. } | State::Unstopped => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn proven(hold_until_stopped: bool) -> Tenure<u8> {
        let mut tenure = Tenure::new(Rules { grace: GRACE, hold_until_stopped });
        assert!(!tenure.prove(at(10)), "nobody is in office");
        tenure
    }

    fn serving(hold_until_stopped: bool) -> Tenure<u8> {
        let mut tenure = proven(hold_until_stopped);
        tenure.begin(at(0)).unwrap();
        tenure.take_office(at(1)).unwrap();
        tenure
    }

    fn over(why: LossReason, heir: Option<u8>) -> Option<Step<u8>> {
        Some(Step::Unelected(why, Then::GivenUp(heir)))
    }

    #[test]
    fn the_work_is_asked_to_stop_a_grace_before_the_deadline_and_the_term_ends_at_the_hard_stop() {
        let mut tenure = serving(false);
        assert_eq!(tenure.next_timeout(), Some(at(8)));
        assert_eq!(tenure.on_time(at(7)), None);
        let stopping = Step::Stopping { why: LossReason::LocalDeadline, hard_stop: at(10) };
        assert_eq!(tenure.on_time(at(8)), Some(stopping));
        assert!(tenure.in_office() && !tenure.serves());
        assert_eq!(tenure.on_time(at(10)), over(LossReason::LocalDeadline, None));
    }

    #[test]
    fn a_drain_ends_with_the_word_of_the_user_or_at_its_hard_stop_whichever_comes_first() {
        let mut told = serving(false);
        let stopping = Step::Stopping { why: LossReason::Transferred, hard_stop: at(5) };
        assert_eq!(told.must_stop(at(3), LossReason::Transferred, Some(7)), Some(stopping));
        assert_eq!(told.must_stop(at(4), LossReason::Paused, None), None, "it is asked once");
        assert_eq!(told.stopped(), over(LossReason::Transferred, Some(7)));
        assert!(told.is_settled());
        let mut silent = serving(false);
        let _ = silent.must_stop(at(3), LossReason::Transferred, Some(7));
        assert_eq!(silent.next_timeout(), Some(at(5)));
        assert_eq!(silent.on_time(at(5)), over(LossReason::Transferred, Some(7)));
        assert!(silent.is_unstopped());
    }

    #[test]
    fn a_shorter_proof_ends_a_drain_earlier() {
        let mut tenure = serving(false);
        let _ = tenure.must_stop(at(3), LossReason::Transferred, Some(7));
        assert!(tenure.prove(at(4)));
        assert_eq!(tenure.next_timeout(), Some(at(4)));
        assert_eq!(tenure.on_time(at(4)), over(LossReason::LocalDeadline, Some(7)));
    }

    #[test]
    fn a_later_proof_moves_the_end_of_a_term_but_not_of_a_drain() {
        let mut tenure = serving(false);
        assert!(tenure.prove(at(20)));
        assert_eq!(tenure.on_time(at(10)), None);
        let _ = tenure.must_stop(at(17), LossReason::Paused, None);
        assert!(tenure.prove(at(30)));
        assert_eq!(tenure.on_time(at(19)), over(LossReason::Paused, None));
    }

    #[test]
    fn a_title_that_is_held_is_given_up_only_when_the_work_has_stopped() {
        let mut tenure = serving(true);
        let _ = tenure.must_stop(at(3), LossReason::Resigned, Some(7));
        assert_eq!(tenure.on_time(at(5)), Some(Step::Unelected(LossReason::Resigned, Then::Kept)));
        assert!(!tenure.in_office() && !tenure.is_settled() && !tenure.is_unstopped());
        assert_eq!((tenure.next_timeout(), tenure.on_time(at(99))), (None, None), "however long that takes");
        assert_eq!(tenure.stopped(), Some(Step::GiveUp { why: LossReason::Resigned, heir: Some(7) }));
        assert!(tenure.is_settled());
    }

    #[test]
    fn fences_that_are_late_make_no_term() {
        let mut tenure = proven(false);
        tenure.begin(at(0)).unwrap();
        assert_eq!(tenure.take_office(at(8)), Err(TooLate));
        assert!(tenure.is_settled());
        assert_eq!(tenure.begin(at(8)), Err(TooLate));
    }

    #[test]
    fn who_has_been_told_nothing_is_not_told_that_it_is_over() {
        let mut taking = proven(true);
        taking.begin(at(0)).unwrap();
        assert_eq!(taking.stopped(), None, "it speaks of an earlier term");
        let give_up = Step::GiveUp { why: LossReason::Unhealthy, heir: None };
        assert_eq!(taking.must_stop(at(1), LossReason::Unhealthy, None), Some(give_up));
        taking.begin(at(1)).unwrap();
        assert_eq!(taking.title_gone(LossReason::Expired), None);
        assert!(taking.is_settled());
    }

    #[test]
    fn what_was_lost_bars_the_next_term_until_its_work_has_stopped() {
        for hold in [false, true] {
            let mut tenure = serving(hold);
            let lost = Some(Step::Unelected(LossReason::Expired, Then::Gone));
            assert_eq!(tenure.title_gone(LossReason::Expired), lost);
            assert_eq!(tenure.title_gone(LossReason::Expired), None);
            assert!(tenure.is_unstopped() && !tenure.is_settled());
            assert_eq!(tenure.stopped(), None, "there is nothing left to give up");
            assert!(tenure.is_settled());
        }
    }

    #[test]
    fn a_term_that_somebody_saw_end_is_over_and_no_other_one_is() {
        let mut tenure = serving(false);
        assert_eq!(tenure.lapsed(TermNo(0)), None);
        assert!(tenure.prove(at(20)), "a renewal came in between");
        assert_eq!(tenure.lapsed(TermNo(1)), over(LossReason::LocalDeadline, None));
        assert_eq!(tenure.lapsed(TermNo(1)), None);
    }

    #[test]
    fn an_office_that_is_ceded_has_stopped_already() {
        let mut tenure = serving(true);
        assert_eq!(tenure.cede(7), over(LossReason::Transferred, Some(7)));
        assert!(tenure.is_settled());
        assert_eq!(tenure.cede(7), None);
    }
}
