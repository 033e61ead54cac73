//! What members say to each other, and what they write down.

use std::time::Duration;

use bytes::Bytes;

use crate::binary::{ReadError, Reader, Writer, checksum};
use crate::entry::{Nonce, Token};
use crate::peers::group::MemberId;
use crate::terms::LastTerm;
use crate::time::Timestamp;

/// How far a member's records reach: the election restriction made general.
///
/// Positions are compared by `token` first and `index` second; [`Position::NONE`] is below all
/// others. A candidate is granted a vote only if its position is at least the voter's.
///
/// # What an application may assume
/// Let a record be *stored* by a member once it is durable there, and *committed* once the leader
/// under whose token it was written knows that a quorum (itself included) has stored it and
/// everything before it. Then **every later leader has all committed records when it is elected**,
/// provided that the application keeps to these rules:
/// 1. A record's position is (token of the leader that wrote it, its index). A log has
///    non-decreasing positions, and two members whose logs hold the same position hold the same
///    records up to it (a leader sends what comes before, or the receiver checks it).
/// 2. A member acknowledges a record only after it is durable.
/// 3. On [`Output::Seal`](super::Output::Seal) the member's data path refuses, in the same step and
///    durably, every record that is sent under a lower token than the seal's, and only then reads
///    its position for [`Input::Sealed`](super::Input::Sealed).
/// 4. A leader counts a record of an *older* token as committed only through a committed record of
///    its own token. (A new leader writes one record of its own first.)
/// 5. A follower drops records only to take over those of a leader whose token it does not refuse.
/// 6. A member that lost its records starts as [`Boot::Lost`]: it votes for those who have what the
///    others had, and stands only once it has caught up.
///
/// An index alone is not a position: a deposed leader with ten uncommitted records would beat a
/// majority with seven committed ones. An application without records leaves
/// [`ConsensusSettings::positions`] off and may assume nothing but what tokens and deadlines
/// promise.
///
/// [`ConsensusSettings::positions`]: super::ConsensusSettings::positions
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// The token under which the last record was written; zero if there is none.
    pub token: u64,
    /// The last record's index.
    pub index: u64,
}

impl Position {
    /// No records.
    pub const NONE: Position = Position { token: 0, index: 0 };
}

/// What a member says to another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// Would you vote for me in this term? Changes nothing.
    PreVote {
        /// The term that the sender would stand in.
        term: Token,
        /// Tells this asking from the sender's earlier ones.
        round: u64,
        /// The sender's position, as last known.
        position: Position,
    },
    /// The answer to [`Message::PreVote`].
    PreVoted {
        /// The round that was asked in.
        round: u64,
        /// The term of the one who answers, which may be ahead; zero if it knows of none.
        term: u64,
        /// Whether it would.
        granted: bool,
    },
    /// Vote for me in this term.
    Vote {
        /// The term that the sender stands in.
        term: Token,
        /// The sender's position, read after its data path refused older tokens.
        position: Position,
        /// The term whose leader has forfeited its lease in the sender's favour.
        forfeited: Option<Token>,
    },
    /// The answer to [`Message::Vote`].
    Voted {
        /// The term that was asked for.
        term: Token,
        /// Whether the sender has this vote.
        granted: bool,
        /// The term before, as far as the one who answers knows.
        last: LastOffice,
    },
    /// I lead this term.
    Heartbeat {
        /// The term.
        term: Token,
        /// When it was sent, by the leader's clock; opaque to others.
        echo: u64,
        /// Whether the leader is in office: a quorum has confirmed the term, the fences are raised,
        /// and it is not over.
        in_office: bool,
        /// Which of this term's values is proclaimed.
        version: u64,
        /// That value, from a leader in office to a member that has not acknowledged it.
        value: Option<Bytes>,
    },
    /// The answer to [`Message::Heartbeat`]: a promise to vote for nobody else for a while.
    Ack {
        /// The term.
        term: Token,
        /// The heartbeat's.
        echo: u64,
        /// How long the promise lasts, in nanoseconds by the sender's clock, from some moment after
        /// the heartbeat was sent.
        promise: u64,
        /// The sender's position, as last known.
        position: Position,
        /// The newest of this term's values that the sender has; zero for none.
        version: u64,
        /// Whether the sender could stand now: it is fit to lead, and votes.
        stands: bool,
    },
    /// Your term is over: I know this one.
    Stale {
        /// The sender's term.
        term: Token,
    },
    /// The work of my term has stopped.
    Closed {
        /// The term.
        term: Token,
    },
    /// Stand now: I have forfeited my lease in this term.
    TimeoutNow {
        /// The forfeited term.
        term: Token,
    },
    /// I have lost my state. Which is the highest term that you know?
    AskTerm {
        /// Tells this asking from those of earlier lives.
        nonce: Nonce,
    },
    /// The answer to [`Message::AskTerm`].
    TellTerm {
        /// From the question.
        nonce: Nonce,
        /// The highest term that the sender knows; zero if it knows of none.
        term: u64,
        /// The sender's position, as last known.
        position: Position,
        /// Who was in office last, as far as the sender knows.
        last: LastOffice,
    },
    /// The answer to [`Message::AskTerm`] of one that has lost its state, too.
    LostToo {
        /// From the question.
        nonce: Nonce,
    },
}

/// Who leads, as far as a member knows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Report {
    /// The newest term in which the sender knows of a leader in office; zero if there was none.
    pub term: u64,
    /// That leader, unless it has left office or has not been heard for too long.
    pub leader: Option<MemberId>,
    /// What the leader proclaims.
    pub value: Bytes,
}

/// Whom a member has voted for in its term.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Ballot {
    /// Nobody yet.
    #[default]
    Free,
    /// This member.
    For(MemberId),
    /// Nobody, and it will stay so: it may have voted in this term in an earlier life.
    Forfeit,
}

/// The newest term in which somebody may have been in office, and whether its work has stopped. It
/// tells the next leader how that term ended; nobody decides anything by it.
///
/// Whoever answers a leader's heartbeat has written the term down before, and nobody takes office
/// whom no quorum has answered. So of the quorum that votes for the next one, a member knows of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LastOffice {
    /// That term; zero if there was none.
    pub term: u64,
    /// Its leader has said that its work has stopped. If not, that may have been lost on its way.
    pub is_closed: bool,
}

impl LastOffice {
    /// How it ended, for the next leader.
    pub(super) fn end(self) -> LastTerm {
        match self {
            LastOffice { term: 0, .. } => LastTerm::None,
            LastOffice { is_closed: true, .. } => LastTerm::Closed,
            LastOffice { is_closed: false, .. } => LastTerm::Unfenced,
        }
    }
}

/// What a member writes down, durably, before it answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stored {
    /// The highest term seen; zero before the first.
    pub term: u64,
    /// The vote in that term.
    pub ballot: Ballot,
    /// How long this member abstains after a restart: the largest election timeout of its settings.
    pub abstain: Duration,
    /// How far the records that this member has lost may have reached: what it votes for must reach
    /// at least as far, and so must it to stand itself.
    pub catch_up: Position,
    /// Who was in office last.
    pub last: LastOffice,
}

const STORED_MAGIC: [u8; 8] = *b"incumb\0\x02";
/// Before it was written down who was in office last.
const OLDER_MAGIC: [u8; 8] = *b"incumb\0\x01";
/// The length of [`Stored::encode`]'s answer.
const STORED_BYTES: usize = 8 + 8 + 2 + 8 + 1 + 2 + 8 + 8 + 8 + 8 + 1 + 8;

impl Stored {
    /// The bytes to write, for this member of this group. Write them to a new file, flush it,
    /// rename it into place, flush the directory; only then say
    /// [`Input::Persisted`](super::Input::Persisted).
    pub fn encode(&self, group: u64, me: MemberId) -> Vec<u8> {
        let (kind, voted) = match self.ballot {
            Ballot::Free => (0, 0),
            Ballot::For(member) => (1, member.0),
            Ballot::Forfeit => (2, 0),
        };
        let mut writer = Writer::with_capacity(STORED_BYTES);
        writer.bytes(&STORED_MAGIC).u64(group).member(me).u64(self.term).u8(kind).u16(voted);
        writer.duration(self.abstain).u64(self.catch_up.token).u64(self.catch_up.index);
        writer.last_office(self.last);
        let sum = checksum(writer.as_bytes().iter().copied());
        writer.u64(sum);
        writer.into_bytes()
    }

    /// Reads what [`Stored::encode`] made. `None` for anything else: damaged, cut short, another
    /// member's, another group's. Boot from that as [`Boot::Lost`].
    pub fn decode(bytes: &[u8], group: u64, me: MemberId) -> Option<Stored> {
        let (body, sum) = bytes.split_last_chunk()?;
        if checksum(body.iter().copied()) != u64::from_le_bytes(*sum) {
            return None;
        }
        let (magic, body) = body.split_first_chunk()?;
        let mut reader = Reader::new(body);
        if (reader.u64().ok()?, reader.member().ok()?) != (group, me) {
            return None;
        }
        let mut stored = Stored::read(&mut reader).ok()?;
        stored.last = match *magic {
            STORED_MAGIC => reader.last_office().ok()?,
            OLDER_MAGIC => LastOffice { term: stored.term, is_closed: false },
            _ => return None,
        };
        reader.end().ok().map(|()| stored)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Stored, ReadError> {
        let term = reader.term_or_zero()?;
        let (kind, voted) = (reader.u8()?, reader.member()?);
        let ballot = match kind {
            0 => Ballot::Free,
            1 => Ballot::For(voted),
            2 => Ballot::Forfeit,
            _ => return Err(ReadError::OutOfBounds),
        };
        let abstain = reader.duration()?;
        let catch_up = Position { token: reader.u64()?, index: reader.u64()? };
        Ok(Stored { term, ballot, abstain, catch_up, last: LastOffice::default() })
    }
}

impl Writer {
    pub(in crate::peers) fn last_office(&mut self, last: LastOffice) -> &mut Writer {
        self.u64(last.term).flag(last.is_closed)
    }
}

impl Reader<'_> {
    pub(in crate::peers) fn last_office(&mut self) -> Result<LastOffice, ReadError> {
        Ok(LastOffice { term: self.term_or_zero()?, is_closed: self.flag()? })
    }
}

/// How a member starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Boot {
    /// For the first time ever: someone who knows has said so. A missing file alone does not say
    /// so.
    New,
    /// With what was written down last.
    Restarted(Stored),
    /// What was written down is missing or damaged.
    Lost,
}

/// Numbers the states to be written. A later one includes the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PersistId(pub u64);

/// Numbers the seals. An answer to any but the newest is ignored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SealId(pub u64);

/// What a member knows of who leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Known {
    pub(super) term: u64,
    pub(super) leader: Option<MemberId>,
    pub(super) version: u64,
    pub(super) value: Bytes,
}

/// The last time that a leader was heard.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Contact {
    pub(super) leader: MemberId,
    pub(super) term: Token,
    /// Until then no other candidate gets this member's vote.
    pub(super) promised_until: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Stored {
        Stored {
            term: 7,
            ballot: Ballot::For(MemberId(3)),
            abstain: Duration::from_secs(3),
            catch_up: Position { token: 5, index: 9 },
            last: LastOffice { term: 6, is_closed: true },
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for ballot in [Ballot::Free, Ballot::For(MemberId(2)), Ballot::Forfeit] {
            let stored = Stored { ballot, ..stored() };
            assert_eq!(Stored::decode(&stored.encode(11, MemberId(1)), 11, MemberId(1)), Some(stored));
        }
    }

    /// A group whose members are brought up to date keeps its votes.
    #[test]
    fn what_was_written_before_it_said_who_was_in_office_is_read_and_says_that_somebody_may_be() {
        let now = stored().encode(11, MemberId(1));
        let older = [&OLDER_MAGIC[..], &now[8..STORED_BYTES - 8 - 9]].concat();
        let older = [&older[..], &checksum(older.iter().copied()).to_le_bytes()].concat();
        let last = LastOffice { term: 7, is_closed: false };
        assert_eq!(Stored::decode(&older, 11, MemberId(1)), Some(Stored { last, ..stored() }));
    }

    #[test]
    fn every_flipped_bit_every_cut_and_every_mix_up_is_found() {
        let good = stored().encode(11, MemberId(1));
        for bit in 0..STORED_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stored::decode(&bad, 11, MemberId(1)), None, "bit {bit}");
        }
        for len in 0..STORED_BYTES {
            assert_eq!(Stored::decode(&good[..len], 11, MemberId(1)), None);
        }
        assert_eq!(Stored::decode(&good, 12, MemberId(1)), None, "another group's");
        assert_eq!(Stored::decode(&good, 11, MemberId(2)), None, "another member's");
    }

    #[test]
    fn the_token_of_a_position_outweighs_its_index() {
        assert!(Position { token: 2, index: 7 } > Position { token: 1, index: 10 });
        assert!(Position { token: 2, index: 8 } > Position { token: 2, index: 7 });
    }
}
