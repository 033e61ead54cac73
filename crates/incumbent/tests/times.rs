//! Times that nobody can have meant, and rests between looks: neither a panic nor a storm.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::sync::Arc;
use std::time::Duration;

use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::store::{Clock, TokioClock};
use incumbent::{Client, ConnectError, Observation, OperatorError, ReadError, Settings, UrlError};
use incumbent_testkit::{Call, FaultStore, Faults, Mishap};

const TTL: Duration = Duration::from_secs(15);

/// A client with faults of its own, on a memory store on tokio's clock.
async fn client(faults: &Faults) -> Client {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let store = MemoryStore::with_clock(Shape::FAIR, clock.clone());
    let store = FaultStore::new(Arc::new(store), faults.clone());
    Client::builder().ttl(TTL).clock(clock).with_store(store).await.unwrap()
}

#[tokio::test]
async fn settings_without_measure_are_refused() {
    let century = Duration::from_secs(36_525 * 86_400);
    for builder in [
        Client::builder().ttl(Duration::MAX),
        Client::builder().ttl(century),
        Client::builder().grace(Duration::MAX),
        Client::builder().margin(Duration::MAX),
        Client::builder().ttl(Duration::MAX).grace(Duration::MAX).margin(Duration::MAX),
    ] {
        let refused = builder.connect("memory://times").await.map(|_| ()).unwrap_err();
        assert!(matches!(refused, ConnectError::Settings(_)), "{refused}");
    }
    Settings::for_ttl(Duration::MAX).check().unwrap_err();
}

#[cfg(feature = "peers")]
#[tokio::test]
async fn a_group_of_peers_refuses_times_without_measure() {
    for url in ["bully://127.0.0.1:1?members=1", "ring://127.0.0.1:1?members=1", "consensus://127.0.0.1:1?members=1"] {
        let grace = Client::builder().grace(Duration::MAX).connect_unfenced(url).await.map(|_| ()).unwrap_err();
        assert!(matches!(grace, ConnectError::GraceTooLong { .. }), "{grace}");
    }
    let timeout = format!("consensus://127.0.0.1:1?members=1&timeout={}m", u64::MAX);
    let refused = Client::builder().connect_unfenced(&timeout).await.map(|_| ()).unwrap_err();
    let is_timeout = |why: &UrlError| matches!(why, UrlError::Option { option, .. } if option == "timeout");
    assert!(matches!(&refused, ConnectError::Url(why) if is_timeout(why)), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_session_of_a_year_is_one_as_any_other() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let store = MemoryStore::with_clock(Shape::FAIR, clock.clone());
    let year = Duration::from_secs(365 * 86_400);
    let client = Client::builder().ttl(year).clock(clock).with_store(store).await.unwrap();
    let mut candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
    let office = candidacy.elected().await.unwrap().unwrap();
    office.check().unwrap();
    office.resign().await.unwrap();
    drop(candidacy);
    client.close(Duration::MAX).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_operator_may_wait_for_ever() {
    let client = client(&Faults::none()).await;
    let other = client.clone();
    let election = client.election("e").unwrap();
    let operator = election.operator().keep_tombstone(Duration::MAX);
    let vacant = operator.transfer("nobody", Duration::MAX).await.unwrap_err();
    assert!(matches!(vacant, OperatorError::Vacant), "{vacant}");

    let work = tokio::spawn(async move {
        let mut candidacy = other.election("e").unwrap().candidate("a").stand().await.unwrap();
        let mut terms = 0;
        while let Some(office) = candidacy.elected().await.unwrap() {
            terms += 1;
            office.term().stopping().await;
            office.resign().await.unwrap();
        }
        terms
    });
    let until_led = async || {
        let mut observer = election.observe();
        while !matches!(observer.next().await, Some(Observation::Leader(_))) {}
    };
    until_led().await;
    operator.transfer("a", Duration::MAX).await.unwrap();
    operator.resign(Duration::MAX).await.unwrap();
    until_led().await;
    operator.pause(Duration::MAX).await.unwrap();
    operator.resume(Duration::MAX).await.unwrap();
    until_led().await;
    operator.end(Duration::MAX).await.unwrap();
    assert_eq!(work.await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_leader_may_take_for_ever_to_hand_over() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let store = MemoryStore::with_clock(Shape::FAIR, clock.clone());
    let stand = async |name: &str| {
        let client = Client::builder().ttl(TTL).clock(clock.clone()).with_store(store.clone()).await.unwrap();
        client.election("e").unwrap().candidate(name).stand().await.unwrap()
    };
    let mut a = stand("a").await;
    let office = a.elected().await.unwrap().unwrap();
    let mut b = stand("b").await;
    let (handed, next) = tokio::join!(office.transfer_to("b", Duration::MAX), b.elected());
    handed.unwrap();
    next.unwrap().unwrap().check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn where_every_watch_is_lost_at_once_an_observer_looks_at_the_longest_rest_and_no_faster() {
    let faults = Faults::none();
    for _ in 0..100_000 {
        faults.next(Call::Watch, Mishap::Refuse);
    }
    let mut observer = client(&faults).await.election("e").unwrap().observe();
    assert_eq!(observer.next().await, Some(Observation::Vacant(None)));
    let minutes = Duration::from_secs(600);
    tokio::time::timeout(minutes, observer.next()).await.unwrap_err();
    // A rest is 2.5 s at most.
    let looks = faults.calls(Call::Line);
    assert!((200..300).contains(&looks), "{looks} looks");
    // Once a watch has lasted, the next one that is lost is a first one.
    faults.heal();
    tokio::time::timeout(minutes, observer.next()).await.unwrap_err();
    let armed = faults.calls(Call::Watch);
    faults.next(Call::Watch, Mishap::Refuse);
    let mut until_armed = async |count| {
        while faults.calls(Call::Watch) < count {
            tokio::time::timeout(Duration::from_millis(5), observer.next()).await.unwrap_err();
        }
        tokio::time::Instant::now()
    };
    let (lost, again) = (until_armed(armed + 1).await, until_armed(armed + 2).await);
    assert!(again - lost < Duration::from_millis(100), "armed again after {:?}", again - lost);
}

#[tokio::test(start_paused = true)]
async fn an_observer_does_not_wait_for_ever_for_a_store_to_say_who_it_is() {
    let faults = Faults::none();
    faults.next(Call::Promises, Mishap::Hang);
    let mut observer = client(&faults).await.election("e").unwrap().observe();
    let mut next = async || tokio::time::timeout(TTL, observer.next()).await.unwrap();
    assert_eq!(next().await, Some(Observation::Stale));
    assert_eq!(next().await, Some(Observation::Current));
    assert_eq!(next().await, Some(Observation::Vacant(None)));
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_asks_for_is_tried_for_as_long_as_it_may_take() {
    let faults = Faults::none();
    let client = client(&faults).await;
    let election = client.election("e").unwrap();
    let operator = election.operator();
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(60));
    // Refused so often, a read takes about half a minute.
    let outage = || (0..40).for_each(|_| faults.next(Call::Line, Mishap::Refuse));

    operator.pause(long).await.unwrap();
    outage();
    assert!(matches!(operator.resume(short).await, Err(OperatorError::Read(ReadError::TimedOut { .. }))));
    operator.resume(long).await.unwrap();

    let _candidacy = election.candidate("a").stand().await.unwrap();
    outage();
    assert!(matches!(operator.depose(None, short).await, Err(OperatorError::Read(ReadError::TimedOut { .. }))));
    operator.depose(None, long).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_operators_write_that_is_not_answered_is_given_up_and_repeated() {
    let faults = Faults::none();
    let client = client(&faults).await;
    let election = client.election("e").unwrap();
    let operator = election.operator();
    for (call, act) in [(Call::SetOffice, "pause"), (Call::Evict, "depose")] {
        let candidacy = client.election("e").unwrap().candidate("a").stand().await.unwrap();
        faults.next(call, Mishap::Hang);
        let done = async {
            match act {
                "pause" => drop(candidacy),
                _ => drop((operator.depose(None, Duration::MAX).await.unwrap(), candidacy)),
            }
            operator.pause(Duration::from_secs(60)).await.unwrap();
            operator.resume(Duration::MAX).await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(60), done).await.expect(act);
    }
}
