//! A session: a name at the server, which forgets it when it is not renewed.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, ElectionName, EntryId, Fut, Held, Liveness, NewEntry, Place, Publication, Renewal, Session, Standing,
    StoreError, StoreId, Timestamp, Token, Version, Wake, Watched, check_candidate_name, check_value, lock,
};

use crate::answer::{Answer, strange};
use crate::connection::{Caller, DRIFT};
use crate::entry::{encode_new, encode_said};
use crate::keys;
use crate::step::{self, Step};
use crate::store::Inner;

/// How many places a renewal reads at a time: the server stands still meanwhile.
const PAGE_PLACES: usize = 500;

/// Dropping it without closing it is what a process does that dies: its entries stay until the TTL
/// has passed.
pub(crate) struct RedisSession {
    inner: Arc<Inner>,
    /// Its name at the server.
    name: String,
    store: StoreId,
    ttl: Duration,
    /// When the newest of the renewals was sent that were answered.
    renewed: Mutex<Timestamp>,
}

impl RedisSession {
    pub(crate) async fn open(inner: Arc<Inner>, ttl: Duration) -> Result<RedisSession, StoreError> {
        // Scripts count whole milliseconds. What is granted is never more than what counts.
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let renewed = Mutex::new(inner.clock.now());
        let ttl_digits = keys::ttl_digits(millis);
        let mut answer = inner.run(&step::OPEN, Caller::default(), &[ttl_digits.as_bytes()]).await?;
        let name = answer.text()?;
        Ok(RedisSession { inner, name, store: answer.store, ttl: Duration::from_millis(millis), renewed })
    }

    /// Until when no server can have forgotten it for lack of renewals, by our clock.
    fn proven_until(&self) -> Timestamp {
        let renewed = *lock(&self.renewed);
        renewed + self.ttl - self.ttl / DRIFT
    }

    /// A step on behalf of this session. `None`: the store was founded anew, and knows nothing of
    /// it.
    async fn step(&self, step: &'static Step, args: &[&[u8]]) -> Result<Option<Answer>, StoreError> {
        let args: Vec<_> = [self.name.as_bytes()].into_iter().chain(args.iter().copied()).collect();
        let is_proven = || self.inner.clock.now() < self.proven_until();
        let caller = || Caller { store: Some(&self.store), is_proven: Some(&is_proven), ttl: Some(self.ttl) };
        let mut answer = self.inner.run(step, caller(), &args).await?;
        if answer.word == "again" {
            // Another server has taken over, and nothing was done: now we know of it.
            answer = self.inner.run(step, caller(), &args).await?;
        }
        match answer.word.as_str() {
            "again" => {
                let what = format!("{}: the server was replaced twice", step.what);
                Err(StoreError::Unavailable { what, source: None })
            }
            "hold" => Err(answer.hold()?),
            "reset" => Ok(None),
            _ => Ok(Some(answer)),
        }
    }

    /// A step that only a living session can make.
    async fn living_step(&self, step: &'static Step, args: &[&[u8]]) -> Result<Answer, StoreError> {
        let answer = self.step(step, args).await?.filter(|answer| answer.word != "gone");
        answer.ok_or(StoreError::SessionGone)
    }

    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        let sent = self.inner.clock.now();
        let (mut places, mut last) = self.places_after(&[]).await?;
        self.note_renewed(sent);
        while !last.is_empty() {
            let (next, next_last) = self.places_after(&last).await?;
            places.extend(next);
            last = next_last;
        }
        let places: Option<Vec<Held>> = places.iter().map(|place| keys::parse_place(place)).collect();
        let places = places.ok_or_else(|| strange(step::RENEW.what))?;
        let owned: HashSet<(&ElectionName, Token)> =
            places.iter().map(|place| (&place.election, place.token)).collect();
        let named: HashSet<(&ElectionName, Token)> = held.iter().map(|held| (&held.election, held.token)).collect();
        let mut renewal = Renewal::alive(self.ttl);
        renewal.gone.extend(held.iter().filter(|held| !owned.contains(&(&held.election, held.token))).cloned());
        let stray = places.iter().filter(|place| !named.contains(&(&place.election, place.token)));
        renewal.stray.extend(stray.cloned());
        Ok(renewal)
    }

    fn note_renewed(&self, sent: Timestamp) {
        let mut renewed = lock(&self.renewed);
        *renewed = sent.max(*renewed);
    }

    /// Renews the session: a page of its places, as scripts write them, and the last of the page if
    /// there may be more. One that goes while others are read was there, and one that is not there
    /// has gone.
    async fn places_after(&self, last: &[u8]) -> Result<(Vec<Vec<u8>>, Vec<u8>), StoreError> {
        let limit = PAGE_PLACES.to_string();
        let mut answer = self.living_step(&step::RENEW, &[last, limit.as_bytes()]).await?;
        Ok((answer.list()?, answer.bytes()?))
    }

    async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        let incarnation = entry.incarnation.to_string();
        let said = encode_new(entry);
        let args = [election.as_str().as_bytes(), incarnation.as_bytes(), &said];
        let mut answer = self.living_step(&step::ENLIST, &args).await?;
        if answer.word == "already" {
            return Err(StoreError::AlreadyInLine(read_held(&mut answer, election)?));
        }
        read_standing(answer, election)
    }

    async fn standing(&self, held: &Held) -> Result<Standing, StoreError> {
        let args = [held.election.as_str().as_bytes(), held.entry.as_str().as_bytes()];
        read_standing(self.living_step(&step::STANDING, &args).await?, &held.election)
    }

    async fn publish(&self, held: &Held, was: Version, said: &Publication) -> Result<Option<Version>, StoreError> {
        check_value(&said.value)?;
        let (was, said) = (keys::digits(was.0), encode_said(said));
        let args = [held.election.as_str().as_bytes(), held.entry.as_str().as_bytes(), was.as_bytes(), &said];
        let Some(mut answer) = self.step(&step::PUBLISH, &args).await? else { return Ok(None) };
        match answer.cas()? {
            Cas::Done => Ok(Some(Version(answer.number()?))),
            Cas::Refused => Ok(None),
        }
    }

    async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        let heir = heir.map_or("", EntryId::as_str);
        let args = [held.election.as_str().as_bytes(), held.entry.as_str().as_bytes(), heir.as_bytes()];
        self.step(&step::WITHDRAW, &args).await?.map_or(Ok(Cas::Done), |answer| answer.cas())
    }
}

/// What follows `already`, and where a standing says who we are.
fn read_held(answer: &mut Answer, election: &ElectionName) -> Result<Held, StoreError> {
    let (token, incarnation) = (answer.text()?, answer.text()?);
    keys::held(election.as_str(), &token, &incarnation).ok_or_else(|| answer.strange())
}

fn read_standing(mut answer: Answer, election: &ElectionName) -> Result<Standing, StoreError> {
    let (cursor, office) = (answer.cursor(), answer.office()?);
    if answer.word == "lost" {
        return Ok(Standing::new(Place::Gone, office, cursor));
    }
    let published = Version(answer.number()?);
    let held = read_held(&mut answer, election)?;
    let place = match answer.word.as_str() {
        "leads" => Place::Leading(held),
        "behind" => {
            let (token, kept) = (answer.bytes()?, answer.bytes()?);
            let ahead = answer.entry(&token, &kept)?;
            // Nothing expires at the server unless somebody asks for something. A renewal in
            // between makes this one look in vain, and then again.
            let look_again = Duration::from_millis(answer.millis()? + 1);
            Place::behind(Some(held), ahead, Some(look_again))
        }
        _ => return Err(answer.strange()),
    };
    let mut standing = Standing::new(place, office, cursor);
    standing.published = published;
    Ok(standing)
}

impl fmt::Debug for RedisSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSession").field("name", &self.name).field("store", &self.store).finish_non_exhaustive()
    }
}

impl Session for RedisSession {
    fn liveness(&self) -> Liveness {
        let mut liveness = Liveness::new(self.ttl);
        // Scripts count whole milliseconds, and cut off the rest when a TTL begins.
        liveness.margin = Duration::from_millis(1);
        liveness
    }

    fn store_id(&self) -> StoreId {
        self.store.clone()
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
        self.inner.watch_entry(watched, from, self.store.clone())
    }

    fn publish<'a>(&'a self, held: &'a Held, was: Version, said: &'a Publication) -> Fut<'a, Option<Version>> {
        Box::pin(self.publish(held, was, said))
    }

    fn withdraw<'a>(&'a self, held: &'a Held, heir: Option<&'a EntryId>) -> Fut<'a, Cas> {
        Box::pin(self.withdraw(held, heir))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move { self.step(&step::CLOSE, &[]).await.map(|_| ()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RedisStore;

    #[test]
    fn a_session_is_proven_for_less_than_its_ttl_since_a_servers_clock_may_be_faster() {
        let (ttl, renewed) = (Duration::from_secs(1_000), Timestamp::default() + Duration::from_secs(7));
        let inner = RedisStore::from_url("redis://127.0.0.1:1").unwrap().inner;
        let (name, store) = (String::new(), StoreId::new("redis-8c5f"));
        let session = RedisSession { inner, name, store, ttl, renewed: Mutex::new(renewed) };
        assert_eq!(session.proven_until(), renewed + Duration::from_secs(999));
    }
}
