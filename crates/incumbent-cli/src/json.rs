//! The JSON that is written to standard output, and the same values in words for people.

use incumbent::{CandidateInfo, LossReason};
use serde::Serialize;

use crate::output::printable;

/// The version of the JSON formats.
pub(crate) const VERSION: u32 = 1;

/// A candidate in line.
#[derive(Debug, Serialize)]
pub(crate) struct CandidateJson {
    name: Option<String>,
    id: Option<String>,
    #[serde(flatten)]
    value: Value,
    /// Null where there is none: bully and ring, and those who follow with consensus.
    token: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    /// Only where it is so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unwell: bool,
    /// Only where it is not zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
}

impl CandidateJson {
    pub(crate) fn new(leader: &CandidateInfo) -> CandidateJson {
        CandidateJson {
            name: leader.name.as_deref().map(str::to_owned),
            id: leader.id.map(|id| id.to_string()),
            value: Value::new(&leader.value),
            token: leader.token.map(|token| token.get()),
            role: None,
            unwell: leader.unwell,
            priority: Some(leader.priority).filter(|priority| *priority != 0),
        }
    }

    pub(crate) fn with_role(leader: &CandidateInfo, leads: bool) -> CandidateJson {
        CandidateJson { role: Some(if leads { "leader" } else { "follower" }), ..CandidateJson::new(leader) }
    }
}

/// What a candidate advertises: text if it is text.
#[derive(Debug, Serialize)]
pub(crate) struct Value {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl Value {
    pub(crate) fn new(bytes: &[u8]) -> Value {
        match std::str::from_utf8(bytes) {
            Ok(text) => Value { value: Some(text.to_owned()), value_base64: None },
            Err(_) => Value { value: None, value_base64: Some(base64(bytes)) },
        }
    }

    /// For people; nothing if there is none.
    pub(crate) fn shown(bytes: &[u8]) -> Option<String> {
        match std::str::from_utf8(bytes) {
            Ok("") => None,
            Ok(text) => Some(printable(text)),
            Err(_) => Some(format!("base64:{}", base64(bytes))),
        }
    }
}

/// The name of a candidate, for people.
pub(crate) fn name(leader: &CandidateInfo) -> String {
    match &leader.name {
        Some(name) => printable(name),
        None => "(of another library)".into(),
    }
}

/// Why a term ended, for programs. The words are part of the format.
pub(crate) fn reason(loss: LossReason) -> &'static str {
    loss.word()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use incumbent::Token;
    use incumbent::store::{Entry, EntryId};

    use super::*;

    #[test]
    fn base64_is_the_usual_one() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn a_candidate_of_another_library_has_no_name() {
        let mut foreign = Entry::new(EntryId::new("key"), Token::new(7).unwrap());
        foreign.value = b"x".as_slice().into();
        let leader = CandidateInfo::from(&foreign);
        let json = serde_json::to_string(&CandidateJson::with_role(&leader, false)).unwrap();
        assert_eq!(json, r#"{"name":null,"id":null,"value":"x","token":7,"role":"follower"}"#);
        assert_eq!(name(&leader), "(of another library)");
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64() {
        let json = |bytes: &[u8]| serde_json::to_string(&Value::new(bytes)).unwrap();
        assert_eq!(json(b"10.0.0.7:80"), r#"{"value":"10.0.0.7:80"}"#);
        assert_eq!(json(&[0xff]), r#"{"value_base64":"/w=="}"#);
    }
}
