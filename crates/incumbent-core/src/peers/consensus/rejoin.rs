//! How a member that has lost its state comes back without breaking a promise that it forgot.
//!
//! Whoever asked it for a vote had written the term down before, and is one of the others. So the highest term
//! that ALL others know is at least that of any vote it may have given; it abstains in that term. Likewise a record that
//! it helped to commit is within the furthest position of the others: it votes for whoever reaches that far, and stands
//! once it does so itself.

use std::collections::BTreeMap;

use super::message::{Ballot, Message, Position};
use super::{Consensus, Role};
use crate::entry::{Nonce, Token};
use crate::peers::group::MemberId;
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Rejoining {
    nonce: Nonce,
    told: BTreeMap<MemberId, (u64, Position)>,
    ask_at: Timestamp,
    /// All have answered; what was learnt is being written.
    learnt: bool,
}

impl Rejoining {
    pub(super) fn new(now: Timestamp, nonce: Nonce) -> Rejoining {
        Rejoining { nonce, told: BTreeMap::new(), ask_at: now, learnt: false }
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

    pub(super) fn on_term_told(&mut self, from: MemberId, nonce: Nonce, term: u64, position: Position) {
        let others = self.group.members().len() - 1;
        let Role::Rejoining(rejoining) = &mut self.role else { return };
        if rejoining.nonce != nonce || rejoining.learnt || term > Token::MAX {
            return;
        }
        rejoining.told.insert(from, (term, position));
        if rejoining.told.len() < others {
            return;
        }
        rejoining.learnt = true;
        self.stored.term = rejoining.told.values().map(|(term, _)| *term).max().unwrap_or(0);
        self.stored.catch_up = rejoining.told.values().map(|(_, position)| *position).max().unwrap_or(Position::NONE);
        self.stored.ballot = Ballot::Forfeit;
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
