//! A directory of a test's own.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A new directory. It is removed with everything in it when it is dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// For this user only, where temporary files go. `name` is for people who find it there.
    pub fn new(name: &str) -> TempDir {
        TempDir::within(&std::env::temp_dir(), name, 0o700)
    }

    pub(crate) fn within(parent: &Path, name: &str, mode: u32) -> TempDir {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..100 {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("incumbent-{name}-{}-{number}", std::process::id()));
            // What an earlier process of the same number left behind is passed over.
            if DirBuilder::new().mode(mode).create(&path).is_ok() {
                return TempDir(path);
            }
        }
        panic!("no directory can be made in {}", parent.display());
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Processes that have just ended may still be tidying up in it. What cannot be removed is
        // left for the system.
        for _ in 0..100 {
            if fs::remove_dir_all(&self.0).is_ok() || !self.0.exists() {
                return;
            }
        }
    }
}
