//! The office record of one election: the largest number in its sequence, changed by
//! compare-and-set.
//!
//! Records that were replaced and those that say nothing are taken out of the sequence, smallest
//! first, so that none that was replaced can ever be the largest again.

use incumbent_store::{Cas, Office, StoreError, Version};

use crate::election_dir::ElectionDir;
use crate::election_path::{ELECTIONS, above};
use crate::record::{OfficeRecord, Record, corrupt};
use crate::sequence::{RECORD, Sequence, TRIES};

/// The office record that counts.
#[derive(Clone, Debug)]
pub(crate) struct Tip {
    /// Zero: there is none.
    pub(crate) number: u64,
    pub(crate) office: Office,
    tombstone_until_nanos: u64,
}

impl ElectionDir<'_> {
    /// The record that counts. A tombstone whose time has passed is removed first.
    pub(crate) fn tip(&self) -> Result<Tip, StoreError> {
        for _ in 0..TRIES {
            let (tip, boot) = self.newest()?;
            if !self.is_over(&tip, boot) {
                return Ok(tip);
            }
            let office = tip.office.clone().with_ended(None);
            match self.replace(tip.office.version, &office) {
                // Who may only read does not see it either.
                Err(StoreError::Denied { .. }) => return Ok(Tip { office, ..tip }),
                replaced => replaced?,
            };
        }
        Err(self.too_busy())
    }

    /// Replaces the record if it still has the version `was`.
    pub(crate) fn set_office(&self, was: Version, to: &Office) -> Result<Cas, StoreError> {
        let tip = self.tip()?;
        if tip.office.version != was {
            return Ok(Cas::Refused);
        }
        if was == Version::NONE && to.is_blank() {
            return Ok(Cas::Done);
        }
        self.replace(was, to)
    }

    fn replace(&self, was: Version, to: &Office) -> Result<Cas, StoreError> {
        let (tip, _) = self.newest()?;
        let tombstone_until_nanos = match &to.ended {
            None => 0,
            // The same tombstone does not stay longer because something else is written beside it.
            ended if *ended == tip.office.ended => tip.tombstone_until_nanos,
            Some(ended) => (self.directory().time.now() + ended.keep).as_nanos(),
        };
        let record = OfficeRecord { office: to.clone(), boot: self.directory().time.boot, tombstone_until_nanos };
        let still = || Ok(self.newest()?.0.office.version == was);
        let Some(number) = self.append(Sequence::Office, &record.encode(), still)? else {
            self.directory().tidy_later(self.path(), 0);
            return Ok(Cas::Refused);
        };
        self.settle(number, to.is_blank())?;
        Ok(Cas::Done)
    }

    /// Makes the new record last, and the directories that lead to it, then takes out of the
    /// sequence what no longer counts.
    fn settle(&self, newest: u64, blank: bool) -> Result<(), StoreError> {
        let office = self.sub(Sequence::Office.name());
        let dirs = [office.as_str(), self.path()].into_iter().chain(above(self.path()).rev()).chain([ELECTIONS]);
        for dir in dirs {
            match self.disk().sync_dir(dir) {
                // Missing: somebody has replaced ours already, by nothing, and tidied up.
                Err(error) if !error.is_missing() => return Err(error.unknown()),
                _ => {}
            }
        }
        // It counts already: what cannot be removed now is left for the next who tidies up.
        let _ = self.clear_office(newest, blank);
        if blank {
            self.directory().tidy_later(self.path(), 0);
        }
        Ok(())
    }

    /// Takes out of the sequence what an earlier writer left there.
    pub(crate) fn tidy_office(&self) -> Result<(), StoreError> {
        let (tip, _) = self.newest()?;
        if tip.number > 0 {
            self.disk().sync_dir(&self.sub(Sequence::Office.name()))?;
            self.clear_office(tip.number, tip.office.is_blank())?;
        }
        Ok(())
    }

    fn clear_office(&self, newest: u64, blank: bool) -> Result<(), StoreError> {
        for older in self.numbers(Sequence::Office)?.into_iter().filter(|number| *number < newest) {
            self.take_out(Sequence::Office, older)?;
        }
        if blank {
            // First those that were replaced, then the one that says nothing: not the other way
            // round after a power cut.
            self.disk().sync_dir(&self.sub(Sequence::Office.name()))?;
            self.take_out(Sequence::Office, newest)?;
        }
        Ok(())
    }

    /// The largest number and what stands there, with the boot it was written in.
    fn newest(&self) -> Result<(Tip, u128), StoreError> {
        for _ in 0..TRIES {
            let Some(number) = self.numbers(Sequence::Office)?.last().copied() else {
                return Ok((Tip { number: 0, office: Office::default(), tombstone_until_nanos: 0 }, 0));
            };
            let dir = self.numbered(Sequence::Office, number);
            let path = format!("{dir}/{RECORD}");
            let Some(bytes) = self.disk().read(&path)? else {
                if self.disk().exists(&dir)? {
                    return Err(corrupt(self.disk(), &path, "it is missing"));
                }
                continue;
            };
            let record = OfficeRecord::decode(&bytes, self.disk(), &path)?;
            let OfficeRecord { mut office, boot, tombstone_until_nanos } = record;
            office.version = if office.is_blank() { Version::NONE } else { Version(number) };
            return Ok((Tip { number, office, tombstone_until_nanos }, boot));
        }
        Err(self.too_busy())
    }

    /// Whether its tombstone has stood for long enough. One of another boot was written before a
    /// reboot, or in a container that shows a boot id of its own: there the time of its file tells,
    /// on the wall clock.
    fn is_over(&self, tip: &Tip, boot: u128) -> bool {
        let Some(ended) = &tip.office.ended else { return false };
        if boot == self.directory().time.boot {
            return self.directory().time.now().as_nanos() >= tip.tombstone_until_nanos;
        }
        let path = format!("{}/{RECORD}", self.numbered(Sequence::Office, tip.number));
        let age = self.disk().age(&path).ok().flatten();
        // One that cannot be told stays: nobody who comes now is kept out by it.
        age.is_some_and(|age| age >= ended.keep)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use incumbent_store::{Ended, Nonce};
    use incumbent_testkit::TempDir;

    use super::*;
    use crate::directory::Directory;
    use crate::options::FileOptions;
    use crate::time::Time;

    const KEEP: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_tombstone_of_another_boot_id_stands_for_as_long_as_it_was_to_stand() {
        let temp_dir = TempDir::new("office");
        let path = temp_dir.path();
        let ours = Directory::open(path, FileOptions::new(), Time::of_host()).unwrap();
        let office = Office::default().with_ended(Ended::new(Nonce(7), KEEP));
        ElectionDir::at(&ours, "elections/e".into()).set_office(Version::NONE, &office).unwrap();
        // A container with a boot id of its own, or the same host after a reboot.
        let mut theirs = Directory::open(path, FileOptions::new(), Time::of_host()).unwrap();
        theirs.time.boot ^= 1;
        let election_dir = ElectionDir::at(&theirs, "elections/e".into());
        let tip = election_dir.tip().unwrap();
        assert_eq!(tip.office.ended, office.ended, "it is not over yet");
        let record = path.join(format!("elections/e/office/{}/{RECORD}", tip.number));
        let record = std::fs::File::options().write(true).open(record).unwrap();
        record.set_modified(SystemTime::now() - KEEP * 2).unwrap();
        assert_eq!(election_dir.tip().unwrap().office.ended, None);
        drop((ours, theirs));
    }
}
