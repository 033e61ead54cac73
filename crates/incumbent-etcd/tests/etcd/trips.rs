//! Round trips and streams, counted by a proxy between the store and the server.

use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::{ElectionName, Place, Store, Watched};
use incumbent_testkit::proxy::Proxy;

use crate::harness::{TTL, client, entry, held, lead, name, publish, shared, store, until, within};

pub(crate) async fn counted() -> (Proxy, EtcdStore) {
    counted_with(&EtcdOptions::new()).await
}

async fn counted_with(options: &EtcdOptions) -> (Proxy, EtcdStore) {
    let proxy = Proxy::start(&shared().await.endpoints()[0]).await;
    let store = EtcdStore::connect(&[proxy.endpoint()], options).unwrap();
    (proxy, store)
}

#[tokio::test]
async fn a_warm_uncontended_enlistment_is_one_round_trip_and_ends_in_office() {
    let (proxy, store) = counted().await;
    let session = store.open_session(TTL).await.unwrap();
    let before = proxy.requests();
    let standing = session.enlist(&name("one-trip"), &entry(1)).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    assert_eq!(proxy.requests() - before, 1);
}

/// The same where nobody else is.
async fn counted_apart(place: &str) -> (Proxy, EtcdStore) {
    counted_with(&EtcdOptions::new().prefix(format!("{place}-{:x}/", std::process::id()))).await
}

#[tokio::test]
async fn enlisting_behind_somebody_is_one_round_trip_too() {
    let (proxy, store) = counted_apart("behind").await;
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL).await.unwrap());
    let election = name("one-trip-behind");
    let leading = held(&first.enlist(&election, &entry(1)).await.unwrap());
    let before = proxy.requests();
    let standing = second.enlist(&election, &entry(2)).await.unwrap();
    assert_eq!(proxy.requests() - before, 1);
    let Place::Behind { ahead, .. } = standing.place else { panic!("{standing:?}") };
    assert!(ahead.is(&leading) && ahead.name.as_deref() == Some("node-1"));
}

#[tokio::test]
async fn in_a_crowd_every_candidate_is_known_at_once() {
    let (proxy, store) = counted_apart("crowd").await;
    let ours = store.open_session(TTL * 5).await.unwrap();
    for number in 0..40 {
        let session = store.open_session(TTL * 5).await.unwrap();
        let election = name(&format!("crowd-{number}"));
        let leading = held(&session.enlist(&election, &entry(number)).await.unwrap());
        let before = proxy.requests();
        let standing = ours.enlist(&election, &entry(100 + number)).await.unwrap();
        let Place::Behind { ahead, .. } = &standing.place else { panic!("{standing:?}") };
        assert!(ahead.is(&leading) && ahead.name.as_deref() == Some("node-1"), "{ahead:?}");
        assert_eq!(ahead.incarnation, Some(entry(number).incarnation));
        ours.standing(&held(&standing), None).await.unwrap();
        assert!(store.line(&election, 9).await.unwrap().entries.iter().all(|entry| !entry.is_foreign()));
        assert_eq!(proxy.requests() - before, 3);
    }
}

#[tokio::test]
async fn a_renewal_asks_for_strays_only_while_there_may_be_some() {
    let (proxy, store) = counted().await;
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&name("asks"), &entry(1)).await.unwrap());
    let renew = async || {
        let before = proxy.requests();
        let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
        assert!(renewal.gone.is_empty() && renewal.stray.is_empty(), "{renewal:?}");
        proxy.requests() - before
    };
    renew().await;
    assert_eq!(renew().await, 1, "a read; the stream is open");
    drop(session.enlist(&name("never-polled"), &entry(2)));
    assert_eq!(renew().await, 1);
    let (election, entry) = (name("dropped"), entry(3));
    let mut dropped = session.enlist(&election, &entry);
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx).is_pending())).await);
    drop(dropped);
    let before = proxy.requests();
    for stray in session.renew(std::slice::from_ref(&held)).await.unwrap().stray {
        session.withdraw(&stray, None).await.unwrap();
    }
    assert!(proxy.requests() - before > 1);
    let mut renewals = 0;
    while renew().await > 1 {
        renewals += 1;
        assert!(renewals < 100, "it is looked for for ever");
    }
}

#[tokio::test]
async fn a_wake_up_is_one_round_trip() {
    let (proxy, ours) = counted().await;
    let rival = store(shared().await).open_session(TTL).await.unwrap();
    let session = ours.open_session(TTL).await.unwrap();
    let election = name("wake-up");
    let leading = held(&rival.enlist(&election, &entry(1)).await.unwrap());
    let behind = session.enlist(&election, &entry(2)).await.unwrap();
    let mut watched = Watched::new(held(&behind), behind.office.version);
    watched.ahead = Some(leading.entry.clone());
    let wake = session.watch(&watched, behind.cursor);
    rival.withdraw(&leading, None).await.unwrap();
    within(wake).await.unwrap();
    let before = proxy.requests();
    let standing = session.standing(&held(&behind), Some(&leading.entry)).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)), "{standing:?}");
    assert_eq!(proxy.requests() - before, 1);
}

#[tokio::test]
async fn after_an_empty_line_another_empty_one_is_one_round_trip_and_a_taken_one_is_two() {
    let (proxy, ours) = counted_apart("expected").await;
    let rival = ours.open_session(TTL).await.unwrap();
    let session = ours.open_session(TTL).await.unwrap();
    let taken = name("expected-empty");
    let leading = held(&rival.enlist(&taken, &entry(1)).await.unwrap());
    session.enlist(&name("empty-1"), &entry(2)).await.unwrap();
    let requests = async |election: &ElectionName, number| {
        let before = proxy.requests();
        let standing = session.enlist(election, &entry(number)).await.unwrap();
        (standing, proxy.requests() - before)
    };
    let (standing, trips) = requests(&name("empty-2"), 3).await;
    assert!(matches!(standing.place, Place::Leading(_)) && trips == 1, "{trips}: {standing:?}");
    let (standing, trips) = requests(&taken, 4).await;
    assert!(matches!(&standing.place, Place::Behind { ahead, .. } if ahead.is(&leading)), "{standing:?}");
    assert_eq!(trips, 2);
    // Having met somebody, it expects somebody.
    rival.withdraw(&leading, None).await.unwrap();
    let mine = rival.enlist(&name("expected-taken"), &entry(5)).await.unwrap();
    let (standing, trips) = requests(&name("expected-taken"), 6).await;
    assert!(matches!(&standing.place, Place::Behind { ahead, .. } if ahead.is(&held(&mine))), "{standing:?}");
    assert_eq!(trips, 1);
}

#[tokio::test]
async fn a_watch_of_the_head_of_a_line_is_not_woken_by_those_behind_it() {
    let ours = store(shared().await);
    let (first, second) = (ours.open_session(TTL).await.unwrap(), ours.open_session(TTL).await.unwrap());
    let election = name("head");
    let leading = held(&first.enlist(&election, &entry(1)).await.unwrap());
    let line = ours.line(&election, 1).await.unwrap();
    let mut wake = ours.watch(&election, &line.seen(), line.cursor);
    let behind = held(&second.enlist(&election, &entry(2)).await.unwrap());
    second.withdraw(&behind, None).await.unwrap();
    // What is told of a later change of another key was told after those.
    let later = name("head-later");
    let other = held(&second.enlist(&later, &entry(3)).await.unwrap());
    let line = ours.line(&later, 1).await.unwrap();
    let told = ours.watch(&later, &line.seen(), line.cursor);
    second.withdraw(&other, None).await.unwrap();
    within(told).await.unwrap();
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(wake.as_mut().poll(cx).is_pending())).await);
    publish(&*first, &leading, "another value", None).await.unwrap();
    within(wake).await.unwrap();
}

#[tokio::test]
async fn a_campaign_of_the_library_is_one_round_trip_when_it_is_warm() {
    let (proxy, store) = counted().await;
    let client = client(&store).await;
    // Warm: the session is there, and so is the watch stream.
    let first = client.election(name("warm-1").as_str()).unwrap();
    let mut candidacy = first.candidate("a").stand().await.unwrap();
    let _office = lead(&mut candidacy).await;
    let second = client.election(name("warm-2").as_str()).unwrap();
    // A renewal may come in between: the fewest of a few campaigns are those of a campaign.
    let mut fewest = u64::MAX;
    for _ in 0..5 {
        let before = proxy.requests();
        let mut candidacy = second.candidate("a").stand().await.unwrap();
        let office = lead(&mut candidacy).await;
        fewest = fewest.min(proxy.requests() - before);
        office.resign().await.unwrap();
        candidacy.withdraw().await.unwrap();
    }
    assert_eq!(fewest, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_elections_use_one_keep_alive_stream_and_one_watch_stream() {
    let (proxy, store) = counted().await;
    let client = client(&store).await;
    let prefix = name("thousand");
    let mut offices = Vec::new();
    for number in 0..1000 {
        let election = client.election(&format!("{prefix}-{number}")).unwrap();
        let mut candidacy = election.candidate("a").stand().await.unwrap();
        offices.push((lead(&mut candidacy).await, candidacy));
    }
    let mut streams = Vec::new();
    for _ in 0..3 {
        let renewed = proxy.requests();
        // A renewal of a thousand entries reads them in ten requests.
        until("the session is renewed", async || proxy.requests() >= renewed + 10).await;
        until("all is quiet", async || proxy.open_streams() <= 2).await;
        streams.push(proxy.open_streams());
    }
    assert_eq!(streams, [2, 2, 2], "one for keep-alives, one for watches");
    // What is watched is told: the streams are in use.
    let last = ElectionName::new(&format!("{prefix}-999")).unwrap();
    let seen = store.line(&last, 1).await.unwrap().entries.remove(0);
    store.evict(&last, &seen).await.unwrap();
    let (office, mut candidacy) = offices.pop().unwrap();
    within(office.term().lost()).await;
    drop(office);
    let again = lead(&mut candidacy).await;
    assert!(again.term().token().token > seen.token);
    // A request that is on its way counts as open, too.
    until("all is quiet", async || proxy.open_streams() <= 2).await;
    assert_eq!((proxy.connections(), proxy.open_streams()), (1, 2));
    for (office, _) in &offices {
        office.term().check().unwrap();
    }
    client.close(TTL * 5).await.unwrap();
}
