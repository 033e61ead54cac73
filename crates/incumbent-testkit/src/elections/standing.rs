//! Standing, leading, losing and coming back.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use incumbent::fence::{BoxFuture, Fence, FenceError, FencingToken, MemoryFence};
use incumbent::store::{ElectionName, StoreId, Token};
use incumbent::{CandidacyError, LossReason, Role, StandError};

use super::fixture::{Fixture, lead};
use crate::conformance::Harness;

/// A store holds one office at a time, and hands it on in the order of the line.
pub async fn candidates_lead_one_after_the_other_with_growing_tokens(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let names = ["a", "b", "c"];
    let (mut candidacies, mut office) = fixture.line_of(&names).await;
    let mut highest = 0;
    for next in 1..=names.len() {
        assert!(office.token().get() > highest, "{office:?}");
        highest = office.token().get();
        office.check().expect("in office");
        drop(candidacies.remove(0));
        office.resign().await.expect("certain");
        if next < names.len() {
            office = lead(&mut candidacies[0]).await;
        } else {
            break;
        }
    }
    fixture.until_empty().await;
}

/// Nothing stands in the way of the only candidate.
pub async fn a_candidate_that_nobody_rivals_leads_at_once(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let mut candidacy = fixture.stand("a").await;
    let office = lead(&mut candidacy).await;
    office.check().expect("in office");
    assert!(office.remaining() > harness.ttl() / 4);
    assert_eq!(candidacy.role(), Role::Leading { token: Some(office.token().token) });
    assert_eq!(office.election(), &fixture.election);
}

/// One candidacy for each session and election; leaving makes room for the next.
pub async fn a_client_stands_once_in_an_election_and_again_after_leaving(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let election = fixture.election().await;
    let candidacy = election.candidate("a").stand().await.expect("a place");
    let again = election.candidate("b").stand().await;
    assert!(matches!(again, Err(StandError::Candidacy(CandidacyError::AlreadyInLine))), "{again:?}");
    candidacy.withdraw().await.expect("certain");
    let candidacy = election.candidate("b").stand().await.expect("a place");
    // A candidacy that was dropped makes room without being waited for.
    drop(candidacy);
    let mut candidacy = election.candidate("c").stand().await.expect("a place");
    let _office = lead(&mut candidacy).await;
    assert_eq!(fixture.names().await, ["c"]);
}

/// Elections do not disturb each other, though they share a session.
pub async fn one_session_holds_many_elections(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let client = fixture.client().await;
    let mut held = Vec::new();
    for number in 0..10 {
        let election = client.election(&format!("{}/{number}", fixture.election)).expect("a name");
        let mut candidacy = election.candidate("a").stand().await.expect("a place");
        let office = lead(&mut candidacy).await;
        held.push((candidacy, office));
    }
    let (candidacy, office) = held.remove(3);
    office.resign().await.expect("certain");
    candidacy.withdraw().await.expect("certain");
    for (_, office) in &held {
        office.check().expect("still in office");
    }
    client.close(super::fixture::WITHIN).await.expect("all is given back");
}

/// Somebody deletes the leader's entry: it notices, stops, and stands again with a higher token.
pub async fn a_leader_whose_entry_is_deleted_loses_office_and_gets_back_in_line(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a"]).await;
    let before = office.token().get();
    evict_head(&fixture).await;
    assert_eq!(office.lost().await.reason(), LossReason::EntryDeleted);
    office.check().expect_err("over");
    office.resign().await.expect("there is nothing to give back");
    let office = lead(&mut candidacies[0]).await;
    assert!(office.token().get() > before);
}

/// A follower whose entry is deleted stands again, at the end of the line.
pub async fn a_follower_whose_entry_is_deleted_gets_back_in_line(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    if fixture.has_line().await {
        let line = fixture.line().await;
        fixture.store.evict(&fixture.election, &line.entries[1]).await.expect("evicted");
        fixture.until_names(&["a", "c", "b"]).await;
    }
    office.resign().await.expect("certain");
    drop(candidacies.remove(0));
    drop(candidacies.remove(1));
    let office = lead(&mut candidacies[0]).await;
    office.check().expect("in office");
}

/// "My predecessor is gone" is not "I lead", and neither is it "look at the one before it only".
pub async fn several_predecessors_gone_at_once_make_the_next_one_lead(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["1", "2", "3", "4"]).await;
    let mut last = candidacies.remove(3);
    let before = office.token().get();
    drop(candidacies);
    drop(office);
    let office = lead(&mut last).await;
    assert!(office.token().get() > before);
    fixture.until_names(&["4"]).await;
}

/// `try_once` takes the office or goes.
pub async fn trying_once_leads_or_leaves_nothing_behind(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let office = fixture.election().await.candidate("a").try_once().await.expect("an answer").expect("the office");
    let refused = fixture.election().await.candidate("b").try_once().await.expect("an answer");
    assert!(refused.is_none());
    assert_eq!(fixture.names().await, ["a"]);
    office.check().expect("still in office");
    office.resign().await.expect("certain");
    fixture.until_empty().await;
}

/// `run` stands, works, gives back and leaves.
pub async fn running_does_the_work_once_and_leaves(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let candidate = fixture.election().await.candidate("a");
    let mut seen = Vec::new();
    let done = candidate.run(async |term| {
        seen.push(term.token().get());
        term.check().expect("in office");
        Ok::<_, StandError>("done")
    });
    assert_eq!(done.await.expect("no error"), Some("done"));
    assert_eq!(seen.len(), 1);
    fixture.until_empty().await;
}

/// Work that is dropped with its term begins anew with the next one; what it borrows lives across
/// terms.
pub async fn running_goes_on_with_the_next_term_after_a_loss(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let candidate = fixture.election().await.candidate("a");
    let mut tokens = Vec::new();
    let run = candidate.run(async |term| {
        tokens.push(term.token().get());
        if tokens.len() == 1 {
            evict_head(&fixture).await;
            std::future::pending::<()>().await;
        }
        Ok::<_, StandError>(())
    });
    run.await.expect("no error");
    assert_eq!(tokens.len(), 2);
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

/// The mark is up before the user can see the leadership, and older tokens are refused from then
/// on.
pub async fn fences_are_raised_before_anybody_is_in_office(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let fence = Arc::new(MemoryFence::new(&fixture.election, Vec::new()));
    let mut candidacies = Vec::new();
    for name in ["a", "b"] {
        let candidate = fixture.election().await.candidate(name).fence(fence.clone());
        candidacies.push(candidate.stand().await.expect("a place"));
    }
    let first = lead(&mut candidacies[0]).await;
    fence.write(first.token(), |log| log.push("first")).expect("the leader writes");
    let old = first.token().clone();
    drop(candidacies.remove(0));
    drop(first);
    let second = lead(&mut candidacies[0]).await;
    // The new leader has written nothing yet, and the old one's late write is refused all the same.
    let late = fence.write(&old, |log| log.push("late"));
    assert!(matches!(late, Err(FenceError::Stale { .. })), "{late:?}");
    fence.write(second.token(), |log| log.push("second")).expect("the leader writes");
    assert_eq!(fence.write(second.token(), |log| log.clone()).expect("the leader reads"), ["first", "second"]);
}

/// A fence that cannot be used is an error that ends the candidacy, and nobody leads.
pub async fn a_fence_that_refuses_for_good_keeps_the_candidate_out_of_office(harness: &impl Harness) {
    /// Counts how often it was asked.
    #[derive(Debug)]
    struct Closed(AtomicU64);
    impl Fence for Closed {
        fn raise<'a>(&'a self, _: &'a ElectionName, _: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Err(FenceError::Denied { what: "nobody may raise it".to_owned(), source: None }) })
        }
    }
    let fixture = Fixture::new(harness).await;
    let fence = Arc::new(Closed(AtomicU64::new(0)));
    let candidate = fixture.election().await.candidate("a").fence(fence.clone());
    let error = match candidate.stand().await {
        Ok(mut candidacy) => candidacy.elected().await.expect_err("not in office"),
        Err(StandError::Candidacy(error)) => error,
        Err(other) => panic!("{other:?}"),
    };
    assert!(matches!(error, CandidacyError::Fence(FenceError::Denied { .. })), "{error:?}");
    assert_eq!(fence.0.load(Ordering::Relaxed), 1);
    fixture.until_empty().await;
}

/// A fence whose mark comes from another store is for an operator to settle. Nobody leads until
/// that is done, and then the candidate that has waited does.
pub async fn a_fence_of_another_store_keeps_the_candidate_out_of_office_until_it_is_reset(harness: &impl Harness) {
    /// Counts how often it was asked.
    #[derive(Debug)]
    struct Counted {
        fence: MemoryFence<()>,
        asked: AtomicU64,
    }
    impl Fence for Counted {
        fn raise<'a>(&'a self, election: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.fence.raise(election, to)
        }
    }
    let fixture = Fixture::new(harness).await;
    let election = fixture.election().await;
    let fence = Arc::new(Counted { fence: MemoryFence::new(election.name(), ()), asked: AtomicU64::new(0) });
    let elsewhere = FencingToken::new(Token::new(9).expect("a token"), StoreId::new("another store"));
    fence.fence.write(&elsewhere, |()| ()).expect("the first one is let in");
    let candidate = election.candidate("a").fence(fence.clone());
    let mut elected = pin!(async {
        let mut candidacy = candidate.stand().await.expect("in line");
        let office = lead(&mut candidacy).await;
        (candidacy, office)
    });
    while fence.asked.load(Ordering::Relaxed) < 3 {
        let elected = tokio::time::timeout(harness.ttl() / 20, elected.as_mut()).await;
        assert!(elected.is_err(), "{elected:?}");
    }
    let store = fixture.store.identity().await.expect("it says who it is");
    fence.fence.reset(&store, "the other store is gone").expect("reset");
    let (_candidacy, office) = elected.await;
    office.check().expect("in office");
}

/// An unfit leader drains and leaves; fit again, it stands again.
pub async fn an_unhealthy_candidate_leaves_the_line_and_comes_back(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    candidacies[0].set_healthy(false);
    assert_eq!(office.stopping().await.reason(), LossReason::Unhealthy);
    office.resign().await.expect("certain");
    let second = lead(&mut candidacies[1]).await;
    fixture.until_names(&["b"]).await;
    candidacies[0].set_healthy(true);
    second.check().expect("undisturbed");
    drop(candidacies.remove(1));
    second.resign().await.expect("certain");
    lead(&mut candidacies[0]).await.check().expect("in office");
}

/// What cannot be written is refused before anything is.
pub async fn bad_names_and_large_values_are_refused_before_anything_is_written(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let client = fixture.client().await;
    let long = "x".repeat(256);
    for name in ["", "/a", "a/", "a//b", "a\nb", "..", long.as_str()] {
        assert!(client.election(name).is_err(), "{name:?}");
    }
    let election = client.election(fixture.election.as_str()).expect("a name");
    let refused = election.candidate("").stand().await;
    assert!(matches!(refused, Err(StandError::Name(_))), "{refused:?}");
    let refused = election.candidate("a").value(vec![0; 64 * 1024 + 1]).stand().await;
    assert!(matches!(refused, Err(StandError::Name(_))), "{refused:?}");
    assert!(fixture.names().await.is_empty());
}

async fn evict_head<H: Harness>(fixture: &Fixture<'_, H>) {
    // An entry that is renewed meanwhile has another version: look again.
    for _ in 0..1000 {
        let line = fixture.line().await;
        let head = line.entries.first().expect("somebody in line");
        if fixture.store.evict(&fixture.election, head).await.expect("an answer") == incumbent::store::Cas::Done {
            return;
        }
    }
    panic!("the entry kept changing");
}
