//! A session of the memory store.

use std::fmt;
use std::sync::Arc;

use incumbent_core::{
    Cas, Cursor, ElectionName, EntryId, Held, Liveness, NewEntry, Publication, Renewal, Standing, StoreId, Version,
    Watched,
};

use super::store::Shared;
use super::table::{SessionKey, Touch};
use crate::{Fut, Session, Wake};

/// Dropping it without closing it is what a process does that dies: the entries stay until the TTL
/// has passed, or until rivals remove them.
pub(super) struct MemorySession {
    shared: Arc<Shared>,
    key: SessionKey,
    liveness: Liveness,
}

impl MemorySession {
    pub(super) fn new(shared: Arc<Shared>, key: SessionKey, liveness: Liveness) -> MemorySession {
        MemorySession { shared, key, liveness }
    }
}

impl fmt::Debug for MemorySession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySession").field("key", &self.key).field("store", self.shared.id()).finish_non_exhaustive()
    }
}

impl Drop for MemorySession {
    fn drop(&mut self) {
        self.shared.step(|table, _| table.abandon_session(self.key));
    }
}

impl Session for MemorySession {
    fn liveness(&self) -> Liveness {
        self.liveness
    }

    fn store_id(&self) -> StoreId {
        self.shared.id().clone()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        Box::pin(async move { self.shared.call(|table, now| table.renew(now, self.key, held)) })
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(async move { self.shared.call(|table, now| table.enlist(now, self.key, election, entry)) })
    }

    fn standing<'a>(&'a self, held: &'a Held, _behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        Box::pin(async move { self.shared.call(|table, now| table.standing(now, self.key, held)) })
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        self.shared.watch(&watched.held.election, Touch::of_entry(watched), |table| table.has_changed(watched, from))
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        Box::pin(async move { self.shared.call(|table, now| table.publish(now, self.key, held, was, said)) })
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        Box::pin(async move { self.shared.call(|table, now| table.withdraw(now, self.key, held, heir)) })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.shared.call(|table, _| table.close_session(self.key));
            Ok(())
        })
    }
}
