//! Servers for the tests: one that all share, and others of a test's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent::Candidacy;
use incumbent_postgres::tokio_postgres::{self, Client, NoTls};
use incumbent_postgres::{PostgresFence, PostgresStore};
use incumbent_store::{ElectionName, Store, StoreId};
pub(crate) use incumbent_testkit::candidates::{entry, held, lead};
use incumbent_testkit::conformance::Harness;
pub(crate) use incumbent_testkit::patience::{until, within};
use incumbent_testkit::servers::PostgresServer;
use tokio::sync::OnceCell;

/// Long enough for a slow machine.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// The server that tests share which leave it as it is.
pub(crate) async fn shared() -> &'static PostgresServer {
    static SERVER: OnceCell<PostgresServer> = OnceCell::const_new();
    SERVER.get_or_init(PostgresServer::start).await
}

/// Stores behind a URL, each with connections of its own.
pub(crate) struct Postgres {
    url: String,
    ttl: Duration,
    stores: Mutex<Vec<PostgresStore>>,
}

impl Postgres {
    pub(crate) fn at(url: String) -> Postgres {
        Postgres { url, ttl: TTL, stores: Mutex::default() }
    }

    /// With another TTL.
    #[cfg(feature = "faults")]
    pub(crate) fn with_ttl(self, ttl: Duration) -> Postgres {
        Postgres { ttl, ..self }
    }
}

impl Harness for Postgres {
    async fn store(&self) -> Arc<dyn Store> {
        let store = store(&self.url);
        self.stores.lock().unwrap().push(store.clone());
        Arc::new(store)
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    fn watches(&self) -> Option<usize> {
        Some(self.stores.lock().unwrap().iter().map(PostgresStore::watches).sum())
    }

    fn crowd(&self) -> usize {
        40
    }

    fn histories(&self) -> u32 {
        12
    }
}

/// A store with connections of its own.
pub(crate) fn store(url: &str) -> PostgresStore {
    PostgresStore::from_url(url).unwrap()
}

/// Makes the schema, as the first does who stands. Which store it is.
pub(crate) async fn make(store: &PostgresStore) -> StoreId {
    let session = within(store.open_session(TTL)).await.unwrap();
    within(session.close()).await.unwrap();
    session.store_id()
}

/// A candidate of the library's whose work goes through a fence.
pub(crate) async fn stand(url: &str, election: &ElectionName, who: &str) -> Candidacy {
    stand_for(TTL, url, election, who).await
}

/// The same with a TTL of its own.
pub(crate) async fn stand_for(ttl: Duration, url: &str, election: &ElectionName, who: &str) -> Candidacy {
    let store = store(url);
    let fence = PostgresFence::new(&store, election);
    let client = incumbent::Client::builder().ttl(ttl).with_store(store).await.unwrap();
    client.election(election.as_str()).unwrap().candidate(who).fence(fence).stand().await.unwrap()
}

/// What the fence says to a token.
pub(crate) async fn asked(server: &PostgresServer, election: &ElectionName, token: u64) -> Option<String> {
    let client = raw(&server.url()).await;
    sqlstate(client.batch_execute(&format!("SELECT incumbent.fence('{election}', {token})")).await)
}

/// A name that no other test uses.
pub(crate) fn name(test: &str) -> ElectionName {
    ElectionName::new(&format!("{test}/{:x}", incumbent_testkit::conformance::unique())).unwrap()
}

/// A connection of somebody else.
pub(crate) async fn raw(url: &str) -> Client {
    connect(url).await.unwrap()
}

/// The same where there may be none.
pub(crate) async fn connect(url: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The code of the error that a statement ends with.
pub(crate) fn sqlstate<T>(answer: Result<T, tokio_postgres::Error>) -> Option<String> {
    answer.err().and_then(|error| Some(error.code()?.code().to_owned()))
}

/// Waits until a backend waits for a lock, in a statement that contains this.
pub(crate) async fn until_blocked(server: &PostgresServer, statement: &str) {
    until("somebody waits for a lock", async || is_blocked(server, statement)).await;
}

/// Whether a backend waits for a lock, in a statement that contains this.
pub(crate) fn is_blocked(server: &PostgresServer, statement: &str) -> bool {
    let sql =
        format!("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{statement}%'");
    server.sql(&sql) != "0"
}

/// Sets which standbys a commit waits for.
pub(crate) async fn waits_for_standbys(server: &PostgresServer, standbys: &str) {
    server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{standbys}'"));
    server.sql("SELECT pg_reload_conf()");
    until("it is set", async || server.sql("SHOW synchronous_standby_names") == standbys).await;
}
