//! What is in a node: entries as others see them. Knows nothing of requests.

use bytes::Bytes;
use incumbent_store::record::CandidateRecord;
use incumbent_store::{Entry, Merit, StoreError, Version};
use zookeeper_client::Stat;

use crate::paths::{id_of, token_of};

/// A node's data and what the server knows about it.
pub(crate) type Node = (Vec<u8>, Stat);

/// What a candidate says about itself, an empty line, and its value as it is.
pub(crate) fn frame(record: &CandidateRecord, value: &[u8]) -> Vec<u8> {
    let mut data = record.encode();
    data.push(b'\n');
    data.extend_from_slice(value);
    data
}

/// `None`: another library wrote it, or somebody by hand.
pub(crate) fn unframe(data: &[u8]) -> Option<(CandidateRecord, Bytes)> {
    let end = data.windows(2).position(|pair| pair == b"\n\n")?;
    let record = CandidateRecord::decode(&data[..=end])?;
    Some((record, Bytes::copy_from_slice(&data[end + 2..])))
}

/// The entry as others see it: the node in line, and beside it, in a foreign dialect, what our
/// candidate says about itself.
pub(crate) fn entry(name: &str, (data, stat): &Node, record: Option<&Node>) -> Result<Entry, StoreError> {
    let record = record.filter(|(_, other)| is_about(other, stat));
    let token = token_of(stat.czxid)?;
    let ours = unframe(record.map_or(data, |(data, _)| data));
    let version = record.map_or(stat.mzxid, |(_, other)| other.mzxid.max(stat.mzxid));
    let (record, value) = match ours {
        Some((record, value)) => (Some(record), value),
        None => (None, Bytes::copy_from_slice(data)),
    };
    let said = || std::str::from_utf8(data).ok().filter(|name| !name.is_empty()).map(Into::into);
    let mut entry = Entry::new(id_of(name, token), token);
    entry.incarnation = record.as_ref().map(|record| record.incarnation);
    entry.ready = record.as_ref().and_then(|record| record.ready);
    entry.merit = record.as_ref().map_or_else(Merit::default, |record| record.merit);
    entry.name = record.map_or_else(said, |record| Some(record.name));
    entry.value = value;
    entry.version = Version(version.unsigned_abs());
    entry.stays = !is_ephemeral(stat);
    Ok(entry)
}

/// Whether a record is about this entry: one session made both, and the record with it or, when
/// somebody had removed it, after it. An older one was left by another entry.
pub(crate) fn is_about(record: &Stat, entry: &Stat) -> bool {
    record.ephemeral_owner == entry.ephemeral_owner && record.czxid >= entry.czxid
}

/// The other kinds of nodes use the same field: zero for a plain one, the smallest number for a
/// container.
fn is_ephemeral(stat: &Stat) -> bool {
    stat.ephemeral_owner != 0 && stat.ephemeral_owner != i64::MIN
}

/// An entry that is not ephemeral would block the line for ever: nobody's death removes it.
pub(crate) fn check_ephemeral(path: &str, name: &str, stat: &Stat) -> Result<(), StoreError> {
    if !is_ephemeral(stat) {
        let what = format!(
            "{path}/{name} stands in line but is not ephemeral: nobody's death removes it; delete it, or depose it"
        );
        return Err(StoreError::Corrupt { what });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Incarnation, Nonce};

    use super::*;

    fn record() -> CandidateRecord {
        let (incarnation, name) = (Incarnation::from_bits(7), "node\n1".into());
        CandidateRecord { incarnation, name, ready: Some(Nonce(3)), merit: Merit::new(true, 0) }
    }

    #[test]
    fn a_record_and_any_value_come_back() {
        for value in [&b""[..], b"10.0.0.7:80", b"\n\n\n", b"\0\xff\n\nincumbent 1\n"] {
            let (found, bytes) = unframe(&frame(&record(), value)).unwrap();
            assert_eq!((found, &bytes[..]), (record(), value));
        }
    }

    #[test]
    fn what_others_wrote_is_not_taken_for_ours() {
        for data in [&b""[..], b"node-1", b"\n\n", b"incumbent 1\nname x\n\nvalue", b"incumbent 2\n\n"] {
            assert_eq!(unframe(data), None, "{data:?}");
        }
    }
}
