//! Candidates that are checked: who stands and who leads, on two stores.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use incumbent::health::{Fitness, Health, HealthCheck, HealthChecks, TcpCheck};
use incumbent::store::TokioClock;
use incumbent::store::memory::{MemoryStore, Shape};
use incumbent::{
    Candidacy, CandidacyEvent, Candidate, CandidateInfo, Client, Leadership, LossReason, Role, StandError,
};
use incumbent_testkit::TempDir;
use incumbent_testkit::patience::{until, within};

/// A check that says what it is told, and counts its runs.
#[derive(Clone, Debug)]
struct Told {
    says: Arc<Mutex<Health>>,
    panics: Arc<AtomicBool>,
    runs: Arc<AtomicU64>,
}

impl Told {
    fn new(says: Health) -> Told {
        Told { says: Arc::new(Mutex::new(says)), panics: Arc::default(), runs: Arc::default() }
    }

    fn say(&self, health: Health) {
        *self.says.lock().unwrap() = health;
    }
}

impl HealthCheck for Told {
    fn name(&self) -> String {
        "told".into()
    }

    fn check(&mut self, _within: Duration) -> Health {
        self.runs.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "a check that panics");
        self.says.lock().unwrap().clone()
    }
}

/// A check that hangs while it is told to.
#[derive(Clone, Default)]
struct Hanging {
    hangs: Arc<(Mutex<bool>, Condvar)>,
    /// How many runs have begun to hang.
    hung: Arc<AtomicU64>,
}

impl Hanging {
    fn hang(&self, hangs: bool) {
        *self.hangs.0.lock().unwrap() = hangs;
        self.hangs.1.notify_all();
    }
}

impl HealthCheck for Hanging {
    fn name(&self) -> String {
        "hanging".into()
    }

    fn check(&mut self, _within: Duration) -> Health {
        let hangs = self.hangs.0.lock().unwrap();
        self.hung.fetch_add(u64::from(*hangs), Ordering::SeqCst);
        drop(self.hangs.1.wait_while(hangs, |hangs| *hangs).unwrap());
        Health::fit()
    }
}

/// Often, and patient with a busy machine.
fn often(check: impl HealthCheck) -> HealthChecks {
    let (short, long) = (Duration::from_millis(10), Duration::from_secs(60));
    HealthChecks::new().check(check).every(short).timeout(long).well_for(short)
}

/// A store, and what keeps it.
struct Fixture {
    url: String,
    _directory: TempDir,
}

impl Fixture {
    fn all(name: &str) -> [Fixture; 2] {
        let directory = || TempDir::new(name);
        let file = directory();
        let url = format!("file://{}", file.path().display());
        [Fixture { url: format!("memory://{name}"), _directory: directory() }, Fixture { url, _directory: file }]
    }

    async fn candidate(&self, name: &str) -> Candidate {
        Client::connect(&self.url).await.unwrap().election("e").unwrap().candidate(name)
    }

    /// One that outlasts a machine that is very busy.
    async fn patient_candidate(&self, name: &str) -> Candidate {
        let client = Client::builder().ttl(Duration::from_secs(60)).connect(&self.url).await.unwrap();
        client.election("e").unwrap().candidate(name)
    }

    async fn line(&self) -> Vec<String> {
        self.names_of(|_| true).await
    }

    /// Those who say in line that they are unwell.
    async fn unwell(&self) -> Vec<String> {
        self.names_of(|one| one.unwell).await
    }

    async fn names_of(&self, are_meant: impl Fn(&CandidateInfo) -> bool) -> Vec<String> {
        let election = Client::connect(&self.url).await.unwrap().election("e").unwrap();
        let line = election.candidates().await.unwrap().into_inner();
        line.iter().filter(|one| are_meant(one)).map(|one| one.name.as_deref().unwrap().to_owned()).collect()
    }
}

async fn lead(candidacy: &mut Candidacy) -> Leadership {
    within(candidacy.elected()).await.unwrap().unwrap()
}

#[tokio::test]
async fn an_unfit_leader_leaves_its_office_and_gets_back_in_line_once_it_is_fit() {
    for fixture in Fixture::all("unfit") {
        let told = Told::new(Health::fit());
        let mut first = fixture.candidate("a").await.health(often(told.clone())).stand().await.unwrap();
        let office = lead(&mut first).await;
        let mut second = fixture.candidate("b").await.stand().await.unwrap();

        told.say(Health::unfit("full"));
        assert_eq!(within(office.term().stopping()).await.reason(), LossReason::Unhealthy);
        assert_eq!(first.health().to_string(), "unfit: told: full");
        drop(office);
        let _next = lead(&mut second).await;
        until("out of the line", async || first.role() == Role::Out(LossReason::Unhealthy)).await;
        told.say(Health::fit());
        until("behind the other", async || matches!(first.role(), Role::Following { .. })).await;
        assert_eq!(first.health(), Health::fit());
    }
}

#[tokio::test]
async fn an_unwell_leader_stays_where_nobody_is_better_and_says_so() {
    for fixture in Fixture::all("unwell") {
        let told = Told::new(Health::fit());
        let mut first = fixture.candidate("a").await.health(often(told.clone())).stand().await.unwrap();
        let office = lead(&mut first).await;
        let second = fixture.candidate("b").await.stand().await.unwrap();
        second.set_fitness(Fitness::Unwell);
        until("the other's word", async || fixture.unwell().await == ["b"]).await;
        let mut events = first.events();
        for (said, fitness) in [(Health::unwell("slow"), Fitness::Unwell), (Health::fit(), Fitness::Fit)] {
            told.say(said);
            let health = within(async {
                loop {
                    match events.next().await.unwrap() {
                        CandidacyEvent::Health(health) => return health,
                        CandidacyEvent::NewLeader(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
            });
            assert_eq!(health.await.fitness, fitness);
            assert_eq!(first.health().fitness, fitness);
            let shown: &[&str] = if fitness == Fitness::Unwell { &["a", "b"] } else { &["b"] };
            until("its word in line", async || fixture.unwell().await == shown).await;
        }
        office.check().expect("it has led all the while");
        assert!(matches!(second.role(), Role::Following { .. }));
    }
}

#[tokio::test]
async fn an_unwell_leader_hands_over_and_comes_back_in_line_as_it_is() {
    for fixture in Fixture::all("unwell-hands-over") {
        let told = Told::new(Health::fit());
        // It waits that long for others that may share the cause.
        let checks = often(told.clone()).timeout(Duration::from_secs(5));
        let mut first = fixture.candidate("a").await.health(checks).stand().await.unwrap();
        let office = lead(&mut first).await;
        let mut second = fixture.candidate("b").await.stand().await.unwrap();
        told.say(Health::unwell("slow"));
        assert_eq!(within(office.term().stopping()).await.reason(), LossReason::Unwell);
        drop(office);
        let _next = lead(&mut second).await;
        until("behind the other", async || fixture.line().await == ["b", "a"]).await;
        assert_eq!(fixture.unwell().await, ["a"]);
        told.say(Health::fit());
        until("well again", async || fixture.unwell().await.is_empty()).await;
        assert_eq!(fixture.line().await, ["b", "a"], "nobody is moved for that");
    }
}

/// Takes every connection at an address.
struct Listening {
    address: String,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Listening {
    fn at(address: &str) -> Listening {
        let (listener, ends) = (TcpListener::bind(address).unwrap(), Arc::new(AtomicBool::new(false)));
        let (address, has_ended) = (listener.local_addr().unwrap().to_string(), ends.clone());
        let thread = thread::spawn(move || {
            let _ = listener.incoming().find(|_| has_ended.load(Ordering::SeqCst));
        });
        Listening { address, ends, thread }
    }

    fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        // Whoever connects next ends it: somebody else may have.
        let _ = TcpStream::connect(&self.address);
        self.thread.join().unwrap();
    }
}

/// The leader is the first that notices, and the last that counts as fit again.
async fn shared_by_all(fixture: Fixture) {
    let listening = Listening::at("127.0.0.1:0");
    let address = listening.address.clone();
    let checks = || HealthChecks::new().check(TcpCheck::new(&address)).timeout(Duration::from_secs(10));
    let first = checks().every(Duration::from_millis(20)).well_for(Duration::from_secs(15));
    let mut first = fixture.patient_candidate("a").await.health(first).stand().await.unwrap();
    let office = lead(&mut first).await;
    let mut others = Vec::new();
    for name in ["b", "c"] {
        let checks = checks().every(Duration::from_millis(500)).well_for(Duration::ZERO);
        others.push(fixture.patient_candidate(name).await.health(checks).stand().await.unwrap());
    }
    let all = ["a", "b", "c"];
    listening.end();
    until("all have noticed", async || fixture.unwell().await == all).await;
    let listening = Listening::at(&address);
    until("the others are fit", async || fixture.unwell().await == ["a"]).await;
    until("and so is the leader", async || fixture.unwell().await.is_empty()).await;
    office.check().expect("it has led all the while");
    assert_eq!(fixture.line().await, all, "nobody has made room for anybody");
    drop((first, others));
    listening.end();
}

#[tokio::test]
async fn what_all_find_moves_no_office_neither_when_it_comes_nor_when_it_goes() {
    let [memory, file] = Fixture::all("shared");
    tokio::join!(shared_by_all(memory), shared_by_all(file));
}

/// Its program's word and its checks': the worse one counts.
#[tokio::test]
async fn a_candidate_is_what_the_worse_of_its_checks_and_its_program_says() {
    let [fixture, _] = Fixture::all("worse");
    let told = Told::new(Health::unwell("slow"));
    let candidacy = fixture.candidate("a").await.health(often(told.clone())).stand().await.unwrap();
    let health = || candidacy.health().to_string();
    assert_eq!(health(), "unwell: told: slow");
    candidacy.set_fitness(Fitness::Unwell);
    assert_eq!(health(), "unwell: told: slow");
    candidacy.set_fitness(Fitness::Unfit);
    assert_eq!(health(), "unfit: its program says so");
    candidacy.set_fitness(Fitness::Unwell);
    told.say(Health::fit());
    until("its program's word", async || health() == "unwell: its program says so").await;
    candidacy.set_fitness(Fitness::Fit);
    assert_eq!(health(), "fit");
}

#[tokio::test]
async fn nobody_is_in_line_before_every_check_has_spoken() {
    for fixture in Fixture::all("unknown") {
        let hanging = Hanging::default();
        hanging.hang(true);
        let checks = often(hanging.clone()).check(Told::new(Health::fit()));
        let candidate = fixture.candidate("a").await.health(checks);
        let standing = tokio::spawn(candidate.stand());
        until("a run", async || hanging.hung.load(Ordering::SeqCst) == 1).await;
        // Somebody else comes: by then it would have been in line.
        let other = fixture.candidate("b").await.stand().await.unwrap();
        assert_eq!(fixture.line().await, ["b"]);
        assert!(!standing.is_finished());
        hanging.hang(false);
        let first = within(standing).await.unwrap().unwrap();
        assert!(matches!(first.role(), Role::Following { .. }), "{:?}", first.role());
        drop(other);
    }
}

#[tokio::test]
async fn one_that_is_unfit_stands_and_waits_outside_or_fails_if_it_cannot_wait() {
    for fixture in Fixture::all("outside") {
        let told = Told::new(Health::unfit("no licence"));
        let candidate = fixture.candidate("a").await.health(often(told.clone()));
        match candidate.clone().try_once().await {
            Err(StandError::Unfit(health)) => assert_eq!(health.to_string(), "unfit: told: no licence"),
            other => panic!("{other:?}"),
        }
        let mut waits = within(fixture.candidate("a").await.health(often(told.clone())).stand()).await.unwrap();
        assert_eq!(waits.role(), Role::Out(LossReason::Unhealthy));
        assert_eq!(fixture.line().await, [""; 0]);
        told.say(Health::fit());
        lead(&mut waits).await;
    }
}

#[tokio::test]
async fn a_check_that_hangs_costs_the_office_of_its_election_and_no_other_and_runs_once() {
    for fixture in Fixture::all("hangs") {
        let hanging = Hanging::default();
        let client = Client::builder().ttl(Duration::from_secs(60)).connect(&fixture.url).await.unwrap();
        let checks = often(hanging.clone()).timeout(Duration::from_secs(5)).down_after(1);
        let candidate = client.election("e").unwrap().candidate("a").health(checks);
        let mut candidacy = within(candidate.stand()).await.unwrap();
        let office = lead(&mut candidacy).await;
        let mut other = within(client.election("other").unwrap().candidate("a").stand()).await.unwrap();
        let elsewhere = lead(&mut other).await;

        hanging.hang(true);
        assert_eq!(within(office.term().stopping()).await.reason(), LossReason::Unhealthy);
        let why = candidacy.health().to_string();
        assert!(why.starts_with("unfit: hanging: no answer for "), "{why}");
        drop(office);
        until("out of the line", async || candidacy.role() == Role::Out(LossReason::Unhealthy)).await;
        elsewhere.check().expect("its session is renewed as ever");
        assert_eq!(hanging.hung.load(Ordering::SeqCst), 1, "no other run was begun");
        hanging.hang(false);
        lead(&mut candidacy).await;
    }
}

#[tokio::test]
async fn a_check_that_panics_says_unfit_and_is_run_again() {
    let [fixture, _] = Fixture::all("panics");
    let told = Told::new(Health::fit());
    let mut candidacy = fixture.candidate("a").await.health(often(told.clone())).stand().await.unwrap();
    let office = lead(&mut candidacy).await;
    told.panics.store(true, Ordering::SeqCst);
    within(office.term().stopping()).await;
    assert_eq!(candidacy.health().to_string(), "unfit: told: the check panicked");
    drop(office);
    told.panics.store(false, Ordering::SeqCst);
    lead(&mut candidacy).await;
}

#[tokio::test]
async fn its_program_and_its_checks_have_to_agree() {
    let [fixture, _] = Fixture::all("agree");
    let told = Told::new(Health::fit());
    let mut candidacy = fixture.candidate("a").await.health(often(told.clone())).stand().await.unwrap();
    lead(&mut candidacy).await.resign().await.unwrap();
    let out = Role::Out(LossReason::Unhealthy);
    candidacy.set_healthy(false);
    until("out, as its program says", async || candidacy.role() == out).await;
    assert_eq!(candidacy.health().to_string(), "unfit: its program says so");
    told.say(Health::unfit("full"));
    let runs = told.runs.load(Ordering::SeqCst);
    until("three results", async || told.runs.load(Ordering::SeqCst) > runs + 4).await;
    candidacy.set_healthy(true);
    assert_eq!(candidacy.health().to_string(), "unfit: told: full");
    assert_eq!(candidacy.role(), out);
    told.say(Health::fit());
    lead(&mut candidacy).await;
}

#[tokio::test]
async fn a_leadership_is_checked_as_long_as_it_lasts_and_no_longer() {
    let [fixture, _] = Fixture::all("lasts");
    let told = Told::new(Health::fit());
    // Its candidacy is gone.
    let candidate = fixture.candidate("a").await.health(often(told.clone()));
    let office = candidate.try_once().await.unwrap().unwrap();
    told.say(Health::unfit("full"));
    assert_eq!(within(office.term().stopping()).await.reason(), LossReason::Unhealthy);
    let alive = Arc::downgrade(&told.runs);
    drop((office, told));
    until("the checks have ended", async || alive.upgrade().is_none()).await;
}

/// Stands for ten minutes, and says each second how it is. How often it was elected.
async fn stands_for_ten_minutes(mut candidacy: Candidacy, is_unwell: impl Fn(u64, bool) -> bool) -> usize {
    let (mut office, mut elected) = (None::<Leadership>, 0);
    for second in 0..600 {
        let unwell = is_unwell(second, office.is_some());
        candidacy.set_fitness(if unwell { Fitness::Unwell } else { Fitness::Fit });
        let mut over = pin!(tokio::time::sleep(Duration::from_secs(1)));
        loop {
            let term = office.as_ref().map(Leadership::term);
            tokio::select! {
                () = &mut over => break,
                won = candidacy.elected(), if term.is_none() => {
                    office = won.unwrap();
                    elected += 1;
                }
                _ = async { term.as_ref().unwrap().stopping().await }, if term.is_some() => office = None,
            }
        }
    }
    elected
}

/// Three of them, in virtual time. How often one of them was elected.
async fn elections_in_ten_minutes(is_unwell: fn(usize, u64, bool) -> bool) -> usize {
    let clock = || Arc::new(TokioClock::new());
    let store = MemoryStore::with_clock(Shape::FAIR, clock());
    let mut candidates = tokio::task::JoinSet::new();
    for number in 0..3 {
        let client = Client::builder().clock(clock()).with_store(store.clone()).await.unwrap();
        let candidacy = client.election("e").unwrap().candidate(number.to_string()).stand().await.unwrap();
        candidates.spawn(stands_for_ten_minutes(candidacy, move |second, leads| is_unwell(number, second, leads)));
    }
    candidates.join_all().await.into_iter().sum()
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_goes_up_and_down_moves_the_office_three_times_in_ten_minutes_at_most() {
    let one = elections_in_ten_minutes(|number, second, _| number == 0 && second / 7 % 2 == 1).await;
    assert!((2..=1 + 3).contains(&one), "{one}");
    let whoever_leads = elections_in_ten_minutes(|_, _, leads| leads).await;
    assert_eq!(whoever_leads, 1 + 3);
}
