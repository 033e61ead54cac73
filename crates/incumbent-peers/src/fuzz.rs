//! Feeds the decoders what no honest member would send. Nothing may panic, and whatever is read
//! must be written back as it was.

use std::time::Duration;

use incumbent_core::Rng;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::Stored;
use incumbent_core::peers::wire::Frame;
use incumbent_testkit::fuzz::{fuzz, seeds};
use tokio::io::AsyncWriteExt;

use crate::config::Algorithm;
use crate::link::channel::{Heard, LinkError, greet, welcome};
use crate::link::handshake::{Hello, Verdict, tests::key};
use crate::packet::tests::{GROUP, packet};
use crate::packet::{MAX_ANSWER_BYTES, MAX_PACKET_BYTES, Packet};

/// Greetings of one seed.
const GREETINGS: u64 = 5_000;

#[test]
fn fuzz_whatever_comes_in_is_a_packet_or_refused_and_a_packet_is_written_as_it_was_read() {
    let good = |rng: &mut Rng| packet(rng).encode().unwrap();
    fuzz(good, |bytes| {
        let _ = Frame::decode(bytes, GROUP).map(|frame| assert_eq!(frame.encode().unwrap(), bytes));
        let _ = Stored::decode(bytes, GROUP, MemberId(1));
        let packet = Packet::decode(bytes, GROUP);
        if let Ok(packet) = &packet {
            assert_eq!(packet.encode().unwrap(), bytes, "{packet:?}");
            assert!(!packet.summary().is_empty());
        }
        packet.is_ok()
    });
}

#[test]
fn fuzz_greetings_are_read_or_refused_and_written_as_they_were_read() {
    for seed in seeds() {
        let mut rng = Rng::from_number(seed);
        for _ in 0..GREETINGS {
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
