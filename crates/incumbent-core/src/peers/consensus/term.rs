//! The term: how it begins, the lease that it lives on, what followers make of it, and every way in which it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::message::{Ballot, Contact, Message, Position};
use super::settings::ConsensusSettings;
use super::{Consensus, Role};
use crate::entry::Token;
use crate::machine::Loss;
use crate::peers::event::{PeerEvent, TransferRefusal};
use crate::peers::flaw::PeerFlaw;
use crate::peers::group::MemberId;
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leading {
    since: Timestamp,
    /// What the others have promised.
    promises: BTreeMap<MemberId, Promise>,
    beat_at: Timestamp,
    office: Office,
    version: u64,
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

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Office {
    /// Elected, but no quorum has promised a lease yet.
    Unconfirmed,
    Held {
        deadline: Timestamp,
    },
    /// In office, but the work is to stop.
    Draining {
        why: Loss,
        hard_stop: Timestamp,
    },
}

impl Leading {
    pub(super) fn holds_lease(&self) -> bool {
        !matches!(self.office, Office::Unconfirmed)
    }

    pub(super) fn next_timeout(&self, settings: &ConsensusSettings, gives_up_at: Timestamp) -> Timestamp {
        let office = match &self.office {
            Office::Unconfirmed => gives_up_at,
            Office::Held { deadline } => *deadline - settings.grace,
            Office::Draining { hard_stop, .. } => *hard_stop,
        };
        self.beat_at.min(office)
    }
}

impl Consensus {
    /// A quorum has voted for us. The user hears of it once a quorum has promised a lease.
    pub(super) fn lead(&mut self, now: Timestamp) {
        self.contact = None;
        self.asked = None;
        self.rest(now);
        self.role = Role::Leader(Leading {
            since: now,
            promises: BTreeMap::new(),
            beat_at: now,
            office: Office::Unconfirmed,
            version: 1,
        });
        self.beat(now);
        if self.settings.flaws.has(PeerFlaw::ElectedUnconfirmed) {
            let deadline = now + self.settings.lease_of(self.settings.election_min) - self.settings.margin;
            self.take_office(now, deadline);
        }
        self.look_at_lease(now);
    }

    /// Lets time pass for a leader: heartbeats, and the ends of the term.
    pub(super) fn lead_on(&mut self, now: Timestamp) {
        let Role::Leader(leading) = &self.role else { return };
        match &leading.office {
            Office::Held { deadline } if now >= *deadline => return self.lose(now, Loss::LocalDeadline),
            Office::Held { deadline } if now >= *deadline - self.settings.grace => {
                self.drain(now, Loss::LocalDeadline);
            }
            Office::Draining { why, hard_stop } if now >= *hard_stop => {
                let why = *why;
                return self.lose(now, why);
            }
            _ => {}
        }
        self.beat(now);
    }

    /// Sends the heartbeats that are due.
    fn beat(&mut self, now: Timestamp) {
        let Some(term) = Token::new(self.stored.term) else { return };
        let Role::Leader(leading) = &mut self.role else { return };
        if now < leading.beat_at {
            return;
        }
        leading.beat_at = now + self.settings.heartbeat;
        let (version, in_office) = (leading.version, leading.holds_lease());
        let knows = |member: &MemberId| leading.promises.get(member).is_some_and(|promise| promise.version == version);
        let beats: Vec<_> = self
            .group
            .others()
            .map(|member| {
                let value = (!knows(&member)).then(|| self.value.clone());
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
        let counts_from = if self.settings.flaws.has(PeerFlaw::LeaseFromResponse) { now } else { sent_at };
        let known = leading.promises.entry(from).or_default();
        known.until = known.until.max(counts_from + self.settings.lease_of(promise));
        known.position = position;
        known.stands = stands;
        // Not the largest so far: a member that restarted has forgotten what it knew.
        known.version = version.min(leading.version);
        self.look_at_lease(now);
    }

    /// Takes office, or moves the deadline, according to what a quorum has promised.
    pub(super) fn look_at_lease(&mut self, now: Timestamp) {
        let Role::Leader(leading) = &mut self.role else { return };
        if !self.disk.is_settled() {
            return;
        }
        let mut untils: Vec<_> = leading.promises.values().map(|promise| promise.until).collect();
        untils.sort_unstable_by(|a, b| b.cmp(a));
        // This member's own promise needs no proof: while it leads, it votes for nobody.
        let deadline = match self.group.quorum() - 1 {
            0 => Timestamp::MAX,
            others => untils.get(others - 1).copied().unwrap_or(Timestamp::ZERO) - self.settings.margin,
        };
        match &mut leading.office {
            Office::Unconfirmed if now < deadline - self.settings.grace => self.take_office(now, deadline),
            Office::Held { deadline: known } if deadline > *known => {
                *known = deadline;
                self.event(PeerEvent::Deadline(deadline));
            }
            _ => {}
        }
    }

    fn take_office(&mut self, now: Timestamp, deadline: Timestamp) {
        let token = Token::new(self.stored.term);
        let Role::Leader(leading) = &mut self.role else { return };
        leading.office = Office::Held { deadline };
        leading.beat_at = now;
        self.known.term = self.stored.term;
        self.known.leader = Some(self.group.me());
        self.known.version = leading.version;
        self.known.value = self.value.clone();
        self.event(PeerEvent::Elected { token, deadline });
        // The others learn of it at once.
        self.beat(now);
    }

    pub(super) fn on_proclaim(&mut self, now: Timestamp, value: Bytes) {
        self.value = value;
        let Role::Leader(leading) = &mut self.role else { return };
        leading.version += 1;
        leading.beat_at = now;
        if leading.holds_lease() {
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
        self.contact = Some(Contact { leader: from, term, promised_until: now + self.settings.election_min });
        self.rests_until = now;
        self.rest(now);
        self.learn_value(from, term, in_office, version, value);
        let known = if self.known.term == term.get() { self.known.version } else { 0 };
        let promise = u64::try_from(self.settings.election_min.as_nanos()).unwrap_or(u64::MAX);
        let (position, stands) = (self.position, self.may_stand(now));
        self.send(from, Message::Ack { term, echo, promise, position, version: known, stands });
    }

    /// Takes over what the leader proclaims, once it is in office.
    fn learn_value(&mut self, from: MemberId, term: Token, in_office: bool, version: u64, value: Option<Bytes>) {
        let newer = (term.get(), version) > (self.known.term, self.known.version);
        if !in_office {
            return;
        }
        match value {
            Some(value) if newer => {
                self.known.term = term.get();
                self.known.version = version;
                self.known.value = value;
            }
            // The same leader again, after it had not been heard for a while.
            _ if (term.get(), version) == (self.known.term, self.known.version) && self.known.leader.is_none() => {}
            _ => return,
        }
        self.known.leader = Some(from);
        let value = self.known.value.clone();
        self.event(PeerEvent::NewLeader { leader: from, term: Some(term), value });
    }

    /// Asks the user to stop the work. The term goes on until the user says so, or until the hard stop.
    pub(super) fn drain(&mut self, now: Timestamp, why: Loss) {
        let Role::Leader(leading) = &mut self.role else { return };
        match &leading.office {
            Office::Unconfirmed => self.become_follower(now),
            Office::Held { deadline } => {
                let hard_stop = (*deadline).min(now + self.settings.grace);
                leading.office = Office::Draining { why, hard_stop };
                self.event(PeerEvent::Stopping { why, hard_stop });
            }
            Office::Draining { .. } => {}
        }
    }

    /// The work has stopped, says the user: whoever is fittest may stand at once.
    pub(super) fn on_release(&mut self, now: Timestamp) {
        let Role::Leader(leading) = &self.role else { return };
        let why = match &leading.office {
            Office::Unconfirmed => return,
            Office::Held { .. } => Loss::Resigned,
            Office::Draining { why, .. } => *why,
        };
        // An heir that cannot stand would leave the office empty until promises are over: better
        // none.
        let can_stand = leading.promises.iter().filter(|(_, promise)| promise.stands && now < promise.until);
        let fittest = can_stand.max_by_key(|(_, promise)| (promise.position, promise.until));
        let heir = fittest.map(|(member, _)| *member);
        self.forfeit(now, why, heir);
    }

    pub(super) fn on_transfer(&mut self, now: Timestamp, heir: MemberId) {
        match self.refuses_transfer(now, heir) {
            Some(why) => self.event(PeerEvent::TransferRefused(why)),
            None => self.forfeit(now, Loss::Transferred, Some(heir)),
        }
    }

    /// Why a handover to this member would be refused now, as far as this one knows.
    pub fn refuses_transfer(&self, now: Timestamp, heir: MemberId) -> Option<TransferRefusal> {
        let Role::Leader(Leading { office: Office::Held { .. }, promises, .. }) = &self.role else {
            return Some(TransferRefusal::NotInOffice);
        };
        if heir == self.group.me() || !self.group.contains(heir) {
            return Some(TransferRefusal::NotAMember);
        }
        match promises.get(&heir) {
            Some(promise) if now >= promise.until => Some(TransferRefusal::HeirSilent),
            Some(promise) if promise.position < self.position => Some(TransferRefusal::HeirBehind),
            Some(promise) if !promise.stands => Some(TransferRefusal::HeirUnfit),
            Some(_) => None,
            None => Some(TransferRefusal::HeirSilent),
        }
    }

    /// Ends the term and only then lets the heir stand. There is no way back into this term, whatever becomes of it.
    fn forfeit(&mut self, now: Timestamp, why: Loss, heir: Option<MemberId>) {
        let Some(term) = Token::new(self.stored.term) else { return };
        if !self.settings.flaws.has(PeerFlaw::LeaseKeptAfterTransfer) || heir.is_none() {
            self.lose(now, why);
            if matches!(why, Loss::Resigned | Loss::Transferred) {
                // By then every other member that can stand has done so.
                self.rests_until = now + self.settings.election_max * 2;
                self.rest(now);
            }
        }
        if let Some(heir) = heir {
            self.send(heir, Message::TimeoutNow { term });
        }
    }

    /// Ends the term, at once. This member never leads in it again: it stands only in a new one.
    pub(super) fn lose(&mut self, now: Timestamp, why: Loss) {
        let Role::Leader(leading) = &self.role else { return };
        debug_assert_eq!(self.stored.ballot, Ballot::For(self.group.me()), "a leader voted for itself");
        if leading.holds_lease() {
            self.known.leader = None;
            self.event(PeerEvent::Unelected(why));
        }
        self.become_follower(now);
    }
}
