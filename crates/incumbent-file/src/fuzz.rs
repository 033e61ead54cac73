//! Feeds the readers of files and of their names what a torn write, another program or a person may
//! have left there. Bodies are read past their checksums, which would hide almost everything.

use std::time::Duration;

use bytes::Bytes;
use incumbent_store::binary::{Reader, Writer};
use incumbent_store::record::decode_office;
use incumbent_store::{Incarnation, Merit, Nonce, Publication, Version};
use incumbent_testkit::fuzz::{Rng, fuzz};

use crate::election_dir::parse_publication_name;
use crate::record::{EntryRecord, Identity, OfficeRecord, Record, SessionRecord, unframe};
use crate::sequence::StagedName;

fn entry(rng: &mut Rng) -> EntryRecord {
    EntryRecord {
        session: rng.next_u64().into(),
        incarnation: Incarnation::from_bits(rng.next_u64().into()),
        name: "node-ü".into(),
        value: Bytes::from_static(b"10.0.0.7:80"),
        enlisted_at: rng.next_u64(),
        merit: Merit::new(rng.below(2) == 0, rng.below(3) as i32 - 1),
    }
}

fn session(rng: &mut Rng) -> SessionRecord {
    SessionRecord {
        id: rng.next_u64().into(),
        pid: rng.next_u64() as u32,
        pid_namespace: rng.next_u64(),
        clock: rng.next_u64().into(),
        observed: (rng.below(2) == 0).then_some(Duration::from_secs(15)),
    }
}

fn body(record: &impl Record) -> Vec<u8> {
    let mut out = Writer::default();
    record.put(&mut out);
    out.into_bytes()
}

/// Whether a body can be read, and is written as it was read.
fn comes_back<R: Record>(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let read = R::take(&mut reader).and_then(|record| reader.end().map(|()| record));
    read.is_ok_and(|record| {
        let again = body(&record);
        let mut reader = Reader::new(&again);
        R::take(&mut reader).is_ok_and(|second| body(&second) == again)
    })
}

#[test]
fn fuzz_what_is_read_of_a_file_comes_back() {
    let good = |rng: &mut Rng| match rng.below(4) {
        0 => body(&entry(rng)),
        1 => body(&session(rng)),
        2 => body(&Publication::new("v").ready(Some(Nonce(rng.next_u64()))).merit(Merit::new(rng.below(2) == 0, 0))),
        _ => {
            let office = decode_office(b"incumbent 1\npaused for now\n", Version::NONE).unwrap();
            body(&OfficeRecord { office, boot: rng.next_u64().into(), tombstone_until_nanos: rng.next_u64() })
        }
    };
    fuzz(good, |bytes| {
        let read = [
            comes_back::<EntryRecord>(bytes),
            comes_back::<SessionRecord>(bytes),
            comes_back::<Publication>(bytes),
            comes_back::<OfficeRecord>(bytes),
            comes_back::<Identity>(bytes),
        ];
        read.contains(&true)
    });
}

#[test]
fn fuzz_a_file_has_one_name() {
    let good = |rng: &mut Rng| {
        let number = rng.next_u64() >> rng.below(64);
        let name = match rng.below(3) {
            0 => format!("{number}.{}", rng.below(1000)),
            1 => format!("line.{number}.{:032x}", rng.next_u64()),
            _ => format!("office.{number}.{:032x}", rng.next_u64()),
        };
        name.into_bytes()
    };
    fuzz(good, |name| {
        let Ok(name) = std::str::from_utf8(name) else { return false };
        let publication = parse_publication_name(name).map(|(number, times)| format!("{number}.{times}"));
        let read = publication.or_else(|| StagedName::parse(name).map(|staged| staged.to_string()));
        if let Some(read) = &read {
            assert_eq!(read, name, "nobody else's file is taken for this one");
        }
        read.is_some()
    });
}

#[test]
fn fuzz_a_frame_is_whole_or_refused() {
    let good = |rng: &mut Rng| entry(rng).encode();
    fuzz(good, |bytes| match unframe(bytes, EntryRecord::KIND) {
        Ok((body, rest)) => {
            assert!(body.len() + rest.len() < bytes.len());
            true
        }
        Err(_) => false,
    });
}
