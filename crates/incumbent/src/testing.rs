//! For tests of code that runs under a leadership: an office without a store, and a client on
//! paused time.
//!
//! A store that loses, delays and refuses on request is `FaultStore` in `incumbent-testkit`; it
//! wraps the store that [`client`] gives, or any other.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use incumbent_core::{
    CandidacyId, Command, ElectionName, LossReason, Refusal, Rng, Settings, TermNo, Timestamp, Token,
};
use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{Clock, StoreId, TokioClock};
use tokio::sync::mpsc;

use crate::backend::{Backend, ElectionReader};
use crate::client::Client;
use crate::error::ConnectError;
use crate::fence::FencingToken;
use crate::flaw::Flaws;
use crate::leadership::Leadership;
use crate::port::{Port, Request, SharedCandidacy, TermState};
use crate::term::Term;

/// A client on a memory store of its own, both on tokio's clock: in a test with paused time
/// everything that takes time takes none.
///
/// ```
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
/// let (client, store) = incumbent::testing::client(Duration::from_secs(15)).await.unwrap();
/// let mut candidacy = client.election("jobs").unwrap().candidate("a").stand().await.unwrap();
/// let leadership = candidacy.elected().await.unwrap().unwrap();
/// tokio::time::sleep(Duration::from_secs(3600)).await; // an hour passes at once, and every renewal happens
/// assert!(leadership.check().is_ok());
/// drop((candidacy, leadership, client));
/// # let _ = store;
/// # });
/// ```
pub async fn client(ttl: Duration) -> Result<(Client, MemoryStore), ConnectError> {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let store = MemoryStore::with_clock(Shape::FAIR, clock.clone());
    let client = Client::builder().ttl(ttl).clock(clock).with_store(store.clone()).await?;
    Ok((client, store))
}

/// Steers an [`leadership`].
#[derive(Debug)]
pub struct Control {
    term: Arc<TermState>,
    clock: Arc<dyn Clock>,
    grace: Duration,
}

impl Control {
    /// Asks the work to stop, as a pause or a transfer would. There is the grace for it, but nobody
    /// enforces it here.
    pub fn stop(&self, why: LossReason) {
        let hard_stop = self.clock.now() + self.grace;
        self.term.stop(why, hard_stop);
    }

    /// Ends the term, as an expired session or a deleted entry would.
    pub fn lose(&self, why: LossReason) {
        self.term.end(why);
    }

    /// Sets how long the term lasts from now on.
    pub fn set_remaining(&self, remaining: Duration) {
        self.term.move_to(self.clock.now() + remaining);
    }

    /// Waits until the office has been given back.
    pub async fn given_back(&self) {
        self.term.released.wait_for(|released| released.is_some()).await;
    }
}

/// An office that nobody stood for: a leadership with this token, and what steers it. Needs a tokio
/// runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use incumbent::{LossReason, testing};
///
/// let (leadership, control) = testing::leadership("jobs", 7).unwrap();
/// let term = leadership.term();
/// assert_eq!(term.token().get(), 7);
/// control.lose(LossReason::Expired);
/// assert_eq!(term.check().unwrap_err().reason(), LossReason::Expired);
/// # });
/// ```
pub fn leadership(election: &str, token: u64) -> Option<(Leadership, Control)> {
    let election = ElectionName::new(election).ok()?;
    let settings = Settings::default();
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let (port, requests) = Port::new(clock.clone(), Rng::from_number(token), Flaws::default());
    let token = FencingToken::new(Token::new(token)?, StoreId::new("testing"));
    let deadline = Timestamp::from_nanos(u64::MAX - 1);
    let state = Arc::new(TermState::new(election.clone(), TermNo(1), Some(token.clone()), deadline, None));
    let candidacy = SharedCandidacy::new(Arc::new(OnceLock::new()));
    tokio::spawn(obey(requests, state.clone(), candidacy.clone()));
    let control = Control { term: state.clone(), clock: clock.clone(), grace: settings.grace };
    let backend = Backend::Store(Arc::new(MemoryStore::with_clock(Shape::FAIR, clock)));
    let reader = ElectionReader { backend, election, settings, port: port.clone() };
    let term = Term { state, candidacy, id: CandidacyId(0), port, token };
    Some((Leadership::new(term, reader, settings.ttl), control))
}

/// Does what a driver would: gives back, proclaims, and refuses to transfer, for there is nobody to
/// transfer to.
async fn obey(mut requests: mpsc::UnboundedReceiver<Request>, term: Arc<TermState>, candidacy: Arc<SharedCandidacy>) {
    while let Some(request) = requests.recv().await {
        match request {
            Request::Release(..) => {
                term.end(LossReason::Resigned);
                term.release(true);
            }
            Request::Command(_, Command::Proclaim(number, _)) => {
                term.proclaimed.set((number, true));
            }
            Request::Command(_, Command::Transfer(..)) => {
                candidacy.change(|state| state.refused = (state.refused.0 + 1, Some(Refusal::HeirGone.into())));
            }
            Request::Command(..) | Request::Stand(_) => {}
            Request::Close(done) => {
                let _ = done.send(true);
            }
        }
    }
}
