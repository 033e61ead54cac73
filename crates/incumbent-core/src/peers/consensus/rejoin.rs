//! How a member that has lost its state comes back without breaking a promise that it forgot.
//!
//! A candidate that asked it for a vote had written the term down before, and is one of the others.
//! So the highest term that ALL others know is at least that of any vote it may have given; it
//! abstains in that term. Likewise a record that it helped to commit is within the furthest
//! position of the others: it votes for a candidate that reaches that far, and stands once it does
//! so itself.
//!
//! Others may have lost their state, too. As long as a majority has not, every term that was ever
//! won is known to one that still has its state and was asked after the others said that theirs is
//! lost; terms that nobody won may be unknown. Without a majority, or without the answer of some,
//! only an operator can say that it is to come back ([`Input::Readmit`]), and even won terms
//! may be unknown. In both cases it comes back [`TERMS_SKIPPED`] terms later than any that is
//! known, further than others can have got unheard of.
//!
//! [`Input::Readmit`]: crate::peers::Input::Readmit

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Ballot, LastOffice, Message, Position};
use super::{Consensus, Role};
use crate::entry::{Nonce, Token};
use crate::peers::group::MemberId;
use crate::time::Timestamp;

/// How many terms are left out where those who answer may not know all: more elections than can
/// have been held without any of them hearing of one. Each takes a timeout or a handover, so a
/// million are weeks at least.
pub const TERMS_SKIPPED: u64 = 1_000_000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Rejoining {
    nonce: Nonce,
    told: BTreeMap<MemberId, Told>,
    /// Those who have lost their state, too.
    lost: BTreeSet<MemberId>,
    ask_at: Timestamp,
    /// An operator has said that it need not wait for the others.
    readmitted: bool,
    /// Enough have answered; what was learnt is being written.
    learnt: bool,
}

/// What another has said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Told {
    pub(super) term: u64,
    pub(super) position: Position,
    pub(super) last: LastOffice,
}

impl Rejoining {
    pub(super) fn new(now: Timestamp, nonce: Nonce) -> Rejoining {
        let (told, lost) = (BTreeMap::new(), BTreeSet::new());
        Rejoining { nonce, told, lost, ask_at: now, readmitted: false, learnt: false }
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        (!self.learnt).then_some(self.ask_at)
    }
}

impl Consensus {
    pub(super) fn ask_for_terms(&mut self, now: Timestamp) {
        let Role::Rejoining(rejoining) = &mut self.role else { return };
        if rejoining.learnt || now < rejoining.ask_at {
            return;
        }
        rejoining.ask_at = now + self.settings.heartbeat;
        let ask = Message::AskTerm { nonce: rejoining.nonce };
        let silent: Vec<_> = self.group.others().filter(|member| !rejoining.told.contains_key(member)).collect();
        for member in silent {
            self.send(member, ask.clone());
        }
    }

    pub(super) fn on_term_told(&mut self, from: MemberId, nonce: Nonce, told: Told) {
        let Role::Rejoining(rejoining) = &mut self.role else { return };
        if rejoining.nonce != nonce || rejoining.learnt || told.term > Token::MAX {
            return;
        }
        rejoining.lost.remove(&from);
        rejoining.told.insert(from, told);
        self.learn();
    }

    /// Another has lost its state. What was told before may be older than what that one did last:
    /// all are asked again.
    pub(super) fn on_lost_too(&mut self, now: Timestamp, from: MemberId, nonce: Nonce) {
        let Role::Rejoining(rejoining) = &mut self.role else { return };
        if rejoining.nonce != nonce || rejoining.learnt || !rejoining.lost.insert(from) {
            return;
        }
        rejoining.told.clear();
        rejoining.nonce = self.rng.nonce();
        rejoining.ask_at = now;
        self.ask_for_terms(now);
    }

    pub(super) fn on_readmitted(&mut self) {
        if let Role::Rejoining(rejoining) = &mut self.role {
            rejoining.readmitted = true;
            self.learn();
        }
    }

    /// Takes over what was told, if it is enough.
    fn learn(&mut self) {
        let (others, quorum) = (self.group.members().len() - 1, self.group.quorum());
        let Role::Rejoining(rejoining) = &mut self.role else { return };
        let (told, lost) = (rejoining.told.len(), rejoining.lost.len());
        let by_all = told == others;
        let by_majority = told + lost == others && told >= quorum;
        let believes = !self.settings.policy.asks_enough_members();
        if rejoining.learnt || told == 0 || !(by_all || by_majority || rejoining.readmitted || believes) {
            return;
        }
        rejoining.learnt = true;
        let known = rejoining.told.values().map(|told| told.term).max().unwrap_or(0);
        let skipped = if by_all || believes { 0 } else { TERMS_SKIPPED };
        let last = rejoining.told.values().map(|told| told.last).max().unwrap_or_default();
        self.stored.term = known.saturating_add(skipped).min(Token::MAX);
        self.stored.catch_up = rejoining.told.values().map(|told| told.position).max().unwrap_or(Position::NONE);
        self.stored.ballot = Ballot::Forfeit;
        // Where those who answer may not know all, somebody may be in office whom none knows.
        let unknown = LastOffice { term: self.stored.term, is_closed: false };
        self.learn_of(if by_all || by_majority { last } else { unknown });
        self.persist();
    }

    /// What was learnt is durable: a member again.
    pub(super) fn after_rejoining(&mut self, now: Timestamp) {
        if let Role::Rejoining(rejoining) = &self.role
            && rejoining.learnt
            && self.disk.is_settled()
        {
            self.become_follower(now);
        }
    }
}
