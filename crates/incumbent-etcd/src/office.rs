//! The office record, and the tombstone of an election that has ended, which goes by itself.

use std::time::Duration;

use incumbent_store::{Cas, Effect, ElectionName, Ended, Office, StoreError, Version, record};

use crate::rpc::{KeyValue, RequestOp, TxnRequest};
use crate::store::{Inner, whole_seconds};
use crate::txn::{self, changed, created};

impl Inner {
    pub(crate) async fn set_office(
        &self,
        election: &ElectionName,
        was: Version,
        to: &Office,
    ) -> Result<Cas, StoreError> {
        let Some(ended) = &to.ended else {
            return self.write_office(election, was, to, None).await;
        };
        let ops = [txn::all(self.keys.office_range(election))];
        let mut answer = self.read("reading the office record", ops).await?;
        let found = answer.next_found()?;
        let tombstone_key = self.keys.tombstone(election);
        let tombstone = found.iter().find(|kv| kv.key == tombstone_key);
        if !self.is_about(election, &found, ended) {
            return self.write_new_tombstone(election, was, to, ended.keep).await;
        }
        match tombstone {
            Some(tombstone) => self.write_office(election, was, to, Some(Tombstone::Kept(tombstone))).await,
            // Its time passed after the caller had read it: it does not come back.
            None => self.write_office(election, was, &to.clone().with_ended(None), None).await,
        }
    }

    /// Whether the record that is there speaks of this end already.
    fn is_about(&self, election: &ElectionName, found: &[KeyValue], ended: &Ended) -> bool {
        let key = self.keys.office(election);
        let record = found.iter().find(|kv| kv.key == key);
        let record = record.and_then(|kv| record::decode_office(&kv.value, Version::NONE));
        record.and_then(|office| office.ended).is_some_and(|recorded| recorded.id == ended.id)
    }

    /// A lease of its own ends the tombstone, whichever processes are still there by then.
    async fn write_new_tombstone(
        &self,
        election: &ElectionName,
        was: Version,
        to: &Office,
        keep: Duration,
    ) -> Result<Cas, StoreError> {
        let lease = self.endpoints.grant("granting the tombstone's time", whole_seconds(keep)).await?.id;
        let written = self.write_office(election, was, to, Some(Tombstone::New(lease))).await;
        if matches!(written, Ok(Cas::Refused)) {
            // Nothing hangs on it. If this fails, it expires.
            _ = self.endpoints.revoke("giving it back", lease).await;
        }
        written
    }

    async fn write_office(
        &self,
        election: &ElectionName,
        was: Version,
        to: &Office,
        tombstone: Option<Tombstone<'_>>,
    ) -> Result<Cas, StoreError> {
        let (key, tombstone_key) = (self.keys.office(election), self.keys.tombstone(election));
        let was = i64::try_from(was.0).unwrap_or(i64::MAX);
        let mut compare = vec![changed(&key, was)];
        if let Some(Tombstone::Kept(seen)) = &tombstone {
            compare.push(created(&seen.key, seen.create_revision));
        }
        // A record that holds nothing but its tombstone goes with it.
        let lives_on = !to.clone().with_ended(None).is_blank();
        let lease = tombstone.as_ref().map_or(0, Tombstone::lease);
        let mut success = Vec::new();
        if to.is_blank() {
            success.push(RequestOp::delete(key));
        } else {
            success.push(RequestOp::put(key, record::encode_office(to), if lives_on { 0 } else { lease }));
        }
        match tombstone {
            Some(Tombstone::Kept(_)) => {}
            Some(Tombstone::New(_)) => success.push(RequestOp::put(tombstone_key, "", lease)),
            None => success.push(RequestOp::delete(tombstone_key)),
        }
        let txn = TxnRequest { compare, success, failure: vec![] };
        let answer = self.endpoints.txn("writing the office record", Effect::Write, txn).await?;
        Ok(if answer.succeeded { Cas::Done } else { Cas::Refused })
    }
}

/// What makes the tombstone go in time.
enum Tombstone<'a> {
    Kept(&'a KeyValue),
    New(i64),
}

impl Tombstone<'_> {
    fn lease(&self) -> i64 {
        match self {
            Tombstone::Kept(kv) => kv.lease,
            Tombstone::New(lease) => *lease,
        }
    }
}
