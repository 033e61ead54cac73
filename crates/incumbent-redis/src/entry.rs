//! How an entry is written: version, session and incarnation, which scripts put there; the name of
//! the candidate, with its length before it; and what the candidate says, which is the words that
//! it has for those who choose a leader, its readiness and its value.

use incumbent_store::{Entry, EntryId, Merit, NewEntry, Nonce, Publication, Version};

use crate::keys::{self, DIGITS, INCARNATION_BYTES, SESSION_BYTES};

/// The hexadecimal digits of a nonce, or as many dashes.
const READY_BYTES: usize = 16;
const NOT_READY: &str = "----------------";

/// A name with its length before it.
fn encode_name(name: &str) -> Vec<u8> {
    format!("{:04x}{name}", name.len()).into_bytes()
}

/// What a candidate says.
pub(crate) fn encode_said(said: &Publication) -> Vec<u8> {
    let words = said.merit.to_string();
    let merit: String = words.split_ascii_whitespace().map(encode_word).collect();
    let ready = said.ready.map_or_else(|| NOT_READY.to_owned(), |ready| format!("{:016x}", ready.0));
    [merit.as_bytes(), ready.as_bytes(), &said.value].concat()
}

/// What one says that enters the line: its name, too.
pub(crate) fn encode_new(entry: &NewEntry) -> Vec<u8> {
    let said = Publication::new(entry.value.clone()).merit(entry.merit);
    [encode_name(&entry.name), encode_said(&said)].concat()
}

/// A word with a space after it. One that begins as a readiness does has a plus before it.
fn encode_word(word: &str) -> String {
    let plus = if word.bytes().next().is_some_and(begins_readiness) { "+" } else { "" };
    format!("{plus}{word} ")
}

fn begins_readiness(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')
}

/// The words that a candidate has for those who choose a leader, and what comes after them.
fn split_words(said: &[u8]) -> Option<(Merit, &[u8])> {
    let (mut words, mut rest) = (String::new(), said);
    while rest.first().is_some_and(|first| !begins_readiness(*first)) {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let word = std::str::from_utf8(&rest[..=end]).ok()?;
        words.push_str(word.strip_prefix('+').unwrap_or(word));
        rest = &rest[end + 1..];
    }
    Some((Merit::from_words(&words)?, rest))
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
    let (merit, said) = split_words(rest)?;
    let (ready, value) = said.split_at_checked(READY_BYTES)?;
    let ready = match std::str::from_utf8(ready).ok()? {
        NOT_READY => None,
        nonce => Some(Nonce(u64::from_str_radix(nonce, 16).ok()?)),
    };
    let mut entry = Entry::new(id.clone(), keys::token_of(&id)?);
    entry.version = Version(version);
    entry.incarnation = Some(incarnation);
    entry.name = Some(name.into());
    (entry.ready, entry.merit) = (ready, merit);
    entry.value = value.to_vec().into();
    Some(entry)
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Decline, Incarnation, MAX_NAME_BYTES, Preparation};

    use super::*;

    #[test]
    fn an_entry_comes_back_with_the_longest_name_and_any_value() {
        let (session, incarnation) = (format!("{}{}", keys::digits(5), keys::ttl_digits(9)), Incarnation::from_bits(7));
        let owner = format!("{}{session}{incarnation}", keys::digits(9));
        // Its word begins with a hexadecimal digit.
        let declined = Merit::new(true, 1).preparation(Some(Preparation::Declined(Nonce(0), Decline::Failed)));
        for (name, merit, ready, value) in [
            ("n", Merit::default(), None, &b""[..]),
            ("n", declined, None, b"declined=7:failed "),
            (&"%".repeat(MAX_NAME_BYTES), Merit::new(true, i32::MIN), Some(Nonce(u64::MAX)), b"\0\xff"),
            ("später", Merit::new(false, 7), Some(Nonce(0)), NOT_READY.as_bytes()),
            ("n", Merit::new(true, 0), None, b"unwell "),
        ] {
            let said = Publication::new(value).ready(ready).merit(merit);
            let kept = [owner.as_bytes(), &encode_name(name), &encode_said(&said)].concat();
            let entry = parse(keys::digits(8).as_bytes(), &kept).unwrap();
            assert_eq!((entry.name.as_deref(), entry.ready, &entry.value[..]), (Some(name), ready, value));
            assert_eq!(entry.merit, merit);
            assert_eq!((entry.token.get(), entry.version.0, entry.incarnation), (8, 9, Some(incarnation)));
            for bytes in 0..kept.len() - value.len() {
                assert_eq!(parse(keys::digits(8).as_bytes(), &kept[..bytes]), None, "cut after {bytes} bytes");
            }
        }
    }
}
