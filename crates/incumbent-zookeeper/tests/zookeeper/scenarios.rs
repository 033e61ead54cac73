//! The scenarios that every election over ZooKeeper has to get right, on one server.

use std::sync::Arc;
use std::time::Duration;

use incumbent::{CandidacyError, CandidacyEvent, LossReason, Role, StandError};
use incumbent_store::{Cas, Place, Store, StoreError};
use incumbent_testkit::proxy::{Proxy, Way};
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_testkit::{Call, FaultStore, Faults, Mishap};
use incumbent_zookeeper::zookeeper_client::Client;
use incumbent_zookeeper::{Dialect, ZooKeeperStore};

use crate::harness::{
    TICK, TTL, ZooKeeper, election, entry, held, in_line, lead, name, node, raw, shared, stand, store, until, within,
};

/// What the servers of the testkit are set to.
const LONGEST_SESSION: Duration = Duration::from_secs(300);

#[tokio::test]
async fn the_first_leads_and_the_second_follows_until_the_first_resigns() {
    let (store, name) = (store(shared().await), name("happy/path"));
    let mut first = stand(&store, &name, "first").await;
    let office = lead(&mut first).await;
    let mut second = stand(&store, &name, "second").await;
    in_line(&store, &name, 2).await;
    assert!(matches!(first.role(), Role::Leading { .. }), "{:?}", first.role());
    until("the second knows whom it follows", async || matches!(second.role(), Role::Following { .. })).await;

    office.resign().await.unwrap();

    let next = lead(&mut second).await;
    next.term().check().unwrap();
}

#[tokio::test]
async fn the_candidates_name_is_in_its_node_for_everyone_to_read() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("named"));
    let session = store.open_session(TTL * 5).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    let client = raw(&shared().await.endpoints()).await;
    let (data, stat) = client.get_data(&format!("{}/named/{}", zookeeper.chroot, node(&held))).await.unwrap();
    let text = String::from_utf8(data).unwrap();
    assert!(text.contains("name node-1\n") && text.ends_with("\n\n10.0.0.7:80"), "{text}");
    assert_eq!(stat.czxid.unsigned_abs(), held.token.get());
}

#[tokio::test]
async fn a_server_that_is_absent_is_told_at_once_and_not_waited_for() {
    let port = incumbent_testkit::free_port();
    let store = ZooKeeperStore::from_url(&format!("zk://127.0.0.1:{port}")).unwrap();
    for answer in
        [store.ready().await, store.open_session(TTL).await.map(|_| ()), store.line(&name("a"), 1).await.map(|_| ())]
    {
        assert!(matches!(answer, Err(StoreError::Unavailable { .. })), "{answer:?}");
    }
    let client = Client::connector().with_fail_eagerly().connect(&format!("127.0.0.1:{port}")).await;
    assert!(client.is_err(), "there is no client to make a store of");
}

#[tokio::test]
async fn a_server_gone_before_campaigning_is_an_error_and_its_return_is_enough() {
    let mut server = ZooKeeperEnsemble::start(1).await;
    let (store, name) = (store(&server), name("gone"));
    store.ready().await.unwrap();
    server.node(0).kill();
    until("the connection is seen to be down", async || store.line(&name, 1).await.is_err()).await;
    let opened = store.open_session(TTL).await;
    assert!(matches!(opened, Err(StoreError::Unavailable { .. })), "{opened:?}");

    let waiting = tokio::spawn({
        let (store, name) = (store.clone(), name.clone());
        async move { lead(&mut stand(&store, &name, "patient").await).await.term().token().get() }
    });
    server.node(0).restart().await;

    assert!(within(waiting).await.unwrap() > 0);
}

#[tokio::test]
async fn a_ttl_beyond_the_servers_longest_session_is_refused_and_the_refusal_names_both() {
    let store = store(shared().await);
    // The grace that is asked for is as long as the longest session.
    let asked = LONGEST_SESSION * 5;
    let client = incumbent::Client::builder().ttl(asked).grace(LONGEST_SESSION).with_store(store).await.unwrap();
    let refused = within(client.election("long").unwrap().candidate("greedy").stand()).await.map(|_| ());
    let Err(StandError::Candidacy(CandidacyError::Settings(error))) = refused else { panic!("{refused:?}") };
    let said = error.to_string();
    assert!(said.contains("a TTL of 1500s was asked for, and 300s granted"), "{said}");
    assert!(said.contains("the store's own limit is the reason"), "{said}");
}

#[tokio::test]
async fn resigning_while_the_server_is_gone_returns_and_says_that_it_is_not_certain() {
    let server = ZooKeeperEnsemble::start(1).await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let ours = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent).open();
    let name = name("adrift");
    let mut candidacy = stand(&ours, &name, "adrift").await;
    let office = lead(&mut candidacy).await;

    proxy.set(Way::Cut);

    let resigned = within(office.resign()).await;
    assert!(resigned.is_err(), "nobody has confirmed it");
}

#[tokio::test]
async fn resigning_while_disconnected_leaves_no_entry_once_the_connection_is_back() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let zookeeper = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent);
    let ours = zookeeper.open();
    // Long enough that the session outlives the outage: only the withdrawal can remove the entry.
    let name = name("zombie");
    let client = incumbent::Client::builder().ttl(Duration::from_secs(60)).with_store(ours.clone()).await.unwrap();
    let mut candidacy = client.election(name.as_str()).unwrap().candidate("zombie").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    let others = ZooKeeperStore::connect(&server.endpoints(), &zookeeper.options()).unwrap();
    proxy.set(Way::Cut);
    until("the connection is seen to be down", async || ours.line(&name, 1).await.is_err()).await;
    let session_level = tokio::time::timeout(Duration::from_millis(1), office.resign()).await;
    assert!(!matches!(session_level, Ok(Ok(()))));
    assert_eq!(others.line(&name, 9).await.unwrap().entries.len(), 1, "it is still there");
    // The candidacy stays out of the line: only the one entry is at stake.
    let left = tokio::spawn(candidacy.withdraw());

    proxy.set(Way::Forward);

    in_line(&others, &name, 0).await;
    within(left).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_withdrawal_while_disconnected_is_an_error_that_says_so_and_is_not_sent_later() {
    let proxy = Proxy::start(&shared().await.endpoints()[0]).await;
    let ours = ZooKeeper::at(vec![proxy.endpoint()], Dialect::Incumbent).open();
    let name = name("refused");
    let session = ours.open_session(Duration::from_secs(60)).await.unwrap();
    let held = held(&session.enlist(&name, &entry(1)).await.unwrap());
    proxy.set(Way::Cut);
    until("the connection is seen to be down", async || {
        matches!(session.standing(&held, None).await, Err(StoreError::Unavailable { source: None, .. }))
    })
    .await;
    let refused = session.withdraw(&held, None).await.unwrap_err();
    assert!(refused.to_string().contains("the connection to ZooKeeper is down"));

    proxy.set(Way::Forward);

    until("the connection is back", async || session.standing(&held, None).await.is_ok()).await;
    let standing = session.standing(&held, None).await.unwrap();
    assert_eq!(standing.place, Place::Leading(held.clone()), "what was refused was not kept for later");
    assert_eq!(session.withdraw(&held, None).await.unwrap(), Cas::Done);
    in_line(&ours, &name, 0).await;
}

#[tokio::test]
async fn a_follower_that_resigns_disturbs_neither_the_leader_nor_its_own_follower() {
    let (store, name) = (store(shared().await), name("middle"));
    let mut candidacies = Vec::new();
    for (count, candidate) in ["first", "second", "third"].into_iter().enumerate() {
        candidacies.push(stand(&store, &name, candidate).await);
        in_line(&store, &name, count + 1).await;
    }
    let office = lead(&mut candidacies[0]).await;
    let mut leader_events = candidacies[0].events();
    let token = office.term().token().token;

    candidacies.remove(1).withdraw().await.unwrap();

    let ahead = async || match candidacies[1].role() {
        Role::Following { token: ahead, .. } => ahead == Some(token),
        _ => false,
    };
    until("the third follows the first", ahead).await;
    office.term().check().unwrap();
    let mut third = candidacies.remove(1);
    office.resign().await.unwrap();
    lead(&mut third).await;
    let why = loop {
        match within(leader_events.next()).await {
            Some(CandidacyEvent::Unelected(why)) => break why,
            Some(_) => {}
            None => panic!("the leader was never told that it has resigned"),
        }
    };
    assert_eq!(why, LossReason::Resigned, "the first thing that ended its term");
}

#[tokio::test]
async fn the_end_of_an_election_that_nobody_holds_leaves_nothing() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("missing"));
    let operator = election(&store, &name).await.operator().keep_tombstone(TTL);
    operator.end(Duration::from_secs(60)).await.unwrap();
    let client = raw(&shared().await.endpoints()).await;
    assert_eq!(client.check_stat(&format!("{}/missing", zookeeper.chroot)).await.unwrap(), None);
    until("the tombstone goes", async || store.line(&name, 1).await.unwrap().office.ended.is_none()).await;
    let offices = format!("{}/%incumbent/offices", zookeeper.chroot);
    assert_eq!(client.list_children(&offices).await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn the_end_reaches_leader_and_followers_and_every_later_call_is_an_error() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("ended"));
    let mut leading = stand(&store, &name, "leader").await;
    let office = lead(&mut leading).await;
    let mut waiting = stand(&store, &name, "follower").await;
    in_line(&store, &name, 2).await;
    let ending = {
        let operator = election(&store, &name).await.operator();
        tokio::spawn(async move { operator.end(Duration::from_secs(60)).await })
    };
    within(office.term().stopping()).await;
    drop(office);
    within(ending).await.unwrap().unwrap();
    assert!(matches!(within(waiting.elected()).await, Ok(None)));
    assert!(matches!(within(leading.elected()).await, Ok(None)));
    for candidacy in [leading, waiting] {
        let again = within(candidacy.withdraw()).await;
        assert!(matches!(again, Ok(()) | Err(CandidacyError::Ended)), "{again:?}");
    }
    let client = raw(&shared().await.endpoints()).await;
    let node = format!("{}/ended", zookeeper.chroot);
    until("the node is gone", async || client.check_stat(&node).await.unwrap().is_none()).await;
}

#[tokio::test]
async fn an_election_node_deleted_from_outside_is_told_to_all_and_made_again() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("deleted"));
    let mut leading = stand(&store, &name, "leader").await;
    let office = lead(&mut leading).await;
    let token = office.term().token().token;
    let mut waiting = stand(&store, &name, "follower").await;
    in_line(&store, &name, 2).await;
    let newest = store.line(&name, 9).await.unwrap().entries[1].token;

    let client = raw(&shared().await.endpoints()).await;
    let node = format!("{}/deleted", zookeeper.chroot);
    until("everything is deleted", async || {
        for child in client.list_children(&node).await.unwrap_or_default() {
            let _ = client.delete(&format!("{node}/{child}"), None).await;
        }
        client.delete(&node, None).await.is_ok()
    })
    .await;

    within(office.term().lost()).await;
    drop(office);
    until("both are back in line", async || {
        let line = store.line(&name, 9).await.unwrap().entries;
        line.len() == 2 && line.iter().all(|entry| entry.token > newest)
    })
    .await;
    // The quicker of the two.
    let next = tokio::select! {
        office = lead(&mut leading) => office,
        office = lead(&mut waiting) => office,
    };
    assert!(next.term().token().token > token);
}

#[tokio::test]
async fn a_last_followers_node_deleted_by_hand_is_made_again_and_nobody_else_notices() {
    let zookeeper = ZooKeeper::on(shared().await);
    let (store, name) = (zookeeper.open(), name("last"));
    let mut leading = stand(&store, &name, "leader").await;
    let office = lead(&mut leading).await;
    let mut waiting = stand(&store, &name, "follower").await;
    in_line(&store, &name, 2).await;
    let last = store.line(&name, 9).await.unwrap().entries.pop().unwrap();
    let node = last.id.as_str().split('@').next().unwrap();

    let client = raw(&shared().await.endpoints()).await;
    client.delete(&format!("{}/last/{node}", zookeeper.chroot), None).await.unwrap();

    until("another entry is there", async || {
        let line = store.line(&name, 9).await.unwrap();
        line.entries.len() == 2 && line.entries[1].token > last.token
    })
    .await;
    office.term().check().unwrap();
    office.resign().await.unwrap();
    lead(&mut waiting).await;
}

#[tokio::test]
async fn the_fourth_leads_when_the_first_three_go_at_once() {
    let (store, name) = (store(shared().await), name("several"));
    let mut sessions = Vec::new();
    for number in 1..=3 {
        let session = store.open_session(TTL * 5).await.unwrap();
        session.enlist(&name, &entry(number)).await.unwrap();
        sessions.push(session);
    }
    let mut fourth = stand(&store, &name, "fourth").await;
    in_line(&store, &name, 4).await;
    let [first, second, third] = sessions.as_slice() else { unreachable!() };
    let closed = tokio::join!(first.close(), second.close(), third.close());
    assert!(closed.0.is_ok() && closed.1.is_ok() && closed.2.is_ok());
    lead(&mut fourth).await;
}

#[tokio::test]
async fn a_notification_that_was_lost_is_made_up_for_by_looking_again() {
    let server = shared().await;
    // The follower's watches never tell it anything.
    let zookeeper = ZooKeeper::on(server);
    let (store, name) = (zookeeper.open(), name("deaf"));
    let leader = store.open_session(TTL * 5).await.unwrap();
    let leading = held(&leader.enlist(&name, &entry(1)).await.unwrap());
    let faults = Faults::none();
    (0..1000).for_each(|_| faults.next(Call::Watch, Mishap::LoseAnswer));
    let deaf = ZooKeeperStore::connect(&server.endpoints(), &zookeeper.options()).unwrap();
    let deaf = FaultStore::new(Arc::new(deaf), faults);
    let follower = incumbent::Client::builder().ttl(TTL).with_store(deaf).await.unwrap();
    let mut candidacy = follower.election(name.as_str()).unwrap().candidate("follower").stand().await.unwrap();
    in_line(&store, &name, 2).await;
    leader.withdraw(&leading, None).await.unwrap();
    lead(&mut candidacy).await;
}

#[tokio::test]
async fn role_and_candidates_can_be_asked_at_any_time() {
    let (store, name) = (store(shared().await), name("asked"));
    let election = election(&store, &name).await;
    assert!(election.leader().await.unwrap().get().is_none());
    let mut candidacy = election.candidate("only").value("10.0.0.7:80").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    assert!(matches!(candidacy.role(), Role::Leading { .. }));
    let read = election.leader().await.unwrap();
    let leader = read.get().as_ref().unwrap();
    assert_eq!((leader.name.as_deref(), leader.value.as_ref()), (Some("only"), b"10.0.0.7:80".as_slice()));
    assert_eq!(election.candidates().await.unwrap().get().len(), 1);
    office.resign().await.unwrap();
    candidacy.withdraw().await.unwrap();
    assert!(election.leader().await.unwrap().get().is_none());
}

#[tokio::test]
async fn one_connection_carries_many_elections_and_many_candidates() {
    let server = shared().await;
    let connection = raw(&server.endpoints()).await;
    let options = ZooKeeper::on(server).options();
    let store = ZooKeeperStore::with_client(connection, &options).unwrap();
    let client = crate::harness::client(&store).await;
    let mut candidacies = Vec::new();
    for number in 0..20 {
        let election = client.election(&format!("many/{number}")).unwrap();
        candidacies.push(election.candidate("one").stand().await.unwrap());
    }
    let mut offices = Vec::new();
    for candidacy in &mut candidacies {
        offices.push(lead(candidacy).await);
    }
    // Two candidates of one election on one connection are two candidates.
    let mut second = stand(&store, &name("many/7"), "two").await;
    in_line(&store, &name("many/7"), 2).await;
    offices.remove(7).resign().await.unwrap();
    lead(&mut second).await;
    for office in &offices {
        office.term().check().unwrap();
    }
}

#[tokio::test]
async fn an_expired_connection_of_the_users_own_is_final_and_reported() {
    let server = shared().await;
    let proxy = Proxy::start(&server.endpoints()[0]).await;
    let timeout = Duration::from_secs(2);
    let connection = Client::connector().with_session_timeout(timeout).connect(&proxy.endpoint()).await.unwrap();
    let options = ZooKeeper::on(server).options().tick(TICK);
    let store = ZooKeeperStore::with_client(connection, &options).unwrap();
    let client = incumbent::Client::builder().ttl(Duration::from_millis(1500)).with_store(store).await.unwrap();
    let mut candidacy = client.election("final").unwrap().candidate("a").stand().await.unwrap();
    let office = lead(&mut candidacy).await;

    proxy.set(Way::Cut);

    within(office.term().lost()).await;
    drop(office);
    match within(candidacy.elected()).await {
        Err(CandidacyError::Store(StoreError::Misuse { what })) => {
            assert!(what.contains("make a new client"), "{what}")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn closing_one_of_two_candidates_on_one_connection_removes_its_entries_only() {
    let server = shared().await;
    let options = ZooKeeper::on(server).options();
    let store = ZooKeeperStore::with_client(raw(&server.endpoints()).await, &options).unwrap();
    let name = name("two");
    let (first, second) = (store.open_session(TTL).await.unwrap(), store.open_session(TTL).await.unwrap());
    let leading = held(&first.enlist(&name, &entry(1)).await.unwrap());
    let waiting = held(&second.enlist(&name, &entry(2)).await.unwrap());
    assert_eq!(second.standing(&leading, None).await.unwrap().place, Place::Gone, "it is not the second's");
    let renewal = second.renew(std::slice::from_ref(&waiting)).await.unwrap();
    assert_eq!((renewal.gone, renewal.stray), (vec![], vec![]));
    first.close().await.unwrap();
    assert_eq!(second.standing(&waiting, None).await.unwrap().place, Place::Leading(waiting));
    assert!(first.renew(&[]).await.is_err());
    drop(second);
    in_line(&store, &name, 0).await;
}

#[tokio::test]
async fn a_url_is_all_that_it_takes() {
    let server = shared().await;
    let url = format!("{}/by-url-{:x}?tick=200ms", server.url(), crate::harness::unique());
    let client = incumbent::Client::builder().ttl(TTL).connect(&url).await.unwrap();
    let mut candidacy = client.election("jobs/nightly").unwrap().candidate("a").stand().await.unwrap();
    lead(&mut candidacy).await.resign().await.unwrap();
    let unknown = incumbent::Client::connect(&format!("{}?dialect=latin", server.url())).await;
    assert!(unknown.is_err());
}
