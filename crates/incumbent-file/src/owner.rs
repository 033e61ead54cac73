//! Whether the session behind an entry lives, as far as the kernel and its heartbeat say.

use std::cell::RefCell;
use std::collections::HashMap;

use incumbent_store::StoreError;

use crate::directory::{Directory, SESSIONS};
use crate::disk::Lock;
use crate::record::{Record, SessionRecord, corrupt, decode_beat};

/// A heartbeat is 16 bytes: a reader that meets a half-written one looks again.
const BEAT_READS: usize = 1_000;

/// Whether the session behind an entry lives.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// The kernel says so: its lock is free, or its file is gone.
    Dead,
    Living {
        record: SessionRecord,
        beat: u64,
    },
}

/// The owners of a line's entries, each asked for once: a session may be behind many.
#[derive(Debug, Default)]
pub(crate) struct Owners(RefCell<HashMap<u128, Owner>>);

impl Owners {
    pub(crate) fn of(&self, directory: &Directory, session: u128) -> Result<Owner, StoreError> {
        if let Some(owner) = self.0.borrow().get(&session) {
            return Ok(owner.clone());
        }
        let owner = owner(directory, session)?;
        self.0.borrow_mut().insert(session, owner.clone());
        Ok(owner)
    }
}

/// Whether a session lives. Its lock is taken before its file is visible and is never taken again:
/// free is dead.
pub(crate) fn owner(directory: &Directory, session: u128) -> Result<Owner, StoreError> {
    let path = format!("{SESSIONS}/{}", session_name(session));
    for _ in 0..BEAT_READS {
        let (lock, bytes) = directory.disk.probe(&path)?;
        if lock != Lock::Held {
            return Ok(Owner::Dead);
        }
        let (record, beat) = SessionRecord::decode_front(&bytes, &directory.disk, &path)?;
        if let Some(beat) = decode_beat(beat) {
            return Ok(Owner::Living { record, beat });
        }
    }
    Err(corrupt(&directory.disk, &path, "its heartbeat makes no sense"))
}

/// The name of a session's file.
pub(crate) fn session_name(session: u128) -> String {
    format!("{session:032x}")
}
