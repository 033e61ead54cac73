//! What the files contain: how it is framed, checked and refused.
//!
//! A file is a line for people (`incumbent entry 1`), a length, the fields, and a checksum. So a
//! torn, truncated or foreign file can be told from a whole one, and one of a later version from a
//! damaged one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::binary::{ReadError, Reader, Writer, checksum};
use incumbent_store::record::{decode_office, encode_office};
use incumbent_store::{Incarnation, Merit, Nonce, Office, Publication, StoreError, Version};

use crate::disk::Disk;

/// The version of every kind of file.
const FORMAT: u32 = 1;

/// Whose the directory is: written once.
#[derive(Debug, PartialEq)]
pub(crate) struct Identity {
    pub(crate) id: u128,
}

/// A session, without its heartbeat, which follows the frame.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SessionRecord {
    pub(crate) id: u128,
    pub(crate) pid: u32,
    /// In which namespace the pid means something.
    pub(crate) pid_namespace: u64,
    /// Which clock its heartbeats are on.
    pub(crate) clock: u128,
    /// After how much silence rivals may evict its entries. `None`: never.
    pub(crate) observed: Option<Duration>,
}

/// An entry, as it was put in line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntryRecord {
    pub(crate) session: u128,
    pub(crate) incarnation: Incarnation,
    pub(crate) name: Arc<str>,
    pub(crate) value: Bytes,
    /// When it was made, on the session's clock: a sign of life, too.
    pub(crate) enlisted_at: u64,
    pub(crate) merit: Merit,
}

/// The office record, and until when its tombstone stays, on the clock of one boot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfficeRecord {
    pub(crate) office: Office,
    pub(crate) boot: u128,
    pub(crate) tombstone_until_nanos: u64,
}

/// A kind of file.
pub(crate) trait Record: Sized {
    const KIND: &'static str;
    fn put(&self, out: &mut Writer);
    fn take(from: &mut Reader<'_>) -> Result<Self, ReadError>;

    fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        self.put(&mut body);
        let body = body.into_bytes();
        let mut out = Writer::default();
        out.bytes(format!("incumbent {} {FORMAT}\n", Self::KIND).as_bytes()).u32(body.len() as u32).bytes(&body);
        let sum = checksum(out.as_bytes().iter().copied());
        out.u64(sum);
        out.into_bytes()
    }

    /// Reads a whole file.
    fn decode(bytes: &[u8], disk: &Disk, path: &str) -> Result<Self, StoreError> {
        match Self::decode_front(bytes, disk, path)? {
            (record, []) => Ok(record),
            _ => Err(corrupt(disk, path, "there is something after its end")),
        }
    }

    /// Reads the frame, and returns what follows it.
    fn decode_front<'a>(bytes: &'a [u8], disk: &Disk, path: &str) -> Result<(Self, &'a [u8]), StoreError> {
        let (body, rest) = unframe(bytes, Self::KIND).map_err(|why| corrupt(disk, path, why))?;
        let mut reader = Reader::new(body);
        match Self::take(&mut reader).and_then(|record| reader.end().map(|()| record)) {
            Ok(record) => Ok((record, rest)),
            Err(_) => Err(corrupt(disk, path, "its fields make no sense")),
        }
    }
}

/// A damaged file, by name, and what to do about it.
pub(crate) fn corrupt(disk: &Disk, path: &str, why: impl std::fmt::Display) -> StoreError {
    let (file, root) = (disk.full(path), disk.path().display());
    let remove = if path.starts_with("elections/") || path.starts_with("sessions/") {
        // A place in line is a directory with its record in it.
        let part = if path.ends_with("/record") { file.parent().unwrap_or(&file) } else { &file };
        format!("remove {}", part.display())
    } else {
        // Whose it is, or which tokens were given: nothing else here means anything without it.
        format!("remove {root}: elections start anew then, as another store")
    };
    let what = format!("{}: {why}; once nothing uses the store, {remove}", file.display());
    StoreError::Corrupt { what }
}

pub(crate) fn unframe<'a>(bytes: &'a [u8], kind: &str) -> Result<(&'a [u8], &'a [u8]), String> {
    if bytes.is_empty() {
        return Err("it is empty".into());
    }
    let end = bytes.iter().take(64).position(|byte| *byte == b'\n').ok_or("it was not written by incumbent")?;
    let title = std::str::from_utf8(&bytes[..end]).unwrap_or("");
    let version = title.strip_prefix("incumbent ").and_then(|rest| rest.strip_prefix(kind)).map(str::trim);
    match version.and_then(|version| version.parse::<u32>().ok()) {
        Some(FORMAT) => {}
        Some(version) if version > FORMAT => {
            return Err(format!("it was written by a later version (format {version}, this one knows {FORMAT})"));
        }
        _ => return Err(format!("it is no {kind} of incumbent")),
    }
    let mut reader = Reader::new(&bytes[end + 1..]);
    let body = reader.u32().and_then(|length| reader.bytes(length as usize)).map_err(|_| "it is truncated")?;
    let sum_at = bytes.len() - reader.rest().len();
    match reader.u64() {
        Err(_) => Err("it is truncated".into()),
        Ok(sum) if sum != checksum(bytes[..sum_at].iter().copied()) => Err("its checksum is wrong".into()),
        Ok(_) => Ok((body, reader.rest())),
    }
}

/// The bytes of a heartbeat: the number and its complement, since a reader may come in the middle
/// of a write.
pub(crate) fn encode_beat(beat: u64) -> Vec<u8> {
    let mut writer = Writer::with_capacity(16);
    writer.u64(beat).u64(!beat);
    writer.into_bytes()
}

/// The heartbeat, unless it is half written.
pub(crate) fn decode_beat(bytes: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(bytes);
    let (beat, check) = (reader.u64().ok()?, reader.u64().ok()?);
    (beat == !check && reader.end().is_ok()).then_some(beat)
}

impl Record for Identity {
    const KIND: &'static str = "store";

    fn put(&self, out: &mut Writer) {
        out.u128(self.id);
    }

    fn take(from: &mut Reader<'_>) -> Result<Identity, ReadError> {
        Ok(Identity { id: from.u128()? })
    }
}

impl Record for SessionRecord {
    const KIND: &'static str = "session";

    fn put(&self, out: &mut Writer) {
        out.u128(self.id);
        out.u64(self.pid.into());
        out.u64(self.pid_namespace);
        out.u128(self.clock);
        out.option(self.observed, Writer::duration);
    }

    fn take(from: &mut Reader<'_>) -> Result<SessionRecord, ReadError> {
        Ok(SessionRecord {
            id: from.u128()?,
            pid: from.u64()?.try_into().map_err(|_| ReadError::OutOfBounds)?,
            pid_namespace: from.u64()?,
            clock: from.u128()?,
            observed: from.option(Reader::duration)?,
        })
    }
}

impl Record for EntryRecord {
    const KIND: &'static str = "entry";

    fn put(&self, out: &mut Writer) {
        out.u128(self.session);
        out.u128(self.incarnation.to_bits());
        out.block(self.name.as_bytes());
        out.block(&self.value);
        out.u64(self.enlisted_at);
        put_merit(out, self.merit);
    }

    fn take(from: &mut Reader<'_>) -> Result<EntryRecord, ReadError> {
        Ok(EntryRecord {
            session: from.u128()?,
            incarnation: Incarnation::from_bits(from.u128()?),
            name: text(from)?,
            value: Bytes::copy_from_slice(from.block()?),
            enlisted_at: from.u64()?,
            merit: take_merit(from)?,
        })
    }
}

/// What a candidate has published since it came.
impl Record for Publication {
    const KIND: &'static str = "value";

    fn put(&self, out: &mut Writer) {
        out.option(self.ready, |out, ready| out.u64(ready.0));
        out.block(&self.value);
        put_merit(out, self.merit);
    }

    fn take(from: &mut Reader<'_>) -> Result<Publication, ReadError> {
        let ready = from.option(Reader::u64)?.map(Nonce);
        let value = Bytes::copy_from_slice(from.block()?);
        Ok(Publication::new(value).ready(ready).merit(take_merit(from)?))
    }
}

/// Nothing is written for one that says nothing of itself, as it was before there was anything to
/// say.
fn put_merit(out: &mut Writer, merit: Merit) {
    if !merit.is_blank() {
        out.block(merit.to_string().as_bytes());
    }
}

fn take_merit(from: &mut Reader<'_>) -> Result<Merit, ReadError> {
    match from.rest().len() {
        0 => Ok(Merit::default()),
        // As it was written while there was no more to say than whether it is unwell.
        1 => Ok(Merit::new(from.flag()?, 0)),
        _ => Merit::from_words(&text(from)?).ok_or(ReadError::OutOfBounds),
    }
}

impl Record for OfficeRecord {
    const KIND: &'static str = "office";

    fn put(&self, out: &mut Writer) {
        out.u128(self.boot);
        out.u64(self.tombstone_until_nanos);
        out.block(&encode_office(&self.office));
    }

    fn take(from: &mut Reader<'_>) -> Result<OfficeRecord, ReadError> {
        let (boot, tombstone_until_nanos) = (from.u128()?, from.u64()?);
        let office = decode_office(from.block()?, Version::NONE).ok_or(ReadError::OutOfBounds)?;
        Ok(OfficeRecord { office, boot, tombstone_until_nanos })
    }
}

fn text(from: &mut Reader<'_>) -> Result<Arc<str>, ReadError> {
    std::str::from_utf8(from.block()?).map(Arc::from).map_err(|_| ReadError::OutOfBounds)
}
