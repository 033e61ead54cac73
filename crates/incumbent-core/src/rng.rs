//! Randomness from a seed (xoshiro256++), so that a run can be replayed.

use std::time::Duration;

use crate::entry::{Incarnation, Nonce};
use crate::time::nanos;

/// A deterministic source of random numbers. Not for secrets.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// A source with the full entropy of `seed`.
    pub fn from_seed(seed: [u64; 4]) -> Rng {
        // An all-zero state would stay zero for ever.
        Rng(if seed == [0; 4] { [1, 2, 3, 4] } else { seed })
    }

    /// A source from one number, for simulations.
    pub fn from_number(mut number: u64) -> Rng {
        // splitmix64: neighbouring numbers must not give related streams.
        Rng::from_seed(std::array::from_fn(|_| {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = number;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`; zero if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product: its bias is below 2^-64 * bound, which nothing here
        // can notice.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A source of its own, for a part that must not disturb the others' order of draws.
    pub fn fork(&mut self) -> Rng {
        Rng::from_seed(std::array::from_fn(|_| self.next_u64()))
    }

    /// A new incarnation.
    pub fn incarnation(&mut self) -> Incarnation {
        Incarnation::from_bits(u128::from(self.next_u64()) << 64 | u128::from(self.next_u64()))
    }

    /// A new nonce.
    pub fn nonce(&mut self) -> Nonce {
        Nonce(self.next_u64())
    }

    /// Between half of `duration` and all of it.
    pub fn jitter(&mut self, duration: Duration) -> Duration {
        let nanos = nanos(duration);
        Duration::from_nanos(nanos / 2 + self.below(nanos / 2 + 1))
    }
}
