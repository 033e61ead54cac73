//! Where an entry of ours stands: the only maker of leaders.

use etcd_client::{Compare, CompareOp, KeyValue, Txn};
use incumbent_store::{ElectionName, Held, Office, Place, Standing, StoreError};

use crate::answer::{self, Answer, revision};
use crate::fault::Effect;
use crate::introductions::Seen;
use crate::session::EtcdSession;

/// How many keys of elections with longer names are passed over at a time, and how often.
const PAGE: i64 = 512;
const MAX_PAGES: usize = 64;

impl EtcdSession {
    pub(crate) async fn standing(&self, held: &Held) -> Result<Standing, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        let key = self.key_of(held);
        let (line, token) = (keys.line(election), revision(held.token));
        let (office_start, office_end) = keys.office_range(election);
        // First in line, with nothing said about the office: the guards have seen it all.
        let [created, leased] = self.ours(&key, held.token);
        let first = Compare::create_revision(line.0.clone(), CompareOp::Greater, token - 1).with_range(line.1.clone());
        let no_office = Compare::create_revision(office_start, CompareOp::Equal, 0).with_range(office_end);
        let [records, introductions] = self.store.to_know_whose(election);
        let txn = Txn::new().when([created, leased, first, no_office]).or_else([
            answer::look(key),
            answer::newest(line, Some(token), 1),
            answer::all(keys.office_range(election)),
            records,
            introductions,
        ]);
        let mut answer = self.txn("looking where we stand", Effect::None, txn).await?;
        let cursor = answer.header.cursor();
        if answer.succeeded {
            return Ok(Standing { place: Place::Leading(held.clone()), office: Office::default(), cursor });
        }
        let (own, line) = (answer.next_one()?, answer.next_found()?);
        if own.is_none_or(|own| own.create_revision() != token || own.lease() != self.lease) {
            return self.gone(election, answer).await;
        }
        let office = answer::office(keys, election, &answer.next_found()?)?;
        let Some(ahead) = line.first() else {
            return Ok(Standing { place: Place::Leading(held.clone()), office, cursor });
        };
        match self.store.whose(election, ahead, &mut answer)? {
            Seen::Elsewhere => self.standing_past(held, ahead.create_revision()).await,
            _ if ahead.lease() == 0 => Err(answer::leaseless(ahead)),
            Seen::Entry(ahead) => {
                let place = Place::Behind { held: Some(held.clone()), ahead, look_again: None };
                Ok(Standing { place, office, cursor })
            }
            Seen::Unknown => self.standing_from(held, ahead).await,
        }
    }

    /// Where we stand, from one on who was right ahead a moment ago.
    pub(crate) async fn standing_from(&self, held: &Held, ahead: &KeyValue) -> Result<Standing, StoreError> {
        match self.standing_behind(held, ahead).await? {
            Some(standing) => Ok(standing),
            None => self.standing_past(held, ahead.create_revision()).await,
        }
    }

    /// Where we stand when entries of elections with longer names are among the older ones, or some have just gone.
    ///
    /// What is older than us only ever goes, so looking further and further back, with our own entry checked each
    /// time, ends with an answer that was true in one step: the last.
    async fn standing_past(&self, held: &Held, mut before: i64) -> Result<Standing, StoreError> {
        let keys = &self.store.keys;
        let (election, key) = (&held.election, self.key_of(held));
        for _ in 0..MAX_PAGES {
            let txn = Txn::new()
                .when(self.ours(&key, held.token))
                .and_then([
                    answer::newest_keys(keys.line(election), Some(before), PAGE),
                    answer::all(keys.office_range(election)),
                ])
                .or_else([answer::all(keys.office_range(election))]);
            let mut answer = self.txn("looking where we stand", Effect::None, txn).await?;
            if !answer.succeeded {
                return self.gone(election, answer).await;
            }
            let older = answer.next_found()?;
            let Some(last) = older.last() else {
                let office = answer::office(keys, election, &answer.next_found()?)?;
                return Ok(Standing { place: Place::Leading(held.clone()), office, cursor: answer.header.cursor() });
            };
            before = last.create_revision();
            if let Some(ahead) = older.iter().find(|kv| keys.suffix(election, kv.key()).is_some()) {
                before = ahead.create_revision();
                if let Some(standing) = self.standing_behind(held, ahead).await? {
                    return Ok(standing);
                }
            }
        }
        let what = format!("too many elections have names that begin with {:?} and a slash", election.as_str());
        Err(StoreError::Limit { what })
    }

    /// Reads the one ahead. `None`: it has gone meanwhile.
    async fn standing_behind(&self, held: &Held, ahead: &KeyValue) -> Result<Option<Standing>, StoreError> {
        let keys = &self.store.keys;
        let election = &held.election;
        let Some(suffix) = keys.suffix(election, ahead.key()) else { return Ok(None) };
        let txn = Txn::new()
            .when(self.ours(&self.key_of(held), held.token))
            .and_then([
                answer::get(ahead.key().to_vec()),
                answer::get(keys.record(election, suffix)),
                answer::get(keys.introduction(suffix)),
                answer::all(keys.office_range(election)),
            ])
            .or_else([answer::all(keys.office_range(election))]);
        let mut answer = self.txn("looking who is ahead", Effect::None, txn).await?;
        if !answer.succeeded {
            return self.gone(election, answer).await.map(Some);
        }
        let (there, records, introduction) = (answer.next_one()?, answer.next_records()?, answer.next_one()?);
        let Some(there) = there.filter(|there| there.create_revision() == ahead.create_revision()) else {
            return Ok(None);
        };
        if there.lease() == 0 {
            return Err(answer::leaseless(&there));
        }
        let office = answer::office(keys, election, &answer.next_found()?)?;
        let ahead = self.store.read_entry(suffix, &there, records.found.first(), introduction.as_ref())?;
        let place = Place::Behind { held: Some(held.clone()), ahead, look_again: None };
        Ok(Some(Standing { place, office, cursor: answer.header.cursor() }))
    }

    /// Our entry is not there: whether the session is.
    async fn gone(&self, election: &ElectionName, mut answer: Answer) -> Result<Standing, StoreError> {
        let lease = self.store.endpoints.time_to_live("asking for the lease", self.lease).await?;
        if lease.ttl() <= 0 {
            return Err(StoreError::SessionGone);
        }
        let office = answer::office(&self.store.keys, election, &answer.next_found()?)?;
        Ok(Standing { place: Place::Gone, office, cursor: answer.header.cursor() })
    }
}
