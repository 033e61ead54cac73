//! Users, passwords and certificates.

use incumbent_store::{Store, StoreError};
use incumbent_testkit::servers::{Certificates, ZooKeeperEnsemble};
use incumbent_zookeeper::zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};
use incumbent_zookeeper::{Access, ZooKeeperOptions, ZooKeeperStore};

use crate::harness::{PERSISTENT, TICK, TTL, entry, lead, name, raw, shared, stand, unique, until, within};

async fn open(options: ZooKeeperOptions) -> ZooKeeperStore {
    ZooKeeperStore::connect(&shared().await.endpoints(), &options.tick(TICK)).unwrap()
}

#[tokio::test]
async fn what_a_user_makes_is_closed_to_everybody_else() {
    let chroot = format!("/private-{:x}", unique());
    let options = || ZooKeeperOptions::new().chroot(&chroot);
    let ours = open(options().user("team", "secret")).await;
    let name = name("private");
    let mut candidacy = stand(&ours, &name, "ours").await;
    let office = lead(&mut candidacy).await;
    let colleague = open(options().user("team", "secret")).await;
    assert_eq!(colleague.line(&name, 9).await.unwrap().entries.len(), 1);
    for stranger in [open(options()).await, open(options().user("team", "wrong")).await] {
        let refused = stranger.line(&name, 9).await.unwrap_err();
        assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
        let refused = stranger.open_session(TTL).await.unwrap_err();
        assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    }
    office.term().check().unwrap();
}

/// Below a root that is shared, say with HBase or Kafka, which keep theirs to themselves.
#[tokio::test]
async fn nodes_that_may_not_be_read_hide_no_elections() {
    let root = format!("/shared-{:x}", unique());
    let ours = open(ZooKeeperOptions::new().chroot(&root)).await;
    let name = name("listed");
    let session = ours.open_session(TTL * 5).await.unwrap();
    session.enlist(&name, &entry(1)).await.unwrap();
    let others = raw(&shared().await.endpoints()).await;
    let nobodys = [Acl::new(Permission::WRITE, AuthId::anyone())];
    let closed = CreateMode::Persistent.with_acls(Acls::new(&nobodys));
    others.create(&format!("{root}/hbase"), b"", &closed).await.unwrap();
    others.list_children(&format!("{root}/hbase")).await.expect_err("it may not be read");
    assert_eq!(ours.elections(9).await.unwrap(), [name]);
}

/// Many are asked for at once.
#[tokio::test]
async fn elections_are_found_among_many_nodes() {
    let root = format!("/crowded-{:x}", unique());
    let ours = open(ZooKeeperOptions::new().chroot(&root)).await;
    let session = ours.open_session(TTL * 5).await.unwrap();
    let others = raw(&shared().await.endpoints()).await;
    let mut names = Vec::new();
    for number in 0..200 {
        let name = name(&format!("crowded-{number:03}"));
        session.enlist(&name, &entry(1)).await.unwrap();
        others.create(&format!("{root}/other-{number}"), b"", &PERSISTENT).await.unwrap();
        names.push(name);
    }
    names.sort();
    assert_eq!(ours.elections(usize::MAX).await.unwrap(), names);
}

#[tokio::test]
async fn what_is_made_above_the_chroot_is_in_nobodys_way() {
    let above = format!("/above-{:x}", unique());
    let chroot = format!("{above}/team/elections");
    let ours = open(ZooKeeperOptions::new().chroot(&chroot).user("team", "secret")).await;
    ours.open_session(TTL).await.unwrap();
    let other = raw(&shared().await.endpoints()).await;
    for path in [above.clone(), format!("{above}/team")] {
        assert_eq!(other.list_children(&path).await.unwrap().len(), 1);
        other.create(&format!("{path}/others"), b"", &PERSISTENT).await.unwrap();
        other.set_data(&path, b"", None).await.expect_err("it is not theirs");
    }
    other.list_children(&chroot).await.expect_err("this is ours alone");
    other.delete(&format!("{above}/team/others"), None).await.expect_err("nobody takes anything away from there");
}

#[tokio::test]
async fn a_user_may_leave_elections_open_to_everybody() {
    let chroot = format!("/open-{:x}", unique());
    let options = || ZooKeeperOptions::new().chroot(&chroot);
    let ours = open(options().user("team", "secret").access(Access::Open)).await;
    let name = name("open");
    let session = ours.open_session(TTL * 5).await.unwrap();
    session.enlist(&name, &entry(1)).await.unwrap();
    let other = open(options()).await;
    let behind = other.open_session(TTL * 5).await.unwrap();
    behind.enlist(&name, &entry(2)).await.unwrap();
    assert_eq!(other.line(&name, 9).await.unwrap().entries.len(), 2);
}

/// What the server needs for TLS: its own list of it is not complete.
#[cfg(feature = "tls")]
const NETTY: [&str; 7] =
    ["buffer", "codec", "common", "handler", "resolver", "transport", "transport-native-unix-common"];

#[cfg(feature = "tls")]
#[tokio::test]
async fn tls_with_a_ca_of_ones_own_and_a_certificate_on_both_sides() {
    let certificates = Certificates::new("IP:127.0.0.1,DNS:localhost");
    let at = |file: &str| certificates.file(file);
    let read = |file: &str| std::fs::read_to_string(at(file)).unwrap();
    std::fs::write(at("server-both.pem"), read("server.key") + &read("server.pem")).unwrap();
    let server = ZooKeeperEnsemble::builder()
        .line("secureClientPort={secure}")
        .line("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory")
        .line(&format!("ssl.keyStore.location={}", at("server-both.pem")))
        .line("ssl.keyStore.type=PEM")
        .line(&format!("ssl.trustStore.location={}", at("ca.pem")))
        .line("ssl.trustStore.type=PEM")
        .line("ssl.clientAuth=need")
        .java_flag(&format!(
            "-Xbootclasspath/a:{}",
            NETTY.map(|part| format!("/usr/share/java/netty-{part}.jar")).join(":")
        ))
        .start(1)
        .await;
    let endpoint = format!("127.0.0.1:{}", server.nodes()[0].secure_port());
    let url = format!("zks://{endpoint}?tick=200ms&ca={}", at("ca.pem"));
    let ours = format!("{url}&cert={}&key={}", at("client.pem"), at("client.key"));
    let client = incumbent::Client::builder().ttl(TTL).connect(&ours).await.unwrap();
    let mut candidacy = within(client.election("tls").unwrap().candidate("a").stand()).await.unwrap();
    lead(&mut candidacy).await.resign().await.unwrap();

    let bare = ZooKeeperStore::from_url(&url).unwrap();
    let refused = bare.line(&name("tls"), 1).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "no certificate of ours: {refused:?}");
    let plain = ZooKeeperStore::from_url(&format!("zk://{}", server.endpoints()[0])).unwrap();
    until("the other port is open", async || plain.ready().await.is_ok()).await;
}
