//! What every store must do: on a server, and through a pooler that gives each transaction another
//! connection.

use incumbent_store::Store;
use incumbent_testkit::conformance::Time;
use incumbent_testkit::servers::{PgBouncer, PostgresServer};
use tokio::sync::OnceCell;

#[cfg(feature = "faults")]
use crate::harness::TTL;
use crate::harness::{Postgres, make, shared, store};

incumbent_testkit::conformance!(direct, Time::Real, Postgres::at(shared().await.url()));
incumbent_testkit::elections!(elections_direct, Time::Real, Postgres::at(shared().await.url()));
incumbent_testkit::conformance!(pooled, Time::Real, Postgres::at(pooler().await.url()));
// A few connections for all of these tests at once, in which each renewal takes its turn: a leader
// that is to keep its office on a busy machine needs a longer TTL than one with its own.
#[cfg(feature = "faults")]
incumbent_testkit::elections!(
    elections_pooled,
    Time::Real,
    Postgres::at(pooler_of_elections().await.url()).with_ttl(3 * TTL)
);

/// Whose connections no other suite uses up.
#[cfg(feature = "faults")]
async fn pooler_of_elections() -> &'static PgBouncer {
    static POOLER: OnceCell<PgBouncer> = OnceCell::const_new();
    POOLER.get_or_init(async || PgBouncer::start(shared().await, 8).await).await
}

pub(crate) async fn pooler() -> &'static PgBouncer {
    static POOLER: OnceCell<PgBouncer> = OnceCell::const_new();
    POOLER.get_or_init(async || PgBouncer::start(shared().await, 4).await).await
}

#[tokio::test]
async fn a_connection_that_hears_nothing_is_found_out() {
    let direct = store(&shared().await.url());
    make(&direct).await;
    let direct = direct.promises().await.unwrap();
    let pooled = store(&pooler().await.url()).promises().await.unwrap();
    assert_eq!((direct.watches, pooled.watches), (true, false));
    assert_eq!(direct.store, pooled.store);
    let past_it = format!("{}?listen={}", pooler().await.url(), shared().await.endpoint());
    assert!(store(&past_it).promises().await.unwrap().watches);
    assert!(pooled.caveats.iter().any(|caveat| caveat.contains("pooler in between")), "{:?}", pooled.caveats);
}

/// Then nobody is advised to name one.
#[tokio::test]
async fn a_server_that_is_to_be_listened_to_and_is_not_there_or_is_a_pooler_is_named() {
    make(&store(&shared().await.url())).await;
    let caveats = async |listen: &str| {
        let promises = store(&format!("{}?listen={listen}", pooler().await.url())).promises().await.unwrap();
        assert!(!promises.watches);
        promises.caveats.join("\n")
    };
    let said = caveats("127.0.0.1:1").await;
    let why = "connecting to PostgreSQL at 127.0.0.1:1: error connecting to server: Connection refused";
    assert!(said.contains("to 127.0.0.1:1, which ?listen= names, that listens") && said.contains(why), "{said}");
    assert!(!said.contains("goes past it"), "{said}");
    let said = caveats(&pooler().await.endpoint()).await;
    assert!(said.contains("It has to be the server itself") && !said.contains("goes past it"), "{said}");
}

/// On a server of somebody else's, whose role may create whatever it likes.
#[tokio::test]
async fn a_connection_that_is_to_listen_and_leads_elsewhere_makes_nothing_there_and_says_so() {
    let elsewhere = PostgresServer::start().await;
    let url = format!("{}?listen={}", shared().await.url(), elsewhere.endpoint());
    let ours = make(&store(&url)).await;
    let says_so = async || {
        let promises = store(&url).promises().await.unwrap();
        assert!(!promises.watches);
        promises.caveats.iter().any(|caveat| caveat.contains("leads to another database"))
    };
    assert!(says_so().await);
    assert_eq!(elsewhere.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'incumbent'"), "0");
    let theirs = make(&store(&elsewhere.url())).await;
    assert_ne!(theirs, ours);
    assert!(says_so().await, "another store is not ours, either");
}
