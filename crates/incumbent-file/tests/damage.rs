//! Directories and files that are not as they should be: a clear error that names them, and nothing
//! is deleted.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent_file::FileStore;
use incumbent_store::{
    Cas, Deposed, ElectionName, Ended, Handover, Heir, Held, Incarnation, NewEntry, Nonce, Office, Paused, Place,
    Refusal, Session, Store, StoreError, Token, Version,
};
use incumbent_testkit::TempDir;

fn election() -> ElectionName {
    ElectionName::new("jobs/nightly").unwrap()
}

async fn enlist(session: &Arc<dyn Session>) -> Result<Held, StoreError> {
    let entry = NewEntry::new(Incarnation::from_bits(1), "test", "value");
    match session.enlist(&election(), &entry).await?.place {
        Place::Leading(held) | Place::Behind { held: Some(held), .. } => Ok(held),
        other => panic!("{other:?}"),
    }
}

struct Fixture {
    _dir: TempDir,
    path: PathBuf,
    store: FileStore,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = TempDir::new("file");
        let path = dir.path().join("store");
        let store = FileStore::open(&path).unwrap();
        Fixture { _dir: dir, path, store }
    }

    async fn session(&self) -> Arc<dyn Session> {
        self.store.open_session(Duration::from_secs(15)).await.unwrap()
    }

    fn in_election(&self, path: &str) -> PathBuf {
        self.path.join("elections/jobs%2fnightly").join(path)
    }
}

fn assert_corrupt<T: std::fmt::Debug>(answer: Result<T, StoreError>, file: &Path, why: &str) {
    match answer {
        Err(StoreError::Corrupt { what }) => {
            assert!(what.contains(file.to_str().unwrap()), "{what} does not name {}", file.display());
            assert!(what.contains(why), "{what} does not say {why:?}");
            assert!(what.contains("; once nothing uses the store, remove "), "{what}: and what now?");
        }
        other => panic!("{other:?} instead of {why:?}"),
    }
}

/// What can have happened to a file, and what is said about it.
fn damages(whole: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    let mut flipped = whole.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let mut longer = whole.to_vec();
    longer.extend_from_slice(b"more");
    let later = String::from_utf8_lossy(whole).lines().next().unwrap().replace(" 1", " 2") + "\nwhatever comes then";
    vec![
        (Vec::new(), "it is empty"),
        (whole[..whole.len() / 2].to_vec(), "it is truncated"),
        (whole[..whole.len() - 1].to_vec(), "it is truncated"),
        (flipped, "its checksum is wrong"),
        (longer, "there is something after its end"),
        (later.into_bytes(), "it was written by a later version (format 2, this one knows 1)"),
        (b"hello\n".to_vec(), "of incumbent"),
        (vec![0; 4096], "it was not written by incumbent"),
    ]
}

#[tokio::test]
async fn a_damaged_entry_is_named_to_readers_of_the_line_and_is_not_deleted() {
    let fixture = Fixture::new();
    let (leader, follower) = (fixture.session().await, fixture.session().await);
    let held = enlist(&leader).await.unwrap();
    let file = fixture.in_election("line").join(held.token.to_string()).join("record");
    let whole = fs::read(&file).unwrap();
    for (bytes, why) in damages(&whole) {
        fs::write(&file, &bytes).unwrap();
        assert_corrupt(fixture.store.line(&election(), 10).await, &file, why);
        assert_corrupt(enlist(&follower).await, &file, why);
        assert_eq!(fs::read(&file).unwrap(), bytes, "it is as it was found");
        assert_eq!(follower.renew(&[]).await.unwrap().stray, [], "nobody stands behind it without knowing");
    }
    fs::write(&file, &whole).unwrap();
    assert!(enlist(&follower).await.is_ok(), "once it is mended, all goes on");
}

#[tokio::test]
async fn a_damaged_entry_keeps_nobody_from_other_elections() {
    let fixture = Fixture::new();
    let leader = fixture.session().await;
    let held = enlist(&leader).await.unwrap();
    let file = fixture.in_election("line").join(held.token.to_string()).join("record");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    // Nobody holds the lock of a copy: it looks like a session of a dead process, for whose entries
    // every election is searched.
    let sessions = fixture.path.join("sessions");
    let session = fs::read_dir(&sessions).unwrap().next().unwrap().unwrap().path();
    let dead = sessions.join("0".repeat(session.file_name().unwrap().len()));
    fs::copy(&session, &dead).unwrap();

    let other = fixture.session().await;

    let entry = NewEntry::new(Incarnation::from_bits(2), "test", "value");
    let standing = other.enlist(&ElectionName::new("jobs/weekly").unwrap(), &entry).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    assert!(dead.exists(), "what it left may be where nobody could look");
    fs::write(&file, &whole).unwrap();
    fixture.session().await;
    assert!(!dead.exists(), "once it is mended, the dead one goes");
}

#[tokio::test]
async fn a_damaged_office_record_is_named_and_never_read_as_nothing() {
    let fixture = Fixture::new();
    let session = fixture.session().await;
    let office = Office::default().with_paused(Paused::new("a test"));
    assert_eq!(fixture.store.set_office(&election(), Version::NONE, &office).await.unwrap(), Cas::Done);
    let version = fixture.store.line(&election(), 1).await.unwrap().office.version;
    let file = fixture.in_election("office").join(version.0.to_string()).join("record");
    for (bytes, why) in damages(&fs::read(&file).unwrap()) {
        fs::write(&file, &bytes).unwrap();
        assert_corrupt(fixture.store.line(&election(), 1).await, &file, why);
        assert_corrupt(fixture.store.set_office(&election(), version, &Office::default()).await, &file, why);
        assert_corrupt(enlist(&session).await, &file, why);
        assert_eq!(fs::read(&file).unwrap(), bytes, "it is as it was found");
    }
    fs::remove_file(&file).unwrap();
    assert_corrupt(fixture.store.line(&election(), 1).await, &file, "it is missing");
}

#[tokio::test]
async fn a_damaged_session_of_a_living_process_is_named() {
    let fixture = Fixture::new();
    let (leader, follower) = (fixture.session().await, fixture.session().await);
    enlist(&leader).await.unwrap();
    let sessions: Vec<_> =
        fs::read_dir(fixture.path.join("sessions")).unwrap().map(|file| file.unwrap().path()).collect();
    for file in &sessions {
        fs::write(file, "incumbent session 9\n").unwrap();
    }
    let Err(StoreError::Corrupt { what }) = enlist(&follower).await else { panic!("it is not told") };
    assert!(what.contains("sessions/") && what.contains("a later version"), "{what}");
    assert!(sessions.iter().all(|file| file.exists()));
}

#[tokio::test]
async fn a_damaged_identity_or_mark_is_named_and_not_made_anew() {
    let fixture = Fixture::new();
    let identity = fixture.path.join("incumbent");
    let whole = fs::read(&identity).unwrap();
    for (bytes, why) in damages(&whole) {
        fs::write(&identity, &bytes).unwrap();
        assert_corrupt(FileStore::open(&fixture.path), &identity, why);
        assert_eq!(fs::read(&identity).unwrap(), bytes);
    }
    fs::write(&identity, &whole).unwrap();
    let mark = fixture.path.join("high-water-mark");
    fs::write(mark.join("notes.txt"), "").unwrap();
    assert_corrupt(FileStore::open(&fixture.path), &mark.join("notes.txt"), "it was not written by incumbent");
    fs::remove_dir_all(&mark).unwrap();
    assert_corrupt(FileStore::open(&fixture.path), &mark, "tokens could be given twice");
    fs::create_dir(&mark).unwrap();
    assert_corrupt(FileStore::open(&fixture.path), &mark, "tokens could be given twice");
}

#[tokio::test]
async fn something_foreign_in_the_line_is_named() {
    let fixture = Fixture::new();
    let session = fixture.session().await;
    enlist(&session).await.unwrap();
    for name in ["README", "007", "0"] {
        let foreign = fixture.in_election("line").join(name);
        fs::write(&foreign, "hello").unwrap();
        assert_corrupt(fixture.store.line(&election(), 1).await, &foreign, "it was not put there by incumbent");
        fs::remove_file(&foreign).unwrap();
    }
    let file = fixture.in_election("line/900");
    fs::write(&file, "hello").unwrap();
    assert_corrupt(fixture.store.line(&election(), 10).await, &file, "");
    fs::remove_file(&file).unwrap();
    symlink("/etc/passwd", fixture.path.join("sessions/0123")).unwrap();
    let answer = fixture.store.open_session(Duration::from_secs(15)).await.map(drop);
    assert_corrupt(answer, &fixture.path.join("sessions/0123"), "symbolic");
}

#[test]
fn a_directory_with_other_things_in_it_is_not_taken_over() {
    let dir = TempDir::new("file");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    match FileStore::open(dir.path()) {
        Err(StoreError::Foreign { what }) => assert!(what.contains("letter.txt"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was added");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let fixture = Fixture::new();
    for mode in [0o770, 0o702, 0o722] {
        fs::set_permissions(&fixture.path, fs::Permissions::from_mode(mode)).unwrap();
        match FileStore::open(&fixture.path) {
            Err(StoreError::Denied { what, .. }) => assert!(what.contains(&format!("mode {mode:o}")), "{what}"),
            other => panic!("{mode:o}: {other:?}"),
        }
    }
    fs::set_permissions(&fixture.path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(FileStore::open(&fixture.path).is_ok(), "others may look");
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let us = rustix::process::geteuid();
    // Root's own directory, or anyone else's when we are root.
    let dir = TempDir::new("file");
    let other = if us.is_root() {
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::chown(&other, Some(4242), None).unwrap();
        other
    } else {
        PathBuf::from("/")
    };
    let owner = fs::metadata(&other).unwrap().uid();
    match FileStore::open(&other) {
        Err(StoreError::Denied { what, .. }) => {
            let whose = format!("it belongs to user {owner}, and we are user {}", us.as_raw());
            let next = format!("act as that user (as root: `sudo -u '#{owner}' ...`)");
            assert!(what.ends_with(&format!("{whose}: {next}")), "{what}");
        }
        answer => panic!("{answer:?}"),
    }
}

#[tokio::test]
async fn a_forged_entry_with_a_number_that_nobody_draws_takes_no_token_from_anybody() {
    let fixture = Fixture::new();
    let session = fixture.session().await;
    let first = enlist(&session).await.unwrap();
    let whole = fs::read(fixture.in_election(&format!("line/{}/record", first.token))).unwrap();
    let forged = fixture.in_election(&format!("line/{}", Token::MAX));
    fs::create_dir(&forged).unwrap();
    fs::write(forged.join("record"), whole).unwrap();
    assert_corrupt(fixture.store.line(&election(), 10).await, &forged, "it was not put there by incumbent");
    assert_corrupt(session.standing(&first, None).await, &forged, "it was not put there by incumbent");
    // Done as it says, all is well again.
    fs::remove_dir_all(&forged).unwrap();
    assert_eq!(fixture.store.line(&election(), 10).await.unwrap().entries.len(), 1);
    session.withdraw(&first, None).await.unwrap();
    assert!(enlist(&session).await.unwrap().token.get() < 100);
    let mark = fixture.path.join(format!("high-water-mark/{}", Token::MAX));
    fs::write(&mark, "").unwrap();
    assert_corrupt(FileStore::open(&fixture.path), &mark, "it was not written by incumbent");
}

/// A disk that may only be read, or is full: what stands in the way here does the same for
/// everybody, root included.
#[tokio::test]
async fn who_reads_the_line_need_not_be_able_to_remove_the_dead() {
    let fixture = Fixture::new();
    let other = FileStore::open(&fixture.path).unwrap();
    let dead = other.open_session(Duration::from_secs(15)).await.unwrap();
    let held = enlist(&dead).await.unwrap();
    let session = fixture.session().await;
    let behind = enlist(&session).await.unwrap();
    // Nothing can be taken out of the line any more, not even by the one who goes.
    fs::remove_dir_all(fixture.path.join("trash")).unwrap();
    fs::write(fixture.path.join("trash"), "").unwrap();
    drop(dead);
    assert!(fixture.in_election(&format!("line/{}", held.token)).exists());
    let line = fixture.store.line(&election(), 10).await.unwrap();
    assert_eq!(line.entries.iter().map(|entry| entry.token).collect::<Vec<_>>(), [behind.token]);
    // A candidate that would lead past it has to remove it.
    assert!(session.standing(&behind, None).await.is_err());
}

#[tokio::test]
async fn a_ttl_that_no_heartbeat_can_keep_is_refused_with_the_smallest_that_can() {
    let fixture = Fixture::new();
    let smallest = fixture.store.promises().await.unwrap().smallest_ttl;
    let refused = fixture.store.open_session(smallest - Duration::from_millis(1)).await;
    assert!(matches!(&refused, Err(StoreError::Limit { what }) if what.contains("200ms")), "{refused:?}");
    fixture.store.open_session(smallest).await.unwrap();
}

#[test]
fn the_directories_above_are_made_as_others_make_them() {
    let place = TempDir::new("file");
    fs::create_dir(place.path().join("usual")).unwrap();
    FileStore::open(place.path().join("a/b/store")).unwrap();
    let mode = |path: &str| fs::metadata(place.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a"), mode("a/b"), mode("a/b/store")), (mode("usual"), mode("usual"), 0o700));
}

#[test]
fn what_is_made_is_for_its_owner_alone() {
    let fixture = Fixture::new();
    let mode = |path: &str| fs::metadata(fixture.path.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    assert_eq!(mode("sessions"), 0o700);
    assert_eq!(mode("incumbent"), 0o600);
}

#[test]
fn a_file_in_place_of_the_directory_is_refused_for_good() {
    let place = TempDir::new("file");
    let file = place.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    for path in [file.clone(), file.join("below")] {
        let refused = FileStore::open(&path);
        assert!(matches!(refused, Err(StoreError::Misuse { .. })), "{refused:?}");
    }
}

#[test]
fn a_link_in_place_of_the_directory_is_refused() {
    let fixture = Fixture::new();
    let link = fixture.path.with_file_name("link");
    symlink(&fixture.path, &link).unwrap();
    assert!(FileStore::open(&link).is_err());
}

/// What is noted in the office record comes back as it was, whichever process reads it.
#[tokio::test]
async fn an_office_record_with_everything_in_it_comes_back_from_the_disk() {
    let fixture = Fixture::new();
    let token = Token::new(7).unwrap();
    let incarnation = Incarnation::from_bits(u128::MAX / 3);
    let mut was = Version::NONE;
    for refused in [None].into_iter().chain(Refusal::ALL.iter().copied().map(Some)) {
        let heir = Heir::new(incarnation, incumbent_store::EntryId::new("9"), token);
        let mut handover = Handover::new(token, heir, Nonce(3), Duration::from_millis(1500));
        handover.refused = refused;
        let office = Office::default()
            .with_handover(handover)
            .with_paused(Paused::new("für später"))
            .with_ended(Ended::new(Nonce(4), Duration::from_secs(3600)))
            .with_deposed(Deposed::new(token));
        assert_eq!(fixture.store.set_office(&election(), was, &office).await.unwrap(), Cas::Done);
        let read = FileStore::open(&fixture.path).unwrap().line(&election(), 1).await.unwrap().office;
        was = read.version;
        assert_eq!(read, office.with_version(was));
    }
}

/// The high-water mark is all that remembers: an election that was removed does not begin again at
/// one.
#[tokio::test]
async fn tokens_go_on_after_everything_else_is_gone_and_the_store_is_opened_again() {
    let fixture = Fixture::new();
    let mut last = 0;
    for _ in 0..3 {
        let store = FileStore::open(&fixture.path).unwrap();
        let session = store.open_session(Duration::from_secs(15)).await.unwrap();
        let held = enlist(&session).await.unwrap();
        assert!(held.token.get() > last);
        last = held.token.get();
        session.close().await.unwrap();
        assert!(!fixture.in_election("").exists());
        assert!(fixture.path.join("high-water-mark").join(last.to_string()).exists());
    }
}

/// For one that is older than it was: what it gave after that copy was made, it gives to nobody
/// else.
#[tokio::test]
async fn tokens_that_were_raised_stay_so_and_never_go_back() {
    let fixture = Fixture::new();
    let token = |number| Token::new(number).unwrap();
    fixture.store.raise_tokens(&election(), token(1311)).await.unwrap();
    fixture.store.raise_tokens(&election(), token(27)).await.unwrap();
    let session = FileStore::open(&fixture.path).unwrap().open_session(Duration::from_secs(15)).await.unwrap();
    assert_eq!(enlist(&session).await.unwrap().token, token(1312));
    let too_high = fixture.store.raise_tokens(&election(), token(Token::MAX)).await;
    assert!(matches!(too_high, Err(StoreError::Limit { .. })), "nothing would be left to draw: {too_high:?}");
}

#[tokio::test]
async fn a_directory_that_was_removed_ends_the_session() {
    let fixture = Fixture::new();
    let session = fixture.session().await;
    let held = enlist(&session).await.unwrap();
    fs::remove_dir_all(&fixture.path).unwrap();
    let renewed = session.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(renewed, Err(StoreError::SessionGone)), "{renewed:?}");
}
