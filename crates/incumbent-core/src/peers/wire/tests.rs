use super::*;
use crate::peers::consensus::LastOffice;
use crate::rng::Rng;

const GROUP: u64 = 0x1234_5678_9abc_def0;

fn token(rng: &mut Rng) -> Token {
    Token::new(1 + rng.below(Token::MAX)).unwrap()
}

fn position(rng: &mut Rng) -> Position {
    Position { token: rng.below(Token::MAX + 1), index: rng.next_u64() }
}

fn last_office(rng: &mut Rng) -> LastOffice {
    LastOffice { term: rng.below(Token::MAX + 1), is_closed: flip(rng) }
}

fn member(rng: &mut Rng) -> MemberId {
    MemberId(rng.next_u64() as u16)
}

fn value(rng: &mut Rng) -> Bytes {
    let len = [0, 1, 100, MAX_VALUE_BYTES][rng.below(4) as usize];
    Bytes::from(vec![rng.next_u64() as u8; len])
}

fn flip(rng: &mut Rng) -> bool {
    rng.below(2) == 0
}

fn members(rng: &mut Rng) -> Vec<MemberId> {
    (0..rng.below(MAX_MEMBERS as u64 + 1)).map(|_| member(rng)).collect()
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

fn consensus_message(rng: &mut Rng) -> consensus::Message {
    use consensus::Message;
    match rng.below(12) {
        0 => Message::PreVote { term: token(rng), round: rng.next_u64(), position: position(rng) },
        1 => Message::PreVoted { round: rng.next_u64(), term: rng.below(Token::MAX + 1), granted: flip(rng) },
        2 => {
            let forfeited = flip(rng).then(|| token(rng));
            Message::Vote { term: token(rng), position: position(rng), forfeited }
        }
        3 => Message::Voted { term: token(rng), granted: flip(rng), last: last_office(rng) },
        4 => Message::Heartbeat {
            term: token(rng),
            echo: rng.next_u64(),
            in_office: flip(rng),
            version: rng.next_u64(),
            value: flip(rng).then(|| value(rng)),
        },
        5 => Message::Ack {
            term: token(rng),
            echo: rng.next_u64(),
            promise: rng.next_u64(),
            position: position(rng),
            version: rng.next_u64(),
            stands: flip(rng),
        },
        6 => Message::Stale { term: token(rng) },
        7 => Message::TimeoutNow { term: token(rng) },
        8 => Message::AskTerm { nonce: rng.nonce() },
        9 => Message::LostToo { nonce: rng.nonce() },
        10 => Message::Closed { term: token(rng) },
        _ => Message::TellTerm {
            nonce: rng.nonce(),
            term: rng.below(Token::MAX + 1),
            position: position(rng),
            last: last_office(rng),
        },
    }
}

fn body(rng: &mut Rng) -> Body {
    match rng.below(3) {
        0 => Body::Consensus(consensus_message(rng)),
        1 => Body::Bully(match rng.below(4) {
            0 => bully::Message::Election,
            1 => bully::Message::Alive,
            2 => bully::Message::Coordinator,
            _ => bully::Message::Rank(rank_message(rng)),
        }),
        _ => Body::Ring(match rng.below(4) {
            0 => {
                let best = flip(rng).then(|| member(rng));
                ring::Message::Election { hop: rng.next_u64(), starter: member(rng), seen: members(rng), best }
            }
            1 => ring::Message::Coordinator { hop: rng.next_u64(), leader: member(rng), seen: members(rng) },
            2 => ring::Message::Passed { hop: rng.next_u64() },
            _ => ring::Message::Rank(rank_message(rng)),
        }),
    }
}

fn frame(rng: &mut Rng) -> Frame {
    Frame { group: GROUP, from: member(rng), body: body(rng) }
}

#[test]
fn every_frame_is_read_back_as_it_was_written_and_keeps_to_the_bound() {
    let mut rng = Rng::from_number(1);
    for _ in 0..5_000 {
        let frame = frame(&mut rng);
        let bytes = frame.encode().unwrap();
        assert!(bytes.len() <= MAX_FRAME_BYTES);
        assert_eq!(Frame::decode(&bytes, GROUP), Ok(frame));
    }
}

#[test]
fn a_frame_that_is_cut_or_goes_on_is_refused() {
    let mut rng = Rng::from_number(2);
    for _ in 0..500 {
        let mut bytes = frame(&mut rng).encode().unwrap();
        let cut = rng.below(bytes.len() as u64) as usize;
        assert!(matches!(Frame::decode(&bytes[..cut], GROUP), Err(WireError::CutShort)), "cut at {cut}");
        if bytes.len() < MAX_FRAME_BYTES {
            bytes.push(0);
            assert_eq!(Frame::decode(&bytes, GROUP), Err(WireError::Trailing { bytes: 1 }));
        }
    }
}

#[test]
fn garbage_and_damage_end_with_a_frame_or_a_reason_and_never_otherwise() {
    let mut rng = Rng::from_number(3);
    let mut understood = 0;
    for round in 0..20_000 {
        let mut bytes = frame(&mut rng).encode().unwrap();
        bytes.truncate(300);
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        if round % 2 == 0 {
            bytes.iter_mut().skip(9).for_each(|byte| *byte = rng.next_u64() as u8);
        }
        if let Ok(frame) = Frame::decode(&bytes, GROUP) {
            understood += 1;
            assert_eq!(frame.encode().unwrap(), bytes, "one message has one form");
        }
    }
    assert!(understood > 100, "damage that still reads as a frame was met too: {understood}");
}

#[test]
fn lengths_that_lie_reserve_nothing_and_are_refused() {
    let value = Some(Bytes::from_static(b"v"));
    let term = Token::new(1).unwrap();
    let heartbeat = consensus::Message::Heartbeat { term, echo: 1, in_office: true, version: 1, value };
    let mut bytes = Frame { group: GROUP, from: MemberId(1), body: Body::Consensus(heartbeat) }.encode().unwrap();
    let at = bytes.len() - 5;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Frame::decode(&bytes, GROUP), Err(WireError::OutOfBounds));
    bytes[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
    assert_eq!(Frame::decode(&bytes, GROUP), Err(WireError::CutShort));
    let long = vec![0; MAX_FRAME_BYTES + 1];
    assert_eq!(Frame::decode(&long, GROUP), Err(WireError::TooLong { bytes: long.len() }));
}

#[test]
fn another_version_another_group_and_an_unknown_kind_are_told_apart() {
    let good = Frame { group: GROUP, from: MemberId(1), body: Body::Bully(bully::Message::Alive) }.encode().unwrap();
    assert_eq!(Frame::decode(&good, GROUP + 1), Err(WireError::OtherGroup));
    let mut newer = good.clone();
    newer[0] = VERSION + 1;
    assert_eq!(Frame::decode(&newer, GROUP), Err(WireError::Version { version: VERSION + 1 }));
    for kind in [0, 11, 12, 15, 31, 40, 63, 71, 255] {
        let mut unknown = good.clone();
        unknown[11] = kind;
        assert_eq!(Frame::decode(&unknown, GROUP), Err(WireError::Kind { kind }));
    }
}

#[test]
fn terms_beyond_the_largest_token_and_values_beyond_the_bound_are_refused() {
    let stale = consensus::Message::Stale { term: Token::new(1).unwrap() };
    let mut bytes = Frame { group: GROUP, from: MemberId(1), body: Body::Consensus(stale) }.encode().unwrap();
    for term in [0, Token::MAX + 1, u64::MAX] {
        bytes[12..20].copy_from_slice(&term.to_le_bytes());
        assert_eq!(Frame::decode(&bytes, GROUP), Err(WireError::OutOfBounds), "term {term}");
    }
    let beat =
        RankMessage::Beat { echo: 1, version: 1, value: Some(Bytes::from(vec![0; MAX_VALUE_BYTES + 1])), grace: 1 };
    let frame = Frame { group: GROUP, from: MemberId(1), body: Body::Bully(bully::Message::Rank(beat)) };
    assert_eq!(frame.encode(), Err(WireError::OutOfBounds));
}
