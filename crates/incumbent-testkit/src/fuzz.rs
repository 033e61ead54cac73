//! Feeds a decoder what no honest writer would write: random bytes, and good bytes that were
//! changed, cut, joined and repeated.
//!
//! A bounded run belongs to the tests. `INCUMBENT_FUZZ_SECONDS=600 cargo test` goes on with new
//! seeds for so long. The seed of what is found is printed.

use std::time::{Duration, Instant};

pub use incumbent_core::Rng;

/// Seeds of a bounded run.
const SEEDS: u64 = 12;
/// Inputs of one seed.
const BATCH: u64 = 4_000;
/// How many inputs that were read are kept, to be changed further.
const KEPT: usize = 64;
/// Longer inputs are not kept: they would grow for ever.
const KEPT_BYTES: usize = 2_000;

/// The seeds of a run: always the same, or new ones for as long as the environment says.
pub fn seeds() -> impl Iterator<Item = u64> {
    let seconds = std::env::var("INCUMBENT_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let first = until.map_or(0, |_| u64::from(std::process::id()) << 32);
    (first..).take_while(move |seed| match until {
        Some(until) => Instant::now() < until,
        None => *seed < SEEDS,
    })
}

/// Gives `read` inputs that were made from `good` ones. It answers whether it could read one, and
/// panics if what it read is wrong.
///
/// # Panics
///
/// If hardly anything was read, or hardly anything refused: then one side of the decoder was not
/// tried.
pub fn fuzz(mut good: impl FnMut(&mut Rng) -> Vec<u8>, mut read: impl FnMut(&[u8]) -> bool) {
    let (mut understood, mut refused) = (0_u64, 0_u64);
    for seed in seeds() {
        let _named = NamedWhenPanicking(seed);
        let mut rng = Rng::from_number(seed);
        let mut kept = Vec::new();
        for _ in 0..BATCH {
            let input = changed(&mut rng, &kept, &mut good);
            if !read(&input) {
                refused += 1;
                continue;
            }
            understood += 1;
            if kept.len() < KEPT {
                kept.push(input);
            } else if input.len() < KEPT_BYTES {
                kept[rng.below(KEPT as u64) as usize] = input;
            }
        }
    }
    assert!(understood > 1_000 && refused > 1_000, "one side is hardly tried: {understood} read, {refused} refused");
}

/// Good bytes that something happened to, or no good bytes at all.
fn changed(rng: &mut Rng, kept: &[Vec<u8>], good: &mut impl FnMut(&mut Rng) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = match rng.below(8) {
        0 => (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(),
        1..4 if !kept.is_empty() => kept[rng.below(kept.len() as u64) as usize].clone(),
        _ => good(rng),
    };
    for _ in 0..rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            3 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            4 => bytes.extend_from_within(at..),
            5 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => {
                let other = good(rng);
                let from = rng.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend(&other[from..]);
            }
        }
    }
    bytes
}

/// Says which seed it was.
struct NamedWhenPanicking(u64);

impl Drop for NamedWhenPanicking {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("found with seed {}", self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seven_zeros(_: &mut Rng) -> Vec<u8> {
        vec![0; 7]
    }

    #[test]
    #[should_panic = "a byte too many is read"]
    fn what_a_decoder_does_wrong_is_found() {
        fuzz(seven_zeros, |bytes| {
            assert!(bytes.len() != 8, "a byte too many is read");
            bytes.starts_with(&[0])
        });
    }

    #[test]
    #[should_panic = "one side is hardly tried"]
    fn a_decoder_that_reads_nothing_was_not_tried() {
        fuzz(seven_zeros, |_| false);
    }
}
