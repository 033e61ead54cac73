//! The office record: compare-and-set, nothing else.

use std::time::Duration;

use incumbent_store::{
    BenchOrder, Benched, Cas, Deposed, ElectionName, Ended, EntryId, Frozen, Handover, Heir, HeldBack, Incarnation,
    Nonce, Office, Order, Paused, Recovery, Refusal, Store, Token, Version,
};

use super::fixture::Fixture;
use super::harness::Harness;

fn token(number: u64) -> Token {
    Token::new(number).expect("a token")
}

/// A record in which every field says something.
fn full(refused: Option<Refusal>) -> Office {
    let heir = Heir::new(Incarnation::from_bits(u128::MAX - 1), EntryId::new("entry/7"), token(7));
    let mut handover = Handover::new(token(Token::MAX), heir, Nonce(u64::MAX), Duration::new(5, 1_000_000));
    handover.refused = refused;
    Office::default()
        .with_version(Version(12345))
        .with_handover(handover.ordered(Order::new("ada@ops1", 1_790_000_000_000, "")))
        .with_paused(Paused::new(Order::new("b", 2, "Wartung: \"später\" \\ 日本\nsecond line")).until_leads("node 2"))
        .with_ended(Ended::new(Nonce(3), Duration::from_secs(3600)).ordered("enough".into()))
        .with_deposed(Deposed::new(token(4)).ordered(Order::new("d", u64::MAX, "it hangs")))
        .with_held_back(HeldBack::new(token(8)).stamped(7))
        .with_recovery(Recovery::new("7f3a", "3 reconcile", Order::new("ada@ops1", 9, "")))
        .with_benched(Benched::default().with(BenchOrder::new("node 3", Nonce(6), None, "new\ndisk").vacating(true)))
        .with_frozen(Frozen::new(Nonce(5), Some(Duration::new(7200, 1)), Order::new("", 6, "")))
}

async fn read(store: &dyn Store, election: &ElectionName) -> Office {
    store.line(election, 0).await.expect("the line").office
}

async fn set(fixture: &Fixture, was: Version, to: &Office) -> Cas {
    fixture.store.set_office(&fixture.election, was, to).await.expect("a compare-and-set")
}

/// A writer that has not seen the newest record writes nothing; what is written is read back word
/// for word.
pub async fn an_office_record_that_has_moved_on_is_not_overwritten<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let other = harness.store().await;
    let mut versions = vec![read(&*fixture.store, &fixture.election).await.version];
    assert_eq!(versions, [Version::NONE]);
    for refused in [
        None,
        Some(Refusal::HeirGone),
        Some(Refusal::ForeignBetween),
        Some(Refusal::TimedOut),
        Some(Refusal::Busy),
        Some(Refusal::Leaving),
        Some(Refusal::LeadsAlready),
        Some(Refusal::Unable),
    ] {
        let office = full(refused);
        let newest = *versions.last().expect("one at least");
        assert_eq!(set(&fixture, newest, &office).await, Cas::Done);
        let now = read(&*other, &fixture.election).await;
        assert!(!versions.contains(&now.version), "a version comes back: {:?} after {versions:?}", now.version);
        assert_eq!(now.clone().with_version(office.version), office);
        for old in &versions {
            assert_eq!(set(&fixture, *old, &Office::default()).await, Cas::Refused, "{old:?}");
        }
        assert_eq!(read(&*other, &fixture.election).await, now, "a refusal changes nothing");
        versions.push(now.version);
    }
    let heirless = Handover::new(token(Token::MAX), None, Nonce(u64::MAX), Duration::new(5, 1_000_000));
    let sparse = Office::default().with_handover(heirless);
    assert_eq!(set(&fixture, *versions.last().unwrap(), &sparse).await, Cas::Done);
    let now = read(&*other, &fixture.election).await;
    assert_eq!(now.with_version(Version::NONE), sparse);
}

/// A pause and a transfer that race are both there in the end, and no increment is lost.
pub async fn racing_writers_of_the_office_record_erase_nothing_of_each_other<H: Harness>(harness: &H) {
    const ROUNDS: u64 = 8;
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..5 {
        let (store, election) = (harness.store().await, fixture.election.clone());
        writers.spawn(async move {
            for round in 1..=ROUNDS {
                write_own_field(&*store, &election, writer, round).await;
            }
        });
    }
    while let Some(ended) = writers.join_next().await {
        ended.expect("no writer saw its field changed by another");
    }
    let office = read(&*fixture.store, &fixture.election).await;
    assert_eq!(office.deposed, Some(Deposed::new(token(3 * ROUNDS))), "every increment of the three who count");
    assert_eq!(office.paused.map(|paused| paused.order.reason.to_string()), Some(ROUNDS.to_string()));
    assert_eq!(office.handover.map(|handover| handover.nonce), Some(Nonce(ROUNDS)));
}

/// Writers 0 and 1 have a field of their own; the others count together in one.
async fn write_own_field(store: &dyn Store, election: &ElectionName, writer: u32, round: u64) {
    // Each refusal means that another writer got through: a bound on all writes bounds the
    // refusals.
    for _ in 0..1000 {
        let mut office = read(store, election).await;
        let was = office.version;
        match writer {
            0 => {
                let before = office.paused.replace(Paused::new(round.to_string().as_str()));
                assert_eq!(
                    before.map_or("0".into(), |paused| paused.order.reason).to_string(),
                    (round - 1).to_string()
                );
            }
            1 => {
                let handover = Handover::new(token(1), None, Nonce(round), Duration::from_secs(5));
                let before = office.handover.replace(handover);
                assert_eq!(before.map_or(0, |handover| handover.nonce.0), round - 1);
            }
            _ => {
                let counted = office.deposed.map_or(0, |deposed| deposed.token.get());
                office.deposed = Some(Deposed::new(token(counted + 1)));
            }
        }
        tokio::task::yield_now().await;
        if store.set_office(election, was, &office).await.expect("a compare-and-set") == Cas::Done {
            return;
        }
    }
    panic!("writer {writer} never got through");
}

/// A record that says nothing is no record, and an old version does not bring it back.
pub async fn a_blank_office_record_is_removed<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    assert_eq!(set(&fixture, Version::NONE, &Office::default()).await, Cas::Done);
    assert_eq!(read(&*fixture.store, &fixture.election).await, Office::default());
    assert_eq!(set(&fixture, Version::NONE, &full(None)).await, Cas::Done);
    let first = read(&*fixture.store, &fixture.election).await.version;
    assert_ne!(first, Version::NONE);
    assert_eq!(set(&fixture, first, &Office::default()).await, Cas::Done);
    assert_eq!(read(&*fixture.store, &fixture.election).await, Office::default());
    assert_eq!(set(&fixture, first, &full(None)).await, Cas::Refused);
    assert_eq!(set(&fixture, Version::NONE, &full(None)).await, Cas::Done);
    assert_ne!(read(&*fixture.store, &fixture.election).await.version, first, "a version never comes back");
}

/// By the store's own means, or with a later write; the rest of the record stays.
pub async fn a_tombstone_goes_after_its_time<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let participant = fixture.participant().await;
    let long = Ended::new(Nonce(1), Duration::from_secs(3600));
    let office = Office::default().with_ended(long.clone()).with_deposed(Deposed::new(token(9)));
    assert_eq!(set(&fixture, Version::NONE, &office).await, Cas::Done);
    assert_eq!(read(&*fixture.store, &fixture.election).await.ended, Some(long));
    let was = read(&*fixture.store, &fixture.election).await.version;
    let short = Ended::new(Nonce(2), fixture.ttl);
    assert_eq!(set(&fixture, was, &office.with_ended(short.clone())).await, Cas::Done);
    assert_eq!(read(&*fixture.store, &fixture.election).await.ended, Some(short));
    let mut writes = 0;
    fixture
        .until("the tombstone goes", async || {
            let mut office = read(&*fixture.store, &fixture.election).await;
            if office.ended.is_none() {
                return true;
            }
            // A later write: of the record, which does not start the time again, and of the line.
            writes += 1;
            office.paused = Some(Paused::new(format!("write {writes}").as_str()));
            set(&fixture, office.version, &office).await;
            let held = participant.stand(&fixture.election).await;
            participant.withdraw(&held).await;
            false
        })
        .await;
    let office = read(&*fixture.store, &fixture.election).await;
    assert_eq!(office.deposed, Some(Deposed::new(token(9))), "only the tombstone goes");
}

/// Nobody takes office without having seen what the record says; it stays when the line is empty.
pub async fn the_office_record_is_seen_with_every_standing<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (leader, follower) = (fixture.participant().await, fixture.participant().await);
    assert_eq!(set(&fixture, Version::NONE, &full(None)).await, Cas::Done);
    let office = read(&*fixture.store, &fixture.election).await;
    assert_eq!(leader.enlist(&fixture.election).await.office, office);
    assert_eq!(follower.enlist(&fixture.election).await.office, office);
    let held = fixture.line().await.entries.swap_remove(0);
    let renewal = leader.session.renew(&[]).await.unwrap();
    let held = renewal.stray.into_iter().find(|stray| held.is(stray)).expect("the leader's entry");
    assert_eq!(set(&fixture, office.version, &full(Some(Refusal::Busy))).await, Cas::Done);
    let office = read(&*fixture.store, &fixture.election).await;
    assert_eq!(leader.standing(&held).await.office, office);
    leader.session.close().await.unwrap();
    follower.session.close().await.unwrap();
    let line = fixture.line().await;
    assert_eq!((line.entries, line.office), (vec![], office));
}
