//! A proven connection: sealed frames in both directions, over any stream of bytes.

use std::io;
use std::time::Duration;

use incumbent_core::peers::MemberId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::handshake::{
    CHALLENGE_BYTES, Challenge, End, GroupKey, HELLO_BYTES, Hello, PROOF_BYTES, SEAL_BYTES, Seal, Verdict,
    WELCOME_BYTES, Welcome,
};
use crate::packet::Packet;
use crate::secret::random;
use crate::trace::RefusedFrame;

/// A stream of bytes: TCP, or TLS over it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{}", .0.sentence())]
    Verdict(Verdict),
    #[error("{}", .0.name())]
    Refused(RefusedFrame),
    #[error("nothing was heard for too long")]
    Silent,
    /// It was closed before anything was said: a probe.
    #[error("nothing was said")]
    Nothing,
}

/// The two halves of a proven connection.
pub(crate) struct Channel {
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
}

/// The half that hears.
pub(crate) struct Reader {
    stream: BufReader<ReadHalf<Box<dyn Stream>>>,
    seal: Seal,
    group: u64,
    max_bytes: usize,
}

/// The half that speaks.
pub(crate) struct Writer {
    stream: WriteHalf<Box<dyn Stream>>,
    seal: Seal,
    out: Vec<u8>,
}

impl Channel {
    fn new(
        stream: Box<dyn Stream>,
        key: &GroupKey,
        end: End,
        greeting: (&[u8; HELLO_BYTES], &[u8; CHALLENGE_BYTES]),
        (group, max_bytes): (u64, usize),
    ) -> Channel {
        let (hello, challenge) = greeting;
        let other = if end == End::Dialler { End::Acceptor } else { End::Dialler };
        let (reader, writer) = tokio::io::split(stream);
        Channel {
            reader: Reader {
                stream: BufReader::new(reader),
                seal: key.seal(other, hello, challenge),
                group,
                max_bytes,
            },
            writer: Writer { stream: writer, seal: key.seal(end, hello, challenge), out: Vec::new() },
        }
    }
}

/// Greets the one at the other end, which should be `to`, as `from`.
pub(crate) async fn greet(
    mut stream: Box<dyn Stream>,
    key: &GroupKey,
    (from, to): (MemberId, MemberId),
    frames: (u64, usize),
) -> Result<Channel, LinkError> {
    let hello = Hello { group: key.group, from, to, nonce: random()? }.encode();
    stream.write_all(&hello).await?;
    stream.flush().await?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge).await?;
    match Challenge::decode(&challenge).map_err(LinkError::Refused)?.verdict {
        Verdict::Fine => {}
        verdict => return Err(LinkError::Verdict(verdict)),
    }
    stream.write_all(&key.prove(End::Dialler, &hello, &challenge)).await?;
    stream.flush().await?;
    let mut welcome = [0; WELCOME_BYTES];
    stream.read_exact(&mut welcome).await?;
    let welcome = Welcome::decode(&welcome).map_err(LinkError::Refused)?;
    if welcome.verdict != Verdict::Fine {
        return Err(LinkError::Verdict(welcome.verdict));
    }
    if !key.check(End::Acceptor, &hello, &challenge, &welcome.proof) {
        return Err(LinkError::Refused(RefusedFrame::Proof));
    }
    Ok(Channel::new(stream, key, End::Dialler, (&hello, &challenge), frames))
}

/// Hears out one who has dialled. `judge` says whether it may go on, before it has proven anything.
pub(crate) async fn welcome(
    mut stream: Box<dyn Stream>,
    key: &GroupKey,
    judge: impl FnOnce(&Hello) -> Result<(), RefusedFrame>,
    frames: (u64, usize),
) -> Result<(MemberId, Channel), LinkError> {
    let mut greeting = [0; HELLO_BYTES];
    match stream.read(&mut greeting).await? {
        0 => return Err(LinkError::Nothing),
        read => stream.read_exact(&mut greeting[read..]).await?,
    };
    let judged = Hello::decode(&greeting).and_then(|hello| judge(&hello).map(|()| hello));
    let verdict = match &judged {
        Ok(_) => Verdict::Fine,
        // Whoever does not even speak the language gets no answer.
        Err(RefusedFrame::Garbage) => return Err(LinkError::Refused(RefusedFrame::Garbage)),
        Err(RefusedFrame::Version) => Verdict::Version,
        Err(RefusedFrame::OtherGroup) => Verdict::OtherGroup,
        Err(RefusedFrame::TooMany) => Verdict::Full,
        Err(_) => Verdict::Stranger,
    };
    let challenge = Challenge { verdict, nonce: random()? }.encode();
    stream.write_all(&challenge).await?;
    stream.flush().await?;
    let hello = judged.map_err(LinkError::Refused)?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    if !key.check(End::Dialler, &greeting, &challenge, &proof) {
        let refusal = Welcome { verdict: Verdict::Proof, proof: [0; 32] };
        stream.write_all(&refusal.encode()).await?;
        stream.flush().await?;
        return Err(LinkError::Refused(RefusedFrame::Proof));
    }
    let ours = key.prove(End::Acceptor, &greeting, &challenge);
    stream.write_all(&Welcome { verdict: Verdict::Fine, proof: ours }.encode()).await?;
    stream.flush().await?;
    Ok((hello.from, Channel::new(stream, key, End::Acceptor, (&greeting, &challenge), frames)))
}

/// What came in.
pub(crate) enum Heard {
    /// A packet, and its length on the wire.
    Packet(Packet, usize),
    /// The sender is genuine, and this cannot be read. The next one may be.
    Unreadable,
}

impl Reader {
    /// The next packet. Not safe to cancel: whoever gives up gives up the connection.
    pub(crate) async fn hear(&mut self, patience: Duration) -> Result<Heard, LinkError> {
        timeout(patience, self.read()).await.unwrap_or(Err(LinkError::Silent))
    }

    async fn read(&mut self) -> Result<Heard, LinkError> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).await?;
        let length = u32::from_le_bytes(length) as usize;
        // Before anything is set aside for it.
        if length > self.max_bytes {
            return Err(LinkError::Refused(RefusedFrame::TooLong));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await?;
        let mut seal = [0; SEAL_BYTES];
        self.stream.read_exact(&mut seal).await?;
        if !self.seal.opens(&payload, &seal) {
            return Err(LinkError::Refused(RefusedFrame::Forged));
        }
        Ok(match Packet::decode(&payload, self.group) {
            Ok(packet) => Heard::Packet(packet, 4 + length + SEAL_BYTES),
            Err(_) => Heard::Unreadable,
        })
    }
}

impl Writer {
    /// Sets a packet aside for [`Writer::flush`]. Returns its length on the wire; zero if it cannot be written.
    pub(crate) fn push(&mut self, packet: &Packet) -> usize {
        packet.encode().map_or(0, |payload| self.push_raw(&payload))
    }

    pub(crate) fn push_raw(&mut self, payload: &[u8]) -> usize {
        self.out.extend((payload.len() as u32).to_le_bytes());
        self.out.extend(payload);
        self.out.extend(self.seal.seal(payload));
        4 + payload.len() + SEAL_BYTES
    }

    /// Sends what was set aside. Not safe to cancel: whoever gives up gives up the connection.
    pub(crate) async fn flush(&mut self, patience: Duration) -> Result<(), LinkError> {
        let write = async {
            self.stream.write_all(&self.out).await?;
            self.stream.flush().await
        };
        timeout(patience, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        self.out.clear();
        Ok(())
    }
}

#[cfg(test)]
impl Writer {
    /// What was set aside, to be tampered with.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The stream itself, to write what nobody sealed.
    pub(crate) fn into_stream(self) -> WriteHalf<Box<dyn Stream>> {
        self.stream
    }
}
