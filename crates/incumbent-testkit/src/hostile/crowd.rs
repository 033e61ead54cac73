//! A line of ten thousand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use incumbent::{Client, Observation};
use incumbent_core::MAX_LINE;
use incumbent_store::{Cas, ElectionName, Held, Place, Session, Standing, Store, Token, Watched};

use super::{Fixture, Host, Outcome};
use crate::candidates::{entry, held, lead};
use crate::conformance::unique;
use crate::patience::within;

/// The sessions of a crowd, and of those who stand in it, last longer than the test.
pub const FOR_LONG: Duration = Duration::from_secs(250);
/// Those in line who are not of the crowd: leader and heir, a pair in the middle, one at the end.
const OTHERS: usize = 5;

/// Candidates stand in a line of ten thousand as in any other: it is read whole, one who leaves
/// wakes the one behind and nobody else, and the office is observed and handed on.
/// [`Case::TenThousand`](super::Case::TenThousand).
pub async fn ten_thousand_stand_in_one_line<H: Host>(fixture: Fixture<H>) -> Outcome {
    fixture.needs_line().await?;
    let addresses = fixture.host.addresses();
    let (store, name) = (fixture.store(&addresses)?, fixture.election.clone());
    let election = async || {
        let store = fixture.store(&addresses).unwrap();
        let client = Client::builder().ttl(FOR_LONG / 5).with_store(store).await.unwrap();
        client.election(name.as_str()).unwrap()
    };
    let fill = async |count| fixture.host.crowd(&name, count).await;
    let mut leader = election().await.candidate("leader").stand().await.unwrap();
    let office = lead(&mut leader).await;
    let mut heir = election().await.candidate("heir").stand().await.unwrap();
    let crowd = MAX_LINE - OTHERS;
    fill(crowd / 2).await;
    let first = Member::enlist(&store, &name, 1).await;
    let second = Member::enlist(&store, &name, 2).await;
    fill(crowd - crowd / 2).await;
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
    Ok(())
}

/// So many stand in line, each with a session of its own; and stay while somebody has these.
pub async fn stand_in_line(store: &dyn Store, election: &ElectionName, count: usize) -> Vec<Arc<dyn Session>> {
    /// At the same time.
    const AT_ONCE: usize = 100;
    let numbers: Vec<_> = (0..count).map(|_| u128::from(unique()) << 64 | u128::from(unique())).collect();
    let stand = async |number: u128| {
        let session = store.open_session(FOR_LONG).await.expect("a session");
        session.enlist(election, &entry(number)).await.expect("a place in line");
        session
    };
    let mut sessions = Vec::new();
    for numbers in numbers.chunks(AT_ONCE) {
        sessions.extend(join_all(numbers.iter().map(|number| stand(*number))).await);
    }
    sessions
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
