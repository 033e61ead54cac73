//! What waits to be sent to one other end. Bounded: the oldest goes first, as if lost on the way.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use incumbent_core::peers::MemberId;
use incumbent_store::lock;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::channel::Writer;
use crate::packet::Packet;
use crate::trace::Meter;

#[derive(Debug)]
pub(crate) struct Outbox {
    to: MemberId,
    bound: usize,
    stale_after: Duration,
    state: Mutex<State>,
    /// There is something to send.
    filled: Notify,
    /// All that there was has been sent.
    emptied: Notify,
    /// The other end has shown that it is there: it is worth dialling now.
    pub(crate) poked: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(Instant, Packet)>,
    connected: bool,
    writing: bool,
}

impl Outbox {
    pub(crate) fn new(to: MemberId, bound: usize, stale_after: Duration) -> Outbox {
        Outbox {
            to,
            bound,
            stale_after,
            state: Mutex::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            poked: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn push(&self, packet: Packet, meter: &Meter) {
        let dropped = {
            let mut state = self.state();
            let dropped = if state.waiting.len() >= self.bound { state.waiting.pop_front() } else { None };
            state.waiting.push_back((Instant::now(), packet));
            dropped
        };
        if let Some((_, packet)) = dropped {
            meter.dropped(self.to, &packet);
        }
        self.filled.notify_one();
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        let mut state = self.state();
        (state.connected, state.writing) = (connected, false);
        drop(state);
        self.emptied.notify_waiters();
    }

    /// The other end cannot be reached: what was said to it is lost.
    pub(crate) fn lose(&self, meter: &Meter) {
        let lost = std::mem::take(&mut self.state().waiting);
        for (_, packet) in lost {
            meter.dropped(self.to, &packet);
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().connected
    }

    /// Waits until there is something, then hands it to the writer, but for what has grown stale.
    pub(crate) async fn fill(&self, writer: &mut Writer, meter: &Meter) {
        loop {
            let filled = self.filled.notified();
            let taken = {
                let mut state = self.state();
                state.writing = !state.waiting.is_empty();
                std::mem::take(&mut state.waiting)
            };
            let mut any = false;
            for (since, packet) in taken {
                if since.elapsed() >= self.stale_after {
                    meter.dropped(self.to, &packet);
                    continue;
                }
                let bytes = writer.push(&packet);
                meter.sent(self.to, &packet, bytes);
                any = true;
            }
            if any {
                return;
            }
            self.on_sent();
            filled.await;
        }
    }

    /// What was handed out has been sent.
    pub(crate) fn on_sent(&self) {
        self.state().writing = false;
        self.emptied.notify_waiters();
    }

    /// Waits until nothing waits, or there is no connection on which it could be sent.
    pub(crate) async fn idle(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let state = self.state();
                if !state.connected || (state.waiting.is_empty() && !state.writing) {
                    return;
                }
            }
            emptied.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use incumbent_store::BootClock;

    use super::*;
    use crate::config::Algorithm;
    use crate::link::channel::{Channel, Heard, greet, welcome};
    use crate::link::handshake::tests::key;

    const ONE: MemberId = MemberId(1);
    const TWO: MemberId = MemberId(2);

    async fn connected() -> (Channel, Channel) {
        let group = key("0123456789abcdef", "e", Algorithm::Bully, "1=h:1,2=h:2");
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (dialled, accepted) = tokio::join!(
            greet(Box::new(ours), &group, (ONE, TWO), (0, 100)),
            welcome(Box::new(theirs), &group, |_| Ok(()), (0, 100)),
        );
        (dialled.unwrap(), accepted.unwrap().1)
    }

    #[tokio::test]
    async fn a_full_outbox_drops_the_oldest_and_sends_the_rest_in_order() {
        let meter = Meter::new(ONE, Arc::new(BootClock), None);
        let outbox = Outbox::new(TWO, 4, Duration::from_secs(600));
        (0..10).for_each(|number| outbox.push(Packet::Ping(number), &meter));
        assert_eq!(meter.tally.snapshot().dropped, 6);
        let (mut ours, mut theirs) = connected().await;
        outbox.set_connected(true);
        assert!(outbox.idle().now_or_never().is_none(), "there is something to send");
        outbox.fill(&mut ours.writer, &meter).await;
        ours.writer.flush(Duration::from_secs(60)).await.unwrap();
        outbox.on_sent();
        outbox.idle().await;
        for number in 6..10 {
            let heard = theirs.reader.hear(Duration::from_secs(60)).await.unwrap();
            assert!(matches!(heard, Heard::Packet(Packet::Ping(heard), _) if heard == number));
        }
        assert_eq!(meter.tally.snapshot().sent_of("ping"), 4);
    }

    #[tokio::test]
    async fn what_has_grown_stale_is_not_sent_and_nobody_waits_for_it() {
        let meter = Meter::new(ONE, Arc::new(BootClock), None);
        let outbox = Outbox::new(TWO, 4, Duration::ZERO);
        let (mut ours, _theirs) = connected().await;
        outbox.set_connected(true);
        outbox.push(Packet::Ping(1), &meter);
        assert!(outbox.fill(&mut ours.writer, &meter).now_or_never().is_none(), "there is nothing left to send");
        outbox.idle().await;
        let counters = meter.tally.snapshot();
        assert_eq!((counters.sent, counters.dropped), (0, 1));
    }

    #[tokio::test]
    async fn what_was_said_to_one_who_cannot_be_reached_is_not_heard_by_its_successor() {
        let meter = Meter::new(ONE, Arc::new(BootClock), None);
        let outbox = Outbox::new(TWO, 4, Duration::from_secs(600));
        outbox.push(Packet::Ping(1), &meter);
        outbox.lose(&meter);
        outbox.push(Packet::Ping(2), &meter);
        let (mut ours, mut theirs) = connected().await;
        outbox.fill(&mut ours.writer, &meter).await;
        ours.writer.flush(Duration::from_secs(60)).await.unwrap();
        let heard = theirs.reader.hear(Duration::from_secs(60)).await.unwrap();
        assert!(matches!(heard, Heard::Packet(Packet::Ping(2), _)));
        assert_eq!(meter.tally.snapshot().dropped, 1);
    }

    #[test]
    fn without_a_connection_nobody_waits_for_last_words() {
        let meter = Meter::new(ONE, Arc::new(BootClock), None);
        let outbox = Outbox::new(TWO, 4, Duration::from_secs(600));
        outbox.push(Packet::Ping(1), &meter);
        assert!(outbox.idle().now_or_never().is_some());
    }
}
