//! Random faults, one after the other, and what undoes each of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use incumbent_core::Rng;
use incumbent_store::{BootClock, Clock};
use incumbent_testkit::judge::{Report as Entry, Timeline, What, Who};
use incumbent_testkit::proxy::Way;
use incumbent_testkit::servers::Process;

use crate::ground::{Ground, Kind};
use crate::report::{Fault, Report};
use crate::resource::Resources;

/// Between two looks at what is due.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Nothing is waited for so many TTLs unless it is broken.
const PATIENCE_TTLS: u32 = 60;

/// What a campaign is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the election is held.
    pub kind: Kind,
    /// How many faults there are.
    pub faults: usize,
    /// Where the choices come from.
    pub seed: u64,
    /// The program that is a candidate if it is told so.
    pub program: String,
    /// Whether candidates believe that every renewal succeeds.
    pub flawed: bool,
}

impl Settings {
    /// The election that they hold.
    pub const ELECTION: &str = "campaign";
    /// How many take part.
    const CANDIDATES: Who = 5;
}

/// What ends a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Undo {
    Start(Who),
    Continue(Who),
    Heal(Who),
    StartServer(usize),
    ContinueServer(usize),
}

impl Undo {
    /// Whether two concern the same process or link.
    fn same_target(self, other: Undo) -> bool {
        match (self, other) {
            (Undo::Start(one) | Undo::Continue(one), Undo::Start(two) | Undo::Continue(two)) => one == two,
            (Undo::Heal(one), Undo::Heal(two)) => one == two,
            // Of several servers most stay.
            (Undo::StartServer(_) | Undo::ContinueServer(_), Undo::StartServer(_) | Undo::ContinueServer(_)) => true,
            _ => false,
        }
    }
}

struct Campaign {
    settings: Settings,
    ground: Ground,
    resources: Resources,
    rng: Rng,
    processes: BTreeMap<Who, Process>,
    /// What has been read of each diary.
    read: BTreeMap<Who, usize>,
    timeline: Timeline,
    due: Vec<(Instant, Undo)>,
    faults: Vec<Fault>,
    /// When each candidate was killed.
    kills: Vec<(Who, u64)>,
}

/// Goes through a campaign. Panics if a rule is broken, or somebody gives up.
pub async fn run(settings: Settings) -> Report {
    let ground = Ground::start(settings.kind, Settings::CANDIDATES).await;
    let rng = Rng::from_number(settings.seed);
    let mut campaign = Campaign {
        settings,
        ground,
        resources: Resources::serve(),
        rng,
        processes: BTreeMap::new(),
        read: BTreeMap::new(),
        timeline: Timeline::default(),
        due: Vec::new(),
        faults: Vec::new(),
        kills: Vec::new(),
    };
    (1..=Settings::CANDIDATES).for_each(|who| campaign.start_candidate(who));
    campaign.until_somebody_leads().await;
    while campaign.faults.len() < campaign.settings.faults {
        // The candidate that was drawn may suffer already. Then another is drawn, a moment later.
        let longest = if campaign.strike() { campaign.settings.kind.ttl() * 4 / 5 } else { LOOK_EVERY };
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let next = Instant::now() + Duration::from_millis(campaign.rng.below(longest));
        while Instant::now() < next {
            campaign.look_after(Instant::now()).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        campaign.judge();
    }
    let last = Instant::now() + campaign.settings.kind.ttl() * PATIENCE_TTLS;
    campaign.look_after(last).await;
    campaign.until_somebody_leads().await;
    campaign.judge();
    campaign.report()
}

impl Campaign {
    fn start_candidate(&mut self, who: Who) {
        let folder = self.ground.folder();
        let args = [
            "candidate".to_owned(),
            self.ground.url(who),
            who.to_string(),
            folder.display().to_string(),
            self.resources.address().to_string(),
            self.settings.kind.ttl().as_millis().to_string(),
            self.settings.flawed.to_string(),
        ];
        let log = folder.join(format!("log-{who}"));
        self.processes.insert(who, Process::start(&self.settings.program, &args, &log));
    }

    /// One fault. `false`: what was drawn cannot be had now.
    fn strike(&mut self) -> bool {
        let who = self.victim();
        let longest = u64::try_from(self.settings.kind.ttl().as_millis()).unwrap_or(u64::MAX) * 2;
        let lasts = Duration::from_millis(self.rng.below(longest));
        let server = self.rng.below(self.ground.servers().max(1) as u64) as usize;
        let (kind, undo) = match self.rng.below(100) {
            0..28 => ("killed", Undo::Start(who)),
            28..52 => ("stopped", Undo::Continue(who)),
            52..58 => ("link cut", Undo::Heal(who)),
            58..66 => ("link silent", Undo::Heal(who)),
            66..72 => ("answers lost", Undo::Heal(who)),
            72..78 => ("questions lost", Undo::Heal(who)),
            78..82 => ("link slow", Undo::Heal(who)),
            82..91 => ("server killed", Undo::StartServer(server)),
            _ => ("server stopped", Undo::ContinueServer(server)),
        };
        if !self.is_possible(undo) {
            return false;
        }
        self.faults.push(Fault { at: BootClock.now().as_nanos(), kind });
        match (kind, undo) {
            (_, Undo::Start(who)) => self.kill(who),
            (_, Undo::Continue(who)) => self.processes[&who].pause(),
            ("link cut", _) => self.ground.set_links(who, Way::Cut),
            ("link silent", _) => self.ground.set_links(who, Way::Stall),
            ("answers lost", _) => self.ground.set_links(who, Way::HoldAnswers),
            ("questions lost", _) => self.ground.set_links(who, Way::HoldQuestions),
            (_, Undo::Heal(_)) => self.ground.set_links(who, Way::Delay(self.settings.kind.ttl() / 40)),
            (_, Undo::StartServer(number)) => self.ground.kill_server(number),
            (_, Undo::ContinueServer(number)) => self.ground.stop_server(number),
        }
        self.due.push((Instant::now() + lasts, undo));
        true
    }

    fn is_possible(&self, undo: Undo) -> bool {
        let there = match undo {
            Undo::Start(_) | Undo::Continue(_) => true,
            Undo::Heal(_) => self.ground.has_links(),
            Undo::StartServer(_) => self.ground.servers() > 0,
            Undo::ContinueServer(_) => self.ground.servers() > 0 && self.ground.may_stop_servers(),
        };
        there && !self.due.iter().any(|(_, due)| due.same_target(undo))
    }

    /// The leader in one case of two, else anybody.
    fn victim(&mut self) -> Who {
        let leader = self.look().in_office().map(|(who, _)| who);
        let anyone = 1 + self.rng.below(Settings::CANDIDATES.into()) as Who;
        if self.rng.below(2) == 0 { leader.unwrap_or(anyone) } else { anyone }
    }

    fn kill(&mut self, who: Who) {
        // What it writes down until it is dead is of its last moment.
        let at = BootClock.now().as_nanos();
        let Some(process) = self.processes.remove(&who) else { return };
        let life = process.pid();
        process.kill();
        self.kills.push((who, at));
        if self.settings.kind.learns_of_deaths() {
            self.look();
            self.timeline.add(Entry { at, who, life, what: What::Killed });
        }
    }

    /// Undoes what is due by then.
    async fn look_after(&mut self, by: Instant) {
        let (due, later): (Vec<_>, Vec<_>) = self.due.drain(..).partition(|(at, _)| *at <= by);
        self.due = later;
        for (_, undo) in due {
            match undo {
                Undo::Start(who) => self.start_candidate(who),
                Undo::Continue(who) => self.processes[&who].resume(),
                Undo::Heal(who) => self.ground.set_links(who, Way::Forward),
                Undo::StartServer(number) => self.ground.start_server(number).await,
                Undo::ContinueServer(number) => self.ground.continue_server(number),
            }
        }
        let gave_up = self.processes.iter().find(|(_, process)| process.has_ended());
        assert!(gave_up.is_none(), "a candidate gave up: {gave_up:?}\n{}", self.account());
    }

    /// Reads what the candidates have written since.
    fn look(&mut self) -> &Timeline {
        for who in 1..=Settings::CANDIDATES {
            let diary = std::fs::read(self.ground.folder().join(format!("diary-{who}"))).unwrap_or_default();
            let read = self.read.entry(who).or_default();
            let whole = diary.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let news = String::from_utf8_lossy(&diary[*read..whole]).into_owned();
            *read = whole;
            for line in news.lines() {
                let entry = Entry::parse(who, line).unwrap_or_else(|| panic!("candidate {who} wrote: {line}"));
                self.timeline.add(entry);
            }
        }
        &self.timeline
    }

    async fn until_somebody_leads(&mut self) {
        let patience = Instant::now() + self.settings.kind.ttl() * PATIENCE_TTLS;
        loop {
            let now = BootClock.now().as_nanos();
            let terms = self.look().terms().unwrap_or_default();
            if terms.iter().any(|term| term.from <= now && now < term.until()) {
                return;
            }
            self.look_after(Instant::now()).await;
            assert!(Instant::now() < patience, "nobody leads\n{}", self.account());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn judge(&mut self) {
        let writes = self.resources.writes();
        let timeline = self.look();
        let judged = timeline.check().and_then(|_| timeline.check_writes(&writes));
        if let Err(broken) = judged {
            panic!("{broken}\n{}", self.account());
        }
    }

    fn report(&mut self) -> Report {
        let terms = self.look().terms().expect("it was judged");
        let (writes, unfenced) = (self.resources.writes(), self.resources.unfenced());
        Report::new(&self.settings, &terms, &self.kills, &self.faults, &writes, unfenced)
    }

    /// What happened last, for people.
    fn account(&self) -> String {
        let faults = &self.faults[self.faults.len().saturating_sub(10)..];
        let mut account = format!("seed {}; the last faults: {faults:?}\n", self.settings.seed);
        account += &self.timeline.tail(60);
        for who in 1..=Settings::CANDIDATES {
            let log = std::fs::read_to_string(self.ground.folder().join(format!("log-{who}"))).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(5).collect();
            tail.iter().rev().for_each(|line| account += &format!("candidate {who} said: {line}\n"));
        }
        account
    }
}
