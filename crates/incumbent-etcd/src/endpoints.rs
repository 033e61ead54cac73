//! Which server to ask. Everything of a store goes to one endpoint as long as it answers, then to
//! the next: a balancer would keep sending every third request to a member that hangs.
//!
//! An endpoint is left when it fails, when a renewal finds it silent, or when a call is dropped
//! after [`SILENCE`] in which the endpoint answered no call. A call that is dropped sooner says
//! nothing about the endpoint.

use std::fmt;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use incumbent_store::{Effect, StoreError, lock, random_words};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

use crate::connect::Connector;
use crate::error;
use crate::rpc::{
    Client, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
    LeaseTimeToLiveResponse, Stream, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::txn::Answer;

/// A call that is dropped after this long without an answer says that the endpoint hangs.
const SILENCE: Duration = Duration::from_millis(500);

/// The servers of one cluster.
pub(crate) struct Endpoints {
    all: Vec<Endpoint>,
    /// The number of the one that is asked now.
    current: watch::Sender<usize>,
    /// Requests carry no user.
    pub(crate) anonymous: bool,
}

struct Endpoint {
    connector: Connector,
    client: OnceLock<Client>,
    /// When it last answered with what a quorum knows. A keep-alive is no such answer: a leader
    /// that has lost its quorum gives them, too.
    answered_at: Mutex<Option<Instant>>,
}

impl Endpoints {
    /// These servers, of which there is at least one. They are dialled when they are needed.
    pub(crate) fn new(servers: Vec<Connector>, anonymous: bool) -> Endpoints {
        let endpoint = |connector| Endpoint { connector, client: OnceLock::new(), answered_at: Mutex::default() };
        let all: Vec<_> = servers.into_iter().map(endpoint).collect();
        // Processes start at different ones.
        let [random] = random_words().unwrap_or_default();
        let start = random as usize % all.len().max(1);
        Endpoints { all, current: watch::Sender::new(start), anonymous }
    }

    /// A transaction.
    pub(crate) async fn txn(&self, what: &str, effect: Effect, txn: TxnRequest) -> Result<Answer, StoreError> {
        Answer::read(
            self.call(what, effect, |client| {
                let txn = txn.clone();
                async move { client.txn(txn).await }
            })
            .await?,
        )
    }

    pub(crate) async fn grant(&self, what: &str, ttl: i64) -> Result<LeaseGrantResponse, StoreError> {
        let request = LeaseGrantRequest { ttl, id: 0 };
        // A lease whose answer was lost expires by itself.
        self.call(what, Effect::None, |client| async move { client.lease_grant(request).await }).await
    }

    /// Ends a lease. Whether there was one.
    pub(crate) async fn revoke(&self, what: &str, lease: i64) -> Result<bool, StoreError> {
        match self.call(what, Effect::Write, |client| async move { client.lease_revoke(lease).await }).await {
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
        self.call(what, Effect::None, |client| async move { client.lease_time_to_live(lease, keys).await }).await
    }

    /// Opens a stream of keep-alives; the first one has been sent.
    pub(crate) async fn keep_alive(&self, what: &str, lease: i64) -> Result<KeepAlives, StoreError> {
        let open = |client: Client| async move { client.lease_keep_alive(lease).await };
        let (number, stream) = self.call_somewhere(what, Effect::None, Asks::TheLeader, open).await?;
        Ok(KeepAlives { stream, number })
    }

    /// Opens a stream of watches with its first watch. The client is for a new token, should the
    /// stream need one.
    pub(crate) async fn watch(
        &self,
        what: &str,
        first: &WatchCreateRequest,
    ) -> Result<(Client, Stream<WatchRequest, WatchResponse>), StoreError> {
        let open = |client: Client| async move {
            let stream = client.watch(first.clone()).await?;
            Ok((client, stream))
        };
        self.call(what, Effect::None, open).await
    }

    async fn call<T, R>(&self, what: &str, effect: Effect, request: impl Fn(Client) -> R) -> Result<T, StoreError>
    where
        R: Future<Output = Result<T, Status>>,
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
        request: impl Fn(Client) -> R,
    ) -> Result<(usize, T), StoreError>
    where
        R: Future<Output = Result<T, Status>>,
    {
        let mut passed_over = 0;
        loop {
            let attempt = self.attempt_at(self.current(), asks);
            let client = self.client(attempt.number)?.clone();
            // Calls ask for it, too, but one that fails then may have been sent.
            let (effect, answer) = match client.token().await {
                Ok(_) => (effect, request(client).await),
                Err(status) => (Effect::None, Err(status)),
            };
            let status = match answer {
                Ok(answer) => {
                    let number = attempt.number;
                    attempt.answered();
                    return Ok((number, answer));
                }
                Err(status) => status,
            };
            passed_over += 1;
            if error::is_not_serving(&status) && passed_over < self.all.len() {
                attempt.passed_over();
                continue;
            }
            return Err(attempt.failed(status, effect, what));
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

    fn client(&self, number: usize) -> Result<&Client, StoreError> {
        let none = || StoreError::Misuse { what: "an etcd store needs at least one endpoint".to_owned() };
        let endpoint = self.all.get(number).ok_or_else(none)?;
        Ok(endpoint.client.get_or_init(|| endpoint.connector.client()))
    }

    /// Moves on to the next endpoint, unless another call has done so already.
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
    fn note_answer(&self) {
        *lock(&self.answered_at) = Some(Instant::now());
    }

    fn has_answered_since(&self, moment: Instant) -> bool {
        lock(&self.answered_at).is_some_and(|answered_at| answered_at > moment)
    }
}

impl fmt::Debug for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|endpoint| &endpoint.connector)).finish()
    }
}

/// A stream of keep-alives for one lease, and the endpoint that it goes to.
pub(crate) struct KeepAlives {
    pub(crate) stream: Stream<LeaseKeepAliveRequest, LeaseKeepAliveResponse>,
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

    /// What went wrong is told with the server that it went wrong at.
    pub(crate) fn failed(self, status: Status, effect: Effect, what: &str) -> StoreError {
        let server = self.endpoints.all.get(self.number).and_then(|endpoint| endpoint.connector.server_name());
        let what = server.map_or_else(|| what.to_owned(), |server| format!("{what} at {server}"));
        if error::is_transient(&status) {
            self.passed_over();
        } else {
            self.answered();
        }
        error::classify(status, effect, &what)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent_store::{ElectionName, Incarnation, NewEntry, Store};
    use incumbent_testkit::patience::within;
    use incumbent_testkit::servers::EtcdCluster;

    use crate::{EtcdOptions, EtcdStore};

    #[tokio::test]
    async fn an_error_names_the_server() {
        // Nobody listens there, and nobody can without being root.
        let store = EtcdStore::from_url("etcd://user:secret@127.0.0.1:1").unwrap();
        let error = store.identity().await.unwrap_err().to_string();
        assert!(error.contains(" at 127.0.0.1:1: ") && error.contains("refused"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn watches_leave_an_endpoint_with_everything_else() {
        let cluster = EtcdCluster::start(1).await;
        let endpoint = cluster.endpoints().remove(0);
        let store = EtcdStore::connect(&[&endpoint, &endpoint], &EtcdOptions::new()).unwrap();
        let election = ElectionName::new("left").unwrap();
        let nobody = store.line(&election, 1).await.unwrap();
        let first = store.watch(&election, &nobody.seen(), nobody.cursor);
        let session = store.open_session(Duration::from_secs(60)).await.unwrap();
        let entry = NewEntry::new(Incarnation::from_bits(1), "a", "");
        session.enlist(&election, &entry).await.unwrap();
        // The stream is open.
        within(first).await.unwrap();
        let leads = store.line(&election, 1).await.unwrap();
        let wake = store.watch(&election, &leads.seen(), leads.cursor);
        // The member is well and has no news: a watch that stays hears nothing.
        store.inner.endpoints.give_up(store.inner.endpoints.current());
        within(wake).await.unwrap_err();
    }
}
