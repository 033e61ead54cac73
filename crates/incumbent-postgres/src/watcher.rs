//! Waiting for changes: what the server tells those who listen, and looking by oneself where it
//! tells nothing.
//!
//! A watch reads first whether there is something to look at, so that what happened before it began
//! is not missed; then it waits for a notification that concerns it, and for the time at which the
//! one ahead may end, of which nobody is notified. Everything here is a hint: a candidate that is
//! woken reads again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use incumbent_store::{Cursor, Effect, ElectionName, Head, Seen, StoreError, Watched, lock, random_words};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Notification;

use crate::answer::{Ahead, bytes_of, column, number_of, one};
use crate::connection::{Link, Open, Step, connect, connecting_to, in_time};
use crate::connector::Connector;
use crate::schema::{Dialled, Schema};
use crate::store::Inner;

/// How long a connection has to hear what another one tells it, and how long that may take to be
/// told. Through a transaction pooler LISTEN succeeds, and nothing is ever heard.
const PROOF_WITHIN: Duration = Duration::from_secs(2);
/// How often a connection that has nothing to say is asked whether it is there.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// After how long one that hears nothing, or cannot be made, is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How often those look for themselves who are told nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The shortest rest between two looks.
const SHORTEST_REST: Duration = Duration::from_millis(10);
/// How long an answer may take before the watch counts as lost.
const LOOK_WITHIN: Duration = Duration::from_secs(10);

/// What is told of an election; a token follows where it is about an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// An entry is not in line any more.
    Gone,
    /// An entry says something else.
    Value,
    /// So does the office record.
    Office,
    /// Another is first in line, or it says something else, or nobody is.
    Head,
}

impl Change {
    /// How it begins in a notification: see `tell_1` in `schema.sql`.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Change::Gone => "g",
            Change::Value => "e",
            Change::Office => "o",
            Change::Head => "h",
        }
    }

    fn of(letter: &str) -> Option<Change> {
        let all = [Change::Gone, Change::Value, Change::Office, Change::Head];
        all.into_iter().find(|change| change.letter() == letter)
    }
}

/// What a watch waits for; tokens of entries, where it matters which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) office: i64,
    pub(crate) own: Option<i64>,
    pub(crate) ahead: Option<i64>,
    pub(crate) heir: Option<i64>,
    pub(crate) last: Option<i64>,
    pub(crate) watches_head: bool,
    pub(crate) head: Option<i64>,
}

impl Wanted {
    pub(crate) fn by_entry(watched: &Watched) -> Wanted {
        Wanted {
            office: watched.office.0.cast_signed(),
            own: Some(number_of(&watched.held.entry)),
            ahead: watched.ahead.as_ref().map(number_of),
            heir: watched.heir.as_ref().map(number_of),
            ..Wanted::default()
        }
    }

    pub(crate) fn by_others(seen: &Seen) -> Wanted {
        let head = match &seen.head {
            Head::Is(head) => Some(number_of(head)),
            Head::Nobody | Head::Ignored => None,
        };
        Wanted {
            office: seen.office.0.cast_signed(),
            last: seen.last.as_ref().map(number_of),
            watches_head: seen.head != Head::Ignored,
            head,
            ..Wanted::default()
        }
    }

    /// Whether anything was there when it was seen, which is not where there is no schema.
    pub(crate) fn sees_somebody(&self) -> bool {
        let tokens = [self.own, self.ahead, self.heir, self.last, self.head];
        self.office != 0 || tokens.iter().any(Option::is_some)
    }

    /// Whether a notification concerns it. Anybody can send one, so nothing is made of what cannot
    /// be read.
    pub(crate) fn is_about(&self, word: &str) -> bool {
        let Some(change) = word.get(..1).and_then(Change::of) else { return false };
        let token = || word.get(1..).and_then(|token| token.parse::<i64>().ok());
        match change {
            Change::Office => true,
            Change::Head => self.watches_head,
            Change::Gone => {
                token().is_some_and(|token| [self.own, self.ahead, self.heir, self.last].contains(&Some(token)))
            }
            Change::Value => token().is_some_and(|token| self.heir == Some(token)),
        }
    }
}

/// Whether changes are told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Listening {
    /// That is being found out.
    Starting,
    /// They are.
    Yes,
    /// They are not: the connection hears nothing.
    No,
    /// They are not: there is no connection, and this is why.
    Failed(Arc<str>),
    /// They are not: the connection that is to hear them leads to another database.
    Elsewhere,
    /// There is nothing to tell yet: no schema.
    Unmade,
}

impl Listening {
    /// What those should know who depend on it, where the connection goes past a pooler to this
    /// server, if it does.
    pub(crate) fn caveat(&self, past: Option<&str>) -> Option<String> {
        let said = match (self, past) {
            (Listening::Yes, _) => return None,
            (Listening::Failed(why), _) => {
                let past = past.map_or_else(String::new, |server| format!(" to {server}, which ?listen= names,"));
                return Some(format!(
                    "The connection{past} that listens cannot be had: {why}. Who waits looks once a second."
                ));
            }
            (Listening::Starting | Listening::No, Some(server)) => {
                return Some(format!(
                    "The connection to {server}, which ?listen= names, hears no notifications: who waits looks once a \
                     second. It has to be the server itself, and not a pooler."
                ));
            }
            (Listening::Unmade, _) => {
                "There are no elections in this database yet: the first candidate makes the schema. Whether \
                 notifications are heard is not known before that."
            }
            (Listening::Starting | Listening::No, None) => {
                "No connection hears notifications: who waits looks once a second. Is there a pooler in between? \
                 ?listen=HOST:PORT goes past it."
            }
            (Listening::Elsewhere, _) => {
                "The connection that listens leads to another database than the calls do: who waits looks once a \
                 second. ?listen=HOST:PORT names the server that is behind the pooler."
            }
        };
        Some(said.to_owned())
    }
}

/// Who waits, and the task that listens for them.
#[derive(Debug)]
pub(crate) struct Watcher {
    shared: Arc<Shared>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    connector: Arc<dyn Connector>,
    /// The connection for calls: a notification that proves listening has to come from another one.
    calls: Arc<Link>,
    schema: Arc<Schema>,
    waiters: Mutex<Waiters>,
    listening: watch::Sender<Listening>,
}

#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    by_election: HashMap<ElectionName, BTreeMap<u64, Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    wanted: Wanted,
    wake: oneshot::Sender<()>,
}

impl Watcher {
    pub(crate) fn new(connector: Arc<dyn Connector>, schema: Arc<Schema>, calls: Arc<Link>) -> Watcher {
        let listening = watch::Sender::new(Listening::Starting);
        let shared = Shared { connector, calls, schema, waiters: Mutex::default(), listening };
        Watcher { shared: Arc::new(shared), task: Mutex::default() }
    }

    /// How many wait now.
    pub(crate) fn len(&self) -> usize {
        self.shared.waiters().by_election.values().map(BTreeMap::len).sum()
    }

    /// The server to which the connection that listens goes past a pooler, if it does.
    pub(crate) fn goes_past_to(&self) -> Option<String> {
        self.shared.connector.listens_at()
    }

    /// Whether changes are told, once that is known. The first to ask begins to listen.
    pub(crate) async fn listens(&self) -> Listening {
        let mut listening = self.listen();
        let known = listening.wait_for(|listening| *listening != Listening::Starting).await;
        known.map_or(Listening::No, |listening| listening.clone())
    }

    fn listen(&self) -> watch::Receiver<Listening> {
        let mut task = lock(&self.task);
        // It ends with its runtime, and another one may use the store.
        if task.as_ref().is_none_or(JoinHandle::is_finished) {
            self.shared.listening.send_replace(Listening::Starting);
            *task = Some(tokio::spawn(listen(self.shared.clone())));
        }
        self.shared.listening.subscribe()
    }

    fn arm(&self, election: ElectionName, wanted: Wanted) -> (Armed, oneshot::Receiver<()>) {
        let (wake, woken) = oneshot::channel();
        let mut waiters = self.shared.waiters();
        waiters.next += 1;
        let number = waiters.next;
        waiters.by_election.entry(election.clone()).or_default().insert(number, Waiter { wanted, wake });
        drop(waiters);
        (Armed { shared: self.shared.clone(), election, number }, woken)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        lock(&self.task).iter().for_each(JoinHandle::abort);
    }
}

/// Waits until something has changed of what is wanted. One who has an entry is told by its
/// renewals, too.
pub(crate) async fn wait(
    store: Arc<Inner>,
    election: ElectionName,
    wanted: Wanted,
    from: Cursor,
    mut renewals: Option<Renewals>,
) -> Result<(), StoreError> {
    let watcher = &store.watcher;
    let (_armed, mut woken) = watcher.arm(election.clone(), wanted.clone());
    watcher.listens().await;
    let mut listening = watcher.listen();
    // A look would say at once that the one ahead is dead, and the step after it that it cannot be
    // removed.
    if let Some(rest) = renewals.as_ref().and_then(Renewals::rest_before) {
        tokio::select! {
            _ = &mut woken => return Ok(()),
            () = sleep(rest) => {}
        }
    }
    loop {
        let told = *listening.borrow_and_update() == Listening::Yes;
        let began = Instant::now();
        let looked = timeout(LOOK_WITHIN, store.changed(&election, &wanted, from)).await;
        let (changed, left) = looked.map_err(|_| no_answer())??;
        if changed {
            return Ok(());
        }
        // Before half a TTL has passed a renewal tells more.
        let renewed = renewals.as_ref().map(|renewals| renewals.ttl / 2);
        let untold = (!told).then_some(LOOK_EVERY);
        let look_at = [left, renewed, untold].into_iter().flatten().min().map(|rest| began + rest);
        tokio::select! {
            _ = &mut woken => return Ok(()),
            changed = listening.changed() => changed.map_err(|_| no_answer())?,
            () = rest(look_at, renewals.as_mut().filter(|_| told), &election, &wanted) => {}
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable { what: "looking whether something has changed: no answer".to_owned(), source: None }
}

/// What the renewals of a session see of its entries.
#[derive(Debug)]
pub(crate) struct Renewals {
    pub(crate) ttl: Duration,
    pub(crate) renewed: watch::Receiver<Renewed>,
    /// How often in a row the one ahead had expired and could not be removed.
    pub(crate) expired: u32,
}

impl Renewals {
    /// The rest before the first look: it grows for as long as somebody keeps a dead one in line.
    fn rest_before(&self) -> Option<Duration> {
        let doubled = self.expired.checked_sub(1)?;
        let longest = LOOK_EVERY.min(self.ttl / 4);
        Some(SHORTEST_REST.saturating_mul(2_u32.saturating_pow(doubled)).min(longest))
    }
}

/// The last renewal: when it was answered, and who was ahead in each election.
#[derive(Debug, Default)]
pub(crate) struct Renewed {
    pub(crate) at: Option<Instant>,
    pub(crate) ahead: HashMap<ElectionName, Ahead>,
}

/// Waits for the time to look again. A renewal that sees the same one ahead puts it off; one that
/// sees another was faster than a notification, or that was lost.
async fn rest(look_at: Option<Instant>, renewals: Option<&mut Renewals>, election: &ElectionName, wanted: &Wanted) {
    let soonest = Instant::now() + SHORTEST_REST;
    let Some(mut look_at) = look_at.map(|at| at.max(soonest)) else { return std::future::pending().await };
    let Some(renewals) = renewals else { return sleep_until(look_at).await };
    loop {
        tokio::select! {
            () = sleep_until(look_at) => return,
            renewed = renewals.renewed.changed() => {
                if renewed.is_err() {
                    // The session is gone, and its watch with it.
                    return sleep_until(look_at).await;
                }
                let renewed = renewals.renewed.borrow_and_update();
                let (Some(at), Some(ahead)) = (renewed.at, renewed.ahead.get(election)) else { return };
                if ahead.token != wanted.ahead {
                    return;
                }
                look_at = at + ahead.left.unwrap_or(renewals.ttl / 2).max(SHORTEST_REST);
            }
        }
    }
}

/// One who waits, until this is dropped.
struct Armed {
    shared: Arc<Shared>,
    election: ElectionName,
    number: u64,
}

impl Drop for Armed {
    fn drop(&mut self) {
        let mut waiters = self.shared.waiters();
        let Some(of_election) = waiters.by_election.get_mut(&self.election) else { return };
        of_election.remove(&self.number);
        if of_election.is_empty() {
            waiters.by_election.remove(&self.election);
        }
    }
}

impl Shared {
    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        lock(&self.waiters)
    }

    /// Wakes those whom it concerns.
    fn tell(&self, payload: &str) {
        let Some((election, words)) = payload.split_once(' ') else { return };
        let Some(election) = election_of(election) else { return };
        let mut waiters = self.waiters();
        let Some(of_election) = waiters.by_election.get_mut(&election) else { return };
        let about = |waiter: &Waiter| words.split(' ').any(|word| waiter.wanted.is_about(word));
        let concerned = of_election.iter().filter(|(_, waiter)| about(waiter)).map(|(number, _)| *number);
        for number in Vec::from_iter(concerned) {
            if let Some(waiter) = of_election.remove(&number) {
                // It may have given up in this moment.
                let _ = waiter.wake.send(());
            }
        }
    }

    /// Listens until the connection is lost, or proves to be of no use.
    async fn listen_once(&self) -> Result<Listening, StoreError> {
        let (heard, mut hears) = mpsc::unbounded_channel();
        let connector = &*self.connector;
        let servers = connector.listens_at().or_else(|| connector.servers());
        let connecting = connecting_to(servers.as_deref());
        let dialled = async {
            let open = connect(&connecting, connector.connect_to_listen(), heard).await?;
            let dialled = Dialled { client: &open.client, connector };
            let mut found = self.schema.find_id(&dialled).await?;
            if found.is_none() {
                match self.store_of_calls().await {
                    Err(StoreError::Missing { .. }) => return Ok((open, Err(Listening::Unmade))),
                    there => drop(there?),
                }
                // It may have been made since.
                found = self.schema.find_id(&dialled).await?;
            }
            Ok((open, found.ok_or(Listening::Elsewhere)))
        };
        let (open, channel) = match in_time(&connecting, dialled).await? {
            (open, Ok(channel)) => (open, channel),
            (_, Err(listening)) => return Ok(listening),
        };
        if !self.hears(&open, &channel, &mut hears).await {
            // A pooler gave us a connection that others get, too.
            let _ = timeout(PROOF_WITHIN, open.client.batch_execute("UNLISTEN *")).await;
            let is_ours = in_time(&connecting, self.store_of_calls()).await? == channel;
            return Ok(if is_ours { Listening::No } else { Listening::Elsewhere });
        }
        // A DBA's limit for connections that are idle is not meant for those that listen. Servers
        // before 14 have none. Not before it is known that there is no pooler, which would give the
        // connection to others.
        let _ = timeout(PROOF_WITHIN, open.client.batch_execute("SET idle_session_timeout = 0")).await;
        self.listening.send_replace(Listening::Yes);
        loop {
            match timeout(CHECK_EVERY, hears.recv()).await {
                Ok(Some(notification)) => self.tell(notification.payload()),
                Ok(None) => return Ok(Listening::No),
                Err(_) if timeout(CHECK_EVERY, open.client.check_connection()).await.is_ok_and(|said| said.is_ok()) => {
                }
                Err(_) => return Ok(Listening::No),
            }
        }
    }

    /// Which store the calls go to.
    async fn store_of_calls(&self) -> Result<String, StoreError> {
        let about = self.schema.call("about", &[]);
        let rows = self.calls.call("asking who is there", Effect::None, Step::Short(about)).await?;
        Ok(column::<&str>(one(&rows)?, "id")?.to_owned())
    }

    /// Whether the connection hears what another one tells. (What it tells itself it might hear
    /// through a pooler, too, as long as both statements happen to run on one connection of the
    /// server's.)
    async fn hears(&self, open: &Open, channel: &str, hears: &mut mpsc::UnboundedReceiver<Notification>) -> bool {
        let Ok([word]) = random_words::<1>() else { return false };
        let word = format!("listening {word:x}");
        let tell = format!("SELECT pg_catalog.pg_notify('{channel}', '{word}')");
        let told = async {
            open.client.batch_execute(&format!("LISTEN \"{channel}\"")).await.is_ok()
                && self.calls.call("telling ourselves", Effect::None, Step::Short(tell)).await.is_ok()
        };
        // Watches wait until it is known, and calls may wait behind it: it is given up.
        if !timeout(PROOF_WITHIN, told).await.unwrap_or(false) {
            return false;
        }
        let heard = async {
            while let Some(notification) = hears.recv().await {
                if notification.payload() == word {
                    return true;
                }
            }
            false
        };
        timeout(PROOF_WITHIN, heard).await.unwrap_or(false)
    }
}

/// The task of a store: listens, and begins again when that ends.
async fn listen(shared: Arc<Shared>) {
    loop {
        // Those who wait look for themselves then. Why, is said to those who ask what is promised.
        let ended = shared.listen_once().await.unwrap_or_else(|error| Listening::Failed(error.to_string().into()));
        // Who stands makes the schema, and is to be told of what happens in it.
        let rest = if ended == Listening::Unmade { LOOK_EVERY } else { TRY_AGAIN_AFTER };
        shared.listening.send_replace(ended);
        sleep(rest).await;
    }
}

/// A name in hexadecimal.
pub(crate) fn election_of(hex: &str) -> Option<ElectionName> {
    ElectionName::new(&String::from_utf8(bytes_of(hex)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_doubles_up_to_a_second_and_a_quarter_of_the_ttl() {
        let rest = |expired: u32, ttl: u64| {
            let (ttl, (_, renewed)) = (Duration::from_secs(ttl), watch::channel(Renewed::default()));
            Renewals { ttl, renewed, expired }.rest_before().map(|rest| rest.as_millis())
        };
        let rests = [0, 1, 2, 3, 7, 8, u32::MAX].map(|expired| rest(expired, 15));
        assert_eq!(rests, [None, Some(10), Some(20), Some(40), Some(640), Some(1_000), Some(1_000)]);
        assert_eq!(rest(9, 2), Some(500));
    }

    #[test]
    fn a_notification_wakes_those_whom_it_concerns_and_nonsense_nobody() {
        let follower = Wanted { own: Some(7), ahead: Some(5), heir: Some(9), ..Wanted::default() };
        for (word, wakes) in [("o", true), ("g5", true), ("g7", true), ("g9", true), ("e9", true)] {
            assert_eq!(follower.is_about(word), wakes, "{word}");
        }
        for word in ["h", "g6", "e5", "e7", "", "g", "gx", "ü", "listening"] {
            assert!(!follower.is_about(word), "{word}");
        }
        let observer = Wanted { watches_head: true, ..Wanted::default() };
        assert!(observer.is_about("h") && observer.is_about("o") && !observer.is_about("g5"));
    }

    #[test]
    fn names_are_read_from_payloads_and_nonsense_is_not() {
        assert_eq!(election_of("6a6f6273").unwrap().as_str(), "jobs");
        for bad in ["", "6", "zz", "ff", "6a6", "6a+6"] {
            assert_eq!(election_of(bad), None, "{bad}");
        }
    }
}
