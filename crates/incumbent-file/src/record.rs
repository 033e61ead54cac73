//! What stands in the files: how it is framed, checked and refused.
//!
//! A file is a line for people (`incumbent entry 1`), a length, the fields, and a checksum. So a torn, truncated or
//! foreign file is told from a whole one, and one of a later version from a damaged one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_store::record::{decode_office, encode_office};
use incumbent_store::{Incarnation, Nonce, Office, StoreError, Version};

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
}

/// What a candidate has said since.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) value: Bytes,
    pub(crate) ready: Option<Nonce>,
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
    fn take(from: &mut Reader<'_>) -> Option<Self>;

    fn encode(&self) -> Vec<u8> {
        let mut body = Writer(Vec::new());
        self.put(&mut body);
        let mut out = format!("incumbent {} {FORMAT}\n", Self::KIND).into_bytes();
        out.extend_from_slice(&(body.0.len() as u32).to_le_bytes());
        out.extend_from_slice(&body.0);
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
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
        let mut reader = Reader(body);
        match Self::take(&mut reader) {
            Some(record) if reader.0.is_empty() => Ok((record, rest)),
            _ => Err(corrupt(disk, path, "its fields make no sense")),
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

fn unframe<'a>(bytes: &'a [u8], kind: &str) -> Result<(&'a [u8], &'a [u8]), String> {
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
    let body_at = end + 1 + 4;
    let length = bytes.get(end + 1..body_at).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
    let sum_at = length.and_then(|length| body_at.checked_add(length as usize)).ok_or("it is truncated")?;
    let sum = bytes.get(sum_at..sum_at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    match sum {
        None => Err("it is truncated".into()),
        Some(sum) if sum != checksum(&bytes[..sum_at]) => Err("its checksum is wrong".into()),
        Some(_) => Ok((&bytes[body_at..sum_at], &bytes[sum_at + 8..])),
    }
}

/// FNV-1a: it finds accidents, and nobody but us can write here.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The bytes of a heartbeat: the number and its complement, since a reader may come in the middle of a write.
pub(crate) fn encode_beat(beat: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&beat.to_le_bytes());
    bytes[8..].copy_from_slice(&(!beat).to_le_bytes());
    bytes
}

/// The heartbeat, unless it is half written.
pub(crate) fn decode_beat(bytes: &[u8]) -> Option<u64> {
    let beat = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let check = u64::from_le_bytes(bytes.get(8..)?.try_into().ok()?);
    (beat == !check).then_some(beat)
}

impl Record for Identity {
    const KIND: &'static str = "store";

    fn put(&self, out: &mut Writer) {
        out.u128(self.id);
    }

    fn take(from: &mut Reader<'_>) -> Option<Identity> {
        Some(Identity { id: from.u128()? })
    }
}

impl Record for SessionRecord {
    const KIND: &'static str = "session";

    fn put(&self, out: &mut Writer) {
        out.u128(self.id);
        out.u64(self.pid.into());
        out.u64(self.pid_namespace);
        out.u128(self.clock);
        out.option(self.observed.as_ref(), |out, ttl| out.duration(*ttl));
    }

    fn take(from: &mut Reader<'_>) -> Option<SessionRecord> {
        Some(SessionRecord {
            id: from.u128()?,
            pid: from.u64()?.try_into().ok()?,
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
        out.bytes(self.name.as_bytes());
        out.bytes(&self.value);
        out.u64(self.enlisted_at);
    }

    fn take(from: &mut Reader<'_>) -> Option<EntryRecord> {
        Some(EntryRecord {
            session: from.u128()?,
            incarnation: Incarnation::from_bits(from.u128()?),
            name: from.text()?,
            value: Bytes::copy_from_slice(from.bytes()?),
            enlisted_at: from.u64()?,
        })
    }
}

impl Record for Said {
    const KIND: &'static str = "value";

    fn put(&self, out: &mut Writer) {
        out.option(self.ready.as_ref(), |out, ready| out.u64(ready.0));
        out.bytes(&self.value);
    }

    fn take(from: &mut Reader<'_>) -> Option<Said> {
        let ready = from.option(Reader::u64)?.map(Nonce);
        Some(Said { value: Bytes::copy_from_slice(from.bytes()?), ready })
    }
}

impl Record for OfficeRecord {
    const KIND: &'static str = "office";

    fn put(&self, out: &mut Writer) {
        out.u128(self.boot);
        out.u64(self.tombstone_until_nanos);
        out.bytes(&encode_office(&self.office));
    }

    fn take(from: &mut Reader<'_>) -> Option<OfficeRecord> {
        let (boot, tombstone_until_nanos) = (from.u128()?, from.u64()?);
        let office = decode_office(from.bytes()?, Version::NONE)?;
        Some(OfficeRecord { office, boot, tombstone_until_nanos })
    }
}

/// Fields in, bytes out.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn u128(&mut self, number: u128) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn duration(&mut self, duration: Duration) {
        self.u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn option<T>(&mut self, some: Option<&T>, put: impl FnOnce(&mut Writer, &T)) {
        self.0.push(some.is_some().into());
        if let Some(some) = some {
            put(self, some);
        }
    }
}

/// Bytes in, fields out; `None` where they do not fit.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn u128(&mut self) -> Option<u128> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u128::from_le_bytes(*number))
    }

    fn duration(&mut self) -> Option<Duration> {
        self.u64().map(Duration::from_nanos)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u64()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<Arc<str>> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(Arc::from)
    }

    /// The outer `None`: it does not fit.
    fn option<T>(&mut self, take: impl FnOnce(&mut Reader<'a>) -> Option<T>) -> Option<Option<T>> {
        let (there, rest) = self.0.split_first()?;
        self.0 = rest;
        match there {
            0 => Some(None),
            1 => take(self).map(Some),
            _ => None,
        }
    }
}
