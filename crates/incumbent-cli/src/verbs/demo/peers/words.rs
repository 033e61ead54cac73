//! The sentences of the demonstration: what each algorithm does, in plain words, before and after it is seen doing it.

use std::time::Duration;

use incumbent_peers::Algorithm;

use super::member::{ANSWER_TIMEOUT, LONGEST_TIMEOUT, TIMEOUT};
use super::troupe::name;
use crate::span::show;

pub(super) struct Words {
    pub(super) algorithm: Algorithm,
    pub(super) members: usize,
}

impl Words {
    /// The title of a lifeline.
    pub(super) fn title(&self, member: u16) -> String {
        if self.algorithm.is_fenced() { name(member).to_owned() } else { format!("{} {member}", name(member)) }
    }

    pub(super) fn opening(&self) -> String {
        let how = match self.algorithm {
            Algorithm::Bully => "the highest rank that answers leads",
            Algorithm::Ring => "a list goes round, and the highest rank on it leads",
            Algorithm::Consensus => "a majority votes, once per term, and the term is the leader's fencing token",
        };
        format!(
            "{} processes elect a leader among themselves, with no store: {how}. Below are their real messages: from who speaks, \
             with an arrow to who hears. A double line leads. {}",
            ["Three", "Four", "Five"][self.members.clamp(3, 5) - 3],
            match self.algorithm {
                Algorithm::Consensus => "The number is the term.",
                Algorithm::Bully | Algorithm::Ring => "The number beside a name is its rank.",
            }
        )
    }

    pub(super) fn forming(&self) -> String {
        match self.algorithm {
            Algorithm::Bully => format!(
                "The group forms. Each asks all higher ranks whether they live (election). An answer (alive) hands the matter to them; \
                 silence for {} makes one the leader, and it says so (coordinator).",
                show(ANSWER_TIMEOUT)
            ),
            Algorithm::Ring => format!(
                "The group forms. A list goes round (election, with those on it), and each adds itself. Back at its start, the highest on it \
                 leads, and that goes round, too (coordinator). A neighbour that does not confirm it (passed, which is not drawn) within {} is \
                 skipped.",
                show(ANSWER_TIMEOUT)
            ),
            Algorithm::Consensus => "The group forms. Whoever hears no leader asks whether it would be elected (pre-vote), which changes nothing. \
                 If a majority would, it asks for their votes in the next term (vote); each has one, on disk before it answers. \
                 It leads once a majority has confirmed a heartbeat (ack): that is its lease."
                .to_owned(),
        }
    }

    pub(super) fn killing(&self, leader: &str) -> String {
        let silence = match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => {
                format!("after {} of silence the others elect another", show(TIMEOUT))
            }
            Algorithm::Consensus => format!(
                "after {} to {} of silence, drawn by lot, another one asks; by then the lease of {leader} is over",
                show(TIMEOUT),
                show(LONGEST_TIMEOUT)
            ),
        };
        format!("The leader, {leader}, is killed (kill -9). Nobody is told: {silence}.")
    }

    pub(super) fn coming_back(&self, dead: &str) -> String {
        match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => {
                format!("{dead} is started again. It has the highest rank, so it takes over from a healthy leader.")
            }
            Algorithm::Consensus => format!(
                "{dead} is started again. It knows its term and its vote from its disk, and abstains for {}, since it may have made a promise \
                 that it forgot. The leader leads on.",
                show(LONGEST_TIMEOUT)
            ),
        }
    }

    pub(super) fn came_back(&self, dead: &str, leader: &str, new: bool) -> String {
        if !new {
            return format!("{leader} led on, and {dead} follows and votes again.");
        }
        match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => format!("{leader} leads again: ranks cost a change of leader."),
            Algorithm::Consensus => format!("{leader} was elected meanwhile, and {dead} votes again."),
        }
    }

    pub(super) fn cutting(&self, island: &str, mainland: &str) -> String {
        let what = match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => {
                "Each side takes the other for dead, so each has a leader: nothing here can prevent that"
            }
            Algorithm::Consensus => {
                "The leader is on the smaller side: no majority renews its lease, so it steps down in time. Its last word (timeout-now) makes \
                 no leader there either. The majority elects another, but not before"
            }
        };
        format!("The network is cut: {island} on one side, {mainland} on the other. {what}.")
    }

    pub(super) fn healing(&self) -> String {
        match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => "The network is whole again. Of two leaders the higher rank stays.".to_owned(),
            Algorithm::Consensus => "The network is whole again. Those who were cut off found no majority that would elect them (pre-vote), so they did not \
                 drive up the term, and now they follow the leader of the others."
                .to_owned(),
        }
    }

    pub(super) fn healed(&self, leader: &str, term: Option<u64>, led_on: bool, gave_way: Option<Duration>) -> String {
        let term = term.map(|term| format!(" in term {term}")).unwrap_or_default();
        let how = if led_on { "led on" } else { "was elected" };
        let why = match (self.algorithm, led_on) {
            (Algorithm::Consensus, true) => "its term is the highest, and a majority had confirmed it".to_owned(),
            (Algorithm::Consensus, false) => "a majority voted for it in a higher term".to_owned(),
            (Algorithm::Bully | Algorithm::Ring, _) => match gave_way {
                Some(time) => {
                    format!("its rank is the highest, and the other gave way {} after the healing", show(time))
                }
                None => "its rank is the highest".to_owned(),
            },
        };
        format!("One leader again: {leader} {how}{term}, since {why}.")
    }

    pub(super) fn closing(&self, two: Duration) -> String {
        match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => format!(
                "All as announced, also that two led at once: for {} in all. A {} election has no token that could tell them apart: use \
                 it where that does no harm, and `incumbent demo --algorithm consensus` otherwise.",
                show(two),
                self.algorithm
            ),
            Algorithm::Consensus => {
                "All as promised: nobody led without a majority, and at no moment did two hold a lease. Where there is \
                 a store, use it: `incumbent explain` says why."
                    .to_owned()
            }
        }
    }
}

/// `ada, bob and cyd`.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.collect();
    match names.as_slice() {
        [] => "nobody".to_owned(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// Lines of at most so many characters. A number stays with its unit.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let unit = ["µs", "us", "ms", "s", "min"].contains(&word.trim_end_matches(['.', ',', ':', ';', ')']));
        match words.last_mut() {
            Some(number) if unit => *number = format!("{number} {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    let mut lines = vec![String::new()];
    for word in &words {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("", 7), [""]);
        assert_eq!(wrap("after 40 ms, or so", 8), ["after", "40 ms,", "or so"]);
    }

    #[test]
    fn names_are_listed_as_people_do() {
        assert_eq!(list(["ada"].into_iter()), "ada");
        assert_eq!(list(["ada", "bob", "cyd"].into_iter()), "ada, bob and cyd");
    }
}
