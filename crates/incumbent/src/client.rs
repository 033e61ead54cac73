//! A client: one session with one store, for any number of elections.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use incumbent_core::{ElectionName, NameError, Rng, Settings};
use incumbent_store::{BootClock, Clock, Promises, Store, StoreError, StoreId, TokenStrength};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::backend::{Backend, PATIENCE, cut_off, retry};
use crate::connect::{self, Location, Open};
use crate::driver::{Driver, StoreSide};
use crate::election::{Election, Fenced, Fencing, Unfenced};
use crate::error::{CloseError, ConnectError, ReadError};
use crate::hooks::{Hooks, Spawn};
use crate::port::{Port, Request};
use crate::witness::Witness;

/// How long a session outlives its last proof of life, unless somebody says otherwise.
const DEFAULT_TTL: Duration = Duration::from_secs(15);
/// How many elections are listed.
const MOST_ELECTIONS: usize = 10_000;

/// One process's link to a store: one session, shared by all its elections. Cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use incumbent::Client;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://client").await?;
///
/// // One session carries as many elections as you like, with one candidate of this client in each.
/// let mut jobs = client.election("jobs")?.candidate("node-1").stand().await?;
/// let mut mail = client.election("mail")?.candidate("node-1").stand().await?;
/// let leads = (jobs.elected().await?.is_some(), mail.elected().await?.is_some());
/// assert_eq!(leads, (true, true));
///
/// // Leaves every line and says whether that is certain. Dropping every handle does the same, and says nothing.
/// drop((jobs, mail));
/// client.close(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
///
/// # The runtime
/// A client is made inside a tokio runtime with time and I/O enabled, of either kind, and its one
/// task runs there: it renews the session. A runtime that is blocked for longer than the TTL loses
/// its leaderships, by the clock and in time; blocking work belongs in
/// `tokio::task::spawn_blocking`. When the last handle is gone, the task leaves the lines, trying
/// for at most twice the TTL (among peers, the grace and 10 s), and ends; if the runtime ends
/// before that, what is left expires with the session.
#[derive(Clone, Debug)]
pub struct Client<F: Fencing = Fenced> {
    pub(crate) port: Port,
    pub(crate) backend: Backend,
    pub(crate) settings: Settings,
    pub(crate) witness: Option<Witness>,
    fencing: PhantomData<fn() -> F>,
}

impl Client<Fenced> {
    /// Starts with the defaults: a TTL of 15 s, renewed every third of it, and a grace of 3 s.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            ttl: None,
            grace: None,
            margin: None,
            drift_ppm: None,
            tokens: None,
            must_exist: false,
            witness: None,
            clock: None,
            hooks: Hooks::default(),
        }
    }

    /// A client with the defaults, by URL.
    pub async fn connect(url: &str) -> Result<Client, ConnectError> {
        Client::builder().connect(url).await
    }
}

impl<F: Fencing> Client<F> {
    /// An election, by its name. Nothing is written or read yet.
    pub fn election(&self, name: &str) -> Result<Election<F>, NameError> {
        let name = ElectionName::new(name)?;
        Ok(Election { client: self.clone(), name, first_contact: Arc::new(OnceLock::new()) })
    }

    /// The names of the elections that the store knows, in order: of all in which somebody stands
    /// or an operator's order counts, and perhaps of others. More than 10,000 are an error. A group
    /// of peers holds one election, and cannot be asked which.
    pub async fn elections(&self) -> Result<Vec<ElectionName>, ReadError> {
        let attempt = || cut_off(PATIENCE, self.backend.elections(MOST_ELECTIONS + 1));
        let names: Vec<_> = retry(Instant::now() + PATIENCE, || Box::pin(attempt())).await?;
        if names.len() > MOST_ELECTIONS {
            let what = format!("there are more than {MOST_ELECTIONS} elections: name those that are meant");
            return Err(StoreError::Limit { what }.into());
        }
        Ok(names)
    }

    /// What the store can keep, read from the server.
    pub async fn promises(&self) -> Result<Promises, StoreError> {
        self.backend.promises().await
    }

    /// Which store it is, and nothing else of its promises: they may take more requests, and on
    /// etcd a lease.
    pub async fn identity(&self) -> Result<StoreId, StoreError> {
        self.backend.identity().await
    }

    /// The group of peers that elects, where there is no store.
    #[cfg(feature = "peers")]
    pub fn group(&self) -> Option<&crate::peers::Group> {
        match &self.backend {
            Backend::Peers(group_client) => Some(group_client.group()),
            Backend::Store(_) => None,
        }
    }

    /// The times that this client works with. Among peers the TTL is the timeout.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Leaves every line, and gives back every office once its work has stopped (within the grace);
    /// then ends the session. `Ok`: all that is done, now or by an earlier call. On an error, what
    /// is left expires with the session.
    pub async fn close(self, within: Duration) -> Result<(), CloseError> {
        let (done, closed) = oneshot::channel();
        let owns_up = self.port.flaws().owns_up_to_open_sessions();
        if self.port.send(Request::Close(done)) {
            match tokio::time::timeout(within, closed).await {
                Ok(closed) => self.port.note_closed(closed == Ok(true)),
                Err(_) if owns_up => return Err(CloseError::TimedOut { waited: within }),
                Err(_) => {}
            }
        }
        if self.port.was_closed() || !owns_up { Ok(()) } else { Err(CloseError::Unconfirmed) }
    }
}

/// Makes a [`Client`].
///
/// ```
/// use std::time::Duration;
/// use incumbent::{Client, ConnectError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let builder = Client::builder()
///     .ttl(Duration::from_secs(10)) // how long a crash can go unnoticed
///     .grace(Duration::from_secs(2)); // how long work may take to stop
/// let client = builder.clone().connect("memory://builder").await?;
/// assert_eq!(client.settings().renew_every, Duration::from_secs(10) / 3);
///
/// // Times that cannot be safe are refused, with the arithmetic in the message.
/// let refused = builder.grace(Duration::from_secs(8)).connect("memory://builder").await;
/// assert!(matches!(refused, Err(ConnectError::Settings(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder {
    ttl: Option<Duration>,
    grace: Option<Duration>,
    margin: Option<Duration>,
    drift_ppm: Option<u32>,
    tokens: Option<TokenStrength>,
    must_exist: bool,
    witness: Option<Witness>,
    clock: Option<Arc<dyn Clock>>,
    hooks: Hooks,
}

impl ClientBuilder {
    /// How long the session outlives its last proof of life: how long a crash can go unnoticed. 15
    /// s unless set. Not for peers, whose URL has a timeout.
    pub fn ttl(mut self, ttl: Duration) -> ClientBuilder {
        self.ttl = Some(ttl);
        self
    }

    /// How long the work of a leader may take to stop. A fifth of the TTL unless set: of the one
    /// that the store grants, if that is shorter.
    pub fn grace(mut self, grace: Duration) -> ClientBuilder {
        self.grace = Some(grace);
        self
    }

    /// Taken off every deadline. A fiftieth of the TTL unless set.
    pub fn margin(mut self, margin: Duration) -> ClientBuilder {
        self.margin = Some(margin);
        self
    }

    /// How far this host's clock may drift from the store's, in parts per million. 1000 unless set.
    pub fn drift_ppm(mut self, ppm: u32) -> ClientBuilder {
        self.drift_ppm = Some(ppm);
        self
    }

    /// Refuses a store whose tokens are weaker than this.
    pub fn require(mut self, tokens: TokenStrength) -> ClientBuilder {
        self.tokens = Some(tokens);
        self
    }

    /// Creates nothing: a directory that does not exist is [`ConnectError::Missing`]. For those who
    /// only read, and may have mistyped its name.
    pub fn must_exist(mut self) -> ClientBuilder {
        self.must_exist = true;
        self
    }

    /// Remembers on this host who led, and compares: its observers say
    /// [`StoreReset`](crate::Observation::StoreReset) of a store that is older than what was seen.
    /// Its candidates remember that they lead, and log a warning then.
    pub fn witness(mut self, witness: Witness) -> ClientBuilder {
        self.witness = Some(witness);
        self
    }

    /// Reads the time from this clock. The boot-time clock unless set; tests give tokio's, and
    /// pause it.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> ClientBuilder {
        self.clock = Some(clock);
        self
    }

    /// Where its randomness comes from, for a simulation that can be run again.
    #[doc(hidden)]
    pub fn seed(mut self, seed: [u64; 4]) -> ClientBuilder {
        self.hooks.seed = Some(seed);
        self
    }

    /// Who runs its tasks, for a simulation of hosts that stop and die.
    #[doc(hidden)]
    pub fn spawn_on(mut self, spawn: Arc<dyn Spawn>) -> ClientBuilder {
        self.hooks.spawn = Some(spawn);
        self
    }

    /// A known-bad variant, for a simulation that must catch it.
    #[cfg(feature = "flaws")]
    #[doc(hidden)]
    pub fn flaw(mut self, flaw: crate::flaw::DriverFlaw) -> ClientBuilder {
        self.hooks.flaws.on = Some(flaw);
        self
    }

    /// Connects to the store that the URL names, e.g. `memory://name`, or takes part in a group of
    /// peers (`consensus://`). Bully and ring give no tokens, so they are refused here: see
    /// [`connect_unfenced`](ClientBuilder::connect_unfenced).
    pub async fn connect(self, url: &str) -> Result<Client, ConnectError> {
        self.open(url).await
    }

    /// The same for code that does not need fencing tokens: for `bully://` and `ring://`, which
    /// have none, and for everything else.
    pub async fn connect_unfenced(self, url: &str) -> Result<Client<Unfenced>, ConnectError> {
        self.open(url).await
    }

    async fn open<F: Fencing>(self, url: &str) -> Result<Client<F>, ConnectError> {
        match connect::find(url)? {
            Open::Store(open) => {
                let settings = self.settings()?;
                let store = open(Location { url, make: !self.must_exist })?;
                self.finish(store, settings).await
            }
            #[cfg(feature = "peers")]
            Open::Peers => self.join(crate::peers::Group::from_url(url)?),
        }
    }

    /// Uses a group of peers with tokens: consensus.
    #[cfg(feature = "peers")]
    pub fn with_group(self, group: crate::peers::Group) -> Result<Client, ConnectError> {
        self.join(group)
    }

    /// Uses a group of peers, with tokens or without.
    #[cfg(feature = "peers")]
    pub fn with_unfenced_group(self, group: crate::peers::Group) -> Result<Client<Unfenced>, ConnectError> {
        self.join(group)
    }

    #[cfg(feature = "peers")]
    fn join<F: Fencing>(self, group: crate::peers::Group) -> Result<Client<F>, ConnectError> {
        let needs_tokens = F::shown(None).is_none() || self.tokens.is_some();
        if needs_tokens && !group.algorithm().is_fenced() {
            return Err(ConnectError::Unfenced { algorithm: group.algorithm() });
        }
        let group = group.with_times(self.ttl, self.grace, self.margin, self.drift_ppm)?;
        group.check()?;
        let settings = group.settings();
        let clock = self.clock.unwrap_or_else(|| Arc::new(BootClock));
        let seed = self.hooks.seed().map_err(no_means)?;
        let (port, requests) = Port::new(clock.clone(), Rng::from_seed(seed), self.hooks.flaws);
        let (side, group_client) = crate::peers::open(group, clock.clone(), self.hooks.clone());
        let driver = Driver::new(side, clock, requests, settings, self.hooks.flaws).map_err(no_means)?;
        self.hooks.spawn(driver.run());
        let witness = self.witness;
        Ok(Client { port, backend: Backend::Peers(group_client), settings, witness, fencing: PhantomData })
    }

    /// Uses a store that the caller made, or an [`Arc`] of one.
    pub async fn with_store(self, store: impl Store) -> Result<Client, ConnectError> {
        let settings = self.settings()?;
        self.finish(Arc::new(store), settings).await
    }

    fn settings(&self) -> Result<Settings, ConnectError> {
        let mut settings = Settings::for_ttl(self.ttl.unwrap_or(DEFAULT_TTL));
        settings.grace_is_share = self.grace.is_none();
        settings.grace = self.grace.unwrap_or(settings.grace);
        settings.margin = self.margin.unwrap_or(settings.margin);
        settings.drift_ppm = self.drift_ppm.unwrap_or(settings.drift_ppm);
        settings.check()?;
        Ok(settings)
    }

    async fn finish<F: Fencing>(self, store: Arc<dyn Store>, settings: Settings) -> Result<Client<F>, ConnectError> {
        if let Some(required) = self.tokens {
            let promises = store.promises().await?;
            if promises.tokens < required {
                return Err(ConnectError::WeakTokens { required, promised: promises.tokens });
            }
        }
        let clock = self.clock.unwrap_or_else(|| Arc::new(BootClock));
        let mut randomness = Rng::from_seed(self.hooks.seed().map_err(no_means)?);
        let (port, requests) = Port::new(clock.clone(), randomness.fork(), self.hooks.flaws);
        let seed = std::array::from_fn(|_| randomness.next_u64());
        let side = StoreSide::new(settings, seed, store.clone(), clock.clone(), self.hooks.clone());
        let driver = Driver::new(side, clock, requests, settings, self.hooks.flaws).map_err(no_means)?;
        self.hooks.spawn(driver.run());
        let witness = self.witness;
        Ok(Client { port, backend: Backend::Store(store), settings, witness, fencing: PhantomData })
    }
}

fn no_means(error: io::Error) -> ConnectError {
    ConnectError::System(Arc::new(error))
}
