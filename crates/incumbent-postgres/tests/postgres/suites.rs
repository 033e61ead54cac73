//! What every store must do: on a server, and through a pooler that gives each transaction another
//! connection.

use incumbent_store::Store;
use incumbent_testkit::conformance::Time;
use incumbent_testkit::servers::PgBouncer;
use tokio::sync::OnceCell;

use crate::harness::{Postgres, shared, store};

incumbent_testkit::conformance!(direct, Time::Real, Postgres::at(shared().await.url()));
incumbent_testkit::elections!(elections_direct, Time::Real, Postgres::at(shared().await.url()));
incumbent_testkit::conformance!(pooled, Time::Real, Postgres::at(pooler().await.url()));
#[cfg(feature = "faults")]
incumbent_testkit::elections!(elections_pooled, Time::Real, Postgres::at(pooler().await.url()));

async fn pooler() -> &'static PgBouncer {
    static POOLER: OnceCell<PgBouncer> = OnceCell::const_new();
    POOLER.get_or_init(async || PgBouncer::start(shared().await, 4).await).await
}

#[tokio::test]
async fn a_connection_that_hears_nothing_is_found_out() {
    let direct = store(&shared().await.url()).promises().await.unwrap();
    let pooled = store(&pooler().await.url()).promises().await.unwrap();
    assert_eq!((direct.watches, pooled.watches), (true, false));
    assert_eq!(direct.store, pooled.store);
    let past_it = format!("{}?listen={}", pooler().await.url(), shared().await.endpoint());
    assert!(store(&past_it).promises().await.unwrap().watches);
    assert!(pooled.caveats.iter().any(|caveat| caveat.contains("pooler")), "{:?}", pooled.caveats);
}
