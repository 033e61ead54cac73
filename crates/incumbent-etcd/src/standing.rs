//! Where an entry of ours stands: the only maker of leaders.

use std::time::Duration;

use incumbent_store::{Cursor, Effect, ElectionName, EntryId, Held, Office, Place, Standing, StoreError, Version};

use crate::keys;
use crate::rpc::{Compare, CompareResult, KeyValue, ResponseHeader, TxnRequest, With};
use crate::session::EtcdSession;
use crate::txn::{self, Answer, created, revision};

/// How many keys of elections with longer names are passed over at a time, and how often.
const PAGE: i64 = 512;
const MAX_PAGES: usize = 64;
/// How often an overwritten entry is looked at, in parts of the TTL, while its owner may still
/// remove it.
const LOOKS_PER_TTL: u32 = 4;

impl EtcdSession {
    pub(crate) async fn standing(&self, held: &Held, behind: Option<&EntryId>) -> Result<Standing, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        let key = self.key_of(held);
        let (line, token) = (keys.line(election), revision(held.token));
        let look_beside = txn::all(keys.beside(election));
        let failure = vec![txn::look(key.clone()), txn::newest(line.clone(), Some(token), 1), look_beside.clone()];
        let mut compare: Vec<_> = self.ours(&key, held.token).into();
        let mut success = vec![txn::look(key)];
        if let Some((suffix, ahead)) = behind.and_then(keys::parse_id).filter(|(_, ahead)| *ahead < held.token) {
            // Nobody has come between us since: while it is there, the rest of the line need not be
            // looked at.
            let ahead_key = keys.entry(election, &suffix);
            compare.push(created(&ahead_key, revision(ahead)));
            success.extend([txn::get(ahead_key), look_beside]);
        } else {
            // First in line, with nothing said about the office: the guards have seen it all.
            let first = Compare::new(line.0, CompareResult::Greater, With::CreateRevision(token - 1));
            compare.extend([first.up_to(line.1), txn::nothing_in(keys.beside(election))]);
        }
        let is_behind = success.len() > 1;
        let txn = TxnRequest { compare, success, failure };
        let mut answer = self.txn("looking where we stand", Effect::None, txn).await?;
        let cursor = answer.header.cursor();
        let own = answer.next_one()?.filter(|own| own.create_revision == token && own.lease == self.lease);
        let published = own.as_ref().map(published);
        if answer.succeeded && !is_behind {
            return Ok(stands(Place::Leading(held.clone()), published, Office::default(), cursor));
        }
        let ahead = answer.next_found()?.into_iter().next();
        if own.is_none() {
            return self.gone(election, answer).await;
        }
        let beside = answer.next_found()?;
        let Some(ahead) = ahead else {
            let office = txn::office(keys, election, &beside)?;
            return Ok(stands(Place::Leading(held.clone()), published, office, cursor));
        };
        match self.standing_behind(held, published, &ahead, &beside, answer.header).await? {
            Some(standing) => Ok(standing),
            None => self.standing_past(held, ahead.create_revision).await,
        }
    }

    /// Where we stand behind an entry that was read. `None`: it is in the line of an election with
    /// a longer name.
    pub(crate) async fn standing_behind(
        &self,
        held: &Held,
        published: Option<Version>,
        ahead: &KeyValue,
        beside: &[KeyValue],
        header: ResponseHeader,
    ) -> Result<Option<Standing>, StoreError> {
        let (keys, election) = (&self.store.keys, &held.election);
        let Some(entry) = txn::entry(keys, election, ahead, beside)? else { return Ok(None) };
        let office = txn::office(keys, election, beside)?;
        let look_again = if ahead.lease == 0 { Some(self.wait_for_owner(election, ahead).await?) } else { None };
        let place = Place::behind(Some(held.clone()), entry, look_again);
        Ok(Some(stands(place, published, office, header.cursor())))
    }

    /// No session's end removes an entry without a lease. If it was overwritten while its owner
    /// lives, the owner removes it: when to look again. If the owner is dead, or there never was
    /// one, an operator has to.
    async fn wait_for_owner(&self, election: &ElectionName, entry: &KeyValue) -> Result<Duration, StoreError> {
        let soon = self.ttl() / LOOKS_PER_TTL;
        let owner = self.store.keys.suffix(election, &entry.key).and_then(keys::lease_of);
        if let Some(lease) = owner
            && self.store.endpoints.time_to_live("asking for the owner's lease", lease, false).await?.ttl > 0
        {
            return Ok(soon);
        }
        // It may have gone in an orderly way since the entry was read.
        let txn = txn::always([txn::look(entry.key.clone())]);
        let mut answer = self.txn("looking at an entry without a lease", Effect::None, txn).await?;
        let is_there = |now: KeyValue| now.create_revision == entry.create_revision && now.lease == 0;
        if answer.next_one()?.is_some_and(is_there) { Err(txn::leaseless(entry)) } else { Ok(soon) }
    }

    /// Where we stand when entries of elections with longer names are among the older ones.
    ///
    /// What is older than us only ever goes, so looking further and further back, with our own
    /// entry checked each time, ends with an answer that was true in one step: the last.
    async fn standing_past(&self, held: &Held, mut before: i64) -> Result<Standing, StoreError> {
        let keys = &self.store.keys;
        let (election, key) = (&held.election, self.key_of(held));
        for _ in 0..MAX_PAGES {
            let beside = txn::all(keys.beside(election));
            let txn = TxnRequest {
                compare: self.ours(&key, held.token).into(),
                success: vec![
                    txn::newest_keys(keys.line(election), Some(before), PAGE),
                    beside.clone(),
                    txn::look(key.clone()),
                ],
                failure: vec![beside],
            };
            let mut answer = self.txn("looking where we stand", Effect::None, txn).await?;
            if !answer.succeeded {
                return self.gone(election, answer).await;
            }
            let older = answer.next_found()?;
            let Some(last) = older.last() else {
                let office = txn::office(keys, election, &answer.next_found()?)?;
                let published = answer.next_one()?.as_ref().map(published);
                return Ok(stands(Place::Leading(held.clone()), published, office, answer.header.cursor()));
            };
            before = last.create_revision;
            if let Some(ahead) = older.iter().find(|kv| keys.suffix(election, &kv.key).is_some()) {
                before = ahead.create_revision;
                if let Some(standing) = self.read_ahead(held, ahead).await? {
                    return Ok(standing);
                }
            }
        }
        let what = format!("too many elections have names that begin with {:?} and a slash", election.as_str());
        Err(StoreError::Limit { what })
    }

    /// Reads the one ahead with its value. `None`: it has gone meanwhile.
    async fn read_ahead(&self, held: &Held, ahead: &KeyValue) -> Result<Option<Standing>, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        let (key, beside) = (self.key_of(held), txn::all(keys.beside(election)));
        let txn = TxnRequest {
            compare: self.ours(&key, held.token).into(),
            success: vec![txn::get(ahead.key.clone()), beside.clone(), txn::look(key)],
            failure: vec![beside],
        };
        let mut answer = self.txn("looking who is ahead", Effect::None, txn).await?;
        if !answer.succeeded {
            return self.gone(election, answer).await.map(Some);
        }
        let there = answer.next_one()?.filter(|there| there.create_revision == ahead.create_revision);
        let Some(there) = there else { return Ok(None) };
        let beside = answer.next_found()?;
        let published = answer.next_one()?.as_ref().map(published);
        self.standing_behind(held, published, &there, &beside, answer.header).await
    }

    /// Our entry is not there: whether the session is. Others of its entries are lost with it, so
    /// what the cluster's leader says of the lease has to be proven where it says that it is gone.
    async fn gone(&self, election: &ElectionName, mut answer: Answer) -> Result<Standing, StoreError> {
        let lease = self.store.endpoints.time_to_live("asking for the lease", self.heartbeat.lease, false).await?;
        if lease.ttl <= 0 && self.is_gone().await? {
            return Err(StoreError::SessionGone);
        }
        let office = txn::office(&self.store.keys, election, &answer.next_found()?)?;
        Ok(Standing::new(Place::Gone, office, answer.header.cursor()))
    }
}

/// What an entry of ours says now: the revision in which it was last put.
fn published(own: &KeyValue) -> Version {
    Version(own.mod_revision.unsigned_abs())
}

/// A standing of an entry that is there.
pub(crate) fn stands(place: Place, published: Option<Version>, office: Office, cursor: Cursor) -> Standing {
    let mut standing = Standing::new(place, office, cursor);
    standing.published = published.unwrap_or_default();
    standing
}
