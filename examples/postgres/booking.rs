//! What the programs of this folder are tested with: an account, a leader, and its successor.

use std::process::{Command, Output};

use incumbent_testkit::servers::PostgresServer;

/// A program that books under a token is run by one who leads, and again when another one does.
pub(crate) async fn books_only_while_it_leads(program: impl Fn(&PostgresServer) -> Command) {
    let server = PostgresServer::start().await;
    server.sql(&incumbent_postgres::schema_ddl("incumbent").unwrap());
    server.sql("CREATE TABLE account (id int, balance int)");
    server.sql("INSERT INTO account VALUES (7, 100)");
    let next = || server.sql("SELECT incumbent.draw_1('jobs/nightly')");
    let token = next();
    let book = || run(program(&server).env("INCUMBENT_ELECTION", "jobs/nightly").env("INCUMBENT_TOKEN", &token));
    let balance = || server.sql("SELECT balance FROM account");

    let booked = book();
    assert!(booked.status.success(), "{booked:?}");
    assert_eq!(balance(), "90");

    server.sql(&format!("SELECT incumbent.fence('jobs/nightly', {})", next()));
    let refused = book();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("is stale"), "{refused:?}");
    assert_eq!(balance(), "90");
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}
