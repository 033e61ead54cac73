//! Three members of which one hangs, or cannot be reached: nobody loses an office by it while the
//! others are well.

use std::time::{Duration, Instant};

use incumbent::{Client, Leadership};
use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::{ElectionName, Store};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::EtcdCluster;

use crate::harness::{lead, name, shared, until, within};

const TTL: Duration = Duration::from_secs(6);

/// A cluster behind proxies, one for each member.
struct Members {
    cluster: EtcdCluster,
    proxies: Vec<Proxy>,
}

impl Members {
    async fn start() -> Members {
        let cluster = EtcdCluster::start(3).await;
        let mut proxies = Vec::new();
        for endpoint in cluster.endpoints() {
            proxies.push(Proxy::start(&endpoint).await);
        }
        Members { cluster, proxies }
    }

    /// A store whose requests go to the member with this number: each starts with one of its own
    /// choice.
    async fn store_at(&self, wanted: usize) -> EtcdStore {
        let endpoints: Vec<_> = self.proxies.iter().map(Proxy::endpoint).collect();
        for _ in 0..200 {
            let before: Vec<_> = self.proxies.iter().map(Proxy::requests).collect();
            let store = EtcdStore::connect(&endpoints, &EtcdOptions::new()).unwrap();
            store.line(&name("anybody"), 1).await.unwrap();
            if self.proxies[wanted].requests() > before[wanted] {
                return store;
            }
        }
        panic!("no store begins there");
    }
}

async fn client(store: EtcdStore) -> Client {
    client_with(store, TTL).await
}

async fn client_with(store: EtcdStore, ttl: Duration) -> Client {
    Client::builder().ttl(ttl).with_store(store).await.unwrap()
}

/// In office, and long enough for it to end if it does.
async fn stays_in_office(office: &Leadership) {
    let lost = tokio::time::timeout(3 * TTL, office.term().lost()).await;
    assert!(lost.is_err(), "the office was lost: {lost:?}");
    office.term().check().unwrap();
}

async fn leads_at(members: &Members, member: usize, election: &ElectionName) -> (Leadership, incumbent::Candidacy) {
    let ours = client(members.store_at(member).await).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("leader").stand().await.unwrap();
    (lead(&mut candidacy).await, candidacy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_member_hangs_stays_in_office() {
    let members = Members::start().await;
    let hung = (members.cluster.leader().await + 1) % 3;
    let (office, _candidacy) = leads_at(&members, hung, &name("hung-follower")).await;
    members.cluster.nodes()[hung].pause();
    stays_in_office(&office).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_member_leads_the_cluster_and_hangs_stays_in_office() {
    let members = Members::start().await;
    let hung = members.cluster.leader().await;
    let (office, _candidacy) = leads_at(&members, hung, &name("hung-leader")).await;
    members.cluster.nodes()[hung].pause();
    stays_in_office(&office).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_from_its_member_stays_in_office() {
    let members = Members::start().await;
    let (office, _candidacy) = leads_at(&members, 0, &name("black-hole")).await;
    // Nothing is refused: nothing comes back.
    members.proxies[0].set(Way::Stall);
    stays_in_office(&office).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_whose_member_hangs_takes_over_within_two_ttls() {
    // Two of them are less than it takes the connection to notice by itself.
    let ttl = Duration::from_secs(4);
    let members = Members::start().await;
    let (election, hung) = (name("hung-watch"), (members.cluster.leader().await + 1) % 3);
    let (office, _candidacy) = leads_at(&members, (hung + 1) % 3, &election).await;
    let store = members.store_at(hung).await;
    let theirs = client_with(store.clone(), ttl).await.election(election.as_str()).unwrap();
    let mut waiting = theirs.candidate("follower").stand().await.unwrap();
    until("it watches the leader", async || store.watches() > 0).await;

    members.cluster.nodes()[hung].pause();
    office.resign().await.unwrap();

    let since = Instant::now();
    lead(&mut waiting).await;
    assert!(since.elapsed() < 2 * ttl, "it took {:?}, with a TTL of {ttl:?}", since.elapsed());
}

#[tokio::test]
async fn a_renewal_goes_on_to_the_next_member_by_itself() {
    let server = &shared().await.endpoints()[0];
    let proxies = [Proxy::start(server).await, Proxy::start(server).await];
    let store = EtcdStore::connect(&[proxies[0].endpoint(), proxies[1].endpoint()], &EtcdOptions::new()).unwrap();
    let session = store.open_session(TTL).await.unwrap();
    session.renew(&[]).await.unwrap();
    let used = proxies.iter().position(|proxy| proxy.connections() > 0).unwrap();
    proxies[used].set(Way::Stall);
    within(session.renew(&[])).await.unwrap();
    assert_eq!(proxies[1 - used].connections(), 1);
}

#[tokio::test]
async fn a_call_that_is_dropped_moves_nobody_to_another_endpoint() {
    let server = &shared().await.endpoints()[0];
    let proxies = [Proxy::start(server).await, Proxy::start(server).await];
    let store = EtcdStore::connect(&[proxies[0].endpoint(), proxies[1].endpoint()], &EtcdOptions::new()).unwrap();
    let election = name("changes-its-mind");
    store.line(&election, 1).await.unwrap();
    for _ in 0..10 {
        let mut dropped = store.line(&election, 1);
        assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await);
        drop(dropped);
        store.line(&election, 1).await.unwrap();
    }
    assert_eq!(proxies[0].connections() + proxies[1].connections(), 1);

    // One that has waited in vain does.
    let used = proxies.iter().position(|proxy| proxy.connections() > 0).unwrap();
    proxies[used].set(Way::Stall);
    until("the other one is asked", async || {
        tokio::time::timeout(Duration::from_secs(1), store.line(&election, 1)).await.is_ok_and(|line| line.is_ok())
    })
    .await;
    assert_eq!(proxies[1 - used].connections(), 1);
}

#[tokio::test]
async fn a_read_that_is_given_up_moves_nobody_while_others_are_answered() {
    let server = &shared().await.endpoints()[0];
    let proxies = [Proxy::start(server).await, Proxy::start(server).await];
    let store = EtcdStore::connect(&[proxies[0].endpoint(), proxies[1].endpoint()], &EtcdOptions::new()).unwrap();
    let election = name("others-are-answered");
    store.line(&election, 1).await.unwrap();
    let used = proxies.iter().position(|proxy| proxy.connections() > 0).unwrap();
    proxies[used].set(Way::Stall);
    let mut slow = store.line(&election, 1);
    let waits = tokio::time::timeout(Duration::from_secs(1), &mut slow).await;
    assert!(waits.is_err(), "{waits:?}");
    let other = store.line(&election, 1);
    proxies[used].set(Way::Forward);
    within(other).await.unwrap();
    // Whether it has been answered by now or not: nobody has asked.
    drop(slow);
    store.line(&election, 1).await.unwrap();
    assert_eq!(proxies[1 - used].connections(), 0);
}
