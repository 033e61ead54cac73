//! What a host has seen before, told to those who read a store that is older.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::{Client, ElectionName, Observation, Sighting, StoreId, Token, Witness};
use incumbent_testkit::TempDir;
use incumbent_testkit::patience::until;

/// A store, the elections in it, and what a host remembers.
struct Fixture {
    store: MemoryStore,
    folder: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture { store: MemoryStore::new(Shape::FAIR), folder: TempDir::new("witness") }
    }

    fn witness(&self) -> Witness {
        Witness::new(self.folder.path())
    }

    async fn client(&self) -> Client {
        Client::builder().witness(self.witness()).with_store(self.store.clone()).await.unwrap()
    }

    async fn store_id(&self) -> StoreId {
        self.client().await.promises().await.unwrap().store
    }

    async fn seen(&self) -> Option<Sighting> {
        self.witness().seen(&self.store_id().await, &election()).unwrap()
    }
}

fn election() -> ElectionName {
    ElectionName::new("jobs").unwrap()
}

#[tokio::test]
async fn a_candidate_remembers_that_it_leads() {
    let fixture = Fixture::new();
    let mut candidacy = fixture.client().await.election("jobs").unwrap().candidate("a").stand().await.unwrap();
    let leadership = candidacy.elected().await.unwrap().expect("in office");
    let leads = fixture.client().await.election("jobs").unwrap().leader().await.unwrap().into_inner().unwrap();
    let expected = Some(Sighting::new(leadership.token().token, leads.id));
    until("it is remembered", async || fixture.seen().await == expected).await;
}

#[tokio::test]
async fn an_observer_says_first_that_the_store_is_older_than_what_was_seen() {
    let fixture = Fixture::new();
    let client = fixture.client().await;
    let _candidacy = client.election("jobs").unwrap().candidate("a").stand().await.unwrap();
    let first = async || fixture.client().await.election("jobs").unwrap().observe().next().await;
    assert!(matches!(first().await, Some(Observation::Leader(_))));
    assert_eq!(client.election("jobs").unwrap().seen_later().await.unwrap(), None);

    let later = Sighting::new(Token::new(99).unwrap(), None);
    fixture.witness().note(&fixture.store_id().await, &election(), later).unwrap();
    assert_eq!(client.election("jobs").unwrap().seen_later().await.unwrap(), Some(later));
    let mut observer = fixture.client().await.election("jobs").unwrap().observe();
    assert_eq!(observer.next().await, Some(Observation::StoreReset));
    let Some(Observation::Leader(leader)) = observer.next().await else { panic!("it is told all the same") };
    assert_eq!(leader.name.as_deref(), Some("a"));
    // Of the same name, in another store, nobody has seen anything.
    let elsewhere = Fixture { store: MemoryStore::new(Shape::FAIR), folder: fixture.folder };
    let election = elsewhere.client().await.election("jobs").unwrap();
    let _candidacy = election.candidate("b").stand().await.unwrap();
    assert!(matches!(election.observe().next().await, Some(Observation::Leader(_))));
}

#[tokio::test]
async fn an_observer_remembers_whom_it_sees() {
    let fixture = Fixture::new();
    let election = fixture.client().await.election("jobs").unwrap();
    let _candidacy = election.candidate("a").stand().await.unwrap();
    let Some(Observation::Leader(leader)) = election.observe().next().await else { panic!("somebody leads") };
    let expected = Sighting::of(&leader);
    assert!(expected.is_some_and(|seen| seen.id.is_some()));
    // It is written by a thread, for which nobody waits.
    until("it is written down", async || fixture.seen().await == expected).await;
}
