//! The two traits that a store implements.

use std::fmt::Debug;
use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{
    Cas, Cursor, ElectionName, Entry, EntryId, Held, Line, Liveness, NewEntry, Office, Publication, Renewal, Seen,
    Standing, StoreId, Token, Version, Watched,
};

use crate::{Promises, StoreError};

/// The answer to one call. Dropping it cancels the call; the outcome is then unknown.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A hint to come. It resolves once: something that was watched may have changed, or (an error) the
/// watch was lost. Either way the answer is to read again. Dropping it ends the watch.
pub type Wake = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Resolves once, with the shorter TTL that counts from then on.
pub type Shortened = Pin<Box<dyn Future<Output = Duration> + Send>>;

/// A coordination system in which elections are held.
///
/// Every method makes one attempt: it may dial, and may go on to another server of the same cluster
/// where the first did nothing, but it does not repeat what may have been done. A write whose
/// answer was lost is [`StoreError::OutcomeUnknown`]; every write may be repeated, since it is
/// guarded.
pub trait Store: Debug + Send + Sync + 'static {
    /// What this store can keep, read from the server.
    fn promises(&self) -> Fut<'_, Promises>;

    /// The identity of the store, which is also in its promises. Observers ask for this alone. A
    /// store that is made by the first who stands, and was not yet, may answer
    /// [`StoreError::Missing`].
    fn identity(&self) -> Fut<'_, StoreId> {
        Box::pin(async move { Ok(self.promises().await?.store) })
    }

    /// Opens a session that outlives its last renewal by about `ttl`; the server may grant another
    /// TTL.
    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>>;

    /// The names of the elections that this store knows, the first `limit` in order: of all that
    /// have an entry or an office record, and perhaps of others. For people who look for a name;
    /// nobody decides anything by it, and it need not be one moment's.
    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        let _ = limit;
        let what = "this store cannot list its elections: name the one that is meant".to_owned();
        Box::pin(std::future::ready(Err(StoreError::Unsupported { what })))
    }

    /// The oldest `limit` entries, the office record and a cursor, seen in one step.
    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line>;

    /// Waits until the election is no longer as it was seen: for those who have no entry in it, be
    /// it that they observe or operate, that they are kept out, or that there is no line. What
    /// changed between `from`, the cursor of the answer that showed `seen`, and this call wakes at
    /// once.
    ///
    /// It is a hint: it may come without a change, and a store may lose one. A store that cannot
    /// watch answers with a future that never resolves, and says so in its promises.
    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake;

    /// Replaces the office record if it still has the version `was` ([`Version::NONE`]: if there is
    /// none).
    ///
    /// `to.version` is ignored. A record that says nothing is removed; one with a tombstone goes
    /// when `Ended::keep` has passed, by the server's own means where it has them, else with a
    /// later write.
    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas>;

    /// Removes exactly the entry that was seen: same id, token, incarnation and version. The
    /// incarnation tells it from one that another store at the same place has made since, and
    /// counted alike. [`Cas::Done`] if it was gone already, [`Cas::Refused`] if it has changed.
    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas>;

    /// An operator's act, for a store that is older than it was: no token up to `floor` is given in
    /// this election from now on. Tokens that are higher already stay so. A store whose tokens are
    /// not its own to choose, or whose author has not taught it, says
    /// [`StoreError::Unsupported`].
    fn raise_tokens<'a>(&'a self, election: &'a ElectionName, floor: Token) -> Fut<'a, ()> {
        let _ = (election, floor);
        let what = "the tokens of this store cannot be raised from outside".to_owned();
        Box::pin(std::future::ready(Err(StoreError::Unsupported { what })))
    }
}

/// A store that is shared is a store.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn promises(&self) -> Fut<'_, Promises> {
        (**self).promises()
    }

    fn identity(&self) -> Fut<'_, StoreId> {
        (**self).identity()
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        (**self).open_session(ttl)
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        (**self).elections(limit)
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        (**self).line(election, limit)
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        (**self).watch(election, seen, from)
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        (**self).set_office(election, was, to)
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        (**self).evict(election, seen)
    }

    fn raise_tokens<'a>(&'a self, election: &'a ElectionName, floor: Token) -> Fut<'a, ()> {
        (**self).raise_tokens(election, floor)
    }
}

/// What proves to the store that a process lives. It carries at most one entry in each election.
pub trait Session: Debug + Send + Sync + 'static {
    /// What keeps it alive, and who forgets it. As granted when it was opened.
    fn liveness(&self) -> Liveness;

    /// The identity of the store that granted it.
    fn store_id(&self) -> StoreId;

    /// Proves that we live, and tells which of the entries in `held` are gone and which others
    /// there are.
    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal>;

    /// Resolves when the store may count a shorter TTL than [`Session::liveness`] says, with that
    /// TTL; with zero if it cannot be known. The new TTL also counts for what was proven before.
    /// The session is then closed, and another is opened. Only ZooKeeper does this, which
    /// negotiates anew with each connection. The future keeps no session alive.
    fn shortened(&self) -> Shortened {
        Box::pin(std::future::pending())
    }

    /// Puts an entry at the end of the line and answers where it stands. Drawing the token and
    /// becoming visible is one atomic step.
    ///
    /// If an entry of this session and this incarnation is there already, nothing is added. If one
    /// of this session and another incarnation is: [`StoreError::AlreadyInLine`].
    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing>;

    /// Where our entry stands. The only maker of leaders: in one step it sees that the entry is
    /// there and ours, that nothing older is, and what the office record says.
    ///
    /// Nobody leads past an expired entry without removing it in the same step.
    ///
    /// `behind` is the entry that we were behind when we last looked. Nobody enters a line between
    /// two others: while it is there it is still the one ahead, and the rest of the line need not
    /// be read. A store may ignore it.
    fn standing<'a>(&'a self, held: &'a Held, behind: Option<&'a EntryId>) -> Fut<'a, Standing>;

    /// Waits until something happens to our entry, to those that it depends on, or to the office
    /// record. A hint, like [`Store::watch`]; `from` is the cursor of the standing that it follows.
    /// The future keeps no session alive.
    fn watch(&self, watched: &Watched, from: Cursor) -> Wake;

    /// Replaces what our entry says, if that still has the version `was`: see
    /// [`Standing::published`]. One that arrives late puts nothing old back.
    ///
    /// Answers the version that is there now; `None`: refused, since the entry is no longer ours or
    /// says something else by now. Nothing was changed.
    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>>;

    /// Removes our entry. [`Cas::Done`]: it is certainly gone, or was before. With an heir: only
    /// while the heir's entry is there, in the same step; else [`Cas::Refused`], and our entry
    /// stays. That is for good: an heir that is gone does not come back, so that no earlier copy of
    /// this call, which may still be under way, removes the entry of one that leads by now.
    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas>;

    /// A descriptor that keeps this session's entries in line, within the TTL, for as long as a
    /// copy of it is open in any process: a lock, say. For a guardian, which has work to stop when
    /// we are killed. `None`: there is no such thing.
    fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Ends the session and removes all its entries.
    fn close(&self) -> Fut<'_, ()>;
}
