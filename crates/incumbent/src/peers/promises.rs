//! What a group of peers can keep, in the words that stores use, and in sentences.

use incumbent_core::{ForgottenBy, StoreId};
use incumbent_peers::{Algorithm, Rules};
use incumbent_store::{LineKind, Promises, TokenStrength};

use super::group::Group;

pub(super) fn promises(group: &Group, identity: Option<StoreId>) -> Promises {
    let algorithm = group.algorithm();
    let mut promises = Promises::new(identity.unwrap_or_else(|| StoreId::new(format!("{algorithm}/unknown"))));
    promises.forgotten_by = ForgottenBy::Rivals;
    promises.watches = false;
    (promises.tokens, promises.line) = match algorithm {
        Algorithm::Consensus => (TokenStrength::Durable, LineKind::Votes),
        Algorithm::Bully | Algorithm::Ring => (TokenStrength::None, LineKind::Rank),
    };
    promises.caveats = caveats(group);
    promises
}

fn caveats(group: &Group) -> Vec<String> {
    let mut caveats = vec![
        "a store is the better choice where there is one: peers are for small groups that must not depend on anything else"
            .to_owned(),
        "members are long-lived: a group whose members end with their commands has nobody left to elect anyone; `run --forever`, `campaign` \
         or a service is the home of a member"
            .to_owned(),
    ];
    let members = group.members().len();
    match group.rules() {
        Rules::Consensus(_) => {
            caveats.push(match members - group.majority() {
                0 => format!("all {members} of {members} members are needed: none may fail"),
                spare => format!("{} of {members} members are a majority: {spare} may fail", group.majority()),
            });
            caveats.push(
                "the first election of a group waits until all members have been up at the same time, once, or until an operator \
                 says that it is to begin without some"
                    .into(),
            );
            caveats.push(
                "a member's votes have to outlive it: one that lost its directory votes again only after ALL others have told it \
                 the highest term (a majority, if the others lost theirs, too), or by an operator's word; a group that lost all of \
                 them starts anew, with another identity"
                    .into(),
            );
            caveats.push("every clock has to keep within the drift: what remains is for the token".into());
        }
        Rules::Bully(rules) | Rules::Ring(rules) => {
            let algorithm = group.algorithm();
            caveats.push(format!(
                "best effort: a {algorithm} election has no token, and nothing refuses the late writes of a former leader"
            ));
            caveats.push(if rules.majority {
                "the majority rule narrows the time with two leaders to about the timeout; it does not exclude it"
                    .to_owned()
            } else {
                "when the network falls into two halves, each has a leader, for as long as that lasts".to_owned()
            });
            caveats.push(if rules.take_over {
                "a member of higher rank that comes back takes the office from a healthy leader, when that one's work has \
                 stopped: takeover=no keeps it"
                    .to_owned()
            } else {
                "a member of higher rank that comes back leaves a healthy leader in office".to_owned()
            });
        }
    }
    caveats
}
