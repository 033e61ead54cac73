//! What a member's process says to the demonstration: one line of JSON for each message and each event.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(super) enum Report {
    /// It listens at this port.
    Ready { port: u16 },
    /// It has written this to a connection.
    Sent { at: u64, frame: Frame },
    /// It has received this.
    Received { at: u64, frame: Frame },
    /// Its machine tells its user this.
    News { at: u64, news: News },
    /// It cannot go on.
    Broken { what: String },
}

/// A message between members. Times everywhere are nanoseconds of the host's clock, which all processes share.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Frame {
    pub(super) from: u16,
    pub(super) to: u16,
    pub(super) kind: String,
    /// Of which term, where there are terms.
    pub(super) term: Option<u64>,
    /// What else is worth reading: an answer, a list, a name.
    pub(super) about: String,
}

impl Frame {
    /// What is written on the arrow.
    pub(super) fn label(&self) -> String {
        let term = self.term.map(|term| term.to_string());
        let parts = [Some(self.kind.clone()), Some(self.about.clone()), term];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// What a member's user is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub(super) enum News {
    /// In office, until then. [`u64::MAX`] where nothing bounds it.
    Elected {
        term: Option<u64>,
        deadline: u64,
    },
    Deadline {
        until: u64,
    },
    Unelected {
        why: Why,
    },
    NewLeader {
        leader: u16,
        term: Option<u64>,
    },
    Vacant,
    NotVoting,
    Voting,
}

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Why {
    /// Nobody renewed the lease.
    Deadline,
    /// Another one leads.
    Superseded,
    Other,
}
