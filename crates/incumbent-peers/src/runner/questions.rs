//! Questions and wishes of those who are not members.

use std::sync::Arc;

use bytes::Bytes;
use incumbent_core::peers::consensus::{Client, PeerRole, Report};
use incumbent_core::peers::wire::{Body, Frame};
use incumbent_core::peers::{MemberId, PeerCommand};
use incumbent_core::{Nonce, Token};

use super::{Phase, Runner};
use crate::link::outbox::Outbox;
use crate::machine::{Happened, Machine};
use crate::packet::Packet;
use crate::sink::{OperatorRequest, Reply, Wish};
use crate::status::{Answer, LeaderView, Refused, Status};

/// Someone who is not a member waits for an answer.
pub(crate) enum Asked {
    Leader(Arc<Outbox>, Nonce),
    Status(Reply),
}

impl Runner {
    pub(super) fn ask(&mut self, asked: Asked, nonce: Nonce) {
        let client = self.asked.last_key_value().map_or(0, |(last, _)| last + 1);
        self.asked.insert(client, asked);
        if let Phase::Running(Machine::Consensus(_)) = &self.phase {
            self.input(Happened::Asked(Client(client), nonce));
        }
        // The other machines do not know of questions, and one that takes no part any more does not answer.
        if self.asked.contains_key(&client) {
            let leader = self.view.leader.as_ref();
            let report = Report {
                nonce,
                term: leader.and_then(|leader| leader.term).map_or(0, Token::get),
                leader: leader.map(|leader| leader.member),
                version: self.view.version,
                value: leader.map_or(Bytes::new(), |leader| leader.value.clone()),
            };
            self.answer(Client(client), report);
        }
    }

    pub(super) fn answer(&mut self, client: Client, report: Report) {
        match self.asked.remove(&client.0) {
            Some(Asked::Leader(outbox, nonce)) => {
                let body = Body::Tell(Report { nonce, ..report });
                let frame = Frame { group: self.shared.fingerprint, from: self.shared.me, body };
                outbox.push(Packet::Peer(frame), &self.shared.meter);
            }
            Some(Asked::Status(reply)) => {
                let status = self.status(report);
                reply.send(Answer::Status(Box::new(status)));
            }
            None => {}
        }
    }

    fn status(&self, report: Report) -> Status {
        let leader =
            report.leader.map(|member| LeaderView { member, term: Token::new(report.term), value: report.value });
        Status {
            member: self.shared.me,
            algorithm: self.shared.algorithm,
            role: match &self.phase {
                Phase::Running(machine) => machine.role(),
                Phase::Forming(_) => PeerRole::Follower,
                Phase::Over => PeerRole::Out,
            },
            term: self.term(),
            leader,
            in_office: self.view.office.is_some(),
            stands: self.stands,
            not_voting: self.view.not_voting,
            forming: matches!(self.phase, Phase::Forming(_)),
            waits_for: if let Phase::Forming(founding) = &self.phase { founding.missing() } else { Vec::new() },
            value: self.value.clone(),
            identity: self.shared.identity.get().cloned(),
        }
    }

    /// An operator says that the group is new, and that those who are up are to found it.
    pub(super) fn on_found(&mut self, reply: Reply) {
        let now = self.now();
        let Phase::Forming(founding) = &mut self.phase else { return reply.send(Answer::Refused(Refused::Founded)) };
        match founding.declare(now) {
            Some(charter) => {
                tracing::warn!("an operator has declared the group founded, with {} members", charter.0.len());
                reply.send(Answer::Accepted);
                self.accept(charter);
            }
            None => reply.send(Answer::Refused(Refused::TooFew)),
        }
    }

    /// An operator says that this member is to come back without the others.
    pub(super) fn on_readmit(&mut self, reply: Reply) {
        let lost = matches!(&self.phase, Phase::Running(machine) if machine.role() == PeerRole::Rejoining);
        if !lost {
            return reply.send(Answer::Refused(Refused::NotLost));
        }
        tracing::warn!("an operator readmits this member without the others");
        reply.send(Answer::Accepted);
        self.input(Happened::Command(PeerCommand::Readmit));
    }

    fn knows_unfit(&self, heir: MemberId) -> bool {
        matches!(&self.phase, Phase::Running(machine) if machine.knows_unfit(self.now(), heir))
    }

    pub(super) fn on_wish(&mut self, wish: Wish, reply: Reply) {
        let heir_is_other = |heir: MemberId| heir != self.shared.me && self.group.contains(heir);
        let refused = match wish {
            Wish::Transfer(_) if !self.shared.algorithm.is_fenced() => Some(Refused::RankDecides),
            Wish::Transfer(heir) if !heir_is_other(heir) => Some(Refused::NotAMember),
            _ if self.view.office.is_none() => Some(Refused::NotInOffice),
            // Before any work is stopped for it.
            Wish::Transfer(heir) if self.knows_unfit(heir) => Some(Refused::HeirUnfit),
            _ => None,
        };
        match refused {
            Some(why) => reply.send(Answer::Refused(why)),
            None => self.sink.request(OperatorRequest::new(wish, reply)),
        }
    }
}
