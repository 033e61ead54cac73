//! What a consensus member remembers, and what it does when it cannot.

use incumbent_peers::{
    Abstention, Algorithm, AskError, Event, MemberId, PeerRole, QueryClient, Refused, Stage, StartError,
};

use crate::test_group::{TestGroup, within};

const WIPED: MemberId = MemberId(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_not_founded_before_all_have_been_there() {
    let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
    test_group.boot(1).await;
    test_group.boot(2).await;
    let waits = |state: &incumbent_peers::NodeState| state.stage == Stage::Forming { missing: vec![MemberId(3)] };
    for number in [1, 2] {
        test_group.until(MemberId(number), "it waits for the third", waits).await;
    }
    let status = within("a status", test_group.query_client().status(MemberId(1))).await.unwrap();
    assert!(status.forming && status.leader.is_none() && status.identity.is_none());
    // Being killed in between changes nothing: a disk is recognised.
    test_group.kill(MemberId(2)).await;
    test_group.boot(2).await;
    test_group.boot(3).await;
    test_group.agreed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_an_operator_declares_founded_begins_with_a_majority_and_is_another_each_time() {
    let mut identities = Vec::new();
    for _ in 0..2 {
        let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
        test_group.boot(1).await;
        let mut config = test_group.group_config();
        // The sockets of those who never came are there, and nobody answers.
        config.link.answer_timeout = std::time::Duration::from_secs(1);
        let query_client = QueryClient::new(config).unwrap();
        let until = async |wanted: Result<MemberId, AskError>| while query_client.found().await != wanted {};
        within("one is no majority", until(Err(AskError::Refused(Refused::TooFew)))).await;
        test_group.boot(2).await;
        within("two are one", until(Ok(MemberId(1)))).await;
        let before = test_group.agreed().await;
        within("it is founded once", until(Err(AskError::Refused(Refused::Founded)))).await;
        // The third was not there, meets a group that exists, and learns the term from all others.
        test_group.boot(3).await;
        let follows =
            |state: &incumbent_peers::NodeState| state.role() == Some(PeerRole::Follower) && state.leader.is_some();
        test_group.until(MemberId(3), "it follows", follows).await;
        let identity = test_group.node(before.member).identity().unwrap();
        within("the third knows its group", async {
            while test_group.node(MemberId(3)).identity().is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(test_group.node(MemberId(3)).identity(), Some(identity.clone()));
        identities.push(identity);
        test_group.ledger.check();
    }
    assert_ne!(identities[0], identities[1]);
}

/// Two members have agreed to a founding of which the third, whose disk is on the list, has not
/// heard; and then it loses that disk. None of them runs.
async fn with_a_disk_lost_while_founding() -> TestGroup {
    let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
    for from in [1, 2] {
        test_group.ways.insert((MemberId(from), MemberId(3)), "127.0.0.1:9".to_owned());
    }
    for number in 1..=3 {
        test_group.boot(number).await;
    }
    for number in [1, 2] {
        // What is agreed to is in the file: the numbers of three disks, of 18 bytes each.
        let agreed = || std::fs::metadata(test_group.data(number).join("member")).is_ok_and(|file| file.len() > 90);
        within("it has agreed", async {
            while !agreed() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        })
        .await;
    }
    for number in 1..=3 {
        assert!(matches!(test_group.node(MemberId(number)).state().borrow().stage, Stage::Forming { .. }));
        test_group.kill(MemberId(number)).await;
    }
    test_group.ways.clear();
    std::fs::remove_dir_all(test_group.data(3)).unwrap();
    test_group
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_founding_that_cannot_be_completed_starts_over_by_an_operators_word() {
    for up in [2, 3] {
        let mut test_group = with_a_disk_lost_while_founding().await;
        for number in 1..=up {
            test_group.boot(number).await;
        }
        let mut config = test_group.group_config();
        // The socket of the one that does not come is there, and nobody answers.
        config.link.answer_timeout = std::time::Duration::from_secs(1);
        let query_client = QueryClient::new(config).unwrap();
        within("all wait in vain", async {
            let survey = query_client.survey().await;
            assert_eq!(
                survey.iter().filter(|(_, status)| status.as_ref().is_ok_and(|status| status.forming)).count(),
                up.into()
            );
        })
        .await;
        // Several may each accept a founding of their own, which exclude each other: the word is
        // given until the group is founded.
        within("the group is founded", async {
            while !matches!(query_client.found().await, Err(AskError::Refused(Refused::Founded))) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        })
        .await;
        test_group.agreed().await;
        if up == 2 {
            test_group.boot(3).await;
            test_group
                .until(MemberId(3), "the third joins", |state| state.leader.is_some() && state.not_voting.is_none())
                .await;
        }
        test_group.ledger.check();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_three_that_were_wiped_come_back_by_an_operators_word() {
    let mut test_group = TestGroup::start(Algorithm::Consensus, 3).await;
    let before = test_group.agreed().await;
    let identity = test_group.node(MemberId(3)).identity();
    for number in [1, 2] {
        test_group.kill(MemberId(number)).await;
        std::fs::remove_dir_all(test_group.data(number)).unwrap();
    }
    for number in [1, 2] {
        test_group.boot(number).await;
        let lost = |state: &incumbent_peers::NodeState| state.not_voting == Some(Abstention::StateLost);
        test_group.until(MemberId(number), "it says that it lost its state", lost).await;
    }
    let query_client = test_group.query_client();
    let refused = within("an answer", query_client.readmit(MemberId(3))).await;
    assert_eq!(refused, Err(AskError::Refused(Refused::NotLost)));
    within("an answer", query_client.readmit(MemberId(1))).await.unwrap();
    let after = test_group.agreed().await;
    assert!(after.term > before.term);
    test_group.until(MemberId(2), "the other comes back by itself", |state| state.not_voting.is_none()).await;
    assert_eq!(test_group.node(MemberId(1)).identity(), identity, "it is the same group");
    test_group.ledger.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_group_restarts_with_its_terms_and_abstains_at_first() {
    let mut test_group = TestGroup::start(Algorithm::Consensus, 3).await;
    let before = test_group.agreed().await;
    let identity = test_group.node(MemberId(1)).identity();
    let mut terms = Vec::new();
    for number in 1..=3 {
        terms.push(test_group.node(MemberId(number)).state().borrow().term);
        test_group.kill(MemberId(number)).await;
    }
    test_group.boot(1).await;
    let alone = test_group.until(MemberId(1), "it remembers its term", |state| state.term > 0).await;
    assert!(alone.term >= terms[0], "{} was {}", alone.term, terms[0]);
    for number in 2..=3 {
        test_group.boot(number).await;
    }
    let after = test_group.agreed().await;
    assert!(after.term > before.term);
    for number in 1..=3 {
        let events = test_group.user(MemberId(number)).events();
        assert_eq!(events.first(), Some(&Event::NotVoting(Abstention::Restarted)), "{events:?}");
        assert_eq!(test_group.node(MemberId(number)).identity(), identity, "it is the same group");
    }
    test_group.ledger.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_member_comes_back_by_itself_once_all_others_are_there() {
    let mut test_group = TestGroup::start(Algorithm::Consensus, 3).await;
    test_group.agreed().await;
    test_group.kill(WIPED).await;
    let absent = MemberId(2);
    test_group.kill(absent).await;
    std::fs::remove_dir_all(test_group.data(WIPED.0)).unwrap();
    test_group.boot(WIPED.0).await;
    let lost = test_group
        .until(WIPED, "it says that it lost its state", |state| state.not_voting == Some(Abstention::StateLost));
    assert_eq!(lost.await.role(), Some(PeerRole::Rejoining));
    test_group.boot(absent.0).await;
    test_group.until(WIPED, "it is a member again", |state| state.role() == Some(PeerRole::Follower)).await;
    test_group.agreed().await;
    assert_eq!(test_group.node(WIPED).identity(), test_group.node(absent).identity());
    // And it remembers that the next time.
    test_group.kill(WIPED).await;
    test_group.boot(WIPED.0).await;
    test_group.agreed().await;
    let events = test_group.user(WIPED).events();
    assert!(!events.contains(&Event::NotVoting(Abstention::StateLost)), "{events:?}");
    test_group.ledger.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_file_is_damaged_does_not_vote_until_all_others_have_told_it_the_term() {
    let mut test_group = TestGroup::start(Algorithm::Consensus, 3).await;
    test_group.agreed().await;
    for number in 1..=3 {
        test_group.kill(MemberId(number)).await;
    }
    let file = test_group.data(WIPED.0).join("member");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    test_group.boot(WIPED.0).await;
    test_group.boot(2).await;
    let lost = |state: &incumbent_peers::NodeState| state.not_voting == Some(Abstention::StateLost);
    test_group.until(WIPED, "it says that it lost its state", lost).await;
    assert_eq!(std::fs::read(&file).unwrap(), bytes, "what is damaged is left for people to look at");
    test_group.boot(3).await;
    test_group.until(WIPED, "it is a member again", |state| state.role() == Some(PeerRole::Follower)).await;
    let leader = test_group.agreed().await;
    assert!(test_group.node(WIPED).identity().is_some(), "it learnt which group it is in");
    assert!(leader.term.is_some());
    test_group.ledger.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_directory_has_one_member_in_one_process() {
    let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
    test_group.boot(1).await;
    let mut config = test_group.config(1);
    config.listen = Some("127.0.0.1:0".to_owned());
    let again = test_group.boot_with(config).await;
    assert!(matches!(again, Err(StartError::Locked { .. })), "{again:?}");
    test_group.kill(MemberId(1)).await;
    let mut config = test_group.config(2);
    config.data = Some(test_group.data(1));
    let other = test_group.boot_with(config).await;
    assert!(matches!(other, Err(StartError::Foreign { member: MemberId(1), same_group: true, .. })), "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_cannot_write_its_vote_takes_no_part_and_the_others_go_on() {
    let mut test_group = TestGroup::start(Algorithm::Consensus, 3).await;
    let first = test_group.agreed().await;
    // Nothing can be renamed over a directory that is not empty.
    let broken = test_group.others(first.member)[0];
    let file = test_group.data(broken.0).join("member");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("full")).unwrap();
    test_group.kill(first.member).await;
    let out = |state: &incumbent_peers::NodeState| state.role() == Some(PeerRole::Out);
    test_group.until(broken, "it takes no part", out).await;
    assert!(test_group.user(broken).saw(|event| *event == Event::NotVoting(Abstention::CannotPersist)));
    assert!(test_group.node(broken).counters().persist_failed > 0);
    test_group.boot(first.member.0).await;
    let whole = test_group.others(broken);
    for member in whole {
        test_group
            .until(member, "a leader", |state| {
                state.leader.as_ref().is_some_and(|leader| leader.member != broken && leader.term > first.term)
            })
            .await;
    }
    let mut running = test_group.running.remove(&broken).unwrap();
    within("closing", running.node.close()).await;
    test_group.ledger.check();
}
