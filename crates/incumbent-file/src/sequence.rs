//! A sequence: a directory whose entries carry numbers that grow in the order in which they appear,
//! for ever.
//!
//! Each election has two, the line and the office record. On both, drawing a number and becoming
//! visible is one step, no number comes twice, and none appears below one that was there before,
//! although no lock is ever held: a process that is stopped or killed between any two system calls
//! holds up no other.
//!
//! A new entry is staged aside, in `staged`, as a small directory. Its name there says which number
//! it reserves, and the step that appends it is one rename from that name to `<sequence>/<n>`. The
//! rename fails if the number is taken (the directory there is not empty), and it fails if the
//! staged name is no longer there. The latter is how a process that is too late is stopped. To
//! *close* the numbers up to k is to
//!
//! 1. raise the high-water mark to k, then
//! 2. rename every staged entry that reserves k or less, so that it reserves nothing.
//!
//! A process that appends n closes n - 1 first. One that takes n out of its sequence closes n
//! first. And one that has reserved n reads the high-water mark after that, and goes on only if the
//! mark is below n.
//!
//! Why it holds: say that n is appended although k >= n was closed before. Its process read the
//! high-water mark after it had reserved n and found it below n, so before step 1. So its
//! reservation was there before step 2, which lists what is staged, and was renamed before the
//! closing was over. Its own rename came later and found no such name. Hence nothing is appended at
//! n after n was closed: no number comes back after it was taken out (it was closed then), and none
//! appears below a larger one (which closed it before it was appended).
//!
//! The same makes a compare-and-set of the office record: see [`ElectionDir::append`].

use incumbent_store::{StoreError, Token, random_id};
use rustix::fd::OwnedFd;
use std::fmt;

use crate::disk::DiskError;
use crate::election_dir::{ElectionDir, STAGED};
use crate::high_water_mark::is_drawn;
use crate::record::corrupt;
use crate::wake_pipe::News;

/// How often a step is tried again because others were faster. Each time, one of them got on.
pub(crate) const TRIES: usize = 10_000;
/// The file in which the content of an entry stands.
pub(crate) const RECORD: &str = "record";

/// Which of an election's sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequence {
    Line,
    Office,
}

impl Sequence {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sequence::Line => "line",
            Sequence::Office => "office",
        }
    }

    /// What it is when something is put there.
    fn news(self) -> News {
        match self {
            Sequence::Line => News::Line,
            Sequence::Office => News::Office,
        }
    }
}

impl ElectionDir<'_> {
    /// The numbers in a sequence, smallest first.
    pub(crate) fn numbers(&self, sequence: Sequence) -> Result<Vec<u64>, StoreError> {
        let dir = self.sub(sequence.name());
        let names = self.disk().list(&dir)?.unwrap_or_default();
        let number = |name: &String| {
            let number = name.parse::<u64>().ok().filter(|number| is_drawn(*number) && number.to_string() == *name);
            number.ok_or_else(|| corrupt(self.disk(), &format!("{dir}/{name}"), "it was not put there by incumbent"))
        };
        let mut numbers = names.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Nothing is appended at `up_to` or below from now on.
    pub(crate) fn close_numbers(&self, sequence: Sequence, up_to: u64) -> Result<(), StoreError> {
        self.directory().high_water_mark.raise(self.disk(), up_to)?;
        for name in self.disk().list(&self.sub(STAGED))?.unwrap_or_default() {
            let too_low = |name: &StagedName| name.sequence == sequence && (1..=up_to).contains(&name.reserved);
            let Some(name) = StagedName::parse(&name).filter(too_low) else { continue };
            match self.disk().rename(&self.staged_path(&name), &self.staged_path(&name.unreserved())) {
                Ok(()) => {}
                // It was appended, or reserves another number by now.
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Nobody comes into line with a number up to `floor` from now on, whatever happens to the
    /// host.
    pub(crate) fn raise_tokens(&self, floor: u64) -> Result<(), StoreError> {
        if !is_drawn(floor) {
            return Err(StoreError::Limit { what: format!("no store lives to see token {floor}") });
        }
        self.close_numbers(Sequence::Line, floor)?;
        self.directory().high_water_mark.raise_durably(self.disk(), floor)
    }

    /// Takes a number out of its sequence. Whether it was there.
    pub(crate) fn take_out(&self, sequence: Sequence, number: u64) -> Result<bool, StoreError> {
        self.close_numbers(sequence, number)?;
        self.directory().discard(&self.numbered(sequence, number))
    }

    /// Appends a record to a sequence, in one step with drawing its number; `None` if `still` says
    /// no.
    ///
    /// What `still` has seen of the sequence's newest record is so until the record is appended:
    /// the numbers below were closed before it looked, and a process that appends a larger number
    /// closes ours first, so that we start again.
    pub(crate) fn append(
        &self,
        sequence: Sequence,
        record: &[u8],
        mut still: impl FnMut() -> Result<bool, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let mut prepared = self.prepare(sequence, record)?;
        for _ in 0..TRIES {
            let next = self.next_number(sequence)?;
            self.close_numbers(sequence, next - 1)?;
            if !still()? {
                return Ok(None);
            }
            if !prepared.reserve(next)? {
                prepared = self.prepare(sequence, record)?;
                continue;
            }
            if self.directory().high_water_mark.read(self.disk())? >= next {
                continue;
            }
            match self.disk().rename(&prepared.path(), &self.numbered(sequence, next)) {
                Ok(()) => {
                    prepared.appended = true;
                    self.wake(&[sequence.news()]);
                    return Ok(Some(next));
                }
                Err(error) if error.is_taken() => {}
                // Our number was closed, or the election's directory was removed because it was
                // empty.
                Err(error) if error.is_missing() => self.make()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.too_busy())
    }

    fn next_number(&self, sequence: Sequence) -> Result<u64, StoreError> {
        let mark = self.directory().high_water_mark.read(self.disk())?;
        let next = self.numbers(sequence)?.last().copied().unwrap_or(0).max(mark).saturating_add(1);
        if next > Token::MAX {
            return Err(StoreError::Limit { what: format!("there is no token above {}", Token::MAX) });
        }
        Ok(next)
    }

    fn prepare(&self, sequence: Sequence, record: &[u8]) -> Result<Prepared<'_>, StoreError> {
        for _ in 0..TRIES {
            match self.try_prepare(StagedName { sequence, reserved: 0, id: random_id()? }, record) {
                Ok(Some(prepared)) => return Ok(prepared),
                Ok(None) => {}
                // The election's directory is not there yet, or was removed because it was empty.
                Err(error) if error.is_missing() => self.make()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.too_busy())
    }

    /// Writes all of it down before it gets a number: after a power cut there is no half entry in
    /// line.
    ///
    /// The lock says that its writer lives: no other process removes it then.
    fn try_prepare(&self, name: StagedName, record: &[u8]) -> Result<Option<Prepared<'_>>, DiskError> {
        let dir = self.staged_path(&name);
        self.disk().make_dir(&dir)?;
        let mut prepared = Prepared { election_dir: self, name, appended: false, lock: None };
        let path = format!("{dir}/{RECORD}");
        let file = self.disk().create(&path)?;
        if !self.disk().lock(&file, &path)? {
            return Ok(None);
        }
        self.disk().write(&file, &path, record)?;
        self.disk().sync(&file, &path)?;
        self.disk().sync_dir(&dir)?;
        prepared.lock = Some(file);
        Ok(Some(prepared))
    }

    pub(crate) fn numbered(&self, sequence: Sequence, number: u64) -> String {
        self.sub(&format!("{}/{number}", sequence.name()))
    }

    fn staged_path(&self, name: &StagedName) -> String {
        self.sub(&format!("{STAGED}/{name}"))
    }

    pub(crate) fn too_busy(&self) -> StoreError {
        let what = format!("{} keeps changing", self.disk().full(self.path()).display());
        StoreError::Unavailable { what, source: None }
    }
}

/// The name of a staged entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedName {
    sequence: Sequence,
    /// Zero: no number.
    reserved: u64,
    id: u128,
}

impl StagedName {
    /// `None`: we would not write it so.
    pub(crate) fn parse(name: &str) -> Option<StagedName> {
        let mut parts = name.split('.');
        let sequence = [Sequence::Line, Sequence::Office]
            .into_iter()
            .find(|sequence| parts.clone().next() == Some(sequence.name()))?;
        let reserved = parts.nth(1)?.parse().ok()?;
        let id = u128::from_str_radix(parts.next()?, 16).ok()?;
        Some(StagedName { sequence, reserved, id }).filter(|parsed| parsed.to_string() == name)
    }

    fn unreserved(self) -> StagedName {
        StagedName { reserved: 0, ..self }
    }
}

impl fmt::Display for StagedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:032x}", self.sequence.name(), self.reserved, self.id)
    }
}

/// A record that is written down and waits for its number. Dropped before it has one, it is
/// removed.
struct Prepared<'a> {
    election_dir: &'a ElectionDir<'a>,
    name: StagedName,
    appended: bool,
    lock: Option<OwnedFd>,
}

impl Prepared<'_> {
    fn path(&self) -> String {
        self.election_dir.staged_path(&self.name)
    }

    /// Whether it reserves `number` now; if not, it was removed.
    fn reserve(&mut self, number: u64) -> Result<bool, StoreError> {
        let name = StagedName { reserved: number, ..self.name };
        let to = self.election_dir.staged_path(&name);
        // Where it should be, and where a process that closed its number has put it.
        for from in [self.name, self.name.unreserved()] {
            match self.election_dir.disk().rename(&self.election_dir.staged_path(&from), &to) {
                Ok(()) => {
                    self.name = name;
                    return Ok(true);
                }
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if self.appended {
            return;
        }
        for name in [self.name, self.name.unreserved()] {
            // What is left goes when the election is tidied up: its lock is free now.
            let _ = self.election_dir.directory().discard(&self.election_dir.staged_path(&name));
        }
    }
}
