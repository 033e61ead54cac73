//! The office record: the election's small versioned record beside the line, changed by
//! compare-and-set only.
//!
//! Its fields are independent, so that a pause and a transfer that race cannot erase each other:
//! each writer changes its own field of the record that it read, and reads again when the record
//! has moved on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::bench::Benched;
use crate::entry::{Decline, Entry, EntryId, Held, Incarnation, Nonce, Token, Version};
use crate::name::MAX_LINE;
use crate::terms::{Shot, TermEnd, Terms};

/// The longest reason for an order, in bytes.
pub const MAX_REASON_BYTES: usize = 1024;

/// What stands in the office record, and the version it was read at.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Office {
    /// The version that was read. [`Version::NONE`]: there is no record.
    pub version: Version,
    /// The leader is asked to hand the office on.
    pub handover: Option<Handover>,
    /// Nobody takes office, and nobody stays in it.
    pub paused: Option<Paused>,
    /// The election is over for all who knew it before.
    pub ended: Option<Ended>,
    /// The last leader that an operator removed, so that it can say why it lost.
    pub deposed: Option<Deposed>,
    /// Nothing but a crash moves the office, until an operator says otherwise or its time is over.
    pub frozen: Option<Frozen>,
    /// The last terms, in elections that keep a record of them.
    pub terms: Terms,
    /// The office has changed hands for health too often: it does so no more until an operator has
    /// acknowledged that.
    pub held_back: Option<HeldBack>,
    /// Whom operators keep out of the line, by name.
    pub benched: Benched,
    /// An operator is healing what went wrong here. No candidate acts on it: it keeps other
    /// operators from doing the same, or from letting candidates back too early.
    pub recovery: Option<Recovery>,
}

impl Office {
    /// The same, read at this version.
    pub fn with_version(self, version: Version) -> Office {
        Office { version, ..self }
    }

    /// The same, with this handover asked for, or none.
    pub fn with_handover(self, handover: impl Into<Option<Handover>>) -> Office {
        Office { handover: handover.into(), ..self }
    }

    /// The same, paused or not.
    pub fn with_paused(self, paused: impl Into<Option<Paused>>) -> Office {
        Office { paused: paused.into(), ..self }
    }

    /// The same, with this tombstone, or none.
    pub fn with_ended(self, ended: impl Into<Option<Ended>>) -> Office {
        Office { ended: ended.into(), ..self }
    }

    /// The same, with this leader as the last that an operator removed, or none.
    pub fn with_deposed(self, deposed: impl Into<Option<Deposed>>) -> Office {
        Office { deposed: deposed.into(), ..self }
    }

    /// The same, frozen or not.
    pub fn with_frozen(self, frozen: impl Into<Option<Frozen>>) -> Office {
        Office { frozen: frozen.into(), ..self }
    }

    /// The same, with these terms on record.
    pub fn with_terms(self, terms: Terms) -> Office {
        Office { terms, ..self }
    }

    /// The same, held back by a leader or not.
    pub fn with_held_back(self, held_back: impl Into<Option<HeldBack>>) -> Office {
        Office { held_back: held_back.into(), ..self }
    }

    /// The same, with these names kept out of the line.
    pub fn with_benched(self, benched: Benched) -> Office {
        Office { benched, ..self }
    }

    /// The same, while it is being recovered, or when that is over.
    pub fn with_recovery(self, recovery: impl Into<Option<Recovery>>) -> Office {
        Office { recovery: recovery.into(), ..self }
    }

    /// Whether it says nothing: stores keep no record then.
    pub fn is_blank(&self) -> bool {
        // All fields by name. A new one needs its words in `incumbent-store`'s record, too, where
        // the compiler does not ask for them.
        let Office { version: _, handover, paused, ended, deposed, frozen, terms, held_back, benched, recovery } = self;
        let nobody_moved = handover.is_none() && benched.is_empty();
        let nothing_ordered = paused.is_none() && ended.is_none() && frozen.is_none() && nobody_moved;
        let nothing_on_record = deposed.is_none() && terms.is_empty() && held_back.is_none();
        nothing_ordered && nothing_on_record && recovery.is_none()
    }

    /// What an operator has ordered that the leader with this token has not read before.
    pub(crate) fn news_since(&self, before: &Office, leads: Token) -> Vec<(Act, Order)> {
        let handover = self
            .handover_from(leads)
            .filter(|handover| !handover.is_unasked())
            .filter(|handover| before.handover.as_ref().is_none_or(|known| known.nonce != handover.nonce));
        let handover = handover.map(|handover| {
            let act = if handover.heir.is_some() { Act::Transfer } else { Act::Resign };
            (act, &handover.order)
        });
        let is_new = |paused: &&Paused| before.paused.as_ref() != Some(*paused);
        let paused = self.paused.as_ref().filter(is_new).map(|paused| (Act::Pause, &paused.order));
        let is_new = |frozen: &&Frozen| before.frozen.as_ref().is_none_or(|known| known.id != frozen.id);
        let frozen = self.frozen.as_ref().filter(is_new).map(|frozen| (Act::Freeze, &frozen.order));
        let is_new = |ended: &&Ended| before.ended.as_ref().is_none_or(|known| known.id != ended.id);
        let ended = self.ended.as_ref().filter(is_new).map(|ended| (Act::End, &ended.order));
        let news = [handover, paused, frozen, ended].into_iter().flatten();
        news.map(|(act, order)| (act, order.clone())).collect()
    }

    /// What the first in line is at while it is not in office: it says itself that it leads no
    /// more, or terms are on record, where its own has to be open. `None`: it leads, as far as can
    /// be known. A candidate of another library opens none.
    pub fn pending(&self, head: &Entry) -> Option<Pending> {
        if head.merit.holding {
            return Some(Pending::Holding);
        }
        let incarnation = head.incarnation.filter(|_| !self.terms.is_empty())?;
        match self.terms.get(head.token).filter(|term| term.incarnation == Some(incarnation)) {
            None => {
                let last = self.terms.before(head.token, incarnation).filter(|last| last.is_at_large());
                let has_claimed = |shot: &Shot| shot.by == head.token;
                // It is to be known before the claim: one that is removed meanwhile may have one
                // behind it that fences nobody.
                let fences = last.is_some_and(|last| {
                    head.merit.fences && last.has_target() || last.fence.as_ref().is_some_and(has_claimed)
                });
                Some(if fences { Pending::Fencing } else { Pending::Taking })
            }
            Some(term) if term.end != TermEnd::Open => Some(Pending::Leaving),
            Some(_) => None,
        }
    }

    /// The handover that the leader with this token has to carry out, if there is one.
    pub fn handover_from(&self, token: Token) -> Option<&Handover> {
        self.handover.as_ref().filter(|handover| handover.from == token && handover.refused.is_none())
    }
}

/// What the first in line is at while it is not in office, as its entry or the record of terms says
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Pending {
    /// Its term is not open yet.
    Taking,
    /// The work of the last leader is stopped from outside first.
    Fencing,
    /// Its term is closed: its place in line goes next.
    Leaving,
    /// Its term is over. It keeps its place until its work has stopped.
    Holding,
}

/// Who ordered something, when, and why. For people and their logs: nobody decides anything by it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Order {
    /// Who, e.g. `ada@ops1`. Empty: it was not said.
    pub by: Arc<str>,
    /// When, by the wall clock of the one who ordered it, in milliseconds since 1970. Zero: it was
    /// not said.
    pub at_ms: u64,
    /// Why. Empty: it was not said.
    pub reason: Arc<str>,
}

impl Order {
    /// Ordered by this operator at this time, for this reason.
    pub fn new(by: impl Into<Arc<str>>, at_ms: u64, reason: impl Into<Arc<str>>) -> Order {
        Order { by: by.into(), at_ms, reason: reason.into() }
    }
}

/// An order of which only the reason is known.
impl From<&str> for Order {
    fn from(reason: &str) -> Order {
        Order { reason: reason.into(), ..Order::default() }
    }
}

/// `by ada@ops1: new disk`
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.by.is_empty() { "an operator" } else { &self.by };
        write!(f, "by {by}")?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// What an operator orders a leader.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Act {
    /// Hand over to an heir.
    Transfer,
    /// Hand over to the next in line.
    Resign,
    /// Stop, and leave the line.
    Pause,
    /// Stay.
    Freeze,
    /// Hand over, and leave the line.
    Bench,
    /// Leave for good.
    End,
    /// It has been removed.
    Depose,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Act::Transfer => "transfer",
            Act::Resign => "resign",
            Act::Pause => "pause",
            Act::Freeze => "freeze",
            Act::Bench => "bench",
            Act::End => "end",
            Act::Depose => "depose",
        })
    }
}

/// A request to hand the office on. Void unless `from` leads now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Handover {
    /// The leader that is asked.
    pub from: Token,
    /// Who is to lead next. `None`: the next in line; the leader goes to the line's end.
    pub heir: Option<Heir>,
    /// Tells this request from every other.
    pub nonce: Nonce,
    /// How long the leader tries, counted from when it first sees the request: hosts share no
    /// clock.
    pub within: Duration,
    /// Set by the leader when it will not: it leads on.
    pub refused: Option<Refusal>,
    /// Whose it is. Blank if the leader's own program asked.
    pub order: Order,
    /// Nobody asked: the leader is unwell, and the heir was fit when it was chosen.
    pub for_health: bool,
    /// It is the first in line that asks, and is not in office: nobody leads meanwhile.
    pub at_vacancy: bool,
    /// Nobody asked: an operator has benched the leader, and the heir was fit when it was chosen.
    pub for_bench: bool,
}

impl Handover {
    /// The leader with this token is asked to hand over within this time: to this heir, or to
    /// the next in line.
    pub fn new(from: Token, heir: impl Into<Option<Heir>>, nonce: Nonce, within: Duration) -> Handover {
        let (refused, order, heir) = (None, Order::default(), heir.into());
        let (for_health, for_bench, at_vacancy) = (false, false, false);
        Handover { from, heir, nonce, within, refused, order, for_health, for_bench, at_vacancy }
    }

    /// The same, ordered like this.
    pub fn ordered(self, order: Order) -> Handover {
        Handover { order, ..self }
    }

    /// The same, by a leader that is unwell.
    pub fn for_health(self) -> Handover {
        Handover { for_health: true, ..self }
    }

    /// The same, by the first in line that is not in office.
    pub fn at_vacancy(self) -> Handover {
        Handover { at_vacancy: true, ..self }
    }

    /// The same, by a leader that is benched.
    pub fn for_bench(self) -> Handover {
        Handover { for_bench: true, ..self }
    }

    /// Whether the leader has chosen the heir by itself. An order to hand over replaces that.
    pub fn is_unasked(&self) -> bool {
        self.for_health || self.for_bench
    }
}

/// The candidate that is to lead next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Heir {
    /// Its enlistment: a candidate that left and came back is another one.
    pub incarnation: Incarnation,
    /// Its entry.
    pub entry: EntryId,
    /// Its place in line.
    pub token: Token,
}

impl Heir {
    /// The candidate with this enlistment, entry and place in line.
    pub fn new(incarnation: Incarnation, entry: EntryId, token: Token) -> Heir {
        Heir { incarnation, entry, token }
    }

    /// Whether this is the entry that `held` holds.
    pub fn is(&self, held: &Held) -> bool {
        self.entry == held.entry && self.token == held.token && self.incarnation == held.incarnation
    }

    /// The candidate with this entry. `None`: it is of another library, and takes no handover.
    pub fn of(entry: &Entry) -> Option<Heir> {
        Some(Heir { incarnation: entry.incarnation?, entry: entry.id.clone(), token: entry.token })
    }
}

/// Why a leader refuses to hand over. It leads on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The heir is no longer in line.
    #[error("the heir is no longer in line")]
    HeirGone,
    /// The heir is further back in line than anybody reads.
    #[error("the heir is not among the first {MAX_LINE} in line")]
    TooFar,
    /// A candidate of another library stands between: it will not step aside.
    #[error("a candidate of another library stands between the leader and the heir, and will not step aside")]
    ForeignBetween,
    /// The heir was not next in line and ready within the time given.
    #[error("the heir was not next in line and ready in time")]
    TimedOut,
    /// Another handover is under way.
    #[error("another handover is under way")]
    Busy,
    /// The leader is on its way out of office for another reason.
    #[error("the leader is already leaving office")]
    Leaving,
    /// The heir is the leader itself.
    #[error("the heir already leads")]
    LeadsAlready,
    /// The leader cannot read its line, or may not write what a handover needs.
    #[error("the leader cannot read its line, or may not write what a handover needs")]
    Unable,
    /// An operator has frozen the election.
    #[error("the election is frozen: nothing but a crash moves its office")]
    Frozen,
    /// The leader was unwell, and is so no longer.
    #[error("the leader is well again")]
    Recovered,
    /// Nobody else in line could take the office.
    #[error("nobody else in line could take the office")]
    NoHeir,
    /// The leader was benched, and is so no longer.
    #[error("the leader is benched no longer")]
    Unbenched,
    /// Peers: this member is not in office.
    #[error("this member is not in office")]
    NotInOffice,
    /// Peers: the heir is not another member of the group.
    #[error("the heir is not another member of the group")]
    NotAMember,
    /// Peers: the heir has not answered lately.
    #[error("the heir has not answered lately")]
    HeirSilent,
    /// The heir is unwell by now, and was chosen for its fitness; peers: it could not stand now.
    #[error("the heir could not take office: it is not fit to lead, or does not vote yet")]
    HeirUnfit,
    /// The heir has said that it will not take the office.
    #[error("the heir declined: {0}")]
    HeirDeclined(Decline),
    /// Peers: the heir lacks records that the leader has.
    #[error("the heir lacks records that the leader has")]
    HeirBehind,
    /// Peers: bully and ring elections have no heirs.
    #[error("rank decides who leads: a bully or ring election cannot hand over")]
    RankDecides,
}

impl Refusal {
    /// All that there are.
    pub const ALL: &[Refusal] = &[
        Refusal::HeirGone,
        Refusal::TooFar,
        Refusal::ForeignBetween,
        Refusal::TimedOut,
        Refusal::Busy,
        Refusal::Leaving,
        Refusal::LeadsAlready,
        Refusal::Unable,
        Refusal::Frozen,
        Refusal::Recovered,
        Refusal::NoHeir,
        Refusal::Unbenched,
        Refusal::NotInOffice,
        Refusal::NotAMember,
        Refusal::HeirSilent,
        Refusal::HeirUnfit,
        Refusal::HeirDeclined(Decline::Failed),
        Refusal::HeirDeclined(Decline::TimedOut),
        Refusal::HeirBehind,
        Refusal::RankDecides,
    ];

    /// The word for it in a record.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::HeirGone => "heir-gone",
            Refusal::TooFar => "too-far",
            Refusal::ForeignBetween => "foreign-between",
            Refusal::TimedOut => "timed-out",
            Refusal::Busy => "busy",
            Refusal::Leaving => "leaving",
            Refusal::LeadsAlready => "leads-already",
            Refusal::Unable => "unable",
            Refusal::Frozen => "frozen",
            Refusal::Recovered => "recovered",
            Refusal::NoHeir => "no-heir",
            Refusal::Unbenched => "unbenched",
            Refusal::NotInOffice => "not-in-office",
            Refusal::NotAMember => "not-a-member",
            Refusal::HeirSilent => "heir-silent",
            Refusal::HeirUnfit => "heir-unfit",
            Refusal::HeirDeclined(Decline::Failed) => "heir-declined:failed",
            Refusal::HeirDeclined(Decline::TimedOut) => "heir-declined:timed-out",
            Refusal::HeirBehind => "heir-behind",
            Refusal::RankDecides => "rank-decides",
        }
    }

    /// What [`word`](Refusal::word) stands for.
    pub fn from_word(word: &str) -> Option<Refusal> {
        Refusal::ALL.iter().copied().find(|refusal| refusal.word() == word)
    }
}

/// The election is paused.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Paused {
    /// Who ordered it, and why.
    pub order: Order,
    /// The name of the candidate that may stand all the same. Once it is in office, it takes the
    /// pause out of the record, and the others come back.
    pub first: Option<Arc<str>>,
}

impl Paused {
    /// Paused by this order.
    pub fn new(order: impl Into<Order>) -> Paused {
        Paused { order: order.into(), first: None }
    }

    /// The same, for all but the candidate of this name, until it leads.
    pub fn until_leads(self, first: impl Into<Arc<str>>) -> Paused {
        Paused { first: Some(first.into()), ..self }
    }

    /// Whether a candidate of this name may not stand.
    pub fn bars(&self, name: &str) -> bool {
        self.first.as_deref() != Some(name)
    }
}

/// The election is frozen: the leader stays, and a crash is followed by the next in line as ever,
/// but no leader leaves office because it is unfit, or hands it over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Frozen {
    /// Tells this order from every other.
    pub id: Nonce,
    /// How long it lasts, counted by each candidate from when it first read it: hosts share no
    /// clock. The leader takes it out of the record then. `None`: until it is taken back.
    pub lasts: Option<Duration>,
    /// Who ordered it, and why.
    pub order: Order,
}

impl Frozen {
    /// Frozen by this order, for this long or until it is taken back.
    pub fn new(id: Nonce, lasts: Option<Duration>, order: impl Into<Order>) -> Frozen {
        Frozen { id, lasts, order: order.into() }
    }
}

/// The office has changed hands for health too often.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct HeldBack {
    /// The token of the leader that wrote it down.
    pub token: Token,
    /// When, by the wall clock of that leader, in milliseconds since 1970. Zero: not said yet.
    pub at_ms: u64,
}

impl HeldBack {
    /// Written down by the leader with this token.
    pub fn new(token: Token) -> HeldBack {
        HeldBack { token, at_ms: 0 }
    }

    /// The same, at this time, unless it has one.
    pub fn stamped(self, now_ms: u64) -> HeldBack {
        HeldBack { at_ms: if self.at_ms == 0 { now_ms } else { self.at_ms }, ..self }
    }
}

/// An operator is healing an election.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// Tells it from every other.
    pub id: Arc<str>,
    /// How far it has come, for people.
    pub step: Arc<str>,
    /// Who does it, and since when.
    pub order: Order,
}

impl Recovery {
    /// This recovery, at this step.
    pub fn new(id: impl Into<Arc<str>>, step: impl Into<Arc<str>>, order: impl Into<Order>) -> Recovery {
        Recovery { id: id.into(), step: step.into(), order: order.into() }
    }
}

/// The last leader that an operator removed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Deposed {
    /// Its token.
    pub token: Token,
    /// Who ordered it, and why.
    pub order: Order,
}

impl Deposed {
    /// The leader with this token was removed.
    pub fn new(token: Token) -> Deposed {
        Deposed { token, order: Order::default() }
    }

    /// The same, ordered like this.
    pub fn ordered(self, order: Order) -> Deposed {
        Deposed { order, ..self }
    }
}

/// The election's tombstone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Ended {
    /// Tells this end from every other. Those who meet it at first contact come after the end and
    /// start afresh; those who knew the election without it have been ended.
    pub id: Nonce,
    /// How long the tombstone stays, so that everyone who was away meets it: the longest TTL.
    pub keep: Duration,
    /// Who ordered it, and why.
    pub order: Order,
}

impl Ended {
    /// This end, whose tombstone stays for this long.
    pub fn new(id: Nonce, keep: Duration) -> Ended {
        Ended { id, keep, order: Order::default() }
    }

    /// The same, ordered like this.
    pub fn ordered(self, order: Order) -> Ended {
        Ended { order, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::ElectionName;
    use crate::terms::TermRecord;

    #[test]
    fn where_terms_are_on_record_the_first_in_line_leads_while_its_own_is_open() {
        let token = Token::new(6).unwrap();
        let mut head = Entry::new(EntryId::new("6"), token);
        head.incarnation = Some(Incarnation::from_bits(1));
        let office = |terms: &[TermRecord]| {
            let terms = terms.iter().cloned().fold(Terms::default(), |all, term| all.with(term));
            Office::default().with_terms(terms)
        };
        let last = TermRecord::unknown(Token::new(5).unwrap(), None, "".into());
        let open = |bits| TermRecord::open(token, Incarnation::from_bits(bits), "".into(), Default::default());
        assert_eq!(office(&[]).pending(&head), None, "there is no record");
        assert_eq!(office(std::slice::from_ref(&last)).pending(&head), Some(Pending::Taking));
        let shot_at = |by| last.clone().with_fence(Shot::claimed(Token::new(by).unwrap(), 1));
        assert_eq!(office(&[shot_at(6)]).pending(&head), Some(Pending::Fencing));
        assert_eq!(office(&[shot_at(7)]).pending(&head), Some(Pending::Taking), "somebody else's");
        let mut fences = head.clone();
        fences.merit = fences.merit.fences(true);
        for at_large in [last.clone(), shot_at(7)] {
            assert_eq!(office(&[at_large]).pending(&fences), Some(Pending::Fencing), "it waits to fence");
        }
        let ours = TermRecord::unknown(last.token, head.incarnation, "".into());
        for settled in [last.clone().ended(TermEnd::Died { at_ms: 0 }), ours] {
            assert_eq!(office(&[settled]).pending(&fences), Some(Pending::Taking), "there is nothing to stop");
        }
        assert_eq!(office(&[last.clone(), open(1)]).pending(&head), None);
        assert_eq!(office(&[last.clone(), open(2)]).pending(&head), Some(Pending::Taking), "of another enlistment");
        let closed = open(1).ended(TermEnd::Died { at_ms: 0 });
        assert_eq!(office(&[last.clone(), closed]).pending(&head), Some(Pending::Leaving));
        head.incarnation = None;
        assert_eq!(office(&[last]).pending(&head), None, "of another library");
    }

    #[test]
    fn an_heir_is_known_by_its_incarnation_too_since_another_store_may_give_the_same_token() {
        let (id, token) = (EntryId::new("6"), Token::new(6).unwrap());
        let heir = Heir { incarnation: Incarnation::from_bits(1), entry: id.clone(), token };
        let held = |bits| {
            let (election, incarnation) = (ElectionName::new("e").unwrap(), Incarnation::from_bits(bits));
            Held { election, entry: id.clone(), token, incarnation }
        };
        assert!(heir.is(&held(1)) && !heir.is(&held(2)));
        let seen = |bits| Entry {
            id: id.clone(),
            token,
            incarnation: Some(Incarnation::from_bits(bits)),
            name: None,
            value: Default::default(),
            ready: None,
            merit: Default::default(),
            version: Version(1),
            observed: None,
            stays: false,
        };
        assert!(Heir::of(&seen(1)) == Some(heir.clone()) && Heir::of(&seen(2)) != Some(heir));
    }
}
