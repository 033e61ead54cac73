//! Watching who leads from outside, one question at a time.

use std::fmt;
use std::time::Duration;

use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::{Observer, ObserverEvent, ObserverOutput, Report};
use incumbent_core::{Nonce, Rng, Timestamp};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::asker::{Asker, view};
use crate::config::Algorithm;
use crate::secret::random;
use crate::status::LeaderView;

/// How long one member is given to answer, at least: a first question has to connect.
const PATIENCE: Duration = Duration::from_secs(1);

/// What an observer sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Seen {
    /// This member leads, or proclaims another value.
    Leader(LeaderView),
    /// Nobody leads, says the one who was asked.
    Vacant,
    /// No member answers: what was seen last may be old.
    Unreachable,
}

/// Who leads, as it changes. In a consensus group it never goes back to an older term.
pub struct Observation {
    asker: Asker,
    watcher: Watcher,
    origin: Instant,
}

enum Watcher {
    Consensus(Observer),
    Rank(RankWatcher),
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").field("asker", &self.asker).finish_non_exhaustive()
    }
}

impl Observation {
    pub(crate) fn new(asker: Asker, every: Duration, algorithm: Algorithm) -> Observation {
        let members: Vec<MemberId> = asker.members().iter().map(|member| member.id).collect();
        let watcher = match algorithm {
            Algorithm::Consensus => {
                let seed = random().map_or(0, u64::from_le_bytes);
                Watcher::Consensus(Observer::new(Timestamp::ZERO, &members, every, Rng::from_number(seed)))
            }
            Algorithm::Bully | Algorithm::Ring => Watcher::Rank(RankWatcher::new(members, every)),
        };
        Observation { asker, watcher, origin: Instant::now() }
    }

    /// What is seen next. Safe to cancel.
    pub async fn next(&mut self) -> Seen {
        loop {
            let (member, nonce) = match self.watcher.poll() {
                Some(Watched::Seen(seen)) => return seen,
                Some(Watched::Ask(member, nonce)) => (member, nonce),
                None => {
                    let due = self.origin + self.watcher.due().since(Timestamp::ZERO);
                    sleep_until(due).await;
                    self.watcher.on_time(self.now());
                    continue;
                }
            };
            let until = Instant::now() + PATIENCE;
            if let Ok(Ok(report)) = timeout_at(until, self.asker.ask_as(member, nonce)).await {
                self.watcher.on_report(member, report);
            }
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }
}

enum Watched {
    Ask(MemberId, Nonce),
    Seen(Seen),
}

impl Watcher {
    fn poll(&mut self) -> Option<Watched> {
        match self {
            Watcher::Consensus(observer) => observer.poll_output().map(|output| match output {
                ObserverOutput::Ask(member, nonce) => Watched::Ask(member, nonce),
                ObserverOutput::Event(event) => Watched::Seen(match event {
                    ObserverEvent::Leader { leader, term, value } => {
                        Seen::Leader(LeaderView { member: leader, term: Some(term), value })
                    }
                    ObserverEvent::Vacant => Seen::Vacant,
                    ObserverEvent::Unreachable => Seen::Unreachable,
                }),
            }),
            Watcher::Rank(watcher) => watcher.poll(),
        }
    }

    fn due(&self) -> Timestamp {
        match self {
            Watcher::Consensus(observer) => observer.poll_timeout().unwrap_or(Timestamp::MAX),
            Watcher::Rank(watcher) => watcher.ask_at,
        }
    }

    fn on_time(&mut self, now: Timestamp) {
        match self {
            Watcher::Consensus(observer) => observer.on_time(now),
            Watcher::Rank(watcher) => watcher.on_time(now),
        }
    }

    fn on_report(&mut self, from: MemberId, report: Report) {
        match self {
            Watcher::Consensus(observer) => observer.on_report(from, report),
            Watcher::Rank(watcher) => watcher.on_report(from, &report),
        }
    }
}

/// Watches a bully or ring election: there is no term to say what is newer, so it tells what the one who was asked last
/// knows, and a member that knows of no leader only if the whole round does not either.
struct RankWatcher {
    members: Vec<MemberId>,
    every: Duration,
    next: usize,
    asked: Option<(MemberId, Nonce)>,
    ask_at: Timestamp,
    nonce: u64,
    silent: usize,
    vacant: usize,
    told: Option<Seen>,
    news: Option<Seen>,
    ask: bool,
}

impl RankWatcher {
    fn new(members: Vec<MemberId>, every: Duration) -> RankWatcher {
        RankWatcher {
            members,
            every: every.max(Duration::from_millis(1)),
            next: 0,
            asked: None,
            ask_at: Timestamp::ZERO,
            nonce: random().map_or(0, u64::from_le_bytes),
            silent: 0,
            vacant: 0,
            told: None,
            news: None,
            ask: false,
        }
    }

    fn poll(&mut self) -> Option<Watched> {
        if let Some(news) = self.news.take() {
            self.told = Some(news.clone());
            return Some(Watched::Seen(news));
        }
        let (member, nonce) = self.asked.filter(|_| std::mem::take(&mut self.ask))?;
        Some(Watched::Ask(member, nonce))
    }

    fn on_time(&mut self, now: Timestamp) {
        if now < self.ask_at {
            return;
        }
        if self.asked.is_some() {
            self.silent += 1;
            if self.silent >= self.members.len() {
                self.tell(Seen::Unreachable);
            }
        }
        self.nonce = self.nonce.wrapping_add(1);
        self.asked = Some((self.members[self.next], Nonce(self.nonce)));
        self.next = (self.next + 1) % self.members.len();
        (self.ask_at, self.ask) = (now + self.every, true);
    }

    fn on_report(&mut self, from: MemberId, report: &Report) {
        if self.asked != Some((from, report.nonce)) {
            return;
        }
        (self.asked, self.silent) = (None, 0);
        match view(report) {
            Some(leader) => {
                self.vacant = 0;
                self.tell(Seen::Leader(leader));
            }
            None => {
                self.vacant += 1;
                if self.vacant >= self.members.len() {
                    self.tell(Seen::Vacant);
                }
            }
        }
    }

    fn tell(&mut self, seen: Seen) {
        if self.told.as_ref() != Some(&seen) {
            self.news = Some(seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Answers the next question with this leader, or not at all, and says what is told.
    fn round(watcher: &mut RankWatcher, at: u32, answer: Option<Option<u16>>) -> Option<Seen> {
        watcher.on_time(Timestamp::ZERO + SECOND * at);
        let mut seen = None;
        while let Some(watched) = watcher.poll() {
            match (watched, answer) {
                (Watched::Ask(member, nonce), Some(leader)) => {
                    let leader = leader.map(MemberId);
                    watcher.on_report(member, &Report { nonce, term: 0, leader, version: 1, value: Bytes::new() });
                }
                (Watched::Ask(..), None) => {}
                (Watched::Seen(news), _) => seen = Some(news),
            }
        }
        seen
    }

    #[test]
    fn changes_are_told_once_and_vacancy_only_when_all_say_so() {
        let mut watcher = RankWatcher::new(vec![MemberId(1), MemberId(2)], SECOND);
        let leader =
            |member| Some(Seen::Leader(LeaderView { member: MemberId(member), term: None, value: Bytes::new() }));
        assert_eq!(round(&mut watcher, 0, Some(Some(2))), leader(2));
        assert_eq!(round(&mut watcher, 1, Some(Some(2))), None);
        assert_eq!(round(&mut watcher, 2, Some(None)), None, "one alone may be behind");
        assert_eq!(round(&mut watcher, 3, Some(None)), Some(Seen::Vacant));
        assert_eq!(round(&mut watcher, 4, Some(Some(1))), leader(1));
        assert_eq!(round(&mut watcher, 5, None), None);
        assert_eq!(round(&mut watcher, 6, None), None);
        assert_eq!(round(&mut watcher, 7, None), Some(Seen::Unreachable));
        assert_eq!(round(&mut watcher, 8, Some(Some(1))), leader(1), "told again after silence");
    }
}
