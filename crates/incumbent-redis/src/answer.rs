//! What a step answers: a word, which store it was, how far its changes go, in which history of its
//! server, what its clock shows, and what the step adds to that.

use std::time::Duration;

use incumbent_store::record::decode_office;
use incumbent_store::{Advised, Cas, Cursor, Entry, Office, StoreError, StoreId, Version};
use redis::Value;

use crate::{entry, keys};

/// An answer, of which the first parts have been read.
pub(crate) struct Answer {
    pub(crate) word: String,
    pub(crate) store: StoreId,
    pub(crate) change: u64,
    pub(crate) lineage: String,
    /// What the store's clock shows.
    pub(crate) clock: Duration,
    what: &'static str,
    rest: std::vec::IntoIter<Value>,
}

impl Answer {
    pub(crate) fn read(value: Value, what: &'static str) -> Result<Answer, StoreError> {
        let Value::Array(parts) = value else { return Err(strange(what)) };
        let (rest, lineage, clock) = (parts.into_iter(), String::new(), Duration::ZERO);
        let mut answer = Answer { word: String::new(), store: StoreId::new(""), change: 0, lineage, clock, what, rest };
        answer.word = answer.text()?;
        answer.store = StoreId::new(answer.text()?);
        answer.change = answer.number()?;
        answer.lineage = answer.text()?;
        answer.clock = Duration::from_millis(answer.millis()?);
        Ok(answer)
    }

    /// Whether it was done.
    pub(crate) fn cas(&self) -> Result<Cas, StoreError> {
        match self.word.as_str() {
            "ok" => Ok(Cas::Done),
            "refused" => Ok(Cas::Refused),
            _ => Err(self.strange()),
        }
    }

    pub(crate) fn cursor(&self) -> Cursor {
        Cursor(self.change)
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.rest.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            _ => Err(strange(self.what)),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        String::from_utf8(self.bytes()?).map_err(|_| strange(self.what))
    }

    pub(crate) fn number(&mut self) -> Result<u64, StoreError> {
        keys::parse_digits(&self.text()?).ok_or_else(|| strange(self.what))
    }

    /// A length of time.
    pub(crate) fn millis(&mut self) -> Result<u64, StoreError> {
        self.text()?.parse().map_err(|_| strange(self.what))
    }

    pub(crate) fn list(&mut self) -> Result<Vec<Vec<u8>>, StoreError> {
        let Some(Value::Array(parts)) = self.rest.next() else { return Err(strange(self.what)) };
        let bytes = |part| match part {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(strange(self.what)),
        };
        parts.into_iter().map(bytes).collect()
    }

    pub(crate) fn office(&mut self) -> Result<Office, StoreError> {
        let (version, written) = (self.text()?, self.bytes()?);
        if version.is_empty() {
            return Ok(Office::default());
        }
        let version = keys::parse_digits(&version).ok_or_else(|| strange(self.what))?;
        let damaged = || StoreError::Corrupt { what: format!("{}: the office record cannot be read", self.what) };
        decode_office(&written, Version(version)).ok_or_else(damaged)
    }

    /// An entry as others see it, from its token and what a script keeps of it.
    pub(crate) fn entry(&self, token: &[u8], kept: &[u8]) -> Result<Entry, StoreError> {
        entry::parse(token, kept).ok_or_else(|| StoreError::Corrupt {
            what: format!("{}: the entry {} cannot be read", self.what, String::from_utf8_lossy(token)),
        })
    }

    /// Nobody may take office yet: what follows `hold`.
    pub(crate) fn hold(&mut self) -> Result<StoreError, StoreError> {
        let wait = Duration::from_millis(self.millis()?);
        let what = format!(
            "the server was restarted, replaced or emptied, and a leader that it no longer knows of may be in office: \
             nobody takes office for another {wait:.0?}"
        );
        Ok(StoreError::unavailable(what, Advised::new("this passes by itself")))
    }

    /// The answer has another form than this version gives it.
    pub(crate) fn strange(&self) -> StoreError {
        strange(self.what)
    }
}

pub(crate) fn strange(what: &str) -> StoreError {
    StoreError::Corrupt { what: format!("{what}: the answer cannot be read") }
}
