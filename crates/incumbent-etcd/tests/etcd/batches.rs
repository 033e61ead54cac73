//! Writes that are asked for at once: how they travel together, and that none suffers from
//! another's fate.

use std::sync::Arc;

use incumbent_etcd::EtcdStore;
use incumbent_store::{ElectionName, Held, Place, Session, Standing, Store, StoreError};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::EtcdCluster;
use tokio::task::JoinHandle;

use crate::harness::{TTL, entry, held, name, shared, store, within};
use crate::trips::counted;

/// As many go alone before the others travel together.
const ALONE: usize = 4;

type Enlisting = JoinHandle<Result<Standing, StoreError>>;

/// All at once: on a runtime with one thread nothing is sent before all have asked.
fn enlist_all(session: &Arc<dyn Session>, elections: &[ElectionName]) -> Vec<Enlisting> {
    let enlist = |(number, election): (usize, &ElectionName)| {
        let (session, election) = (session.clone(), election.clone());
        tokio::spawn(async move { session.enlist(&election, &entry(number as u128 + 1)).await })
    };
    elections.iter().enumerate().map(enlist).collect()
}

fn names(test: &str, count: usize) -> Vec<ElectionName> {
    (0..count).map(|number| ElectionName::new(&format!("{}-{number}", name(test))).unwrap()).collect()
}

async fn leading(enlisting: Enlisting) -> Held {
    let standing = within(enlisting).await.unwrap().unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    held(&standing)
}

/// Lets everything happen that needs no answer.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A session that has talked to the server already.
async fn warm() -> (Proxy, EtcdStore, Arc<dyn Session>) {
    let (proxy, store) = counted().await;
    let session = store.open_session(TTL * 10).await.unwrap();
    (proxy, store, session)
}

#[tokio::test]
async fn sixty_four_campaigns_at_once_take_five_transactions_and_so_do_their_withdrawals() {
    let (proxy, store, session) = warm().await;
    let before = proxy.requests();
    let mut offices = Vec::new();
    for enlisting in enlist_all(&session, &names("sixty-four", 64)) {
        offices.push(leading(enlisting).await);
    }
    assert_eq!(proxy.requests() - before, ALONE as u64 + 1);
    // Each is what it was told to be.
    for office in &offices {
        let line = store.line(&office.election, 2).await.unwrap();
        assert!(line.entries.len() == 1 && line.entries[0].is(office), "{line:?}");
        assert_eq!(line.entries[0].name.as_deref(), Some("node-1"));
        assert!(matches!(session.standing(office, None).await.unwrap().place, Place::Leading(_)));
    }

    let before = proxy.requests();
    let withdraw = |office: &Held| {
        let (session, office) = (session.clone(), office.clone());
        tokio::spawn(async move { session.withdraw(&office, None).await })
    };
    for withdrawing in offices.iter().map(withdraw).collect::<Vec<_>>() {
        within(withdrawing).await.unwrap().unwrap();
    }
    assert_eq!(proxy.requests() - before, ALONE as u64 + 1);
    assert!(store.line(&offices[63].election, 1).await.unwrap().entries.is_empty());

    // And one alone is one again.
    let before = proxy.requests();
    session.enlist(&name("sixty-fifth"), &entry(1)).await.unwrap();
    assert_eq!(proxy.requests() - before, 1);
}

#[tokio::test]
async fn a_write_that_is_given_up_does_not_harm_the_others_in_its_batch() {
    let (proxy, store, session) = warm().await;
    let elections = names("gives-up", 12);
    proxy.set(Way::Stall);
    let mut enlisting = enlist_all(&session, &elections);
    settle().await;
    // One that went alone, and the first and the last of the batch.
    let gone = [0, ALONE, 11];
    gone.iter().for_each(|number| enlisting[*number].abort());
    settle().await;
    proxy.set(Way::Forward);
    let mut offices = Vec::new();
    for (number, enlisting) in enlisting.drain(..).enumerate() {
        match gone.contains(&number) {
            true => assert!(enlisting.await.unwrap_err().is_cancelled()),
            false => offices.push(leading(enlisting).await),
        }
    }
    // Renewals bring to light what those who gave up have left behind, and nothing else.
    let renewal = within(session.renew(&offices)).await.unwrap();
    assert_eq!(renewal.gone, []);
    for stray in &renewal.stray {
        assert!(gone.iter().any(|number| elections[*number] == stray.election), "{stray:?}");
    }
    let left: Vec<_> = renewal.stray.iter().map(|stray| stray.election.clone()).collect();
    for number in [ALONE, 11] {
        assert!(left.contains(&elections[number]), "a batch arrives as a whole");
        let line = store.line(&elections[number], 1).await.unwrap();
        assert_eq!(line.entries[0].name.as_deref(), Some("node-1"));
        let stray = renewal.stray.iter().find(|stray| stray.election == elections[number]).unwrap();
        assert_eq!(stray.incarnation, entry(number as u128 + 1).incarnation);
    }
}

#[tokio::test]
async fn a_batch_that_nobody_waits_for_holds_up_nobody() {
    let (proxy, _, session) = warm().await;
    let elections = names("nobody-waits", 8);
    proxy.set(Way::Stall);
    let enlisting = enlist_all(&session, &elections);
    settle().await;
    enlisting.iter().for_each(Enlisting::abort);
    settle().await;
    let later = enlist_all(&session, &names("somebody-waits", 8));
    settle().await;
    proxy.set(Way::Forward);
    for enlisting in later {
        leading(enlisting).await;
    }
}

#[tokio::test]
async fn one_that_is_refused_is_told_why_and_the_others_lead() {
    let (proxy, _, session) = warm().await;
    let elections = names("refused", 12);
    let taken = held(&session.enlist(&elections[7], &entry(100)).await.unwrap());
    let before = proxy.requests();
    for (number, enlisting) in enlist_all(&session, &elections).into_iter().enumerate() {
        if number == 7 {
            let refused = within(enlisting).await.unwrap().unwrap_err();
            let StoreError::AlreadyInLine(held) = refused else { panic!("{refused:?}") };
            assert_eq!((held.token, held.incarnation), (taken.token, taken.incarnation));
        } else {
            leading(enlisting).await;
        }
    }
    // All or none; then each for itself; then the one that found somebody where it expected nobody.
    assert_eq!(proxy.requests() - before, ALONE as u64 + 3);
}

#[tokio::test]
async fn lines_that_meet_are_written_one_after_the_other() {
    let (_proxy, _, session) = warm().await;
    let top = name("meeting");
    let below = ElectionName::new(&format!("{top}/below")).unwrap();
    let mut elections = names("meeting-elsewhere", ALONE);
    elections.extend([top.clone(), below.clone(), top.clone()]);
    let mut enlisting = enlist_all(&session, &elections);
    // The second one for the same line has another incarnation.
    let again = within(enlisting.pop().unwrap()).await.unwrap().unwrap_err();
    let mut offices = Vec::new();
    for enlisting in enlisting {
        offices.push(leading(enlisting).await);
    }
    let (below, top) = (offices.pop().unwrap(), offices.pop().unwrap());
    assert_ne!(top.token, below.token, "one transaction would have made both");
    assert!(matches!(again, StoreError::AlreadyInLine(held) if held == top));
}

#[tokio::test]
async fn a_server_that_takes_fewer_operations_gets_fewer() {
    let cluster = EtcdCluster::start_with(1, &["--max-txn-ops=12"]).await;
    let session = store(&cluster).open_session(TTL * 10).await.unwrap();
    for round in 0..3 {
        for enlisting in enlist_all(&session, &names(&format!("fewer-{round}"), 40)) {
            leading(enlisting).await;
        }
    }
}

/// Nobody but root and the worker may do anything, and the worker may not do everything.
fn forbid(cluster: &EtcdCluster) {
    for args in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "worker:secret"],
        &["role", "add", "work"],
        &["role", "grant-permission", "work", "--prefix=true", "readwrite", "allowed"],
        &["role", "grant-permission", "work", "--prefix=true", "readwrite", "//incumbent/"],
        &["user", "grant-role", "worker", "work"],
        &["auth", "enable"],
    ] {
        cluster.ctl(args);
    }
}

#[tokio::test]
async fn what_those_without_a_name_may_not_write_no_batch_writes_for_them() {
    let cluster = EtcdCluster::start(1).await;
    let session = store(&cluster).open_session(TTL * 10).await.unwrap();
    forbid(&cluster);
    let elections = names("allowed", 12);
    for enlisting in enlist_all(&session, &elections) {
        let refused = within(enlisting).await.unwrap().unwrap_err();
        assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    }
    let worker = EtcdStore::from_url(&format!("etcd://worker:secret@{}", cluster.endpoints()[0])).unwrap();
    for election in &elections {
        assert!(worker.line(election, 1).await.unwrap().entries.is_empty());
    }
}

#[tokio::test]
async fn where_one_line_may_not_be_written_the_others_are() {
    let cluster = EtcdCluster::start(1).await;
    forbid(&cluster);
    let store = EtcdStore::from_url(&format!("etcd://worker:secret@{}", cluster.endpoints()[0])).unwrap();
    let session = store.open_session(TTL * 10).await.unwrap();
    let mut elections: Vec<_> =
        (0..12).map(|number| ElectionName::new(&format!("allowed-{number}")).unwrap()).collect();
    elections[9] = ElectionName::new("forbidden").unwrap();
    for (number, enlisting) in enlist_all(&session, &elections).into_iter().enumerate() {
        if number == 9 {
            let refused = within(enlisting).await.unwrap().unwrap_err();
            assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
        } else {
            leading(enlisting).await;
        }
    }
}

#[tokio::test]
async fn a_session_that_is_gone_is_gone_for_the_whole_batch() {
    let session = store(shared().await).open_session(TTL * 10).await.unwrap();
    session.close().await.unwrap();
    for enlisting in enlist_all(&session, &names("gone", 12)) {
        let refused = within(enlisting).await.unwrap().unwrap_err();
        assert!(matches!(refused, StoreError::SessionGone), "{refused:?}");
    }
}
