//! What stores write down of ours: what a candidate says about itself, and the office record. Knows
//! nothing of requests.
//!
//! Lines of a word and a value, for people to read with a store's own tools. Each store frames them
//! as it needs: one that can tear a write adds a checksum.

#[cfg(test)]
mod fuzz;
mod text;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{
    BenchOrder, Benched, Deposed, Ended, EntryId, Frozen, Handover, Heir, HeldBack, Incarnation, LossReason, Merit,
    Nonce, Office, Order, Origin, Paused, Recovery, Refusal, Shot, ShotResult, TermEnd, TermRecord, Terms, Token,
    Version,
};

pub use text::{Lines, parse};

/// For what a leader hands over that nobody has asked to.
const HEALTH: &str = "health";
/// For what the first in line offers that is not in office.
const VACANCY: &str = "vacancy";
const BENCH: &str = "bench";
/// How one that is benched leaves, though nobody may follow.
const ANYWAY: &str = "anyway";

/// What a candidate says about itself beyond its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateRecord {
    /// Which start of which process.
    pub incarnation: Incarnation,
    /// For people.
    pub name: Arc<str>,
    /// The handover that it is ready for.
    pub ready: Option<Nonce>,
    /// What it says of itself to those who choose a leader.
    pub merit: Merit,
}

impl CandidateRecord {
    /// As it is written down.
    pub fn encode(&self) -> Vec<u8> {
        let mut lines = Lines::new();
        lines.add("incarnation", self.incarnation);
        lines.add("name", &self.name);
        if let Some(ready) = self.ready {
            lines.add("ready", ready.0);
        }
        if !self.merit.is_blank() {
            lines.add("merit", self.merit);
        }
        lines.finish()
    }

    /// `None` if it was not written by us, or is damaged.
    pub fn decode(record: &[u8]) -> Option<CandidateRecord> {
        let mut words = Words::read(record)?;
        let record = CandidateRecord {
            incarnation: words.take("incarnation")??,
            name: words.text("name")?.into(),
            ready: match words.take("ready") {
                None => None,
                Some(nonce) => Some(Nonce(nonce?)),
            },
            merit: match (words.text("merit"), words.text("unwell").as_deref()) {
                (Some(merit), None) => Merit::from_words(&merit)?,
                (None, None) => Merit::default(),
                // As it was written before there was more to say.
                (None, Some("")) => Merit::new(true, 0),
                _ => return None,
            },
        };
        words.is_empty().then_some(record)
    }
}

/// The office record, without its version.
pub fn encode_office(office: &Office) -> Vec<u8> {
    let mut lines = Lines::new();
    if let Some(Handover { from, heir, nonce, within, refused, order, for_health, for_bench, at_vacancy, .. }) =
        &office.handover
    {
        lines.add("handover.from", from);
        lines.add("handover.nonce", nonce.0);
        lines.add("handover.within", seconds(*within));
        if let Some(Heir { incarnation, entry, token, .. }) = heir {
            lines.add("handover.heir.incarnation", incarnation);
            lines.add("handover.heir.entry", entry.as_str());
            lines.add("handover.heir.token", token);
        }
        if let Some(refused) = refused {
            lines.add("handover.refused", refused.word());
        }
        if *for_bench {
            lines.add("handover.for", BENCH);
        } else if *for_health {
            lines.add("handover.for", HEALTH);
        } else if *at_vacancy {
            lines.add("handover.for", VACANCY);
        }
        add_order(&mut lines, "handover", order);
    }
    if let Some(Paused { order, first, .. }) = &office.paused {
        lines.add("paused", &order.reason);
        if let Some(first) = first {
            lines.add("paused.first", first);
        }
        add_order(&mut lines, "paused", &Order::new(order.by.clone(), order.at_ms, ""));
    }
    if let Some(Ended { id, keep, order, .. }) = &office.ended {
        lines.add("ended.id", id.0);
        lines.add("ended.keep", seconds(*keep));
        add_order(&mut lines, "ended", order);
    }
    if let Some(Deposed { token, order, .. }) = &office.deposed {
        lines.add("deposed", token);
        add_order(&mut lines, "deposed", order);
    }
    if let Some(Frozen { id, lasts, order, .. }) = &office.frozen {
        lines.add("frozen.id", id.0);
        if let Some(lasts) = lasts {
            lines.add("frozen.lasts", seconds(*lasts));
        }
        add_order(&mut lines, "frozen", order);
    }
    (1..).zip(office.benched.iter()).for_each(|(number, order)| add_bench_order(&mut lines, number, order));
    office.terms.iter().for_each(|term| add_term(&mut lines, term));
    if let Some(HeldBack { token, at_ms, .. }) = office.held_back {
        lines.add("held_back", token);
        add_time(&mut lines, "held_back.at", at_ms);
    }
    if let Some(Recovery { id, step, order, .. }) = &office.recovery {
        lines.add("recovery", id);
        lines.add("recovery.step", step);
        add_order(&mut lines, "recovery", order);
    }
    lines.finish()
}

fn add_bench_order(lines: &mut Lines, number: u32, BenchOrder { name, id, lasts, vacates, order, .. }: &BenchOrder) {
    let of = format!("benched.{number}");
    lines.add(&of, name);
    lines.add(&format!("{of}.id"), id.0);
    if let Some(lasts) = lasts {
        lines.add(&format!("{of}.lasts"), seconds(*lasts));
    }
    if *vacates {
        lines.add(&format!("{of}.leaves"), ANYWAY);
    }
    add_order(lines, &of, order);
}

fn add_term(lines: &mut Lines, term: &TermRecord) {
    let TermRecord { token, incarnation, name, origin, opened_ms, end, fence, .. } = term;
    let of = format!("term.{token}");
    lines.add(&of, end.word());
    if let Some(incarnation) = incarnation {
        lines.add(&format!("{of}.incarnation"), incarnation);
    }
    let Origin { host, boot, process, target, .. } = origin;
    for (word, said) in [("name", name), ("host", host), ("boot", boot), ("process", process), ("target", target)] {
        add_text(lines, &format!("{of}.{word}"), said);
    }
    add_time(lines, &format!("{of}.opened"), *opened_ms);
    match end {
        TermEnd::Closed { why, order, at_ms } => {
            lines.add(&format!("{of}.why"), why.word());
            add_time(lines, &format!("{of}.ended"), *at_ms);
            add_order(lines, &of, order);
        }
        TermEnd::Died { at_ms } => add_time(lines, &format!("{of}.ended"), *at_ms),
        _ => {}
    }
    if let Some(Shot { by, attempt, result, order, .. }) = fence {
        let of = format!("{of}.fence");
        lines.add(&of, result.word());
        lines.add(&format!("{of}.token"), by);
        lines.add(&format!("{of}.attempt"), attempt);
        add_order(lines, &of, order);
    }
}

/// What was not said has no word.
fn add_order(lines: &mut Lines, of: &str, Order { by, at_ms, reason, .. }: &Order) {
    add_text(lines, &format!("{of}.by"), by);
    add_time(lines, &format!("{of}.at"), *at_ms);
    add_text(lines, &format!("{of}.reason"), reason);
}

fn add_text(lines: &mut Lines, word: &str, said: &str) {
    if !said.is_empty() {
        lines.add(word, said);
    }
}

fn add_time(lines: &mut Lines, word: &str, at_ms: u64) {
    if at_ms != 0 {
        lines.add(word, at_ms);
    }
}

/// The office record; `None` if it was not written by us, or is damaged.
pub fn decode_office(record: &[u8], version: Version) -> Option<Office> {
    let mut words = Words::read(record)?;
    let office = Office::default()
        .with_version(version)
        .with_handover(words.handover()?)
        .with_paused(words.paused()?)
        .with_ended(words.ended()?)
        .with_deposed(words.deposed()?)
        .with_frozen(words.frozen()?)
        .with_benched(words.benched()?)
        .with_terms(words.terms()?)
        .with_held_back(words.held_back()?)
        .with_recovery(words.recovery()?);
    words.is_empty().then_some(office)
}

/// The words of a record that have not been understood yet. In every method the outer `None` means:
/// damaged.
struct Words<'a> {
    left: BTreeMap<&'a str, String>,
    /// The numbers of the terms, in the order in which they stand there.
    terms: Vec<&'a str>,
}

impl<'a> Words<'a> {
    fn read(record: &'a [u8]) -> Option<Words<'a>> {
        let words = parse(record)?;
        let count = words.len();
        let number = |word: &'a str| word.strip_prefix("term.").filter(|rest| !rest.contains('.'));
        let terms = words.iter().filter_map(|(word, _)| number(word)).collect();
        let left: BTreeMap<&str, String> = words.into_iter().collect();
        (left.len() == count).then_some(Words { left, terms })
    }

    fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn text(&mut self, word: &str) -> Option<String> {
        self.left.remove(word)
    }

    /// `None`: not there. `Some(None)`: not readable.
    fn take<T: FromStr>(&mut self, word: &str) -> Option<Option<T>> {
        self.text(word).map(|text| text.parse().ok())
    }

    fn token(&mut self, word: &str) -> Option<Option<Token>> {
        match self.take(word) {
            None => Some(None),
            Some(number) => Token::new(number?).map(Some),
        }
    }

    fn duration(&mut self, word: &str) -> Option<Duration> {
        let text = self.text(word)?;
        let (seconds, nanos) = text.split_once('.')?;
        let nanos = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Duration::new(seconds.parse().ok()?, nanos))
    }

    fn handover(&mut self) -> Option<Option<Handover>> {
        let Some(from) = self.token("handover.from")? else { return Some(None) };
        let nonce = Nonce(self.take("handover.nonce")??);
        let within = self.duration("handover.within")?;
        let heir = match self.take("handover.heir.incarnation") {
            None => None,
            Some(incarnation) => Some(Heir::new(
                incarnation?,
                EntryId::new(self.text("handover.heir.entry")?),
                self.token("handover.heir.token")??,
            )),
        };
        let mut handover = Handover::new(from, heir, nonce, within);
        if let Some(word) = self.text("handover.refused") {
            handover.refused = Some(Refusal::from_word(&word)?);
        }
        handover = match self.text("handover.for").as_deref() {
            None => handover,
            Some(HEALTH) => handover.for_health(),
            Some(BENCH) => handover.for_bench(),
            Some(VACANCY) => handover.at_vacancy(),
            Some(_) => return None,
        };
        Some(Some(handover.ordered(self.order("handover")?)))
    }

    fn order(&mut self, of: &str) -> Option<Order> {
        let by = self.text(&format!("{of}.by")).unwrap_or_default();
        let at_ms = self.time(&format!("{of}.at"))?;
        Some(Order::new(by, at_ms, self.text(&format!("{of}.reason")).unwrap_or_default()))
    }

    /// Zero: it was not said.
    fn time(&mut self, word: &str) -> Option<u64> {
        self.take(word).unwrap_or(Some(0))
    }

    fn paused(&mut self) -> Option<Option<Paused>> {
        let Some(reason) = self.text("paused") else { return Some(None) };
        // Here the word itself is the reason.
        let order = self.order("paused").filter(|order| order.reason.is_empty())?;
        let paused = Paused::new(Order::new(order.by, order.at_ms, reason));
        Some(Some(match self.text("paused.first") {
            Some(first) => paused.until_leads(first),
            None => paused,
        }))
    }

    fn deposed(&mut self) -> Option<Option<Deposed>> {
        match self.token("deposed")? {
            None => Some(None),
            Some(token) => Some(Some(Deposed::new(token).ordered(self.order("deposed")?))),
        }
    }

    fn frozen(&mut self) -> Option<Option<Frozen>> {
        let Some(id) = self.take("frozen.id") else { return Some(None) };
        let lasts = self.lasts("frozen.lasts")?;
        Some(Some(Frozen::new(Nonce(id?), lasts, self.order("frozen")?)))
    }

    fn lasts(&mut self, word: &str) -> Option<Option<Duration>> {
        match self.left.contains_key(word) {
            true => self.duration(word).map(Some),
            false => Some(None),
        }
    }

    /// Numbered from 1 on, each name once.
    fn benched(&mut self) -> Option<Benched> {
        let mut benched = Benched::default();
        for number in 1.. {
            let of = format!("benched.{number}");
            let Some(name) = self.text(&of).filter(|name| benched.get(name).is_none()) else { break };
            let id = Nonce(self.take(&format!("{of}.id"))??);
            let lasts = self.lasts(&format!("{of}.lasts"))?;
            let vacates = match self.text(&format!("{of}.leaves")).as_deref() {
                None => false,
                Some(ANYWAY) => true,
                Some(_) => return None,
            };
            benched = benched.with(BenchOrder::new(name, id, lasts, self.order(&of)?).vacating(vacates));
        }
        Some(benched)
    }

    fn held_back(&mut self) -> Option<Option<HeldBack>> {
        match self.token("held_back")? {
            None => Some(None),
            Some(token) => Some(Some(HeldBack::new(token).stamped(self.time("held_back.at")?))),
        }
    }

    fn recovery(&mut self) -> Option<Option<Recovery>> {
        let Some(id) = self.text("recovery") else { return Some(None) };
        Some(Some(Recovery::new(id, self.text("recovery.step")?, self.order("recovery")?)))
    }

    fn terms(&mut self) -> Option<Terms> {
        let numbers = std::mem::take(&mut self.terms);
        numbers.into_iter().try_fold(Terms::default(), |terms, number| Some(terms.with(self.term(number)?)))
    }

    fn term(&mut self, number: &str) -> Option<TermRecord> {
        let of = format!("term.{number}");
        let token = Token::new(number.parse().ok()?).filter(|token| token.to_string() == number)?;
        let mut text = |word: &str| self.text(&format!("{of}.{word}")).unwrap_or_default();
        let name = text("name").into();
        let origin = Origin::new(text("host"), text("boot"), text("process")).with_target(text("target"));
        let incarnation = match self.take(&format!("{of}.incarnation")) {
            None => None,
            Some(incarnation) => Some(incarnation?),
        };
        let opened_ms = self.time(&format!("{of}.opened"))?;
        let end = match self.text(&of)?.as_str() {
            "open" => TermEnd::Open,
            "closed" => TermEnd::Closed {
                why: LossReason::from_word(&self.text(&format!("{of}.why"))?)?,
                at_ms: self.time(&format!("{of}.ended"))?,
                order: self.order(&of)?,
            },
            "died" => TermEnd::Died { at_ms: self.time(&format!("{of}.ended"))? },
            "unknown" => TermEnd::Unknown,
            _ => return None,
        };
        let term = TermRecord::unknown(token, incarnation, name).opened_at(opened_ms).ended(end);
        Some(term.of(origin).with_fence(self.shot(&format!("{of}.fence"))?))
    }

    fn shot(&mut self, of: &str) -> Option<Option<Shot>> {
        let Some(word) = self.text(of) else { return Some(None) };
        let by = self.token(&format!("{of}.token"))??;
        let shot = Shot::claimed(by, self.take(&format!("{of}.attempt"))??).ended(ShotResult::from_word(&word)?);
        Some(Some(shot.ordered(self.order(of)?)))
    }

    fn ended(&mut self) -> Option<Option<Ended>> {
        let Some(id) = self.take("ended.id") else { return Some(None) };
        let ended = Ended::new(Nonce(id?), self.duration("ended.keep")?);
        Some(Some(ended.ordered(self.order("ended")?)))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    fn full(refused: Option<Refusal>) -> Office {
        let heir = Heir::new(Incarnation::from_bits(9), EntryId::new("1f@7"), token(7));
        let mut handover = Handover::new(token(5), heir, Nonce(u64::MAX), Duration::new(5, 7));
        handover.refused = refused;
        Office::default()
            .with_version(Version(3))
            .with_handover(handover.ordered(Order::new("ada@ops1", 1, "new disk")))
            .with_paused(Paused::new(Order::new("b\nc", u64::MAX, "two\nlines, 100 %")).until_leads("node 2"))
            .with_ended(Ended::new(Nonce(0), Duration::MAX).ordered(Order::new("", 0, "why")))
            .with_deposed(Deposed::new(token(Token::MAX)).ordered(Order::new("d", 0, "")))
            .with_frozen(Frozen::new(Nonce(7), Some(Duration::new(7200, 1)), Order::new("", 8, "")))
            .with_benched(benched())
            .with_terms(terms())
            .with_held_back(HeldBack::new(token(8)).stamped(9))
            .with_recovery(Recovery::new("7f3a", "3 reconcile", Order::new("ada@ops1", 5, "split")))
    }

    fn benched() -> Benched {
        let order = Order::new("ada@ops1", 9, "two\nlines");
        let first = BenchOrder::new("node 2", Nonce(0), Some(Duration::new(7200, 1)), order).vacating(true);
        let bare = BenchOrder::new("a\nb", Nonce(u64::MAX), None, "");
        Benched::default().with(first).with(bare)
    }

    /// One that ended in each way.
    fn terms() -> Terms {
        let origin = Origin::new("node 1", "5d1f", "4711 at 99").with_target("plug-7");
        let open = |number| TermRecord::open(token(number), Incarnation::from_bits(9), "a".into(), origin.clone());
        let order = Order::new("ada@ops1", 1, "two\nlines");
        let closed = TermEnd::Closed { why: LossReason::Transferred, order, at_ms: 9 };
        let unknown = TermRecord::unknown(token(1), None, "".into());
        let released = Shot::claimed(token(9), 3).ended(ShotResult::Released).ordered(Order::new("ada@ops1", 4, "off"));
        let died = open(7).opened_at(8).ended(TermEnd::Died { at_ms: 0 }).with_fence(released);
        // Not in the order of their tokens: that is how they were written down.
        let terms = [open(Token::MAX), unknown, open(5).opened_at(8).ended(closed), died];
        terms.into_iter().fold(Terms::default(), |terms, term| terms.with(term))
    }

    fn sparse() -> Office {
        let handover = Handover::new(token(5), None, Nonce(0), Duration::ZERO).for_health();
        let (paused, ended) = (Paused::new(""), Ended::new(Nonce(1), Duration::ZERO));
        let office = Office::default().with_version(Version(3)).with_handover(handover).with_paused(paused);
        office.with_ended(ended).with_deposed(Deposed::new(token(1))).with_frozen(Frozen::new(Nonce(2), None, ""))
    }

    #[test]
    fn every_field_of_an_office_record_comes_back() {
        let refusals = Refusal::ALL.iter().copied().map(Some);
        let blank = Office::default().with_version(Version(3));
        let vacant = blank.clone().with_handover(Handover::new(token(5), None, Nonce(1), Duration::ZERO).at_vacancy());
        let for_bench = Handover::new(token(5), None, Nonce(0), Duration::ZERO).for_bench();
        let leaves = Office::default().with_version(Version(3)).with_handover(for_bench);
        for office in refusals.chain([None]).map(full).chain([sparse(), vacant, leaves, blank]) {
            let record = encode_office(&office);
            assert_eq!(decode_office(&record, Version(3)).unwrap(), office);
        }
    }

    #[test]
    fn a_candidate_record_comes_back_with_and_without_readiness_and_fitness() {
        let merits = [(false, 0), (true, 0), (false, -7), (true, i32::MAX)];
        for (ready, (unwell, priority)) in [None, Some(Nonce(0)), Some(Nonce(u64::MAX)), None].into_iter().zip(merits) {
            let (incarnation, name) = (Incarnation::from_bits(77), "node % 1".into());
            let record = CandidateRecord { incarnation, name, ready, merit: Merit::new(unwell, priority) };
            assert_eq!(CandidateRecord::decode(&record.encode()).unwrap(), record);
        }
        let older = b"incumbent 1\nincarnation 4d\nname n\nunwell \n";
        assert_eq!(CandidateRecord::decode(older).unwrap().merit, Merit::new(true, 0), "as it was written before");
    }

    #[test]
    fn a_damaged_record_is_not_guessed_at() {
        let good = String::from_utf8(encode_office(&full(None))).unwrap();
        let bad = [
            "".to_owned(),
            good.replace("incumbent 1", "incumbent 2"),
            good.replace("handover.nonce", "handover.nonsense"),
            good.replace("deposed 9223372036854775807", "deposed 9223372036854775808"),
            good.replace("deposed 9223372036854775807", "deposed 0"),
            format!("{good}news 1\n"),
            format!("{good}deposed 4\n"),
            format!("{good}paused.reason twice\n"),
            String::from_utf8(encode_office(&Office::default())).unwrap() + "paused.first a\n",
            good.replace("frozen.id 7", "frozen.id seven"),
            good.replace("frozen.id 7\n", ""),
            good.replace("handover.at 1", "handover.at once"),
            good.replace("held_back 8\n", ""),
            good.replace("recovery 7f3a\n", ""),
            good.replace("recovery.step 3 reconcile\n", ""),
            format!("{good}handover.for fun\n"),
            good.replace("benched.1 ", "benched.0 "),
            good.replace("benched.2 ", "benched.3 "),
            good.replace("benched.2 a%0ab", "benched.2 node 2"),
            good.replace("benched.1.id 0\n", ""),
            good.replace("benched.1.id 0", "benched.1.id zero"),
            good.replace("benched.1.leaves anyway", "benched.1.leaves never"),
            good.replace("benched.1.lasts 7200.000000001", "benched.1.lasts 7200"),
            good.replace("term.7 died", "term.7 lives"),
            good.replace("term.7 died\n", ""),
            good.replace("term.7 died", "term.07 died"),
            good.replace("term.5.why transferred", "term.5.why not"),
            good.replace("term.7.fence released", "term.7.fence missed"),
            good.replace("term.7.fence released\n", ""),
            good.replace("term.7.fence.token 9", "term.7.fence.token 0"),
            format!("{good}term.7.why resigned\n"),
            format!("{good}term.0 open\n"),
        ];
        for record in bad {
            assert_ne!(record, good, "it is damaged");
            assert_eq!(decode_office(record.as_bytes(), Version(1)), None, "{record}");
        }
    }
}
