//! A candidate as a process of its own: it leads whenever it can, writes to both resources while
//! it does, and for a while after, as work does that was not told; and keeps a diary.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{Client, Leadership, Term};
use incumbent_etcd::EtcdStore;
use incumbent_store::{BootClock, Clock, Timestamp};
use incumbent_testkit::hostile::{Flaw, flawed};
use incumbent_testkit::resource::{Connection, ResourceFence};

use crate::campaign::Settings;

/// Between two writes.
const WRITE_EVERY: Duration = Duration::from_millis(25);
/// Between two tries to connect.
const CONNECT_EVERY: Duration = Duration::from_millis(100);

/// What only grows, a line at a time.
struct Diary(File);

impl Diary {
    fn write(&self, what: &str) {
        let line = format!("{} {} {what}\n", BootClock.now().as_nanos(), std::process::id());
        // One write, so that a kill leaves whole lines.
        (&self.0).write_all(line.as_bytes()).expect("the diary takes it");
    }
}

/// Lives until it is killed: `candidate URL WHO FOLDER RESOURCES TTL_MS FLAWED`.
pub fn main(args: &[String]) {
    let [url, who, folder, resources, ttl_ms, flawed] = args else {
        panic!("candidate URL WHO FOLDER RESOURCES TTL_MS FLAWED, and not {args:?}")
    };
    let path = Path::new(folder).join(format!("diary-{who}"));
    let diary = Diary(OpenOptions::new().append(true).create(true).open(path).expect("a diary"));
    diary.write("started");
    let resources: SocketAddr = resources.parse().expect("an address");
    let ttl = Duration::from_millis(ttl_ms.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(live(url, who, resources, ttl, flawed == "true", &diary));
}

async fn live(url: &str, who: &str, resources: SocketAddr, ttl: Duration, flawed: bool, diary: &Diary) {
    let client = loop {
        match connect(url, ttl, flawed).await {
            Ok(client) => break client,
            Err(error) => eprintln!("{error}"),
        }
        tokio::time::sleep(CONNECT_EVERY).await;
    };
    let election = client.election(Settings::ELECTION).expect("a well-formed name");
    let candidate = election.candidate(who).fence(ResourceFence(resources));
    let mut candidacy = candidate.stand().await.unwrap_or_else(|error| panic!("{error}"));
    loop {
        let office = candidacy.elected().await.unwrap_or_else(|error| panic!("{error}"));
        serve(office.expect("an election that goes on"), resources, ttl, diary).await;
    }
}

async fn connect(url: &str, ttl: Duration, is_flawed: bool) -> Result<Client, String> {
    let builder = Client::builder();
    // Peers have their timeout in the URL.
    let builder = if url.starts_with("consensus") { builder } else { builder.ttl(ttl) };
    if is_flawed {
        let store = EtcdStore::from_url(url).map_err(|error| error.to_string())?;
        let store = flawed(Arc::new(store), Flaw::RenewalsAssumed, ttl);
        return builder.with_store(store).await.map_err(|error| error.to_string());
    }
    builder.connect(url).await.map_err(|error| error.to_string())
}

async fn serve(office: Leadership, resources: SocketAddr, ttl: Duration, diary: &Diary) {
    let term = office.term();
    let mut deadline = term.deadline();
    diary.write(&format!("elected {} {}", term.token().get(), deadline.as_nanos()));
    tokio::spawn(write(term.clone(), resources, ttl / 2));
    let why = loop {
        tokio::select! {
            biased;
            why = term.stopping() => break why,
            next = term.deadline_after(deadline) => {
                if next == Timestamp::ZERO {
                    break term.lost().await;
                }
                deadline = next;
                diary.write(&format!("deadline {}", deadline.as_nanos()));
            }
        }
    };
    diary.write(&format!("unelected {:?}", why.reason()));
}

/// To the fenced resource with the token alone, and longer than the term lasts; to the other one
/// only while the term is not over.
async fn write(term: Term, resources: SocketAddr, longer: Duration) {
    let Ok(mut connection) = Connection::open(resources).await else { return };
    let late = async {
        term.lost().await;
        tokio::time::sleep(longer).await;
    };
    let mut late = std::pin::pin!(late);
    loop {
        if connection.ask("write", term.token()).await.is_err() {
            return;
        }
        if term.check().is_ok() && connection.ask("unfenced", term.token()).await.is_err() {
            return;
        }
        tokio::select! {
            () = &mut late => return,
            () = tokio::time::sleep(WRITE_EVERY) => {}
        }
    }
}
