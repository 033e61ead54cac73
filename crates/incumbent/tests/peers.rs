//! Elections among peers through the public handles: three members in one process, over real
//! connections.

#![cfg(feature = "peers")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::future::Future;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use incumbent::fence::{BoxFuture, Fence, FenceError, FencingToken, MemoryFence};
use incumbent::peers::{Algorithm, Group, MemberId, Members, Rules, Secret};
use incumbent::store::StoreError;
use incumbent::{
    Candidacy, CandidacyError, CandidacyEvent, Client, CloseError, ConnectError, Election, ElectionName, LastTerm,
    Leadership, LossReason, Observation, OperatorError, ReadError, Role, StandError, Token, TransferError,
    TransferRefused, Unfenced,
};
use incumbent_testkit::{TempDir, free_port};
use tokio::sync::Notify;

/// How long anything may take before a test fails. Nothing waits so long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(120);
/// Long enough for a busy machine: nobody is deposed only because nobody let it speak.
const TIMEOUT: Duration = Duration::from_secs(4);

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(what, asking).await;
}

/// Three members, their ports and their folder.
struct TestGroup {
    algorithm: Algorithm,
    members: Members,
    folder: TempDir,
}

impl TestGroup {
    fn new(algorithm: Algorithm) -> TestGroup {
        let folder = TempDir::new("peers");
        let list = ["a", "b", "c"].map(|name| format!("{name}=127.0.0.1:{}", free_port())).join(",");
        TestGroup { algorithm, members: Members::parse(&list).unwrap(), folder }
    }

    fn group(&self) -> Group {
        let secret = Secret::new("a secret of this test alone").unwrap();
        Group::new(self.algorithm, self.members.clone(), secret).with_rules(rules(self.algorithm, TIMEOUT))
    }

    /// A client that becomes this member if it stands.
    fn client(&self, name: &str) -> Client<Unfenced> {
        let rank = self.members.by_name(name).unwrap().id.0;
        let group = self.group().rank(rank);
        let group = if self.algorithm.is_fenced() { group.data(self.folder.path().join(name)) } else { group };
        Client::builder().with_unfenced_group(group).unwrap()
    }

    fn election(&self, name: &str) -> Election<Unfenced> {
        self.client(name).election("jobs/x").unwrap()
    }

    /// The port and the directory of the last life may be in use for a moment.
    async fn stand_again(&self, name: &str) -> Candidacy<Unfenced> {
        let standing = async {
            loop {
                match self.election(name).candidate(name).stand().await {
                    Ok(candidacy) => return candidacy,
                    Err(StandError::Candidacy(CandidacyError::Member(why))) if why.is_taken() => {
                        tokio::task::yield_now().await
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        within("standing", standing).await
    }

    /// Somebody who never stands.
    fn outsider(&self) -> Election<Unfenced> {
        Client::builder().with_unfenced_group(self.group()).unwrap().election("jobs/x").unwrap()
    }

    async fn stand(&self, name: &str) -> Candidacy<Unfenced> {
        let candidate = self.election(name).candidate(name).value(format!("value of {name}"));
        within("standing", candidate.stand()).await.unwrap()
    }

    async fn all(&self) -> Vec<Candidacy<Unfenced>> {
        let mut candidacies = Vec::new();
        for name in ["a", "b", "c"] {
            candidacies.push(self.stand(name).await);
        }
        candidacies
    }
}

fn rules(algorithm: Algorithm, timeout: Duration) -> Rules {
    let url = format!("{algorithm}://?timeout={}ms", timeout.as_millis());
    *Group::from_url(&url).unwrap().rules()
}

/// Waits until one of them is in office.
async fn first_elected(candidacies: &mut [Candidacy<Unfenced>]) -> (usize, Leadership<Unfenced>) {
    let elected = async {
        let waiting = candidacies.iter_mut().enumerate().map(|(at, candidacy)| {
            Box::pin(async move { (at, candidacy.elected().await.unwrap().expect("an election that does not end")) })
        });
        futures_util::future::select_all(waiting).await.0
    };
    within("a leader", elected).await
}

async fn role(candidacy: &Candidacy<Unfenced>, what: &str, wanted: impl Fn(&Role) -> bool) -> Role {
    let mut roles = candidacy.roles();
    within(what, async {
        loop {
            let role = roles.next().await;
            if wanted(&role) {
                return role;
            }
        }
    })
    .await
}

fn follows(name: &str) -> impl Fn(&Role) -> bool + use<'_> {
    move |role| matches!(role, Role::Following { ahead: Some(ahead), .. } if &**ahead == name)
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// A group in which somebody leads. The first election of a group takes a timeout: what can be
/// shown one after the other is shown in one group.
struct Fixture {
    test_group: TestGroup,
    candidacies: Vec<Candidacy<Unfenced>>,
    /// Who leads.
    at: usize,
    office: Option<Leadership<Unfenced>>,
}

impl Fixture {
    async fn open(test_group: TestGroup) -> Fixture {
        let mut candidacies = test_group.all().await;
        let (at, office) = first_elected(&mut candidacies).await;
        Fixture { test_group, candidacies, at, office: Some(office) }
    }

    fn office(&self) -> &Leadership<Unfenced> {
        self.office.as_ref().unwrap()
    }

    fn take_office(&mut self) -> Leadership<Unfenced> {
        self.office.take().unwrap()
    }

    fn leader(&self) -> &'static str {
        NAMES[self.at]
    }

    fn token(&self) -> Token {
        self.office().token_if_any().expect("consensus has tokens").token
    }

    /// Another member, once it follows the leader.
    async fn heir(&self) -> usize {
        let heir = (self.at + 1) % 3;
        role(&self.candidacies[heir], "a heir that answers", follows(self.leader())).await;
        heir
    }

    async fn until_somebody_leads(&mut self) {
        let (at, office) = first_elected(&mut self.candidacies).await;
        (self.at, self.office) = (at, Some(office));
    }

    async fn until_leads(&mut self, at: usize) {
        let office = within("the heir's office", self.candidacies[at].elected()).await.unwrap().unwrap();
        (self.at, self.office) = (at, Some(office));
    }
}

#[tokio::test]
async fn a_consensus_group_can_do_through_these_handles_what_a_store_can() {
    let mut fixture = Fixture::open(TestGroup::new(Algorithm::Consensus)).await;
    there_is_one_leader_with_a_token_and_the_others_know_it(&fixture).await;
    the_deadline_moves_while_a_majority_answers(&fixture).await;
    what_the_leader_proclaims_reaches_observers(&fixture).await;
    events_tell_of_the_leader_and_of_loss(&mut fixture).await;
    a_leader_hands_over_to_the_member_that_it_names(&mut fixture).await;
    an_operator_who_is_no_member_transfers(&mut fixture).await;
    an_operator_who_is_no_member_makes_the_leader_resign(&mut fixture).await;
    a_leader_that_does_not_stop_in_time_loses_the_office_all_the_same(&mut fixture).await;
    an_unhealthy_leader_leaves_its_office_and_comes_back_as_a_follower(&mut fixture).await;
    a_leader_that_withdraws_leads_no_more_and_may_stand_again(&mut fixture).await;
}

async fn there_is_one_leader_with_a_token_and_the_others_know_it(fixture: &Fixture) {
    assert_eq!(fixture.office().last_term(), LastTerm::None);
    let token = Some(fixture.token());
    assert_eq!(fixture.candidacies[fixture.at].role(), Role::Leading { token });
    assert_eq!(fixture.candidacies[fixture.at].name(), fixture.leader());
    assert!(fixture.office().check().is_ok() && fixture.office().remaining() <= TIMEOUT);
    for other in (0..3).filter(|other| *other != fixture.at) {
        let role = role(&fixture.candidacies[other], "a follower", follows(fixture.leader())).await;
        assert_eq!(role, Role::Following { ahead: Some(fixture.leader().into()), token });
    }
    let outsider = fixture.test_group.outsider();
    let leader = within("an answer", outsider.leader()).await.unwrap().into_inner().expect("a leader");
    assert_eq!((leader.name.as_deref(), leader.token), (Some(fixture.leader()), token));
    assert_eq!(leader.value, format!("value of {}", fixture.leader()));
    let people = within("an answer", outsider.candidates()).await.unwrap().into_inner();
    assert_eq!(people.len(), 3);
    assert_eq!(people[0].name.as_deref(), Some(fixture.leader()));
    assert!(people[1..].iter().all(|one| one.token.is_none()), "{people:?}");
}

async fn the_deadline_moves_while_a_majority_answers(fixture: &Fixture) {
    let mut seen = fixture.office().term().deadline();
    for _ in 0..3 {
        let moved = within("another deadline", fixture.office().term().deadline_after(seen)).await;
        assert!(moved > seen, "{moved:?} after {seen:?}");
        seen = moved;
    }
}

async fn what_the_leader_proclaims_reaches_observers(fixture: &Fixture) {
    let mut observer = fixture.test_group.outsider().observe();
    within("a proclamation", fixture.office().proclaim("another value")).await.unwrap();
    let seen = async {
        loop {
            match observer.next().await.unwrap() {
                Observation::Leader(leader) if leader.value == "another value" => return leader,
                Observation::Leader(_) | Observation::Vacant(_) | Observation::Stale | Observation::Current => {}
                other => panic!("{other:?}"),
            }
        }
    };
    let leader = within("the value", seen).await;
    assert_eq!((leader.name.as_deref(), leader.token), (Some(fixture.leader()), Some(fixture.token())));
    let reading = within("an answer", fixture.test_group.outsider().leader()).await.unwrap();
    assert_eq!(reading.get().as_ref().unwrap().value, "another value");
}

async fn events_tell_of_the_leader_and_of_loss(fixture: &mut Fixture) {
    let mut events = fixture.candidacies[fixture.heir().await].events();
    let new_leader = async {
        loop {
            if let CandidacyEvent::NewLeader(leader) = events.next().await.unwrap() {
                return leader;
            }
        }
    };
    assert_eq!(within("an event", new_leader).await.name.as_deref(), Some(fixture.leader()));
    let mut events = fixture.candidacies[fixture.at].events();
    let before = fixture.token();
    within("a resignation", fixture.take_office().resign()).await.unwrap();
    within("an event", async {
        while events.next().await.unwrap() != CandidacyEvent::Unelected(LossReason::Resigned) {}
    })
    .await;
    fixture.until_somebody_leads().await;
    assert!(fixture.token() > before, "the next one has a higher token");
}

async fn a_leader_hands_over_to_the_member_that_it_names(fixture: &mut Fixture) {
    let heir = fixture.heir().await;
    within("a handover", fixture.take_office().transfer_to(NAMES[heir], PATIENCE)).await.unwrap();
    fixture.until_leads(heir).await;
    let refused = within("a refusal", fixture.take_office().transfer_to("nobody", PATIENCE)).await;
    let Err(TransferError::Refused { leadership: office, why: TransferRefused::NoSuchCandidate(name) }) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(name, "nobody");
    assert!(office.check().is_ok(), "it leads on");
    fixture.office = Some(office);
}

async fn an_operator_who_is_no_member_transfers(fixture: &mut Fixture) {
    let heir = fixture.heir().await;
    let operator = fixture.test_group.outsider().operator();
    let term = fixture.office().term();
    let transfer = tokio::spawn(async move { operator.transfer(NAMES[heir], PATIENCE).await });
    // The work is asked to stop first, and the office goes when it has.
    assert_eq!(within("the order to stop", term.stopping()).await.reason(), LossReason::Transferred);
    fixture.office = None;
    assert_eq!(within("the end", term.lost()).await.reason(), LossReason::Transferred);
    within("the transfer", transfer).await.unwrap().unwrap();
    fixture.until_leads(heir).await;
    assert_eq!(fixture.office().last_term(), LastTerm::Closed);
}

async fn an_operator_who_is_no_member_makes_the_leader_resign(fixture: &mut Fixture) {
    let operator = fixture.test_group.outsider().operator();
    let (term, before) = (fixture.office().term(), fixture.token());
    let resign = tokio::spawn(async move { operator.resign(PATIENCE).await });
    assert_eq!(within("the order to stop", term.stopping()).await.reason(), LossReason::Resigned);
    fixture.office = None;
    within("the resignation", resign).await.unwrap().unwrap();
    fixture.until_somebody_leads().await;
    assert!(fixture.token() > before);
}

async fn a_leader_that_does_not_stop_in_time_loses_the_office_all_the_same(fixture: &mut Fixture) {
    let (heir, before) = (fixture.heir().await, fixture.at);
    within("the transfer", fixture.test_group.outsider().operator().transfer(NAMES[heir], PATIENCE)).await.unwrap();
    let office = fixture.take_office();
    assert!(office.check().is_err(), "the grace is over");
    fixture.until_leads(heir).await;
    assert_eq!(fixture.office().last_term(), LastTerm::Unfenced, "its work goes on");
    // The one that has not stopped does not lead again before it has.
    assert_eq!(fixture.candidacies[before].role(), Role::Out(LossReason::Transferred));
    drop(office);
    role(&fixture.candidacies[before], "a follower", follows(NAMES[heir])).await;
}

async fn an_unhealthy_leader_leaves_its_office_and_comes_back_as_a_follower(fixture: &mut Fixture) {
    let before = fixture.at;
    fixture.candidacies[before].set_healthy(false);
    assert_eq!(within("the order to stop", fixture.office().stopping()).await.reason(), LossReason::Unhealthy);
    fixture.office = None;
    role(&fixture.candidacies[before], "out of the line", |role| *role == Role::Out(LossReason::Unhealthy)).await;
    fixture.until_somebody_leads().await;
    assert_ne!(fixture.at, before);
    fixture.candidacies[before].set_healthy(true);
    role(&fixture.candidacies[before], "a follower", follows(fixture.leader())).await;
}

async fn a_leader_that_withdraws_leads_no_more_and_may_stand_again(fixture: &mut Fixture) {
    let (outsider, name) = (fixture.test_group.outsider(), fixture.leader());
    let first = fixture.candidacies.remove(fixture.at);
    fixture.office = None;
    within("a withdrawal", first.withdraw()).await.unwrap();
    fixture.until_somebody_leads().await;
    let listed =
        async || outsider.candidates().await.unwrap().get().iter().any(|one| one.name.as_deref() == Some(name));
    until("the one that withdrew is not listed", async || !listed().await).await;
    let again = fixture.test_group.stand_again(name).await;
    until("it is listed again", listed).await;
    drop(again);
}

#[tokio::test]
async fn members_that_go_one_after_the_other_take_their_office_with_them() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let mut clients: Vec<_> = NAMES.iter().map(|name| test_group.client(name)).collect();
    let mut candidacies = Vec::new();
    for (client, name) in clients.iter().zip(NAMES) {
        let candidate = client.election("jobs/x").unwrap().candidate(name);
        candidacies.push(within("standing", candidate.stand()).await.unwrap());
    }
    let (at, office) = first_elected(&mut candidacies).await;

    // A client that is closed lets the work stop, gives the office back and leaves the group.
    let term = office.term();
    let work = tokio::spawn(async move {
        let why = office.stopping().await.reason();
        drop(office);
        why
    });
    within("closing", clients.remove(at).close(PATIENCE)).await.unwrap();
    assert_eq!(within("the work", work).await.unwrap(), LossReason::Closing);
    assert!(term.check().is_err());
    let address = &test_group.members.get(MemberId(at as u16 + 1)).unwrap().address;
    TcpListener::bind(&**address).expect("the port is free");
    candidacies.remove(at);
    let (at, office) = first_elected(&mut candidacies).await;

    // The one that is left has no majority: it has to stop before its deadline.
    drop((candidacies.remove(1 - at), clients.remove(1 - at)));
    let lost = within("the order to stop", office.stopping()).await;
    assert_eq!(lost.reason(), LossReason::LocalDeadline);
    let lost = within("the end of the term", office.lost()).await;
    assert_eq!(lost.reason(), LossReason::LocalDeadline);
    assert!(office.check().is_err());
    assert_eq!(office.remaining(), Duration::ZERO);
}

#[tokio::test]
async fn a_group_that_restarts_goes_on_with_higher_tokens_and_observers_see_it() {
    let mut fixture = Fixture::open(TestGroup::new(Algorithm::Consensus)).await;
    let before = fixture.office().token_if_any().unwrap().clone();
    let mut observer = fixture.test_group.outsider().observe();
    let mut seen = async |wanted: fn(&Observation) -> bool| {
        let seen = async {
            loop {
                let seen = observer.next().await.unwrap();
                if wanted(&seen) {
                    return seen;
                }
            }
        };
        within("an observation", seen).await
    };
    seen(|seen| matches!(seen, Observation::Leader(_))).await;
    fixture.office = None;
    fixture.candidacies.clear();
    seen(|seen| *seen == Observation::Stale).await;

    for name in NAMES {
        let candidacy = fixture.test_group.stand_again(name).await;
        fixture.candidacies.push(candidacy);
    }
    fixture.until_somebody_leads().await;
    let after = fixture.office().token_if_any().unwrap().clone();
    assert!(after.get() > before.get());
    assert_eq!(after.store, before.store, "it is the same group");
    assert_ne!(fixture.office().last_term(), LastTerm::None, "that is on their disks, too");
    seen(|seen| *seen == Observation::Current).await;
    let Observation::Leader(leader) = seen(|seen| matches!(seen, Observation::Leader(_))).await else { unreachable!() };
    assert!(leader.token > Some(before.token), "{leader:?}");
}

#[tokio::test]
async fn a_fence_is_raised_before_the_office_is_seen() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let fence = Arc::new(MemoryFence::new(&ElectionName::new("jobs/x").unwrap(), "the data"));
    // A group of one needs nobody's answers, so its timeout may be short.
    let alone = Members::new(test_group.members.by_name("a").cloned()).unwrap();
    let secret = Secret::new("a secret of this test alone").unwrap();
    let group = Group::new(Algorithm::Consensus, alone, secret).data(test_group.folder.path().join("a"));
    let client = Client::builder().with_group(group.with_rules(rules(test_group.algorithm, TIMEOUT / 20))).unwrap();
    let candidate = client.election("jobs/x").unwrap().candidate("a").fence(fence.clone());
    let mut candidacy = within("standing", candidate.stand()).await.unwrap();
    let first = within("an office", candidacy.elected()).await.unwrap().unwrap();
    let old = first.token().clone();
    assert_eq!(fence.write(&old, |data| *data).unwrap(), "the data");
    within("a resignation", first.resign()).await.unwrap();
    let next = within("an office", candidacy.elected()).await.unwrap().unwrap();
    assert!(next.token().get() > old.get());
    assert!(fence.write(&old, |_| ()).is_err(), "the first is shut out");
}

/// A fence that blocks the thread which polls it, until it is let go.
#[derive(Debug)]
struct Blocking {
    raised: Mutex<Vec<FencingToken>>,
    begun: Notify,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Fence for Blocking {
    fn raise<'a>(&'a self, _: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            self.raised.lock().unwrap().push(to);
            self.begun.notify_one();
            // The other end is gone when the test is over.
            let _ = self.gate.lock().unwrap().recv();
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fence_that_blocks_stops_no_vote_and_keeps_nobody_else_out_of_office() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let (let_go, gate) = mpsc::channel();
    let (raised, begun) = (Mutex::default(), Notify::new());
    let fence = Arc::new(Blocking { raised, begun, gate: Mutex::new(gate) });
    let mut b = test_group.stand("b").await;
    b.set_healthy(false);
    let third = test_group.client("c");
    let c = within("standing", third.election("jobs/x").unwrap().candidate("c").stand()).await.unwrap();
    c.set_healthy(false);
    let group = test_group.group().rank(1).data(test_group.folder.path().join("a"));
    let client = Client::builder().with_group(group).unwrap();
    let candidate = client.election("jobs/x").unwrap().candidate("a").fence(fence.clone());
    let mut candidacy = within("standing", candidate.stand()).await.unwrap();
    within("the fence", fence.begun.notified()).await;
    // With the third gone, nobody is elected without the vote of the one whose fence blocks.
    third.close(PATIENCE).await.unwrap();
    b.set_healthy(true);
    let office = within("an office for another", b.elected()).await.unwrap().unwrap();
    let token = office.token_if_any().unwrap().clone();
    assert_eq!(fence.raised.lock().unwrap().len(), 1, "one that blocks is not begun a second time beside it");
    // It may stand again when the fence is free.
    let_go.send(()).unwrap();
    drop(let_go);
    b.set_healthy(false);
    within("a resignation", office.resign()).await.unwrap();
    let office = within("an office", candidacy.elected()).await.unwrap().unwrap();
    assert!(office.token().get() > token.get());
}

#[tokio::test]
async fn a_client_that_could_not_be_a_member_can_when_the_place_is_free() {
    let test_group = TestGroup::new(Algorithm::Bully);
    let address = &test_group.members.by_name("c").unwrap().address;
    let squatter = TcpListener::bind(&**address).unwrap();
    let client = test_group.client("c");
    let election = client.election("jobs/x").unwrap();
    let error = within("an answer", election.candidate("c").stand()).await.unwrap_err();
    assert!(matches!(&error, StandError::Candidacy(CandidacyError::Member(why)) if why.is_taken()), "{error:?}");
    drop(squatter);
    let mut candidacy = within("standing", election.candidate("c").stand()).await.unwrap();
    let office = within("an office", candidacy.elected()).await.unwrap().unwrap();
    drop(office);
    // The member lives on without a candidate, answers, and takes another one.
    within("a withdrawal", candidacy.withdraw()).await.unwrap();
    let people = within("an answer", election.candidates()).await.unwrap().into_inner();
    assert_eq!(people, [], "it does not stand");
    let candidacy = within("standing", election.candidate("c").value("another").stand()).await.unwrap();
    until("it is listed with another value", async || {
        election.candidates().await.unwrap().get().iter().any(|one| one.value == "another")
    })
    .await;
    drop(candidacy);
}

#[tokio::test]
async fn what_peers_cannot_do_is_refused_by_name() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let operator = test_group.outsider().operator();
    let refused = [
        ("pause", operator.pause(PATIENCE).await.unwrap_err()),
        ("resume", operator.resume(Duration::MAX).await.unwrap_err()),
        ("freeze", operator.freeze(None, PATIENCE).await.unwrap_err()),
        ("unfreeze", operator.unfreeze(PATIENCE).await.unwrap_err()),
        ("bench", operator.bench("a", None, PATIENCE).await.unwrap_err()),
        ("bench", operator.foresee_bench("a", PATIENCE).await.unwrap_err()),
        ("unbench", operator.unbench("a", PATIENCE).await.unwrap_err()),
        ("depose", operator.depose(None, Duration::MAX).await.unwrap_err()),
        ("end", operator.end(PATIENCE).await.unwrap_err()),
    ];
    for (what, error) in refused {
        let text = error.to_string();
        assert!(
            matches!(error, OperatorError::Unsupported { algorithm: "consensus", act, .. } if act == what),
            "{error:?}"
        );
        assert!(text.contains(&format!("a consensus election cannot {what}")), "{text}");
    }
    for algorithm in [Algorithm::Bully, Algorithm::Ring] {
        let operator = TestGroup::new(algorithm).outsider().operator();
        let error = operator.transfer("a", PATIENCE).await.unwrap_err();
        assert!(matches!(error, OperatorError::Unsupported { act: "transfer", .. }), "{error:?}");
        assert!(error.to_string().contains("rank decides"), "{error}");
    }
}

#[tokio::test]
async fn code_that_needs_tokens_gets_no_bully_and_no_ring() {
    for algorithm in [Algorithm::Bully, Algorithm::Ring] {
        let error = Client::builder().connect(&format!("{algorithm}://")).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unfenced { algorithm: named } if named == algorithm), "{error:?}");
        assert!(error.to_string().contains("connect_unfenced"), "{error}");
        Client::builder().connect_unfenced(&format!("{algorithm}://")).await.unwrap();
    }
    let error = Client::builder().ttl(TIMEOUT).connect("consensus://").await.unwrap_err();
    assert!(error.to_string().contains("&timeout="), "{error}");
    let error = Client::builder().grace(TIMEOUT).connect("consensus://").await.unwrap_err();
    assert!(error.to_string().contains("cannot be safe"), "{error}");
}

#[tokio::test]
async fn a_client_of_a_group_knows_one_election() {
    let test_group = TestGroup::new(Algorithm::Bully);
    let client = test_group.client("a");
    let _candidacy = within("standing", client.election("jobs/x").unwrap().candidate("a").stand()).await.unwrap();
    let error = within("an answer", client.election("jobs/y").unwrap().leader()).await.unwrap_err();
    assert!(matches!(&error, ReadError::Store(StoreError::Misuse { what }) if what.contains("jobs/x")), "{error:?}");
    let other = client.election("jobs/y").unwrap().candidate("a");
    let error = within("an answer", other.stand()).await.unwrap_err();
    assert!(matches!(error, StandError::Candidacy(CandidacyError::Store(StoreError::Misuse { .. }))), "{error:?}");
    let twice = client.election("jobs/x").unwrap().candidate("a");
    let error = within("an answer", twice.stand()).await.unwrap_err();
    assert!(matches!(error, StandError::Candidacy(CandidacyError::AlreadyInLine)), "{error:?}");
}

#[tokio::test]
async fn a_member_that_runs_already_cannot_run_twice() {
    let test_group = TestGroup::new(Algorithm::Ring);
    let _first = test_group.stand("a").await;
    let error = within("an answer", test_group.election("a").candidate("a").stand()).await.unwrap_err();
    assert!(matches!(&error, StandError::Candidacy(CandidacyError::Member(why)) if why.is_taken()), "{error:?}");
    assert!(error.to_string().contains("cannot listen"), "{error}");
}

#[tokio::test]
async fn somebody_with_another_secret_or_another_election_gets_no_answer() {
    let test_group = TestGroup::new(Algorithm::Bully);
    let _candidacies = test_group.all().await;
    let secret = Secret::new("another secret altogether").unwrap();
    let group = Group::new(test_group.algorithm, test_group.members.clone(), secret);
    let stranger = Client::builder().with_unfenced_group(group).unwrap().election("jobs/x").unwrap();
    let error = within("an answer", stranger.leader()).await.unwrap_err();
    assert!(matches!(error, ReadError::Store(StoreError::Denied { .. })), "{error:?}");
    assert!(error.to_string().contains("the secrets differ"), "{error}");
    assert!(!error.to_string().contains("another secret altogether"));
    let outsider = Client::builder().with_unfenced_group(test_group.group()).unwrap();
    let error = within("an answer", outsider.election("jobs/y").unwrap().leader()).await.unwrap_err();
    assert!(matches!(error, ReadError::Store(StoreError::Denied { .. })), "{error:?}");
    assert!(error.to_string().contains("another election"), "{error}");
}

#[tokio::test]
async fn an_operator_of_peers_may_wait_for_ever() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let operator = test_group.outsider().operator();
    within("an answer", operator.found(Duration::MAX)).await.expect_err("nobody is there");
    within("an answer", operator.readmit("a", Duration::MAX)).await.expect_err("nobody is there");
}

#[tokio::test]
async fn too_few_members_are_no_vacancy_but_not_knowing() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let _one = test_group.stand("a").await;
    let outsider = test_group.outsider();
    let error = within("an answer", outsider.leader()).await.unwrap_err();
    assert!(error.to_string().contains("1 of 3 members answer"), "{error}");
    let status = within("an answer", outsider.status()).await.unwrap().into_inner();
    let group = status.group.as_ref().expect("a group");
    assert!(status.vacant && status.leader().is_none());
    assert_eq!((group.members, group.answering, group.needed), (3, 1, 2));
}

/// Bully and ring: the same from outside.
mod ranks {
    use super::*;

    /// Shows it for both, at the same time: they mostly wait.
    async fn both(show: impl AsyncFn(Algorithm)) {
        tokio::join!(show(Algorithm::Bully), show(Algorithm::Ring));
    }

    #[tokio::test]
    async fn the_highest_rank_leads_without_a_token_and_without_a_deadline() {
        both(async |algorithm| {
            let test_group = TestGroup::new(algorithm);
            let mut candidacies = test_group.all().await;
            let office = settled(&mut candidacies).await;
            assert!(office.token_if_any().is_none());
            assert_eq!(candidacies[2].role(), Role::Leading { token: None });
            assert_eq!(office.term().deadline(), incumbent::Timestamp::MAX);
            let outsider = test_group.outsider();
            let leader = within("an answer", outsider.leader()).await.unwrap().into_inner().unwrap();
            assert_eq!((leader.name.as_deref(), leader.token, leader.id), (Some("c"), None, None));
            assert_eq!(leader.value, "value of c");
        })
        .await;
    }

    /// All follow the highest.
    async fn settled(candidacies: &mut [Candidacy<Unfenced>]) -> Leadership<Unfenced> {
        let (lower, highest) = candidacies.split_at_mut(2);
        for candidacy in lower.iter() {
            role(candidacy, "a follower of the highest", follows("c")).await;
        }
        // Those that led for a moment, before the highest was heard, have lost it.
        within("an office", highest[0].elected()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn when_the_highest_dies_the_next_one_leads() {
        both(async |algorithm| {
            let test_group = TestGroup::new(algorithm);
            let mut candidacies = test_group.all().await;
            let office = settled(&mut candidacies).await;
            candidacies.pop();
            drop(office);
            role(&candidacies[0], "a follower of the second", follows("b")).await;
            role(&candidacies[1], "a leader", |role| matches!(role, Role::Leading { token: None })).await;
        })
        .await;
    }

    #[tokio::test]
    async fn a_leader_resigns_when_an_operator_asks_and_when_it_wants_to() {
        both(async |algorithm| {
            let test_group = TestGroup::new(algorithm);
            let mut candidacies = test_group.all().await;
            let office = settled(&mut candidacies).await;
            let operator = test_group.outsider().operator();
            let resign = tokio::spawn(async move { operator.resign(PATIENCE).await });
            assert_eq!(within("the order to stop", office.stopping()).await.reason(), LossReason::Resigned);
            within("a resignation", office.resign()).await.unwrap();
            within("the operator's answer", resign).await.unwrap().unwrap();
        })
        .await;
    }

    #[tokio::test]
    async fn a_healthy_leader_of_lower_rank_stays_where_that_is_wanted() {
        both(async |algorithm| {
            let test_group = TestGroup::new(algorithm);
            let patient = |name: &str| {
                let rank = test_group.members.by_name(name).unwrap().id.0;
                let rules = match rules(algorithm, TIMEOUT) {
                    Rules::Bully(mut rules) => {
                        rules.take_over = false;
                        Rules::Bully(rules)
                    }
                    Rules::Ring(mut rules) => {
                        rules.take_over = false;
                        Rules::Ring(rules)
                    }
                    other => other,
                };
                let group = test_group.group().rank(rank).with_rules(rules);
                Client::builder().with_unfenced_group(group).unwrap().election("jobs/x").unwrap().candidate(name)
            };
            // The highest is there from the start, but not fit to lead before the lowest does.
            let highest = within("standing", patient("c").stand()).await.unwrap();
            highest.set_healthy(false);
            let mut lowest = within("standing", patient("a").stand()).await.unwrap();
            let office = within("an office", lowest.elected()).await.unwrap().unwrap();
            highest.set_healthy(true);
            role(&highest, "a follower of the lower", follows("a")).await;
            assert!(office.check().is_ok());
        })
        .await;
    }

    #[tokio::test]
    async fn with_the_majority_rule_one_member_alone_does_not_lead() {
        both(async |algorithm| {
            let test_group = TestGroup::new(algorithm);
            let strict = |name: &str| {
                let rank = test_group.members.by_name(name).unwrap().id.0;
                let url = format!("{algorithm}://?timeout={}ms&majority=yes", TIMEOUT.as_millis());
                let rules = *Group::from_url(&url).unwrap().rules();
                let group = test_group.group().rank(rank).with_rules(rules);
                Client::builder().with_unfenced_group(group).unwrap().election("jobs/x").unwrap().candidate(name)
            };
            let mut highest = within("standing", strict("c").stand()).await.unwrap();
            let second = within("standing", strict("b").stand()).await.unwrap();
            let office = within("an office", highest.elected()).await.unwrap().unwrap();
            assert!(office.remaining() <= TIMEOUT, "its term is bounded");
            drop(second);
            assert_eq!(within("the end", office.lost()).await.reason(), LossReason::LocalDeadline);
        })
        .await;
    }
}

/// Nobody else is elected before work that is held has stopped, however long that takes; and a
/// client is closed when every office is given back, and not before.
#[tokio::test(flavor = "multi_thread")]
async fn closing_a_client_gives_no_office_back_whose_work_is_held_until_it_has_stopped() {
    let test_group = TestGroup::new(Algorithm::Consensus);
    let mut clients = Vec::new();
    let mut candidacies = Vec::new();
    for name in ["a", "b", "c"] {
        let client = test_group.client(name);
        let candidate = client.election("jobs/x").unwrap().candidate(name).hold_until_stopped();
        candidacies.push(within("standing", candidate.stand()).await.unwrap());
        clients.push(client);
    }
    let (at, leadership) = first_elected(&mut candidacies).await;
    let client = clients.remove(at);
    drop(candidacies.remove(at));
    // Longer than the grace, and than what a member is given to leave once every handle is gone.
    let waited = client.settings().grace + Duration::from_secs(11);
    assert_eq!(client.close(waited).await, Err(CloseError::TimedOut { waited }));
    let leads = |candidacy| matches!(Candidacy::role(candidacy), Role::Leading { .. });
    assert!(!candidacies.iter().any(leads), "another leads beside work that is held: {candidacies:?}");
    drop(leadership);
    first_elected(&mut candidacies).await;
}
