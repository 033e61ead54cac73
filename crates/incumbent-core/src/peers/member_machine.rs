//! One member of a group, whichever way the group elects.

use super::bully::Bully;
use super::consensus::{Consensus, PeerRole, Report};
use super::machine::{Input, OperatorRequest, Output};
use super::ring::Ring;
use super::wire::Body;
use crate::office::Refusal;
use crate::time::Timestamp;

/// One member, whichever way its group elects. What its members do not say to each other is passed
/// over.
///
/// After each [`MemberMachine::handle`], take every [`MemberMachine::poll_output`], in order, then
/// wait until [`MemberMachine::poll_timeout`] at the latest. A tick that comes early does nothing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MemberMachine {
    /// By a vote of the majority.
    Consensus(Box<Consensus>),
    /// The highest rank that answers, asked directly.
    Bully(Box<Bully>),
    /// The highest rank that answers, asked round a ring.
    Ring(Box<Ring>),
}

impl MemberMachine {
    /// Something happened, or time has passed.
    pub fn handle(&mut self, now: Timestamp, input: Input<Body>) {
        match self {
            MemberMachine::Consensus(machine) => {
                let message = |body| if let Body::Consensus(message) = body { Some(message) } else { None };
                if let Some(input) = input.map(message) {
                    machine.handle(now, input);
                }
            }
            MemberMachine::Bully(machine) => {
                let message = |body| if let Body::Bully(message) = body { Some(message) } else { None };
                if let Some(input) = input.map(message) {
                    machine.handle(now, input);
                }
            }
            MemberMachine::Ring(machine) => {
                let message = |body| if let Body::Ring(message) = body { Some(message) } else { None };
                if let Some(input) = input.map(message) {
                    machine.handle(now, input);
                }
            }
        }
    }

    /// What is to be done next.
    pub fn poll_output(&mut self) -> Option<Output<Body>> {
        match self {
            MemberMachine::Consensus(machine) => machine.poll_output().map(|output| output.map(Body::Consensus)),
            MemberMachine::Bully(machine) => machine.poll_output().map(|output| output.map(Body::Bully)),
            MemberMachine::Ring(machine) => machine.poll_output().map(|output| output.map(Body::Ring)),
        }
    }

    /// When [`Input::Tick`] is due.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        match self {
            MemberMachine::Consensus(machine) => machine.poll_timeout(),
            MemberMachine::Bully(machine) => machine.poll_timeout(),
            MemberMachine::Ring(machine) => machine.poll_timeout(),
        }
    }

    /// What an operator wants of this member, which has to be in office. Accepted: the work is
    /// asked to stop, and who leads next shows what came of it.
    pub fn request(&mut self, now: Timestamp, request: OperatorRequest) -> Result<(), Refusal> {
        match self {
            MemberMachine::Consensus(machine) => machine.request(now, request),
            MemberMachine::Bully(machine) => machine.request(now, request),
            MemberMachine::Ring(machine) => machine.request(now, request),
        }
    }

    /// Who leads, as a consensus member knows it; `None` for the others, which tell all they know
    /// by events.
    pub fn report(&self, now: Timestamp) -> Option<Report> {
        let MemberMachine::Consensus(machine) = self else { return None };
        Some(machine.report(now))
    }

    /// The highest term that it knows; zero where there are none.
    pub fn term(&self) -> u64 {
        match self {
            MemberMachine::Consensus(machine) => machine.term(),
            MemberMachine::Bully(_) | MemberMachine::Ring(_) => 0,
        }
    }

    /// What it does at present.
    pub fn role(&self) -> PeerRole {
        let rank = |leads| if leads { PeerRole::Leader } else { PeerRole::Follower };
        match self {
            MemberMachine::Consensus(machine) => machine.role(),
            MemberMachine::Bully(machine) => rank(machine.leads()),
            MemberMachine::Ring(machine) => rank(machine.leads()),
        }
    }
}
