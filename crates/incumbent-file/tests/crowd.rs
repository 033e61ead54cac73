//! A line of ten thousand.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use incumbent_file::FileStore;
use incumbent_store::{ElectionName, Store};
use incumbent_testkit::candidates::entry;
use incumbent_testkit::conformance::Harness;
use incumbent_testkit::crowd::{FOR_LONG, a_line_of_ten_thousand};

mod dirs;

struct Directory {
    path: PathBuf,
    _dir: dirs::TempDir,
}

impl Harness for Directory {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(FileStore::open(&self.path).unwrap())
    }

    fn ttl(&self) -> Duration {
        FOR_LONG
    }
}

#[tokio::test]
async fn ten_thousand_stand_in_one_line() {
    let dir = dirs::TempDir::new();
    let directory = Directory { path: dir.path().join("store"), _dir: dir };
    let store = directory.store().await;
    // Sessions whose entries are copied: each stands in the line many times.
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(store.open_session(FOR_LONG).await.unwrap());
    }
    let fill = async |election: &ElectionName, count: usize| {
        // There is one election.
        let mut elections = fs::read_dir(directory.path.join("elections")).unwrap();
        let line = elections.next().unwrap().unwrap().path().join("line");
        let mut records = Vec::new();
        for (number, session) in sessions.iter().enumerate() {
            let standing = session.enlist(election, &entry(100 + number as u128)).await.unwrap();
            let held = incumbent_testkit::candidates::held(&standing);
            records.push(fs::read(line.join(held.token.to_string()).join("record")).unwrap());
            session.withdraw(&held, None).await.unwrap();
        }
        let newest = numbers(&line).max().unwrap_or(0);
        // Numbers that were given before stay unused.
        let first = newest + 1 + sessions.len() as u64;
        for (number, record) in (first..).zip(records.iter().cycle()).take(count) {
            let entry = line.join(number.to_string());
            fs::create_dir(&entry).unwrap();
            fs::write(entry.join("record"), record).unwrap();
        }
    };
    a_line_of_ten_thousand(&directory, fill).await;
}

fn numbers(line: &Path) -> impl Iterator<Item = u64> {
    fs::read_dir(line).unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}
