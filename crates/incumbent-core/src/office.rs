//! The office record: the election's small versioned record beside the line, changed by
//! compare-and-set only.
//!
//! Its fields are independent, so that a pause and a transfer that race cannot erase each other:
//! each writer changes its own field of the record that it read, and reads again when the record
//! has moved on.

use std::sync::Arc;
use std::time::Duration;

use crate::entry::{Entry, EntryId, Held, Incarnation, Nonce, Token, Version};
use crate::name::MAX_LINE;

/// The longest reason for a pause, in bytes.
pub const MAX_REASON_BYTES: usize = 1024;

/// What stands in the office record, and the version it was read at.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Office {
    /// The version that was read. [`Version::NONE`]: there is no record.
    pub version: Version,
    /// The leader is asked to hand the office on.
    pub handover: Option<Handover>,
    /// Nobody takes office, and nobody stays in it.
    pub paused: Option<Paused>,
    /// The election is over for all who knew it before.
    pub ended: Option<Ended>,
    /// The last leader that an operator removed, so that it can say why it lost.
    pub deposed: Option<Token>,
}

impl Office {
    /// The same, read at this version.
    pub fn with_version(self, version: Version) -> Office {
        Office { version, ..self }
    }

    /// The same, with this handover asked for, or none.
    pub fn with_handover(self, handover: impl Into<Option<Handover>>) -> Office {
        Office { handover: handover.into(), ..self }
    }

    /// The same, paused or not.
    pub fn with_paused(self, paused: impl Into<Option<Paused>>) -> Office {
        Office { paused: paused.into(), ..self }
    }

    /// The same, with this tombstone, or none.
    pub fn with_ended(self, ended: impl Into<Option<Ended>>) -> Office {
        Office { ended: ended.into(), ..self }
    }

    /// The same, with this leader as the last that an operator removed, or none.
    pub fn with_deposed(self, deposed: impl Into<Option<Token>>) -> Office {
        Office { deposed: deposed.into(), ..self }
    }

    /// Whether it says nothing: stores keep no record then.
    pub fn is_blank(&self) -> bool {
        // All fields by name. A new one needs its words in `incumbent-store`'s record, too, where
        // the compiler does not ask for them.
        let Office { version: _, handover, paused, ended, deposed } = self;
        handover.is_none() && paused.is_none() && ended.is_none() && deposed.is_none()
    }

    /// The handover that the leader with this token has to carry out, if there is one.
    pub fn handover_from(&self, token: Token) -> Option<&Handover> {
        self.handover.as_ref().filter(|handover| handover.from == token && handover.refused.is_none())
    }
}

/// A request to hand the office on. Void unless `from` leads now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Handover {
    /// The leader that is asked.
    pub from: Token,
    /// Who is to lead next. `None`: the next in line; the leader goes to the line's end.
    pub heir: Option<Heir>,
    /// Tells this request from every other.
    pub nonce: Nonce,
    /// How long the leader tries, counted from when it first sees the request: hosts share no
    /// clock.
    pub within: Duration,
    /// Set by the leader when it will not: it leads on.
    pub refused: Option<Refusal>,
}

impl Handover {
    /// The leader with this token is asked to hand over within this time: to this heir, or to
    /// the next in line.
    pub fn new(from: Token, heir: impl Into<Option<Heir>>, nonce: Nonce, within: Duration) -> Handover {
        Handover { from, heir: heir.into(), nonce, within, refused: None }
    }
}

/// The candidate that is to lead next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Heir {
    /// Its enlistment: a candidate that left and came back is another one.
    pub incarnation: Incarnation,
    /// Its entry.
    pub entry: EntryId,
    /// Its place in line.
    pub token: Token,
}

impl Heir {
    /// The candidate with this enlistment, entry and place in line.
    pub fn new(incarnation: Incarnation, entry: EntryId, token: Token) -> Heir {
        Heir { incarnation, entry, token }
    }

    /// Whether this is the entry that `held` holds.
    pub fn is(&self, held: &Held) -> bool {
        self.entry == held.entry && self.token == held.token && self.incarnation == held.incarnation
    }

    /// The candidate with this entry. `None`: it is of another library, and takes no handover.
    pub fn of(entry: &Entry) -> Option<Heir> {
        Some(Heir { incarnation: entry.incarnation?, entry: entry.id.clone(), token: entry.token })
    }
}

/// Why a leader refuses to hand over. It leads on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The heir is no longer in line.
    #[error("the heir is no longer in line")]
    HeirGone,
    /// The heir is further back in line than anybody reads.
    #[error("the heir is not among the first {MAX_LINE} in line")]
    TooFar,
    /// A candidate of another library stands between: it will not step aside.
    #[error("a candidate of another library stands between the leader and the heir, and will not step aside")]
    ForeignBetween,
    /// The heir was not next in line and ready within the time given.
    #[error("the heir was not next in line and ready in time")]
    TimedOut,
    /// Another handover is under way.
    #[error("another handover is under way")]
    Busy,
    /// The leader is on its way out of office for another reason.
    #[error("the leader is already leaving office")]
    Leaving,
    /// The heir is the leader itself.
    #[error("the heir already leads")]
    LeadsAlready,
    /// The leader cannot read its line, or may not write what a handover needs.
    #[error("the leader cannot read its line, or may not write what a handover needs")]
    Unable,
    /// Peers: this member is not in office.
    #[error("this member is not in office")]
    NotInOffice,
    /// Peers: the heir is not another member of the group.
    #[error("the heir is not another member of the group")]
    NotAMember,
    /// Peers: the heir has not answered lately.
    #[error("the heir has not answered lately")]
    HeirSilent,
    /// Peers: the heir could not stand now.
    #[error("the heir could not take office: it is unfit to lead, or does not vote yet")]
    HeirUnfit,
    /// Peers: the heir lacks records that the leader has.
    #[error("the heir lacks records that the leader has")]
    HeirBehind,
    /// Peers: bully and ring elections have no heirs.
    #[error("rank decides who leads: a bully or ring election cannot hand over")]
    RankDecides,
}

impl Refusal {
    const ALL: [Refusal; 14] = [
        Refusal::HeirGone,
        Refusal::TooFar,
        Refusal::ForeignBetween,
        Refusal::TimedOut,
        Refusal::Busy,
        Refusal::Leaving,
        Refusal::LeadsAlready,
        Refusal::Unable,
        Refusal::NotInOffice,
        Refusal::NotAMember,
        Refusal::HeirSilent,
        Refusal::HeirUnfit,
        Refusal::HeirBehind,
        Refusal::RankDecides,
    ];

    /// The word for it in a record.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::HeirGone => "heir-gone",
            Refusal::TooFar => "too-far",
            Refusal::ForeignBetween => "foreign-between",
            Refusal::TimedOut => "timed-out",
            Refusal::Busy => "busy",
            Refusal::Leaving => "leaving",
            Refusal::LeadsAlready => "leads-already",
            Refusal::Unable => "unable",
            Refusal::NotInOffice => "not-in-office",
            Refusal::NotAMember => "not-a-member",
            Refusal::HeirSilent => "heir-silent",
            Refusal::HeirUnfit => "heir-unfit",
            Refusal::HeirBehind => "heir-behind",
            Refusal::RankDecides => "rank-decides",
        }
    }

    /// What [`word`](Refusal::word) stands for.
    pub fn from_word(word: &str) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| refusal.word() == word)
    }
}

/// The election is paused.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Paused {
    /// For people.
    pub reason: Arc<str>,
}

impl Paused {
    /// Paused for this reason.
    pub fn new(reason: impl Into<Arc<str>>) -> Paused {
        Paused { reason: reason.into() }
    }
}

/// The election's tombstone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// Tells this end from every other. Those who meet it at first contact come after the end and
    /// start afresh; those who knew the election without it have been ended.
    pub id: Nonce,
    /// How long the tombstone stays, so that everyone who was away meets it: the longest TTL.
    pub keep: Duration,
}

impl Ended {
    /// This end, whose tombstone stays for this long.
    pub fn new(id: Nonce, keep: Duration) -> Ended {
        Ended { id, keep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ElectionName;

    #[test]
    fn an_heir_is_known_by_its_incarnation_too_since_another_store_may_give_the_same_token() {
        let (id, token) = (EntryId::new("6"), Token::new(6).unwrap());
        let heir = Heir { incarnation: Incarnation::from_bits(1), entry: id.clone(), token };
        let held = |bits| {
            let (election, incarnation) = (ElectionName::new("e").unwrap(), Incarnation::from_bits(bits));
            Held { election, entry: id.clone(), token, incarnation }
        };
        assert!(heir.is(&held(1)) && !heir.is(&held(2)));
        let seen = |bits| Entry {
            id: id.clone(),
            token,
            incarnation: Some(Incarnation::from_bits(bits)),
            name: None,
            value: Default::default(),
            ready: None,
            version: Version(1),
            observed: None,
        };
        assert!(Heir::of(&seen(1)) == Some(heir.clone()) && Heir::of(&seen(2)) != Some(heir));
    }
}
