//! Runs a member of a group for the handles of a client: the second runner behind the port, beside the driver of a store.
//!
//! One task per client. The member starts with the first candidate and lasts until the client is closed; it is fit to lead
//! only while there is a candidate. Who leads is the member's affair. What is decided here is how an office is handed over
//! in order: stop the work, confirm that it stopped, release.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use incumbent_core::peers::{Abstention, TransferRefusal};
use incumbent_core::{Candidate, Command, ElectionName, Fault, Loss, SeatId, StoreId, Timestamp, Token};
use incumbent_peers::{MemberId, Node, OperatorRequest, Refused, Wish};
use incumbent_store::{Alarm, Clock, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::desk::{Desk, News};
use super::group::Bond;
use super::start::start;
use crate::candidacy::{Role, SeatEvent};
use crate::error::{SeatError, TransferRefused};
use crate::fence::{Fence, FenceError, FencingToken};
use crate::port::{Phase, Request, Seat, TermState};

/// How long closing may take beyond the grace.
const TIDY: Duration = Duration::from_secs(5);
/// How many heartbeats an heir has to answer a leader that may have just been elected, or that has
/// not heard yet that the heir stands: more than a timeout.
const HEIR_BEATS: u32 = 8;
/// The pause before a fence that cannot be raised for the moment is tried again.
const FENCE_REST: Duration = Duration::from_millis(100);

/// Something that was waited for.
enum Done {
    Started(Result<Arc<Node>, SeatError>),
    /// Of the term with this number.
    Raised(u64, Result<(), FenceError>),
    /// The heir may have answered the leader of the term with this number by now.
    HeirAgain(u64),
    Closed,
}

type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What comes in.
enum Input {
    Request(Option<Request>),
    News(News),
    Done(Done),
    Alarm,
    State,
}

pub(crate) struct Runner {
    bond: Arc<Bond>,
    clock: Arc<dyn Clock>,
    alarm: Box<dyn Alarm>,
    requests: mpsc::UnboundedReceiver<Request>,
    hung_up: bool,
    desk: Arc<Desk>,
    news: mpsc::UnboundedReceiver<News>,
    member: Member,
    chair: Option<Chair>,
    /// Who leads, if it is another member.
    follows: Option<(MemberId, Option<Token>)>,
    terms: u64,
    work: FuturesUnordered<Work>,
    closing: bool,
    replies: Vec<oneshot::Sender<bool>>,
    over: bool,
}

/// This process in the group.
enum Member {
    /// Nobody has stood yet.
    No,
    Starting,
    Yes(Arc<Node>, tokio::sync::watch::Receiver<incumbent_peers::NodeState>),
}

/// The candidate of this client. There is one at a time.
struct Chair {
    id: SeatId,
    election: ElectionName,
    shared: Arc<Seat>,
    fences: Arc<[Arc<dyn Fence>]>,
    /// What it advertises, if the member has not been told yet.
    value: Option<Bytes>,
    hold_until_stopped: bool,
    healthy: bool,
    /// It does not stand again.
    leaving: bool,
    term: Option<Serving>,
    /// A term is over, and the user has not said yet that its work has stopped.
    unstopped: bool,
}

/// The term that this member is in.
struct Serving {
    number: u64,
    state: Arc<TermState>,
    /// The fences are raised, and the user can see it.
    announced: bool,
    called_stale: bool,
    /// The user has said that the work has stopped.
    stopped: bool,
    /// An operator wants it to end: so.
    wish: Option<Handing>,
    /// What the user proclaims, until others can see it.
    proclaiming: Option<(u64, Bytes)>,
    /// The user hands over to another member.
    ceding: bool,
    /// To whom the member was told to hand over, and how often.
    heir: Option<(MemberId, u32)>,
}

struct Handing {
    why: Loss,
    heir: Option<MemberId>,
    hard_stop: Timestamp,
    /// The member has been told.
    begun: bool,
}

impl Runner {
    pub(super) fn new(
        bond: Arc<Bond>,
        clock: Arc<dyn Clock>,
        requests: mpsc::UnboundedReceiver<Request>,
    ) -> io::Result<Runner> {
        let (desk, news) = Desk::new();
        Ok(Runner {
            bond,
            alarm: clock.alarm()?,
            clock,
            requests,
            hung_up: false,
            desk,
            news,
            member: Member::No,
            chair: None,
            follows: None,
            terms: 0,
            work: FuturesUnordered::new(),
            closing: false,
            replies: Vec::new(),
            over: false,
        })
    }

    pub(crate) async fn run(mut self) {
        while !self.over {
            let input = self.next().await;
            self.take_in(input);
        }
        if let Some(chair) = self.chair.take() {
            chair.finish();
        }
        for reply in self.replies.drain(..) {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(true);
        }
    }

    /// Waits for whatever comes first. What ends a term has been heeded at the desk already.
    async fn next(&mut self) -> Input {
        let started = matches!(self.member, Member::Yes(..));
        let (alarm, news, requests, work) = (&mut self.alarm, &mut self.news, &mut self.requests, &mut self.work);
        let state = async {
            if let Member::Yes(_, state) = &mut self.member
                && state.changed().await.is_ok()
            {
                return;
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            () = poll_fn(|cx| alarm.poll_ring(cx)) => Input::Alarm,
            Some(news) = news.recv(), if started => Input::News(news),
            request = requests.recv(), if !self.hung_up => Input::Request(request),
            Some(done) = work.next(), if !work.is_empty() => Input::Done(done),
            () = state => Input::State,
        }
    }

    fn take_in(&mut self, input: Input) {
        match input {
            Input::Request(request) => self.on_request(request),
            Input::News(news) => self.on_news(news),
            Input::Done(Done::Started(result)) => self.on_started(result),
            Input::Done(Done::Raised(term, result)) => self.on_raised(term, result),
            Input::Done(Done::HeirAgain(term)) => self.hand_over_again(term),
            Input::Done(Done::Closed) => self.over = true,
            Input::Alarm => self.on_alarm(),
            Input::State => self.on_state(),
        }
    }

    fn node(&self) -> Option<&Arc<Node>> {
        match &self.member {
            Member::Yes(node, _) => Some(node),
            Member::No | Member::Starting => None,
        }
    }

    fn on_request(&mut self, request: Option<Request>) {
        match request {
            Some(Request::Stand { seat, candidate, fences, shared }) => self.on_stand(seat, candidate, fences, shared),
            Some(Request::Command(seat, command)) => {
                if self.chair.as_ref().is_some_and(|chair| chair.id == seat) {
                    self.on_command(command);
                }
            }
            Some(Request::HandTo(seat, heir)) => self.on_hand_to(seat, heir),
            Some(Request::Lapsed(seat, _)) => self.on_lapsed(seat),
            Some(Request::Close(reply)) => {
                self.replies.push(reply);
                self.close();
            }
            None => {
                self.hung_up = true;
                self.close();
            }
        }
    }

    fn on_stand(&mut self, id: SeatId, candidate: Candidate, fences: Vec<Arc<dyn Fence>>, shared: Arc<Seat>) {
        let refused = match self.bond.check(&candidate.election) {
            Err(error) => Some(SeatError::Store(error)),
            Ok(()) if self.closing => Some(SeatError::Closed),
            Ok(()) if self.chair.is_some() => Some(SeatError::AlreadyInLine),
            Ok(()) => None,
        };
        if let Some(error) = refused {
            return fail(&shared, error);
        }
        shared.on_first_contact(None);
        let Candidate { election, name, value, hold_until_stopped, .. } = candidate;
        let chair = Chair {
            id,
            election: election.clone(),
            shared,
            fences: fences.into(),
            value: None,
            hold_until_stopped,
            healthy: true,
            leaving: false,
            term: None,
            unstopped: false,
        };
        let chair = self.chair.insert(chair);
        match &self.member {
            Member::No => {
                self.member = Member::Starting;
                // What a member of an earlier life still says is for nobody.
                (self.desk, self.news) = Desk::new();
                let (bond, clock, desk) = (self.bond.clone(), self.clock.clone(), self.desk.clone());
                let started = async move { Done::Started(start(&bond, &election, &name, value, clock, desk).await) };
                self.work.push(Box::pin(started));
            }
            Member::Starting => chair.value = Some(value),
            Member::Yes(..) => {
                chair.value = Some(value);
                self.take_seat(&name);
            }
        }
    }

    fn on_started(&mut self, result: Result<Arc<Node>, SeatError>) {
        let node = match result {
            Ok(node) => node,
            Err(error) => {
                self.member = Member::No;
                if let Some(chair) = self.chair.take() {
                    fail(&chair.shared, error);
                }
                self.over |= self.closing;
                return;
            }
        };
        let state = node.state();
        self.member = Member::Yes(node, state);
        self.on_state();
        if self.closing {
            return self.begin_to_close();
        }
        self.take_seat("");
    }

    /// This process is a member, and has another candidate.
    fn take_seat(&mut self, name: &str) {
        let Some(node) = self.node().cloned() else { return };
        let members = self.bond.group.members();
        if members.by_name(name).is_some_and(|named| named.id != node.me()) {
            let what = format!("it is {:?} already, and {name:?} is another member", members.name(node.me()));
            if let Some(chair) = self.chair.take() {
                fail(&chair.shared, SeatError::NoMember { what });
            }
        } else if let Some(chair) = &mut self.chair {
            let _ = chair.shared.name.set(members.name(node.me()).into());
            if let Some(value) = chair.value.take() {
                // The candidate's value has been checked: what is refused here would have been refused there.
                let _ = node.proclaim(value);
            }
        }
        self.fit();
        self.show_following();
    }

    /// Tells the member whether it may lead.
    fn fit(&self) {
        let fit = self.chair.as_ref().is_some_and(|chair| chair.healthy && !chair.leaving && !chair.unstopped);
        if let Some(node) = self.node() {
            node.set_healthy(fit);
        }
    }

    /// The candidate is no leader: whom it follows.
    fn show_following(&mut self) {
        let ahead = self.follows.map(|(leader, _)| self.bond.group.members().name(leader).into());
        let token = self.follows.and_then(|(_, token)| token);
        if let Some(chair) = &self.chair {
            let role = if chair.healthy { Role::Following { ahead, token } } else { Role::Out(Loss::Unhealthy) };
            chair.role(role);
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Release => self.on_released(),
            Command::Leave => {
                if let Some(chair) = &mut self.chair {
                    chair.leaving = true;
                }
                self.give_back_unclaimed();
                self.leave_if_idle();
            }
            Command::Proclaim(number, value) => self.on_proclaim(number, value),
            Command::Healthy(healthy) => {
                if let Some(chair) = &mut self.chair {
                    chair.healthy = healthy;
                    let idle = chair.term.is_none();
                    self.fit();
                    if idle {
                        self.show_following();
                    }
                }
            }
            // Of stores.
            Command::Transfer(..) | Command::Lapsed(_) => {}
        }
    }

    fn on_proclaim(&mut self, number: u64, value: Bytes) {
        let told = self.node().is_some_and(|node| node.proclaim(value.clone()).unwrap_or(false));
        let Some(chair) = &mut self.chair else { return };
        match &mut chair.term {
            Some(serving) if told => {
                serving.proclaiming = Some((number, value));
                self.look_at_proclaimed();
            }
            Some(serving) => serving.proclaimed(number, false),
            // Whoever asked for it hears that the term is over.
            None => {}
        }
    }

    /// Others can see what the member itself tells those who ask.
    fn look_at_proclaimed(&mut self) {
        let Member::Yes(node, state) = &self.member else { return };
        let Some(chair) = &mut self.chair else { return };
        let Some(serving) = &mut chair.term else { return };
        let state = state.borrow();
        let seen = state.leader.as_ref().filter(|view| view.member == node.me()).map(|view| &view.value);
        if let Some((number, _)) = serving.proclaiming.take_if(|(_, value)| seen == Some(value)) {
            serving.proclaimed(number, true);
        }
    }

    /// The work of the term has stopped, says the user.
    fn on_released(&mut self) {
        let Some(chair) = &mut self.chair else { return };
        if std::mem::take(&mut chair.unstopped) {
            self.fit();
            self.show_following();
            return self.leave_if_idle();
        }
        if let Some(serving) = &mut chair.term {
            serving.stopped = true;
            self.let_go();
        }
    }

    /// The work has stopped: the office goes, to the heir if there is one.
    fn let_go(&mut self) {
        let Some(serving) = self.chair.as_mut().and_then(|chair| chair.term.as_mut()) else { return };
        let heir = match &mut serving.wish {
            Some(handing) if !handing.begun => {
                handing.begun = true;
                handing.heir
            }
            Some(_) => return,
            None => None,
        };
        serving.heir = heir.map(|heir| (heir, 1));
        let Some(node) = self.node() else { return };
        match heir {
            Some(heir) => node.transfer(heir),
            None => node.release(),
        };
    }

    fn hand_over_again(&mut self, term: u64) {
        let serving =
            self.chair.as_ref().and_then(|chair| chair.term.as_ref()).filter(|serving| serving.number == term);
        if let (Some((heir, _)), Some(node)) = (serving.and_then(|serving| serving.heir), self.node()) {
            node.transfer(heir);
        }
    }

    /// An office that nobody has taken, and nobody will, is given back.
    fn give_back_unclaimed(&mut self) {
        let Some(chair) = &mut self.chair else { return };
        let unclaimed = chair.shared.state().elected.take().is_some();
        let unseen = chair.term.as_ref().is_some_and(|serving| !serving.announced);
        if unclaimed || unseen {
            self.on_released();
        }
    }

    fn leave_if_idle(&mut self) {
        let idle = |chair: &Chair| chair.leaving && chair.term.is_none() && !chair.unstopped;
        if let Some(chair) = self.chair.take_if(|chair| idle(chair)) {
            self.fit();
            chair.finish();
        }
    }

    fn on_hand_to(&mut self, seat: SeatId, heir: MemberId) {
        let Some(chair) = self.chair.as_mut().filter(|chair| chair.id == seat) else { return };
        match &mut chair.term {
            Some(serving) if serving.wish.is_none() => {
                serving.ceding = true;
                serving.state.ceding.store(true, Ordering::Release);
                serving.heir = Some((heir, 1));
                if let Some(node) = self.node() {
                    node.transfer(heir);
                }
            }
            _ => chair.refuse_transfer(TransferRefusal::NotInOffice.into()),
        }
    }

    /// A user has seen the term end: it must never be extended.
    fn on_lapsed(&mut self, seat: SeatId) {
        let Some(chair) = self.chair.as_ref().filter(|chair| chair.id == seat) else { return };
        let Some(node) = self.node() else { return };
        node.look();
        if !chair.hold_until_stopped && chair.term.is_some() {
            node.release();
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closing, true) {
            return;
        }
        match &self.member {
            Member::No => self.over = true,
            Member::Starting => {}
            Member::Yes(..) => self.begin_to_close(),
        }
    }

    fn begin_to_close(&mut self) {
        if let Some(chair) = &mut self.chair {
            chair.leaving = true;
        }
        self.give_back_unclaimed();
        self.leave_if_idle();
        if let Some(node) = self.node().cloned() {
            let within = self.bond.group.settings().grace + TIDY;
            self.work.push(Box::pin(async move {
                if !node.close(within).await {
                    tracing::debug!("the member did not leave in time");
                }
                Done::Closed
            }));
        }
    }

    fn on_news(&mut self, news: News) {
        match news {
            News::Elected => self.on_elected(),
            News::Stopping(why) => {
                if let Some(chair) = &self.chair {
                    chair.shared.tell(|| SeatEvent::Stopping(why));
                }
                self.give_back_unclaimed();
            }
            News::Unelected(why) => self.on_unelected(why),
            News::Leader { leader, term } => {
                self.follows = Some((leader, term));
                self.show_unless_serving();
            }
            News::Vacant => {
                self.follows = None;
                self.show_unless_serving();
            }
            News::TransferRefused(why) => self.on_transfer_refused(why),
            News::NotVoting(why) => self.on_abstention(why),
            News::Asked(request) => self.on_asked(request),
            News::Ended => self.on_ended(),
        }
    }

    fn show_unless_serving(&mut self) {
        if self.chair.as_ref().is_some_and(|chair| chair.term.is_none() && !chair.unstopped) {
            self.show_following();
        }
    }

    fn on_elected(&mut self) {
        self.follows = None;
        let identity = self.node().and_then(|node| node.identity());
        let fitting = self.chair.as_mut().filter(|chair| !chair.leaving && !chair.unstopped && chair.healthy);
        let Some(chair) = fitting else {
            // Nobody is there to lead: the member had not heard of it yet.
            self.node().map(|node| node.release());
            return;
        };
        let mut office = self.desk.office();
        let Some(office) = &mut *office else { return };
        let token = office.token.map(|token| {
            let unknown = || StoreId::new(format!("{}/unknown", self.bond.group.algorithm()));
            FencingToken::new(token, identity.unwrap_or_else(unknown))
        });
        let state = Arc::new(TermState::new(chair.election.clone(), token, office.deadline, None));
        office.term = Some(state.clone());
        self.terms += 1;
        let serving = Serving {
            number: self.terms,
            state,
            announced: false,
            called_stale: false,
            stopped: false,
            wish: None,
            proclaiming: None,
            ceding: false,
            heir: None,
        };
        chair.term = Some(serving);
        match chair.raise(Duration::ZERO) {
            Some(work) => self.work.push(work),
            None => chair.announce(),
        }
    }

    fn on_raised(&mut self, number: u64, result: Result<(), FenceError>) {
        let Some(chair) = &mut self.chair else { return };
        let Some(serving) = chair.term.as_mut().filter(|serving| serving.number == number) else { return };
        let serves = serving.state.phase.get() == Phase::Serving;
        let error = match result {
            Ok(()) if serves => return chair.announce(),
            Ok(()) => return self.give_back_unclaimed(),
            Err(error) => error,
        };
        tracing::debug!(%error, "a fence could not be raised");
        // A fence that calls us stale twice, while we are in office, knows the history of another group.
        let stale = matches!(error, FenceError::Stale { .. });
        let again = std::mem::replace(&mut serving.called_stale, stale);
        let permanent = if stale { again } else { error.fault() == Fault::Permanent };
        if !permanent {
            match chair.raise(FENCE_REST) {
                Some(work) if serves => self.work.push(work),
                _ => self.give_back_unclaimed(),
            }
            return;
        }
        let error = match &serving.state.token {
            Some(token) if stale => error.seen_leading(&token.store),
            _ => error,
        };
        chair.shared.change(|state| state.failed = Some(SeatError::Fence(error)));
        chair.leaving = true;
        self.fit();
        self.give_back_unclaimed();
    }

    fn on_unelected(&mut self, why: Loss) {
        let Some(chair) = &mut self.chair else { return };
        let Some(serving) = chair.term.take() else { return };
        let why = serving.wish.as_ref().map_or(why, |handing| handing.why);
        serving.state.end(why);
        serving.state.release(true);
        if let Some((number, _)) = serving.proclaiming {
            serving.proclaimed(number, false);
        }
        let unclaimed = chair.shared.state().elected.take().is_some();
        let ceded = serving.ceding && why == Loss::Transferred;
        chair.unstopped = serving.announced && !unclaimed && !serving.stopped && !ceded;
        if serving.announced {
            chair.shared.change(|state| state.role = Role::Out(why));
            chair.shared.tell(|| SeatEvent::Unelected(why));
        }
        self.fit();
        self.leave_if_idle();
        self.show_unless_serving();
    }

    fn on_transfer_refused(&mut self, why: TransferRefusal) {
        let Some(chair) = &mut self.chair else { return };
        if let Some(serving) = &mut chair.term
            && let Some((_, times)) = &mut serving.heir
            && matches!(why, TransferRefusal::HeirSilent | TransferRefusal::HeirUnfit)
            && *times < HEIR_BEATS
        {
            *times += 1;
            let (number, pause) = (serving.number, self.bond.group.settings().renew_every);
            self.work.push(Box::pin(async move {
                sleep(pause).await;
                Done::HeirAgain(number)
            }));
            return;
        }
        match &mut chair.term {
            // The work has stopped for it: whoever is fittest gets the office instead.
            Some(serving) if serving.wish.is_some() => {
                tracing::debug!(%why, "the heir cannot have the office");
                self.node().map(|node| node.release());
            }
            Some(serving) => {
                serving.ceding = false;
                serving.state.ceding.store(false, Ordering::Release);
                chair.refuse_transfer(why.into());
            }
            None => chair.refuse_transfer(why.into()),
        }
    }

    fn on_abstention(&mut self, why: Abstention) {
        match why {
            Abstention::Restarted => tracing::debug!(%why, "this member does not vote yet"),
            Abstention::CannotPersist | Abstention::StateLostAlone => {
                tracing::error!(%why, "this member takes no part any more");
                let Some(chair) = &mut self.chair else { return };
                let error = match why {
                    Abstention::CannotPersist => StoreError::Unavailable { what: why.to_string(), source: None },
                    _ => StoreError::Corrupt { what: why.to_string() },
                };
                chair.shared.change(|state| state.failed = Some(error.into()));
                chair.leaving = true;
                // Whoever stands next starts it anew.
                self.member = Member::No;
                self.leave_if_idle();
            }
            _ => tracing::warn!(%why, "this member does not vote"),
        }
    }

    /// The member is no more. If that was not our doing, whoever stands next starts it anew.
    fn on_ended(&mut self) {
        if self.closing {
            return;
        }
        self.member = Member::No;
        self.follows = None;
        if let Some(chair) = self.chair.take() {
            let what = "the member has ended".to_owned();
            chair.shared.change(|state| {
                state.elected = None;
                state.failed.get_or_insert(SeatError::NoMember { what });
            });
            chair.finish();
        }
    }

    /// An operator wants the leader to step down, or to hand over.
    fn on_asked(&mut self, request: OperatorRequest) {
        let now = self.clock.now();
        let grace = self.bond.group.settings().grace;
        let Some(chair) = &mut self.chair else { return request.refuse(Refused::NotInOffice) };
        let Some(serving) = &mut chair.term else { return request.refuse(Refused::NotInOffice) };
        let serves = serving.state.phase.get() == Phase::Serving;
        if !serving.announced || !serves || serving.ceding || serving.wish.is_some() {
            return request.refuse(Refused::Busy);
        }
        let (why, heir) = match request.what {
            Wish::Resign => (Loss::Resigned, None),
            Wish::Transfer(heir) => (Loss::Transferred, Some(heir)),
        };
        request.accept();
        let hard_stop = serving.state.deadline().min(now + grace);
        serving.wish = Some(Handing { why, heir, hard_stop, begun: false });
        serving.state.stop(why, hard_stop);
        chair.shared.tell(|| SeatEvent::Stopping(why));
        self.alarm.set(Some(hard_stop));
        self.give_back_unclaimed();
    }

    /// The grace of a handover is over.
    fn on_alarm(&mut self) {
        let now = self.clock.now();
        let Some(chair) = &mut self.chair else { return };
        let hold = chair.hold_until_stopped;
        let Some(serving) = &mut chair.term else { return };
        let Some(handing) = &serving.wish else { return };
        if now < handing.hard_stop {
            return self.alarm.set(Some(handing.hard_stop));
        }
        serving.state.end(handing.why);
        if !hold {
            self.let_go();
        }
    }

    fn on_state(&mut self) {
        self.look_at_proclaimed();
        if let Member::Yes(_, state) = &mut self.member {
            state.mark_unchanged();
        }
    }
}

impl Serving {
    fn proclaimed(&self, number: u64, seen: bool) {
        self.state.proclaimed.change(|_| Some((number, seen)));
    }
}

impl Chair {
    fn role(&self, role: Role) {
        let changed = self.shared.state().role != role;
        if changed {
            self.shared.change(|state| state.role = role.clone());
            self.shared.tell(|| SeatEvent::Role(role));
        }
    }

    /// What raises the fences; nothing if there are none, or no token to raise them to.
    fn raise(&self, after: Duration) -> Option<Work> {
        let serving = self.term.as_ref()?;
        let token = serving.state.token.clone()?;
        if self.fences.is_empty() {
            return None;
        }
        let (election, fences, number) = (self.election.clone(), self.fences.clone(), serving.number);
        Some(Box::pin(async move {
            sleep(after).await;
            for fence in fences.iter() {
                if let Err(error) = fence.raise(&election, token.clone()).await {
                    return Done::Raised(number, Err(error));
                }
            }
            Done::Raised(number, Ok(()))
        }))
    }

    /// The user can see the office.
    fn announce(&mut self) {
        let Some(serving) = &mut self.term else { return };
        serving.announced = true;
        let token = serving.state.token.as_ref().map(|token| token.token);
        let state = serving.state.clone();
        self.shared.change(|shared| {
            shared.role = Role::Leading { token };
            shared.elected = Some(state);
        });
        self.shared.tell(|| SeatEvent::Elected(token));
    }

    fn refuse_transfer(&self, why: TransferRefused) {
        self.shared.change(|state| state.refused = (state.refused.0 + 1, Some(why)));
    }

    /// The seat is over. A group keeps nothing of one who has left.
    fn finish(self) {
        if let Some(serving) = &self.term {
            serving.state.end(Loss::Closing);
            serving.state.release(true);
        }
        self.shared.change(|state| state.done = Some(true));
    }
}

fn fail(shared: &Seat, error: SeatError) {
    shared.change(|state| {
        state.failed = Some(error);
        state.done = Some(true);
    });
}
