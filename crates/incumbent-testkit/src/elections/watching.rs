//! Observers, proclamations, readings and events.

use bytes::Bytes;
use incumbent::{Candidacy, CandidacyEvent, Leadership, LossReason, Observation, Observer, Role};

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;

/// Who leads, with which value, and that nobody does.
pub async fn an_observer_sees_leaders_values_and_vacancy(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let mut observer = fixture.election().await.observe();
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
    let (candidacies, office) = fixture.line_of(&["a"]).await;
    let leader = next_leader(&mut observer).await;
    assert_eq!(leader.name.as_deref(), Some("a"));
    assert_eq!(leader.value, "value of a");
    assert_eq!(leader.token, Some(office.token().token));
    drop(candidacies);
    office.resign().await.expect("certain");
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
}

/// A pause is no vacancy, and the end is the end.
pub async fn an_observer_is_told_of_pause_and_end(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let election = fixture.election().await;
    let mut observer = election.observe();
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
    let operator = election.operator();
    operator.clone().reason("maintenance").pause(WITHIN).await.expect("paused");
    assert_eq!(observer.next().await, Some(Observation::Paused { reason: "maintenance".into() }));
    operator.resume(WITHIN).await.expect("resumed");
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
    operator.end(WITHIN).await.expect("ended");
    assert_eq!(observer.next().await, Some(Observation::Ended));
    assert_eq!(observer.next().await, None);
    // Those who come later do not see the old end.
    assert_eq!(fixture.election().await.observe().next().await, Some(Observation::Vacant(None)));
}

/// Whatever an observer misses, what it sees is in order.
pub async fn tokens_never_go_back_for_an_observer(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let election = fixture.election().await;
    let mut observer = election.observe();
    let watching = tokio::spawn(async move {
        let (mut highest, mut seen) = (None, 0);
        loop {
            match observer.next().await.expect("an election that goes on until the last leader") {
                Observation::Leader(leader) => {
                    assert!(leader.token >= highest, "{leader:?} after {highest:?}");
                    highest = leader.token;
                    seen += 1;
                    if leader.value == "last" {
                        return seen;
                    }
                }
                Observation::Vacant(_) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let mut candidacies = vec![fixture.stand("a").await, fixture.stand("b").await];
    // The first to be back in line leads next: which one it is, is the store's to say.
    for _ in 0..6 {
        lead_any(&mut candidacies).await.resign().await.expect("certain");
    }
    let office = lead_any(&mut candidacies).await;
    office.proclaim("last").await.expect("proclaimed");
    assert!(watching.await.expect("no panic") > 0);
}

/// Waits until one of two has the office.
async fn lead_any(candidacies: &mut [Candidacy]) -> Leadership {
    let (left, right) = candidacies.split_at_mut(1);
    tokio::select! {
        office = lead(&mut left[0]) => office,
        office = lead(&mut right[0]) => office,
    }
}

/// Values change under one token, and nobody else is disturbed.
pub async fn a_proclamation_changes_the_value_and_not_the_leader(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (_candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let election = fixture.election().await;
    let mut observer = election.observe();
    let before = next_leader(&mut observer).await;
    office.proclaim("10.0.0.8:80").await.expect("proclaimed");
    let after = next_leader(&mut observer).await;
    assert_eq!((after.token, after.value), (before.token, Bytes::from("10.0.0.8:80")));
    let reading = election.leader().await.expect("a reading");
    assert_eq!(reading.get().as_ref().map(|leader| leader.value.clone()), Some(Bytes::from("10.0.0.8:80")));
    let too_large = office.proclaim(vec![0; 64 * 1024 + 1]).await;
    assert!(too_large.is_err());
    let term = office.term();
    office.resign().await.expect("certain");
    assert!(term.proclaim("too late").await.is_err());
}

/// An answer says how old it may be.
pub async fn readings_have_an_age(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let election = fixture.election().await;
    assert!(election.leader().await.expect("a reading").get().is_none());
    let (_candidacies, office) = fixture.line_of(&["a"]).await;
    let reading = election.leader().await.expect("a reading");
    let young = reading.age();
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    assert!(reading.age() >= young + std::time::Duration::from_millis(5));
    assert_eq!(reading.get().as_ref().and_then(|leader| leader.token), Some(office.token().token));
    let candidates = election.candidates().await.expect("a reading");
    assert_eq!(candidates.get().iter().map(|one| one.name.as_deref()).collect::<Vec<_>>(), [Some("a")]);
}

/// Elected, unelected and why, and who leads now.
pub async fn events_tell_of_election_and_loss(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let mut events = candidacies[1].events();
    let first = loop {
        if let CandidacyEvent::NewLeader(leader) = events.next().await.expect("an event to come") {
            break leader;
        }
    };
    assert_eq!((first.name.as_deref(), first.token), (Some("a"), Some(office.token().token)));
    assert!(matches!(candidacies[1].role(), Role::Following { .. }));
    office.resign().await.expect("certain");
    let second = lead(&mut candidacies[1]).await;
    let token = Some(second.token().token);
    // What the store shows and what the candidate is told come by two ways, in either order.
    let (mut elected, mut seen) = (false, false);
    while !(elected && seen) {
        match events.next().await.expect("an event to come") {
            CandidacyEvent::Elected(ours) => elected |= ours == token,
            CandidacyEvent::NewLeader(leader) => seen |= leader.token == token,
            _ => {}
        }
    }
    second.resign().await.expect("certain");
    until_event(&mut events, CandidacyEvent::Unelected(LossReason::Resigned)).await;
}

async fn until_event(events: &mut incumbent::Events, wanted: CandidacyEvent) {
    loop {
        let event = events.next().await.expect("an event to come");
        if event == wanted {
            return;
        }
    }
}

/// The next leader that is seen. Vacancies between two are passed over.
async fn next_leader(observer: &mut Observer) -> incumbent::CandidateInfo {
    loop {
        match observer.next().await.expect("an election that goes on") {
            Observation::Leader(leader) => return leader,
            Observation::Vacant(_) | Observation::Stale | Observation::Current => {}
            other => panic!("{other:?}"),
        }
    }
}
