//! `run`: exit codes, what the command sees, and when it runs.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, prlimit, set_child_subreaper};
use serde_json::json;

use crate::host::{Host, Process, children, eventually, finish};

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
fn on_a_directory_that_replaces_nobody_for_silence_it_runs_like_on_any_other() {
    let host = Host::new();
    let store = format!("{}?ttl=none", host.store());
    assert_eq!(host.ok(["--store", &store, "run", "--try", "jobs/x", "--", "echo", "hi"]).out, "hi\n");
}

#[test]
fn with_try_it_does_not_wait() {
    let host = Host::new();
    assert_eq!(host.ok(["run", "--try", "jobs/x", "--", "echo", "done"]).out, "done\n");
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    let said = host.run(["run", "--try", "jobs/x", "--", "echo", "done"]);
    assert_eq!((said.code, said.out.as_str()), (Some(122), ""), "{said:?}");
    assert!(said.err.contains("a leads"), "{said:?}");
    assert_eq!(host.line("jobs/x"), ["a"]);
    // The one named is the leader, not the candidate ahead.
    let _next = host.start(["run", "--name", "b", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    for how in [&["--try"][..], &["--wait", "1s"]] {
        let said = host.run(["run", "--name", "c"].iter().chain(how).chain(&["jobs/x", "--", "echo", "done"]));
        assert!(said.code == Some(122) && said.err.contains("a leads") && !said.err.contains("b is ahead"), "{said:?}");
    }
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
    // A process left behind would hold the lock.
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
    assert!(hear().starts_with("STOPPING=1\nEXTEND_TIMEOUT_USEC="));
    follower.wait();
}

#[test]
fn the_name_is_the_hosts_and_the_processs_unless_given() {
    let host = Host::new();
    let said = finish(host.command(["run", "jobs/x", "--shell", "--", "echo $INCUMBENT_NAME"]));
    let name = said.out.trim();
    let mut parts = name.rsplit('-');
    // Where process numbers are not the host's, four digits tell the names of two containers apart.
    let own_numbers = fs::metadata("/proc/self/ns/pid").unwrap().ino() != 0xeffffffc;
    let digits = if own_numbers { parts.next() } else { None };
    assert!(digits.is_none_or(|digits| digits.len() == 4), "{name}");
    assert!(parts.next().unwrap().parse::<u32>().is_ok(), "{name}");
}

#[test]
fn a_child_that_the_command_never_waited_for_does_not_hold_up_its_end() {
    let host = Host::new();
    // So long a grace that the test would fail if it were waited for.
    let mut run =
        host.start(["run", "--ttl", "2h", "--grace", "20m", "jobs/x", "--shell", "--", "true & exec sleep 0.2"]);
    assert_eq!(run.wait(), Some(0));
}

#[test]
fn a_run_waits_for_its_guardian_so_that_no_zombie_is_left() {
    let host = Host::new();
    // As in a container whose process 1 waits for nobody but its own: orphans come to us, and we do
    // not wait for them.
    set_child_subreaper(Some(getpid())).unwrap();
    for _ in 0..5 {
        let guardian = host.ok(["run", "jobs/x", "--shell", "--", "echo $PPID"]).out;
        assert!(!fs::exists(format!("/proc/{}", guardian.trim())).unwrap());
    }
    let said = host.run(["run", "jobs/x", "--", "/no/such/program"]);
    assert_eq!(said.code, Some(127), "{said:?}");
    set_child_subreaper(None).unwrap();
}

#[test]
fn a_command_may_be_as_long_as_the_system_lets_it() {
    let host = Host::new();
    let words: Vec<String> = (0..40_000).map(|number| format!("{number:06}")).collect();
    let args = ["run", "jobs/x", "--", "echo"].iter().map(|word| word.to_string());
    let said = host.ok(args.chain(words.iter().cloned()));
    assert_eq!(said.out.trim_end(), words.join(" "));

    // One argument cannot be as long as all of them.
    let args = ["run", "jobs/x", "--shell", "--", "echo"].iter().map(|word| word.to_string());
    let said = host.run(args.chain(words));
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
    assert!(said.err.contains("put it in a file"), "{}", said.err);
}

#[test]
fn a_command_that_goes_to_the_background_is_told_not_to() {
    let host = Host::new();
    let line = "setsid sleep 1000 </dev/null >/dev/null 2>&1 & exit 0";
    let said = host.ok(["run", "jobs/x", "--shell", "--", line]);
    assert!(said.err.contains("left one process running") && said.err.contains("in the foreground"), "{said:?}");
    // One that we stop has nothing to be told.
    let mut leader = host.start(["run", "jobs/x", "--shell", "--", "echo up; sleep 1000 & wait"]);
    assert_eq!(leader.line(), "up");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait(), Some(143));
    assert!(!format!("{:?}", leader.everything()).contains("behind"));
}

#[test]
fn with_exit_on_loss_a_killed_guardian_is_said() {
    let host = Host::new();
    let mut a = host.start_lonely("a", &["--exit-on-loss"]);
    host.until_logged("start 1 a");
    kill_process(children(a.pid())[0], Signal::KILL).unwrap();
    assert_eq!(a.wait(), Some(120));
    a.until_said("the guardian was killed, and the command with it");
}

/// Lets a guardian open no more descriptors; what it could open before.
fn starve(guardian: Pid) -> Rlimit {
    // Fewer than it has open, and more than it waits for at once.
    const FEW: u64 = 6;
    let open = fs::read_dir(format!("/proc/{}/fd", guardian.as_raw_pid())).unwrap().count();
    assert!(open > FEW as usize, "{open}");
    let usual = getrlimit(Resource::Nofile);
    prlimit(Some(guardian), Resource::Nofile, Rlimit { current: Some(FEW), maximum: usual.maximum }).unwrap();
    usual
}

#[test]
fn a_process_that_cannot_be_made_is_our_failure_and_no_reason_to_give_up_forever() {
    let host = Host::new();
    let mut leader = host.start(["run", "--name", "a", "jobs/x", "--", "cat"]);
    host.until_in_line("jobs/x", &["a"]);
    let mut once = host.start(["run", "--name", "b", "jobs/x", "--", "true"]);
    host.until_in_line("jobs/x", &["a", "b"]);
    let mut forever = host.start(["run", "--name", "c", "--forever", "jobs/x", "--", "echo", "up"]);
    host.until_in_line("jobs/x", &["a", "b", "c"]);
    starve(children(once.pid())[0]);
    let guardian = children(forever.pid())[0];
    let usual = starve(guardian);
    drop(leader.stdin.take());
    assert_eq!(leader.wait(), Some(0));
    assert_eq!(once.wait(), Some(125));
    once.until_said("no process could be made: Too many open files");
    forever.until_said("no process could be made: Too many open files");
    forever.until_said("the command was not started; it starts again in");
    prlimit(Some(guardian), Resource::Nofile, usual).unwrap();
    assert_eq!(forever.line(), "up");
}

#[test]
fn with_too_few_descriptors_it_exits_with_125_and_says_so() {
    let host = Host::new();
    let mut failed = 0;
    for few in 4..=24 {
        let limit = format!("ulimit -n {few}; exec \"$0\" \"$@\"");
        let said = finish(host.by_way_of("sh", &["-c", &limit], ["run", "--try", "jobs/x", "--", "true"]));
        assert!(matches!(said.code, Some(0 | 125)), "{few}: {said:?}");
        if said.code == Some(125) {
            failed += 1;
            assert!(said.err.contains("`ulimit -n`"), "{few}: {said:?}");
        }
        assert!(!said.err.contains("panicked"), "{few}: {said:?}");
    }
    assert!(failed > 0);
}

/// Lets a process have this much more memory than it has.
fn let_grow_by(process: &Process, bytes: u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid().as_raw_pid())).unwrap();
    let has = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")).unwrap();
    let limit = Rlimit { current: Some(has.parse::<u64>().unwrap() * 1024 + bytes), maximum: None };
    prlimit(Some(process.pid()), Resource::As, limit).unwrap();
}

#[test]
fn where_no_thread_can_be_made_it_exits_with_125_and_does_not_hang() {
    let host = Host::new();
    let url = host.path("url");
    let fifo = Command::new("mkfifo").arg(&url).status().unwrap();
    assert!(fifo.success());
    let mut refused = 0;
    // Room for what it allocates meanwhile, and too little for the stacks of all its threads.
    for room_kib in [512, 1024, 1536, 2560, 3072, 4608] {
        let args = ["--store-file", url.to_str().unwrap(), "run", "--try", "jobs/x", "--", "true"];
        let mut run = host.start(args);
        // Opens once the command, too, has opened it: to read the store's URL, before all threads.
        let mut place = fs::OpenOptions::new().write(true).open(&url).unwrap();
        let_grow_by(&run, room_kib * 1024);
        writeln!(place, "{}", host.store()).unwrap();
        drop(place);
        let code = run.wait();
        let said = run.everything();
        assert!(matches!(code, Some(0 | 125)), "{room_kib}: {code:?} {said:?}");
        refused += usize::from(code == Some(125));
    }
    assert!(refused > 0);
}

#[test]
fn a_file_size_limit_is_an_error_with_its_cause_and_left_to_the_command_as_it_was() {
    let host = Host::new();
    let none = "ulimit -f 0; exec \"$0\" \"$@\"";
    let said = finish(host.by_way_of("sh", &["-c", none], ["run", "--try", "jobs/x", "--", "true"]));
    assert_eq!(said.code, Some(125), "{said:?}");
    assert!(said.err.contains("File too large") && said.err.contains("ulimit -f"), "{said:?}");
    let command = "grep -E 'Sig(Ign|Cgt)' /proc/self/status";
    for (how, ignored) in [("--default-signal=XFSZ", false), ("--ignore-signal=XFSZ", true)] {
        let run = host.by_way_of("env", &[how], ["run", "jobs/x", "--shell", "--", command]);
        let said = finish(run);
        let masks: Vec<_> = said.out.lines().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
        let has_xfsz = |mask: &str| u64::from_str_radix(mask, 16).unwrap() & (1 << (Signal::XFSZ.as_raw() - 1)) != 0;
        assert_eq!((has_xfsz(masks[0]), has_xfsz(masks[1])), (ignored, false), "{how}: {said:?}");
    }
}

/// The task that drives candidacies has panicked: nobody is left who could renew or release.
#[cfg(feature = "faults")]
#[test]
fn a_driver_that_panics_ends_run_with_125_and_its_command_before() {
    let host = Host::new();
    let mut run = host.command(["run", "--name", "a", "--ttl", "3s", "jobs/x", "--shell", "--", crate::host::LONELY]);
    run.env("INCUMBENT_PANIC_AT", "failed");
    let mut run = Process::start(run);
    host.until_logged("start 1 a");
    fs::rename(host.path("store"), host.path("elsewhere")).unwrap();
    run.until_said("a test asked for a panic here");
    assert_eq!(run.wait(), Some(125), "{:?}", run.everything());
    // Alone: nothing of the other is left.
    fs::rename(host.path("elsewhere"), host.path("store")).unwrap();
    let mut next = host.start_lonely("b", &[]);
    host.until_logged("start 2 b");
    assert!(!host.log().iter().any(|line| line.starts_with("overlap")), "{:?}", host.log());
    next.signal(Signal::TERM);
    assert_eq!(next.wait(), Some(0));
}

#[test]
fn without_proc_it_exits_with_125_and_says_what_to_do() {
    let host = Host::new();
    for more in [&[][..], &["--pid", "--fork"]] {
        let options = ["--user", "--map-root-user", "--mount"].iter().chain(more);
        let script = r#"mount -t tmpfs none /proc && exec "$0" "$@""#;
        let options: Vec<&str> = options.chain(&["sh", "-c", script]).copied().collect();
        let said = finish(host.by_way_of("unshare", &options, ["run", "jobs/x", "--", "true"]));
        assert_eq!(said.code, Some(125), "{said:?}");
        assert!(said.err.contains("/proc is not there"), "{said:?}");
    }
}

#[test]
fn the_exit_code_for_somebody_else_does_it_can_be_chosen() {
    let host = Host::new();
    let _leader = host.start(["run", "--name", "a", "jobs/x", "--", "sleep", "1000"]);
    host.until_in_line("jobs/x", &["a"]);
    assert_eq!(host.run(["run", "--try", "-E", "0", "jobs/x", "--", "false"]).code, Some(0));
    assert_eq!(host.run(["run", "--try", "--conflict-exit-code", "75", "jobs/x", "--", "false"]).code, Some(75));
    assert_eq!(host.run(["run", "-E", "256", "jobs/x", "--", "false"]).code, Some(2));
    // A command's own code is its own.
    assert_eq!(host.run(["run", "--try", "-E", "0", "jobs/y", "--", "false"]).code, Some(1));
}

/// A candidate that cannot get in line does not know who else is: cron is not told that another
/// does the work.
#[test]
fn with_try_or_wait_a_store_that_cannot_be_written_to_exits_with_125_and_not_122() {
    let host = Host::new();
    let script = r#"
        mount -t tmpfs -o size=64k,mode=700 none "$FOLDER/store" || exit 9
        "$0" run jobs/x -- true || exit 8
        cat /dev/zero >"$FOLDER/store/full" 2>/dev/null
        for how in --try "--wait 2s"; do "$0" run $how jobs/x -- echo ran; echo "$how: $?"; done"#;
    // One that waits for ever is a failure, too.
    let options = ["60", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script];
    let said = finish(host.by_way_of("timeout", &options, [""; 0]));
    assert_eq!(said.out, "--try: 125\n--wait 2s: 125\n", "{said:?}");
    for how in said.err.split("the store has not answered in time").skip(1) {
        assert!(how.starts_with(": ") && how.contains("No space left on device"), "{said:?}");
        assert!(how.contains("; make room where the store is"), "{said:?}");
    }
    assert_eq!(said.err.matches("the store has not answered in time").count(), 2, "{said:?}");
}

/// Its path leads to another store now. Whether old tokens still count there is an operator's to
/// say: it does not go on by itself.
#[test]
fn a_run_whose_directory_is_replaced_ends_with_125_and_its_command_before() {
    let host = Host::new();
    let mut run = host.start_lonely("a", &["--ttl", "3s"]);
    host.until_logged("start 1 a");
    fs::rename(host.path("store"), host.path("elsewhere")).unwrap();
    fs::DirBuilder::new().mode(0o700).create(host.path("store")).unwrap();
    host.ok(["run", "jobs/y", "--", "true"]);
    run.until_said("start this again; step by step: docs/runbooks.md#the-store-was-restored");
    assert_eq!(run.wait(), Some(125), "{:?}", run.everything());
    let next = host.start_lonely("b", &[]);
    host.until_logged("start 2 b");
    assert!(!host.log().iter().any(|line| line.starts_with("overlap")), "{:?}", host.log());
    drop(next);
}

/// The store is where it was for whoever has it open, and nobody else finds it.
#[test]
fn a_command_is_stopped_when_the_file_system_of_its_store_is_taken_away() {
    let host = Host::new();
    let script = r#"
        mount -t tmpfs -o mode=700 none "$FOLDER/store" || exit 9
        "$0" "$@" &
        read line
        umount -l "$FOLDER/store"
        wait $!"#;
    let args = ["run", "--name", "a", "--ttl", "3s", "jobs/x", "--shell", "--", crate::host::LONELY];
    let options = ["--user", "--map-root-user", "--mount", "sh", "-c", script];
    let mut run = Process::start(host.by_way_of("unshare", &options, args));
    host.until_logged("start 1 a");
    drop(run.stdin.take());
    run.until_said("stopping the command: the session expired");
    // Everything that the command has started holds it.
    eventually("nobody holds the lock", || {
        let free = Command::new("flock").arg("-n").arg(host.path("lock")).arg("true").status();
        free.unwrap().success().then_some(())
    });
}

/// As in a container whose image was made while somebody led: what lies in a lower layer cannot be
/// moved away.
#[test]
fn a_dead_leader_in_the_lower_layer_of_an_overlay_is_told_and_keeps_no_other_election() {
    let host = Host::new();
    let script = r#"
        mkdir "$FOLDER/upper" "$FOLDER/work" "$FOLDER/all"
        layers="lowerdir=$FOLDER/store,upperdir=$FOLDER/upper,workdir=$FOLDER/work,userxattr"
        mount -t overlay -o "$layers" none "$FOLDER/all" || exit 9
        for election in jobs/y jobs/x; do
            "$0" --store "file://$FOLDER/all" run --wait 2s "$election" -- echo "$election"; echo "$?"
        done"#;
    let mut leader = host.start(["campaign", "jobs/x", "--name", "a"]);
    host.until_in_line("jobs/x", &["a"]);
    leader.signal(Signal::KILL);
    leader.status();
    let options = ["60", "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script];
    let said = finish(host.by_way_of("timeout", &options, [""; 0]));
    assert_eq!(said.out, "jobs/y\n0\n125\n", "{said:?}");
    assert!(said.err.contains("part of a lower layer of an overlay file system"), "{said:?}");
}

/// Nobody is replaced for silence there: what was stopped for longer than its TTL goes on.
#[test]
fn on_a_directory_that_replaces_nobody_a_leader_that_was_stopped_keeps_its_command() {
    let host = Host::new();
    let store = format!("{}?ttl=none", host.store());
    let lonely = |name: &str| {
        let args = ["--store", &store, "run", "--name", name, "--ttl", "1s", "jobs/x", "--shell", "--"];
        host.start(args.into_iter().chain([crate::host::LONELY]))
    };
    let leader = lonely("a");
    host.until_logged("start 1 a");
    let _next = lonely("b");
    host.until_in_line("jobs/x", &["a", "b"]);
    leader.signal(Signal::STOP);
    // What is shown here is that nothing happens in this time.
    thread::sleep(Duration::from_secs(3));
    leader.signal(Signal::CONT);
    host.ok(["status", "jobs/x"]);
    assert_eq!(host.log(), ["start 1 a"]);
    // It is heard as before.
    host.ok(["--store", &store, "resign", "jobs/x"]);
    host.until_logged("stop 1 a");
    host.until_logged("start 2 b");
}

#[cfg(feature = "zookeeper")]
#[test]
fn with_wait_a_server_that_does_not_answer_exits_with_125_and_not_122() {
    let host = Host::new();
    // It takes connections, as the kernel does for it, and says nothing.
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("zk://{}", server.local_addr().unwrap());
    let said = host.run(["--store", store.as_str(), "run", "--wait", "2s", "jobs/x", "--", "echo", "ran"]);
    assert_eq!((said.code, said.out.as_str()), (Some(125), ""), "{said:?}");
    assert!(said.err.contains("the store has not answered in time: "), "{said:?}");
}
