//! Real processes on one directory: one dies, one is stopped, many race.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use incumbent_file::{FileOptions, FileStore, Ttl};
use incumbent_store::{Cas, ElectionName, Entry, Held, Incarnation, NewEntry, Place, Session, Store, Watched};
use incumbent_testkit::TempDir;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

mod support;

use support::{TestProcess, Told, leftovers, token};

/// Far more than anything here takes, and far less than the TTL that a dead process is not waited
/// for.
const PATIENCE: Duration = Duration::from_secs(60);
const LONG_TTL_MS: u64 = 3_600_000;

fn election() -> ElectionName {
    ElectionName::new("jobs/nightly").unwrap()
}

async fn enlist(session: &Arc<dyn Session>, number: u128) -> Held {
    let entry = NewEntry::new(Incarnation::from_bits(number), "test", "value");
    match session.enlist(&election(), &entry).await.unwrap().place {
        Place::Leading(held) | Place::Behind { held: Some(held), .. } => held,
        other => panic!("{other:?}"),
    }
}

/// Follows the one ahead until it leads, by hints alone.
async fn lead(session: &Arc<dyn Session>, held: &Held) {
    let led = async {
        loop {
            let standing = session.standing(held, None).await.unwrap();
            let Place::Behind { ahead, .. } = standing.place else {
                assert_eq!(standing.place, Place::Leading(held.clone()));
                return;
            };
            let mut watched = Watched::new(held.clone(), standing.office.version);
            watched.ahead = Some(ahead.id);
            session.watch(&watched, standing.cursor).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, led).await.expect("it leads before any TTL has passed");
}

async fn a_killed_leader_is_replaced_at_once(path: &Path, options: FileOptions) {
    let mut leader = TestProcess::start(path);
    leader.must(&format!("open {LONG_TTL_MS}"));
    leader.must("enlist jobs/nightly");
    let store = FileStore::open_with(path, options).unwrap();
    let session = store.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&session, 1).await;
    let follower = tokio::spawn(async move {
        lead(&session, &held).await;
        session.close().await.unwrap();
    });
    leader.kill();
    follower.await.unwrap();
    assert_eq!(leftovers(path), Vec::<String>::new());
}

#[tokio::test]
async fn a_killed_leader_is_replaced_at_once_by_notifications() {
    let dir = TempDir::new("file");
    for _ in 0..20 {
        a_killed_leader_is_replaced_at_once(&dir.path().join("store"), FileOptions::new()).await;
    }
}

#[tokio::test]
async fn a_killed_leader_is_replaced_at_once_where_there_are_no_notifications() {
    let dir = TempDir::new("file");
    for _ in 0..5 {
        let options = FileOptions::new().without_notifications(true);
        a_killed_leader_is_replaced_at_once(&dir.path().join("store"), options).await;
    }
}

/// Those in between die all at once, and the last one in line leads.
#[tokio::test]
async fn several_who_die_at_once_make_the_next_one_lead() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut processes: Vec<_> = (0..5).map(|_| TestProcess::start(&path)).collect();
    for process in &mut processes {
        process.must(&format!("open {LONG_TTL_MS}"));
        process.must("enlist jobs/nightly");
    }
    let store = FileStore::open(&path).unwrap();
    let session = store.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&session, 1).await;
    processes.into_iter().for_each(TestProcess::kill);
    lead(&session, &held).await;
    assert_eq!(store.line(&election(), 10).await.unwrap().entries.len(), 1);
    session.close().await.unwrap();
    assert_eq!(leftovers(&path), Vec::<String>::new());
}

/// Followers make pipes where there are no notifications. Killed while they wait, they leave
/// nothing that stays.
#[tokio::test]
async fn followers_that_die_while_they_wait_without_notifications_leave_nothing() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let store = FileStore::open(&path).unwrap();
    let session = store.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&session, 1).await;
    let mut followers: Vec<_> = (0..4).map(|_| TestProcess::start_with(&path, None, &["--no-notifications"])).collect();
    for follower in &mut followers {
        follower.must(&format!("open {LONG_TTL_MS}"));
        assert!(follower.must("enlist jobs/nightly").starts_with("behind "));
        assert_eq!(follower.must("follow jobs/nightly"), "waiting");
    }
    let mut first = followers.remove(0);
    assert_eq!(session.withdraw(&held, None).await.unwrap(), Cas::Done);
    let Told::Answer(answer) = first.answer() else { panic!("it ended") };
    assert!(answer.starts_with("leading "), "it was told: {answer}");
    followers.into_iter().for_each(TestProcess::kill);
    assert_eq!(first.must("close"), "done");
    first.finish();
    session.close().await.unwrap();
    assert_eq!(leftovers(&path), Vec::<String>::new());
}

/// A process with a stopped leader ahead of it evicts what has not changed, and the leader finds
/// out when it goes on.
#[tokio::test]
async fn a_stopped_leader_keeps_its_place_until_it_is_evicted_and_is_told_when_it_goes_on() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut leader = TestProcess::start(&path);
    leader.must("open 15000");
    leader.must("enlist jobs/nightly");
    let store = FileStore::open(&path).unwrap();
    let session = store.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&session, 1).await;
    let before = ahead(&session, &held).await;
    assert_eq!(before.observed.unwrap().ttl, Duration::from_secs(15));
    assert_eq!(leader.must("renew"), "renewed gone=0");
    assert_eq!(store.evict(&election(), &before).await.unwrap(), Cas::Refused, "it has renewed");
    leader.signal(Signal::STOP);
    assert!(leader.wait_stopped());
    let silent = ahead(&session, &held).await;
    assert_ne!(silent.version, before.version);
    assert_eq!(ahead(&session, &held).await.version, silent.version, "a stopped process does not renew");
    assert_eq!(store.evict(&election(), &silent).await.unwrap(), Cas::Done);
    assert_eq!(session.standing(&held, None).await.unwrap().place, Place::Leading(held.clone()));
    leader.signal(Signal::CONT);
    assert_eq!(leader.must("renew"), "renewed gone=1");
    assert_eq!(leader.must("standing jobs/nightly"), "Gone");
    assert!(leader.must("enlist jobs/nightly").starts_with("behind "));
}

async fn ahead(session: &Arc<dyn Session>, held: &Held) -> Entry {
    match session.standing(held, None).await.unwrap().place {
        Place::Behind { ahead, .. } => ahead,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_a_ttl_nobody_who_lives_is_to_be_evicted_and_a_dead_one_goes_all_the_same() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let first = FileStore::open_with(&path, FileOptions::new().ttl(Ttl::None)).unwrap();
    let leader = first.open_session(Duration::from_secs(15)).await.unwrap();
    enlist(&leader, 1).await;
    let store = FileStore::open(&path).unwrap();
    let session = store.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&session, 2).await;
    assert_eq!(ahead(&session, &held).await.observed, None);
    let caveats = first.promises().await.unwrap().caveats;
    assert!(caveats.iter().any(|caveat| caveat.contains("never replaced")), "{caveats:?}");
    // As nobody may replace it, it has no deadline either: stopped for an hour, its work is where
    // it was.
    let a_year = Duration::from_secs(365 * 24 * 3_600);
    assert!(leader.liveness().ttl >= a_year && leader.renew(&[]).await.unwrap().ttl >= a_year);
    drop(leader);
    assert_eq!(session.standing(&held, None).await.unwrap().place, Place::Leading(held.clone()));
}

/// A copy of the lifeline in another process keeps the place when the session's own process is
/// killed.
#[tokio::test]
async fn a_copy_of_the_lifeline_keeps_the_place_for_as_long_as_it_is_open() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut leader = TestProcess::start(&path);
    leader.must("open 15000");
    let leading = token(&leader.must("enlist jobs/nightly"));
    let guardian = Pid::from_raw(leader.must("leave-lifeline").parse().unwrap()).unwrap();
    let store = FileStore::open(&path).unwrap();
    let session = store.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&session, 1).await;
    leader.kill();
    assert_eq!(Some(ahead(&session, &held).await.token.get()), leading);
    kill_process(guardian, Signal::KILL).unwrap();
    lead(&session, &held).await;
}

/// Processes stand and leave as fast as they can, in the same election: no token comes twice, and
/// each leader's token is larger than the one before.
#[tokio::test]
async fn racing_processes_get_different_tokens_and_lead_in_their_order() {
    const PROCESSES: usize = 4;
    const ROUNDS: usize = 25;
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| TestProcess::start(&path)).collect();
    for process in &mut processes {
        process.tell("open 15000");
        for _ in 0..ROUNDS {
            ["enlist jobs/nightly", "lead jobs/nightly", "withdraw jobs/nightly"]
                .iter()
                .for_each(|line| process.tell(line));
        }
        process.tell("close");
        process.end_of_input();
    }
    let mut all = BTreeSet::new();
    for process in &mut processes {
        assert_eq!(process.answer(), Told::Answer("done".into()));
        let mut last = 0;
        for _ in 0..ROUNDS {
            let [enlisted, led, left] = [(); 3].map(|()| process.answer());
            let (Told::Answer(enlisted), Told::Answer(led)) = (enlisted, led) else { panic!("it ended") };
            let token = token(&enlisted).unwrap_or_else(|| panic!("{enlisted}"));
            assert_eq!(led, format!("leading {token}"));
            assert_eq!(left, Told::Answer("done".into()));
            assert!(token > last && all.insert(token), "{token} after {last}");
            last = token;
        }
        assert_eq!(process.answer(), Told::Answer("done".into()));
    }
    assert_eq!(all.len(), PROCESSES * ROUNDS);
    drop(processes);
    assert_eq!(leftovers(&path), Vec::<String>::new());
}

/// Two stores on one directory in one process exclude each other as two processes do.
#[tokio::test]
async fn two_stores_in_one_process_are_two_rivals() {
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let (one, two) = (FileStore::open(&path).unwrap(), FileStore::open(&path).unwrap());
    assert_eq!(one.promises().await.unwrap().store, two.promises().await.unwrap().store);
    let first = one.open_session(Duration::from_secs(15)).await.unwrap();
    let second = two.open_session(Duration::from_secs(15)).await.unwrap();
    let (held, behind) = (enlist(&first, 1).await, enlist(&second, 2).await);
    assert!(ahead(&second, &behind).await.is(&held));
    let waiting = lead(&second, &behind);
    // Dropped, not closed: as good as dead.
    drop(first);
    waiting.await;
}

/// Room for what a process allocates meanwhile, and too little for the stack of a thread.
const NO_ROOM_FOR_A_THREAD: u64 = 384 * 1024;

/// Waits until every thread of it sleeps: one that was just made has still to map what it needs.
fn until_idle(process: &TestProcess) {
    let tasks = format!("/proc/{}/task", process.pid().as_raw_nonzero());
    let sleeps = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    };
    let until = std::time::Instant::now() + PATIENCE;
    while !std::fs::read_dir(&tasks).unwrap().all(|task| sleeps(task.unwrap())) {
        assert!(std::time::Instant::now() < until, "it is never idle");
        std::thread::yield_now();
    }
}

/// Lets a process have no more memory than it has, or as much as it likes.
fn let_it_grow(process: &TestProcess, as_it_likes: bool) {
    until_idle(process);
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid().as_raw_nonzero())).unwrap();
    let has = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")).unwrap();
    let now = has.parse::<u64>().unwrap() * 1024 + NO_ROOM_FOR_A_THREAD;
    let limit = Rlimit { current: (!as_it_likes).then_some(now), maximum: None };
    prlimit(Some(process.pid()), Resource::As, limit).unwrap();
}

#[tokio::test]
async fn where_no_thread_can_be_made_a_session_is_refused_and_one_that_is_open_goes_on() {
    let dir = TempDir::new("file");
    let mut process = TestProcess::start(&dir.path().join("store"));
    process.must("found");
    let_it_grow(&process, false);
    let Told::Answer(refused) = process.ask(&format!("open {LONG_TTL_MS}")) else { panic!("it has died of it") };
    assert!(refused.contains("unavailable") && refused.contains("no thread can be made"), "{refused}");
    let_it_grow(&process, true);
    process.must(&format!("open {LONG_TTL_MS}"));
    let_it_grow(&process, false);
    let leading = process.must("enlist jobs/nightly");
    assert!(leading.starts_with("leading"), "{leading}");
    for _ in 0..3 {
        assert_eq!(process.must("renew"), "renewed gone=0");
    }
    process.must("close");
}

/// One after the other, four of them would take four TTLs.
#[tokio::test]
async fn several_stopped_candidates_in_a_row_are_passed_at_the_same_time() {
    const TTL: Duration = Duration::from_secs(3);
    let dir = TempDir::new("file");
    let path = dir.path().join("store");
    let mut line: Vec<_> = (0..5).map(|_| TestProcess::start(&path)).collect();
    for process in &mut line {
        process.must(&format!("open {}", TTL.as_millis()));
        process.must("enlist jobs/nightly");
    }
    let client = incumbent::Client::builder().ttl(TTL).with_store(FileStore::open(&path).unwrap()).await.unwrap();
    let mut candidacy = client.election("jobs/nightly").unwrap().candidate("last").stand().await.unwrap();
    while !matches!(candidacy.role(), incumbent::Role::Following { .. }) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for process in &mut line[1..] {
        // Their silence begins now, whatever they have done before.
        process.must("renew");
        process.signal(Signal::STOP);
    }
    let killed = std::time::Instant::now();
    drop(line.remove(0));
    let _office = tokio::time::timeout(PATIENCE, candidacy.elected()).await.unwrap().unwrap().unwrap();
    // Two TTLs are promised; the third is for a machine that is busy.
    assert!(killed.elapsed() < TTL * 3, "it took {:?}", killed.elapsed());
    line.iter().for_each(|process| process.signal(Signal::CONT));
}
