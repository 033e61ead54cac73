//! Bully and ring elections: the highest rank that answers leads.

use std::time::Duration;

use bytes::Bytes;
use incumbent_core::LossReason;
use incumbent_peers::{
    Algorithm, AskError, Event, LeaderView, MemberId, PeerRole, RankSettings, Refusal, Refused, Rules, TermRules,
};

use crate::test_group::{TestGroup, value_of, within};

/// Plays the same with both algorithms, at the same time.
async fn both(test_group: impl AsyncFn(Algorithm)) {
    tokio::join!(test_group(Algorithm::Bully), test_group(Algorithm::Ring));
}

fn with(rules: Rules, change: impl Fn(&mut RankSettings)) -> Rules {
    match rules {
        Rules::Bully(mut settings) => {
            change(&mut settings);
            Rules::Bully(settings)
        }
        Rules::Ring(mut settings) => {
            change(&mut settings);
            Rules::Ring(settings)
        }
        Rules::Consensus(_) => panic!("no rank"),
    }
}

async fn start(algorithm: Algorithm, size: u16, change: impl Fn(&mut RankSettings)) -> TestGroup {
    let mut test_group = TestGroup::new(algorithm, size);
    test_group.rules = with(test_group.rules, change);
    for number in 1..=size {
        test_group.boot(number).await;
    }
    test_group
}

async fn led_by(test_group: &TestGroup, number: u16) {
    test_group.agreed_on(&format!("{number} leads"), |view| view.member == MemberId(number)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_highest_leads_and_when_it_dies_the_next_and_when_it_returns_it_again() {
    both(async |algorithm| {
        let comes_and_goes = async |size| {
            let mut test_group = start(algorithm, size, |_| ()).await;
            led_by(&test_group, size).await;
            test_group.kill(MemberId(size)).await;
            led_by(&test_group, size - 1).await;
            test_group.boot(size).await;
            led_by(&test_group, size).await;
            assert!(test_group.ledger.terms().iter().all(|term| term.token.is_none()), "no tokens where rank decides");
        };
        tokio::join!(comes_and_goes(3), comes_and_goes(5));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_leader_is_left_alone_where_that_is_the_rule() {
    both(async |algorithm| {
        let mut test_group = start(algorithm, 3, |settings| {
            settings.take_over = false;
            // Long enough that a starved process is not taken for a dead one.
            settings.leader_timeout = Duration::from_secs(10);
        })
        .await;
        let first = test_group.agreed().await.member;
        for other in test_group.others(first) {
            test_group.kill(other).await;
            test_group.boot(other.0).await;
        }
        assert_eq!(test_group.agreed().await.member, first, "{algorithm}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_resigns_when_asked_and_cannot_hand_over() {
    both(async |algorithm| {
        let mut test_group = start(algorithm, 3, |_| ()).await;
        led_by(&test_group, 3).await;
        let query_client = test_group.query_client();
        within("a refusal", async {
            while query_client.transfer(MemberId(1)).await != Err(AskError::Refused(Refused::RankDecides)) {}
        })
        .await;
        test_group.node(MemberId(3)).transfer(MemberId(1));
        let refused = |event: &Event| *event == Event::TransferRefused(Refusal::RankDecides);
        within("the refusal", async {
            loop {
                let changed = test_group.user(MemberId(3)).changed.notified();
                if test_group.user(MemberId(3)).saw(refused) {
                    return;
                }
                let _ = tokio::time::timeout(Duration::from_millis(100), changed).await;
            }
        })
        .await;
        within("the highest accepts", async { while query_client.resign().await != Ok(MemberId(3)) {} }).await;
        led_by(&test_group, 2).await;
        // It stands again when nobody else leads.
        for other in [1, 2] {
            test_group.kill(MemberId(other)).await;
        }
        led_by(&test_group, 3).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_leader_proclaims_reaches_all_members_and_those_who_ask() {
    both(async |algorithm| {
        let test_group = start(algorithm, 3, |_| ()).await;
        let with_its_value = |view: &LeaderView| view.member == MemberId(3) && view.value == value_of(MemberId(3));
        test_group.agreed_on("the highest leads, with its value", with_its_value).await;
        let news = Bytes::from_static(b"news");
        test_group.node(MemberId(3)).proclaim(news.clone());
        test_group.agreed_on("the new value", |view| view.value == news).await;
        let query_client = test_group.query_client();
        within("everyone who asks is told it", async {
            let told = LeaderView { member: MemberId(3), term: None, value: news.clone() };
            while query_client.leader().await.ok().flatten().as_ref() != Some(&told) {}
        })
        .await;
        within("the leader says so itself", async {
            let leads = (PeerRole::Leader, 0, true);
            while query_client.status(MemberId(3)).await.map(|status| (status.role, status.term, status.in_office))
                != Ok(leads)
            {}
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_majority_rule_a_minority_has_no_leader_in_office() {
    both(async |algorithm| {
        let mut test_group = start(algorithm, 3, |settings| settings.majority = true).await;
        led_by(&test_group, 3).await;
        for other in [1, 2] {
            test_group.kill(MemberId(other)).await;
        }
        test_group.until(MemberId(3), "it is out of office", |state| !state.leads()).await;
        test_group.boot(1).await;
        led_by(&test_group, 3).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_does_not_stand_follows_until_it_does() {
    both(async |algorithm| {
        let mut test_group = TestGroup::new(algorithm, 3);
        for number in 1..=3 {
            let mut config = test_group.config(number);
            config.stands = (number != 3).then(TermRules::default);
            test_group.boot_with(config).await.unwrap();
        }
        led_by(&test_group, 2).await;
        assert!(!test_group.user(MemberId(3)).saw(|event| matches!(event, Event::Elected { .. })));
        test_group.node(MemberId(3)).stand(value_of(MemberId(3)));
        led_by(&test_group, 3).await;
        test_group.node(MemberId(3)).set_healthy(false);
        led_by(&test_group, 2).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_closes_is_replaced_at_once() {
    both(async |algorithm| {
        let mut test_group = start(algorithm, 3, |_| ()).await;
        led_by(&test_group, 3).await;
        let mut running = test_group.running.remove(&MemberId(3)).unwrap();
        within("closing", running.node.close()).await;
        assert!(running.user.saw(|event| matches!(event, Event::Unelected(LossReason::Closing))));
        led_by(&test_group, 2).await;
    })
    .await;
}
