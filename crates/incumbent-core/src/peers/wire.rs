//! The messages of peers as bytes: compact, bounded, versioned. Whatever comes in, decoding ends
//! with a message or a reason.
//!
//! A frame is `version u8, group u64, sender u16, kind u8, fields`, numbers little-endian, with
//! lists and values preceded by their length. Its length on the wire and its authenticity are the
//! transport's: it bounds a frame by [`MAX_FRAME_BYTES`] before it reads it, and checks who sent it
//! before it decodes it.

use bytes::Bytes;

use super::bully;
use super::consensus::{self, Position};
use super::group::{MAX_MEMBERS, MemberId};
use super::rank_state::RankMessage;
use super::ring;
use crate::binary::{ReadError, Reader, Writer};
use crate::entry::Token;
use crate::name::MAX_VALUE_BYTES;

mod words;

/// The version that is written, and the only one that is read.
pub const VERSION: u8 = 3;
/// The longest frame: a value, and what stands around it.
pub const MAX_FRAME_BYTES: usize = MAX_VALUE_BYTES + 128;

/// One message and what is needed to place it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// The group's [`fingerprint`](super::Group::fingerprint).
    pub group: u64,
    /// Who says it. [`Frame::OUTSIDER`] for someone who is not a member.
    pub from: MemberId,
    /// What it says.
    pub body: Body,
}

/// What a frame says.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Body {
    /// Among the members of a consensus group.
    Consensus(consensus::Message),
    /// Among the members of a bully election.
    Bully(bully::Message),
    /// Among the members of a ring election.
    Ring(ring::Message),
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It is longer than [`MAX_FRAME_BYTES`].
    #[error("a frame of {bytes} bytes: at most {MAX_FRAME_BYTES} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It ends before it is complete.
    #[error("the frame is cut short")]
    CutShort,
    /// It goes on after it is complete.
    #[error("{bytes} bytes follow the end of the frame")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// It is of another version.
    #[error("the frame has version {version}: this is version {VERSION}")]
    Version {
        /// Its version.
        version: u8,
    },
    /// It is of another group, or of another election.
    #[error("the frame is of another group or election")]
    OtherGroup,
    /// It is of a kind that there is not.
    #[error("there is no message of kind {kind}")]
    Kind {
        /// The kind.
        kind: u8,
    },
    /// A number, a list or a value is out of bounds.
    #[error("a field is out of bounds")]
    OutOfBounds,
}

impl From<ReadError> for WireError {
    fn from(error: ReadError) -> WireError {
        match error {
            ReadError::CutShort => WireError::CutShort,
            ReadError::OutOfBounds => WireError::OutOfBounds,
            ReadError::Trailing { bytes } => WireError::Trailing { bytes },
        }
    }
}

impl Frame {
    /// The sender's number where it is not a member.
    pub const OUTSIDER: MemberId = MemberId(u16::MAX);

    /// The frame as bytes, or [`WireError::OutOfBounds`] if a value or list is larger than any
    /// reader accepts.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut writer = Writer::with_capacity(64);
        writer.u8(VERSION).u64(self.group).member(self.from);
        match &self.body {
            Body::Consensus(message) => writer.consensus(message)?,
            Body::Bully(message) => writer.bully(message)?,
            Body::Ring(message) => writer.ring(message)?,
        };
        Ok(writer.into_bytes())
    }

    /// Reads a frame for this group.
    pub fn decode(bytes: &[u8], group: u64) -> Result<Frame, WireError> {
        if bytes.len() > MAX_FRAME_BYTES {
            return Err(WireError::TooLong { bytes: bytes.len() });
        }
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            VERSION => {}
            version => return Err(WireError::Version { version }),
        }
        if reader.u64()? != group {
            return Err(WireError::OtherGroup);
        }
        let from = reader.member()?;
        let kind = reader.u8()?;
        let body = reader.body(kind)?;
        reader.end()?;
        Ok(Frame { group, from, body })
    }
}

/// The kinds of messages. A number is never used for another kind; 11 and 12 were used once.
mod kind {
    pub(super) const PRE_VOTE: u8 = 1;
    pub(super) const PRE_VOTED: u8 = 2;
    pub(super) const VOTE: u8 = 3;
    pub(super) const VOTED: u8 = 4;
    pub(super) const HEARTBEAT: u8 = 5;
    pub(super) const ACK: u8 = 6;
    pub(super) const STALE: u8 = 7;
    pub(super) const TIMEOUT_NOW: u8 = 8;
    pub(super) const ASK_TERM: u8 = 9;
    pub(super) const TELL_TERM: u8 = 10;
    pub(super) const LOST_TOO: u8 = 13;
    pub(super) const CLOSED: u8 = 14;
    pub(super) const BULLY: u8 = 32;
    pub(super) const RING: u8 = 64;
    pub(super) const ELECTION: u8 = 0;
    pub(super) const ALIVE_OR_PASSED: u8 = 1;
    pub(super) const COORDINATOR: u8 = 2;
    pub(super) const BEAT: u8 = 3;
    pub(super) const HEARD: u8 = 4;
    pub(super) const LEFT: u8 = 5;
    pub(super) const LEAVING: u8 = 6;
}

impl Writer {
    fn position(&mut self, position: Position) -> &mut Writer {
        self.u64(position.token).u64(position.index)
    }

    fn optional_value(&mut self, value: Option<&Bytes>) -> Result<&mut Writer, WireError> {
        match value {
            Some(value) => self.flag(true).value(value),
            None => Ok(self.flag(false)),
        }
    }

    fn members(&mut self, members: &[MemberId]) -> Result<&mut Writer, WireError> {
        if members.len() > MAX_MEMBERS {
            return Err(WireError::OutOfBounds);
        }
        self.u8(members.len() as u8);
        Ok(members.iter().fold(self, |writer, member| writer.member(*member)))
    }

    fn consensus(&mut self, message: &consensus::Message) -> Result<&mut Writer, WireError> {
        use consensus::Message;
        Ok(match message {
            Message::PreVote { term, round, position } => {
                self.u8(kind::PRE_VOTE).u64(term.get()).u64(*round).position(*position)
            }
            Message::PreVoted { round, term, granted } => {
                self.u8(kind::PRE_VOTED).u64(*round).u64(*term).flag(*granted)
            }
            Message::Vote { term, position, forfeited } => {
                self.u8(kind::VOTE).u64(term.get()).position(*position).u64(forfeited.map_or(0, Token::get))
            }
            Message::Voted { term, granted, last } => {
                self.u8(kind::VOTED).u64(term.get()).flag(*granted).last_office(*last)
            }
            Message::Heartbeat { term, echo, in_office, version, value } => {
                self.u8(kind::HEARTBEAT).u64(term.get()).u64(*echo).flag(*in_office).u64(*version);
                self.optional_value(value.as_ref())?
            }
            Message::Ack { term, echo, promise, position, version, stands } => {
                self.u8(kind::ACK).u64(term.get()).u64(*echo).u64(*promise);
                self.position(*position).u64(*version).flag(*stands)
            }
            Message::Stale { term } => self.u8(kind::STALE).u64(term.get()),
            Message::Closed { term } => self.u8(kind::CLOSED).u64(term.get()),
            Message::TimeoutNow { term } => self.u8(kind::TIMEOUT_NOW).u64(term.get()),
            Message::AskTerm { nonce } => self.u8(kind::ASK_TERM).u64(nonce.0),
            Message::TellTerm { nonce, term, position, last } => {
                self.u8(kind::TELL_TERM).u64(nonce.0).u64(*term).position(*position).last_office(*last)
            }
            Message::LostToo { nonce } => self.u8(kind::LOST_TOO).u64(nonce.0),
        })
    }

    fn rank_message(&mut self, base: u8, message: &RankMessage) -> Result<&mut Writer, WireError> {
        Ok(match message {
            RankMessage::Beat { echo, version, value, grace } => {
                self.u8(base + kind::BEAT).u64(*echo).u64(*version).optional_value(value.as_ref())?.u64(*grace)
            }
            RankMessage::Heard { echo, version } => self.u8(base + kind::HEARD).u64(*echo).u64(*version),
            RankMessage::Leaving { grace } => self.u8(base + kind::LEAVING).u64(*grace),
            RankMessage::Left => self.u8(base + kind::LEFT),
        })
    }

    fn bully(&mut self, message: &bully::Message) -> Result<&mut Writer, WireError> {
        use bully::Message;
        match message {
            Message::Election => Ok(self.u8(kind::BULLY + kind::ELECTION)),
            Message::Alive => Ok(self.u8(kind::BULLY + kind::ALIVE_OR_PASSED)),
            Message::Coordinator => Ok(self.u8(kind::BULLY + kind::COORDINATOR)),
            Message::Rank(message) => self.rank_message(kind::BULLY, message),
        }
    }

    fn ring(&mut self, message: &ring::Message) -> Result<&mut Writer, WireError> {
        use ring::Message;
        Ok(match message {
            Message::Election { hop, starter, seen, best } => {
                self.u8(kind::RING + kind::ELECTION).u64(*hop).member(*starter).members(seen)?;
                self.option(*best, Writer::member)
            }
            Message::Passed { hop } => self.u8(kind::RING + kind::ALIVE_OR_PASSED).u64(*hop),
            Message::Coordinator { hop, leader, seen } => {
                self.u8(kind::RING + kind::COORDINATOR).u64(*hop).member(*leader).members(seen)?
            }
            Message::Rank(message) => self.rank_message(kind::RING, message)?,
        })
    }
}

impl Reader<'_> {
    /// A term that somebody may lead.
    fn term(&mut self) -> Result<Token, WireError> {
        Token::new(self.u64()?).ok_or(WireError::OutOfBounds)
    }

    fn position(&mut self) -> Result<Position, WireError> {
        Ok(Position { token: self.term_or_zero()?, index: self.u64()? })
    }

    fn members(&mut self) -> Result<Vec<MemberId>, WireError> {
        let len = usize::from(self.u8()?);
        if len > MAX_MEMBERS {
            return Err(WireError::OutOfBounds);
        }
        Ok((0..len).map(|_| self.member()).collect::<Result<_, _>>()?)
    }

    fn body(&mut self, kind: u8) -> Result<Body, WireError> {
        match kind {
            ..kind::BULLY => self.consensus(kind).map(Body::Consensus),
            kind::BULLY..kind::RING => self.bully(kind).map(Body::Bully),
            _ => self.ring(kind).map(Body::Ring),
        }
    }

    fn consensus(&mut self, kind: u8) -> Result<consensus::Message, WireError> {
        use consensus::Message;
        Ok(match kind {
            kind::PRE_VOTE => Message::PreVote { term: self.term()?, round: self.u64()?, position: self.position()? },
            kind::PRE_VOTED => {
                Message::PreVoted { round: self.u64()?, term: self.term_or_zero()?, granted: self.flag()? }
            }
            kind::VOTE => Message::Vote {
                term: self.term()?,
                position: self.position()?,
                forfeited: Token::new(self.term_or_zero()?),
            },
            kind::VOTED => Message::Voted { term: self.term()?, granted: self.flag()?, last: self.last_office()? },
            kind::HEARTBEAT => Message::Heartbeat {
                term: self.term()?,
                echo: self.u64()?,
                in_office: self.flag()?,
                version: self.u64()?,
                value: self.option(Reader::value)?,
            },
            kind::ACK => Message::Ack {
                term: self.term()?,
                echo: self.u64()?,
                promise: self.u64()?,
                position: self.position()?,
                version: self.u64()?,
                stands: self.flag()?,
            },
            kind::STALE => Message::Stale { term: self.term()? },
            kind::CLOSED => Message::Closed { term: self.term()? },
            kind::TIMEOUT_NOW => Message::TimeoutNow { term: self.term()? },
            kind::ASK_TERM => Message::AskTerm { nonce: self.nonce()? },
            kind::TELL_TERM => Message::TellTerm {
                nonce: self.nonce()?,
                term: self.term_or_zero()?,
                position: self.position()?,
                last: self.last_office()?,
            },
            kind::LOST_TOO => Message::LostToo { nonce: self.nonce()? },
            kind => return Err(WireError::Kind { kind }),
        })
    }

    fn rank_message(&mut self, kind: u8, base: u8) -> Result<RankMessage, WireError> {
        Ok(match kind - base {
            kind::BEAT => RankMessage::Beat {
                echo: self.u64()?,
                version: self.u64()?,
                value: self.option(Reader::value)?,
                grace: self.u64()?,
            },
            kind::HEARD => RankMessage::Heard { echo: self.u64()?, version: self.u64()? },
            kind::LEFT => RankMessage::Left,
            kind::LEAVING => RankMessage::Leaving { grace: self.u64()? },
            _ => return Err(WireError::Kind { kind }),
        })
    }

    fn bully(&mut self, kind: u8) -> Result<bully::Message, WireError> {
        use bully::Message;
        Ok(match kind - kind::BULLY {
            kind::ELECTION => Message::Election,
            kind::ALIVE_OR_PASSED => Message::Alive,
            kind::COORDINATOR => Message::Coordinator,
            _ => Message::Rank(self.rank_message(kind, kind::BULLY)?),
        })
    }

    fn ring(&mut self, kind: u8) -> Result<ring::Message, WireError> {
        use ring::Message;
        Ok(match kind - kind::RING {
            kind::ELECTION => Message::Election {
                hop: self.u64()?,
                starter: self.member()?,
                seen: self.members()?,
                best: self.option(Reader::member)?,
            },
            kind::ALIVE_OR_PASSED => Message::Passed { hop: self.u64()? },
            kind::COORDINATOR => {
                Message::Coordinator { hop: self.u64()?, leader: self.member()?, seen: self.members()? }
            }
            _ => Message::Rank(self.rank_message(kind, kind::RING)?),
        })
    }
}

#[cfg(test)]
mod tests;
