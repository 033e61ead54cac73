//! Writes to etcd itself that only a sitting leader can make.

use incumbent_store::{Effect, ElectionName, StoreError, Token};

use crate::EtcdStore;
use crate::keys;
use crate::rpc::{RequestOp, TxnRequest};
use crate::txn::{self, created, leased};

/// A write that is committed in one step with others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdWrite(RequestOp);

impl EtcdWrite {
    /// Puts a key that stays until it is deleted.
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> EtcdWrite {
        EtcdWrite(RequestOp::put(key, value, 0))
    }

    /// Deletes a key, if it is there.
    pub fn delete(key: impl Into<Vec<u8>>) -> EtcdWrite {
        EtcdWrite(RequestOp::delete(key))
    }
}

pub(crate) fn operations(writes: impl Into<Vec<EtcdWrite>>) -> Vec<RequestOp> {
    writes.into().into_iter().map(|EtcdWrite(operation)| operation).collect()
}

/// What to compare in transactions of your own, with any client: they hold only while the entry is
/// in line.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EntryGuard {
    /// The entry's key.
    pub key: Vec<u8>,
    /// Equal to the key's `create_revision`.
    pub create_revision: i64,
    /// Equal to the key's `lease`: a foreign write keeps the creation and takes the lease away,
    /// after which no session's end would remove the entry.
    pub lease: i64,
}

/// How a guarded transaction went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarded {
    /// The leadership was there, and the writes were committed.
    Committed,
    /// The entry with this token is gone, or no longer its owner's: nothing was written.
    Refused,
}

impl EtcdStore {
    /// Commits `writes` only while the entry with this token is in line, in one step: if its leader
    /// has lost office, nothing is written.
    ///
    /// Compared are the entry's creation **and** its lease: a foreign write to the entry keeps the
    /// one and takes the other away, after which no session's end would remove it.
    ///
    /// ```no_run
    /// # use incumbent_etcd::{EtcdStore, EtcdWrite, Guarded};
    /// # use incumbent_store::{ElectionName, Token};
    /// # async fn example(store: EtcdStore, election: ElectionName, token: Token) -> Result<(), Box<dyn std::error::Error>> {
    /// let done = store.guard(&election, token, [EtcdWrite::put("jobs/last", "2031-04-01")]).await?;
    /// if let Guarded::Refused = done {
    ///     // Another leads.
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn guard(
        &self,
        election: &ElectionName,
        token: Token,
        writes: impl Into<Vec<EtcdWrite>>,
    ) -> Result<Guarded, StoreError> {
        let Some(guard) = self.guards(election, token).await? else { return Ok(Guarded::Refused) };
        let txn = TxnRequest {
            compare: vec![created(&guard.key, guard.create_revision), leased(&guard.key, guard.lease)],
            success: operations(writes),
            failure: vec![self.inner.up_to_date()],
        };
        let answer = self.inner.endpoints.txn("committing under guard", Effect::Write, txn).await?;
        Ok(if answer.succeeded { Guarded::Committed } else { Guarded::Refused })
    }

    /// What holds only while the entry with this token is in line, to put into transactions of your
    /// own. `None`: it is not.
    pub async fn guards(&self, election: &ElectionName, token: Token) -> Result<Option<EntryGuard>, StoreError> {
        let create_revision = txn::revision(token);
        let ops = [txn::created_at(self.inner.keys.line(election), create_revision)];
        let found = self.inner.read("looking for the entry", ops).await?.next_found()?;
        // One transaction may have made several keys, among them entries in elections with longer
        // names.
        let ours = found.into_iter().find_map(|kv| {
            let lease = keys::lease_of(self.inner.keys.suffix(election, &kv.key)?);
            Some((kv.key, lease))
        });
        let Some((key, Some(lease))) = ours else { return Ok(None) };
        Ok(Some(EntryGuard { key, create_revision, lease }))
    }
}
