//! Feeds the readers of entries, places and marks what anybody with `redis-cli` may have put there,
//! and that of `INFO` what no server would say.

use std::collections::HashMap;

use incumbent_store::{Incarnation, Merit, NewEntry, Nonce, Publication, Token};
use incumbent_testkit::fuzz::{Rng, fuzz};

use crate::entry::{encode_new, encode_said, parse};
use crate::fence::{self, decode};
use crate::info::{Server, field};
use crate::keys::{digits, parse_place, ttl_digits};
use crate::redlock::Lock;

fn session(rng: &mut Rng) -> String {
    format!("{}{}", digits(rng.below(1 << 53)), ttl_digits(rng.below(100_000)))
}

#[test]
fn fuzz_an_entry_is_read_whole_or_not_at_all() {
    let token = digits(7);
    let good = |rng: &mut Rng| {
        let incarnation = Incarnation::from_bits(rng.next_u64().into());
        let owner = format!("{}{}{incarnation}", digits(rng.below(1 << 53)), session(rng));
        let ready = (rng.below(2) == 0).then(|| Nonce(rng.next_u64()));
        let new =
            NewEntry::new(incarnation, "node-1", "value").merit(Merit::new(rng.below(2) == 0, rng.below(3) as i32 - 1));
        let said = Publication::new("value").ready(ready);
        let kept =
            if rng.below(2) == 0 { encode_new(&new) } else { [&b"0006node-1"[..], &encode_said(&said)].concat() };
        [owner.as_bytes(), &kept].concat()
    };
    fuzz(good, |kept| {
        let entry = parse(token.as_bytes(), kept);
        if let Some(entry) = &entry {
            assert!(kept.ends_with(&entry.value) && entry.token.get() == 7);
            assert_eq!(parse(b"7", kept), None, "an entry has one name");
        }
        entry.is_some()
    });
}

#[test]
fn fuzz_a_lock_of_a_redlock_is_read_whole_or_not_at_all() {
    let good = |rng: &mut Rng| {
        let incarnation = Incarnation::from_bits(rng.next_u64().into());
        let token = digits(rng.below(3));
        let session = &format!("{:032x}", rng.next_u64())[..session(rng).len()];
        let new = NewEntry::new(incarnation, "node-1", "value");
        let lock = format!("{token}{}{session}{incarnation}", digits(rng.below(1 << 53)));
        [lock.as_bytes(), &encode_new(&new)].concat()
    };
    fuzz(good, |shown| {
        let lock = Lock::parse(shown);
        if let Some(lock) = &lock {
            let (session, token) = (lock.session.as_bytes(), lock.token().map_or(0, |token| token.get()));
            assert!(shown.starts_with(digits(token).as_bytes()), "{lock:?}");
            assert!(shown.windows(session.len()).any(|part| part == session), "{lock:?}");
            assert!(lock.entry.as_ref().is_none_or(|entry| entry.incarnation == Some(lock.incarnation)), "{lock:?}");
        }
        lock.is_some()
    });
}

#[test]
fn fuzz_a_place_is_read_whole_or_not_at_all() {
    let good = |rng: &mut Rng| {
        let incarnation = Incarnation::from_bits(rng.next_u64().into());
        let token = digits(1 + rng.below(1 << 52));
        format!("{}\0jobs/nightly\0{token}{incarnation}", session(rng)).into_bytes()
    };
    fuzz(good, |place| {
        let held = parse_place(place);
        if let Some(held) = &held {
            let text = std::str::from_utf8(place).unwrap();
            assert!(text.contains(held.election.as_str()) && text.contains(held.entry.as_str()));
        }
        held.is_some()
    });
}

#[test]
fn fuzz_a_mark_is_read_with_its_token_and_store_or_not_at_all() {
    let good = |rng: &mut Rng| {
        let token = fence::digits(Token::new(rng.below(3)));
        format!("{token}\nredis-{:x}\njobs/nightly", rng.next_u64()).into_bytes()
    };
    fuzz(good, |kept| {
        let mark = std::str::from_utf8(kept).ok().and_then(decode);
        if let Some(mark) = &mark {
            let written = format!("{}\n{}", fence::digits(mark.token), mark.store.as_str());
            assert!(kept.starts_with(written.as_bytes()), "{mark:?}");
        }
        mark.is_some()
    });
}

/// A server of which something cannot be read is not believed to lose nothing.
#[test]
fn fuzz_what_a_server_says_of_itself_is_believed_as_a_whole_or_not_at_all() {
    let lines = ["maxmemory_policy:noeviction", "aof_enabled:1", "connected_slaves:0", "cluster_enabled:0"];
    let good = |rng: &mut Rng| {
        let mut lines = lines;
        lines.rotate_left(rng.below(4) as usize);
        (lines.join("\r\n") + "\r\n").into_bytes()
    };
    let always = HashMap::from([("appendfsync".to_owned(), "always".to_owned())]);
    fuzz(good, |info| {
        let info = String::from_utf8_lossy(info);
        let believed = Server::read(&info, Some(always.clone()), None).keeps_everything();
        if believed {
            let says =
                |name, value: &str| field(&info, name).is_some_and(|said| said.trim_start_matches(['+', '0']) == value);
            assert!(says("aof_enabled", "1") && says("connected_slaves", "") && says("cluster_enabled", ""), "{info}");
            assert!(!field(&info, "maxmemory_policy").unwrap().starts_with("allkeys"), "{info}");
        }
        believed
    });
}
