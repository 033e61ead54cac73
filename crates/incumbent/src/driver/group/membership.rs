//! What this process is in its group, and what follows for its candidate from what users want and
//! from what becomes of the member. It knows neither the member nor those who wait.

use incumbent_core::{CandidacyId, Command};

use crate::error::CandidacyError;

/// This process in its group.
#[derive(Debug)]
pub(super) struct Membership<Member> {
    stage: Stage<Member>,
    /// The candidate of this client. There is one at a time.
    candidate: Option<CandidacyId>,
    closing: bool,
}

#[derive(Debug)]
enum Stage<Member> {
    /// Nobody has stood yet, or the member has failed: the next candidate starts it.
    No,
    /// With what its candidate's user wants of it meanwhile.
    Starting(Vec<Command>),
    Yes(Member),
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The member is told what its candidate's user wants.
    Command(Command),
    /// The member leaves its group, in order.
    Leave,
    /// What is left of the member is torn down.
    TearDown,
    /// The candidate is told that it cannot stand, for good.
    Fail,
    /// The candidate is told that nothing of it is left: a group keeps nothing of one who has left.
    Left(CandidacyId),
    /// The client is told that it is closed.
    Closed,
}

impl<Member> Membership<Member> {
    pub(super) fn new() -> Membership<Member> {
        Membership { stage: Stage::No, candidate: None, closing: false }
    }

    pub(super) fn member(&self) -> Option<&Member> {
        if let Stage::Yes(member) = &self.stage { Some(member) } else { None }
    }

    pub(super) fn member_mut(&mut self) -> Option<&mut Member> {
        if let Stage::Yes(member) = &mut self.stage { Some(member) } else { None }
    }

    /// Whether somebody may stand.
    pub(super) fn check(&self) -> Result<(), CandidacyError> {
        match (self.closing, self.candidate) {
            (true, _) => Err(CandidacyError::Closed),
            (false, Some(_)) => Err(CandidacyError::AlreadyInLine),
            (false, None) => Ok(()),
        }
    }

    /// Somebody stands. The member is to be started unless it was told.
    pub(super) fn stand(&mut self, id: CandidacyId) {
        self.candidate = Some(id);
        if let Stage::No = self.stage {
            self.stage = Stage::Starting(Vec::new());
        }
    }

    /// What its user wants of a member that has not started waits for it.
    #[must_use]
    pub(super) fn command(&mut self, id: CandidacyId, command: Command) -> Option<Step> {
        match &mut self.stage {
            _ if self.candidate != Some(id) => None,
            Stage::Starting(waiting) => {
                waiting.push(command);
                None
            }
            Stage::Yes(_) => Some(Step::Command(command)),
            Stage::No => None,
        }
    }

    /// The member has started.
    #[must_use]
    pub(super) fn started(&mut self, member: Member) -> Vec<Step> {
        let waiting = match std::mem::replace(&mut self.stage, Stage::Yes(member)) {
            Stage::Starting(waiting) => waiting,
            Stage::No | Stage::Yes(_) => Vec::new(),
        };
        waiting.into_iter().map(Step::Command).chain(self.closing.then_some(Step::Leave)).collect()
    }

    /// The member cannot be started.
    #[must_use]
    pub(super) fn not_started(&mut self) -> Vec<Step> {
        self.stage = Stage::No;
        let failed = self.candidate.is_some().then_some(Step::Fail);
        failed.into_iter().chain(self.closing.then_some(Step::Closed)).collect()
    }

    /// The client is being closed. A member that is starting leaves once it has.
    #[must_use]
    pub(super) fn close(&mut self) -> Option<Step> {
        if std::mem::replace(&mut self.closing, true) {
            return None;
        }
        match self.stage {
            Stage::No => Some(Step::Closed),
            Stage::Starting(_) => None,
            Stage::Yes(_) => Some(Step::Leave),
        }
    }

    /// The member is no more. If that was not our doing, the next candidate starts it anew.
    #[must_use]
    pub(super) fn ended(&mut self) -> Option<(Member, Option<Step>)> {
        let Stage::Yes(member) = std::mem::replace(&mut self.stage, Stage::No) else { return None };
        let step = if self.closing { Some(Step::TearDown) } else { self.candidate.map(|_| Step::Fail) };
        Some((member, step))
    }

    /// The member is torn down.
    #[must_use]
    pub(super) fn torn_down(&self) -> Vec<Step> {
        self.candidate.map(Step::Left).into_iter().chain([Step::Closed]).collect()
    }

    /// A candidacy that is over makes room for the next one.
    pub(super) fn over(&mut self) {
        self.candidate = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: CandidacyId = CandidacyId(1);
    const SECOND: CandidacyId = CandidacyId(2);

    /// What happens to a client, and in which order.
    #[derive(Clone, Copy)]
    enum What {
        Stand,
        /// The user leaves the line.
        Leave,
        Close,
        Start,
        NotStart,
        /// The member is no more.
        End,
        TornDown,
    }
    use What::{Close, End, Leave, NotStart, Stand, Start, TornDown};

    fn leave() -> Step {
        Step::Command(Command::Leave)
    }

    /// What is done after each of these.
    fn story<const COUNT: usize>(membership: &mut Membership<()>, whats: [What; COUNT]) -> [Vec<Step>; COUNT] {
        whats.map(|what| match what {
            Stand => {
                assert!(membership.check().is_ok(), "somebody may stand");
                membership.stand(FIRST);
                Vec::new()
            }
            Leave => membership.command(FIRST, Command::Leave).into_iter().collect(),
            Close => membership.close().into_iter().collect(),
            Start => membership.started(()),
            NotStart => membership.not_started(),
            End => membership.ended().and_then(|((), step)| step).into_iter().collect(),
            TornDown => membership.torn_down(),
        })
    }

    fn of<const COUNT: usize>(whats: [What; COUNT]) -> [Vec<Step>; COUNT] {
        story(&mut Membership::new(), whats)
    }

    #[test]
    fn who_leaves_a_member_that_runs_leaves_at_once() {
        let steps = of([Stand, Start, Leave, Close, End, TornDown]);
        let last = vec![Step::Left(FIRST), Step::Closed];
        assert_eq!(steps, [vec![], vec![], vec![leave()], vec![Step::Leave], vec![Step::TearDown], last]);
    }

    #[test]
    fn who_leaves_after_the_client_was_closed_is_told_to_the_member_as_well() {
        let steps = of([Stand, Start, Close, Leave]);
        assert_eq!(steps, [vec![], vec![], vec![Step::Leave], vec![leave()]]);
    }

    #[test]
    fn who_leaves_while_the_member_starts_has_left_when_it_has() {
        assert_eq!(of([Stand, Leave, Start, Close]), [vec![], vec![], vec![leave()], vec![Step::Leave]]);
    }

    #[test]
    fn who_leaves_and_closes_while_the_member_starts_is_heard_in_that_order() {
        assert_eq!(of([Stand, Leave, Close, Start]), [vec![], vec![], vec![], vec![leave(), Step::Leave]]);
    }

    #[test]
    fn a_client_that_is_closed_while_the_member_starts_leaves_when_it_has() {
        assert_eq!(of([Stand, Close, Start, Leave]), [vec![], vec![], vec![Step::Leave], vec![leave()]]);
        assert_eq!(of([Stand, Close, Leave, Start]), [vec![], vec![], vec![], vec![leave(), Step::Leave]]);
    }

    #[test]
    fn a_client_that_never_had_a_member_is_closed_at_once_and_nobody_stands_any_more() {
        let mut membership = Membership::new();
        assert_eq!(story(&mut membership, [Close, Close]), [vec![Step::Closed], vec![]]);
        assert!(matches!(membership.check(), Err(CandidacyError::Closed)));
    }

    #[test]
    fn a_member_that_cannot_start_fails_its_candidate_and_closes_a_client_that_waits_for_it() {
        assert_eq!(of([Stand, NotStart]), [vec![], vec![Step::Fail]]);
        assert_eq!(of([Stand, Leave, NotStart]), [vec![], vec![], vec![Step::Fail]]);
        assert_eq!(of([Stand, Close, NotStart]), [vec![], vec![], vec![Step::Fail, Step::Closed]]);
    }

    #[test]
    fn what_was_wanted_of_a_member_that_could_not_start_is_not_wanted_of_the_next() {
        let mut membership = Membership::new();
        story(&mut membership, [Stand, Leave, NotStart]);
        membership.over();
        assert_eq!(story(&mut membership, [Stand, Start]), [vec![], vec![]]);
    }

    #[test]
    fn a_member_that_ends_by_itself_fails_its_candidate_and_the_next_one_starts_it_anew() {
        let mut membership = Membership::new();
        assert_eq!(story(&mut membership, [Stand, Start, End]), [vec![], vec![], vec![Step::Fail]]);
        assert!(matches!(membership.check(), Err(CandidacyError::AlreadyInLine)));
        membership.over();
        assert_eq!(story(&mut membership, [Stand, Leave, Start]), [vec![], vec![], vec![leave()]]);
    }

    #[test]
    fn a_member_without_a_candidate_ends_and_leaves_in_silence() {
        let mut membership = Membership::new();
        story(&mut membership, [Stand, Start]);
        membership.over();
        assert_eq!(story(&mut membership, [End]), [vec![]]);
        assert_eq!(story(&mut membership, [Close]), [vec![Step::Closed]]);
        assert_eq!(membership.torn_down(), [Step::Closed]);
    }

    #[test]
    fn a_candidate_that_is_over_wants_nothing_of_the_next_ones_member() {
        let mut membership = Membership::new();
        story(&mut membership, [Stand, Start]);
        membership.over();
        membership.stand(SECOND);
        assert_eq!(membership.command(FIRST, Command::Leave), None);
        assert_eq!(membership.command(SECOND, Command::Leave), Some(leave()));
    }
}
