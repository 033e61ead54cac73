//! What is refused before anything happens, where the store comes from, and what is printed for
//! shells and manuals.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::host::{Host, Said, finish};

/// What a URL of a store can begin with, and whether this build knows it.
const SCHEMES: [(&str, bool); 10] = [
    ("file", true),
    ("memory", true),
    ("etcd", cfg!(feature = "etcd")),
    ("zk", cfg!(feature = "zookeeper")),
    ("redis", cfg!(feature = "redis")),
    ("redlock", cfg!(feature = "redis")),
    ("postgres", cfg!(feature = "postgres")),
    ("consensus", true),
    ("bully", true),
    ("ring", true),
];

const VERBS: [&str; 30] = [
    "run",
    "campaign",
    "leader",
    "candidates",
    "observe",
    "status",
    "history",
    "list",
    "check",
    "metrics",
    "claims",
    "doctor",
    "transfer",
    "resign",
    "depose",
    "fenced",
    "pause",
    "resume",
    "freeze",
    "unfreeze",
    "bench",
    "unbench",
    "ack",
    "end",
    "peers",
    "explain",
    "schema",
    "demo",
    "completions",
    "man",
];

/// Without a store in the environment, and with a state folder of its own.
fn without_store(host: &Host, args: &[&str]) -> Command {
    let mut command = host.command(args);
    command.env_remove("INCUMBENT_STORE").env("XDG_STATE_HOME", host.path("state"));
    command
}

fn assert_usage(said: &Said, words: &[&str]) {
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(said.out, "", "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "{word:?} is missing: {said:?}");
    }
}

/// What a message says for which there is a runbook. A finding names its own, `status` adds it to
/// the page, and the help of a verb is no message.
const AT_NIGHT: [&str; 6] = [
    "operator has reset",
    "--i-have-checked",
    "--take-over",
    "incumbent doctor",
    "incumbent depose",
    "history shows the term as open",
];
const WITH_THEIR_OWN: [&str; 3] = ["verbs/doctor/judge.rs", "verbs/status.rs", "src/args/"];
/// A part of several messages.
const PART: &str = "incumbent fenced {election} --token {token} --i-have-checked";

/// A message that is read at night leads to a page.
#[test]
fn every_message_that_has_a_runbook_names_it_and_every_runbook_that_is_named_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/runbooks.md")).unwrap();
    let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
    let anchors: Vec<String> = headings.map(|title| title.to_lowercase().replace(' ', "-")).collect();
    let (mut named, mut at_night) = (0, 0);
    for (path, text) in sources(&[root.join("src"), root.join("../incumbent/src")]) {
        for start in ["runbooks.md#", "runbook: \""] {
            for rest in text.split(start).skip(1) {
                let is_in_it = |letter: char| letter.is_ascii_lowercase() || letter == '-';
                let anchor: String = rest.chars().take_while(|letter| is_in_it(*letter)).collect();
                named += usize::from(!anchor.is_empty());
                assert!(anchor.is_empty() || anchors.contains(&anchor), "{anchor:?} in {path}");
            }
        }
        if WITH_THEIR_OWN.iter().any(|place| path.contains(place)) {
            continue;
        }
        for message in strings(&text).filter(|message| AT_NIGHT.iter().any(|words| message.contains(words))) {
            at_night += usize::from(message != PART);
            assert!(message == PART || message.contains("docs/runbooks.md#"), "{message:?} in {path}");
        }
    }
    assert!(named > 15 && at_night > 5, "{named} {at_night}");
}

/// The code in these folders, without comments and without its tests.
fn sources(folders: &[PathBuf]) -> Vec<(String, String)> {
    let (mut folders, mut sources) = (folders.to_vec(), Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            sources.push((path.display().to_string(), lines.collect::<Vec<_>>().join("\n")));
        }
    }
    sources
}

/// What stands between double quotes, with lines that go on joined.
fn strings(code: &str) -> impl Iterator<Item = String> {
    let mut lines = code.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let joined = lines.fold(first, |joined, line| joined + line.trim_start());
    // Quotes that are a part of it, or a character.
    let plain = joined.replace("\\\"", "'").replace("'\"'", "' '");
    plain.split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

#[test]
fn a_bad_election_name_exits_with_2_and_says_why() {
    let host = Host::new();
    let long = "x".repeat(256);
    for (name, why) in [
        ("", "empty"),
        ("/a", "empty segment"),
        ("a/", "empty segment"),
        ("a//b", "empty segment"),
        ("a/../b", "dots"),
        ("a\tb", "control character"),
        (long.as_str(), "256 bytes"),
    ] {
        assert_usage(&host.run(["leader", name]), &[why]);
        assert_usage(&host.run(["run", name, "--", "true"]), &[why]);
        assert_usage(&host.run(["pause", name]), &[why]);
    }
}

#[test]
fn a_bad_candidate_name_exits_with_2() {
    let host = Host::new();
    assert_usage(&host.run(["run", "--name", "a\nb", "jobs/x", "--", "true"]), &["control character"]);
    assert_usage(&host.run(["campaign", "--name", "", "jobs/x"]), &["empty"]);
}

#[test]
fn an_unknown_scheme_exits_with_2_and_is_named_with_those_that_are_known() {
    let host = Host::new();
    for verb in [&["leader", "jobs/x"][..], &["run", "jobs/x", "--", "true"], &["explain"]] {
        let said = host.run(["--store", "carrierpigeon://loft"].iter().chain(verb));
        assert_usage(&said, &["\"carrierpigeon\""]);
        let known = said.err.split_once("this build knows ").expect("it names them").1;
        let known: Vec<&str> = known.split(';').next().into_iter().flat_map(|known| known.split(", ")).collect();
        for (scheme, is_built) in SCHEMES {
            assert_eq!(known.contains(&scheme), is_built, "{scheme}: {said:?}");
        }
    }
    assert_usage(&host.run(["--store", "nonsense", "leader", "jobs/x"]), &["scheme"]);
    assert_usage(&host.run(["--store", "file://relative/path", "leader", "jobs/x"]), &["absolute"]);
    assert_usage(&host.run(["--store", "file:///x?ttl=maybe", "leader", "jobs/x"]), &["ttl=none"]);
}

#[test]
fn times_that_cannot_be_safe_exit_with_2_and_show_the_arithmetic() {
    let host = Host::new();
    let said = host.run(["run", "--ttl", "15s", "--grace", "10s", "jobs/x", "--", "true"]);
    assert_usage(&said, &["15s", "10s", "raise the TTL"]);
    assert_usage(&host.run(["run", "--ttl", "15x", "jobs/x", "--", "true"]), &["15s, 250ms or 1m30s"]);
}

#[test]
fn a_number_alone_is_seconds_and_times_without_measure_are_refused_with_a_sentence() {
    let host = Host::new();
    let json = host.ok(["explain", "--ttl", "30", "--json"]).json();
    assert_eq!(json["ttl_ms"], 30_000);
    host.ok(["run", "--wait", "50", "jobs/x", "--", "true"]);
    assert_usage(&host.run(["run", "--wait", "0", "jobs/x", "--", "true"]), &["--try"]);
    for option in ["--ttl", "--grace", "--wait"] {
        for time in ["36525d", "99999999999999999999"] {
            assert_usage(&host.run(["run", option, time, "jobs/x", "--", "true"]), &["a year is the maximum"]);
        }
    }
    assert_usage(&host.run(["pause", "--timeout", "36525d", "jobs/x"]), &["a year is the maximum"]);
    assert_usage(&host.run(["run", "--ttl", "1ms", "jobs/x", "--", "true"]), &["at least 200ms"]);
    // The longest of all is taken as it is.
    host.ok(["run", "--ttl", "365d", "--wait", "365d", "jobs/x", "--", "true"]);
    host.ok(["end", "--timeout", "365d", "jobs/x"]);
}

#[test]
fn a_negative_time_is_refused_with_a_sentence() {
    let host = Host::new();
    for option in ["--ttl", "--grace", "--wait"] {
        assert_usage(&host.run(["run", option, "-1s", "jobs/x", "--", "true"]), &["a time cannot be negative"]);
    }
    assert_usage(&host.run(["pause", "--timeout", "-5", "jobs/x"]), &["a time cannot be negative"]);
}

#[test]
fn what_was_typed_wrongly_cannot_move_the_cursor_when_it_is_shown_again() {
    let host = Host::new();
    let bad = "\x1b[2J\u{202e}x";
    for args in [
        &[bad][..],
        &["run", "jobs/x", bad],
        &["run", "--ttl", bad, "jobs/x", "--", "true"],
        &["run", "--name", bad, "jobs/x", "--", "true"],
        &["leader", bad],
        &["leader", "--nonsense\x1b[2J\u{202e}", "jobs/x"],
        &["lock", "jobs/x", bad],
        &["depose", "--token", bad, "jobs/x"],
        &["completions", bad],
        &["man", bad],
        &["--store", bad, "leader", "jobs/x"],
        &["--store-file", bad, "leader", "jobs/x"],
    ] {
        let said = host.run(args);
        assert!(!said.err.contains(['\x1b', '\u{202e}']), "{said:?}");
        assert_usage(&said, &[]);
    }
}

#[test]
fn what_was_probably_meant_is_shown() {
    let host = Host::new();
    assert_usage(&host.run(["rnu", "jobs/x", "--", "true"]), &["'run'"]);
    assert_usage(&host.run(["run", "jobs/x", "ls", "-l"]), &["incumbent run jobs/x -- ls -l"]);
    let said = host.run(["run", "--store", "etcd://u:hunter2@h", "jobs/x", "ls"]);
    assert_usage(&said, &["incumbent run", "jobs/x -- ls"]);
    assert!(!said.err.contains("hunter2"), "{said:?}");
    let said = host.run(["version"]);
    assert_usage(&said, &["tip: this is 'incumbent --version'"]);
    assert!(!said.err.contains("resign"), "{said:?}");
    assert_usage(&host.run(["lock", "jobs/x", "ls"]), &["tip: this is 'incumbent run jobs/x -- ls'"]);
}

#[test]
fn a_symbolic_link_is_refused_with_the_directory_that_it_leads_to() {
    let host = Host::new();
    let link = host.path("link");
    let store = format!("file://{}", link.display());
    std::os::unix::fs::symlink(host.path("store"), &link).unwrap();
    let target = host.path("store").canonicalize().unwrap();
    let said = host.run(["--store", &store, "run", "jobs/x", "--", "true"]);
    assert_usage(&said, &["is a symbolic link", &format!("name the directory itself, {}", target.display())]);
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
    assert_usage(
        &host.run(["--store", &store, "run", "jobs/x", "--", "true"]),
        &["a symbolic link that leads nowhere"],
    );
}

#[test]
fn help_is_a_verb_too() {
    let host = Host::new();
    assert_eq!(host.ok(["help"]).out, host.ok(["--help"]).out);
    assert_eq!(host.ok(["help", "run"]).out, host.ok(["run", "--help"]).out);
}

#[test]
fn what_contradicts_itself_or_is_incomplete_exits_with_2() {
    let host = Host::new();
    for args in [
        &["run", "jobs/x"][..],
        &["run", "--try", "--wait", "1s", "jobs/x", "--", "true"],
        &["transfer", "jobs/x"],
        &["depose", "jobs/x", "--token", "0"],
        &["depose", "jobs/x", "--token", "seven"],
        &["completions", "tcl"],
        &["man", "nonsense"],
        &["nonsense"],
        &[],
        &["--store", "memory://a", "--store-file", "b", "leader", "jobs/x"],
    ] {
        assert_eq!(host.run(args).code, Some(2), "{args:?}");
    }
}

#[test]
fn help_teaches_with_examples_and_exit_codes() {
    let host = Host::new();
    let said = host.ok(["--help"]);
    let stores = SCHEMES.map(|(scheme, _)| format!("{scheme}://"));
    let words = ["Examples:", "Exit codes:", "INCUMBENT_STORE", "incumbent demo"];
    for words in words.into_iter().chain(stores.iter().map(String::as_str)) {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    // What is not built in is said to be so, and where it comes from.
    let built = [("etcd", cfg!(feature = "etcd")), ("zookeeper", cfg!(feature = "zookeeper"))];
    for (feature, is_built) in built {
        let missing = format!("not in this build: cargo feature `{feature}`");
        assert_eq!(said.out.contains(&missing), !is_built, "{feature}: {}", said.out);
    }
    let run = host.ok(["run", "--help"]).out;
    for words in ["Examples:", "120", "121", "122", "125", "126", "127", "INCUMBENT_TOKEN"] {
        assert!(run.contains(words), "{words}: {run}");
    }
    for verb in VERBS {
        assert!(said.out.contains(&format!("\n  {verb} ")), "{verb}: {}", said.out);
        assert!(host.ok([verb, "--help"]).out.contains("Usage: incumbent "), "{verb}");
    }
}

#[test]
fn without_a_name_the_store_is_the_users_own_and_is_named_at_start() {
    let host = Host::new();
    let said = finish(without_store(&host, &["run", "jobs/x", "--", "true"]));
    assert_eq!(said.code, Some(0), "{said:?}");
    let store = host.path("state/incumbent");
    assert!(said.err.contains(&format!("file://{}", store.display())), "{said:?}");
    assert_eq!(store.metadata().unwrap().permissions().mode() & 0o777, 0o700);

    let mut home = without_store(&host, &["run", "jobs/x", "--", "true"]);
    home.env_remove("XDG_STATE_HOME").env("HOME", host.path("home"));
    let said = finish(home);
    assert!(said.err.contains("/home/.local/state/incumbent"), "{said:?}");

    // Now there are two. A verb that changes something says so; one that only reads does not.
    let mut two = without_store(&host, &["pause", "jobs/x"]);
    let said = finish({
        two.env("HOME", host.path("home"));
        two
    });
    assert!(said.err.contains("XDG_STATE_HOME is set here, but"), "{said:?}");
    for verb in ["leader", "status", "candidates"] {
        let mut reading = without_store(&host, &[verb, "jobs/x"]);
        reading.env("HOME", host.path("home")).env("container", "podman");
        let said = finish(reading);
        assert!(!said.err.contains("no store was named") && !said.err.contains("warning"), "{said:?}");
    }

    let mut nowhere = without_store(&host, &["leader", "jobs/x"]);
    nowhere.env_remove("XDG_STATE_HOME").env_remove("HOME");
    assert_usage(&finish(nowhere), &["--store"]);
}

#[test]
fn in_a_container_the_users_own_store_comes_with_a_warning() {
    let host = Host::new();
    let mut command = without_store(&host, &["run", "jobs/x", "--", "true"]);
    command.env("container", "podman");
    let said = finish(command);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.err.contains("warning") && said.err.contains("on its own disk"), "{said:?}");
}

#[test]
fn in_a_kubernetes_pod_the_users_own_store_is_refused_and_a_named_one_is_not() {
    let host = Host::new();
    let mut command = without_store(&host, &["run", "jobs/x", "--", "true"]);
    command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    assert_usage(&finish(command), &["Kubernetes", "--store"]);
    assert!(!host.path("state").exists());

    let mut named = host.command(["run", "jobs/x", "--", "true"]);
    named.env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    assert_eq!(finish(named).code, Some(0));
}

#[test]
fn the_stores_url_can_come_from_a_file() {
    let host = Host::new();
    let file = host.path("url");
    let file = file.to_str().unwrap();
    fs::write(file, format!("{}\n", host.store())).unwrap();
    let said = finish(without_store(&host, &["--store-file", file, "status", "jobs/x", "--json"]));
    assert_eq!(said.json()["store"], host.store().as_str());

    fs::write(file, "\n").unwrap();
    assert_usage(&host.run(["--store-file", file, "leader", "jobs/x"]), &["first line"]);
    assert_usage(&host.run(["--store-file", "/no/such/file", "leader", "jobs/x"]), &["/no/such/file"]);
}

#[test]
fn a_password_in_a_file_that_others_can_read_is_warned_about() {
    let host = Host::new();
    let file = host.path("url");
    let warned = |url: &str, mode: u32| {
        fs::write(&file, url).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let said = host.run(["--store-file", file.to_str().unwrap(), "leader", "jobs/x"]);
        assert!(!said.err.contains("hunter2"), "{said:?}");
        said.err.contains(&format!("chmod 600 {}", file.display()))
    };
    let secret = "memory://user:hunter2@place";
    assert!(warned(secret, 0o644) && warned(secret, 0o640));
    assert!(!warned(secret, 0o600) && !warned(&host.store(), 0o644));
}

#[test]
fn a_password_shows_up_nowhere() {
    let host = Host::new();
    for url in ["redis://user:hunter2@127.0.0.1:1/0", "hunter3:hunter2@x", "memory://user:hunter2@place?token=hunter2"]
    {
        for verb in [&["status", "jobs/x"][..], &["explain"], &["run", "--try", "jobs/x", "--", "env"]] {
            let said = host.run(["--store", url].iter().chain(verb));
            // The name of the variable may; its value may not.
            assert!(!said.err.contains("hunter2"), "{said:?}");
            assert!(!said.out.contains("hunter2"), "{said:?}");
        }
    }
}

#[test]
fn a_command_sees_the_stores_variable_only_if_it_has_no_password() {
    let host = Host::new();
    let mut secret = host.command(["run", "jobs/x", "--", "env"]);
    secret.env("INCUMBENT_STORE", "memory://user:hunter2@place");
    let said = finish(secret);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.out.contains("INCUMBENT_STORE=") && !said.out.contains("hunter2"), "{said:?}");
    assert!(said.out.contains("INCUMBENT_TOKEN="), "{said:?}");

    let said = host.ok(["run", "jobs/x", "--", "env"]);
    assert!(said.out.contains(&format!("INCUMBENT_STORE={}\n", host.store())), "{said:?}");
}

#[test]
fn a_store_that_cannot_be_used_fails_with_a_sentence() {
    let host = Host::new();
    fs::set_permissions(host.path("store"), fs::Permissions::from_mode(0o777)).unwrap();
    let said = host.run(["leader", "jobs/x"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    assert_eq!(host.run(["run", "jobs/x", "--", "true"]).code, Some(125));
}

#[test]
fn quiet_keeps_standard_error_for_errors() {
    let host = Host::new();
    let said = host.ok(["--quiet", "run", "jobs/x", "--", "true"]);
    assert_eq!(said.err, "");
    let said = host.run(["leader", "-q", "jobs/x"]);
    assert_eq!((said.code, said.err.as_str()), (Some(3), ""));
}

#[test]
fn completions_come_for_every_shell_and_name_every_verb() {
    let host = Host::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = host.ok(["completions", shell]).out;
        for verb in VERBS {
            assert!(script.contains(verb), "{shell} {verb}");
        }
        assert!(!script.contains("demo-worker"), "{shell}");
    }
}

#[test]
fn the_manual_has_a_page_for_each_verb_with_its_exit_codes() {
    let host = Host::new();
    assert!(host.ok(["man"]).out.contains(".TH incumbent 1"));
    let run = host.ok(["man", "run"]).out;
    assert!(run.contains("incumbent\\-run") && run.contains("122"), "{run}");
    let title = format!(r#".TH incumbent-run 1 " " "incumbent {}" "Incumbent Manual""#, env!("CARGO_PKG_VERSION"));
    assert!(run.contains(&title), "{run}");
    // As it has to be typed.
    assert!(run.contains("[OPTIONS] <ELECTION> \\-\\- <COMMAND>..."), "{run}");
    assert!(run.contains("\\fB\\-\\-wait\\fR \\fI<TIME>\\fR"), "{run}");
    let folder = host.path("man");
    host.ok(["man".as_ref(), "--dir".as_ref(), folder.as_os_str()]);
    for verb in VERBS {
        let page = fs::read_to_string(folder.join(format!("incumbent-{verb}.1"))).unwrap();
        for section in ["NAME", "SYNOPSIS", "ENVIRONMENT", "FILES", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
            assert_eq!(page.matches(&format!(".SH {section}\n")).count(), 1, "{verb}: {section}");
        }
        assert!(!page.contains("incumbent\\-help") && !page.contains("EXTRA"), "{verb}");
    }
    for below in ["peers-found", "peers-readmit"] {
        let page = fs::read_to_string(folder.join(format!("incumbent-{below}.1"))).unwrap();
        assert!(page.contains("you assert that"), "{page}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), VERBS.len() + 3);
}

#[test]
fn there_is_no_colour_where_there_is_no_terminal() {
    let host = Host::new();
    for args in
        [&["status", "jobs/x"][..], &["explain"], &["--help"], &["leader", "a//b"], &["run", "jobs/x", "--", "true"]]
    {
        let said = host.run(args);
        assert!(!said.out.contains('\x1b') && !said.err.contains('\x1b'), "{said:?}");
    }
}

#[test]
fn on_a_terminal_there_is_colour_unless_it_is_not_wanted() {
    let host = Host::new();
    let on_terminal = |no_color: &str, term: &str| {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let other_end = OpenOptions::new().write(true).open(ptsname(&terminal, Vec::new()).unwrap().to_str().unwrap());
        let mut command = host.command(["status", "jobs/x"]);
        command.env("NO_COLOR", no_color).env("TERM", term).stdout(other_end.unwrap());
        assert_eq!(command.status().unwrap().code(), Some(3));
        drop(command);
        let mut seen = Vec::new();
        // It ends with an error once the other end is closed.
        let _ = File::from(terminal).read_to_end(&mut seen);
        String::from_utf8(seen).unwrap()
    };
    assert!(on_terminal("", "xterm").contains("\x1b[1mjobs/x\x1b[0m"));
    for (no_color, term) in [("1", "xterm"), ("", "dumb")] {
        let seen = on_terminal(no_color, term);
        assert!(seen.contains("jobs/x") && !seen.contains('\x1b'), "{seen:?}");
    }
}

#[test]
fn a_priority_that_is_none_says_what_one_is() {
    let host = Host::new();
    let said = host.run(["run", "--priority", "abc", "jobs/x", "--", "true"]);
    assert!(said.code == Some(2) && said.err.contains("a whole number, e.g. 10 or -5"), "{said:?}");
}
