//! A TCP proxy that forwards, cuts, stalls and delays on request, and counts what HTTP/2 clients
//! ask for.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_store::lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// What happens to bytes on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// They pass.
    Forward,
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections stay, and nothing passes until this changes.
    Stall,
    /// Every piece waits this long, in both directions.
    Delay(Duration),
    /// A new HTTP/2 request waits, with all that the client sends behind it, until this changes.
    /// What is sent on open streams before it passes, and so does all that the server says.
    HoldRequests,
    /// What the server says waits until this changes; what the client says passes.
    HoldAnswers,
    /// What the client says waits until this changes; what the server says passes.
    HoldQuestions,
}

type Ways = watch::Receiver<(Way, u64)>;

/// A proxy in front of one address, on a port of its own. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    target: Arc<Mutex<String>>,
    /// The way, and how often connections have been cut.
    way: watch::Sender<(Way, u64)>,
    counts: Arc<Counts>,
    task: AbortHandle,
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    requests: AtomicU64,
    finished: AtomicU64,
}

impl Proxy {
    /// A proxy in front of `target`, as `host:port`, that forwards for now.
    pub async fn start(target: &str) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (way, ways) = watch::channel((Way::Forward, 0));
        let counts = Arc::new(Counts::default());
        let target = Arc::new(Mutex::new(target.to_owned()));
        let task = tokio::spawn(accept(listener, target.clone(), ways, counts.clone())).abort_handle();
        Proxy { port, target, way, counts, task }
    }

    /// Where it listens, as `host:port`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on bytes go this way.
    pub fn set(&self, way: Way) {
        self.way.send_modify(|(now, cuts)| {
            *now = way;
            *cuts += u64::from(way == Way::Cut);
        });
    }

    /// Closes the connections that are open now; new ones are served as before.
    pub fn reset(&self) {
        self.way.send_modify(|(_, cuts)| *cuts += 1);
    }

    /// Closes the connections that are open now; new ones go to another address.
    pub fn turn_to(&self, target: &str) {
        target.clone_into(&mut lock(&self.target));
        self.reset();
    }

    /// How many connections have been made.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// How many HTTP/2 requests have been started: each gRPC call is one, and each stream.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// How many HTTP/2 requests are open: the client has more to send, and the server has not ended
    /// them.
    pub fn open_streams(&self) -> u64 {
        self.requests() - self.counts.finished.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, target: Arc<Mutex<String>>, ways: Ways, counts: Arc<Counts>) {
    // Connections go with the task that holds this set.
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let (way, cuts) = *ways.borrow();
        if way == Way::Cut {
            continue;
        }
        counts.connections.fetch_add(1, Ordering::SeqCst);
        let target = lock(&target).clone();
        connections.spawn(connect(client, target, ways.clone(), cuts, counts.clone()));
    }
}

async fn connect(client: TcpStream, target: String, ways: Ways, cuts: u64, counts: Arc<Counts>) {
    let mut cut = ways.clone();
    let streams = Streams { counts: &counts, open: Mutex::default(), begun: AtomicU64::default() };
    let (mut up_frames, mut down_frames) = (Frames::after(Frames::GREETING), Frames::after(b""));
    let serve = async {
        let Ok(server) = TcpStream::connect(&target).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let up = pump(from_client, to_server, ways.clone(), cuts, |bytes| {
            let before = streams.begun();
            up_frames.read(bytes, |frame| streams.sent(frame));
            let begins = streams.begun() > before;
            move |way| way == Way::HoldQuestions || (begins && way == Way::HoldRequests)
        });
        let down = pump(from_server, to_client, ways, cuts, |bytes| {
            down_frames.read(bytes, |frame| streams.heard(frame));
            |way| way == Way::HoldAnswers
        });
        tokio::select! { () = up => {}, () = down => {} }
    };
    // Whichever comes first: the end of the connection, or somebody who cuts it, if only for a
    // moment. What was held back until then is not let through.
    tokio::select! {
        biased;
        _ = cut.wait_for(|(_, now)| *now != cuts) => {}
        () = serve => {}
    }
    streams.end();
}

/// `held_by` is shown every piece, and says which ways hold it back, beside a stall. What has not
/// passed when the connection is cut never does, even if bytes pass again before the cut is noticed
/// elsewhere.
async fn pump<H: Fn(Way) -> bool>(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut ways: Ways,
    cuts: u64,
    mut held_by: impl FnMut(&[u8]) -> H,
) {
    let mut piece = [0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut piece).await else { return };
        if ways.wait_for(|(way, _)| *way != Way::Stall).await.is_err() {
            return;
        }
        let (way, _) = *ways.borrow();
        if let Way::Delay(delay) = way {
            tokio::time::sleep(delay).await;
        }
        let held_by = held_by(&piece[..length]);
        let over = ways.wait_for(|(way, now)| *now != cuts || !held_by(*way)).await;
        let passes = over.is_ok_and(|over| over.1 == cuts);
        if !passes {
            return;
        }
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

/// The requests of one connection.
struct Streams<'a> {
    counts: &'a Counts,
    open: Mutex<HashSet<[u8; 4]>>,
    /// How many were started on this connection.
    begun: AtomicU64,
}

impl Streams<'_> {
    fn sent(&self, frame: Frame) {
        // Headers may come a second time, at the end.
        if frame.kind == Frame::HEADERS && self.open(|open| open.insert(frame.stream)) {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.counts.requests.fetch_add(1, Ordering::SeqCst);
        }
        self.heard(frame);
    }

    fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// A server may answer, and end the stream, before the client's end of it has come.
    fn heard(&self, frame: Frame) {
        if frame.ends() && self.open(|open| open.remove(&frame.stream)) {
            self.counts.finished.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The connection is gone, and all that was open on it.
    fn end(&self) {
        let open = self.open(|open| open.drain().count());
        self.counts.finished.fetch_add(open as u64, Ordering::SeqCst);
    }

    fn open<T>(&self, what: impl FnOnce(&mut HashSet<[u8; 4]>) -> T) -> T {
        what(&mut lock(&self.open))
    }
}

/// The head of an HTTP/2 frame.
#[derive(Clone, Copy)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: [u8; 4],
}

impl Frame {
    const HEAD_BYTES: usize = 9;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const END_STREAM: u8 = 1;

    fn ends(self) -> bool {
        let last = matches!(self.kind, Frame::DATA | Frame::HEADERS) && self.flags & Frame::END_STREAM != 0;
        last || self.kind == Frame::RESET
    }
}

/// Follows the HTTP/2 frames of one direction.
struct Frames {
    pending: Vec<u8>,
    /// Bytes of the present frame that are still to come.
    rest: usize,
    /// What has to come before the first frame.
    greeting: &'static [u8],
}

impl Frames {
    const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn after(greeting: &'static [u8]) -> Frames {
        Frames { pending: Vec::new(), rest: 0, greeting }
    }

    fn read(&mut self, bytes: &[u8], mut each: impl FnMut(Frame)) {
        self.pending.extend_from_slice(bytes);
        if !self.greeting.is_empty() {
            if self.pending.len() < self.greeting.len() {
                return;
            }
            // Another protocol has no frames to count.
            self.rest = if self.pending.starts_with(self.greeting) { self.greeting.len() } else { usize::MAX };
            self.greeting = b"";
        }
        loop {
            let skipped = self.rest.min(self.pending.len());
            self.pending.drain(..skipped);
            self.rest = self.rest.saturating_sub(skipped);
            let [a, b, c, kind, flags, stream @ ..] = &self.pending[..] else { return };
            let (Some(stream), 0) = (stream.first_chunk().copied(), self.rest) else { return };
            let [a, b, c, kind, flags] = [*a, *b, *c, *kind, *flags];
            self.rest = Frame::HEAD_BYTES + usize::from(a) * 0x10000 + usize::from(b) * 0x100 + usize::from(c);
            each(Frame { kind, flags, stream });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u8, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).unwrap();
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    #[test]
    fn requests_and_open_streams_are_counted_however_the_bytes_are_cut() {
        let sent = [
            Frames::GREETING.to_vec(),
            frame(0, 4, 0, &[1; 6]),
            frame(1, Frame::HEADERS, 4, b"unary"),
            frame(1, Frame::DATA, Frame::END_STREAM, b"body"),
            // It was cancelled after all had been sent.
            frame(1, Frame::RESET, 0, &[0; 4]),
            frame(3, Frame::HEADERS, 4, b"stream"),
            frame(3, Frame::DATA, 0, &[1; 11]),
            frame(5, Frame::HEADERS, 4, b"reset"),
            frame(5, Frame::RESET, 0, &[0; 4]),
            frame(7, Frame::HEADERS, 4, b"its end is late"),
        ];
        let heard = [
            frame(0, 4, 0, &[1; 6]),
            frame(3, Frame::HEADERS, 4, b"status"),
            frame(7, Frame::DATA, 0, b"answer"),
            frame(7, Frame::HEADERS, 4 | Frame::END_STREAM, b"trailers"),
        ];
        let (sent, heard) = (sent.concat(), heard.concat());
        for cut in 1..sent.len() {
            let counts = Counts::default();
            let streams = Streams { counts: &counts, open: Mutex::default(), begun: AtomicU64::default() };
            let read = |frames: &mut Frames, bytes: &[u8], each: &dyn Fn(Frame)| {
                bytes.chunks(cut).for_each(|piece| frames.read(piece, each));
            };
            let finished = || counts.finished.load(Ordering::SeqCst);
            let mut up = Frames::after(Frames::GREETING);
            read(&mut up, &sent, &|frame| streams.sent(frame));
            assert_eq!((counts.requests.load(Ordering::SeqCst), finished()), (4, 2), "in pieces of {cut}");
            read(&mut Frames::after(b""), &heard, &|frame| streams.heard(frame));
            assert_eq!(finished(), 3, "in pieces of {cut}");
            read(&mut up, &frame(7, Frame::DATA, Frame::END_STREAM, b""), &|frame| streams.sent(frame));
            assert_eq!(finished(), 3, "in pieces of {cut}");
            streams.end();
            assert_eq!((counts.requests.load(Ordering::SeqCst), finished()), (4, 4), "in pieces of {cut}");
        }
    }

    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        endpoint
    }

    #[tokio::test]
    async fn bytes_pass_stall_and_are_cut() {
        let proxy = Proxy::start(&echo().await).await;
        let mut stream = TcpStream::connect(proxy.endpoint()).await.unwrap();
        let mut back = [0; 4];
        stream.write_all(b"ping").await.unwrap();
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"ping");

        proxy.set(Way::Stall);
        stream.write_all(b"late").await.unwrap();
        let stalled = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut back)).await;
        assert!(stalled.is_err(), "nothing passes");
        proxy.set(Way::Delay(Duration::from_millis(1)));
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"late");
        for way in [Way::HoldQuestions, Way::HoldAnswers] {
            proxy.set(way);
            stream.write_all(b"held").await.unwrap();
            let held = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut back)).await;
            assert!(held.is_err(), "nothing comes back: {way:?}");
            proxy.set(Way::Forward);
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(&back, b"held");
        }

        proxy.reset();
        assert_eq!(stream.read(&mut back).await.unwrap_or(0), 0, "the connection is closed");
        let mut again = TcpStream::connect(proxy.endpoint()).await.unwrap();
        again.write_all(b"more").await.unwrap();
        again.read_exact(&mut back).await.unwrap();
        assert_eq!((&back, proxy.connections()), (b"more", 2));

        proxy.set(Way::Cut);
        assert_eq!(again.read(&mut back).await.unwrap_or(0), 0, "the connection is closed");
    }

    #[tokio::test]
    async fn what_was_held_back_when_the_connection_was_cut_never_passes() {
        let proxy = Proxy::start(&echo().await).await;
        for number in 1..=20 {
            proxy.set(Way::HoldAnswers);
            let mut stream = TcpStream::connect(proxy.endpoint()).await.unwrap();
            crate::patience::until("it is open", async || proxy.connections() == number).await;
            let mut back = [0; 4];
            stream.write_all(b"held").await.unwrap();
            let held = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut back)).await;
            assert!(held.is_err(), "nothing comes back");
            // The connection's task sees both at once.
            proxy.reset();
            proxy.set(Way::Forward);
            assert_eq!(stream.read(&mut back).await.unwrap_or(0), 0, "the connection is closed");
        }
    }
}
