//! `metrics`: the state of elections in the text format of Prometheus, for a textfile collector.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

use incumbent::{
    CandidateInfo, Client, ElectionName, GroupStatus, ReadError, Reading, Servers, Status, StoreError, Unfenced,
};

use super::list::{Row, current, first_failure, followers, is_silent, read_all};
use super::watching_client;
use crate::args::MetricsArgs;
use crate::failure::{Code, Failure};
use crate::output::{cannot_write, said};
use crate::store_url::StoreUrl;
use crate::whole_file::replace;

/// What to do for those who do not want a file.
const TO_PRINT: &str = "leave --output out to print";

/// A figure of an election, if it has it.
type Figure = fn(&Reading<Status>) -> Option<f64>;

/// What is said of each election: a name, a kind, what it means, and the figure.
const FIGURES: [(&str, &str, &str, Figure); 16] = [
    ("vacant", "gauge", "Whether nobody leads.", |reading| truth(reading.get().vacant)),
    ("leader_token", "gauge", "The fencing token of the leader; a change of it is a change of office.", |reading| {
        reading.get().leader()?.token.map(|token| token.get() as f64)
    }),
    ("followers", "gauge", "How many wait behind the leader.", |reading| Some(followers(reading.get()) as f64)),
    ("paused", "gauge", "Whether an operator has paused it.", |reading| truth(reading.get().paused.is_some())),
    ("frozen", "gauge", "Whether an operator has frozen it.", |reading| truth(reading.get().frozen.is_some())),
    ("benched", "gauge", "How many names operators keep out of the line.", |reading| {
        Some(reading.get().benched.iter().len() as f64)
    }),
    ("held_back", "gauge", "Whether health has moved it too often, and waits for an operator.", |reading| {
        truth(reading.get().held_back.is_some())
    }),
    ("ended", "gauge", "Whether it was ended a while ago.", |reading| truth(reading.get().ended)),
    ("handover", "gauge", "Whether the leader is asked to hand over.", |reading| {
        truth(reading.get().handover.is_some())
    }),
    ("leader_silent_seconds", "gauge", "For how long nothing was heard of the leader, with a directory.", |reading| {
        reading.get().silence.map(|silence| silence.lasts.as_secs_f64())
    }),
    ("leader_ttl_seconds", "gauge", "After how long a silence the leader is replaced, with a directory.", |reading| {
        reading.get().silence.map(|silence| silence.ttl.as_secs_f64())
    }),
    ("read_age_seconds", "gauge", "How old the answer of the store was.", |reading| Some(reading.age().as_secs_f64())),
    ("members", "gauge", "How many members the group has, or servers a Redlock.", |reading| {
        member(reading, |group| group.members).or_else(|| server(reading, |servers| servers.count))
    }),
    ("members_answering", "gauge", "How many of them answer.", |reading| {
        member(reading, |group| group.answering).or_else(|| server(reading, Servers::answering))
    }),
    ("members_needed", "gauge", "How many of them a leader needs.", |reading| {
        member(reading, |group| group.needed).or_else(|| server(reading, |servers| servers.needed))
    }),
    ("members_without_vote", "gauge", "How many members answer and do not vote.", |reading| {
        member(reading, |group| group.not_voting.len())
    }),
];

fn truth(holds: bool) -> Option<f64> {
    Some(f64::from(u8::from(holds)))
}

fn member(reading: &Reading<Status>, count: fn(&GroupStatus) -> usize) -> Option<f64> {
    reading.get().group.as_ref().map(|group| count(group) as f64)
}

fn server(reading: &Reading<Status>, count: fn(&Servers) -> usize) -> Option<f64> {
    reading.get().servers.as_ref().map(|servers| count(servers) as f64)
}

/// A store that cannot be read is a figure, too: alerts are made of the file, not of exit codes.
pub(crate) async fn metrics(args: MetricsArgs, store: StoreUrl) -> Result<u8, Failure> {
    if args.output.as_deref() == Some(Path::new("-")) {
        return Err(Failure::usage("--output - names no file").next(TO_PRINT));
    }
    let read = async {
        let client = watching_client(&store).await?;
        let rows = read_all(&client, meant(&args, &client).await?).await?;
        Ok::<_, Failure>(if args.elections.is_empty() { current(rows) } else { rows })
    };
    let (rows, failed) = match read.await {
        Ok(rows) => (rows, None),
        // The command line is wrong, and stays so.
        Err(failure) if failure.code == Code::Usage => return Err(failure),
        Err(failure) => (Vec::new(), Some(failure)),
    };
    let text = page(&store, &rows, failed.is_none() && !is_silent(&rows));
    match &args.output {
        None => said(io::stdout().lock().write_all(text.as_bytes()).map_err(cannot_write))?,
        Some(file) => replace(file, &text).map_err(|error| cannot_replace(file, &error))?,
    }
    match failed {
        None => first_failure(rows),
        Some(failure) => Err(failure),
    }
}

/// The elections that were named, each once, or all that the store knows.
async fn meant(args: &MetricsArgs, client: &Client<Unfenced>) -> Result<Vec<ElectionName>, Failure> {
    if !args.elections.is_empty() {
        let once: BTreeSet<_> = args.elections.iter().cloned().collect();
        return Ok(once.into_iter().collect());
    }
    client.elections().await.map_err(|error| match error {
        // Nothing is wrong with the store.
        ReadError::Store(StoreError::Unsupported { .. }) => {
            Failure::usage(error.to_string()).next("say `incumbent metrics ELECTION...`")
        }
        error => error.into(),
    })
}

fn cannot_replace(file: &Path, error: &io::Error) -> Failure {
    let failure = Failure::error(format!("cannot write {}: {error}", file.display()));
    if error.kind() == io::ErrorKind::InvalidInput { failure.next(TO_PRINT) } else { failure }
}

fn page(store: &StoreUrl, rows: &[Row], readable: bool) -> String {
    // Elections of one name, on two stores, are two.
    let mut text = Text { store: store.to_string(), text: String::new() };
    text.head("up", "gauge", "Whether the store could be read.");
    text.line("up", &[], f64::from(u8::from(readable)));
    text.head("readable", "gauge", "Whether the election could be read.");
    for (name, reading) in rows {
        text.line("readable", &[("election", name.as_str())], f64::from(u8::from(reading.is_ok())));
    }
    for (figure, kind, meaning, value) in FIGURES {
        if figure == "followers" && !store.keeps_line() {
            continue;
        }
        let values = rows.iter().filter_map(|(name, reading)| Some((name, value(reading.as_ref().ok()?)?)));
        let values: Vec<(&ElectionName, f64)> = values.collect();
        if !values.is_empty() {
            text.head(figure, kind, meaning);
        }
        for (name, value) in values {
            text.line(figure, &[("election", name.as_str())], value);
        }
    }
    let leaders = rows.iter().filter_map(|(name, reading)| Some((name, reading.as_ref().ok()?.get().leader()?)));
    let leaders: Vec<(&ElectionName, &CandidateInfo)> = leaders.collect();
    if !leaders.is_empty() {
        text.head("leader_info", "gauge", "Who leads.");
    }
    for (name, leader) in leaders {
        let called = leader.name.as_deref().unwrap_or_default();
        text.line("leader_info", &[("election", name.as_str()), ("name", called)], 1.0);
    }
    text.text
}

/// The format: see <https://prometheus.io/docs/instrumenting/exposition_formats/>.
struct Text {
    store: String,
    text: String,
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, meaning: &str) {
        // Writing to a string does not fail.
        let _ = write!(self.text, "# HELP incumbent_{name} {meaning}\n# TYPE incumbent_{name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels = [("store", self.store.as_str())].into_iter().chain(labels.iter().copied());
        let labels: Vec<_> = labels.map(|(label, text)| format!("{label}=\"{}\"", escaped(text))).collect();
        let _ = writeln!(self.text, "incumbent_{name}{{{}}} {value}", labels.join(","));
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, labels: &[(&str, &str)], value: f64) -> String {
        let mut text = Text { store: "s".to_owned(), text: String::new() };
        text.line(name, labels, value);
        text.text
    }

    #[test]
    fn a_label_cannot_break_out_of_its_quotes() {
        assert_eq!(line("x", &[("name", "a\"} 1\n\\")], 7.0), "incumbent_x{store=\"s\",name=\"a\\\"} 1\\n\\\\\"} 7\n");
    }

    #[test]
    fn a_token_keeps_all_its_digits() {
        let said = line("leader_token", &[], 9_007_199_254_740_991_u64 as f64);
        assert_eq!(said, "incumbent_leader_token{store=\"s\"} 9007199254740991\n");
    }
}
