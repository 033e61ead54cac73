//! Watches: hints that come after every change, to those whom it concerns.
//!
//! A store that promises no watches is checked for keeping quiet, and that reading tells the same.

use std::sync::Arc;

use incumbent_store::{Cas, Cursor, Held, Office, Paused, Place, Seen, Session, Store, Wake, Watched};
use tokio::task::JoinSet;

use super::fixture::{Fixture, Participant, new_entry, poll_once};
use super::harness::Harness;

/// The one right ahead is gone, and somebody older still leads.
pub async fn a_wake_is_only_a_hint<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line() {
        let (leader, waiting, quicker) =
            (fixture.participant().await, fixture.participant().await, fixture.participant().await);
        let held = leader.stand(&fixture.election).await;
        assert!(matches!(waiting.enlist(&fixture.election).await.place, Place::Behind { held: None, .. }));
        leader.withdraw(&held).await;
        let taken = quicker.stand(&fixture.election).await;
        let place = waiting.enlist(&fixture.election).await.place;
        assert!(matches!(&place, Place::Behind { held: None, ahead, .. } if ahead.is(&taken)), "{place:?}");
        return;
    }
    let participants = fixture.participants_in_line(3).await;
    let [(_, leading), (between, gone), (last, held)] = participants.as_slice() else { unreachable!() };
    let (watched, cursor) = followed(last, held).await;
    assert_eq!(watched.ahead.as_ref(), Some(&gone.entry));
    let wake = last.session.watch(&watched, cursor);
    between.withdraw(gone).await;
    if fixture.promises.watches {
        fixture.woken("the one behind", wake).await;
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
    fn happens(self, fixture: &Fixture) -> bool {
        (fixture.has_line() || !self.needs_line()) && (fixture.promises.office_record || !self.needs_office_record())
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
    async fn set(fixture: &Fixture, change: Change) -> Waiting {
        let (participant, other) = (fixture.participant().await, fixture.participant().await);
        let election = &fixture.election;
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
            set_paused(fixture, true).await;
        }
        Waiting { change, waits: waits.map(|held| (participant, held)), makes: (other, held) }
    }

    async fn read(&self, fixture: &Fixture) -> Read {
        let other = || self.makes.1.as_ref().map(|held| held.entry.clone());
        if let Some((participant, held)) = &self.waits {
            let (mut watched, cursor) = followed(participant, held).await;
            watched.heir = other().filter(|_| self.change != Change::AheadGoes);
            return Read::Entry(participant.session.clone(), watched, cursor);
        }
        let line = fixture.line().await;
        let mut seen = line.seen();
        if matches!(self.change, Change::LastGoes | Change::OfficeIsSet | Change::OfficeIsRemoved) {
            seen = Seen::new(line.office.version);
        }
        seen.last = other().filter(|_| self.change == Change::LastGoes);
        Read::Election(seen, line.cursor)
    }

    async fn make(&self, fixture: &Fixture) {
        let (participant, held) = &self.makes;
        let held = || held.as_ref().expect("somebody stands");
        match self.change {
            Change::OwnEntryGoes => fixture.evict(&self.waits.as_ref().expect("it is in line").1).await,
            Change::AheadGoes | Change::HeirGoes | Change::HeadGoes | Change::LastGoes => {
                participant.withdraw(held()).await
            }
            Change::HeirPublishes | Change::HeadPublishes => {
                assert!(participant.publish(held(), b"new", None).await.is_some());
            }
            Change::HeadComes => drop(participant.stand(&fixture.election).await),
            Change::NoticeIsSet | Change::OfficeIsSet => set_paused(fixture, true).await,
            Change::NoticeIsRemoved | Change::OfficeIsRemoved => set_paused(fixture, false).await,
        }
    }
}

impl Read {
    fn watch(&self, fixture: &Fixture, store: &dyn Store) -> Wake {
        match self {
            Read::Entry(session, watched, from) => session.watch(watched, *from),
            Read::Election(seen, from) => store.watch(&fixture.election, seen, *from),
        }
    }
}

async fn set_paused(fixture: &Fixture, paused: bool) {
    let was = fixture.line().await.office.version;
    let office = Office::default().with_paused(paused.then(|| Paused::new("a test")));
    assert_eq!(fixture.store.set_office(&fixture.election, was, &office).await.unwrap(), Cas::Done);
}

/// What happened between the read and the watch wakes at once.
pub async fn a_watch_from_a_cursor_misses_nothing<H: Harness>(harness: &H) {
    for change in Change::ALL {
        let fixture = Fixture::new(harness).await;
        if !change.happens(&fixture) {
            continue;
        }
        let waiting = Waiting::set(&fixture, change).await;
        let read = waiting.read(&fixture).await;
        waiting.make(&fixture).await;
        let wake = read.watch(&fixture, &*fixture.store);
        told(&fixture, &format!("{change:?} before the watch"), wake).await;
    }
}

/// What happens while somebody watches wakes it, also through another handle.
pub async fn a_watch_wakes_on_what_comes_after_it<H: Harness>(harness: &H) {
    for change in Change::ALL {
        let fixture = Fixture::new(harness).await;
        if !change.happens(&fixture) {
            continue;
        }
        let waiting = Waiting::set(&fixture, change).await;
        let wake = armed(&fixture, &*harness.store().await, &waiting).await;
        waiting.make(&fixture).await;
        told(&fixture, &format!("{change:?} after the watch"), wake).await;
    }
}

/// A watch that waits. It may wake without a change, but not again and again.
async fn armed(fixture: &Fixture, store: &dyn Store, waiting: &Waiting) -> Wake {
    for _ in 0..10 {
        let mut wake = waiting.read(fixture).await.watch(fixture, store);
        // Stores may arm a watch with its first poll.
        if poll_once(&mut wake).await.is_pending() {
            return wake;
        }
    }
    panic!("{:?} of {}: woken again and again though nothing changes", waiting.change, fixture.election);
}

/// A promised watch wakes. One that is not promised may: a store that hears of nothing can still
/// know when the time of the one ahead is over.
async fn told(fixture: &Fixture, what: &str, wake: Wake) {
    if fixture.promises.watches {
        fixture.woken(what, wake).await;
    }
}

/// Watches that nobody waits for any more are forgotten, whether or not they were polled.
pub async fn dropped_watches_leave_nothing_behind<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    let before = harness.watches();
    let line = fixture.line().await;
    let (watched, cursor) = followed(&participant, &held).await;
    let watch = |number| match number % 2 {
        0 => fixture.store.watch(&fixture.election, &line.seen(), line.cursor),
        _ => participant.session.watch(&watched, cursor),
    };
    for number in 0..500 {
        let mut wake = watch(number);
        if number % 3 == 0 {
            let _ = poll_once(&mut wake).await;
        }
    }
    fixture.until("the store has forgotten them", async || harness.watches() == before).await;
    // And the store still tells those who stayed.
    let stayed = [watch(0), watch(1)];
    participant.withdraw(&held).await;
    for wake in stayed {
        told(&fixture, "the watch that stayed", wake).await;
    }
}

/// No herd: in a crowd that waits, the one behind the one who left is woken, and nobody else.
pub async fn one_leaves_and_exactly_one_is_woken<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    if !fixture.has_line() || !fixture.promises.watches {
        return nobody_waits_in_line(&fixture).await;
    }
    let participants = fixture.participants_in_line(harness.crowd()).await;
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
            let woken = tokio::time::timeout(fixture.patience(), watches.join_next()).await.expect("somebody is woken");
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
async fn nobody_waits_in_line(fixture: &Fixture) {
    let (leader, waiting) = (fixture.participant().await, fixture.participant().await);
    let held = leader.stand(&fixture.election).await;
    let entry = new_entry();
    let behind = waiting.enlist_as(&fixture.election, &entry).await.unwrap().place;
    assert!(matches!(behind, Place::Behind { .. }), "{behind:?}");
    leader.withdraw(&held).await;
    let place = waiting.enlist_as(&fixture.election, &entry).await.unwrap().place;
    assert!(matches!(place, Place::Leading(_)), "{place:?}");
}

/// Followers do not care what the one ahead advertises, nor the kept out who leads; observers do.
pub async fn a_publication_wakes_those_who_follow_the_head_and_not_those_who_wait_for_a_place<H: Harness>(harness: &H) {
    let fixture = Fixture::new(harness).await;
    let participant = fixture.participant().await;
    let held = participant.stand(&fixture.election).await;
    let line = fixture.line().await;
    let mut kept_out = fixture.store.watch(&fixture.election, &Seen::new(line.office.version), line.cursor);
    let head = fixture.store.watch(&fixture.election, &line.seen(), line.cursor);
    let (watched, cursor) = followed(&participant, &held).await;
    let mut owner = participant.session.watch(&watched, cursor);
    assert!(poll_once(&mut owner).await.is_pending() && poll_once(&mut kept_out).await.is_pending());
    let next = fixture.participant().await;
    let mut place = None;
    if fixture.has_line() {
        let behind = next.stand(&fixture.election).await;
        let (watched, cursor) = followed(&next, &behind).await;
        let wake = place.insert(next.session.watch(&watched, cursor));
        assert!(poll_once(wake).await.is_pending());
    }
    assert!(participant.publish(&held, b"new", None).await.is_some());
    told(&fixture, "who watches the head", head).await;
    assert_eq!(fixture.seen(&held).await.value, "new");
    let woken = poll_once(&mut owner).await;
    assert!(woken.is_pending(), "its own words are no news: {woken:?}");
    if let Some(place) = &mut place {
        assert!(poll_once(place).await.is_pending(), "nobody has left");
    }
    participant.withdraw(&held).await;
    if let Some(place) = place {
        told(&fixture, "who waits for the place", place).await;
    }
    assert!(poll_once(&mut kept_out).await.is_pending(), "the office record is the same");
}
