//! A session: a row with a TTL, and the steps that act on its entries.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, EntryId, Fut, Held, Liveness, NewEntry, Nonce, Place, Publication, Renewal,
    Session, Standing, StillBehind, StoreError, StoreId, Version, Wake, Watched, check_candidate_name, check_value,
    lock,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_postgres::SimpleQueryRow;

use crate::answer::{self, Ahead, Stands, column, number, number_of, value};
use crate::connection::Step;
use crate::store::{Inner, bytes, cas};
use crate::watcher::{Change, Renewals, Renewed, Wanted, wait};

pub(crate) struct PostgresSession {
    store: Arc<Inner>,
    id: Vec<u8>,
    store_id: StoreId,
    liveness: Liveness,
    renewed: watch::Sender<Renewed>,
    /// What was seen last of those ahead.
    followed: Mutex<HashMap<ElectionName, Followed>>,
}

/// One who is ahead.
struct Followed {
    seen: StillBehind,
    /// How often in a row it had expired and was there all the same.
    expired: u32,
}

impl PostgresSession {
    pub(crate) fn new(store: Arc<Inner>, id: Vec<u8>, store_id: StoreId, ttl: Duration) -> PostgresSession {
        let (liveness, renewed) = (Liveness::new(ttl), watch::Sender::default());
        PostgresSession { store, id, store_id, liveness, renewed, followed: Mutex::default() }
    }

    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let renew = self.store.schema.call("renew_1", &[&&self.id[..]]);
        // On a connection of its own: others may wait for a lock.
        let rows = self.store.renewals.call("proving that we live", Effect::Write, Step::CommitsFirst(renew)).await?;
        let (mut renewal, ahead) = answer::renewal(&rows, held)?;
        renewal.behind = self.still_behind(held, &ahead);
        self.renewed.send_replace(Renewed { at: Some(Instant::now()), ahead });
        Ok(renewal)
    }

    /// What was seen ahead of each entry, if all of it is as it was, and not about to end. That
    /// saves followers a look in a while, a third of their renewals on top of them. What is known
    /// of elections in which we stand no longer is forgotten.
    fn still_behind(&self, held: &[Held], ahead: &HashMap<ElectionName, Ahead>) -> Vec<StillBehind> {
        let mut followed = self.followed();
        followed.retain(|election, _| ahead.contains_key(election));
        let still = |held: &Held| {
            let (now, Followed { seen, .. }) = (ahead.get(&held.election)?, followed.get(&held.election)?);
            let same = seen.held == *held
                && now.token == Some(number(seen.ahead.token))
                && now.version == Some(seen.ahead.version)
                && now.office == seen.office;
            (same && now.left.is_none()).then(|| seen.clone())
        };
        held.iter().filter_map(still).collect()
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<ElectionName, Followed>> {
        lock(&self.followed)
    }

    async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        let (incarnation, merit) = (entry.incarnation.to_bits().to_be_bytes(), entry.merit.to_string());
        let sql = self.store.schema.call(
            "enlist_3",
            &[
                &&self.id[..],
                &bytes(election),
                &&incarnation[..],
                &entry.name.as_bytes(),
                &&entry.value[..],
                &merit.as_str(),
            ],
        );
        self.stands(election, &self.store.write("enlisting", sql).await?)
    }

    async fn standing(&self, held: &Held) -> Result<Standing, StoreError> {
        let sql = self.store.schema.call("standing_1", &[&&self.id[..], &bytes(&held.election), &number(held.token)]);
        // It may write all the same: it leaps on another server, and removes a dead one ahead. It
        // does nothing twice, so that nobody need know whether it did.
        let asked = self.store.calls.call("asking where we stand", Effect::None, Step::CommitsFirst(sql));
        self.stands(&held.election, &asked.await?)
    }

    fn stands(&self, election: &ElectionName, rows: &[SimpleQueryRow]) -> Result<Standing, StoreError> {
        let Stands { standing, head_changed, ahead_expired } = answer::standing(election, rows)?;
        match &standing.place {
            Place::Behind { held: Some(held), ahead, .. } => {
                let seen = StillBehind::new(held.clone(), ahead.clone(), standing.office.version);
                let mut followed = self.followed();
                let before = followed.get(election).filter(|before| before.seen.ahead.id == ahead.id);
                let before = before.map_or(0, |before| before.expired);
                let expired = if ahead_expired { before.saturating_add(1) } else { 0 };
                followed.insert(election.clone(), Followed { seen, expired });
            }
            _ => drop(self.followed().remove(election)),
        }
        if head_changed {
            // Only those who have no entry are told: the one behind us is behind us still.
            self.store.tell(bytes(election), Change::Head, None);
        }
        Ok(standing)
    }

    async fn publish(&self, held: &Held, was: Version, said: &Publication) -> Result<Option<Version>, StoreError> {
        check_value(&said.value)?;
        let (token, merit) = (number(held.token), said.merit.to_string());
        let sql = self.store.schema.call(
            "publish_3",
            &[
                &&self.id[..],
                &bytes(&held.election),
                &token,
                &was.0.cast_signed(),
                &&said.value[..],
                &said.ready.map(|Nonce(bits)| bits.cast_signed()),
                &merit.as_str(),
            ],
        );
        let rows = self.store.write_and_tell("publishing", sql, &held.election, Change::Value, Some(token)).await?;
        Ok(value::<Option<i64>>(&rows)?.map(|changed| Version(changed.unsigned_abs())))
    }

    async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let token = number(held.token);
        let sql = self
            .store
            .schema
            .call("withdraw_1", &[&&self.id[..], &bytes(&held.election), &token, &heir.map(number_of)]);
        let rows = self.store.write_and_tell("withdrawing", sql, &held.election, Change::Gone, Some(token)).await?;
        cas(&rows)
    }

    async fn close(&self) -> Result<(), StoreError> {
        let sql = self.store.schema.call("close_1", &[&&self.id[..]]);
        let rows = self.store.write("closing the session", sql).await?;
        let gone = rows.iter().map(|row| Ok((column(row, "election")?, column(row, "token")?)));
        self.store.tell_gone(&gone.collect::<Result<Vec<_>, StoreError>>()?).await;
        Ok(())
    }
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSession").field("ttl", &self.liveness.ttl).finish_non_exhaustive()
    }
}

impl Session for PostgresSession {
    fn liveness(&self) -> Liveness {
        self.liveness
    }

    fn store_id(&self) -> StoreId {
        self.store_id.clone()
    }

    fn renew<'a>(&'a self, held: &'a [Held]) -> Fut<'a, Renewal> {
        Box::pin(self.renew(held))
    }

    fn enlist<'a>(&'a self, election: &'a ElectionName, entry: &'a NewEntry) -> Fut<'a, Standing> {
        Box::pin(self.enlist(election, entry))
    }

    fn standing<'a>(&'a self, held: &'a Held, _behind: Option<&'a EntryId>) -> Fut<'a, Standing> {
        Box::pin(self.standing(held))
    }

    fn watch(&self, watched: &Watched, from: Cursor) -> Wake {
        let election = watched.held.election.clone();
        let expired = self.followed().get(&election).map_or(0, |followed| followed.expired);
        let renewals = Renewals { ttl: self.liveness.ttl, renewed: self.renewed.subscribe(), expired };
        Box::pin(wait(self.store.clone(), election, Wanted::by_entry(watched), from, Some(renewals)))
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        Box::pin(self.publish(held, was, said))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        Box::pin(self.withdraw(held, heir))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(self.close())
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Entry, Incarnation, Token};

    use super::*;
    use crate::{PostgresOptions, PostgresStore};

    /// It grows with each job that has an election of its own otherwise.
    #[tokio::test]
    async fn a_session_remembers_nothing_of_elections_in_which_it_stands_no_longer() {
        let store = PostgresStore::connect(tokio_postgres::Config::new(), &PostgresOptions::new()).unwrap();
        let session = PostgresSession::new(store.inner.clone(), Vec::new(), StoreId::new("a"), Duration::from_secs(9));
        let [left, stands] = ["left", "stands"].map(|name| {
            let (own, ahead) = (Token::new(7).unwrap(), Token::new(5).unwrap());
            let id = |token: Token| EntryId::new(token.to_string());
            let held = Held::new(ElectionName::new(name).unwrap(), id(own), own, Incarnation::from_bits(1));
            let seen = StillBehind::new(held.clone(), Entry::new(id(ahead), ahead), Version::NONE);
            session.followed().insert(held.election.clone(), Followed { seen, expired: 0 });
            held
        });
        let ahead = Ahead { token: Some(5), left: None, version: Some(Version::NONE), office: Version::NONE };
        let ahead = HashMap::from([(stands.election.clone(), ahead)]);
        assert_eq!(session.still_behind(&[left, stands.clone()], &ahead).len(), 1);
        assert_eq!(Vec::from_iter(session.followed().keys().cloned()), [stands.election]);
    }
}
