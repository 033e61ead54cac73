//! Many sessions that do everything at once, directly and through a pooler, with a TTL that is
//! often missed, while connections are killed: tokens are drawn once and grow, nobody appears ahead
//! of another, and what is gone stays gone. Variants of the functions that get it wrong are caught.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_postgres::PostgresStore;
use incumbent_store::{
    Cas, ElectionName, Held, Incarnation, Place, Publication, Session, Store, StoreError, Token, Version,
};
use incumbent_testkit::conformance::unique;
use incumbent_testkit::servers::PgBouncer;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::harness::{entry, held, make, name, raw, shared, store, until_blocked, within};

const SESSIONS: usize = 6;
const TTL: Duration = Duration::from_millis(600);
const LASTS: Duration = Duration::from_secs(8);

/// A renewal that is committed late, now and then: its session has been seen to have expired.
const LATE_RENEWALS: &str = "CREATE FUNCTION {schema}.late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
        PERFORM pg_sleep(CASE WHEN random() < 0.2 THEN 0.3 ELSE 0 END);
        RETURN NULL;
    END$$;
    CREATE TRIGGER late AFTER UPDATE ON {schema}.session FOR EACH ROW EXECUTE FUNCTION {schema}.late()";

const LATE_RENEWALS_PAUSE: &str = "PERFORM pg_sleep(CASE WHEN random() < 0.2 THEN 0.3 ELSE 0 END)";

/// What all of them have been told.
#[derive(Default)]
struct Told {
    /// Who got which token in which election.
    tokens: BTreeMap<(ElectionName, Token), Incarnation>,
    /// The highest token that has led.
    leader: BTreeMap<ElectionName, Token>,
    /// What somebody has been told is gone.
    gone: BTreeSet<(ElectionName, Token)>,
    /// How many have published, and been evicted.
    published: usize,
    evicted: usize,
}

/// What was known when somebody asked: an answer that left the server before another one did can
/// arrive after it.
#[derive(Clone)]
struct Known {
    led: Option<Token>,
    gone: BTreeSet<(ElectionName, Token)>,
}

impl Told {
    fn known(&self, election: &ElectionName) -> Known {
        Known { led: self.leader.get(election).copied(), gone: self.gone.clone() }
    }

    fn enlisted(&mut self, held: &Held) -> Result<(), Wrong> {
        let known = self.tokens.insert((held.election.clone(), held.token), held.incarnation);
        sure(known.is_none_or(|known| known == held.incarnation), || format!("{held:?} has the token of {known:?}"))
    }

    fn leads(&mut self, held: &Held, known: &Known) -> Result<(), Wrong> {
        is_there(&held.election, held.token, known)?;
        let led = self.leader.entry(held.election.clone()).or_insert(held.token);
        *led = (*led).max(held.token);
        Ok(())
    }

    fn gone(&mut self, held: impl IntoIterator<Item = Held>) {
        self.gone.extend(held.into_iter().map(|held| (held.election, held.token)));
    }
}

/// Nothing that was gone is there, nor anything older than what has led.
fn is_there(election: &ElectionName, token: Token, known: &Known) -> Result<(), Wrong> {
    sure(!known.gone.contains(&(election.clone(), token)), || format!("{token} is in {election}, and was gone"))?;
    let led = known.led;
    sure(led.is_none_or(|led| led <= token), || format!("{token} is in {election} after {led:?} has led"))
}

fn sure(is_so: bool, else_what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if is_so { Ok(()) } else { Err(Wrong::Answer(else_what())) }
}

/// Why a step did not go through.
enum Wrong {
    /// As is to be expected.
    Call(StoreError),
    /// It was told what cannot be.
    Answer(String),
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Wrong {
        Wrong::Call(error)
    }
}

/// What the sessions of one history have in common.
#[derive(Clone)]
struct History {
    urls: [String; 2],
    elections: Arc<[ElectionName; 2]>,
    told: Arc<Mutex<Told>>,
}

impl History {
    /// In a schema of its own, which is then changed as `how` says.
    async fn new(schema: &str, how: &str) -> (History, PgBouncer) {
        let server = shared().await;
        let pooler = PgBouncer::start(server, 4).await;
        let urls = [server.url(), pooler.url()].map(|url| format!("{url}?schema={schema}&application_name={schema}"));
        make(&store(&urls[0])).await;
        server.sql(&how.replace("{schema}", schema));
        let elections = Arc::new([name("history-a"), name("history-b")]);
        (History { urls, elections, told: Arc::default() }, pooler)
    }

    fn known(&self, election: &ElectionName) -> Known {
        self.told.lock().unwrap().known(election)
    }

    /// What was wrong first, if anything was.
    async fn play(&self, lasts: Duration) -> Result<(), String> {
        let until = Instant::now() + lasts;
        let mut players = JoinSet::new();
        for number in 0..SESSIONS {
            let player = Player::new(self, number, until);
            players.spawn(player.play());
        }
        while let Some(ended) = players.join_next().await {
            ended.unwrap()?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_do_everything_at_once_agree_on_one_line() {
    let (history, _pooler) = History::new("histories", LATE_RENEWALS).await;
    let until = Instant::now() + LASTS;
    let server = shared().await;
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
    let played = history.play(LASTS).await;
    killing.await.unwrap();
    assert_eq!(played, Ok(()));
    {
        let told = history.told.lock().unwrap();
        let (enlisted, gone) = (told.tokens.len(), told.gone.len());
        let happened = [told.leader.len() - 1, enlisted / 20, gone / 20, told.published, told.evicted];
        assert!(!happened.contains(&0), "little has happened: {happened:?}");
    }
    // Nothing is stuck: a candidate that comes now leads soon.
    let last = store(&history.urls[0]);
    for election in history.elections.iter() {
        let session = last.open_session(TTL * 100).await.unwrap();
        let stands = held(&session.enlist(election, &entry(u128::from(unique()))).await.unwrap());
        crate::harness::until("the last one leads", async || {
            matches!(session.standing(&stands, None).await.unwrap().place, Place::Leading(_))
        })
        .await;
    }
}

/// A schema in which one of two waits at a gate where it pauses otherwise.
fn held_back_at(schema: &str, pause: &str, gate: &str) -> String {
    let waits = format!(
        "IF current_setting('application_name') = 'held_back' THEN
            PERFORM set_config('lock_timeout', '0', true);
            PERFORM pg_advisory_xact_lock({gate});
        END IF"
    );
    let held_back = schema.replace(pause, &waits);
    assert_ne!(held_back, schema, "the case is no case: nobody is held back");
    held_back
}

/// As it is written at first. Whoever looks sees that the leader has expired, while its renewal is
/// being committed: that comes about by chance now and then, and here the renewal is held back
/// until another leads.
#[tokio::test]
async fn leading_past_the_dead_without_removing_them_is_caught() {
    let server = shared().await;
    make(&store(&format!("{}?schema=histories_past_the_dead", server.url()))).await;
    let look = server.sql("SELECT pg_get_functiondef('histories_past_the_dead.look_1'::regproc)");
    let dead_ahead = "WHERE a.election = e AND a.token < t ORDER BY";
    assert!(look.contains(dead_ahead), "the case is no case: {look}");
    let past =
        look.replace(dead_ahead, "WHERE a.election = e AND a.token < t AND l.expires_at > clock_timestamp() ORDER BY");
    let keeps = "CREATE OR REPLACE FUNCTION {schema}.remove_dead_ahead_1(e bytea, t bigint) RETURNS boolean \
        LANGUAGE sql VOLATILE AS 'SELECT false'";
    let gate = "hashtext('histories_past_the_dead'), 1";
    let held_back = held_back_at(LATE_RENEWALS, LATE_RENEWALS_PAUSE, gate);
    let (history, _pooler) = History::new("histories_past_the_dead", &format!("{held_back};{past};{keeps}")).await;
    let election = history.elections[0].clone();
    let [mut early, mut late] = [0, 1].map(|number| Player::new(&history, number, Instant::now()));
    early.store =
        store(&history.urls[0].replace("application_name=histories_past_the_dead", "application_name=held_back"));
    let late_session = late.store.open_session(TTL * 1_000).await.unwrap();
    let early_session = early.store.open_session(TTL * 1_000).await.unwrap();
    assert!(early.enlist(&*early_session, &election, &history.known(&election)).await.is_ok());

    let gates = raw(&server.url()).await;
    gates.batch_execute(&format!("SELECT pg_advisory_lock({gate})")).await.unwrap();
    // As if its last renewal had been long ago. Long enough to begin the next one in, short enough
    // to wait for.
    server.sql(
        "UPDATE histories_past_the_dead.session SET expires_at = clock_timestamp() + interval '4 s' \
         WHERE id = (SELECT session FROM histories_past_the_dead.entry)",
    );
    let renewing = tokio::spawn({
        let session = early_session.clone();
        async move { session.renew(&[]).await.map(drop) }
    });
    until_blocked(server, "histories_past_the_dead%renew_1").await;
    let living = "SELECT count(*) FROM histories_past_the_dead.living_1";
    crate::harness::until("it is seen to have expired", async || server.sql(living) == "0").await;
    assert!(within(late.enlist(&*late_session, &election, &history.known(&election))).await.is_ok());
    assert!(history.known(&election).led > early.stands.first().map(|(held, _)| held.token), "the other one leads");
    gates.batch_execute(&format!("SELECT pg_advisory_unlock({gate})")).await.unwrap();
    within(renewing).await.unwrap().expect("it is renewed");
    let Err(Wrong::Answer(caught)) = within(early.ask(&*early_session, 0, &history.known(&election))).await else {
        panic!("it is not caught");
    };
    assert!(caught.contains("has led"), "{caught}");
}

/// Two enlist at once. A random history in which sessions expire comes to that now and then, and on
/// a busy machine hardly ever: here the one that has drawn its token is held back until the other
/// one leads.
#[tokio::test]
async fn a_token_that_is_drawn_before_the_wait_for_the_election_is_caught() {
    let server = shared().await;
    let gate = "hashtext('histories_early_token'), 1";
    let held_back = held_back_at(EARLY_NUMBER, EARLY_NUMBERS_PAUSE, gate);
    let (history, _pooler) = History::new("histories_early_token", &held_back).await;
    let election = history.elections[0].clone();
    let [mut early, mut late] = [0, 1].map(|number| Player::new(&history, number, Instant::now()));
    early.store =
        store(&history.urls[0].replace("application_name=histories_early_token", "application_name=held_back"));
    let early_session = early.store.open_session(TTL * 1_000).await.unwrap();
    let late_session = late.store.open_session(TTL * 1_000).await.unwrap();

    let gates = raw(&server.url()).await;
    gates.batch_execute(&format!("SELECT pg_advisory_lock({gate})")).await.unwrap();
    let known = history.known(&election);
    let enlisting = tokio::spawn({
        let (election, known) = (election.clone(), known.clone());
        async move {
            let enlisted = early.enlist(&*early_session, &election, &known).await;
            (early, early_session, enlisted)
        }
    });
    until_blocked(server, "histories_early_token%enlist_3").await;
    assert!(within(late.enlist(&*late_session, &election, &known)).await.is_ok());
    gates.batch_execute(&format!("SELECT pg_advisory_unlock({gate})")).await.unwrap();
    let (mut early, early_session, enlisted) = within(enlisting).await.unwrap();
    assert!(enlisted.is_ok(), "when it began nobody had led");
    let Err(Wrong::Answer(caught)) = within(early.ask(&*early_session, 0, &history.known(&election))).await else {
        panic!("it is not caught");
    };
    assert!(caught.contains("has led"), "{caught}");
}

/// The number of a step, drawn before its lock is had.
pub(crate) const EARLY_NUMBER: &str = "
    CREATE OR REPLACE FUNCTION {schema}.draw_1(e bytea) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
    DECLARE
        drawn bigint := nextval('{schema}.number');
    BEGIN
        PERFORM pg_sleep(random() * 0.005);
        INSERT INTO {schema}.election (name) VALUES (e) ON CONFLICT DO NOTHING;
        PERFORM FROM {schema}.election WHERE name = e FOR NO KEY UPDATE;
        UPDATE {schema}.election SET counter = drawn WHERE name = e;
        RETURN drawn;
    END
    $$";
const EARLY_NUMBERS_PAUSE: &str = "PERFORM pg_sleep(random() * 0.005)";

/// One session after the other: each does this and that until it is gone.
struct Player {
    history: History,
    store: PostgresStore,
    until: Instant,
    stands: Vec<(Held, Version)>,
}

impl Player {
    fn new(history: &History, number: usize, until: Instant) -> Player {
        let store = store(&history.urls[number % history.urls.len()]);
        Player { history: history.clone(), store, until, stands: Vec::new() }
    }

    async fn play(mut self) -> Result<(), String> {
        while Instant::now() < self.until {
            let Ok(session) = self.store.open_session(TTL).await else { continue };
            while Instant::now() < self.until {
                match self.step(&*session).await {
                    Ok(true) => {}
                    Ok(false) | Err(Wrong::Call(StoreError::SessionGone)) => break,
                    Err(Wrong::Call(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. })) => {}
                    Err(Wrong::Call(error)) => panic!("{error:?}"),
                    Err(Wrong::Answer(what)) => return Err(what),
                }
            }
            let gone = self.stands.drain(..).map(|(held, _)| held);
            // Unless its time is over and it has not asked: then nobody knows.
            if Instant::now() < self.until {
                self.history.told.lock().unwrap().gone(gone);
            }
        }
        Ok(())
    }

    /// Whether the session goes on.
    async fn step(&mut self, session: &dyn Session) -> Result<bool, Wrong> {
        let choice = unique();
        let election = self.history.elections[(choice % 2) as usize].clone();
        let own = self.stands.iter().position(|(held, _)| held.election == election);
        let known = self.history.known(&election);
        match (choice / 2 % 40, own) {
            // A session that stands still, now and then for longer than its TTL.
            (0..4, _) => tokio::time::sleep(TTL.mul_f64((choice % 100) as f64 / 70.0)).await,
            (4..14, _) => self.renew(session).await?,
            (14..16, _) => self.evict(&election, &known).await?,
            (16, _) => {
                session.close().await?;
                return Ok(false);
            }
            (_, None) => self.enlist(session, &election, &known).await?,
            (17..20, Some(own)) => {
                let (held, _) = self.stands[own].clone();
                session.withdraw(&held, None).await?;
                self.stands.remove(own);
                self.history.told.lock().unwrap().gone([held]);
            }
            (20..24, Some(own)) => self.publish(session, own, &known).await?,
            (_, Some(own)) => self.ask(session, own, &known).await?,
        }
        Ok(true)
    }

    async fn renew(&mut self, session: &dyn Session) -> Result<(), Wrong> {
        let named = Vec::from_iter(self.stands.iter().map(|(held, _)| held.clone()));
        let renewal = session.renew(&named).await?;
        self.stands.retain(|(held, _)| !renewal.gone.contains(held));
        self.history.told.lock().unwrap().gone(renewal.gone);
        for stray in renewal.stray {
            session.withdraw(&stray, None).await?;
        }
        Ok(())
    }

    /// The first in line, whoever that is. All that is in line is to be there.
    async fn evict(&mut self, election: &ElectionName, known: &Known) -> Result<(), Wrong> {
        let line = self.store.line(election, 9).await?.entries;
        for entry in &line {
            is_there(election, entry.token, known)?;
        }
        let Some(first) = line.first() else { return Ok(()) };
        if self.store.evict(election, first).await? == Cas::Done {
            let mut told = self.history.told.lock().unwrap();
            told.gone.insert((election.clone(), first.token));
            told.evicted += 1;
        }
        Ok(())
    }

    async fn enlist(&mut self, session: &dyn Session, election: &ElectionName, known: &Known) -> Result<(), Wrong> {
        let standing = match session.enlist(election, &entry(u128::from(unique()))).await {
            Err(StoreError::AlreadyInLine(held)) => {
                session.withdraw(&held, None).await?;
                return Ok(());
            }
            standing => standing?,
        };
        let held = held(&standing);
        let mut told = self.history.told.lock().unwrap();
        told.enlisted(&held)?;
        if matches!(standing.place, Place::Leading(_)) {
            told.leads(&held, known)?;
        }
        self.stands.push((held, standing.published));
        Ok(())
    }

    async fn publish(&mut self, session: &dyn Session, own: usize, known: &Known) -> Result<(), Wrong> {
        let (held, was) = self.stands[own].clone();
        let Some(version) = session.publish(&held, was, &Publication::new("here")).await? else { return Ok(()) };
        sure(version > was, || format!("{version:?} comes after {was:?}"))?;
        is_there(&held.election, held.token, known)?;
        self.stands[own].1 = version;
        self.history.told.lock().unwrap().published += 1;
        Ok(())
    }

    async fn ask(&mut self, session: &dyn Session, own: usize, known: &Known) -> Result<(), Wrong> {
        let (held, _) = self.stands[own].clone();
        let standing = session.standing(&held, None).await?;
        match standing.place {
            Place::Leading(leads) => {
                self.stands[own].1 = standing.published;
                self.history.told.lock().unwrap().leads(&leads, known)
            }
            Place::Gone => {
                self.stands.remove(own);
                self.history.told.lock().unwrap().gone([held]);
                Ok(())
            }
            Place::Behind { ahead, .. } => {
                sure(ahead.token < held.token, || format!("{ahead:?} ahead of {held:?}"))?;
                is_there(&held.election, held.token, known)
            }
        }
    }
}
