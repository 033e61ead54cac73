//! Feeds the readers of records what nobody of ours would have written: others can write to a
//! store, too. What is read comes back as it was when it is written down again.

use std::time::Duration;

use incumbent_core::{
    BenchOrder, Benched, Deposed, ElectionName, Ended, EntryId, Frozen, Handover, Heir, HeldBack, LossReason, Merit,
    Office, Order, Origin, Paused, Recovery, Refusal, Rng, StoreId, TermEnd, TermRecord, Terms, Token, Version,
};
use incumbent_testkit::fuzz::fuzz;

use super::{CandidateRecord, decode_office, encode_office};
use crate::fence::Mark;

fn text(rng: &mut Rng) -> String {
    let characters = ['a', 'Z', '0', ' ', '\n', '%', '/', 'ü', '\0', '\u{2028}', '\r'];
    (0..rng.below(12)).map(|_| characters[rng.below(characters.len() as u64) as usize]).collect()
}

fn maybe<T>(rng: &mut Rng, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    (rng.below(2) == 0).then(|| make(rng))
}

fn token(rng: &mut Rng) -> Token {
    let number = 1 + rng.next_u64() % 1_000_000;
    Token::new(number).unwrap()
}

fn office(rng: &mut Rng) -> Office {
    let heir = |rng: &mut Rng| Heir::new(rng.incarnation(), EntryId::new(text(rng).as_str()), token(rng));
    let handover = |rng: &mut Rng| {
        let within = Duration::from_millis(rng.below(100_000));
        let mut handover = Handover::new(token(rng), maybe(rng, heir), rng.nonce(), within);
        handover.refused = maybe(rng, |_| Refusal::HeirGone);
        let handover = match rng.below(3) {
            0 => handover.for_health(),
            1 => handover.for_bench(),
            _ => handover,
        };
        handover.ordered(order(rng))
    };
    let millis = |rng: &mut Rng| Duration::from_millis(rng.below(100_000));
    Office::default()
        .with_handover(maybe(rng, handover))
        .with_paused(maybe(rng, paused))
        .with_ended(maybe(rng, |rng| Ended::new(rng.nonce(), millis(rng)).ordered(order(rng))))
        .with_deposed(maybe(rng, |rng| Deposed::new(token(rng)).ordered(order(rng))))
        .with_frozen(maybe(rng, |rng| Frozen::new(rng.nonce(), maybe(rng, millis), order(rng))))
        .with_recovery(maybe(rng, |rng| Recovery::new(text(rng), text(rng), order(rng))))
        .with_benched((0..rng.below(3)).fold(Benched::default(), |benched, _| benched.with(bench_order(rng))))
        .with_held_back(maybe(rng, |rng| HeldBack::new(token(rng)).stamped(rng.below(3))))
        .with_terms((0..rng.below(4)).fold(Terms::default(), |terms, _| terms.with(term(rng))))
}

fn bench_order(rng: &mut Rng) -> BenchOrder {
    let lasts = maybe(rng, |rng| Duration::from_millis(rng.below(100_000)));
    BenchOrder::new(text(rng), rng.nonce(), lasts, order(rng)).vacating(rng.below(2) == 0)
}

fn term(rng: &mut Rng) -> TermRecord {
    let end = match rng.below(4) {
        0 => TermEnd::Open,
        1 => TermEnd::Closed { why: LossReason::Paused, order: order(rng), at_ms: rng.below(3) },
        2 => TermEnd::Died { at_ms: rng.below(3) },
        _ => TermEnd::Unknown,
    };
    let term = TermRecord::unknown(token(rng), maybe(rng, Rng::incarnation), text(rng).into());
    let origin = Origin::new(text(rng), text(rng), text(rng)).with_target(text(rng));
    term.of(origin).opened_at(rng.below(3)).ended(end)
}

fn paused(rng: &mut Rng) -> Paused {
    let paused = Paused::new(order(rng));
    if rng.below(2) == 0 { paused.until_leads(text(rng)) } else { paused }
}

fn order(rng: &mut Rng) -> Order {
    Order::new(text(rng), rng.below(3), text(rng))
}

#[test]
fn fuzz_what_is_read_of_an_office_record_comes_back() {
    let good = |rng: &mut Rng| encode_office(&office(rng));
    fuzz(good, |bytes| {
        let read = decode_office(bytes, Version(7));
        if let Some(office) = &read {
            assert_eq!(decode_office(&encode_office(office), Version(7)).as_ref(), Some(office));
        }
        read.is_some()
    });
}

#[test]
fn fuzz_what_is_read_of_a_candidate_comes_back() {
    let good = |rng: &mut Rng| {
        let name = text(rng).into();
        let (incarnation, ready) = (rng.incarnation(), maybe(rng, Rng::nonce));
        CandidateRecord { incarnation, name, ready, merit: Merit::new(rng.below(2) == 0, rng.below(3) as i32 - 1) }
            .encode()
    };
    fuzz(good, |bytes| {
        let read = CandidateRecord::decode(bytes);
        if let Some(record) = &read {
            assert_eq!(CandidateRecord::decode(&record.encode()).as_ref(), Some(record));
        }
        read.is_some()
    });
}

#[test]
fn fuzz_what_is_read_of_a_mark_comes_back_and_is_of_its_election() {
    let jobs = ElectionName::new("jobs").unwrap();
    let other = ElectionName::new("other").unwrap();
    let good = |rng: &mut Rng| Mark { store: StoreId::new(text(rng)), token: maybe(rng, token) }.encode(&jobs);
    fuzz(good, |bytes| {
        let read = Mark::decode(bytes, &jobs, "here").ok();
        if let Some(mark) = &read {
            assert_eq!(Mark::decode(&mark.encode(&jobs), &jobs, "here").as_ref().ok(), Some(mark));
            assert!(Mark::decode(bytes, &other, "here").is_err());
        }
        read.is_some()
    });
}
