//! A place in line: tokens, incarnations, entries as others see them and as their owner holds them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::name::ElectionName;

/// A fencing token: the store's own order of entry. It strictly grows from leader to leader.
///
/// ```
/// use incumbent_core::{Token, TokenOutOfRange};
///
/// let token = Token::try_from(41)?;
/// assert!(token < Token::try_from(42)?);
/// assert_eq!(Token::try_from(0), Err(TokenOutOfRange(0)));
/// assert!(Token::try_from(u64::MAX).is_err(), "it has to fit a signed 64-bit column");
/// # Ok::<(), TokenOutOfRange>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The largest token: it fits a signed 64-bit column everywhere.
    pub const MAX: u64 = i64::MAX as u64;

    /// A token from the store's number; `None` for zero and for more than [`Token::MAX`].
    pub const fn new(number: u64) -> Option<Token> {
        if number == 0 || number > Token::MAX { None } else { Some(Token(number)) }
    }

    /// The number, for a resource to compare.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for Token {
    type Error = TokenOutOfRange;
    fn try_from(number: u64) -> Result<Token, TokenOutOfRange> {
        Token::new(number).ok_or(TokenOutOfRange(number))
    }
}

/// The number is not a token: tokens go from 1 to [`Token::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a token: tokens go from 1 to {max}", max = Token::MAX)]
pub struct TokenOutOfRange(pub u64);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What tells one enlistment from every other: random, and new each time a candidate enters a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u128);

impl Incarnation {
    /// An incarnation from 128 random bits.
    pub const fn from_bits(bits: u128) -> Incarnation {
        Incarnation(bits)
    }

    /// The bits it was made from.
    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

impl std::str::FromStr for Incarnation {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Incarnation, Self::Err> {
        u128::from_str_radix(text, 16).map(Incarnation)
    }
}

/// The store's name for an entry (a key, a node, a file). Opaque to everyone else.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(Arc<str>);

impl EntryId {
    /// Wraps the store's name for an entry.
    pub fn new(id: impl Into<Arc<str>>) -> EntryId {
        EntryId(id.into())
    }

    /// The store's name for the entry.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An opaque number that changes whenever the thing it belongs to changes. Zero: there is no such
/// thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Version(pub u64);

impl Version {
    /// The version of what does not exist.
    pub const NONE: Version = Version(0);
}

/// Ties a notice in the office record to the answers that it gets. Random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Nonce(pub u64);

/// An entry as its owner holds it: all that is needed to act on it, guarded.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct Held {
    /// The election whose line it stands in.
    pub election: ElectionName,
    /// The store's name for it. A store may reuse the name; name and token together are unique.
    pub entry: EntryId,
    /// Its place in the store's order, and the fencing token once it leads.
    pub token: Token,
    /// The enlistment that made it.
    pub incarnation: Incarnation,
}

impl Held {
    /// The entry of this name and token in this election's line, made by this enlistment.
    pub fn new(election: ElectionName, entry: EntryId, token: Token, incarnation: Incarnation) -> Held {
        Held { election, entry, token, incarnation }
    }
}

/// What a candidate says of itself to those who choose a leader. Blank: it is well, and as good as
/// others.
///
/// It is written as words, and words that nobody knows are skipped: by builds that are older.
///
/// ```
/// use incumbent_core::Merit;
///
/// let merit = Merit::new(true, 5);
/// assert_eq!(merit.to_string(), "unwell priority=5");
/// assert_eq!(Merit::from_words("unwell priority=5"), Some(merit));
/// assert!(Merit::new(false, 1).is_better_than(merit), "fit comes before any priority");
/// assert!(merit.is_better_than(Merit::new(false, 9).gave_way(true)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Merit {
    /// Whether it would rather have another lead.
    pub unwell: bool,
    /// Of those that are equally well, the one with the highest is to lead.
    pub priority: i32,
    /// Whether it was first in line and could not take office, or was asked to resign, and has not
    /// led since. Otherwise the next in line would hand its place to it again and again.
    pub gave_way: bool,
    /// As the heir of a handover that is not ready for it: how far it has come.
    pub preparation: Option<Preparation>,
    /// Whether, as the first in line, it stops a last leader that is at large from outside before
    /// it takes office. So that others know it while it still waits to do so.
    pub fences: bool,
    /// Whether it leads no more, and keeps its place until its work has stopped.
    pub holding: bool,
}

/// What an heir says of a handover for which it is not ready.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Preparation {
    /// It is getting ready.
    Preparing(Nonce),
    /// It will not take the office, and why.
    Declined(Nonce, Decline),
}

/// Why an heir declines an office.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Decline {
    /// What it does to get ready has failed.
    #[error("it could not get ready; its log says why")]
    Failed,
    /// It did not get ready in time.
    #[error("it did not get ready in time")]
    TimedOut,
}

impl Decline {
    /// All that there are.
    pub const ALL: &[Decline] = &[Decline::Failed, Decline::TimedOut];

    /// The word for it in an entry.
    pub fn word(self) -> &'static str {
        match self {
            Decline::Failed => "failed",
            Decline::TimedOut => "timed-out",
        }
    }

    /// What [`word`](Decline::word) stands for.
    pub fn from_word(word: &str) -> Option<Decline> {
        Decline::ALL.iter().copied().find(|why| why.word() == word)
    }
}

/// As it is written down.
impl fmt::Display for Preparation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Preparation::Preparing(Nonce(nonce)) => write!(f, "{}{nonce}", Merit::PREPARING),
            Preparation::Declined(Nonce(nonce), why) => write!(f, "{}{nonce}:{}", Merit::DECLINED, why.word()),
        }
    }
}

impl Merit {
    const UNWELL: &str = "unwell";
    const PRIORITY: &str = "priority=";
    const GAVE_WAY: &str = "gave-way";
    const PREPARING: &str = "preparing=";
    const DECLINED: &str = "declined=";
    const FENCES: &str = "fences";
    const HOLDING: &str = "holding";

    /// Of one that is unwell or is not, and has this priority.
    pub const fn new(unwell: bool, priority: i32) -> Merit {
        Merit { unwell, priority, gave_way: false, preparation: None, fences: false, holding: false }
    }

    /// The same, of one that gave way or did not.
    pub const fn gave_way(self, gave_way: bool) -> Merit {
        Merit { gave_way, ..self }
    }

    /// The same, of an heir that has come so far.
    pub const fn preparation(self, preparation: Option<Preparation>) -> Merit {
        Merit { preparation, ..self }
    }

    /// The same, of one that stops a last leader from outside or does not.
    pub const fn fences(self, fences: bool) -> Merit {
        Merit { fences, ..self }
    }

    /// The same, of one that keeps its place until its work has stopped or does not.
    pub const fn holding(self, holding: bool) -> Merit {
        Merit { holding, ..self }
    }

    /// Whether there is nothing to say: then nothing is written.
    pub fn is_blank(self) -> bool {
        self == Merit::default()
    }

    /// Whether this one is to lead rather than one with that merit. Equals are not better: the line
    /// decides between them.
    pub fn is_better_than(self, other: Merit) -> bool {
        self.rank() > other.rank()
    }

    fn rank(self) -> (bool, bool, i32) {
        (!self.gave_way, !self.unwell, self.priority)
    }

    /// What these words say. `None`: they are damaged.
    pub fn from_words(words: &str) -> Option<Merit> {
        let mut merit = Merit::default();
        for word in words.split_ascii_whitespace() {
            if let Some(priority) = word.strip_prefix(Merit::PRIORITY) {
                merit.priority = priority.parse().ok()?;
            }
            if let Some(nonce) = word.strip_prefix(Merit::PREPARING) {
                merit.preparation = Some(Preparation::Preparing(Nonce(nonce.parse().ok()?)));
            }
            if let Some((nonce, why)) = word.strip_prefix(Merit::DECLINED).and_then(|word| word.split_once(':')) {
                // One of the future declines as well.
                let why = Decline::from_word(why).unwrap_or(Decline::Failed);
                merit.preparation = Some(Preparation::Declined(Nonce(nonce.parse().ok()?), why));
            }
            merit.unwell |= word == Merit::UNWELL;
            merit.gave_way |= word == Merit::GAVE_WAY;
            merit.fences |= word == Merit::FENCES;
            merit.holding |= word == Merit::HOLDING;
        }
        Some(merit)
    }
}

/// As it is written down.
impl fmt::Display for Merit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let priority = (self.priority != 0).then(|| format!("{}{}", Merit::PRIORITY, self.priority));
        let gave_way = self.gave_way.then(|| Merit::GAVE_WAY.to_owned());
        let preparation = self.preparation.map(|preparation| preparation.to_string());
        let fences = self.fences.then(|| Merit::FENCES.to_owned());
        let holding = self.holding.then(|| Merit::HOLDING.to_owned());
        let words = [self.unwell.then(|| Merit::UNWELL.to_owned()), priority, gave_way, preparation, fences, holding];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// What a candidate puts in line.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct NewEntry {
    /// Makes the call idempotent: the same incarnation is never in line twice.
    pub incarnation: Incarnation,
    /// The candidate's name, for people.
    pub name: Arc<str>,
    /// What the candidate advertises.
    pub value: Bytes,
    /// What it says of itself to those who choose a leader.
    pub merit: Merit,
}

impl NewEntry {
    /// What this enlistment puts in line, for one that says nothing of itself.
    pub fn new(incarnation: Incarnation, name: impl Into<Arc<str>>, value: impl Into<Bytes>) -> NewEntry {
        NewEntry { incarnation, name: name.into(), value: value.into(), merit: Merit::default() }
    }

    /// The same, of one that says this of itself.
    pub fn merit(self, merit: Merit) -> NewEntry {
        NewEntry { merit, ..self }
    }
}

/// What an entry says from now on: all of it at once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Publication {
    /// What the candidate advertises.
    pub value: Bytes,
    /// The handover for which it is ready.
    pub ready: Option<Nonce>,
    /// What it says of itself to those who choose a leader.
    pub merit: Merit,
}

impl Publication {
    /// This value, of one that says nothing of itself and is ready for nothing.
    pub fn new(value: impl Into<Bytes>) -> Publication {
        Publication { value: value.into(), ready: None, merit: Merit::default() }
    }

    /// The same, ready for this handover or for none.
    pub fn ready(self, ready: Option<Nonce>) -> Publication {
        Publication { ready, ..self }
    }

    /// The same, of one that says this of itself.
    pub fn merit(self, merit: Merit) -> Publication {
        Publication { merit, ..self }
    }
}

/// An entry as others see it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The store's name for it.
    pub id: EntryId,
    /// Its place in the store's order, and the fencing token once it leads.
    pub token: Token,
    /// The enlistment that made it. `None` for a foreign candidate, made by another library.
    pub incarnation: Option<Incarnation>,
    /// The candidate's name; a foreign candidate may have none.
    pub name: Option<Arc<str>>,
    /// What the candidate advertises.
    pub value: Bytes,
    /// The handover for which this candidate has said that it is ready.
    pub ready: Option<Nonce>,
    /// What this candidate has said of itself to those who choose a leader.
    pub merit: Merit,
    /// Changes with every change of the entry. Where rivals forget the dead, it changes with each
    /// renewal too.
    pub version: Version,
    /// `Some`: rivals remove this entry once it has been silent for its TTL. `None`: the store
    /// does.
    pub observed: Option<Observed>,
    /// It hangs on no session: nobody's death removes it, and it stays until an operator does.
    /// Another program wrote it, or it came back with a backup.
    pub stays: bool,
}

/// How rivals see an entry that they have to forget themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Observed {
    /// For how long it may be silent.
    pub ttl: Duration,
    /// For how long it had been silent when it was read: where its owner and the store's reader
    /// share a clock, as the processes of a host do. A length of time, since the machine that hears
    /// of it may count by another clock. `None`: nobody knows, and its silence counts from when its
    /// version was first seen.
    pub silent: Option<Duration>,
}

impl Observed {
    /// It may be silent for this long; for how long it has been, nobody knows.
    pub fn new(ttl: Duration) -> Observed {
        Observed { ttl, silent: None }
    }
}

impl Entry {
    /// An entry that says nothing yet: a foreign candidate's, which the store forgets. A store
    /// fills in what it knows.
    pub fn new(id: EntryId, token: Token) -> Entry {
        Entry {
            id,
            token,
            incarnation: None,
            name: None,
            value: Bytes::new(),
            ready: None,
            merit: Merit::default(),
            version: Version::NONE,
            observed: None,
            stays: false,
        }
    }

    /// Whether another library made it: it obeys no notices.
    pub fn is_foreign(&self) -> bool {
        self.incarnation.is_none()
    }

    /// Whether this is the entry that `held` holds.
    pub fn is(&self, held: &Held) -> bool {
        self.id == held.entry && self.token == held.token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merit_is_read_as_it_was_written_and_words_of_the_future_are_skipped() {
        let of_heirs = [
            Merit::new(true, 4).preparation(Some(Preparation::Preparing(Nonce(u64::MAX)))),
            Merit::default().preparation(Some(Preparation::Declined(Nonce(0), Decline::TimedOut))),
        ];
        let others = [
            Merit::new(true, 0),
            Merit::new(true, i32::MIN),
            Merit::new(false, i32::MAX).fences(true),
            Merit::default(),
        ];
        for merit in of_heirs.into_iter().chain(others) {
            assert_eq!(Merit::from_words(&merit.to_string()), Some(merit));
            assert_eq!(Merit::from_words(&format!("position=4/7 {merit} shiny")), Some(merit));
        }
        assert_eq!(Merit::default().to_string(), "");
        let of_the_future = Merit::from_words("declined=7:bored").and_then(|merit| merit.preparation);
        assert_eq!(of_the_future, Some(Preparation::Declined(Nonce(7), Decline::Failed)));
        for damaged in ["priority=", "priority=high", "priority=2147483648", "preparing=x", "declined=:failed"] {
            assert_eq!(Merit::from_words(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn fit_comes_before_unwell_and_then_the_higher_priority() {
        let order =
            [Merit::new(true, -1), Merit::new(true, 9), Merit::new(false, -1), Merit::default(), Merit::new(false, 1)];
        for (place, merit) in order.iter().enumerate() {
            assert!(order[..place].iter().all(|worse| merit.is_better_than(*worse)));
            assert!(order[place..].iter().all(|other| !merit.is_better_than(*other)), "an equal is not better");
        }
    }
}
