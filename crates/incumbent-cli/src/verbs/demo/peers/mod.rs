//! `demo --algorithm`: an election among real processes with no store, drawn as a sequence diagram of real messages. Whatever
//! is claimed was seen.

mod chronicle;
mod diagram;
mod links;
pub(crate) mod member;
mod report;
mod rows;
mod tally;
mod troupe;
mod words;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use incumbent_peers::Algorithm;

use crate::failure::Failure;
use crate::say::{Paint, out};
use crate::span::show;
use chronicle::{Chronicle, Deed, Entry, Office, State, What, now};
use diagram::{Diagram, Figure, Page};
use rows::rows;
use tally::Act;
use troupe::{Troupe, name};
use words::Words;

/// How long anything may take before the demonstration has failed. Nothing takes so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take in all.
pub(super) const WHOLE: Duration = Duration::from_secs(600);
/// How long things are watched after an act has come to its end.
const CALM: Duration = Duration::from_millis(450);
/// How long a message may be on its way at the end of an act.
const ON_THE_WAY: Duration = Duration::from_secs(2);
/// How often an act is tried, if the leader changes by itself just then, as it may on a busy machine.
const ATTEMPTS: usize = 5;
const CHANGED: &str = "The leader changed by itself just before that: this machine is busy. Once more.";
const UNSTEADY: &str = "the leader changed by itself again and again: this machine is too busy to show anything";
/// How long people get to read a heading, a row and a drawing.
const READING: (Duration, Duration, Duration) =
    (Duration::from_millis(1500), Duration::from_millis(60), Duration::from_millis(1500));

/// Plays all acts with so many members in this folder.
pub(super) async fn play(algorithm: Algorithm, members: usize, folder: &Path) -> Result<(), Failure> {
    let chronicle = Chronicle::default();
    let troupe = Troupe::new(algorithm, members, folder, chronicle.clone()).await?;
    let words = Words { algorithm, members };
    let (page, paint) = (Page::for_stdout(), Paint::for_stream(&io::stdout()));
    Story { algorithm, words, troupe, chronicle, page, paint, acts: Vec::new() }.play().await
}

struct Story {
    algorithm: Algorithm,
    words: Words,
    troupe: Troupe,
    chronicle: Chronicle,
    page: Page,
    paint: Paint,
    acts: Vec<Act>,
}

/// An act that is being played.
struct Scene {
    title: &'static str,
    began: u64,
    /// From left to right; the last `island` are cut off, or were.
    order: Vec<u16>,
    island: usize,
    /// Whether they are cut off at its beginning.
    cut: bool,
    /// When they were cut off no longer.
    healed: Option<u64>,
    /// Who led at its beginning.
    led: Vec<u16>,
    lived: Vec<u16>,
}

impl Story {
    async fn play(mut self) -> Result<(), Failure> {
        self.say(&self.words.opening())?;
        self.form().await?;
        let dead = self.kill().await?;
        self.bring_back(dead).await?;
        let (island, leaders) = self.cut().await?;
        self.heal(&island, &leaders).await?;
        self.troupe.leave(PATIENCE).await?;
        self.check_all()?;
        self.summary()
    }

    /// The group starts and elects.
    async fn form(&mut self) -> Result<(), Failure> {
        self.heading(1, &self.words.forming()).await?;
        let scene = self.scene("first");
        for member in self.troupe.members().to_vec() {
            self.troupe.start(member, Deed::Started(member), PATIENCE).await?;
        }
        let all = self.troupe.members().to_vec();
        let leader = self.until_settled(&all, "a first leader that all follow").await?;
        self.draw(&scene, &leader).await?;
        self.done(&format!("{} leads{}, and all others follow it.", name(leader.member), in_term(&leader)))
    }

    /// The leader is killed; the others elect another. Answers with who is dead.
    async fn kill(&mut self) -> Result<u16, Failure> {
        let all = self.troupe.members().to_vec();
        for _ in 0..ATTEMPTS {
            let old = self.until_settled(&all, "a leader that all follow").await?;
            self.heading(2, &self.words.killing(name(old.member))).await?;
            let scene = self.scene("killed");
            let at = self.troupe.kill(old.member).await?;
            let rest: Vec<u16> = all.iter().copied().filter(|member| *member != old.member).collect();
            let new = self.until_settled(&rest, "a leader after the death of the last one").await?;
            let Some(office) = self.office_at(at, old.member).filter(|_| new.from >= at) else {
                self.say(CHANGED)?;
                self.troupe.start(old.member, Deed::Back(old.member), PATIENCE).await?;
                continue;
            };
            self.draw(&scene, &new).await?;
            self.done(&self.after_kill(at, &office, &new)?)?;
            return Ok(old.member);
        }
        Err(Failure::error(UNSTEADY))
    }

    fn after_kill(&self, kill: u64, old: &Office, new: &Office) -> Result<String, Failure> {
        let took = Duration::from_nanos(new.from.saturating_sub(kill));
        let text = format!("{} leads{}, {} after the kill.", name(new.member), in_term(new), show(took));
        if !self.algorithm.is_fenced() {
            return Ok(text);
        }
        let (dead, lease) = (name(old.member), old.until());
        match new.from.checked_sub(lease).map(Duration::from_nanos) {
            Some(spare) => Ok(format!("{text} The lease of {dead} had been over for {}.", show(spare))),
            None => Err(Failure::error(format!("{text} But the lease of {dead} was not over"))),
        }
    }

    /// The one that was killed comes back.
    async fn bring_back(&mut self, dead: u16) -> Result<(), Failure> {
        self.heading(3, &self.words.coming_back(name(dead))).await?;
        let scene = self.scene("back");
        self.troupe.start(dead, Deed::Back(dead), PATIENCE).await?;
        let all = self.troupe.members().to_vec();
        let leader = self.until_settled(&all, "one leader that all follow, with the one that came back").await?;
        let fit = |state: &State| (!state.abstains(dead)).then_some(());
        self.chronicle.until(PATIENCE, "the one that came back votes again", fit).await?;
        self.draw(&scene, &leader).await?;
        self.done(&self.words.came_back(name(dead), name(leader.member), leader.from >= scene.began))
    }

    /// The leader and as many others as do not make a majority are cut off. Answers with them, and with who led on each side.
    async fn cut(&mut self) -> Result<(Vec<u16>, (u16, Office)), Failure> {
        let all = self.troupe.members().to_vec();
        for _ in 0..ATTEMPTS {
            let leader = self.until_settled(&all, "a leader that all follow").await?.member;
            let (mainland, island) = self.divide(leader);
            let names = |members: &[u16]| words::list(members.iter().map(|member| name(*member)));
            self.heading(4, &self.words.cutting(&names(&island), &names(&mainland))).await?;
            let mut scene = self.scene("cut");
            (scene.order, scene.island) = ([&mainland[..], &island].concat(), island.len());
            let at = self.troupe.cut_off(&island);
            let new = self.until_settled(&mainland, "a leader on the side of the majority").await?;
            if self.office_at(at, leader).is_none() || new.from < at {
                self.say(CHANGED)?;
                self.troupe.heal();
                continue;
            }
            let old = self.until_the_old_one_is_known(at, leader, &new).await?;
            self.draw(&scene, &new).await?;
            self.done(&self.after_cut(at, &old, &new)?)?;
            return Ok((island, (leader, new)));
        }
        Err(Failure::error(UNSTEADY))
    }

    /// The office that this member held at that time, by its own belief, as it is known by now.
    fn office_at(&self, at: u64, member: u16) -> Option<Office> {
        let state = self.chronicle.state();
        let held = |office: &&Office| {
            office.member == member && office.from <= at && office.ended.is_none_or(|ended| at <= ended)
        };
        state.offices().iter().rev().find(held).cloned()
    }

    /// A majority without the leader, and those who are left.
    fn divide(&self, leader: u16) -> (Vec<u16>, Vec<u16>) {
        let all = self.troupe.members();
        let majority = all.len() / 2 + 1;
        let others = all.iter().copied().filter(|member| *member != leader);
        let mainland: Vec<u16> = others.take(majority).collect();
        let island = all.iter().copied().filter(|member| !mainland.contains(member)).collect();
        (mainland, island)
    }

    /// What became of the leader that was cut off: with consensus its term is over, otherwise it leads on.
    async fn until_the_old_one_is_known(&mut self, cut: u64, old: u16, new: &Office) -> Result<Office, Failure> {
        let fenced = self.algorithm.is_fenced();
        let known = move |state: &State| {
            let office = state.offices().iter().rev().find(|office| office.member == old && office.from <= cut)?;
            (!fenced || office.ended.is_some()).then(|| office.clone())
        };
        let office = self.chronicle.until(PATIENCE, "the leader that was cut off steps down", known).await?;
        if fenced && office.until() > new.from {
            let (old, new) = (name(old), name(new.member));
            return Err(Failure::error(format!("{old} was still in office when {new} was elected")));
        }
        Ok(office)
    }

    fn after_cut(&self, cut: u64, old: &Office, new: &Office) -> Result<String, Failure> {
        let after = |at: u64| show(Duration::from_nanos(at.saturating_sub(cut)));
        let (loser, winner) = (name(old.member), name(new.member));
        if self.algorithm.is_fenced() {
            let out = match old.ended.and_then(|ended| old.deadline.checked_sub(ended)).map(Duration::from_nanos) {
                Some(spare) => {
                    format!("stepped down {} after the cut, {} before its deadline", after(old.until()), show(spare))
                }
                // It noticed late, and whoever looked at the deadline did not.
                None => format!("was out of office {} after the cut, at its deadline", after(old.until())),
            };
            let later = show(Duration::from_nanos(new.from - old.until()));
            let term = new.term.unwrap_or(0);
            return Ok(format!("{loser} {out}. {winner} was elected by a majority in term {term}, {later} later."));
        }
        let state = self.chronicle.state();
        let both = state.two_at_once((cut, now()));
        if both.is_zero() || state.in_office(now()).count() < 2 {
            return Err(Failure::error("two leaders at once were announced, and not seen"));
        }
        Ok(format!(
            "{loser} leads on its side, and {winner} on the other since {} after the cut: two leaders at once.",
            after(new.from)
        ))
    }

    /// The network is whole again: one leads.
    async fn heal(&mut self, island: &[u16], (old, new): &(u16, Office)) -> Result<(), Failure> {
        self.heading(5, &self.words.healing()).await?;
        let mut scene = self.scene("healed");
        let all = self.troupe.members();
        let mainland = all.iter().copied().filter(|member| !island.contains(member));
        (scene.order, scene.island, scene.cut) = (mainland.chain(island.iter().copied()).collect(), island.len(), true);
        let all = all.to_vec();
        let at = self.troupe.heal();
        scene.healed = Some(at);
        let leader = self.until_settled(&all, "one leader that all follow, after the network was healed").await?;
        self.draw(&scene, &leader).await?;
        let loser = if leader.member == *old { new.member } else { *old };
        let loser = self.chronicle.state().offices().iter().rev().find(|office| office.member == loser).cloned();
        let gave_way = loser.and_then(|office| Some(Duration::from_nanos(office.ended?.checked_sub(at)?)));
        let led_on = leader.from < at;
        self.done(&self.words.healed(name(leader.member), leader.term, led_on, gave_way))
    }

    /// What must have been true all the time.
    fn check_all(&self) -> Result<(), Failure> {
        if !self.algorithm.is_fenced() {
            return Ok(());
        }
        let terms = self.chronicle.state().one_leader_per_term().map_err(Failure::error)?;
        let terms: Vec<_> = terms.iter().map(u64::to_string).collect();
        self.done(&format!("One leader for each term, and every term higher than the last: {}.", terms.join(" < ")))
    }

    fn summary(&self) -> Result<(), Failure> {
        out("")?;
        for (place, line) in tally::table(self.algorithm, &self.acts, self.page.width).iter().enumerate() {
            let line = self.page.spell(line);
            out(&if place == 0 { self.paint.bold(&line) } else { line })?;
        }
        out("")?;
        let two = self.chronicle.state().two_at_once((0, u64::MAX));
        self.say(&self.words.closing(two))
    }

    /// The one that all of these follow. Where rank decides, it is the highest.
    async fn until_settled(&self, members: &[u16], what: &str) -> Result<Office, Failure> {
        let fenced = self.algorithm.is_fenced();
        let highest = members.iter().max().copied();
        let settled =
            |state: &State| state.settled(members).filter(|leader| fenced || Some(leader.member) == highest).cloned();
        self.chronicle.until(PATIENCE, what, settled).await
    }

    fn scene(&self, title: &'static str) -> Scene {
        let (state, began) = (self.chronicle.state(), now());
        Scene {
            title,
            began,
            order: self.troupe.members().to_vec(),
            island: 0,
            cut: false,
            healed: None,
            led: state.in_office(began).map(|office| office.member).collect(),
            lived: self.troupe.members().iter().copied().filter(|member| state.lives(*member)).collect(),
        }
    }

    /// Watches a little longer, then draws the act and counts it.
    async fn draw(&mut self, scene: &Scene, leader: &Office) -> Result<(), Failure> {
        tokio::time::sleep(CALM).await;
        let span = (scene.began, now());
        let arrived = |state: &State| {
            let told = state.between(span);
            let awaited = |(entry, arrived): &(Entry, bool)| !arrived && scene.awaits(state, entry);
            (!told.iter().any(awaited)).then_some(())
        };
        // What has not arrived by then is drawn as lost: that is all that was seen of it.
        let _ = self.chronicle.until(ON_THE_WAY, "all messages", arrived).await;
        let (entries, offices, two) = {
            let state = self.chronicle.state();
            (state.between(span), state.offices().to_vec(), state.two_at_once(span))
        };
        let figures = scene.order.iter().map(|member| Figure {
            member: *member,
            title: self.words.title(*member),
            lives: scene.lived.contains(member),
            leads: scene.led.contains(member),
        });
        let mut diagram = Diagram::new(self.page, self.paint, scene.began, figures.collect(), scene.island);
        if scene.cut {
            diagram.begin_cut();
        }
        out("")?;
        out(&diagram.title())?;
        for row in rows(&entries, &offices) {
            out(&diagram.row(&row))?;
            pause(READING.1).await;
        }
        out("")?;
        let took = leader.from.checked_sub(scene.began).map(Duration::from_nanos);
        self.acts.push(Act { title: scene.title, sent: tally::count(&entries), took, two });
        Ok(())
    }

    async fn heading(&self, act: usize, text: &str) -> Result<(), Failure> {
        if act > 1 {
            pause(READING.2).await;
        }
        out("")?;
        for line in words::wrap(&format!("{act}. {text}"), self.page.width.min(100)) {
            out(&self.paint.bold(&line))?;
        }
        pause(READING.0).await;
        Ok(())
    }

    fn say(&self, text: &str) -> Result<(), Failure> {
        words::wrap(&self.page.spell(text), self.page.width.min(100)).iter().try_for_each(|line| out(line))
    }

    /// Something that was to be shown was seen.
    fn done(&self, text: &str) -> Result<(), Failure> {
        let mark = self.page.glyphs.done.to_string();
        let lines = words::wrap(&self.page.spell(text), self.page.width.min(100) - 2);
        for (place, line) in lines.iter().enumerate() {
            let mark = if place == 0 { self.paint.green(&mark) } else { " ".to_owned() };
            out(&format!("{mark} {line}"))?;
        }
        Ok(())
    }
}

impl Scene {
    /// Whether this is a message that should arrive: its receiver lives, and the network is whole between the two.
    fn awaits(&self, state: &State, entry: &Entry) -> bool {
        let What::Sent(frame) = &entry.what else { return false };
        let island = &self.order[self.order.len() - self.island..];
        let crosses = island.contains(&frame.from) != island.contains(&frame.to);
        let cut = crosses && self.healed.is_none_or(|healed| entry.at <= healed);
        state.lives(frame.to) && !cut
    }
}

fn in_term(office: &Office) -> String {
    office.term.map(|term| format!(" term {term}")).unwrap_or_default()
}

/// On a terminal, people get the time to read.
async fn pause(time: Duration) {
    if io::stdout().is_terminal() {
        tokio::time::sleep(time).await;
    }
}
