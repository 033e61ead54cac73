//! What nobody visits any more is removed now and then, and nothing else is.

use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{Deposed, Held, Office, Session, Store, Version};

use crate::harness::{TTL, entry, held, make, name, raw, shared, sqlstate, store};

/// A leader in an election of its own, whose session expired so long ago; or lives.
struct Leader {
    session: Arc<dyn Session>,
    leads: Held,
}

impl Leader {
    async fn stand(store: &impl Store, of: &str, expired: Option<Duration>) -> Leader {
        let session = store.open_session(60 * TTL).await.unwrap();
        let leads = held(&session.enlist(&name(of), &entry(1)).await.unwrap());
        if let Some(ago) = expired {
            shared().await.sql(&format!(
                "UPDATE swept.session SET expires_at = clock_timestamp() - interval '{} s' \
                 WHERE id IN (SELECT session FROM swept.entry WHERE token = {})",
                ago.as_secs(),
                leads.token
            ));
        }
        Leader { session, leads }
    }

    /// How many rows there are of its election, and of its entry.
    async fn left(&self) -> [String; 2] {
        let (server, election, token) = (shared().await, &self.leads.election, self.leads.token);
        [format!("election WHERE name = '{election}'"), format!("entry WHERE token = {token}")]
            .map(|what| server.sql(&format!("SELECT count(*) FROM swept.{what}")))
    }
}

#[tokio::test]
async fn a_sweep_removes_what_nobody_has_visited_for_long_and_nothing_else() {
    const MINUTES: Duration = Duration::from_secs(50 * 60);
    const HOURS: Duration = Duration::from_secs(2 * 3_600);
    let server = shared().await;
    let store = store(&format!("{}?schema=swept", server.url()));
    make(&store).await;
    let living = Leader::stand(&store, "living", None).await;
    let lately = Leader::stand(&store, "lately", Some(MINUTES)).await;
    let long_ago = Leader::stand(&store, "long-ago", Some(HOURS)).await;
    let on_record = Leader::stand(&store, "on-record", Some(HOURS)).await;
    let mut deposed = Office::default();
    deposed.deposed = Some(Deposed::new(on_record.leads.token));
    store.set_office(&on_record.leads.election, Version::NONE, &deposed).await.unwrap();
    let locked = Leader::stand(&store, "locked", Some(HOURS)).await;
    let locks = raw(&server.url()).await;
    let election = &locked.leads.election;
    locks
        .batch_execute(&format!("BEGIN; SELECT FROM swept.election WHERE name = '{election}' FOR UPDATE"))
        .await
        .unwrap();

    server.sql("SELECT swept.sweep_1('1 hour')");
    for (leader, left) in [
        (&living, ["1", "1"]),
        (&lately, ["1", "1"]),
        (&long_ago, ["0", "0"]),
        (&on_record, ["1", "0"]),
        (&locked, ["1", "1"]),
    ] {
        assert_eq!(leader.left().await, left, "{}", leader.leads.election);
    }
    // Of those who expired long ago, only the one that has an entry yet.
    let expired = "SELECT count(*) FROM swept.session WHERE expires_at < clock_timestamp() - interval '1 hour'";
    assert_eq!(server.sql(expired), "1");
    let office = store.line(&on_record.leads.election, 1).await.unwrap().office;
    assert_eq!(office.deposed, deposed.deposed);
    living.session.renew(std::slice::from_ref(&living.leads)).await.unwrap();
    locks.batch_execute("ROLLBACK").await.unwrap();
    server.sql("SELECT swept.sweep_1('1 hour')");
    assert_eq!(locked.left().await, ["0", "0"]);

    // Who comes back to an election that was swept away is told no number that was drawn before.
    let again = living.session.enlist(&long_ago.leads.election, &entry(2)).await.unwrap();
    assert!(held(&again).token > locked.leads.token, "{again:?}");
}

/// A sweep looks at a hundred elections.
#[tokio::test]
async fn elections_that_keep_their_record_do_not_keep_a_sweep_from_those_behind_them() {
    let server = shared().await;
    make(&store(&format!("{}?schema=sweeps_past", server.url()))).await;
    server.sql(
        "INSERT INTO sweeps_past.election (name, office, office_version) \
         SELECT convert_to('a/' || number, 'UTF8'), 'a record', 1 FROM generate_series(1, 101) number",
    );
    server.sql("INSERT INTO sweeps_past.election (name) VALUES ('b')");
    server.sql("INSERT INTO sweeps_past.entry VALUES ('a/1', 1, 'gone', '', '', '', NULL, 1)");
    server.sql("SELECT sweeps_past.sweep_1('1 hour')");
    assert_eq!(server.sql("SELECT count(*), count(*) FILTER (WHERE name = 'b') FROM sweeps_past.election"), "101|0");
    assert_eq!(server.sql("SELECT count(*) FROM sweeps_past.entry"), "0");
}

/// One who takes part could end everybody's session with it.
#[tokio::test]
async fn who_takes_part_sweeps_nothing_and_nobody_sweeps_the_living() {
    let server = shared().await;
    let store = store(&format!("{}?schema=unswept", server.url()));
    let session = store.open_session(60 * TTL).await.unwrap();
    session.enlist(&name("unswept"), &entry(1)).await.unwrap();
    server.sql("CREATE ROLE takes_part LOGIN");
    server.sql("GRANT USAGE ON SCHEMA unswept TO takes_part");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA unswept TO takes_part");
    for (role, longer_than, code) in [
        ("takes_part", "'-1 hour'", "42501"),
        ("takes_part", "'1 hour'", "42501"),
        ("postgres", "'-1 hour'", "22023"),
        ("postgres", "NULL", "22023"),
    ] {
        let client = raw(&server.url().replace("postgres@", &format!("{role}@"))).await;
        let refused = sqlstate(client.batch_execute(&format!("SELECT unswept.sweep_1({longer_than})")).await);
        assert_eq!(refused.as_deref(), Some(code), "{role} {longer_than}");
    }
    session.renew(&[]).await.expect("it lives");
}

#[tokio::test]
async fn sessions_that_are_opened_sweep_now_and_then() {
    let server = shared().await;
    make(&store(&format!("{}?schema=sweeps", server.url()))).await;
    let client = raw(&server.url()).await;
    client
        .batch_execute("INSERT INTO sweeps.session VALUES ('forgotten', 1000000, clock_timestamp() - interval '1 day')")
        .await
        .unwrap();
    // The same numbers each time.
    client.batch_execute("SELECT setseed(0.5)").await.unwrap();
    let mut opened = 0;
    while server.sql("SELECT count(*) FROM sweeps.session WHERE id = 'forgotten'") == "1" {
        client.batch_execute("SELECT sweeps.open_1(1000000) FROM generate_series(1, 20)").await.unwrap();
        opened += 20;
        assert!(opened < 1_000, "nobody has swept");
    }
}
