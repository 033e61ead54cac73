//! What operators and leaders ask for through the office record.

use std::time::Duration;

use incumbent::health::Fitness;
use incumbent::store::Line;
use incumbent::{LossReason, OperatorError, Refusal, Role, TransferError, TransferRefused};

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;

/// Those between step aside, and the leader hands over to the one that was named.
pub async fn an_office_goes_to_a_candidate_that_is_not_next(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c", "d"]).await;
    let operator = fixture.election().await.operator();
    if !fixture.has_line().await {
        let refused = operator.transfer("d", WITHIN).await;
        assert!(matches!(refused, Err(OperatorError::Refused(TransferRefused::NoSuchCandidate(_)))), "{refused:?}");
        return;
    }
    let before = office.token().get();
    let stopping = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        office.resign().await.expect("certain");
        why
    });
    operator.transfer("d", WITHIN).await.expect("transferred");
    assert_eq!(stopping.await.expect("no panic"), LossReason::Transferred);
    let office = lead(&mut candidacies[3]).await;
    assert!(office.token().get() > before);
    // Nobody is lost on the way, and the request is taken back.
    fixture.until("everyone in line again", |line| line.entries.len() == 4 && line.office.handover.is_none()).await;
    operator.transfer("d", WITHIN).await.expect("the one that leads already");
}

/// The leader itself hands over; refused, it leads on.
pub async fn a_leader_hands_its_own_office_over(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let office = match office.transfer_to("nobody", WITHIN).await {
        Err(TransferError::Refused { leadership: office, why: TransferRefused::NoSuchCandidate(_) }) => office,
        other => panic!("{other:?}"),
    };
    office.check().expect("still in office");
    let office = match office.transfer_to("a", WITHIN).await {
        Err(TransferError::Refused { leadership: office, why: TransferRefused::Leader(Refusal::LeadsAlready) }) => {
            office
        }
        other => panic!("{other:?}"),
    };
    if !fixture.has_line().await {
        return;
    }
    let term = office.term();
    office.transfer_to("c", WITHIN).await.expect("transferred");
    assert_eq!(term.check().expect_err("over").reason(), LossReason::Transferred);
    lead(&mut candidacies[2]).await.check().expect("in office");
}

/// A name that fits nobody or several is an error that says so, and nothing changes.
pub async fn a_transfer_to_somebody_unknown_or_ambiguous_is_refused(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (candidacies, office) = fixture.line_of(&["a", "twin", "twin"]).await;
    let operator = fixture.election().await.operator();
    let refused = operator.transfer("nobody", WITHIN).await;
    assert!(matches!(refused, Err(OperatorError::Refused(TransferRefused::NoSuchCandidate(_)))), "{refused:?}");
    if fixture.has_line().await {
        let refused = operator.transfer("twin", WITHIN).await;
        let Err(OperatorError::Refused(TransferRefused::Ambiguous { ids, .. })) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(ids.len(), 2);
        office.check().expect("undisturbed");
        let stopping = tokio::spawn(async move {
            office.stopping().await;
            drop(office);
        });
        operator.transfer(ids[1].as_str(), WITHIN).await.expect("an id fits one");
        stopping.await.expect("no panic");
        let line = fixture.line().await;
        assert_eq!(line.entries[0].incarnation.map(|id| id.to_string()).as_ref(), Some(&ids[1]));
    }
    drop(candidacies);
}

/// Another library's candidate will not step aside, so the leader leads on.
pub async fn a_transfer_past_a_foreign_candidate_is_refused(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (candidacies, office) = fixture.line_of(&["a"]).await;
    if !fixture.has_line().await {
        // There is no place between two where there is only one.
        return office.check().expect("in office");
    }
    let Some(foreign) = harness.enlist_foreign(&fixture.election, "theirs".into()).await else {
        return office.check().expect("in office");
    };
    let heir = fixture.stand("b").await;
    let operator = fixture.election().await.operator();
    let refused = operator.transfer("b", WITHIN).await;
    let between = TransferRefused::Leader(Refusal::ForeignBetween).to_string();
    assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(&between)), "{refused:?}");
    let Err(TransferError::Refused { leadership: office, why }) = office.transfer_to("b", WITHIN).await else {
        panic!("not refused")
    };
    assert!(matches!(why, TransferRefused::Leader(Refusal::ForeignBetween)), "{why:?}");
    office.check().expect("undisturbed");
    drop((candidacies, heir));
    fixture.store.evict(&fixture.election, &foreign).await.expect("evicted");
}

/// Asked to resign, the leader drains, leaves, and stands again at the end.
pub async fn a_leader_asked_to_resign_goes_to_the_end_of_the_line(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let operator = fixture.election().await.operator();
    let stopping = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        office.check().expect("in office while it drains");
        office.resign().await.expect("certain");
        why
    });
    operator.resign(WITHIN).await.expect("resigned");
    assert_eq!(stopping.await.expect("no panic"), LossReason::Resigned);
    if fixture.has_line().await {
        let office = lead(&mut candidacies[1]).await;
        fixture.until_names(&["b", "a"]).await;
        office.check().expect("in office");
    }
    let vacant = fixture.client().await.election("nobody/is/here").expect("a name").operator().resign(WITHIN).await;
    assert!(matches!(vacant, Err(OperatorError::Vacant)), "{vacant:?}");
}

/// Removed by an operator, the leader knows by whom.
pub async fn a_deposed_leader_is_told_so(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let token = office.token().token;
    let operator = fixture.election().await.operator();
    assert_eq!(operator.depose(Some(token), WITHIN).await.expect("deposed"), token);
    let why = office.lost().await.reason();
    // Where nothing is told, the next renewal finds the entry gone before anybody has read why.
    let watches = fixture.store.promises().await.expect("promises").watches;
    assert!(why == LossReason::Deposed || (!watches && why == LossReason::EntryDeleted), "{why:?}");
    drop(office);
    if fixture.has_line().await {
        let second = lead(&mut candidacies[1]).await;
        fixture.until_names(&["b", "a"]).await;
        second.check().expect("in office");
    }
}

/// Only exactly the one that was named is removed.
pub async fn deposing_somebody_who_does_not_lead_is_refused(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let operator = fixture.election().await.operator();
    let vacant = operator.depose(None, WITHIN).await;
    assert!(matches!(vacant, Err(OperatorError::Vacant)), "{vacant:?}");
    let (_candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let other = incumbent::Token::new(office.token().get() + 1_000_000).expect("a token");
    let refused = operator.depose(Some(other), WITHIN).await;
    assert!(matches!(refused, Err(OperatorError::NotLeading { .. })), "{refused:?}");
    office.check().expect("undisturbed");
}

/// While paused nobody is in line; afterwards everyone is again.
pub async fn a_pause_empties_the_line_and_a_resumption_fills_it(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let operator = fixture.election().await.operator();
    let stopping = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        drop(office);
        why
    });
    operator.clone().reason("maintenance").pause(WITHIN).await.expect("paused");
    assert_eq!(stopping.await.expect("no panic"), LossReason::Paused);
    assert!(fixture.names().await.is_empty());
    // One who comes now waits outside.
    let late = fixture.stand("d").await;
    assert_eq!(late.role(), Role::Out(LossReason::Paused));
    assert!(fixture.election().await.candidate("e").try_once().await.expect("an answer").is_none());
    operator.resume(WITHIN).await.expect("resumed");
    let again = operator.resume(WITHIN).await;
    assert!(matches!(again, Err(OperatorError::NotPaused)), "{again:?}");
    candidacies.push(late);
    if fixture.has_line().await {
        fixture.until("everyone in line", |line| line.entries.len() == 4).await;
    }
    let elected = futures_select(candidacies.iter_mut()).await;
    elected.check().expect("in office");
}

/// Nobody else stands until it leads; then everyone is back.
pub async fn a_paused_election_goes_on_with_the_one_that_is_to_lead_first(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let operator = fixture.election().await.operator();
    let refused = operator.resume_first("b", WITHIN).await;
    assert!(matches!(refused, Err(OperatorError::NotPaused)), "{refused:?}");
    let stopping = tokio::spawn(async move {
        office.stopping().await;
        drop(office);
    });
    operator.pause(WITHIN).await.expect("paused");
    stopping.await.expect("no panic");
    operator.resume_first("b", WITHIN).await.expect("b leads");
    let office = lead(&mut candidacies[1]).await;
    if fixture.has_line().await {
        let is_first = |line: &Line| line.entries[0].name.as_deref() == Some("b");
        fixture.until("everyone in line behind b", |line| line.entries.len() == 3 && is_first(line)).await;
    }
    office.check().expect("in office");
}

/// Two recoveries could each let another candidate lead.
pub async fn while_one_operator_heals_an_election_no_other_lets_candidates_back(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let election = fixture.election().await;
    let (ada, bob) = (election.operator().by("ada@ops1"), election.operator().by("bob@ops2"));
    ada.pause(WITHIN).await.expect("paused");
    ada.recover("7f3a", "1 stop", None, WITHIN).await.expect("a recovery");
    ada.recover("7f3a", "3 reconcile", None, WITHIN).await.expect("its next step");
    let recovery = election.status().await.expect("a status").into_inner().recovery.expect("a recovery");
    assert_eq!((&*recovery.id, &*recovery.step, &*recovery.order.by), ("7f3a", "3 reconcile", "ada@ops1"));
    for refused in [
        bob.recover("1234", "1 stop", None, WITHIN).await,
        bob.recover("1234", "1 stop", Some("9999"), WITHIN).await,
        bob.recovered("1234", WITHIN).await,
        bob.resume(WITHIN).await,
        bob.clone().recovering("1234").resume_first("a", WITHIN).await,
        bob.end(WITHIN).await,
    ] {
        let Err(OperatorError::Recovering(other)) = &refused else { panic!("{refused:?}") };
        assert_eq!(**other, recovery);
    }
    assert!(fixture.line().await.office.paused.is_some(), "nothing is changed");
    bob.recover("1234", "1 stop", Some("7f3a"), WITHIN).await.expect("taken over");
    let refused = ada.clone().recovering("7f3a").resume(WITHIN).await;
    assert!(matches!(refused, Err(OperatorError::Recovering(_))), "{refused:?}");
    bob.clone().recovering("1234").resume(WITHIN).await.expect("its own operator");
    bob.recovered("1234", WITHIN).await.expect("over");
    assert!(fixture.line().await.office.is_blank());
}

/// Neither because it is unfit nor because it is asked to does a leader leave a frozen office.
pub async fn a_frozen_office_stays_where_it_is(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let election = fixture.election().await;
    let operator = election.operator().by("ada@ops1").reason("firmware");
    operator.freeze(None, WITHIN).await.expect("frozen");
    let frozen = election.status().await.expect("a status").into_inner().frozen.expect("a freeze");
    assert_eq!((&*frozen.order.by, &*frozen.order.reason, frozen.lasts), ("ada@ops1", "firmware", None));
    assert!(frozen.order.at_ms > 0);
    let refused = operator.resign(WITHIN).await;
    let is_frozen = |why: &TransferRefused| matches!(why, TransferRefused::Leader(Refusal::Frozen));
    assert!(matches!(&refused, Err(OperatorError::Refused(why)) if is_frozen(why)), "{refused:?}");
    if !fixture.has_line().await {
        operator.unfreeze(WITHIN).await.expect("unfrozen");
        return;
    }
    let office = match office.transfer_to("b", WITHIN).await {
        Err(TransferError::Refused { leadership, why }) if is_frozen(&why) => leadership,
        other => panic!("{other:?}"),
    };
    // By now the leader has read the order.
    candidacies[0].set_healthy(false);
    office.proclaim("unfit, and in office").await.expect("proclaimed");
    let stopping = tokio::time::timeout(Duration::from_millis(1), office.stopping()).await;
    assert!(stopping.is_err(), "it is to stop: {stopping:?}");
    office.check().expect("in office");
    operator.unfreeze(WITHIN).await.expect("unfrozen");
    assert_eq!(office.stopping().await.reason(), LossReason::Unhealthy);
    office.resign().await.expect("certain");
    lead(&mut candidacies[1]).await.check().expect("in office");
    let again = operator.unfreeze(WITHIN).await;
    assert!(matches!(again, Err(OperatorError::NotFrozen)), "{again:?}");
}

/// Unwell: somebody else would be better. The leader hands over to one who is fit, and those
/// between step aside; with nobody fit it stays.
pub async fn an_unwell_leader_hands_over_to_one_that_is_fit(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let unwell = |line: &Line| -> Vec<bool> { line.entries.iter().map(|entry| entry.merit.unwell).collect() };
    candidacies[0].set_fitness(Fitness::Unwell);
    if !fixture.has_line().await {
        // Nobody waits in line to hand over to.
        fixture.until("the word of the leader", |line| unwell(line) == [true]).await;
        return office.check().expect("in office");
    }
    assert_eq!(office.stopping().await.reason(), LossReason::Unwell);
    office.resign().await.expect("certain");
    // The first that is fit is asked first; one that does not answer in time gives way to the next.
    let so = |line: &Line| matches!(unwell(line)[..], [false, false, true] | [false, true, false]);
    fixture.until("a fit leader, and everyone behind it", so).await;
    let (heir, other) = if fixture.names().await[0] == "b" { (1, 2) } else { (2, 1) };
    let office = lead(&mut candidacies[heir]).await;
    // Not one that is unwell, nor one that was and stands before it.
    candidacies[other].set_fitness(Fitness::Unwell);
    fixture.until("nobody fit behind the leader", |line| unwell(line) == [false, true, true]).await;
    candidacies[heir].set_fitness(Fitness::Unwell);
    fixture.until("nobody fit at all", |line| unwell(line) == [true, true, true]).await;
    office.proclaim("unwell, and in office").await.expect("proclaimed");
    office.check().expect("in office");
    candidacies[0].set_fitness(Fitness::Fit);
    assert_eq!(office.stopping().await.reason(), LossReason::Unwell);
    office.resign().await.expect("certain");
    lead(&mut candidacies[0]).await.check().expect("in office");
    fixture.until("everyone in line again", |line| unwell(line) == [false, true, true]).await;
}

/// What changes hands again and again helps nobody: after three times an operator has to say that
/// it has looked.
pub async fn health_moves_an_office_three_times_and_then_an_operator_is_asked(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await || !fixture.has_line().await {
        return;
    }
    let (mut candidacies, mut office) = fixture.line_of(&["a", "b"]).await;
    let operator = fixture.election().await.operator();
    let too_early = operator.acknowledge(WITHIN).await;
    assert!(matches!(too_early, Err(OperatorError::NotHeldBack)), "{too_early:?}");
    for change in 0..4 {
        let (leader, heir) = (change % 2, (change + 1) % 2);
        fixture
            .until("a fit one behind the leader", |line| line.entries.len() == 2 && !line.entries[1].merit.unwell)
            .await;
        candidacies[leader].set_fitness(Fitness::Unwell);
        if change == 3 {
            fixture.until("a word of it", |line| line.office.held_back.is_some()).await;
            office.check().expect("in office");
            assert!(fixture.line().await.entries[0].merit.unwell);
            operator.acknowledge(WITHIN).await.expect("held back");
        }
        assert_eq!(office.stopping().await.reason(), LossReason::Unwell, "change {change}");
        office.resign().await.expect("certain");
        office = lead(&mut candidacies[heir]).await;
        candidacies[leader].set_fitness(Fitness::Fit);
    }
    office.check().expect("in office");
}

/// A freeze keeps a leader that is unwell where it is.
pub async fn an_unwell_leader_of_a_frozen_office_stays(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await || !fixture.has_line().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let operator = fixture.election().await.operator();
    operator.freeze(None, WITHIN).await.expect("frozen");
    // What is refused has been read.
    let refused = office.transfer_to("b", WITHIN).await;
    let Err(TransferError::Refused { leadership: office, .. }) = refused else { panic!("{refused:?}") };
    candidacies[0].set_fitness(Fitness::Unwell);
    fixture.until("its word", |line| line.entries[0].merit.unwell).await;
    office.proclaim("unwell, and in office").await.expect("proclaimed");
    assert!(fixture.line().await.office.handover.is_none_or(|handover| !handover.for_health));
    office.check().expect("in office");
    operator.unfreeze(WITHIN).await.expect("unfrozen");
    assert_eq!(office.stopping().await.reason(), LossReason::Unwell);
    office.resign().await.expect("certain");
    lead(&mut candidacies[1]).await.check().expect("in office");
}

/// A freeze keeps nobody in office who is gone, and nobody out of it who is next.
pub async fn the_next_in_line_follows_in_a_frozen_office(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b"]).await;
    let operator = fixture.election().await.operator();
    operator.freeze(None, WITHIN).await.expect("frozen");
    drop((candidacies.remove(0), office));
    lead(&mut candidacies[0]).await.check().expect("in office");
    operator.clone().reason("it was frozen").pause(WITHIN).await.expect("a pause is stronger");
}

/// The leader takes it out of the record, and nobody has to think of it.
pub async fn a_freeze_is_over_when_its_time_is(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let (_candidacies, office) = fixture.line_of(&["a"]).await;
    let operator = fixture.election().await.operator();
    operator.freeze(Some(Duration::from_secs(3600)), WITHIN).await.expect("frozen");
    assert!(fixture.line().await.office.frozen.is_some());
    operator.freeze(Some(Duration::from_millis(50)), WITHIN).await.expect("frozen for less");
    fixture.until("the end of the freeze", |line| line.office.frozen.is_none()).await;
    office.check().expect("undisturbed");
}

/// They will not obey, so neither a pause nor a freeze pretends.
pub async fn a_pause_names_the_foreign_candidates(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let operator = fixture.election().await.operator();
    let Some(foreign) = harness.enlist_foreign(&fixture.election, "theirs".into()).await else {
        operator.pause(WITHIN).await.expect("paused");
        return;
    };
    let refused = operator.clone().reason("maintenance").pause(WITHIN).await;
    let Err(OperatorError::Foreign { entries }) = refused else { panic!("{refused:?}") };
    assert_eq!(entries, [foreign.id.as_str()]);
    assert!(fixture.line().await.office.paused.is_none(), "nothing is changed");
    let refused = operator.freeze(None, WITHIN).await;
    assert!(matches!(&refused, Err(OperatorError::Foreign { entries: named }) if *named == entries), "{refused:?}");
    assert!(fixture.line().await.office.frozen.is_none(), "nor would it stay where it is");
    fixture.store.evict(&fixture.election, &foreign).await.expect("evicted");
}

/// Independent fields, changed by compare-and-set: neither notice is lost.
pub async fn a_pause_and_a_transfer_that_race_do_not_erase_each_other(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line().await {
        return fixture.until_empty().await;
    }
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let working = tokio::spawn(async move {
        office.stopping().await;
        drop(office);
    });
    let (pausing, transferring) = (fixture.election().await.operator(), fixture.election().await.operator());
    let handovers = async {
        // The heir drains and leaves when the pause comes, whether it leads by then or not.
        transferring.transfer("c", harness.ttl()).await
    };
    let leaders = async {
        let office = candidacies[2].elected().await;
        if let Ok(Some(office)) = office {
            office.stopping().await;
            drop(office);
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        (paused, _either) = async { tokio::join!(pausing.pause(WITHIN), handovers) } => {
            paused.expect("a pause is never erased");
        }
        () = leaders => {}
    }
    working.await.expect("no panic");
    assert!(fixture.line().await.office.paused.is_some());
    // A candidate that was on its way back into the line when the pause came reads it there, and
    // leaves again.
    fixture.until_empty().await;
}

/// Leader, followers and observers hear of it, nothing is left, and a new handle is a new election.
pub async fn an_end_reaches_everyone_and_those_who_come_later_start_afresh(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_office_record().await {
        return;
    }
    let election = fixture.election().await;
    let (mut candidacies, office) = fixture.line_of(&["a", "b", "c"]).await;
    let token = office.token().get();
    let stopping = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        drop(office);
        why
    });
    let old = fixture.election().await;
    old.leader().await.expect("first contact");
    let mut old_candidacy = old.candidate("old").stand().await.expect("a place");
    election.operator().end(WITHIN).await.expect("ended");
    assert_eq!(stopping.await.expect("no panic"), LossReason::Ended);
    for candidacy in &mut candidacies {
        assert!(candidacy.elected().await.expect("an orderly end").is_none());
    }
    assert!(old_candidacy.elected().await.expect("an orderly end").is_none());
    assert!(fixture.names().await.is_empty());
    let again = old.candidate("old").stand().await;
    assert!(again.is_err(), "the handle that knew the election before: {again:?}");
    let mut candidacy = fixture.stand("new").await;
    let office = lead(&mut candidacy).await;
    assert!(office.token().get() > token, "tokens never start again");
}

/// The first that is elected.
async fn futures_select<'a>(candidacies: impl Iterator<Item = &'a mut incumbent::Candidacy>) -> incumbent::Leadership {
    let mut waits: Vec<_> = candidacies.map(|candidacy| Box::pin(lead(candidacy))).collect();
    std::future::poll_fn(|cx| {
        for wait in &mut waits {
            if let std::task::Poll::Ready(office) = wait.as_mut().poll(cx) {
                return std::task::Poll::Ready(office);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
