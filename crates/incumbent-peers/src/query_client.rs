//! Someone who is not a member, and asks the members: who leads, what are you, would you resign?
//!
//! Any member can be asked. Who leads a consensus group is the newest term of a majority's answers.
//! A request goes once, to the leader; without an answer its outcome is unknown.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use incumbent_core::Nonce;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::wire::Frame;
use incumbent_store::{BootClock, random_words};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::config::{Algorithm, ConfigError, GroupConfig};
use crate::link::channel::{Channel, Heard, LinkError};
use crate::link::dial::Dialler;
use crate::link::handshake::Verdict;
use crate::members::{Member, Members};
use crate::packet::{MAX_ANSWER_BYTES, Packet};
use crate::status::{Answer, LeaderView, Query, Refused, Status};
use crate::trace::Meter;

/// How often an operator's request follows the leader to another member before it gives up.
const ROUNDS: usize = 3;

/// Asks the members of a group. It connects when it has to, and keeps at most one connection to
/// each. Cheap to clone.
#[derive(Clone)]
pub struct QueryClient(Arc<Inner>);

struct Inner {
    dialler: Dialler,
    /// Connections that are not in use.
    idle: BTreeMap<MemberId, Mutex<Option<Channel>>>,
    next_nonce: AtomicU64,
}

impl fmt::Debug for QueryClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryClient").field("group", &self.0.dialler.config).finish_non_exhaustive()
    }
}

impl QueryClient {
    /// Asks the members of this group.
    pub fn new(group: GroupConfig) -> Result<QueryClient, ConfigError> {
        group.check()?;
        let meter = Arc::new(Meter::new(Frame::OUTSIDER, Arc::new(BootClock), None));
        let idle = group.members.iter().map(|member| (member.id, Mutex::new(None))).collect();
        // Nonces need not be secret: answers are authenticated. They only must not meet those of a
        // connection before.
        let [first] = random_words().unwrap_or_default();
        let dialler = Dialler::new(group, Frame::OUTSIDER, meter);
        Ok(QueryClient(Arc::new(Inner { dialler, idle, next_nonce: AtomicU64::new(first) })))
    }

    /// The members that are asked.
    pub fn members(&self) -> &Members {
        &self.0.dialler.config.members
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
    pub async fn survey(&self) -> Survey {
        self.survey_until(|_| false).await
    }

    /// The same, until a majority has answered, and with it the leader that they name: a member
    /// that is cut off need not be waited for.
    pub async fn survey_leader(&self) -> Survey {
        let (of, algorithm) = (self.members().len(), self.0.dialler.config.algorithm);
        self.survey_until(|answers| {
            let leader = leader_of(algorithm, answers).map(|view| view.member);
            answers.len() > of / 2 && answers.iter().any(|status| Some(status.member) == leader)
        })
        .await
    }

    async fn survey_until(&self, is_enough: impl Fn(&[&Status]) -> bool) -> Survey {
        let ask = |member: Member| async move {
            let status = self.status(member.id).await;
            (member, status)
        };
        let mut asked: FuturesUnordered<_> = self.members().iter().cloned().map(ask).collect();
        let mut survey = Survey::new();
        while let Some(answer) = asked.next().await {
            survey.push(answer);
            if is_enough(&answers(&survey)) {
                break;
            }
        }
        survey.sort_by_key(|(member, _)| member.id);
        survey
    }

    /// Who leads: see [`leader_of`]. In a consensus group it takes the answers of a majority to
    /// know.
    pub async fn leader(&self) -> Result<Option<LeaderView>, AskError> {
        let (of, algorithm) = (self.members().len(), self.0.dialler.config.algorithm);
        let survey = self.survey_leader().await;
        let answers = answers(&survey);
        match answers.len() {
            0 => Err(survey.into_iter().find_map(|(_, answer)| answer.err()).unwrap_or(AskError::NoLeader)),
            answered if algorithm.is_fenced() && answered <= of / 2 => Err(AskError::NoMajority { answered, of }),
            _ => Ok(leader_of(algorithm, &answers)),
        }
    }

    /// Asks the leader to resign. Answers who was asked, once it has accepted.
    pub async fn resign(&self) -> Result<MemberId, AskError> {
        self.ask_leader(Query::Resign).await
    }

    /// Asks the leader to hand the office to this member. Answers who was asked, once it has
    /// accepted: whether it happens is seen by looking who leads.
    pub async fn transfer(&self, heir: MemberId) -> Result<MemberId, AskError> {
        self.ask_leader(Query::Transfer(heir)).await
    }

    /// Declares the group founded with the members that are up, a majority at least. Answers who
    /// was asked, once it has accepted: the others follow.
    ///
    /// Members that had agreed to a founding which cannot be completed, because a disk on its list
    /// was lost, give it up and answer [`Refused::StartedOver`]: ask again.
    ///
    /// The caller asserts that **no member of this group has ever voted** on a disk that still
    /// exists: not one that is down now, not one whose disk is elsewhere. Otherwise there are two
    /// groups of the same name, with two leaders.
    pub async fn found(&self) -> Result<MemberId, AskError> {
        let survey = self.survey().await;
        let answers = answers(&survey);
        if answers.is_empty() {
            return Err(survey.into_iter().find_map(|(_, answer)| answer.err()).unwrap_or(AskError::NoLeader));
        }
        let mut refused = Refused::Founded;
        for status in answers.iter().filter(|status| status.forming) {
            match self.accepted(status.member, Query::Found).await {
                Err(AskError::Refused(why)) if refused != Refused::StartedOver => refused = why,
                Err(AskError::Refused(_)) => {}
                answer => return answer,
            }
        }
        Err(AskError::Refused(refused))
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

    async fn ask_leader(&self, request: Query) -> Result<MemberId, AskError> {
        let mut refused = None;
        for _ in 0..ROUNDS {
            let Some(leader) = self.leader().await? else { break };
            match self.query(leader.member, request.clone()).await? {
                Answer::Accepted => return Ok(leader.member),
                // It has changed meanwhile: look again.
                Answer::Refused(why @ Refused::NotInOffice) => refused = Some(why),
                Answer::Refused(why) => return Err(AskError::Refused(why)),
                Answer::Status(_) => return Err(AskError::Silent { member: leader.member }),
            }
        }
        Err(refused.map_or(AskError::NoLeader, AskError::Refused))
    }

    async fn query(&self, member: MemberId, query: Query) -> Result<Answer, AskError> {
        let nonce = self.nonce();
        // A request is sent once: sent again because the first answer was lost, it would depose the
        // next leader, too.
        let reuse = if query == Query::Status { Reuse::Kept } else { Reuse::New };
        self.exchange(member, Packet::Query(nonce, query), reuse, |packet| match packet {
            Packet::Answer(to, answer) if to == nonce => Some(answer),
            _ => None,
        })
        .await
    }

    fn nonce(&self) -> Nonce {
        Nonce(self.0.next_nonce.fetch_add(1, Ordering::Relaxed))
    }

    /// Says one thing and waits for its answer. Safe to cancel: a connection that was in use is
    /// given up.
    async fn exchange<T>(
        &self,
        member: MemberId,
        packet: Packet,
        reuse: Reuse,
        is_answer: impl Fn(Packet) -> Option<T>,
    ) -> Result<T, AskError> {
        let Some(idle) = self.0.idle.get(&member) else { return Err(AskError::NotAMember { member }) };
        let link = self.0.dialler.config.link;
        let until = Instant::now() + link.answer_timeout;
        let exchange = async {
            let mut slot = idle.lock().await;
            if let Some(kept) = slot.take().filter(|_| reuse == Reuse::Kept)
                && let Ok((channel, answer)) = self.speak(kept, member, &packet, &is_answer).await
            {
                *slot = Some(channel);
                return Ok(answer);
            }
            // The one that was kept, if any, had been closed by the other end.
            let channel = self.0.dialler.dial(member, MAX_ANSWER_BYTES).await?;
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
        let (link, meter) = (self.0.dialler.config.link, &self.0.dialler.meter);
        let bytes = channel.writer.push(packet);
        meter.sent(member, packet, bytes);
        channel.writer.flush(link.write_timeout).await?;
        loop {
            // Bounded by the patience of the whole exchange. Answers to questions that were given
            // up are passed over.
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
enum Reuse {
    /// The one that was kept; if the other end has closed it, it is said again on a new one.
    Kept,
    /// A new one, so that it is said once.
    New,
}

/// What each member answered, by number.
pub type Survey = Vec<(Member, Result<Status, AskError>)>;

fn answers(survey: &Survey) -> Vec<&Status> {
    survey.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect()
}

/// Who leads, by what the members say.
///
/// In a consensus group the newest term counts of which anybody knows a leader. In a bully or ring
/// election it is the member that most of them name, and of those the highest; a partition has one
/// answer on each side. The leader itself knows best what it proclaims, and whether it still leads.
pub fn leader_of(algorithm: Algorithm, answers: &[&Status]) -> Option<LeaderView> {
    let newest = answers.iter().map(|status| status.led_term).max()?;
    let views = || {
        let newest = answers.iter().filter(|status| !algorithm.is_fenced() || status.led_term == newest);
        newest.filter_map(|status| status.leader.as_ref())
    };
    let count = |member| views().filter(|view| view.member == member).count();
    let (_, chosen) = views().map(|view| (count(view.member), view.member)).max()?;
    match answers.iter().find(|status| status.member == chosen) {
        Some(status) if status.in_office => status.leader.clone(),
        Some(_) => None,
        None => views().find(|view| view.member == chosen).cloned(),
    }
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
    use incumbent_core::Token;
    use incumbent_core::peers::consensus::PeerRole;

    use super::*;

    /// What member `member` says: that `leader` leads, and that the newest term that anybody led is
    /// `term`.
    fn says(member: u16, term: u64, leader: Option<u16>) -> Status {
        Status {
            member: MemberId(member),
            algorithm: Algorithm::Consensus,
            role: PeerRole::Follower,
            term,
            led_term: term,
            leader: leader.map(|leader| LeaderView {
                member: MemberId(leader),
                term: Token::new(term),
                value: Bytes::from(format!("by {member}")),
            }),
            in_office: leader == Some(member),
            stands: true,
            not_voting: None,
            forming: false,
            waits_for: Vec::new(),
            value: Bytes::new(),
            identity: None,
        }
    }

    fn leader(algorithm: Algorithm, answers: &[Status]) -> Option<u16> {
        leader_of(algorithm, &answers.iter().collect::<Vec<_>>()).map(|view| view.member.0)
    }

    #[test]
    fn the_newest_term_counts_and_a_majority_of_those_who_lag_does_not() {
        let consensus = |answers: &[Status]| leader(Algorithm::Consensus, answers);
        assert_eq!(consensus(&[says(3, 3, Some(1)), says(4, 3, Some(1)), says(5, 4, Some(2))]), Some(2));
        assert_eq!(consensus(&[says(3, 4, None), says(4, 4, Some(2))]), Some(2));
        assert_eq!(consensus(&[says(3, 4, None), says(4, 3, Some(1))]), None, "a later term has ended");
        assert_eq!(consensus(&[]), None);
    }

    #[test]
    fn without_terms_it_is_what_most_say_and_of_equally_many_the_highest() {
        let bully = |answers: &[Status]| leader(Algorithm::Bully, answers);
        assert_eq!(bully(&[says(3, 0, Some(1)), says(4, 0, Some(2)), says(5, 0, Some(2))]), Some(2));
        assert_eq!(bully(&[says(3, 0, Some(1)), says(4, 0, Some(2))]), Some(2));
    }

    #[test]
    fn the_leader_itself_knows_best_whether_it_leads_and_what_it_proclaims() {
        for algorithm in [Algorithm::Bully, Algorithm::Consensus] {
            let of_itself = [says(1, 4, Some(1)), says(2, 4, Some(1))];
            let view = leader_of(algorithm, &of_itself.iter().collect::<Vec<_>>()).unwrap();
            assert_eq!(view.value, "by 1");
            assert_eq!(leader(algorithm, &[says(1, 4, None), says(2, 4, Some(1))]), None, "it has left");
        }
    }
}
