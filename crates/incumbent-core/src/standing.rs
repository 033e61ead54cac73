//! What a store answers: where a candidate stands, who is in line, and whether its session lives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::entry::{Entry, EntryId, Held, Version};
use crate::office::Office;

/// Where in the store's history an answer was made. A watch from here misses nothing that came
/// later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Cursor(pub u64);

/// Which store this is: a restored or replaced store has another identity.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(Arc<str>);

impl StoreId {
    /// Wraps the store's own identity.
    pub fn new(id: impl Into<Arc<str>>) -> StoreId {
        StoreId(id.into())
    }

    /// The identity, for people and for comparing.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a candidate stands, and what the office record says, seen in one step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// Its place.
    pub place: Place,
    /// Which version of our entry's [`Publication`](crate::Publication) is there: what the next
    /// `Session::publish` replaces. Renewals do not change it.
    pub published: Version,
    /// The office record at the same moment.
    pub office: Office,
    /// Where to watch from.
    pub cursor: Cursor,
}

impl Standing {
    /// This place, as it was when the office record said this. What was published last is for the
    /// store to fill in.
    pub fn new(place: Place, office: Office, cursor: Cursor) -> Standing {
        Standing { place, published: Version::NONE, office, cursor }
    }
}

/// A candidate's place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::large_enum_variant, reason = "one lives as long as its answer is taken in, and most are this variant")]
pub enum Place {
    /// Our entry is there, it is ours, and nothing older is.
    Leading(Held),
    /// Somebody older is there. Made by [`Place::behind`].
    #[non_exhaustive]
    Behind {
        /// Our entry; `None` in stores without a line, where one has to try again.
        held: Option<Held>,
        /// The newest of those older than us.
        ahead: Entry,
        /// When trying again makes sense, in stores that cannot tell us.
        look_again: Option<Duration>,
    },
    /// Our entry is not there, or is no longer ours.
    Gone,
}

impl Place {
    /// Behind `ahead`: see [`Place::Behind`].
    pub fn behind(held: Option<Held>, ahead: Entry, look_again: Option<Duration>) -> Place {
        Place::Behind { held, ahead, look_again }
    }
}

/// Those in line, oldest first.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Line {
    /// The oldest entries, at most as many as were asked for.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub more: bool,
    /// The office record at the same moment.
    pub office: Office,
    /// Where to watch from.
    pub cursor: Cursor,
    /// For how long yet nobody takes office, whoever is first: another server has taken over, and
    /// the leader of the one before may believe in its office for that long. `None` also where the
    /// store cannot say.
    pub quiet: Option<Duration>,
    /// Why nothing is decided now, though the store answers: what keeps it from taking writes, for
    /// people. `None` also where it cannot say.
    pub stalled: Option<Arc<str>>,
    /// Where a majority of servers keeps the store, and they know nothing of each other: how many
    /// have answered. For people; nobody decides anything by it.
    pub servers: Option<Servers>,
}

/// The servers of a store that a majority of them keeps, as one look has found them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Servers {
    /// How many there are.
    pub count: usize,
    /// How many of them it takes.
    pub needed: usize,
    /// Those that do not answer or do not count, by their addresses, with why.
    pub missing: Vec<(Arc<str>, Arc<str>)>,
}

impl Servers {
    /// So many, of which these do not count.
    pub fn new(count: usize, needed: usize, missing: Vec<(Arc<str>, Arc<str>)>) -> Servers {
        Servers { count, needed, missing }
    }

    /// How many have answered, and count.
    pub fn answering(&self) -> usize {
        self.count.saturating_sub(self.missing.len())
    }

    /// How many more may be lost before there are no elections.
    pub fn spare(&self) -> usize {
        self.answering().saturating_sub(self.needed)
    }
}

impl Line {
    /// These entries, as they stood when the office record said this; `more` came after them.
    pub fn new(entries: Vec<Entry>, more: bool, office: Office, cursor: Cursor) -> Line {
        Line { entries, more, office, cursor, quiet: None, stalled: None, servers: None }
    }

    /// What one who waits for another leader has seen.
    pub fn seen(&self) -> Seen {
        let head = self.entries.first().map_or(Head::Nobody, |head| Head::Is(head.id.clone()));
        Seen { head, ..Seen::new(self.office.version) }
    }

    /// Those behind this entry, if it is first.
    pub(crate) fn behind(&self, held: &Held) -> Option<&[Entry]> {
        self.entries.split_first().filter(|(first, _)| first.is(held)).map(|(_, behind)| behind)
    }
}

/// What one who has an entry waits for: that the entry goes or is no longer its own, that the
/// office record becomes another, and what happens to these two others. Renewals of others do not
/// count.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Watched {
    /// Our entry.
    pub held: Held,
    /// The version of the office record that was read.
    pub office: Version,
    /// The entry that we stand behind: it goes.
    pub ahead: Option<EntryId>,
    /// The entry of the one we hand over to: it goes, or says something else.
    pub heir: Option<EntryId>,
}

impl Watched {
    /// Our own entry, and the office record that had this version.
    pub fn new(held: Held, office: Version) -> Watched {
        Watched { held, office, ahead: None, heir: None }
    }
}

/// What one without an entry has seen of an election, and waits to see changed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Seen {
    /// The version of the office record.
    pub office: Version,
    /// Who was first in line.
    pub head: Head,
    /// The last one in line, for those who wait for the line to become empty: it goes.
    pub last: Option<EntryId>,
}

/// Who was first in line, for those who wait for another.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Head {
    /// It does not matter.
    Ignored,
    /// Nobody was there.
    Nobody,
    /// This entry: another is first, or this one says something else.
    Is(EntryId),
}

impl Seen {
    /// The office record had this version; who is first does not matter.
    pub fn new(office: Version) -> Seen {
        Seen { office, head: Head::Ignored, last: None }
    }
}

/// What keeps a session alive, and who forgets it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Liveness {
    /// The TTL that the store granted, which may be more than was asked for, or less.
    pub ttl: Duration,
    /// Who removes our entries when we fall silent.
    pub forgotten_by: ForgottenBy,
    /// Which renewal an answer proves.
    pub proof: Proof,
    /// What the store's own granularity takes from the TTL (ZooKeeper: a tick), on top of the
    /// setting.
    pub margin: Duration,
    /// How long one who gave the office back stays out, so that others get it. Zero where there is
    /// a line, which has an end to go to.
    pub rest: Duration,
}

impl Liveness {
    /// A session that the store forgets after this TTL, kept alive by every answered renewal.
    pub fn new(ttl: Duration) -> Liveness {
        Liveness {
            ttl,
            forgotten_by: ForgottenBy::Store,
            proof: Proof::Answered,
            margin: Duration::ZERO,
            rest: Duration::ZERO,
        }
    }
}

/// Who removes the entries of a session that fell silent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ForgottenBy {
    /// The store does, once the TTL has passed.
    Store,
    /// Rivals do, once the session has been silent for the TTL: see
    /// [`Entry::observed`](crate::Entry::observed).
    Rivals,
}

/// Which renewal counts as proof of life when one is answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    /// The answered one.
    Answered,
    /// An earlier one: the answered one only proves that the channel carried it (ZooKeeper).
    Earlier {
        /// How long the earlier one has to have been answered when the newer one is sent.
        apart: Duration,
        /// Whether the opening proves itself. It does not where the session is older than its
        /// opening.
        opening_proves: bool,
    },
}

/// A proof of life.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Renewal {
    /// The TTL that the store granted with this renewal.
    pub ttl: Duration,
    /// Of the entries that were named, those that are no longer there or no longer ours.
    pub gone: Vec<Held>,
    /// Of the entries that were named, those that this renewal did not prove, in stores where each
    /// has its own lease.
    pub unproven: Vec<Held>,
    /// Entries of this session that were not named: left by a write that arrived late. They are to
    /// be withdrawn.
    pub stray: Vec<Held>,
    /// Of the entries that were named, those that were found where they stood last, in stores where
    /// a renewal sees that for next to nothing. Their candidates need not look for themselves.
    pub behind: Vec<StillBehind>,
}

/// An entry that stands where it stood: what is ahead of it is there, and the office record is the
/// same. It changes nobody's role; only [`Standing`] does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct StillBehind {
    /// The entry.
    pub held: Held,
    /// The newest of those older than it, as it was read now.
    pub ahead: Entry,
    /// The version of the office record.
    pub office: Version,
}

impl Renewal {
    /// The session lives, with this TTL, and nothing is amiss with its entries.
    pub fn alive(ttl: Duration) -> Renewal {
        Renewal { ttl, gone: Vec::new(), unproven: Vec::new(), stray: Vec::new(), behind: Vec::new() }
    }
}

impl StillBehind {
    /// The entry stands behind this one, under the office record with this version.
    pub fn new(held: Held, ahead: Entry, office: Version) -> StillBehind {
        StillBehind { held, ahead, office }
    }
}

/// How a compare-and-set went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cas {
    /// It is done, or was done before.
    Done,
    /// What it was guarded by is no longer so; nothing was changed.
    Refused,
}

/// Why a call failed, as far as the machines have to know. The details stay with the caller.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    /// The store cannot be reached or cannot answer: nothing was changed. Try again.
    Unavailable,
    /// Nobody knows whether it happened. Settled by repeating it.
    OutcomeUnknown,
    /// The store has forgotten the session, and with it its entries.
    SessionGone,
    /// This session is in this line already, as another incarnation.
    AlreadyInLine(Held),
    /// Trying again will not help.
    Permanent,
}
