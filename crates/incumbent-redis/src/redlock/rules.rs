//! The rules of the rounds, each of which a test leaves out to see what it is for.

/// A rule that holds, unless a test leaves it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// More than half of the servers have to agree.
    Majority,
    /// One server counts once, however many addresses lead to it.
    ServerCountsOnce,
    /// A lock counts only if its time has not passed when the second round is over.
    ValidityAfterSecondRound,
    /// A server's clock may be faster than ours.
    Drift,
    /// What was taken is given back if it was not enough.
    ReleaseAfterFailure,
    /// A renewal proves an entry only if a majority has renewed it.
    RenewalByMajority,
    /// A store is founded by itself only where all servers are there, and empty.
    FoundWhenAllAreEmpty,
    /// Who only reads founds no store, and brings no server back into one.
    ReadersFoundNothing,
    /// A server of another store is emptied only if the store was founded anew by its name.
    EmptyOnlyNamed,
    /// What others know is read after a server was seen empty.
    LossSeenFirst,
    /// A server that was emptied learns from a majority of the others.
    ReseedFromMajority,
    /// It gives no token that was given before.
    CounterAfterLoss,
    /// Nor one that was being written while others said what they know.
    LeapAfterLoss,
    /// It gives no lock before those that it has forgotten are over.
    WaitAfterLoss,
}

/// Which rules hold: all, but in tests.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rules {
    #[cfg(test)]
    left_out: [Option<Rule>; 2],
}

impl Rules {
    #[cfg(not(test))]
    pub(crate) fn keep(self, _rule: Rule) -> bool {
        true
    }

    #[cfg(test)]
    pub(crate) fn keep(self, rule: Rule) -> bool {
        !self.left_out.contains(&Some(rule))
    }

    #[cfg(test)]
    pub(crate) fn without(rule: Rule) -> Rules {
        Rules { left_out: [Some(rule), None] }
    }

    /// Where another rule would hide what comes of it.
    #[cfg(test)]
    pub(crate) fn without_both(one: Rule, other: Rule) -> Rules {
        Rules { left_out: [Some(one), Some(other)] }
    }
}
