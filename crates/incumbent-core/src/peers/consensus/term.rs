//! The term: how it begins, the lease that it lives on, what followers make of it, and every way in
//! which it ends.
//!
//! Every acknowledgement says whether its sender could stand now. A leader that resigns hands the
//! office to a member that could, or to none, and stands again after all others. An heir that has
//! not answered yet, or could not stand, is waited for, eight heartbeats at most; then the
//! user's transfer is refused, and an operator's goes to a member that can stand.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::message::{Ballot, Contact, LastOffice, Message, Position};
use super::{Consensus, Input, Output, Role};
use crate::entry::Token;
use crate::machine::{Event, LossReason, Title};
use crate::office::Refusal;
use crate::peers::group::MemberId;
use crate::peers::machine::OperatorRequest;
use crate::settings::LONGEST;
use crate::standing::{Cas, Fault};
use crate::tenure::{Step, Then};
use crate::time::{Timestamp, nanos};

/// How many heartbeats an heir has to answer a leader that may have just been elected, or that has
/// not heard yet that the heir stands: more than a timeout.
const HEIR_BEATS: u32 = 8;

/// How many of the longest election timeouts a member has to raise its fences. Then another one is
/// to lead, whose fences may answer. A single try may take one of them.
const TIMEOUTS_TO_RAISE: u32 = 2;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leading {
    since: Timestamp,
    /// What the others have promised.
    promises: BTreeMap<MemberId, Promise>,
    beat_at: Timestamp,
    version: u64,
    /// When to raise the fences, if they are wanted and not raised yet.
    raise_at: Option<Timestamp>,
    /// When to let another member lead, if the fences are not raised by then.
    raise_by: Option<Timestamp>,
    pending_handover: Option<PendingHandover>,
    /// Who was in office before.
    before: LastOffice,
}

/// A raise of fences that has not been answered. It may be of an earlier term.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Raise {
    token: Token,
    /// `None`: it is given up, and is being dropped.
    give_up_at: Option<Timestamp>,
}

/// A handover that waits for its heir.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PendingHandover {
    heir: MemberId,
    until: Timestamp,
    /// The user asks, whose work has stopped: it keeps the office without that heir. An operator
    /// has no such choice.
    by_user: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Promise {
    /// Until when this member certainly votes for nobody else, by our clock.
    until: Timestamp,
    position: Position,
    version: u64,
    /// Whether it could stand now.
    stands: bool,
}

impl Consensus {
    /// A quorum has voted for us. The user hears of it once a quorum has promised a lease, and the
    /// fences are raised.
    pub(super) fn lead(&mut self, now: Timestamp, before: LastOffice) {
        self.contact = None;
        self.asked = None;
        self.rest(now);
        self.role = Role::Leader(Leading {
            since: now,
            promises: BTreeMap::new(),
            beat_at: now,
            version: 1,
            raise_at: None,
            raise_by: None,
            pending_handover: None,
            before,
        });
        self.beat(now);
        if !self.settings.policy.waits_for_promises() {
            self.begin(now, now + self.settings.lease_of(self.settings.election_min) - self.settings.margin);
        }
        self.look_at_lease(now);
    }

    pub(super) fn next_timeout_of(&self, leading: &Leading) -> Timestamp {
        let tenure = if self.tenure.is_settled() { Some(self.stands_at) } else { self.tenure.next_timeout() };
        let raise = match &self.raise {
            Some(raise) => raise.give_up_at,
            None => leading.raise_at,
        };
        let raise_by = leading.raise_by.filter(|_| self.tenure.is_taking());
        [tenure, raise, raise_by].into_iter().flatten().fold(leading.beat_at, Timestamp::min)
    }

    /// Lets time pass for a leader: heartbeats, and the ends of the term.
    pub(super) fn lead_on(&mut self, now: Timestamp) {
        let step = self.tenure.on_time(now);
        self.carry_out(now, step);
        let Role::Leader(leading) = &mut self.role else { return };
        if self.tenure.is_taking() && now >= self.tenure.deadline() {
            self.tenure.step_back();
            leading.raise_at = None;
        }
        if self.tenure.is_taking() && leading.raise_by.is_some_and(|by| now >= by) {
            let step = self.tenure.must_stop(now, LossReason::Resigned, None);
            return self.carry_out(now, step);
        }
        let due = matches!(&self.role, Role::Leader(leading) if now >= leading.beat_at);
        self.beat(now);
        if due {
            self.hand_over(now);
        }
    }

    /// Sends the heartbeats that are due.
    fn beat(&mut self, now: Timestamp) {
        let Some(term) = Token::new(self.stored.term) else { return };
        let Role::Leader(leading) = &mut self.role else { return };
        if now < leading.beat_at {
            return;
        }
        leading.beat_at = now + self.settings.heartbeat;
        let (version, in_office) = (leading.version, self.tenure.in_office());
        let knows = |member: &MemberId| leading.promises.get(member).is_some_and(|promise| promise.version == version);
        let beats: Vec<_> = self
            .group
            .others()
            .map(|member| {
                let value = (in_office && !knows(&member)).then(|| self.value.clone());
                (member, Message::Heartbeat { term, echo: now.as_nanos(), in_office, version, value })
            })
            .collect();
        for (member, beat) in beats {
            self.send(member, beat);
        }
    }

    pub(super) fn on_ack(
        &mut self,
        now: Timestamp,
        from: MemberId,
        term: Token,
        sent_at: Timestamp,
        promise: Duration,
        (position, version, stands): (Position, u64, bool),
    ) {
        let Role::Leader(leading) = &mut self.role else { return };
        // Heartbeats of this term are from within it: anything else is not an echo of ours.
        if term.get() != self.stored.term || sent_at < leading.since || sent_at > now {
            return;
        }
        let counts_from = self.settings.policy.lease_from(sent_at, now);
        let known = leading.promises.entry(from).or_default();
        known.until = known.until.max(counts_from + self.settings.lease_of(promise));
        known.position = position;
        known.stands = stands;
        // Not the largest so far: a member that restarted has forgotten what it knew.
        known.version = version.min(leading.version);
        self.look_at_lease(now);
        self.hand_over(now);
    }

    /// Takes office, or moves the deadline, according to what a quorum has promised.
    fn look_at_lease(&mut self, now: Timestamp) {
        // Its vote for itself is durable, or it would not lead: see `count_votes`.
        let Role::Leader(leading) = &mut self.role else { return };
        let mut untils: Vec<_> = leading.promises.values().map(|promise| promise.until).collect();
        untils.sort_unstable_by(|a, b| b.cmp(a));
        // This member's own promise needs no proof: while it leads, it votes for nobody.
        let deadline = match self.group.quorum() - 1 {
            0 => Timestamp::MAX,
            others => untils.get(others - 1).copied().unwrap_or(Timestamp::ZERO) - self.settings.margin,
        };
        if self.tenure.is_settled() {
            self.begin(now, deadline);
        } else if deadline > self.tenure.deadline() && self.tenure.prove(deadline) {
            self.event(Event::Deadline(deadline));
        }
    }

    /// The lease is promised. In office, once the fences are raised.
    fn begin(&mut self, now: Timestamp, deadline: Timestamp) {
        self.tenure.prove(deadline);
        if self.tenure.begin(now).is_err() {
            return;
        }
        let fenced = self.candidate.is_some_and(|rules| rules.fenced);
        let raise_by = now + self.time_to_raise(TIMEOUTS_TO_RAISE);
        if let Role::Leader(leading) = &mut self.role
            && fenced
        {
            leading.raise_at = Some(now);
            leading.raise_by.get_or_insert(raise_by);
        }
        if !fenced || !self.settings.policy.raises_fences_first() {
            self.take_office(now);
        }
    }

    /// Begins the raise that is due, and gives up the one that is no longer wanted or takes too
    /// long. One that was given up may be in the user's hands for as long as it likes: the next one
    /// waits for it, and so does the next candidacy.
    pub(super) fn tend_fences(&mut self, now: Timestamp) {
        let raise_at = if let Role::Leader(leading) = &self.role { leading.raise_at } else { None };
        let give_up_at = now + self.time_to_raise(1);
        match &mut self.raise {
            Some(raise) if raise.give_up_at.is_some_and(|at| raise_at.is_none() || now >= at) => {
                raise.give_up_at = None;
                let token = raise.token;
                self.disk.push(Output::GiveUpFences(token));
                if !self.settings.policy.raises_fences_once() {
                    self.raise = None;
                }
            }
            None if raise_at.is_some_and(|at| now >= at) => {
                let Some(token) = Token::new(self.stored.term) else { return };
                self.raise = Some(Raise { token, give_up_at: Some(give_up_at) });
                self.disk.push(Output::RaiseFences(token));
            }
            _ => {}
        }
    }

    fn time_to_raise(&self, timeouts: u32) -> Duration {
        match self.settings.policy.gives_up_hung_fences() {
            true => self.settings.election_max.saturating_mul(timeouts),
            false => LONGEST,
        }
    }

    /// The fences are raised, or could not be: then they are tried again, until another is to lead.
    pub(super) fn on_fences(&mut self, now: Timestamp, token: Token, result: Result<(), Fault>) {
        self.raise.take_if(|raise| raise.token == token);
        let rest = self.settings.heartbeat;
        let Role::Leader(leading) = &mut self.role else { return };
        if token.get() != self.stored.term || !self.tenure.is_taking() {
            return;
        }
        match result {
            Ok(()) => {
                leading.raise_at = None;
                self.take_office(now);
            }
            Err(Fault::Permanent) => self.fail_candidate(now),
            Err(_) => leading.raise_at = Some(now + rest),
        }
    }

    /// A term begins, if there is still time for one. If not, the lease has to be confirmed anew.
    fn take_office(&mut self, now: Timestamp) {
        let Some(token) = Token::new(self.stored.term) else { return };
        let Role::Leader(leading) = &mut self.role else { return };
        if self.tenure.take_office(now).is_err() {
            return;
        }
        leading.beat_at = now;
        let last_term = leading.before.end();
        self.work = Some(token);
        self.known.term = self.stored.term;
        self.known.leader = Some(self.group.me());
        self.known.version = leading.version;
        self.known.value = self.value.clone();
        let (term, title, deadline) = (self.tenure.term(), Title::Term(token), self.tenure.deadline());
        self.event(Event::Elected { term, title, last_term, deadline });
        // The others learn of it at once.
        self.beat(now);
    }

    /// Those who ask are told the value from now on, if this member is in office.
    pub(super) fn on_proclaim(&mut self, now: Timestamp, number: u64, value: Bytes) {
        if !self.tenure.in_office() {
            return self.event(Event::Proclaimed(number, Cas::Refused));
        }
        self.set_value(now, value);
        self.event(Event::Proclaimed(number, Cas::Done));
    }

    pub(super) fn set_value(&mut self, now: Timestamp, value: Bytes) {
        self.value = value;
        let Role::Leader(leading) = &mut self.role else { return };
        leading.version += 1;
        leading.beat_at = now;
        if self.tenure.in_office() {
            self.known.version = leading.version;
            self.known.value = self.value.clone();
        }
        self.beat(now);
    }

    pub(super) fn on_heartbeat(
        &mut self,
        now: Timestamp,
        from: MemberId,
        term: Token,
        echo: u64,
        in_office: bool,
        (version, value): (u64, Option<Bytes>),
    ) {
        if let Some(mine) = Token::new(self.stored.term).filter(|mine| *mine > term) {
            return self.send(from, Message::Stale { term: mine });
        }
        self.observe(now, term);
        if matches!(self.role, Role::Leader(_)) {
            // Two leaders of one term: a vote was given twice. There is nothing sound to answer.
            return;
        }
        self.role = Role::Follower;
        // Before it is answered, and so before the leader takes office.
        self.note_last(LastOffice { term: term.get(), is_closed: false });
        self.contact = Some(Contact { leader: from, term, promised_until: now + self.settings.election_min });
        self.rests_until = now;
        self.rest(now);
        self.learn_value(from, term, in_office, version, value);
        let known = if self.known.term == term.get() { self.known.version } else { 0 };
        let promise = nanos(self.settings.election_min);
        let (position, stands) = (self.position, self.may_stand(now));
        self.send(from, Message::Ack { term, echo, promise, position, version: known, stands });
    }

    /// Takes over what the leader proclaims, once it is in office, and that it has left it.
    fn learn_value(&mut self, from: MemberId, term: Token, in_office: bool, version: u64, value: Option<Bytes>) {
        let said = (term.get(), version);
        let known = (self.known.term, self.known.version);
        if !in_office {
            // Only a leader that was in office goes on with a newer version and without it.
            if self.known.leader == Some(from) && said.0 == known.0 && said.1 > known.1 {
                self.known.version = version;
                self.known.leader = None;
                self.event(Event::Vacant);
            }
            return;
        }
        match value {
            Some(value) if said > known => {
                self.known.term = term.get();
                self.known.version = version;
                self.known.value = value;
            }
            // The same leader again, after it had not been heard for a while.
            _ if said == known && self.known.leader.is_none() => {}
            _ => return,
        }
        self.known.leader = Some(from);
        let value = self.known.value.clone();
        self.event(Event::Led { leader: from, term: Some(term), value });
    }

    /// The work has stopped: of the term that it was of, if nobody was in office since. Before the
    /// office goes, so that the heir hears of it first.
    pub(super) fn close_work(&mut self) {
        let Some(term) = self.work.take() else { return };
        // Where the disk has failed, nothing more is written.
        if matches!(self.role, Role::Out) || !self.note_last(LastOffice { term: term.get(), is_closed: true }) {
            return;
        }
        for member in Vec::from_iter(self.group.others()) {
            self.send(member, Message::Closed { term });
        }
    }

    /// Learns who was in office, and writes it down if that is new.
    pub(super) fn note_last(&mut self, last: LastOffice) -> bool {
        let is_new = self.learn_of(last);
        if is_new {
            self.persist();
        }
        is_new
    }

    /// Does what the tenure says.
    pub(super) fn carry_out(&mut self, now: Timestamp, step: Option<Step<MemberId>>) {
        match step {
            None => {}
            Some(Step::Stopping { why, hard_stop }) => {
                self.event(Event::Stopping { why, hard_stop });
                if !self.settings.policy.closes_stopped_work() {
                    self.close_work();
                }
                self.refuse_handing(Refusal::Leaving);
                if !self.settings.policy.stops_before_release() {
                    self.forfeit(now, why, None);
                }
            }
            Some(Step::Unelected(why, then)) => {
                self.refuse_handing(Refusal::Leaving);
                self.known.leader = None;
                self.event(Event::Unelected(why));
                match then {
                    Then::Kept => self.hold_on(now),
                    Then::GivenUp(heir) => self.forfeit(now, why, heir),
                    Then::Gone => self.let_go(now),
                }
            }
            Some(Step::GiveUp { why, heir }) => self.forfeit(now, why, heir),
        }
    }

    /// The term is over for the user, whose work has not stopped: the others hear that nobody
    /// leads, and go on promising.
    fn hold_on(&mut self, now: Timestamp) {
        let Role::Leader(leading) = &mut self.role else { return };
        leading.version += 1;
        leading.beat_at = now;
        self.beat(now);
    }

    /// Asks the user to stop the work. The term goes on until the user says so, or until the hard
    /// stop.
    pub(super) fn drain(&mut self, now: Timestamp, why: LossReason) {
        if matches!(self.role, Role::Leader(_)) && self.tenure.is_settled() {
            return self.become_follower(now);
        }
        let step = self.tenure.must_stop(now, why, None);
        self.carry_out(now, step);
    }

    /// The work has stopped: hands over to this member, or keeps the office. An heir that has not
    /// answered yet is waited for.
    pub(super) fn on_transfer(&mut self, now: Timestamp, heir: MemberId, within: Duration) {
        let busy = matches!(&self.role, Role::Leader(leading) if leading.pending_handover.is_some());
        if busy {
            return self.event(Event::TransferRefused(Refusal::Busy));
        }
        self.hand(now, PendingHandover { heir, until: now + within.min(self.heir_time()), by_user: true });
    }

    /// What an operator wants of this member, which has to be in office. Accepted: the work is
    /// asked to stop, and who leads next shows what came of it.
    pub fn request(&mut self, now: Timestamp, request: OperatorRequest) -> Result<(), Refusal> {
        self.handle(now, Input::Tick);
        let Role::Leader(leading) = &self.role else { return Err(Refusal::NotInOffice) };
        if !self.tenure.in_office() {
            return Err(Refusal::NotInOffice);
        }
        if !self.tenure.serves() || leading.pending_handover.is_some() {
            return Err(Refusal::Busy);
        }
        match request {
            OperatorRequest::Resign => self.drain(now, LossReason::Resigned),
            OperatorRequest::Transfer(heir) => match self.refuses_transfer(now, heir) {
                // It may simply not have answered yet.
                None | Some(Refusal::HeirSilent) => {
                    self.hand(now, PendingHandover { heir, until: now + self.heir_time(), by_user: false });
                }
                Some(why) => return Err(why),
            },
        }
        Ok(())
    }

    fn heir_time(&self) -> Duration {
        self.settings.heartbeat.saturating_mul(HEIR_BEATS)
    }

    fn hand(&mut self, now: Timestamp, pending_handover: PendingHandover) {
        match &mut self.role {
            Role::Leader(leading) if self.tenure.serves() => leading.pending_handover = Some(pending_handover),
            _ => return self.event(Event::TransferRefused(Refusal::NotInOffice)),
        }
        self.hand_over(now);
    }

    /// Hands over once the heir can take the office, or gives it up when its time is over.
    fn hand_over(&mut self, now: Timestamp) {
        let Role::Leader(leading) = &mut self.role else { return };
        let Some(pending_handover) = leading.pending_handover.take() else { return };
        let PendingHandover { heir, until, by_user } = pending_handover;
        match self.refuses_transfer(now, heir) {
            Some(Refusal::HeirSilent | Refusal::HeirUnfit) if now < until => {
                if let Role::Leader(leading) = &mut self.role {
                    leading.pending_handover = Some(pending_handover);
                }
            }
            Some(why) if by_user => self.event(Event::TransferRefused(why)),
            None if !self.settings.policy.forfeits_the_lease() => self.let_stand(heir),
            None if by_user => {
                self.close_work();
                let step = self.tenure.cede(heir);
                self.carry_out(now, step);
            }
            // When the work has stopped, the fittest member gets the office instead of an heir that
            // cannot.
            _ => {
                let step = self.tenure.must_stop(now, LossReason::Transferred, Some(heir));
                self.carry_out(now, step);
            }
        }
    }

    fn refuse_handing(&mut self, why: Refusal) {
        if let Role::Leader(leading) = &mut self.role
            && leading.pending_handover.take().is_some_and(|pending_handover| pending_handover.by_user)
        {
            self.event(Event::TransferRefused(why));
        }
    }

    /// Why a handover to this member would be refused now, as far as this one knows.
    fn refuses_transfer(&self, now: Timestamp, heir: MemberId) -> Option<Refusal> {
        let Role::Leader(leading) = &self.role else { return Some(Refusal::NotInOffice) };
        if heir == self.group.me() || !self.group.contains(heir) {
            return Some(Refusal::NotAMember);
        }
        match leading.promises.get(&heir) {
            Some(promise) if now >= promise.until => Some(Refusal::HeirSilent),
            Some(promise) if promise.position < self.position => Some(Refusal::HeirBehind),
            Some(promise) if !promise.stands => Some(Refusal::HeirUnfit),
            Some(_) => None,
            None => Some(Refusal::HeirSilent),
        }
    }

    /// Gives the lease up, the term being over, and only then lets the heir stand, or the fittest
    /// member. There is no way back into this term, whatever becomes of it.
    fn forfeit(&mut self, now: Timestamp, why: LossReason, heir: Option<MemberId>) {
        let Role::Leader(leading) = &self.role else { return };
        // An heir that cannot stand would leave the office empty until promises are over: better
        // none.
        let can_stand = leading.promises.iter().filter(|(_, promise)| promise.stands && now < promise.until);
        let fittest = can_stand.max_by_key(|(_, promise)| (promise.position, promise.until));
        let fittest = fittest.map(|(member, _)| *member);
        let heir = heir.filter(|heir| self.refuses_transfer(now, *heir).is_none()).or(fittest);
        self.let_go(now);
        if matches!(why, LossReason::Resigned | LossReason::Transferred) {
            // By then every other member that can stand has done so.
            self.rests_until = now + self.settings.election_max * 2;
            self.rest(now);
        }
        if let Some(heir) = heir {
            self.let_stand(heir);
        }
    }

    /// Frees those who promised in this term, for one candidacy of this member.
    fn let_stand(&mut self, heir: MemberId) {
        if let Some(term) = Token::new(self.stored.term) {
            self.send(heir, Message::TimeoutNow { term });
        }
    }

    /// The promises of the others are given up, or gone. This member never leads in this term
    /// again.
    fn let_go(&mut self, now: Timestamp) {
        self.event(Event::Released);
        self.become_follower(now);
    }

    /// The term is lost, at once: a newer one is known, or nothing can be written any more.
    pub(super) fn lose(&mut self, now: Timestamp, why: LossReason) {
        let Role::Leader(_) = &self.role else { return };
        debug_assert_eq!(self.stored.ballot, Ballot::For(self.group.me()), "a leader voted for itself");
        let held = self.tenure.has_title() && !self.tenure.in_office() && !self.tenure.is_taking();
        let step = self.tenure.title_gone(why);
        self.carry_out(now, step);
        if held {
            self.let_go(now);
        }
        self.become_follower(now);
    }
}
