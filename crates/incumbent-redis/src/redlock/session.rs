//! A session: a name that its process has drawn. The servers know only its locks.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, ElectionName, EntryId, Fut, Held, Liveness, NewEntry, Office, Place, Publication, Renewal, Session,
    Standing, StoreError, StoreId, Timestamp, Version, Wake, Watched, check_candidate_name, check_value, lock,
};

use super::rounds::{Asker, DRIFT, Enlisted, GRANULARITY, Proof, Rounds, patience};
use super::server::{Stay, session_name};
use crate::entry::{encode_new, encode_said};
use crate::keys;

/// Dropping it without closing it is what a process does that dies: its locks stay until their TTL
/// has passed.
pub(super) struct RedlockSession {
    rounds: Arc<Rounds>,
    name: String,
    store: String,
    ttl: Duration,
    state: Mutex<State>,
}

/// None of it makes a leader.
struct State {
    /// When the newest of the renewals was sent that were answered; `None`: it is closed.
    renewed: Option<Timestamp>,
    /// Where it may have a lock: what renewals ask for, too.
    tried: BTreeSet<ElectionName>,
    /// The highest that was given to something published. One that arrives late must not look like
    /// another.
    version: u64,
}

impl RedlockSession {
    pub(super) async fn open(rounds: Arc<Rounds>, ttl: Duration) -> Result<RedlockSession, StoreError> {
        // Scripts count whole milliseconds. What is granted is never more than what counts.
        let ttl = Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let renewed = Some(rounds.clock.now());
        let store = rounds.settle(patience(ttl), Asker::Candidate).await?;
        let state = Mutex::new(State { renewed, tried: BTreeSet::new(), version: 1 });
        Ok(RedlockSession { name: session_name()?, store, ttl, state, rounds })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way through a change.
        lock(&self.state)
    }

    /// Once a TTL has passed since it was renewed, all its locks may be over: it does not come
    /// back.
    fn check(&self) -> Result<(), StoreError> {
        match self.state().renewed {
            Some(renewed) if self.rounds.clock.now() < renewed + self.ttl => Ok(()),
            _ => Err(StoreError::SessionGone),
        }
    }

    async fn renew(&self, held: &[Held]) -> Result<Renewal, StoreError> {
        self.check()?;
        let sent = self.rounds.clock.now();
        let tried: Vec<ElectionName> = self.state().tried.iter().cloned().collect();
        let (proofs, stays) = self.rounds.renew(&self.store, &self.name, self.ttl, held, tried).await?;
        {
            let mut state = self.state();
            state.renewed = state.renewed.map(|renewed| renewed.max(sent));
        }
        let mut renewal = Renewal::alive(self.ttl);
        for (held, proof) in held.iter().zip(proofs) {
            match proof {
                Proof::Proven => {}
                Proof::Unproven => renewal.unproven.push(held.clone()),
                Proof::Gone => renewal.gone.push(held.clone()),
            }
        }
        renewal.stray.extend(stays.into_iter().filter(|stay| !held.contains(stay)));
        Ok(renewal)
    }

    async fn enlist(&self, election: &ElectionName, entry: &NewEntry) -> Result<Standing, StoreError> {
        check_candidate_name(&entry.name)?;
        check_value(&entry.value)?;
        self.check()?;
        self.state().tried.insert(election.clone());
        let incarnation = entry.incarnation;
        let stay = Stay { session: self.name.clone(), election: election.clone(), incarnation };
        let said = encode_new(entry);
        match self.rounds.enlist(&self.store, &stay, self.ttl, &said).await? {
            Enlisted::Leads { token, published } => {
                let held = Held::new(election.clone(), keys::id_of(token), token, incarnation);
                Ok(standing(Place::Leading(held), published))
            }
            Enlisted::Behind(ahead) => {
                self.state().tried.remove(election);
                // Nobody is told when the lock is free.
                Ok(standing(Place::behind(None, ahead, Some(self.ttl / 10)), Version::NONE))
            }
        }
    }

    async fn standing(&self, held: &Held) -> Result<Standing, StoreError> {
        self.check()?;
        let (proof, published) = self.rounds.standing(&self.store, &self.name, held, patience(self.ttl)).await?;
        match proof {
            Proof::Proven => Ok(standing(Place::Leading(held.clone()), published)),
            Proof::Gone => Ok(standing(Place::Gone, Version::NONE)),
            Proof::Unproven => {
                let what = "asking for the standing: some of the servers that have the lock do not answer".to_owned();
                Err(StoreError::Unavailable { what, source: None })
            }
        }
    }

    async fn publish(&self, held: &Held, was: Version, said: &Publication) -> Result<Option<Version>, StoreError> {
        check_value(&said.value)?;
        let version = {
            let mut state = self.state();
            state.version = state.version.max(was.0) + 1;
            Version(state.version)
        };
        let (said, within) = (encode_said(said), patience(self.ttl));
        let published = self.rounds.publish(&self.store, &self.name, held, (was, version), said, within).await;
        match published {
            Ok(true) => Ok(Some(version)),
            Ok(false) | Err(StoreError::SessionGone) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn withdraw(&self, held: &Held, heir: Option<&EntryId>) -> Result<Cas, StoreError> {
        if heir.is_some() {
            match self.standing(held).await {
                // There is one entry: while it is ours there is no heir.
                Ok(Standing { place: Place::Leading(_), .. }) => return Ok(Cas::Refused),
                Ok(_) | Err(StoreError::SessionGone) => {}
                Err(error) => return Err(error),
            }
        }
        match self.rounds.withdraw(&self.store, &self.name, held, patience(self.ttl)).await {
            Ok(()) => {
                self.state().tried.remove(&held.election);
                Ok(Cas::Done)
            }
            Err(StoreError::SessionGone) => Ok(Cas::Done),
            Err(error) => Err(error),
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        let tried: Vec<ElectionName> = {
            let mut state = self.state();
            state.renewed = None;
            state.tried.iter().cloned().collect()
        };
        if tried.is_empty() {
            return Ok(());
        }
        match self.rounds.release(&self.store, &self.name, &tried, patience(self.ttl)).await {
            Err(StoreError::SessionGone) => Ok(()),
            done => done,
        }
    }
}

/// There is no office record.
fn standing(place: Place, published: Version) -> Standing {
    let mut standing = Standing::new(place, Office::default(), Cursor::default());
    standing.published = published;
    standing
}

impl fmt::Debug for RedlockSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockSession").field("name", &self.name).field("store", &self.store).finish_non_exhaustive()
    }
}

impl Session for RedlockSession {
    fn liveness(&self) -> Liveness {
        let mut liveness = Liveness::new(self.ttl);
        // On top of the library's own drift, which is for clocks of the same kind.
        liveness.margin = GRANULARITY + self.ttl / DRIFT;
        // Twice the time after which those who wait look again.
        liveness.rest = self.ttl / 5;
        liveness
    }

    fn store_id(&self) -> StoreId {
        StoreId::new(self.store.as_str())
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

    fn watch(&self, _watched: &Watched, _from: Cursor) -> Wake {
        Box::pin(std::future::pending())
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
