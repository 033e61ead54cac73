//! Orders to the bench: who is kept out of the line, and what becomes of the office.

use std::time::Duration;

use incumbent::health::Fitness;
use incumbent::{LossReason, OperatorError, ReadError, Refusal, Role, StoreError, TransferRefused};

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;

/// The fixture, and whether anybody can be benched there. Where there is no line, that is refused.
async fn fixture<H: Harness>(harness: &H) -> Option<Fixture<'_, H>> {
    let fixture = Fixture::new(harness).await;
    if fixture.has_line().await && fixture.has_office_record().await {
        return Some(fixture);
    }
    let operator = fixture.election().await.operator();
    let refused = [
        operator.bench("a", None, WITHIN).await,
        operator.bench_anyway("a", None, WITHIN).await,
        operator.foresee_bench("a", WITHIN).await.map(|_| ()),
    ];
    for refused in refused {
        let Err(OperatorError::Read(ReadError::Store(StoreError::Unsupported { .. }))) = refused else {
            panic!("{refused:?}")
        };
    }
    None
}

/// The leader first hands over, a follower just leaves, and both stay out.
pub async fn a_benched_candidate_leaves_the_line_and_its_office_goes_to_one_that_is_fit(harness: &impl Harness) {
    let Some(fixture) = fixture(harness).await else { return };
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c", "d"]).await;
    let operator = fixture.election().await.operator();
    operator.bench("d", None, WITHIN).await.expect("benched");
    fixture.until_names(&["a", "b", "c"]).await;
    candidacies[1].set_fitness(Fitness::Unwell);
    fixture.until("its word", |line| line.entries[1].merit.unwell).await;
    let token = office.token().get();
    let stopping = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        office.resign().await.expect("certain");
        why
    });
    operator.clone().by("ada").reason("new disk").bench("a", None, WITHIN).await.expect("benched");
    assert_eq!(stopping.await.expect("no panic"), LossReason::Benched);
    let office = lead(&mut candidacies[2]).await;
    assert!(office.token().get() > token, "the best, and not the next");
    // The one between has stepped aside for it, and those that are benched are gone.
    fixture.until_names(&["c", "b"]).await;
    fixture.until("the word of it", |_| candidacies[0].role() == Role::Out(LossReason::Benched)).await;
    let status = fixture.election().await.status().await.expect("read").into_inner();
    let order = status.benched.get("a").expect("it is there");
    assert_eq!((&*order.order.by, &*order.order.reason), ("ada", "new disk"));
    operator.unbench("a", WITHIN).await.expect("taken back");
    fixture.until_names(&["c", "b", "a"]).await;
    let again = operator.unbench("a", WITHIN).await;
    assert!(matches!(&again, Err(OperatorError::NotBenched { name }) if name == "a"), "{again:?}");
    office.check().expect("undisturbed");
}

/// The name counts, not the candidate: one that comes later, or comes again, stays out.
pub async fn a_name_is_benched_also_while_nobody_has_it(harness: &impl Harness) {
    let Some(fixture) = fixture(harness).await else { return };
    let operator = fixture.election().await.operator();
    operator.bench("b", None, WITHIN).await.expect("benched");
    let (_others, office) = fixture.line_of(&["a"]).await;
    let late = fixture.stand("b").await;
    fixture.until_names(&["a"]).await;
    fixture.until("the word of it", |_| late.role() == Role::Out(LossReason::Benched)).await;
    drop(late);
    let _again = fixture.stand("b").await;
    fixture.until_names(&["a"]).await;
    office.resign().await.expect("certain");
    fixture.until_names(&["a"]).await;
    let tried = fixture.election().await.candidate("b").try_once().await.expect("no error");
    assert!(tried.is_none(), "{tried:?}");
    operator.unbench("b", WITHIN).await.expect("taken back");
    fixture.until_names(&["a", "b"]).await;
}

/// Where nobody could follow, the order is refused, unless it says that this is no matter.
pub async fn a_leader_that_nobody_can_follow_is_benched_only_by_those_who_insist(harness: &impl Harness) {
    let Some(fixture) = fixture(harness).await else { return };
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let operator = fixture.election().await.operator();
    let forecast = operator.foresee_bench("a", WITHIN).await.expect("read");
    let named = |one: Option<incumbent::CandidateInfo>| one.and_then(|one| one.name).map(|name| name.to_string());
    let (leader, heir) = (named(forecast.leader), named(forecast.heir));
    assert_eq!((leader.as_deref(), heir.as_deref()), (Some("a"), Some("b")));
    assert!(forecast.followers.is_empty() && forecast.refused.is_none());
    operator.bench("b", None, WITHIN).await.expect("benched");
    candidacies[2].set_fitness(Fitness::Unwell);
    fixture.until("its word", |line| line.entries.iter().any(|entry| entry.merit.unwell)).await;
    let refused = operator.bench("a", None, WITHIN).await;
    let Err(OperatorError::NoHeir { leader, unwell }) = refused else { panic!("{refused:?}") };
    assert_eq!((leader.name.as_deref(), unwell.len(), unwell[0].name.as_deref()), (Some("a"), 1, Some("c")));
    assert!(fixture.line().await.office.benched.get("a").is_none(), "nothing is written");
    office.check().expect("undisturbed");
    let stopping = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        office.resign().await.expect("certain");
        why
    });
    operator.bench_anyway("a", None, WITHIN).await.expect("benched");
    assert_eq!(stopping.await.expect("no panic"), LossReason::Benched);
    lead(&mut candidacies[2]).await.check().expect("unwell, and the only one");
}

/// A freeze keeps the leader where it is; those that do not lead leave all the same.
pub async fn in_a_frozen_election_only_those_that_do_not_lead_are_benched(harness: &impl Harness) {
    let Some(fixture) = fixture(harness).await else { return };
    let (_candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let operator = fixture.election().await.operator();
    operator.freeze(None, WITHIN).await.expect("frozen");
    for refused in [operator.bench("a", None, WITHIN).await, operator.bench_anyway("a", None, WITHIN).await] {
        let frozen = matches!(refused, Err(OperatorError::Refused(TransferRefused::Leader(Refusal::Frozen))));
        assert!(frozen, "{refused:?}");
    }
    operator.bench("c", None, WITHIN).await.expect("benched");
    fixture.until_names(&["a", "b"]).await;
    office.check().expect("undisturbed");
    // Nobody waits for one that cannot come.
    operator.unfreeze(WITHIN).await.expect("unfrozen");
    let transferred = operator.transfer("c", WITHIN).await;
    office.check().expect("undisturbed");
    let stopping = tokio::spawn(async move {
        office.stopping().await;
        drop(office);
    });
    operator.pause(WITHIN).await.expect("a pause is stronger");
    stopping.await.expect("no panic");
    for refused in [transferred, operator.resume_first("c", WITHIN).await] {
        assert!(matches!(&refused, Err(OperatorError::IsBenched { name, .. }) if name == "c"), "{refused:?}");
    }
}

/// The leader takes it out of the record, or the benched one that is alone, and nobody has to think
/// of it.
pub async fn an_order_to_the_bench_is_over_when_its_time_is(harness: &impl Harness) {
    let Some(fixture) = fixture(harness).await else { return };
    let operator = fixture.election().await.operator();
    operator.bench("a", Some(Duration::from_millis(50)), WITHIN).await.expect("benched");
    operator.bench("b", Some(Duration::from_secs(3600)), WITHIN).await.expect("benched");
    let mut alone = fixture.stand("a").await;
    let office = lead(&mut alone).await;
    let names = |line: &incumbent::store::Line| {
        line.office.benched.iter().map(|order| order.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&fixture.line().await), ["b"], "it has taken out its own");
    operator.bench("b", Some(Duration::from_millis(50)), WITHIN).await.expect("benched for less");
    fixture.until("the end of the order", |line| line.office.benched.is_empty()).await;
    office.check().expect("undisturbed");
}
