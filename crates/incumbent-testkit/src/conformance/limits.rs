//! Names and values: up to the stated limits everything is kept as it is, beyond them nothing is
//! written.

use bytes::Bytes;
use incumbent_store::{
    Cas, ElectionName, MAX_NAME_BYTES, MAX_VALUE_BYTES, NewEntry, Office, Paused, Publication, StoreError, Version,
};

use super::fixture::{Fixture, new_entry};
use super::harness::Harness;
use crate::candidates::held;

fn entry(name: &str, value: &Bytes) -> NewEntry {
    NewEntry::new(new_entry().incarnation, name, value.clone())
}

/// A clear error, and nothing in line.
pub async fn names_and_values_beyond_the_limits_are_refused<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let too_much = Bytes::from(vec![7; MAX_VALUE_BYTES + 1]);
    for entry in [
        entry("", &Bytes::new()),
        entry(&"x".repeat(MAX_NAME_BYTES + 1), &Bytes::new()),
        entry("two\nlines", &Bytes::new()),
        entry("node-1", &too_much),
    ] {
        let refused = participant.enlist_as(&fixture.election, &entry).await;
        assert!(matches!(refused, Err(StoreError::Limit { .. })), "{:?}: {refused:?}", entry.name);
        assert_eq!(fixture.tokens().await, []);
    }
    let held = participant.stand(&fixture.election).await;
    let was = participant.standing(&held).await.published;
    let refused = participant.session.publish(&held, was, &Publication::new(too_much.clone())).await;
    assert!(matches!(refused, Err(StoreError::Limit { .. })), "{refused:?}");
    assert_eq!(fixture.seen(&held).await.value, "10.0.0.7:80");
}

/// The longest and the strangest come back as they went in.
pub async fn names_and_values_at_the_limits_are_kept<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let largest: Bytes = (0..MAX_VALUE_BYTES).map(|number| number as u8).collect();
    let longest = format!("{}/", fixture.election);
    let longest = format!("{longest}{}", "n".repeat(MAX_NAME_BYTES - longest.len()));
    let longest = ElectionName::new(&longest).unwrap();
    let names = ["x".repeat(MAX_NAME_BYTES), "ü".repeat(MAX_NAME_BYTES / 2), r#"a "b" \ 'c' /{}: %s"#.to_owned()];
    for (name, value) in names.iter().zip([&largest, &Bytes::new(), &largest]) {
        let entry = entry(name, value);
        let held = held(&participant.enlist_as(&longest, &entry).await.unwrap());
        let seen = fixture.seen(&held).await;
        assert_eq!((seen.name.as_deref(), seen.is_foreign()), (Some(name.as_str()), false));
        assert!(seen.value == *value, "the value of {name:?} has changed");
        participant.withdraw(&held).await;
    }
}

/// Names that a store may confuse.
fn similar_names(fixture: &Fixture) -> Vec<ElectionName> {
    let ends = [
        "",
        "x",
        "/a",
        "/A",
        "/a/b",
        "/a b",
        "/a%2Fb",
        "/a%2fb",
        "/a.b",
        "/a:b",
        "/a_b",
        "/a-b",
        "/*",
        "/?",
        "/[a]",
        "/{a}",
        "/ä",
        "/a\u{308}",
        "/'",
        "/\"",
        "/\\",
        "/$1",
        "/;",
        "/,",
        "/...",
        "/.a",
        "/ a",
        "/a ",
        "/~",
        "/#",
        "/@",
    ];
    ends.iter().map(|end| ElectionName::new(&format!("{}{end}", fixture.election)).unwrap()).collect()
}

/// One name is not the beginning of another, and no character means anything.
pub async fn elections_with_similar_names_are_kept_apart<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let mut held = Vec::new();
    for election in similar_names(&fixture) {
        assert_eq!(fixture.line_of(&election).await.entries, [], "{election}: nobody stands here yet");
        held.push(participant.stand(&election).await);
    }
    for held in &held {
        assert!(participant.leads(held).await, "{held:?}");
        assert_eq!(fixture.line_of(&held.election).await.entries.len(), 1, "{held:?}");
    }
    let renewal = participant.session.renew(&held).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![], vec![]), "a renewal knows every name");
    let first = held.remove(0);
    participant.withdraw(&first).await;
    assert_eq!(participant.session.renew(&held).await.unwrap().gone, []);
}

/// Each by the name that it was given, whether it has a line or only an office record. A store that
/// cannot list them says so.
pub async fn elections_are_listed_by_their_names<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let list = async || fixture.store.elections(usize::MAX).await;
    if let Err(refused) = list().await {
        assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused:?}");
        return;
    }
    let names = similar_names(&fixture);
    let office = Office::default().with_paused(Paused::new("a test"));
    for (number, election) in names.iter().enumerate() {
        assert!(!list().await.unwrap().contains(election), "{election}: nobody stands here yet");
        if number % 3 == 0 {
            let written = fixture.store.set_office(election, Version::NONE, &office).await;
            assert_eq!(written.unwrap(), Cas::Done);
        } else {
            participant.stand(election).await;
        }
    }
    let listed = list().await.unwrap();
    assert!(listed.is_sorted(), "{listed:?}");
    for election in &names {
        assert!(listed.contains(election), "{election:?} is not in {listed:?}");
    }
    assert_eq!(fixture.store.elections(2).await.unwrap().len(), 2, "no more than were asked for");
}
