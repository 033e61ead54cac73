//! Tokens grow, whatever happens to those who held the older ones.

use incumbent_store::{Cas, Ended, Nonce, Office};

use super::fixture::Fixture;
use super::harness::Harness;

/// Nobody is left in line, and still the next token is greater than every one before.
pub async fn tokens_grow_over_withdrawals_and_an_emptied_line<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let mut tokens = Vec::new();
    for _ in 0..3 {
        // A new session each time, and one that stands twice.
        let participant = fixture.participant().await;
        for _ in 0..2 {
            let held = participant.stand(&fixture.election).await;
            tokens.push(held.token);
            participant.withdraw(&held).await;
            assert_eq!(fixture.tokens().await, []);
        }
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

/// The store, or a rival, removes the silent one; the next token is greater all the same.
pub async fn tokens_grow_over_a_session_that_fell_silent<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (silent, next) = (fixture.participant().await, fixture.participant().await);
    let old = silent.stand(&fixture.election).await;
    drop(silent);
    if fixture.is_leased() {
        fixture.until("the silent session is forgotten", async || fixture.tokens().await.is_empty()).await;
    } else {
        fixture.evict(&old).await;
    }
    let new = next.stand(&fixture.election).await;
    assert!(new.token > old.token, "{new:?} after {old:?}");
    assert!(next.leads(&new).await);
}

/// An election that was ended, and of which nothing is left, starts with a greater token.
pub async fn tokens_grow_over_an_ended_election<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let participant = fixture.participant().await;
    let old = participant.stand(&fixture.election).await;
    let version = fixture.line().await.office.version;
    let ended = Office::default().with_ended(Ended::new(Nonce(7), fixture.ttl));
    assert_eq!(fixture.store.set_office(&fixture.election, version, &ended).await.unwrap(), Cas::Done);
    participant.withdraw(&old).await;
    let version = fixture.line().await.office.version;
    assert_eq!(fixture.store.set_office(&fixture.election, version, &Office::default()).await.unwrap(), Cas::Done);
    let line = fixture.line().await;
    assert!(line.office.is_blank() && line.entries.is_empty(), "{line:?}");
    let new = participant.stand(&fixture.election).await;
    assert!(new.token > old.token, "{new:?} after {old:?}");
}
