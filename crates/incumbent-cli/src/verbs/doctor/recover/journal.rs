//! The journal of a recovery: what is about to be done and what was done, a line each, on disk
//! before anything else happens. Who goes on with a recovery knows no more than what stands here.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use incumbent::store::{make_dir_durably, wall_clock_ms};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::json::VERSION;

/// The file in the recovery's directory.
const FILE: &str = "journal.jsonl";
/// Far more than a recovery of a thousand hosts writes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// What stands there for a host that a person has looked at, since it does not answer.
pub(super) const OFF: &str = "typed: off";

/// The steps of a recovery, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Evidence,
    Stop,
    Compare,
    Reconcile,
    Counter,
    Elect,
    Resume,
}

impl Step {
    const ALL: [Step; 7] =
        [Step::Evidence, Step::Stop, Step::Compare, Step::Reconcile, Step::Counter, Step::Elect, Step::Resume];

    pub(super) fn next(self) -> Option<Step> {
        Step::ALL.get(self as usize + 1).copied()
    }
}

/// `3 reconcile`
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Step::Evidence => "evidence",
            Step::Stop => "stop",
            Step::Compare => "compare",
            Step::Reconcile => "reconcile",
            Step::Counter => "counter",
            Step::Elect => "elect",
            Step::Resume => "resume",
        };
        write!(f, "{} {word}", *self as u8)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// It is about to be done: if nothing follows, nobody knows whether it was.
    Intent,
    Done,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    v: u32,
    id: String,
    seq: u64,
    pub(super) step: Step,
    pub(super) phase: Phase,
    at_ms: u64,
    by: String,
    #[serde(flatten)]
    pub(super) details: Details,
}

/// What a line says beyond that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) election: Option<String>,
    /// The identity of the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<String>,
    /// A part of the step: the host, or the fence, that it is about. Nothing: the whole step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<String>,
    /// The host whose data is kept; in the step that elects, the candidate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) survivor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<u64>,
    /// The store may be older than it was, or another one than before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) older: bool,
    /// What was found of each host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) hosts: BTreeMap<String, String>,
}

/// What lines are written to. Once it returns well, the line is there to stay.
pub(super) trait Storage {
    fn append(&mut self, line: &[u8]) -> io::Result<()>;
}

/// A file on which one process writes at a time.
pub(super) struct LockedFile(File);

impl LockedFile {
    /// `None` if another process has it.
    fn lock(file: File) -> Option<LockedFile> {
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok().map(|()| LockedFile(file))
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // Closing would do, but for a child that was forked a moment ago and has not yet closed its
        // copy. Nothing can be done if it fails: closing follows.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Storage for LockedFile {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.0.write_all(line)?;
        self.0.sync_data()
    }
}

pub(super) struct Journal<S> {
    storage: S,
    id: String,
    by: String,
    lines: Vec<Line>,
}

impl Journal<LockedFile> {
    /// The journal in this directory. Nobody else writes on it as long as this one lasts.
    pub(super) fn open(directory: &Path, id: &str, by: &str, is_new: bool) -> Result<Journal<LockedFile>, Failure> {
        let path = directory.join(FILE);
        let failed = |error: io::Error| Failure::system(format!("the journal {}", path.display()), &error);
        if is_new {
            make_dir_durably(directory).map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create_new(is_new).mode(0o600).open(&path).map_err(failed)?;
        let Some(locked) = LockedFile::lock(file) else {
            return Err(Failure::error(format!("another process writes on {}", path.display())));
        };
        let mut file = &locked.0;
        let mut bytes = Vec::new();
        (&mut file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        let (lines, whole) = read(&bytes, id).map_err(|why| {
            Failure::error(format!("the journal {}: {why}", path.display()))
                .next("nothing was changed; look at it first")
        })?;
        if whole < bytes.len() {
            file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        // Its name, too, is there to stay.
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok(Journal { storage: locked, id: id.to_owned(), by: by.to_owned(), lines })
    }
}

impl<S: Storage> Journal<S> {
    #[cfg(test)]
    pub(super) fn on(storage: S, written: &[u8], id: &str) -> Journal<S> {
        let (lines, _) = read(written, id).unwrap_or_else(|why| panic!("{why}"));
        Journal { storage, id: id.to_owned(), by: "ada@ops1".to_owned(), lines }
    }

    pub(super) fn last(&self) -> Option<&Line> {
        self.lines.last()
    }

    pub(super) fn intent(&mut self, step: Step, details: Details) -> Result<(), Failure> {
        self.write(step, Phase::Intent, details)
    }

    pub(super) fn done(&mut self, step: Step, details: Details) -> Result<(), Failure> {
        self.write(step, Phase::Done, details)
    }

    fn write(&mut self, step: Step, phase: Phase, details: Details) -> Result<(), Failure> {
        let (id, by, seq) = (self.id.clone(), self.by.clone(), self.lines.len() as u64 + 1);
        let line = Line { v: VERSION, id, seq, step, phase, at_ms: wall_clock_ms(), by, details };
        let failed =
            |error: &(dyn std::error::Error + 'static)| Failure::system("the journal cannot be written", error);
        let mut text = serde_json::to_vec(&line).map_err(|error| failed(&error))?;
        text.push(b'\n');
        self.storage.append(&text).map_err(|error| failed(&error))?;
        self.lines.push(line);
        Ok(())
    }

    /// The store and the election that it is about.
    pub(super) fn about(&self) -> Option<(&str, &str)> {
        self.lines.iter().find_map(|line| line.details.store.as_deref().zip(line.details.election.as_deref()))
    }

    /// Whether its store may be older than it was.
    pub(super) fn is_older(&self) -> bool {
        self.lines.iter().any(|line| line.details.older)
    }

    /// What was found of each host when everything was last stopped.
    pub(super) fn hosts(&self) -> BTreeMap<String, String> {
        let mut lines = self.lines.iter().rev();
        let stopped = lines.find(|line| line.step == Step::Stop && line.phase == Phase::Done);
        stopped.map(|line| line.details.hosts.clone()).unwrap_or_default()
    }

    /// Whether it was ever begun to reconcile this host.
    pub(super) fn has_begun(&self, host: &str) -> bool {
        self.lines.iter().any(|line| line.step == Step::Reconcile && line.details.of.as_deref() == Some(host))
    }

    /// Whether this host was reconciled with this survivor since everything was last stopped.
    pub(super) fn is_reconciled(&self, host: &str, survivor: &str) -> bool {
        let since = self.lines.iter().rposition(|line| line.step == Step::Stop).unwrap_or(0);
        let is_it = |line: &Line| {
            let details = (line.details.of.as_deref(), line.details.survivor.as_deref());
            line.step == Step::Reconcile && line.phase == Phase::Done && details == (Some(host), Some(survivor))
        };
        self.lines[since..].iter().any(is_it)
    }
}

/// The lines, and how many bytes of it they are: the last one may be torn, and was never relied on.
fn read(bytes: &[u8], id: &str) -> Result<(Vec<Line>, usize), String> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut lines = Vec::new();
    for (at, text) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
        let seq = at as u64 + 1;
        let line: Line = serde_json::from_slice(text).map_err(|error| format!("line {seq}: {error}"))?;
        if line.v != VERSION || line.id != id || line.seq != seq {
            return Err(format!("line {seq} is of another journal, of another version, or not the next one"));
        }
        lines.push(line);
    }
    Ok((lines, whole))
}

#[cfg(test)]
mod tests {
    use incumbent_testkit::TempDir;
    use incumbent_testkit::fuzz::{Rng, fuzz};

    use super::*;

    fn details(of: &str) -> Details {
        Details { of: Some(of.to_owned()), ..Details::default() }
    }

    #[test]
    fn what_was_written_is_read_again_and_a_torn_last_line_is_dropped() {
        let folder = TempDir::new("journal");
        let directory = folder.path().join("recovery-7f3a");
        let mut journal = Journal::open(&directory, "7f3a", "ada@ops1", true).unwrap();
        journal.intent(Step::Stop, details("db1")).unwrap();
        journal.done(Step::Stop, details("db1")).unwrap();
        let written = journal.lines.clone();
        assert!(Journal::open(&directory, "7f3a", "ada@ops1", false).is_err(), "one at a time");
        // As a child has that was forked a moment ago.
        let _copy = journal.storage.0.try_clone().unwrap();
        drop(journal);
        assert!(Journal::open(&directory, "7f3a", "ada@ops1", true).is_err(), "it is there already");
        assert!(Journal::open(&directory, "1234", "ada@ops1", false).is_err(), "of another recovery");
        let path = directory.join(FILE);
        let whole = std::fs::read(&path).unwrap();
        let torn = whole.iter().position(|byte| *byte == b'\n').unwrap() + 20;
        std::fs::write(&path, &whole[..torn]).unwrap();
        let mut journal = Journal::open(&directory, "7f3a", "ada@ops1", false).unwrap();
        assert_eq!(journal.lines, written[..1]);
        journal.done(Step::Stop, details("db1")).unwrap();
        drop(journal);
        let journal = Journal::open(&directory, "7f3a", "ada@ops1", false).unwrap();
        assert_eq!(journal.lines.len(), 2, "what was torn is not in the way of what comes next");
    }

    #[test]
    fn fuzz_a_journal_is_read_from_its_first_line_on_or_not_at_all() {
        let good = |rng: &mut Rng| {
            let mut bytes = Vec::new();
            for seq in 1..=1 + rng.below(3) {
                let step = Step::ALL[rng.below(7) as usize];
                let phase = if rng.below(2) == 0 { Phase::Intent } else { Phase::Done };
                let (id, by, details) = ("7f3a".to_owned(), "ada@ops1".to_owned(), details("db1"));
                let line = Line { v: VERSION, id, seq, step, phase, at_ms: rng.next_u64(), by, details };
                bytes.extend(serde_json::to_vec(&line).unwrap());
                bytes.push(b'\n');
            }
            bytes
        };
        fuzz(good, |bytes| {
            let Ok((lines, whole)) = read(bytes, "7f3a") else { return false };
            let numbers: Vec<_> = lines.iter().map(|line| line.seq).collect();
            assert_eq!(numbers, (1..=lines.len() as u64).collect::<Vec<_>>());
            assert!(whole <= bytes.len() && !bytes[whole..].contains(&b'\n'), "a torn line alone is left out");
            !lines.is_empty()
        });
    }

    #[test]
    fn a_journal_that_is_damaged_before_its_last_line_is_not_guessed_at() {
        let mut storage: Vec<u8> = Vec::new();
        for seq in 1..=3 {
            let (id, by) = ("7f3a".to_owned(), String::new());
            let (step, phase) = (Step::Stop, Phase::Intent);
            let line = Line { v: VERSION, id, seq, step, phase, at_ms: 0, by, details: Details::default() };
            storage.extend(serde_json::to_vec(&line).unwrap());
            storage.push(b'\n');
        }
        assert_eq!(read(&storage, "7f3a").unwrap().0.len(), 3);
        let text = String::from_utf8(storage).unwrap();
        for bad in [text.replacen("stop", "stpo", 1), text.replace("\"seq\":2", "\"seq\":4"), format!("x\n{text}")] {
            assert!(read(bad.as_bytes(), "7f3a").is_err(), "{bad}");
        }
    }
}
