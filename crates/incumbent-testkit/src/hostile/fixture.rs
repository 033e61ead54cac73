//! The servers of one test, the links to them, and the candidates.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use incumbent::{Candidacy, Client, Leadership};
use incumbent_store::{ElectionName, LineKind, Store};

use super::{Flaw, Host, Outcome, Unmet, ensure, flawed};
use crate::patience::{until, within};
use crate::proxy::{Proxy, Way};

/// The office may be empty for so many TTLs after a fault. What is promised is one, the store's
/// granularity and one retry; the rest is for a machine that is busy.
const EMPTY_FOR_TTLS: u32 = 4;

/// Nobody takes longer to get into line, unless it never does.
const IN_LINE_WITHIN_TTLS: u32 = 10;

/// What one case of the suite is tried on: the servers, an election that nobody has used, and what
/// the store gets wrong on purpose.
#[derive(Debug)]
pub struct Fixture<H> {
    pub(super) host: H,
    pub(super) election: ElectionName,
    flaw: Option<Flaw>,
}

/// The way of one candidate to the servers: a proxy in front of each.
pub(super) struct Link(Vec<Proxy>);

/// One in office behind a link of its own, and one that waits and has no link to lose.
pub(super) struct Pair {
    pub(super) link: Link,
    pub(super) leading: Candidacy,
    pub(super) office: Leadership,
    pub(super) waiting: Candidacy,
}

impl Link {
    pub(super) fn set(&self, way: Way) {
        self.0.iter().for_each(|proxy| proxy.set(way));
    }

    pub(super) fn reset(&self) {
        self.0.iter().for_each(Proxy::reset);
    }

    /// To the servers of another host.
    pub(super) fn turn_to(&self, addresses: &[String]) {
        self.0.iter().zip(addresses.iter().cycle()).for_each(|(proxy, address)| proxy.turn_to(address));
    }

    pub(super) fn connections(&self) -> u64 {
        self.0.iter().map(Proxy::connections).sum()
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.0.iter().map(Proxy::endpoint).collect()
    }
}

impl<H: Host> Fixture<H> {
    /// Starts servers for one test.
    pub(super) async fn start(flaw: Option<Flaw>) -> Fixture<H> {
        let election = ElectionName::new("hostile").expect("a well-formed name");
        Fixture { host: H::start().await, election, flaw }
    }

    /// What stores on it do wrong.
    pub(super) fn flaw(&self) -> Option<Flaw> {
        self.flaw
    }

    /// A store with connections of its own.
    pub(super) fn store(&self, addresses: &[String]) -> Result<Arc<dyn Store>, Unmet> {
        let reached = if self.flaw == Some(Flaw::OneAddress) { &addresses[..1] } else { addresses };
        let store = self.host.store(reached).ok_or_else(|| Unmet("it takes only one address".to_owned()))?;
        Ok(match self.flaw {
            None => store,
            Some(flaw) => flawed(store, flaw, H::TTL),
        })
    }

    /// A store to look with, which nothing happens to.
    pub(super) fn onlooker(&self) -> Arc<dyn Store> {
        self.host.store(&self.host.addresses()).expect("a store")
    }

    /// A new link to the servers, for one candidate.
    pub(super) async fn link(&self) -> Result<Link, Unmet> {
        let mut proxies = Vec::new();
        for address in self.host.addresses() {
            proxies.push(Proxy::start(&address).await);
        }
        ensure(!proxies.is_empty(), || "there is no connection to mistreat".to_owned())?;
        Ok(Link(proxies))
    }

    /// A client on this store. The grace is short, so that a TTL which a server cuts in half is
    /// still long enough.
    pub(super) async fn client(&self, store: Arc<dyn Store>) -> Client {
        let builder = Client::builder().ttl(H::TTL).grace(H::TTL / 20);
        within(builder.with_store(store)).await.expect("a client")
    }

    /// A candidate with a client and connections of its own.
    pub(super) async fn stand(&self, addresses: &[String], name: &str) -> Result<Candidacy, Unmet> {
        let client = self.client(self.store(addresses)?).await;
        let election = client.election(self.election.as_str()).expect("a well-formed name");
        let standing = tokio::time::timeout(H::TTL * IN_LINE_WITHIN_TTLS, election.candidate(name).stand()).await;
        let standing =
            standing.map_err(|_| Unmet(format!("{name} is not in line after {IN_LINE_WITHIN_TTLS} TTLs")))?;
        Ok(standing.expect("a place in line"))
    }

    /// A leader behind a link of its own.
    pub(super) async fn lead_behind(&self, link: &Link) -> Result<(Candidacy, Leadership), Unmet> {
        let mut leading = self.stand(&link.addresses(), "leader").await?;
        let office = leads_soon::<H>(Instant::now(), &mut [&mut leading]).await?;
        Ok((leading, office))
    }

    /// A leader behind a link of its own, and one that waits.
    pub(super) async fn pair(&self) -> Result<Pair, Unmet> {
        let link = self.link().await?;
        let (leading, office) = self.lead_behind(&link).await?;
        let waiting = self.stand(&self.host.addresses(), "next").await?;
        self.until_in_line(2).await;
        Ok(Pair { link, leading, office, waiting })
    }

    /// What takes more than one in line cannot be played without a line.
    pub(super) async fn needs_line(&self) -> Outcome {
        ensure(self.has_line().await, || "there is no line to stand in".to_owned())
    }

    async fn has_line(&self) -> bool {
        within(self.onlooker().promises()).await.expect("promises").line == LineKind::Fair
    }

    /// Waits until so many are in line; where there is none, until there is a leader. A server may
    /// be busy with something else meanwhile.
    pub(super) async fn until_in_line(&self, count: usize) {
        let onlooker = self.onlooker();
        let count = if self.has_line().await { count } else { count.min(1) };
        until(&format!("{count} are in line"), async || {
            let line = tokio::time::timeout(H::TTL, onlooker.line(&self.election, 99)).await;
            line.is_ok_and(|line| line.is_ok_and(|line| line.entries.len() == count))
        })
        .await;
    }
}

/// Waits until one of these leads, or for as long as an office may be empty since the fault.
pub(super) async fn leads_soon<H: Host>(
    since: Instant,
    candidates: &mut [&mut Candidacy],
) -> Result<Leadership, Unmet> {
    let bound = (H::TTL * EMPTY_FOR_TTLS).saturating_sub(since.elapsed());
    let elections = candidates.iter_mut().map(|candidate| Box::pin(candidate.elected()));
    let elected = tokio::time::timeout(bound, first(elections.collect())).await;
    let took = since.elapsed().as_secs_f64() / H::TTL.as_secs_f64();
    let Ok(elected) = elected else { return Err(Unmet(format!("nobody has led for {took:.1} TTLs"))) };
    println!("the office was empty for {took:.2} TTLs at most");
    Ok(elected.expect("a candidacy that goes on").expect("an election that goes on"))
}

/// What the first of these answers.
async fn first<T>(mut futures: Vec<impl Future<Output = T> + Unpin>) -> T {
    std::future::poll_fn(|context| {
        let mut polled = futures.iter_mut().map(|future| Pin::new(future).poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// In office for so many TTLs, in which it would be lost.
pub(super) async fn leads_on<H: Host>(office: &Leadership, ttls: u32) -> Outcome {
    let lost = tokio::time::timeout(H::TTL * ttls, office.lost()).await;
    ensure(lost.is_err(), || format!("the office was lost: {lost:?}"))
}

/// The next one leads: the one before must have stopped believing in it. No store may break this.
pub(super) fn is_over(before: &Leadership) {
    assert!(before.check().is_err(), "two lead at once");
}
