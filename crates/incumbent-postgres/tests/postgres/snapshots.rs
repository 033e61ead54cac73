//! A snapshot that is held for long, as a dump or a forgotten transaction does: what it may still
//! see stays where it is, and each renewal leaves a version of its row behind.

use std::sync::Arc;

use incumbent_store::{Held, Place, Session, Store};
use incumbent_testkit::servers::PostgresServer;

use crate::harness::{TTL, entry, held, name, raw, store, until};

/// Far more than there is room for in a page.
const RENEWALS: usize = 400;

/// A server on which nobody tidies up unasked, and a leader.
struct Fixture {
    server: PostgresServer,
    session: Arc<dyn Session>,
    leads: [Held; 1],
}

impl Fixture {
    async fn new() -> Fixture {
        let server = PostgresServer::start_with(&["autovacuum=off"]).await;
        let session = store(&server.url()).open_session(100 * TTL).await.unwrap();
        let leads = [held(&session.enlist(&name("snapshots"), &entry(1)).await.unwrap())];
        Fixture { server, session, leads }
    }

    /// How large the table is after so many renewals.
    async fn renew(&self) -> u64 {
        for _ in 0..RENEWALS {
            let renewal = self.session.renew(&self.leads).await.unwrap();
            assert!(renewal.gone.is_empty(), "{renewal:?}");
        }
        self.server.sql("SELECT pg_relation_size('incumbent.session')").parse().unwrap()
    }

    /// How many updates of sessions there were, and how many of them wrote to no index.
    async fn updates(self) -> [usize; 2] {
        let Fixture { server, session, .. } = self;
        // With their connection goes what the server has counted on it.
        drop(session);
        let counted = "SELECT unnest(ARRAY[n_tup_upd, n_tup_hot_upd]) FROM pg_stat_user_tables \
            WHERE schemaname = 'incumbent' AND relname = 'session'";
        let counts = || Vec::from_iter(server.sql(counted).lines().map(|count| count.parse::<usize>().unwrap()));
        until("all are counted", async || counts()[0] >= RENEWALS).await;
        counts().try_into().unwrap()
    }
}

#[tokio::test]
async fn a_renewal_writes_to_no_index() {
    let fixture = Fixture::new().await;
    fixture.renew().await;
    assert_eq!(fixture.updates().await, [RENEWALS; 2]);
}

/// The same with an index on the time at which a session ends, as those who look for the dead would
/// have it at first.
#[tokio::test]
async fn with_an_index_on_the_end_of_sessions_each_renewal_writes_to_all_of_them() {
    let fixture = Fixture::new().await;
    fixture.server.sql("CREATE INDEX ON incumbent.session (expires_at)");
    fixture.renew().await;
    let updates = fixture.updates().await;
    assert_eq!(updates, [RENEWALS, 0], "the case is no case: what is tested above would not go wrong");
}

#[tokio::test]
async fn a_leader_renews_on_beside_an_old_snapshot_and_the_table_grows_no_longer_than_that_is_held() {
    let fixture = Fixture::new().await;
    let begun = fixture.renew().await;
    assert_eq!(fixture.renew().await, begun, "a version that nobody sees makes room for the next one");

    let dump = raw(&fixture.server.url()).await;
    dump.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM incumbent.session").await.unwrap();
    let beside = fixture.renew().await;
    fixture.server.sql("VACUUM incumbent.session");
    assert!(begun < beside && beside < fixture.renew().await, "the case is no case: nothing is kept");
    let standing = fixture.session.standing(&fixture.leads[0], None).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");

    dump.batch_execute("COMMIT").await.unwrap();
    fixture.server.sql("VACUUM incumbent.session");
    let released = fixture.renew().await;
    assert_eq!(fixture.renew().await, released, "it grows on");
}
