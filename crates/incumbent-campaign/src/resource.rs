//! The resources that leaders write to: one behind a fence, one that takes everything. They live
//! in the process of the campaign, and remember what they were asked for.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use incumbent_core::{ElectionName, StoreId, Token};
use incumbent_store::fence::{BoxFuture, Fence, FenceError, FencingToken, Mark};
use incumbent_store::{BootClock, Clock, lock};
use incumbent_testkit::judge::Write;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};

/// Both resources, at one address.
#[derive(Clone, Debug)]
pub struct Resources {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    mark: Option<Mark>,
    writes: Vec<Write>,
    unfenced: Unfenced,
}

/// What the resource without a fence was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unfenced {
    /// All that it took.
    pub writes: u64,
    /// Of these, those that came after one with a higher token.
    pub stale: u64,
    highest: u64,
}

impl Resources {
    /// Serves until the process ends.
    pub fn serve() -> Resources {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let resources = Resources { address, state: Arc::default() };
        let serving = resources.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.answer_all(&stream));
            }
        });
        resources
    }

    /// Where they are.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the fenced one was asked for, so far.
    pub fn writes(&self) -> Vec<Write> {
        self.state().writes.clone()
    }

    /// What the other one was asked for, so far.
    pub fn unfenced(&self) -> Unfenced {
        self.state().unfenced
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn answer_all(&self, mut stream: &TcpStream) {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let answer = self.state().answer(&line).unwrap_or_else(|| panic!("the resources were asked: {line}"));
            if stream.write_all(format!("{answer}\n").as_bytes()).is_err() {
                return;
            }
        }
    }
}

impl State {
    fn answer(&mut self, line: &str) -> Option<String> {
        let mut words = line.split(' ');
        let (what, store, token) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        let shown = FencingToken::new(Token::new(token)?, StoreId::new(store));
        let admitted = Mark::admit(self.mark.as_ref(), &shown);
        match what {
            "raise" | "write" => {
                if what == "write" {
                    self.writes.push(Write { at: BootClock.now().as_nanos(), token, accepted: admitted.is_ok() });
                }
                Some(match admitted {
                    Ok(mark) => {
                        self.mark = Some(mark);
                        "done".to_owned()
                    }
                    Err(FenceError::Stale { mark, .. }) => format!("stale {mark}"),
                    Err(error) => format!("refused {error}"),
                })
            }
            "unfenced" => {
                self.unfenced.writes += 1;
                self.unfenced.stale += u64::from(token < self.unfenced.highest);
                self.unfenced.highest = self.unfenced.highest.max(token);
                Some("done".to_owned())
            }
            _ => None,
        }
    }
}

/// A candidate's connection to the resources.
#[derive(Debug)]
pub struct Connection(BufStream<tokio::net::TcpStream>);

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> std::io::Result<Connection> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufStream::new(stream)))
    }

    /// Asks for `raise`, `write` or `unfenced`, and answers what was said.
    pub async fn ask(&mut self, what: &str, token: &FencingToken) -> std::io::Result<String> {
        let line = format!("{what} {} {}\n", token.store.as_str(), token.get());
        self.0.write_all(line.as_bytes()).await?;
        self.0.flush().await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        Ok(answer.trim_end().to_owned())
    }
}

/// The fence of the fenced resource.
#[derive(Clone, Copy, Debug)]
pub struct ResourceFence(pub SocketAddr);

impl Fence for ResourceFence {
    fn raise<'a>(&'a self, _: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            let unavailable = |error| FenceError::unavailable("raising the mark", error);
            let mut connection = Connection::open(self.0).await.map_err(unavailable)?;
            let answer = connection.ask("raise", &to).await.map_err(unavailable)?;
            match answer.split_once(' ') {
                None if answer == "done" => Ok(()),
                Some(("stale", mark)) => {
                    let mark = mark.parse().ok().and_then(Token::new);
                    let corrupt = || FenceError::Corrupt { what: answer.clone() };
                    Err(FenceError::Stale { token: to.token, mark: mark.ok_or_else(corrupt)? })
                }
                _ => Err(FenceError::Corrupt { what: answer }),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_fenced_resource_refuses_what_is_older_and_the_other_one_counts_it() {
        let resources = Resources::serve();
        let token = |number| FencingToken::new(Token::new(number).unwrap(), StoreId::new("a-store"));
        let fence = ResourceFence(resources.address());
        let election = ElectionName::new("campaign").unwrap();
        let mut connection = Connection::open(resources.address()).await.unwrap();
        assert_eq!(connection.ask("write", &token(1)).await.unwrap(), "done");
        fence.raise(&election, token(2)).await.unwrap();
        assert_eq!(connection.ask("write", &token(1)).await.unwrap(), "stale 2");
        assert!(matches!(fence.raise(&election, token(1)).await, Err(FenceError::Stale { .. })));
        assert_eq!(resources.writes().iter().map(|write| write.accepted).collect::<Vec<_>>(), [true, false]);
        for number in [2, 1, 2] {
            assert_eq!(connection.ask("unfenced", &token(number)).await.unwrap(), "done");
        }
        assert_eq!((resources.unfenced().writes, resources.unfenced().stale), (3, 1));
    }
}
