//! Feeds the readers of keys what anybody may have put into a line: Go's candidates, and people
//! with `etcdctl`.

use incumbent_store::{EntryId, Incarnation, Merit, Nonce, Token};
use incumbent_testkit::fuzz::{Rng, fuzz};

use crate::keys::{Owner, id_of, lease_of, parse_id};
use crate::rpc::KeyValue;
use crate::txn::{encode_beside, read_beside};

#[test]
fn fuzz_a_key_that_says_whose_it_is_is_written_as_it_was_read() {
    let names = ["node-1", "", "a.b", "ü", "100%", "\n/"];
    let good = |rng: &mut Rng| {
        let name = names[rng.below(names.len() as u64) as usize];
        let incarnation = Incarnation::from_bits(rng.next_u64().into());
        Owner { lease: rng.next_u64() as i64, incarnation, name: name.into() }.suffix()
    };
    fuzz(good, |suffix| {
        let token = Token::new(7).unwrap();
        assert_eq!(parse_id(&id_of(suffix, token)), Some((suffix.to_vec(), token)), "an id gives back its key");
        let _ = std::str::from_utf8(suffix).map(|text| parse_id(&EntryId::new(text)));
        let owner = Owner::read(suffix);
        if let Some(owner) = &owner {
            assert_eq!(owner.suffix(), suffix);
            assert_eq!(lease_of(suffix), Some(owner.lease));
        }
        owner.is_some()
    });
}

/// The words beside an entry: what was said before it was made is of another one, and of damaged
/// words nothing is believed but the readiness that stands in front of them.
#[test]
fn fuzz_what_is_said_beside_an_entry_is_read_as_it_was_said_and_of_that_entry_alone() {
    let key = b"ready";
    let good = |rng: &mut Rng| {
        let merit = Merit::new(rng.below(2) == 0, rng.below(9) as i32 - 4).gave_way(rng.below(2) == 0);
        let ready = (rng.below(2) == 0).then(|| Nonce(rng.next_u64()));
        encode_beside(ready, merit).unwrap_or_default().into_bytes()
    };
    fuzz(good, |value| {
        let entry = KeyValue { create_revision: 7, ..KeyValue::default() };
        let beside =
            |mod_revision| [KeyValue { key: key.to_vec(), mod_revision, value: value.to_vec(), ..entry.clone() }];
        let (ready, merit) = read_beside(key, &entry, &beside(7));
        assert_eq!(read_beside(key, &entry, &beside(6)), (None, Merit::default()), "it is of an earlier entry");
        assert_eq!(read_beside(b"other", &entry, &beside(7)), (None, Merit::default()));
        let text = std::str::from_utf8(value).unwrap_or_default();
        if let Some(Nonce(nonce)) = ready {
            assert!(text.contains(&nonce.to_string()), "{text:?}");
        }
        assert!(!merit.unwell || text.contains("unwell"), "{text:?}");
        assert!(!merit.gave_way || text.contains("gave-way"), "{text:?}");
        assert!(merit.priority == 0 || text.contains("priority="), "{text:?}");
        ready.is_some() || merit != Merit::default()
    });
}
