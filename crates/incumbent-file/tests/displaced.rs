//! The directory is moved, removed or replaced while it is in use: nobody leads in two directories
//! at once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::fs;
use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent::{CandidacyError, Client, Observation};
use incumbent_file::FileStore;
use incumbent_store::{
    Cursor, ElectionName, Held, Incarnation, NewEntry, Place, Seen, Session, Store, StoreError, Version, Watched,
};
use incumbent_testkit::TempDir;

/// Far more than anything here takes, and far less than the TTL for which nobody waits.
const PATIENCE: Duration = Duration::from_secs(60);
const LONG_TTL: Duration = Duration::from_secs(3_600);

/// What can happen to a store at `<dir>/above/store`.
type Mishap = (&'static str, fn(&Path));

const MISHAPS: [Mishap; 5] = [
    ("it is moved", |dir| fs::rename(dir.join("above/store"), dir.join("moved")).unwrap()),
    ("it is removed", |dir| fs::remove_dir_all(dir.join("above/store")).unwrap()),
    ("one above it is moved", |dir| fs::rename(dir.join("above"), dir.join("moved")).unwrap()),
    ("it is replaced by an empty directory", |dir| {
        fs::rename(dir.join("above/store"), dir.join("moved")).unwrap();
        fs::create_dir(dir.join("above/store")).unwrap();
    }),
    ("it is replaced by another store", |dir| {
        fs::rename(dir.join("above/store"), dir.join("moved")).unwrap();
        FileStore::open(dir.join("above/store")).unwrap();
    }),
];

fn election() -> ElectionName {
    ElectionName::new("jobs/nightly").unwrap()
}

struct Fixture {
    dir: TempDir,
    path: PathBuf,
    store: FileStore,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = TempDir::new("file");
        let path = dir.path().join("above/store");
        let store = FileStore::open(&path).unwrap();
        Fixture { dir, path, store }
    }

    async fn leader(&self) -> (Arc<dyn Session>, Held) {
        let session = self.store.open_session(LONG_TTL).await.unwrap();
        let entry = NewEntry::new(Incarnation::from_bits(1), "first", "");
        match session.enlist(&election(), &entry).await.unwrap().place {
            Place::Leading(held) => (session, held),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns once the kernel watches an entry for this process, `times` times.
async fn until_watched(entry: &Path, times: usize) {
    let inode = format!(" ino:{:x} ", fs::metadata(entry).unwrap().ino());
    let watched = || {
        let open =
            fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(|info| fs::read_to_string(info.ok()?.path()).ok());
        open.filter(|info| info.lines().any(|line| line.starts_with("inotify ") && line.contains(&inode))).count()
    };
    let armed = async {
        while watched() < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon("the watch", armed).await;
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

#[tokio::test]
async fn no_call_of_a_session_is_answered_once_the_directory_is_another_one() {
    for (what, happen) in MISHAPS {
        let fixture = Fixture::new();
        let (session, held) = fixture.leader().await;
        happen(fixture.dir.path());
        let renewed = session.renew(std::slice::from_ref(&held)).await;
        assert!(matches!(renewed, Err(StoreError::SessionGone)), "{what}: {renewed:?}");
        let standing = session.standing(&held, None).await;
        assert!(matches!(standing, Err(StoreError::SessionGone)), "{what}: {standing:?}");
        let entry = NewEntry::new(Incarnation::from_bits(2), "again", "");
        let enlisted = session.enlist(&ElectionName::new("other").unwrap(), &entry).await;
        assert!(matches!(enlisted, Err(StoreError::SessionGone)), "{what}: {enlisted:?}");
        // What is ours there is still ours to take back.
        session.withdraw(&held, None).await.unwrap();
        session.close().await.unwrap();
    }
}

#[tokio::test]
async fn nobody_reads_an_empty_line_where_there_is_no_store_and_nothing_is_made_there() {
    for (what, happen) in &MISHAPS[..4] {
        let fixture = Fixture::new();
        let (_session, _held) = fixture.leader().await;
        happen(fixture.dir.path());
        for _ in 0..2 {
            let line = fixture.store.line(&election(), 1).await;
            let said = format!("{line:?}");
            assert!(matches!(line, Err(StoreError::Unavailable { .. })), "{what}: {said}");
            assert!(said.contains(fixture.path.to_str().unwrap()) && said.contains("is gone"), "{what}: {said}");
            let session = fixture.store.open_session(LONG_TTL).await;
            assert!(matches!(session, Err(StoreError::Unavailable { .. })), "{what}: {session:?}");
        }
        assert!(!fixture.path.join("incumbent").exists(), "{what}: a new store was founded");
    }
}

/// The kernel tells, with no renewal in between.
#[tokio::test]
async fn those_who_wait_are_woken_when_the_directory_goes() {
    for (what, happen) in MISHAPS.iter().filter(|(what, _)| !what.contains("above")) {
        let fixture = Fixture::new();
        let (session, held) = fixture.leader().await;
        let line = fixture.store.line(&election(), 1).await.unwrap();
        // Each has notifications of its own, so that it can be seen that both wait.
        let theirs = FileStore::open(&fixture.path).unwrap();
        let entry = fixture.path.join(format!("elections/jobs%2fnightly/line/{}", held.token));
        let leader = session.watch(&Watched::new(held, line.office.version), line.cursor);
        let observer = theirs.watch(&election(), &line.seen(), line.cursor);
        let waiting = [tokio::spawn(leader), tokio::spawn(observer)];
        until_watched(&entry, 2).await;
        happen(fixture.dir.path());
        let [leader, observer] = waiting;
        // It looks, and its session tells it.
        assert!(soon(what, leader).await.unwrap().is_ok(), "{what}");
        // It has no session, and has to know that this is no change like others.
        assert!(soon(what, observer).await.unwrap().is_err(), "{what}");
    }
}

#[tokio::test]
async fn a_watch_that_is_armed_too_late_does_not_wait_in_a_directory_that_is_gone() {
    for (what, happen) in MISHAPS {
        let fixture = Fixture::new();
        happen(fixture.dir.path());
        let watch = fixture.store.watch(&election(), &Seen::new(Version::NONE), Cursor::default());
        assert!(soon(what, watch).await.is_err(), "{what}");
    }
}

async fn office(candidacy: &mut incumbent::Candidacy) -> incumbent::Leadership {
    soon("the office", candidacy.elected()).await.unwrap().unwrap()
}

async fn client(path: &Path, ttl: Duration) -> Client {
    Client::builder().ttl(ttl).with_store(FileStore::open(path).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_leader_loses_office_at_once_and_stands_again_when_the_directory_is_put_back() {
    let fixture = Fixture::new();
    let moved = fixture.dir.path().join("moved");
    let client = client(&fixture.path, Duration::from_secs(6)).await;
    let mut candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
    let led = office(&mut candidacy).await;
    let token = led.token().token;
    fs::rename(&fixture.path, &moved).unwrap();
    soon("the loss", led.lost()).await;
    drop(led);
    fs::rename(&moved, &fixture.path).unwrap();
    let led = office(&mut candidacy).await;
    assert!(led.token().token > token);
    drop(led);
    drop(candidacy);
    client.close(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn a_leader_whose_directory_was_replaced_is_told_so_long_before_its_ttl() {
    let fixture = Fixture::new();
    let old = client(&fixture.path, LONG_TTL).await;
    let mut candidacy = old.election("e").unwrap().candidate("a").stand().await.unwrap();
    let led = office(&mut candidacy).await;
    until_watched(&fixture.path.join(format!("elections/e/line/{}", led.token().token)), 1).await;
    // In one step: there is no moment at which nothing is there.
    let next = fixture.dir.path().join("above/next");
    FileStore::open(&next).unwrap();
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        &next,
        rustix::fs::CWD,
        &fixture.path,
        rustix::fs::RenameFlags::EXCHANGE,
    )
    .unwrap();
    soon("the loss", led.lost()).await;
    drop(led);
    let error = soon("the answer", candidacy.elected()).await.unwrap_err();
    assert!(matches!(error, CandidacyError::StoreReplaced { .. }), "{error:?}");
    assert!(error.to_string().contains("the store was replaced"), "{error}");
    let new = client(&fixture.path, LONG_TTL).await;
    let mut candidacy = new.election("e").unwrap().candidate("b").stand().await.unwrap();
    office(&mut candidacy).await;
}

#[tokio::test]
async fn an_observer_is_stale_while_the_directory_is_gone_and_is_told_of_the_reset() {
    for first_is_larger in [true, false] {
        let fixture = Fixture::new();
        let ours = client(&fixture.path, Duration::from_secs(6)).await;
        let mut candidacy = ours.election("e").unwrap().candidate("a").stand().await.unwrap();
        let led = office(&mut candidacy).await;
        let mut observer = client(&fixture.path, Duration::from_secs(6)).await.election("e").unwrap().observe();
        let mut next = async || soon("an observation", observer.next()).await.unwrap();
        assert!(matches!(next().await, Observation::Leader(leader) if leader.name.as_deref() == Some("a")));
        fs::rename(&fixture.path, fixture.dir.path().join("moved")).unwrap();
        assert_eq!(next().await, Observation::Stale);
        soon("the loss", led.lost()).await;
        // A store whose tokens are as large as the old one's is another one all the same.
        let theirs = client(&fixture.path, Duration::from_secs(6)).await;
        let mut other = theirs.election("e").unwrap().candidate("b").stand().await.unwrap();
        if !first_is_larger {
            office(&mut other).await.resign().await.unwrap();
        }
        let held = office(&mut other).await;
        let mut seen = Vec::new();
        loop {
            let observation = next().await;
            if matches!(&observation, Observation::Leader(leader) if leader.name.as_deref() == Some("b")) {
                break;
            }
            seen.push(observation);
        }
        assert!(seen.contains(&Observation::StoreReset), "{seen:?}");
        drop(held);
        drop(led);
    }
}
