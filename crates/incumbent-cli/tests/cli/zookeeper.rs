//! The command on a ZooKeeper server.

use std::time::Duration;

use incumbent_testkit::servers::ZooKeeperEnsemble;

use crate::host::{Host, on};

#[tokio::test]
async fn a_ttl_that_the_servers_cut_short_is_explained_and_led_with() {
    let tick = Duration::from_secs(2);
    // The last line counts.
    let server = ZooKeeperEnsemble::builder().tick(tick).line("maxSessionTimeout=40000").start(1).await;
    let (host, url) = (Host::new(), server.url());
    let on_zookeeper = |args: &[&str]| on(&url, args);

    let explained = host.ok(on_zookeeper(&["explain", "--ttl", "60s", "--json"])).json();
    assert_eq!((&explained["ttl_ms"], &explained["grace_ms"]), (&40_000.into(), &8_000.into()), "{explained}");
    // 40 s, less 0.1 % drift, less a fiftieth of what was asked for, less a tick.
    assert_eq!(explained["believes_ms"], 40_000 - 40 - 1_200 - 2_000, "{explained}");
    let text = host.ok(on_zookeeper(&["explain", "--ttl", "60s"])).out;
    assert!(text.contains("A TTL of 60 s is too long for this store: it grants 40 s"), "{text}");
    // A tick comes off the deadline, and so it is asked for on top.
    assert_eq!(host.ok(on_zookeeper(&["explain", "--json"])).json()["ttl_ms"], 17_000);

    let said = host.ok(on_zookeeper(&["run", "--ttl", "60s", "jobs/x", "--", "echo", "led"]));
    assert_eq!(said.out, "led\n");
    assert!(said.err.contains("grants a TTL of 40s, and not 60s: work has 8s to stop"), "{said:?}");

    // A grace that somebody asked for is not cut short.
    for args in [&["explain"][..], &["run", "jobs/x"]] {
        let verb = [args, &["--ttl", "60s", "--grace", "12s"], if args.len() > 1 { &["--", "true"] } else { &[] }];
        let said = host.run(on_zookeeper(&verb.concat()));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("a TTL of 60s was asked for, and 40s granted"), "{said:?}");
    }
}
