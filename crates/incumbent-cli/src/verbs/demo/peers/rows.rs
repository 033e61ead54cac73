//! From what happened in an act to the rows of its diagram: messages that belong together share a row, heartbeats and
//! repetitions are counted instead of drawn. It knows nothing of characters and widths.

use std::collections::{BTreeMap, BTreeSet};

use super::chronicle::{Deed, Entry, Office, What};
use super::report::{Frame, News, Why};
use super::troupe::name;

const MS: u64 = 1_000_000;
/// Messages of one broadcast, or answers to it, are at most so far apart.
const TOGETHER: u64 = 40 * MS;
/// So many messages are worth a row that says how many there were.
const WORTH_COUNTING: usize = 12;
/// After such a silence even a single one is.
const LONG: u64 = 150 * MS;

/// One row, and when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) at: u64,
    pub(super) what: Drawn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// One says the same to some; of each, whether it arrived.
    Broadcast { from: u16, to: BTreeMap<u16, bool>, label: String, mood: Mood },
    /// Some say the same to one, and all of it arrived.
    Gather { from: BTreeSet<u16>, to: u16, label: String, mood: Mood },
    /// Something became of these.
    Notes(BTreeMap<u16, Note>),
    /// Something happened to all.
    Banner { text: &'static str, whole: bool },
    /// Messages that are not drawn, by kind.
    Folded(BTreeMap<String, usize>),
}

/// What kind of message, as far as colours go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mood {
    Asks,
    Answers,
    Leads,
}

/// What became of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) turn: Turn,
}

/// What a note changes in a lifeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Begins,
    Ends,
    Leads,
    Follows,
    Nothing,
}

/// What becomes of a message in the diagram.
enum Class {
    Shown(Mood),
    /// Counted.
    Counted,
    /// Nothing: it carries no news.
    Left,
}

/// Turns an act into rows.
pub(super) fn rows(entries: &[(Entry, bool)], offices: &[Office]) -> Vec<Row> {
    let mut scribe = Scribe { offices, rows: Vec::new(), beats: BTreeSet::new(), last_deed: 0 };
    for (entry, arrived) in entries {
        match &entry.what {
            What::Sent(frame) => scribe.on_message(entry.at, frame, *arrived),
            What::News(member, news) => scribe.on_news(entry.at, *member, news),
            What::Deed(deed) => scribe.on_deed(entry.at, deed),
            What::Lapsed(member) => {
                scribe.note(entry.at, *member, Note { text: "lease over".to_owned(), turn: Turn::Nothing });
            }
            What::Received(_) => {}
        }
    }
    fold(scribe.rows)
}

struct Scribe<'a> {
    offices: &'a [Office],
    rows: Vec<Row>,
    /// Whose heartbeat has been drawn since something was done to the group.
    beats: BTreeSet<u16>,
    last_deed: u64,
}

impl Scribe<'_> {
    fn on_message(&mut self, at: u64, frame: &Frame, arrived: bool) {
        match self.class(at, frame) {
            Class::Shown(mood) => self.draw(at, frame, arrived, mood),
            Class::Counted => {
                let counted = BTreeMap::from([(frame.kind.clone(), 1)]);
                self.rows.push(Row { at, what: Drawn::Folded(counted) });
            }
            Class::Left => {}
        }
    }

    fn class(&mut self, at: u64, frame: &Frame) -> Class {
        let elected = |office: &Office| office.term == frame.term && office.from <= at;
        match frame.kind.as_str() {
            "pre-vote" | "vote" | "election" | "ask-term" => Class::Shown(Mood::Asks),
            "pre-voted" | "voted" | "alive" | "stale" | "tell-term" | "lost-too" | "leaving" => {
                Class::Shown(Mood::Answers)
            }
            "coordinator" | "timeout-now" | "left" => Class::Shown(Mood::Leads),
            // Before a quorum has confirmed a term, these are part of the election.
            "heartbeat" if !self.offices.iter().any(elected) => Class::Shown(Mood::Leads),
            "ack" if !self.offices.iter().any(elected) => Class::Shown(Mood::Answers),
            "heartbeat" | "beat" if self.first_beat(at, frame) => Class::Shown(Mood::Leads),
            "heartbeat" | "beat" | "ack" | "heard" | "founding" => Class::Counted,
            _ => Class::Left,
        }
    }

    /// Whether this belongs to the first heartbeat after something was done to the group, of one that led before.
    fn first_beat(&mut self, at: u64, frame: &Frame) -> bool {
        let led = |office: &Office| office.member == frame.from && office.from <= self.last_deed && office.until() > at;
        if !self.offices.iter().any(led) {
            return false;
        }
        let label = frame.label();
        let last = self.rows.iter().rev().take_while(|row| at - row.at <= TOGETHER).find(|row| {
            matches!(&row.what, Drawn::Broadcast { from, label: drawn, .. } if *from == frame.from && *drawn == label)
        });
        let again =
            last.is_some_and(|row| matches!(&row.what, Drawn::Broadcast { to, .. } if !to.contains_key(&frame.to)));
        again || self.beats.insert(frame.from)
    }

    /// Puts a message into the row that it belongs to, or into a new one.
    fn draw(&mut self, at: u64, frame: &Frame, arrived: bool, mood: Mood) {
        // Once the sender has heard something, this may be its answer to that, and belongs below it: unless it is a
        // further part of what the sender was saying to all anyway.
        let mut heard = false;
        for row in self.rows.iter_mut().rev() {
            if at.saturating_sub(row.at) > TOGETHER {
                break;
            }
            if (!heard || row.is_said_by(frame.from)) && row.takes(frame, arrived) {
                return;
            }
            if row.hinders(frame) {
                break;
            }
            heard |= row.is_heard_by(frame.from);
        }
        let to = BTreeMap::from([(frame.to, arrived)]);
        self.rows.push(Row { at, what: Drawn::Broadcast { from: frame.from, to, label: frame.label(), mood } });
    }

    fn on_news(&mut self, at: u64, member: u16, news: &News) {
        let note = |text: &str, turn| Note { text: text.to_owned(), turn };
        let note = match news {
            News::Elected { term: Some(term), .. } => note(&format!("leads term {term}"), Turn::Leads),
            News::Elected { term: None, .. } => note("leads", Turn::Leads),
            News::Unelected { why: Why::Superseded } => note("gives way", Turn::Follows),
            News::Unelected { .. } => note("steps down", Turn::Follows),
            News::NewLeader { leader, .. } => note(&format!("follows {}", name(*leader)), Turn::Nothing),
            News::Vacant => note("no leader", Turn::Nothing),
            News::NotVoting => note("abstains", Turn::Nothing),
            News::Voting => note("votes again", Turn::Nothing),
            News::Deadline { .. } => return,
        };
        self.note(at, member, note);
    }

    fn on_deed(&mut self, at: u64, deed: &Deed) {
        self.beats.clear();
        self.last_deed = at;
        let note = |text: &str, turn| Note { text: text.to_owned(), turn };
        match deed {
            Deed::Started(member) => self.note(at, *member, note("starts", Turn::Begins)),
            Deed::Back(member) => self.note(at, *member, note("is back", Turn::Begins)),
            Deed::Killed(member) => self.note(at, *member, note("killed", Turn::Ends)),
            Deed::Cut => self.rows.push(Row { at, what: Drawn::Banner { text: "the network is cut", whole: false } }),
            Deed::Healed => {
                self.rows.push(Row { at, what: Drawn::Banner { text: "the network is whole again", whole: true } });
            }
        }
    }

    /// Writes a note beside others of the same kind, if nothing of interest came between.
    fn note(&mut self, at: u64, member: u16, note: Note) {
        let beside = self.rows.iter_mut().rev().find(|row| !matches!(row.what, Drawn::Folded(_)));
        if let Some(Row { at: begun, what: Drawn::Notes(notes) }) = beside
            && at - *begun <= LONG
            && !notes.contains_key(&member)
            && notes.values().all(|other| other.turn == note.turn)
        {
            notes.insert(member, note);
            return;
        }
        self.rows.push(Row { at, what: Drawn::Notes(BTreeMap::from([(member, note)])) });
    }
}

impl Row {
    /// Adds a message that belongs here.
    fn takes(&mut self, frame: &Frame, arrived: bool) -> bool {
        let ours = frame.label();
        match &mut self.what {
            Drawn::Broadcast { from, to, label, .. } if *from == frame.from && *label == ours => {
                to.insert(frame.to, arrived).is_none_or(|before| {
                    // The same once more: that is another row.
                    to.insert(frame.to, before);
                    false
                })
            }
            Drawn::Broadcast { from, to, label, mood } if *label == ours && arrived => {
                if to.len() != 1 || to.get(&frame.to) != Some(&true) {
                    return false;
                }
                let from = BTreeSet::from([*from, frame.from]);
                self.what = Drawn::Gather { from, to: frame.to, label: ours, mood: *mood };
                true
            }
            Drawn::Gather { from, to, label, .. } if *to == frame.to && *label == ours && arrived => {
                from.insert(frame.from)
            }
            _ => false,
        }
    }

    /// Whether a message may not be drawn above this row: its receiver would seem to know of it too early.
    fn hinders(&self, frame: &Frame) -> bool {
        match &self.what {
            Drawn::Broadcast { from, to, .. } => *from == frame.to || to.contains_key(&frame.to),
            Drawn::Gather { from, to, .. } => from.contains(&frame.to) || *to == frame.to,
            Drawn::Notes(notes) => notes.contains_key(&frame.from) || notes.contains_key(&frame.to),
            Drawn::Banner { .. } => true,
            Drawn::Folded(_) => false,
        }
    }

    fn is_said_by(&self, member: u16) -> bool {
        matches!(&self.what, Drawn::Broadcast { from, .. } if *from == member)
    }

    fn is_heard_by(&self, member: u16) -> bool {
        match &self.what {
            Drawn::Broadcast { to, .. } => to.contains_key(&member),
            Drawn::Gather { to, .. } => *to == member,
            Drawn::Notes(_) | Drawn::Banner { .. } | Drawn::Folded(_) => false,
        }
    }

    /// What makes two rows look the same; none for those that are never left out.
    fn likeness(&self) -> Option<String> {
        match &self.what {
            Drawn::Broadcast { from, to, label, .. } => Some(format!("{from} {to:?} {label}")),
            Drawn::Gather { from, to, label, .. } => Some(format!("{from:?} {to} {label}")),
            Drawn::Notes(_) | Drawn::Banner { .. } | Drawn::Folded(_) => None,
        }
    }

    /// What is to be counted if this row is left out.
    fn count(&self) -> Option<(String, usize)> {
        let kind = |label: &String| label.split(' ').next().unwrap_or_default().to_owned();
        match &self.what {
            Drawn::Broadcast { to, label, .. } => Some((kind(label), to.len())),
            Drawn::Gather { from, label, .. } => Some((kind(label), from.len())),
            _ => None,
        }
    }
}

/// Leaves out repetitions, and puts what is counted into rows of its own.
fn fold(rows: Vec<Row>) -> Vec<Row> {
    let mut folded: Vec<Row> = Vec::new();
    let mut pending: Option<Row> = None;
    let mut seen = BTreeSet::new();
    for row in rows {
        if let Drawn::Banner { .. } = row.what {
            seen.clear();
        }
        let repeated = row.likeness().is_some_and(|likeness| !seen.insert(likeness));
        let counted = match &row.what {
            Drawn::Folded(counts) => Some(counts.clone()),
            _ if repeated => row.count().map(|count| BTreeMap::from([count])),
            _ => None,
        };
        match counted {
            Some(counts) => {
                let waits = pending.get_or_insert(Row { at: row.at, what: Drawn::Folded(BTreeMap::new()) });
                if let Drawn::Folded(so_far) = &mut waits.what {
                    counts.into_iter().for_each(|(kind, count)| *so_far.entry(kind).or_default() += count);
                }
            }
            None => {
                if let Some(waits) = pending.take() {
                    let before = folded.last().map_or(waits.at, |row| row.at);
                    if waits.is_worth_it(row.at - before.min(row.at)) {
                        folded.push(waits)
                    } else {
                        pending = Some(waits)
                    }
                }
                folded.push(row);
            }
        }
    }
    folded.extend(pending);
    folded
}

impl Row {
    fn is_worth_it(&self, silence: u64) -> bool {
        let Drawn::Folded(counts) = &self.what else { return true };
        counts.values().sum::<usize>() >= WORTH_COUNTING || silence >= LONG
    }
}

#[cfg(test)]
mod tests {
    use super::super::chronicle::tests::frame;
    use super::*;

    fn sent(ms: u64, from: u16, to: u16, kind: &str) -> (Entry, bool) {
        (Entry { at: ms * MS, what: What::Sent(frame(from, to, kind, Some(1))) }, true)
    }

    fn lost(ms: u64, from: u16, to: u16, kind: &str) -> (Entry, bool) {
        (sent(ms, from, to, kind).0, false)
    }

    fn news(ms: u64, member: u16, news: News) -> (Entry, bool) {
        (Entry { at: ms * MS, what: What::News(member, news) }, false)
    }

    /// Rows in short: `1>2,3 vote`, `2,3>1 voted`, a lost one with a `!`, notes and counts.
    fn short(rows: &[Row]) -> Vec<String> {
        let join = |ids: Vec<String>| ids.join(",");
        let shorten = |row: &Row| match &row.what {
            Drawn::Broadcast { from, to, label, .. } => {
                let to = to.iter().map(|(to, arrived)| format!("{to}{}", if *arrived { "" } else { "!" }));
                format!("{from}>{} {label}", join(to.collect()))
            }
            Drawn::Gather { from, to, label, .. } => {
                format!("{}>{to} {label}", join(from.iter().map(u16::to_string).collect()))
            }
            Drawn::Notes(notes) => join(notes.iter().map(|(member, note)| format!("{member} {}", note.text)).collect()),
            Drawn::Banner { text, .. } => (*text).to_owned(),
            Drawn::Folded(counts) => join(counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect()),
        };
        rows.iter().map(shorten).collect()
    }

    #[test]
    fn a_question_to_all_and_their_answers_are_a_row_each_even_if_they_overlap() {
        let entries = [
            sent(1, 1, 2, "vote"),
            sent(2, 2, 1, "voted"),
            lost(3, 1, 3, "vote"),
            sent(3, 1, 4, "vote"),
            sent(5, 4, 1, "voted"),
        ];
        assert_eq!(short(&rows(&entries, &[])), ["1>2,3!,4 vote 1", "2,4>1 voted 1"]);
    }

    #[test]
    fn an_answer_is_not_drawn_above_what_its_receiver_said_without_it() {
        let entries = [
            sent(1, 1, 2, "vote"),
            sent(1, 1, 3, "vote"),
            sent(2, 2, 1, "voted"),
            sent(3, 1, 2, "coordinator"),
            sent(4, 3, 1, "voted"),
        ];
        let rows = rows(&entries, &[]);
        assert_eq!(short(&rows), ["1>2,3 vote 1", "2>1 voted 1", "1>2 coordinator 1", "3>1 voted 1"]);
    }

    #[test]
    fn an_answer_is_not_drawn_above_what_its_sender_heard_before() {
        let entries = [sent(1, 2, 1, "alive"), sent(2, 4, 3, "election"), sent(3, 3, 1, "alive")];
        assert_eq!(short(&rows(&entries, &[])), ["2>1 alive 1", "4>3 election 1", "3>1 alive 1"]);
    }

    #[test]
    fn heartbeats_and_repetitions_are_counted_and_news_are_not() {
        let mut entries = vec![news(0, 1, News::Elected { term: None, deadline: u64::MAX })];
        for beat in 0..10 {
            entries.push(sent(10 + beat * 200, 1, 2, "beat"));
            entries.push(sent(11 + beat * 200, 2, 1, "heard"));
        }
        entries.push(lost(2_100, 3, 1, "election"));
        entries.push(lost(2_300, 3, 1, "election"));
        entries.push(news(2_400, 3, News::Vacant));
        let rows = rows(&entries, &[]);
        assert_eq!(short(&rows), ["1 leads", "10 beat,10 heard", "3>1! election 1", "1 election", "3 no leader"]);
    }

    #[test]
    fn the_first_heartbeat_into_a_cut_is_drawn() {
        let mut state = super::super::chronicle::State::default();
        state.hear_for_test(1, 1, News::Elected { term: Some(1), deadline: u64::MAX });
        let cut = (Entry { at: 50 * MS, what: What::Deed(Deed::Cut) }, false);
        let entries = [sent(20, 1, 2, "heartbeat"), cut, lost(60, 1, 2, "heartbeat"), lost(260, 1, 2, "heartbeat")];
        let rows = rows(&entries, state.offices());
        assert_eq!(short(&rows), ["the network is cut", "1>2! heartbeat 1", "2 heartbeat"]);
    }
}
