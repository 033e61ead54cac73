//! Terms on record: opened before anybody is in office, closed before the entry goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use incumbent::fence::{BoxFuture, Fence, FenceError, FencingToken};
use incumbent::store::ElectionName;
use incumbent::{Candidacy, Leadership, LossReason, Observation, Pending, StandError, TermEnd, TermRecord};
use incumbent_store::Version;

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;
use crate::patience::until;

impl<H: Harness> Fixture<'_, H> {
    async fn terms(&self) -> Vec<TermRecord> {
        self.line().await.office.terms.iter().cloned().collect()
    }

    /// `a`, in office with its term on record. `None`: this store keeps no record.
    async fn recorded_leader(&self) -> Option<(Candidacy, Leadership)> {
        if !self.has_office_record().await {
            return None;
        }
        let mut candidacy = self.election().await.candidate("a").recorded().stand().await.expect("a place");
        let office = lead(&mut candidacy).await;
        Some((candidacy, office))
    }
}

fn names(terms: &[TermRecord]) -> Vec<(&str, &str)> {
    terms.iter().map(|term| (&*term.name, term.end.word())).collect()
}

/// A term is on record before its leader is elected, and closed before the next one leads, who goes
/// on with the record although it has not asked for one.
pub async fn terms_on_record_are_opened_before_office_and_closed_before_the_next_one_leads(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let Some((first, office)) = fixture.recorded_leader().await else { return };
    let terms = fixture.terms().await;
    assert_eq!(names(&terms), [("a", "open")]);
    assert_eq!(terms[0].token, office.token().token);
    assert!(terms[0].opened_ms > 0 && !terms[0].origin.host.is_empty(), "{terms:?}");
    let mut second = fixture.stand("b").await;
    office.leave().await.expect("certain");
    drop(first);
    let office = lead(&mut second).await;
    let terms = fixture.terms().await;
    assert_eq!(names(&terms), [("a", "closed"), ("b", "open")]);
    let TermEnd::Closed { why, at_ms, .. } = terms[0].end else { panic!("{terms:?}") };
    assert_eq!(why, LossReason::Resigned);
    assert!(at_ms >= terms[0].opened_ms, "{terms:?}");
    office.leave().await.expect("certain");
    let status = fixture.election().await.status().await.expect("an answer").into_inner();
    assert_eq!(status.terms.iter().map(|term| term.end.word()).collect::<Vec<_>>(), ["closed", "closed"]);
}

/// Who ordered what ended a term stands beside its end.
pub async fn the_record_says_by_whose_order_a_term_ended(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let Some((_candidacy, office)) = fixture.recorded_leader().await else { return };
    let operator = fixture.election().await.operator().by("ada@ops1").reason("new disk");
    let stopping = tokio::spawn(async move { office.stopping().await });
    operator.pause(WITHIN).await.expect("paused");
    drop(stopping);
    let terms = fixture.terms().await;
    let [TermRecord { end: TermEnd::Closed { why, order, .. }, .. }] = &terms[..] else { panic!("{terms:?}") };
    assert_eq!(*why, LossReason::Paused);
    assert_eq!((&*order.by, &*order.reason), ("ada@ops1", "new disk"));
}

/// A leader that has lost its entry closes its term when its work has stopped, and not before.
pub async fn a_leader_that_lost_its_entry_closes_its_term_late(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let Some((_candidacy, office)) = fixture.recorded_leader().await else { return };
    let head = fixture.line().await.entries.remove(0);
    fixture.store.evict(&fixture.election, &head).await.expect("evicted");
    office.lost().await;
    let mut second = fixture.stand("b").await;
    let next = lead(&mut second).await;
    assert_eq!(names(&fixture.terms().await), [("a", "open"), ("b", "open")]);
    drop(office);
    fixture.until("the late close", |line| line.office.terms.iter().any(|term| term.end.word() == "closed")).await;
    assert_eq!(names(&fixture.terms().await), [("a", "closed"), ("b", "open")]);
    next.check().expect("in office");
}

/// Where terms are on record, the first in line leads once its own is open, and not before.
pub async fn the_first_in_line_of_a_recorded_election_leads_once_its_term_is_open(harness: &impl Harness) {
    /// Nobody can raise it while it is shut.
    #[derive(Debug)]
    struct Gate(AtomicBool);
    impl Fence for Gate {
        fn raise<'a>(&'a self, _: &'a ElectionName, _: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
            let shut = || FenceError::Unavailable { what: "shut".to_owned(), source: None };
            Box::pin(async move { if self.0.load(Ordering::Relaxed) { Err(shut()) } else { Ok(()) } })
        }
    }
    let fixture = Fixture::new(harness).await;
    let Some((first, office)) = fixture.recorded_leader().await else { return };
    let election = fixture.election().await;
    let status = election.status().await.expect("an answer").into_inner();
    assert_eq!((status.vacant, status.pending), (false, None));
    office.leave().await.expect("certain");
    drop(first);
    let gate = Arc::new(Gate(AtomicBool::new(true)));
    // Its place is told to its user with the office.
    let second = tokio::spawn(fixture.election().await.candidate("b").fence(gate.clone()).stand());
    // It makes room for others now and then, and comes back.
    until("it is first", async || {
        let status = election.status().await.expect("an answer").into_inner();
        assert!(status.vacant && status.leader().is_none(), "{status:?}");
        status.pending == Some(Pending::Taking)
    })
    .await;
    assert_eq!(election.observe().next().await, Some(Observation::Vacant(Some(Pending::Taking))));
    gate.0.store(false, Ordering::Relaxed);
    let mut second = second.await.expect("no panic").expect("a place");
    let _office = lead(&mut second).await;
    let leader = election.leader().await.expect("an answer").into_inner().expect("a leader");
    assert_eq!(leader.name.as_deref(), Some("b"));
}

/// An election for which nobody asked for a record has none; where none can be kept, a candidate
/// that asks for one is told so.
pub async fn an_election_keeps_no_record_of_terms_unless_it_is_asked_to(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (candidacies, office) = fixture.line_of(&["a"]).await;
    assert!(fixture.terms().await.is_empty());
    office.leave().await.expect("certain");
    drop(candidacies);
    let line = fixture.line().await;
    assert_eq!((line.office.version, line.office.terms.is_empty()), (Version::NONE, true));
    if fixture.has_office_record().await {
        return;
    }
    let asked = match fixture.election().await.candidate("b").recorded().stand().await {
        Ok(mut candidacy) => candidacy.elected().await.map(|_| ()).map_err(StandError::from),
        Err(error) => Err(error),
    };
    let told = asked.expect_err("refused").to_string();
    assert!(told.contains("record"), "{told}");
}
