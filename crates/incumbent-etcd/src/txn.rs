//! Reading etcd's answers: what a transaction returned, in the order in which it was asked.

use bytes::Bytes;
use incumbent_store::record;
use incumbent_store::{Cursor, ElectionName, Entry, Merit, Nonce, Office, StoreError, StoreId, Token, Version};

use crate::keys::{self, KeyRange, Keys, Owner};
use crate::rpc::{
    Compare, KeyValue, RangeRequest, RequestOp, Response, ResponseHeader, ResponseOp, SortOrder, SortTarget,
    TxnRequest, TxnResponse, With,
};

impl ResponseHeader {
    pub(crate) fn cursor(self) -> Cursor {
        Cursor(self.revision.unsigned_abs())
    }

    pub(crate) fn store_id(self) -> StoreId {
        store_id(self.cluster_id)
    }
}

pub(crate) fn header(header: Option<ResponseHeader>) -> Result<ResponseHeader, StoreError> {
    header.ok_or_else(unexpected)
}

pub(crate) fn store_id(cluster_id: u64) -> StoreId {
    StoreId::new(format!("etcd-{cluster_id:x}"))
}

/// The answer to a transaction.
pub(crate) struct Answer {
    pub(crate) header: ResponseHeader,
    pub(crate) succeeded: bool,
    parts: std::vec::IntoIter<ResponseOp>,
}

impl Answer {
    pub(crate) fn read(response: TxnResponse) -> Result<Answer, StoreError> {
        Ok(Answer::part(header(response.header)?, response))
    }

    fn part(header: ResponseHeader, response: TxnResponse) -> Answer {
        Answer { header, succeeded: response.succeeded, parts: response.responses.into_iter() }
    }

    fn next(&mut self) -> Option<Response> {
        self.parts.next()?.response
    }

    /// What the next read found, and whether there is more.
    pub(crate) fn next_cut(&mut self) -> Result<(Vec<KeyValue>, bool), StoreError> {
        match self.next() {
            Some(Response::Range(found)) => Ok((found.kvs, found.more)),
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
        match self.next() {
            Some(Response::Txn(inner)) => Ok(Answer::part(self.header, inner)),
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

/// A transaction that compares nothing.
pub(crate) fn always(success: impl Into<Vec<RequestOp>>) -> TxnRequest {
    TxnRequest { success: success.into(), ..TxnRequest::default() }
}

/// Reads one key.
pub(crate) fn get(key: Vec<u8>) -> RequestOp {
    all((key, Vec::new()))
}

/// Looks whether and as what a key is there.
pub(crate) fn look(key: Vec<u8>) -> RequestOp {
    look_at_all((key, Vec::new()))
}

/// Looks which keys of a range are there.
pub(crate) fn look_at_all((key, range_end): KeyRange) -> RequestOp {
    RequestOp::range(RangeRequest { key, range_end, keys_only: true, ..RangeRequest::default() })
}

/// Looks which keys of a range are there, the first so many of them.
pub(crate) fn look_at_some((key, range_end): KeyRange, limit: i64) -> RequestOp {
    RequestOp::range(RangeRequest { key, range_end, keys_only: true, limit, ..RangeRequest::default() })
}

/// Reads a range.
pub(crate) fn all((key, range_end): KeyRange) -> RequestOp {
    RequestOp::range(RangeRequest { key, range_end, ..RangeRequest::default() })
}

/// Reads the newest of a range, of those created before `before`.
pub(crate) fn newest(range: KeyRange, before: Option<i64>, limit: i64) -> RequestOp {
    RequestOp::range(newest_of(range, before, limit))
}

/// Like [`newest`], without the values.
pub(crate) fn newest_keys(range: KeyRange, before: Option<i64>, limit: i64) -> RequestOp {
    RequestOp::range(RangeRequest { keys_only: true, ..newest_of(range, before, limit) })
}

fn newest_of(range: KeyRange, before: Option<i64>, limit: i64) -> RangeRequest {
    // Zero would mean no bound; etcd's first revision is 1 and holds no key.
    let max_create_revision = before.map_or(0, |before| (before - 1).max(1));
    RangeRequest { max_create_revision, ..by_creation(range, SortOrder::Descend, limit) }
}

/// Reads the oldest of a range, of those created with this revision or later. `at`: as it was then;
/// zero is now.
pub(crate) fn oldest(range: KeyRange, from: i64, at: i64, limit: i64) -> RequestOp {
    let range = by_creation(range, SortOrder::Ascend, limit);
    RequestOp::range(RangeRequest { min_create_revision: from, revision: at, ..range })
}

/// Looks which keys of a range were created with this revision.
pub(crate) fn created_at((key, range_end): KeyRange, revision: i64) -> RequestOp {
    let (min_create_revision, max_create_revision) = (revision, revision);
    RequestOp::range(RangeRequest {
        key,
        range_end,
        keys_only: true,
        min_create_revision,
        max_create_revision,
        ..RangeRequest::default()
    })
}

fn by_creation((key, range_end): KeyRange, order: SortOrder, limit: i64) -> RangeRequest {
    let (sort_order, sort_target) = (order.into(), SortTarget::Create.into());
    RangeRequest { key, range_end, sort_order, sort_target, limit, ..RangeRequest::default() }
}

pub(crate) fn token_of(kv: &KeyValue) -> Result<Token, StoreError> {
    token_at(kv.create_revision)
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
    Compare::equal(key, With::CreateRevision(at))
}

/// Holds while what is there was last written with this revision; with zero, while nothing is.
pub(crate) fn changed(key: &[u8], at: i64) -> Compare {
    Compare::equal(key, With::ModRevision(at))
}

/// Holds while what is there hangs on this lease.
pub(crate) fn leased(key: &[u8], lease: i64) -> Compare {
    Compare::equal(key, With::Lease(lease))
}

/// Holds while nothing is there.
pub(crate) fn nothing_in((start, end): KeyRange) -> Compare {
    created(&start, 0).up_to(end)
}

/// A key of a line as others see it. `None`: it is in the line of an election with a longer name.
///
/// It is ours if its key says so and the lease that it names holds it: a copy, or one that
/// was moved to another lease, obeys no notices.
pub(crate) fn entry(
    keys: &Keys,
    election: &ElectionName,
    kv: &KeyValue,
    beside: &[KeyValue],
) -> Result<Option<Entry>, StoreError> {
    let Some(suffix) = keys.suffix(election, &kv.key) else { return Ok(None) };
    let token = token_of(kv)?;
    let owner = Owner::read(suffix).filter(|owner| kv.lease != 0 && owner.lease == kv.lease);
    let mut entry = Entry::new(keys::id_of(suffix, token), token);
    entry.incarnation = owner.as_ref().map(|owner| owner.incarnation);
    if owner.is_some() {
        (entry.ready, entry.merit) = read_beside(&keys.ready(election, suffix), kv, beside);
    }
    entry.name = owner.map(|owner| owner.name);
    entry.value = Bytes::copy_from_slice(&kv.value);
    entry.version = Version(kv.mod_revision.unsigned_abs());
    entry.stays = kv.lease == 0;
    Ok(Some(entry))
}

/// What a candidate says that has no place in its entry. `None`: nothing.
pub(crate) fn encode_beside(ready: Option<Nonce>, merit: Merit) -> Option<String> {
    match (ready, merit.is_blank()) {
        (None, true) => None,
        (None, false) => Some(merit.to_string()),
        (Some(Nonce(nonce)), true) => Some(nonce.to_string()),
        (Some(Nonce(nonce)), false) => Some(format!("{nonce} {merit}")),
    }
}

/// For which handover the entry was said to be ready, and what its candidate says of itself. What
/// was said before the entry was made is about another one.
pub(crate) fn read_beside(key: &[u8], entry: &KeyValue, beside: &[KeyValue]) -> (Option<Nonce>, Merit) {
    let said = beside.iter().find(|kv| kv.key == key && kv.mod_revision >= entry.create_revision);
    let said = said.and_then(|kv| std::str::from_utf8(&kv.value).ok()).unwrap_or_default();
    let ready = said.split(' ').next().and_then(|word| word.parse().ok()).map(Nonce);
    (ready, Merit::from_words(said).unwrap_or_default())
}

/// The office record, from what was found beside the line: a tombstone counts while its own key is
/// there.
pub(crate) fn office(keys: &Keys, election: &ElectionName, found: &[KeyValue]) -> Result<Office, StoreError> {
    let key = keys.office(election);
    let Some(kv) = found.iter().find(|kv| kv.key == key) else { return Ok(Office::default()) };
    let version = Version(kv.mod_revision.unsigned_abs());
    let mut office = record::decode_office(&kv.value, version).ok_or_else(|| StoreError::Corrupt {
        what: format!("the record at {:?} cannot be read", String::from_utf8_lossy(&key)),
    })?;
    let tombstone = keys.tombstone(election);
    if !found.iter().any(|kv| kv.key == tombstone) {
        office.ended = None;
    }
    Ok(office)
}

/// What an entry without a lease is called: no session's end would ever remove it.
pub(crate) fn leaseless(kv: &KeyValue) -> StoreError {
    let key = String::from_utf8_lossy(&kv.key);
    StoreError::Corrupt {
        what: format!("the entry at {key:?} has no lease and blocks the line until an operator removes it"),
    }
}
