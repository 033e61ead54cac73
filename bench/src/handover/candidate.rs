//! A candidate in a process of its own. While it leads it takes writes at the address that it
//! advertises, one at a time, and writes them through the fence of the resource.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use incumbent::{Client, Leadership, Term};
use incumbent_testkit::resource::{Connection, DONE, ResourceFence};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};

/// What a leader is told that is to go.
pub(super) const LEAVE: &str = "leave";
/// What Go's sessions have, unless it is said otherwise.
const TTL: Duration = Duration::from_secs(60);
/// What those answer who do not lead.
const REFUSED: &str = "refused";

/// What a candidate does wrong, on purpose: the counts are there to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// Says of the first write of each term that it was done, and does nothing.
    Forgets,
    /// Refuses the first write of each term, and has done it.
    Denies,
    /// Takes writes when its work should have stopped.
    GoesOn,
}

impl FromStr for Flaw {
    type Err = String;

    fn from_str(text: &str) -> Result<Flaw, String> {
        let all = [Flaw::Forgets, Flaw::Denies, Flaw::GoesOn];
        all.into_iter().find(|flaw| format!("{flaw:?}") == text).ok_or_else(|| format!("no flaw is called {text:?}"))
    }
}

/// Stands until it is killed: `URL NAME FLAW ELECTION RESOURCE`, where FLAW may be `none`.
///
/// # Panics
///
/// If it cannot.
pub async fn live(args: &[String]) {
    let [url, name, flaw, election, resource] = args else { panic!("URL NAME FLAW ELECTION RESOURCE, not {args:?}") };
    let resource = resource.parse().expect("an address");
    let flaw = (flaw != "none").then(|| flaw.parse().unwrap_or_else(|error| panic!("{error}")));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let connection = Connection::open(resource).await.expect("the resource");
    let work = Work { connection, term: None, flaw: None };
    let service = Arc::new(Service { flaw, work: Mutex::new(work), leaves: Notify::new() });
    tokio::spawn(serve(listener, service.clone()));
    let builder = Client::builder();
    // A group has its times in the URL.
    let builder = if url.starts_with("consensus:") { builder } else { builder.ttl(TTL) };
    let client = builder.connect(url).await.unwrap_or_else(|error| panic!("{error}"));
    let election = client.election(election).expect("a name");
    loop {
        let candidate = election.candidate(name).value(address.clone()).fence(ResourceFence(resource));
        let mut candidacy = candidate.stand().await.unwrap_or_else(|error| panic!("{error}"));
        loop {
            let office = candidacy.elected().await.unwrap_or_else(|error| panic!("{error}"));
            if service.lead(office.expect("an election that goes on")).await == Then::StandsAnew {
                break;
            }
        }
    }
}

#[derive(PartialEq, Eq)]
enum Then {
    StaysInLine,
    StandsAnew,
}

struct Service {
    flaw: Option<Flaw>,
    /// Held while a write is taken: once it can be locked, none is under way.
    work: Mutex<Work>,
    leaves: Notify,
}

struct Work {
    connection: Connection,
    /// While it leads.
    term: Option<Term>,
    /// What it still does wrong in this term.
    flaw: Option<Flaw>,
}

impl Service {
    /// From the office to its end.
    async fn lead(&self, office: Leadership) -> Then {
        self.work.lock().await.begin(office.term(), self.flaw);
        let then = tokio::select! {
            _ = office.stopping() => Then::StaysInLine,
            () = self.leaves.notified() => Then::StandsAnew,
        };
        // The drain: what is under way is finished, and nothing else is begun.
        if self.flaw != Some(Flaw::GoesOn) {
            self.work.lock().await.term = None;
        }
        let released = match then {
            Then::StaysInLine => office.resign().await,
            Then::StandsAnew => office.leave().await,
        };
        released.unwrap_or_else(|error| panic!("{error}"));
        then
    }

    async fn answer(&self, line: &str) -> &'static str {
        let mut work = self.work.lock().await;
        let is_done = match work.term {
            Some(_) if line == LEAVE => {
                self.leaves.notify_one();
                true
            }
            _ => work.write(line).await,
        };
        if is_done { DONE } else { REFUSED }
    }
}

impl Work {
    fn begin(&mut self, term: Term, flaw: Option<Flaw>) {
        (self.term, self.flaw) = (Some(term), flaw);
    }

    async fn write(&mut self, line: &str) -> bool {
        let goes_on = self.flaw == Some(Flaw::GoesOn);
        let Some(term) = self.term.as_ref().filter(|term| goes_on || term.check().is_ok()) else { return false };
        match self.flaw.take_if(|_| !goes_on) {
            Some(Flaw::Forgets) => true,
            flaw => {
                let said = self.connection.ask(line, term.token()).await.expect("the resource");
                said == DONE && flaw.is_none()
            }
        }
    }
}

async fn serve(listener: TcpListener, service: Arc<Service>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(answer_all(stream, service.clone()));
    }
}

async fn answer_all(stream: TcpStream, service: Arc<Service>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufStream::new(stream);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        let answer = service.answer(line.trim_end()).await;
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        stream.flush().await?;
        line.clear();
    }
    Ok(())
}
