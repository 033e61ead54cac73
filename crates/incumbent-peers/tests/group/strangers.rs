//! Those who have no business with a group, and what passes by on its wires. They are refused and
//! counted, and the group goes on.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use incumbent_core::ElectionName;
use incumbent_peers::{
    Algorithm, AskError, Member, MemberId, Members, QueryClient, RefusedFrame, Secret, Trace, TraceRecord, Way,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::test_group::{Peer, TestGroup, counted, within};

const ONE: MemberId = MemberId(1);
const TWO: MemberId = MemberId(2);

/// Something new is proclaimed, and everybody gets it.
async fn goes_on(test_group: &TestGroup, news: &'static str) {
    let news = Bytes::from_static(news.as_bytes());
    for running in test_group.running.values() {
        running.node.proclaim(news.clone());
    }
    test_group.agreed_on("the group goes on", |view| view.value == news).await;
}

async fn refuses(node: &Peer, why: RefusedFrame, before: u64) {
    counted(node, &format!("{why:?} is counted"), |counters| counters.refused(why) > before).await;
}

async fn connect(test_group: &TestGroup, member: MemberId) -> TcpStream {
    TcpStream::connect(&*test_group.members.get(member).unwrap().address).await.unwrap()
}

fn why(answer: Result<incumbent_peers::Status, AskError>) -> String {
    answer.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_refused_and_counted() {
    let test_group = TestGroup::start(Algorithm::Bully, 3).await;
    test_group.agreed().await;
    let node = test_group.node(ONE);
    for garbage in
        [&b"GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: somebody lost\r\n\r\n"[..], b"short", &[0xff; 4096]]
    {
        let before = node.counters().refused(RefusedFrame::Garbage);
        let mut stream = connect(&test_group, ONE).await;
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        refuses(node, RefusedFrame::Garbage, before).await;
        let mut answer = Vec::new();
        let _ = within("the end of the connection", stream.read_to_end(&mut answer)).await;
        assert!(answer.is_empty(), "garbage gets no answer");
    }
    let mut newer = [7; 49];
    newer[..5].copy_from_slice(b"INCP\xff");
    connect(&test_group, ONE).await.write_all(&newer).await.unwrap();
    refuses(node, RefusedFrame::Version, 0).await;
    goes_on(&test_group, "after garbage").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_know_the_secret_or_asks_for_another_election_is_told_so_and_counted() {
    let test_group = TestGroup::start(Algorithm::Consensus, 3).await;
    test_group.agreed().await;
    let node = test_group.node(ONE);

    let mut config = test_group.query_config();
    config.secret = Secret::new("not the secret of this group").unwrap();
    let said = why(within("an answer", QueryClient::new(config).unwrap().status(ONE)).await);
    assert!(said.contains("secrets differ"), "{said}");
    refuses(node, RefusedFrame::Proof, 0).await;

    let mut config = test_group.query_config();
    config.election = ElectionName::new("jobs/hourly").unwrap();
    let said = why(within("an answer", QueryClient::new(config).unwrap().status(ONE)).await);
    assert!(said.contains("another election"), "{said}");
    refuses(node, RefusedFrame::OtherGroup, 0).await;

    // The second member's name leads to the first one.
    let mut config = test_group.query_config();
    let swapped = test_group.members.iter().map(|member| {
        let at = if member.id == TWO {
            ONE
        } else if member.id == ONE {
            TWO
        } else {
            member.id
        };
        Member { address: test_group.members.get(at).unwrap().address.clone(), ..member.clone() }
    });
    config.members = Members::new(swapped).unwrap();
    let said = why(within("an answer", QueryClient::new(config).unwrap().status(TWO)).await);
    assert!(said.contains("another member"), "{said}");
    refuses(node, RefusedFrame::Stranger, 0).await;
    goes_on(&test_group, "after strangers").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_prove_nothing_are_bounded_and_ended() {
    let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
    for number in 1..=3 {
        let mut config = test_group.config(number);
        config.group.link.half_open = 8;
        config.group.link.handshake_timeout = Duration::from_secs(2);
        test_group.boot_with(config).await.unwrap();
    }
    test_group.agreed().await;
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(connect(&test_group, ONE).await);
    }
    refuses(test_group.node(ONE), RefusedFrame::TooMany, 30).await;
    // The rest is ended by the deadline of the handshake.
    refuses(test_group.node(ONE), RefusedFrame::TooSlow, 0).await;
    for mut stream in idle {
        let mut nothing = [0; 1];
        assert_eq!(within("the end of the connection", stream.read(&mut nothing)).await.unwrap_or(0), 0);
    }
    goes_on(&test_group, "after a crowd").await;
}

/// What happens to the next bytes that pass.
#[derive(Clone, Copy, Debug)]
enum Attack {
    Repeat,
    Flip,
    Omit,
}

/// Somebody between two members, who sees and changes what the first says to the second.
struct Wiretap {
    address: String,
    next: Arc<Mutex<Option<Attack>>>,
    /// All that was said on the first connection.
    tape: Arc<Mutex<Vec<u8>>>,
    _task: JoinSet<()>,
}

impl Wiretap {
    async fn start(target: &str) -> Wiretap {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (next, tape) = (Arc::<Mutex<Option<Attack>>>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let mut task = JoinSet::new();
        let (target, wishes, recorder) = (target.to_owned(), next.clone(), tape.clone());
        task.spawn(async move {
            let mut connections = JoinSet::new();
            let mut first = Some(recorder);
            loop {
                let (client, _) = listener.accept().await.unwrap();
                connections.spawn(Wiretap::listen(client, target.clone(), wishes.clone(), first.take()));
            }
        });
        Wiretap { address, next, tape, _task: task }
    }

    async fn listen(
        client: TcpStream,
        target: String,
        wishes: Arc<Mutex<Option<Attack>>>,
        tape: Option<Arc<Mutex<Vec<u8>>>>,
    ) {
        let Ok(server) = TcpStream::connect(target).await else { return };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let up = async {
            let (mut piece, mut passed) = (vec![0; 1 << 16], 0);
            while let Ok(length @ 1..) = from_client.read(&mut piece).await {
                let mut bytes = piece[..length].to_vec();
                if let Some(tape) = &tape {
                    tape.lock().unwrap().extend(&bytes);
                }
                // The handshake (65 and 18 bytes) is let through: the packets are wanted.
                let attack = if passed >= 83 { wishes.lock().unwrap().take() } else { None };
                passed += length;
                match attack {
                    Some(Attack::Repeat) => bytes.extend_from_within(..),
                    Some(Attack::Flip) => bytes[length - 1] ^= 1,
                    Some(Attack::Omit) => bytes.clear(),
                    None => {}
                }
                if to_server.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        };
        let down = tokio::io::copy(&mut from_server, &mut to_client);
        tokio::select! { () = up => {}, _ = down => {} }
    }

    async fn attack(&self, attack: Attack) {
        *self.next.lock().unwrap() = Some(attack);
        within("something to attack", async {
            while self.next.lock().unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_replayed_changed_or_left_out_is_refused_and_the_members_connect_anew() {
    let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
    let tap = Wiretap::start(&test_group.members.get(TWO).unwrap().address).await;
    test_group.ways.insert((ONE, TWO), tap.address.clone());
    for number in 1..=3 {
        test_group.boot(number).await;
    }
    test_group.agreed().await;
    let node = test_group.node(TWO);
    for attack in [Attack::Repeat, Attack::Flip, Attack::Omit] {
        let before = node.counters().refused(RefusedFrame::Forged);
        tap.attack(attack).await;
        refuses(node, RefusedFrame::Forged, before).await;
        goes_on(&test_group, ["after a repetition", "after a change", "after a gap"][attack as usize]).await;
    }
    // A whole connection, played again from the greeting on.
    let tape = tap.tape.lock().unwrap().clone();
    let before = node.counters();
    let mut stream = connect(&test_group, TWO).await;
    stream.write_all(&tape).await.unwrap();
    refuses(node, RefusedFrame::Proof, before.refused(RefusedFrame::Proof)).await;
    goes_on(&test_group, "after a replay").await;
}

type Line = (Way, Option<MemberId>, Option<MemberId>, &'static str, String);

#[derive(Default)]
struct Tape(Mutex<Vec<Line>>);

impl Trace for Tape {
    fn frame(&self, record: &TraceRecord<'_>) {
        let line = (record.way, record.from, record.to, record.kind, record.summary());
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_shown_to_the_trace() {
    let mut test_group = TestGroup::new(Algorithm::Consensus, 3);
    let tape = Arc::new(Tape::default());
    for number in 1..=3 {
        let mut config = test_group.config(number);
        config.trace = (number == 1).then(|| tape.clone() as Arc<dyn Trace>);
        test_group.boot_with(config).await.unwrap();
    }
    test_group.agreed().await;
    connect(&test_group, ONE).await.write_all(&[0; 64]).await.unwrap();
    refuses(test_group.node(ONE), RefusedFrame::Garbage, 0).await;
    let seen = tape.0.lock().unwrap().clone();
    let sent = seen.iter().any(|(way, from, to, kind, summary)| {
        *way == Way::Sent && *from == Some(ONE) && to.is_some() && summary.starts_with(kind)
    });
    let received = seen.iter().any(|(way, from, to, ..)| *way == Way::Received && from.is_some() && *to == Some(ONE));
    let refused = seen.iter().any(|(way, from, ..)| *way == Way::Refused(RefusedFrame::Garbage) && from.is_none());
    assert!(sent && received && refused, "{seen:?}");
    let counters = test_group.node(ONE).counters();
    assert!(counters.sent >= 1 && counters.received >= 1 && counters.sent_of("ping") >= 1);
    assert_eq!(counters.sent, counters.kinds().map(|(_, sent, _)| sent).sum::<u64>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_node_leaves_nothing_behind() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut test_group = TestGroup::start(Algorithm::Bully, 3).await;
    test_group.agreed().await;
    let query_client = test_group.query_client();
    within("an answer", query_client.survey()).await;
    let address = test_group.members.get(ONE).unwrap().address.to_string();
    let users: Vec<_> = test_group.running.values().map(|running| running.user.clone()).collect();
    for running in std::mem::take(&mut test_group.running).into_values() {
        drop(running.node);
    }
    within("all tasks are gone", async {
        while tasks() > before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(users.iter().all(|user| user.ended.load(Ordering::SeqCst) == 1));
    std::net::TcpListener::bind(&*address).unwrap();
}
