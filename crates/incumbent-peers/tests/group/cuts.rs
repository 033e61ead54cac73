//! Members that cannot hear each other, by proxies between every two of them.

use std::collections::BTreeMap;

use incumbent_peers::{Algorithm, LeaderView, MemberId};
use incumbent_testkit::proxy::{Proxy, Way};

use crate::test_group::{TestGroup, within};

struct Wires {
    test_group: TestGroup,
    proxies: BTreeMap<(MemberId, MemberId), Proxy>,
}

impl Wires {
    async fn start(algorithm: Algorithm, size: u16) -> Wires {
        let mut test_group = TestGroup::new(algorithm, size);
        let mut proxies = BTreeMap::new();
        for from in test_group.members.clone().iter() {
            for to in test_group.members.clone().iter().filter(|to| to.id != from.id) {
                let proxy = Proxy::start(&to.address).await;
                test_group.ways.insert((from.id, to.id), proxy.endpoint());
                proxies.insert((from.id, to.id), proxy);
            }
        }
        for number in 1..=size {
            test_group.boot(number).await;
        }
        Wires { test_group, proxies }
    }

    /// Nothing passes between the one side and the other. Connections stay, as in a real partition.
    fn part(&self, side: &[MemberId], way: Way) {
        for ((from, to), proxy) in &self.proxies {
            if side.contains(from) != side.contains(to) {
                proxy.set(way);
            }
        }
    }

    /// Nothing that this member says is heard.
    fn mute(&self, member: MemberId) {
        for (_, proxy) in self.proxies.iter().filter(|((from, _), _)| *from == member) {
            proxy.set(Way::Stall);
        }
    }

    fn heal(&self) {
        self.proxies.values().for_each(|proxy| proxy.set(Way::Forward));
    }

    /// Waits until one of these is in office, in a later term.
    async fn elects(&self, side: &[MemberId], after: &LeaderView) {
        within("the majority elects", async {
            let states: Vec<_> = side.iter().map(|member| self.test_group.node(*member).state()).collect();
            let waits = states.into_iter().map(|mut state| {
                Box::pin(async move {
                    let later = |office: incumbent_peers::HeldOffice| office.token > after.term;
                    state.wait_for(|state| state.office.is_some_and(later)).await.map(|_| ())
                })
            });
            futures_util::future::select_all(waits).await.0.expect("the node runs");
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_steps_down_before_the_others_have_another() {
    let cut_off = async |way| {
        let wires = Wires::start(Algorithm::Consensus, 3).await;
        let first = wires.test_group.agreed().await;
        let others = wires.test_group.others(first.member);
        wires.part(&others, way);
        wires.elects(&others, &first).await;
        wires.test_group.until(first.member, "it is out of office", |state| !state.leads()).await;
        wires.test_group.ledger.check();
        wires.heal();
        wires.test_group.agreed_on("one leader after healing", |view| view.term > first.term).await;
        wires.test_group.ledger.check();
    };
    tokio::join!(cut_off(Way::Stall), cut_off(Way::Cut));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hears_and_is_not_heard_steps_down_too() {
    let wires = Wires::start(Algorithm::Consensus, 3).await;
    let first = wires.test_group.agreed().await;
    let others = wires.test_group.others(first.member);
    wires.mute(first.member);
    wires.elects(&others, &first).await;
    wires.test_group.until(first.member, "it is out of office", |state| !state.leads()).await;
    wires.heal();
    wires.test_group.agreed_on("one leader after healing", |view| view.term > first.term).await;
    wires.test_group.ledger.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_five_members_the_three_go_on_and_the_two_have_no_leader() {
    let wires = Wires::start(Algorithm::Consensus, 5).await;
    let first = wires.test_group.agreed().await;
    let minority = [first.member, wires.test_group.others(first.member)[0]];
    let majority: Vec<_> = wires.test_group.others(first.member)[1..].to_vec();
    wires.part(&minority, Way::Stall);
    wires.elects(&majority, &first).await;
    for member in minority {
        wires.test_group.until(member, "it knows of no leader", |state| state.leader.is_none()).await;
    }
    wires.heal();
    wires.test_group.agreed_on("one leader after healing", |view| view.term > first.term).await;
    wires.test_group.ledger.check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_rank_decides_each_side_of_a_partition_has_a_leader_and_after_healing_the_highest_leads_alone() {
    let parted = async |algorithm| {
        let wires = Wires::start(algorithm, 3).await;
        let highest = |view: &LeaderView| view.member == MemberId(3);
        wires.test_group.agreed_on("the highest leads", highest).await;
        wires.part(&[MemberId(3)], Way::Stall);
        wires.test_group.until(MemberId(2), "it leads the others", |state| state.leads()).await;
        assert!(wires.test_group.node(MemberId(3)).state().borrow().leads(), "two leaders: nothing more was promised");
        wires.heal();
        wires.test_group.agreed_on("the highest leads alone", highest).await;
    };
    tokio::join!(parted(Algorithm::Bully), parted(Algorithm::Ring));
}
