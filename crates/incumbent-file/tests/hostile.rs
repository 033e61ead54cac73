//! What a store goes through: the suite of all stores, as far as there is something to mistreat.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_file::FileStore;
use incumbent_store::{ElectionName, Session, Store};
use incumbent_testkit::TempDir;
use incumbent_testkit::candidates::{entry, held};
use incumbent_testkit::hostile::{Case, Exception, FOR_LONG, Host};

struct Directory {
    path: PathBuf,
    /// Sessions of a crowd: its entries stay as long as they do.
    crowd: Mutex<Vec<Arc<dyn Session>>>,
    _dir: TempDir,
}

/// Sessions whose entries are copied: each stands in a crowd many times.
const SESSIONS: u128 = 20;

impl Host for Directory {
    const EXCEPTIONS: &'static [Exception] = &Exception::each(
        [
            Case::HungEndpoint,
            Case::CutOff,
            Case::AnswersLost,
            Case::QuestionsLost,
            Case::CutAfterTheRequest,
            Case::LateAnswers,
            Case::AnotherCluster,
            Case::OtherLimits,
            Case::OutOfSpace,
            Case::SlowServer,
            Case::WallClock,
        ],
        "there is no server and no connection: each process does what it asks for itself, and its own tests stop and \
         kill it at every step",
    );
    const TTL: Duration = Duration::from_secs(4);

    async fn start() -> Directory {
        let dir = TempDir::new("file");
        Directory { path: dir.path().join("store"), crowd: Mutex::default(), _dir: dir }
    }

    fn addresses(&self) -> Vec<String> {
        Vec::new()
    }

    fn store(&self, _: &[String]) -> Option<Arc<dyn Store>> {
        Some(Arc::new(FileStore::open(&self.path).unwrap()))
    }

    async fn crowd(&self, election: &ElectionName, count: usize) {
        // There is one election.
        let mut elections = fs::read_dir(self.path.join("elections")).unwrap();
        let line = elections.next().unwrap().unwrap().path().join("line");
        let store = self.store(&[]).unwrap();
        let mut records = Vec::new();
        for number in 0..SESSIONS {
            let session = store.open_session(FOR_LONG).await.unwrap();
            let held = held(&session.enlist(election, &entry(100 + number)).await.unwrap());
            records.push(fs::read(line.join(held.token.to_string()).join("record")).unwrap());
            session.withdraw(&held, None).await.unwrap();
            self.crowd.lock().unwrap().push(session);
        }
        // Numbers that were given before stay unused.
        let first = numbers(&line).max().unwrap_or(0) + 1 + SESSIONS as u64;
        for (number, record) in (first..).zip(records.iter().cycle()).take(count) {
            let entry = line.join(number.to_string());
            fs::create_dir(&entry).unwrap();
            fs::write(entry.join("record"), record).unwrap();
        }
    }
}

fn numbers(line: &Path) -> impl Iterator<Item = u64> {
    fs::read_dir(line).unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

incumbent_testkit::hostile!(store, Directory);
