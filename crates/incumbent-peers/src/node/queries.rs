//! Answers to processes that are not members: to what they want to know, and to operators.

use std::sync::Arc;

use incumbent_core::peers::consensus::{PeerRole, Report};
use incumbent_core::peers::{Input, OperatorRequest};
use incumbent_core::{Nonce, Token};

use super::{Node, Phase};
use crate::disk::Disk;
use crate::founding::Declared;
use crate::link::outbox::Outbox;
use crate::packet::Packet;
use crate::status::{Answer, LeaderView, Refused, Status};
use crate::trace::Meter;

/// Where an answer goes.
pub(super) struct Reply {
    pub(super) to: Arc<Outbox>,
    pub(super) nonce: Nonce,
    pub(super) meter: Arc<Meter>,
}

impl Reply {
    pub(super) fn send(self, answer: Answer) {
        self.to.push(Packet::Answer(self.nonce, answer), &self.meter);
    }
}

impl Node {
    /// What this member knows now. An office whose deadline has passed is none, whether or not the
    /// machine has looked.
    pub(super) fn status(&self) -> Status {
        let now = self.now();
        let in_office = self.view.office.is_some_and(|office| now < office.deadline);
        let report = if let Phase::Running(machine) = &self.phase { machine.report(now) } else { None };
        let led_term = match (&report, &self.view.leader) {
            (Some(report), _) => report.term,
            (None, leader) => leader.as_ref().and_then(|leader| leader.term).map_or(0, Token::get),
        };
        let leader = match report {
            Some(Report { term, leader, value }) => {
                leader.map(|member| LeaderView { member, term: Token::new(term), value })
            }
            None => self.view.leader.clone(),
        };
        Status {
            member: self.shared.me,
            algorithm: self.shared.algorithm,
            role: match &self.phase {
                Phase::Running(machine) => machine.role(),
                Phase::Forming(_) => PeerRole::Follower,
                Phase::Over => PeerRole::Out,
            },
            term: self.term(),
            led_term,
            leader: leader.filter(|leader| in_office || leader.member != self.shared.me),
            in_office,
            stands: self.candidate.is_some_and(|rules| !rules.unfit),
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
        let (Phase::Forming(founding), Ok(new_disk)) = (&mut self.phase, Disk::new_id()) else {
            return reply.send(Answer::Refused(Refused::Founded));
        };
        match founding.declare(now, new_disk) {
            Declared::Accepted(charter) => {
                tracing::warn!("an operator has declared the group founded, with {} members", charter.0.len());
                reply.send(Answer::Accepted);
                self.accept(charter);
            }
            Declared::StartedOver => {
                tracing::warn!("by an operator's word, the founding that this member had agreed to is given up");
                reply.send(Answer::Refused(Refused::StartedOver));
                self.start_over(new_disk);
            }
            Declared::InProgress => reply.send(Answer::Refused(Refused::InProgress)),
            Declared::TooFew => reply.send(Answer::Refused(Refused::TooFew)),
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
        self.input(Input::Readmit);
    }

    /// Granted by the machine, which asks the user to stop first.
    pub(super) fn on_operator_request(&mut self, request: OperatorRequest, reply: Reply) {
        let now = self.now();
        let granted = match &mut self.phase {
            Phase::Running(machine) => machine.request(now, request).map_err(Refused::from),
            Phase::Forming(_) | Phase::Over => Err(Refused::NotInOffice),
        };
        reply.send(granted.map_or_else(Answer::Refused, |()| Answer::Accepted));
    }
}
