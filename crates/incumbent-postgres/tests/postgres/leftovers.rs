//! What steps leave behind on a server and on the connections that are not theirs alone.

use incumbent_store::Store as _;
use incumbent_testkit::servers::{PgBouncer, PostgresServer};

use crate::harness::{TTL, entry, held, name, raw, store};

/// How often a leader renews and asks where it stands.
const TIMES: usize = 20;

/// It keeps 5,000 statements, those of all who use the server: each step that was one of its own
/// would push one of theirs out.
#[tokio::test]
async fn what_is_asked_again_and_again_is_one_statement_to_those_who_count_them() {
    let server = PostgresServer::start_with(&["shared_preload_libraries=pg_stat_statements"]).await;
    server.sql("CREATE EXTENSION pg_stat_statements");
    let session = store(&server.url()).open_session(100 * TTL).await.unwrap();
    let leads = held(&session.enlist(&name("counted"), &entry(1)).await.unwrap());
    let counted = || server.sql("SELECT count(*) FROM pg_stat_statements").parse::<usize>().unwrap();
    let mut counts = Vec::new();
    for _ in 0..2 {
        for _ in 0..TIMES {
            session.renew(std::slice::from_ref(&leads)).await.unwrap();
            session.standing(&leads, None).await.unwrap();
        }
        counts.push(counted());
    }
    let [first, second] = counts[..] else { panic!("{counts:?}") };
    // The one that counts is new to itself the first time.
    assert!(second <= first + 1, "{}", server.sql("SELECT query FROM pg_stat_statements"));
}

#[tokio::test]
async fn a_cursor_that_another_one_left_on_a_poolers_connection_is_in_nobodys_way() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, 1).await;
    let session = store(&pooler.url()).open_session(100 * TTL).await.unwrap();
    let left = "BEGIN; DECLARE answer CURSOR WITH HOLD FOR SELECT 7; COMMIT";
    raw(&pooler.url()).await.batch_execute(left).await.unwrap();
    let leads = held(&session.enlist(&name("left"), &entry(1)).await.unwrap());
    assert!(session.renew(&[leads]).await.unwrap().gone.is_empty());
}
