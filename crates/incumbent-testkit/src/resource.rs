//! A resource behind a fence for leaders in processes of their own: it lives in the process of the
//! test, which sees all that it is asked for, and takes a line for each request.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use incumbent_core::{ElectionName, StoreId, Token};
use incumbent_store::fence::{BoxFuture, Fence, FenceError, FencingToken};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};

/// What raises the mark; everything else is between those who ask and those who answer.
pub const RAISE: &str = "raise";

/// What is said if it was done.
pub const DONE: &str = "done";

/// Answers what leaders ask for and under which token, until the process ends. Where it is.
pub fn serve(answer: impl Fn(&str, &FencingToken) -> Result<(), FenceError> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("an address");
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || answer_all(&stream, &*answer));
        }
    });
    address
}

fn answer_all(mut stream: &TcpStream, answer: &impl Fn(&str, &FencingToken) -> Result<(), FenceError>) {
    let _ = stream.set_nodelay(true);
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let (token, what) = parse(&line).unwrap_or_else(|| panic!("a resource was asked: {line}"));
        let said = match answer(what, &token) {
            Ok(()) => DONE.to_owned(),
            Err(FenceError::Stale { mark, .. }) => format!("stale {mark}"),
            Err(error) => format!("refused {error}"),
        };
        if stream.write_all(format!("{said}\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// `STORE TOKEN WHAT`
fn parse(line: &str) -> Option<(FencingToken, &str)> {
    let (store, rest) = line.split_once(' ')?;
    let (token, what) = rest.split_once(' ')?;
    Some((FencingToken::new(Token::new(token.parse().ok()?)?, StoreId::new(store)), what))
}

/// A leader's connection to a resource.
#[derive(Debug)]
pub struct Connection(BufStream<tokio::net::TcpStream>);

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> std::io::Result<Connection> {
        let stream = tokio::net::TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection(BufStream::new(stream)))
    }

    /// Asks for this under the token, and answers what was said: [`DONE`], or why not.
    pub async fn ask(&mut self, what: &str, token: &FencingToken) -> std::io::Result<String> {
        let line = format!("{} {} {what}\n", token.store.as_str(), token.get());
        self.0.write_all(line.as_bytes()).await?;
        self.0.flush().await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        Ok(answer.trim_end().to_owned())
    }
}

/// The fence of the resource at this address.
#[derive(Clone, Copy, Debug)]
pub struct ResourceFence(pub SocketAddr);

impl Fence for ResourceFence {
    fn raise<'a>(&'a self, _: &'a ElectionName, to: FencingToken) -> BoxFuture<'a, Result<(), FenceError>> {
        Box::pin(async move {
            let unavailable = |error| FenceError::unavailable("raising the mark", error);
            let mut connection = Connection::open(self.0).await.map_err(unavailable)?;
            let answer = connection.ask(RAISE, &to).await.map_err(unavailable)?;
            match answer.split_once(' ') {
                None if answer == DONE => Ok(()),
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
