//! The command on a PostgreSQL server.

use incumbent_testkit::servers::PostgresServer;

use crate::host::Host;

#[tokio::test]
async fn an_election_in_postgres_needs_no_more_than_the_schema_that_the_command_prints() {
    let server = PostgresServer::start().await;
    let host = Host::new();
    server.sql(&host.ok(["schema", "postgres", "--name", "team_7"]).out);
    server.sql("CREATE ROLE jobs LOGIN; GRANT USAGE ON SCHEMA team_7 TO jobs");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA team_7 TO jobs");
    let url = format!("postgres://jobs@{}/postgres?schema=team_7", server.endpoint());
    let on_postgres =
        |args: &[&str]| [&["--store", &url], args].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();

    let token = |said: &str| said.trim().parse::<u64>().expect("a token");
    let run = ["run", "jobs/x", "--", "sh", "-c", "echo $INCUMBENT_TOKEN"];
    let first = token(&host.ok(on_postgres(&run)).out);
    assert!(token(&host.ok(on_postgres(&run)).out) > first);
    let nobody = host.run(on_postgres(&["status", "--json", "jobs/x"])).json();
    assert!(nobody["leader"].is_null(), "{nobody}");
    let explained = host.ok(on_postgres(&["explain", "jobs/x"])).out;
    assert!(explained.contains("wall clock"), "{explained}");

    host.ok(on_postgres(&["pause", "jobs/x", "--reason", "upgrade"]));
    let said = host.run(on_postgres(&["run", "--try", "jobs/x", "--", "echo", "never"]));
    assert_eq!((said.code, said.out.as_str()), (Some(122), ""), "{said:?}");
    host.ok(on_postgres(&["resume", "jobs/x"]));
    host.ok(on_postgres(&run));
}

#[test]
fn a_url_that_names_no_host_is_refused_and_not_tried_for_ever() {
    let said = Host::new().run(["run", "--store", "postgres://", "jobs", "--", "echo", "never"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("it names no host"), "{said:?}");
}

#[test]
fn a_schema_with_a_strange_name_is_refused() {
    let said = Host::new().run(["schema", "postgres", "--name", "public"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("one of its own"), "{said:?}");
}
