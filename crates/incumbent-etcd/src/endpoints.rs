//! Which server to ask. Everything of a store goes to one endpoint as long as it answers, then to
//! the next: a balancer would keep sending every third request to a member that hangs.
//!
//! An endpoint is left when it fails, when a renewal finds it silent, or when a call is dropped
//! after [`SILENCE`] in which the endpoint answered no call. A call that is dropped sooner says
//! nothing about the endpoint.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    Client, LeaseGrantResponse, LeaseKeepAliveStream, LeaseKeeper, LeaseTimeToLiveOptions, LeaseTimeToLiveResponse,
    Txn, TxnResponse, WatchOptions, WatchStream,
};
use incumbent_store::StoreError;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use crate::dial::Dial;
use crate::fault::{self, Effect};

/// The largest answer that is read: a line of a thousand candidates with the largest values.
const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// A call that is dropped after this long without an answer says that the endpoint hangs.
const SILENCE: Duration = Duration::from_millis(500);

/// The servers of one cluster.
pub(crate) struct Endpoints {
    all: Vec<Endpoint>,
    /// The number of the one that is asked now.
    current: watch::Sender<usize>,
    /// The servers are not told who we are.
    pub(crate) anonymous: bool,
}

struct Endpoint {
    dial: Option<Dial>,
    client: OnceCell<Client>,
    /// When it last answered with what a quorum knows. A keep-alive is no such answer: a leader
    /// that has lost its quorum gives them, too.
    answered_at: Mutex<Option<Instant>>,
}

impl Endpoints {
    /// A client that somebody else has set up, and that chooses by itself.
    pub(crate) fn given(client: Client) -> Endpoints {
        Endpoints { all: vec![Endpoint::new(None, Some(client))], current: watch::Sender::new(0), anonymous: false }
    }

    /// Servers that are dialled when they are needed.
    pub(crate) fn dialled(servers: Vec<Dial>, anonymous: bool) -> Endpoints {
        let all: Vec<_> = servers.into_iter().map(|dial| Endpoint::new(Some(dial), None)).collect();
        // Processes start at different ones.
        let start = RandomState::new().build_hasher().finish() as usize % all.len().max(1);
        Endpoints { all, current: watch::Sender::new(start), anonymous }
    }

    /// A transaction.
    pub(crate) async fn txn(&self, what: &str, effect: Effect, txn: Txn) -> Result<TxnResponse, StoreError> {
        let request = |client: &Client| {
            let (mut client, txn) = (client.kv_client().max_decoding_message_size(MAX_ANSWER_BYTES), txn.clone());
            async move { client.txn(txn).await }
        };
        self.call(what, effect, request).await
    }

    pub(crate) async fn grant(&self, what: &str, seconds: i64) -> Result<LeaseGrantResponse, StoreError> {
        let request = |client: &Client| {
            let mut client = client.lease_client();
            async move { client.grant(seconds, None).await }
        };
        // A lease whose answer was lost expires by itself.
        self.call(what, Effect::None, request).await
    }

    /// Ends a lease. Whether there was one.
    pub(crate) async fn revoke(&self, what: &str, lease: i64) -> Result<bool, StoreError> {
        let request = |client: &Client| {
            let mut client = client.lease_client();
            async move { client.revoke(lease).await }
        };
        match self.call(what, Effect::Write, request).await {
            Ok(_) => Ok(true),
            Err(StoreError::SessionGone) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What the cluster's leader knows of a lease; with `keys`, all that hangs on it. It may lag:
    /// it is no proof.
    pub(crate) async fn time_to_live(
        &self,
        what: &str,
        lease: i64,
        keys: bool,
    ) -> Result<LeaseTimeToLiveResponse, StoreError> {
        let options = keys.then(|| LeaseTimeToLiveOptions::new().with_keys());
        let request = |client: &Client| {
            let (mut client, options) = (client.lease_client(), options.clone());
            async move { client.time_to_live(lease, options).await }
        };
        self.call(what, Effect::None, request).await
    }

    /// Opens a stream of keep-alives; the first one has been answered.
    pub(crate) async fn keep_alive(&self, what: &str, lease: i64) -> Result<KeepAlives, StoreError> {
        let request = |client: &Client| {
            let mut client = client.lease_client();
            async move {
                match client.keep_alive(lease).await {
                    Err(etcd_client::Error::LeaseKeepAliveError(why)) if why == "lease not found" => Ok(None),
                    answer => answer.map(Some),
                }
            }
        };
        let (number, stream) = self.call_somewhere(what, Effect::None, Asks::TheLeader, request).await?;
        let (keeper, answers) = stream.ok_or(StoreError::SessionGone)?;
        Ok(KeepAlives { keeper, answers, number })
    }

    /// Opens a stream of watches with its first watch. The client is for a new token, should the stream need one.
    pub(crate) async fn watch(
        &self,
        what: &str,
        key: Vec<u8>,
        options: WatchOptions,
    ) -> Result<(Client, WatchStream), StoreError> {
        let request = |client: &Client| {
            let (client, key, options) = (client.clone(), key.clone(), options.clone());
            async move {
                let mut watches = client.watch_client().max_decoding_message_size(MAX_ANSWER_BYTES);
                Ok((client, watches.watch(key, Some(options)).await?))
            }
        };
        self.call(what, Effect::None, request).await
    }

    async fn call<T, R>(&self, what: &str, effect: Effect, request: impl Fn(&Client) -> R) -> Result<T, StoreError>
    where
        R: Future<Output = Result<T, etcd_client::Error>>,
    {
        Ok(self.call_somewhere(what, effect, Asks::AQuorum, request).await?.1)
    }

    /// One request, and which endpoint answered. One that serves no requests is passed over: it did
    /// nothing.
    async fn call_somewhere<T, R>(
        &self,
        what: &str,
        effect: Effect,
        asks: Asks,
        request: impl Fn(&Client) -> R,
    ) -> Result<(usize, T), StoreError>
    where
        R: Future<Output = Result<T, etcd_client::Error>>,
    {
        let mut passed_over = 0;
        loop {
            let attempt = self.attempt_at(self.current(), asks);
            let client = match self.client(attempt.number).await {
                Ok(client) => client,
                Err(error) => return Err(attempt.failed(error, Effect::None, what)),
            };
            let error = match request(client).await {
                Ok(answer) => {
                    let number = attempt.number;
                    attempt.answered();
                    return Ok((number, answer));
                }
                Err(error) => error,
            };
            passed_over += 1;
            if fault::serves_nobody(&error) && passed_over < self.all.len() {
                attempt.passed_over();
                continue;
            }
            if fault::wants_new_token(&error) {
                // If this fails for good, so does the call that comes next, and says why.
                _ = client.refresh_token().await;
            }
            return Err(attempt.failed(error, effect, what));
        }
    }

    /// A request on a stream that is open already.
    pub(crate) fn attempt_at(&self, number: usize, asks: Asks) -> Attempt<'_> {
        Attempt { endpoints: self, number, asks, began_at: Instant::now(), settled: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of the endpoint that is asked now.
    pub(crate) fn current(&self) -> usize {
        *self.current.borrow()
    }

    /// Resolves when another endpoint is asked.
    pub(crate) async fn left(&self, number: usize) {
        // Its sender is here: it does not end.
        _ = self.current.subscribe().wait_for(|current| *current != number).await;
    }

    async fn client(&self, number: usize) -> Result<&Client, etcd_client::Error> {
        let endpoint = self.all.get(number).ok_or(etcd_client::Error::EndpointsNotManaged)?;
        endpoint.client.get_or_try_init(|| endpoint.dial()).await
    }

    /// The next one, unless somebody has moved on already.
    pub(crate) fn give_up(&self, number: usize) {
        self.current.send_if_modified(|current| {
            let moves = *current == number && self.all.len() > 1;
            if moves {
                *current = (number + 1) % self.all.len();
            }
            moves
        });
    }
}

impl Endpoint {
    fn new(dial: Option<Dial>, client: Option<Client>) -> Endpoint {
        Endpoint { dial, client: OnceCell::new_with(client), answered_at: Mutex::default() }
    }

    fn note_answer(&self) {
        *self.answered_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn has_answered_since(&self, moment: Instant) -> bool {
        self.answered_at.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|answered_at| answered_at > moment)
    }

    async fn dial(&self) -> Result<Client, etcd_client::Error> {
        let Some(dial) = &self.dial else {
            return Err(etcd_client::Error::EndpointsNotManaged);
        };
        dial.client().await
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls = self.all.iter().map(|endpoint| endpoint.dial.as_ref().map_or("(given)".to_owned(), Dial::uri));
        f.debug_list().entries(urls).finish()
    }
}

/// A stream of keep-alives for one lease, and the endpoint that it goes to.
pub(crate) struct KeepAlives {
    pub(crate) keeper: LeaseKeeper,
    pub(crate) answers: LeaseKeepAliveStream,
    pub(crate) number: usize,
}

/// Whose knowledge an answer takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// It has to be up to date.
    AQuorum,
    /// The cluster's leader alone, or one that takes itself for it.
    TheLeader,
}

/// One call, from when it was sent until it is answered, has failed or is dropped.
pub(crate) struct Attempt<'a> {
    endpoints: &'a Endpoints,
    number: usize,
    asks: Asks,
    began_at: Instant,
    settled: bool,
}

impl Attempt<'_> {
    /// The endpoint works, whatever it said.
    pub(crate) fn answered(mut self) {
        self.settled = true;
        if let (Asks::AQuorum, Some(endpoint)) = (self.asks, self.endpoints.all.get(self.number)) {
            endpoint.note_answer();
        }
    }

    /// The next one has to be asked.
    pub(crate) fn passed_over(mut self) {
        self.settled = true;
        self.endpoints.give_up(self.number);
    }

    pub(crate) fn failed(self, error: etcd_client::Error, effect: Effect, what: &str) -> StoreError {
        if fault::is_transient(&error) {
            self.passed_over();
        } else {
            self.answered();
        }
        fault::sort(error, effect, what)
    }

    /// The call is being dropped: whether the endpoint is to blame.
    fn hangs(&self) -> bool {
        // One that reads for others is not silent. A renewal needs more than that.
        let answers = || self.endpoints.all.get(self.number).is_some_and(|all| all.has_answered_since(self.began_at));
        self.began_at.elapsed() >= SILENCE && (self.asks == Asks::TheLeader || !answers())
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.settled && self.hangs() {
            self.endpoints.give_up(self.number);
        }
    }
}
