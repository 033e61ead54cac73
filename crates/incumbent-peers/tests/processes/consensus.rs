//! Five members that elect by consensus, one thing at a time.

use incumbent_peers::{Algorithm, MemberId};
use incumbent_testkit::proxy::Way;

use crate::cluster::Cluster;
use incumbent_testkit::judge::{Term, Timeline, What, Who};

async fn five() -> Cluster {
    Cluster::start(Algorithm::Consensus, 5).await
}

fn but(all: &[Who], these: &[Who]) -> Vec<Who> {
    all.iter().copied().filter(|who| !these.contains(who)).collect()
}

/// How it went, for people: nothing is promised of a machine that has other things to do.
fn tell(terms: &[Term], newer: u64) {
    let ms = |later: u64, earlier: u64| (later as f64 - earlier as f64) / 1e6;
    let (old, new) = (terms.iter().rfind(|led| led.term < newer), terms.iter().find(|led| led.term == newer));
    if let (Some(Term { deadline, ended: Some(ended), .. }), Some(new)) = (old, new) {
        let (before, after) = (ms(*deadline, *ended), ms(new.from, *deadline));
        println!("stepped down {before:.1} ms before its deadline; the next one was in office {after:.1} ms after it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_minority_side_steps_down_and_the_majority_elects() {
    let mut cluster = five().await;
    let (leader, term) = cluster.agreed().await;
    let everyone = cluster.everyone();
    let minority = [leader, but(&everyone, &[leader])[0]];
    let majority = but(&everyone, &minority);
    cluster.part(&minority);
    let nobody = |timeline: &Timeline| {
        let leads = |who: &Who| timeline.known_by(*who).is_some_and(|(leader, _)| leader == *who);
        (!minority.iter().any(leads)).then_some(())
    };
    cluster.until("nobody on the minority's side leads", nobody).await;
    let (_, newer) = cluster.elected_after(term, &majority).await;
    cluster.agreed_among(&majority).await;
    // That the new one began when the old one had stepped down, or its deadline was over, is what
    // is judged.
    let terms = cluster.judge();
    assert!(terms.iter().all(|led| led.term < newer || majority.contains(&led.who)), "{terms:?}");
    tell(&terms, newer);

    cluster.heal();
    let (_, last) = cluster.whole().await;
    assert!(last >= newer);
    cluster.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_nobody_hears_and_one_that_hears_nobody_step_down() {
    let mut cluster = five().await;
    for deaf in [false, true] {
        let (leader, term) = cluster.whole().await;
        if deaf {
            // Its heartbeats arrive; no acknowledgement comes back.
            cluster.links_into(&[leader], Way::Stall);
        } else {
            cluster.links_out_of(&[leader], Way::Stall);
        }
        cluster.stepped_down(leader, term).await;
        let others = but(&cluster.everyone(), &[leader]);
        cluster.elected_after(term, &others).await;
        cluster.judge();
        cluster.heal();
    }
    cluster.whole().await;
    cluster.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_and_never_leads_that_term_again() {
    let mut cluster = five().await;
    for _ in 0..3 {
        let (leader, term) = cluster.whole().await;
        cluster.kill(leader);
        let others = but(&cluster.everyone(), &[leader]);
        let (heir, newer) = cluster.elected_after(term, &others).await;
        assert!(heir != leader && newer > term);
        cluster.start_member(leader);
    }
    cluster.whole().await;
    let terms = cluster.judge();
    assert!(terms.len() >= 4, "{terms:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_leader_is_replaced_and_finds_its_term_over_when_it_goes_on() {
    let mut cluster = five().await;
    let (leader, term) = cluster.whole().await;
    cluster.pause(leader);
    let others = but(&cluster.everyone(), &[leader]);
    let (_, newer) = cluster.elected_after(term, &others).await;
    cluster.resume(leader);
    cluster.stepped_down(leader, term).await;
    let (_, last) = cluster.whole().await;
    assert!(last >= newer);
    cluster.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_office_goes_from_hand_to_hand() {
    let mut cluster = five().await;
    let (mut handed, mut refused) = (0, 0);
    for heir in cluster.everyone() {
        let (leader, term) = cluster.whole().await;
        // A starved group may refuse it, or change its leader by itself meanwhile.
        if leader == heir || cluster.query_client.transfer(MemberId(heir)).await.is_err() {
            continue;
        }
        let answered = |timeline: &Timeline| {
            let refusals =
                timeline.count(|report| matches!(&report.what, What::Other(note) if note.contains("Refused")));
            let newer = timeline.in_office().is_some_and(|(_, newer)| newer > term);
            (newer || std::mem::replace(&mut refused, refusals) < refusals).then_some(())
        };
        cluster.until(&format!("member {heir} has the office, or is refused it"), answered).await;
        handed += usize::from(cluster.agreed().await.0 == heir);
    }
    cluster.whole().await;
    cluster.judge();
    let transferred = |what: &What| matches!(what, What::Unelected(why) if why == "Transferred");
    let transfers = cluster.timeline.count(|report| transferred(&report.what));
    assert!(handed > 0 && transfers > 0, "{handed} of {transfers} transfers reached the heir\n{}", cluster.account());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_without_their_disks_come_back_one_by_one_and_terms_still_grow() {
    let mut cluster = five().await;
    for who in cluster.everyone() {
        let (_, term) = cluster.whole().await;
        cluster.kill(who);
        cluster.wipe(who);
        cluster.start_member(who);
        let (_, later) = cluster.whole().await;
        assert!(later >= term, "term {later} after term {term}");
    }
    // Nobody is left who has the disk that the group was founded with.
    let (leader, term) = cluster.whole().await;
    cluster.kill(leader);
    let others = but(&cluster.everyone(), &[leader]);
    cluster.elected_after(term, &others).await;
    cluster.judge();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_was_killed_as_a_whole_goes_on_where_it_was() {
    let mut cluster = five().await;
    let (_, term) = cluster.whole().await;
    cluster.everyone().into_iter().for_each(|who| cluster.kill(who));
    cluster.start_all();
    let (_, newer) = cluster.whole().await;
    assert!(newer > term);
    cluster.judge();
}
