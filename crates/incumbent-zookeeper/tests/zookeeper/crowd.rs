//! A line of ten thousand.

use futures_util::future::try_join_all;
use incumbent_store::ElectionName;
use incumbent_testkit::crowd::a_line_of_ten_thousand;
use incumbent_testkit::servers::ZooKeeperEnsemble;
use incumbent_zookeeper::zookeeper_client::{Acls, CreateMode};

use crate::harness::{ZooKeeper, raw, unique};

#[tokio::test]
async fn ten_thousand_stand_in_one_line() {
    let server = ZooKeeperEnsemble::start(1).await;
    let zookeeper = ZooKeeper::on(&server);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(raw(&server.endpoints()).await);
    }
    // As the store makes them: read back one by one while they are made, they would take minutes.
    let fill = async |election: &ElectionName, count: usize| {
        let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let create = async |number: usize| {
            let path = format!("{}/{election}/incumbent-{:016x}{:016x}-", zookeeper.chroot, unique(), unique());
            clients[number % clients.len()].create(&path, b"value", &mode).await.map(|_| ())
        };
        let numbers: Vec<_> = (0..count).collect();
        for numbers in numbers.chunks(500) {
            try_join_all(numbers.iter().map(|number| create(*number))).await.unwrap();
        }
    };
    a_line_of_ten_thousand(&zookeeper, fill).await;
}
