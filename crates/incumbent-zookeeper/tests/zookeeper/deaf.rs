//! A store whose watches never say anything: every notification is lost.

use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, ElectionName, Entry, Fut, Line, Office, Promises, Session, Store, Target, Version, Wake,
};
use incumbent_zookeeper::ZooKeeperStore;

#[derive(Debug)]
pub(crate) struct Deaf(ZooKeeperStore);

impl Deaf {
    pub(crate) fn new(store: ZooKeeperStore) -> Deaf {
        Deaf(store)
    }
}

impl Store for Deaf {
    fn promises(&self) -> Fut<'_, Promises> {
        self.0.promises()
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        self.0.open_session(ttl)
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        self.0.line(election, limit)
    }

    fn watch(&self, _election: &ElectionName, _targets: &[Target], _from: Cursor) -> Wake {
        Box::pin(std::future::pending())
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        self.0.set_office(election, was, to)
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        self.0.evict(election, seen)
    }
}
