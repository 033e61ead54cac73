//! Long lines.

use std::collections::BTreeSet;
use std::time::Duration;

use incumbent::OperatorError;
use incumbent_etcd::rpc::RequestOp;
use incumbent_store::{ElectionName, Place, Store};

use crate::harness::{TTL, client, entry, grant, held, lead, lease_of, name, raw, shared, store, within, write};

/// As many as servers take in one transaction, or nearly: made with one revision.
const AT_ONCE: usize = 120;

/// The longest line that is promised.
const LINE: usize = 10_000;

/// Entries that look like Go's, many at once.
async fn enlist_crowd(election: &ElectionName, count: usize) {
    let client = raw(&shared().await.endpoints());
    let lease = grant(&client).await;
    let numbers: Vec<_> = (0..count).collect();
    for numbers in numbers.chunks(AT_ONCE) {
        let put = |number: &usize| RequestOp::put(format!("{election}/{number:x}"), "value", lease);
        write(&client, numbers.iter().map(put).collect()).await;
    }
}

#[tokio::test]
async fn a_line_of_thousands_is_read_whole_and_once() {
    let (store, election) = (store(shared().await), name("thousands"));
    let count = LINE;
    enlist_crowd(&election, count).await;
    let line = store.line(&election, 2 * count).await.unwrap();
    assert!(!line.more);
    let ids: BTreeSet<_> = line.entries.iter().map(|entry| &entry.id).collect();
    assert_eq!((line.entries.len(), ids.len()), (count, count));
    assert!(line.entries.is_sorted_by_key(|entry| entry.token));
    for limit in [1, 999, 1000, 1001, count - 1] {
        let cut = store.line(&election, limit).await.unwrap();
        assert!(cut.more && cut.entries.len() == limit && cut.entries[..] == line.entries[..limit], "{limit}");
    }
    let session = store.open_session(TTL * 5).await.unwrap();
    let standing = session.enlist(&election, &entry(1)).await.unwrap();
    let Place::Behind { ahead, .. } = &standing.place else { panic!("{standing:?}") };
    assert_eq!(ahead.token, line.entries[count - 1].token);
    // Among those that were created at once there is no order.
    assert!(session.standing(&held(&standing), None).await.is_ok() && lease_of(&held(&standing)) != 0);
}

#[tokio::test]
async fn a_transfer_in_a_line_of_thousands_costs_nobody_the_office() {
    let (store, election) = (store(shared().await), name("thousands-behind"));
    let ours = client(&store).await.election(election.as_str()).unwrap();
    let mut candidacy = ours.candidate("leader").stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    enlist_crowd(&election, LINE).await;
    let theirs = store.open_session(TTL * 20).await.unwrap();
    theirs.enlist(&election, &entry(1)).await.unwrap();

    let refused = within(ours.operator().transfer("node-1", Duration::from_secs(60))).await.unwrap_err();

    assert!(matches!(refused, OperatorError::Refused(_)), "{refused:?}");
    office.term().check().unwrap();
}
