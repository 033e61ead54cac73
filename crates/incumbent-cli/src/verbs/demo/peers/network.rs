//! The network of the demonstration: a proxy on loopback between each member and each other member
//! that it dials. Cutting it needs no privileges.
//!
//! Bytes that are sent into a cut or to a dead process are swallowed, as when a cable is pulled or
//! a machine loses power. When a link is whole again, its old connections are closed, as by a
//! machine that was restarted.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// The member that dials, and the one that is dialled.
type Ends = (u16, u16);

pub(super) struct Network(BTreeMap<Ends, Link>);

struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    task: AbortHandle,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    /// Where the dialled member listens, while it lives.
    target: Option<SocketAddr>,
    cut: bool,
    /// Connections of an earlier life are closed.
    life: u64,
}

impl Network {
    /// Links between all of these members, none of which listens yet.
    pub(super) async fn between(members: &[u16]) -> io::Result<Network> {
        let mut links = BTreeMap::new();
        for ends in members.iter().flat_map(|from| members.iter().map(move |to| (*from, *to))) {
            if ends.0 == ends.1 {
                continue;
            }
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let address = listener.local_addr()?;
            let (state, seen) = watch::channel(State { target: None, cut: false, life: 0 });
            let task = tokio::spawn(accept(listener, seen)).abort_handle();
            links.insert(ends, Link { address, state, task });
        }
        Ok(Network(links))
    }

    /// Where `from` has to dial to reach `to`.
    pub(super) fn address(&self, from: u16, to: u16) -> Option<SocketAddr> {
        self.0.get(&(from, to)).map(|link| link.address)
    }

    /// This member listens at this port now.
    pub(super) fn arrives(&self, member: u16, port: u16) {
        let target = Some(SocketAddr::from(([127, 0, 0, 1], port)));
        self.change(|(_, to)| to == member, |state| *state = State { target, life: state.life + 1, ..*state });
    }

    /// This member is dead.
    pub(super) fn dies(&self, member: u16) {
        self.change(|(_, to)| to == member, |state| state.target = None);
    }

    /// Nothing passes any more between these members and the others.
    pub(super) fn cut_off(&self, island: &[u16]) {
        let crosses = |(from, to): Ends| island.contains(&from) != island.contains(&to);
        self.change(crosses, |state| state.cut = true);
    }

    /// Everything passes again.
    pub(super) fn heal(&self) {
        for link in self.0.values().filter(|link| link.state.borrow().cut) {
            link.state.send_modify(|state| *state = State { cut: false, life: state.life + 1, ..*state });
        }
    }

    fn change(&self, which: impl Fn(Ends) -> bool, how: impl Fn(&mut State)) {
        for (_, link) in self.0.iter().filter(|(ends, _)| which(**ends)) {
            link.state.send_modify(&how);
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.0.values().for_each(|link| link.task.abort());
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<State>) {
    // Connections go with the task that holds this set.
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        connections.spawn(carry(client, state.clone()));
    }
}

/// Carries one connection until its life is over.
async fn carry(client: TcpStream, state: watch::Receiver<State>) {
    let mut ends = state.clone();
    let life = ends.borrow_and_update().life;
    tokio::select! {
        () = forward(client, state) => {}
        _ = ends.wait_for(|now| now.life != life) => {}
    }
}

async fn forward(client: TcpStream, state: watch::Receiver<State>) {
    let State { target, cut, life } = *state.borrow();
    let server = match target {
        Some(target) if !cut => TcpStream::connect(target).await.ok(),
        _ => None,
    };
    let (mut from_client, mut to_client) = client.into_split();
    let Some(server) = server else { return swallow(&mut from_client).await };
    let _ = (to_client.as_ref().set_nodelay(true), server.set_nodelay(true));
    let (mut from_server, mut to_server) = server.into_split();
    let up = async {
        pump(&mut from_client, &mut to_server, &state, life).await;
        // A process that was killed closes nothing in an orderly way; what is sent to it is lost.
        swallow(&mut from_client).await;
    };
    let down = async {
        pump(&mut from_server, &mut to_client, &state, life).await;
        std::future::pending::<()>().await;
    };
    tokio::select! { () = up => {}, () = down => {} }
}

/// Passes on what comes, unless the link is cut. Ends when one of the two ends is gone.
async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    state: &watch::Receiver<State>,
    life: u64,
) {
    let mut piece = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        // What was sent into a cut stays lost, even if the cut is over when it is looked at.
        let passes = { state.borrow().life == life && !state.borrow().cut };
        if passes && to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

/// Reads until the other end is gone.
async fn swallow(from: &mut (impl AsyncReadExt + Unpin)) {
    let mut piece = [0; 16 * 1024];
    while let Ok(1..) = from.read(&mut piece).await {}
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A server that sends back what it gets, and remembers it.
    async fn echo() -> (u16, Arc<Mutex<Vec<u8>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let memory = heard.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let memory = memory.clone();
                tokio::spawn(async move {
                    let mut piece = [0; 64];
                    while let Ok(length @ 1..) = stream.read(&mut piece).await {
                        memory.lock().unwrap().extend(&piece[..length]);
                        stream.write_all(&piece[..length]).await.unwrap();
                    }
                });
            }
        });
        (port, heard)
    }

    async fn ping(network: &Network, word: &[u8; 5]) -> TcpStream {
        let mut stream = TcpStream::connect(network.address(1, 2).unwrap()).await.unwrap();
        stream.write_all(word).await.unwrap();
        let mut back = [0; 5];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, word);
        stream
    }

    #[tokio::test]
    async fn what_is_sent_into_a_cut_is_lost_and_the_connection_ends_with_the_cut() {
        let (port, heard) = echo().await;
        let network = Network::between(&[1, 2]).await.unwrap();
        network.arrives(2, port);
        let mut stream = ping(&network, b"first").await;
        network.cut_off(&[2]);
        stream.write_all(b"gone!").await.unwrap();
        network.heal();
        assert_eq!(stream.read(&mut [0; 5]).await.unwrap_or(0), 0, "the connection is closed");
        ping(&network, b"third").await;
        assert_eq!(*heard.lock().unwrap(), b"firstthird");
    }

    #[tokio::test]
    async fn what_is_sent_to_the_dead_does_not_reach_them_when_they_are_back() {
        let mortal = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = mortal.local_addr().unwrap().port();
        let network = Network::between(&[1, 2]).await.unwrap();
        network.arrives(2, port);
        let mut stream = TcpStream::connect(network.address(1, 2).unwrap()).await.unwrap();
        drop((mortal.accept().await.unwrap(), mortal));
        network.dies(2);
        stream.write_all(b"gone!").await.unwrap();
        let (port, heard) = echo().await;
        network.arrives(2, port);
        assert_eq!(stream.read(&mut [0; 5]).await.unwrap_or(0), 0, "the connection is closed");
        ping(&network, b"first").await;
        assert_eq!(*heard.lock().unwrap(), b"first");
    }
}
