//! Drives a member of a group: starts it with the first candidate, and hands what is said back and
//! forth.
//!
//! The member starts with the first candidate and lasts until the client is closed; it leads only
//! while there is a candidate. Who leads, and how an office is handed over in order, is the
//! member's affair.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::AbortHandle;
use futures_util::stream::{FuturesUnordered, Stream};
use incumbent_core::peers::{Abstention, MemberId};
use incumbent_core::{CandidacyId, Candidate, Command, Event, Fault, StoreId, Timestamp, Title, Token};
use incumbent_peers::{Node, NodeEvent, TermRules};
use incumbent_store::{Clock, StoreError};

mod membership;

use self::membership::{Membership, Step};
use super::fences::Fences;
use super::{Side, SideEvent};
use crate::error::{CandidacyError, MemberError};
use crate::fence::{FenceError, FencingToken};
use crate::hooks::Hooks;
use crate::peers::{GroupElection, start};
use crate::port::{SharedCandidacy, Stand};

/// How long a member may take to leave beyond the grace, once every handle is gone.
const TIDY: Duration = Duration::from_secs(10);

/// Something that was waited for.
enum Done {
    Started(Result<Box<Node>, CandidacyError>),
    /// The fences of this candidacy are raised to this token, or not.
    Raised(CandidacyId, Token, Result<(), FenceError>),
    /// The member is torn down.
    Shut,
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

pub(crate) struct GroupSide {
    group_election: Arc<GroupElection>,
    clock: Arc<dyn Clock>,
    hooks: Hooks,
    membership: Membership<Box<Node>>,
    candidacy: Option<DrivenCandidacy>,
    /// What is to be told that the member has not said.
    events: VecDeque<SideEvent>,
    work: FuturesUnordered<Work>,
    /// The raise of fences that is out and wanted.
    raise: Option<(Token, AbortHandle)>,
}

/// What is kept for the candidate of this client.
struct DrivenCandidacy {
    id: CandidacyId,
    shared: Arc<SharedCandidacy>,
    fences: Fences,
    error: Option<CandidacyError>,
}

impl GroupSide {
    pub(crate) fn new(group_election: Arc<GroupElection>, clock: Arc<dyn Clock>, hooks: Hooks) -> GroupSide {
        GroupSide {
            group_election,
            clock,
            hooks,
            membership: Membership::new(),
            candidacy: None,
            events: VecDeque::new(),
            work: FuturesUnordered::new(),
            raise: None,
        }
    }

    /// One process is one member: a candidate that goes by another one's name is refused.
    fn check(&self, candidate: &Candidate) -> Result<(), CandidacyError> {
        self.group_election.check(&candidate.election).map_err(CandidacyError::Store)?;
        self.membership.check()?;
        if candidate.recorded {
            let what = "a group of peers keeps no record of terms: use a store for that".to_owned();
            return Err(CandidacyError::Store(StoreError::Unsupported { what }));
        }
        let members = self.group_election.group.members();
        if let Some(node) = self.membership.member()
            && members.by_name(&candidate.name).is_some_and(|named| named.id != node.me())
        {
            let (is, named) = (members.name(node.me()).to_string(), candidate.name.to_string());
            return Err(MemberError::AnotherName { is, named }.into());
        }
        Ok(())
    }

    fn on_started(&mut self, result: Result<Box<Node>, CandidacyError>) {
        let steps = match result {
            Ok(node) => {
                let steps = self.membership.started(node);
                self.name_candidate();
                steps
            }
            Err(error) => {
                self.note_error(error);
                self.membership.not_started()
            }
        };
        self.carry_out(steps);
    }

    fn carry_out(&mut self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            match (step, self.membership.member_mut()) {
                (Step::Command(command), Some(node)) => node.command(command),
                (Step::Leave, Some(node)) => {
                    node.command(Command::Leave);
                    node.close();
                }
                (Step::Fail, _) => self.fail(),
                (Step::Left(id), _) => self.events.push_back(SideEvent::Event(id, Event::Done { certain: true })),
                (Step::Closed, _) => self.events.push_back(SideEvent::Closed(true)),
                (Step::Command(_) | Step::Leave | Step::TearDown, _) => {}
            }
        }
    }

    /// The candidate is known by its member's name.
    fn name_candidate(&self) {
        if let (Some(node), Some(candidacy)) = (self.membership.member(), &self.candidacy) {
            let _ = candidacy.shared.name.set(self.group_election.group.members().name(node.me()).into());
        }
    }

    /// The candidate cannot stand, for good.
    fn fail(&mut self) {
        let id = self.candidacy.as_ref().map(|candidacy| candidacy.id);
        let failed = |id| [Event::Failed, Event::Done { certain: true }].map(|event| SideEvent::Event(id, event));
        self.events.extend(id.map(failed).into_iter().flatten());
    }

    /// Why the candidate cannot stand. What was noted first counts.
    fn note_error(&mut self, error: CandidacyError) {
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.error.get_or_insert(error);
        }
    }

    /// What the member says, and what others wait for.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SideEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                self.note_event(&event);
                return Poll::Ready(event);
            }
            if let Poll::Ready(Some(done)) = Pin::new(&mut self.work).poll_next(cx) {
                self.on_done(done);
                continue;
            }
            let Some(node) = self.membership.member_mut() else { return Poll::Pending };
            let event = std::task::ready!(node.poll_event(cx));
            self.on_node_event(event);
        }
    }

    fn note_event(&mut self, event: &SideEvent) {
        if let SideEvent::Event(_, Event::Done { .. }) = event {
            self.candidacy = None;
            self.membership.over();
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Started(result) => self.on_started(result),
            Done::Raised(id, token, result) => self.on_raised(id, token, result),
            Done::Shut => {
                let steps = self.membership.torn_down();
                self.carry_out(steps);
            }
        }
    }

    fn on_raised(&mut self, id: CandidacyId, token: Token, result: Result<(), FenceError>) {
        let store = self.store_id();
        let wanted = self.raise.take_if(|(out, _)| *out == token).is_some();
        let result = result.map_err(|error| match &mut self.candidacy {
            Some(candidacy) if wanted && candidacy.id == id => {
                tracing::debug!(%error, "a fence could not be raised");
                let (fault, error) = candidacy.fences.on_error(&store, token, error);
                if fault == Fault::Permanent {
                    candidacy.error = Some(error);
                }
                fault
            }
            _ => Fault::OutcomeUnknown,
        });
        self.answer_fences(token, result);
    }

    fn answer_fences(&mut self, token: Token, result: Result<(), Fault>) {
        if let Some(node) = self.membership.member_mut() {
            node.fences(token, result);
        }
    }

    fn on_node_event(&mut self, event: NodeEvent) {
        match event {
            NodeEvent::Event(event) => self.on_event(event),
            NodeEvent::RaiseFences(token) => {
                let token_of_group = FencingToken::new(token, self.store_id());
                let Some(candidacy) = &self.candidacy else {
                    // Nobody is left to raise them for.
                    return self.answer_fences(token, Err(Fault::OutcomeUnknown));
                };
                let (id, (raise, raised)) = (candidacy.id, candidacy.fences.raise(&self.hooks, token_of_group));
                self.raise = Some((token, raise));
                self.work.push(Box::pin(async move { Done::Raised(id, token, raised.await) }));
            }
            NodeEvent::GiveUpFences(token) => {
                tracing::debug!(%token, "the raise of the fences is given up");
                if let Some((_, raise)) = self.raise.take() {
                    raise.abort();
                }
            }
            // A group with positions is refused to clients, which have no records.
            NodeEvent::Seal(..) => {}
            NodeEvent::Closed => self.on_closed(),
        }
    }

    fn on_event(&mut self, event: Event) {
        if let Event::NotVoting(why) = event {
            self.on_abstention(why);
        }
        let id = self.candidacy.as_ref().map(|candidacy| candidacy.id);
        self.events.extend(id.map(|id| SideEvent::Event(id, event)));
    }

    fn on_abstention(&mut self, why: Abstention) {
        let error = match why {
            Abstention::CannotPersist => StoreError::Unavailable { what: why.to_string(), source: None },
            Abstention::StateLostAlone => StoreError::Corrupt { what: why.to_string() },
            Abstention::Restarted => return tracing::debug!(%why, "this member does not vote yet"),
            _ => return tracing::warn!(%why, "this member does not vote"),
        };
        tracing::error!(%why, "this member takes no part any more");
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.error = Some(error.into());
        }
    }

    fn on_closed(&mut self) {
        match self.membership.ended() {
            Some((node, Some(Step::TearDown))) => self.shut(*node),
            Some((_, step)) => {
                self.note_error(MemberError::Ended.into());
                self.carry_out(step);
            }
            None => {}
        }
    }

    fn shut(&mut self, node: Node) {
        self.work.push(Box::pin(async move {
            node.shut().await;
            Done::Shut
        }));
    }

    /// Which group the tokens are of.
    fn store_id(&self) -> StoreId {
        let known = self.membership.member().and_then(|node| node.identity());
        known.unwrap_or_else(|| StoreId::new(format!("{}/unknown", self.group_election.group.algorithm())))
    }
}

impl Side for GroupSide {
    fn stand(&mut self, stand: Stand) -> Result<(), CandidacyError> {
        // Those that would stop others ask for a record, and were refused for that; so were those
        // that would get ready first.
        let Stand { id, candidate, fences, shared, stonith: _, ready_hook: _, has_stopped: _ } = stand;
        self.check(&candidate)?;
        shared.on_first_contact(None);
        let Candidate { election, name, value, fenced, hold_until_stopped, unfit, .. } = candidate;
        let rules = TermRules { fenced, hold_until_stopped, unfit };
        let fences = Fences::new(election.clone(), fences);
        if let Some(node) = self.membership.member_mut() {
            node.stand(rules, value).map_err(StoreError::from)?;
        } else {
            let (group_election, clock) = (self.group_election.clone(), self.clock.clone());
            self.work.push(Box::pin(async move {
                Done::Started(start(&group_election, &election, &name, (rules, value), clock).await.map(Box::new))
            }));
        }
        self.membership.stand(id);
        self.candidacy = Some(DrivenCandidacy { id, shared, fences, error: None });
        self.name_candidate();
        Ok(())
    }

    fn command(&mut self, id: CandidacyId, command: Command) {
        let step = self.membership.command(id, command);
        self.carry_out(step);
    }

    fn close(&mut self) {
        let step = self.membership.close();
        self.carry_out(step);
    }

    /// A node has timers of its own.
    fn tick(&mut self) {}

    fn next_timeout(&self) -> Option<Timestamp> {
        None
    }

    fn poll_work(&mut self, cx: &mut Context<'_>) -> bool {
        // What is taken in here is told before anything else is.
        match self.poll(cx) {
            Poll::Ready(event) => {
                self.events.push_front(event);
                true
            }
            Poll::Pending => false,
        }
    }

    fn next_event(&mut self, cx: &mut Context<'_>) -> Option<SideEvent> {
        match self.poll(cx) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    fn fencing_token(&self, title: &Title) -> Option<FencingToken> {
        Some(FencingToken::new(title.token()?, self.store_id()))
    }

    fn name_of(&self, member: MemberId) -> Arc<str> {
        self.group_election.group.members().name(member).into()
    }

    fn error(&mut self, _: CandidacyId) -> CandidacyError {
        self.candidacy.as_mut().and_then(|candidacy| candidacy.error.take()).unwrap_or(CandidacyError::Closed)
    }

    fn patience(&self) -> Duration {
        self.group_election.group.settings().grace + TIDY
    }
}
