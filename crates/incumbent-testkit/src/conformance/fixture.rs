//! What the behaviours have in common: a store, an election nobody has used, candidates that are
//! kept alive, and waiting for a condition.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use incumbent_store::{
    Cas, ElectionName, Entry, EntryId, ForgottenBy, Held, Incarnation, Line, LineKind, NewEntry, Nonce, Office, Place,
    Promises, Session, Standing, Store, StoreError, Token, Version, Wake,
};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::harness::{Harness, unique};
use crate::candidates::{held, held_of, publish};

/// What one case of the suite is tried on: a store, and an election that nobody has used.
#[derive(Clone)]
pub(super) struct Fixture {
    pub(super) store: Arc<dyn Store>,
    pub(super) promises: Promises,
    pub(super) election: ElectionName,
    pub(super) ttl: Duration,
}

impl Fixture {
    pub(super) async fn new<H: Harness>(harness: &H) -> Fixture {
        let store = harness.store().await;
        let promises = store.promises().await.expect("promises");
        Fixture { store, promises, election: harness.election(), ttl: harness.ttl() }
    }

    pub(super) fn has_line(&self) -> bool {
        self.promises.line == LineKind::Fair
    }

    /// Whether there is an office record. Where there is none, writing one is refused.
    pub(super) async fn has_office_record(&self) -> bool {
        if !self.promises.office_record {
            let refused = self.store.set_office(&self.election, Version::NONE, &Office::default()).await;
            assert!(matches!(refused, Err(StoreError::Unsupported { .. })), "{refused:?}");
            assert_eq!(self.line().await.office, Office::default());
        }
        self.promises.office_record
    }

    pub(super) fn is_leased(&self) -> bool {
        self.promises.forgotten_by == ForgottenBy::Store
    }

    /// How long a condition may take: far more than any store needs.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_secs(30) + 5 * (self.ttl + self.promises.granularity)
    }

    /// A session that nobody renews.
    pub(super) async fn session(&self) -> Arc<dyn Session> {
        self.store.open_session(self.ttl).await.expect("a session")
    }

    /// A session that is renewed until it is dropped.
    pub(super) async fn participant(&self) -> Participant {
        Participant::new(self.session().await, Some(self.ttl / 4))
    }

    /// A session that lives, and whose entries keep their versions: where renewals change them, it
    /// is not renewed, since nothing expires there.
    pub(super) async fn still_participant(&self) -> Participant {
        Participant::new(self.session().await, self.is_leased().then_some(self.ttl / 4))
    }

    /// `count` participants in the line of the election, in this order.
    pub(super) async fn participants_in_line(&self, count: usize) -> Vec<(Participant, Held)> {
        let mut participants = Vec::new();
        for _ in 0..count {
            let participant = self.participant().await;
            let held = participant.stand(&self.election).await;
            participants.push((participant, held));
        }
        participants
    }

    pub(super) async fn line(&self) -> Line {
        self.line_of(&self.election).await
    }

    pub(super) async fn line_of(&self, election: &ElectionName) -> Line {
        self.store.line(election, 1000).await.expect("the line")
    }

    pub(super) async fn tokens(&self) -> Vec<Token> {
        self.line().await.entries.iter().map(|entry| entry.token).collect()
    }

    /// The entry as others see it.
    pub(super) async fn seen(&self, held: &Held) -> Entry {
        let line = self.line_of(&held.election).await;
        line.entries.into_iter().find(|entry| entry.is(held)).expect("the entry is in line")
    }

    /// Removes the entry as an outsider does: with what was seen, again if it has been renewed in
    /// between.
    pub(super) async fn evict(&self, held: &Held) {
        self.until("the entry is evicted", async || {
            let line = self.line_of(&held.election).await;
            let Some(seen) = line.entries.into_iter().find(|entry| entry.is(held)) else { return true };
            self.store.evict(&held.election, &seen).await.expect("an eviction") == Cas::Done
        })
        .await;
    }

    /// Reads again until the condition holds.
    pub(super) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let pause = (self.ttl / 40).clamp(Duration::from_millis(10), Duration::from_millis(250));
        let held = timeout(self.patience(), async {
            while !condition().await {
                tokio::time::sleep(pause).await;
            }
        });
        assert!(held.await.is_ok(), "timed out: {what}");
    }

    /// The watch resolves. An error means that it was lost, which is a wake, too.
    pub(super) async fn woken(&self, what: &str, wake: Wake) {
        let woken = timeout(self.patience(), wake).await;
        assert!(woken.is_ok(), "not woken: {what}");
    }
}

/// A session that is kept alive, and the entries that it holds.
pub(super) struct Participant {
    pub(super) session: Arc<dyn Session>,
    held: Arc<Mutex<Vec<Held>>>,
    keeper: Option<AbortHandle>,
}

impl Participant {
    fn new(session: Arc<dyn Session>, renew_every: Option<Duration>) -> Participant {
        let held = Arc::new(Mutex::new(Vec::new()));
        let keep = |every| tokio::spawn(keep_alive(session.clone(), held.clone(), every)).abort_handle();
        let keeper = renew_every.map(keep);
        Participant { session, held, keeper }
    }

    /// Enters the line, as a new incarnation.
    pub(super) async fn enlist(&self, election: &ElectionName) -> Standing {
        self.enlist_as(election, &new_entry()).await.expect("an enlistment")
    }

    pub(super) async fn enlist_as(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        let standing = self.session.enlist(election, entry).await?;
        if let Some(held) = held_of(&standing) {
            self.held.lock().expect("no panic").push(held);
        }
        Ok(standing)
    }

    /// Enters the line and is in it.
    pub(super) async fn stand(&self, election: &ElectionName) -> Held {
        let standing = self.enlist(election).await;
        held(&standing)
    }

    pub(super) async fn place(&self, held: &Held) -> Place {
        self.standing(held).await.place
    }

    pub(super) async fn standing(&self, held: &Held) -> Standing {
        self.session.standing(held, None).await.expect("a standing")
    }

    /// Replaces what the entry says. `None`: refused.
    pub(super) async fn publish(&self, held: &Held, value: &'static [u8], ready: Option<Nonce>) -> Option<Version> {
        publish(&*self.session, held, value, ready).await.expect("a publication")
    }

    pub(super) async fn leads(&self, held: &Held) -> bool {
        match self.place(held).await {
            Place::Leading(leading) => {
                assert_eq!(leading, *held, "it leads as another");
                true
            }
            _ => false,
        }
    }

    pub(super) async fn withdraw(&self, held: &Held) {
        assert_eq!(self.withdraw_for(held, None).await, Cas::Done);
    }

    pub(super) async fn withdraw_for(&self, held: &Held, heir: Option<&EntryId>) -> Cas {
        let done = self.session.withdraw(held, heir).await.expect("a withdrawal");
        if done == Cas::Done {
            self.held.lock().expect("no panic").retain(|other| other != held);
        }
        done
    }
}

impl Drop for Participant {
    fn drop(&mut self) {
        self.keeper.iter().for_each(AbortHandle::abort);
    }
}

async fn keep_alive(session: Arc<dyn Session>, held: Arc<Mutex<Vec<Held>>>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let held = held.lock().expect("no panic").clone();
        // A renewal that fails shows in what the behaviour reads next.
        let _ = session.renew(&held).await;
    }
}

pub(super) fn new_entry() -> NewEntry {
    let incarnation = Incarnation::from_bits(u128::from(unique()) << 64 | u128::from(unique()));
    NewEntry::new(incarnation, "node-1", "10.0.0.7:80")
}

/// Polls once, without waiting.
pub(super) async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
}
