//! What bully and ring elections share: the leader's heartbeats, who suspects it, the majority
//! rule, and what the user is told. How a leader is chosen is not known here.
//!
//! A member that takes over is chosen at once and in office later: when those that led before have
//! left, or have had their grace (it is in their heartbeats) and a timeout, and not before it has
//! listened for a timeout or all have answered. The former leader drains as always. A member that
//! has resigned leaves the next leader alone, whatever its rank.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;

use super::group::{Group, MemberId};
use super::machine::{Input, OperatorRequest, Output, TermRules};
use super::policy::RankPolicy;
use super::role::{ShownRole, role};
use crate::machine::{Command, Event, LossReason, Title};
use crate::office::Refusal;
use crate::rng::Rng;
use crate::standing::Cas;
use crate::tenure::{Rules, Step, Tenure, Then};
use crate::terms::LastTerm;
use crate::time::{Timestamp, nanos};

/// The times and rules of a bully or ring election. All members must use the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct RankSettings {
    /// How often the leader sends a heartbeat.
    pub heartbeat: Duration,
    /// After how much silence the leader is suspected.
    pub leader_timeout: Duration,
    /// How long an answer may take before the one who was asked counts as dead.
    pub answer_timeout: Duration,
    /// How long the work of a leader may take to stop.
    pub grace: Duration,
    /// Lead only while a majority answers. It narrows the time with two leaders; it does not
    /// exclude it.
    pub majority: bool,
    /// Whether a member takes over from a healthy leader of lower rank: the textbook's rule, at the
    /// price of a change of leader whenever a higher rank returns.
    pub take_over: bool,
    pub(crate) policy: RankPolicy,
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
            policy: RankPolicy::SOUND,
        }
    }
}

impl RankSettings {
    /// The same, with known-bad rules.
    #[cfg(feature = "flaws")]
    pub fn with_policy(self, policy: RankPolicy) -> RankSettings {
        RankSettings { policy, ..self }
    }

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

/// What leader and followers say to each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RankMessage {
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
    /// The answer to [`RankMessage::Beat`] of one that does not lead.
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

/// What the algorithm has to deal with.
pub(super) enum Due<M> {
    Tick,
    Message(MemberId, M),
    /// There is a candidate from now on.
    Stand,
}

/// What every member of an election by rank keeps: whom it follows, or who acknowledges it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RankState<M> {
    pub(super) group: Group,
    pub(super) settings: RankSettings,
    value: Bytes,
    version: u64,
    role: RankRole,
    known: Option<(MemberId, u64, Bytes)>,
    /// Who has said that it leads, when, and how long its work may take to stop: whether or not it
    /// is followed.
    beats: BTreeMap<MemberId, (Timestamp, Duration)>,
    /// The office of this member's candidate. There are no heirs.
    tenure: Tenure<Infallible>,
    /// Whether there is a candidate.
    stands: bool,
    /// The candidate does not stand again, and goes once its work has stopped.
    leaving: bool,
    healthy: bool,
    closing: bool,
    closed: bool,
    /// Having given the office back, this member does not stand before then.
    rests_until: Timestamp,
    /// This member has given the office back since it last led: it does not take it from another.
    resigned: bool,
    /// Until then a healthy leader may simply not have been heard yet.
    settled_at: Timestamp,
    shown: ShownRole,
    out: VecDeque<Output<M>>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum RankRole {
    /// Follows this leader, or waits for one to be heard.
    Listening { leader: Option<MemberId>, heard_at: Timestamp },
    /// Has been chosen. In office once a majority answers, where that is asked for, and those who
    /// led before have left.
    Leading {
        beat_at: Timestamp,
        heard: BTreeMap<MemberId, Heard>,
        /// Those who led before and have not said yet that they left; each is waited for until
        /// then.
        before: BTreeMap<MemberId, Timestamp>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Heard {
    sent_at: Timestamp,
    version: u64,
}

impl<M: From<RankMessage>> RankState<M> {
    pub(super) fn new(
        now: Timestamp,
        group: Group,
        settings: RankSettings,
        (candidate, value): (Option<TermRules>, Bytes),
        mut rng: Rng,
    ) -> RankState<M> {
        // Versions of one life are never taken for those of another.
        let version = rng.next_u64() | 1;
        let hold_until_stopped = candidate.is_some_and(|rules| rules.hold_until_stopped);
        RankState {
            group,
            settings,
            value,
            version,
            role: RankRole::Listening { leader: None, heard_at: now },
            known: None,
            beats: BTreeMap::new(),
            tenure: Tenure::new(Rules { grace: settings.grace, hold_until_stopped }),
            stands: candidate.is_some(),
            leaving: false,
            healthy: candidate.is_none_or(|rules| !rules.unfit),
            closing: false,
            closed: false,
            rests_until: now,
            resigned: false,
            settled_at: now + settings.leader_timeout,
            shown: ShownRole::default(),
            out: VecDeque::new(),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Output<M>> {
        self.out.pop_front()
    }

    pub(super) fn send(&mut self, to: MemberId, message: impl Into<M>) {
        self.out.push_back(Output::Send(to, message.into()));
    }

    fn event(&mut self, event: Event) {
        self.out.push_back(Output::Event(event));
    }

    /// Lets time pass and obeys commands; what is left is for the algorithm to deal with.
    pub(super) fn take_in(&mut self, now: Timestamp, input: Input<M>) -> Option<Due<M>> {
        if self.closed {
            return None;
        }
        self.on_time(now);
        match input {
            Input::Tick => return Some(Due::Tick),
            Input::Message(from, message) => {
                let known = self.group.contains(from) && from != self.group.me();
                return known.then_some(Due::Message(from, message));
            }
            Input::Stand(rules, value) => {
                (self.stands, self.leaving, self.healthy) = (true, false, !rules.unfit);
                self.tenure.set_hold(rules.hold_until_stopped);
                self.set_value(now, value);
                return Some(Due::Stand);
            }
            Input::Command(command) => self.on_command(now, command),
            Input::Close => {
                self.closing = true;
                self.drain(now, LossReason::Closing);
            }
            // Without tokens there are no fences, and nothing is written down.
            Input::Fences(..)
            | Input::Readmit
            | Input::Persisted(_)
            | Input::PersistFailed(_)
            | Input::Sealed(..)
            | Input::Position(_) => {}
        }
        None
    }

    /// Whether this member wants the office.
    fn is_candidate(&self) -> bool {
        self.stands && !self.leaving && self.healthy && !self.closing
    }

    /// Whether this member may be elected, or stay so.
    pub(super) fn is_fit(&self, now: Timestamp) -> bool {
        // What is left of the last term is in the way of the next one, and not of itself.
        let free = self.tenure.is_settled() || (self.leads() && self.tenure.in_office());
        let leaves_it = self.resigned && self.healthy_leader(now).is_some();
        self.is_candidate() && free && now >= self.rests_until && !leaves_it
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
        matches!(self.role, RankRole::Leading { .. })
    }

    /// The leader that is followed, unless it has been silent for too long.
    pub(super) fn healthy_leader(&self, now: Timestamp) -> Option<MemberId> {
        match &self.role {
            RankRole::Listening { leader, .. } if !self.suspects(now) => *leader,
            _ => None,
        }
    }

    /// Whether nobody has been heard for too long.
    pub(super) fn suspects(&self, now: Timestamp) -> bool {
        match &self.role {
            RankRole::Listening { heard_at, .. } => now >= *heard_at + self.settings.leader_timeout,
            RankRole::Leading { .. } => false,
        }
    }

    /// Forgets the silent leader and listens anew.
    pub(super) fn give_up_leader(&mut self, now: Timestamp) {
        if let RankRole::Listening { leader, heard_at, .. } = &mut self.role {
            *heard_at = now;
            if leader.take().is_some() && self.known.take().is_some() {
                self.event(Event::Vacant);
            }
        }
    }

    /// A member has been chosen, and is given time to be heard.
    pub(super) fn listen_anew(&mut self, now: Timestamp) {
        if let RankRole::Listening { leader: None, heard_at, .. } = &mut self.role {
            *heard_at = now;
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        if self.closed {
            return None;
        }
        let next = match &self.role {
            RankRole::Listening { heard_at, .. } => *heard_at + self.settings.leader_timeout,
            RankRole::Leading { beat_at, .. } => *beat_at,
        };
        Some(self.tenure.next_timeout().map_or(next, |tenure| tenure.min(next)))
    }

    /// Lets time pass for a leader, and for one that leaves.
    fn on_time(&mut self, now: Timestamp) {
        let step = self.tenure.on_time(now);
        self.carry_out(now, step);
        if let RankRole::Leading { beat_at, .. } = self.role
            && now >= beat_at
        {
            // Those who were waited for may have had their time.
            self.look_at_majority(now);
            self.beat(now);
        }
    }

    fn beat(&mut self, now: Timestamp) {
        let RankRole::Leading { beat_at, heard, .. } = &mut self.role else { return };
        *beat_at = now + self.settings.heartbeat;
        let (version, grace) = (self.version, nanos(self.settings.grace));
        let knows: Vec<_> = heard.iter().filter(|(_, heard)| heard.version == version).map(|(who, _)| *who).collect();
        for member in self.group.others() {
            let value = (!knows.contains(&member)).then(|| self.value.clone());
            self.send(member, RankMessage::Beat { echo: now.as_nanos(), version, value, grace });
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
        self.role = RankRole::Leading { beat_at: now, heard: BTreeMap::new(), before };
        self.beat(now);
        self.look_at_majority(now);
    }

    /// Another has been chosen and says so itself. The work of a sitting leader gets its grace.
    pub(super) fn follow(&mut self, now: Timestamp, leader: MemberId) {
        let step = match self.settings.policy.waits_for_the_loser() {
            true => self.tenure.must_stop(now, LossReason::Superseded, None),
            false => self.tenure.title_gone(LossReason::Superseded),
        };
        self.role = RankRole::Listening { leader: Some(leader), heard_at: now };
        self.carry_out(now, step);
        if self.tenure.has_title() {
            self.send(leader, RankMessage::Leaving { grace: nanos(self.settings.grace) });
        }
    }

    /// Does what the tenure says.
    fn carry_out(&mut self, now: Timestamp, step: Option<Step<Infallible>>) {
        match step {
            None => {}
            Some(Step::Stopping { why, hard_stop }) => {
                self.event(Event::Stopping { why, hard_stop });
                if !self.settings.policy.stops_before_release() {
                    self.give_up(now, why);
                }
            }
            Some(Step::Unelected(why, then)) => {
                self.event(Event::Unelected(why));
                match then {
                    Then::Kept => {}
                    Then::GivenUp(_) => self.give_up(now, why),
                    Then::Gone => self.event(Event::Released),
                }
            }
            Some(Step::GiveUp { why, .. }) => self.give_up(now, why),
        }
    }

    /// Gives up what was held until now, the term being over. For want of a majority the member
    /// goes on beating, since one may answer again; else another is to lead, or does so already.
    fn give_up(&mut self, now: Timestamp, why: LossReason) {
        self.event(Event::Released);
        self.resigned = why == LossReason::Resigned && self.settings.policy.remembers_resignations();
        match self.role {
            RankRole::Leading { .. } if why == LossReason::LocalDeadline => {}
            RankRole::Leading { .. } => {
                self.rests_until = now + self.settings.leader_timeout * 2;
                self.step_down(now);
            }
            RankRole::Listening { leader: Some(leader), .. } => self.send(leader, RankMessage::Left),
            RankRole::Listening { leader: None, .. } => {}
        }
    }

    fn step_down(&mut self, now: Timestamp) {
        self.role = RankRole::Listening { leader: None, heard_at: now };
        for member in self.group.others() {
            self.send(member, RankMessage::Left);
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
        if self.tenure.has_title() {
            // It is told of the new leader when its own term is over.
            return;
        }
        let same = matches!(&self.known, Some((leader, known, _)) if *leader == from && *known == version);
        if let Some(value) = value.filter(|_| !same) {
            self.known = Some((from, version, value.clone()));
            self.event(Event::Led { leader: from, term: None, value });
        }
        let has = self.known.as_ref().filter(|(leader, ..)| *leader == from).map_or(0, |(_, version, _)| *version);
        self.send(from, RankMessage::Heard { echo, version: has });
    }

    /// One that led has heard of this member, and its work may take so long to stop.
    pub(super) fn on_leaving(&mut self, now: Timestamp, from: MemberId, grace: u64) {
        let until = now + Duration::from_nanos(grace) + self.settings.leader_timeout;
        if let RankRole::Leading { before, .. } = &mut self.role
            && self.tenure.is_settled()
        {
            before.entry(from).or_insert(until);
        }
    }

    /// One that led has left. `true`: it was the leader that is followed, and nobody is any more.
    pub(super) fn on_left(&mut self, now: Timestamp, from: MemberId) -> bool {
        self.beats.remove(&from);
        if let RankRole::Leading { before, .. } = &mut self.role {
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
        let RankRole::Leading { heard, before, .. } = &mut self.role else { return };
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
        let RankRole::Leading { heard, before, .. } = &self.role else { return };
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
        if !self.tenure.is_settled() {
            if deadline > self.tenure.deadline() && self.tenure.prove(deadline) {
                self.event(Event::Deadline(deadline));
            }
        } else if !may_be_led || !self.settings.policy.waits_for_the_loser() {
            self.take_office(now, deadline);
        }
    }

    fn take_office(&mut self, now: Timestamp, deadline: Timestamp) {
        self.tenure.prove(deadline);
        if self.tenure.begin(now).and_then(|()| self.tenure.take_office(now)).is_ok() {
            let (term, last_term) = (self.tenure.term(), LastTerm::Unknown);
            self.event(Event::Elected { term, title: Title::Rank, last_term, deadline });
        }
    }

    /// Asks the user to stop the work. One that was only chosen is no longer.
    fn drain(&mut self, now: Timestamp, why: LossReason) {
        if self.leads() && self.tenure.is_settled() {
            return self.step_down(now);
        }
        let step = self.tenure.must_stop(now, why, None);
        self.carry_out(now, step);
    }

    /// What an operator wants of this member, which has to be in office. Accepted: the work is
    /// asked to stop.
    pub(super) fn request(&mut self, now: Timestamp, request: OperatorRequest) -> Result<(), Refusal> {
        match request {
            OperatorRequest::Transfer(_) => return Err(Refusal::RankDecides),
            OperatorRequest::Resign if !self.tenure.in_office() => return Err(Refusal::NotInOffice),
            OperatorRequest::Resign if !self.tenure.serves() => return Err(Refusal::Busy),
            OperatorRequest::Resign => self.drain(now, LossReason::Resigned),
        }
        Ok(())
    }

    fn on_command(&mut self, now: Timestamp, command: Command) {
        match command {
            Command::Release => {
                let step = self.tenure.stopped();
                self.carry_out(now, step);
            }
            Command::Lapsed(term) => {
                let step = self.tenure.lapsed(term);
                self.carry_out(now, step);
            }
            Command::Transfer(..) => self.event(Event::TransferRefused(Refusal::RankDecides)),
            Command::Proclaim(number, value) if self.tenure.in_office() => {
                self.set_value(now, value);
                self.event(Event::Proclaimed(number, Cas::Done));
            }
            Command::Proclaim(number, _) => self.event(Event::Proclaimed(number, Cas::Refused)),
            Command::Healthy(healthy) => {
                self.healthy = healthy;
                if !healthy {
                    self.drain(now, LossReason::Unhealthy);
                }
            }
            // The rank of those who are left decides, whoever leaves and however.
            Command::HandOver(Some(_)) => self.event(Event::NoHeir(Refusal::RankDecides)),
            Command::HandOver(None) | Command::Prepared(..) | Command::Unwell(_) | Command::Improving(_) => {}
            Command::Leave => {
                self.leaving = true;
                if !self.tenure.in_office() {
                    self.drain(now, LossReason::Resigned);
                }
            }
        }
    }

    fn set_value(&mut self, now: Timestamp, value: Bytes) {
        self.value = value;
        self.version = self.version.wrapping_add(2);
        self.beat(now);
    }

    /// What has come to its end is said, after everything else.
    pub(super) fn finish(&mut self, now: Timestamp) {
        // It went on beating for want of a majority, and no longer wants the office.
        if self.leads() && self.tenure.is_settled() && !self.is_candidate() {
            self.step_down(now);
        }
        if self.leaving && self.stands && self.tenure.is_settled() && !self.leads() {
            (self.leaving, self.stands) = (false, false);
            self.event(Event::Done { certain: true });
        }
        self.show_role();
        if self.closing && !self.leads() && !self.tenure.has_title() && !self.closed {
            self.closed = true;
            self.out.push_back(Output::Closed);
        }
    }

    /// Shows the candidate whom it follows, if that has changed.
    fn show_role(&mut self) {
        let leader = self.known.as_ref().map(|(leader, ..)| *leader);
        let (waits, stands) = (self.settings.policy.waits_for_the_work(), self.stands && !self.leaving && !self.closed);
        let role = role(&self.tenure, waits, self.healthy, (leader, None)).filter(|_| stands);
        if let Some(role) = self.shown.change(role) {
            self.event(role);
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
