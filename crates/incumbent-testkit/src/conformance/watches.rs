//! Watches: hints that come after every change, to those whom it concerns.
//!
//! A store that promises no watches is checked for keeping quiet, and that reading tells the same.

use std::task::Poll;

use bytes::Bytes;
use incumbent_store::{Cas, Cursor, ElectionName, Held, Office, Paused, Place, Store, Target, Wake};
use tokio::task::JoinSet;

use super::harness::Harness;
use super::scene::{Member, Scene, new_entry, poll_once};

/// The one right ahead is gone, and somebody older still leads.
pub async fn a_wake_is_only_a_hint<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    if !scene.has_line() {
        let (leader, waiting, quicker) = (scene.member().await, scene.member().await, scene.member().await);
        let held = leader.stand(&scene.election).await;
        assert!(matches!(waiting.enlist(&scene.election).await.place, Place::Behind { held: None, .. }));
        leader.withdraw(&held).await;
        let taken = quicker.stand(&scene.election).await;
        let place = waiting.enlist(&scene.election).await.place;
        assert!(matches!(&place, Place::Behind { held: None, ahead, .. } if ahead.is(&taken)), "{place:?}");
        return;
    }
    let members = scene.members_in_line(3).await;
    let [(_, leading), (between, gone), (last, held)] = members.as_slice() else { unreachable!() };
    let standing = last.session.standing(held).await.unwrap();
    assert!(matches!(&standing.place, Place::Behind { ahead, .. } if ahead.is(gone)), "{standing:?}");
    let wake = scene.store.watch(&scene.election, &[Target::Gone(gone.entry.clone())], standing.cursor);
    between.withdraw(gone).await;
    if scene.promises.watches {
        scene.woken("the one behind", wake).await;
    }
    let place = last.place(held).await;
    assert!(matches!(&place, Place::Behind { ahead, .. } if ahead.is(leading)), "{place:?}");
}

/// Everything that can be watched for, and the change that it waits for.
#[derive(Clone, Copy, Debug)]
enum Change {
    EntryGoes,
    EntryPublishes,
    EntryGoesWhileOnlyThatCounts,
    HeadGoes,
    HeadComes,
    HeadPublishes,
    OfficeIsSet,
    OfficeIsRemoved,
}

impl Change {
    const ALL: [Change; 8] = [
        Change::EntryGoes,
        Change::EntryPublishes,
        Change::EntryGoesWhileOnlyThatCounts,
        Change::HeadGoes,
        Change::HeadComes,
        Change::HeadPublishes,
        Change::OfficeIsSet,
        Change::OfficeIsRemoved,
    ];

    fn target(self, held: Option<&Held>) -> Target {
        let entry = || held.expect("somebody stands").entry.clone();
        match self {
            Change::EntryGoes | Change::EntryPublishes => Target::Entry(entry()),
            Change::EntryGoesWhileOnlyThatCounts => Target::Gone(entry()),
            Change::HeadGoes | Change::HeadComes | Change::HeadPublishes => Target::Head,
            Change::OfficeIsSet | Change::OfficeIsRemoved => Target::Office,
        }
    }

    /// What must be so before.
    async fn prepare(self, scene: &Scene, member: &Member) -> Option<Held> {
        match self {
            Change::HeadComes | Change::OfficeIsSet => None,
            Change::OfficeIsRemoved => {
                set_paused(scene, true).await;
                None
            }
            _ => Some(member.stand(&scene.election).await),
        }
    }

    async fn make(self, scene: &Scene, member: &Member, held: Option<&Held>) {
        match self {
            Change::EntryGoes | Change::EntryGoesWhileOnlyThatCounts | Change::HeadGoes => {
                member.withdraw(held.expect("somebody stands")).await;
            }
            Change::EntryPublishes | Change::HeadPublishes => publish(member, held.expect("somebody stands")).await,
            Change::HeadComes => drop(member.stand(&scene.election).await),
            Change::OfficeIsSet => set_paused(scene, true).await,
            Change::OfficeIsRemoved => set_paused(scene, false).await,
        }
    }
}

async fn publish(member: &Member, held: &Held) {
    assert_eq!(member.session.publish(held, &Bytes::from_static(b"new"), None).await.unwrap(), Cas::Done);
}

async fn set_paused(scene: &Scene, paused: bool) {
    let was = scene.line().await.office.version;
    let office = Office { paused: paused.then(|| Paused { reason: "a test".into() }), ..Office::default() };
    assert_eq!(scene.store.set_office(&scene.election, was, &office).await.unwrap(), Cas::Done);
}

/// What happened between the read and the watch wakes at once.
pub async fn a_watch_from_a_cursor_misses_nothing<H: Harness>(harness: &H) {
    for change in Change::ALL {
        let scene = Scene::set(harness).await;
        let member = scene.member().await;
        let held = change.prepare(&scene, &member).await;
        let cursor = scene.line().await.cursor;
        change.make(&scene, &member, held.as_ref()).await;
        let wake = scene.store.watch(&scene.election, &[change.target(held.as_ref())], cursor);
        told(&scene, &format!("{change:?} before the watch"), wake).await;
    }
}

/// What happens while somebody watches wakes it, also when it watches several things, from another handle.
pub async fn a_watch_wakes_on_what_comes_after_it<H: Harness>(harness: &H) {
    for change in Change::ALL {
        let scene = Scene::set(harness).await;
        let member = scene.member().await;
        let held = change.prepare(&scene, &member).await;
        let target = change.target(held.as_ref());
        let unrelated = if target == Target::Office { Target::Head } else { Target::Office };
        let wake = armed(&*harness.store().await, &scene.election, &[unrelated, target]).await;
        change.make(&scene, &member, held.as_ref()).await;
        told(&scene, &format!("{change:?} after the watch"), wake).await;
    }
}

/// A watch that waits. It may wake without a change, but not again and again.
async fn armed(store: &dyn Store, election: &ElectionName, targets: &[Target]) -> Wake {
    for _ in 0..10 {
        let cursor = store.line(election, 1).await.unwrap().cursor;
        let mut wake = store.watch(election, targets, cursor);
        // Stores may arm a watch with its first poll.
        if poll_once(&mut wake).await.is_pending() {
            return wake;
        }
    }
    panic!("{targets:?} of {election}: woken again and again though nothing changes");
}

/// A promised watch wakes; one that is not promised keeps quiet for ever.
async fn told(scene: &Scene, what: &str, mut wake: Wake) {
    if scene.promises.watches {
        scene.woken(what, wake).await;
    } else {
        assert!(poll_once(&mut wake).await.is_pending(), "{what}: a watch that was not promised has woken");
    }
}

/// Watches that nobody waits for any more are forgotten, whether or not they were polled.
pub async fn dropped_watches_leave_nothing_behind<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let member = scene.member().await;
    let held = member.stand(&scene.election).await;
    let before = harness.watches();
    let cursor = scene.line().await.cursor;
    let targets = [Target::Gone(held.entry.clone()), Target::Head, Target::Office];
    for number in 0..500 {
        let mut wake = scene.store.watch(&scene.election, &targets, cursor);
        if number % 2 == 0 {
            let _ = poll_once(&mut wake).await;
        }
    }
    scene.until("the store has forgotten them", async || harness.watches() == before).await;
    // And the store still tells those who stayed.
    let wake = scene.store.watch(&scene.election, &targets, scene.line().await.cursor);
    member.withdraw(&held).await;
    told(&scene, "the watch that stayed", wake).await;
}

/// No herd: in a crowd that waits, the one behind the one who left is woken, and nobody else.
pub async fn one_leaves_and_exactly_one_is_woken<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    if !scene.has_line() || !scene.promises.watches {
        return nobody_waits_in_line(&scene).await;
    }
    let members = scene.members_in_line(harness.crowd()).await;
    let mut watches = JoinSet::new();
    for (number, pair) in members.windows(2).enumerate() {
        let [(_, ahead), (follower, held)] = pair else { unreachable!() };
        let cursor: Cursor = follower.session.standing(held).await.unwrap().cursor;
        let wake = scene.store.watch(&scene.election, &[Target::Gone(ahead.entry.clone())], cursor);
        watches.spawn(async move {
            wake.await.expect("no watch is lost here");
            number + 1
        });
    }
    tokio::task::yield_now().await;
    let leaving = members.len() / 2;
    members[leaving].0.withdraw(&members[leaving].1).await;
    let woken = tokio::time::timeout(scene.patience(), watches.join_next()).await.expect("the follower is woken");
    assert_eq!(woken.unwrap().unwrap(), leaving + 1);
    // A second departure tells when the news of the first has reached everybody who gets it.
    let second = members.len() - 2;
    members[second].0.withdraw(&members[second].1).await;
    let woken = tokio::time::timeout(scene.patience(), watches.join_next()).await.expect("the last one is woken");
    assert_eq!(woken.unwrap().unwrap(), second + 1);
    tokio::task::yield_now().await;
    assert!(watches.try_join_next().is_none(), "somebody else was woken, too");
}

/// Without a line or without watches there is no crowd to wake: those who wait come back by themselves.
async fn nobody_waits_in_line(scene: &Scene) {
    let (leader, waiting) = (scene.member().await, scene.member().await);
    let held = leader.stand(&scene.election).await;
    let entry = new_entry();
    let behind = waiting.enlist_as(&scene.election, &entry).await.unwrap().place;
    assert!(matches!(behind, Place::Behind { .. }), "{behind:?}");
    leader.withdraw(&held).await;
    let place = waiting.enlist_as(&scene.election, &entry).await.unwrap().place;
    assert!(matches!(place, Place::Leading(_)), "{place:?}");
}

/// Followers do not care what the one ahead advertises; observers do.
pub async fn a_publication_wakes_those_who_follow_the_head_and_not_those_who_wait_for_a_place<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let member = scene.member().await;
    let held = member.stand(&scene.election).await;
    let cursor = scene.line().await.cursor;
    let watch = |target| scene.store.watch(&scene.election, &[target], cursor);
    let mut place = watch(Target::Gone(held.entry.clone()));
    let mut office = watch(Target::Office);
    let (head, entry) = (watch(Target::Head), watch(Target::Entry(held.entry.clone())));
    assert!(poll_once(&mut place).await.is_pending() && poll_once(&mut office).await.is_pending());
    publish(&member, &held).await;
    told(&scene, "who watches the head", head).await;
    told(&scene, "who watches the entry", entry).await;
    assert_eq!(scene.seen(&held).await.value, "new");
    assert!(poll_once(&mut place).await.is_pending(), "nobody has left");
    assert!(matches!(poll_once(&mut office).await, Poll::Pending), "the office record is the same");
    member.withdraw(&held).await;
    told(&scene, "who waits for the place", place).await;
}
