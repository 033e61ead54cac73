//! A process is killed, or stopped, before each change that it makes to the directory, one after
//! the other.
//!
//! Whatever the step: no token comes twice, none goes back, nobody is held up, and nothing is left
//! at the end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use incumbent_file::FileStore;
use incumbent_store::{
    Cas, Deposed, ElectionName, Entry, Held, Incarnation, NewEntry, Office, Place, Session, Standing, Store, Token,
};
use incumbent_testkit::TempDir;

mod support;

use support::{TestProcess, Told, leftovers, token};

const ELECTION: &str = "jobs/nightly";
/// More than any script has: a script that passes this many points never comes to its end.
const MOST_POINTS: usize = 2_000;

fn election() -> ElectionName {
    ElectionName::new(ELECTION).unwrap()
}

/// The other process: this one.
struct Other {
    store: FileStore,
    session: Arc<dyn Session>,
    enlisted: u128,
}

impl Other {
    async fn open(path: &Path) -> Other {
        let store = FileStore::open(path).unwrap();
        let session = store.open_session(Duration::from_secs(15)).await.unwrap();
        Other { store, session, enlisted: 0 }
    }

    async fn enlist(&mut self) -> Standing {
        self.enlisted += 1;
        let incarnation = Incarnation::from_bits(self.enlisted);
        let entry = NewEntry::new(incarnation, "other", "value");
        self.session.enlist(&election(), &entry).await.unwrap()
    }

    async fn line(&self) -> Vec<Entry> {
        self.store.line(&election(), 100).await.unwrap().entries
    }

    async fn withdraw(&self, held: &Held) {
        assert_eq!(self.session.withdraw(held, None).await.unwrap(), Cas::Done);
    }

    async fn set_office(&self, was: &Office, to: &Office) {
        assert_eq!(self.store.set_office(&election(), was.version, to).await.unwrap(), Cas::Done);
    }

    async fn office(&self) -> Office {
        self.store.line(&election(), 1).await.unwrap().office
    }

    async fn leads(&self, held: &Held) -> bool {
        self.session.standing(held, None).await.unwrap().place == Place::Leading(held.clone())
    }

    /// Leaves, and nothing is left.
    async fn close(self, path: &Path) {
        self.session.close().await.unwrap();
        assert_eq!(leftovers(path), Vec::<String>::new());
    }
}

fn held_of(standing: &Standing) -> Held {
    match &standing.place {
        Place::Leading(held) | Place::Behind { held: Some(held), .. } => held.clone(),
        other => panic!("not in line: {other:?}"),
    }
}

/// Runs a script once for each point, until one run passes them all.
async fn at_every_point(how: &str, mut run: impl AsyncFnMut(String) -> bool) {
    for point in 1..MOST_POINTS {
        if !run(format!("{how}:{point}")).await {
            assert!(point > 3, "the script has only {point} points: the switch is off");
            return;
        }
    }
    panic!("it never comes to an end");
}

/// Runs `script` until the process dies. The tokens it was given, and whether it died.
fn run_until_death(process: &mut TestProcess, script: &[&str]) -> (Vec<u64>, bool) {
    let mut tokens = Vec::new();
    for line in script {
        match process.ask(line) {
            Told::Answer(answer) => tokens.extend(token(&answer)),
            Told::Ended => return (tokens, true),
        }
    }
    (tokens, false)
}

/// Kills at every point of `script`; then a newcomer leads at once, with a larger token than any
/// before.
async fn killed_at_every_point(script: &[&str]) {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut largest = 0;
    at_every_point("kill", async |fault| {
        let mut process = TestProcess::start_with(&path, Some(fault.clone()), &[]);
        let (tokens, died) = run_until_death(&mut process, script);
        drop(process);
        let mut other = Other::open(&path).await;
        let standing = other.enlist().await;
        let Place::Leading(held) = standing.place else { panic!("{fault}: {:?}", standing.place) };
        largest = tokens.into_iter().max().unwrap_or(0).max(largest);
        assert!(held.token.get() > largest, "{fault}: {} after {largest}", held.token);
        largest = held.token.get();
        other.withdraw(&held).await;
        other.set_office(&other.office().await, &Office::default()).await;
        other.close(&path).await;
        died
    })
    .await;
}

#[tokio::test]
async fn killed_while_it_stands_and_leaves() {
    killed_at_every_point(&[
        "found",
        "open 15000",
        "enlist jobs/nightly",
        "renew",
        "publish jobs/nightly a",
        "publish jobs/nightly b",
        "standing jobs/nightly",
        "withdraw jobs/nightly",
        "enlist jobs/nightly",
        "close",
    ])
    .await;
}

#[tokio::test]
async fn killed_while_it_writes_the_office_record() {
    killed_at_every_point(&["found", "pause jobs/nightly", "resume jobs/nightly", "pause jobs/nightly"]).await;
}

/// A directory that was never founded to the end is founded by the next one.
#[tokio::test]
async fn killed_while_it_makes_the_directory() {
    let mut died = true;
    let mut point = 0;
    while died {
        point += 1;
        let dir = TempDir::new("file");
        let path = dir.path().join("store");
        let mut process = TestProcess::start_with(&path, Some(format!("kill:{point}")), &[]);
        died = run_until_death(&mut process, &["found"]).1;
        drop(process);
        let mut other = Other::open(&path).await;
        assert_eq!(held_of(&other.enlist().await).token, Token::new(1).unwrap(), "{point}");
        other.close(&path).await;
        assert!(point < MOST_POINTS);
    }
    assert!(point > 10, "there are only {point} points: the switch is off");
}

/// A process that removes a dead one's entry may die over it, too.
#[tokio::test]
async fn killed_while_it_sweeps_or_evicts_another() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut largest = 0;
    for script in [
        &["found", "open 15000", "enlist jobs/nightly"][..],
        &["found", "evict-head jobs/nightly", "open 15000", "enlist jobs/nightly"],
    ] {
        at_every_point("kill", async |fault| {
            let mut first = TestProcess::start(&path);
            first.must("open 15000");
            let answer = first.must("enlist jobs/nightly");
            largest = token(&answer).filter(|token| *token > largest).unwrap_or_else(|| panic!("{answer}"));
            let living = script[1].starts_with("evict").then_some(first);
            let mut process = TestProcess::start_with(&path, Some(fault.clone()), &[]);
            let (tokens, died) = run_until_death(&mut process, script);
            drop(process);
            drop(living);
            let mut other = Other::open(&path).await;
            let standing = other.enlist().await;
            let Place::Leading(held) = standing.place else { panic!("{fault}: {:?}", standing.place) };
            largest = tokens.into_iter().max().unwrap_or(0).max(largest);
            assert!(held.token.get() > largest, "{fault}: {} after {largest}", held.token);
            largest = held.token.get();
            other.close(&path).await;
            died
        })
        .await;
    }
}

/// A leader that hands over dies at any step: the heir leads, or the leader's death makes it lead.
#[tokio::test]
async fn killed_while_it_hands_over() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    at_every_point("kill", async |fault| {
        let mut process = TestProcess::start_with(&path, Some(format!("{fault}:late")), &[]);
        let (first, _) = run_until_death(&mut process, &["open 15000", "enlist jobs/nightly", "count"]);
        let mut other = Other::open(&path).await;
        let held = held_of(&other.enlist().await);
        let died = run_until_death(&mut process, &["hand-over jobs/nightly"]).1;
        drop(process);
        assert!(other.leads(&held).await, "{fault}");
        assert!(first.iter().all(|token| *token < held.token.get()), "{fault}");
        other.close(&path).await;
        died
    })
    .await;
}

/// A process is stopped at every point of its life. Meanwhile another stands, evicts it if it is
/// ahead, and leads. When the first goes on, it never leads while the other does.
#[tokio::test]
async fn stopped_at_any_step_it_holds_up_nobody_and_never_leads_beside_another() {
    stopped_at_every_point(false).await;
}

/// The same, but it is evicted before anybody else comes, who could then be given its token.
#[tokio::test]
async fn stopped_at_any_step_and_evicted_it_never_shares_its_token_with_who_comes_next() {
    stopped_at_every_point(true).await;
}

async fn stopped_at_every_point(evict_first: bool) {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let script = [
        "found",
        "open 15000",
        "enlist jobs/nightly",
        "renew",
        "publish jobs/nightly a",
        "standing jobs/nightly",
        "withdraw jobs/nightly",
        "enlist jobs/nightly",
        "standing jobs/nightly",
        "close",
    ];
    FileStore::open(&path).unwrap();
    let mut largest = 0;
    at_every_point("stop", async |fault| {
        let process = TestProcess::stopped_at(&path, &fault, &script);
        let mut other = Other::open(&path).await;
        if evict_first {
            for entry in other.line().await {
                assert_eq!(other.store.evict(&election(), &entry).await.unwrap(), Cas::Done, "{fault}");
            }
        }
        // The other comes and goes before it stays, so that numbers are free which the stopped one
        // may still aim at.
        let left = held_of(&other.enlist().await);
        let held = if evict_first {
            left.clone()
        } else {
            other.withdraw(&left).await;
            held_of(&other.enlist().await)
        };
        for ahead in other.line().await.iter().filter(|entry| entry.token < held.token) {
            assert_eq!(other.store.evict(&election(), ahead).await.unwrap(), Cas::Done, "{fault}");
        }
        assert!(other.leads(&held).await, "{fault}");
        let (stopped, answers) = process.go_on();
        let tokens: Vec<_> = answers.iter().filter_map(|answer| token(answer)).collect();
        // Answers that were given before the stop may say that it led: those have smaller tokens.
        for leading in answers.iter().filter(|answer| answer.starts_with("leading")).filter_map(|answer| token(answer))
        {
            assert!(leading < held.token.get(), "{fault}: {answers:?} beside {}", held.token);
        }
        let others = [left.token.get(), held.token.get()];
        assert!(tokens.iter().all(|token| *token > largest && !others.contains(token)), "{fault}: {answers:?}");
        largest = tokens.into_iter().max().unwrap_or(0).max(held.token.get());
        assert!(other.leads(&held).await, "{fault}");
        other.close(&path).await;
        stopped
    })
    .await;
}

/// A leader that hands over is stopped at every point, and the heir leaves meanwhile: the leader
/// has left before, or it leads on.
#[tokio::test]
async fn stopped_while_it_hands_over_to_an_heir_that_leaves_it_leads_on() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut other = Other::open(&path).await;
    let (mut handed, mut refused) = (0, 0);
    at_every_point("stop", async |fault| {
        let mut process = TestProcess::start_with(&path, Some(format!("{fault}:late")), &[]);
        process.must("open 15000");
        let leading = token(&process.must("enlist jobs/nightly")).unwrap();
        let held = held_of(&other.enlist().await);
        process.must("count");
        process.read_on(&["hand-over jobs/nightly"]);
        let led = other.leads(&held).await;
        other.withdraw(&held).await;
        let (stopped, answers) = process.go_on();
        let expected = if led { "done" } else { "refused" };
        assert_eq!(answers.last().map(String::as_str), Some(expected), "{fault}: {leading}");
        handed += usize::from(led);
        refused += usize::from(!led);
        stopped
    })
    .await;
    assert!(handed > 0 && refused > 0, "both ends were met: {handed} handed over, {refused} refused");
    other.close(&path).await;
}

/// An evictor is stopped at every point. If its victim has renewed meanwhile and was told that its
/// entry is there, the entry stays, however late the evictor goes on.
#[tokio::test]
async fn an_evictor_that_was_stopped_removes_nobody_who_has_renewed_since() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut other = Other::open(&path).await;
    let (mut kept, mut evicted) = (0, 0);
    at_every_point("stop", async |fault| {
        let held = held_of(&other.enlist().await);
        let process = TestProcess::stopped_at(&path, &fault, &["found", "evict-head jobs/nightly"]);
        let gone = !other.session.renew(std::slice::from_ref(&held)).await.unwrap().gone.is_empty();
        let (stopped, answers) = process.go_on();
        let there = other.line().await.iter().any(|entry| entry.is(&held));
        match answers.last().map(String::as_str) {
            Some("done") => assert!(!there, "{fault}"),
            Some("refused") => assert!(there, "{fault}"),
            other => panic!("{fault}: {other:?}"),
        }
        // Every step at which it can be stopped comes after it has looked at the entry.
        assert_eq!(there, !gone, "{fault}: what the renewal said is so for good");
        kept += usize::from(there);
        evicted += usize::from(gone);
        if there {
            other.withdraw(&held).await;
        }
        assert_eq!(other.session.renew(&[]).await.unwrap().stray, [], "{fault}");
        stopped
    })
    .await;
    assert!(kept > 0 && evicted > 0, "both ends were met: {kept} kept, {evicted} evicted");
    other.close(&path).await;
}

/// Two write the office record, and one is stopped at every point: what was done is there, and
/// nothing is erased.
#[tokio::test]
async fn a_writer_of_the_office_record_that_was_stopped_erases_nothing() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let other = Other::open(&path).await;
    let (mut done, mut refused) = (0, 0);
    at_every_point("stop", async |fault| {
        let process = TestProcess::stopped_at(&path, &fault, &["found", "pause jobs/nightly"]);
        let was = other.office().await;
        // Nobody else writes now.
        other.set_office(&was, &was.clone().with_deposed(Token::new(7).map(Deposed::new))).await;
        let (stopped, answers) = process.go_on();
        let office = other.office().await;
        assert_eq!(office.deposed, Token::new(7).map(Deposed::new), "{fault}: {answers:?}");
        match answers.last().map(String::as_str) {
            Some("done") => assert!(office.paused.is_some(), "{fault}"),
            Some("refused") => assert!(office.paused.is_none(), "{fault}"),
            other => panic!("{fault}: {other:?}"),
        }
        done += usize::from(office.paused.is_some());
        refused += usize::from(office.paused.is_none());
        other.set_office(&office, &Office::default()).await;
        stopped
    })
    .await;
    assert!(done > 0 && refused > 0, "both ends were met: {done} done, {refused} refused");
    other.close(&path).await;
}

/// The directory is moved while somebody is in the middle of a write: what may come back with it is
/// never called undone.
#[tokio::test]
async fn a_write_in_a_directory_that_is_moved_meanwhile_has_an_unknown_outcome() {
    let mut unknown = 0;
    at_every_point("stop", async |fault| {
        let dir = TempDir::new("file");
        let (path, moved) = (dir.path().join("store"), dir.path().join("moved"));
        FileStore::open(&path).unwrap();
        let process = TestProcess::stopped_at(&path, &fault, &["found", "pause jobs/nightly"]);
        std::fs::rename(&path, &moved).unwrap();
        let (stopped, answers) = process.go_on();
        let office = FileStore::open(&moved).unwrap().line(&election(), 1).await.unwrap().office;
        let answer = answers.last().unwrap();
        if office.paused.is_some() {
            assert!(answer == "done" || answer.contains("the outcome is unknown"), "{fault}: {answer}");
            unknown += usize::from(answer != "done");
        }
        stopped
    })
    .await;
    assert!(unknown > 0, "it was never moved between the write and the answer");
}
