//! `run`: exit codes, what the command sees, and when it runs.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;
use serde_json::json;

use crate::host::{Host, Process, eventually, finish};

#[test]
fn it_exits_as_its_command_does() {
    let host = Host::new();
    for (line, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        assert_eq!(host.run(["run", "jobs/x", "--shell", "--", line]).code, Some(code), "{line}");
    }
    assert_eq!(host.leader("jobs/x"), None);
}

#[test]
fn a_command_that_cannot_run_exits_as_in_a_shell_and_is_named() {
    let host = Host::new();
    for (program, code) in [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126), ("/", 126)] {
        for more in [&[][..], &["--forever"]] {
            let said = host.run(["run", "jobs/x"].iter().chain(more).chain(&["--", program]));
            assert_eq!(said.code, Some(code), "{said:?}");
            assert!(said.err.contains(program), "{said:?}");
        }
    }
}

#[test]
fn a_command_knows_its_election_its_name_and_its_token() {
    let host = Host::new();
    let line = "echo $INCUMBENT_ELECTION $INCUMBENT_NAME $INCUMBENT_TOKEN";
    let first = host.ok(["run", "--name", "node-1", "jobs/x", "--shell", "--", line]).out;
    assert_eq!(first, "jobs/x node-1 1\n");
}

#[test]
fn each_run_is_one_term_also_for_those_who_watch() {
    let host = Host::new();
    let mut observer = host.start(["observe", "jobs/x", "--json"]);
    assert_eq!(observer.json()["event"], "vacant");
    for token in 1..=5 {
        // The command waits for its input to end: the observer has seen it by then.
        let mut run = host.start(["run", "jobs/x", "--shell", "--", "echo $INCUMBENT_TOKEN; read line"]);
        assert_eq!(run.line(), token.to_string());
        let seen = observer.json();
        assert_eq!((&seen["event"], &seen["token"]), (&json!("leader"), &json!(token)));
        drop(run.stdin.take());
        assert_eq!(run.wait(), Some(1));
        assert_eq!(observer.json()["event"], "vacant");
    }
}

#[test]
fn a_command_reads_our_input_and_its_words_stay_as_they_are() {
    let host = Host::new();
    let mut cat = host.start(["run", "jobs/x", "--", "cat"]);
    cat.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    assert_eq!(cat.line(), "hello");
    assert_eq!(cat.wait(), Some(0));
    assert_eq!(host.ok(["run", "jobs/x", "--", "printf", "%s|", "a b", "$HOME", ""]).out, "a b|$HOME||");
}

#[test]
fn with_try_it_does_not_wait() {
    let host = Host::new();
    assert_eq!(host.ok(["run", "--try", "jobs/x", "--", "echo", "done"]).out, "done\n");
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let said = host.run(["run", "--try", "jobs/x", "--", "echo", "done"]);
    assert_eq!((said.code, said.out.as_str()), (Some(122), ""), "{said:?}");
    assert!(said.err.contains("a is ahead"), "{said:?}");
    assert_eq!(host.line("jobs/x"), ["a"]);
}

#[test]
fn with_wait_it_waits_so_long_and_leaves_the_line() {
    let host = Host::new();
    let leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let said = host.run(["run", "--wait", "5s", "jobs/x", "--", "true"]);
    assert_eq!(said.code, Some(122), "{said:?}");
    assert!(said.err.contains("its turn has not come"), "{said:?}");
    assert_eq!(host.line("jobs/x"), ["a"]);

    let mut patient = host.start(["run", "--wait", "10m", "--name", "b", "jobs/x", "--", "echo", "done"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    drop(leader);
    assert_eq!(patient.line(), "done");
    assert_eq!(patient.wait(), Some(0));
}

#[test]
fn a_command_that_we_stopped_runs_again_with_a_higher_token() {
    let host = Host::new();
    let mut a = host.start_lonely("a", &[]);
    host.until_logged("start 1 a");
    host.ok(["resign", "jobs/x"]);
    a.until_said("stopping the command: resigned");
    eventually("a second start", || {
        (host.log().iter().filter(|line| line.starts_with("start")).count() == 2).then_some(())
    });
    let log = host.log();
    assert_eq!(log[..2], ["start 1 a", "stop 1 a"]);
    let token: u64 = log[2].split(' ').nth(1).unwrap().parse().unwrap();
    assert!(token > 1, "{log:?}");
}

#[test]
fn with_exit_on_loss_a_lost_office_exits_with_120() {
    let host = Host::new();
    let mut a = host.start_lonely("a", &["--exit-on-loss"]);
    host.until_logged("start 1 a");
    host.ok(["resign", "jobs/x"]);
    assert_eq!(a.wait(), Some(120));
    assert_eq!(host.log(), ["start 1 a", "stop 1 a"]);

    let mut by_itself = host.start(["run", "--exit-on-loss", "jobs/x", "--shell", "--", "exit 9"]);
    assert_eq!(by_itself.wait(), Some(9));
}

#[test]
fn an_election_that_has_ended_exits_with_121_also_while_waiting() {
    let host = Host::new();
    let mut leader = host.start_lonely("a", &["--exit-on-loss"]);
    host.until_in_line("jobs/x", &["a"]);
    let mut follower = host.start_lonely("b", &["--forever"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    host.until_logged("start");
    host.ok(["end", "jobs/x"]);
    assert_eq!(leader.wait(), Some(121));
    assert_eq!(follower.wait(), Some(121));
    assert_eq!(host.log(), ["start 1 a", "stop 1 a"]);
}

#[test]
fn forever_starts_the_command_again_in_the_same_term() {
    let host = Host::new();
    let line = r#"echo $INCUMBENT_TOKEN >>"$FOLDER/log""#;
    let mut process = host.start(["run", "--forever", "jobs/x", "--shell", "--", line]);
    eventually("three starts", || (host.log().len() >= 3).then_some(()));
    process.signal(Signal::TERM);
    process.wait();
    assert!(host.log().iter().all(|token| token == "1"), "{:?}", host.log());
    assert_eq!(host.leader("jobs/x"), None);
}

#[test]
fn what_a_command_leaves_behind_is_stopped_before_the_office_is_released() {
    let host = Host::new();
    let line = r#"
        exec 9>>"$FOLDER/lock"; flock 9
        setsid sh -c 'trap "" TERM; sleep 1000' </dev/null >/dev/null 2>&1 &
        exit 5"#;
    let said = host.run(["run", "--grace", "100ms", "jobs/x", "--shell", "--", line]);
    assert_eq!(said.code, Some(5), "{said:?}");
    // Whoever is left has the lock.
    let line = r#"exec 9>>"$FOLDER/lock"; flock -n 9"#;
    assert_eq!(host.run(["run", "jobs/x", "--shell", "--", line]).code, Some(0));
}

#[test]
fn the_ready_file_says_how_this_candidate_stands_and_goes_with_it() {
    let host = Host::new();
    let read = |name: &str| fs::read_to_string(host.path(name)).ok();
    let start = |name: &str| {
        let file = host.path(&format!("ready-{name}"));
        host.start(["run", "--name", name, "--ready-file", file.to_str().unwrap(), "jobs/x", "--", "sleep", "1000"])
    };
    let mut a = start("a");
    eventually("a leads", || (read("ready-a")? == "leading 1\n").then_some(()));
    let mut b = start("b");
    eventually("b follows", || (read("ready-b")? == "following\n").then_some(()));
    a.signal(Signal::TERM);
    a.wait();
    assert_eq!(read("ready-a"), None);
    eventually("b leads", || read("ready-b")?.starts_with("leading ").then_some(()));
    b.signal(Signal::TERM);
    b.wait();
    assert_eq!(read("ready-b"), None);
}

#[test]
fn the_service_manager_hears_that_followers_are_ready_and_the_command_does_not_see_its_socket() {
    let host = Host::new();
    let leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let socket = UnixDatagram::bind(host.path("notify")).unwrap();
    socket.set_read_timeout(Some(crate::host::PATIENCE)).unwrap();
    let mut command = host.command(["run", "jobs/x", "--shell", "--", "echo \"[$NOTIFY_SOCKET]\"; exec sleep 1000"]);
    command.env("NOTIFY_SOCKET", host.path("notify"));
    let mut follower = Process::start(command);
    let hear = || {
        let mut bytes = [0; 1024];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    assert_eq!(hear(), "READY=1\nSTATUS=following a");
    drop(leader);
    assert!(hear().starts_with("STATUS=leading with token "));
    assert_eq!(follower.line(), "[]");
    follower.signal(Signal::TERM);
    assert_eq!(hear(), "STOPPING=1");
    follower.wait();
}

#[test]
fn the_name_is_the_hosts_and_the_processs_unless_given() {
    let host = Host::new();
    let said = finish(host.command(["run", "jobs/x", "--shell", "--", "echo $INCUMBENT_NAME"]));
    let name = said.out.trim();
    let number = name.rsplit('-').next().unwrap();
    assert!(number.parse::<u32>().is_ok(), "{name}");
}

#[test]
fn a_child_that_the_command_never_waited_for_does_not_hold_up_its_end() {
    let host = Host::new();
    // So long a grace that the test would fail if it were waited for.
    let mut run =
        host.start(["run", "--ttl", "2h", "--grace", "20m", "jobs/x", "--shell", "--", "true & exec sleep 0.2"]);
    assert_eq!(run.wait(), Some(0));
}
