//! Giving back, dropping, cancelling, closing: nothing is left behind.

use std::time::Duration;

use incumbent::{CandidacyError, LossReason, Pending, TransferRefused};

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;
use crate::patience::until;

/// `resign` says that the entry is gone, and it is.
pub async fn giving_the_office_back_is_certain_and_may_be_said_of_a_lost_one(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (candidacies, office) = fixture.line_of(&["a"]).await;
    let (term, token) = (office.term(), office.token().token);
    drop(candidacies);
    office.resign().await.expect("certain");
    assert!(fixture.line().await.entries.iter().all(|entry| entry.token != token));
    assert_eq!(term.check().expect_err("over").reason(), LossReason::Resigned);
    assert_eq!(term.lost().await.reason(), LossReason::Resigned);
    assert_eq!(term.remaining(), Duration::ZERO);
}

/// A leader that leaves is not elected once more on the way out.
pub async fn leaving_in_office_makes_no_further_term(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a"]).await;
    let term = office.term();
    office.leave().await.expect("certain");
    assert_eq!(term.check().expect_err("over").reason(), LossReason::Resigned);
    let again = candidacies[0].elected().await;
    assert!(matches!(again, Err(CandidacyError::Closed)), "{again:?}");
    assert!(fixture.names().await.is_empty());
}

/// Dropping the handle is enough.
pub async fn a_dropped_leadership_is_given_back(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let term = office.term();
    drop(office);
    lead(&mut candidacies[1]).await.check().expect("in office");
    term.check().expect_err("over");
}

/// The leadership is what counts, not the candidacy that it came from.
pub async fn a_dropped_candidacy_leaves_the_line_and_its_leadership_lasts(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (candidacies, office) = fixture.line_of(&["a", "b"]).await;
    drop(candidacies);
    fixture.until_names(&["a"]).await;
    tokio::time::sleep(harness.ttl() * 2).await;
    office.check().expect("renewed all the while");
    assert_eq!(fixture.names().await, ["a"]);
    office.resign().await.expect("certain");
    fixture.until_empty().await;
}

/// Dropping `stand` at any moment leaves nothing in line.
pub async fn cancelled_campaigns_leave_no_entry(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let client = fixture.client().await;
    let election = client.election(fixture.election.as_str()).expect("a name");
    for polls in 0..40 {
        let mut standing = Box::pin(election.candidate("a").stand());
        for _ in 0..polls {
            if futures_poll(&mut standing).await {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // None of them stands in the way of the next one.
    let office = election.candidate("b").stand().await.expect("a place").elected().await.expect("goes on");
    drop(office);
    fixture.until_empty().await;
}

/// `elected` may be dropped and asked again.
pub async fn a_cancelled_wait_keeps_the_place(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let had = fixture.names().await;
    for _ in 0..3 {
        let waited = tokio::time::timeout(Duration::from_millis(5), candidacies[1].elected()).await;
        assert!(waited.is_err(), "{waited:?}");
    }
    assert_eq!(fixture.names().await, had);
    office.resign().await.expect("certain");
    lead(&mut candidacies[1]).await.check().expect("in office");
}

/// `close` asks leaders to stop, waits for them, and ends the session.
pub async fn closing_a_client_drains_and_leaves_nothing(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let client = fixture.client().await;
    let election = client.election(fixture.election.as_str()).expect("a name");
    let mut candidacy = election.candidate("a").stand().await.expect("a place");
    let office = lead(&mut candidacy).await;
    let working = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        office.check().expect("in office while it drains");
        office.resign().await.expect("certain");
        why
    });
    client.clone().close(WITHIN).await.expect("all is given back");
    assert_eq!(working.await.expect("no panic"), LossReason::Closing);
    assert!(fixture.names().await.is_empty());
    assert!(matches!(candidacy.elected().await, Err(CandidacyError::Closed)));
    assert!(election.candidate("b").stand().await.is_err());
    client.close(WITHIN).await.expect("closing again is well");
}

/// Handles that are dropped clean up behind them.
pub async fn dropping_every_handle_leaves_nothing(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    drop(office);
    drop(candidacies);
    fixture.until_empty().await;
}

/// A supervisor's candidate gives its place up only once the work has stopped.
pub async fn a_supervised_candidate_keeps_its_place_until_the_work_has_stopped(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let election = fixture.election().await;
    let mut candidacy = election.candidate("a").hold_until_stopped().stand().await.expect("a place");
    let office = lead(&mut candidacy).await;
    let second = fixture.stand("b").await;
    let operator = election.operator();
    let resigning = tokio::spawn(async move { operator.resign(WITHIN).await });
    // The grace is over, and the work has not stopped.
    office.lost().await;
    let looking = fixture.election().await;
    until("those who look are told why nobody leads", async || {
        let status = looking.status().await.expect("an answer").into_inner();
        status.pending == Some(Pending::Holding) && status.leader().is_none()
    })
    .await;
    tokio::time::sleep(harness.ttl()).await;
    assert_eq!(fixture.names().await.first().map(String::as_str), Some("a"));
    drop(office);
    resigning.await.expect("no panic").expect("resigned");
    drop((candidacy, second));
    fixture.until_empty().await;
}

/// Polls once; `true`: it is ready.
async fn futures_poll<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())).await
}

/// The best in line gets ready while the work goes on, and gets the office when that has stopped.
pub async fn one_that_leaves_hands_over_to_the_best_while_it_works<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line().await {
        return;
    }
    let (candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let best = fixture.election().await.candidate("c").priority(5);
    let mut best = best.stand().await.expect("a place in line");
    let _last = fixture.stand("d").await;
    fixture.until_names(&["a", "b", "c", "d"]).await;
    let why = office.hand_over(WITHIN).await.expect("somebody to hand over to").reason();
    assert_eq!(why, LossReason::Transferred);
    office.check().expect("in office, until its work has stopped");
    let term = office.term();
    office.leave().await.expect("certain");
    assert_eq!(term.check().expect_err("over").reason(), LossReason::Transferred);
    let office = lead(&mut best).await;
    // The one that stepped aside is back, behind those that did not have to.
    fixture.until_names(&["c", "d", "b"]).await;
    office.check().expect("in office");
    drop(candidacies);
}

/// It is told so at once, and nothing has happened to the office.
pub async fn one_that_leaves_and_has_nobody_to_hand_over_to_leads_on_until_it_does<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (_candidacies, office) = fixture.line_of(&["a"]).await;
    let _follower = if fixture.has_line().await { None } else { Some(fixture.stand("b").await) };
    let refused = office.hand_over(WITHIN).await.expect_err("nobody");
    assert!(matches!(refused, TransferRefused::Leader(_)), "{refused:?}");
    office.check().expect("in office");
    // Nor is anybody asked who comes later.
    let _late = fixture.stand("c").await;
    office.proclaim("still here").await.expect("in office");
    office.leave().await.expect("certain");
}
