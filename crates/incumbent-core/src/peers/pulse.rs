//! What bully and ring elections share: the leader's heartbeats, who suspects it, the majority rule, and what the user is
//! told. How a leader is chosen is not known here.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::event::{PeerCommand, PeerEvent, TransferRefusal};
use super::flaw::{PeerFlaw, PeerFlaws};
use super::group::{Group, MemberId};
use crate::machine::Loss;
use crate::rng::Rng;
use crate::time::Timestamp;

/// The times and rules of a bully or ring election. All members must use the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RankSettings {
    /// How often the leader sends a heartbeat.
    pub heartbeat: Duration,
    /// After how much silence the leader is suspected.
    pub leader_timeout: Duration,
    /// How long an answer may take before the one who was asked counts as dead.
    pub answer_timeout: Duration,
    /// How long the work of a leader may take to stop.
    pub grace: Duration,
    /// Lead only while a majority answers. It narrows the time with two leaders; it does not exclude it.
    pub majority: bool,
    /// Whether a member takes over from a healthy leader of lower rank: the textbook's rule, at the price of a change
    /// of leader whenever a higher rank returns.
    pub take_over: bool,
    /// Known-bad variants, for the simulation.
    pub flaws: PeerFlaws,
}

impl Default for RankSettings {
    fn default() -> RankSettings {
        RankSettings {
            heartbeat: Duration::from_millis(250),
            leader_timeout: Duration::from_millis(1_500),
            answer_timeout: Duration::from_millis(500),
            grace: Duration::from_millis(500),
            majority: false,
            take_over: true,
            flaws: PeerFlaws::NONE,
        }
    }
}

impl RankSettings {
    /// Refuses settings under which a healthy leader would be suspected after one lost heartbeat.
    pub fn check(&self) -> Result<(), RankSettingsError> {
        if self.heartbeat.is_zero() || self.answer_timeout.is_zero() {
            return Err(RankSettingsError::ZeroInterval);
        }
        let grace = if self.majority { self.grace } else { Duration::ZERO };
        let needs = self.heartbeat.saturating_mul(2).saturating_add(grace);
        if self.leader_timeout < needs {
            return Err(RankSettingsError::TooShort {
                leader_timeout: self.leader_timeout,
                heartbeat: self.heartbeat,
                grace,
                short_by: needs - self.leader_timeout,
            });
        }
        Ok(())
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RankSettingsError {
    /// An interval of zero would never rest.
    #[error("an interval is zero: heartbeats and answers need time")]
    ZeroInterval,
    /// One lost heartbeat would depose a healthy leader.
    #[error(
        "a leader that is suspected after {leader_timeout:?} cannot miss a heartbeat: two heartbeats of {heartbeat:?} + grace {grace:?} need \
         {short_by:?} more"
    )]
    TooShort {
        /// The timeout asked for.
        leader_timeout: Duration,
        /// The heartbeat interval asked for.
        heartbeat: Duration,
        /// The grace, where the majority rule makes it count.
        grace: Duration,
        /// By how much the timeout is too short.
        short_by: Duration,
    },
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RankInput<M> {
    /// Time has passed.
    Tick,
    /// A member says something. Who it is has been authenticated.
    Message(MemberId, M),
    /// The user wants something.
    Command(PeerCommand),
}

/// What is to be done, or has come to pass, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RankOutput<M> {
    /// Say this to a member. May be lost, late, doubled or overtaken.
    Send(MemberId, M),
    /// Tell the user.
    Event(PeerEvent),
}

/// What leader and followers say to each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PulseMessage {
    /// I lead.
    Beat {
        /// When it was sent, by the leader's clock; opaque to others.
        echo: u64,
        /// Which of the leader's values is proclaimed.
        version: u64,
        /// That value, for a member that has not acknowledged it.
        value: Option<Bytes>,
        /// How long the leader's work may take to stop, in nanoseconds.
        grace: u64,
    },
    /// The answer to [`PulseMessage::Beat`] of one that does not lead.
    Heard {
        /// The heartbeat's.
        echo: u64,
        /// The leader's value that the sender has; zero for none.
        version: u64,
    },
    /// To one that takes over: I leave the office to you, but my work has not stopped yet.
    Leaving {
        /// How long it may take, in nanoseconds.
        grace: u64,
    },
    /// I no longer lead: elect another, unless there is one.
    Left,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What the algorithm has to deal with.
pub(super) enum Due<M> {
    Tick,
    Message(MemberId, M),
}

/// The part of a member that beats and listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pulse<M> {
    pub(super) group: Group,
    pub(super) settings: RankSettings,
    value: Bytes,
    version: u64,
    post: Post,
    known: Option<(MemberId, u64, Bytes)>,
    /// Who has said that it leads, when, and how long its work may take to stop: whether or not it
    /// is followed.
    beats: BTreeMap<MemberId, (Timestamp, Duration)>,
    healthy: bool,
    closing: bool,
    closed: bool,
    /// Having given the office back, this member does not stand before then.
    rests_until: Timestamp,
    /// This member has given the office back since it last led: it does not take it from another.
    resigned: bool,
    /// Another has taken over, and the work of this member's term has not stopped yet.
    leaving: Option<Leaving>,
    /// Until then a healthy leader may simply not have been heard yet.
    settled_at: Timestamp,
    out: VecDeque<RankOutput<M>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Post {
    /// Follows this leader, or waits for one to be heard.
    Listening { leader: Option<MemberId>, heard_at: Timestamp },
    Leading {
        beat_at: Timestamp,
        heard: BTreeMap<MemberId, Heard>,
        office: Office,
        /// Those who led before and have not said yet that they left; each is waited for until
        /// then.
        before: BTreeMap<MemberId, Timestamp>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Leaving {
    why: Loss,
    hard_stop: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Heard {
    sent_at: Timestamp,
    version: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Office {
    /// No majority answers, or one who led before has not left yet.
    Unconfirmed,
    Held {
        deadline: Timestamp,
    },
    Draining {
        why: Loss,
        hard_stop: Timestamp,
    },
}

impl<M: From<PulseMessage>> Pulse<M> {
    pub(super) fn new(now: Timestamp, group: Group, settings: RankSettings, value: Bytes, mut rng: Rng) -> Pulse<M> {
        // Versions of one life are never taken for those of another.
        let version = rng.next_u64() | 1;
        Pulse {
            group,
            settings,
            value,
            version,
            post: Post::Listening { leader: None, heard_at: now },
            known: None,
            beats: BTreeMap::new(),
            healthy: true,
            closing: false,
            closed: false,
            rests_until: now,
            resigned: false,
            leaving: None,
            settled_at: now + settings.leader_timeout,
            out: VecDeque::new(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<RankOutput<M>> {
        self.out.pop_front()
    }

    pub(super) fn send(&mut self, to: MemberId, message: impl Into<M>) {
        self.out.push_back(RankOutput::Send(to, message.into()));
    }

    fn event(&mut self, event: PeerEvent) {
        self.out.push_back(RankOutput::Event(event));
    }

    /// Lets time pass and obeys commands; what is left is for the algorithm to deal with.
    pub(super) fn take_in(&mut self, now: Timestamp, input: RankInput<M>) -> Option<Due<M>> {
        if self.closed {
            return None;
        }
        self.on_time(now);
        match input {
            RankInput::Tick => Some(Due::Tick),
            RankInput::Message(from, message) => {
                let known = self.group.contains(from) && from != self.group.me();
                known.then_some(Due::Message(from, message))
            }
            RankInput::Command(command) => {
                self.on_command(now, command);
                None
            }
        }
    }

    /// Whether this member may be elected.
    pub(super) fn is_fit(&self, now: Timestamp) -> bool {
        let leaves_it = self.resigned && self.healthy_leader(now).is_some();
        self.healthy && !self.closing && self.leaving.is_none() && now >= self.rests_until && !leaves_it
    }

    /// Whether this member takes the office from a healthy leader of lower rank. Not after it has
    /// given it back: a resignation lasts for as long as somebody else leads.
    pub(super) fn takes_over(&self, now: Timestamp) -> bool {
        self.settings.take_over && !self.resigned && self.is_fit(now)
    }

    /// Whether somebody may lead, as far as this member knows.
    pub(super) fn may_be_led(&self, now: Timestamp) -> bool {
        now < self.settled_at || self.healthy_leader(now).is_some()
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.post, Post::Leading { .. })
    }

    /// The leader that is followed, unless it has been silent for too long.
    pub(super) fn healthy_leader(&self, now: Timestamp) -> Option<MemberId> {
        match &self.post {
            Post::Listening { leader, .. } if !self.suspects(now) => *leader,
            _ => None,
        }
    }

    /// Whether nobody has been heard for too long.
    pub(super) fn suspects(&self, now: Timestamp) -> bool {
        match &self.post {
            Post::Listening { heard_at, .. } => now >= *heard_at + self.settings.leader_timeout,
            Post::Leading { .. } => false,
        }
    }

    /// Forgets the silent leader and listens anew.
    pub(super) fn give_up_leader(&mut self, now: Timestamp) {
        if let Post::Listening { leader, heard_at, .. } = &mut self.post {
            *heard_at = now;
            if leader.take().is_some() && self.known.take().is_some() {
                self.event(PeerEvent::Vacant);
            }
        }
    }

    /// A member has been chosen, and is given time to be heard.
    pub(super) fn listen_anew(&mut self, now: Timestamp) {
        if let Post::Listening { leader: None, heard_at, .. } = &mut self.post {
            *heard_at = now;
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        if self.closed {
            return None;
        }
        let post = match &self.post {
            Post::Listening { heard_at, .. } => *heard_at + self.settings.leader_timeout,
            Post::Leading { beat_at, office, .. } => (*beat_at).min(match office {
                Office::Unconfirmed => *beat_at,
                Office::Held { deadline } => *deadline - self.settings.grace,
                Office::Draining { hard_stop, .. } => *hard_stop,
            }),
        };
        Some(self.leaving.map_or(post, |leaving| leaving.hard_stop.min(post)))
    }

    /// Lets time pass for a leader, and for one that leaves.
    fn on_time(&mut self, now: Timestamp) {
        if self.leaving.is_some_and(|leaving| now >= leaving.hard_stop) {
            self.leave();
        }
        let Post::Leading { beat_at, office, .. } = &mut self.post else { return };
        let due = now >= *beat_at;
        match office {
            Office::Held { deadline } if now >= *deadline => self.leave_office(Loss::LocalDeadline),
            Office::Held { deadline } if now >= *deadline - self.settings.grace => self.drain(now, Loss::LocalDeadline),
            Office::Draining { why, hard_stop } if now >= *hard_stop => {
                let why = *why;
                self.end_term(now, why);
            }
            _ => {}
        }
        if due {
            // Those who were waited for may have had their time.
            self.look_at_majority(now);
            self.beat(now);
        }
    }

    fn beat(&mut self, now: Timestamp) {
        let Post::Leading { beat_at, heard, .. } = &mut self.post else { return };
        *beat_at = now + self.settings.heartbeat;
        let (version, grace) = (self.version, nanos(self.settings.grace));
        let knows: Vec<_> = heard.iter().filter(|(_, heard)| heard.version == version).map(|(who, _)| *who).collect();
        for member in self.group.others() {
            let value = (!knows.contains(&member)).then(|| self.value.clone());
            self.send(member, PulseMessage::Beat { echo: now.as_nanos(), version, value, grace });
        }
    }

    /// This member has been chosen. It is in office once the former leader, whose work may go on,
    /// has left.
    pub(super) fn lead(&mut self, now: Timestamp) {
        if self.leads() {
            return;
        }
        let timeout = self.settings.leader_timeout;
        let lately = std::mem::take(&mut self.beats).into_iter().filter(|(_, (at, _))| now < *at + timeout);
        let before = lately.map(|(member, (_, grace))| (member, now + grace + timeout)).collect();
        self.known = None;
        self.resigned = false;
        self.post = Post::Leading { beat_at: now, heard: BTreeMap::new(), office: Office::Unconfirmed, before };
        self.beat(now);
        self.look_at_majority(now);
    }

    /// Another has been chosen and says so itself. The work of a sitting leader gets its grace.
    pub(super) fn follow(&mut self, now: Timestamp, leader: MemberId) {
        if self.settings.flaws.has(PeerFlaw::TakenOverAtOnce) {
            self.leave_office(Loss::Superseded);
        }
        if let Post::Leading { office, .. } = &self.post {
            self.leaving = match office {
                Office::Unconfirmed => None,
                Office::Held { deadline } => {
                    let hard_stop = (*deadline).min(now + self.settings.grace);
                    let why = Loss::Superseded;
                    self.event(PeerEvent::Stopping { why, hard_stop });
                    Some(Leaving { why, hard_stop })
                }
                Office::Draining { why, hard_stop } => Some(Leaving { why: *why, hard_stop: *hard_stop }),
            };
        }
        self.post = Post::Listening { leader: Some(leader), heard_at: now };
        if self.leaving.is_some() {
            self.send(leader, PulseMessage::Leaving { grace: nanos(self.settings.grace) });
        }
    }

    /// The work of a term that another has taken over has stopped, or has had its time.
    fn leave(&mut self) {
        let Some(leaving) = self.leaving.take() else { return };
        self.event(PeerEvent::Unelected(leaving.why));
        if let Post::Listening { leader: Some(leader), .. } = self.post {
            self.send(leader, PulseMessage::Left);
        }
    }

    /// A member says that it leads, whether or not it is to be followed.
    pub(super) fn note_beat(&mut self, now: Timestamp, from: MemberId, grace: u64) {
        if !self.leads() {
            self.beats.insert(from, (now, Duration::from_nanos(grace)));
        }
    }

    /// Takes in a heartbeat of the leader that is followed, and answers it.
    pub(super) fn hear(&mut self, now: Timestamp, from: MemberId, echo: u64, version: u64, value: Option<Bytes>) {
        self.follow(now, from);
        if self.leaving.is_some() {
            // It is told of the new leader when its own term is over.
            return;
        }
        let same = matches!(&self.known, Some((leader, known, _)) if *leader == from && *known == version);
        if let Some(value) = value.filter(|_| !same) {
            self.known = Some((from, version, value.clone()));
            self.event(PeerEvent::NewLeader { leader: from, term: None, value });
        }
        let has = self.known.as_ref().filter(|(leader, ..)| *leader == from).map_or(0, |(_, version, _)| *version);
        self.send(from, PulseMessage::Heard { echo, version: has });
    }

    /// One that led has heard of this member, and its work may take so long to stop.
    pub(super) fn on_leaving(&mut self, now: Timestamp, from: MemberId, grace: u64) {
        let until = now + Duration::from_nanos(grace) + self.settings.leader_timeout;
        if let Post::Leading { before, office: Office::Unconfirmed, .. } = &mut self.post {
            before.entry(from).or_insert(until);
        }
    }

    /// One that led has left. `true`: it was the leader that is followed, and nobody is any more.
    pub(super) fn on_left(&mut self, now: Timestamp, from: MemberId) -> bool {
        self.beats.remove(&from);
        if let Post::Leading { before, .. } = &mut self.post {
            before.remove(&from);
            self.look_at_majority(now);
        }
        let followed = self.healthy_leader(now) == Some(from);
        if followed {
            self.give_up_leader(now);
        }
        followed
    }

    pub(super) fn on_heard(&mut self, now: Timestamp, from: MemberId, echo: u64, version: u64) {
        let Post::Leading { heard, before, .. } = &mut self.post else { return };
        let sent_at = Timestamp::from_nanos(echo);
        if sent_at > now {
            return;
        }
        // Only one that is not in office answers so.
        before.remove(&from);
        let known = heard.entry(from).or_insert(Heard { sent_at, version });
        known.sent_at = known.sent_at.max(sent_at);
        known.version = version;
        self.look_at_majority(now);
    }

    fn look_at_majority(&mut self, now: Timestamp) {
        let Post::Leading { heard, office, before, .. } = &mut self.post else { return };
        let others = self.group.members().len() - 1;
        let may_be_led = (now < self.settled_at && heard.len() < others) || before.values().any(|until| now < *until);
        let mut sent: Vec<_> = heard.values().map(|heard| heard.sent_at).collect();
        sent.sort_unstable_by(|a, b| b.cmp(a));
        let deadline = match self.group.quorum() - 1 {
            others if self.settings.majority && others > 0 => match sent.get(others - 1) {
                Some(sent_at) => *sent_at + self.settings.leader_timeout,
                None => return,
            },
            _ => Timestamp::MAX,
        };
        match office {
            Office::Unconfirmed if may_be_led && !self.settings.flaws.has(PeerFlaw::TakenOverAtOnce) => {}
            Office::Unconfirmed if now < deadline - self.settings.grace => {
                *office = Office::Held { deadline };
                self.event(PeerEvent::Elected { token: None, deadline });
            }
            Office::Held { deadline: known } if deadline > *known => {
                *known = deadline;
                self.event(PeerEvent::Deadline(deadline));
            }
            _ => {}
        }
    }

    fn drain(&mut self, now: Timestamp, why: Loss) {
        let Post::Leading { office, .. } = &mut self.post else { return };
        match office {
            Office::Unconfirmed if why != Loss::LocalDeadline => self.end_term(now, why),
            Office::Held { deadline } => {
                let hard_stop = (*deadline).min(now + self.settings.grace);
                *office = Office::Draining { why, hard_stop };
                self.event(PeerEvent::Stopping { why, hard_stop });
            }
            Office::Unconfirmed | Office::Draining { .. } => {}
        }
    }

    /// Ends the term for the user. The member may go on beating: a majority may answer again.
    fn leave_office(&mut self, why: Loss) {
        let Post::Leading { office, .. } = &mut self.post else { return };
        if !matches!(office, Office::Unconfirmed) {
            *office = Office::Unconfirmed;
            self.event(PeerEvent::Unelected(why));
        }
    }

    /// Ends the term; unless it was for want of a majority, another is to lead.
    fn end_term(&mut self, now: Timestamp, why: Loss) {
        self.leave_office(why);
        if why == Loss::LocalDeadline || !self.leads() {
            return;
        }
        self.post = Post::Listening { leader: None, heard_at: now };
        for member in self.group.others() {
            self.send(member, PulseMessage::Left);
        }
    }

    fn on_command(&mut self, now: Timestamp, command: PeerCommand) {
        match command {
            PeerCommand::Release if self.leaving.is_some() => self.leave(),
            PeerCommand::Release => {
                let Post::Leading { office, .. } = &self.post else { return };
                let why = match office {
                    Office::Unconfirmed => return,
                    Office::Held { .. } => Loss::Resigned,
                    Office::Draining { why, .. } => *why,
                };
                if why != Loss::LocalDeadline {
                    self.rests_until = now + self.settings.leader_timeout * 2;
                }
                self.resigned = why == Loss::Resigned && !self.settings.flaws.has(PeerFlaw::ResignationForgotten);
                self.end_term(now, why);
            }
            PeerCommand::Readmit => {}
            PeerCommand::Transfer(_) => self.event(PeerEvent::TransferRefused(TransferRefusal::RankDecides)),
            PeerCommand::Proclaim(value) => {
                self.value = value;
                self.version = self.version.wrapping_add(2);
                self.beat(now);
            }
            PeerCommand::Healthy(healthy) => {
                self.healthy = healthy;
                if !healthy {
                    self.drain(now, Loss::Unhealthy);
                }
            }
            PeerCommand::Close => {
                self.closing = true;
                self.drain(now, Loss::Closing);
            }
        }
    }

    pub(super) fn close_if_idle(&mut self) {
        if self.closing && !self.leads() && self.leaving.is_none() && !self.closed {
            self.closed = true;
            self.event(PeerEvent::Closed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted_and_hasty_settings_are_refused_with_the_numbers() {
        RankSettings::default().check().unwrap();
        let hasty =
            RankSettings { leader_timeout: Duration::from_millis(900), majority: true, ..RankSettings::default() };
        let text = hasty.check().unwrap_err().to_string();
        for part in ["900ms", "250ms", "500ms", "need 100ms more"] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        let restless = RankSettings { answer_timeout: Duration::ZERO, ..RankSettings::default() };
        assert_eq!(restless.check(), Err(RankSettingsError::ZeroInterval));
    }
}
