//! Watches: hints that come after every change, to those whom it concerns.
//!
//! A store that promises no watches is checked for keeping quiet, and that reading tells the same.

use std::sync::Arc;

use incumbent_store::{Cas, Cursor, Held, Office, Paused, Place, Seen, Session, Store, Wake, Watched};
use tokio::task::JoinSet;

use super::harness::Harness;
use super::scene::{Participant, Scene, new_entry, poll_once};

/// The one right ahead is gone, and somebody older still leads.
pub async fn a_wake_is_only_a_hint<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    if !scene.has_line() {
        let (leader, waiting, quicker) =
            (scene.participant().await, scene.participant().await, scene.participant().await);
        let held = leader.stand(&scene.election).await;
        assert!(matches!(waiting.enlist(&scene.election).await.place, Place::Behind { held: None, .. }));
        leader.withdraw(&held).await;
        let taken = quicker.stand(&scene.election).await;
        let place = waiting.enlist(&scene.election).await.place;
        assert!(matches!(&place, Place::Behind { held: None, ahead, .. } if ahead.is(&taken)), "{place:?}");
        return;
    }
    let participants = scene.participants_in_line(3).await;
    let [(_, leading), (between, gone), (last, held)] = participants.as_slice() else { unreachable!() };
    let (watched, cursor) = followed(last, held).await;
    assert_eq!(watched.ahead.as_ref(), Some(&gone.entry));
    let wake = last.session.watch(&watched, cursor);
    between.withdraw(gone).await;
    if scene.promises.watches {
        scene.woken("the one behind", wake).await;
    }
    let place = last.place(held).await;
    assert!(matches!(&place, Place::Behind { ahead, .. } if ahead.is(leading)), "{place:?}");
}

/// What one in line waits for, as it stands now.
async fn followed(participant: &Participant, held: &Held) -> (Watched, Cursor) {
    let standing = participant.standing(held).await;
    let mut watched = Watched::new(held.clone(), standing.office.version);
    if let Place::Behind { ahead, .. } = standing.place {
        watched.ahead = Some(ahead.id);
    }
    (watched, standing.cursor)
}

/// Everything that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    // By one in line.
    OwnEntryGoes,
    AheadGoes,
    HeirGoes,
    HeirPublishes,
    NoticeIsSet,
    NoticeIsRemoved,
    // By somebody else.
    HeadGoes,
    HeadComes,
    HeadPublishes,
    LastGoes,
    OfficeIsSet,
    OfficeIsRemoved,
}

impl Change {
    const ALL: [Change; 12] = [
        Change::OwnEntryGoes,
        Change::AheadGoes,
        Change::HeirGoes,
        Change::HeirPublishes,
        Change::NoticeIsSet,
        Change::NoticeIsRemoved,
        Change::HeadGoes,
        Change::HeadComes,
        Change::HeadPublishes,
        Change::LastGoes,
        Change::OfficeIsSet,
        Change::OfficeIsRemoved,
    ];

    fn needs_line(self) -> bool {
        matches!(self, Change::AheadGoes | Change::HeirGoes | Change::HeirPublishes)
    }

    fn needs_office_record(self) -> bool {
        let notice = matches!(self, Change::NoticeIsSet | Change::NoticeIsRemoved);
        notice || matches!(self, Change::OfficeIsSet | Change::OfficeIsRemoved)
    }

    /// Whether such a thing happens in this store.
    fn happens(self, scene: &Scene) -> bool {
        (scene.has_line() || !self.needs_line()) && (scene.promises.office_record || !self.needs_office_record())
    }
}

/// Somebody who waits for a change, and somebody who makes it.
struct Waiting {
    change: Change,
    /// In line, if it is.
    waits: Option<(Participant, Held)>,
    makes: (Participant, Option<Held>),
}

/// What was read before a watch.
enum Read {
    Entry(Arc<dyn Session>, Watched, Cursor),
    Election(Seen, Cursor),
}

impl Waiting {
    async fn set(scene: &Scene, change: Change) -> Waiting {
        let (participant, other) = (scene.participant().await, scene.participant().await);
        let election = &scene.election;
        let mut held = None;
        if matches!(change, Change::AheadGoes | Change::HeadGoes | Change::HeadPublishes | Change::LastGoes) {
            held = Some(other.stand(election).await);
        }
        let in_line = change.needs_line()
            || matches!(change, Change::OwnEntryGoes | Change::NoticeIsSet | Change::NoticeIsRemoved);
        let waits = if in_line { Some(participant.stand(election).await) } else { None };
        if matches!(change, Change::HeirGoes | Change::HeirPublishes) {
            held = Some(other.stand(election).await);
        }
        if matches!(change, Change::NoticeIsRemoved | Change::OfficeIsRemoved) {
            set_paused(scene, true).await;
        }
        Waiting { change, waits: waits.map(|held| (participant, held)), makes: (other, held) }
    }

    async fn read(&self, scene: &Scene) -> Read {
        let other = || self.makes.1.as_ref().map(|held| held.entry.clone());
        if let Some((participant, held)) = &self.waits {
            let (mut watched, cursor) = followed(participant, held).await;
            watched.heir = other().filter(|_| self.change != Change::AheadGoes);
            return Read::Entry(participant.session.clone(), watched, cursor);
        }
        let line = scene.line().await;
        let mut seen = line.seen();
        if matches!(self.change, Change::LastGoes | Change::OfficeIsSet | Change::OfficeIsRemoved) {
            seen = Seen::new(line.office.version);
        }
        seen.last = other().filter(|_| self.change == Change::LastGoes);
        Read::Election(seen, line.cursor)
    }

    async fn make(&self, scene: &Scene) {
        let (participant, held) = &self.makes;
        let held = || held.as_ref().expect("somebody stands");
        match self.change {
            Change::OwnEntryGoes => scene.evict(&self.waits.as_ref().expect("it is in line").1).await,
            Change::AheadGoes | Change::HeirGoes | Change::HeadGoes | Change::LastGoes => {
                participant.withdraw(held()).await
            }
            Change::HeirPublishes | Change::HeadPublishes => {
                assert!(participant.publish(held(), b"new", None).await.is_some());
            }
            Change::HeadComes => drop(participant.stand(&scene.election).await),
            Change::NoticeIsSet | Change::OfficeIsSet => set_paused(scene, true).await,
            Change::NoticeIsRemoved | Change::OfficeIsRemoved => set_paused(scene, false).await,
        }
    }
}

impl Read {
    fn watch(&self, scene: &Scene, store: &dyn Store) -> Wake {
        match self {
            Read::Entry(session, watched, from) => session.watch(watched, *from),
            Read::Election(seen, from) => store.watch(&scene.election, seen, *from),
        }
    }
}

async fn set_paused(scene: &Scene, paused: bool) {
    let was = scene.line().await.office.version;
    let office = Office::default().with_paused(paused.then(|| Paused::new("a test")));
    assert_eq!(scene.store.set_office(&scene.election, was, &office).await.unwrap(), Cas::Done);
}

/// What happened between the read and the watch wakes at once.
pub async fn a_watch_from_a_cursor_misses_nothing<H: Harness>(harness: &H) {
    for change in Change::ALL {
        let scene = Scene::set(harness).await;
        if !change.happens(&scene) {
            continue;
        }
        let waiting = Waiting::set(&scene, change).await;
        let read = waiting.read(&scene).await;
        waiting.make(&scene).await;
        let wake = read.watch(&scene, &*scene.store);
        told(&scene, &format!("{change:?} before the watch"), wake).await;
    }
}

/// What happens while somebody watches wakes it, also through another handle.
pub async fn a_watch_wakes_on_what_comes_after_it<H: Harness>(harness: &H) {
    for change in Change::ALL {
        let scene = Scene::set(harness).await;
        if !change.happens(&scene) {
            continue;
        }
        let waiting = Waiting::set(&scene, change).await;
        let wake = armed(&scene, &*harness.store().await, &waiting).await;
        waiting.make(&scene).await;
        told(&scene, &format!("{change:?} after the watch"), wake).await;
    }
}

/// A watch that waits. It may wake without a change, but not again and again.
async fn armed(scene: &Scene, store: &dyn Store, waiting: &Waiting) -> Wake {
    for _ in 0..10 {
        let mut wake = waiting.read(scene).await.watch(scene, store);
        // Stores may arm a watch with its first poll.
        if poll_once(&mut wake).await.is_pending() {
            return wake;
        }
    }
    panic!("{:?} of {}: woken again and again though nothing changes", waiting.change, scene.election);
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
    let participant = scene.participant().await;
    let held = participant.stand(&scene.election).await;
    let before = harness.watches();
    let line = scene.line().await;
    let (watched, cursor) = followed(&participant, &held).await;
    let watch = |number| match number % 2 {
        0 => scene.store.watch(&scene.election, &line.seen(), line.cursor),
        _ => participant.session.watch(&watched, cursor),
    };
    for number in 0..500 {
        let mut wake = watch(number);
        if number % 3 == 0 {
            let _ = poll_once(&mut wake).await;
        }
    }
    scene.until("the store has forgotten them", async || harness.watches() == before).await;
    // And the store still tells those who stayed.
    let stayed = [watch(0), watch(1)];
    participant.withdraw(&held).await;
    for wake in stayed {
        told(&scene, "the watch that stayed", wake).await;
    }
}

/// No herd: in a crowd that waits, the one behind the one who left is woken, and nobody else.
pub async fn one_leaves_and_exactly_one_is_woken<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    if !scene.has_line() || !scene.promises.watches {
        return nobody_waits_in_line(&scene).await;
    }
    let participants = scene.participants_in_line(harness.crowd()).await;
    let mut watches = JoinSet::new();
    for (number, (follower, held)) in participants.iter().enumerate().skip(1) {
        let (watched, cursor) = followed(follower, held).await;
        let wake = follower.session.watch(&watched, cursor);
        watches.spawn(async move {
            wake.await.expect("no watch is lost here");
            number
        });
    }
    tokio::task::yield_now().await;
    // A second departure tells when the news of the first has reached everybody who gets it.
    let leaving = [participants.len() / 2, participants.len() - 2];
    for number in leaving {
        participants[number].0.withdraw(&participants[number].1).await;
        loop {
            let woken = tokio::time::timeout(scene.patience(), watches.join_next()).await.expect("somebody is woken");
            let woken = woken.unwrap().unwrap();
            // Those who leave hear of that, too.
            if !leaving.contains(&woken) {
                assert_eq!(woken, number + 1);
                break;
            }
        }
    }
    tokio::task::yield_now().await;
    while let Some(woken) = watches.try_join_next() {
        let woken = woken.unwrap();
        assert!(leaving.contains(&woken), "{woken} was woken, too");
    }
}

/// Without a line or without watches there is no crowd to wake: those who wait come back by
/// themselves.
async fn nobody_waits_in_line(scene: &Scene) {
    let (leader, waiting) = (scene.participant().await, scene.participant().await);
    let held = leader.stand(&scene.election).await;
    let entry = new_entry();
    let behind = waiting.enlist_as(&scene.election, &entry).await.unwrap().place;
    assert!(matches!(behind, Place::Behind { .. }), "{behind:?}");
    leader.withdraw(&held).await;
    let place = waiting.enlist_as(&scene.election, &entry).await.unwrap().place;
    assert!(matches!(place, Place::Leading(_)), "{place:?}");
}

/// Followers do not care what the one ahead advertises, nor the kept out who leads; observers do.
pub async fn a_publication_wakes_those_who_follow_the_head_and_not_those_who_wait_for_a_place<H: Harness>(harness: &H) {
    let scene = Scene::set(harness).await;
    let participant = scene.participant().await;
    let held = participant.stand(&scene.election).await;
    let line = scene.line().await;
    let mut kept_out = scene.store.watch(&scene.election, &Seen::new(line.office.version), line.cursor);
    let head = scene.store.watch(&scene.election, &line.seen(), line.cursor);
    let (watched, cursor) = followed(&participant, &held).await;
    let mut owner = participant.session.watch(&watched, cursor);
    assert!(poll_once(&mut owner).await.is_pending() && poll_once(&mut kept_out).await.is_pending());
    let next = scene.participant().await;
    let mut place = None;
    if scene.has_line() {
        let behind = next.stand(&scene.election).await;
        let (watched, cursor) = followed(&next, &behind).await;
        let wake = place.insert(next.session.watch(&watched, cursor));
        assert!(poll_once(wake).await.is_pending());
    }
    assert!(participant.publish(&held, b"new", None).await.is_some());
    told(&scene, "who watches the head", head).await;
    assert_eq!(scene.seen(&held).await.value, "new");
    let woken = poll_once(&mut owner).await;
    assert!(woken.is_pending(), "its own words are no news: {woken:?}");
    if let Some(place) = &mut place {
        assert!(poll_once(place).await.is_pending(), "nobody has left");
    }
    participant.withdraw(&held).await;
    if let Some(place) = place {
        told(&scene, "who waits for the place", place).await;
    }
    assert!(poll_once(&mut kept_out).await.is_pending(), "the office record is the same");
}
