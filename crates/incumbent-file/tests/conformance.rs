//! The suite that every store passes, against a real directory and in real time.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says what must be so")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use incumbent_file::{FileOptions, FileStore};
use incumbent_store::Store;
use incumbent_testkit::TempDir;
use incumbent_testkit::conformance::{Harness, Time};

struct Directory {
    path: PathBuf,
    options: FileOptions,
    _dir: TempDir,
}

impl Directory {
    fn new(options: FileOptions) -> Directory {
        let dir = TempDir::new("file");
        Directory { path: dir.path().join("store"), options, _dir: dir }
    }
}

impl Harness for Directory {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(FileStore::open_with(&self.path, self.options).unwrap())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }
}

incumbent_testkit::conformance!(directory, Time::Real, Directory::new(FileOptions::new()));
incumbent_testkit::conformance!(
    directory_without_notifications,
    Time::Real,
    Directory::new(FileOptions::new().without_notifications(true))
);
incumbent_testkit::elections!(directory_elections, Time::Real, Directory::new(FileOptions::new()));
