//! The directory in which one election is held: who is in line, who is dead, and how entries go.
//!
//! ```text
//! elections/<name>/line/<n>/record      an entry; n is its token
//!                  office/<n>/record    the office record; the largest n counts
//!                  published/<n>.<k>    what the candidate with token n published last
//!                  staged/<sequence>.<n>.<id>/record     prepared, not visible yet
//!                  waiters/<what>.<id>.<number>       a store waits for this, without notifications from the kernel
//! ```
//!
//! An entry leaves the line by one rename, and where that rename leads says under which condition
//! it may go:
//! - to `trash`: it is our own, or its owner is certainly dead;
//! - into the heir's entry: only while the heir's entry is there;
//! - into `evictions/<session>.<n>.<id>`: only while its owner has not renewed. Every renewal
//!   removes what is there against its session *after* the new heartbeat is written, and an evictor
//!   compares the heartbeat *after* it has made the directory. So either the evictor sees the new
//!   heartbeat, or the owner removes the directory before its renewal is answered, and the rename
//!   fails. An evictor that is stopped in between can do no harm when it goes on.

use std::collections::{BTreeMap, BTreeSet};

use incumbent_store::{
    Cas, Cursor, Entry, EntryId, Held, Incarnation, Line, Observed, Place, Publication, Standing, StoreError,
    Timestamp, Token, Version, random_id,
};

use crate::directory::{Directory, EVICTIONS, WAITERS};
use crate::disk::{Disk, Lock};
use crate::election_path::above;
use crate::office::Tip;
use crate::owner::{Owner, Owners, owner, session_name};
use crate::record::{EntryRecord, Record, corrupt};
use crate::sequence::{RECORD, Sequence, TRIES};
use crate::wake_pipe::News;

/// What candidates have published.
pub(crate) const PUBLICATIONS: &str = "published";
/// What is prepared and not visible yet.
pub(crate) const STAGED: &str = "staged";

/// Where one election is held.
#[derive(Debug)]
pub(crate) struct ElectionDir<'a> {
    directory: &'a Directory,
    path: String,
}

/// What was in an election's directory at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) tip: Tip,
    pub(crate) line: Vec<u64>,
    /// How often each candidate has published something; those that never did are missing.
    pub(crate) publications: BTreeMap<u64, u64>,
}

impl<'a> ElectionDir<'a> {
    pub(crate) fn at(directory: &'a Directory, path: String) -> ElectionDir<'a> {
        ElectionDir { directory, path }
    }

    pub(crate) fn directory(&self) -> &'a Directory {
        self.directory
    }

    pub(crate) fn disk(&self) -> &'a Disk {
        &self.directory.disk
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn sub(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Makes the election's directories.
    pub(crate) fn make(&self) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let mut dirs: Vec<_> = above(&self.path).map(str::to_owned).collect();
            dirs.push(self.path.clone());
            dirs.extend(["line", "office", PUBLICATIONS, STAGED, WAITERS].map(|name| self.sub(name)));
            match dirs.iter().try_for_each(|dir| self.disk().make_dir(dir).map(drop)) {
                Ok(()) => return Ok(()),
                // Another process tidied up in between. If the root itself is gone, trying again
                // does not help.
                Err(error) if error.is_missing() && self.disk().exists(crate::election_path::ELECTIONS)? => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(self.too_busy())
    }

    /// All of it at one moment.
    ///
    /// Three directories are read, one after the other, and yet it is one moment, the one at which
    /// the line was read: the office record was the same before and after, and no number of it ever
    /// comes back.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        for _ in 0..TRIES {
            let tip = self.tip()?;
            let publications = self.publications()?;
            let line = self.numbers(Sequence::Line)?;
            if self.numbers(Sequence::Office)?.last().copied().unwrap_or(0) == tip.number {
                return Ok(Snapshot { tip, line, publications });
            }
        }
        Err(self.too_busy())
    }

    /// Where the entry with this token stands. Those directly ahead that are certainly dead are
    /// removed.
    ///
    /// That nothing older is there stays so: nothing is ever appended below a number that is there.
    /// For the same reason the entry that we were `behind` is still the one ahead while it is
    /// there, and the line need not be read.
    pub(crate) fn standing(&self, held: &Held, behind: Option<u64>) -> Result<Standing, StoreError> {
        if let Some(behind) = behind
            && let Some(standing) = self.standing_behind(held, behind)?
        {
            return Ok(standing);
        }
        for _ in 0..TRIES {
            let snapshot = self.snapshot()?;
            let stand = |place| snapshot.standing(held, place);
            let Ok(at) = snapshot.line.binary_search(&held.token.get()) else { return Ok(stand(Place::Gone)) };
            for number in snapshot.line[..at].iter().rev() {
                if let Some(ahead) = self.living_entry(*number, &snapshot.publications, &Owners::default())? {
                    return Ok(stand(Place::behind(Some(held.clone()), ahead, None)));
                }
            }
            if at == 0 {
                // A leader acts with this token: it must not be given again, whatever happens to
                // the host.
                self.directory.high_water_mark.raise_durably(self.disk(), held.token.get())?;
                return Ok(stand(Place::Leading(held.clone())));
            }
        }
        Err(self.too_busy())
    }

    /// `None`: one of the two is not there, or the office record was written meanwhile.
    fn standing_behind(&self, held: &Held, behind: u64) -> Result<Option<Standing>, StoreError> {
        let (tip, publications) = (self.tip()?, self.publications()?);
        let Some(ahead) = self.living_entry(behind, &publications, &Owners::default())? else { return Ok(None) };
        let in_line = behind < held.token.get() && self.has(held.token.get())?;
        if !in_line || self.numbers(Sequence::Office)?.last().copied().unwrap_or(0) != tip.number {
            return Ok(None);
        }
        let place = Place::behind(Some(held.clone()), ahead, None);
        Ok(Some(standing(held, place, &tip, &publications)))
    }

    /// Our entry is not there, or not ours.
    pub(crate) fn standing_gone(&self, held: &Held) -> Result<Standing, StoreError> {
        Ok(self.snapshot()?.standing(held, Place::Gone))
    }

    /// Who is first in line.
    pub(crate) fn head(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.numbers(Sequence::Line)?.first().copied())
    }

    /// Whether the office record has another version.
    pub(crate) fn office_differs(&self, seen: Version) -> Result<bool, StoreError> {
        let newest = self.numbers(Sequence::Office)?.last().copied().unwrap_or(0);
        Ok(newest != seen.0 && self.tip()?.office.version != seen)
    }

    /// The oldest `limit` of those who live.
    pub(crate) fn line(&self, limit: usize) -> Result<Line, StoreError> {
        let snapshot = self.snapshot()?;
        let owners = Owners::default();
        let mut entries = Vec::new();
        let mut more = false;
        for number in &snapshot.line {
            let entry = match self.living_entry(*number, &snapshot.publications, &owners) {
                // A dead one that cannot be removed (a disk that is full, or may only be read) is
                // not in line for all that.
                Err(_) if !self.lives(*number)? => continue,
                entry => entry?,
            };
            let Some(entry) = entry else { continue };
            if entries.len() == limit {
                more = true;
                break;
            }
            entries.push(entry);
        }
        let cursor = cursor_of(&snapshot.publications);
        if let Some(newest) = entries.last() {
            match self.directory.high_water_mark.raise_durably(self.disk(), newest.token.get()) {
                // Who may only read learns of a token no earlier than its owner, who has seen to
                // that.
                Err(StoreError::Denied { .. }) => {}
                raised => raised?,
            }
        }
        Ok(Line::new(entries, more, snapshot.tip.office, cursor))
    }

    /// The entry as others see it; `None` if it is not there. A certainly dead one is removed.
    pub(crate) fn living_entry(
        &self,
        number: u64,
        publications: &BTreeMap<u64, u64>,
        owners: &Owners,
    ) -> Result<Option<Entry>, StoreError> {
        let Some(record) = self.entry_record(number)? else { return Ok(None) };
        // Read before the heartbeat: the silence is that long at least.
        let now = self.directory.time.now();
        match owners.of(self.directory, record.session)? {
            Owner::Dead => {
                self.remove(number)?;
                Ok(None)
            }
            Owner::Living { record: session, beat } => {
                let times = publications.get(&number).copied().unwrap_or(0);
                let shared = session.clock == self.directory.time.shared && session.clock != 0;
                let silent = shared.then(|| now.since(Timestamp::from_nanos(beat.max(record.enlisted_at))));
                let observed = session.observed.map(|ttl| {
                    let mut observed = Observed::new(ttl);
                    observed.silent = silent;
                    observed
                });
                self.entry(number, record, observed, beat, times)
            }
        }
    }

    fn entry(
        &self,
        number: u64,
        record: EntryRecord,
        observed: Option<Observed>,
        beat: u64,
        mut times: u64,
    ) -> Result<Option<Entry>, StoreError> {
        let path = self.numbered(Sequence::Line, number);
        let token = Token::new(number).ok_or_else(|| corrupt(self.disk(), &path, "it is not a token"))?;
        for _ in 0..TRIES {
            let publication = match times {
                0 => Some(Publication::new(record.value.clone()).merit(record.merit)),
                times => self.read_publication(number, times)?,
            };
            if let Some(publication) = publication {
                let mut entry = Entry::new(id_of(token), token);
                entry.incarnation = Some(record.incarnation);
                entry.name = Some(record.name);
                entry.value = publication.value;
                (entry.ready, entry.merit) = (publication.ready, publication.merit);
                // Both only grow, so their sum changes whenever one of them does.
                entry.version = Version(beat.wrapping_add(times));
                entry.observed = observed;
                return Ok(Some(entry));
            }
            // It has published something newer, or it is gone.
            if !self.disk().exists(&path)? {
                return Ok(None);
            }
            times = self.publications()?.get(&number).copied().unwrap_or(0);
        }
        Err(self.too_busy())
    }

    /// What stands in an entry; `None` if there is no such entry.
    pub(crate) fn entry_record(&self, number: u64) -> Result<Option<EntryRecord>, StoreError> {
        let dir = self.numbered(Sequence::Line, number);
        let path = format!("{dir}/{RECORD}");
        match self.disk().read(&path)? {
            Some(bytes) => EntryRecord::decode(&bytes, self.disk(), &path).map(Some),
            None if self.disk().exists(&dir)? => Err(corrupt(self.disk(), &path, "it is missing")),
            None => Ok(None),
        }
    }

    /// Whether the entry is there.
    pub(crate) fn has(&self, number: u64) -> Result<bool, StoreError> {
        Ok(self.disk().exists(&self.numbered(Sequence::Line, number))?)
    }

    /// Whether the entry is there and its owner lives.
    pub(crate) fn lives(&self, number: u64) -> Result<bool, StoreError> {
        let Some(record) = self.entry_record(number)? else { return Ok(false) };
        Ok(matches!(owner(self.directory, record.session)?, Owner::Living { .. }))
    }

    /// Removes an entry that is ours or whose owner is dead.
    pub(crate) fn remove(&self, number: u64) -> Result<(), StoreError> {
        if self.take_out(Sequence::Line, number)? {
            self.wake(&[News::Gone(number), News::Line]);
        }
        self.directory.tidy_later(&self.path, number);
        Ok(())
    }

    /// Removes our entry in one step with seeing that the heir's is there.
    pub(crate) fn remove_before(&self, number: u64, heir: u64) -> Result<Cas, StoreError> {
        if !self.has(number)? {
            return Ok(Cas::Done);
        }
        if heir == number || !self.lives(heir)? {
            return Ok(Cas::Refused);
        }
        self.close_numbers(Sequence::Line, number)?;
        let inside = format!("{}/before.{number}", self.numbered(Sequence::Line, heir));
        match self.disk().rename(&self.numbered(Sequence::Line, number), &inside) {
            Ok(()) => {}
            Err(error) if error.is_missing() && self.has(number)? => return Ok(Cas::Refused),
            Err(error) if error.is_missing() => return Ok(Cas::Done),
            Err(error) => return Err(error.into()),
        }
        self.wake(&[News::Gone(number), News::Line]);
        // If it stays there, it goes with the heir's entry.
        let _ = self.directory.discard(&inside);
        self.directory.tidy_later(&self.path, number);
        Ok(Cas::Done)
    }

    /// Removes exactly the entry that was seen.
    pub(crate) fn evict(&self, number: u64, of: Option<Incarnation>, seen: Version) -> Result<Cas, StoreError> {
        let record = self.entry_record(number)?.filter(|record| Some(record.incarnation) == of);
        let Some(record) = record else { return Ok(Cas::Done) };
        // Followers ask once in a TTL, and nearly always it has renewed meanwhile: then nothing is
        // written.
        match self.living_entry(number, &self.publications()?, &Owners::default())? {
            None => return Ok(Cas::Done),
            Some(entry) if entry.version != seen => return Ok(Cas::Refused),
            Some(_) => {}
        }
        let dir = format!("{EVICTIONS}/{}.{number}.{:032x}", session_name(record.session), random_id()?);
        self.disk().make_dir(&dir)?;
        let cas = self.evict_into(&dir, number, seen);
        // Nobody else uses it, and a sweep finds it.
        let _ = self.directory.discard(&dir);
        if matches!(cas, Ok(Cas::Done)) {
            self.directory.tidy_later(&self.path, number);
        }
        cas
    }

    fn evict_into(&self, dir: &str, number: u64, seen: Version) -> Result<Cas, StoreError> {
        let publications = self.publications()?;
        let Some(entry) = self.living_entry(number, &publications, &Owners::default())? else { return Ok(Cas::Done) };
        if entry.version != seen {
            return Ok(Cas::Refused);
        }
        self.close_numbers(Sequence::Line, number)?;
        match self.disk().rename(&self.numbered(Sequence::Line, number), &format!("{dir}/{number}")) {
            Ok(()) => {
                self.wake(&[News::Gone(number), News::Line]);
                Ok(Cas::Done)
            }
            // Its owner has renewed, or it is gone.
            Err(error) if error.is_missing() => Ok(if self.has(number)? { Cas::Refused } else { Cas::Done }),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes every entry whose owner is dead, and the directory if nothing is left in it.
    pub(crate) fn sweep(&self) -> Result<(), StoreError> {
        let owners = Owners::default();
        for number in self.numbers(Sequence::Line)? {
            let Some(record) = self.entry_record(number)? else { continue };
            if let Owner::Dead = owners.of(self.directory, record.session)? {
                self.remove(number)?;
            }
        }
        self.directory.tidy_later(&self.path, 0);
        Ok(())
    }

    /// How often each candidate has published something.
    pub(crate) fn publications(&self) -> Result<BTreeMap<u64, u64>, StoreError> {
        let mut publications = BTreeMap::new();
        for name in self.disk().list(&self.sub(PUBLICATIONS))?.unwrap_or_default() {
            if let Some((number, times)) = parse_publication_name(&name) {
                let newest: &mut u64 = publications.entry(number).or_default();
                *newest = times.max(*newest);
            }
        }
        Ok(publications)
    }

    fn read_publication(&self, number: u64, times: u64) -> Result<Option<Publication>, StoreError> {
        let path = self.publication_path(number, times);
        let bytes = self.disk().read(&path)?;
        bytes.map(|bytes| Publication::decode(&bytes, self.disk(), &path)).transpose()
    }

    /// Writes down what a candidate publishes for the `times`th time. Not synced: it dies with the
    /// candidate.
    pub(crate) fn publish(&self, number: u64, times: u64, publication: &Publication) -> Result<(), StoreError> {
        let path = self.publication_path(number, times);
        let new = format!("{path}.new");
        self.disk().remove_file(&new)?;
        let file = match self.disk().create(&new) {
            Err(error) if error.is_missing() => {
                self.make()?;
                self.disk().create(&new)?
            }
            created => created?,
        };
        self.disk().write(&file, &new, &publication.encode())?;
        self.disk().rename(&new, &path)?;
        self.wake(&[News::Published]);
        if times > 1 {
            self.disk().remove_file(&self.publication_path(number, times - 1))?;
        }
        Ok(())
    }

    fn publication_path(&self, number: u64, times: u64) -> String {
        self.sub(&format!("{PUBLICATIONS}/{number}.{times}"))
    }

    /// Removes what the entries `gone` have published, and the election's directory if nothing is
    /// left in it.
    ///
    /// It changes nothing that anyone can see, so what fails is left for the next who tidies up.
    pub(crate) fn tidy(&self, gone: &BTreeSet<u64>) {
        let published = self.disk().list(&self.sub(PUBLICATIONS)).ok().flatten().unwrap_or_default();
        // The line is read after what was published: of an entry that is not there by then,
        // everything may go.
        let Ok(line) = self.numbers(Sequence::Line) else { return };
        let is_over = |number: u64| line.is_empty() || (gone.contains(&number) && line.binary_search(&number).is_err());
        for name in published {
            let number = name.split('.').next().and_then(|number| number.parse().ok());
            if number.is_some_and(is_over) {
                let _ = self.disk().remove_file(&self.sub(&format!("{PUBLICATIONS}/{name}")));
            }
        }
        if line.is_empty() {
            self.tidy_dirs();
        }
    }

    /// Whether nobody stands in it and no order counts: what is left of it goes with the next who
    /// tidies up.
    pub(crate) fn says_nothing(&self) -> Result<bool, StoreError> {
        Ok(self.head()?.is_none() && self.tip()?.office.is_blank())
    }

    fn tidy_dirs(&self) {
        if self.tidy_office().is_err() || self.remove_dead_waiters() {
            return;
        }
        for name in self.disk().list(&self.sub(STAGED)).ok().flatten().unwrap_or_default() {
            let dir = self.sub(&format!("{STAGED}/{name}"));
            match self.disk().probe(&format!("{dir}/{RECORD}")) {
                Ok((Lock::Free | Lock::Missing, _)) => drop(self.directory.discard(&dir)),
                // An enlistment or an office record is being written.
                _ => return,
            }
        }
        let own = ["office", "line", STAGED, PUBLICATIONS, WAITERS].map(|name| self.sub(name));
        let dirs = own.iter().map(String::as_str).chain([self.path.as_str()]).chain(above(&self.path).rev());
        for dir in dirs {
            match self.disk().remove_dir(dir) {
                Err(error) if !error.is_missing() => return,
                _ => {}
            }
        }
    }
}

impl Snapshot {
    /// Where this entry stands.
    fn standing(&self, held: &Held, place: Place) -> Standing {
        standing(held, place, &self.tip, &self.publications)
    }
}

fn standing(held: &Held, place: Place, tip: &Tip, publications: &BTreeMap<u64, u64>) -> Standing {
    let mut standing = Standing::new(place, tip.office.clone(), cursor_of(publications));
    standing.published = published(held.token.get(), publications);
    standing
}

/// The version of what the entry with this token has published: how often it did.
pub(crate) fn published(number: u64, publications: &BTreeMap<u64, u64>) -> Version {
    Version(publications.get(&number).copied().unwrap_or(0))
}

/// What all candidates have published, cut down to a cursor. Two states that follow each other
/// never look the same; others hardly ever do, and then a hint is lost, which is why candidates
/// look again now and then anyway.
pub(crate) fn cursor_of(publications: &BTreeMap<u64, u64>) -> Cursor {
    let mixed = publications.iter().map(|(number, times)| {
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*times).wrapping_mul(0xd6e8_feb8_6659_fd93);
        word ^ (word >> 32)
    });
    Cursor(mixed.fold(0, u64::wrapping_add))
}

/// The store's name for an entry.
pub(crate) fn id_of(token: Token) -> EntryId {
    EntryId::new(token.to_string())
}

/// The number in an entry's name.
pub(crate) fn number_of(id: &EntryId) -> Option<u64> {
    id.as_str().parse().ok().and_then(Token::new).map(Token::get)
}

/// `<n>.<k>`, as we write it; what is still being written has a third part.
pub(crate) fn parse_publication_name(name: &str) -> Option<(u64, u64)> {
    let (number, times) = name.split_once('.')?;
    let parsed = (number.parse().ok()?, times.parse().ok()?);
    Some(parsed).filter(|(number, times)| format!("{number}.{times}") == name)
}
