//! The connection on which this member speaks to another: made, kept alive, and made anew for as
//! long as the node lives.

use std::sync::Arc;
use std::time::Duration;

use incumbent_core::Rng;
use incumbent_core::peers::MemberId;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::channel::{Channel, Heard, LinkError, Reader, Stream, Writer, greet};
use super::handshake::GroupKey;
use super::outbox::Outbox;
use crate::config::GroupConfig;
use crate::counters::add;
use crate::packet::{MAX_PACKET_BYTES, Packet};
use crate::trace::{Meter, RefusedFrame};

/// How to reach the members of a group, and as whom.
#[derive(Clone)]
pub(crate) struct Dialler {
    pub(crate) config: GroupConfig,
    pub(crate) key: GroupKey,
    pub(crate) fingerprint: u64,
    pub(crate) me: MemberId,
    pub(crate) meter: Arc<Meter>,
}

impl Dialler {
    pub(crate) fn new(config: GroupConfig, me: MemberId, meter: Arc<Meter>) -> Dialler {
        let key = GroupKey::new(&config);
        let fingerprint = config.members.fingerprint(config.election.as_str());
        Dialler { config, key, fingerprint, me, meter }
    }

    /// Connects to a member and proves who we are. One attempt.
    pub(crate) async fn dial(&self, to: MemberId, max_bytes: usize) -> Result<Channel, LinkError> {
        let dialled = timeout(self.config.link.dial_timeout + self.config.link.handshake_timeout, async {
            let stream = self.connect(to).await?;
            let greeting = greet(stream, &self.key, (self.me, to), (self.fingerprint, max_bytes));
            timeout(self.config.link.handshake_timeout, greeting).await.unwrap_or(Err(LinkError::Silent))
        });
        let dialled = dialled.await.unwrap_or(Err(LinkError::Silent));
        add(if dialled.is_ok() { &self.meter.tally.dialled } else { &self.meter.tally.dial_failed }, 1);
        if let Err(LinkError::Refused(why)) = &dialled {
            self.meter.refused(*why, None, None, &self.config.members.name(to));
        }
        dialled
    }

    async fn connect(&self, to: MemberId) -> Result<Box<dyn Stream>, LinkError> {
        let address = self.config.members.get(to).map(|member| member.address.clone()).unwrap_or_default();
        let stream = timeout(self.config.link.dial_timeout, TcpStream::connect(&*address));
        let stream = stream.await.map_err(|_| LinkError::Silent)??;
        stream.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.config.tls {
            return Ok(Box::new(tls.connect(&address, stream).await?));
        }
        Ok(Box::new(stream))
    }

    /// Keeps a connection to a member, and sends what is in its outbox. Runs until it is dropped.
    pub(crate) async fn speak(self, to: MemberId, outbox: Arc<Outbox>, mut rng: Rng) {
        let link = self.config.link;
        let mut pause = link.backoff_min;
        let mut said = String::new();
        loop {
            match self.dial(to, MAX_PACKET_BYTES).await {
                Ok(channel) => {
                    said.clear();
                    let since = Instant::now();
                    outbox.set_connected(true);
                    let why = self.converse(to, channel, &outbox).await;
                    outbox.set_connected(false);
                    if since.elapsed() >= link.backoff_max {
                        pause = link.backoff_min;
                    }
                    tracing::debug!(member = self.config.members.name(to), %why, "disconnected");
                }
                Err(why) => {
                    outbox.lose(&self.meter);
                    // The same trouble is told once, not at every attempt.
                    let why = why.to_string();
                    if why != said {
                        tracing::info!(member = self.config.members.name(to), %why, "cannot connect");
                        said = why;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(rng.jitter(pause)) => {}
                () = outbox.poked.notified() => {}
            }
            pause = (pause * 2).min(link.backoff_max);
        }
    }

    async fn converse(&self, to: MemberId, channel: Channel, outbox: &Outbox) -> LinkError {
        let Channel { mut reader, mut writer } = channel;
        tokio::select! {
            why = self.talk(to, &mut writer, outbox) => why,
            why = self.listen(to, &mut reader) => why,
        }
    }

    async fn talk(&self, to: MemberId, writer: &mut Writer, outbox: &Outbox) -> LinkError {
        let link = self.config.link;
        let (mut pings, mut ping_at) = (0, Instant::now());
        loop {
            tokio::select! {
                () = outbox.fill(writer, &self.meter) => {}
                () = sleep_until(ping_at) => {}
            }
            // Also on a busy connection: only an answer shows that somebody hears.
            if Instant::now() >= ping_at {
                (pings, ping_at) = (pings + 1, Instant::now() + link.ping_every);
                self.push(to, writer, &Packet::Ping(pings));
            }
            if let Err(why) = writer.flush(link.write_timeout).await {
                return why;
            }
            outbox.on_sent();
        }
    }

    fn push(&self, to: MemberId, writer: &mut Writer, packet: &Packet) {
        let bytes = writer.push(packet);
        self.meter.sent(to, packet, bytes);
    }

    async fn listen(&self, to: MemberId, reader: &mut Reader) -> LinkError {
        loop {
            match reader.hear(self.config.link.silent_after).await {
                Ok(Heard::Packet(packet @ Packet::Pong(_), bytes)) => self.meter.received(to, &packet, bytes),
                Ok(Heard::Packet(packet, _)) => {
                    let who = self.config.members.name(to);
                    self.meter.refused(RefusedFrame::Misplaced, Some(to), Some(&packet), &who);
                }
                Ok(Heard::Unreadable) => {
                    self.meter.refused(RefusedFrame::Malformed, Some(to), None, &self.config.members.name(to));
                }
                Err(why) => {
                    if let LinkError::Refused(refused) = why {
                        self.meter.refused(refused, Some(to), None, &self.config.members.name(to));
                    }
                    return why;
                }
            }
        }
    }
}

/// How long a node that closes waits for its last words to be sent.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
