//! Reading etcd's answers: what a transaction returned, in the order in which it was asked.

use bytes::Bytes;
use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, TxnOp, TxnOpResponse, TxnResponse};
use incumbent_store::record;
use incumbent_store::{Cursor, ElectionName, Entry, Nonce, Office, StoreError, StoreId, Token, Version};

use crate::keys::{self, KeyRange, Keys, Owner};

/// What every answer says about the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) cluster_id: u64,
    pub(crate) raft_term: u64,
    pub(crate) revision: i64,
}

impl Header {
    pub(crate) fn cursor(self) -> Cursor {
        Cursor(self.revision.unsigned_abs())
    }

    pub(crate) fn store_id(self) -> StoreId {
        store_id(self.cluster_id)
    }
}

pub(crate) fn store_id(cluster_id: u64) -> StoreId {
    StoreId::new(format!("etcd-{cluster_id:x}"))
}

/// The answer to a transaction.
pub(crate) struct Answer {
    pub(crate) header: Header,
    pub(crate) succeeded: bool,
    parts: std::vec::IntoIter<TxnOpResponse>,
}

impl Answer {
    pub(crate) fn read(response: &TxnResponse) -> Result<Answer, StoreError> {
        let header = response.header().ok_or_else(unexpected)?;
        let header =
            Header { cluster_id: header.cluster_id(), raft_term: header.raft_term(), revision: header.revision() };
        Ok(Answer::part(header, response))
    }

    fn part(header: Header, response: &TxnResponse) -> Answer {
        Answer { header, succeeded: response.succeeded(), parts: response.op_responses().into_iter() }
    }

    /// What the next read found, and whether there is more.
    pub(crate) fn next_cut(&mut self) -> Result<(Vec<KeyValue>, bool), StoreError> {
        match self.parts.next() {
            Some(TxnOpResponse::Get(mut found)) => {
                let more = found.more();
                Ok((found.take_kvs(), more))
            }
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn next_found(&mut self) -> Result<Vec<KeyValue>, StoreError> {
        Ok(self.next_cut()?.0)
    }

    pub(crate) fn next_one(&mut self) -> Result<Option<KeyValue>, StoreError> {
        Ok(self.next_found()?.pop())
    }

    /// What the next transaction inside this one did.
    pub(crate) fn next_txn(&mut self) -> Result<Answer, StoreError> {
        match self.parts.next() {
            Some(TxnOpResponse::Txn(inner)) => Ok(Answer::part(self.header, &inner)),
            _ => Err(unexpected()),
        }
    }

    /// What the next few operations did, which were one write's.
    pub(crate) fn next_parts(&mut self, count: usize) -> Answer {
        let parts: Vec<_> = self.parts.by_ref().take(count).collect();
        Answer { header: self.header, succeeded: self.succeeded, parts: parts.into_iter() }
    }

    /// Passes over a write.
    pub(crate) fn skip(&mut self) {
        self.parts.next();
    }
}

fn unexpected() -> StoreError {
    StoreError::Foreign { what: "an answer that does not fit what was asked; is it an etcd 3.4 or newer?".to_owned() }
}

/// Reads one key.
pub(crate) fn get(key: Vec<u8>) -> TxnOp {
    TxnOp::get(key, None)
}

/// Looks whether and as what a key is there.
pub(crate) fn look(key: Vec<u8>) -> TxnOp {
    TxnOp::get(key, Some(GetOptions::new().with_keys_only()))
}

/// Looks which keys of a range are there.
pub(crate) fn look_at_all((start, end): KeyRange) -> TxnOp {
    TxnOp::get(start, Some(GetOptions::new().with_range(end).with_keys_only()))
}

/// Reads a range.
pub(crate) fn all((start, end): KeyRange) -> TxnOp {
    TxnOp::get(start, Some(GetOptions::new().with_range(end)))
}

/// Reads the newest of a range, of those created before `before`.
pub(crate) fn newest((start, end): KeyRange, before: Option<i64>, limit: i64) -> TxnOp {
    TxnOp::get(start, Some(newest_options(end, before, limit)))
}

/// Like [`newest`], without the values.
pub(crate) fn newest_keys((start, end): KeyRange, before: Option<i64>, limit: i64) -> TxnOp {
    TxnOp::get(start, Some(newest_options(end, before, limit).with_keys_only()))
}

fn newest_options(end: Vec<u8>, before: Option<i64>, limit: i64) -> GetOptions {
    let options = GetOptions::new().with_range(end).with_sort(SortTarget::Create, SortOrder::Descend).with_limit(limit);
    match before {
        // Zero would mean no bound; etcd's first revision is 1 and holds no key.
        Some(before) => options.with_max_create_revision((before - 1).max(1)),
        None => options,
    }
}

/// Reads the oldest of a range, of those created with this revision or later. `at`: as it was then;
/// zero is now.
pub(crate) fn oldest((start, end): KeyRange, from: i64, at: i64, limit: i64) -> TxnOp {
    let options = GetOptions::new().with_range(end).with_sort(SortTarget::Create, SortOrder::Ascend);
    TxnOp::get(start, Some(options.with_min_create_revision(from).with_revision(at).with_limit(limit)))
}

pub(crate) fn token_of(kv: &KeyValue) -> Result<Token, StoreError> {
    token_at(kv.create_revision())
}

/// The token of what was created with this revision.
pub(crate) fn token_at(revision: i64) -> Result<Token, StoreError> {
    u64::try_from(revision).ok().and_then(Token::new).ok_or_else(unexpected)
}

/// A token as etcd counts.
pub(crate) fn revision(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// Holds while what is there was created with this revision; with zero, while nothing is.
pub(crate) fn created(key: &[u8], at: i64) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, at)
}

/// Holds while nothing is there.
pub(crate) fn nothing_in((start, end): KeyRange) -> Compare {
    Compare::create_revision(start, CompareOp::Equal, 0).with_range(end)
}

/// A key of a line as others see it. `None`: it is in the line of an election with a longer name.
///
/// It is ours if its key says so and the lease that it names holds it: a copy, or one that somebody
/// has moved to another lease, obeys no notices.
pub(crate) fn entry(
    keys: &Keys,
    election: &ElectionName,
    kv: &KeyValue,
    beside: &[KeyValue],
) -> Result<Option<Entry>, StoreError> {
    let Some(suffix) = keys.suffix(election, kv.key()) else { return Ok(None) };
    let token = token_of(kv)?;
    let owner = Owner::read(suffix).filter(|owner| kv.lease() != 0 && owner.lease == kv.lease());
    let mut entry = Entry::new(keys::id_of(suffix, token), token);
    entry.incarnation = owner.as_ref().map(|owner| owner.incarnation);
    entry.ready = owner.as_ref().and_then(|_| readiness(&keys.ready(election, suffix), kv, beside));
    entry.name = owner.map(|owner| owner.name);
    entry.value = Bytes::copy_from_slice(kv.value());
    entry.version = Version(kv.mod_revision().unsigned_abs());
    Ok(Some(entry))
}

/// For which handover the entry was said to be ready. What was said before the entry was made is
/// about another one.
fn readiness(key: &[u8], entry: &KeyValue, beside: &[KeyValue]) -> Option<Nonce> {
    let said = beside.iter().find(|kv| kv.key() == key && kv.mod_revision() >= entry.create_revision())?;
    std::str::from_utf8(said.value()).ok()?.parse().ok().map(Nonce)
}

/// The office record, from what was found beside the line: a tombstone counts while its own key is
/// there.
pub(crate) fn office(keys: &Keys, election: &ElectionName, found: &[KeyValue]) -> Result<Office, StoreError> {
    let key = keys.office(election);
    let Some(kv) = found.iter().find(|kv| kv.key() == key) else { return Ok(Office::default()) };
    let version = Version(kv.mod_revision().unsigned_abs());
    let mut office = record::decode_office(kv.value(), version).ok_or_else(|| StoreError::Corrupt {
        what: format!("the record at {:?} cannot be read", String::from_utf8_lossy(&key)),
    })?;
    let tombstone = keys.tombstone(election);
    if !found.iter().any(|kv| kv.key() == tombstone) {
        office.ended = None;
    }
    Ok(office)
}

/// What an entry without a lease is called: nobody's death would ever remove it.
pub(crate) fn leaseless(kv: &KeyValue) -> StoreError {
    let key = String::from_utf8_lossy(kv.key());
    StoreError::Corrupt {
        what: format!("the entry at {key:?} has no lease and blocks the line until an operator removes it"),
    }
}
