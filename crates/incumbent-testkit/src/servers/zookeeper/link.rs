//! The way from one server of an ensemble to another, as one that can be cut. Knows what such
//! servers say first.
//!
//! On the election port the caller says first where it can be reached itself, and the other may
//! hang up and call back there. So that no call goes around a link that is cut, the callee is told
//! the way back over the opposite link.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::proxy::{Proxy, Way};

/// What a server says first: the version, its number, and the length of the address that follows.
const GREETING_BYTES: usize = 8 + 8 + 4;
/// No address is longer.
const ADDRESS_BYTES: usize = 512;

/// Both ways from one server to another. Dropping it closes its connections.
#[derive(Debug)]
pub(super) struct Link {
    quorum: Proxy,
    election: Proxy,
    election_port: u16,
    task: AbortHandle,
}

impl Link {
    /// A link to a server with these ports; what arrives on `listener` is for its election port. It
    /// calls back at `way_back`.
    pub(super) async fn start(listener: TcpListener, quorum: u16, election: u16, way_back: u16) -> Link {
        let quorum = Proxy::start(&format!("127.0.0.1:{quorum}")).await;
        let election = Proxy::start(&format!("127.0.0.1:{election}")).await;
        let election_port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(accept(listener, election.endpoint(), format!("127.0.0.1:{way_back}"))).abort_handle();
        Link { quorum, election, election_port, task }
    }

    /// The address of the server at the other end, as a configuration has it.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.quorum.endpoint(), self.election_port)
    }

    /// What happens from now on to what is said over it.
    pub(super) fn set(&self, way: Way) {
        self.quorum.set(way);
        self.election.set(way);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: String, way_back: String) {
    // Connections go with the task that holds this set.
    let mut connections = JoinSet::new();
    while let Ok((caller, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(serve(caller, target.clone(), way_back.clone()));
    }
}

/// A call that breaks off is for the two servers to notice.
async fn serve(mut caller: TcpStream, target: String, way_back: String) -> std::io::Result<()> {
    let mut callee = TcpStream::connect(target).await?;
    let mut greeting = [0; GREETING_BYTES];
    caller.read_exact(&mut greeting).await?;
    let mut address = [0; ADDRESS_BYTES];
    let address = address.get_mut(..address_bytes(&greeting)).ok_or(std::io::ErrorKind::InvalidData)?;
    caller.read_exact(address).await?;
    let new_length = u32::try_from(way_back.len()).map_err(std::io::Error::other)?;
    greeting[GREETING_BYTES - 4..].copy_from_slice(&new_length.to_be_bytes());
    callee.write_all(&[&greeting[..], way_back.as_bytes()].concat()).await?;
    tokio::io::copy_bidirectional(&mut caller, &mut callee).await?;
    Ok(())
}

fn address_bytes(greeting: &[u8; GREETING_BYTES]) -> usize {
    let [.., a, b, c, d] = *greeting;
    u32::from_be_bytes([a, b, c, d]) as usize
}
