//! Bully and ring with five real processes: the highest that answers leads, a partition has two
//! leaders, and healing ends it.

use incumbent_peers::Algorithm;

use crate::cluster::Cluster;
use incumbent_testkit::judge::Who;

async fn leads(cluster: &mut Cluster, who: Who, among: &[Who]) {
    let all_know = |timeline: &incumbent_testkit::judge::Timeline| {
        among.iter().all(|member| timeline.known_by(*member).is_some_and(|(leader, _)| leader == who)).then_some(())
    };
    cluster.until(&format!("{among:?} follow {who}"), all_know).await;
}

async fn the_highest_that_answers_leads(algorithm: Algorithm) {
    let mut cluster = Cluster::start(algorithm, 5).await;
    leads(&mut cluster, 5, &[1, 2, 3, 4, 5]).await;

    cluster.kill(5);
    leads(&mut cluster, 4, &[1, 2, 3, 4]).await;
    cluster.kill(4);
    leads(&mut cluster, 3, &[1, 2, 3]).await;
    cluster.start_all();
    leads(&mut cluster, 5, &[1, 2, 3, 4, 5]).await;

    cluster.part(&[4, 5]);
    leads(&mut cluster, 5, &[4, 5]).await;
    leads(&mut cluster, 3, &[1, 2, 3]).await;
    cluster.heal();
    leads(&mut cluster, 5, &[1, 2, 3, 4, 5]).await;
    // Every office began and ended in order; nothing more is promised.
    cluster.look().terms().unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bully_members_follow_the_highest_that_answers() {
    the_highest_that_answers_leads(Algorithm::Bully).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ring_members_follow_the_highest_that_answers() {
    the_highest_that_answers_leads(Algorithm::Ring).await;
}
