//! Stores that are wrong on purpose: each in one way, which one test or another must notice.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, ElectionName, Entry, EntryId, Fut, Held, Line, Liveness, NewEntry, Office, Promises, Publication,
    Renewal, Seen, Session, Shortened, Standing, Store, StoreError, StoreId, Version, Wake, Watched,
};

/// One way in which a store can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Of several addresses it uses the first.
    OneAddress,
    /// A renewal is answered without asking the server.
    RenewalsAssumed,
    /// It takes every cluster for the same one.
    OneIdentity,
    /// What may have been written is said not to have been.
    NothingUnknown,
    /// A renewal writes something that needs space.
    RenewalsNeedSpace,
    /// It gives up a renewal that is not answered at once.
    Impatient,
    /// It reads no more than a thousand of a line, and says that this is all.
    ShortLine,
    /// Its server forgets those whose time has passed by the wall clock.
    ClockTrusted,
    /// A read that was given up leaves a connection on which nothing works any more.
    ReadsPoison,
}

const SHORT_LINE: usize = 1000;

/// A store in front of another that is wrong in one way.
pub fn flawed(inner: Arc<dyn Store>, flaw: Flaw, ttl: Duration) -> Arc<dyn Store> {
    Arc::new(FlawedStore { inner, flaw, ttl, poisoned: Arc::default() })
}

#[derive(Clone, Debug)]
struct FlawedStore {
    inner: Arc<dyn Store>,
    flaw: Flaw,
    ttl: Duration,
    poisoned: Arc<AtomicBool>,
}

/// Tells that a read was given up, unless it was answered.
struct Read<'a>(&'a FlawedStore);

impl Drop for Read<'_> {
    fn drop(&mut self) {
        self.0.poisoned.store(self.0.flaw == Flaw::ReadsPoison, Ordering::SeqCst);
    }
}

fn unavailable() -> StoreError {
    StoreError::Unavailable { what: "a flaw".to_owned(), source: None }
}

/// As one who looks at nothing that tells clusters apart would call it.
fn one_identity() -> StoreId {
    StoreId::new("the only one")
}

impl FlawedStore {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// One call, and what is wrong with it.
    fn call<'a, T: Send + 'a>(&'a self, call: Fut<'a, T>) -> Fut<'a, T> {
        Box::pin(async move {
            if self.poisoned.load(Ordering::SeqCst) {
                return Err(unavailable());
            }
            match call.await {
                Err(StoreError::OutcomeUnknown { .. }) if self.has(Flaw::NothingUnknown) => Err(unavailable()),
                answer => answer,
            }
        })
    }
}

impl Store for FlawedStore {
    fn promises(&self) -> Fut<'_, Promises> {
        let promises = self.inner.promises();
        Box::pin(async move {
            let mut promises = promises.await?;
            if self.has(Flaw::OneIdentity) {
                promises.store = one_identity();
            }
            Ok(promises)
        })
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        let opened = self.call(self.inner.open_session(ttl));
        Box::pin(async move {
            let inner = opened.await?;
            Ok(Arc::new(FlawedSession { inner, store: self.clone() }) as Arc<dyn Session>)
        })
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        let limit = if self.has(Flaw::ShortLine) { limit.min(SHORT_LINE) } else { limit };
        let read = self.call(self.inner.line(election, limit));
        Box::pin(async move {
            let given_up = Read(self);
            let mut line = read.await?;
            std::mem::forget(given_up);
            line.more &= !self.has(Flaw::ShortLine);
            Ok(line)
        })
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        self.inner.watch(election, seen, from)
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        self.call(self.inner.set_office(election, was, to))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        self.call(self.inner.evict(election, seen))
    }
}

#[derive(Debug)]
struct FlawedSession {
    inner: Arc<dyn Session>,
    store: FlawedStore,
}

impl Session for FlawedSession {
    fn liveness(&self) -> Liveness {
        self.inner.liveness()
    }

    fn store_id(&self) -> StoreId {
        if self.store.has(Flaw::OneIdentity) { one_identity() } else { self.inner.store_id() }
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        let renewal = self.store.call(self.inner.renew(held));
        Box::pin(async move {
            let at_once = self.store.ttl / 100;
            match self.store.flaw {
                Flaw::RenewalsAssumed => {
                    // The server hears of it if it can.
                    _ = tokio::time::timeout(at_once, renewal).await;
                    Ok(Renewal::alive(self.liveness().ttl))
                }
                Flaw::Impatient => tokio::time::timeout(at_once, renewal).await.unwrap_or_else(|_| Err(unavailable())),
                Flaw::RenewalsNeedSpace => {
                    self.store.inner.open_session(self.store.ttl).await?.close().await?;
                    renewal.await
                }
                _ => renewal.await,
            }
        })
    }

    fn shortened(&self) -> Shortened {
        if self.store.has(Flaw::RenewalsAssumed) { Box::pin(std::future::pending()) } else { self.inner.shortened() }
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        self.store.call(self.inner.enlist(election, entry))
    }

    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        self.store.call(self.inner.standing(held, behind))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        self.inner.watch(watched, from)
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        self.store.call(self.inner.publish(held, was, said))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        self.store.call(self.inner.withdraw(held, heir))
    }

    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.inner.lifeline()
    }

    fn close(&self) -> Fut<'_, ()> {
        self.store.call(self.inner.close())
    }
}
