//! The simulated server: the memory store's table, who watches it, and what its sessions may still
//! be believed.
//!
//! It knows nothing of the network in front of it, and nothing of time but the moment of each step.

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_core::{
    Answer, Attempt, CallId, CandidacyId, Cas, Cursor, ElectionName, Entry, Fault, Held, Liveness, NewEntry, Office,
    Op, Place, Proof, Renewal, Standing, StillBehind, StoreId, Timestamp, Token, WatchFor, WatchId,
};
use incumbent_store::memory::{SessionKey, Shape, Table, Touch};

use crate::variant::{AroundFlaw, Variant};

/// Who has sent a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sender {
    Process { process: usize, boot: u32 },
    Operator(usize),
}

/// What is asked of the server.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Open(Attempt),
    Renew(Attempt, SessionKey, Vec<Held>),
    Close(SessionKey),
    Call(CandidacyId, CallId, Option<SessionKey>, Op),
    Watch(Watch),
    /// An operator's call, with the number of its attempt.
    Operate(u64, Op),
}

#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) candidacy: CandidacyId,
    pub(crate) watch: WatchId,
    pub(crate) what: WatchFor,
    pub(crate) from: Cursor,
}

/// What the server answers.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Opened(Attempt, Result<(SessionKey, Liveness), Fault>),
    Renewed(Attempt, Result<Renewal, Fault>),
    Called(CandidacyId, CallId, Result<Answer, Fault>),
    Operated(u64, Result<Answer, Fault>),
    /// No answer.
    None,
}

/// Where something changed, and what.
pub(crate) type Touched = (ElectionName, Touch);

/// Whose watch it is.
pub(crate) type Watcher = (usize, u32, CandidacyId);

/// What may be believed of a session.
#[derive(Default)]
struct Life {
    /// From when on its TTL counts at the earliest. `None`: it may be forgotten at any moment.
    counts_from: Option<u64>,
    ttl: u64,
    /// When it renewed since.
    renewals: Vec<u64>,
}

pub(crate) struct Server {
    pub(crate) table: Table,
    variant: Variant,
    granted: Duration,
    proof: Proof,
    lives: BTreeMap<SessionKey, Life>,
    watches: BTreeMap<Watcher, Watch>,
    /// The newest entry of each session in each election, for the variant that withdraws whatever
    /// is there.
    newest: BTreeMap<(SessionKey, ElectionName), Held>,
    /// What renewals have seen ahead of each entry, for the variant that goes by that.
    behind: BTreeMap<Token, StillBehind>,
    session_of: BTreeMap<Token, SessionKey>,
}

impl Server {
    pub(crate) fn new(shape: Shape, granted: Duration, proof: Proof, variant: Variant) -> Server {
        Server {
            table: Table::new(shape, StoreId::new("simulated")),
            variant,
            granted,
            proof,
            lives: BTreeMap::new(),
            watches: BTreeMap::new(),
            newest: BTreeMap::new(),
            behind: BTreeMap::new(),
            session_of: BTreeMap::new(),
        }
    }

    /// When the store or a rival may forget this session at the earliest.
    pub(crate) fn forgets_at(&self, session: SessionKey) -> u64 {
        let life = self.lives.get(&session);
        life.and_then(|life| Some(life.counts_from? + life.ttl)).unwrap_or_default()
    }

    /// The same, for the session that an entry belongs to.
    pub(crate) fn forgets_entry_at(&self, token: Token) -> u64 {
        self.session_of.get(&token).map_or(0, |session| self.forgets_at(*session))
    }

    pub(crate) fn has(&self, held: &Held) -> bool {
        self.table.has_entry(&held.election, &held.entry)
    }

    pub(crate) fn line(&mut self, now: u64, election: &ElectionName) -> Vec<Entry> {
        self.table.line(at(now), election, 1_000).entries
    }

    pub(crate) fn tokens(&mut self, now: u64, election: &ElectionName) -> Vec<Token> {
        self.line(now, election).iter().map(|entry| entry.token).collect()
    }

    pub(crate) fn head(&mut self, now: u64, election: &ElectionName) -> Option<Entry> {
        self.table.line(at(now), election, 1).entries.pop()
    }

    pub(crate) fn office(&mut self, now: u64, election: &ElectionName) -> Office {
        self.table.line(at(now), election, 0).office
    }

    /// A failover extends leases. Nobody is told, so nobody may believe in the extension:
    /// `forgets_at` stays.
    pub(crate) fn fail_over(&mut self, now: u64, by: Duration) {
        self.table.expire(at(now));
        self.table.extend_all(at(now), by);
    }

    /// One atomic step.
    pub(crate) fn execute(&mut self, now: u64, ask: &Ask) -> Reply {
        match ask {
            Ask::Open(attempt) => {
                let (key, mut liveness) = self.table.open_session(at(now), self.granted);
                self.lives(now, key);
                liveness.proof = self.told_proof(liveness.proof);
                Reply::Opened(*attempt, Ok((key, liveness)))
            }
            Ask::Renew(attempt, key, held) => {
                let mut answer = self.table.renew(at(now), *key, held).map_err(|error| error.fault());
                if let Ok(renewal) = &mut answer {
                    self.lives(now, *key);
                    self.remember_ahead(renewal, held);
                }
                Reply::Renewed(*attempt, answer)
            }
            Ask::Close(key) => {
                self.table.close_session(*key);
                Reply::None
            }
            Ask::Call(candidacy, call, session, op) => Reply::Called(*candidacy, *call, self.call(now, *session, op)),
            Ask::Operate(attempt, op) => Reply::Operated(*attempt, self.call(now, None, op)),
            Ask::Watch(_) => Reply::None,
        }
    }

    fn remember_ahead(&mut self, renewal: &mut Renewal, held: &[Held]) {
        if self.variant.has(AroundFlaw::AheadRemembered) {
            self.behind.extend(renewal.behind.drain(..).map(|seen| (seen.held.token, seen)));
            renewal.behind.extend(held.iter().filter_map(|held| self.behind.get(&held.token)).cloned());
        }
    }

    /// What a stale server says to a renewal: that all is well.
    pub(crate) fn acknowledge(&self, attempt: Attempt) -> Reply {
        Reply::Renewed(attempt, Ok(Renewal::alive(self.granted)))
    }

    /// Arms a watch; `true` if it has something to say at once.
    pub(crate) fn watch(&mut self, process: usize, boot: u32, watch: &Watch) -> bool {
        if !self.table.shape().watches {
            return false;
        }
        if self.table.wakes(&watch.what, watch.from) {
            return true;
        }
        self.watches.insert((process, boot, watch.candidacy), watch.clone());
        false
    }

    pub(crate) fn unwatch(&mut self, watcher: Watcher) {
        self.watches.remove(&watcher);
    }

    /// All watches, or all of one process, are lost.
    pub(crate) fn drop_watches(&mut self, of: Option<usize>) -> Vec<(Watcher, WatchId)> {
        let lost = |watcher: &Watcher| of.is_none_or(|process| watcher.0 == process);
        let (gone, kept) = std::mem::take(&mut self.watches).into_iter().partition(|(watcher, _)| lost(watcher));
        self.watches = kept;
        let gone: BTreeMap<Watcher, Watch> = gone;
        gone.into_iter().map(|(watcher, watch)| (watcher, watch.watch)).collect()
    }

    /// What the last steps touched, and the watches that this fires.
    pub(crate) fn touched(&mut self) -> (Vec<Touched>, Vec<(Watcher, WatchId)>) {
        let touched = self.table.take_touched();
        let mut fired = Vec::new();
        if !touched.is_empty() {
            let hit = |watch: &Watch| {
                let touches = Touch::of(&watch.what);
                touched.iter().any(|(election, touch)| election == watch.what.election() && touches.contains(touch))
            };
            fired.extend(self.watches.iter().filter(|(_, w)| hit(w)).map(|(watcher, w)| (*watcher, w.watch)));
            fired.iter().for_each(|(watcher, _)| self.unwatch(*watcher));
        }
        (touched, fired)
    }

    /// Becomes visible with a token that was drawn before.
    pub(crate) fn enlist_late(
        &mut self,
        now: u64,
        key: SessionKey,
        election: &ElectionName,
        entry: &NewEntry,
        token: Token,
    ) -> Result<Answer, Fault> {
        let answer = self.table.enlist_with_token(at(now), key, election, entry, token);
        answer.map(|standing| Answer::Standing(Box::new(standing))).map_err(|error| error.fault())
    }

    /// What clients are told of what an answer proves.
    fn told_proof(&self, answered: Proof) -> Proof {
        match self.proof {
            Proof::Earlier { .. } if self.variant.has(AroundFlaw::AnswerTakenForProof) => answered,
            Proof::Earlier { apart, .. } if self.variant.has(AroundFlaw::OpeningTakenForProof) => {
                Proof::Earlier { apart, opening_proves: true }
            }
            Proof::Earlier { opening_proves, .. } if self.variant.has(AroundFlaw::RenewalsTooClose) => {
                Proof::Earlier { apart: Duration::ZERO, opening_proves }
            }
            proof => proof,
        }
    }

    fn lives(&mut self, now: u64, key: SessionKey) {
        let opening = !self.lives.contains_key(&key);
        let life = self.lives.entry(key).or_insert_with(|| Life { ttl: nanos(self.granted), ..Life::default() });
        match self.proof {
            Proof::Answered => life.counts_from = Some(now),
            Proof::Earlier { opening_proves: true, .. } if opening => life.counts_from = Some(now),
            Proof::Earlier { apart, .. } => {
                // Those who wait for so long by a clock that is fast have waited less.
                let apart = nanos(apart) * 9 / 10;
                let proven = life.renewals.iter().rposition(|renewal| renewal + apart <= now);
                if let Some(proven) = proven {
                    life.counts_from = life.counts_from.max(Some(life.renewals[proven]));
                    life.renewals.drain(..proven);
                }
            }
        }
        life.renewals.push(now);
    }

    /// A client has connected again, to a server that counts a shorter TTL.
    pub(crate) fn reattach(&mut self, now: u64, key: SessionKey) {
        let ttl = self.granted / 5;
        self.table.change_ttl(at(now), key, ttl);
        if let Some(life) = self.lives.get_mut(&key) {
            life.ttl = nanos(ttl);
        }
    }

    fn call(&mut self, now: u64, session: Option<SessionKey>, op: &Op) -> Result<Answer, Fault> {
        let now_at = at(now);
        let key = || session.ok_or(Fault::SessionGone);
        match op {
            Op::Enlist(election, entry) => {
                let standing = self.enlist(now, key()?, election, entry)?;
                if let Some(held) = held_in(&standing) {
                    self.session_of.insert(held.token, key()?);
                    self.newest.insert((key()?, election.clone()), held.clone());
                }
                Ok(Answer::Standing(Box::new(standing)))
            }
            Op::Standing(held, _) => {
                let standing = self.table.standing(now_at, key()?, held).map_err(|error| error.fault())?;
                Ok(Answer::Standing(Box::new(standing)))
            }
            Op::Withdraw(held, heir) => {
                let newest = self.newest.get(&(key()?, held.election.clone()));
                let unguarded = self.variant.has(AroundFlaw::WithdrawalUnguarded);
                let which = newest.filter(|_| unguarded).unwrap_or(held);
                let cas = self.table.withdraw(now_at, key()?, which, heir.as_ref()).map_err(|error| error.fault())?;
                Ok(Answer::Cas(cas))
            }
            Op::Publish(held, was, said) => {
                let published = self.table.publish(now_at, key()?, held, *was, said);
                published.map(Answer::Published).map_err(|error| error.fault())
            }
            Op::Line(election, limit) => Ok(Answer::Line(Box::new(self.table.line(now_at, election, *limit)))),
            Op::SetOffice(election, was, to) => {
                let overwrite = self.variant.has(AroundFlaw::OfficeOverwritten);
                let was = if overwrite { self.office(now, election).version } else { *was };
                Ok(Answer::Cas(self.table.set_office(now_at, election, was, to)))
            }
            Op::Evict(election, seen) => Ok(Answer::Cas(self.evict(now, election, seen))),
            Op::RaiseFences(_) | Op::Examine(_) | Op::Shoot(..) => Err(Fault::Permanent),
        }
    }

    fn enlist(
        &mut self,
        now: u64,
        key: SessionKey,
        election: &ElectionName,
        entry: &NewEntry,
    ) -> Result<Standing, Fault> {
        if self.variant.has(AroundFlaw::TokenFromTheLine) {
            let newest = self.line(now, election).last().map_or(0, |last| last.token.get());
            if let Some(token) = Token::new(newest + 1) {
                let answer = self.table.enlist_with_token(at(now), key, election, entry, token);
                return answer.map_err(|error| error.fault());
            }
        }
        self.table.enlist(at(now), key, election, entry).map_err(|error| error.fault())
    }

    fn evict(&mut self, now: u64, election: &ElectionName, seen: &Entry) -> Cas {
        let line = self.line(now, election);
        let of_the_first = self.variant.has(AroundFlaw::EvictionOfTheFirst);
        let instead = if of_the_first {
            line.first()
        } else if self.variant.has(AroundFlaw::EvictionUnguarded) {
            line.iter().find(|entry| entry.token == seen.token)
        } else {
            None
        };
        self.table.evict(at(now), election, instead.unwrap_or(seen))
    }
}

/// Our entry, in an answer that names it.
pub(crate) fn held_in(standing: &Standing) -> Option<&Held> {
    match &standing.place {
        Place::Leading(held) => Some(held),
        Place::Behind { held, .. } => held.as_ref(),
        Place::Gone => None,
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// The server's clock is the global one.
pub(crate) fn at(now: u64) -> Timestamp {
    Timestamp::from_nanos(now)
}
