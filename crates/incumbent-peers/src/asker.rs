//! Someone who is not a member, and asks the members: who leads, what are you, would you resign?

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::consensus::Report;
use incumbent_core::peers::wire::{Body, Frame};
use incumbent_core::{Nonce, Token};
use incumbent_store::BootClock;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::config::{ConfigError, GroupConfig};
use crate::link::channel::{Channel, Heard, LinkError};
use crate::link::dial::Dialler;
use crate::link::handshake::Verdict;
use crate::members::{Member, Members};
use crate::observation::Observation;
use crate::packet::{MAX_ANSWER_BYTES, Packet};
use crate::secret::random;
use crate::status::{Answer, LeaderView, Query, Refused, Status};
use crate::trace::Meter;

/// How often an operator's wish follows the leader to another member before it gives up.
const ROUNDS: usize = 3;

/// Asks the members of a group. It connects when it has to, and keeps at most one connection to each. Cheap to clone.
#[derive(Clone)]
pub struct Asker(Arc<Inner>);

struct Inner {
    line: Dialler,
    /// Connections that are not in use.
    idle: BTreeMap<MemberId, Mutex<Option<Channel>>>,
    next_nonce: AtomicU64,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("group", &self.0.line.config).finish_non_exhaustive()
    }
}

impl Asker {
    /// Asks the members of this group.
    pub fn new(group: GroupConfig) -> Result<Asker, ConfigError> {
        group.check()?;
        let meter = Arc::new(Meter::new(Frame::OUTSIDER, Arc::new(BootClock), None));
        let idle = group.members.iter().map(|member| (member.id, Mutex::new(None))).collect();
        // Nonces need not be secret: answers are authenticated. They only must not meet those of a connection before.
        let first = random().map_or(0, u64::from_le_bytes);
        let line = Dialler::new(group, Frame::OUTSIDER, meter);
        Ok(Asker(Arc::new(Inner { line, idle, next_nonce: AtomicU64::new(first) })))
    }

    /// The members that are asked.
    pub fn members(&self) -> &Members {
        &self.0.line.config.members
    }

    /// One member's own view.
    pub async fn status(&self, member: MemberId) -> Result<Status, AskError> {
        match self.query(member, Query::Status).await? {
            Answer::Status(status) => Ok(*status),
            Answer::Refused(why) => Err(AskError::Refused(why)),
            Answer::Accepted => Err(AskError::Silent { member }),
        }
    }

    /// Every member's own view, asked at the same time.
    pub async fn survey(&self) -> Vec<(Member, Result<Status, AskError>)> {
        let ask = |member: Member| async move {
            let status = self.status(member.id).await;
            (member, status)
        };
        join_all(self.members().iter().cloned().map(ask)).await
    }

    /// Who leads.
    ///
    /// In a consensus group the newest term counts that a majority's answers give. In a bully or ring election it is what
    /// most members say; a partition has one answer on each side.
    pub async fn leader(&self) -> Result<Option<LeaderView>, AskError> {
        let (of, is_fenced) = (self.members().len(), self.0.line.config.algorithm.is_fenced());
        let ask = |member: MemberId| async move { self.report(member).await };
        let mut asked: FuturesUnordered<_> = self.members().iter().map(|member| ask(member.id)).collect();
        let (mut reports, mut last) = (Vec::new(), None);
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(report) => reports.push(report),
                Err(why) => last = Some(why),
            }
            // Whoever is cut off need not be waited for.
            let leader = if is_fenced { newest(&reports) } else { most_said(&reports, of) };
            if reports.len() > of / 2 && leader.is_some() {
                return Ok(leader);
            }
        }
        match reports.len() {
            0 => Err(last.unwrap_or(AskError::NoLeader)),
            answered if is_fenced && answered <= of / 2 => Err(AskError::NoMajority { answered, of }),
            _ if is_fenced => Ok(newest(&reports)),
            _ => Ok(most_said(&reports, 0)),
        }
    }

    /// Asks the leader to resign. Answers who was asked, once it has accepted.
    pub async fn resign(&self) -> Result<MemberId, AskError> {
        self.wish(Query::Resign).await
    }

    /// Asks the leader to hand the office to this member. Answers who was asked, once it has accepted: whether it happens
    /// is seen by looking who leads.
    pub async fn transfer(&self, heir: MemberId) -> Result<MemberId, AskError> {
        self.wish(Query::Transfer(heir)).await
    }

    /// Declares the group founded with the members that are up, a majority at least. Answers who
    /// was asked, once it has accepted: the others follow.
    ///
    /// The caller asserts that **no member of this group has ever voted** on a disk that still
    /// exists: not one that is down now, not one whose disk is elsewhere. Otherwise there are two
    /// groups of the same name, with two leaders.
    pub async fn found(&self) -> Result<MemberId, AskError> {
        let survey = self.survey().await;
        let answers: Vec<_> = survey.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
        match answers.iter().find(|status| status.forming) {
            Some(first) => self.accepted(first.member, Query::Found).await,
            None if !answers.is_empty() => Err(AskError::Refused(Refused::Founded)),
            None => Err(survey.into_iter().find_map(|(_, answer)| answer.err()).unwrap_or(AskError::NoLeader)),
        }
    }

    /// Has a member that lost its state come back although others do not answer, or have lost
    /// theirs, too. It learns the highest term from those who answer and have one, and begins a
    /// million terms later.
    ///
    /// The caller asserts that the process that had the lost state is dead, and that **since those
    /// who answer last heard of an election, fewer than a million were held without them**.
    /// Otherwise a token may be used twice.
    pub async fn readmit(&self, member: MemberId) -> Result<(), AskError> {
        self.accepted(member, Query::Readmit).await.map(|_| ())
    }

    async fn accepted(&self, member: MemberId, query: Query) -> Result<MemberId, AskError> {
        match self.query(member, query).await? {
            Answer::Accepted => Ok(member),
            Answer::Refused(why) => Err(AskError::Refused(why)),
            Answer::Status(_) => Err(AskError::Silent { member }),
        }
    }

    /// Watches who leads, asking one member after the other, one per interval.
    pub fn observe(&self, every: Duration) -> Observation {
        Observation::new(self.clone(), every, self.0.line.config.algorithm)
    }

    async fn wish(&self, wish: Query) -> Result<MemberId, AskError> {
        let mut refused = None;
        for _ in 0..ROUNDS {
            let Some(leader) = self.leader().await? else { break };
            match self.query(leader.member, wish.clone()).await? {
                Answer::Accepted => return Ok(leader.member),
                // It has changed meanwhile: look again.
                Answer::Refused(why @ Refused::NotInOffice) => refused = Some(why),
                Answer::Refused(why) => return Err(AskError::Refused(why)),
                Answer::Status(_) => return Err(AskError::Silent { member: leader.member }),
            }
        }
        Err(refused.map_or(AskError::NoLeader, AskError::Refused))
    }

    /// Who leads, as one member sees it.
    pub(crate) async fn report(&self, member: MemberId) -> Result<Report, AskError> {
        let nonce = self.nonce();
        self.ask_as(member, nonce).await
    }

    /// The same, with a nonce that somebody else has drawn.
    pub(crate) async fn ask_as(&self, member: MemberId, nonce: Nonce) -> Result<Report, AskError> {
        let frame = Frame { group: self.0.line.fingerprint, from: Frame::OUTSIDER, body: Body::Ask(nonce) };
        self.exchange(member, Packet::Peer(frame), Line::Kept, |packet| match packet {
            Packet::Peer(Frame { from, body: Body::Tell(report), .. }) if from == member && report.nonce == nonce => {
                Some(report)
            }
            _ => None,
        })
        .await
    }

    async fn query(&self, member: MemberId, query: Query) -> Result<Answer, AskError> {
        let nonce = self.nonce();
        // A wish is said once: said again because the first answer was lost, it would depose the next leader, too.
        let line = if query == Query::Status { Line::Kept } else { Line::New };
        self.exchange(member, Packet::Query(nonce, query), line, |packet| match packet {
            Packet::Answer(to, answer) if to == nonce => Some(answer),
            _ => None,
        })
        .await
    }

    fn nonce(&self) -> Nonce {
        Nonce(self.0.next_nonce.fetch_add(1, Ordering::Relaxed))
    }

    /// Says one thing and waits for its answer. Safe to cancel: a connection that was in use is given up.
    async fn exchange<T>(
        &self,
        member: MemberId,
        packet: Packet,
        line: Line,
        is_answer: impl Fn(Packet) -> Option<T>,
    ) -> Result<T, AskError> {
        let Some(idle) = self.0.idle.get(&member) else { return Err(AskError::NotAMember { member }) };
        let link = self.0.line.config.link;
        let until = Instant::now() + link.answer_timeout;
        let exchange = async {
            let mut slot = idle.lock().await;
            if let Some(kept) = slot.take().filter(|_| line == Line::Kept)
                && let Ok((channel, answer)) = self.speak(kept, member, &packet, &is_answer).await
            {
                *slot = Some(channel);
                return Ok(answer);
            }
            // The one that was kept, if any, had been closed by the other end.
            let channel = self.0.line.dial(member, MAX_ANSWER_BYTES).await?;
            let (channel, answer) = self.speak(channel, member, &packet, &is_answer).await?;
            *slot = Some(channel);
            Ok(answer)
        };
        match timeout_at(until, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(LinkError::Silent)) | Err(_) => Err(AskError::Silent { member }),
            Ok(Err(LinkError::Verdict(verdict))) if verdict != Verdict::Full => {
                Err(AskError::Denied { member, why: verdict.sentence() })
            }
            Ok(Err(why)) => Err(AskError::Unreachable { member, why: why.to_string() }),
        }
    }

    async fn speak<T>(
        &self,
        mut channel: Channel,
        member: MemberId,
        packet: &Packet,
        is_answer: &impl Fn(Packet) -> Option<T>,
    ) -> Result<(Channel, T), LinkError> {
        let (link, meter) = (self.0.line.config.link, &self.0.line.meter);
        let bytes = channel.writer.push(packet);
        meter.sent(member, packet, bytes);
        channel.writer.flush(link.write_timeout).await?;
        loop {
            // Bounded by the patience of the whole exchange. Answers to questions that were given up are passed over.
            if let Heard::Packet(packet, bytes) = channel.reader.hear(link.answer_timeout).await? {
                meter.received(member, &packet, bytes);
                if let Some(answer) = is_answer(packet) {
                    return Ok((channel, answer));
                }
            }
        }
    }
}

/// On which connection something is said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    /// The one that was kept; if the other end has closed it, it is said again on a new one.
    Kept,
    /// A new one, so that it is said once.
    New,
}

/// The leader of the newest term, unless all who know that term say that it has left.
fn newest(reports: &[Report]) -> Option<LeaderView> {
    let report = reports.iter().max_by_key(|report| (report.term, report.leader.is_some(), report.version))?;
    view(report)
}

/// The leader that most name, if more than half of `of` do; of equally many the highest.
fn most_said(reports: &[Report], of: usize) -> Option<LeaderView> {
    let mut said: BTreeMap<MemberId, (usize, &Report)> = BTreeMap::new();
    for report in reports {
        if let Some(leader) = report.leader {
            let (times, newest) = said.entry(leader).or_insert((0, report));
            *times += 1;
            if report.version > newest.version {
                *newest = report;
            }
        }
    }
    let (times, report) = said.into_values().max_by_key(|(times, report)| (*times, report.leader))?;
    if of > 0 && times <= of / 2 { None } else { view(report) }
}

pub(crate) fn view(report: &Report) -> Option<LeaderView> {
    let member = report.leader?;
    Some(LeaderView { member, term: Token::new(report.term), value: report.value.clone() })
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no such member.
    #[error("member {member} is not in the list of members")]
    NotAMember {
        /// Who was asked.
        member: MemberId,
    },
    /// A member cannot be reached.
    #[error("member {member} cannot be asked: {why}")]
    Unreachable {
        /// Who was asked.
        member: MemberId,
        /// Why.
        why: String,
    },
    /// A member refuses to talk to somebody like us: trying again does not help.
    #[error("member {member} refuses to talk: {why}")]
    Denied {
        /// Who was asked.
        member: MemberId,
        /// Why.
        why: &'static str,
    },
    /// A member did not answer in time.
    #[error("member {member} did not answer in time")]
    Silent {
        /// Who was asked.
        member: MemberId,
    },
    /// Fewer than a majority answered: what they know may be old.
    #[error("only {answered} of {of} members answered: it takes a majority to know who leads")]
    NoMajority {
        /// How many answered.
        answered: usize,
        /// How many there are.
        of: usize,
    },
    /// Nobody leads.
    #[error("nobody leads")]
    NoLeader,
    /// The one who was asked will not do it.
    #[error(transparent)]
    Refused(Refused),
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn report(term: u64, leader: Option<u16>) -> Report {
        Report { nonce: Nonce(0), term, leader: leader.map(MemberId), version: 1, value: Bytes::new() }
    }

    fn who(view: Option<LeaderView>) -> Option<u16> {
        view.map(|view| view.member.0)
    }

    #[test]
    fn the_newest_term_counts_and_a_majority_of_those_who_lag_does_not() {
        assert_eq!(who(newest(&[report(3, Some(1)), report(3, Some(1)), report(4, Some(2))])), Some(2));
        assert_eq!(who(newest(&[report(4, None), report(4, Some(2))])), Some(2));
        assert_eq!(who(newest(&[report(4, None), report(3, Some(1))])), None);
    }

    #[test]
    fn without_terms_it_is_what_most_say() {
        let reports = [report(0, Some(1)), report(0, Some(2)), report(0, Some(2))];
        assert_eq!(who(most_said(&reports, 3)), Some(2));
        assert_eq!(who(most_said(&reports, 5)), None, "two of five are not most");
        assert_eq!(who(most_said(&[report(0, Some(1)), report(0, Some(3))], 0)), Some(3));
    }
}
