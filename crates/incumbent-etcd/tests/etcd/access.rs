//! Users, passwords and certificates.

use incumbent_etcd::rpc::{Client, TxnRequest};
use incumbent_etcd::{EtcdOptions, EtcdStore};
use incumbent_store::{Place, Store, StoreError, Watched};
use incumbent_testkit::servers::{Certificates, EtcdCluster};

use crate::harness::{TTL, channel, client, entry, held, lead, name, until, within};

/// A server that knows users, and whose tokens last a second.
async fn guarded() -> EtcdCluster {
    let cluster = EtcdCluster::start_with(1, &["--auth-token-ttl=1"]).await;
    cluster.ctl(&["user", "add", "root:secret"]);
    cluster.ctl(&["user", "grant-role", "root", "root"]);
    cluster.ctl(&["user", "add", "reader:secret"]);
    cluster.ctl(&["role", "add", "read"]);
    cluster.ctl(&["role", "grant-permission", "read", "--prefix=true", "read", ""]);
    cluster.ctl(&["user", "grant-role", "reader", "read"]);
    cluster.ctl(&["auth", "enable"]);
    cluster
}

fn open(cluster: &EtcdCluster, user: &str) -> EtcdStore {
    EtcdStore::from_url(&format!("etcd://{user}@{}", cluster.endpoints()[0])).unwrap()
}

/// Waits until a token that was made now is no longer known.
async fn a_token_expires(cluster: &EtcdCluster) {
    let user = Some(("root".to_owned(), "secret".to_owned()));
    let client = Client::new(channel(&cluster.endpoints()[0]), user);
    let token = client.token().await.unwrap();
    // Every use gives a token another second, so it is used less and less often.
    for pause_millis in [1500, 3000, 6000, 12000] {
        tokio::time::sleep(std::time::Duration::from_millis(pause_millis)).await;
        client.txn(TxnRequest::default()).await.unwrap();
        if client.token().await.unwrap() != token {
            return;
        }
    }
    panic!("tokens do not expire");
}

#[tokio::test]
async fn an_expired_token_ends_neither_a_leadership_nor_a_wait() {
    let cluster = guarded().await;
    let store = open(&cluster, "root:secret");
    let election = name("token");
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut leading = ours.candidate("leader").stand().await.unwrap();
    let office = lead(&mut leading).await;
    let theirs = client(&open(&cluster, "root:secret")).await.election(election.as_str()).unwrap();
    let mut waiting = theirs.candidate("follower").stand().await.unwrap();
    until("both are in line", async || store.line(&election, 9).await.is_ok_and(|line| line.entries.len() == 2)).await;

    a_token_expires(&cluster).await;

    office.term().check().unwrap();
    office.term().proclaim("still here").await.unwrap();
    leading.events();
    office.resign().await.unwrap();
    lead(&mut waiting).await;
}

#[tokio::test]
async fn a_connection_of_ones_own_is_used_with_tokens_that_count() {
    let cluster = guarded().await;
    let options = EtcdOptions::new().user("root", "secret");
    let store = EtcdStore::over_channel(channel(&cluster.endpoints()[0]), &options).unwrap();
    let session = store.open_session(TTL * 10).await.unwrap();
    let election = name("own-client");
    let standing = session.enlist(&election, &entry(1)).await.unwrap();

    a_token_expires(&cluster).await;

    let standing = session.standing(&held(&standing), None).await.unwrap();
    assert!(matches!(standing.place, Place::Leading(_)));
    // So is the watch stream.
    let wake = session.watch(&Watched::new(held(&standing), standing.office.version), standing.cursor);
    session.withdraw(&held(&standing), None).await.unwrap();
    within(wake).await.unwrap();
}

#[tokio::test]
async fn who_may_not_is_told_so() {
    let cluster = guarded().await;
    let denied = |answer: StoreError| matches!(answer, StoreError::Denied { .. });
    let wrong = open(&cluster, "root:wrong").line(&name("denied"), 1).await.unwrap_err();
    assert!(denied(wrong.clone()), "{wrong:?}");
    let nobody = EtcdStore::connect(&cluster.endpoints(), &EtcdOptions::new()).unwrap();
    let nobody = nobody.line(&name("denied"), 1).await.unwrap_err();
    assert!(denied(nobody.clone()), "{nobody:?}");

    let reader = open(&cluster, "reader:secret");
    assert!(reader.line(&name("denied"), 1).await.unwrap().entries.is_empty());
    let session = reader.open_session(TTL).await.unwrap();
    let refused = session.enlist(&name("denied"), &entry(1)).await.unwrap_err();
    assert!(denied(refused.clone()), "{refused:?}");
}

/// A token is asked for first, and not where nothing else would be.
#[tokio::test]
async fn an_endpoint_that_is_down_is_passed_over_by_a_user_too() {
    let cluster = guarded().await;
    // Nobody listens there, and nobody can without being root.
    let endpoints = ["127.0.0.1:1", &cluster.endpoints()[0]];
    // Half of them begin with the one that is down.
    for _ in 0..20 {
        let store = EtcdStore::connect(&endpoints, &EtcdOptions::new().user("root", "secret")).unwrap();
        store.line(&name("down"), 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_user_where_nobody_is_asked_for_one_is_told_so() {
    let store = open(crate::harness::shared().await, "root:secret");
    let refused = store.line(&name("no-auth"), 1).await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
}

#[tokio::test]
async fn tls_with_a_ca_of_ones_own_and_a_certificate_on_both_sides() {
    let certificates = Certificates::new("IP:127.0.0.1,DNS:etcd.test");
    let at = |file: &str| certificates.file(file);
    let cluster = EtcdCluster::start_with(
        1,
        &[
            "--listen-client-urls=https://127.0.0.1:{client}",
            "--advertise-client-urls=https://127.0.0.1:{client}",
            &format!("--cert-file={}", at("server.pem")),
            &format!("--key-file={}", at("server.key")),
            &format!("--trusted-ca-file={}", at("ca.pem")),
            "--client-cert-auth",
        ],
    )
    .await;
    let endpoint = &cluster.endpoints()[0];
    let url = format!("etcds://{endpoint}?ca={}&cert={}&key={}", at("ca.pem"), at("client.pem"), at("client.key"));
    let url = format!("{url}&server-name=etcd.test");
    let ours = async || incumbent::Client::builder().ttl(TTL).connect(&url).await;
    until("the server is up", async || ours().await.is_ok()).await;
    let election = ours().await.unwrap().election("tls").unwrap();
    let mut candidacy = election.candidate("a").stand().await.unwrap();
    lead(&mut candidacy).await.resign().await.unwrap();

    let bare = EtcdStore::from_url(&format!("etcds://{endpoint}?ca={}", at("ca.pem"))).unwrap();
    let refused = bare.line(election.name(), 1).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "no certificate of ours: {refused:?}");
}
