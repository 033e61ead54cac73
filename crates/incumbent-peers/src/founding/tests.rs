//! Every order of reports, restarts and lost disks in a small group, and the corners that they led
//! to.

use std::collections::BTreeSet;

use incumbent_core::Rng;

use super::*;

const EVERY: Duration = Duration::from_millis(100);

/// A group whose members exchange reports in any order, are restarted and wiped.
struct World {
    members: Vec<Disk>,
    rng: Rng,
    next_disk: u8,
    now: Timestamp,
    /// Reports on their way, which may come late.
    late: Vec<(usize, usize, DiskReport)>,
    /// Every charter that anybody was admitted by.
    admissions: Vec<(usize, DiskId, Charter)>,
}

/// What survives a restart, and the member that runs on it.
struct Disk {
    id: DiskId,
    accepted: Option<Charter>,
    state: State,
}

enum State {
    Forming(Founding),
    Admitted(Charter),
    Lost,
}

fn group(me: usize, of: usize) -> Group {
    Group::new(MemberId(me as u16), (0..of as u16).map(MemberId)).unwrap()
}

impl World {
    fn new(of: usize, seed: u64) -> World {
        let mut world = World {
            members: Vec::new(),
            rng: Rng::from_number(seed),
            next_disk: 0,
            now: Timestamp::ZERO,
            late: Vec::new(),
            admissions: Vec::new(),
        };
        for me in 0..of {
            let disk = world.blank(me, of);
            world.members.push(disk);
        }
        world
    }

    fn blank(&mut self, me: usize, of: usize) -> Disk {
        self.next_disk += 1;
        let id = DiskId([self.next_disk; 16]);
        Disk { id, accepted: None, state: State::Forming(Founding::new(self.now, group(me, of), id, None, EVERY)) }
    }

    fn wipe(&mut self, who: usize) {
        self.members[who] = self.blank(who, self.members.len());
    }

    fn restart(&mut self, who: usize) {
        let (now, of) = (self.now, self.members.len());
        let disk = &mut self.members[who];
        match disk.state {
            State::Admitted(_) => {}
            State::Forming(_) | State::Lost => {
                let founding = Founding::new(now, group(who, of), disk.id, disk.accepted.clone(), EVERY);
                disk.state = State::Forming(founding);
            }
        }
    }

    fn says(&self, who: usize) -> DiskReport {
        let disk = &self.members[who];
        match &disk.state {
            State::Forming(founding) => founding.report(false),
            State::Admitted(charter) => {
                DiskReport { asks: false, disk: disk.id, progress: Progress::Admitted(charter.clone()) }
            }
            State::Lost => DiskReport { asks: false, disk: disk.id, progress: Progress::Lost },
        }
    }

    fn hears(&mut self, to: usize, from: usize, report: &DiskReport) {
        let now = self.now;
        let disk = &mut self.members[to];
        let State::Forming(founding) = &mut disk.state else { return };
        founding.on_report(now, MemberId(from as u16), report);
        loop {
            match founding.step(now) {
                Step::Wait => return,
                Step::Accept(charter) => {
                    assert!(disk.accepted.is_none(), "a disk accepts one charter in its life");
                    disk.accepted = Some(charter);
                    founding.on_written();
                }
                Step::Found(charter) => {
                    self.admissions.push((to, disk.id, charter.clone()));
                    disk.state = State::Admitted(charter);
                    return;
                }
                Step::Rejoin(_) => {
                    disk.state = State::Lost;
                    return;
                }
            }
        }
    }

    fn exchange(&mut self) {
        self.now = self.now + EVERY / 4;
        let of = self.members.len() as u64;
        let (from, to) = (self.rng.below(of) as usize, self.rng.below(of) as usize);
        if from == to {
            return;
        }
        let report = self.says(from);
        match self.rng.below(4) {
            0 => self.late.push((to, from, report)),
            _ => self.hears(to, from, &report),
        }
        if !self.late.is_empty() && self.rng.below(4) == 0 {
            let at = self.rng.below(self.late.len() as u64) as usize;
            let (to, from, report) = self.late.swap_remove(at);
            self.hears(to, from, &report);
        }
    }

    fn admitted(&self) -> usize {
        self.members.iter().filter(|disk| matches!(disk.state, State::Admitted(_))).count()
    }
}

#[test]
fn a_group_is_founded_once_all_are_there_and_under_one_charter() {
    for (of, seed) in [(1, 1), (2, 2), (3, 3), (5, 4)] {
        let mut world = World::new(of, seed);
        if of == 1 {
            let State::Forming(alone) = &mut world.members[0].state else { panic!("it is forming") };
            assert!(matches!(alone.step(Timestamp::ZERO), Step::Accept(_)));
            alone.on_written();
            assert!(matches!(alone.step(Timestamp::ZERO), Step::Found(_)));
            continue;
        }
        for _ in 0..20_000 {
            if world.admitted() == of {
                break;
            }
            world.exchange();
        }
        assert_eq!(world.admitted(), of);
        assert!(world.admissions.iter().all(|(_, _, charter)| *charter == world.admissions[0].2));
    }
}

#[test]
fn nobody_is_admitted_while_one_has_never_been_up() {
    let mut world = World::new(3, 1);
    for _ in 0..1_000 {
        let report = world.says(0);
        world.hears(1, 0, &report);
        let report = world.says(1);
        world.hears(0, 1, &report);
    }
    assert_eq!(world.admitted(), 0);
    let State::Forming(first) = &world.members[0].state else { panic!("it is forming") };
    assert_eq!(first.missing(), [MemberId(2)]);
}

#[test]
fn a_wiped_member_of_a_group_that_exists_is_told_from_a_new_one() {
    let mut world = World::new(3, 5);
    while world.admitted() < 3 {
        world.exchange();
    }
    world.wipe(2);
    let report = world.says(0);
    world.hears(2, 0, &report);
    assert!(matches!(world.members[2].state, State::Lost));
}

#[test]
fn whatever_is_wiped_restarted_and_late_a_member_is_admitted_on_two_disks_only_if_all_were_wiped() {
    let (mut complete, mut wipes) = (0, 0);
    for seed in 0..3_000 {
        let mut world = World::new(3, seed);
        let mut wiped = [false; 3];
        for _ in 0..120 {
            match world.rng.below(30) {
                0 if world.rng.below(2) == 0 => {
                    let who = world.rng.below(3) as usize;
                    // Never all of them: then there would be nothing left to contradict.
                    if wiped.iter().filter(|wiped| **wiped).count() < 2 || wiped[who] {
                        wiped[who] = true;
                        wipes += 1;
                        world.wipe(who);
                    }
                }
                1 => {
                    let who = world.rng.below(3) as usize;
                    world.restart(who);
                }
                _ => world.exchange(),
            }
        }
        complete += usize::from(!world.admissions.is_empty());
        let charters: BTreeSet<_> = world.admissions.iter().map(|(_, _, charter)| charter).collect();
        assert!(charters.len() <= 1, "seed {seed}: {:?}", world.admissions);
        for (who, disk, _) in &world.admissions {
            let again = world.admissions.iter().any(|(other, other_disk, _)| other == who && other_disk != disk);
            assert!(!again, "seed {seed}: member {who} is admitted on two disks");
        }
    }
    assert!(complete > 500 && wipes > 500, "{complete} founded, {wipes} wiped: the test looks at too little");
}

/// Three members, every order of reports however late and however often, restarts, and wiped disks.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Situation {
    members: Vec<Member>,
    /// Every report that was ever made: each may arrive at any time, and again.
    said: BTreeSet<(usize, DiskReport)>,
    /// Who was ever admitted, on which disk, under which charter.
    admissions: BTreeSet<(usize, DiskId, Charter)>,
    next_disk: u8,
    wiped: [bool; 3],
    wipes: u8,
    restarts: u8,
    declarations: u8,
    /// Every set of disks that were admitted at the same time, and could have elected a leader.
    electorates: BTreeSet<BTreeSet<(usize, DiskId)>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Member {
    disk: DiskId,
    accepted: Option<Charter>,
    progress: Stage,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Stage {
    Forming(Founding),
    Admitted(Charter),
    Lost,
}

impl Member {
    fn is_admitted(&self) -> bool {
        matches!(self.progress, Stage::Admitted(_))
    }

    fn says(&self) -> DiskReport {
        let progress = match &self.progress {
            Stage::Forming(founding) => return founding.report(false),
            Stage::Admitted(charter) => Progress::Admitted(charter.clone()),
            Stage::Lost => Progress::Lost,
        };
        DiskReport { asks: false, disk: self.disk, progress }
    }
}

impl Situation {
    fn first(wipes: u8, restarts: u8, declarations: u8) -> Situation {
        let mut situation = Situation {
            members: Vec::new(),
            said: BTreeSet::new(),
            admissions: BTreeSet::new(),
            next_disk: 0,
            wiped: [false; 3],
            wipes,
            restarts,
            declarations,
            electorates: BTreeSet::new(),
        };
        for who in 0..3 {
            let member = situation.blank(who);
            situation.members.push(member);
        }
        situation.all_speak();
        situation
    }

    fn blank(&mut self, who: usize) -> Member {
        self.next_disk += 1;
        let disk = DiskId([self.next_disk; 16]);
        let founding = Founding::new(Timestamp::ZERO, group(who, 3), disk, None, EVERY);
        Member { disk, accepted: None, progress: Stage::Forming(founding) }
    }

    fn all_speak(&mut self) {
        let says = self.members.iter().map(Member::says).enumerate();
        self.said.extend(says);
    }

    fn hears(&mut self, to: usize, from: usize, report: &DiskReport) {
        let member = &mut self.members[to];
        let Stage::Forming(founding) = &mut member.progress else { return };
        founding.on_report(Timestamp::ZERO, MemberId(from as u16), report);
        let (id, mut next) = (member.disk, None);
        loop {
            match founding.step(Timestamp::ZERO) {
                Step::Wait => break,
                Step::Accept(charter) => {
                    member.accepted = Some(charter);
                    founding.on_written();
                }
                Step::Found(charter) => {
                    next = Some(Stage::Admitted(charter.clone()));
                    self.admissions.insert((to, id, charter));
                    break;
                }
                Step::Rejoin(_) => {
                    next = Some(Stage::Lost);
                    break;
                }
            }
        }
        if let Some(next) = next {
            member.progress = next;
        }
        self.all_speak();
        let admitted = self.members.iter().enumerate().filter(|(_, member)| member.is_admitted());
        let admitted: BTreeSet<_> = admitted.map(|(who, member)| (who, member.disk)).collect();
        if admitted.len() >= 2 {
            self.electorates.insert(admitted);
        }
    }

    /// Whether two leaders could have been elected by disks that know nothing of each other, and of
    /// both some are left: where none is left there is nothing to contradict.
    fn is_split(&self) -> bool {
        let is_left = |set: &BTreeSet<(usize, DiskId)>| set.iter().any(|(who, disk)| self.members[*who].disk == *disk);
        let left: Vec<_> = self.electorates.iter().filter(|set| is_left(set)).collect();
        left.iter().any(|one| left.iter().any(|two| one.is_disjoint(two)))
    }

    /// Whether it makes a difference.
    fn is_news(&self, to: usize, from: usize, report: &DiskReport) -> bool {
        let heard = (Timestamp::ZERO, report.disk, report.progress.clone());
        match &self.members[to].progress {
            Stage::Forming(founding) => to != from && founding.heard.get(&MemberId(from as u16)) != Some(&heard),
            Stage::Admitted(_) | Stage::Lost => false,
        }
    }

    fn wipe(&mut self, who: usize) {
        self.wiped[who] = true;
        self.members[who] = self.blank(who);
        self.all_speak();
    }

    /// Whether there is a disk left that was never wiped, but for this one.
    fn may_wipe(&self, who: usize) -> bool {
        (0..3).any(|other| other != who && !self.wiped[other])
    }

    /// An operator says to this member that the group is new. Whether that changes anything.
    fn declare(&mut self, who: usize) -> Option<Declared> {
        let new_disk = DiskId([self.next_disk + 1; 16]);
        let member = &mut self.members[who];
        let Stage::Forming(founding) = &mut member.progress else { return None };
        let declared = founding.declare(Timestamp::ZERO, new_disk);
        match &declared {
            Declared::Accepted(charter) => member.accepted = Some(charter.clone()),
            Declared::StartedOver => (member.disk, member.accepted) = (new_disk, None),
            Declared::InProgress | Declared::TooFew => return None,
        }
        founding.on_written();
        self.next_disk += u8::from(declared == Declared::StartedOver);
        self.all_speak();
        Some(declared)
    }

    fn nexts(&self) -> Vec<Situation> {
        let mut nexts = Vec::new();
        for (from, report) in &self.said {
            for to in (0..3).filter(|to| self.is_news(*to, *from, report)) {
                let mut next = self.clone();
                next.hears(to, *from, report);
                nexts.push(next);
            }
        }
        for who in 0..3 {
            // Never the last disk that is left: then there would be nothing to contradict.
            if self.wipes > 0 && self.may_wipe(who) {
                let mut next = self.clone();
                next.wipes -= 1;
                next.wipe(who);
                nexts.push(next);
            }
            if self.declarations > 0 {
                let mut next = self.clone();
                next.declarations -= 1;
                if next.declare(who).is_some() {
                    nexts.push(next);
                }
            }
            let member = &self.members[who];
            if self.restarts > 0 && !member.is_admitted() {
                let accepted = member.accepted.clone();
                let founding = Founding::new(Timestamp::ZERO, group(who, 3), member.disk, accepted, EVERY);
                let mut next = self.clone();
                next.restarts -= 1;
                next.members[who].progress = Stage::Forming(founding);
                next.all_speak();
                nexts.push(next);
            }
        }
        nexts
    }
}

/// Goes through every situation that so many wipes, restarts and declarations can lead to.
/// Answers how many there are, and in how many everybody, or a majority, is admitted.
fn explore(wipes: u8, restarts: u8, declarations: u8) -> [usize; 3] {
    let mut seen = std::collections::HashSet::new();
    let mut open = vec![Situation::first(wipes, restarts, declarations)];
    let (mut all, mut majority) = (0, 0);
    while let Some(situation) = open.pop() {
        if !seen.insert(hash(&situation)) {
            continue;
        }
        let charters: BTreeSet<_> = situation.admissions.iter().map(|(_, _, charter)| charter).collect();
        let members: BTreeSet<_> = situation.admissions.iter().map(|(who, ..)| who).collect();
        assert!(charters.len() <= 1 && members.len() == situation.admissions.len(), "{:?}", situation.admissions);
        all += usize::from(members.len() == 3);
        majority += usize::from(members.len() == 2);
        open.extend(situation.nexts());
    }
    [seen.len(), all, majority]
}

#[test]
fn in_every_order_of_reports_a_wipe_and_a_restart_there_is_one_charter_and_one_disk_per_member() {
    let enough = |[seen, all, _]: [usize; 3]| seen > 40_000 && all > 100;
    assert!(enough(explore(1, 1, 0)));
    // 356102 situations: for the longer run.
    if std::env::var_os("INCUMBENT_FUZZ_SECONDS").is_some() {
        assert!(enough(explore(2, 0, 0)));
    }
}

#[test]
fn however_often_a_group_is_declared_founded_there_is_one_charter() {
    let explored = explore(0, 0, 2);
    assert!(explored[0] > 1_000 && explored[1] > 0 && explored[2] > 100, "{explored:?}");
}

/// Reports come in any order and however late; disks are lost; and while no disk that is left has
/// voted, an operator says again and again that the group is new.
#[test]
fn after_a_lost_disk_an_operators_word_founds_the_group_and_never_makes_two_of_it() {
    let (mut started_over, mut founded) = (0, 0);
    for seed in 0..5_000 {
        let (mut rng, mut situation) = (Rng::from_number(seed), Situation::first(0, 0, 0));
        let mut given_up = false;
        for _ in 0..150 {
            let (who, other) = (rng.below(3) as usize, rng.below(3) as usize);
            match rng.below(40) {
                0 if situation.may_wipe(who) => situation.wipe(who),
                1..4 if !situation.members.iter().any(Member::is_admitted) => {
                    given_up |= situation.declare(who) == Some(Declared::StartedOver);
                }
                4..10 => {
                    let at = rng.below(situation.said.len() as u64) as usize;
                    let (from, report) = situation.said.iter().nth(at).cloned().unwrap();
                    if from != who {
                        situation.hears(who, from, &report);
                    }
                }
                _ if who != other => {
                    let report = situation.members[other].says();
                    situation.hears(who, other, &report);
                }
                _ => {}
            }
            assert!(!situation.is_split(), "seed {seed}: {:?}", situation.electorates);
        }
        started_over += usize::from(given_up);
        founded += usize::from(given_up && !situation.electorates.is_empty());
    }
    assert!(started_over > 500 && founded > 300, "{started_over} started over, {founded} of them founded");
}

#[test]
fn a_charter_is_given_up_only_if_a_disk_on_it_is_gone_and_a_majority_is_up_that_is_not_admitted() {
    let disk = |number| DiskId([number; 16]);
    let charter = Charter((0..3).map(|n| (MemberId(n), disk(n as u8))).collect());
    let agreed = Progress::Accepted(charter.clone());
    let says = |number, progress| DiskReport { asks: false, disk: disk(number), progress };
    let (now, late) = (Timestamp::ZERO, Timestamp::ZERO + EVERY * (FRESH + 1));
    let mut first = Founding::new(now, group(0, 3), disk(0), Some(charter.clone()), EVERY);
    assert_eq!(first.declare(now, disk(9)), Declared::TooFew, "it is alone");
    first.on_report(now, MemberId(1), &says(1, agreed.clone()));
    first.on_report(now, MemberId(2), &says(2, Progress::Blank));
    assert_eq!(first.declare(now, disk(9)), Declared::InProgress, "the third has yet to accept it");
    let mut lost = first.clone();
    lost.on_report(now, MemberId(2), &says(2, Progress::Lost));
    assert_eq!(lost.declare(now, disk(9)), Declared::StartedOver, "the third accepts nothing any more");
    first.on_report(now, MemberId(2), &says(7, Progress::Blank));
    assert_eq!(first.declare(late, disk(9)), Declared::TooFew, "what the others are now is not known");
    assert_eq!(first.declare(now, disk(9)), Declared::StartedOver);
    assert_eq!(first.report(false), says(0, agreed), "not before it is written");
    first.on_written();
    assert_eq!(first.report(false), says(9, Progress::Blank));
    let Declared::Accepted(next) = first.declare(now, disk(8)) else { panic!("two blank disks are a majority") };
    assert_eq!(next.0, BTreeMap::from([(MemberId(0), disk(9)), (MemberId(2), disk(7))]));
}

#[test]
fn two_that_have_accepted_different_charters_do_not_wait_for_each_other_for_ever() {
    let disk = |number| DiskId([number; 16]);
    let charter = |members: &[u16]| Charter(members.iter().map(|n| (MemberId(*n), disk(*n as u8))).collect());
    // The lowest has drawn one up for all while an operator declared the third founded with the
    // first.
    let (drawn_up, declared) = (charter(&[0, 1, 2]), charter(&[0, 2]));
    let mut first = Founding::new(Timestamp::ZERO, group(0, 3), disk(0), Some(drawn_up), EVERY);
    let now = Timestamp::ZERO + EVERY;
    let says = |number, progress| DiskReport { asks: false, disk: disk(number), progress };
    first.on_report(now, MemberId(1), &says(1, Progress::Blank));
    first.on_report(now, MemberId(2), &says(2, Progress::Blank));
    assert_eq!(first.declare(now, disk(9)), Declared::InProgress, "both may accept it");
    first.on_report(now, MemberId(2), &says(2, Progress::Accepted(declared)));
    assert_eq!(first.declare(now, disk(9)), Declared::StartedOver);
}

#[test]
fn a_group_that_is_declared_founded_needs_a_majority_and_has_an_identity_of_its_own_each_time() {
    let mut identities = BTreeSet::new();
    for disk in 0..3 {
        let mut first = Founding::new(Timestamp::ZERO, group(0, 3), DiskId([disk; 16]), None, EVERY);
        let spare = DiskId([99; 16]);
        assert_eq!(first.declare(Timestamp::ZERO, spare), Declared::TooFew, "it is alone");
        let blank = DiskReport { asks: false, disk: DiskId([disk + 10; 16]), progress: Progress::Blank };
        first.on_report(Timestamp::ZERO, MemberId(2), &blank);
        let Declared::Accepted(charter) = first.declare(Timestamp::ZERO, spare) else { panic!("they are two") };
        first.on_written();
        assert_eq!(charter.0.keys().copied().collect::<Vec<_>>(), [MemberId(0), MemberId(2)]);
        let again = first.declare(Timestamp::ZERO, spare);
        assert_eq!(again, Declared::InProgress, "a disk accepts one charter in its life");
        identities.insert(charter.identity(5));
    }
    assert_eq!(identities.len(), 3);
}

#[test]
fn what_is_not_written_yet_is_not_said_to_be_accepted() {
    let disk = |number| DiskId([number; 16]);
    let blank = |number| DiskReport { asks: false, disk: disk(number), progress: Progress::Blank };
    let mut drawn_up = Founding::new(Timestamp::ZERO, group(0, 2), disk(0), None, EVERY);
    drawn_up.on_report(Timestamp::ZERO, MemberId(1), &blank(1));
    let Step::Accept(charter) = drawn_up.step(Timestamp::ZERO) else { panic!("all are blank") };
    let mut declared = Founding::new(Timestamp::ZERO, group(0, 3), disk(0), None, EVERY);
    declared.on_report(Timestamp::ZERO, MemberId(1), &blank(1));
    assert_eq!(declared.declare(Timestamp::ZERO, disk(9)), Declared::Accepted(charter.clone()));
    for mut founding in [drawn_up, declared] {
        // The other might count on it and vote, and this disk would not know of it after a power
        // cut.
        assert_eq!(founding.report(false), blank(0));
        let accepted = DiskReport { progress: Progress::Accepted(charter.clone()), ..blank(1) };
        founding.on_report(Timestamp::ZERO, MemberId(1), &accepted);
        assert_eq!(founding.step(Timestamp::ZERO), Step::Wait);
        founding.on_written();
        assert_eq!(founding.report(false).progress, Progress::Accepted(charter.clone()));
        assert_eq!(founding.step(Timestamp::ZERO), Step::Found(charter.clone()));
    }
}

/// The first is admitted and goes away before anybody else is; the others start over without it.
#[test]
fn one_that_was_admitted_by_a_charter_that_was_given_up_meets_disks_that_never_voted_without_it() {
    let disk = |number| DiskId([number; 16]);
    let (now, late) = (Timestamp::ZERO, Timestamp::ZERO + EVERY * (FRESH + 1));
    let charter = Charter((0..3).map(|n| (MemberId(n), disk(n as u8))).collect());
    let mut members: Vec<_> =
        (0..3).map(|n| Founding::new(now, group(n, 3), disk(n as u8), Some(charter.clone()), EVERY)).collect();
    let mut away = members.remove(0);
    let mut admitted = BTreeSet::new();
    for (number, member) in (1..).zip(&members) {
        away.on_report(now, MemberId(number), &member.report(false));
    }
    assert_eq!(away.step(now), Step::Found(charter.clone()));
    admitted.insert((MemberId(0), disk(0)));
    let exchange = |members: &mut [Founding]| {
        let reports = [members[0].report(false), members[1].report(false)];
        members[0].on_report(late, MemberId(2), &reports[1]);
        members[1].on_report(late, MemberId(1), &reports[0]);
    };
    exchange(&mut members);
    for (number, member) in (11..).zip(&mut members) {
        assert_eq!(member.declare(late, disk(number)), Declared::StartedOver, "the first is silent");
        member.on_written();
    }
    exchange(&mut members);
    let Declared::Accepted(again) = members[0].declare(late, disk(99)) else { panic!("two of three are blank") };
    members[0].on_written();
    exchange(&mut members);
    assert_eq!(members[1].step(late), Step::Accept(again.clone()));
    members[1].on_written();
    exchange(&mut members);
    for (number, member) in (1..).zip(&mut members) {
        assert_eq!(member.step(late), Step::Found(again.clone()));
        admitted.insert((MemberId(number), member.report(false).disk));
    }
    // One disk of each member, ever: so each has one vote per term, whatever charter it goes by,
    // and any two majorities have a disk in common.
    let expected = [(MemberId(0), disk(0)), (MemberId(1), disk(11)), (MemberId(2), disk(12))];
    assert_eq!(admitted, BTreeSet::from(expected));
}

fn hash(situation: &Situation) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    situation.hash(&mut hasher);
    hasher.finish()
}
