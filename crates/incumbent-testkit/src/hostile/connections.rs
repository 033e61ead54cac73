//! What happens to connections.

use std::time::Instant;

use incumbent::CandidacyError;
use incumbent_store::{Cas, StoreError};

use super::fixture::{Fixture, Link, is_over, leads_on, leads_soon};
use super::{Host, Outcome, Unmet, ensure};
use crate::candidates::{entry, held};
use crate::patience::{until, within};
use crate::proxy::Way;

/// [`Case::HungEndpoint`](super::Case::HungEndpoint): two ways to the same server, of which one
/// hangs, and then the other. The one in use is among them.
pub async fn an_endpoint_hangs<H: Host>(fixture: Fixture<H>) -> Outcome {
    let (first, second) = (fixture.link().await?, fixture.link().await?);
    let both = [first.addresses(), second.addresses()].concat();
    let mut leading = fixture.stand(&both, "leader").await?;
    let office = leads_soon::<H>(Instant::now(), &mut [&mut leading]).await?;
    for hung in [&first, &second] {
        hung.set(Way::Stall);
        leads_on::<H>(&office, 2).await?;
        hung.set(Way::Forward);
    }
    Ok(())
}

/// [`Case::CutOff`](super::Case::CutOff).
pub async fn a_leader_is_cut_off<H: Host>(fixture: Fixture<H>) -> Outcome {
    is_replaced(fixture, Way::Stall).await
}

/// [`Case::AnswersLost`](super::Case::AnswersLost).
pub async fn answers_are_lost<H: Host>(fixture: Fixture<H>) -> Outcome {
    is_replaced(fixture, Way::HoldAnswers).await
}

/// [`Case::QuestionsLost`](super::Case::QuestionsLost).
pub async fn questions_are_lost<H: Host>(fixture: Fixture<H>) -> Outcome {
    is_replaced(fixture, Way::HoldQuestions).await
}

/// The leader's link goes bad. Another leads, not before the first has stopped believing in itself;
/// and when the link is well again the first is back in line.
async fn is_replaced<H: Host>(fixture: Fixture<H>, way: Way) -> Outcome {
    let mut pair = fixture.pair().await?;
    let token = pair.office.token().clone();
    pair.link.set(way);
    let next = leads_soon::<H>(Instant::now(), &mut [&mut pair.waiting]).await?;
    is_over(&pair.office);
    assert!(next.token().token > token.token, "tokens grow");
    drop(pair.office);
    pair.link.set(Way::Forward);
    fixture.until_in_line(2).await;
    within(next.resign()).await.map_err(|error| Unmet(error.to_string()))?;
    leads_soon::<H>(Instant::now(), &mut [&mut pair.leading]).await?;
    Ok(())
}

/// [`Case::CutAfterTheRequest`](super::Case::CutAfterTheRequest).
pub async fn a_connection_is_cut_after_the_request_went_through<H: Host>(fixture: Fixture<H>) -> Outcome {
    fixture.needs_line().await?;
    let (link, onlooker) = (fixture.link().await?, fixture.onlooker());
    let store = fixture.store(&link.addresses())?;
    // Nothing expires meanwhile.
    let open = async || within(store.open_session(H::TTL * 20)).await.expect("a session");
    let (other, session) = (open().await, open().await);
    // Another leads: a store may tell others of a new leader, and a hint that is not answered would
    // be in the way of what follows.
    let leader = within(onlooker.open_session(H::TTL * 20)).await.expect("a session");
    within(leader.enlist(&fixture.election, &entry(3))).await.expect("a standing");
    // What a store has to find out first about an election it knows.
    within(other.enlist(&fixture.election, &entry(1))).await.expect("a standing");
    within(session.renew(&[])).await.expect("a renewal");
    link.set(Way::HoldAnswers);
    let enlisting = tokio::spawn({
        let (session, election) = (session.clone(), fixture.election.clone());
        async move { session.enlist(&election, &entry(2)).await }
    });
    fixture.until_in_line(3).await;
    link.reset();
    link.set(Way::Forward);
    let lost = within(enlisting).await.expect("a task");
    assert!(matches!(lost, Err(StoreError::OutcomeUnknown { .. })), "it may have been done: {lost:?}");

    let mut strays = Vec::new();
    until("the connection is back", async || match session.renew(&[]).await {
        Ok(renewal) => {
            strays = renewal.stray;
            true
        }
        Err(_) => false,
    })
    .await;
    let named: Vec<_> = strays.iter().map(|stray| stray.incarnation).collect();
    ensure(named == [entry(2).incarnation], || format!("a renewal names what nobody was told of: {strays:?}"))?;
    let again = held(&within(session.enlist(&fixture.election, &entry(2))).await.expect("a standing"));
    let line = within(onlooker.line(&fixture.election, 9)).await.expect("a line").entries;
    assert!(line.len() == 3 && line[2].is(&again), "it is in line once: {line:?}");
    assert_eq!(within(session.withdraw(&again, None)).await.expect("an answer"), Cas::Done);
    fixture.until_in_line(2).await;
    Ok(())
}

/// [`Case::LateAnswers`](super::Case::LateAnswers).
pub async fn answers_come_late<H: Host>(fixture: Fixture<H>) -> Outcome {
    let mut pair = fixture.pair().await?;
    let token = pair.office.token().clone();
    pair.link.set(Way::HoldAnswers);
    let since = Instant::now();
    let lost = tokio::time::timeout(H::TTL * 2, pair.office.lost()).await;
    ensure(lost.is_ok(), || "it leads on, and nobody has answered".to_owned())?;
    // All that was answered meanwhile arrives now.
    pair.link.set(Way::Forward);
    let term = pair.office.term();
    drop(pair.office);
    let next = leads_soon::<H>(since, &mut [&mut pair.leading, &mut pair.waiting]).await?;
    assert!(term.check().is_err(), "a term that was over is back");
    assert!(next.token().token > token.token, "tokens grow");
    fixture.until_in_line(2).await;
    Ok(())
}

/// [`Case::AnotherCluster`](super::Case::AnotherCluster).
pub async fn another_cluster_is_behind_the_same_address<H: Host>(fixture: Fixture<H>) -> Outcome {
    let mut pair = fixture.pair().await?;
    let other = H::start().await;
    let token = pair.office.token().clone();
    let since = Instant::now();
    pair.link.turn_to(&other.addresses());
    let next = leads_soon::<H>(since, &mut [&mut pair.waiting]).await?;
    is_over(&pair.office);
    assert_eq!(next.token().store, token.store, "it waits where it stood");
    drop(pair.office);
    match within(pair.leading.elected()).await {
        Err(CandidacyError::StoreReplaced { was, is }) => {
            assert!(was == token.store && is != was, "it was {was}, and is {is}");
            next.check().map_err(|lost| Unmet(lost.to_string()))
        }
        other => Err(Unmet(format!("nobody is told that the store is another one: {other:?}"))),
    }
}

/// [`Case::SlowServer`](super::Case::SlowServer).
pub async fn a_server_is_slow<H: Host>(fixture: Fixture<H>) -> Outcome {
    let slow = Way::Delay(H::TTL / 40);
    let (link, links) = (fixture.link().await?, fixture.link().await?);
    link.set(slow);
    links.set(slow);
    let (leading, office) = fixture.lead_behind(&link).await?;
    let mut waiting = fixture.stand(&links.addresses(), "next").await?;
    leads_on::<H>(&office, 2).await?;
    let since = Instant::now();
    drop(office);
    drop(leading);
    leads_soon::<H>(since, &mut [&mut waiting]).await?;
    Ok(())
}

/// [`Case::CancelledReads`](super::Case::CancelledReads). Readers share a client's store, be it
/// far away or in this process.
pub async fn a_user_cancels_reads<H: Host>(fixture: Fixture<H>) -> Outcome {
    /// So many are given up.
    const READS: u64 = 100;
    let link = fixture.link().await.ok();
    let store = fixture.store(&link.as_ref().map_or_else(Vec::new, Link::addresses))?;
    let client = fixture.client(store.clone()).await;
    let election = client.election(fixture.election.as_str()).expect("a well-formed name");
    let mut leading = within(election.candidate("leader").stand()).await.expect("a place in line");
    let office = leads_soon::<H>(Instant::now(), &mut [&mut leading]).await?;
    within(store.line(&fixture.election, 1)).await.map_err(|error| Unmet(error.to_string()))?;
    let connections = || link.as_ref().map_or(0, Link::connections);
    let before = connections();
    for read in 0..READS {
        // Before it was sent, while it is on its way, and, here and there, never.
        let patience = H::TTL.mul_f64(0.001) * u32::try_from(read % 4).unwrap_or_default();
        _ = tokio::time::timeout(patience, election.leader()).await;
    }
    let more = connections() - before;
    ensure(more < READS / 10, || format!("{READS} reads that were given up made {more} connections"))?;
    within(election.leader()).await.map_err(|error| Unmet(error.to_string()))?;
    leads_on::<H>(&office, 1).await
}
