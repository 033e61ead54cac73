//! A recovery whose outside is a script: killed before, in the middle of and after each line of its
//! journal, and taken up again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use super::*;

/// When the process is killed: at which line, and how much of it has reached the disk.
#[derive(Clone, Copy, Debug)]
enum Death {
    Before,
    Torn,
    After,
}

/// A disk that outlives the process.
#[derive(Clone, Default)]
struct Disk {
    bytes: Rc<RefCell<Vec<u8>>>,
    lines: usize,
    death: Option<(usize, Death)>,
}

impl Storage for Disk {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let death = self.death.filter(|(at, _)| *at == self.lines).map(|(_, death)| death);
        self.lines += 1;
        let written = match death {
            Some(Death::Before) => 0,
            Some(Death::Torn) => line.len() / 2,
            Some(Death::After) | None => line.len(),
        };
        self.bytes.borrow_mut().extend(&line[..written]);
        if death.is_some() { Err(io::Error::other("killed")) } else { Ok(()) }
    }
}

impl Disk {
    /// As the next process finds it.
    fn journal(&self, death: Option<(usize, Death)>) -> Journal<Disk> {
        let whole = self.bytes.borrow().iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.bytes.borrow_mut().truncate(whole);
        let disk = Disk { bytes: self.bytes.clone(), lines: 0, death };
        let written = self.bytes.borrow().clone();
        Journal::on(disk, &written, "7f3a")
    }
}

/// Three hosts, and what was done to them.
struct World {
    store: String,
    older: bool,
    answers: BTreeMap<String, String>,
    /// What was typed for this process.
    typed: BTreeSet<String>,
    states: BTreeMap<String, HostState>,
    counter: Counter,
    paused: bool,
    lock: Option<Step>,
    /// Somebody else does the same once this was asked.
    taken_over_after: Option<String>,
    leads: Option<String>,
    told: Vec<String>,
    /// All that was done, in order.
    acts: Vec<String>,
}

impl World {
    fn new() -> World {
        let answers = [
            ("stop", "stop"),
            ("off:db3", "db3"),
            ("survivor", "db2"),
            ("again:db1", "db1"),
            ("floor", "1400"),
            ("fence:/srv/mark", "/srv/mark"),
            ("elect", "node-2"),
        ];
        let states =
            [("db1", HostState::Quiet), ("db2", HostState::Quiet), ("db3", HostState::Silent("timed out".to_owned()))];
        World {
            store: "etcd-cafe12".to_owned(),
            older: true,
            answers: answers.map(|(key, word)| (key.to_owned(), word.to_owned())).into(),
            typed: BTreeSet::new(),
            states: states.map(|(host, state)| (host.to_owned(), state)).into(),
            counter: Counter { raise: Some(1311), strange: vec!["/srv/mark".to_owned()], ..Counter::default() },
            paused: false,
            lock: None,
            taken_over_after: None,
            leads: Some("node-1".to_owned()),
            told: Vec::new(),
            acts: Vec::new(),
        }
    }

    /// Something is done that only a word allows.
    fn act(&mut self, what: String, word: &str) {
        assert!(self.typed.contains(word), "{what} without the word for {word}: {:?}", self.typed);
        self.acts.push(what);
    }

    /// Runs until it ends or is killed.
    fn run(&mut self, disk: &Disk, death: Option<(usize, Death)>) -> Result<Option<u8>, Failure> {
        self.typed.clear();
        let mut journal = disk.journal(death);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(recover(&mut journal, self))
    }

    fn count(&self, what: &str) -> usize {
        self.acts.iter().filter(|act| act.starts_with(what)).count()
    }
}

impl Outside for World {
    fn tell(&mut self, text: &str) {
        self.told.push(text.to_owned());
    }

    async fn ask(&mut self, question: &Question) -> Result<String, Failure> {
        let key = question.key();
        let answer = self.answers.get(&key).cloned();
        self.typed.insert(key);
        answer.ok_or_else(|| Failure::error("nobody answers"))
    }

    fn election(&self) -> String {
        "db/main".to_owned()
    }

    async fn identity(&mut self) -> Result<String, Failure> {
        Ok(self.store.clone())
    }

    async fn gather(&mut self) -> Result<bool, Failure> {
        self.acts.push("gather".to_owned());
        Ok(self.older)
    }

    async fn lock(&mut self, step: Step) -> Result<(), Failure> {
        let word = self.taken_over_after.as_ref();
        if word.is_some_and(|word| self.typed.contains(word)) {
            return Err(Failure::error("another recovery"));
        }
        self.lock = Some(step);
        Ok(())
    }

    async fn unlock(&mut self) -> Result<(), Failure> {
        self.lock = None;
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), Failure> {
        assert!(self.lock.is_some(), "nobody else may do the same");
        self.act("stop".to_owned(), "stop");
        (self.paused, self.leads) = (true, None);
        Ok(())
    }

    async fn is_paused(&mut self) -> Result<bool, Failure> {
        Ok(self.paused)
    }

    async fn hosts(&mut self) -> Result<Vec<(String, HostState)>, Failure> {
        Ok(self.states.clone().into_iter().collect())
    }

    async fn compare(&mut self, host: &str) -> Result<Option<String>, Failure> {
        assert!(self.paused);
        self.acts.push(format!("compare {host}"));
        Ok(Some("differs".to_owned()))
    }

    fn reconciles(&self) -> bool {
        true
    }

    async fn reconcile(&mut self, host: &str, survivor: &str, again: bool) -> Result<(), Failure> {
        assert!(self.paused && survivor == "db2");
        assert!(again || self.count(&format!("reconcile {host}")) == 0, "it is told that it may be again");
        let word = if again { format!("again:{host}") } else { "survivor".to_owned() };
        self.act(format!("reconcile {host}"), &word);
        Ok(())
    }

    async fn counter(&mut self) -> Result<Counter, Failure> {
        Ok(self.counter.clone())
    }

    async fn raise(&mut self, floor: u64) -> Result<(), Failure> {
        self.act(format!("raise {floor}"), "floor");
        Ok(())
    }

    async fn reset(&mut self, fence: &str) -> Result<(), Failure> {
        self.act(format!("reset {fence}"), &format!("fence:{fence}"));
        self.counter.strange.clear();
        Ok(())
    }

    async fn elect(&mut self, name: &str) -> Result<(), Failure> {
        assert!(self.paused, "only a paused election goes on");
        self.act(format!("elect {name}"), "elect");
        (self.paused, self.leads) = (false, Some(name.to_owned()));
        Ok(())
    }

    async fn leads(&mut self, name: &str) -> Result<bool, Failure> {
        Ok(self.leads.as_deref() == Some(name) && !self.paused)
    }

    async fn examine(&mut self) -> Result<u8, Failure> {
        assert!(self.lock.is_none());
        Ok(0)
    }
}

#[test]
fn a_recovery_that_nothing_interrupts_does_each_step_once() {
    let (mut world, disk) = (World::new(), Disk::default());
    assert_eq!(world.run(&disk, None).unwrap(), Some(0));
    let acts = ["gather", "stop", "compare db1", "compare db2", "reconcile db1", "raise 1400", "reset /srv/mark"];
    assert_eq!(world.acts, [&acts[..], &["elect node-2"]].concat());
    assert!(world.told.iter().any(|told| told.contains("db3 is off")), "{:?}", world.told);
    assert_eq!(world.run(&disk, None).unwrap(), None, "it is over");
    assert_eq!(world.acts.len(), acts.len() + 1);
}

#[test]
fn where_the_store_is_not_older_its_tokens_and_fences_are_left_alone() {
    let (mut world, disk) = (World::new(), Disk::default());
    world.older = false;
    assert_eq!(world.run(&disk, None).unwrap(), Some(0));
    assert_eq!((world.count("raise"), world.count("reset"), world.count("elect")), (0, 0, 1));
}

#[test]
fn killed_before_in_or_after_each_line_it_goes_on_and_ends_as_if_it_had_not_been() {
    let lines = {
        let (mut world, disk) = (World::new(), Disk::default());
        world.run(&disk, None).unwrap();
        let bytes = disk.bytes.borrow();
        bytes.iter().filter(|byte| **byte == b'\n').count()
    };
    assert!(lines > 10, "{lines}");
    for at in 0..lines {
        for death in [Death::Before, Death::Torn, Death::After] {
            let (mut world, disk) = (World::new(), Disk::default());
            assert!(world.run(&disk, Some((at, death))).is_err());
            let stops = world.count("stop");
            world.run(&disk, None).unwrap_or_else(|failure| panic!("{at} {death:?}: {failure}"));
            assert_eq!(world.leads.as_deref(), Some("node-2"), "{at} {death:?}: {:?}", world.acts);
            assert!(world.lock.is_none() && !world.paused, "{at} {death:?}");
            assert_eq!(world.count("elect"), 1, "{at} {death:?}: whoever leads is not asked to again");
            assert!(world.count("stop") <= stops.max(1) + 1, "{at} {death:?}: {:?}", world.acts);
            assert!(world.count("raise 1400") >= 1 && world.count("reset /srv/mark") == 1, "{:?}", world.acts);
        }
    }
}

#[test]
fn what_somebody_let_back_meanwhile_is_stopped_compared_and_reconciled_again() {
    let (mut world, disk) = (World::new(), Disk::default());
    world.answers.remove("floor");
    assert!(world.run(&disk, None).is_err(), "nobody types the number");
    world.answers.insert("floor".to_owned(), "1400".to_owned());
    (world.paused, world.leads) = (false, Some("node-1".to_owned()));
    assert_eq!(world.run(&disk, None).unwrap(), Some(0));
    assert_eq!((world.count("stop"), world.count("compare db1"), world.count("reconcile db1")), (2, 2, 2));
}

#[test]
fn a_host_that_claims_the_office_again_is_stopped_again() {
    let (mut world, disk) = (World::new(), Disk::default());
    world.answers.remove("elect");
    assert!(world.run(&disk, None).is_err());
    world.states.insert("db1".to_owned(), HostState::Claims("pid 4711 leads".to_owned()));
    let failure = world.run(&disk, None).unwrap_err().to_string();
    assert!(failure.contains("db1 has not stopped: pid 4711 leads"), "{failure}");
    assert_eq!((world.count("stop"), world.count("elect")), (2, 0));
}

#[test]
fn a_word_that_is_no_answer_does_nothing() {
    for (key, wrong) in [
        ("stop", "yes"),
        ("off:db3", "db2"),
        ("survivor", "db3"),
        ("survivor", ""),
        ("floor", "1310"),
        ("fence:/srv/mark", "y"),
        ("elect", ""),
    ] {
        let (mut world, disk) = (World::new(), Disk::default());
        world.answers.insert(key.to_owned(), wrong.to_owned());
        let failure = world.run(&disk, None).unwrap_err();
        assert_eq!(failure.code, Code::No, "{key}");
        assert_eq!(world.count("elect"), 0, "{key}");
    }
}

#[test]
fn another_store_or_election_than_the_journals_is_refused() {
    let (mut world, disk) = (World::new(), Disk::default());
    world.answers.remove("stop");
    assert!(world.run(&disk, None).is_err());
    world.store = "etcd-77e1aa".to_owned();
    world.answers.insert("stop".to_owned(), "stop".to_owned());
    let failure = world.run(&disk, None).unwrap_err().to_string();
    assert!(failure.contains("etcd-77e1aa") && failure.contains("etcd-cafe12"), "{failure}");
    assert_eq!(world.acts, ["gather"]);
}

#[test]
fn a_fence_of_the_same_store_is_not_reset_while_a_host_was_only_said_to_be_off() {
    let (mut world, disk) = (World::new(), Disk::default());
    let (advice, above) = (Some("it cannot be raised".to_owned()), vec!["/srv/mark".to_owned()]);
    world.counter = Counter { advice, above, ..Counter::default() };
    world.answers.insert("counter".to_owned(), "reset".to_owned());
    let failure = world.run(&disk, None).unwrap_err().to_string();
    assert!(failure.contains("db3 has not said itself"), "{failure}");
    assert_eq!((world.count("reset"), world.count("elect")), (0, 0));
    world.states.insert("db3".to_owned(), HostState::Quiet);
    assert_eq!(world.run(&disk, None).unwrap(), Some(0));
    assert_eq!((world.count("stop"), world.count("reconcile db3"), world.count("reset")), (2, 1, 1));
}

#[test]
fn what_was_typed_late_does_nothing_once_another_operator_has_taken_over() {
    for (word, act) in [("survivor", "reconcile"), ("floor", "raise"), ("fence:/srv/mark", "reset"), ("elect", "elect")]
    {
        let (disk, mut world) = (Disk::default(), World::new());
        world.taken_over_after = Some(word.to_owned());
        world.run(&disk, None).unwrap_err();
        assert_eq!(world.count(act), 0, "{word}: {:?}", world.acts);
    }
}

#[test]
fn a_host_that_is_no_longer_named_has_not_stopped() {
    let (disk, mut world) = (Disk::default(), World::new());
    world.answers.remove("survivor");
    world.run(&disk, None).unwrap_err();
    world.answers.insert("survivor".to_owned(), "db2".to_owned());
    world.states.remove("db1");
    let stopped = world.count("stop");
    let _ = world.run(&disk, None);
    assert_eq!(world.count("stop"), stopped + 1, "{:?}", world.told);
    assert!(world.told.iter().any(|line| line.contains("db1 was asked before")), "{:?}", world.told);
}

#[test]
fn a_host_that_was_made_like_another_or_half_of_it_cannot_be_the_one_that_is_kept() {
    let (disk, mut world) = (Disk::default(), World::new());
    // Killed once it has written down that db1 is made like db2.
    let intent = (0..).find(|at| {
        let (disk, mut world) = (Disk::default(), World::new());
        world.run(&disk, Some((*at, Death::After))).unwrap_err();
        String::from_utf8(disk.bytes.borrow().clone()).unwrap().contains("\"of\":\"db1\"")
    });
    world.run(&disk, intent.map(|at| (at, Death::After))).unwrap_err();
    world.answers.insert("survivor".to_owned(), "db1".to_owned());
    world.run(&disk, None).unwrap_err();
    assert_eq!(world.count("reconcile"), 0, "{:?}", world.acts);
}
