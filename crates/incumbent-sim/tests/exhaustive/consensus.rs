//! Consensus with three members, exhaustively within [`Bounds`].
//!
//! A state is the three machines, their disks, what has been sent and the time. From each state
//! every action is tried: any message that was ever sent is delivered to its receiver (so messages
//! are lost, late, overtaken and doubled in every way), a timer that is due fires (or does not, for
//! as long as it likes: so every draw of the random timeouts at or above the smallest is covered,
//! and every pause), a disk finishes, a member crashes, restarts or comes back wiped, the leader
//! transfers, and a unit of time passes.
//!
//! Time is counted in units that all clocks share: drift is left to the simulation. A promise lasts
//! two units, a heartbeat is sent every unit; the exploration starts when the first timers are due.
//! The bounds are on terms, units of time, crashes, lost disks and transfers.
//!
//! Four reductions keep the number of states in hand; that they hide nothing is argued where they
//! are made, not checked: members that have done nothing are interchangeable, messages that can
//! have no effect any more are forgotten, and which value a follower knows is left out, and who was
//! in office last. Pre-votes are off, which lets members stand more freely than production does.
//!
//! Not covered: clocks that run at different rates, more than three members, positions, values and
//! observers; the simulation does that. After a restart a member abstains longer than the explored
//! time; so votes after a restart are explored with abstention switched off, which only allows
//! more, and there leases are not looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::peers::consensus::{
    Boot, Consensus, ConsensusSettings, Input, Message, Output, PeerRole, PersistId, Position, Stored,
};
use incumbent_core::peers::{ConsensusFlaw, ConsensusPolicy, Group, MemberId, TermRules};
use incumbent_core::{Command, Event, Rng, Successor, Timestamp, Title, Token};
use stateright::{Checker, HasDiscoveries, Model, Property};

/// One unit of time.
const UNIT: Duration = Duration::from_secs(1);

/// How far the exploration goes. Within these bounds it leaves nothing out.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Members: two or three.
    members: u16,
    /// The highest term.
    terms: u64,
    /// The last unit of time.
    until: u64,
    /// Crashes, each of any member at any moment; a restart may follow at any later moment.
    crashes: u8,
    /// Of these, how many lose the state on disk.
    wipes: u8,
    /// Transfers, each to any other member.
    transfers: u8,
    /// Whether a write to disk takes time in which other things happen.
    slow_disks: bool,
    /// Whether any message may be delivered again at any time, as opposed to at most once.
    doubling: bool,
}

/// The model: bounds, and the flaw to find, if any.
#[derive(Clone, Debug)]
struct ConsensusModel {
    /// How far to go.
    bounds: Bounds,
    /// The policy that are switched on.
    policy: ConsensusPolicy,
    /// Whether two leases at a time are looked for. Not when abstention is switched off to see more
    /// votes.
    leases: bool,
}

/// Everything that there is at one moment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Cluster {
    nodes: Vec<Arc<Node>>,
    sent: BTreeSet<(MemberId, MemberId, Message)>,
    now: u64,
    crashes: u8,
    wipes: u8,
    transfers: u8,
    /// Who was in office in each term.
    terms: BTreeMap<Token, MemberId>,
    /// Whom each member has voted for in each term, as far as it has said so.
    votes: BTreeMap<(MemberId, Token), MemberId>,
    broken: Broken,
}

/// What has been found to be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Broken {
    two_in_a_term: bool,
    vote_lost: bool,
    term_went_back: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Node {
    /// `None`: down.
    machine: Option<Consensus>,
    disk: Option<Stored>,
    writing: VecDeque<(PersistId, Stored)>,
    office: Option<(Token, Timestamp)>,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Action {
    /// A message arrives.
    Deliver(MemberId, MemberId, Message),
    /// A timer fires.
    Tick(usize),
    /// The oldest write to disk is done.
    Written(usize),
    /// A member stops, with or without its disk.
    Crash(usize, bool),
    /// A member that is down starts.
    Restart(usize),
    /// The leader hands over.
    Transfer(usize, usize),
    /// A unit of time passes.
    Pass,
}

impl ConsensusModel {
    fn settings(&self) -> ConsensusSettings {
        // Nobody decides anything by it, and it would only multiply states.
        let policy = self.policy.with(ConsensusFlaw::LastOfficeForgotten);
        let mut settings = ConsensusSettings::default().with_policy(policy);
        settings.election_min = UNIT * 2;
        // One nanosecond of spread leaves nothing to draw: what is drawn in production is here a
        // timer that fires late.
        settings.election_max = UNIT * 2 + Duration::from_nanos(1);
        settings.heartbeat = UNIT;
        settings.drift_ppm = 0;
        settings.margin = Duration::ZERO;
        settings.grace = Duration::ZERO;
        // Without it any member may stand whenever its timer fires: more than what pre-votes
        // allow.
        settings.pre_vote = false;
        settings.positions = false;
        settings
    }

    fn machine(&self, now: u64, at: usize, boot: Boot) -> Option<Consensus> {
        let group = Group::new(MemberId(at as u16), (0..self.bounds.members).map(MemberId)).ok()?;
        // Nothing is drawn but the nonce of a wiped member, and a member is wiped at most once.
        let rng = Rng::from_number(1);
        Consensus::new(time(now), group, self.settings(), boot, (Some(TermRules::default()), Bytes::new()), rng).ok()
    }
}

fn time(units: u64) -> Timestamp {
    Timestamp::ZERO + UNIT * units as u32
}

/// The message without what cannot matter to safety: who knows which value. It would only multiply
/// states.
fn stripped(mut message: Message) -> Message {
    match &mut message {
        Message::Heartbeat { in_office, version, value, .. } => {
            (*in_office, *version, *value) = (true, 1, Some(Bytes::new()));
        }
        Message::Ack { version, .. } => *version = 0,
        _ => {}
    }
    message
}

impl Cluster {
    /// Forgets messages that can do nothing, now or later, since terms only grow and no role comes
    /// back in a term. (But a wiped member may stand again in a term that nobody else knew: then
    /// late votes count.)
    fn forget_dead_messages(&mut self, wipes: bool) {
        let nodes = &self.nodes;
        self.sent.retain(|(_, to, message)| {
            let node = &nodes[usize::from(to.0)];
            let (term, role) = match (&node.machine, &node.disk) {
                (Some(machine), _) => (machine.term(), Some(machine.role())),
                (None, Some(stored)) => (stored.term, None),
                (None, None) => return true,
            };
            match message {
                Message::Voted { granted: false, .. } | Message::PreVoted { .. } => false,
                Message::Voted { .. } if wipes => true,
                Message::Voted { term: of, .. } => of.get() == term && role == Some(PeerRole::Candidate),
                Message::Ack { term: of, .. } => {
                    of.get() == term && matches!(role, Some(PeerRole::Candidate | PeerRole::Leader))
                }
                // A crash may take the member back to the term on its disk.
                Message::Stale { term: of } => of.get() > term.min(node.disk.map_or(0, |stored| stored.term)),
                Message::TimeoutNow { term: of } => of.get() >= term,
                _ => true,
            }
        });
    }

    fn input(&mut self, at: usize, input: Input, slow_disks: bool) {
        if let Some(machine) = Arc::make_mut(&mut self.nodes[at]).machine.as_mut() {
            machine.handle(time(self.now), input);
            self.drain(at, slow_disks);
        }
    }

    /// Does what the machine says. A disk that is not slow answers in the same step.
    fn drain(&mut self, at: usize, slow_disks: bool) {
        let me = MemberId(at as u16);
        loop {
            let node = Arc::make_mut(&mut self.nodes[at]);
            let Some(machine) = node.machine.as_mut() else { return };
            match machine.poll_output() {
                None => match (node.writing.is_empty(), slow_disks) {
                    (false, false) => node.finish_write(time(self.now)),
                    _ => return,
                },
                Some(Output::Persist(id, stored)) => node.writing.push_back((id, stored)),
                Some(Output::Seal(id, _)) => machine.handle(time(self.now), Input::Sealed(id, Position::NONE)),
                Some(Output::Send(to, message)) => {
                    self.note_vote(me, to, &message);
                    self.sent.insert((me, to, stripped(message)));
                }
                Some(Output::Event(event)) => {
                    let over = matches!(event, Event::Unelected(_));
                    self.note_event(at, event);
                    // The work stops at once.
                    if over && let Some(machine) = Arc::make_mut(&mut self.nodes[at]).machine.as_mut() {
                        machine.handle(time(self.now), Input::Command(Command::Release));
                    }
                }
                Some(Output::RaiseFences(_) | Output::GiveUpFences(_) | Output::Closed) => {}
            }
        }
    }

    fn note_vote(&mut self, me: MemberId, to: MemberId, message: &Message) {
        let (term, voted) = match message {
            Message::Voted { term, granted: true, .. } => (*term, to),
            Message::Vote { term, .. } => (*term, me),
            _ => return,
        };
        let before = *self.votes.entry((me, term)).or_insert(voted);
        self.broken.vote_lost |= before != voted;
    }

    fn note_event(&mut self, at: usize, event: Event) {
        let me = MemberId(at as u16);
        let node = Arc::make_mut(&mut self.nodes[at]);
        match event {
            Event::Elected { title: Title::Term(token), deadline, .. } => {
                node.office = Some((token, deadline));
                self.broken.two_in_a_term |= self.terms.contains_key(&token);
                self.broken.term_went_back |= self.terms.keys().next_back().is_some_and(|last| *last > token);
                self.terms.insert(token, me);
            }
            Event::Deadline(deadline) => {
                if let Some(office) = node.office.as_mut() {
                    office.1 = deadline;
                }
            }
            Event::Unelected(_) => node.office = None,
            _ => {}
        }
    }

    /// The members that may believe now that they lead.
    fn leaders(&self) -> usize {
        let now = time(self.now);
        self.nodes.iter().filter(|node| node.office.is_some_and(|(_, deadline)| now < deadline)).count()
    }
}

impl Node {
    fn finish_write(&mut self, now: Timestamp) {
        if let Some((id, stored)) = self.writing.pop_front() {
            self.disk = Some(stored);
            if let Some(machine) = self.machine.as_mut() {
                machine.handle(now, Input::Persisted(id));
            }
        }
    }
}

impl Model for ConsensusModel {
    type State = Cluster;
    type Action = Action;

    fn init_states(&self) -> Vec<Cluster> {
        let nodes = (0..usize::from(self.bounds.members)).map(|at| {
            let machine = self.machine(0, at, Boot::New);
            Arc::new(Node { machine, disk: None, writing: VecDeque::new(), office: None })
        });
        let mut cluster = Cluster {
            nodes: nodes.collect(),
            sent: BTreeSet::new(),
            now: 0,
            crashes: 0,
            wipes: 0,
            transfers: 0,
            terms: BTreeMap::new(),
            votes: BTreeMap::new(),
            broken: Broken::default(),
        };
        for at in 0..cluster.nodes.len() {
            // The first state of a group is written before the group is used.
            cluster.drain(at, false);
        }
        // Nothing can happen before the first timeout.
        cluster.now = 2;
        vec![cluster]
    }

    fn actions(&self, state: &Cluster, actions: &mut Vec<Action>) {
        let up = |at: usize| state.nodes[at].machine.is_some();
        for (from, to, message) in &state.sent {
            if up(usize::from(to.0)) {
                actions.push(Action::Deliver(*from, *to, message.clone()));
            }
        }
        // Members differ by number alone, which no machine orders: whatever happens first happens
        // to the first.
        let fresh = |node: &Arc<Node>| node.machine.as_ref().is_some_and(|machine| machine.term() == 0);
        let alike = state.crashes == 0 && state.nodes.iter().all(fresh);
        for (at, node) in state.nodes.iter().enumerate() {
            let Some(machine) = &node.machine else {
                actions.push(Action::Restart(at));
                continue;
            };
            if alike && at != 0 {
                continue;
            }
            if machine.poll_timeout().is_some_and(|due| due <= time(state.now)) {
                actions.push(Action::Tick(at));
            }
            if !node.writing.is_empty() {
                actions.push(Action::Written(at));
            }
            if state.crashes < self.bounds.crashes {
                actions.push(Action::Crash(at, false));
                if state.wipes < self.bounds.wipes {
                    actions.push(Action::Crash(at, true));
                }
            }
            if state.transfers < self.bounds.transfers && machine.office().is_some() {
                let heirs = (0..state.nodes.len()).filter(|heir| *heir != at);
                actions.extend(heirs.map(|heir| Action::Transfer(at, heir)));
            }
        }
        if state.now < self.bounds.until {
            actions.push(Action::Pass);
        }
    }

    fn next_state(&self, last: &Cluster, action: Action) -> Option<Cluster> {
        let mut next = last.clone();
        let slow = self.bounds.slow_disks;
        match action {
            Action::Deliver(from, to, message) => {
                if !self.bounds.doubling {
                    next.sent.remove(&(from, to, message.clone()));
                }
                next.input(usize::from(to.0), Input::Message(from, message), slow);
            }
            Action::Tick(at) => next.input(at, Input::Tick, slow),
            Action::Written(at) => {
                Arc::make_mut(&mut next.nodes[at]).finish_write(time(last.now));
                next.drain(at, slow);
            }
            Action::Crash(at, wiped) => {
                next.crashes += 1;
                next.wipes += u8::from(wiped);
                if wiped {
                    // A vote for itself ends with the candidacy: nobody is left to count it.
                    let me = MemberId(at as u16);
                    next.votes.retain(|(voter, _), voted| *voter != me || *voted != me);
                }
                let node = Arc::make_mut(&mut next.nodes[at]);
                let disk = node.disk.filter(|_| !wiped);
                *node = Node { machine: None, disk, writing: VecDeque::new(), office: None };
            }
            Action::Restart(at) => {
                let node = Arc::make_mut(&mut next.nodes[at]);
                node.machine = self.machine(last.now, at, node.disk.map_or(Boot::Lost, Boot::Restarted));
                next.drain(at, slow);
            }
            Action::Transfer(at, heir) => {
                next.transfers += 1;
                // An heir that has not answered yet is not waited for: other actions come before
                // this one.
                let transfer = Command::Transfer(Successor::Member(MemberId(heir as u16)), Duration::ZERO);
                next.input(at, Input::Command(transfer), slow);
            }
            Action::Pass => next.now += 1,
        }
        next.forget_dead_messages(self.bounds.wipes > 0);
        (next != *last).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("at most one leader per term", |_, state: &Cluster| !state.broken.two_in_a_term),
            Property::always("terms never go back", |_, state: &Cluster| !state.broken.term_went_back),
            Property::always("no vote is lost", |_, state: &Cluster| !state.broken.vote_lost),
            Property::always("no two leases at a time", |model: &Self, state: &Cluster| {
                !model.leases || state.leaders() < 2
            }),
            Property::sometimes("somebody leads", |_, state: &Cluster| state.leaders() == 1),
            Property::sometimes("the office changes hands", |_, state: &Cluster| state.terms.len() > 1),
        ]
    }

    fn within_boundary(&self, state: &Cluster) -> bool {
        let term = |node: &Arc<Node>| node.machine.as_ref().map_or(0, Consensus::term);
        state.nodes.iter().all(|node| term(node) <= self.bounds.terms)
    }
}

const SOUND: ConsensusPolicy = ConsensusPolicy::SOUND;

const BASE: Bounds =
    Bounds { members: 3, terms: 2, until: 4, crashes: 0, wipes: 0, transfers: 0, slow_disks: false, doubling: true };

const SAFETY: [&str; 4] =
    ["at most one leader per term", "terms never go back", "no vote is lost", "no two leases at a time"];

/// Explores everything; nothing may be broken, and at least so many states must have been seen.
fn holds(model: ConsensusModel, at_least: usize) {
    let bounds = model.bounds;
    let checker = model.checker().spawn_bfs().join();
    assert!(checker.is_done());
    for name in SAFETY {
        if let Some(path) = checker.discovery(name) {
            panic!("{name}: broken within {bounds:?}:\n{:#?}", path.into_actions());
        }
    }
    assert!(checker.discovery("somebody leads").is_some(), "the check saw no leader at all");
    let states = checker.unique_state_count();
    println!("{states} states within {bounds:?}");
    assert!(states >= at_least, "only {states} states: the bounds no longer mean what they did");
}

/// Explores until something is broken, which must happen.
fn is_caught(bounds: Bounds, policy: ConsensusPolicy, leases: bool) {
    let model = ConsensusModel { bounds, policy, leases };
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let broken: Vec<_> = SAFETY.into_iter().filter(|name| checker.discovery(name).is_some()).collect();
    assert!(!broken.is_empty(), "nothing is broken by {policy:?} within {bounds:?}");
}

fn sound(bounds: Bounds) -> ConsensusModel {
    ConsensusModel { bounds, policy: SOUND, leases: true }
}

#[test]
fn three_terms_and_two_timeouts_without_crashes() {
    holds(sound(Bounds { terms: 3, ..BASE }), 50_000);
}

#[test]
fn a_crash_of_anyone_at_any_moment_and_a_restart_at_any_later_one() {
    holds(sound(Bounds { crashes: 1, ..BASE }), 300_000);
}

#[test]
fn a_transfer_to_anyone_and_a_crash_of_anyone() {
    holds(sound(Bounds { until: 3, crashes: 1, transfers: 1, ..BASE }), 100_000);
}

#[test]
fn two_transfers_and_three_terms() {
    holds(sound(Bounds { terms: 3, until: 2, transfers: 2, ..BASE }), 1_000);
}

#[test]
fn writes_to_disk_that_take_time_while_other_things_happen() {
    holds(sound(Bounds { until: 3, crashes: 1, slow_disks: true, ..BASE }), 20_000);
    holds(sound(Bounds { until: 3, transfers: 1, slow_disks: true, ..BASE }), 20_000);
}

/// Restarted members vote at once here, so that votes after a restart fit into the bounds: what
/// votes must keep does not depend on abstention (leases do, and are not looked at).
fn votes(bounds: Bounds) -> ConsensusModel {
    ConsensusModel { bounds, policy: SOUND.with(ConsensusFlaw::NoAbstention), leases: false }
}

#[test]
fn two_crashes_lose_no_vote() {
    holds(votes(Bounds { until: 3, crashes: 2, ..BASE }), 50_000);
}

#[test]
fn a_crash_with_slow_disks_loses_no_vote() {
    holds(votes(Bounds { until: 3, crashes: 1, slow_disks: true, ..BASE }), 20_000);
    holds(votes(Bounds { until: 2, crashes: 2, slow_disks: true, ..BASE }), 5_000);
}

#[test]
fn a_member_that_lost_its_disk_breaks_no_vote() {
    holds(votes(Bounds { until: 3, crashes: 1, wipes: 1, ..BASE }), 100_000);
}

#[test]
fn the_check_finds_a_vote_that_is_not_persisted() {
    let policy = SOUND.with(ConsensusFlaw::NoAbstention).with(ConsensusFlaw::VoteNotPersisted);
    is_caught(Bounds { until: 2, crashes: 1, ..BASE }, policy, false);
}

#[test]
fn the_check_finds_a_wiped_member_that_starts_afresh() {
    let policy = SOUND.with(ConsensusFlaw::NoAbstention).with(ConsensusFlaw::WipedStartsAfresh);
    is_caught(Bounds { until: 3, crashes: 1, wipes: 1, ..BASE }, policy, false);
}

#[test]
fn the_check_finds_a_lease_from_the_response() {
    is_caught(BASE, SOUND.with(ConsensusFlaw::LeaseFromResponse), true);
}

#[test]
fn the_check_finds_a_restart_without_abstention() {
    is_caught(Bounds { crashes: 1, ..BASE }, SOUND.with(ConsensusFlaw::NoAbstention), true);
}

#[test]
fn the_check_finds_voters_that_break_their_promise() {
    is_caught(BASE, SOUND.with(ConsensusFlaw::NoStickyVoters), true);
}

#[test]
fn the_check_finds_a_lease_kept_after_a_transfer() {
    is_caught(Bounds { until: 3, transfers: 1, ..BASE }, SOUND.with(ConsensusFlaw::LeaseKeptAfterTransfer), true);
}

#[test]
fn the_check_finds_a_winner_in_office_without_a_promise() {
    is_caught(BASE, SOUND.with(ConsensusFlaw::ElectedUnconfirmed), true);
}
