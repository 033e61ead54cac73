//! The command on a Redis server.

use incumbent_testkit::servers::RedisServer;
use rustix::process::Signal;

use crate::host::{Host, Process, eventually, on, stop};

/// The three servers of a Redlock, and its URL.
async fn redlock(login: &str, settings: &[&str]) -> (Vec<RedisServer>, String) {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start_with(settings).await);
    }
    let addresses: Vec<_> = servers.iter().map(RedisServer::endpoint).collect();
    let url = format!("redlock://{login}{}", addresses.join(","));
    (servers, url)
}

#[tokio::test]
async fn an_election_on_redis_has_tokens_that_grow_and_a_line_and_explains_what_can_be_lost() {
    let server = RedisServer::start_with(&["--requirepass", "hunter2"]).await;
    let (host, url) = (Host::new(), format!("redis://:hunter2@{}?prefix=team", server.endpoint()));
    let on_redis = |args: &[&str]| on(&url, args);
    let token = || {
        let said = host.ok(on_redis(&["run", "jobs/x", "--", "sh", "-c", "echo $INCUMBENT_TOKEN"]));
        said.out.trim().parse::<u64>().unwrap()
    };
    let first = token();
    assert!(token() > first);

    let holding = host.start(on_redis(&["run", "jobs/x", "--", "sleep", "600"]));
    eventually("somebody leads", || {
        let status = host.run(on_redis(&["status", "--json", "jobs/x"])).json();
        status["leader"]["token"].is_number().then_some(())
    });
    let said = host.run(on_redis(&["run", "--try", "jobs/x", "--", "echo", "never"]));
    assert_eq!((said.code, said.out.as_str()), (Some(122), ""), "{said:?}");
    drop(holding);

    let said = host.ok(on_redis(&["explain", "jobs/x"]));
    for part in ["appendonly", "is founded anew"] {
        assert!(said.out.contains(part), "{said:?}");
    }
    assert!(!said.out.contains("hunter2") && !said.err.contains("hunter2"), "{said:?}");
}

/// As with every other store: whether old tokens still count is an operator's to say, and how to go
/// on is said with it.
#[tokio::test]
async fn a_run_whose_store_is_emptied_stops_its_command_and_says_what_an_operator_does_next() {
    for order in [&["FLUSHALL"][..], &["DEL", "{incumbent}:e"]] {
        let server = RedisServer::start().await;
        let (host, url) = (Host::new(), server.url());
        let lead = || host.start(["--store", &url, "run", "--forever", "--ttl", "3s", "jobs/w", "--", "sleep", "600"]);
        let leads = || host.run(["--store", &url, "leader", "jobs/w"]).code == Some(0);
        let mut run = lead();
        eventually("it leads", || leads().then_some(()));
        server.cli(order);
        run.until_said("stopping the command");
        let said = run.until_said("docs/runbooks.md#the-store-was-restored");
        assert!(said.contains("the store was replaced") && said.contains("`incumbent claims` on each host"), "{said}");
        assert_eq!(run.wait(), Some(125), "{:?}", run.everything());
        // Nothing of it is left, and one that is started again leads in the new store.
        assert!(!host.run(["claims"]).out.contains("jobs/w"), "{order:?}");
        let _next = lead();
        eventually("the next one leads", || leads().then_some(()));
    }
}

/// A leader that was forgotten may be in office: nobody can say that there is none.
#[tokio::test]
async fn status_says_that_the_store_waits_after_a_restart_and_for_how_long() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes"]).await;
    let (host, url) = (Host::new(), server.url());
    host.ok(["--store", &url, "run", "--ttl", "600s", "jobs/z", "--", "true"]);
    let said = host.run(["--store", &url, "status", "jobs/z"]);
    assert!(said.out.contains("nobody"), "{said:?}");
    let said = host.ok(["--store", &url, "explain", "jobs/z"]);
    assert!(said.out.contains("Tokens grow all the same") && !said.out.contains("repeat"), "{said:?}");
    server.restart().await;
    let said = host.run(["--store", &url, "status", "jobs/z"]);
    assert!(said.err.contains("restarted, replaced") && said.err.contains("for another 5"), "{said:?}");
    assert!(!said.out.contains("nobody"), "{said:?}");
    assert!(said.err.contains("passes by itself") && !said.err.contains("check that it is running"), "{said:?}");
}

#[tokio::test]
async fn what_the_server_refuses_is_said_with_what_to_do_about_it() {
    let server = RedisServer::start().await;
    let (host, url) = (Host::new(), server.url());
    host.ok(["--store", &url, "run", "jobs/v", "--", "true"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let said = host.run(["--store", &url, "run", "--wait", "1s", "jobs/v", "--", "true"]);
    assert!(said.code == Some(125) && said.err.contains("raise its maxmemory"), "{said:?}");
    assert!(!said.err.contains("check that it is running"), "{said:?}");
}

#[tokio::test]
async fn a_leader_that_is_stopped_is_replaced_with_a_higher_token_and_gives_up_when_it_goes_on() {
    let server = RedisServer::start().await;
    let (host, url) = (Host::new(), server.url());
    let on_redis = |args: &[&str]| on(&url, args);
    let run = |name: &str| {
        let said = ["run", "--ttl", "3s", "--name", name, "jobs/y", "--", "sh", "-c"];
        let command = "echo $INCUMBENT_TOKEN; exec sleep 600";
        host.start(on_redis(&[&said[..], &[command]].concat()))
    };
    let token = |process: &mut Process| process.line().parse::<u64>().unwrap();
    let mut a = run("a");
    let first = token(&mut a);
    stop(a.pid());
    let mut b = run("b");
    let second = token(&mut b);
    assert!(second > first, "{second} after {first}");
    a.signal(Signal::CONT);
    a.until_said("a is in line for jobs/y, behind b");
    let status = host.run(on_redis(&["status", "--json", "jobs/y"])).json();
    assert_eq!(status["leader"]["token"].as_u64(), Some(second), "{status}");
}

#[tokio::test]
async fn an_election_by_a_majority_of_servers_explains_what_it_rests_on_and_what_it_refuses() {
    let (mut servers, url) = redlock(":hunter2@", &["--requirepass", "hunter2"]).await;
    let host = Host::new();
    let on_redlock = |args: &[&str]| on(&url, args);
    let token = || {
        let run = ["run", "--ttl", "3s", "jobs/x", "--", "sh", "-c", "echo $INCUMBENT_TOKEN"];
        host.ok(on_redlock(&run)).out.trim().parse::<u64>().unwrap()
    };
    let first = token();
    servers[1].kill();
    assert!(token() > first, "two of three will do");

    let said = host.ok(on_redlock(&["explain", "jobs/x"]));
    assert!(!said.out.contains("--fence-cmd"), "there is no record of terms: {said:?}");
    for part in [
        "rests on time",
        "pause, freeze, bench, end, transfer, resign and depose are refused",
        "no election is listed",
        "none: the first",
    ] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
    let said = host.run(on_redlock(&["run", "--priority", "1", "jobs/x", "--", "true"]));
    assert!(said.code == Some(125) && said.err.contains("there is no line to choose from"), "{said:?}");
    let holding = host.start(on_redlock(&["run", "--ttl", "3s", "jobs/x", "--", "sleep", "600"]));
    eventually("it leads", || (host.run(on_redlock(&["leader", "jobs/x"])).code == Some(0)).then_some(()));
    for option in [&["--record"][..], &["--fence-cmd", "/bin/true", "--fence-targets", "node-1"]] {
        let said =
            host.run(on_redlock(&[&["run", "--try", "--ttl", "3s"], option, &["jobs/x", "--", "true"]].concat()));
        assert!(said.code == Some(125), "it does not wait for a turn that cannot come: {said:?}");
        assert!(said.err.contains("leave --record and --fence-cmd out"), "{said:?}");
    }
    for order in [
        &["pause"][..],
        &["freeze"],
        &["end"],
        &["transfer", "--to", "nobody"],
        &["transfer", "--to", "nobody", "--dry-run"],
        &["resign"],
        &["depose"],
    ] {
        let said = host.run(on_redlock(&[order, &["jobs/x"]].concat()));
        assert!(said.code == Some(1) && said.err.contains("no office record"), "{order:?}: {said:?}");
        assert!(said.err.contains("stop the leader's process"), "{order:?}: {said:?}");
    }
    for dry in [&[][..], &["--dry-run"]] {
        let said = host.run(on_redlock(&[&["bench", "jobs/x", "a", "--reason", "why"], dry].concat()));
        assert!(said.code == Some(1) && said.err.contains("there is no bench"), "{said:?}");
    }
    drop(holding);
    let said = host.run(on_redlock(&["history", "jobs/x"]));
    assert!(said.code == Some(3) && !said.err.contains("run --record"), "{said:?}");
    assert!(said.err.contains("keeps no record of terms"), "{said:?}");

    servers[2].kill();
    let said = host.run(on_redlock(&["status", "jobs/x"]));
    assert!(said.code != Some(0) && said.err.contains("it takes 2 of 3 servers"), "{said:?}");
    for said in [said, host.run(on_redlock(&["run", "--try", "jobs/x", "--", "true"]))] {
        assert!(!said.out.contains("hunter2") && !said.err.contains("hunter2"), "{said:?}");
    }
}

/// Before it is one too many.
#[tokio::test]
async fn a_server_of_a_redlock_that_is_lost_is_named_by_every_verb_that_reads() {
    let (mut servers, url) = redlock("", &[]).await;
    let (host, addresses) = (Host::new(), Vec::from_iter(servers.iter().map(RedisServer::endpoint)));
    let on_redlock = |args: &[&str]| on(&url, args);
    let _leader = host.start(on_redlock(&["run", "--ttl", "3s", "--name", "n1", "jobs/x", "--", "sleep", "1000"]));
    eventually("all of them count", || {
        let said = host.run(on_redlock(&["check", "jobs/x"]));
        (said.code == Some(0) && said.out.contains("members=3;3:;2:;0")).then_some(())
    });
    assert!(host.ok(on_redlock(&["status", "jobs/x"])).out.contains("all 3 answer"));
    let codes = |said: &str| said.contains("\"D19\"");
    assert!(!codes(&host.run(on_redlock(&["doctor", "jobs/x", "--json"])).out));

    let lost = servers.remove(1);
    drop(lost);
    let lost = &addresses[1];
    let names_it = |said: &str| said.contains(lost.as_str()) && said.contains("refused");
    let said = host.run(on_redlock(&["check", "jobs/x"]));
    assert!(said.code == Some(1) && said.out.starts_with("INCUMBENT WARNING - n1 "), "{said:?}");
    assert!(names_it(&said.out) && said.out.contains("2 of 3 servers answer"), "{said:?}");
    assert!(said.out.contains("if another one is lost, there are no elections"), "{said:?}");
    assert!(said.out.contains("members=2;3:;2:;0"), "{said:?}");
    let said = host.ok(on_redlock(&["status", "jobs/x"]));
    assert!(names_it(&said.out) && said.out.contains("2 of 3 servers answer"), "{said:?}");
    let shown = host.ok(on_redlock(&["status", "jobs/x", "--json"])).json();
    assert_eq!(shown["servers"]["answering"], 2, "{shown}");
    assert_eq!(shown["servers"]["missing"][0]["server"].as_str(), Some(lost.as_str()), "{shown}");
    let said = host.ok(on_redlock(&["metrics", "jobs/x"]));
    let figure = |name: &str| {
        let line = said.out.lines().find(|line| line.starts_with(&format!("incumbent_{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
    };
    let figures = ["members", "members_answering", "members_needed"].map(|name| figure(name).unwrap_or_default());
    assert_eq!(figures, ["3", "2", "2"], "{said:?}");
    let said = host.run(on_redlock(&["doctor", "jobs/x", "--json"]));
    assert!(codes(&said.out) && names_it(&said.out), "{said:?}");
}

/// Who waits there writes nothing: that nobody does cannot be known.
#[tokio::test]
async fn nothing_is_said_of_followers_where_the_store_keeps_no_line() {
    let (_servers, url) = redlock("", &[]).await;
    let host = Host::new();
    let on_redlock = |args: &[&str]| on(&url, args);
    let _leader = host.start(on_redlock(&["run", "--name", "n1", "jobs/x", "--", "sleep", "1000"]));
    eventually("it leads", || (host.run(on_redlock(&["leader", "jobs/x"])).code == Some(0)).then_some(()));

    let mut waiting = host.start(on_redlock(&["run", "--name", "n2", "jobs/x", "--", "true"]));
    waiting.until_said("n2 waits for jobs/x, which n1");
    drop(waiting);
    let said = host.ok(on_redlock(&["status", "jobs/x"]));
    assert!(said.out.contains("unknown: this store keeps no line") && !said.out.contains("nobody"), "{said:?}");
    assert!(host.ok(on_redlock(&["status", "jobs/x", "--json"])).json()["followers"].is_null());
    for followers in [&[][..], &["--followers", "0"]] {
        let said = host.ok(on_redlock(&[&["check", "jobs/x"], followers].concat()));
        assert!(said.out.starts_with("INCUMBENT OK - n1 ") && !said.out.contains("followers"), "{said:?}");
    }
    let said = host.run(on_redlock(&["check", "jobs/x", "--followers", "1"]));
    assert!(said.code == Some(3) && said.out.contains("keeps no line"), "{said:?}");
    let said = host.ok(on_redlock(&["metrics", "jobs/x"]));
    assert!(said.out.contains("incumbent_vacant") && !said.out.contains("followers"), "{said:?}");
    let said = host.run(on_redlock(&["metrics"]));
    assert!(said.code == Some(2) && said.err.contains("`incumbent metrics ELECTION...`"), "{said:?}");
}

/// It was not written, as far as anybody knows.
#[tokio::test]
async fn of_an_order_that_is_not_answered_nobody_says_that_it_is_heeded() {
    let server = RedisServer::start().await;
    let (host, url) = (Host::new(), server.url());
    host.ok(["--store", &url, "run", "jobs/x", "--", "true"]);
    let within = ["--timeout", "1s"];
    host.ok(["--store", &url, "pause", "jobs/x"]);
    server.pause();
    for order in [&["pause", "jobs/x"][..], &["end", "jobs/x"], &["resume", "jobs/x", "--first", "a"]] {
        let said = host.run([&["--store", &url], order, &within].concat());
        assert_eq!(said.code, Some(4), "{said:?}");
        assert!(said.err.contains("nobody knows whether"), "{said:?}");
        assert!(said.err.contains("`incumbent status jobs/x`"), "{said:?}");
        for promise in ["nobody new will lead", "the election has ended", "nobody else leads"] {
            assert!(!said.err.contains(promise), "{said:?}");
        }
    }
    server.resume();
    // This one is written, and heeded by nobody yet.
    host.ok(["--store", &url, "resume", "jobs/x"]);
    let stopped = host.start(["--store", &url, "campaign", "--ttl", "10m", "jobs/x"]);
    eventually("it leads", || (host.run(["--store", &url, "leader", "jobs/x"]).code == Some(0)).then_some(()));
    stop(stopped.pid());
    let said = host.run([&["--store", &url, "pause", "jobs/x"][..], &within].concat());
    assert!(said.code == Some(4) && said.err.contains("nobody new will lead"), "{said:?}");
}

/// The codes of what `doctor` finds.
fn found(host: &Host, url: &str) -> Vec<String> {
    let said = host.run(["--store", url, "doctor", "jobs/x", "--json"]);
    let lines = said.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter_map(|line| line["finding"].as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_leader_of_another_store_is_told_from_one_that_the_store_forgot_though_nobody_is_in_line() {
    let server = RedisServer::start().await;
    let host = Host::new();
    let [here, there] = ["here", "there"].map(|prefix| format!("{}?prefix={prefix}", server.url()));
    let _leader = host.start(["--store", &there, "campaign", "--ttl", "10m", "jobs/x"]);
    eventually("its claim", || host.ok(["claims"]).out.contains("jobs/x").then_some(()));
    let codes = found(&host, &here);
    assert!(codes.contains(&"D17".to_owned()) && !codes.contains(&"D02".to_owned()), "{codes:?}");
}

#[tokio::test]
async fn a_store_that_was_emptied_is_found_to_be_another_though_nobody_is_in_line() {
    let server = RedisServer::start().await;
    let (host, url) = (Host::new(), server.url());
    let mut leader = host.start(["--store", &url, "campaign", "jobs/x"]);
    let witness = incumbent::Witness::new(host.path(".local/state/incumbent-witness"));
    let noted = || witness.store_at(&url).ok().flatten();
    eventually("what this host has seen", noted);
    drop(leader.stdin.take());
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(server.cli(&["FLUSHALL"]), "OK");
    let codes = found(&host, &url);
    assert!(codes.contains(&"D06".to_owned()), "{codes:?}");
}
