//! The client: it sends its writes one after the other, each until somebody has taken it.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use incumbent_testkit::resource::DONE;

use super::PATIENCE;

/// Between two rounds in which nobody took it.
const REST: Duration = Duration::from_micros(100);

/// It asks the candidates in turn: how soon others hear of a new leader is not what is measured.
/// Its thread blocks, since tokio's timers are too coarse for its rests.
#[derive(Debug)]
pub(super) struct Client {
    candidates: Vec<Candidate>,
    /// The one that took the last write.
    leader: usize,
    acknowledged: u64,
    resent: u64,
}

#[derive(Debug)]
struct Candidate {
    address: SocketAddr,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Client {
        let candidate = |address| Candidate { address, connection: None };
        Client { candidates: addresses.into_iter().map(candidate).collect(), leader: 0, acknowledged: 0, resent: 0 }
    }

    /// The next write.
    ///
    /// # Panics
    ///
    /// If nobody takes it.
    pub(super) fn write(&mut self) {
        let id = self.acknowledged + 1;
        let write = format!("write {id}\n");
        let began = Instant::now();
        let mut refusals = 0;
        while !self.candidates[self.leader].does(&write) {
            assert!(began.elapsed() < PATIENCE, "nobody takes write {id}");
            refusals += 1;
            self.leader = (self.leader + 1) % self.candidates.len();
            if refusals % self.candidates.len() == 0 {
                std::thread::sleep(REST);
            }
        }
        self.acknowledged = id;
        self.resent += refusals as u64;
    }

    /// Tells the one that took the last write something else.
    pub(super) fn tell_leader(&mut self, what: &str) {
        assert!(self.candidates[self.leader].does(&format!("{what}\n")), "the leader does not {what}");
    }

    /// How many writes were taken, as far as it was told.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many were sent again.
    pub(super) fn resent(&self) -> u64 {
        self.resent
    }
}

impl Candidate {
    /// Whether it says that it has done so. It may have done so and not say it.
    fn does(&mut self, line: &str) -> bool {
        let answer = self.ask(line);
        if answer.is_err() {
            self.connection = None;
        }
        answer.is_ok_and(|answer| answer == DONE)
    }

    fn ask(&mut self, line: &str) -> io::Result<String> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                self.connection.insert(BufReader::new(stream))
            }
        };
        connection.get_mut().write_all(line.as_bytes())?;
        let mut answer = String::new();
        connection.read_line(&mut answer)?;
        Ok(answer.trim_end().to_owned())
    }
}
