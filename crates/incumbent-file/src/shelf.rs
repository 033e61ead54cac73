//! A shelf: a directory whose entries carry numbers that grow in the order in which they appear, for ever.
//!
//! Each election has two, the line and the office record. On both, drawing a number and becoming visible is one step,
//! no number comes twice, and none appears below one that was there before, although no lock is ever held: whoever is
//! stopped or killed between any two system calls holds up nobody.
//!
//! A new entry is prepared aside, in `aims`, as a small directory. Its name there says which number it aims at, and
//! the step that shelves it is one rename from that name to `<shelf>/<n>`. The rename fails if the number is taken (the
//! directory there is not empty), and it fails if the name in `aims` is no longer there. The latter is how those who
//! are too late are stopped. To *close* the numbers up to k is to
//!
//! 1. raise the floor to k, then
//! 2. rename everything in `aims` that aims at k or less, so that it aims at nothing.
//!
//! Whoever shelves n closes n - 1 first. Whoever takes n off its shelf closes n first. And whoever has taken aim at n
//! looks at the floor after that, and goes on only if the floor is below n.
//!
//! Why it holds: say that somebody shelves n although k >= n was closed before. It looked at the floor after taking
//! aim and found it below n, so before step 1. So its aim was there before step 2, which lists what aims, and the
//! aim was renamed before the closing was over. Its own rename came later and found no such name. Hence nothing is shelved
//! at n after n was closed: no number comes back after it was taken off (it was closed then), and none appears below
//! a larger one (which closed it before it was shelved).
//!
//! The same makes a compare-and-set of the office record: see [`Venue::shelve`].

use incumbent_store::{StoreError, Token};
use rustix::fd::OwnedFd;

use crate::directory::random;
use crate::disk::DiskError;
use crate::floor::is_drawn;
use crate::porch::News;
use crate::record::corrupt;
use crate::venue::Venue;

/// How often a step is tried again because others were faster. Each time, one of them got on.
pub(crate) const TRIES: usize = 10_000;
/// The file in which the content of a shelved directory stands.
pub(crate) const RECORD: &str = "record";

/// Which of an election's shelves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shelf {
    Line,
    Office,
}

impl Shelf {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shelf::Line => "line",
            Shelf::Office => "office",
        }
    }

    /// What it is when something is put there.
    fn news(self) -> News {
        match self {
            Shelf::Line => News::Line,
            Shelf::Office => News::Office,
        }
    }
}

impl Venue<'_> {
    /// The numbers on a shelf, smallest first.
    pub(crate) fn numbers(&self, shelf: Shelf) -> Result<Vec<u64>, StoreError> {
        let dir = self.sub(shelf.name());
        let names = self.disk().list(&dir)?.unwrap_or_default();
        let number = |name: &String| {
            let number = name.parse::<u64>().ok().filter(|number| is_drawn(*number) && number.to_string() == *name);
            number.ok_or_else(|| corrupt(self.disk(), &format!("{dir}/{name}"), "it was not put there by incumbent"))
        };
        let mut numbers = names.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Nothing is shelved at `up_to` or below from now on.
    pub(crate) fn close_numbers(&self, shelf: Shelf, up_to: u64) -> Result<(), StoreError> {
        self.directory().floor.raise(self.disk(), up_to)?;
        for name in self.disk().list(&self.sub("aims"))?.unwrap_or_default() {
            let Some(aim) = Aim::parse(&name).filter(|aim| aim.shelf == shelf && (1..=up_to).contains(&aim.at)) else {
                continue;
            };
            let at_nothing = Aim { at: 0, ..aim };
            match self.disk().rename(&self.aim_path(&aim), &self.aim_path(&at_nothing)) {
                Ok(()) => {}
                // It was shelved, or aims at something else by now.
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes a number off its shelf. Whether it was there.
    pub(crate) fn unshelve(&self, shelf: Shelf, number: u64) -> Result<bool, StoreError> {
        self.close_numbers(shelf, number)?;
        Ok(self.directory().discard(&self.on_shelf(shelf, number))?)
    }

    /// Puts a record on a shelf, in one step with drawing its number; `None` if `still` says no.
    ///
    /// What `still` has seen of the shelf's newest record is so until the record is shelved: the numbers below were
    /// closed before it looked, and whoever shelves a larger number closes ours first, so that we start again.
    pub(crate) fn shelve(
        &self,
        shelf: Shelf,
        record: &[u8],
        mut still: impl FnMut() -> Result<bool, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let mut prepared = self.prepare(shelf, record)?;
        for _ in 0..TRIES {
            let next = self.next_number(shelf)?;
            self.close_numbers(shelf, next - 1)?;
            if !still()? {
                return Ok(None);
            }
            if !prepared.take_aim(next)? {
                prepared = self.prepare(shelf, record)?;
                continue;
            }
            if self.directory().floor.read(self.disk())? >= next {
                continue;
            }
            match self.disk().rename(&prepared.path(), &self.on_shelf(shelf, next)) {
                Ok(()) => {
                    prepared.shelved = true;
                    self.ring(&[shelf.news()]);
                    return Ok(Some(next));
                }
                Err(error) if error.is_taken() => {}
                // Our aim was taken from us, or the election's directory was removed because it was empty.
                Err(error) if error.is_missing() => self.make()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.too_busy())
    }

    fn next_number(&self, shelf: Shelf) -> Result<u64, StoreError> {
        let floor = self.directory().floor.read(self.disk())?;
        let next = self.numbers(shelf)?.last().copied().unwrap_or(0).max(floor).saturating_add(1);
        if next > Token::MAX {
            return Err(StoreError::Limit { what: format!("there is no token above {}", Token::MAX) });
        }
        Ok(next)
    }

    fn prepare(&self, shelf: Shelf, record: &[u8]) -> Result<Prepared<'_>, StoreError> {
        for _ in 0..TRIES {
            match self.try_prepare(shelf, record) {
                Ok(Some(prepared)) => return Ok(prepared),
                Ok(None) => {}
                // The election's directory is not there yet, or was removed because it was empty.
                Err(error) if error.is_missing() => self.make()?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.too_busy())
    }

    /// Writes all of it down before it gets a number: after a power cut there is no half entry in line.
    ///
    /// The lock says that its writer lives: nobody else removes it then.
    fn try_prepare(&self, shelf: Shelf, record: &[u8]) -> Result<Option<Prepared<'_>>, DiskError> {
        let aim = Aim { shelf, at: 0, id: random() };
        let dir = self.aim_path(&aim);
        self.disk().make_dir(&dir)?;
        let mut prepared = Prepared { venue: self, aim, shelved: false, lock: None };
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

    pub(crate) fn on_shelf(&self, shelf: Shelf, number: u64) -> String {
        self.sub(&format!("{}/{number}", shelf.name()))
    }

    fn aim_path(&self, aim: &Aim) -> String {
        self.sub(&format!("aims/{}.{}.{:032x}", aim.shelf.name(), aim.at, aim.id))
    }

    pub(crate) fn too_busy(&self) -> StoreError {
        let what = format!("{} keeps changing", self.disk().full(self.path()).display());
        StoreError::Unavailable { what, source: None }
    }
}

/// The name of something prepared.
#[derive(Clone, Copy, Debug)]
struct Aim {
    shelf: Shelf,
    /// Zero: at nothing.
    at: u64,
    id: u128,
}

impl Aim {
    fn parse(name: &str) -> Option<Aim> {
        let mut parts = name.split('.');
        let shelf =
            [Shelf::Line, Shelf::Office].into_iter().find(|shelf| parts.clone().next() == Some(shelf.name()))?;
        let at = parts.nth(1)?.parse().ok()?;
        let id = u128::from_str_radix(parts.next()?, 16).ok()?;
        Some(Aim { shelf, at, id })
    }
}

/// A record that is written down and waits for its number. Dropped before it has one, it is removed.
struct Prepared<'a> {
    venue: &'a Venue<'a>,
    aim: Aim,
    shelved: bool,
    lock: Option<OwnedFd>,
}

impl Prepared<'_> {
    fn path(&self) -> String {
        self.venue.aim_path(&self.aim)
    }

    /// Whether it aims at `number` now; if not, it was removed.
    fn take_aim(&mut self, number: u64) -> Result<bool, StoreError> {
        let aim = Aim { at: number, ..self.aim };
        let to = self.venue.aim_path(&aim);
        // Where it should be, and where somebody who closed its number has put it.
        for from in [self.aim, Aim { at: 0, ..self.aim }] {
            match self.venue.disk().rename(&self.venue.aim_path(&from), &to) {
                Ok(()) => {
                    self.aim = aim;
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
        if self.shelved {
            return;
        }
        for aim in [self.aim, Aim { at: 0, ..self.aim }] {
            // What is left is removed by whoever tidies up: its lock is free now.
            let _ = self.venue.directory().discard(&self.venue.aim_path(&aim));
        }
    }
}
