//! What operators and leaders ask for through the office record.

use std::time::Duration;

use incumbent::{LossReason, OperatorError, Refusal, Role, TransferError, TransferRefused};

use super::fixture::{Fixture, WITHIN, lead};
use crate::conformance::Harness;

/// Those between step aside, and the leader hands over to the one that was named.
pub async fn an_office_goes_to_a_candidate_that_is_not_next(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
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
