//! The connections on which this member hears: those that others have made.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use incumbent_core::Nonce;
use incumbent_core::peers::MemberId;
use incumbent_core::peers::wire::{Body, Frame};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::channel::{Channel, Heard, LinkError, Reader, Stream, Writer, welcome};
use super::dial::Dialler;
use super::handshake::Hello;
use super::limit::{ConnectionLimit, Permit};
use super::outbox::Outbox;
use crate::config::Algorithm;
use crate::counters::add;
use crate::founding::DiskReport;
use crate::packet::{MAX_PACKET_BYTES, Packet};
use crate::status::Query;
use crate::trace::RefusedFrame;

/// What others have said.
#[derive(Debug)]
pub(crate) enum Inbound {
    Peer(MemberId, Body),
    Founding(MemberId, DiskReport),
    /// Someone who is not a member wants something.
    Query(Arc<Outbox>, Nonce, Query),
}

/// Answers of one connection that wait to be sent.
const ANSWERS: usize = 16;

/// Hears those who connect. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Listener {
    pub(crate) dialler: Arc<Dialler>,
    pub(crate) limit: Arc<ConnectionLimit>,
    pub(crate) outboxes: Arc<BTreeMap<MemberId, Arc<Outbox>>>,
    pub(crate) inbound: mpsc::Sender<Inbound>,
}

impl Listener {
    /// Accepts connections until it is dropped, and every connection with it.
    pub(crate) async fn run(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut failing = false;
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    failing = false;
                    while connections.try_join_next().is_some() {}
                    let (permit, crowded) = self.limit.admit(address.ip());
                    if crowded {
                        self.dialler.meter.refused(RefusedFrame::TooMany, None, None, &address);
                    }
                    connections.spawn(self.clone().attend(stream, address, permit));
                }
                Err(why) => {
                    // Out of descriptors, most likely: what is open goes on, and some of it will
                    // end.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%why, "cannot accept connections");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn attend(self, stream: TcpStream, address: SocketAddr, permit: Permit) {
        let end = permit.end.clone();
        tokio::select! {
            () = self.serve(stream, address, permit) => {}
            () = end.notified() => {}
        }
    }

    async fn serve(&self, stream: TcpStream, address: SocketAddr, permit: Permit) {
        let patience = self.dialler.config.link.handshake_timeout;
        let (from, channel) = match timeout(patience, self.prove(stream)).await {
            Ok(Ok(proven)) => proven,
            Ok(Err(why)) => return self.on_unproven(why, address),
            Err(_) => return self.dialler.meter.refused(RefusedFrame::TooSlow, None, None, &address),
        };
        let tally = &self.dialler.meter.tally;
        add(&tally.accepted, 1);
        let _open = Open::new(self);
        if from == Frame::OUTSIDER {
            match permit.into_outsider() {
                Some(permit) => self.answer(channel, address, permit).await,
                None => self.dialler.meter.refused(RefusedFrame::TooMany, None, None, &address),
            }
        } else {
            let permit = permit.into_member(from);
            if let Some(outbox) = self.outboxes.get(&from)
                && !outbox.is_connected()
            {
                // It is there: no need to wait for the next attempt to reach it.
                outbox.poked.notify_one();
            }
            self.hear_member(from, channel, permit).await;
        }
    }

    async fn prove(&self, stream: TcpStream) -> Result<(MemberId, Channel), LinkError> {
        stream.set_nodelay(true)?;
        #[cfg(feature = "tls")]
        let stream: Box<dyn Stream> = match &self.dialler.config.tls {
            Some(tls) => Box::new(tls.accept(stream).await?),
            None => Box::new(stream),
        };
        #[cfg(not(feature = "tls"))]
        let stream: Box<dyn Stream> = Box::new(stream);
        let frames = (self.dialler.fingerprint, MAX_PACKET_BYTES);
        welcome(stream, &self.dialler.key, |hello| self.judge(hello), frames).await
    }

    fn judge(&self, hello: &Hello) -> Result<(), RefusedFrame> {
        let known = self.dialler.config.members.get(hello.from).is_some() && hello.from != self.dialler.me;
        match hello {
            hello if hello.group != self.dialler.key.group => Err(RefusedFrame::OtherGroup),
            hello if hello.to != self.dialler.me => Err(RefusedFrame::Stranger),
            hello if hello.from == Frame::OUTSIDER && !self.limit.admits_outsider() => Err(RefusedFrame::TooMany),
            hello if hello.from != Frame::OUTSIDER && !known => Err(RefusedFrame::Stranger),
            _ => Ok(()),
        }
    }

    fn on_unproven(&self, why: LinkError, address: SocketAddr) {
        let why = match why {
            LinkError::Refused(why) => why,
            LinkError::Io(why) if why.kind() == io::ErrorKind::UnexpectedEof => RefusedFrame::Garbage,
            LinkError::Io(why) if why.kind() == io::ErrorKind::InvalidData => RefusedFrame::Proof,
            LinkError::Noise(why) => {
                tracing::error!(%why, "cannot encrypt a connection");
                return;
            }
            LinkError::Io(_) | LinkError::Verdict(_) | LinkError::Silent | LinkError::Nothing => return,
        };
        self.dialler.meter.refused(why, None, None, &address);
    }

    async fn hear_member(&self, from: MemberId, channel: Channel, _permit: Permit) {
        let Channel { mut reader, mut writer } = channel;
        let link = self.dialler.config.link;
        let who = self.dialler.config.members.name(from);
        loop {
            let Some(packet) = self.hear(&mut reader, link.silent_after, from, &who).await else { return };
            let heard = match packet {
                Packet::Ping(number) => {
                    if self.reply(&mut writer, from, Packet::Pong(number)).await.is_err() {
                        return;
                    }
                    continue;
                }
                Packet::Peer(frame) if frame.from == from && self.is_ours(&frame.body) => {
                    Inbound::Peer(from, frame.body)
                }
                Packet::Founding(report) if self.dialler.config.algorithm == Algorithm::Consensus => {
                    Inbound::Founding(from, report)
                }
                packet => {
                    self.dialler.meter.refused(RefusedFrame::Misplaced, Some(from), Some(&packet), &who);
                    continue;
                }
            };
            // A node that is behind is not spoken to faster: the sender drops what it cannot send.
            if self.inbound.send(heard).await.is_err() {
                return;
            }
        }
    }

    fn is_ours(&self, body: &Body) -> bool {
        matches!(
            (body, self.dialler.config.algorithm),
            (Body::Consensus(_), Algorithm::Consensus)
                | (Body::Bully(_), Algorithm::Bully)
                | (Body::Ring(_), Algorithm::Ring)
        )
    }

    /// The next packet; `None` if the connection is over.
    async fn hear(
        &self,
        reader: &mut Reader,
        patience: Duration,
        from: MemberId,
        who: &(dyn std::fmt::Display + Sync),
    ) -> Option<Packet> {
        let member = (from != Frame::OUTSIDER).then_some(from);
        loop {
            match reader.hear(patience).await {
                Ok(Heard::Packet(packet, bytes)) => {
                    self.dialler.meter.received(from, &packet, bytes);
                    return Some(packet);
                }
                Ok(Heard::Unreadable) => self.dialler.meter.refused(RefusedFrame::Malformed, member, None, who),
                Err(LinkError::Refused(why)) => {
                    self.dialler.meter.refused(why, member, None, who);
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    async fn reply(&self, writer: &mut Writer, to: MemberId, packet: Packet) -> Result<(), LinkError> {
        let bytes = writer.push(&packet);
        self.dialler.meter.sent(to, &packet, bytes);
        writer.flush(self.dialler.config.link.write_timeout).await
    }

    /// Hears and answers someone who is not a member.
    async fn answer(&self, channel: Channel, address: SocketAddr, _permit: Permit) {
        let Channel { mut reader, mut writer } = channel;
        let link = self.dialler.config.link;
        let answers = Arc::new(Outbox::new(Frame::OUTSIDER, ANSWERS, link.answer_timeout));
        let hear = async {
            loop {
                let packet = self.hear(&mut reader, link.idle_after, Frame::OUTSIDER, &address).await?;
                let heard = match packet {
                    Packet::Query(nonce, query) => Inbound::Query(answers.clone(), nonce, query),
                    packet => {
                        self.dialler.meter.refused(RefusedFrame::Misplaced, None, Some(&packet), &address);
                        continue;
                    }
                };
                self.inbound.send(heard).await.ok()?;
            }
        };
        let speak = async {
            loop {
                answers.fill(&mut writer, &self.dialler.meter).await;
                writer.flush(link.write_timeout).await.ok()?;
            }
        };
        let _over: Option<()> = tokio::select! { over = hear => over, over = speak => over };
    }
}

/// Counts a connection for as long as it is open.
struct Open<'a>(&'a Listener);

impl<'a> Open<'a> {
    fn new(listener: &'a Listener) -> Open<'a> {
        add(&listener.dialler.meter.tally.open, 1);
        Open(listener)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.dialler.meter.tally.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use incumbent_core::ElectionName;
    use incumbent_core::peers::bully;
    use incumbent_store::BootClock;

    use super::*;
    use crate::config::{GroupConfig, NodeConfig, Rules};
    use crate::link::channel::TAG_BYTES;
    use crate::members::{Member, Members};
    use crate::node::{Node, NodeEvent, NodeView};
    use crate::packet::MAX_ANSWER_BYTES;
    use crate::secret::Secret;
    use crate::status::Answer;
    use crate::trace::Meter;

    const PATIENCE: Duration = Duration::from_secs(120);

    /// A bully member that runs alone, and how another one, or someone who is none, reaches it.
    async fn lonely() -> (NodeView, impl Fn(MemberId) -> Dialler) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let address = |number: u16| if number == 1 { at.as_str().into() } else { "127.0.0.1:9".into() };
        let member =
            |number| Member { id: MemberId(number), name: number.to_string().into(), address: address(number) };
        let members = Members::new([member(1), member(2)]).unwrap();
        let secret = Secret::new("a secret that the members share").unwrap();
        let group = GroupConfig::new(ElectionName::new("e").unwrap(), members, Algorithm::Bully, secret);
        let config = NodeConfig::new(group.clone(), MemberId(1), Rules::defaults(Algorithm::Bully));
        let mut running = Node::start_on(config, listener).await.unwrap();
        let node = running.view();
        tokio::spawn(async move { while running.event().await != NodeEvent::Closed {} });
        let meter = Arc::new(Meter::new(Frame::OUTSIDER, Arc::new(BootClock), None));
        (node, move |me| Dialler::new(group.clone(), me, meter.clone()))
    }

    async fn refuses(node: &NodeView, why: RefusedFrame, times: u64) {
        let counted = async {
            while node.counters().refused(why) < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, counted).await.unwrap_or_else(|_| panic!("{why:?} is not counted"));
    }

    fn says(dialler: &Dialler, from: MemberId, body: Body) -> Packet {
        Packet::Peer(Frame { group: dialler.fingerprint, from, body })
    }

    #[tokio::test]
    async fn someone_who_knows_the_secret_and_is_no_member_cannot_speak_as_one() {
        let (node, reach) = lonely().await;
        let outsider = reach(Frame::OUTSIDER);
        let mut channel = outsider.dial(MemberId(1), MAX_ANSWER_BYTES).await.unwrap();
        let coordinator = || Body::Bully(bully::Message::Coordinator);
        channel.writer.push(&says(&outsider, MemberId(2), coordinator()));
        channel.writer.push(&says(&outsider, Frame::OUTSIDER, coordinator()));
        channel.writer.push(&Packet::Pong(1));
        channel.writer.push(&Packet::Query(Nonce(7), Query::Status));
        channel.writer.flush(PATIENCE).await.unwrap();
        refuses(&node, RefusedFrame::Misplaced, 3).await;
        match channel.reader.hear(PATIENCE).await.unwrap() {
            Heard::Packet(Packet::Answer(Nonce(7), Answer::Status(status)), _) => {
                assert_eq!(status.member, MemberId(1))
            }
            _ => panic!("the honest question is answered all the same"),
        }
    }

    #[tokio::test]
    async fn a_member_speaks_for_itself_alone_and_only_in_its_own_algorithm() {
        let (node, reach) = lonely().await;
        let second = reach(MemberId(2));
        let mut channel = second.dial(MemberId(1), MAX_ANSWER_BYTES).await.unwrap();
        channel.writer.push(&says(&second, MemberId(1), Body::Bully(bully::Message::Election)));
        let ring = incumbent_core::peers::ring::Message::Passed { hop: 1 };
        channel.writer.push(&says(&second, MemberId(2), Body::Ring(ring)));
        channel.writer.push(&Packet::Query(Nonce(1), Query::Resign));
        channel.writer.flush(PATIENCE).await.unwrap();
        refuses(&node, RefusedFrame::Misplaced, 3).await;
        // What is encrypted and cannot be read does not end the connection either.
        channel.writer.push_raw(b"\xffnonsense");
        channel.writer.push(&Packet::Ping(5));
        channel.writer.flush(PATIENCE).await.unwrap();
        refuses(&node, RefusedFrame::Malformed, 1).await;
        let answer = channel.reader.hear(PATIENCE).await.unwrap();
        assert!(matches!(answer, Heard::Packet(Packet::Pong(5), bytes) if bytes == 2 + 9 + TAG_BYTES));
        // One that is longer than any packet does.
        channel.writer.push_raw(&[0; MAX_PACKET_BYTES + 1]);
        channel.writer.flush(PATIENCE).await.unwrap();
        refuses(&node, RefusedFrame::TooLong, 1).await;
        assert!(channel.reader.hear(PATIENCE).await.is_err(), "the connection is over");
    }

    #[tokio::test]
    async fn a_member_that_is_not_in_the_list_is_refused() {
        let (node, reach) = lonely().await;
        for stranger in [MemberId(77), MemberId(1)] {
            let refused = reach(stranger).dial(MemberId(1), MAX_ANSWER_BYTES).await;
            assert!(matches!(refused, Err(LinkError::Verdict(_))));
        }
        refuses(&node, RefusedFrame::Stranger, 2).await;
    }
}
