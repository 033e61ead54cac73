//! Random numbers from the kernel: the one source of ids, seeds and secrets.

use std::io;

use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::StoreError;

/// Bytes that nobody can guess.
///
/// It waits while the kernel is gathering randomness, once after a boot, and fails only where a
/// process is kept from asking.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += retry_on_intr(|| getrandom(&mut bytes[filled..], GetRandomFlags::empty()))?;
    }
    Ok(bytes)
}

/// A seed, or a nonce to begin with.
pub fn random_words<const N: usize>() -> io::Result<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        *word = u64::from_ne_bytes(random()?);
    }
    Ok(words)
}

/// An id that nothing else has.
pub fn random_id() -> Result<u128, StoreError> {
    let bytes = random().map_err(|error| StoreError::unavailable("the kernel gives no random numbers", error))?;
    Ok(u128::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same_and_every_byte_is_drawn() {
        assert_ne!(random_id().unwrap(), random_id().unwrap());
        // More than the kernel gives in one call that a signal can interrupt.
        let long: [u8; 4096] = random().unwrap();
        assert!(long.chunks(64).all(|chunk| chunk.iter().any(|byte| *byte != 0)));
        let [first, second] = random_words().unwrap();
        assert_ne!(first, second);
    }
}
