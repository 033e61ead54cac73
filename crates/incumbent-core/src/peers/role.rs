//! What the candidate of a member is shown of its role while it does not lead: the same for bully,
//! ring and consensus.

use super::group::MemberId;
use crate::entry::Token;
use crate::machine::{Event, LossReason};
use crate::tenure::Tenure;

/// What the candidate was last shown. Its member may know more: as long as the work of a term goes
/// on, its candidate is not shown that another leads, for then it could be taken for one that has
/// stopped.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct ShownRole(Option<Event>);

impl ShownRole {
    /// What the candidate has to be shown, if there is one and it is not what it was shown last.
    pub(super) fn change(&mut self, role: Option<Event>) -> Option<Event> {
        if self.0 == role {
            return None;
        }
        self.0.clone_from(&role);
        role
    }
}

/// The role of a candidate that follows this leader, if one is known. `None`: it leads, or its work
/// has not stopped yet. `waits`: the rule that the end of the work is waited for is kept.
pub(super) fn role<H>(
    tenure: &Tenure<H>,
    waits: bool,
    healthy: bool,
    (leader, term): (Option<MemberId>, Option<Token>),
) -> Option<Event> {
    let over = if waits { tenure.is_between_terms() } else { !tenure.in_office() };
    match healthy {
        _ if !over => None,
        true => Some(Event::Follows { leader, term }),
        false => Some(Event::Out(LossReason::Unhealthy)),
    }
}
