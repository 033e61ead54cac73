//! What a store can keep, for `explain` and for those who require it.

use std::time::Duration;

use incumbent_core::{ForgottenBy, Liveness, StoreId};

/// What a store promises. Read from the server where the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promises {
    /// Which store it is.
    pub store: StoreId,
    /// Whether tokens survive what the store itself may suffer.
    pub tokens: TokenStrength,
    /// Whether there is a line.
    pub line: LineKind,
    /// Whether there is an office record. Without one no operator acts on an election:
    /// [`Unsupported`](crate::StoreError::Unsupported).
    pub office_record: bool,
    /// Who removes those that fell silent.
    pub forgotten_by: ForgottenBy,
    /// Whether changes are told, or have to be looked for.
    pub watches: bool,
    /// The smallest TTL that it grants.
    pub smallest_ttl: Duration,
    /// The longest TTL that it grants.
    pub longest_ttl: Duration,
    /// What its granularity takes off every deadline, and adds to the TTL that is asked for.
    pub margin: Duration,
    /// How late it may notice that a TTL has passed.
    pub granularity: Duration,
    /// Whether candidates of another library, which obey no notices, heed the end of an election.
    pub foreign_heed_end: bool,
    /// What else people should know, one sentence each.
    pub caveats: Vec<String>,
}

impl Promises {
    /// The strongest promises; a store lowers what it cannot keep.
    pub fn new(store: StoreId) -> Promises {
        Promises {
            store,
            tokens: TokenStrength::Durable,
            line: LineKind::Fair,
            office_record: true,
            forgotten_by: ForgottenBy::Store,
            watches: true,
            smallest_ttl: Duration::ZERO,
            longest_ttl: Duration::MAX,
            margin: Duration::ZERO,
            granularity: Duration::ZERO,
            foreign_heed_end: false,
            caveats: Vec::new(),
        }
    }

    /// What a session is granted that asks for this TTL.
    pub fn liveness(&self, ttl: Duration) -> Liveness {
        let ttl = ttl.saturating_add(self.margin).max(self.smallest_ttl).min(self.longest_ttl);
        let mut liveness = Liveness::new(ttl);
        liveness.forgotten_by = self.forgotten_by;
        liveness.margin = self.margin;
        liveness
    }
}

/// What tokens survive. Ordered: a stronger one satisfies who requires a weaker one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TokenStrength {
    /// There are none: nothing tells one leader from the next.
    None,
    /// They last as long as the process that keeps them.
    Process,
    /// A crash or a failover of the store may lose some.
    Volatile,
    /// They never go back.
    Durable,
}

/// How candidates wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LineKind {
    /// First in, first out.
    Fair,
    /// There is one record, and the quickest candidate gets it.
    Single,
    /// There is no line: a majority of the members votes.
    Votes,
    /// There is no line: the member of the highest rank leads.
    Rank,
}
