//! Names of elections and candidates, and the limits on what a candidate may say.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name of an election or of a candidate, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// The largest value that a candidate may advertise, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The longest line that is read whole: by an operator, and by a leader that hands over.
pub const MAX_LINE: usize = 10_000;

/// The name of an election: 1 to 255 bytes, segments joined by `/`, e.g. `jobs/nightly`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElectionName(Arc<str>);

impl ElectionName {
    /// Checks the name.
    pub fn new(name: &str) -> Result<ElectionName, NameError> {
        check_text(name)?;
        if name.split('/').any(str::is_empty) {
            return Err(NameError::EmptySegment);
        }
        if name.split('/').any(|segment| segment == "." || segment == "..") {
            return Err(NameError::DotSegment);
        }
        Ok(ElectionName(name.into()))
    }

    /// The name as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ElectionName {
    type Err = NameError;
    fn from_str(name: &str) -> Result<ElectionName, NameError> {
        ElectionName::new(name)
    }
}

impl TryFrom<&str> for ElectionName {
    type Error = NameError;
    fn try_from(name: &str) -> Result<ElectionName, NameError> {
        ElectionName::new(name)
    }
}

impl AsRef<str> for ElectionName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for ElectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for ElectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Checks a candidate's name: 1 to 255 bytes without control characters.
pub fn check_candidate_name(name: &str) -> Result<(), NameError> {
    check_text(name)
}

/// Checks the size of a candidate's value.
pub fn check_value(value: &[u8]) -> Result<(), NameError> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(NameError::ValueTooLong { bytes: value.len() });
    }
    Ok(())
}

fn check_text(name: &str) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong { bytes: name.len() });
    }
    if name.chars().any(char::is_control) {
        return Err(NameError::ControlCharacter);
    }
    Ok(())
}

/// Why a name or a value is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It has no characters.
    #[error("the name is empty: it needs 1 to {MAX_NAME_BYTES} bytes")]
    Empty,
    /// It is longer than [`MAX_NAME_BYTES`].
    #[error("the name has {bytes} bytes: at most {MAX_NAME_BYTES} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It has a control character.
    #[error("the name has a control character")]
    ControlCharacter,
    /// Two slashes meet, or one stands at an end.
    #[error("the name has an empty segment: write segments joined by single slashes, as in jobs/nightly")]
    EmptySegment,
    /// A segment is `.` or `..`, which a directory would resolve.
    #[error("the name has a segment that is only dots")]
    DotSegment,
    /// The value is longer than [`MAX_VALUE_BYTES`].
    #[error("the value has {bytes} bytes: at most {MAX_VALUE_BYTES} are allowed")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_segments_are_accepted_and_malformed_ones_say_why() {
        assert_eq!(ElectionName::new("jobs/nightly").unwrap().as_str(), "jobs/nightly");
        assert!(ElectionName::new(&"x".repeat(255)).is_ok());
        for (name, why) in [
            ("", NameError::Empty),
            ("/a", NameError::EmptySegment),
            ("a/", NameError::EmptySegment),
            ("a//b", NameError::EmptySegment),
            ("a/../b", NameError::DotSegment),
            ("a\nb", NameError::ControlCharacter),
            ("a\u{85}b", NameError::ControlCharacter),
        ] {
            assert_eq!(ElectionName::new(name), Err(why), "{name:?}");
        }
        assert_eq!(ElectionName::new(&"x".repeat(256)), Err(NameError::TooLong { bytes: 256 }));
    }

    #[test]
    fn names_convert_from_text_and_back() {
        let parsed: ElectionName = "jobs/nightly".parse().unwrap();
        assert_eq!(ElectionName::try_from("jobs/nightly"), Ok(parsed.clone()));
        assert_eq!(AsRef::<str>::as_ref(&parsed), "jobs/nightly");
        assert_eq!("a//b".parse::<ElectionName>(), Err(NameError::EmptySegment));
    }

    #[test]
    fn values_are_bounded() {
        assert_eq!(check_value(&vec![0; MAX_VALUE_BYTES]), Ok(()));
        let bytes = MAX_VALUE_BYTES + 1;
        assert_eq!(check_value(&vec![0; bytes]), Err(NameError::ValueTooLong { bytes }));
    }
}
