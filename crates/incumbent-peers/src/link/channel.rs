//! A proven connection: encrypted packets in both directions, over any stream of bytes.
//!
//! A packet is sent as Noise messages, each preceded by its length as `u16`. A message has at most
//! 65,535 bytes, and a packet may be longer: it is cut, and a message of full length says that
//! another one follows.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_core::peers::MemberId;
use incumbent_store::lock;
use snow::{HandshakeState, TransportState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::handshake::{GroupKey, HELLO_BYTES, Hello, MESSAGE_BYTES, VERDICT_BYTES, Verdict};
use crate::packet::Packet;
use crate::trace::RefusedFrame;

/// The longest Noise message.
const MAX_MESSAGE_BYTES: usize = u16::MAX as usize;
/// A message's tag, without which it does not decrypt.
pub(crate) const TAG_BYTES: usize = 16;
/// What a message of full length carries.
pub(crate) const MAX_PART_BYTES: usize = MAX_MESSAGE_BYTES - TAG_BYTES;

/// A stream of bytes: TCP, or TLS over it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the connection cannot be encrypted: {0}")]
    Noise(#[from] snow::Error),
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
    keys: Keys,
    group: u64,
    max_bytes: usize,
}

/// The half that speaks.
pub(crate) struct Writer {
    stream: WriteHalf<Box<dyn Stream>>,
    keys: Keys,
    out: Vec<u8>,
}

/// The keys of both directions, which snow keeps together. It numbers the messages of each, so that
/// none can be repeated, left out or exchanged.
#[derive(Clone)]
struct Keys(Arc<Mutex<TransportState>>);

impl Keys {
    fn encrypt(&self, part: &[u8], message: &mut [u8]) -> Result<usize, snow::Error> {
        lock(&self.0).write_message(part, message)
    }

    fn decrypt(&self, message: &[u8], part: &mut [u8]) -> Result<usize, snow::Error> {
        lock(&self.0).read_message(message, part)
    }
}

impl Channel {
    fn new(
        stream: Box<dyn Stream>,
        keys: HandshakeState,
        (group, max_bytes): (u64, usize),
    ) -> Result<Channel, LinkError> {
        let keys = Keys(Arc::new(Mutex::new(keys.into_transport_mode()?)));
        let (reader, writer) = tokio::io::split(stream);
        let reader = Reader { stream: BufReader::new(reader), keys: keys.clone(), group, max_bytes };
        Ok(Channel { reader, writer: Writer { stream: writer, keys, out: Vec::new() } })
    }
}

/// Greets the other end, which should be `to`, as `from`.
pub(crate) async fn greet(
    mut stream: Box<dyn Stream>,
    key: &GroupKey,
    (from, to): (MemberId, MemberId),
    frames: (u64, usize),
) -> Result<Channel, LinkError> {
    let hello = Hello { group: key.group, from, to }.encode();
    let mut noise = key.dialler(&hello)?;
    let mut message = [0; MESSAGE_BYTES];
    noise.write_message(&[], &mut message)?;
    stream.write_all(&[&hello[..], &message].concat()).await?;
    stream.flush().await?;
    let mut verdict = [0; VERDICT_BYTES];
    stream.read_exact(&mut verdict).await?;
    match Verdict::decode(&verdict).map_err(LinkError::Refused)? {
        Verdict::Fine => {}
        verdict => return Err(LinkError::Verdict(verdict)),
    }
    stream.read_exact(&mut message).await?;
    noise.read_message(&message, &mut []).map_err(|_| LinkError::Refused(RefusedFrame::Proof))?;
    let mut channel = Channel::new(stream, noise, frames)?;
    channel.writer.push_raw(&[]);
    channel.writer.send().await?;
    Ok(channel)
}

/// Hears out a dialler. `judge` says whether it may go on, before it has proven anything.
pub(crate) async fn welcome(
    mut stream: Box<dyn Stream>,
    key: &GroupKey,
    judge: impl FnOnce(&Hello) -> Result<(), RefusedFrame>,
    frames: (u64, usize),
) -> Result<(MemberId, Channel), LinkError> {
    let (mut greeting, mut message) = ([0; HELLO_BYTES], [0; MESSAGE_BYTES]);
    match stream.read(&mut greeting).await? {
        0 => return Err(LinkError::Nothing),
        read => stream.read_exact(&mut greeting[read..]).await?,
    };
    let mut agreed = Hello::decode(&greeting);
    match agreed {
        // What does not speak the language gets no answer.
        Err(RefusedFrame::Garbage) => return Err(LinkError::Refused(RefusedFrame::Garbage)),
        // How long the greeting of another version is, is not known.
        Err(_) => {}
        Ok(hello) => {
            stream.read_exact(&mut message).await?;
            agreed = judge(&hello).map(|()| hello);
        }
    }
    let mut noise = key.acceptor(&greeting)?;
    let agreed = agreed.and_then(|hello| match noise.read_message(&message, &mut []) {
        Ok(_) => Ok(hello),
        Err(_) => Err(RefusedFrame::Proof),
    });
    let hello = match agreed {
        Ok(hello) => hello,
        Err(why) => {
            stream.write_all(&Verdict::of(why).encode()).await?;
            stream.flush().await?;
            return Err(LinkError::Refused(why));
        }
    };
    noise.write_message(&[], &mut message)?;
    stream.write_all(&[&Verdict::Fine.encode()[..], &message].concat()).await?;
    stream.flush().await?;
    let mut channel = Channel::new(stream, noise, frames)?;
    match channel.reader.payload(0).await {
        Ok(_) => Ok((hello.from, channel)),
        Err(LinkError::Refused(_)) => Err(LinkError::Refused(RefusedFrame::Proof)),
        Err(why) => Err(why),
    }
}

/// What came in.
pub(crate) enum Heard {
    /// A packet, and its length on the wire.
    Packet(Packet, usize),
    /// The sender is genuine, and this cannot be read. The next one may be.
    Unreadable,
}

impl Reader {
    /// The next packet. Not safe to cancel: the connection must be given up then.
    pub(crate) async fn hear(&mut self, patience: Duration) -> Result<Heard, LinkError> {
        timeout(patience, self.read()).await.unwrap_or(Err(LinkError::Silent))
    }

    async fn read(&mut self) -> Result<Heard, LinkError> {
        let (payload, length) = self.payload(self.max_bytes).await?;
        Ok(match Packet::decode(&payload, self.group) {
            Ok(packet) => Heard::Packet(packet, length),
            Err(_) => Heard::Unreadable,
        })
    }

    /// A packet's bytes, and their length on the wire.
    async fn payload(&mut self, max_bytes: usize) -> Result<(Vec<u8>, usize), LinkError> {
        let (mut payload, mut on_wire) = (Vec::new(), 0);
        loop {
            let mut length = [0; 2];
            self.stream.read_exact(&mut length).await?;
            let length = usize::from(u16::from_le_bytes(length));
            // Before anything is set aside for it.
            let have = payload.len();
            if length > max_bytes - have + TAG_BYTES {
                return Err(LinkError::Refused(RefusedFrame::TooLong));
            }
            let mut message = vec![0; length];
            self.stream.read_exact(&mut message).await?;
            payload.resize(have + length, 0);
            let part = self.keys.decrypt(&message, &mut payload[have..]);
            payload.truncate(have + part.map_err(|_| LinkError::Refused(RefusedFrame::Forged))?);
            on_wire += 2 + length;
            if length < MAX_MESSAGE_BYTES {
                return Ok((payload, on_wire));
            }
        }
    }
}

impl Writer {
    /// Sets a packet aside for [`Writer::flush`]. Returns its length on the wire; zero if it cannot
    /// be written.
    pub(crate) fn push(&mut self, packet: &Packet) -> usize {
        packet.encode().map_or(0, |payload| self.push_raw(&payload))
    }

    pub(crate) fn push_raw(&mut self, mut payload: &[u8]) -> usize {
        let before = self.out.len();
        loop {
            let (part, rest) = payload.split_at(payload.len().min(MAX_PART_BYTES));
            let (at, length) = (self.out.len(), part.len() + TAG_BYTES);
            self.out.extend((length as u16).to_le_bytes());
            self.out.resize(at + 2 + length, 0);
            if self.keys.encrypt(part, &mut self.out[at + 2..]).is_err() {
                self.out.truncate(before);
                return 0;
            }
            if part.len() < MAX_PART_BYTES {
                return self.out.len() - before;
            }
            payload = rest;
        }
    }

    /// Sends what was set aside. Not safe to cancel: the connection must be given up then.
    pub(crate) async fn flush(&mut self, patience: Duration) -> Result<(), LinkError> {
        timeout(patience, self.send()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        Ok(())
    }

    async fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.stream.flush().await?;
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

    /// The stream itself, to write what nobody encrypted.
    pub(crate) fn into_stream(self) -> WriteHalf<Box<dyn Stream>> {
        self.stream
    }
}

#[cfg(test)]
mod tests;
