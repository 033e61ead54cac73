//! Feeds the readers of keys what anybody may have put into a line: Go's candidates, and people
//! with `etcdctl`.

use incumbent_store::{EntryId, Incarnation, Token};
use incumbent_testkit::fuzz::{Rng, fuzz};

use crate::keys::{Owner, id_of, lease_of, parse_id};

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
