//! What is sent at about the same time leaves together.
//!
//! A request is three frames of HTTP/2 (headers, data, the end), which the libraries below write one by one as they
//! come about. Each would be a packet of its own, and wake a server's thread that finds half a request. Here a flush
//! waits until the tasks that had something to run have run once more without adding anything, which takes
//! microseconds; then all of it is one packet.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// More than this is not held back.
const MOST_BYTES: usize = 64 * 1024;
/// How often a flush waits: the frames of a request, and one turn to see that there are no more.
const MOST_WAITS: u32 = 4;

/// A connection whose small writes are gathered.
#[derive(Debug)]
pub(crate) struct Cork<C> {
    connection: C,
    held_back: Vec<u8>,
    /// How much of it was sent already.
    sent: usize,
    /// Something was added since the last flush.
    grew: bool,
    waits: u32,
    /// How often somebody waited for an answer since the last flush.
    reads: u32,
}

impl<C: AsyncWrite + Unpin> Cork<C> {
    pub(crate) fn new(connection: C) -> Cork<C> {
        Cork { connection, held_back: Vec::new(), sent: 0, grew: false, waits: 0, reads: 0 }
    }

    /// Sends what was held back.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.held_back.len() {
            let sent = ready!(Pin::new(&mut self.connection).poll_write(cx, &self.held_back[self.sent..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += sent;
        }
        self.held_back.clear();
        (self.sent, self.grew, self.waits) = (0, false, 0);
        Poll::Ready(Ok(()))
    }

    /// Makes room for some more.
    fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
        // What is half sent is sent first, too: then there is one place where sending begins.
        let fits = self.sent == 0 && self.held_back.len() + bytes <= MOST_BYTES;
        if fits { Poll::Ready(Ok(())) } else { self.poll_send(cx) }
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Cork<C> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = parts.iter().map(|part| part.len()).sum();
        ready!(this.poll_room(cx, bytes))?;
        if bytes > MOST_BYTES {
            return Pin::new(&mut this.connection).poll_write_vectored(cx, parts);
        }
        parts.iter().for_each(|part| this.held_back.extend_from_slice(part));
        this.grew |= bytes > 0;
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.reads = 0;
        if this.grew && this.waits < MOST_WAITS {
            this.grew = false;
            this.waits += 1;
            // To the end of the queue, behind those who may have more to send.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.connection).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.connection).poll_shutdown(cx)
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> AsyncRead for Cork<C> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = Pin::new(&mut this.connection).poll_read(cx, into);
        // A flush that waits makes the task come again. One that then only reads has forgotten it,
        // as tokio-rustls did in a handshake before 0.26.1, and would wait for the answer to what
        // is held back here.
        if read.is_pending() {
            this.reads += 1;
            if this.reads > 1 {
                _ = this.poll_send(cx)?;
            }
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Keeps each write apart; takes at most so many bytes at a time, and every other time none.
    #[derive(Clone, Default)]
    struct Wire {
        packets: Arc<Mutex<Vec<Vec<u8>>>>,
        narrow: Option<usize>,
        stalls: bool,
        stalled: bool,
        flushed: Arc<Mutex<usize>>,
    }

    impl AsyncWrite for Wire {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.stalled = self.stalls && !self.stalled;
            if self.stalled {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.narrow.unwrap_or(usize::MAX));
            self.packets.lock().unwrap().push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            *self.flushed.lock().unwrap() += 1;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Says nothing by itself.
    impl AsyncRead for Wire {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    impl Wire {
        fn packets(&self) -> Vec<Vec<u8>> {
            self.packets.lock().unwrap().clone()
        }
    }

    /// As HTTP/2 does it: after each frame a flush, which is not waited for while there are more frames.
    async fn send_frames(cork: &mut Cork<Wire>, frames: &[&[u8]]) {
        let mut left = frames.iter();
        poll_fn(|cx| {
            if let Some(frame) = left.next() {
                assert!(
                    matches!(Pin::new(&mut *cork).poll_write(cx, frame), Poll::Ready(Ok(sent)) if sent == frame.len())
                );
            }
            Pin::new(&mut *cork).poll_flush(cx)
        })
        .await
        .unwrap();
        assert_eq!(left.next(), None, "the flush was over before all frames were there");
    }

    #[tokio::test]
    async fn the_frames_of_a_request_leave_in_one_packet() {
        let wire = Wire::default();
        let mut cork = Cork::new(wire.clone());
        for _ in 0..2 {
            send_frames(&mut cork, &[b"headers", b"data", b"end"]).await;
        }
        assert_eq!(wire.packets(), [b"headersdataend"; 2]);
        assert_eq!(*wire.flushed.lock().unwrap(), 2);
    }

    #[tokio::test]
    async fn one_that_forgets_its_flush_and_waits_for_the_answer_has_sent_the_question() {
        let wire = Wire::default();
        let mut cork = Cork::new(wire.clone());
        poll_fn(|cx| {
            let mut buffer = [0; 8];
            let mut reads = |cork: &mut Cork<Wire>, cx: &mut Context<'_>| {
                assert!(Pin::new(cork).poll_read(cx, &mut ReadBuf::new(&mut buffer)).is_pending());
            };
            assert!(Pin::new(&mut cork).poll_write(cx, b"question").is_ready());
            assert!(Pin::new(&mut cork).poll_flush(cx).is_pending());
            reads(&mut cork, cx);
            assert!(wire.packets().is_empty(), "there may be more to come");
            reads(&mut cork, cx);
            Poll::Ready(())
        })
        .await;
        assert_eq!(wire.packets(), [b"question"]);
    }

    #[tokio::test]
    async fn a_flush_ends_though_there_is_ever_more_to_send() {
        let wire = Wire::default();
        let mut cork = Cork::new(wire.clone());
        let mut frames = 0;
        poll_fn(|cx| {
            frames += 1;
            assert!(Pin::new(&mut cork).poll_write(cx, b"frame").is_ready());
            Pin::new(&mut cork).poll_flush(cx)
        })
        .await
        .unwrap();
        assert_eq!((frames, wire.packets().len()), (MOST_WAITS as usize + 1, 1));
    }

    #[tokio::test]
    async fn what_is_too_large_is_not_held_back_and_keeps_its_order() {
        let wire = Wire { narrow: Some(20_000), stalls: true, ..Wire::default() };
        let mut cork = Cork::new(wire.clone());
        let mut whole = Vec::new();
        for (number, size) in [10, MOST_BYTES, 7, MOST_BYTES + 1, 3 * MOST_BYTES, 1].into_iter().enumerate() {
            let part = vec![number as u8; size];
            cork.write_all(&part).await.unwrap();
            whole.extend(part);
            assert!(cork.held_back.len() <= MOST_BYTES);
        }
        cork.shutdown().await.unwrap();
        assert!(wire.packets().concat() == whole, "something was lost or out of order");
    }
}
