//! A server whose wall clock is wrong for a while, and right again.

use std::time::Duration;

use incumbent_store::{Deposed, Ended, Nonce, Office, Place, Store, Token, Version};
use incumbent_testkit::servers::{PostgresServer, WallClock};

use crate::harness::{TTL, entry, held, name, store};

const HOUR: Duration = Duration::from_secs(3_600);

/// A server that lives by a clock of its own.
async fn with_a_clock() -> (PostgresServer, WallClock) {
    let clock = WallClock::new();
    let mut server = PostgresServer::start_with(&["fsync=off"]).await;
    server.set_environment(clock.environment());
    server.restart().await;
    (server, clock)
}

/// With nothing left of the record, and with a part of it.
#[tokio::test]
async fn an_election_that_began_after_a_tombstone_was_over_goes_on_though_the_clock_is_put_back() {
    let (server, clock) = with_a_clock().await;
    let store = store(&server.url());
    let mut deposed = Office::default();
    deposed.deposed = Some(Deposed::new(Token::new(7).unwrap()));
    for left in [Office::default(), deposed] {
        let election = name("tombstone");
        let ended = left.clone().with_ended(Ended::new(Nonce(1), HOUR));
        store.set_office(&election, Version::NONE, &ended).await.unwrap();
        clock.set(7_200);
        let before = store.line(&election, 1).await.unwrap().office;
        let session = store.open_session(20 * TTL).await.unwrap();
        let elected = session.enlist(&election, &entry(1)).await.unwrap();
        assert!(matches!(elected.place, Place::Leading(_)), "{elected:?}");
        clock.set(0);
        let after = session.standing(&held(&elected), None).await.unwrap();
        assert!(matches!(after.place, Place::Leading(_)), "{after:?}");
        for office in [&before, &elected.office, &after.office] {
            assert_eq!((&office.ended, &office.deposed), (&None, &left.deposed));
            assert_eq!(office.version, before.version, "it is one and the same record");
        }
    }
}
