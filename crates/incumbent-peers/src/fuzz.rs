//! Feeds the decoders what no honest member would send: random bytes, and good bytes that were changed, cut, joined and
//! repeated. Nothing may panic, and whatever is read must be written back as it was.
//!
//! A bounded run belongs to the tests. `INCUMBENT_FUZZ_SECONDS=600 cargo test -p incumbent-peers --lib` goes on with new
//! seeds for so long, and prints the seed of what it finds.

use std::time::{Duration, Instant};

use incumbent_core::Rng;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::Stored;
use incumbent_core::peers::wire::Frame;
use tokio::io::AsyncWriteExt;

use crate::config::Algorithm;
use crate::link::channel::{Heard, LinkError, greet, welcome};
use crate::link::handshake::{Hello, Verdict, tests::key};
use crate::packet::tests::{GROUP, packet};
use crate::packet::{MAX_ANSWER_BYTES, MAX_PACKET_BYTES, Packet};

/// Inputs of one seed.
const BATCH: u64 = 5_000;
/// Seeds of a bounded run.
const SEEDS: u64 = 12;

/// Runs the seeds from 0 on: so many, or for as long as the environment says.
fn seeds() -> impl Iterator<Item = u64> {
    let seconds = std::env::var("INCUMBENT_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = until.map_or(0, |_| std::process::id().into());
    (first..).take_while(move |seed| match until {
        Some(until) => Instant::now() < until,
        None => *seed < SEEDS,
    })
}

/// Good bytes that something happened to, or no good bytes at all.
fn mutated(rng: &mut Rng, pool: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = match rng.below(8) {
        0 => (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(),
        1..4 if !pool.is_empty() => pool[rng.below(pool.len() as u64) as usize].clone(),
        _ => packet(rng).encode().unwrap(),
    };
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            3 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            4 => bytes.extend_from_within(at..),
            5 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => {
                let other = packet(rng).encode().unwrap();
                let from = rng.below(other.len() as u64) as usize;
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
    // What came far is worth changing further.
    if Packet::decode(&bytes, GROUP).is_ok() && bytes.len() < 500 {
        let place = rng.below(64) as usize;
        if pool.len() < 64 { pool.push(bytes.clone()) } else { pool[place] = bytes.clone() }
    }
    bytes
}

#[test]
fn fuzz_whatever_comes_in_is_a_packet_or_refused_and_a_packet_is_written_as_it_was_read() {
    let (mut read, mut refused) = (0_u64, 0_u64);
    for seed in seeds() {
        let mut rng = Rng::from_number(seed);
        let mut pool = Vec::new();
        for input in 0..BATCH {
            let bytes = mutated(&mut rng, &mut pool);
            match Packet::decode(&bytes, GROUP) {
                Ok(packet) => {
                    read += 1;
                    let again = packet.encode().unwrap();
                    assert_eq!(again, bytes, "seed {seed}, input {input}: {packet:?}");
                    assert!(!packet.summary().is_empty());
                }
                Err(_) => refused += 1,
            }
            let _ = Frame::decode(&bytes, GROUP).map(|frame| assert_eq!(frame.encode().unwrap(), bytes, "seed {seed}"));
            let _ = Stored::decode(&bytes, GROUP, MemberId(1));
        }
    }
    assert!(read > 1_000 && refused > 1_000, "{read} read, {refused} refused: one side is hardly tried");
}

#[test]
fn fuzz_greetings_are_read_or_refused_and_written_as_they_were_read() {
    for seed in seeds() {
        let mut rng = Rng::from_number(seed);
        for _ in 0..BATCH {
            let mut hello = Hello { group: rng.next_u64(), from: MemberId(1), to: MemberId(2) }.encode();
            let at = rng.below(hello.len() as u64) as usize;
            hello[at] = rng.next_u64() as u8;
            let _ = Hello::decode(&hello).map(|read| assert_eq!(read.encode(), hello));
            let mut verdict = Verdict::Fine.encode();
            let at = rng.below(verdict.len() as u64) as usize;
            verdict[at] = rng.below(8) as u8;
            if let Ok(read) = Verdict::decode(&verdict) {
                assert!(read == Verdict::Version || read.encode() == verdict, "{verdict:?}");
            }
        }
    }
}

/// A whole connection: what is changed on the way is never taken for what was said.
#[tokio::test]
async fn fuzz_a_stream_that_is_changed_on_the_way_yields_a_prefix_of_what_was_said() {
    let group = key("0123456789abcdef", "e", Algorithm::Consensus, "1=h:1,2=h:2");
    let (mut whole, mut cut) = (0, 0);
    for seed in seeds() {
        let mut rng = Rng::from_number(seed);
        for _ in 0..20 {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let (dialled, accepted) = tokio::join!(
                greet(Box::new(ours), &group, (MemberId(1), MemberId(2)), (GROUP, MAX_ANSWER_BYTES)),
                welcome(Box::new(theirs), &group, |_| Ok(()), (GROUP, MAX_PACKET_BYTES)),
            );
            let (mut dialled, (from, mut accepted)) = (dialled.unwrap(), accepted.unwrap());
            assert_eq!(from, MemberId(1));
            let said: Vec<Packet> = (0..5).map(|_| Packet::Ping(rng.next_u64())).collect();
            said.iter().for_each(|packet| {
                dialled.writer.push(packet);
            });
            let mut bytes = dialled.writer.take();
            let touched = rng.below(2) == 0;
            if touched {
                let at = rng.below(bytes.len() as u64) as usize;
                match rng.below(3) {
                    0 => bytes[at] ^= 1 << rng.below(8),
                    1 => bytes.truncate(at),
                    _ => bytes = [&bytes[at..], &bytes[..at]].concat(),
                }
            }
            let mut raw = dialled.writer.into_stream();
            raw.write_all(&bytes).await.unwrap();
            raw.shutdown().await.unwrap();
            let mut heard = Vec::new();
            loop {
                match accepted.reader.hear(Duration::from_secs(60)).await {
                    Ok(Heard::Packet(packet, _)) => heard.push(packet),
                    Ok(Heard::Unreadable) => panic!("seed {seed}: it decrypts, and yet cannot be read"),
                    Err(LinkError::Silent) => panic!("seed {seed}: it hangs"),
                    Err(_) => break,
                }
            }
            assert!(said.starts_with(&heard), "seed {seed}");
            assert!(touched || heard.len() == said.len(), "seed {seed}");
            if heard.len() == said.len() { whole += 1 } else { cut += 1 }
        }
    }
    assert!(whole > 10 && cut > 10);
}
