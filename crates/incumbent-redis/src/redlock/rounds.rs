//! The rounds in which all servers are asked, and what a majority of answers means. Everything that
//! Redlock rests on is decided here or in a server's script, and nothing of it is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use incumbent_store::{
    Advised, Cas, Clock, ElectionName, Entry, Held, Servers, StoreError, Timestamp, Token, Version, with_causes,
};

use super::rules::{Rule, Rules};
use super::server::{Answer, GivenUp, Lock, Reply, Request, Server, Stay, Verb};

/// By one part in so many a server's clock may be faster than ours while a lock lasts.
pub(super) const DRIFT: u32 = 100;
/// Redis counts whole milliseconds, at both ends.
pub(super) const GRANULARITY: Duration = Duration::from_millis(2);
/// How often an enlistment begins again that met others who came at the same time.
const ATTEMPTS: u32 = 8;
/// By so much the counter of a server that was emptied is above all that the others know. A
/// token may be on its way to them that the emptied server had confirmed before: its claim
/// counts, and those who are read do not know it yet. No clock bounds how long it is on its
/// way, so this rests on numbers: for each number by which the token is ahead of theirs a claim
/// must have got its locks from a majority, and then brought its token to the emptied server
/// and to none of those that were read. So many claims do not fail like that in a row.
///
/// A counter begins at 2^20 for each second of the wall clock: losses overtake it only if there are
/// more of them than seconds.
const LEAP: u64 = 1 << 20;
/// Every identity begins so.
const IDENTITY: &str = "redlock";

/// What each server answered, or why it did not.
type Answers = Vec<Result<Answer, StoreError>>;

/// Where somebody stands who has enlisted.
#[derive(Debug)]
pub(super) enum Enlisted {
    Leads { token: Token, published: Version },
    Behind(Entry),
}

/// What a renewal says about one entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Proof {
    Proven,
    Unproven,
    Gone,
}

/// Who asks which store it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// It wants to stand, and founds the store if it has to.
    Candidate,
    /// It changes nothing: its addresses may be mistaken, and the servers another's.
    Reader,
}

/// The servers of one Redlock.
#[derive(Debug)]
pub(super) struct Rounds {
    servers: Vec<Arc<dyn Server>>,
    pub(super) clock: Arc<dyn Clock>,
    /// The identity that an operator lets the store have where a majority was emptied.
    refound: Option<String>,
    pub(super) rules: Rules,
    /// The number of the newest attempt to take a lock.
    attempts: AtomicU64,
}

impl Rounds {
    pub(super) fn new(
        servers: Vec<Arc<dyn Server>>,
        clock: Arc<dyn Clock>,
        refound: Option<String>,
        rules: Rules,
    ) -> Rounds {
        Rounds { servers, clock, refound, rules, attempts: AtomicU64::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.servers.len()
    }

    fn majority(&self) -> usize {
        if self.rules.keep(Rule::Majority) { self.count() / 2 + 1 } else { self.count() / 2 }
    }

    /// Whether each of the servers keeps all that it is told, whatever crashes.
    pub(super) fn all_keep_everything(&self) -> bool {
        self.servers.iter().all(|server| server.keeps_everything())
    }

    /// For messages.
    pub(super) fn addresses(&self) -> String {
        self.servers.iter().map(|server| server.address()).collect::<Vec<_>>().join(",")
    }

    async fn ask_one(&self, number: usize, within: Duration, request: &Request) -> Result<Answer, StoreError> {
        let Some(server) = self.servers.get(number) else {
            return Err(StoreError::Misuse { what: "there is no such server".to_owned() });
        };
        let answer = tokio::time::timeout(within, server.ask(request)).await;
        answer.unwrap_or_else(|_| {
            let what = format!("{} has not answered within {within:?}", server.address());
            Err(StoreError::OutcomeUnknown { what, source: None })
        })
    }

    /// Asks each address, some of which may lead to the same server.
    async fn ask_addresses(&self, within: Duration, request: &Request) -> Answers {
        join_all((0..self.count()).map(|number| self.ask_one(number, within, request))).await
    }

    /// Asks each server. Where an address leads may change with every connection: in every
    /// round one server counts once.
    async fn ask_all(&self, within: Duration, request: &Request) -> Answers {
        let mut answers = self.ask_addresses(within, request).await;
        let mut names = BTreeSet::new();
        for answer in &mut answers {
            if let Ok(Answer { server, .. }) = answer
                && !names.insert(server.clone())
                && self.rules.keep(Rule::ServerCountsOnce)
            {
                *answer = Err(self.is_one_server(server));
            }
        }
        answers
    }

    fn is_one_server(&self, name: &str) -> StoreError {
        let what = format!("two of the addresses {} are one server ({name})", self.addresses());
        StoreError::Misuse { what }
    }

    /// What a majority of the servers of this store answered.
    async fn ask_majority(&self, what: &str, store: &str, within: Duration, verb: Verb) -> Result<Answers, StoreError> {
        let answers = self.ask_all(within, &request(store, verb)).await;
        if of_store(&answers, store).count() < self.majority() {
            return Err(self.failure(what, store, &answers));
        }
        Ok(answers)
    }

    /// Another store has taken the place of this one; or else too few answer to do anything.
    fn failure(&self, what: &str, store: &str, answers: &Answers) -> StoreError {
        match store_of_majority(answers, self.majority()) {
            Some(other) if other != store => StoreError::SessionGone,
            _ => self.too_few(what, store, answers),
        }
    }

    /// The same of something that some may have done.
    fn failure_of_write(&self, what: &str, store: &str, answers: &Answers) -> StoreError {
        match self.failure(what, store, answers) {
            StoreError::Unavailable { what, .. }
            | StoreError::Denied { what, .. }
            | StoreError::Foreign { what }
            | StoreError::Corrupt { what }
            | StoreError::Misuse { what } => StoreError::OutcomeUnknown { what, source: None },
            other => other,
        }
    }

    fn too_few(&self, what: &str, store: &str, answers: &Answers) -> StoreError {
        let said = self.missing(store, answers).map(|(address, why)| format!("{address}: {why}"));
        let said = said.collect::<Vec<_>>().join("; ");
        let (count, majority) = (self.count(), self.majority());
        let what = format!("{what}: it takes {majority} of {count} servers, and too few will do: {said}");
        let lasting = || answers.iter().filter_map(|answer| answer.as_ref().err().filter(|error| is_lasting(error)));
        match lasting().next() {
            // Without those that will not do as they are set up there is no majority.
            Some(error) if lasting().count() > count - majority => match error {
                StoreError::Denied { .. } => StoreError::Denied { what, source: None },
                StoreError::Foreign { .. } => StoreError::Foreign { what },
                StoreError::Corrupt { .. } => StoreError::Corrupt { what },
                _ => StoreError::Misuse { what },
            },
            _ if answers.iter().all(|answer| counts_or_will(answer, store)) => {
                StoreError::unavailable(what, Advised::new("this passes by itself"))
            }
            _ => StoreError::Unavailable { what, source: None },
        }
    }

    /// Those that do not count, by their addresses, with why.
    fn missing(&self, store: &str, answers: &Answers) -> impl Iterator<Item = (String, String)> {
        self.servers.iter().zip(answers).filter_map(move |(server, answer)| {
            let why = match answer {
                Err(error) => reason(error),
                Ok(Answer { store: None, .. }) => "it was emptied".to_owned(),
                Ok(Answer { reply: Reply::Wait(wait), .. }) => {
                    format!("it was emptied or founded, and counts again in {wait:.1?}")
                }
                Ok(Answer { store: Some(is), .. }) if is != store => format!("it belongs to {is}"),
                Ok(_) => return None,
            };
            Some((server.address(), why))
        })
    }

    // Which store it is.

    /// The store that a majority belongs to. A candidate founds it where nothing was ever there,
    /// and tells emptied servers what the others know.
    pub(super) async fn settle(&self, within: Duration, asker: Asker) -> Result<String, StoreError> {
        let seen = self.look(within).await?;
        let changes = asker == Asker::Candidate || !self.rules.keep(Rule::ReadersFoundNothing);
        let Some(store) = store_of_majority(&seen, self.majority()) else {
            if !changes {
                return self.not_founded(&seen);
            }
            let longest = longest_of(seen.iter().flatten());
            if !self.is_split(&seen) {
                return self.found(within, &seen, longest).await;
            }
            return self.found(within, &self.empty_all(within, &seen).await?, longest).await;
        };
        let (count, founders) = (self.count(), store.split('-').skip(1).count());
        if founders != count {
            let what = format!("{count} servers are named, and the store that they belong to has {founders}");
            return Err(StoreError::Misuse { what });
        }
        if changes && seen.iter().flatten().any(|answer| answer.store.as_deref() != Some(store)) {
            self.reseed(within, store, &seen).await?;
        }
        Ok(store.to_owned())
    }

    async fn look(&self, within: Duration) -> Result<Answers, StoreError> {
        let seen = self.ask_addresses(within, &request("", Verb::Look)).await;
        let mut names = BTreeSet::new();
        if let Some(twice) = seen.iter().flatten().find(|answer| !names.insert(&answer.server)) {
            return Err(self.is_one_server(&twice.server));
        }
        Ok(seen)
    }

    /// What a reader is told where no store has a majority: the identity that the first candidate
    /// founds it with, if nothing keeps it from that.
    fn not_founded(&self, seen: &Answers) -> Result<String, StoreError> {
        let empty = empty_servers(seen).count();
        if empty == self.count() {
            return Ok(self.fresh(seen));
        }
        if let Some(begun) = begun(seen) {
            return Ok(begun.to_owned());
        }
        let is_split = self.is_split(seen);
        if empty < self.majority() && !is_split {
            return Err(self.too_few("asking which store it is", "", seen));
        }
        let what = match is_split {
            true => format!("the {} servers belong to several stores, and none has a majority", self.count()),
            false => format!("{empty} of {} servers are empty, and no store has a majority", self.count()),
        };
        let next = match self.refound {
            None => "if they are, a candidate that is started with the same URL says how it is founded anew",
            Some(_) => {
                "if they are, start a candidate with the same URL: one that only reads founds nothing, and the word \
                 refound= is not for it"
            }
        };
        let next = format!("check that all of the addresses ({}) are right; {next}", self.addresses());
        Err(StoreError::unavailable(what, Advised::new(next)))
    }

    /// Whether no store has a majority, nor ever will: all servers are there, most of them belong
    /// to a store, and none of these is being founded.
    fn is_split(&self, seen: &Answers) -> bool {
        let is_founding = begun(seen).is_some() || empty_servers(seen).count() >= self.majority();
        seen.iter().all(Result::is_ok) && !is_founding
    }

    /// Lets servers that belong to several stores forget them, if an operator says so: nobody can
    /// lead by any of these stores.
    async fn empty_all(&self, within: Duration, seen: &Answers) -> Result<Answers, StoreError> {
        let word = self.fresh(seen);
        if self.refound.as_deref() != Some(&word) {
            let what = format!("the {} servers belong to several stores, and none has a majority", self.count());
            let next = format!(
                "a server was emptied while the store was founded, or an address is wrong. Only if all the addresses \
                 ({}) are right, an operator founds the store anew by adding refound={word} to a candidate's URL: all of \
                 them will be emptied",
                self.addresses()
            );
            return Err(StoreError::unavailable(what, Advised::new(next)));
        }
        for (number, answer) in seen.iter().enumerate() {
            if let Ok(Answer { store: Some(of), .. }) = answer {
                _ = self.ask_one(number, within, &request("", Verb::Empty { of: of.clone() })).await;
            }
        }
        self.look(within).await
    }

    /// The identity of a store that is founded now. Servers that have something still are named,
    /// too: an operator's word lets them be emptied.
    fn fresh(&self, seen: &Answers) -> String {
        let named: Vec<&str> = seen.iter().flatten().map(|answer| answer.server.as_str()).collect();
        identity(&named, self.count())
    }

    /// `; a:1 belongs to redlock-...`: what the word of an operator would empty.
    fn others(&self, seen: &Answers) -> String {
        let belongs = self.servers.iter().zip(seen).filter_map(|(server, answer)| {
            let store = answer.as_ref().ok()?.store.as_ref()?;
            Some(format!("; {} belongs to {store}", server.address()))
        });
        belongs.collect()
    }

    /// No store has a majority. It is founded if all servers are there and empty; if it was being
    /// founded, with these very servers; or if an operator says that what is lost is lost. Until
    /// the longest TTL has passed nobody leads.
    async fn found(&self, within: Duration, seen: &Answers, longest: Duration) -> Result<String, StoreError> {
        let empty: Vec<&str> = empty_servers(seen).map(|(_, name)| name).collect();
        let fresh = self.fresh(seen);
        let all_are_empty = empty.len() == self.count();
        let may_found = all_are_empty || !self.rules.keep(Rule::FoundWhenAllAreEmpty);
        let store = if may_found && empty.len() >= self.majority() {
            fresh
        } else if let Some(begun) = begun(seen) {
            begun.to_owned()
        } else if self.refound.as_deref() == Some(&fresh) && empty.len() >= self.majority() {
            fresh
        } else if empty.len() >= self.majority() {
            let (lost, count) = (empty.len(), self.count());
            let what = format!("{lost} of {count} servers are empty{}", self.others(seen));
            let next = format!(
                "a new store is founded when all of them are there and empty. Servers that were never of this store look \
                 like emptied ones, so check first that all of the addresses ({}) are right. Only if these were emptied, \
                 nobody knows which tokens they gave, and an operator founds the store anew by adding refound={fresh} to \
                 a candidate's URL: servers that it names and that are not empty will be",
                self.addresses()
            );
            return Err(StoreError::unavailable(what, Advised::new(next)));
        } else {
            return Err(self.too_few("asking which store it is", "", seen));
        };
        let founders = empty_servers(seen).filter(|(_, name)| founded_with(&store, name));
        self.seed(within, &store, None, longest, founders).await;
        let seen = self.look(within).await?;
        match store_of_majority(&seen, self.majority()) {
            Some(is) if is == store => Ok(store),
            _ => Err(self.too_few("founding the store", &store, &seen)),
        }
    }

    /// Servers that were emptied are told what a majority of the others knows, and count again when
    /// the locks that they have forgotten are over.
    async fn reseed(&self, within: Duration, store: &str, seen: &Answers) -> Result<(), StoreError> {
        for (number, answer) in seen.iter().enumerate() {
            if let Ok(Answer { store: Some(other), server, .. }) = answer
                && other != store
                && (founded_with(store, server) || !self.rules.keep(Rule::EmptyOnlyNamed))
            {
                // It stayed behind when the store was founded anew: the next look finds it
                // empty. One that is not named may be somebody else's, whose address was
                // mistaken for ours.
                _ = self.ask_one(number, within, &request("", Verb::Empty { of: other.clone() })).await;
            }
        }
        // What others know is read after the loss was seen: no token that is given later is given
        // by those who have lost theirs.
        let again = self.look(within).await?;
        let (loss, known) = if self.rules.keep(Rule::LossSeenFirst) { (seen, &again) } else { (&again, seen) };
        let intact = || of_store(known, store);
        let enough = if self.rules.keep(Rule::ReseedFromMajority) { self.majority() } else { 1 };
        if intact().count() < enough {
            return Ok(());
        }
        let leap = if self.rules.keep(Rule::LeapAfterLoss) { LEAP } else { 0 };
        let counter = intact().map(|answer| answer.counter + leap).max();
        let longest = longest_of(intact());
        let counter = if self.rules.keep(Rule::CounterAfterLoss) { counter } else { Some(0) };
        let longest = if self.rules.keep(Rule::WaitAfterLoss) { longest } else { Duration::ZERO };
        self.seed(within, store, counter, longest, empty_servers(loss)).await;
        Ok(())
    }

    /// Each of these becomes a server of the store, unless it was emptied once more. The next look
    /// shows what has become of it.
    async fn seed(
        &self,
        within: Duration,
        store: &str,
        counter: Option<u64>,
        longest: Duration,
        servers: impl Iterator<Item = (usize, &str)>,
    ) {
        let seeds = servers.map(|(number, server)| {
            let verb = Verb::Seed { server: server.to_owned(), counter, longest };
            async move { self.ask_one(number, within, &request(store, verb)).await }
        });
        join_all(seeds).await;
    }

    /// Emptied servers are told what the others know, where a round has met some. What goes wrong
    /// is tried again with the next round.
    async fn mend(&self, store: &str, within: Duration, answers: &Answers) {
        if answers.iter().flatten().any(|answer| answer.store.as_deref() != Some(store)) {
            _ = self.settle(within, Asker::Candidate).await;
        }
    }

    // Locks.

    /// Takes the office if it is free.
    pub(super) async fn enlist(
        &self,
        store: &str,
        stay: &Stay,
        ttl: Duration,
        said: &[u8],
    ) -> Result<Enlisted, StoreError> {
        let within = patience(ttl);
        for beginning in 0..ATTEMPTS {
            let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
            let since = self.clock.now();
            let verb = Verb::Acquire { stay: stay.clone(), attempt, ttl, said: said.to_vec() };
            let answers = self.ask_all(within, &request(store, verb)).await;
            let giving = || of_store(&answers, store).filter(|answer| matches!(answer.reply, Reply::Locks(_)));
            let granted: Vec<(&Answer, &Lock)> = locks(giving()).filter(|(_, lock)| lock.is_of(stay)).collect();
            if granted.len() >= self.majority() {
                return self.number(store, stay, attempt, ttl, since, &granted).await;
            }
            if !granted.is_empty() && self.rules.keep(Rule::ReleaseAfterFailure) {
                let up_to = granted.iter().filter_map(|(_, lock)| lock.token()).max();
                self.release_stay(store, stay, attempt, up_to, within).await;
            }
            self.mend(store, within, &answers).await;
            if let Some(lock) = self.leading(store, &answers).filter(|lock| !lock.is_of(stay))
                && let Some(entry) = &lock.entry
            {
                if lock.session == stay.session {
                    let token = entry.token;
                    let held = Held::new(stay.election.clone(), entry.id.clone(), token, lock.incarnation);
                    return Err(StoreError::AlreadyInLine(held));
                }
                return Ok(Enlisted::Behind(entry.clone()));
            }
            if giving().count() < self.majority() {
                return Err(self.failure("taking the lock", store, &answers));
            }
            // What earlier stays of ours left on a few of them.
            let left = locks(giving()).map(|(_, lock)| lock);
            for lock in left.filter(|lock| lock.session == stay.session && lock.incarnation != stay.incarnation) {
                let left = Stay { incarnation: lock.incarnation, ..stay.clone() };
                self.release_stay(store, &left, attempt, lock.token(), within).await;
            }
            tokio::time::sleep(rest(stay, ttl, beginning)).await;
        }
        let what = format!("taking the lock: others tried for {:?} at the same time, {ATTEMPTS} times", stay.election);
        Err(StoreError::Unavailable { what, source: None })
    }

    /// The second round: a majority gave the lock, and is given a token that is higher than all
    /// before.
    async fn number(
        &self,
        store: &str,
        stay: &Stay,
        attempt: u64,
        ttl: Duration,
        since: Timestamp,
        granted: &[(&Answer, &Lock)],
    ) -> Result<Enlisted, StoreError> {
        let within = patience(ttl);
        let entries = granted.iter().filter_map(|(_, lock)| lock.entry.as_ref());
        let published = entries.clone().map(|entry| entry.version).max();
        let mut numbered: BTreeMap<Token, usize> = BTreeMap::new();
        entries.for_each(|entry| *numbered.entry(entry.token).or_default() += 1);
        if let Some((token, _)) = numbered.into_iter().find(|(_, count)| *count >= self.majority())
            && let Some(published) = published
            && self.is_valid(since, ttl)
        {
            // An earlier call had done it, and its answer was lost.
            return Ok(Enlisted::Leads { token, published });
        }
        let highest = granted.iter().map(|(answer, _)| answer.counter).max().unwrap_or_default();
        let token = Token::try_from(highest + 1).map_err(|error| StoreError::Limit { what: error.to_string() })?;
        let verb = Verb::Number { stay: stay.clone(), attempt, token };
        let answers = self.ask_all(within, &request(store, verb)).await;
        let count = of_store(&answers, store).filter(|answer| answer.reply == Reply::Done).count();
        if count >= self.majority() && self.is_valid(since, ttl) {
            return Ok(Enlisted::Leads { token, published: Version(1) });
        }
        let unheard = answers.iter().filter(|answer| answer.is_err()).count();
        if self.rules.keep(Rule::ReleaseAfterFailure) {
            self.release_stay(store, stay, attempt, Some(token), within).await;
        }
        if count < self.majority() && count + unheard >= self.majority() {
            let what = format!("writing the token: {count} of {} servers have confirmed it", self.count());
            return Err(StoreError::OutcomeUnknown { what, source: None });
        }
        let what = match count >= self.majority() {
            true => format!("taking the lock: it took longer than the TTL of {ttl:?} allows"),
            false => format!("writing the token: {count} of {} servers still had the lock", self.count()),
        };
        Err(StoreError::Unavailable { what, source: None })
    }

    /// Whether no lock that was asked for at this time can be over by now.
    pub(super) fn is_valid(&self, since: Timestamp, ttl: Duration) -> bool {
        let drift = if self.rules.keep(Rule::Drift) { ttl / DRIFT } else { Duration::ZERO };
        let until = since + ttl - drift - GRANULARITY;
        self.clock.now() < until || !self.rules.keep(Rule::ValidityAfterSecondRound)
    }

    /// The lock with which somebody may lead: as far as is known, a majority may have it.
    fn leading<'a>(&self, store: &'a str, answers: &'a Answers) -> Option<&'a Lock> {
        let unheard = answers.iter().filter(|answer| answer.is_err()).count();
        let mut numbered: BTreeMap<(Token, &str), Vec<&Lock>> = BTreeMap::new();
        for (_, lock) in locks(of_store(answers, store)) {
            if let Some(token) = lock.token() {
                numbered.entry((token, &lock.session)).or_default().push(lock);
            }
        }
        let leading = numbered.into_values().rev().find(|locks| locks.len() + unheard >= self.majority())?;
        // What was published last is on a majority, but not on every one.
        leading.into_iter().max_by_key(|lock| lock.entry.as_ref().map(|entry| entry.version))
    }

    /// Who leads, if anybody does, and which servers have said so.
    pub(super) async fn read(
        &self,
        election: &ElectionName,
        within: Duration,
    ) -> Result<(Option<Entry>, Option<Servers>), StoreError> {
        let answers = self.ask_all(within, &request("", Verb::Read(election.clone()))).await;
        let Some(store) = store_of_majority(&answers, self.majority()) else {
            // If it can be founded, nobody leads yet.
            return self.settle(within, Asker::Reader).await.map(|_| (None, None));
        };
        let leader = self.leading(store, &answers).and_then(|lock| lock.entry.clone());
        let giving = of_store(&answers, store).filter(|answer| matches!(answer.reply, Reply::Locks(_)));
        if leader.is_none() && giving.count() < self.majority() {
            return Err(self.too_few("asking who leads", store, &answers));
        }
        let missing = self.missing(store, &answers).map(|(address, why)| (address.into(), why.into()));
        Ok((leader, Some(Servers::new(self.count(), self.majority(), missing.collect()))))
    }

    /// Whether a majority has the lock with our token, and which version of what we say is there.
    pub(super) async fn standing(
        &self,
        store: &str,
        session: &str,
        held: &Held,
        within: Duration,
    ) -> Result<(Proof, Version), StoreError> {
        let verb = Verb::Read(held.election.clone());
        let answers = self.ask_majority("asking for the standing", store, within, verb).await?;
        let ours = locks(of_store(&answers, store)).filter(|(_, lock)| is_held(lock, session, held));
        let versions: Vec<Version> =
            ours.filter_map(|(_, lock)| lock.entry.as_ref().map(|entry| entry.version)).collect();
        let published = versions.iter().max().copied().unwrap_or(Version::NONE);
        Ok((self.proof(versions.len(), &answers), published))
    }

    fn proof(&self, count: usize, answers: &Answers) -> Proof {
        let unheard = answers.iter().filter(|answer| answer.is_err()).count();
        if count >= self.majority() || !self.rules.keep(Rule::RenewalByMajority) {
            Proof::Proven
        } else if count + unheard >= self.majority() {
            Proof::Unproven
        } else {
            Proof::Gone
        }
    }

    /// Renews each lock. What it says of each that was named, and which others of the session there
    /// are in the elections that it has tried for.
    pub(super) async fn renew(
        &self,
        store: &str,
        session: &str,
        ttl: Duration,
        named: &[Held],
        tried: Vec<ElectionName>,
    ) -> Result<(Vec<Proof>, Vec<Held>), StoreError> {
        let within = patience(ttl);
        let verb = Verb::Renew { session: session.to_owned(), ttl, named: named.to_vec(), tried: tried.clone() };
        let answers = self.ask_majority("renewing", store, within, verb).await?;
        let at = |number: usize| {
            let of_each = of_store(&answers, store).map(move |answer| match &answer.reply {
                Reply::Locks(locks) => locks.get(number).and_then(Option::as_ref),
                _ => None,
            });
            of_each.flatten()
        };
        let proofs = named
            .iter()
            .enumerate()
            .map(|(number, held)| self.proof(at(number).filter(|lock| is_held(lock, session, held)).count(), &answers));
        let proofs = proofs.collect();
        let mut strays = Vec::new();
        for (number, election) in tried.iter().enumerate() {
            let mut stays: BTreeMap<Token, (usize, Held)> = BTreeMap::new();
            for lock in at(named.len() + number).filter(|lock| lock.session == session) {
                let Some(entry) = &lock.entry else { continue };
                let held = || Held::new(election.clone(), entry.id.clone(), entry.token, lock.incarnation);
                stays.entry(entry.token).or_insert_with(|| (0, held())).0 += 1;
            }
            let is_there = |(count, _): &(usize, Held)| self.proof(*count, &answers) != Proof::Gone;
            strays.extend(stays.into_values().filter(is_there).map(|(_, held)| held));
        }
        self.mend(store, within, &answers).await;
        Ok((proofs, strays))
    }

    /// The stay gives up what this attempt or an earlier one has taken, with this token, a
    /// lower one or none, wherever that is. Not what it takes later: a call that failed is
    /// repeated with the same incarnation, and may be given the same token while this is on its
    /// way.
    async fn release_stay(&self, store: &str, stay: &Stay, attempt: u64, token: Option<Token>, within: Duration) {
        let Stay { session, election, incarnation } = stay.clone();
        let stay = Some(GivenUp { incarnation, token, attempt });
        let verb = Verb::Release { session, stay, elections: vec![election] };
        self.ask_all(within, &request(store, verb)).await;
    }

    /// Removes all that a session has in these elections.
    pub(super) async fn release(
        &self,
        store: &str,
        session: &str,
        elections: &[ElectionName],
        within: Duration,
    ) -> Result<(), StoreError> {
        let (session, elections) = (session.to_owned(), elections.to_vec());
        let verb = Verb::Release { session, stay: None, elections };
        let answers = self.ask_all(within, &request(store, verb)).await;
        self.confirmed("releasing the lock", store, &answers)
    }

    /// Removes an entry of ours.
    pub(super) async fn withdraw(
        &self,
        store: &str,
        session: &str,
        held: &Held,
        within: Duration,
    ) -> Result<(), StoreError> {
        // Whatever was attempted until now.
        let attempt = self.attempts.load(Ordering::Relaxed);
        let stay = Some(GivenUp { incarnation: held.incarnation, token: Some(held.token), attempt });
        let verb = Verb::Release { session: session.to_owned(), stay, elections: vec![held.election.clone()] };
        let answers = self.ask_all(within, &request(store, verb)).await;
        self.confirmed("withdrawing", store, &answers)
    }

    /// A majority has done it: nobody has a majority of the locks any more. Servers that were
    /// emptied have none, either.
    fn confirmed(&self, what: &str, store: &str, answers: &Answers) -> Result<(), StoreError> {
        if answers.iter().flatten().count() >= self.majority() {
            return Ok(());
        }
        Err(self.failure_of_write(what, store, answers))
    }

    /// Replaces what an entry of ours says. `false`: it says something newer, or is no longer ours.
    pub(super) async fn publish(
        &self,
        store: &str,
        session: &str,
        held: &Held,
        versions: (Version, Version),
        said: Vec<u8>,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let (was, version) = versions;
        let verb = Verb::Publish { session: session.to_owned(), held: held.clone(), was, version, said };
        let answers = self.ask_all(within, &request(store, verb)).await;
        self.compared("publishing", store, &answers)
    }

    /// Removes exactly the entry that was seen.
    pub(super) async fn evict(
        &self,
        election: &ElectionName,
        seen: &Entry,
        within: Duration,
    ) -> Result<Cas, StoreError> {
        // Every entry has one here.
        let Some(incarnation) = seen.incarnation else { return Ok(Cas::Done) };
        let (election, token, version) = (election.clone(), seen.token, seen.version);
        let verb = Verb::Evict { election, token, incarnation, version };
        let answers = self.ask_all(within, &request("", verb)).await;
        let store = store_of_majority(&answers, self.majority()).unwrap_or_default();
        let done = self.compared("evicting", store, &answers)?;
        Ok(if done { Cas::Done } else { Cas::Refused })
    }

    /// A majority has done it, or so many have refused that none can.
    fn compared(&self, what: &str, store: &str, answers: &Answers) -> Result<bool, StoreError> {
        let count = |wanted: &Reply| of_store(answers, store).filter(|answer| answer.reply == *wanted).count();
        let unheard = answers.iter().filter(|answer| answer.is_err()).count();
        if count(&Reply::Done) >= self.majority() {
            return Ok(true);
        }
        if count(&Reply::Done) + unheard < self.majority() && count(&Reply::Refused) > 0 {
            return Ok(false);
        }
        Err(self.failure_of_write(what, store, answers))
    }
}

/// Whether somebody has to act before this server does anything for us.
fn is_lasting(error: &StoreError) -> bool {
    use StoreError::{Corrupt, Denied, Foreign, Misuse};
    matches!(error, Denied { .. } | Foreign { .. } | Corrupt { .. } | Misuse { .. })
}

/// Whether it counts, or will after a while.
fn counts_or_will(answer: &Result<Answer, StoreError>, store: &str) -> bool {
    let is_of_store = |answer: &Answer| answer.store.as_deref() == Some(store);
    answer.as_ref().is_ok_and(|answer| is_of_store(answer) && answer.reply != Reply::Other)
}

/// What it says, for a list of servers.
fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { what, source } | StoreError::OutcomeUnknown { what, source } => {
            with_causes(what, source)
        }
        other => other.to_string(),
    }
}

fn request(store: &str, verb: Verb) -> Request {
    Request { store: store.to_owned(), verb }
}

/// How long one server may take: far less than the TTL, so that both rounds fit in it although some
/// servers hang.
pub(super) fn patience(ttl: Duration) -> Duration {
    ttl / 10
}

/// How long one that met others stays out, so that they do not meet again: up to a tenth of the
/// TTL, and more each time.
fn rest(stay: &Stay, ttl: Duration, attempt: u32) -> Duration {
    let longest = (ttl / 10) * (attempt + 1).min(4);
    // As random as the incarnation is, which has 32 digits.
    let (digits, at) = (stay.incarnation.to_string(), attempt as usize * 4);
    let dice = digits.get(at..at + 4).and_then(|digits| u32::from_str_radix(digits, 16).ok()).unwrap_or_default();
    longest * dice / 0xffff
}

/// Whether this lock is the entry that is held.
fn is_held(lock: &Lock, session: &str, held: &Held) -> bool {
    lock.session == session && lock.token() == Some(held.token)
}

/// The answers of those that belong to the store.
fn of_store<'a>(answers: &'a Answers, store: &'a str) -> impl Iterator<Item = &'a Answer> + Clone {
    answers.iter().flatten().filter(move |answer| answer.store.as_deref() == Some(store))
}

/// The first lock that each answer shows.
fn locks<'a>(answers: impl Iterator<Item = &'a Answer>) -> impl Iterator<Item = (&'a Answer, &'a Lock)> {
    answers.filter_map(|answer| match &answer.reply {
        Reply::Locks(locks) => Some((answer, locks.first()?.as_ref()?)),
        _ => None,
    })
}

fn store_of_majority(answers: &Answers, majority: usize) -> Option<&str> {
    let stores = answers.iter().flatten().filter_map(|answer| answer.store.as_deref());
    let mut stores = stores.collect::<Vec<_>>();
    stores.sort_unstable();
    stores.chunk_by(|one, other| one == other).find(|same| same.len() >= majority)?.first().copied()
}

/// Those servers that know nothing, and what they call themselves.
fn empty_servers(answers: &Answers) -> impl Iterator<Item = (usize, &str)> {
    let known = answers.iter().enumerate().filter_map(|(number, answer)| Some((number, answer.as_ref().ok()?)));
    known.filter(|(_, answer)| answer.store.is_none()).map(|(number, answer)| (number, answer.server.as_str()))
}

/// The longest TTL that they know to have been granted.
fn longest_of<'a>(answers: impl Iterator<Item = &'a Answer>) -> Duration {
    answers.map(|answer| answer.longest).max().unwrap_or_default()
}

/// A store that is being founded with a server which is empty yet.
fn begun(answers: &Answers) -> Option<&str> {
    let stores: BTreeSet<&str> = answers.iter().flatten().filter_map(|answer| answer.store.as_deref()).collect();
    stores.into_iter().find(|store| empty_servers(answers).any(|(_, name)| founded_with(store, name)))
}

/// The identity of a store that is founded with these servers: it lists what they call themselves,
/// and so tells which empty servers were empty when it was founded, and which others were to be
/// emptied.
fn identity(servers: &[&str], count: usize) -> String {
    let mut names = servers.to_vec();
    names.sort_unstable();
    names.resize(count, "lost");
    format!("{IDENTITY}-{}", names.join("-"))
}

fn founded_with(store: &str, server: &str) -> bool {
    store.split('-').skip(1).any(|name| name == server)
}
