//! Command lines that are wrong: what clap says about them, and the line that was probably meant.

use std::env;
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use incumbent::store::url::redacted;

use crate::args::Cli;
use crate::failure::Code;
use crate::output::{printable, shell_word};
use crate::verbs::check::{UNKNOWN, say_unknown};

/// Help and version go to standard output, and are no error.
pub(crate) fn explain(mut error: clap::Error) -> ExitCode {
    let args: Vec<_> = env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let is_check = verb_of(&args) == Some("check");
    make_printable(&mut error, &args);
    suggest(&mut error, args);
    // A stream that was closed needs no message.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        // Those who run it would take any lower number for a state of the election.
        _ if is_check => {
            let why = error.render().to_string();
            // What is missing is named in the lines below; what follows an empty one is advice.
            let why: Vec<_> = why.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
            let why = why.join(" ");
            let _ = say_unknown(why.strip_prefix("error: ").unwrap_or(&why));
            ExitCode::from(UNKNOWN)
        }
        _ => ExitCode::from(Code::Usage as u8),
    }
}

fn suggest(error: &mut clap::Error, args: Vec<String>) {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let typed = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            // What clap finds similar ("resign" for "version") is often further off.
            error.remove(ContextKind::SuggestedSubcommand);
            if let Some(line) = meant_elsewhere(&typed, &args) {
                insert_tip(error, format!("this is '{line}'"));
            } else if let Some(verb) = nearest_verb(&typed) {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(verb));
            }
        }
        ErrorKind::UnknownArgument if verb_of(&args) == Some("list") => {
            insert_tip(error, "to list the candidates of an election: 'incumbent candidates ELECTION'".to_owned());
        }
        ErrorKind::UnknownArgument => {
            if let Some(line) = text(ContextKind::InvalidArg).and_then(|stray| with_dashes(&args, &stray)) {
                insert_tip(error, format!("a command comes after two dashes: '{line}'"));
            }
        }
        _ => {}
    }
}

/// The verb that was typed, behind the options that come before it.
fn verb_of(args: &[String]) -> Option<&str> {
    let mut args = args.iter().map(String::as_str);
    loop {
        match args.next()? {
            "--store" | "--store-file" => drop(args.next()),
            option if option.starts_with('-') => {}
            verb => return Some(verb),
        }
    }
}

/// What was typed is shown again, and must not move the cursor of a terminal.
fn make_printable(error: &mut clap::Error, args: &[String]) {
    if args.iter().all(|arg| printable(arg) == *arg) {
        return;
    }
    // Clap's own tips repeat it between codes for colours.
    error.remove(ContextKind::Suggested);
    let typed = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, ContextValue::String(printable(text)))),
        ContextValue::Strings(texts) => {
            Some((kind, ContextValue::Strings(texts.iter().map(|text| printable(text)).collect())))
        }
        _ => None,
    });
    for (kind, value) in typed.collect::<Vec<_>>() {
        error.insert(kind, value);
    }
}

fn insert_tip(error: &mut clap::Error, tip: String) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(printable(&tip))]));
}

/// Verbs of other commands (`etcdctl`, `consul`, `git`), and what does the same here.
const ELSEWHERE: [(&str, &str); 4] =
    [("version", "--version"), ("lock", "run"), ("elect", "campaign"), ("watch", "observe")];

/// The whole line with the verb that is meant here; only its beginning if the rest is not right
/// either.
fn meant_elsewhere(typed: &str, args: &[String]) -> Option<String> {
    let (_, meant) = ELSEWHERE.into_iter().find(|(elsewhere, _)| *elsewhere == typed)?;
    if meant == "--version" {
        return Some("incumbent --version".to_owned());
    }
    let at = args.iter().position(|arg| arg == typed)?;
    let mut line = args.to_vec();
    line[at] = meant.to_owned();
    if Cli::try_parse_from(["incumbent"].into_iter().chain(line.iter().map(String::as_str))).is_ok() {
        return Some(shown(["incumbent"].into_iter().chain(line.iter().map(String::as_str))));
    }
    let with_command = line.iter().skip(at + 2).find_map(|word| with_dashes(&line, word));
    let usual =
        if meant == "run" { "incumbent run ELECTION -- COMMAND" } else { &format!("incumbent {meant} ELECTION") };
    Some(with_command.unwrap_or_else(|| usual.to_owned()))
}

/// As it can be pasted into a shell, without passwords.
fn shown<'a>(line: impl Iterator<Item = &'a str>) -> String {
    line.map(|word| shell_word(&redacted(word))).collect::<Vec<_>>().join(" ")
}

/// The verb that differs least, if it differs by a slip of the hand or two.
fn nearest_verb(typed: &str) -> Option<String> {
    let command = Cli::command();
    let verbs = command.get_subcommands().map(|verb| (slips(typed, verb.get_name()), verb.get_name().to_owned()));
    verbs.min().filter(|(slips, verb)| *slips <= 2 && *slips < verb.chars().count()).map(|(_, verb)| verb)
}

/// How many letters were left out, added, mistaken, or swapped with their neighbour.
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            table[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let mistaken = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { table[i - 2][j - 2] + 1 } else { usize::MAX };
                mistaken.min(swapped).min(table[i - 1][j] + 1).min(table[i][j - 1] + 1)
            };
        }
    }
    table[a.len()][b.len()]
}

/// The line with two dashes before `stray`, a word that was not expected, if it is right then.
fn with_dashes(args: &[String], stray: &str) -> Option<String> {
    // An option that does not exist is another mistake, and so is a second election before the
    // dashes.
    if stray.starts_with('-') || args.iter().any(|arg| arg == "--") {
        return None;
    }
    let places = args.iter().enumerate().filter(|(_, arg)| *arg == stray).map(|(at, _)| at);
    let mut lines = places.map(|at| {
        let (before, command) = args.split_at(at);
        ["incumbent"]
            .into_iter()
            .chain(before.iter().map(String::as_str))
            .chain(["--"])
            .chain(command.iter().map(String::as_str))
    });
    lines.find(|line| Cli::try_parse_from(line.clone()).is_ok()).map(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_is_recognized() {
        for (typed, meant) in [
            ("rnu", Some("run")),
            ("stauts", Some("status")),
            ("observ", Some("observe")),
            ("lsit", Some("list")),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(nearest_verb(typed).as_deref(), meant, "{typed}");
        }
    }

    #[test]
    fn verbs_of_other_commands_are_shown_as_they_are_called_here() {
        for (line, meant) in [
            ("version", "incumbent --version"),
            ("lock jobs/x ls -l", "incumbent run jobs/x -- ls -l"),
            ("-q lock --try jobs/x -- ls", "incumbent -q run --try jobs/x -- ls"),
            ("lock jobs/x", "incumbent run ELECTION -- COMMAND"),
            ("lock", "incumbent run ELECTION -- COMMAND"),
            ("elect jobs/x", "incumbent campaign jobs/x"),
            ("watch jobs/x --all", "incumbent observe ELECTION"),
        ] {
            let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let typed = args.iter().find(|arg| !arg.starts_with('-')).unwrap();
            assert_eq!(meant_elsewhere(typed, &args).as_deref(), Some(meant), "{line}");
        }
        assert_eq!(meant_elsewhere("nonsense", &["nonsense".to_owned()]), None);
    }

    #[test]
    fn the_dashes_are_put_before_the_command() {
        let line = |line: &str, stray: &str| {
            let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
            with_dashes(&args, stray)
        };
        let meant = |text: &str| Some(text.to_owned());
        assert_eq!(line("run x ls -l", "ls"), meant("incumbent run x -- ls -l"));
        assert_eq!(line("-q run --try jobs/x ./a b", "./a"), meant("incumbent -q run --try jobs/x -- ./a b"));
        assert_eq!(line("run x x", "x"), meant("incumbent run x -- x"));
        assert_eq!(line("run run run", "run"), meant("incumbent run run -- run"));
        let secret = line("--store etcd://u:hunter2@h run x ls", "ls").unwrap();
        assert!(secret.contains("u:***@h") && !secret.contains("hunter2"), "{secret}");
        assert_eq!(line("run x --tyr", "--tyr"), None);
        assert_eq!(line("run x y -- z", "y"), None);
        assert_eq!(line("leader x y", "y"), None);
    }
}
