//! `demo --algorithm`: an election among real processes with no store, message by message. Every
//! claim that is printed was checked against what the members reported.

mod group;
pub(crate) mod member;
mod network;
mod timeline;

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use incumbent_peers::Algorithm;

use crate::duration::show;
use crate::failure::Failure;
use crate::output::{Paint, out};
use group::{Group, name};
use member::{LONGEST_TIMEOUT, TIMEOUT};
use timeline::{Message, State, Term, Timeline, now};

/// How long anything may take before the demonstration has failed. Nothing takes so long unless it
/// is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take in all.
pub(super) const WHOLE: Duration = Duration::from_secs(600);
/// For how long messages are still taken in after an act has come to its end.
const CALM: Duration = Duration::from_millis(450);
/// Equal messages of one member within this time are one line.
const BROADCAST: Duration = Duration::from_millis(20);
/// How often an act is tried, if the leader changes by itself just then, as it may on a busy
/// machine.
const ATTEMPTS: usize = 5;
const CHANGED: &str = "The leader changed by itself just before that: this machine is busy. Once more.";
const UNSTEADY: &str = "the leader changed by itself again and again: this machine is too busy to show anything";
/// How long people get to read a heading and a line.
const READING: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_millis(60));
/// Messages that keep a leader in office, found the group, or only confirm another one: counted,
/// not shown.
const UPKEEP: [&str; 6] = ["heartbeat", "ack", "beat", "heard", "passed", "founding"];
/// Messages that only keep a connection: neither.
const KEEP_ALIVE: [&str; 2] = ["ping", "pong"];

/// Runs all acts with so many members in this folder.
pub(super) async fn run(algorithm: Algorithm, members: usize, folder: &Path) -> Result<(), Failure> {
    let timeline = Timeline::default();
    let group = Group::new(algorithm, members, folder, timeline.clone()).await?;
    Story { algorithm, group, timeline, paint: Paint::for_stream(&io::stdout()) }.run().await
}

struct Story {
    algorithm: Algorithm,
    group: Group,
    timeline: Timeline,
    paint: Paint,
}

impl Story {
    async fn run(mut self) -> Result<(), Failure> {
        self.form().await?;
        let dead = self.kill().await?;
        self.bring_back(dead).await?;
        let leaders = self.cut().await?;
        self.heal(leaders).await?;
        self.group.leave(PATIENCE).await?;
        self.close()
    }

    /// The group starts and elects.
    async fn form(&mut self) -> Result<(), Failure> {
        let how = match self.algorithm {
            Algorithm::Bully => {
                "The highest rank leads. A member asks all higher ranks whether they live\n\
                 (election); if none answers (alive), it leads, and says so (coordinator)."
            }
            Algorithm::Ring => {
                "The highest rank leads. A list goes round (election), each member adds itself,\n\
                 and the highest on the list leads: that goes round, too (coordinator)."
            }
            Algorithm::Consensus => {
                "A majority votes, once per term. A member first asks whether it would be\n\
                 elected (pre-vote), then for votes (vote), each on disk before it is given."
            }
        };
        let count = self.group.members.len();
        self.heading(1, &format!("{count} processes elect a leader among themselves, with no store.\n{how}")).await?;
        let began = now();
        for member in self.group.members.clone() {
            self.group.start(member, PATIENCE).await?;
        }
        let leader = self.until_settled(&self.group.members, "a first leader that all follow").await?;
        self.print(began, |_| false).await?;
        self.done(&format!("{} leads{}, and all others follow it.", name(leader.member), in_term(&leader)))
    }

    /// The leader is killed; the others elect another. Answers with who is dead.
    async fn kill(&mut self) -> Result<u16, Failure> {
        for _ in 0..ATTEMPTS {
            let old = self.until_settled(&self.group.members, "a leader that all follow").await?.member;
            let silence = match self.algorithm {
                Algorithm::Bully | Algorithm::Ring => format!("after {} of silence", show(TIMEOUT)),
                Algorithm::Consensus => {
                    format!("after {} to {} of silence, drawn by lot", show(TIMEOUT), show(LONGEST_TIMEOUT))
                }
            };
            let text = format!("The leader, {}, is killed (kill -9). The others notice\n{silence}.", name(old));
            self.heading(2, &text).await?;
            let at = self.group.kill(old).await?;
            let rest: Vec<u16> = self.group.members.iter().copied().filter(|member| *member != old).collect();
            let new = self.until_settled(&rest, "a leader after the death of the last one").await?;
            let Some(term) = self.term_at(at, old).filter(|_| new.from >= at) else {
                out(CHANGED)?;
                self.group.start(old, PATIENCE).await?;
                continue;
            };
            self.print(at, |message| message.to == old).await?;
            self.done(&self.after_kill(at, &term, &new)?)?;
            return Ok(old);
        }
        Err(Failure::error(UNSTEADY))
    }

    fn after_kill(&self, kill: u64, old: &Term, new: &Term) -> Result<String, Failure> {
        let text = format!("{} leads{}, {} after the kill.", name(new.member), in_term(new), after(new.from, kill));
        if !self.algorithm.is_fenced() {
            return Ok(text);
        }
        if new.from < old.until() {
            return Err(Failure::error(format!("{text} But the lease of {} was not over", name(old.member))));
        }
        let over = after(new.from, old.until());
        Ok(format!("{text}\n  The lease of {} had been over for {over}.", name(old.member)))
    }

    /// The member that was killed comes back.
    async fn bring_back(&mut self, dead: u16) -> Result<(), Failure> {
        let expected = match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => "It has the highest rank, so it takes over\nfrom a healthy leader.",
            Algorithm::Consensus => "It knows its term and its vote from its disk,\nand the leader stays in office.",
        };
        self.heading(3, &format!("{} is started again. {expected}", name(dead))).await?;
        let began = now();
        self.group.start(dead, PATIENCE).await?;
        let leader = self.until_settled(&self.group.members, "one leader that all follow").await?;
        let votes = |state: &State| (!state.abstains(dead)).then_some(());
        self.timeline.until(PATIENCE, "the member that came back votes again", votes).await?;
        self.print(began, |_| false).await?;
        let (leads, dead) = (name(leader.member), name(dead));
        self.done(&match (leader.from >= began, self.algorithm) {
            (false, _) => format!("{leads} stayed in office, and {dead} follows and votes again."),
            (true, Algorithm::Consensus) => format!("{leads} was elected meanwhile, and {dead} votes again."),
            (true, _) => format!("{leads} leads again: ranks cost a change of leader."),
        })
    }

    /// The leader, and as many others as make no majority, are cut off. Answers with it, and with
    /// the leader of the others.
    async fn cut(&mut self) -> Result<[u16; 2], Failure> {
        for _ in 0..ATTEMPTS {
            let leader = self.until_settled(&self.group.members, "a leader that all follow").await?.member;
            let (mainland, island) = self.divide(leader);
            let expected = match self.algorithm {
                Algorithm::Bully | Algorithm::Ring => {
                    "Each side takes the other for dead, so each has a leader: nothing prevents that."
                }
                Algorithm::Consensus => {
                    "The leader is on the smaller side: no majority renews its lease, so it steps\n\
                     down. The majority elects another, but not before."
                }
            };
            self.heading(4, &format!("The network is cut: {} | {}.\n{expected}", list(&mainland), list(&island)))
                .await?;
            self.group.network.cut_off(&island);
            let at = now();
            let elected = self.until_settled(&mainland, "a leader on the side of the majority").await?;
            if self.term_at(at, leader).is_none() || elected.from < at {
                out(CHANGED)?;
                self.group.network.heal();
                continue;
            }
            let old = self.until_the_old_leader_is_known(at, leader).await?;
            let crosses = |message: &Message| island.contains(&message.from) != island.contains(&message.to);
            self.print(at, crosses).await?;
            self.done(&self.after_cut(at, &old, &elected)?)?;
            return Ok([leader, elected.member]);
        }
        Err(Failure::error(UNSTEADY))
    }

    /// A majority without the leader, and those who are left.
    fn divide(&self, leader: u16) -> (Vec<u16>, Vec<u16>) {
        let all = &self.group.members;
        let others = all.iter().copied().filter(|member| *member != leader);
        let mainland: Vec<u16> = others.take(all.len() / 2 + 1).collect();
        let island = all.iter().copied().filter(|member| !mainland.contains(member)).collect();
        (mainland, island)
    }

    /// The term of the leader that was cut off: with consensus it ends, otherwise it goes on.
    async fn until_the_old_leader_is_known(&self, cut: u64, old: u16) -> Result<Term, Failure> {
        let fenced = self.algorithm.is_fenced();
        let known = move |state: &State| {
            let term = state.term_at(cut, old)?;
            (!fenced || term.ended.is_some()).then(|| term.clone())
        };
        self.timeline.until(PATIENCE, "the leader that was cut off steps down", known).await
    }

    fn after_cut(&self, cut: u64, old: &Term, new: &Term) -> Result<String, Failure> {
        let (loser, winner) = (name(old.member), name(new.member));
        let elected = after(new.from, cut);
        if self.algorithm.is_fenced() {
            if old.until() > new.from {
                return Err(Failure::error(format!("{loser} was still in office when {winner} was elected")));
            }
            let left = after(old.until(), cut);
            let term = new.number.unwrap_or(0);
            return Ok(format!(
                "{loser} stepped down {left} after the cut;\n  {winner} was elected in term {term} by a majority, after \
                 {elected}."
            ));
        }
        if self.timeline.state().two_at_once().is_zero() || old.ended.is_some() {
            return Err(Failure::error("two leaders at once were announced, and not seen"));
        }
        Ok(format!("{loser} leads on its side, and {winner} on the other since {elected}: two leaders at once."))
    }

    /// The network is whole again: one leads.
    async fn heal(&mut self, leaders: [u16; 2]) -> Result<(), Failure> {
        let expected = match self.algorithm {
            Algorithm::Bully | Algorithm::Ring => "Of two leaders the higher rank stays.",
            Algorithm::Consensus => "Those who were cut off follow the leader\nof the majority.",
        };
        self.heading(5, &format!("The network is whole again. {expected}")).await?;
        self.group.network.heal();
        let at = now();
        let leader = self.until_settled(&self.group.members, "one leader that all follow").await?;
        self.print(at, |_| false).await?;
        let how = if leader.from < at { "still leads" } else { "was elected" };
        let why = match self.algorithm {
            Algorithm::Consensus => format!("{how}{}: its term is the highest", in_term(&leader)),
            Algorithm::Bully | Algorithm::Ring => {
                let other = if leader.member == leaders[0] { leaders[1] } else { leaders[0] };
                format!("{how}: its rank is the highest, and {} gave way", name(other))
            }
        };
        self.done(&format!("One leader again: {} {why}.", name(leader.member)))
    }

    /// Checks what must have been true all the time.
    fn close(&self) -> Result<(), Failure> {
        out("")?;
        let state = self.timeline.state();
        if self.algorithm.is_fenced() {
            let terms = state.one_leader_per_term().map_err(Failure::error)?;
            let terms: Vec<_> = terms.iter().map(u64::to_string).collect();
            self.done(&format!("Each term had one leader, and was higher than the last: {}.", terms.join(" < ")))?;
            out("All as promised: at no moment did two hold a lease; the term is the token.")?;
            return out("Where there is a store, use it: `incumbent explain` says why.");
        }
        let two = show(state.two_at_once());
        out(&format!("As expected, two led at once, for {two}. No token tells them apart:"))?;
        out("use it where that does no harm. Otherwise:")?;
        out(&self.paint.bold("incumbent demo --algorithm consensus"))
    }

    /// The leader that all of these follow. Where rank decides, it is the highest.
    async fn until_settled(&self, members: &[u16], what: &str) -> Result<Term, Failure> {
        let fenced = self.algorithm.is_fenced();
        let highest = members.iter().max().copied();
        let settled =
            |state: &State| state.settled(members).filter(|leader| fenced || Some(leader.member) == highest).cloned();
        self.timeline.until(PATIENCE, what, settled).await
    }

    fn term_at(&self, at: u64, member: u16) -> Option<Term> {
        self.timeline.state().term_at(at, member).cloned()
    }

    /// Prints the messages of an act, and how many kept a leader in office meanwhile.
    async fn print(&self, began: u64, is_lost: impl Fn(&Message) -> bool) -> Result<(), Failure> {
        tokio::time::sleep(CALM).await;
        let mut messages = self.timeline.state().messages_since(began);
        messages.retain(|message| !KEEP_ALIVE.contains(&message.kind.as_str()));
        let (upkeep, shown): (Vec<_>, Vec<_>) =
            messages.into_iter().partition(|message| UPKEEP.contains(&message.kind.as_str()));
        for Line { at, from, to, text, lost } in lines(shown, is_lost) {
            let at = self.paint.dim(&format!("{:7.3} s", Duration::from_nanos(at - began).as_secs_f64()));
            let lost = if lost { self.paint.yellow("  (lost)") } else { String::new() };
            out(&format!("{at}  {} -> {:20} {text}{lost}", name(from), list(&to)))?;
            pause(READING.1).await;
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        upkeep.into_iter().for_each(|message| *counts.entry(message.kind).or_default() += 1);
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        out(&self.paint.dim(&format!("           and {}", counts.join(", "))))
    }

    async fn heading(&self, act: usize, text: &str) -> Result<(), Failure> {
        out("")?;
        for line in format!("{act}. {text}").lines() {
            out(&self.paint.bold(line))?;
        }
        pause(READING.0).await;
        Ok(())
    }

    /// Something that was announced has been seen.
    fn done(&self, text: &str) -> Result<(), Failure> {
        out(&format!("{} {text}", self.paint.green("✓")))
    }
}

/// A message, and all members to which the same was sent at about the same time.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    at: u64,
    from: u16,
    to: Vec<u16>,
    text: String,
    lost: bool,
}

fn lines(messages: Vec<Message>, is_lost: impl Fn(&Message) -> bool) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for message in messages {
        let lost = is_lost(&message);
        let Message { at, from, to, kind, about } = message;
        let text = if about.is_empty() { kind } else { format!("{kind} {about}") };
        let recent = |line: &&mut Line| Duration::from_nanos(at - line.at) <= BROADCAST;
        let same =
            |line: &&mut Line| line.from == from && line.text == text && line.lost == lost && !line.to.contains(&to);
        match lines.iter_mut().rev().take_while(recent).find(same) {
            Some(line) => line.to.push(to),
            None => lines.push(Line { at, from, to: vec![to], text, lost }),
        }
    }
    lines
}

/// `ada, bob, cyd`.
fn list(members: &[u16]) -> String {
    members.iter().map(|member| name(*member)).collect::<Vec<_>>().join(", ")
}

fn in_term(term: &Term) -> String {
    term.number.map(|number| format!(" in term {number}")).unwrap_or_default()
}

fn after(moment: u64, began: u64) -> String {
    show(Duration::from_nanos(moment.saturating_sub(began)))
}

/// On a terminal, people get the time to read.
async fn pause(time: Duration) {
    if io::stdout().is_terminal() {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_at_about_the_same_time_are_one_line_unless_only_some_are_lost() {
        let sent = |at_ms: u64, from, to, kind: &str| Message {
            at: at_ms * 1_000_000,
            from,
            to,
            kind: kind.to_owned(),
            about: "1".to_owned(),
        };
        let messages = vec![
            sent(1, 1, 2, "vote"),
            sent(2, 2, 1, "voted"),
            sent(3, 1, 3, "vote"),
            sent(4, 1, 4, "vote"),
            sent(500, 1, 2, "vote"),
        ];
        let lines = lines(messages, |message| message.to == 4);
        let told: Vec<_> = lines.iter().map(|line| (line.from, &line.to[..], line.text.as_str(), line.lost)).collect();
        assert_eq!(
            told,
            [
                (1, &[2, 3][..], "vote 1", false),
                (2, &[1], "voted 1", false),
                (1, &[4], "vote 1", true),
                (1, &[2], "vote 1", false)
            ]
        );
    }
}
