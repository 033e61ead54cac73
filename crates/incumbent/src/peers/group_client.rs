//! Someone who is not a member, or does not act as one: reads who leads, and asks the leader to
//! step down or hand over.
//!
//! All members are asked at once, and what they say is put together here. Nothing is written down
//! anywhere.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::peers::Abstention;
use incumbent_core::{ElectionName, Office, Refusal};
use incumbent_peers::{
    Algorithm, AskError, LeaderView, Member as Peer, MemberId, OperatorRequest, QueryClient, Refused, Status, Survey,
    leader_of,
};
use incumbent_store::{Promises, StoreError, StoreId, Wake, lock};
use tokio::time::{Instant, sleep, sleep_until};

use super::group::{Group, GroupElection, misuse};
use super::promises::promises;
use crate::backend::{ElectionReader, Snapshot, end_of};
use crate::error::{OperatorError, ReadError, TransferRefused, Unfinished};
use crate::forecast::Forecast;
use crate::observer::{self, CandidateInfo, GroupStatus};
use crate::office_record::Outcome;
use crate::operator::CandidateRef;

/// Asks the members of one group.
#[derive(Debug)]
pub(crate) struct GroupClient {
    group_election: Arc<GroupElection>,
    query_client: Mutex<Option<QueryClient>>,
    /// Which group answered last: a group that was founded anew has another identity.
    identity: Mutex<Option<StoreId>>,
}

impl GroupClient {
    pub(super) fn new(group_election: Arc<GroupElection>) -> GroupClient {
        GroupClient { group_election, query_client: Mutex::new(None), identity: Mutex::new(None) }
    }

    pub(crate) fn group(&self) -> &Group {
        &self.group_election.group
    }

    fn query_client(&self, election: &ElectionName) -> Result<QueryClient, StoreError> {
        self.group_election.check(election)?;
        let mut query_client = lock(&self.query_client);
        if let Some(query_client) = &*query_client {
            return Ok(query_client.clone());
        }
        let config = self.group_election.group.config(election, false)?;
        let made = QueryClient::new(config).map_err(|error| misuse(error.to_string()))?;
        Ok(query_client.insert(made).clone())
    }

    /// Whether there is all that is needed to ask.
    pub(crate) fn prepare(&self, election: &ElectionName) -> Result<(), StoreError> {
        self.query_client(election).map(|_| ())
    }

    pub(crate) fn promises(&self) -> Promises {
        let known = lock(&self.identity).clone();
        promises(&self.group_election.group, known)
    }

    /// Who leads and who else answers. Where only the leader is asked for (`candidates` is 1),
    /// there is an answer only if it is sure.
    pub(crate) async fn snapshot(&self, election: &ElectionName, candidates: usize) -> Result<Snapshot, StoreError> {
        let query_client = self.query_client(election)?;
        let survey = if candidates == 1 { query_client.survey_leader().await } else { query_client.survey().await };
        let answers: Vec<_> = survey.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
        if answers.is_empty() {
            return Err(nobody_answers(&survey));
        }
        if let Some(identity) = answers.iter().find_map(|status| status.identity.clone()) {
            *lock(&self.identity) = Some(identity);
        }
        let group = GroupStatus {
            members: self.group().members().len(),
            answering: answers.len(),
            needed: self.group_election.group.needed(),
            forming: answers.iter().any(|status| status.forming),
            waits_for: self.names(answers.iter().flat_map(|status| status.waits_for.iter().copied())),
            not_voting: self.names(answers.iter().filter(|status| is_out(status)).map(|status| status.member)),
            refusing: survey.iter().filter_map(refusal_of).collect(),
        };
        let unsure = self.group().algorithm().is_fenced() && group.answering < group.needed;
        if candidates == 1 && unsure {
            return Err(too_few(&group, &survey));
        }
        let leader = if unsure { None } else { leader_of(self.group().algorithm(), &answers) };
        Ok(self.put_together(group, leader, &answers))
    }

    /// Each once, by number.
    fn names(&self, members: impl Iterator<Item = MemberId>) -> Vec<Arc<str>> {
        let members: BTreeSet<_> = members.collect();
        members.into_iter().map(|member| self.group().members().name(member).into()).collect()
    }

    fn put_together(&self, group: GroupStatus, leader: Option<LeaderView>, answers: &[&Status]) -> Snapshot {
        let candidate = |id: MemberId, value: &Bytes, token| CandidateInfo {
            name: Some(self.group().members().name(id).into()),
            id: None,
            stays: false,
            value: value.clone(),
            token,
            unwell: false,
            priority: 0,
            fences: false,
        };
        let leads = leader.as_ref().map(|view| view.member);
        let others = answers.iter().filter(|status| Some(status.member) != leads && status.stands);
        let others = others.map(|status| candidate(status.member, &status.value, None));
        let leading = leader.iter().map(|view| candidate(view.member, &view.value, view.term));
        let status = observer::Status::new(leading.chain(others).collect(), leader.is_none(), Office::default());
        Snapshot { status: observer::Status { group: Some(group), ..status }, tombstone: None, seen: None }
    }

    /// Members tell nobody by themselves: look again after a while.
    pub(crate) fn watch(&self) -> Wake {
        let every = self.group_election.group.ask_every();
        Box::pin(async move {
            sleep(every).await;
            Ok(())
        })
    }

    /// What this kind of group cannot do.
    pub(crate) fn cannot(&self, act: &'static str) -> OperatorError {
        let algorithm = match self.group().algorithm() {
            Algorithm::Bully => "bully",
            Algorithm::Ring => "ring",
            Algorithm::Consensus => "consensus",
        };
        let why = match act {
            "transfer" => "rank decides who leads; `resign` makes the leader step down for a while",
            "call off a transfer" => "the leader carries it out, or refuses it, as soon as it is asked",
            "depose" => {
                "members listen to nobody but the leader; `resign` asks it, and one that does not answer is replaced after the timeout"
            }
            "freeze" | "unfreeze" => "there is nothing that all members would read it from",
            "bench" | "unbench" => "there is nothing that all members would read it from; stop the member instead",
            "ack" => "their health moves no office",
            "pause" | "resume" => {
                "there is nothing that all members would read it from; stop the members instead, or a majority of them"
            }
            "be founded" | "readmit a member" => {
                "its members write nothing down, so there is nothing to found or to lose"
            }
            "end" => "its members are a fixed list; stop them instead",
            _ => "there is no such thing among peers",
        };
        OperatorError::Unsupported { algorithm, act, why }
    }

    /// The member that is meant. One that does not answer, or is not fit to lead, is no heir: an
    /// office that was given up for it would be nobody's for a while.
    pub(crate) async fn heir(&self, election: &ElectionName, to: &CandidateRef) -> Result<MemberId, TransferRefused> {
        if !self.group().algorithm().is_fenced() {
            return Err(Refusal::RankDecides.into());
        }
        let unknown = || TransferRefused::NoSuchCandidate(to.0.clone());
        let heir = self.group().members().by_name(&to.0).ok_or_else(unknown)?.id;
        let query_client = self.query_client(election).map_err(ReadError::Store)?;
        match query_client.status(heir).await {
            Ok(status) if status.stands && status.not_voting.is_some() => Err(Refusal::HeirUnfit.into()),
            Ok(status) if status.stands => Ok(heir),
            Ok(_) => Err(unknown()),
            Err(_) => Err(Refusal::HeirSilent.into()),
        }
    }

    pub(crate) async fn transfer(
        &self,
        reader: &ElectionReader,
        to: &CandidateRef,
        within: Duration,
    ) -> Result<(), OperatorError> {
        if !self.group().algorithm().is_fenced() {
            return Err(self.cannot("transfer"));
        }
        let until = end_of(within);
        let before = self.leader_until(reader, until).await?.ok_or(OperatorError::Vacant)?;
        let heir = self.heir(&reader.election, to).await?;
        if self.is(&before, heir) {
            return Ok(());
        }
        self.ask(reader, OperatorRequest::Transfer(heir), &before, until).await?;
        loop {
            match self.leader_until(reader, until).await? {
                Some(leader) if self.is(&leader, heir) => return Ok(()),
                Some(leader) if leader.token > before.token => {
                    return Err(OperatorError::Other { leader: Some(leader) });
                }
                _ => self.pause(until, within, Unfinished::HeirLeads).await?,
            }
        }
    }

    /// What a transfer would do. Members between do not step aside: there is no line.
    pub(crate) async fn foresee_transfer(
        &self,
        reader: &ElectionReader,
        to: &CandidateRef,
        within: Duration,
    ) -> Result<Forecast, OperatorError> {
        if !self.group().algorithm().is_fenced() {
            return Err(self.cannot("transfer"));
        }
        let leader = self.leader_until(reader, end_of(within)).await?.ok_or(OperatorError::Vacant)?;
        let heir = self.heir(&reader.election, to).await?;
        let leads_already = self.is(&leader, heir);
        let name = Some(self.group().members().name(heir).into());
        let query_client = self.query_client(&reader.election).map_err(ReadError::Store)?;
        let value = query_client.status(heir).await.map(|status| status.value).unwrap_or_default();
        let (id, token) = (None, None);
        let member = CandidateInfo { name, id, stays: false, value, token, unwell: false, priority: 0, fences: false };
        let heir = if leads_already { leader.clone() } else { member };
        Ok(Forecast { leader, heir, step_aside: Vec::new(), leads_already, doubts: Vec::new() })
    }

    pub(crate) async fn resign(&self, reader: &ElectionReader, within: Duration) -> Result<(), OperatorError> {
        let until = end_of(within);
        let before = self.leader_until(reader, until).await?.ok_or(OperatorError::Vacant)?;
        self.ask(reader, OperatorRequest::Resign, &before, until).await?;
        loop {
            match self.leader_until(reader, until).await? {
                Some(leader) if leader.name == before.name && leader.token == before.token => {
                    self.pause(until, within, Unfinished::LeaderLeft).await?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Declares the group founded, and waits until it is.
    pub(crate) async fn found(&self, reader: &ElectionReader, within: Duration) -> Result<(), OperatorError> {
        let until = end_of(within);
        let query_client = self.consensus_client(reader, "be founded")?;
        let mut heard = false;
        loop {
            // It is said until it has come about: members that were told at the same time may have
            // agreed to different foundings, and then start over once more.
            match query_client.found().await {
                Ok(_) | Err(AskError::Refused(Refused::InProgress | Refused::StartedOver)) => heard = true,
                Err(error) if !heard => return Err(self.refused_at(error)),
                Err(_) => {}
            }
            let snapshot =
                crate::backend::retry(until, || Box::pin(reader.look_within(usize::MAX, reader.attempt()))).await?;
            if snapshot.status.group.is_some_and(|group| !group.forming) {
                return Ok(());
            }
            self.pause(until, within, Unfinished::Founded).await?;
        }
    }

    /// Has a member that lost its state come back, and waits until it does.
    pub(crate) async fn readmit(
        &self,
        reader: &ElectionReader,
        who: &CandidateRef,
        within: Duration,
    ) -> Result<(), OperatorError> {
        let until = end_of(within);
        let query_client = self.consensus_client(reader, "readmit a member")?;
        let unknown = || OperatorError::NoSuchMember(who.0.clone());
        let member = self.group().members().by_name(&who.0).ok_or_else(unknown)?.id;
        query_client.readmit(member).await.map_err(|error| self.refused_at(error))?;
        loop {
            if query_client.status(member).await.is_ok_and(|status| !is_out(&status)) {
                return Ok(());
            }
            self.pause(until, within, Unfinished::Readmitted).await?;
        }
    }

    fn consensus_client(&self, reader: &ElectionReader, act: &'static str) -> Result<QueryClient, OperatorError> {
        if !self.group().algorithm().is_fenced() {
            return Err(self.cannot(act));
        }
        Ok(self.query_client(&reader.election)?)
    }

    /// Why a member did not do what it was told.
    fn refused_at(&self, error: AskError) -> OperatorError {
        match error {
            AskError::Refused(Refused::Founded) => OperatorError::AlreadyFounded,
            AskError::Refused(Refused::NotLost) => OperatorError::NotLost,
            AskError::Denied { .. } => StoreError::Denied { what: error.to_string(), source: None }.into(),
            error => StoreError::Unavailable { what: error.to_string(), source: None }.into(),
        }
    }

    /// Waits until the heir leads, or somebody else does.
    pub(crate) async fn until_leads(
        &self,
        reader: &ElectionReader,
        heir: MemberId,
        within: Duration,
    ) -> Result<(), Outcome> {
        let until = end_of(within);
        let mut last = None;
        loop {
            match self.leader_until(reader, until).await {
                Ok(Some(leader)) if self.is(&leader, heir) => return Ok(()),
                Ok(leader) => last = leader,
                Err(OperatorError::Read(error)) => return Err(Outcome::Unknown(error)),
                Err(_) => return Err(Outcome::Other(last)),
            }
            if self.pause(until, within, Unfinished::HeirLeads).await.is_err() {
                return Err(Outcome::Other(last));
            }
        }
    }

    fn is(&self, leader: &CandidateInfo, member: MemberId) -> bool {
        leader.name.as_deref() == Some(self.group().members().name(member))
    }

    async fn leader_until(
        &self,
        reader: &ElectionReader,
        until: Instant,
    ) -> Result<Option<CandidateInfo>, OperatorError> {
        let snapshot = crate::backend::retry(until, || Box::pin(reader.look_within(1, reader.attempt()))).await?;
        Ok(snapshot.status.into_leader())
    }

    async fn pause(&self, until: Instant, within: Duration, missing: Unfinished) -> Result<(), OperatorError> {
        let next = Instant::now() + self.group_election.group.ask_every();
        if next >= until {
            return Err(OperatorError::TimedOut { waited: within, missing });
        }
        sleep_until(next).await;
        Ok(())
    }

    /// Asks the leader. If it may have heard it, but did not answer, it is asked again only while
    /// it still leads: its successor must not be asked in its place.
    async fn ask(
        &self,
        reader: &ElectionReader,
        request: OperatorRequest,
        before: &CandidateInfo,
        until: Instant,
    ) -> Result<(), OperatorError> {
        let query_client = self.query_client(&reader.election)?;
        let began = Instant::now();
        let mut heard = false;
        loop {
            let asked = match request {
                OperatorRequest::Resign => query_client.resign().await,
                OperatorRequest::Transfer(heir) => query_client.transfer(heir).await,
            };
            let error = match asked {
                Ok(_) => return Ok(()),
                Err(AskError::Refused(Refused::Busy)) if heard => return Ok(()),
                Err(error) => error,
            };
            if let Some(refused) = self.refused(&error) {
                return Err(refused);
            }
            heard |= matches!(error, AskError::Silent { .. } | AskError::Unreachable { .. });
            if Instant::now() + self.group_election.group.ask_every() >= until {
                let (what, source) = (error.to_string(), None);
                let unknown = if heard {
                    StoreError::OutcomeUnknown { what, source }
                } else {
                    StoreError::Unavailable { what, source }
                };
                return Err(ReadError::TimedOut { waited: began.elapsed(), last: unknown }.into());
            }
            sleep(self.group_election.group.ask_every()).await;
            let leader = self.leader_until(reader, until).await?;
            if leader.is_none_or(|leader| leader.name != before.name || leader.token != before.token) {
                return Ok(());
            }
        }
    }

    /// What asking again would not change.
    fn refused(&self, error: &AskError) -> Option<OperatorError> {
        match error {
            AskError::NoLeader => Some(OperatorError::Vacant),
            AskError::Refused(Refused::RankDecides) => Some(self.cannot("transfer")),
            // The heir has said itself that it could: the leader has not heard of it yet.
            AskError::Refused(Refused::NotInOffice | Refused::HeirUnfit) => None,
            AskError::Refused(why) => Some(refusal(why).map_or(OperatorError::TakesNoRequests, OperatorError::from)),
            AskError::Denied { .. } | AskError::NotAMember { .. } => {
                Some(StoreError::Denied { what: error.to_string(), source: None }.into())
            }
            _ => None,
        }
    }
}

/// Whether a member takes no part in votes, and not only for the moment after a restart.
fn is_out(status: &Status) -> bool {
    status.not_voting.is_some_and(|why| why != Abstention::Restarted)
}

/// The member and why it refuses to answer, if it does.
fn refusal_of((member, answer): &(Peer, Result<Status, AskError>)) -> Option<(Arc<str>, &'static str)> {
    match answer {
        Err(AskError::Denied { why, .. }) => Some((member.name.clone(), why)),
        _ => None,
    }
}

/// In the words of everybody else; `None` if it has none of its own.
fn refusal(why: &Refused) -> Option<TransferRefused> {
    Some(match why {
        Refused::NotAMember => Refusal::NotAMember.into(),
        Refused::HeirSilent => Refusal::HeirSilent.into(),
        Refused::HeirBehind => Refusal::HeirBehind.into(),
        Refused::HeirUnfit => Refusal::HeirUnfit.into(),
        Refused::Busy => Refusal::Busy.into(),
        _ => return None,
    })
}

fn reasons(survey: &Survey) -> String {
    let reasons: Vec<_> =
        survey.iter().filter_map(|(_, answer)| answer.as_ref().err().map(AskError::to_string)).collect();
    reasons.join("; ")
}

fn nobody_answers(survey: &Survey) -> StoreError {
    let denied = |(_, answer): &(Peer, Result<Status, AskError>)| matches!(answer, Err(AskError::Denied { .. }));
    if survey.iter().any(denied) {
        return StoreError::Denied { what: reasons(survey), source: None };
    }
    StoreError::Unavailable { what: format!("no member of the group answers: {}", reasons(survey)), source: None }
}

fn too_few(group: &GroupStatus, survey: &Survey) -> StoreError {
    let GroupStatus { members, answering, needed, .. } = group;
    let what = format!(
        "{answering} of {members} members answer, and {needed} are needed to know who leads: {}",
        reasons(survey)
    );
    StoreError::Unavailable { what, source: None }
}
