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
    membership: Membership,
    candidacy: Option<DrivenCandidacy>,
    /// What is to be told that the member has not said.
    events: VecDeque<SideEvent>,
    work: FuturesUnordered<Work>,
    /// The raise of fences that is out and wanted.
    raise: Option<(Token, AbortHandle)>,
    closing: bool,
}

/// This process in the group.
enum Membership {
    /// Nobody has stood yet, or the member has failed: the next candidacy starts it.
    No,
    Starting,
    Yes(Box<Node>),
}

/// The candidate of this client. There is one at a time.
struct DrivenCandidacy {
    id: CandidacyId,
    shared: Arc<SharedCandidacy>,
    fences: Fences,
    /// What its user wants of a member that has not started yet.
    waiting: Vec<Command>,
    error: Option<CandidacyError>,
}

impl GroupSide {
    pub(crate) fn new(group_election: Arc<GroupElection>, clock: Arc<dyn Clock>, hooks: Hooks) -> GroupSide {
        GroupSide {
            group_election,
            clock,
            hooks,
            membership: Membership::No,
            candidacy: None,
            events: VecDeque::new(),
            work: FuturesUnordered::new(),
            raise: None,
            closing: false,
        }
    }

    /// One process is one member: a candidate that goes by another one's name is refused.
    fn check(&self, candidate: &Candidate) -> Result<(), CandidacyError> {
        self.group_election.check(&candidate.election).map_err(CandidacyError::Store)?;
        if self.closing {
            return Err(CandidacyError::Closed);
        }
        if self.candidacy.is_some() {
            return Err(CandidacyError::AlreadyInLine);
        }
        if candidate.recorded {
            let what = "a group of peers keeps no record of terms: use a store for that".to_owned();
            return Err(CandidacyError::Store(StoreError::Unsupported { what }));
        }
        let members = self.group_election.group.members();
        if let Membership::Yes(node) = &self.membership
            && members.by_name(&candidate.name).is_some_and(|named| named.id != node.me())
        {
            let (is, named) = (members.name(node.me()).to_string(), candidate.name.to_string());
            return Err(MemberError::AnotherName { is, named }.into());
        }
        Ok(())
    }

    fn on_started(&mut self, result: Result<Box<Node>, CandidacyError>) {
        let node = match result {
            Ok(node) => node,
            Err(error) => {
                self.membership = Membership::No;
                self.fail(error);
                if self.closing {
                    self.events.push_back(SideEvent::Closed(true));
                }
                return;
            }
        };
        self.membership = Membership::Yes(node);
        self.name_candidate();
        if let Some(candidacy) = &mut self.candidacy {
            let (id, waiting) = (candidacy.id, std::mem::take(&mut candidacy.waiting));
            waiting.into_iter().for_each(|command| self.command(id, command));
        }
        if self.closing {
            self.close_node();
        }
    }

    /// The candidate is known by its member's name.
    fn name_candidate(&self) {
        if let (Membership::Yes(node), Some(candidacy)) = (&self.membership, &self.candidacy) {
            let _ = candidacy.shared.name.set(self.group_election.group.members().name(node.me()).into());
        }
    }

    /// The candidate cannot stand, for good.
    fn fail(&mut self, error: CandidacyError) {
        if let Some(candidacy) = &mut self.candidacy {
            candidacy.error.get_or_insert(error);
            let id = candidacy.id;
            self.events.extend([Event::Failed, Event::Done { certain: true }].map(|event| SideEvent::Event(id, event)));
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
            let Membership::Yes(node) = &mut self.membership else { return Poll::Pending };
            let event = std::task::ready!(node.poll_event(cx));
            self.on_node_event(event);
        }
    }

    /// A candidacy that is over makes room for the next one.
    fn note_event(&mut self, event: &SideEvent) {
        if let SideEvent::Event(_, Event::Done { .. }) = event {
            self.candidacy = None;
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Started(result) => self.on_started(result),
            Done::Raised(id, token, result) => self.on_raised(id, token, result),
            Done::Shut => {
                // A group keeps nothing of one who has left.
                let done = self
                    .candidacy
                    .as_ref()
                    .map(|candidacy| SideEvent::Event(candidacy.id, Event::Done { certain: true }));
                self.events.extend(done);
                self.events.push_back(SideEvent::Closed(true));
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
        if let Membership::Yes(node) = &mut self.membership {
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

    /// The member is no more. If that was not our doing, the next candidacy starts it anew.
    fn on_closed(&mut self) {
        let Membership::Yes(node) = std::mem::replace(&mut self.membership, Membership::No) else { return };
        if self.closing {
            self.shut(*node);
        } else {
            self.fail(MemberError::Ended.into());
        }
    }

    fn shut(&mut self, node: Node) {
        self.work.push(Box::pin(async move {
            node.shut().await;
            Done::Shut
        }));
    }

    fn close_node(&mut self) {
        let Membership::Yes(node) = &mut self.membership else { return };
        node.command(Command::Leave);
        node.close();
    }

    /// Which group the tokens are of.
    fn store_id(&self) -> StoreId {
        let known = if let Membership::Yes(node) = &self.membership { node.identity() } else { None };
        known.unwrap_or_else(|| StoreId::new(format!("{}/unknown", self.group_election.group.algorithm())))
    }
}

impl Side for GroupSide {
    fn stand(&mut self, stand: Stand) -> Result<(), CandidacyError> {
        // Those that would stop others ask for a record, and were refused for that.
        let Stand { id, candidate, fences, shared, stonith: _, has_stopped: _ } = stand;
        self.check(&candidate)?;
        shared.on_first_contact(None);
        let Candidate { election, name, value, fenced, hold_until_stopped, unfit, .. } = candidate;
        let rules = TermRules { fenced, hold_until_stopped, unfit };
        let fences = Fences::new(election.clone(), fences);
        if let Membership::Yes(node) = &mut self.membership {
            node.stand(rules, value).map_err(StoreError::from)?;
        } else {
            self.membership = Membership::Starting;
            let (group_election, clock) = (self.group_election.clone(), self.clock.clone());
            self.work.push(Box::pin(async move {
                Done::Started(start(&group_election, &election, &name, (rules, value), clock).await.map(Box::new))
            }));
        }
        self.candidacy = Some(DrivenCandidacy { id, shared, fences, waiting: Vec::new(), error: None });
        self.name_candidate();
        Ok(())
    }

    fn command(&mut self, id: CandidacyId, command: Command) {
        let Some(candidacy) = self.candidacy.as_mut().filter(|candidacy| candidacy.id == id) else { return };
        if let Membership::Starting = self.membership {
            return candidacy.waiting.push(command);
        }
        if let Membership::Yes(node) = &mut self.membership {
            node.command(command);
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        match &self.membership {
            Membership::No => self.events.push_back(SideEvent::Closed(true)),
            Membership::Starting => {}
            Membership::Yes(_) => self.close_node(),
        }
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
