//! What a consensus member never forgets: its disk's number, the charter that it has accepted, its
//! term and its vote.
//!
//! One file, `member`, always replaced as a whole: written beside it, flushed, renamed, and the
//! directory flushed. So after a crash it is the old one or the new one. A checksum finds damage;
//! the group and the member are in it, so that a mix-up is found, too. The directory is locked for
//! as long as the process lives.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use incumbent_core::binary::{Reader, Writer, checksum};
use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::Stored;
use incumbent_store::{make_dir_durably, random, replace_durably};
use rustix::fs::{FlockOperation, flock};

use crate::founding::{Charter, DiskId};
use crate::node::StartError;

const FILE: &str = "member";
const DRAFT: &str = "member.new";
const LOCK: &str = "lock";
const MAGIC: [u8; 8] = *b"incmemb\x01";
const CHECKSUM_BYTES: usize = size_of::<u64>();
/// Larger than any such file.
const MAX_BYTES: u64 = 4096;

/// What is written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) disk: DiskId,
    /// The charter that was accepted, or under which the member votes.
    pub(crate) charter: Option<Charter>,
    /// Term and vote, once it votes.
    pub(crate) stored: Option<Stored>,
}

/// What was found at the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing: a new disk, or a wiped one.
    Nothing,
    /// A sound record of this member.
    Record(Record),
    /// Something that is no record, and why.
    Damaged(&'static str),
}

/// A member's directory, locked.
#[derive(Debug)]
pub(crate) struct Disk {
    path: PathBuf,
    directory: File,
    group: u64,
    me: MemberId,
    lock: File,
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Closing would do, but for a child that was forked a moment ago and has not yet closed its
        // copy. Nothing can be done if it fails: closing follows.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Disk {
    /// Makes the directory if it is missing, locks it, and reads what is there.
    pub(crate) fn open(path: &Path, group: u64, me: MemberId) -> Result<(Disk, Found), StartError> {
        let failed = |why: io::Error| StartError::Data { path: path.to_owned(), why };
        make_dir_durably(path).map_err(failed)?;
        let directory = File::open(path).map_err(failed)?;
        let disk = Disk { path: path.to_owned(), directory, group, me, lock: lock(path)? };
        let found = disk.read()?;
        Ok((disk, found))
    }

    /// A new number for a disk.
    pub(crate) fn new_id() -> io::Result<DiskId> {
        random().map(DiskId)
    }

    fn read(&self) -> Result<Found, StartError> {
        let failed = |why: io::Error| StartError::Data { path: self.path.clone(), why };
        let Some(bytes) = read_file(&self.path.join(FILE)).map_err(failed)? else { return Ok(Found::Nothing) };
        match decode(&bytes) {
            Ok((group, me, _)) if (group, me) != (self.group, self.me) => {
                Err(StartError::Foreign { path: self.path.clone(), member: me, same_group: group == self.group })
            }
            Ok((_, _, record)) => Ok(Found::Record(record)),
            Err(why) => Ok(Found::Damaged(why)),
        }
    }

    /// Replaces the record, durably.
    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        replace_durably(&self.directory, FILE, DRAFT, &encode(self.group, self.me, record), None)
    }
}

/// Locks a directory for as long as the file lives.
fn lock(path: &Path) -> Result<File, StartError> {
    let failed = |why: io::Error| StartError::Data { path: path.to_owned(), why };
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path.join(LOCK));
    let lock = lock.map_err(failed)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StartError::Locked { path: path.to_owned() }),
        Err(why) => Err(failed(why.into())),
    }
}

/// What a file says; `None` if there is no such file. Whatever else goes wrong says nothing about
/// votes.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(MAX_BYTES).read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(why),
    }
}

fn encode(group: u64, me: MemberId, record: &Record) -> Vec<u8> {
    let mut out = Writer::with_capacity(512);
    out.bytes(&MAGIC).u64(group).member(me).bytes(&record.disk.0);
    out.option(record.charter.as_ref(), |out, charter| charter.write(out));
    out.option(record.stored.as_ref(), |out, stored| out.bytes(&stored.encode(group, me)));
    let sum = checksum(out.as_bytes().iter().copied());
    out.u64(sum);
    out.into_bytes()
}

fn decode(bytes: &[u8]) -> Result<(u64, MemberId, Record), &'static str> {
    let (body, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or("it is cut short")?;
    if checksum(body.iter().copied()) != u64::from_le_bytes(*sum) {
        return Err("its checksum is wrong");
    }
    read_body(body).ok_or("it is of another version")
}

fn read_body(body: &[u8]) -> Option<(u64, MemberId, Record)> {
    let mut reader = Reader::new(body.strip_prefix(&MAGIC)?);
    let (group, me, disk) = (reader.u64().ok()?, reader.member().ok()?, DiskId(reader.array().ok()?));
    let charter = reader.option(Charter::read).ok()?;
    let stored = match reader.flag().ok()? {
        true => Some(Stored::decode(reader.rest(), group, me)?),
        false => reader.end().ok().map(|()| None)?,
    };
    Some((group, me, Record { disk, charter, stored }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use incumbent_core::peers::consensus::{Ballot, LastOffice, Position};
    use incumbent_testkit::TempDir;

    use super::*;

    const ME: MemberId = MemberId(2);

    fn record() -> Record {
        Record {
            disk: DiskId([7; 16]),
            charter: Some(Charter((1..4).map(|n| (MemberId(n), DiskId([n as u8; 16]))).collect())),
            stored: Some(Stored {
                term: 9,
                ballot: Ballot::For(MemberId(3)),
                abstain: Duration::from_secs(3),
                catch_up: Position::NONE,
                last: LastOffice { term: 8, is_closed: true },
            }),
        }
    }

    #[test]
    fn what_is_written_is_found_after_a_restart() {
        let scratch = TempDir::new("peers");
        let path = scratch.path().join("made/on/the/way");
        let (disk, found) = Disk::open(&path, 5, ME).unwrap();
        assert_eq!(found, Found::Nothing);
        for record in
            [Record { charter: None, stored: None, ..record() }, Record { stored: None, ..record() }, record()]
        {
            disk.write(&record).unwrap();
            assert_eq!(disk.read().unwrap(), Found::Record(record));
        }
        drop(disk);
        assert_eq!(Disk::open(&path, 5, ME).unwrap().1, Found::Record(record()));
    }

    #[test]
    fn a_directory_has_one_user_at_a_time() {
        let scratch = TempDir::new("peers");
        let (first, _) = Disk::open(scratch.path(), 5, ME).unwrap();
        assert!(matches!(Disk::open(scratch.path(), 5, ME), Err(StartError::Locked { .. })));
        // As a child has that was forked a moment ago.
        let _copy = first.lock.try_clone().unwrap();
        drop(first);
        Disk::open(scratch.path(), 5, ME).unwrap();
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = encode(5, ME, &record());
        assert_eq!(decode(&good), Ok((5, ME, record())));
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "{len} bytes");
        }
    }

    /// Behind the checksum: what somebody else made with a good one is read as it stands, or
    /// refused.
    #[test]
    fn fuzz_a_record_is_read_whole_or_refused() {
        let good = |rng: &mut incumbent_core::Rng| {
            let members = 1 + rng.below(4) as u16;
            let disk = |rng: &mut incumbent_core::Rng| DiskId([rng.next_u64() as u8; 16]);
            let charter = Charter((1..=members).map(|member| (MemberId(member), disk(rng))).collect());
            let record = Record { disk: disk(rng), charter: (rng.below(2) == 0).then_some(charter), ..record() };
            let record = if rng.below(2) == 0 { record } else { Record { stored: None, ..record } };
            let mut bytes = encode(rng.next_u64(), ME, &record);
            bytes.truncate(bytes.len() - CHECKSUM_BYTES);
            bytes
        };
        incumbent_testkit::fuzz::fuzz(good, |body| {
            let Some((group, me, record)) = read_body(body) else { return false };
            let bytes = encode(group, me, &record);
            assert_eq!(bytes[..bytes.len() - CHECKSUM_BYTES], *body, "{record:?}");
            true
        });
    }

    #[test]
    fn a_damaged_file_is_not_taken_for_a_missing_one_and_a_crash_while_writing_harms_nothing() {
        let scratch = TempDir::new("peers");
        let (disk, _) = Disk::open(scratch.path(), 5, ME).unwrap();
        disk.write(&record()).unwrap();
        std::fs::write(scratch.path().join(DRAFT), b"half a rec").unwrap();
        assert_eq!(disk.read().unwrap(), Found::Record(record()));
        std::fs::write(scratch.path().join(FILE), b"").unwrap();
        assert!(matches!(disk.read().unwrap(), Found::Damaged(_)));
        std::fs::remove_file(scratch.path().join(FILE)).unwrap();
        std::fs::create_dir(scratch.path().join(FILE)).unwrap();
        assert!(matches!(disk.read(), Err(StartError::Data { .. })), "unreadable is not missing");
    }

    #[test]
    fn the_directory_of_another_member_or_group_is_refused_and_left_alone() {
        let scratch = TempDir::new("peers");
        let (disk, _) = Disk::open(scratch.path(), 5, ME).unwrap();
        disk.write(&record()).unwrap();
        drop(disk);
        let other = Disk::open(scratch.path(), 5, MemberId(1)).unwrap_err();
        assert!(matches!(other, StartError::Foreign { member: ME, same_group: true, .. }), "{other}");
        let other = Disk::open(scratch.path(), 6, ME).unwrap_err();
        assert!(matches!(other, StartError::Foreign { same_group: false, .. }), "{other}");
        assert_eq!(Disk::open(scratch.path(), 5, ME).unwrap().1, Found::Record(record()));
    }
}
