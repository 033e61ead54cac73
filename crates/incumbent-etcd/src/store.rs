//! The store: sessions, lines, watches and the office record.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{
    Cas, Cursor, Effect, ElectionName, Entry, EntryId, Fut, Head, Line, Office, Promises, Seen, Session, Store,
    StoreError, StoreId, Version, Wake, Watched,
};
use tokio::sync::OnceCell;
use tonic::transport::Channel;

use crate::endpoints::Endpoints;
use crate::keys::{self, Keys};
use crate::options::EtcdOptions;
use crate::rpc::{KeyValue, RequestOp, ResponseHeader, TxnRequest};
use crate::session::EtcdSession;
use crate::txn::{self, Answer, changed, created};
use crate::watch_queue::{Interest, Rule};
use crate::watcher::Watcher;

/// How often the server looks for leases whose time has passed.
const EXPIRY_SCAN: Duration = Duration::from_millis(500);

/// Elections in etcd, shared with Go's `concurrency.Election` and `etcdctl elect`.
///
/// Cheap to clone; clones share their connections, one watch stream among them.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent_etcd::EtcdStore;
///
/// // Servers, which are dialled when they are needed.
/// let store = EtcdStore::from_url("etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct EtcdStore {
    pub(crate) inner: Arc<Inner>,
}

/// What the handles, the sessions and the watches of one store share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) keys: Keys,
    pub(crate) watcher: Watcher,
    smallest_ttl: OnceCell<Duration>,
}

/// How many entries are read at a time: with the largest values, less than an answer may hold.
const PAGE: i64 = 1000;
/// How many pages of keys are looked at for the names of elections.
const MOST_PAGES: u16 = 100;

impl EtcdStore {
    /// Elections over these servers of one cluster, e.g. `10.0.0.1:2379`.
    ///
    /// They are dialled when they are needed. All requests go to one of them as long as it answers.
    pub fn connect<E: AsRef<str>>(endpoints: &[E], options: &EtcdOptions) -> Result<EtcdStore, StoreError> {
        if endpoints.is_empty() {
            return Err(StoreError::Misuse { what: "an etcd store needs at least one endpoint".to_owned() });
        }
        let prefix = options.checked_prefix()?;
        let servers: Result<_, _> = endpoints.iter().map(|server| options.connector(server.as_ref())).collect();
        Ok(EtcdStore::over(Endpoints::new(servers?, options.is_anonymous()), prefix))
    }

    /// Elections over a connection of your own, with the user and the prefix of the options.
    ///
    /// TLS is the connection's own matter. Other clients can share it, `etcd-client` for one:
    /// `Client::from_channel(Channel::Tonic(channel), ...)`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use incumbent_etcd::{Channel, EtcdOptions, EtcdStore};
    ///
    /// let channel = Channel::from_static("http://10.0.0.1:2379").connect_lazy();
    /// let store = EtcdStore::over_channel(channel, &EtcdOptions::new().user("jobs", "secret"))?;
    /// # Ok(()) }
    /// ```
    pub fn over_channel(channel: Channel, options: &EtcdOptions) -> Result<EtcdStore, StoreError> {
        let prefix = options.checked_prefix()?;
        let servers = vec![options.connector_over(channel)?];
        // A certificate may stand for a user.
        Ok(EtcdStore::over(Endpoints::new(servers, false), prefix))
    }

    /// Elections over the cluster that a URL names.
    ///
    /// `etcd://[user:password@]host:port[,host:port ...][?option=value&...]`, or `etcds://` for
    /// TLS. The port is 2379 if it is not given. User, password and options are percent-encoded
    /// where they need to be. The options:
    ///
    /// - `prefix`: comes before the name of every election, e.g. `/` for an election that Go calls
    ///   `/jobs`
    /// - `ca`, with TLS: a file with the certificates that are trusted (PEM)
    /// - `cert`, `key`: files with our own certificate and its key (PEM)
    /// - `server-name`: the name in the servers' certificates, if it is not the host's
    pub fn from_url(url: &str) -> Result<EtcdStore, StoreError> {
        let (endpoints, options) = crate::options::parse_url(url)?;
        EtcdStore::connect(&endpoints, &options)
    }

    /// For tests and benchmarks: how many watches wait now.
    #[doc(hidden)]
    pub fn watches(&self) -> usize {
        self.inner.watcher.len()
    }

    fn over(endpoints: Endpoints, prefix: &str) -> EtcdStore {
        let endpoints = Arc::new(endpoints);
        let watcher = Watcher::new(endpoints.clone());
        let inner = Inner { endpoints, keys: Keys::new(prefix), watcher, smallest_ttl: OnceCell::new() };
        EtcdStore { inner: Arc::new(inner) }
    }
}

impl Inner {
    pub(crate) async fn read(&self, what: &str, ops: impl Into<Vec<RequestOp>>) -> Result<Answer, StoreError> {
        self.endpoints.txn(what, Effect::None, txn::always(ops)).await
    }

    /// A read for the branch that has nothing to do. A transaction that neither writes nor reads,
    /// or whose reads are all allowed to be old, is answered by any member from what it knows; one
    /// with this waits until the member knows all.
    pub(crate) fn up_to_date(&self) -> RequestOp {
        txn::look(self.keys.nothing())
    }

    async fn identity(&self) -> Result<StoreId, StoreError> {
        Ok(self.read("asking who is there", [self.up_to_date()]).await?.header.store_id())
    }

    async fn promises(&self) -> Result<Promises, StoreError> {
        let mut promises = Promises::new(self.identity().await?);
        promises.smallest_ttl = *self.smallest_ttl.get_or_try_init(|| self.ask_smallest_ttl()).await?;
        promises.granularity = EXPIRY_SCAN;
        promises.caveats = vec![
            "When etcd changes its own leader, every TTL starts again: a failover may take longer, never less.".into(),
            "A cluster that is restored from a snapshot, or wiped and started again as it was configured, goes by the \
             same identity, and its tokens go back."
                .into(),
            "A server that stood still while it led the cluster ends, when it goes on, sessions that others have \
             renewed meanwhile (etcd#15247; rarer in releases since 2024): another may lead for the moment until the \
             leader hears of it. A fence refuses what the older one writes."
                .into(),
        ];
        Ok(promises)
    }

    /// The server raises what is too small, and says so; it tells in no other way.
    async fn ask_smallest_ttl(&self) -> Result<Duration, StoreError> {
        let lease = self.endpoints.grant("asking for the smallest TTL", 1).await?;
        // If this fails, it expires.
        _ = self.endpoints.revoke("giving it back", lease.id).await;
        Ok(Duration::from_secs(lease.ttl.unsigned_abs()))
    }

    /// Page after page, by their keys alone. Without a prefix that is everything in etcd.
    async fn elections(&self, limit: usize) -> Result<Vec<ElectionName>, StoreError> {
        let (mut from, end) = self.keys.everything();
        let mut names = BTreeSet::new();
        for _ in 0..MOST_PAGES {
            let ops = [txn::look_at_some((from, end.clone()), PAGE)];
            let (page, goes_on) = self.read("listing the elections", ops).await?.next_cut()?;
            names.extend(page.iter().filter_map(|kv| self.keys.election_of(&kv.key, kv.lease)));
            match page.last().filter(|_| goes_on) {
                // The least key that comes after it.
                Some(last) => from = [&last.key[..], &[0]].concat(),
                None => return Ok(names.into_iter().take(limit).collect()),
            }
        }
        let most = i64::from(MOST_PAGES) * PAGE;
        let what =
            format!("listing the elections: there are more than {most} keys below the prefix; name the one meant");
        Err(StoreError::Limit { what })
    }

    async fn line(&self, election: &ElectionName, limit: usize) -> Result<Line, StoreError> {
        let first = i64::try_from(limit).map_or(PAGE, |limit| limit.saturating_add(1).min(PAGE));
        let ops = [txn::oldest(self.keys.line(election), 0, 0, first), txn::all(self.keys.beside(election))];
        let mut answer = self.read("reading the line", ops).await?;
        let (mut page, mut goes_on) = answer.next_cut()?;
        let beside = answer.next_found()?;
        let office = txn::office(&self.keys, election, &beside)?;
        let mut entries = Vec::new();
        loop {
            for kv in &page {
                entries.extend(txn::entry(&self.keys, election, kv, &beside)?);
            }
            // Elections with longer names may have taken the places.
            if !goes_on || entries.len() > limit {
                break;
            }
            (page, goes_on) = self.next_page(election, &page, answer.header).await?;
        }
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok(Line::new(entries, more, office, answer.header.cursor()))
    }

    /// What comes after a page, as it was when the first one was read.
    async fn next_page(
        &self,
        election: &ElectionName,
        page: &[KeyValue],
        first: ResponseHeader,
    ) -> Result<(Vec<KeyValue>, bool), StoreError> {
        let last = page.last().map_or(0, |kv| kv.create_revision);
        let ops = [txn::oldest(self.keys.line(election), last, first.revision, PAGE)];
        let mut answer = self.read("reading on in the line", ops).await?;
        let (mut next, goes_on) = answer.next_cut()?;
        // One transaction may have created several keys: a page can end between them.
        next.retain(|kv| kv.create_revision > last || !page.iter().any(|read| read.key == kv.key));
        Ok((next, goes_on))
    }

    /// The office record. No candidate takes office because of it.
    fn office_changes(&self, election: &ElectionName) -> Interest {
        Interest { range: self.keys.office_range(election), rule: Rule::Any, urgent: false }
    }

    /// This entry goes, or says something else. `None`: no entry has such a name.
    fn entry_changes(&self, election: &ElectionName, id: &EntryId) -> Option<Interest> {
        let (suffix, _) = keys::parse_id(id)?;
        Some(Interest { range: (self.keys.entry(election, &suffix), Vec::new()), rule: Rule::Any, urgent: true })
    }

    /// This entry goes. `None`: no entry has such a name.
    fn entry_goes(&self, election: &ElectionName, id: &EntryId, urgent: bool) -> Option<Interest> {
        let (suffix, token) = keys::parse_id(id)?;
        let rule = Rule::Gone { created: txn::revision(token), lease: keys::lease_of(&suffix) };
        Some(Interest { range: (self.keys.entry(election, &suffix), Vec::new()), rule, urgent })
    }

    /// What a candidate with an entry waits for. `None`: something of it is gone already.
    fn interests_of_entry(&self, watched: &Watched) -> Option<Vec<Interest>> {
        let Watched { held, ahead, heir, .. } = watched;
        let election = &held.election;
        // A candidate that watches its own entry holds an office or a place already.
        let mut interests = vec![self.office_changes(election), self.entry_goes(election, &held.entry, false)?];
        if let Some(ahead) = ahead {
            interests.push(self.entry_goes(election, ahead, true)?);
        }
        if let Some(heir) = heir {
            interests.push(self.entry_changes(election, heir)?);
        }
        Some(interests)
    }

    /// What one without an entry waits for. `None`: something of it is gone already.
    fn interests_of_election(&self, election: &ElectionName, seen: &Seen) -> Option<Vec<Interest>> {
        let mut interests = vec![self.office_changes(election)];
        match &seen.head {
            Head::Ignored => {}
            // A line changes its head only by what happens to the head's own key, unless it is
            // empty.
            Head::Is(head) => interests.push(self.entry_changes(election, head)?),
            Head::Nobody => {
                let range = self.keys.line(election);
                let rule = Rule::Line(range.0.len());
                interests.push(Interest { range, rule, urgent: true });
            }
        }
        if let Some(last) = &seen.last {
            interests.push(self.entry_goes(election, last, true)?);
        }
        Some(interests)
    }

    pub(crate) fn watch_entry(&self, watched: &Watched, from: Cursor) -> Wake {
        self.watch(self.interests_of_entry(watched), from)
    }

    fn watch(&self, interests: Option<Vec<Interest>>, from: Cursor) -> Wake {
        match interests {
            Some(interests) => Box::pin(self.watcher.watch(interests, from)),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    async fn evict(&self, election: &ElectionName, seen: &Entry) -> Result<Cas, StoreError> {
        let named = keys::parse_id(&seen.id).filter(|(suffix, token)| {
            *token == seen.token && keys::Owner::read(suffix).map(|owner| owner.incarnation) == seen.incarnation
        });
        let Some((suffix, token)) = named else { return Ok(Cas::Done) };
        let key = self.keys.entry(election, &suffix);
        let version = i64::try_from(seen.version.0).unwrap_or(i64::MAX);
        let txn = TxnRequest {
            compare: vec![created(&key, txn::revision(token)), changed(&key, version)],
            success: vec![RequestOp::delete(key.clone()), RequestOp::delete(self.keys.ready(election, &suffix))],
            failure: vec![txn::look(key)],
        };
        let mut answer = self.endpoints.txn("evicting", Effect::Write, txn).await?;
        if answer.succeeded {
            return Ok(Cas::Done);
        }
        let has_changed = answer.next_one()?.is_some_and(|there| there.create_revision == txn::revision(token));
        Ok(if has_changed { Cas::Refused } else { Cas::Done })
    }
}

/// etcd counts TTLs in seconds, from one up to some 290 years.
pub(crate) fn whole_seconds(duration: Duration) -> i64 {
    const MOST: u64 = 9_000_000_000;
    let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    seconds.clamp(1, MOST).cast_signed()
}

impl Store for EtcdStore {
    fn promises(&self) -> Fut<'_, Promises> {
        Box::pin(self.inner.promises())
    }

    fn identity(&self) -> Fut<'_, StoreId> {
        Box::pin(self.inner.identity())
    }

    fn open_session(&self, ttl: Duration) -> Fut<'_, Arc<dyn Session>> {
        Box::pin(async move {
            let lease = self.inner.endpoints.grant("opening a session", whole_seconds(ttl)).await?;
            let cluster_id = txn::header(lease.header)?.cluster_id;
            let granted = Duration::from_secs(lease.ttl.unsigned_abs());
            let session = EtcdSession::new(self.inner.clone(), lease.id, granted, cluster_id);
            Ok(Arc::new(session) as Arc<dyn Session>)
        })
    }

    fn elections(&self, limit: usize) -> Fut<'_, Vec<ElectionName>> {
        Box::pin(self.inner.elections(limit))
    }

    fn line<'a>(&'a self, election: &'a ElectionName, limit: usize) -> Fut<'a, Line> {
        Box::pin(self.inner.line(election, limit))
    }

    fn watch(&self, election: &ElectionName, seen: &Seen, from: Cursor) -> Wake {
        self.inner.watch(self.inner.interests_of_election(election, seen), from)
    }

    fn set_office<'a>(&'a self, election: &'a ElectionName, was: Version, to: &'a Office) -> Fut<'a, Cas> {
        Box::pin(self.inner.set_office(election, was, to))
    }

    fn evict<'a>(&'a self, election: &'a ElectionName, seen: &'a Entry) -> Fut<'a, Cas> {
        Box::pin(self.inner.evict(election, seen))
    }
}

#[cfg(test)]
mod tests {
    use incumbent_store::{Held, Incarnation, Token};

    use super::*;

    #[tokio::test]
    async fn only_news_that_makes_a_leader_is_urgent() {
        let store = EtcdStore::connect(&["127.0.0.1:1"], &EtcdOptions::new()).unwrap();
        let election = ElectionName::new("jobs").unwrap();
        let id = |number: u64| keys::id_of(format!("{number:x}.0.node").as_bytes(), Token::new(number).unwrap());
        let urgency = |interests: Option<Vec<Interest>>| {
            interests.unwrap().iter().map(|interest| interest.urgent).collect::<Vec<_>>()
        };
        let held = Held::new(election.clone(), id(7), Token::new(7).unwrap(), Incarnation::from_bits(0));
        let mut watched = Watched::new(held, Version::NONE);
        assert_eq!(urgency(store.inner.interests_of_entry(&watched)), [false, false], "a leader");
        watched.ahead = Some(id(6));
        assert_eq!(urgency(store.inner.interests_of_entry(&watched)), [false, false, true], "a follower");
        let mut seen = Seen::new(Version::NONE);
        assert_eq!(urgency(store.inner.interests_of_election(&election, &seen)), [false], "one that is kept out");
        seen.head = Head::Is(id(6));
        assert_eq!(urgency(store.inner.interests_of_election(&election, &seen)), [false, true], "an observer");
        watched.ahead = Some(EntryId::new("nobody's"));
        assert!(store.inner.interests_of_entry(&watched).is_none(), "it is not there");
    }
}
