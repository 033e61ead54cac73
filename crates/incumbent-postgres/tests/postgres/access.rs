//! Schemas, roles and their defaults, and databases in other encodings.

use std::os::unix::fs::MetadataExt as _;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};

use incumbent::Observation;
use incumbent_postgres::tokio_postgres::config::SslMode;
use incumbent_postgres::tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use incumbent_postgres::tokio_postgres::{Config, NoTls, Socket};
use incumbent_postgres::{Connecting, Connector, PostgresFence, PostgresOptions, PostgresStore, messages};
use incumbent_store::fence::{Fence as _, FencingToken};
use incumbent_store::{
    Cas, ElectionName, Merit, Nonce, Office, Paused, Place, Publication, Store, StoreError, StoreId, TokenStrength,
    Version,
};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::{PostgresServer, Scratch};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::harness::{TTL, entry, held, make, name, raw, shared, sqlstate, store, until, within};

/// A URL for a role, or a database, of its own.
async fn url_of(user: &str, database: &str, options: &str) -> String {
    format!("postgres://{user}@{}/{database}?{options}", shared().await.endpoint())
}

async fn leads(store: &PostgresStore) -> Result<bool, StoreError> {
    let session = within(store.open_session(TTL)).await?;
    let standing = within(session.enlist(&name("access"), &entry(1))).await?;
    within(session.renew(&[held(&standing)])).await?;
    within(session.close()).await?;
    Ok(matches!(standing.place, Place::Leading(_)))
}

#[tokio::test]
async fn many_that_start_at_once_make_one_schema() {
    let url = url_of("postgres", "postgres", "schema=started_by_many").await;
    let starts = (0..20).map(|_| {
        let store = store(&url);
        tokio::spawn(async move { make(&store).await })
    });
    let mut ids = Vec::new();
    for start in Vec::from_iter(starts) {
        ids.push(start.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
}

/// What a reader makes is the reader's own, and candidates then have no rights to it.
#[tokio::test]
async fn who_only_reads_makes_no_schema_and_sees_elections_without_anybody() {
    let server = shared().await;
    let url = url_of("postgres", "postgres", "schema=only_read").await;
    let (reads, election) = (store(&url), name("nobody"));
    let line = within(reads.line(&election, 9)).await.unwrap();
    assert_eq!((&*line.entries, line.more, &line.office), (&[][..], false, &Office::default()));
    assert_eq!(within(reads.elections(9)).await.unwrap(), []);
    let missing = within(reads.identity()).await.unwrap_err();
    let said = format!("the schema only_read at {} is not there", server.endpoint());
    assert!(matches!(&missing, StoreError::Missing { what } if what.contains(&said)), "{missing:?}");
    let promises = within(reads.promises()).await.unwrap();
    assert_eq!((promises.tokens, promises.watches), (TokenStrength::Durable, false));
    assert!(promises.caveats.iter().any(|caveat| caveat.contains("makes the schema")), "{promises:?}");
    let mut observer = incumbent::Client::builder()
        .with_store(store(&url))
        .await
        .unwrap()
        .election(election.as_str())
        .unwrap()
        .observe();
    assert_eq!(within(observer.next()).await, Some(Observation::Vacant(None)));
    let there = "SELECT count(*) FROM pg_namespace WHERE nspname = 'only_read'";
    assert_eq!(server.sql(there), "0");

    // The same connections find what a candidate makes, and so do those who wait.
    let leader = store(&url).open_session(60 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    let Some(Observation::Leader(seen)) = within(observer.next()).await else { panic!("it sees the leader") };
    assert_eq!(seen.token, Some(leads.token));
    assert_eq!(within(reads.identity()).await.unwrap(), leader.store_id());
    assert_eq!(within(reads.elections(9)).await.unwrap(), [election]);
    until("it is told", async || reads.promises().await.unwrap().watches).await;
}

#[tokio::test]
async fn a_schema_of_somebody_elses_is_refused_with_a_sentence_and_left_alone() {
    let server = shared().await;
    for (schema, theirs) in [
        ("has_tables", "CREATE TABLE has_tables.session (their_own int)"),
        ("has_about", "CREATE FUNCTION has_about.about() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
    ] {
        server.sql(&format!("CREATE SCHEMA {schema}"));
        server.sql(theirs);
        let store = store(&url_of("postgres", "postgres", &format!("schema={schema}")).await);
        let says = format!("the schema {schema} at {} holds something else", server.endpoint());
        for refused in [leads(&store).await.map(drop), within(store.line(&name("x"), 1)).await.map(drop)] {
            let refused = refused.unwrap_err();
            assert!(matches!(&refused, StoreError::Misuse { what } if what.contains(&says)), "{refused:?}");
        }
        let relations = format!("SELECT count(*) FROM pg_class WHERE relnamespace = '{schema}'::regnamespace");
        assert!(["0", "1"].contains(&&*server.sql(&relations)));
    }
    // One that was made for it, and is empty, is not.
    server.sql("CREATE SCHEMA made_empty");
    assert!(leads(&store(&url_of("postgres", "postgres", "schema=made_empty").await)).await.unwrap());
}

/// An operator's order makes it, too: it has to be written somewhere.
#[tokio::test]
async fn who_orders_something_in_a_database_without_elections_makes_the_schema() {
    let store = store(&url_of("postgres", "postgres", "schema=ordered").await);
    let (election, paused) = (name("ordered"), Office::default().with_paused(Some(Paused::new("not yet"))));
    assert_eq!(within(store.set_office(&election, Version::NONE, &paused)).await.unwrap(), Cas::Done);
    assert!(within(store.line(&election, 1)).await.unwrap().office.paused.is_some());
}

/// As in a roll-out. Those who are there already go on.
#[tokio::test]
async fn many_that_bring_one_schema_up_to_date_at_once_do_not_trip_over_each_other() {
    let server = shared().await;
    let url = url_of("postgres", "postgres", "schema=updated_by_many").await;
    let before = store(&url);
    let session = before.open_session(60 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("update"), &entry(1)).await.unwrap());
    server.sql("ALTER TABLE updated_by_many.entry DROP COLUMN merit CASCADE");
    server.sql("DROP FUNCTION updated_by_many.enlist_3, updated_by_many.publish_3, updated_by_many.line_3, updated_by_many.line_4");
    server.sql("UPDATE updated_by_many.store SET version = 1");
    let starts = (0..20).map(|_| {
        let store = store(&url);
        tokio::spawn(async move { make(&store).await })
    });
    for start in Vec::from_iter(starts) {
        assert_eq!(start.await.unwrap(), session.store_id());
    }
    assert_eq!(server.sql("SELECT version FROM updated_by_many.store"), "7");
    let standing = session.standing(&leads, None).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
}

#[tokio::test]
async fn a_role_without_rights_to_tables_takes_part_in_a_schema_that_was_made_for_it() {
    let server = shared().await;
    let ddl = incumbent_postgres::schema_ddl("by_hand").unwrap();
    server.sql(&ddl);
    server.sql("CREATE ROLE only_calls LOGIN");
    let url = url_of("only_calls", "postgres", "schema=by_hand").await;
    let refused = leads(&store(&url)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    let named = format!("reading the schema by_hand at {}: ", server.endpoint());
    assert!(refused.to_string().contains(&named), "{refused}");
    assert!(refused.to_string().contains("begins with the GRANTs that it needs"), "{refused}");
    server.sql("GRANT USAGE ON SCHEMA by_hand TO only_calls");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA by_hand TO only_calls");
    assert!(leads(&store(&url)).await.unwrap());
    does_everything(&store(&url), &url.replace("?schema=by_hand", "")).await;
    server.sql("UPDATE by_hand.store SET history = 'another'");
    store(&url).open_session(TTL).await.expect("numbers leap for it, too");
    let client = raw(&url.replace("?schema=by_hand", "")).await;
    assert!(client.query("SELECT * FROM by_hand.entry", &[]).await.is_err(), "and sees no table");
    assert!(client.query("SELECT by_hand.draw_1('x')", &[]).await.is_err(), "nor what is inside");
}

/// The work of a leader, whose elections may be elsewhere.
#[tokio::test]
async fn a_role_that_writes_behind_the_fence_may_call_the_fence_and_nothing_else() {
    let server = shared().await;
    server.sql(&incumbent_postgres::schema_ddl("for_writers").unwrap());
    server.sql("CREATE ROLE writes LOGIN");
    server.sql("GRANT USAGE ON SCHEMA for_writers TO writes");
    let client = raw(&url_of("writes", "postgres", "").await).await;
    let ask = "SELECT for_writers.fence('jobs', 7, 'etcd-1')";
    assert_eq!(sqlstate(client.batch_execute(ask).await).as_deref(), Some("42501"));
    server.sql("GRANT EXECUTE ON FUNCTION for_writers.fence, for_writers.refuse_lower TO writes");
    client.batch_execute("SELECT for_writers.refuse_lower('jobs', 7, 'etcd-1')").await.unwrap();
    client.batch_execute(ask).await.unwrap();
    assert_eq!(server.sql("SELECT token FROM for_writers.mark"), "7");
    for other in ["reset_mark_1('jobs', 'etcd-2')", "raise_mark_1('jobs', 8, 'etcd-1')", "open_1(1000000)"] {
        let refused = client.batch_execute(&format!("SELECT for_writers.{other}")).await;
        assert_eq!(sqlstate(refused).as_deref(), Some("42501"), "{other}");
    }
}

/// Publishes, lists, pauses, evicts, and asks, raises and resets a fence.
async fn does_everything(store: &PostgresStore, url: &str) {
    let election = name("everything");
    let session = within(store.open_session(20 * TTL)).await.unwrap();
    let leads = held(&within(session.enlist(&election, &entry(1))).await.unwrap());
    let seen = within(store.line(&election, 1)).await.unwrap().entries.remove(0);
    let published = within(session.publish(&leads, seen.version, &Publication::new("here"))).await.unwrap();
    assert!(published.is_some());
    assert!(within(store.elections(999)).await.unwrap().contains(&election));
    let deposed = Office::default().with_paused(Some(Paused::new("for a while")));
    assert_eq!(within(store.set_office(&election, Version::NONE, &deposed)).await.unwrap(), Cas::Done);

    let (fence, token) = (PostgresFence::new(store, &election), FencingToken::new(leads.token, session.store_id()));
    within(fence.raise(&election, token.clone())).await.unwrap();
    let mut client = raw(url).await;
    let transaction = client.transaction().await.unwrap();
    fence.check(&transaction, &token).await.unwrap();
    transaction.commit().await.unwrap();
    within(fence.reset(&StoreId::new("another"), "a test")).await.unwrap();

    let seen = within(store.line(&election, 1)).await.unwrap().entries.remove(0);
    assert_eq!(within(store.evict(&election, &seen)).await.unwrap(), Cas::Done);
}

/// What a role may call runs with its owner's rights: nobody else's tables or operators may come
/// between, and nobody is let in who was not named.
#[tokio::test]
async fn functions_trust_no_search_path_and_nobody_may_call_them_unasked() {
    let server = shared().await;
    make(&store(&url_of("postgres", "postgres", "schema=guarded").await)).await;
    let count = |of: &str| {
        server.sql(&format!("SELECT count(*) FROM pg_proc p WHERE pronamespace = 'guarded'::regnamespace AND {of}"))
    };
    assert_ne!(count("prosecdef"), "0");
    let pinned = "proconfig @> ARRAY['search_path=pg_catalog, pg_temp']";
    assert_eq!(count(&format!("prosecdef AND ({pinned}) IS NOT TRUE")), "0");
    assert_eq!(count("provolatile <> 'v'"), "0", "each statement needs a snapshot of its own");
    assert_eq!(count("has_function_privilege('public', p.oid, 'EXECUTE')"), "0");
}

/// As those write it who have a tunnel, or passwords that change.
#[derive(Debug)]
struct OwnWay(Config);

impl Connector for OwnWay {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async move {
            let (client, connection) = self.0.connect(NoTls).await?;
            Ok((client, messages(connection)))
        })
    }
}

#[tokio::test]
async fn connections_are_made_as_a_configuration_says_or_in_a_way_of_ones_own() {
    let config: Config = shared().await.url().parse().unwrap();
    let options = PostgresOptions::new().schema("configured");
    let configured = PostgresStore::connect(config.clone(), &options).unwrap();
    assert!(leads(&configured).await.unwrap());
    let own_way = PostgresStore::over(OwnWay(config), &options).unwrap();
    assert!(leads(&own_way).await.unwrap() && own_way.promises().await.unwrap().watches);
    assert_eq!(own_way.identity().await.unwrap(), configured.identity().await.unwrap());
}

#[tokio::test]
async fn a_role_that_may_make_no_schema_is_told_what_to_do() {
    shared().await.sql("CREATE ROLE may_nothing LOGIN");
    let named = format!("making the schema never_made at {}: ", shared().await.endpoint());
    let url = url_of("may_nothing", "postgres", "schema=never_made").await;
    let refused = leads(&store(&url)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    assert!(refused.to_string().contains("incumbent schema postgres"), "{refused}");
    assert!(refused.to_string().contains(&named), "{refused}");
}

#[tokio::test]
async fn a_schema_that_is_too_new_is_refused_and_an_older_one_is_brought_up_to_date() {
    let server = shared().await;
    let url = url_of("postgres", "postgres", "schema=of_another_version").await;
    let id = make(&store(&url)).await;
    for version in 0..7 {
        server.sql(&format!("UPDATE of_another_version.store SET version = {version}"));
        server.sql("DROP FUNCTION of_another_version.sweep_1");
        assert_eq!(store(&url).identity().await.unwrap(), id, "who reads it leaves it as it is");
        assert_eq!(server.sql("SELECT version FROM of_another_version.store"), version.to_string());
        assert_eq!(make(&store(&url)).await, id);
        assert_eq!(server.sql("SELECT version FROM of_another_version.store"), "7");
        server.sql("SELECT of_another_version.sweep_1('1 hour')");
    }
    // What an older command prints leaves the functions of a newer one as they are.
    server.sql("UPDATE of_another_version.store SET version = 8");
    server.sql("DROP FUNCTION of_another_version.sweep_1");
    let ddl = incumbent_postgres::schema_ddl("of_another_version").unwrap();
    let refused = server.psql().arg(ddl).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("has version 8, and this makes version 7"), "{said}");
    assert_eq!(server.sql("SELECT to_regproc('of_another_version.sweep_1') IS NULL"), "t");
    assert_eq!(store(&url).identity().await.unwrap(), id, "it is not too new");
    server.sql("UPDATE of_another_version.store SET oldest_library = 8");
    let refused = store(&url).identity().await.unwrap_err();
    assert!(matches!(refused, StoreError::Misuse { .. }), "{refused:?}");
    let named = format!("the schema of_another_version at {} has version 8", server.endpoint());
    assert!(refused.to_string().contains(&named), "{refused}");
}

/// Nor is an older one brought up to date by a role that may not.
#[tokio::test]
async fn an_older_schema_is_refused_by_a_role_that_may_not_change_it() {
    let server = shared().await;
    let url = url_of("postgres", "postgres", "schema=stays_old").await;
    make(&store(&url)).await;
    server.sql("UPDATE stays_old.store SET version = 3");
    server.sql("CREATE ROLE may_not_update LOGIN");
    server.sql("GRANT USAGE ON SCHEMA stays_old TO may_not_update");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA stays_old TO may_not_update");
    let reads = store(&url_of("may_not_update", "postgres", "schema=stays_old").await);
    let refused = leads(&reads).await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    assert!(refused.to_string().contains("incumbent schema postgres"), "{refused}");
    assert_eq!(server.sql("SELECT version FROM stays_old.store"), "3");
    // What is only read is there, and what is not is for its owner to make.
    assert_eq!(within(reads.line(&name("old"), 9)).await.unwrap().entries, []);
    server.sql("DROP FUNCTION stays_old.line_1, stays_old.line_2, stays_old.line_3");
    let refused = within(reads.line(&name("old"), 9)).await.unwrap_err();
    let says = "has version 3, in which this cannot be read; its owner, postgres, brings it up to version 7";
    assert!(matches!(&refused, StoreError::Misuse { what } if what.contains(says)), "{refused:?}");
}

#[tokio::test]
async fn a_role_without_superuser_rights_makes_the_schema_itself() {
    let server = shared().await;
    server.sql("CREATE ROLE makes_it LOGIN");
    server.sql("GRANT CREATE ON DATABASE postgres TO makes_it");
    let url = url_of("makes_it", "postgres", "").await;
    let store = store(&format!("{url}schema=made_by_itself"));
    assert!(leads(&store).await.unwrap());
    does_everything(&store, &url).await;
    server.sql("UPDATE made_by_itself.store SET history = 'another'");
    store.open_session(TTL).await.expect("numbers leap for it, too");
    raw(&url).await.batch_execute("SELECT made_by_itself.sweep_1('1 hour')").await.expect("it sweeps");
    let owner = "SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'made_by_itself'";
    assert_eq!(server.sql(owner), "makes_it");
}

/// What later versions brought: what a candidate says of itself.
#[tokio::test]
async fn a_line_of_the_first_version_goes_on_in_the_latest() {
    let server = shared().await;
    let url = url_of("postgres", "postgres", "schema=of_the_first").await;
    let election = name("e");
    let leader = store(&url).open_session(60 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    // What the first version left, as far as later ones change it: its own view and type, and
    // nothing of what came after it. Made from the latest, since no older one can be had.
    for sql in [
        "DROP FUNCTION of_the_first.enlist_2, of_the_first.publish_2, of_the_first.line_2",
        "DROP FUNCTION of_the_first.enlist_3, of_the_first.publish_3, of_the_first.line_3, of_the_first.line_4",
        "ALTER TABLE of_the_first.entry DROP COLUMN merit CASCADE",
        "CREATE VIEW of_the_first.living_1 AS SELECT e.*, s.ttl_us, s.expires_at FROM of_the_first.entry e \
         JOIN of_the_first.session s ON s.id = e.session WHERE s.expires_at > clock_timestamp()",
        "ALTER TYPE of_the_first.standing DROP ATTRIBUTE ahead_unwell, DROP ATTRIBUTE ahead_merit",
        "UPDATE of_the_first.store SET version = 1",
    ] {
        server.sql(sql);
    }
    let newer = store(&url);
    make(&newer).await;
    let line = newer.line(&election, 9).await.unwrap().entries;
    assert!(line.len() == 1 && line[0].is(&leads) && !line[0].merit.unwell, "{line:?}");
    let session = newer.open_session(60 * TTL).await.unwrap();
    let behind = session.enlist(&election, &entry(2).merit(Merit::new(true, 4))).await.unwrap().place;
    assert!(matches!(&behind, Place::Behind { ahead, .. } if ahead.is(&leads) && !ahead.merit.unwell), "{behind:?}");
    assert_eq!(newer.line(&election, 9).await.unwrap().entries[1].merit, Merit::new(true, 4));
    // A library of the first version asks as it did.
    assert_eq!(server.sql(&format!("SELECT count(*) FROM of_the_first.line_1('{election}', 9)")), "2");
    assert!(matches!(leader.standing(&leads, None).await.unwrap().place, Place::Leading(_)));
}

/// Version 2 knew one word of what a candidate says of itself.
#[tokio::test]
async fn a_line_of_the_second_version_goes_on_in_the_latest() {
    let server = shared().await;
    let url = url_of("postgres", "postgres", "schema=of_the_second").await;
    let election = name("e");
    let leader = store(&url).open_session(60 * TTL).await.unwrap();
    let leads = held(&leader.enlist(&election, &entry(1)).await.unwrap());
    for sql in [
        "DROP FUNCTION of_the_second.enlist_3, of_the_second.publish_3, of_the_second.line_3, of_the_second.line_4",
        "ALTER TABLE of_the_second.entry DROP COLUMN merit CASCADE",
        "ALTER TABLE of_the_second.entry ADD COLUMN unwell boolean NOT NULL DEFAULT false",
        "CREATE VIEW of_the_second.living_1 AS SELECT e.election, e.token, e.session, e.incarnation, e.name, e.value, \
         e.ready, e.changed, s.ttl_us, s.expires_at, e.unwell FROM of_the_second.entry e \
         JOIN of_the_second.session s ON s.id = e.session WHERE s.expires_at > clock_timestamp()",
        "ALTER TYPE of_the_second.standing DROP ATTRIBUTE ahead_merit",
        "UPDATE of_the_second.entry SET unwell = true",
        "UPDATE of_the_second.store SET version = 2",
    ] {
        server.sql(sql);
    }
    let newer = store(&url);
    make(&newer).await;
    let line = newer.line(&election, 9).await.unwrap().entries;
    assert!(line.len() == 1 && line[0].is(&leads) && line[0].merit == Merit::new(true, 0), "{line:?}");
    // A library of the second version reads what the latest says, as far as it knows it.
    let session = newer.open_session(60 * TTL).await.unwrap();
    session.enlist(&election, &entry(2).merit(Merit::new(true, 4))).await.unwrap();
    let unwell = format!("SELECT count(*) FROM of_the_second.line_2('{election}', 9) WHERE unwell");
    assert_eq!(server.sql(&unwell), "2");
}

/// They call functions that the latest library does not, in the line of its candidates.
#[tokio::test]
async fn candidates_of_older_libraries_take_part_beside_those_of_the_latest() {
    let (server, election) = (shared().await, name("older"));
    let store = store(&url_of("postgres", "postgres", "schema=for_older").await);
    make(&store).await;
    let older = raw(&server.url()).await;
    let e = format!("convert_to('{election}', 'UTF8')");
    let open = "SELECT id FROM for_older.open_1(60000000)";
    let ask = async |sql: String, session: &[u8]| {
        older.query_one(&sql, &[&session]).await.unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    let line = async || store.line(&election, 9).await.unwrap().entries;
    let mut sessions: Vec<Vec<u8>> = Vec::new();
    for (enlist, place, unwell) in [("enlist_1", "leading", ""), ("enlist_2", "behind", ", true")] {
        let session: Vec<u8> = older.query_one(open, &[]).await.unwrap().get(0);
        let incarnation = format!("decode('{}', 'hex')", enlist.replace("enlist_", "0").repeat(16));
        let said = ask(
            format!("SELECT place FROM for_older.{enlist}($1, {e}, {incarnation}, 'node', 'value'{unwell})"),
            &session,
        );
        assert_eq!(said.await.get::<_, String>(0), place, "{enlist}");
        sessions.push(session);
    }
    let latest = store.open_session(60 * TTL).await.unwrap();
    let behind = latest.enlist(&election, &entry(3)).await.unwrap();
    let seen = line().await;
    assert_eq!(Vec::from_iter(seen.iter().map(|entry| entry.merit.unwell)), [false, true, false]);
    assert!(matches!(&behind.place, Place::Behind { ahead, .. } if ahead.id == seen[1].id), "{behind:?}");

    // The word that they know comes and goes, and nothing is written on what was not read.
    for (publish, number, unwell, is_unwell) in
        [("publish_2", 0, ", true", true), ("publish_1", 0, "", false), ("publish_2", 1, ", false", false)]
    {
        let seen = line().await.swap_remove(number);
        for (was, done) in [(seen.version.0, true), (seen.version.0 - 1, false)] {
            let sql = format!(
                "SELECT for_older.{publish}($1, {e}, {}, {was}, '{publish}', 7{unwell}) IS NOT NULL",
                seen.token
            );
            assert_eq!(ask(sql, &sessions[number]).await.get::<_, bool>(0), done, "{publish}");
        }
        let said = line().await.swap_remove(number);
        assert_eq!((&said.value[..], said.ready, said.merit.unwell), (publish.as_bytes(), Some(Nonce(7)), is_unwell));
    }

    let first = line().await.swap_remove(0);
    for (version, done) in [(first.version.0 - 1, false), (first.version.0, true)] {
        let sql = format!("SELECT for_older.evict_1({e}, {}, {version}) AND $1::bytea IS NOT NULL", first.token);
        assert_eq!(ask(sql, &sessions[0]).await.get::<_, bool>(0), done);
    }
    assert_eq!(Vec::from_iter(line().await.iter().map(|entry| entry.token)), [seen[1].token, seen[2].token]);
}

#[tokio::test]
async fn a_role_with_other_defaults_takes_part_all_the_same() {
    let server = shared().await;
    server.sql("CREATE ROLE one_snapshot LOGIN SUPERUSER");
    server.sql("ALTER ROLE one_snapshot SET default_transaction_isolation = 'serializable'");
    server.sql("CREATE ROLE reads_only LOGIN SUPERUSER");
    server.sql("ALTER ROLE reads_only SET default_transaction_read_only = on");
    server.sql("ALTER ROLE reads_only SET synchronous_commit = off");
    for role in ["one_snapshot", "reads_only"] {
        let url = url_of(role, "postgres", &format!("schema=made_by_{role}")).await;
        assert!(leads(&store(&url)).await.unwrap(), "{role}");
    }
}

/// Read anew each time, by whoever asks.
#[tokio::test]
async fn what_a_store_promises_is_what_its_server_is_set_to() {
    let server = PostgresServer::start().await;
    let store = store(&server.url());
    make(&store).await;
    for (settings, tokens, caveat) in [
        (&["fsync = off"][..], TokenStrength::Volatile, "fsync is off"),
        (&["full_page_writes = off"], TokenStrength::Durable, "full_page_writes is off"),
        (&["synchronous_standby_names = 'nobody'"], TokenStrength::Durable, "has confirmed what was committed"),
        (&["synchronous_standby_names = 'ANY 1 (a, b)'"], TokenStrength::Durable, "set (ANY 1 (a, b)), and no such"),
        (
            &["synchronous_standby_names = 'nobody'", "synchronous_commit = remote_write"],
            TokenStrength::Durable,
            "Standbys follow without being waited for",
        ),
    ] {
        server.sql("ALTER SYSTEM RESET ALL");
        for setting in settings {
            server.sql(&format!("ALTER SYSTEM SET {setting}"));
        }
        server.sql("SELECT pg_reload_conf()");
        until(caveat, async || {
            let promises = store.promises().await.unwrap();
            promises.tokens == tokens && promises.caveats.iter().any(|said| said.contains(caveat))
        })
        .await;
    }
    // What was said before is not said any more.
    let caveats = store.promises().await.unwrap().caveats;
    assert!(!caveats.iter().any(|said| said.contains("is off") || said.contains("has confirmed")), "{caveats:?}");
}

/// A URL names all servers, in any order. The role's own defaults say nothing of the server.
#[tokio::test]
async fn among_several_servers_the_primary_is_found_whatever_the_roles_defaults_are() {
    let primary = PostgresServer::start().await;
    primary.sql("CREATE ROLE reads_only LOGIN SUPERUSER");
    primary.sql("ALTER ROLE reads_only SET default_transaction_read_only = on");
    let standby = primary.start_standby("other", &[]).await;
    let (primary, standby) = (primary.endpoint(), standby.endpoint());
    for servers in [format!("{standby},{primary}"), format!("{primary},{standby}"), format!("127.0.0.1:1,{primary}")] {
        for role in ["postgres", "reads_only"] {
            // Long enough for a slow machine.
            let store = store(&format!("postgres://{role}@{servers}/postgres?connect_timeout=60"));
            assert!(leads(&store).await.unwrap(), "{role} at {servers}");
            until("it hears", async || store.promises().await.unwrap().watches).await;
        }
    }
}

/// It accepts connections: the kernel does that for it.
#[tokio::test]
async fn a_server_that_says_nothing_does_not_keep_anybody_from_the_primary() {
    let (primary, hangs) = (PostgresServer::start().await, PostgresServer::start().await);
    hangs.pause();
    let store = store(&format!("postgres://postgres@{},{}/postgres", hangs.endpoint(), primary.endpoint()));
    within(until("the other one answers", async || store.elections(1).await.is_ok())).await;
    hangs.resume();
}

#[tokio::test]
async fn where_none_is_the_primary_that_is_said() {
    let primary = PostgresServer::start().await;
    let standby = primary.start_standby("other", &[]).await;
    let servers = format!("127.0.0.1:1,{}", standby.endpoint());
    let refused = store(&format!("postgres://postgres@{servers}/postgres")).identity().await.unwrap_err();
    let said = format!("the server at {servers} is a standby");
    assert!(matches!(refused, StoreError::Unavailable { .. }) && refused.to_string().contains(&said), "{refused:?}");
}

#[tokio::test]
async fn names_in_any_script_are_kept_in_databases_of_any_encoding() {
    let server = shared().await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let database = encoding.to_lowercase();
        server.sql(&format!(
            "CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        ));
        let store = store(&url_of("postgres", &database, "").await);
        let election = ElectionName::new("選挙/ü").unwrap();
        let session = store.open_session(TTL).await.unwrap();
        session.enlist(&election, &entry(1)).await.unwrap();
        let line = store.line(&election, 9).await.unwrap().entries;
        assert_eq!(line.len(), 1, "{encoding}");
        // A fence takes the name as text, which a database is given in its own encoding.
        let client = raw(&url_of("postgres", &database, "").await).await;
        let asked = sqlstate(
            client
                .execute("SELECT incumbent.fence($1, $2)", &[&election.as_str(), &(line[0].token.get() as i64)])
                .await,
        );
        let refused = (encoding == "LATIN1").then_some("22P05");
        assert_eq!(asked.as_deref(), refused, "{encoding}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_or_lets_nobody_in_says_so() {
    let nobody = store("postgres://postgres:secret@127.0.0.1:1,127.0.0.1:2/postgres").identity().await.unwrap_err();
    assert!(matches!(nobody, StoreError::Unavailable { .. }), "{nobody:?}");
    let said = nobody.to_string();
    assert!(said.contains(" at 127.0.0.1:1,127.0.0.1:2: ") && !said.contains("secret"), "{said}");
    let stranger = store(&url_of("stranger", "postgres", "").await).identity().await.unwrap_err();
    assert!(matches!(stranger, StoreError::Denied { .. }), "{stranger:?}");
    let nowhere = store(&url_of("postgres", "nowhere", "").await).identity().await.unwrap_err();
    assert!(matches!(nowhere, StoreError::Misuse { .. }), "{nowhere:?}");
}

fn run(folder: &std::path::Path, program: &str, args: &str) {
    let output = Command::new(program).current_dir(folder).args(args.split(' ')).output().expect(program);
    assert!(output.status.success(), "{program} {args}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Two authorities, a server's certificate and one of the role `jobs`, both by the first.
fn certificates() -> Scratch {
    let folder = Scratch::new("tls");
    let path = folder.path();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for ca in ["ca", "other"] {
        run(path, "openssl", &format!("req -x509 {new_key} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}"));
    }
    std::fs::write(path.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    for name in ["server", "jobs"] {
        run(path, "openssl", &format!("req {new_key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        let signed = format!("-req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names");
        run(path, "openssl", &format!("x509 {signed} -out {name}.pem"));
    }
    run(path, "chmod", "600 server.key");
    if std::fs::metadata(path).is_ok_and(|folder| folder.uid() == 0) {
        // As root, the server runs as its package's user.
        run(path, "chown", "postgres server.key");
    }
    folder
}

/// A server that speaks TLS, with more settings of files among the certificates.
async fn with_tls(folder: &Scratch, files: &[(&str, &str)]) -> PostgresServer {
    let files = [&[("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")], files].concat();
    let settings = files.iter().map(|(name, file)| format!("{name}={}", folder.path().join(file).display()));
    let settings = Vec::from_iter(settings);
    PostgresServer::start_with(&Vec::from_iter(["ssl=on"].into_iter().chain(settings.iter().map(String::as_str)))).await
}

/// Which connections of this name there are: some over TLS, some in the clear.
fn over_tls_and_in_the_clear(server: &PostgresServer, application: &str) -> (bool, bool) {
    let over_tls = server.sql(&format!(
        "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{application}'"
    ));
    (over_tls.contains('t'), over_tls.contains('f'))
}

#[tokio::test]
async fn tls_is_spoken_with_servers_that_a_ca_of_ones_own_vouches_for_and_with_no_others() {
    let folder = certificates();
    let at = |file: &str| folder.path().join(file).display().to_string();
    let server = with_tls(&folder, &[]).await;

    let trusting = store(&format!("{}?application_name=trusting&sslrootcert={}", server.url(), at("ca.pem")));
    assert!(leads(&trusting).await.unwrap());
    assert_eq!(over_tls_and_in_the_clear(&server, "trusting"), (true, false));
    let refused = store(&format!("{}?sslrootcert={}", server.url(), at("other.pem"))).identity().await.unwrap_err();
    let says = "UnknownIssuer; sslrootcert has to hold the authority";
    assert!(matches!(&refused, StoreError::Denied { what, .. } if what.contains(says)), "{refused:?}");
    let in_the_clear = store(&format!("{}?sslrootcert={}", shared().await.url(), at("ca.pem")));
    let refused = in_the_clear.identity().await.unwrap_err();
    let says = "server does not support TLS; sslmode, or sslrootcert, asks for it";
    assert!(matches!(&refused, StoreError::Denied { what, .. } if what.contains(says)), "{refused:?}");
    // It would trust nobody.
    let refused = PostgresStore::from_url(&format!("{}?sslrootcert={}", server.url(), at("server.key"))).unwrap_err();
    assert!(matches!(&refused, StoreError::Misuse { what } if what.contains("sslrootcert holds none")), "{refused:?}");
}

#[tokio::test]
async fn a_role_proves_itself_with_its_certificate_and_is_refused_without() {
    let folder = certificates();
    let at = |file: &str| folder.path().join(file).display().to_string();
    let hba = "host all postgres 127.0.0.1/32 trust\nhostssl all jobs 127.0.0.1/32 cert\n";
    std::fs::write(folder.path().join("hba"), hba).unwrap();
    let server = with_tls(&folder, &[("ssl_ca_file", "ca.pem"), ("hba_file", "hba")]).await;
    server.sql("CREATE ROLE jobs LOGIN SUPERUSER");
    let url = format!("postgres://jobs@{}/postgres?sslrootcert={}", server.endpoint(), at("ca.pem"));
    let refused = store(&url).identity().await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    let proven = store(&format!("{url}&sslcert={}&sslkey={}", at("jobs.pem"), at("jobs.key")));
    assert!(leads(&proven).await.unwrap());
    let of_another = store(&format!("{url}&sslcert={}&sslkey={}", at("other.pem"), at("other.key")));
    let refused = of_another.identity().await.unwrap_err();
    let says = "does not trust our certificate";
    assert!(matches!(&refused, StoreError::Denied { what, .. } if what.contains(says)), "{refused:?}");
}

/// Its name, too, whatever the mode: the certificate is for 127.0.0.1.
#[tokio::test]
async fn each_mode_of_tls_checks_the_server_and_none_is_spoken_where_it_is_switched_off() {
    let folder = certificates();
    let ca = folder.path().join("ca.pem").display().to_string();
    let server = with_tls(&folder, &[]).await;
    let modes = ["require", "verify-ca", "verify-full", "prefer", "disable"];
    for mode in modes {
        let application = format!("mode-{mode}");
        let url = |host: &str| {
            let port = server.port();
            format!(
                "postgres://postgres@{host}:{port}/postgres?sslmode={mode}&sslrootcert={ca}&application_name={application}"
            )
        };
        let connected = store(&url("127.0.0.1"));
        assert!(leads(&connected).await.unwrap(), "{mode}");
        let is_off = mode == "disable";
        assert_eq!(over_tls_and_in_the_clear(&server, &application), (!is_off, is_off), "{mode}");
        let other_name = store(&url("localhost")).identity().await;
        match other_name {
            Ok(_) => assert!(is_off, "{mode}"),
            Err(StoreError::Denied { what, .. }) if what.contains("name the host as the server's") => assert!(!is_off),
            Err(error) => panic!("{mode}: {error:?}"),
        }
    }
}

/// Other clients would speak TLS then, and check nobody.
#[tokio::test]
async fn a_url_that_prefers_tls_and_trusts_nobody_is_told_that_it_is_in_the_clear() {
    let caveats = async |options: &str| {
        let promises = store(&url_of("postgres", "postgres", options).await).promises().await.unwrap();
        promises.caveats.iter().any(|caveat| caveat.contains("Nothing is encrypted"))
    };
    assert!(caveats("sslmode=prefer").await);
    assert!(!caveats("sslmode=disable").await && !caveats("").await);
}

/// And no server that cannot prove that it knows it, too, is told of it.
#[tokio::test]
async fn a_role_proves_itself_with_a_password_over_tls() {
    let folder = certificates();
    let hba = "host all postgres 127.0.0.1/32 trust\nhostssl all secret 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(folder.path().join("hba"), hba).unwrap();
    let server = with_tls(&folder, &[("hba_file", "hba")]).await;
    server.sql("CREATE ROLE secret LOGIN SUPERUSER PASSWORD 'p@ss'");
    let ca = folder.path().join("ca.pem").display().to_string();
    let url = |password: &str, options: &str| {
        store(&format!("postgres://secret:{password}@{}/postgres?{options}", server.endpoint()))
    };
    let trusted = format!("sslrootcert={ca}");
    assert!(leads(&url("p%40ss", &trusted)).await.unwrap());
    for (password, options, names_tls) in [("wrong", &*trusted, false), ("p%40ss", "", true)] {
        let refused = url(password, options).identity().await.unwrap_err();
        assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
        assert_eq!(refused.to_string().contains("without TLS (?sslrootcert=FILE"), names_tls, "{refused}");
    }
    // The file of passwords of whoever runs this has no line for it.
    let bare = store(&format!("postgres://secret@{}/postgres?{trusted}", server.endpoint()));
    let refused = bare.identity().await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("wants a password") && refused.to_string().contains("PGPASSFILE"),
        "{refused}"
    );
    // The certificate was checked, and is not part of the proof.
    url("p%40ss", &format!("{trusted}&channel_binding=require")).identity().await.unwrap_err();
}

/// As one writes it for a TLS library of one's own.
#[derive(Clone)]
struct OwnTls(TlsConnector);

impl MakeTlsConnect<Socket> for OwnTls {
    type Stream = OwnStream;
    type TlsConnect = OwnTls;
    type Error = std::io::Error;

    fn make_tls_connect(&mut self, _: &str) -> std::io::Result<OwnTls> {
        Ok(self.clone())
    }
}

impl TlsConnect<Socket> for OwnTls {
    type Stream = OwnStream;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<OwnStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let server = ServerName::try_from("127.0.0.1").unwrap();
        Box::pin(async move { Ok(OwnStream(self.0.connect(server, socket).await?)) })
    }
}

struct OwnStream(tokio_rustls::client::TlsStream<Socket>);

impl TlsStream for OwnStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for OwnStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for OwnStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn a_connector_of_ones_own_speaks_tls_where_the_configuration_says_so() {
    let folder = certificates();
    let server = with_tls(&folder, &[]).await;
    let mut roots = RootCertStore::empty();
    let ca = std::fs::read(folder.path().join("ca.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = OwnTls(TlsConnector::from(Arc::new(tls.with_root_certificates(roots).with_no_client_auth())));
    for (mode, server, over_tls) in [
        (SslMode::Require, &server, Some(true)),
        (SslMode::Prefer, &server, Some(true)),
        (SslMode::Disable, &server, Some(false)),
        (SslMode::Prefer, shared().await, Some(false)),
        (SslMode::Require, shared().await, None),
    ] {
        let mut config: Config = server.url().parse().unwrap();
        let application = format!("own-{mode:?}");
        config.ssl_mode(mode).application_name(&*application);
        let store = PostgresStore::connect_tls(config, tls.clone(), &PostgresOptions::new()).unwrap();
        let led = leads(&store).await;
        let Some(over_tls) = over_tls else {
            assert!(led.is_err(), "{mode:?} at a server that speaks no TLS");
            continue;
        };
        assert!(led.unwrap(), "{mode:?}");
        assert_eq!(over_tls_and_in_the_clear(server, &application), (over_tls, !over_tls), "{mode:?}");
    }
}

/// Whatever time it is given.
#[tokio::test]
async fn a_server_that_hangs_keeps_nobody_from_the_next() {
    let server = PostgresServer::start().await;
    let hangs = Proxy::start(&server.endpoint()).await;
    hangs.set(Way::Stall);
    let servers = format!("{},{}", hangs.endpoint(), server.endpoint());
    let store = store(&format!("postgres://postgres@{servers}/postgres?connect_timeout=600"));
    // On a busy machine a dial may be given up at the second one, too.
    within(until("it leads", async || leads(&store).await.is_ok_and(|leads| leads))).await;
}
