//! A line of ten thousand, on a store that a test can fill quickly.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{Client, Observation};
use incumbent_core::MAX_LINE;
use incumbent_store::{Cas, ElectionName, Held, Place, Session, Standing, Store, Token, Watched};

use crate::candidates::{entry, held, lead};
use crate::conformance::Harness;
use crate::patience::within;

/// The sessions of a crowd, and of those who stand in it, last longer than the test.
pub const FOR_LONG: Duration = Duration::from_secs(250);
/// Those in line who are not of the crowd: leader and heir, a pair in the middle, one at the end.
const OTHERS: usize = 5;

/// Candidates stand in a line of ten thousand as in any other: it is read whole, one who leaves
/// wakes the one behind and nobody else, and the office is observed and handed on. `fill` puts so
/// many more at the end of the line.
pub async fn a_line_of_ten_thousand<H: Harness>(harness: &H, mut fill: impl AsyncFnMut(&ElectionName, usize)) {
    let (store, name) = (harness.store().await, harness.election());
    let election = async || {
        let client = Client::builder().ttl(FOR_LONG / 5).with_store(harness.store().await).await.unwrap();
        client.election(name.as_str()).unwrap()
    };
    let mut leader = election().await.candidate("leader").stand().await.unwrap();
    let office = lead(&mut leader).await;
    let mut heir = election().await.candidate("heir").stand().await.unwrap();
    let crowd = MAX_LINE - OTHERS;
    fill(&name, crowd / 2).await;
    let first = Member::enlist(&store, &name, 1).await;
    let second = Member::enlist(&store, &name, 2).await;
    fill(&name, crowd - crowd / 2).await;
    let last = Member::enlist(&store, &name, 3).await;

    let line = within(store.line(&name, MAX_LINE)).await.unwrap();
    let ids: BTreeSet<_> = line.entries.iter().map(|entry| &entry.id).collect();
    assert_eq!((line.entries.len(), ids.len(), line.more), (MAX_LINE, MAX_LINE, false));
    assert!(line.entries.is_sorted_by_key(|entry| entry.token));
    let few = within(store.line(&name, 10)).await.unwrap();
    let tokens = |entries: &[incumbent_store::Entry]| entries.iter().map(|entry| entry.token).collect::<Vec<_>>();
    assert_eq!((tokens(&few.entries), few.more), (tokens(&line.entries[..10]), true));
    let place = |member: &Member| line.entries.iter().position(|entry| entry.is(&member.held)).unwrap();
    let right_ahead = |member: &Member| line.entries[place(member) - 1].token;
    assert_eq!((place(&first), place(&last)), (2 + crowd / 2, MAX_LINE - 1));
    for member in [&first, &second, &last] {
        assert_eq!(member.ahead().await.0, right_ahead(member));
    }

    let (behind, elsewhere) = (second.waits().await, last.waits().await);
    assert_eq!(within(first.session.withdraw(&first.held, None)).await.unwrap(), Cas::Done);
    within(behind).await.unwrap();
    assert_eq!(second.ahead().await.0, right_ahead(&first));
    assert!(!elsewhere.is_finished(), "one of ten thousand is woken");

    let mut observer = election().await.observe();
    let mut until_leader = async |wanted: &str| loop {
        if let Observation::Leader(leader) = within(observer.next()).await.unwrap()
            && leader.name.as_deref() == Some(wanted)
        {
            break;
        }
    };
    until_leader("leader").await;
    let operator = election().await.operator();
    let (handed_on, ()) = tokio::join!(within(operator.transfer("heir", FOR_LONG)), async {
        within(office.stopping()).await;
        drop(office);
    });
    handed_on.unwrap();
    let office = lead(&mut heir).await;
    until_leader("heir").await;
    office.check().unwrap();
}

/// A session with one entry, which needs no renewal for as long as the test lasts.
struct Member {
    session: Arc<dyn Session>,
    held: Held,
}

impl Member {
    async fn enlist(store: &Arc<dyn Store>, election: &ElectionName, number: u128) -> Member {
        let session = store.open_session(FOR_LONG).await.unwrap();
        let standing = within(session.enlist(election, &entry(number))).await.unwrap();
        Member { session, held: held(&standing) }
    }

    /// The token of the one right ahead, and what shows it.
    async fn ahead(&self) -> (Token, Standing) {
        let standing = within(self.session.standing(&self.held, None)).await.unwrap();
        match &standing.place {
            Place::Behind { ahead, .. } => (ahead.token, standing),
            other => panic!("nobody is ahead: {other:?}"),
        }
    }

    /// Waits as a candidate does.
    async fn waits(&self) -> tokio::task::JoinHandle<()> {
        let standing = self.ahead().await.1;
        let Place::Behind { ahead, .. } = standing.place else { panic!("nobody is ahead") };
        let mut watched = Watched::new(self.held.clone(), standing.office.version);
        watched.ahead = Some(ahead.id);
        let wake = self.session.watch(&watched, standing.cursor);
        tokio::spawn(async move { wake.await.unwrap() })
    }
}
