//! Feeds the readers of nodes what other libraries, and people with a shell, may have put there.

use incumbent_store::Merit;
use incumbent_store::record::CandidateRecord;
use incumbent_testkit::fuzz::{Rng, fuzz};

use crate::Dialect;
use crate::node::{frame, unframe};

const DIALECTS: [&str; 5] = ["ours", "curator-latch", "curator-selector", "kazoo", "go-leaderelection"];

#[test]
fn fuzz_what_is_read_of_a_node_comes_back() {
    let good = |rng: &mut Rng| {
        let record = CandidateRecord {
            incarnation: rng.incarnation(),
            name: "node-1".into(),
            ready: Some(rng.nonce()),
            merit: Merit::new(true, 7),
        };
        frame(&record, b"10.0.0.7:80\n\n")
    };
    fuzz(good, |data| {
        let read = unframe(data);
        if let Some((record, value)) = &read {
            assert_eq!(unframe(&frame(record, value)).as_ref(), Some(&(record.clone(), value.clone())));
        }
        read.is_some()
    });
}

/// Two candidates that read the same children in another order must agree on who is first.
#[test]
fn fuzz_every_order_of_children_gives_the_same_line() {
    let dialect = |rng: &mut Rng| Dialect::from_name(DIALECTS[rng.below(DIALECTS.len() as u64) as usize]).unwrap();
    let good = |rng: &mut Rng| {
        let dialect = dialect(rng);
        let names = (0..4).map(|_| format!("{}{:010}", dialect.prefix(rng.incarnation()), rng.below(1_000)));
        names.collect::<Vec<_>>().join("\n").into_bytes()
    };
    fuzz(good, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let mut names: Vec<String> = text.split('\n').map(str::to_owned).collect();
        names.sort();
        names.dedup();
        let turned: Vec<String> = names.iter().rev().cloned().collect();
        let lines = DIALECTS.map(|name| {
            let dialect = Dialect::from_name(name).unwrap();
            let line = dialect.line("/jobs", &names).ok();
            let same = dialect.line("/jobs", &turned).ok();
            assert_eq!(line.as_ref().map(|line| by_name(line)), same.as_ref().map(|line| by_name(line)), "{name}");
            line
        });
        lines.iter().flatten().any(|line| line.len() > 1)
    });
}

fn by_name(line: &[crate::dialect::Child]) -> Vec<&str> {
    line.iter().map(|child| child.name.as_str()).collect()
}
