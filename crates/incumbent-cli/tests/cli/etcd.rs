//! The command on an etcd server, beside etcd's own.

use incumbent_testkit::servers::EtcdCluster;

use crate::host::{Host, Process, eventually, on};

#[tokio::test]
async fn an_election_on_etcd_is_the_one_that_etcdctl_holds() {
    let cluster = EtcdCluster::start(1).await;
    let (host, url) = (Host::new(), cluster.url());
    let on_etcd = |args: &[&str]| on(&url, args);

    let said = host.ok(on_etcd(&["run", "jobs/x", "--", "sh", "-c", "echo token $INCUMBENT_TOKEN"]));
    assert!(said.out.starts_with("token "), "{said:?}");

    let mut etcdctl = cluster.etcdctl();
    etcdctl.args(["elect", "jobs/x", "theirs"]);
    let theirs = Process::start(etcdctl);
    eventually("etcdctl leads", || {
        let status = host.run(on_etcd(&["status", "--json", "jobs/x"])).json();
        (status["leader"]["value"] == "theirs").then_some(())
    });
    let said = host.run(on_etcd(&["run", "--try", "jobs/x", "--", "echo", "never"]));
    assert_eq!((said.code, said.out.as_str()), (Some(122), ""), "{said:?}");
    drop(theirs);
}
