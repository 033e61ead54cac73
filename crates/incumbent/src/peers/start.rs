//! Makes this process a member: which one, where it keeps its votes, what it shares with the
//! others.

use std::sync::Arc;

use bytes::Bytes;
use incumbent_core::ElectionName;
use incumbent_peers::{Node, NodeConfig, TermRules};
use incumbent_store::Clock;

use super::group::{GroupElection, MemberChoice};
use crate::error::{CandidacyError, MemberError, is_taken};

/// Starts the member that one who stands under this name is.
pub(crate) async fn start(
    group_election: &GroupElection,
    election: &ElectionName,
    name: &str,
    (rules, value): (TermRules, Bytes),
    clock: Arc<dyn Clock>,
) -> Result<Node, CandidacyError> {
    let group = &group_election.group;
    let slots = group.slots(name)?;
    let shared = group.config(election, true)?;
    let (ids, may_skip) = match slots {
        MemberChoice::One(id) => (vec![id], false),
        MemberChoice::FirstFree(ids) => (ids, true),
    };
    for id in &ids {
        let mut config = NodeConfig::new(shared.clone(), *id, group.rules);
        config.listen = group.listen.clone();
        config.stands = Some(rules);
        config.value = value.clone();
        config.data = group.data_of(*id, election)?;
        config.clock = clock.clone();
        match Node::start(config).await {
            Ok(node) => return Ok(node),
            Err(error) if may_skip && is_taken(&error) => {
                tracing::debug!(%error, "another process is this member");
            }
            Err(error) => return Err(MemberError::Start(Arc::new(error)).into()),
        }
    }
    Err(MemberError::AllRun { members: ids.len() }.into())
}
