//! Many sessions that do everything at once, with a TTL that is often missed, while connections are
//! killed: tokens are drawn once and grow, nobody appears ahead of another, and what is gone stays
//! gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_store::{ElectionName, Held, Incarnation, Place, Session, Store, StoreError, Token};
use incumbent_testkit::conformance::unique;
use tokio::time::Instant;

use crate::harness::{entry, held, name, shared, store};

const SESSIONS: usize = 6;
const TTL: Duration = Duration::from_millis(600);
const LASTS: Duration = Duration::from_secs(8);

/// What all of them have been told.
#[derive(Default)]
struct Told {
    /// Who got which token in which election.
    tokens: BTreeMap<(ElectionName, Token), Incarnation>,
    /// The highest token that has led.
    leader: BTreeMap<ElectionName, Token>,
    /// What somebody has been told is gone.
    gone: BTreeSet<(ElectionName, Token)>,
}

impl Told {
    fn enlisted(&mut self, held: &Held) {
        let known = self.tokens.insert((held.election.clone(), held.token), held.incarnation);
        assert!(known.is_none_or(|known| known == held.incarnation), "{held:?} has the token of {known:?}");
    }

    /// An answer that left the server while a lower token led can arrive after a higher one's; so
    /// those who ask begin with what had led when they asked.
    fn leads(&mut self, held: &Held, asked_when: Option<Token>) {
        let key = (held.election.clone(), held.token);
        assert!(!self.gone.contains(&key), "{held:?} leads, and was gone");
        assert!(asked_when.is_none_or(|led| led <= held.token), "{held:?} leads after {asked_when:?} had");
        let led = self.leader.entry(held.election.clone()).or_insert(held.token);
        *led = (*led).max(held.token);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_do_everything_at_once_agree_on_one_line() {
    let server = shared().await;
    let elections = Arc::new([name("history-a"), name("history-b")]);
    let told = Arc::new(Mutex::new(Told::default()));
    let until = Instant::now() + LASTS;
    let url = format!("{}?schema=histories&application_name=histories", server.url());
    let tasks = (0..SESSIONS).map(|_| tokio::spawn(play(store(&url), elections.clone(), told.clone(), until)));
    let tasks = Vec::from_iter(tasks);
    let killing = tokio::task::spawn_blocking(move || {
        while Instant::now() < until {
            server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                 WHERE application_name = 'histories' ORDER BY random() LIMIT 1",
            );
            // How often a connection is lost. Nothing is waited for.
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    killing.await.unwrap();
    {
        let told = told.lock().unwrap();
        assert!(told.leader.len() == 2 && told.tokens.len() > 20, "little has happened: {}", told.tokens.len());
    }
    // Nothing is stuck: a candidate that comes now leads soon.
    let last = store(&url);
    for election in elections.iter() {
        let session = last.open_session(TTL * 20).await.unwrap();
        let stands = held(&session.enlist(election, &entry(u128::from(unique()))).await.unwrap());
        crate::harness::until("the last one leads", async || {
            matches!(session.standing(&stands, None).await.unwrap().place, Place::Leading(_))
        })
        .await;
    }
}

/// One session after the other: each does this and that until it is gone.
async fn play(
    store: incumbent_postgres::PostgresStore,
    elections: Arc<[ElectionName; 2]>,
    told: Arc<Mutex<Told>>,
    until: Instant,
) {
    while Instant::now() < until {
        let Ok(session) = store.open_session(TTL).await else { continue };
        let mut stands: Vec<Held> = Vec::new();
        while Instant::now() < until {
            match step(&*session, &elections, &mut stands, &told).await {
                Ok(()) => {}
                Err(StoreError::SessionGone) => break,
                Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

async fn step(
    session: &dyn Session,
    elections: &[ElectionName; 2],
    stands: &mut Vec<Held>,
    told: &Mutex<Told>,
) -> Result<(), StoreError> {
    let choice = unique();
    let election = &elections[(choice % 2) as usize];
    let own = stands.iter().position(|held| held.election == *election);
    let led = told.lock().unwrap().leader.get(election).copied();
    match (choice / 2 % 10, own) {
        // A session that stands still, now and then for longer than its TTL.
        (0, _) => tokio::time::sleep(TTL.mul_f64((choice % 100) as f64 / 70.0)).await,
        (1..=3, _) => {
            let renewal = session.renew(stands).await?;
            stands.retain(|held| !renewal.gone.contains(held));
            for stray in renewal.stray {
                session.withdraw(&stray, None).await?;
            }
        }
        (_, None) => {
            let standing = match session.enlist(election, &entry(u128::from(unique()))).await {
                Err(StoreError::AlreadyInLine(held)) => return session.withdraw(&held, None).await.map(drop),
                standing => standing?,
            };
            let held = held(&standing);
            let mut told = told.lock().unwrap();
            told.enlisted(&held);
            if matches!(standing.place, Place::Leading(_)) {
                told.leads(&held, led);
            }
            stands.push(held);
        }
        (4, Some(own)) => {
            let held = stands[own].clone();
            session.withdraw(&held, None).await?;
            stands.remove(own);
            told.lock().unwrap().gone.insert((held.election, held.token));
        }
        (_, Some(own)) => {
            let held = stands[own].clone();
            match session.standing(&held, None).await?.place {
                Place::Leading(leads) => told.lock().unwrap().leads(&leads, led),
                Place::Gone => {
                    stands.remove(own);
                }
                Place::Behind { ahead, .. } => assert!(ahead.token < held.token, "{ahead:?} ahead of {held:?}"),
            }
        }
    }
    Ok(())
}
