use tokio::io::{DuplexStream, duplex};

use super::*;
use crate::config::Algorithm;
use crate::link::handshake::tests::key;
use crate::packet::MAX_ANSWER_BYTES;

const ONE: MemberId = MemberId(1);
const TWO: MemberId = MemberId(2);
const SECRET: &str = "0123456789abcdef";
const MEMBERS: &str = "a=h:1,b=h:2";
const FRAMES: (u64, usize) = (0, MAX_ANSWER_BYTES);
const PATIENCE: Duration = Duration::from_secs(60);

fn group() -> GroupKey {
    key(SECRET, "e", Algorithm::Bully, MEMBERS)
}

/// Everything fits, so that nobody waits for the other end to read.
fn wire() -> (DuplexStream, DuplexStream) {
    duplex(1 << 20)
}

type Dialled = Result<Channel, LinkError>;
type Accepted = Result<(MemberId, Channel), LinkError>;

async fn meet(dialler: &GroupKey, acceptor: &GroupKey) -> (Dialled, Accepted) {
    let (ours, theirs) = wire();
    tokio::join!(
        greet(Box::new(ours), dialler, (ONE, TWO), FRAMES),
        welcome(Box::new(theirs), acceptor, |_| Ok(()), FRAMES),
    )
}

async fn connected() -> (Channel, Channel) {
    let (dialled, accepted) = meet(&group(), &group()).await;
    let (from, accepted) = accepted.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(from, ONE);
    (dialled.unwrap_or_else(|why| panic!("{why}")), accepted)
}

fn refused<T>(result: Result<T, LinkError>, why: RefusedFrame) -> bool {
    matches!(result, Err(LinkError::Refused(refused)) if refused == why)
}

/// Hands bytes to a channel as if they had come from the other end, whose writer is given up.
async fn arrives(from: Writer, to: &mut Reader, bytes: &[u8]) -> Result<Vec<u8>, LinkError> {
    let mut stream = from.into_stream();
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
    to.payload(MAX_ANSWER_BYTES).await.map(|(payload, _)| payload)
}

#[tokio::test]
async fn both_ends_hear_each_other_and_packets_of_every_length_arrive_whole() {
    let (mut dialled, mut accepted) = connected().await;
    for length in [
        0,
        1,
        MAX_PART_BYTES - 1,
        MAX_PART_BYTES,
        MAX_PART_BYTES + 1,
        2 * MAX_PART_BYTES - 1,
        2 * MAX_PART_BYTES,
        MAX_ANSWER_BYTES,
    ] {
        let payload: Vec<u8> = (0..length).map(|at| at as u8).collect();
        for _both_ways in 0..2 {
            let pushed = dialled.writer.push_raw(&payload);
            dialled.writer.flush(PATIENCE).await.unwrap();
            let (heard, on_wire) = accepted.reader.payload(MAX_ANSWER_BYTES).await.unwrap();
            assert!(heard == payload && on_wire == pushed, "{length} bytes");
            std::mem::swap(&mut dialled, &mut accepted);
        }
    }
    dialled.writer.push_raw(&[0; MAX_ANSWER_BYTES + 1]);
    dialled.writer.flush(PATIENCE).await.unwrap();
    assert!(refused(accepted.reader.payload(MAX_ANSWER_BYTES).await, RefusedFrame::TooLong));
}

#[tokio::test]
async fn what_is_said_cannot_be_read_on_the_way_and_is_written_in_another_way_each_time() {
    let said = b"10.0.0.7:5432";
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (mut dialled, _accepted) = connected().await;
        dialled.writer.push_raw(said);
        dialled.writer.push_raw(said);
        let bytes = dialled.writer.take();
        assert!(!bytes.windows(said.len()).any(|window| window == said));
        let (first, second) = bytes.split_at(bytes.len() / 2);
        seen.extend([first.to_vec(), second.to_vec()]);
    }
    let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(distinct.len(), 4, "neither connections nor places in the order share keystream");
}

#[tokio::test]
async fn only_those_who_know_the_secret_and_belong_to_the_same_group_are_proven() {
    let ours = group();
    for theirs in [
        key("another secret!!", "e", Algorithm::Bully, MEMBERS),
        key(SECRET, "f", Algorithm::Bully, MEMBERS),
        key(SECRET, "e", Algorithm::Ring, MEMBERS),
        key(SECRET, "e", Algorithm::Bully, "b=h:2,a=h:1"),
        key(SECRET, "e", Algorithm::Bully, "a=h:1,c=h:2"),
    ] {
        // Also one that says that it is of our group.
        let mut theirs = theirs;
        theirs.group = ours.group;
        for (dialler, acceptor) in [(&ours, &theirs), (&theirs, &ours)] {
            let (dialled, accepted) = meet(dialler, acceptor).await;
            assert!(matches!(dialled, Err(LinkError::Verdict(Verdict::Proof))));
            assert!(refused(accepted, RefusedFrame::Proof));
        }
    }
    let elsewhere = key(SECRET, "e", Algorithm::Bully, "a=x:1,b=y:2");
    let (dialled, accepted) = meet(&ours, &elsewhere).await;
    assert!(dialled.is_ok() && accepted.is_ok(), "addresses do not count");
}

#[tokio::test]
async fn a_dialler_is_told_why_it_is_refused_and_nothing_of_it_is_believed_that_was_changed() {
    for (why, verdict) in [
        (RefusedFrame::OtherGroup, Verdict::OtherGroup),
        (RefusedFrame::Stranger, Verdict::Stranger),
        (RefusedFrame::TooMany, Verdict::Full),
    ] {
        let (ours, theirs) = wire();
        let key = group();
        let (dialled, accepted) = tokio::join!(
            greet(Box::new(ours), &key, (ONE, TWO), FRAMES),
            welcome(Box::new(theirs), &key, |_| Err(why), FRAMES),
        );
        assert!(matches!(dialled, Err(LinkError::Verdict(told)) if told == verdict));
        assert!(refused(accepted, why));
    }
    // On the way, the greeting of the first member becomes one of the third.
    let (ours, mut way) = wire();
    let (mut further, theirs) = wire();
    let key = group();
    let change = async {
        let mut greeting = [0; HELLO_BYTES + MESSAGE_BYTES];
        way.read_exact(&mut greeting).await.unwrap();
        greeting[HELLO_BYTES - 4] = 3;
        further.write_all(&greeting).await.unwrap();
        tokio::io::copy_bidirectional(&mut way, &mut further).await
    };
    let meeting = async {
        tokio::join!(
            greet(Box::new(ours), &key, (ONE, TWO), FRAMES),
            welcome(Box::new(theirs), &key, |_| Ok(()), FRAMES),
        )
    };
    let (dialled, accepted) = tokio::select! { both = meeting => both, _ = change => panic!("it goes on") };
    assert!(dialled.is_err() && refused(accepted, RefusedFrame::Proof));
}

/// All that a dialler says on a connection, up to its first packet.
async fn recorded() -> Vec<u8> {
    let (ours, mut way) = wire();
    let (mut further, theirs) = wire();
    let key = group();
    let mut tape = Vec::new();
    let record = async {
        let (mut greeting, mut answer) = ([0; HELLO_BYTES + MESSAGE_BYTES], [0; VERDICT_BYTES + MESSAGE_BYTES]);
        way.read_exact(&mut greeting).await.unwrap();
        further.write_all(&greeting).await.unwrap();
        further.read_exact(&mut answer).await.unwrap();
        way.write_all(&answer).await.unwrap();
        let mut proof = [0; 2 + TAG_BYTES];
        way.read_exact(&mut proof).await.unwrap();
        further.write_all(&proof).await.unwrap();
        tape.extend(greeting);
        tape.extend(proof);
    };
    let (dialled, accepted, ()) = tokio::join!(
        greet(Box::new(ours), &key, (ONE, TWO), FRAMES),
        welcome(Box::new(theirs), &key, |_| Ok(()), FRAMES),
        record,
    );
    assert!(dialled.is_ok() && accepted.is_ok());
    tape
}

#[tokio::test]
async fn a_connection_that_is_played_again_is_never_proven() {
    let tape = recorded().await;
    let (mut ours, theirs) = wire();
    ours.write_all(&tape).await.unwrap();
    let again = welcome(Box::new(theirs), &group(), |_| Ok(()), FRAMES).await;
    assert!(refused(again, RefusedFrame::Proof));
    // The greeting alone is as good as new, and proves nothing.
    let (mut ours, theirs) = wire();
    ours.write_all(&tape[..HELLO_BYTES + MESSAGE_BYTES]).await.unwrap();
    let key = group();
    let mut waiting = Box::pin(welcome(Box::new(theirs), &key, |_| Ok(()), FRAMES));
    let answer = async {
        let mut answer = [0; VERDICT_BYTES + MESSAGE_BYTES];
        ours.read_exact(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::select! { answer = answer => answer, _ = &mut waiting => panic!("nothing is proven") };
    assert_eq!(answer[..VERDICT_BYTES], Verdict::Fine.encode());
    drop(ours);
    assert!(waiting.await.is_err());
}

#[tokio::test]
async fn what_a_dialler_says_is_of_no_use_when_it_is_sent_back() {
    let (ours, mut mirror) = wire();
    let reflect = async {
        let mut greeting = [0; HELLO_BYTES + MESSAGE_BYTES];
        mirror.read_exact(&mut greeting).await.unwrap();
        mirror.write_all(&Verdict::Fine.encode()).await.unwrap();
        mirror.write_all(&greeting[HELLO_BYTES..]).await.unwrap();
    };
    let key = group();
    let (dialled, ()) = tokio::join!(greet(Box::new(ours), &key, (ONE, TWO), FRAMES), reflect);
    assert!(refused(dialled, RefusedFrame::Proof));

    let (mut dialled, accepted) = connected().await;
    dialled.writer.push_raw(b"said");
    let bytes = dialled.writer.take();
    assert!(refused(arrives(accepted.writer, &mut dialled.reader, &bytes).await, RefusedFrame::Forged));
}

#[tokio::test]
async fn a_message_decrypts_once_in_its_place_unchanged_and_on_its_connection_only() {
    let said = |channel: &mut Channel, text: &[u8]| {
        channel.writer.push_raw(text);
        channel.writer.take()
    };
    let (mut dialled, mut accepted) = connected().await;
    let first = said(&mut dialled, b"first");
    assert_eq!(arrives(dialled.writer, &mut accepted.reader, &first).await.unwrap(), b"first");

    let (mut dialled, mut accepted) = connected().await;
    let first = said(&mut dialled, b"first");
    dialled.writer.stream.write_all(&first).await.unwrap();
    assert!(accepted.reader.payload(100).await.is_ok());
    assert!(refused(arrives(dialled.writer, &mut accepted.reader, &first).await, RefusedFrame::Forged), "repeated");

    let (mut dialled, mut accepted) = connected().await;
    let (_, second) = (said(&mut dialled, b"first"), said(&mut dialled, b"second"));
    let left_out = arrives(dialled.writer, &mut accepted.reader, &second).await;
    assert!(refused(left_out, RefusedFrame::Forged), "the first was left out");

    let (mut dialled, mut accepted) = connected().await;
    let mut changed = said(&mut dialled, b"first");
    changed[3] ^= 1;
    assert!(refused(arrives(dialled.writer, &mut accepted.reader, &changed).await, RefusedFrame::Forged), "changed");

    let ((mut one, _one), (two, mut accepted)) = (connected().await, connected().await);
    let elsewhere = said(&mut one, b"first");
    let crossed = arrives(two.writer, &mut accepted.reader, &elsewhere).await;
    assert!(refused(crossed, RefusedFrame::Forged), "said on another connection");

    let (mut dialled, mut accepted) = connected().await;
    let mut cut = said(&mut dialled, &[7; MAX_PART_BYTES + 5]);
    cut.drain(2 + MAX_MESSAGE_BYTES..);
    let rest = said(&mut dialled, b"next");
    let joined = arrives(dialled.writer, &mut accepted.reader, &[cut, rest].concat()).await;
    assert!(refused(joined, RefusedFrame::Forged), "the end of a long packet was exchanged");
}
