//! The line: its order, entering it, standing in it and leaving it.

use std::time::Duration;

use bytes::Bytes;
use incumbent_store::{
    Cas, Decline, EntryId, Held, Merit, NewEntry, Nonce, Place, Preparation, Publication, StoreError, Token,
};
use tokio::time::timeout;

use super::fixture::{Fixture, Participant, new_entry, poll_once};
use super::harness::Harness;
use crate::candidates::{held, held_of};

/// The first to come leads first; without a line, the first to come while the office is vacant.
pub async fn the_line_is_first_in_first_out<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line() {
        return one_record_is_taken_and_freed(&fixture).await;
    }
    let participants = fixture.participants_in_line(5).await;
    let tokens: Vec<_> = participants.iter().map(|(_, held)| held.token).collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(fixture.tokens().await, tokens);
    for number in 0..participants.len() {
        for (waiting, (participant, held)) in participants.iter().enumerate().skip(number) {
            assert_eq!(participant.leads(held).await, waiting == number, "{waiting} while {number} leads");
        }
        participants[number].0.withdraw(&participants[number].1).await;
    }
    assert_eq!(fixture.tokens().await, []);
}

async fn one_record_is_taken_and_freed(fixture: &Fixture) {
    let (first, second) = (fixture.participant().await, fixture.participant().await);
    let held = first.stand(&fixture.election).await;
    assert!(first.leads(&held).await);
    let entry = new_entry();
    let refused = second.enlist_as(&fixture.election, &entry).await.unwrap().place;
    let Place::Behind { held: None, ahead, look_again: Some(_), .. } = refused else { panic!("{refused:?}") };
    assert!(ahead.is(&held));
    assert_eq!(fixture.tokens().await, [held.token]);
    first.withdraw(&held).await;
    let taken = second.enlist_as(&fixture.election, &entry).await.unwrap().place;
    let Place::Leading(taken) = taken else { panic!("{taken:?}") };
    assert!(taken.token > held.token);
}

/// The newest of those older than us, as others see it.
pub async fn a_candidate_behind_is_shown_the_one_right_ahead<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let leader = fixture.participant().await;
    let mut ahead_held = leader.stand(&fixture.election).await;
    let mut followers = Vec::new();
    for _ in 0..3 {
        let follower = fixture.participant().await;
        let standing = follower.enlist(&fixture.election).await;
        let Place::Behind { ahead, held, .. } = &standing.place else { panic!("{standing:?}") };
        assert!(ahead.is(&ahead_held), "{ahead:?} is not {ahead_held:?}");
        assert!(!ahead.is_foreign());
        assert_eq!(ahead.name.as_deref(), Some("node-1"));
        assert_eq!(ahead.value, "10.0.0.7:80");
        assert_eq!(held.is_some(), fixture.has_line());
        ahead_held = held.clone().unwrap_or(ahead_held);
        followers.push(follower);
    }
}

/// The same incarnation is never in line twice, however often it asks.
pub async fn enlisting_again_as_the_same_incarnation_adds_nothing<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let entry = new_entry();
    let first = held(&participant.enlist_as(&fixture.election, &entry).await.unwrap());
    for _ in 0..3 {
        let again = participant.enlist_as(&fixture.election, &entry).await.unwrap();
        assert_eq!(again.place, Place::Leading(first.clone()));
    }
    assert_eq!(fixture.tokens().await, [first.token]);
}

/// A dropped call may or may not have had its effect: the same call again settles it.
pub async fn an_enlistment_that_was_cancelled_is_settled_by_repeating_it<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    for patience_micros in [0, 1, 100, 1_000, 10_000] {
        let election = harness.election();
        let participant = fixture.participant().await;
        let entry = new_entry();
        let mut cancelled = participant.session.enlist(&election, &entry);
        if patience_micros == 0 {
            let _ = poll_once(&mut cancelled).await;
        } else {
            let _ = timeout(Duration::from_micros(patience_micros), &mut cancelled).await;
        }
        drop(cancelled);
        let held = held(&participant.enlist_as(&election, &entry).await.unwrap());
        assert!(participant.leads(&held).await);
        // A write that was cancelled on its way may still arrive: it must find its incarnation
        // there.
        let renewal = participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
        assert_eq!((renewal.gone, renewal.stray), (vec![], vec![]));
        let line = fixture.line_of(&election).await.entries;
        assert_eq!(line.iter().map(|entry| entry.token).collect::<Vec<_>>(), [held.token]);
    }
}

/// One session has one place in a line.
pub async fn a_second_candidacy_of_one_session_is_refused_and_names_the_first<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    match participant.enlist_as(&fixture.election, &new_entry()).await {
        Err(StoreError::AlreadyInLine(first)) => assert_eq!(first, held),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.tokens().await, [held.token]);
    participant.withdraw(&held).await;
    let again = participant.stand(&fixture.election).await;
    assert!(participant.leads(&again).await);
}

/// A withdrawn entry never stands again, not even when the same session stands anew.
pub async fn standing_says_gone_for_an_entry_that_was_withdrawn<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    participant.withdraw(&held).await;
    assert_eq!(participant.place(&held).await, Place::Gone);
    let again = participant.stand(&fixture.election).await;
    assert_eq!(participant.place(&held).await, Place::Gone);
    assert!(participant.leads(&again).await);
}

/// Nobody leads with somebody else's entry.
pub async fn standing_says_gone_for_an_entry_of_another_session<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (owner, thief) = (fixture.participant().await, fixture.participant().await);
    let held = owner.stand(&fixture.election).await;
    assert_eq!(thief.place(&held).await, Place::Gone);
    assert!(owner.leads(&held).await);
    thief.withdraw(&held).await;
    assert!(owner.leads(&held).await, "nobody withdraws for another");
    let was = owner.standing(&held).await.published;
    assert_eq!(thief.session.publish(&held, was, &Publication::new("mine")).await.unwrap(), None);
    assert_eq!(fixture.seen(&held).await.value, "10.0.0.7:80");
}

/// All that matters is that nothing older is left.
pub async fn several_predecessors_may_go_at_once<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line() {
        return one_record_is_taken_and_freed(&fixture).await;
    }
    let participants = fixture.participants_in_line(4).await;
    let [first, second, third, last] = participants.as_slice() else { unreachable!() };
    tokio::join!(second.0.withdraw(&second.1), first.0.withdraw(&first.1), third.0.withdraw(&third.1));
    assert!(last.0.leads(&last.1).await);
    assert_eq!(fixture.tokens().await, [last.1.token]);
}

/// Everybody sees what a candidate advertises, and that it is ready for a handover; its place
/// stays.
pub async fn publishing_changes_the_value_and_the_readiness<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    let before = fixture.seen(&held).await;
    assert_eq!((before.ready, before.name.as_deref()), (None, Some("node-1")));
    // Bytes are bytes, and a nonce has 64 bits.
    for (value, ready) in
        [(b"second".as_slice(), Some(Nonce(u64::MAX))), (b"\0\n\xff not text", Some(Nonce(0))), (b"", None)]
    {
        let was = fixture.seen(&held).await;
        let published = participant.publish(&held, value, ready).await;
        assert_eq!(published, Some(participant.standing(&held).await.published));
        let now = fixture.seen(&held).await;
        assert_eq!((&*now.value, now.ready), (value, ready));
        assert_ne!(now.version, was.version, "a change shows in the version");
        assert_eq!((now.incarnation, now.name), (before.incarnation, before.name.clone()));
    }
    assert!(participant.leads(&held).await);
}

/// Everybody sees what a candidate says of itself, from when it says so until it says otherwise: in
/// the line, and the one behind it in its own standing.
pub async fn what_is_said_of_merit_is_read_back_in_the_line_and_by_the_next<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (unwell, next) = (fixture.participant().await, fixture.participant().await);
    let entry = new_entry().merit(Merit::new(true, 3));
    let held = held(&unwell.enlist_as(&fixture.election, &entry).await.unwrap());
    assert!(unwell.leads(&held).await, "it leads all the same");
    let behind = new_entry();
    let ahead = async || {
        let enlisted = next.enlist_as(&fixture.election, &behind).await.unwrap();
        let standing = match held_of(&enlisted) {
            Some(own) => next.session.standing(&own, Some(&held.entry)).await.unwrap(),
            None => enlisted,
        };
        match standing.place {
            Place::Behind { ahead, .. } => ahead,
            other => panic!("{other:?}"),
        }
    };
    for seen in [fixture.seen(&held).await, ahead().await] {
        assert_eq!(seen.merit, Merit::new(true, 3), "it came so");
    }
    let declined = Preparation::Declined(Nonce(u64::MAX), Decline::TimedOut);
    for (unwell_now, priority, preparation, ready) in [
        (false, 0, None, None),
        (true, 0, None, Some(Nonce(7))),
        (false, i32::MIN, None, Some(Nonce(u64::MAX))),
        (true, i32::MAX, Some(declined), None),
        (false, 0, Some(Preparation::Preparing(Nonce(0))), Some(Nonce(1))),
        (false, 1, None, None),
    ] {
        let merit = Merit::new(unwell_now, priority).preparation(preparation);
        let said = Publication::new("10.0.0.7:80").ready(ready).merit(merit);
        let was = unwell.standing(&held).await.published;
        assert!(unwell.session.publish(&held, was, &said).await.unwrap().is_some());
        for seen in [fixture.seen(&held).await, ahead().await] {
            assert_eq!((seen.merit, seen.ready, &*seen.value), (merit, ready, b"10.0.0.7:80".as_slice()));
        }
    }
    unwell.withdraw(&held).await;
    let again = unwell.stand(&fixture.election).await;
    assert!(fixture.seen(&again).await.merit.is_blank(), "that was another entry");
}

/// What is no longer ours is not written to.
pub async fn publishing_is_refused_for_an_entry_that_is_gone<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    let was = participant.standing(&held).await.published;
    participant.withdraw(&held).await;
    let late = Publication::new("late");
    assert_eq!(participant.session.publish(&held, was, &late).await.unwrap(), None);
    assert_eq!(fixture.tokens().await, []);
    let again = participant.stand(&fixture.election).await;
    assert_eq!(participant.session.publish(&held, was, &late).await.unwrap(), None);
    assert_eq!(fixture.seen(&again).await.value, "10.0.0.7:80");
}

/// One that was given up may arrive at any time. A later one has replaced what it was to replace.
pub async fn a_late_publication_puts_nothing_old_back<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    let first = participant.standing(&held).await.published;
    let publish = async |was, value: &'static str, ready| {
        participant.session.publish(&held, was, &Publication::new(value).ready(ready)).await.unwrap()
    };
    let second = publish(first, "second", None).await.expect("nobody else has published");
    assert_eq!(publish(first, "late", Some(Nonce(1))).await, None);
    let seen = fixture.seen(&held).await;
    assert_eq!((&*seen.value, seen.ready), (b"second".as_slice(), None));
    // Renewals and handovers are none of its business.
    participant.session.renew(std::slice::from_ref(&held)).await.unwrap();
    let third = publish(second, "third", Some(Nonce(1))).await.expect("a renewal publishes nothing");
    for late in [first, second] {
        assert_eq!(publish(late, "late", None).await, None);
    }
    assert_eq!(participant.standing(&held).await.published, third);
    let seen = fixture.seen(&held).await;
    assert_eq!((&*seen.value, seen.ready), (b"third".as_slice(), Some(Nonce(1))));
}

/// Whom it was behind helps to find the answer, and changes nothing about it.
pub async fn a_standing_that_is_told_whom_it_was_behind_is_the_same<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line() {
        return one_record_is_taken_and_freed(&fixture).await;
    }
    let participants = fixture.participants_in_line(4).await;
    let [(first, leading), (second, gone), (third, held), (fourth, last)] = participants.as_slice() else {
        unreachable!()
    };
    let nobody = EntryId::new("nobody");
    // `None`: our entry is gone; else who is ahead of it, if anybody is.
    let stands = async |participant: &Participant, held: &Held, was_behind: &Held, expected: Option<Option<Token>>| {
        for behind in [&was_behind.entry, &nobody] {
            let place = match participant.session.standing(held, Some(behind)).await.unwrap().place {
                Place::Leading(_) => Some(None),
                Place::Behind { ahead, .. } => {
                    assert_eq!((ahead.name.as_deref(), &*ahead.value), (Some("node-1"), b"10.0.0.7:80".as_slice()));
                    Some(Some(ahead.token))
                }
                Place::Gone => None,
            };
            assert_eq!(place, expected, "{held:?}, told that it was behind {behind:?}");
        }
    };
    stands(third, held, gone, Some(Some(gone.token))).await;
    // The one right ahead goes, and somebody older is still there.
    second.withdraw(gone).await;
    stands(third, held, gone, Some(Some(leading.token))).await;
    stands(second, gone, leading, None).await;
    // The one ahead stays, and our own entry is removed by somebody else.
    fixture.evict(held).await;
    stands(third, held, leading, None).await;
    stands(fourth, last, held, Some(Some(leading.token))).await;
    first.withdraw(leading).await;
    stands(fourth, last, leading, Some(None)).await;
}

/// A withdrawal whose answer was lost is repeated until it is certain.
pub async fn withdrawing_again_is_done_and_touches_nobody_else<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (participant, other) = (fixture.participant().await, fixture.participant().await);
    let first = participant.stand(&fixture.election).await;
    participant.withdraw(&first).await;
    participant.withdraw(&first).await;
    let others = other.stand(&fixture.election).await;
    participant.withdraw(&first).await;
    assert!(other.leads(&others).await);
    other.withdraw(&others).await;
    // Not even as the same incarnation.
    for incarnation in [new_entry().incarnation, first.incarnation] {
        let entry = NewEntry::new(incarnation, "node-1", "10.0.0.7:80");
        let again = held(&participant.enlist_as(&fixture.election, &entry).await.unwrap());
        participant.withdraw(&first).await;
        assert!(participant.leads(&again).await, "a late withdrawal does not reach the next entry");
        let published = participant.publish(&again, b"still here", None).await;
        assert!(published.is_some(), "nor what the session knows of it");
        participant.withdraw(&again).await;
    }
}

/// The office is not given up into nothing.
pub async fn withdrawing_for_an_heir_is_done_only_while_the_heir_is_there<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let (leader, heir) = (fixture.participant().await, fixture.participant().await);
    let election = harness.election();
    let gone = heir.stand(&election).await;
    heir.withdraw(&gone).await;
    let held = leader.stand(&fixture.election).await;
    assert_eq!(leader.withdraw_for(&held, Some(&gone.entry)).await, Cas::Refused);
    assert!(leader.leads(&held).await, "nothing was changed");
    if fixture.has_line() {
        let next = heir.stand(&fixture.election).await;
        assert_eq!(leader.withdraw_for(&held, Some(&next.entry)).await, Cas::Done);
        assert!(heir.leads(&next).await);
        assert_eq!(leader.place(&held).await, Place::Gone);
        assert_eq!(leader.withdraw_for(&held, Some(&next.entry)).await, Cas::Done, "it was done before");
    }
}

/// The oldest come first, and whether there are more is told.
pub async fn a_line_is_cut_at_the_limit_and_says_so<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let count = if fixture.has_line() { 5 } else { 1 };
    let participants = fixture.participants_in_line(count).await;
    let tokens: Vec<_> = participants.iter().map(|(_, held)| held.token).collect();
    for limit in 0..=count + 1 {
        let line = fixture.store.line(&fixture.election, limit).await.unwrap();
        let seen: Vec<_> = line.entries.iter().map(|entry| entry.token).collect();
        assert_eq!(seen, tokens[..limit.min(count)], "limit {limit}");
        assert_eq!(line.more, limit < count, "limit {limit}");
    }
    let empty = fixture.store.line(&harness.election(), 5).await.unwrap();
    assert_eq!((empty.entries, empty.more), (vec![], false));
}

/// Other libraries hold elections, too.
pub async fn a_foreign_candidate_stands_in_line_without_an_incarnation<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let Some(foreign) = harness.enlist_foreign(&fixture.election, Bytes::from_static(b"stranger")).await else {
        // Nobody else writes here: then no entry of ours may look like a stranger's.
        let held = participant.stand(&fixture.election).await;
        assert!(!fixture.seen(&held).await.is_foreign());
        return;
    };
    assert!(foreign.is_foreign());
    let line = fixture.line().await.entries;
    assert_eq!(line.iter().map(|entry| (entry.token, entry.is_foreign())).collect::<Vec<_>>(), [(foreign.token, true)]);
    assert_eq!(line[0].value, "stranger");
    let entry = new_entry();
    let standing = participant.enlist_as(&fixture.election, &entry).await.unwrap();
    let Place::Behind { ahead, .. } = &standing.place else { panic!("{standing:?}") };
    assert!(ahead.is_foreign());
    assert_eq!(ahead.token, foreign.token);
    let seen = fixture.line().await.entries.swap_remove(0);
    assert_eq!(fixture.store.evict(&fixture.election, &seen).await.unwrap(), Cas::Done);
    let held = held(&participant.enlist_as(&fixture.election, &entry).await.unwrap());
    assert!(participant.leads(&held).await);
}
