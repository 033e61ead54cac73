//! How an entry is written: version, session and incarnation, which scripts put there; the name of
//! the candidate, with its length before it; and what the candidate says, which is its readiness
//! and its value.

use incumbent_store::{Entry, EntryId, Nonce, Version};

use crate::keys::{self, DIGITS, INCARNATION_BYTES, SESSION_BYTES};

/// The hexadecimal digits of a nonce, or as many dashes.
const READY_BYTES: usize = 16;
const NOT_READY: &str = "----------------";

/// A name with its length before it.
pub(crate) fn encode_name(name: &str) -> Vec<u8> {
    format!("{:04x}{name}", name.len()).into_bytes()
}

/// What a candidate says.
pub(crate) fn encode_said(ready: Option<Nonce>, value: &[u8]) -> Vec<u8> {
    let ready = ready.map_or_else(|| NOT_READY.to_owned(), |ready| format!("{:016x}", ready.0));
    [ready.as_bytes(), value].concat()
}

/// The entry with this token, as others see it. `None`: it is damaged.
pub(crate) fn parse(token: &[u8], kept: &[u8]) -> Option<Entry> {
    let id = EntryId::new(std::str::from_utf8(token).ok()?);
    let mut rest = kept;
    let mut take = |bytes: usize| {
        let (taken, left) = rest.split_at_checked(bytes)?;
        rest = left;
        std::str::from_utf8(taken).ok()
    };
    let version = keys::parse_digits(take(DIGITS)?)?;
    take(SESSION_BYTES)?;
    let incarnation = take(INCARNATION_BYTES)?.parse().ok()?;
    let name_bytes = usize::from_str_radix(take(4)?, 16).ok()?;
    let name = take(name_bytes)?;
    let ready = match take(READY_BYTES)? {
        NOT_READY => None,
        nonce => Some(Nonce(u64::from_str_radix(nonce, 16).ok()?)),
    };
    let mut entry = Entry::new(id.clone(), keys::token_of(&id)?);
    entry.version = Version(version);
    entry.incarnation = Some(incarnation);
    entry.name = Some(name.into());
    entry.ready = ready;
    entry.value = rest.to_vec().into();
    Some(entry)
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Incarnation, MAX_NAME_BYTES};

    use super::*;

    #[test]
    fn an_entry_comes_back_with_the_longest_name_and_any_value() {
        let (session, incarnation) = (format!("{}{}", keys::digits(5), keys::ttl_digits(9)), Incarnation::from_bits(7));
        let owner = format!("{}{session}{incarnation}", keys::digits(9));
        for (name, ready, value) in [
            ("n", None, &b""[..]),
            (&"%".repeat(MAX_NAME_BYTES), Some(Nonce(u64::MAX)), b"\0\xff"),
            ("später", Some(Nonce(0)), NOT_READY.as_bytes()),
        ] {
            let kept = [owner.as_bytes(), &encode_name(name), &encode_said(ready, value)].concat();
            let entry = parse(keys::digits(8).as_bytes(), &kept).unwrap();
            assert_eq!((entry.name.as_deref(), entry.ready, &entry.value[..]), (Some(name), ready, value));
            assert_eq!((entry.token.get(), entry.version.0, entry.incarnation), (8, 9, Some(incarnation)));
            for bytes in 0..kept.len() - value.len() {
                assert_eq!(parse(keys::digits(8).as_bytes(), &kept[..bytes]), None, "cut after {bytes} bytes");
            }
        }
    }
}
