//! The command on a PostgreSQL server.

use std::os::unix::fs::PermissionsExt as _;

use incumbent_testkit::servers::{Certificates, PgBouncer, PostgresServer};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::host::{Host, Process, on, stop};

#[tokio::test]
async fn an_election_in_postgres_needs_no_more_than_the_schema_that_the_command_prints() {
    let server = PostgresServer::start().await;
    let host = Host::new();
    server.sql(&host.ok(["schema", "postgres", "--name", "team_7"]).out);
    server.sql("CREATE ROLE jobs LOGIN; GRANT USAGE ON SCHEMA team_7 TO jobs");
    server.sql("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA team_7 TO jobs");
    let url = format!("postgres://jobs@{}/postgres?schema=team_7", server.endpoint());
    let on_postgres = |args: &[&str]| on(&url, args);

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

#[tokio::test]
async fn a_password_is_taken_from_the_file_that_the_environment_names() {
    let server = PostgresServer::start().await;
    server.sql("CREATE ROLE jobs LOGIN SUPERUSER PASSWORD 'open sesame'");
    let rules = "host all jobs 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n";
    std::fs::write(server.sql("SHOW hba_file"), rules).unwrap();
    server.sql("SELECT pg_reload_conf()");
    let host = Host::new();
    let passwords = host.path("passwords");
    std::fs::write(&passwords, format!("127.0.0.1:{}:*:jobs:open sesame\n", server.port())).unwrap();
    let url = format!("postgres://jobs@{}/postgres", server.endpoint());
    let list = |passwords: &std::path::Path| {
        let mut list = host.command(["--store", &url, "list"]);
        list.env("PGPASSFILE", passwords);
        crate::host::finish(list)
    };
    let refused = list(&host.path("no-such-file"));
    assert!(refused.code != Some(0) && refused.err.contains("password"), "{refused:?}");
    let open_to = |mode| std::fs::set_permissions(&passwords, std::fs::Permissions::from_mode(mode)).unwrap();
    open_to(0o644);
    let passed_over = list(&passwords);
    assert!(passed_over.code == Some(1) && passed_over.err.contains("(mode 644): `chmod 600 "), "{passed_over:?}");
    open_to(0o600);
    let let_in = list(&passwords);
    assert_eq!(let_in.code, Some(0), "{let_in:?}");
}

fn campaign(host: &Host, url: &str, name: &str) -> Process {
    host.start(["--store", url, "campaign", "--json", "--ttl", "3s", "--name", name, "jobs/x"])
}

/// Of who was elected.
fn token(elected: &Value) -> u64 {
    match elected["event"].as_str() {
        Some("elected") => elected["token"].as_u64().expect("a token"),
        _ => panic!("{elected}"),
    }
}

/// Two processes and more share the few connections of a pooler, and no statement that one has
/// prepared is there for the other.
#[tokio::test]
async fn behind_a_pooler_processes_follow_one_that_was_killed_and_operators_are_obeyed() {
    let server = PostgresServer::start().await;
    let pooler = PgBouncer::start(&server, 3).await;
    let (host, url) = (Host::new(), pooler.url());
    let mut killed = campaign(&host, &url, "killed");
    let first = token(&killed.json());
    let mut next = campaign(&host, &url, "next");
    assert_eq!(next.json()["event"], "following");
    killed.signal(Signal::KILL);
    let second = token(&next.json());
    assert!(second > first, "{second} after {first}");

    let status = host.ok(["--store", &url, "status", "--json", "jobs/x"]).json();
    assert_eq!((&status["leader"]["name"], &status["leader"]["token"]), (&json!("next"), &json!(second)), "{status}");
    let mut heir = campaign(&host, &url, "heir");
    assert_eq!(heir.json()["event"], "following");
    host.ok(["--store", &url, "transfer", "jobs/x", "--to", "heir"]);
    let third = token(&heir.json());
    assert!(third > second, "{third} after {second}");
    let listed = host.ok(["--store", &url, "list", "--json"]).json();
    let [election] = &listed["elections"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&election["election"], &election["leader"]["name"]), (&json!("jobs/x"), &json!("heir")), "{listed}");
}

#[tokio::test]
async fn a_leader_that_was_stopped_for_longer_than_its_ttl_finds_another_one_and_its_token_is_refused() {
    let server = PostgresServer::start().await;
    let (host, url) = (Host::new(), server.url());
    let mut stopped = campaign(&host, &url, "stopped");
    let first = token(&stopped.json());
    let mut next = campaign(&host, &url, "next");
    assert_eq!(next.json()["event"], "following");
    stop(stopped.pid());
    let second = token(&next.json());
    assert!(second > first, "{second} after {first}");
    server.sql(&format!("SELECT incumbent.fence('jobs/x', {second})"));

    stopped.signal(Signal::CONT);
    let late = server.psql().arg(format!("SELECT incumbent.fence('jobs/x', {first})")).output().unwrap();
    let said = String::from_utf8_lossy(&late.stderr);
    assert!(!late.status.success() && said.contains("is stale"), "{said}");
    loop {
        let event = stopped.json();
        assert_ne!(event["event"], "elected", "{event}");
        if event["event"] == "following" {
            assert_eq!(event["ahead"], "next", "{event}");
            break;
        }
    }
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

/// Monitoring often runs as a role of its own, and may come before the first candidate.
#[tokio::test]
async fn verbs_that_only_read_make_nothing_in_a_database_without_elections() {
    let server = PostgresServer::start().await;
    let (host, url) = (Host::new(), server.url());
    let on = |args: &[&str]| host.run([&["--store", &url], args].concat());
    for (verb, code) in [
        (&["status", "jobs/x"][..], 3),
        (&["leader", "jobs/x"], 3),
        (&["candidates", "jobs/x"], 3),
        (&["list"], 0),
        (&["metrics"], 0),
        (&["metrics", "jobs/x"], 0),
        (&["check", "jobs/x"], 2),
        (&["explain"], 0),
        (&["doctor", "jobs/x"], 4),
        (&["history", "jobs/x"], 3),
        (&["fenced", "jobs/x", "--token", "7", "--i-have-checked"], 3),
    ] {
        let said = on(verb);
        assert_eq!(said.code, Some(code), "{verb:?}: {said:?}");
    }
    let mut observe = host.start(["--store", &url, "observe", "--json", "jobs/x"]);
    assert_eq!(observe.json()["event"], "vacant");
    assert_eq!(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'incumbent'"), "0");
    let _leader = campaign(&host, &url, "first").json();
    assert_eq!(observe.json()["event"], "leader");
}

#[tokio::test]
async fn why_a_store_lets_nobody_lead_is_said_to_those_who_look() {
    let server = PostgresServer::start().await;
    let (host, url) = (Host::new(), server.url());
    let on = |args: &[&str]| host.run([&["--store", &url], args].concat());
    host.ok(["--store", &url, "run", "jobs/x", "--", "true"]);
    let store = "UPDATE incumbent.store SET longest_us = 3600000000, quiet_until =";
    server.sql(&format!("{store} clock_timestamp() + interval '1 hour'"));
    let status = on(&["status", "--json", "jobs/x"]).json();
    assert_eq!(status["vacant_because"], "taken_over", "{status}");
    assert!(status["quiet_ms"].as_u64().is_some_and(|quiet| quiet > 1_800_000), "{status}");
    for (verb, says) in [
        (&["status", "jobs/x"][..], "another server of the store has taken over"),
        (&["check", "jobs/x"], "another server of the store has taken over, and nobody does for another"),
        (&["doctor", "jobs/x"], "nobody leads for another"),
    ] {
        let said = on(verb);
        assert!(said.out.contains(says), "{said:?}");
    }

    server.sql(&format!("{store} '-infinity'"));
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'other'");
    server.sql("SELECT pg_reload_conf()");
    let says = "synchronous_standby_names is set (other), and no such standby is connected";
    incumbent_testkit::patience::until("it is said", async || on(&["status", "jobs/x"]).out.contains(says)).await;
    for verb in [&["check", "jobs/x"][..], &["explain"]] {
        let said = on(verb);
        assert!(said.out.contains(says), "{said:?}");
    }
    let status = on(&["status", "--json", "jobs/x"]).json();
    assert!(status["stalled"].as_str().is_some_and(|why| why.contains(says)), "{status}");
}

/// The same code as for a password that is wrong.
#[tokio::test]
async fn a_server_that_speaks_no_tls_where_it_is_asked_for_is_refused_at_once() {
    let server = PostgresServer::start().await;
    let certificates = Certificates::new("IP:127.0.0.1");
    let url = format!("{}?sslmode=require&sslrootcert={}", server.url(), certificates.file("ca.pem"));
    let said = Host::new().run(["--store", &url, "run", "jobs/x", "--", "echo", "never"]);
    assert!(said.code == Some(125) && said.err.contains("say sslmode=disable"), "{said:?}");
    let said = Host::new().run(["--store", &url, "list"]);
    assert!(said.code == Some(1) && said.err.contains("say sslmode=disable"), "{said:?}");
}
