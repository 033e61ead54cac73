//! The three algorithms behind one face, for the runner. It adds nothing to them.

use bytes::Bytes;
use incumbent_core::peers::bully::Bully;
use incumbent_core::peers::consensus::{
    Boot, Consensus, Input, Output, PeerRole, PersistId, Position, Report, SealId, Stored,
};
use incumbent_core::peers::ring::Ring;
use incumbent_core::peers::wire::Body;
use incumbent_core::peers::{
    Group, MemberId, PeerCommand, PeerEvent, RankInput, RankOutput, RankSettings, TransferRefusal,
};
use incumbent_core::{Rng, Timestamp, Token};

use crate::config::{ConfigError, Rules};

/// One member's machine.
#[derive(Debug)]
pub(crate) enum Machine {
    Bully(Box<Bully>),
    Ring(Box<Ring>),
    Consensus(Box<Consensus>),
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Happened {
    Tick,
    Said(MemberId, Body),
    Command(PeerCommand),
    Persisted(PersistId),
    PersistFailed(PersistId),
    Sealed(SealId, Position),
    Position(Position),
}

/// What is to be done, in this order.
#[derive(Debug)]
pub(crate) enum Act {
    Send(MemberId, Body),
    Persist(PersistId, Stored),
    Seal(SealId, Token),
    Event(PeerEvent),
}

impl Machine {
    /// A bully or ring member that starts now; `None` for consensus, which starts from its disk.
    pub(crate) fn rank(
        now: Timestamp,
        group: Group,
        rules: &Rules,
        stands: bool,
        (value, rng): (Bytes, Rng),
    ) -> Result<Option<Machine>, ConfigError> {
        // One that does not stand must not take over at its start, not even for a moment.
        let settings = |settings: &RankSettings| RankSettings { take_over: settings.take_over && stands, ..*settings };
        let mut machine = match rules {
            Rules::Bully(rules) => Machine::Bully(Box::new(
                Bully::new(now, group, settings(rules), value, rng).map_err(ConfigError::Rank)?,
            )),
            Rules::Ring(rules) => {
                Machine::Ring(Box::new(Ring::new(now, group, settings(rules), value, rng).map_err(ConfigError::Rank)?))
            }
            Rules::Consensus(_) => return Ok(None),
        };
        if !stands {
            machine.handle(now, Happened::Command(PeerCommand::Healthy(false)));
        }
        Ok(Some(machine))
    }

    /// A consensus member that starts now.
    pub(crate) fn consensus(
        now: Timestamp,
        group: Group,
        rules: &Rules,
        boot: Boot,
        (value, rng): (Bytes, Rng),
    ) -> Result<Machine, ConfigError> {
        let Rules::Consensus(settings) = rules else {
            return Err(ConfigError::Mixed { group: crate::config::Algorithm::Consensus, rules: rules.algorithm() });
        };
        let machine = Consensus::new(now, group, *settings, boot, value, rng).map_err(ConfigError::Consensus)?;
        Ok(Machine::Consensus(Box::new(machine)))
    }

    /// Hands something to the machine. What is of no use to this algorithm is passed over.
    pub(crate) fn handle(&mut self, now: Timestamp, happened: Happened) {
        match self {
            Machine::Consensus(machine) => {
                let input = match happened {
                    Happened::Tick => Input::Tick,
                    Happened::Said(from, Body::Consensus(message)) => Input::Message(from, message),
                    Happened::Said(..) => return,
                    Happened::Command(command) => Input::Command(command),
                    Happened::Persisted(id) => Input::Persisted(id),
                    Happened::PersistFailed(id) => Input::PersistFailed(id),
                    Happened::Sealed(id, position) => Input::Sealed(id, position),
                    Happened::Position(position) => Input::Position(position),
                };
                machine.handle(now, input);
            }
            Machine::Bully(machine) => match happened {
                Happened::Tick => machine.handle(now, RankInput::Tick),
                Happened::Said(from, Body::Bully(message)) => machine.handle(now, RankInput::Message(from, message)),
                Happened::Command(command) => machine.handle(now, RankInput::Command(command)),
                _ => {}
            },
            Machine::Ring(machine) => match happened {
                Happened::Tick => machine.handle(now, RankInput::Tick),
                Happened::Said(from, Body::Ring(message)) => machine.handle(now, RankInput::Message(from, message)),
                Happened::Command(command) => machine.handle(now, RankInput::Command(command)),
                _ => {}
            },
        }
    }

    pub(crate) fn poll_output(&mut self) -> Option<Act> {
        match self {
            Machine::Consensus(machine) => machine.poll_output().map(|output| match output {
                Output::Send(to, message) => Act::Send(to, Body::Consensus(message)),
                Output::Persist(id, stored) => Act::Persist(id, stored),
                Output::Seal(id, token) => Act::Seal(id, token),
                Output::Event(event) => Act::Event(event),
            }),
            Machine::Bully(machine) => machine.poll_output().map(|output| match output {
                RankOutput::Send(to, message) => Act::Send(to, Body::Bully(message)),
                RankOutput::Event(event) => Act::Event(event),
            }),
            Machine::Ring(machine) => machine.poll_output().map(|output| match output {
                RankOutput::Send(to, message) => Act::Send(to, Body::Ring(message)),
                RankOutput::Event(event) => Act::Event(event),
            }),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        match self {
            Machine::Consensus(machine) => machine.poll_timeout(),
            Machine::Bully(machine) => machine.poll_timeout(),
            Machine::Ring(machine) => machine.poll_timeout(),
        }
    }

    /// Whether this member, in office, knows that another could not stand now.
    pub(crate) fn knows_unfit(&self, now: Timestamp, heir: MemberId) -> bool {
        let Machine::Consensus(machine) = self else { return false };
        machine.refuses_transfer(now, heir) == Some(TransferRefusal::HeirUnfit)
    }

    /// Who leads, as a consensus member knows it; `None` for the others, which tell all they know by events.
    pub(crate) fn report(&self, now: Timestamp) -> Option<Report> {
        let Machine::Consensus(machine) = self else { return None };
        Some(machine.report(now))
    }

    /// The highest term that it knows; zero where there are none.
    pub(crate) fn term(&self) -> u64 {
        match self {
            Machine::Consensus(machine) => machine.term(),
            Machine::Bully(_) | Machine::Ring(_) => 0,
        }
    }

    pub(crate) fn role(&self) -> PeerRole {
        let rank = |leads| if leads { PeerRole::Leader } else { PeerRole::Follower };
        match self {
            Machine::Consensus(machine) => machine.role(),
            Machine::Bully(machine) => rank(machine.leads()),
            Machine::Ring(machine) => rank(machine.leads()),
        }
    }
}
