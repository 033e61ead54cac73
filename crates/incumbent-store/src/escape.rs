//! Text where only some characters may stand: file names, keys, paths, lines, URLs.
//!
//! Every other character becomes `%` and two hexadecimal digits for each of its bytes, so that no
//! two texts ever meet. Which characters stand for themselves is for the place to say; how the
//! digits are written, too, since what is on disks and servers stays where it is.

/// How hexadecimal digits are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// `%2f`
    Lower,
    /// `%2F`
    Upper,
}

/// The text, with every character escaped for which `stays` is false. Bytes that are no text are
/// escaped, too.
///
/// What is read back with [`unescape`] needs `%` itself to be escaped.
pub fn escape(text: impl AsRef<[u8]>, digits: Digits, stays: impl Fn(char) -> bool) -> String {
    let text = text.as_ref();
    let mut escaped = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            if stays(character) {
                escaped.push(character);
            } else {
                push_bytes(&mut escaped, digits, character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        push_bytes(&mut escaped, digits, chunk.invalid());
    }
    escaped
}

/// The name of a file. `-`, `_`, inner dots and what is `plain` stand for themselves.
pub fn file_name(text: &str, digits: Digits, plain: impl Fn(char) -> bool) -> String {
    let mut name = escape(text, digits, |character| matches!(character, '-' | '_' | '.') || plain(character));
    if name.starts_with('.') {
        let dot = escape(".", digits, |_| false);
        name.replace_range(..1, &dot);
    }
    name
}

/// Cuts an escaped name that is too long for one file name into those of directories, each with a
/// `+` at its end, which no such name has, and of what lies in the last of them.
pub fn file_name_pieces(name: &str, longest: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = name;
    // It is all ASCII: it can be cut anywhere.
    while let Some((piece, more)) = rest.split_at_checked(longest).filter(|(_, more)| !more.is_empty()) {
        pieces.push(format!("{piece}+"));
        rest = more;
    }
    pieces.push(rest.to_owned());
    pieces
}

/// Undoes [`escape`]. `None`: a `%` has no two hexadecimal digits after it.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = tail;
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    Some(bytes)
}

fn push_bytes(text: &mut String, digits: Digits, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&match digits {
            Digits::Lower => format!("%{byte:02x}"),
            Digits::Upper => format!("%{byte:02X}"),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back() {
        for bytes in [&b""[..], b"plain", b"100 %2f/\n", "\u{fc}\u{e000}\u{1f600}".as_bytes(), b"a\xffb\xc3"] {
            for digits in [Digits::Lower, Digits::Upper] {
                let escaped = escape(bytes, digits, |character| character.is_ascii_alphanumeric());
                assert!(escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'), "{escaped}");
                assert_eq!(unescape(&escaped).as_deref(), Some(bytes));
                let readable = escape(bytes, digits, |character| character != '%');
                assert_eq!(unescape(&readable).as_deref(), Some(bytes));
            }
        }
        assert_eq!(escape("a/\u{fc}", Digits::Lower, |character| character == 'a'), "a%2f%c3%bc");
        assert_eq!(escape("a/\u{fc}", Digits::Upper, |character| character != '/'), "a%2F\u{fc}");
    }

    #[test]
    fn a_percent_sign_needs_two_hexadecimal_digits() {
        assert_eq!(unescape("%41b"), Some(b"Ab".to_vec()));
        for bad in ["%", "%4", "%zz", "%+1", "%\u{e9}"] {
            assert_eq!(unescape(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_file_is_hidden_and_none_leads_elsewhere() {
        let plain = |character: char| character.is_ascii_lowercase();
        for (text, name) in [("..", "%2e."), (".a.b", "%2ea.b"), ("a/B", "a%2f%42"), ("a-b_c", "a-b_c"), ("", "")] {
            assert_eq!(file_name(text, Digits::Lower, plain), name);
        }
        assert_eq!(file_name(".A", Digits::Upper, plain), "%2E%41");
    }

    #[test]
    fn a_long_name_goes_on_in_a_directory() {
        assert_eq!(file_name_pieces("abcd", 4), ["abcd"]);
        assert_eq!(file_name_pieces("abcdefghi", 4), ["abcd+", "efgh+", "i"]);
    }
}
