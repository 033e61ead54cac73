//! All that is said on a connection, as bytes: the algorithms' frames, the founding of a group,
//! questions of those who are not members, and signs of life. Whatever comes in, decoding ends with
//! a packet or a reason.
//!
//! A packet is `channel u8, contents`. Reading is strict: there is one way to write a packet, and
//! only that is read.

use incumbent_core::binary::{ReadError, Reader, Writer};
use incumbent_core::peers::consensus::{Message, PeerRole};
use incumbent_core::peers::wire::{Body, Frame, MAX_FRAME_BYTES, WireError};
use incumbent_core::peers::{Abstention, MAX_MEMBERS, MemberId, RankMessage, bully, ring};
use incumbent_core::{MAX_VALUE_BYTES, Nonce, StoreId, Token};

use crate::config::Algorithm;
use crate::founding::{Charter, DiskId, DiskReport, Progress};
use crate::status::{Answer, LeaderView, Query, Refused, Status};

/// The longest packet that a member reads: a frame, and its channel.
pub(crate) const MAX_PACKET_BYTES: usize = 1 + MAX_FRAME_BYTES;
/// The longest answer to a question: two values, and what stands around them.
pub(crate) const MAX_ANSWER_BYTES: usize = 2 * MAX_VALUE_BYTES + 512;
const MAX_IDENTITY_BYTES: usize = 64;

/// What is said on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    /// A message of the algorithm.
    Peer(Frame),
    /// Among consensus members: what is on my disk, and do you agree to found a group?
    Founding(DiskReport),
    /// Someone who is not a member wants something.
    Query(Nonce, Query),
    /// What it gets.
    Answer(Nonce, Answer),
    /// Are you there?
    Ping(u64),
    /// I am.
    Pong(u64),
}

const PEER: u8 = 0;
const FOUNDING: u8 = 1;
const QUERY: u8 = 2;
const ANSWER: u8 = 3;
const PING: u8 = 4;
const PONG: u8 = 5;

impl Packet {
    pub(crate) fn encode(&self) -> Result<Vec<u8>, WireError> {
        let mut out = Writer::with_capacity(96);
        match self {
            Packet::Peer(frame) => out.u8(PEER).bytes(&frame.encode()?),
            Packet::Founding(report) => write_report(out.u8(FOUNDING), report)?,
            Packet::Query(nonce, query) => write_query(out.u8(QUERY).u64(nonce.0), query),
            Packet::Answer(nonce, answer) => write_answer(out.u8(ANSWER).u64(nonce.0), answer)?,
            Packet::Ping(number) => out.u8(PING).u64(*number),
            Packet::Pong(number) => out.u8(PONG).u64(*number),
        };
        Ok(out.into_bytes())
    }

    /// Reads a packet for the group with this fingerprint.
    pub(crate) fn decode(bytes: &[u8], group: u64) -> Result<Packet, WireError> {
        if bytes.len() > MAX_ANSWER_BYTES {
            return Err(WireError::TooLong { bytes: bytes.len() });
        }
        let mut reader = Reader::new(bytes);
        let packet = match reader.u8()? {
            PEER => return Frame::decode(reader.rest(), group).map(Packet::Peer),
            FOUNDING => Packet::Founding(read_report(&mut reader)?),
            QUERY => Packet::Query(reader.nonce()?, read_query(&mut reader)?),
            ANSWER => Packet::Answer(reader.nonce()?, read_answer(&mut reader)?),
            PING => Packet::Ping(reader.u64()?),
            PONG => Packet::Pong(reader.u64()?),
            kind => return Err(WireError::Kind { kind }),
        };
        reader.end()?;
        Ok(packet)
    }

    /// What kind of message it is, in one word: one of [`KINDS`](crate::counters::KINDS).
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Packet::Peer(frame) => kind_of(&frame.body),
            Packet::Founding(_) => "founding",
            Packet::Query(..) => "query",
            Packet::Answer(..) => "answer",
            Packet::Ping(_) => "ping",
            Packet::Pong(_) => "pong",
        }
    }

    /// The packet in one line, for people.
    pub(crate) fn summary(&self) -> String {
        let kind = self.kind();
        match self {
            Packet::Peer(frame) => summary_of(kind, &frame.body),
            Packet::Founding(report) => format!("{kind} {}", report.progress.name()),
            Packet::Query(_, query) => format!("{kind} {query:?}").to_lowercase(),
            Packet::Answer(_, Answer::Status(_)) => format!("{kind} status"),
            Packet::Answer(_, Answer::Accepted) => format!("{kind} accepted"),
            Packet::Answer(_, Answer::Refused(why)) => format!("{kind} refused: {why}"),
            Packet::Ping(_) | Packet::Pong(_) => kind.to_owned(),
        }
    }
}

fn kind_of(body: &Body) -> &'static str {
    match body {
        Body::Consensus(message) => match message {
            Message::PreVote { .. } => "pre-vote",
            Message::PreVoted { .. } => "pre-voted",
            Message::Vote { .. } => "vote",
            Message::Voted { .. } => "voted",
            Message::Heartbeat { .. } => "heartbeat",
            Message::Ack { .. } => "ack",
            Message::Stale { .. } => "stale",
            Message::Closed { .. } => "closed",
            Message::TimeoutNow { .. } => "timeout-now",
            Message::AskTerm { .. } => "ask-term",
            Message::TellTerm { .. } => "tell-term",
            Message::LostToo { .. } => "lost-too",
        },
        Body::Bully(bully::Message::Election) | Body::Ring(ring::Message::Election { .. }) => "election",
        Body::Bully(bully::Message::Alive) => "alive",
        Body::Ring(ring::Message::Passed { .. }) => "passed",
        Body::Bully(bully::Message::Coordinator) | Body::Ring(ring::Message::Coordinator { .. }) => "coordinator",
        Body::Bully(bully::Message::Rank(message)) | Body::Ring(ring::Message::Rank(message)) => match message {
            RankMessage::Beat { .. } => "beat",
            RankMessage::Heard { .. } => "heard",
            RankMessage::Leaving { .. } => "leaving",
            RankMessage::Left => "left",
        },
    }
}

fn summary_of(kind: &str, body: &Body) -> String {
    let answer = |granted: &bool| if *granted { "yes" } else { "no" };
    let list = |members: &[MemberId]| members.iter().map(MemberId::to_string).collect::<Vec<_>>().join(",");
    match body {
        Body::Consensus(message) => match message {
            Message::PreVote { term, .. } => format!("{kind} term={term}"),
            Message::PreVoted { term, granted, .. } => format!("{kind} {} (knows term {term})", answer(granted)),
            Message::Vote { term, forfeited: Some(forfeited), .. } => {
                format!("{kind} term={term} (term {forfeited} is forfeited)")
            }
            Message::Vote { term, .. } => format!("{kind} term={term}"),
            Message::Voted { term, granted, .. } => format!("{kind} {} term={term}", answer(granted)),
            Message::Heartbeat { term, value: Some(value), .. } => {
                format!("{kind} term={term} value of {} bytes", value.len())
            }
            Message::Heartbeat { term, .. } | Message::Ack { term, .. } => format!("{kind} term={term}"),
            Message::Stale { term } | Message::Closed { term } | Message::TimeoutNow { term } => {
                format!("{kind} term={term}")
            }
            Message::AskTerm { .. } | Message::LostToo { .. } => kind.to_owned(),
            Message::TellTerm { term, .. } => format!("{kind} term={term}"),
        },
        Body::Ring(ring::Message::Election { seen, best, .. }) => {
            format!("{kind} [{}] best={}", list(seen), best.map_or("none".to_owned(), |best| best.to_string()))
        }
        Body::Ring(ring::Message::Coordinator { leader, seen, .. }) => format!("{kind} {leader} [{}]", list(seen)),
        Body::Bully(_) | Body::Ring(_) => kind.to_owned(),
    }
}

fn write_report<'w>(out: &'w mut Writer, report: &DiskReport) -> Result<&'w mut Writer, WireError> {
    out.flag(report.asks).bytes(&report.disk.0);
    match &report.progress {
        Progress::Blank => Ok(out.u8(0)),
        Progress::Accepted(charter) => write_charter(out.u8(1), charter),
        Progress::Admitted(charter) => write_charter(out.u8(2), charter),
        Progress::Lost => Ok(out.u8(3)),
    }
}

fn write_charter<'w>(out: &'w mut Writer, charter: &Charter) -> Result<&'w mut Writer, WireError> {
    if !(1..=MAX_MEMBERS).contains(&charter.0.len()) {
        return Err(WireError::OutOfBounds);
    }
    Ok(charter.write(out))
}

fn write_query<'w>(out: &'w mut Writer, query: &Query) -> &'w mut Writer {
    match query {
        Query::Status => out.u8(0),
        Query::Resign => out.u8(1),
        Query::Transfer(heir) => out.u8(2).member(*heir),
        Query::Found => out.u8(3),
        Query::Readmit => out.u8(4),
    }
}

fn write_answer<'w>(out: &'w mut Writer, answer: &Answer) -> Result<&'w mut Writer, WireError> {
    match answer {
        Answer::Accepted => Ok(out.u8(0)),
        Answer::Refused(why) => Ok(out.u8(1).u8(*why as u8)),
        Answer::Status(status) => write_status(out.u8(2), status),
    }
}

fn write_status<'w>(out: &'w mut Writer, status: &Status) -> Result<&'w mut Writer, WireError> {
    out.member(status.member);
    out.u8(match status.algorithm {
        Algorithm::Bully => 0,
        Algorithm::Ring => 1,
        Algorithm::Consensus => 2,
    });
    out.u8(ROLES.iter().position(|role| *role == status.role).unwrap_or(0) as u8);
    out.u64(status.term).u64(status.led_term).flag(status.leader.is_some());
    if let Some(leader) = &status.leader {
        out.member(leader.member).u64(leader.term.map_or(0, Token::get)).value(&leader.value)?;
    }
    out.flag(status.in_office).flag(status.stands).flag(status.forming);
    let reason = |why: Abstention| ABSTENTIONS.iter().position(|known| *known == why).map_or(0, |at| at as u8 + 1);
    out.u8(status.not_voting.map_or(0, reason));
    out.u8(status.waits_for.len().min(MAX_MEMBERS) as u8);
    let waits_for = status.waits_for.iter().take(MAX_MEMBERS);
    waits_for.fold(&mut *out, |out, member| out.member(*member)).value(&status.value)?;
    let identity = status.identity.as_ref().map_or("", StoreId::as_str);
    if identity.len() > MAX_IDENTITY_BYTES {
        return Err(WireError::OutOfBounds);
    }
    Ok(out.u8(identity.len() as u8).bytes(identity.as_bytes()))
}

/// Roles by their number on the wire.
const ROLES: [PeerRole; 6] =
    [PeerRole::Follower, PeerRole::Rejoining, PeerRole::Sounding, PeerRole::Candidate, PeerRole::Leader, PeerRole::Out];
/// Reasons by their number on the wire, less one.
const ABSTENTIONS: [Abstention; 4] =
    [Abstention::StateLost, Abstention::StateLostAlone, Abstention::Restarted, Abstention::CannotPersist];

fn read_report(reader: &mut Reader<'_>) -> Result<DiskReport, WireError> {
    let (asks, disk) = (reader.flag()?, DiskId(reader.array()?));
    let progress = match reader.u8()? {
        0 => Progress::Blank,
        1 => Progress::Accepted(Charter::read(reader)?),
        2 => Progress::Admitted(Charter::read(reader)?),
        3 => Progress::Lost,
        _ => return Err(WireError::OutOfBounds),
    };
    Ok(DiskReport { asks, disk, progress })
}

fn read_query(reader: &mut Reader<'_>) -> Result<Query, WireError> {
    match reader.u8()? {
        0 => Ok(Query::Status),
        1 => Ok(Query::Resign),
        2 => Ok(Query::Transfer(reader.member()?)),
        3 => Ok(Query::Found),
        4 => Ok(Query::Readmit),
        kind => Err(WireError::Kind { kind }),
    }
}

fn read_answer(reader: &mut Reader<'_>) -> Result<Answer, WireError> {
    match reader.u8()? {
        0 => Ok(Answer::Accepted),
        1 => {
            let number = usize::from(reader.u8()?);
            Refused::ALL.get(number).copied().map(Answer::Refused).ok_or(WireError::OutOfBounds)
        }
        2 => read_status(reader).map(Box::new).map(Answer::Status),
        kind => Err(WireError::Kind { kind }),
    }
}

fn read_status(reader: &mut Reader<'_>) -> Result<Status, WireError> {
    let member = reader.member()?;
    let algorithm = match reader.u8()? {
        0 => Algorithm::Bully,
        1 => Algorithm::Ring,
        2 => Algorithm::Consensus,
        _ => return Err(WireError::OutOfBounds),
    };
    let role = *ROLES.get(usize::from(reader.u8()?)).ok_or(WireError::OutOfBounds)?;
    let [term, led_term] = [reader.term_or_zero()?, reader.term_or_zero()?];
    let leader = reader.option(read_leader)?;
    let [in_office, stands, forming] = [reader.flag()?, reader.flag()?, reader.flag()?];
    let not_voting = match usize::from(reader.u8()?) {
        0 => None,
        number => Some(*ABSTENTIONS.get(number - 1).ok_or(WireError::OutOfBounds)?),
    };
    let waits_for = match usize::from(reader.u8()?) {
        len if len > MAX_MEMBERS => return Err(WireError::OutOfBounds),
        len => (0..len).map(|_| reader.member()).collect::<Result<_, _>>()?,
    };
    let value = reader.value()?;
    let len = usize::from(reader.u8()?);
    if len > MAX_IDENTITY_BYTES {
        return Err(WireError::OutOfBounds);
    }
    let identity = str::from_utf8(reader.bytes(len)?).map_err(|_| WireError::OutOfBounds)?;
    let identity = (!identity.is_empty()).then(|| StoreId::new(identity));
    Ok(Status {
        member,
        algorithm,
        role,
        term,
        led_term,
        leader,
        in_office,
        stands,
        not_voting,
        forming,
        waits_for,
        value,
        identity,
    })
}

fn read_leader(reader: &mut Reader<'_>) -> Result<LeaderView, ReadError> {
    Ok(LeaderView { member: reader.member()?, term: Token::new(reader.term_or_zero()?), value: reader.value()? })
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use incumbent_core::Rng;
    use incumbent_core::peers::consensus::{LastOffice, Position};

    use super::*;
    use crate::counters::KINDS;

    pub(crate) const GROUP: u64 = 0x0123_4567_89ab_cdef;

    fn flip(rng: &mut Rng) -> bool {
        rng.below(2) == 0
    }

    fn member(rng: &mut Rng) -> MemberId {
        MemberId(rng.next_u64() as u16)
    }

    fn value(rng: &mut Rng) -> Bytes {
        let len = [0, 1, 40, if rng.below(50) == 0 { MAX_VALUE_BYTES } else { 7 }][rng.below(4) as usize];
        Bytes::from(vec![rng.next_u64() as u8; len])
    }

    fn charter(rng: &mut Rng) -> Charter {
        Charter((0..=rng.below(16)).map(|_| (member(rng), disk(rng))).collect())
    }

    fn disk(rng: &mut Rng) -> DiskId {
        DiskId(std::array::from_fn(|_| rng.next_u64() as u8))
    }

    fn token(rng: &mut Rng) -> Token {
        Token::new(1 + rng.below(Token::MAX)).unwrap()
    }

    fn rank_message(rng: &mut Rng) -> RankMessage {
        match rng.below(4) {
            0 => {
                let value = flip(rng).then(|| value(rng));
                RankMessage::Beat { echo: rng.next_u64(), version: rng.next_u64(), value, grace: rng.next_u64() }
            }
            1 => RankMessage::Heard { echo: rng.next_u64(), version: rng.next_u64() },
            2 => RankMessage::Leaving { grace: rng.next_u64() },
            _ => RankMessage::Left,
        }
    }

    fn last_office(rng: &mut Rng) -> LastOffice {
        LastOffice { term: rng.below(100), is_closed: flip(rng) }
    }

    fn consensus(rng: &mut Rng) -> Message {
        let position = Position { token: rng.below(100), index: rng.next_u64() };
        match rng.below(12) {
            0 => Message::PreVote { term: token(rng), round: rng.next_u64(), position },
            1 => Message::PreVoted { round: rng.next_u64(), term: rng.below(100), granted: flip(rng) },
            2 => {
                let forfeited = flip(rng).then(|| token(rng));
                Message::Vote { term: token(rng), position, forfeited }
            }
            3 => Message::Voted { term: token(rng), granted: flip(rng), last: last_office(rng) },
            4 => Message::Heartbeat {
                term: token(rng),
                echo: rng.next_u64(),
                in_office: flip(rng),
                version: rng.next_u64(),
                value: flip(rng).then(|| value(rng)),
            },
            5 => {
                let [echo, promise, version] = std::array::from_fn(|_| rng.next_u64());
                Message::Ack { term: token(rng), echo, promise, position, version, stands: flip(rng) }
            }
            6 => Message::Stale { term: token(rng) },
            7 => Message::TimeoutNow { term: token(rng) },
            8 => Message::AskTerm { nonce: rng.nonce() },
            9 => Message::LostToo { nonce: rng.nonce() },
            10 => Message::Closed { term: token(rng) },
            _ => Message::TellTerm { nonce: rng.nonce(), term: rng.below(100), position, last: last_office(rng) },
        }
    }

    fn body(rng: &mut Rng) -> Body {
        let seen = |rng: &mut Rng| (0..rng.below(17)).map(|_| member(rng)).collect();
        match rng.below(8) {
            0 => Body::Bully(bully::Message::Election),
            1 => Body::Bully(bully::Message::Alive),
            2 => Body::Bully(bully::Message::Coordinator),
            3 => Body::Bully(bully::Message::Rank(rank_message(rng))),
            4 => {
                let best = flip(rng).then(|| member(rng));
                Body::Ring(ring::Message::Election { hop: rng.next_u64(), starter: member(rng), seen: seen(rng), best })
            }
            5 => Body::Ring(ring::Message::Coordinator { hop: rng.next_u64(), leader: member(rng), seen: seen(rng) }),
            6 => Body::Ring(match rng.below(2) {
                0 => ring::Message::Passed { hop: rng.next_u64() },
                _ => ring::Message::Rank(rank_message(rng)),
            }),
            _ => Body::Consensus(consensus(rng)),
        }
    }

    fn status(rng: &mut Rng) -> Status {
        let leader =
            |rng: &mut Rng| LeaderView { member: member(rng), term: flip(rng).then(|| token(rng)), value: value(rng) };
        Status {
            member: member(rng),
            algorithm: [Algorithm::Bully, Algorithm::Ring, Algorithm::Consensus][rng.below(3) as usize],
            role: ROLES[rng.below(6) as usize],
            term: rng.below(Token::MAX),
            led_term: rng.below(Token::MAX),
            leader: flip(rng).then(|| leader(rng)),
            in_office: flip(rng),
            stands: flip(rng),
            not_voting: flip(rng).then(|| ABSTENTIONS[rng.below(4) as usize]),
            forming: flip(rng),
            waits_for: (0..rng.below(5)).map(|_| member(rng)).collect(),
            value: value(rng),
            identity: flip(rng).then(|| charter(rng).identity(GROUP)),
        }
    }

    /// Any packet.
    pub(crate) fn packet(rng: &mut Rng) -> Packet {
        match rng.below(9) {
            0..4 => Packet::Peer(Frame { group: GROUP, from: member(rng), body: body(rng) }),
            4 => Packet::Founding(DiskReport {
                asks: flip(rng),
                disk: disk(rng),
                progress: match rng.below(4) {
                    0 => Progress::Blank,
                    1 => Progress::Accepted(charter(rng)),
                    2 => Progress::Admitted(charter(rng)),
                    _ => Progress::Lost,
                },
            }),
            5 => Packet::Query(
                rng.nonce(),
                match rng.below(5) {
                    0 => Query::Status,
                    1 => Query::Resign,
                    2 => Query::Found,
                    3 => Query::Readmit,
                    _ => Query::Transfer(member(rng)),
                },
            ),
            6 => Packet::Answer(
                rng.nonce(),
                match rng.below(3) {
                    0 => Answer::Accepted,
                    1 => Answer::Refused(Refused::ALL[rng.below(Refused::ALL.len() as u64) as usize]),
                    _ => Answer::Status(Box::new(status(rng))),
                },
            ),
            7 => Packet::Ping(rng.next_u64()),
            _ => Packet::Pong(rng.next_u64()),
        }
    }

    #[test]
    fn every_packet_is_read_back_as_it_was_written_and_keeps_to_its_bound() {
        let mut rng = Rng::from_number(1);
        for _ in 0..20_000 {
            let packet = packet(&mut rng);
            let bytes = packet.encode().unwrap();
            let bound = if matches!(packet, Packet::Answer(..)) { MAX_ANSWER_BYTES } else { MAX_PACKET_BYTES };
            assert!(bytes.len() <= bound);
            assert_eq!(Packet::decode(&bytes, GROUP), Ok(packet));
        }
    }

    #[test]
    fn every_kind_is_counted_and_every_summary_begins_with_it() {
        let mut rng = Rng::from_number(2);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let packet = packet(&mut rng);
            assert!(packet.summary().starts_with(packet.kind()), "{packet:?}");
            seen.insert(packet.kind());
        }
        assert_eq!(seen.len(), KINDS.len());
        assert!(KINDS.iter().all(|kind| seen.contains(kind)));
    }

    #[test]
    fn a_packet_that_is_cut_or_goes_on_is_refused() {
        let mut rng = Rng::from_number(3);
        for _ in 0..300 {
            let mut bytes = packet(&mut rng).encode().unwrap();
            bytes.truncate(2_000);
            let cut = rng.below(bytes.len() as u64) as usize;
            assert!(Packet::decode(&bytes[..cut], GROUP).is_err());
            bytes.push(0);
            assert!(Packet::decode(&bytes, GROUP).is_err());
        }
    }
}
