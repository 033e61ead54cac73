//! Histories that random worlds hardly meet, one for each rule that they would not catch: what it
//! is for, and what happens without it.

use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{
    Clock, ElectionName, Held, Incarnation, NewEntry, Place, Session, Store, StoreError, StoreId, Token, Version,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::model::{Carry, Drifting, Group, Model, Network, SLOW, ServerRule, lock};
use crate::redlock::rounds::Rounds;
use crate::redlock::rules::{Rule, Rules};
use crate::redlock::server::{Reply, Request, Stay, Verb};
use crate::redlock::{RedlockStore, WITHIN};

const TTL: Duration = Duration::from_secs(1);

/// Five servers, and clients that have true clocks.
struct Fixture {
    group: Group,
    rules: Rules,
}

impl Fixture {
    fn new(rules: Rules, left_out: Option<ServerRule>) -> Fixture {
        Fixture { group: Group::new(5, left_out.as_slice(), Network::new(1, false)), rules }
    }

    fn store(&self, client: usize) -> RedlockStore {
        self.store_with(client, None)
    }

    fn store_with(&self, client: usize, refound: Option<&str>) -> RedlockStore {
        let clock = Arc::new(Drifting { began: lock(&self.group.network).began, rate: 1_000_000 });
        RedlockStore::with_servers(self.group.links(client), clock, refound.map(str::to_owned), self.rules)
    }

    fn cut(&self, client: usize, servers: &[usize]) {
        let links = servers.iter().map(|server| (client, *server));
        lock(&self.group.network).cut.extend(links);
    }

    fn mend(&self, client: usize) {
        lock(&self.group.network).cut.retain(|(cut, _)| *cut != client);
    }

    fn lose(&self, servers: &[usize]) {
        servers.iter().for_each(|server| lock(&self.group.servers[*server]).lose());
    }

    /// A session of this client.
    async fn session(&self, client: usize, ttl: Duration) -> Arc<dyn Session> {
        self.store(client).open_session(ttl).await.unwrap()
    }

    /// One that leads, on the servers that its client reaches.
    async fn leader(&self, client: usize, ttl: Duration) -> (Arc<dyn Session>, Held) {
        let session = self.session(client, ttl).await;
        let held = leads_within(&*session, client, ttl * 3).await.expect("nobody else is there");
        (session, held)
    }

    /// A session that led on all servers, and leads no more.
    async fn former_leader(&self, client: usize) -> Arc<dyn Session> {
        let (session, held) = self.leader(client, TTL).await;
        session.withdraw(&held, None).await.unwrap();
        session
    }

    /// Who leads next where this client gets, if anybody can.
    async fn next_leader(&self, client: usize) -> Option<Held> {
        let session = self.store(client).open_session(TTL).await.ok()?;
        leads_within(&*session, client, TTL * 4).await
    }

    /// Looks at the servers, slowly.
    fn look_slowly(&self, client: usize) -> JoinHandle<Result<StoreId, StoreError>> {
        lock(&self.group.network).slow = Some(client);
        let store = self.store(client);
        tokio::spawn(async move { settled(&store).await })
    }
}

/// A candidate comes, and founds or mends the store.
async fn settled(store: &RedlockStore) -> Result<StoreId, StoreError> {
    Ok(store.open_session(WITHIN * 10).await?.store_id())
}

fn jobs() -> ElectionName {
    ElectionName::new("jobs").unwrap()
}

fn entry(number: usize) -> NewEntry {
    NewEntry::new(Incarnation::from_bits(u128::MAX / 7 * (number as u128 + 1)), "a", "value")
}

/// One attempt.
async fn enlist(session: &dyn Session, client: usize) -> Result<Place, StoreError> {
    Ok(session.enlist(&jobs(), &entry(client)).await?.place)
}

/// Tries again and again.
async fn leads_within(session: &dyn Session, client: usize, within: Duration) -> Option<Held> {
    let until = Instant::now() + within;
    while Instant::now() < until {
        match enlist(session, client).await {
            Ok(Place::Leading(held)) => return Some(held),
            // As the library would, so that the session lives.
            _ => _ = session.renew(&[]).await,
        }
        sleep(TTL / 20).await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_store_is_founded_once_by_all_who_come_at_the_same_time_and_nobody_leads_for_a_ttl() {
    for (left_out, waits) in [(None, true), (Some(ServerRule::HoldAfterFounding), false)] {
        let fixture = Fixture::new(Rules::default(), left_out);
        let (one, other) = (fixture.store(0), fixture.store(1));
        let (one, other) = tokio::join!(one.open_session(TTL), other.open_session(TTL));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.store_id(), other.store_id());
        // All of them may have been emptied a moment ago.
        assert_eq!(enlist(&*one, 0).await.is_err(), waits, "{left_out:?}");
        assert!(leads_within(&*one, 0, TTL * 2).await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_founding_that_was_given_up_half_way_is_completed() {
    let fixture = Fixture::new(Rules::default(), None);
    // Its seeds reach two servers of five.
    let founding = fixture.look_slowly(0);
    sleep(SLOW + SLOW / 2).await;
    fixture.cut(0, &[0, 1, 2]);
    sleep(SLOW * 2).await;
    founding.abort();
    let belong = fixture.group.servers.iter().filter(|server| !lock(server).store().is_empty());
    assert_eq!(belong.count(), 2);
    let session = fixture.session(1, TTL).await;
    let named = |server: usize| session.store_id().as_str().contains(&format!("{server:04x}0000"));
    assert!((0..5).all(named), "{:?}", session.store_id());
    assert!(leads_within(&*session, 1, TTL * 3).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn two_of_five_may_be_away_and_with_three_away_the_error_says_so() {
    let fixture = Fixture::new(Rules::default(), None);
    let (session, held) = fixture.leader(0, TTL).await;
    fixture.cut(1, &[0, 1]);
    let other = fixture.session(1, TTL).await;
    let behind = enlist(&*other, 1).await.unwrap();
    assert!(matches!(behind, Place::Behind { ref ahead, .. } if ahead.token == held.token), "{behind:?}");
    session.withdraw(&held, None).await.unwrap();
    let next = leads_within(&*other, 1, TTL).await.expect("three will do");
    assert!(next.token > held.token);
    fixture.cut(1, &[2]);
    let error = other.renew(std::slice::from_ref(&next)).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("it takes 3 of 5 servers") && said.contains("server-2"), "{said}");
    assert!(matches!(error, StoreError::Unavailable { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_unproven_while_a_majority_may_have_it_and_gone_when_none_can() {
    let fixture = Fixture::new(Rules::default(), None);
    fixture.session(0, TTL).await;
    fixture.cut(0, &[3, 4]);
    let (session, held) = fixture.leader(0, TTL).await;
    fixture.mend(0);
    let named = std::slice::from_ref(&held);
    let renewal = session.renew(named).await.unwrap();
    assert_eq!((renewal.gone, renewal.unproven), (vec![], vec![]));
    fixture.cut(0, &[2]);
    let renewal = session.renew(named).await.unwrap();
    assert_eq!((renewal.gone, renewal.unproven), (vec![], vec![held.clone()]));
    fixture.mend(0);
    fixture.lose(&[2]);
    let renewal = session.renew(named).await.unwrap();
    assert_eq!((renewal.gone, renewal.unproven), (vec![held.clone()], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_emptied_waits_for_the_longest_ttl_that_the_others_know() {
    for (rules, overlaps) in [(Rules::default(), false), (Rules::without(Rule::WaitAfterLoss), true)] {
        let fixture = Fixture::new(rules, None);
        fixture.session(0, TTL).await;
        fixture.cut(0, &[3, 4]);
        // It renews only once, at the end of its long TTL.
        let (_session, held) = fixture.leader(0, TTL * 10).await;
        fixture.lose(&[2]);
        let rival = fixture.session(1, TTL).await;
        let next = leads_within(&*rival, 1, TTL * 8).await;
        assert_eq!(next.is_some(), overlaps, "{held:?} and {next:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_others_know_is_read_after_a_loss_was_seen() {
    for (rules, comes_twice) in
        [(Rules::default(), false), (Rules::without_both(Rule::LossSeenFirst, Rule::LeapAfterLoss), true)]
    {
        let fixture = Fixture::new(rules, None);
        let session = fixture.former_leader(0).await;
        fixture.lose(&[4]);
        // A slow one looks: at 4, which is empty, and at the counters of the others.
        let looking = fixture.look_slowly(1);
        sleep(SLOW + SLOW / 4).await;
        // Meanwhile a token is given by 0, 1 and 2, and 2 forgets it.
        fixture.cut(0, &[3, 4]);
        let Ok(Place::Leading(newest)) = enlist(&*session, 0).await else { panic!("nobody else is there") };
        session.withdraw(&newest, None).await.unwrap();
        fixture.lose(&[2]);
        looking.await.unwrap().unwrap();
        // Those who do not know it must not elect anybody with the same number.
        fixture.cut(2, &[0, 1]);
        let last = fixture.next_leader(2).await;
        assert_eq!(last.is_some_and(|last| last.token <= newest.token), comes_twice);
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_being_written_while_a_server_is_told_what_others_know_is_not_given_again() {
    for (rules, comes_twice) in [(Rules::default(), false), (Rules::without(Rule::LeapAfterLoss), true)] {
        let fixture = Fixture::new(rules, None);
        let session = fixture.session(0, TTL).await;
        // No two were founded in the very same millisecond: since then tokens were given to all.
        for server in &fixture.group.servers {
            lock(server).season();
            lock(server).count_from(1_000);
        }
        // 0, 1 and 2 take the token, 0 and 1 late; the others are out of reach for both clients.
        lock(&fixture.group.network).carry = Some(|client, server, verb| match (client, server, verb) {
            (0, 3 | 4, _) | (2, 0 | 1, _) => Some((TTL * 100, false)),
            (0, 0 | 1, Verb::Number { .. }) => Some((TTL / 20, true)),
            _ => None,
        });
        let claimant = session.clone();
        let claiming = tokio::spawn(async move { enlist(&*claimant, 0).await });
        // Those out of reach are waited for; then comes the second round.
        sleep(TTL / 10 + TTL / 50).await;
        fixture.lose(&[2]);
        settled(&fixture.store(1)).await.unwrap();
        assert!(!lock(&fixture.group.servers[2]).store().is_empty(), "it was told what others know");
        let claimed = claiming.await.unwrap();
        let Ok(Place::Leading(first)) = claimed else { panic!("{claimed:?}") };
        session.withdraw(&first, None).await.unwrap();
        let (_session, next) = fixture.leader(2, TTL).await;
        assert_eq!(next.token <= first.token, comes_twice, "{next:?} after {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_emptied_learns_from_a_majority_of_the_others() {
    for (rules, comes_twice) in
        [(Rules::default(), false), (Rules::without_both(Rule::ReseedFromMajority, Rule::LeapAfterLoss), true)]
    {
        let fixture = Fixture::new(rules, None);
        let session = fixture.former_leader(0).await;
        fixture.cut(0, &[3, 4]);
        let Ok(Place::Leading(newest)) = enlist(&*session, 0).await else { panic!("nobody else is there") };
        session.withdraw(&newest, None).await.unwrap();
        fixture.lose(&[2]);
        // It sees 1, 3 and 4, which are a majority; when it looks again, 1 is out of reach.
        fixture.cut(1, &[0]);
        let looking = fixture.look_slowly(1);
        sleep(SLOW * 2 - SLOW / 4).await;
        fixture.cut(1, &[1]);
        looking.await.unwrap().unwrap();
        fixture.cut(2, &[0, 1]);
        let last = fixture.next_leader(2).await;
        assert_eq!(last.is_some_and(|last| last.token <= newest.token), comes_twice);
    }
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_was_emptied_is_founded_anew_by_an_operators_word_only() {
    let fixture = Fixture::new(Rules::default(), None);
    let (session, held) = fixture.leader(0, TTL).await;
    fixture.lose(&[1, 2, 3]);
    let said = settled(&fixture.store(1)).await.unwrap_err().to_string();
    assert!(said.contains("3 of 5 servers are empty"), "{said}");
    let word = said.split("refound=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(enlist(&*session, 0).await.is_err());
    let wrong = fixture.store_with(1, Some("redlock-00000001-00000002-00000003-lost-lost"));
    assert!(settled(&wrong).await.is_err());
    let anew = fixture.store_with(1, Some(word)).open_session(TTL).await.unwrap();
    assert_eq!(anew.store_id(), StoreId::new(word));
    // The one who led is told, and nobody leads before it has stopped believing.
    let gone = session.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
    assert!(enlist(&*anew, 1).await.is_err());
    assert!(leads_within(&*anew, 1, TTL * 3).await.is_some());
    // The two that stayed behind, which it names, belong to it by now; the word founds nothing
    // again.
    assert!(word.contains("00000000") && word.contains("00040000"), "{word}");
    assert!(fixture.group.servers.iter().all(|server| lock(server).store() == word));
    fixture.lose(&[1, 2]);
    sleep(TTL).await;
    let again = fixture.store_with(2, Some(word)).open_session(TTL).await.unwrap();
    assert_eq!(again.store_id(), StoreId::new(word));

    let fixture = Fixture::new(Rules::without(Rule::FoundWhenAllAreEmpty), None);
    fixture.leader(0, TTL).await;
    fixture.lose(&[1, 2, 3]);
    assert!(settled(&fixture.store(1)).await.is_ok(), "without the rule it is founded by itself");
}

/// The addresses may be mistaken: who only looks must not bring a server that was never ours into
/// the store, nor found one of other people's servers.
#[tokio::test(start_paused = true)]
async fn who_only_reads_founds_nothing_and_mends_nothing_whatever_the_word() {
    for (rules, changes) in [(Rules::default(), false), (Rules::without(Rule::ReadersFoundNothing), true)] {
        let fixture = Fixture::new(rules, None);
        let stores = || fixture.group.servers.iter().map(|server| lock(server).store().to_owned()).collect::<Vec<_>>();
        let nowhere = vec![""; 5];
        let first = fixture.store(1).identity().await.unwrap();
        assert_eq!(stores() != nowhere, changes);
        assert_eq!(fixture.store(1).line(&jobs(), 1).await.unwrap().entries, []);
        assert_eq!(stores() != nowhere, changes);
        let (session, _held) = fixture.leader(0, TTL).await;
        assert_eq!(session.store_id(), first, "the same that the first candidate founds");

        fixture.lose(&[4]);
        let line = fixture.store(1).line(&jobs(), 1).await.unwrap();
        let missing = line.servers.unwrap().missing;
        assert!(missing.len() == 1 && missing[0].1.contains("emptied"), "{missing:?}");
        assert_eq!(fixture.store(1).identity().await.unwrap(), first);
        assert_eq!(stores()[4].is_empty(), !changes);

        fixture.lose(&[1, 2, 3]);
        let said = settled(&fixture.store(2)).await.unwrap_err().to_string();
        let word = said.split("refound=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(said.contains("server-0 belongs to redlock-"), "what it would empty: {said}");
        let reader = fixture.store_with(1, Some(word));
        for read in [reader.identity().await.map(drop), reader.line(&jobs(), 1).await.map(drop)] {
            let said = read.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(said.contains("one that only reads founds nothing"), !changes, "{said}");
            assert_eq!(said.contains("check that all of the addresses"), !changes, "{said}");
        }
        assert_eq!(stores().contains(&word.to_owned()), changes);
        let other = fixture.store(1).identity().await;
        assert_eq!(other.is_err_and(|error| !error.to_string().contains(word)), !changes, "it is not for a reader");
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_belong_to_several_stores_are_founded_anew_by_an_operators_word_only() {
    let fixture = Fixture::new(Rules::default(), None);
    let longest = TTL * 5;
    for (number, store) in [(0, "a"), (1, "a"), (2, "b"), (3, "b"), (4, "c")] {
        let (server, store) = (format!("{number:04x}0000"), format!("redlock-{store}-{store}-{store}-{store}-{store}"));
        let verb = Verb::Seed { server, counter: None, longest };
        let seeded = lock(&fixture.group.servers[number]).ask(Duration::ZERO, &Request { store, verb });
        assert_eq!(seeded.reply, Reply::Done);
    }
    let said = settled(&fixture.store(0)).await.unwrap_err().to_string();
    assert!(said.contains("none has a majority"), "{said}");
    let word = said.split("refound=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(word, "redlock-00000000-00010000-00020000-00030000-00040000");
    // Not while one of them is away: it might complete a majority.
    fixture.cut(1, &[4]);
    assert!(settled(&fixture.store_with(1, Some(word))).await.is_err());
    assert!(fixture.group.servers.iter().all(|server| !lock(server).store().is_empty()));
    fixture.mend(1);
    let anew = fixture.store_with(1, Some(word)).open_session(TTL).await.unwrap();
    assert!(fixture.group.servers.iter().all(|server| lock(server).store() == anew.store_id().as_str()));
    // Somebody may have led by one of them before: what the longest TTL was is known.
    assert!(leads_within(&*anew, 1, longest).await.is_none());
    assert!(leads_within(&*anew, 1, longest).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn who_looks_while_servers_give_no_locks_is_told_what_is_waited_for() {
    let fixture = Fixture::new(Rules::default(), None);
    let session = fixture.session(0, TTL).await;
    assert!(enlist(&*session, 0).await.is_err());
    let said = fixture.store(1).line(&jobs(), 1).await.unwrap_err().to_string();
    assert!(said.contains("counts again in"), "{said}");
    let held = leads_within(&*session, 0, TTL * 2).await.unwrap();
    let line = fixture.store(1).line(&jobs(), 1).await.unwrap();
    assert_eq!(line.entries[0].token, held.token);
    // Two that wait keep nobody from leading, and are no reason to say anything.
    session.withdraw(&held, None).await.unwrap();
    fixture.lose(&[0, 1]);
    assert!(settled(&fixture.store(1)).await.is_ok());
    assert_eq!(fixture.store(1).line(&jobs(), 1).await.unwrap().entries, []);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_told_to_wait_and_went_away_keeps_nobody_from_looking_for_ever() {
    let fixture = Fixture::new(Rules::default(), None);
    let long = fixture.session(0, TTL * 30).await;
    assert!(enlist(&*long, 0).await.is_err());
    drop(long);
    assert!(fixture.store(1).line(&jobs(), 1).await.is_err(), "somebody may still lead");
    sleep(TTL * 31).await;
    assert_eq!(fixture.store(1).line(&jobs(), 1).await.unwrap().entries, []);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_in_vain_is_given_back() {
    for (rules, is_free) in [(Rules::default(), true), (Rules::without(Rule::ReleaseAfterFailure), false)] {
        // Where the lock was given, and where it is not known whether it was.
        for out_of_reach in [[3, 4], [0, 1]] {
            let fixture = Fixture::new(rules, None);
            let session = fixture.former_leader(0).await;
            // 2, 3 and 4 hear it and are not heard.
            lock(&fixture.group.network).carry = Some(|client, server, verb| match (client, server, verb) {
                (0, 2..5, Verb::Acquire { .. }) => Some((Duration::ZERO, false)),
                _ => None,
            });
            assert!(enlist(&*session, 0).await.is_err());
            fixture.cut(1, &out_of_reach);
            let other = fixture.session(1, TTL).await;
            let taken = tokio::time::timeout(TTL / 2, enlist(&*other, 1)).await;
            assert_eq!(matches!(taken, Ok(Ok(Place::Leading(_)))), is_free, "{taken:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_token_too_few_have_taken_is_given_back() {
    for (rules, is_free) in [(Rules::default(), true), (Rules::without(Rule::ReleaseAfterFailure), false)] {
        // Where the token was taken, and where the lock has none.
        for out_of_reach in [[3, 4], [0, 1]] {
            let fixture = Fixture::new(rules, None);
            let session = fixture.former_leader(0).await;
            lock(&fixture.group.network).carry = Some(|client, server, verb| match (client, server, verb) {
                (0, 2..5, Verb::Number { .. }) => Some((TTL * 100, false)),
                _ => None,
            });
            let unknown = enlist(&*session, 0).await;
            assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
            fixture.cut(1, &out_of_reach);
            let other = fixture.session(1, TTL).await;
            let taken = tokio::time::timeout(TTL / 2, enlist(&*other, 1)).await;
            assert_eq!(matches!(taken, Ok(Ok(Place::Leading(_)))), is_free, "{taken:?}");
        }
    }
}

/// On its way for half a TTL.
const LATE: Duration = Duration::from_millis(500);

/// A call whose token may have been written; what gives it up is late. Then the same stay again, as
/// the library repeats it.
async fn repeated(fixture: &Fixture, first: Carry, again: Carry) -> (Arc<dyn Session>, Held) {
    let session = fixture.session(0, TTL).await;
    fixture.group.servers.iter().for_each(|server| lock(server).season());
    lock(&fixture.group.network).carry = Some(first);
    let unknown = enlist(&*session, 0).await;
    assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
    lock(&fixture.group.network).carry = Some(again);
    let Ok(Place::Leading(held)) = enlist(&*session, 0).await else { panic!("nobody else is there") };
    lock(&fixture.group.network).carry = None;
    (session, held)
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_late_does_not_end_the_term_that_the_repeated_call_began() {
    const NONE: Duration = Duration::ZERO;
    // The token is on all of them; or on one, which the repeated call does not reach: then others
    // take the same number.
    let on_all: Carry = |_, _, verb| match verb {
        Verb::Number { .. } => Some((NONE, false)),
        Verb::Release { .. } => Some((LATE, false)),
        _ => None,
    };
    let on_one: Carry = |_, server, verb| match verb {
        Verb::Number { .. } if server != 4 => Some((TTL * 100, false)),
        Verb::Number { .. } => Some((NONE, false)),
        Verb::Release { .. } => Some((LATE, false)),
        _ => None,
    };
    let without_one: Carry = |_, server, _| (server == 4).then_some((TTL * 100, false));
    for (first, again) in [(on_all, (|_, _, _| None) as Carry), (on_one, without_one)] {
        for (left_out, two_lead) in [(None, false), (Some(ServerRule::ReleaseByAttempt), true)] {
            let fixture = Fixture::new(Rules::default(), left_out);
            let (_session, held) = repeated(&fixture, first, again).await;
            sleep(LATE).await;
            let rival = fixture.session(1, TTL).await;
            let taken = enlist(&*rival, 1).await;
            assert_eq!(matches!(taken, Ok(Place::Leading(_))), two_lead, "{held:?} and {taken:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_heard_only_the_token_of_the_repeated_call_keeps_it() {
    let first: Carry = |_, _, verb| match verb {
        Verb::Number { .. } => Some((TTL * 100, false)),
        Verb::Release { .. } => Some((LATE, false)),
        _ => None,
    };
    // The lock is given by 0, 1 and 3, the token taken by 0, 1 and 2.
    let again: Carry = |_, server, verb| match (verb, server) {
        (Verb::Acquire { .. }, 2 | 4) | (Verb::Number { .. }, 3 | 4) => Some((TTL * 100, false)),
        _ => None,
    };
    for (left_out, is_gone) in [(None, false), (Some(ServerRule::TokenByAttempt), true)] {
        let fixture = Fixture::new(Rules::default(), left_out);
        let (session, held) = repeated(&fixture, first, again).await;
        sleep(LATE).await;
        let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
        assert_eq!(renewal.gone == [held], is_gone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_gone_is_not_made_again_by_a_renewal() {
    for (left_out, is_gone) in [(None, true), (Some(ServerRule::RenewalMakesNothing), false)] {
        let fixture = Fixture::new(Rules::default(), left_out);
        let (session, held) = fixture.leader(0, TTL).await;
        let seen = fixture.store(1).line(&jobs(), 1).await.unwrap().entries.remove(0);
        fixture.store(1).evict(&jobs(), &seen).await.unwrap();
        let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
        assert_eq!(renewal.gone == [held], is_gone);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_of_one_who_lost_the_lock_takes_it_from_nobody() {
    for (left_out, is_gone) in [(None, true), (Some(ServerRule::RenewalByOwner), false)] {
        let fixture = Fixture::new(Rules::default(), left_out);
        let (session, held) = fixture.leader(0, TTL).await;
        let seen = fixture.store(1).line(&jobs(), 1).await.unwrap().entries.remove(0);
        fixture.store(1).evict(&jobs(), &seen).await.unwrap();
        let (next, taken) = fixture.leader(1, TTL).await;
        let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
        assert_eq!(renewal.gone == [held], is_gone);
        // Without the rule each of the two is told that it leads.
        assert_eq!(next.renew(std::slice::from_ref(&taken)).await.unwrap().gone, []);
    }
}

#[tokio::test(start_paused = true)]
async fn wall_clocks_that_jump_end_no_lock_that_is_renewed_in_time() {
    for (left_out, stays) in [(None, true), (Some(ServerRule::BoundedSteps), false)] {
        let fixture = Fixture::new(Rules::default(), left_out);
        let (session, held) = fixture.leader(0, TTL).await;
        let rival = fixture.session(1, TTL).await;
        for step in [3_600_000, -7_200_000] {
            fixture.group.servers.iter().for_each(|server| lock(server).stepped += step);
            let place = enlist(&*rival, 1).await.unwrap();
            assert_eq!(matches!(place, Place::Behind { .. }), stays, "{place:?}");
            if !stays {
                break;
            }
            sleep(TTL / 3).await;
            assert_eq!(session.renew(std::slice::from_ref(&held)).await.unwrap().gone, []);
            rival.renew(&[]).await.unwrap();
        }
        if stays {
            // And give the dead no more time.
            assert!(leads_within(&*rival, 1, TTL * 2).await.is_some());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_token_is_given_twice_where_a_clock_ends_a_lock_between_the_rounds() {
    for (guards, comes_twice) in [(None, false), (Some(ServerRule::TokenGuarded), true)] {
        let left_out: Vec<_> = guards.into_iter().chain([ServerRule::BoundedSteps]).collect();
        let fixture = Fixture { group: Group::new(5, &left_out, Network::new(1, false)), rules: Rules::default() };
        let slow = fixture.session(0, TTL * 10).await;
        fixture.group.servers.iter().for_each(|server| lock(server).season());
        lock(&fixture.group.network).slow = Some(0);
        let enlisting = tokio::spawn(async move { enlist(&*slow, 0).await });
        // It has been given the lock, and has not heard of it yet.
        sleep(SLOW + SLOW / 2).await;
        fixture.group.servers.iter().for_each(|server| lock(server).stepped += 3_600_000);
        let (quick, held) = fixture.leader(1, TTL).await;
        quick.withdraw(&held, None).await.unwrap();
        let taken = enlisting.await.unwrap();
        let twice = matches!(&taken, Ok(Place::Leading(taken)) if taken.token == held.token);
        assert_eq!(twice, comes_twice, "{held:?} and {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_valid_for_its_ttl_less_the_drift() {
    let ttl = Duration::from_secs(100);
    for (rules, valid_at_the_end) in [(Rules::default(), false), (Rules::without(Rule::Drift), true)] {
        let clock = Arc::new(Drifting { began: Instant::now(), rate: 1_000_000 });
        let rounds = Rounds::new(Vec::new(), clock.clone(), None, rules);
        let since = clock.now();
        sleep(Duration::from_secs(98)).await;
        assert!(rounds.is_valid(since, ttl));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(rounds.is_valid(since, ttl), valid_at_the_end);
        sleep(Duration::from_millis(500)).await;
        assert!(!rounds.is_valid(since, ttl));
    }
}

/// The servers' clocks are faster by a hundredth than the leader's: until when it leads, by its own
/// clock, nobody else does.
#[tokio::test(start_paused = true)]
async fn a_renewal_counts_for_its_ttl_less_the_drift() {
    let fixture = Fixture::new(Rules::default(), None);
    let ttl = Duration::from_secs(100);
    let clock = Arc::new(Drifting { began: lock(&fixture.group.network).began, rate: 990_100 });
    let slow = RedlockStore::with_servers(fixture.group.links(0), clock.clone(), None, Rules::default());
    let session = slow.open_session(ttl).await.unwrap();
    let held = leads_within(&*session, 0, ttl * 3).await.unwrap();
    let rival = fixture.session(1, TTL).await;
    let sent = clock.now();
    let renewal = session.renew(std::slice::from_ref(&held)).await.unwrap();
    assert_eq!((renewal.gone, renewal.unproven), (vec![], vec![]));
    let until = sent + ttl - session.liveness().margin;
    let next = leads_within(&*rival, 1, ttl * 2).await.unwrap();
    assert!(next.token > held.token && clock.now() >= until, "{next:?} at {:?}, before {until:?}", clock.now());
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_not_renewed_for_a_ttl_does_not_come_back() {
    let fixture = Fixture::new(Rules::default(), None);
    let (session, held) = fixture.leader(0, TTL).await;
    session.renew(std::slice::from_ref(&held)).await.unwrap();
    sleep(TTL).await;
    let gone = session.renew(std::slice::from_ref(&held)).await;
    assert!(matches!(gone, Err(StoreError::SessionGone)), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn one_server_under_two_addresses_and_another_number_of_servers_are_refused() {
    let fixture = Fixture::new(Rules::default(), None);
    fixture.session(0, TTL).await;
    let clock = || Arc::new(Drifting { began: Instant::now(), rate: 1_000_000 });
    let mut links = fixture.group.links(1);
    links[4] = links[0].clone();
    let twice = RedlockStore::with_servers(links.clone(), clock(), None, Rules::default());
    let said = settled(&twice).await.unwrap_err().to_string();
    assert!(said.contains("are one server"), "{said}");
    links.truncate(3);
    let three = RedlockStore::with_servers(links, clock(), None, Rules::default());
    let said = settled(&three).await.unwrap_err().to_string();
    assert!(said.contains("3 servers are named, and the store that they belong to has 5"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn one_server_that_two_addresses_lead_to_by_now_counts_once() {
    for (rules, two_lead) in [(Rules::default(), false), (Rules::without(Rule::ServerCountsOnce), true)] {
        let fixture = Fixture::new(rules, None);
        let (session, held) = fixture.leader(0, TTL).await;
        // The leader reaches 0 and 1, and 1 by another address, too; the rival reaches the rest.
        let other = fixture.group.servers[1].clone();
        lock(&fixture.group.network).redirected.insert((0, 2), other);
        fixture.cut(0, &[3, 4]);
        let rival = fixture.session(1, TTL).await;
        fixture.cut(1, &[0, 1]);
        let (mut proven, mut taken) = (true, None);
        for _ in 0..6 {
            sleep(TTL / 4).await;
            let renewal = session.renew(std::slice::from_ref(&held)).await;
            proven = matches!(renewal, Ok(renewal) if renewal.gone.is_empty() && renewal.unproven.is_empty());
            taken = match enlist(&*rival, 1).await {
                Ok(Place::Leading(held)) => Some(held),
                _ => taken,
            };
            _ = rival.renew(taken.as_slice()).await;
        }
        assert!(taken.is_some(), "three will do");
        assert_eq!(proven, two_lead, "{held:?} and {taken:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_of_another_store_whose_address_was_mistaken_for_ours_keeps_what_it_has() {
    for (rules, stays) in [(Rules::default(), true), (Rules::without(Rule::EmptyOnlyNamed), false)] {
        let (ours, theirs) = (Fixture::new(rules, None), Fixture::new(rules, None));
        // So that it has another name than ours.
        theirs.lose(&[4]);
        let (session, stranger) = (ours.session(0, TTL).await, theirs.session(0, TTL).await);
        let mut links = ours.group.links(1);
        links[4] = theirs.group.links(1)[4].clone();
        let clock = Arc::new(Drifting { began: Instant::now(), rate: 1_000_000 });
        let mistaken = RedlockStore::with_servers(links, clock, None, rules);
        assert_eq!(settled(&mistaken).await.unwrap(), session.store_id());
        assert_eq!(settled(&mistaken).await.unwrap(), session.store_id());
        assert_eq!(lock(&theirs.group.servers[4]).store() == stranger.store_id().as_str(), stays);
    }
}

/// What the guards of a server's steps are for, taken together, is seen in random worlds with
/// clocks that jump; here is what each of them refuses.
#[test]
fn a_server_takes_a_token_for_the_owner_only_and_above_its_counter_and_a_seed_for_the_loss_it_names() {
    let now = Duration::from_secs(100);
    let stay = |name: &str, number| Stay {
        session: format!("{name:0>27}"),
        election: jobs(),
        incarnation: Incarnation::from_bits(number),
    };
    let (ours, theirs) = (stay("a", 1), stay("b", 2));
    let token = |number| Token::new(number).unwrap();
    let ask = |server: &mut Model, verb| server.ask(now, &Request { store: "s".to_owned(), verb }).reply;
    let seed = |server: &str| Verb::Seed { server: server.to_owned(), counter: Some(7), longest: Duration::ZERO };
    let acquire = |stay: &Stay, at: &mut Model| {
        let verb = Verb::Acquire { stay: stay.clone(), attempt: 1, ttl: TTL, said: b"0001a----------------".to_vec() };
        at.ask(now + TTL, &Request { store: "s".to_owned(), verb: verb.clone() });
        at.ask(now + TTL * 3, &Request { store: "s".to_owned(), verb }).reply
    };
    let number = |stay: &Stay, number| Verb::Number { stay: stay.clone(), attempt: 1, token: token(number) };
    for left_out in [None, Some(ServerRule::SeedNamesLoss)] {
        let mut server = Model::new(3, left_out.as_slice());
        let expected = if left_out.is_none() { Reply::Refused } else { Reply::Done };
        assert_eq!(ask(&mut server, seed("00030001")), expected, "another loss");
    }
    for (left_out, for_theirs, for_lower) in [
        (None, Reply::Refused, Reply::Refused),
        (Some(ServerRule::TokenForOwner), Reply::Done, Reply::Refused),
        (Some(ServerRule::TokenAboveCounter), Reply::Refused, Reply::Done),
    ] {
        let mut server = Model::new(3, left_out.as_slice());
        assert_eq!(ask(&mut server, seed("00030000")), Reply::Done);
        assert!(matches!(acquire(&ours, &mut server), Reply::Locks(_)));
        assert_eq!(ask(&mut server, number(&theirs, 9)), for_theirs, "{left_out:?}");
        assert_eq!(ask(&mut server, number(&ours, 7)), for_lower, "{left_out:?}");
        assert_eq!(ask(&mut server, number(&ours, 10)), Reply::Done, "{left_out:?}");
        let publish = |was| Verb::Publish {
            session: ours.session.clone(),
            held: Held::new(jobs(), crate::keys::id_of(token(10)), token(10), ours.incarnation),
            was: Version(was),
            version: Version(was + 1),
            said: b"----------------value".to_vec(),
        };
        assert_eq!(ask(&mut server, publish(1)), Reply::Done);
        assert_eq!(ask(&mut server, publish(1)), Reply::Refused, "it says something newer");
    }
}
