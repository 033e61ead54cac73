//! Whether something answers over the network.
//!
//! A probe that fails makes a candidate unwell and not unfit, unless it is told otherwise: what is
//! probed is mostly shared, a database say, and if it is down for one it is down for all. Then a
//! change of office helps nobody.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::{Fitness, Health, HealthCheck};

/// How much of an answer is read for its first line.
const LONGEST_LINE: usize = 1024;

/// An address at which something takes connections. A failure says unwell.
#[derive(Clone, Debug)]
pub struct TcpCheck {
    address: String,
    failure: Fitness,
}

impl TcpCheck {
    /// `HOST:PORT`.
    pub fn new(address: impl Into<String>) -> TcpCheck {
        TcpCheck { address: address.into(), failure: Fitness::Unwell }
    }

    /// A failure says this.
    pub fn failure(mut self, says: Fitness) -> TcpCheck {
        self.failure = says;
        self
    }
}

impl HealthCheck for TcpCheck {
    fn name(&self) -> String {
        format!("TCP {}", self.address)
    }

    fn check(&mut self, within: Duration) -> Health {
        match connect(&self.address, Instant::now() + within) {
            Ok(_) => Health::fit(),
            Err(error) => Health::new(self.failure, error.to_string()),
        }
    }

    fn when_late(&self) -> Fitness {
        self.failure
    }
}

/// A URL that is answered with a status of 200 to 399. A failure says unwell.
#[derive(Clone, Debug)]
pub struct HttpCheck {
    url: String,
    address: String,
    host: String,
    path: String,
    failure: Fitness,
}

/// A URL that cannot be probed, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot probe {url:?}: {why}")]
pub struct ProbeError {
    url: String,
    why: &'static str,
}

impl HttpCheck {
    /// `http://HOST[:PORT][/PATH]`.
    pub fn new(url: &str) -> Result<HttpCheck, ProbeError> {
        let error = |why| ProbeError { url: url.to_owned(), why };
        if url.starts_with("https://") {
            return Err(error("there is no TLS here; use a command, e.g. `curl -fsS URL`"));
        }
        let rest = url.strip_prefix("http://").ok_or(error("write http://HOST:PORT/PATH"))?;
        let rest = rest.split('#').next().unwrap_or_default();
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let is_plain = rest.chars().all(|c| !c.is_control() && c != ' ' && c.is_ascii());
        if host.is_empty() || host.contains('@') || !is_plain {
            return Err(error("write http://HOST:PORT/PATH, with no user, no spaces and other characters escaped"));
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(HttpCheck { url: url.to_owned(), address, host: host.to_owned(), path, failure: Fitness::Unwell })
    }

    /// A failure says this.
    pub fn failure(mut self, says: Fitness) -> HttpCheck {
        self.failure = says;
        self
    }

    /// The status line of the answer.
    fn ask(&self, until: Instant) -> io::Result<String> {
        let mut stream = connect(&self.address, until)?;
        let agent = concat!("incumbent/", env!("CARGO_PKG_VERSION"));
        let HttpCheck { path, host, .. } = self;
        stream.set_write_timeout(Some(left(until)?))?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut said = Vec::new();
        while !said.contains(&b'\n') && said.len() < LONGEST_LINE {
            stream.set_read_timeout(Some(left(until)?))?;
            let mut some = [0; LONGEST_LINE];
            match stream.read(&mut some) {
                Ok(0) => break,
                Ok(read) => said.extend_from_slice(&some[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error),
            }
        }
        Ok(String::from_utf8_lossy(&said).lines().next().unwrap_or_default().to_owned())
    }
}

impl HealthCheck for HttpCheck {
    fn name(&self) -> String {
        self.url.clone()
    }

    fn check(&mut self, within: Duration) -> Health {
        match self.ask(Instant::now() + within) {
            Ok(line) => match status(&line) {
                Some(200..=399) => Health::fit(),
                Some(status) => Health::new(self.failure, format!("status {status}")),
                None => Health::new(self.failure, "the answer is not HTTP"),
            },
            Err(error) => Health::new(self.failure, error.to_string()),
        }
    }

    fn when_late(&self) -> Fitness {
        self.failure
    }
}

/// The status in `HTTP/1.1 200 OK`.
fn status(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/")?.split(' ').nth(1)?.trim().parse().ok()
}

/// Tries one address of the host after the other.
fn connect(address: &str, until: Instant) -> io::Result<TcpStream> {
    let mut last = None;
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
}

/// The time that is left, if there is any.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use incumbent_store::lock;
    use incumbent_testkit::free_port;
    use incumbent_testkit::patience::until;

    use super::*;

    /// The machine is busy.
    const LONG: Duration = Duration::from_secs(60);

    /// A server that answers every request with what it is told to say. It ends with the process.
    fn server() -> (String, Arc<Mutex<&'static str>>, Arc<Mutex<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (answer, asked) = (Arc::new(Mutex::new("")), Arc::new(Mutex::new(String::new())));
        let (says, hears) = (answer.clone(), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut some = [0; 512];
                    match stream.read(&mut some) {
                        Ok(read) if read > 0 => request.extend_from_slice(&some[..read]),
                        _ => break,
                    }
                }
                *lock(&hears) = String::from_utf8(request).unwrap();
                let says = *lock(&says);
                // One who has gone hears nothing.
                let _ = stream.write_all(says.as_bytes());
            }
        });
        (address, answer, asked)
    }

    #[test]
    fn a_status_crosses_from_good_to_bad_and_back_and_is_unwell_by_default() {
        let (address, answer, asked) = server();
        let mut check = HttpCheck::new(&format!("http://{address}/health?deep=1#x")).unwrap();
        let mut said = |says: &'static str| {
            *lock(&answer) = says;
            check.check(LONG).to_string()
        };
        assert_eq!(said("HTTP/1.1 200 OK\r\n\r\n"), "fit");
        assert_eq!(said("HTTP/1.1 503 Service Unavailable\r\n\r\n"), "unwell: status 503");
        assert_eq!(said("HTTP/1.0 404\r\n\r\n"), "unwell: status 404");
        assert_eq!(said("SSH-2.0-OpenSSH\r\n"), "unwell: the answer is not HTTP");
        assert_eq!(said(""), "unwell: the answer is not HTTP");
        assert_eq!(said("HTTP/1.1 302 Found\r\n\r\n"), "fit");
        let request = lock(&asked).clone();
        assert!(request.starts_with(&format!("GET /health?deep=1 HTTP/1.1\r\nHost: {address}\r\n")), "{request}");
        *lock(&answer) = "HTTP/1.1 500 No\r\n\r\n";
        assert_eq!(check.failure(Fitness::Unfit).check(LONG).to_string(), "unfit: status 500");
    }

    #[tokio::test]
    async fn a_port_that_is_closed_and_opened_again_is_unwell_and_fit_again() {
        // Nobody else gets it while it is closed.
        let listener = TcpListener::bind(("127.0.0.1", free_port())).unwrap();
        let address = listener.local_addr().unwrap();
        let mut tcp = TcpCheck::new(address.to_string());
        let mut http = HttpCheck::new(&format!("http://{address}")).unwrap();
        assert_eq!(tcp.check(LONG), Health::fit());
        assert_eq!(http.check(Duration::from_millis(50)).to_string(), "unwell: timed out", "nobody answers");
        drop(listener);
        // A process that another test starts in this moment has it open, too, until it is another
        // program.
        let refused = async || tcp.check(LONG).to_string() == "unwell: Connection refused (os error 111)";
        until("nobody listens", refused).await;
        assert_eq!(http.check(LONG).fitness, Fitness::Unwell);
        let again = TcpListener::bind(address).unwrap();
        assert_eq!(tcp.check(LONG), Health::fit());
        drop(again);
        assert_eq!(tcp.failure(Fitness::Unfit).check(LONG).fitness, Fitness::Unfit);
        assert_eq!(TcpCheck::new("nonsense").check(LONG).to_string(), "unwell: invalid socket address");
    }

    #[test]
    fn what_is_no_url_of_http_is_refused_with_the_way_out() {
        assert!(HttpCheck::new("https://a/").unwrap_err().to_string().contains("curl -fsS"));
        for bad in ["", "a:80", "http://", "http:///x", "http://u:p@a/", "http://a/b c", "http://a/\r\nX: y"] {
            assert!(HttpCheck::new(bad).is_err(), "{bad:?}");
        }
        let addresses = ["http://a", "http://a:81/x", "http://[::1]:82", "http://[::1]/", "http://a?x"]
            .map(|url| HttpCheck::new(url).map(|check| (check.address, check.path)).unwrap());
        let expected = [("a:80", "/"), ("a:81", "/x"), ("[::1]:82", "/"), ("[::1]:80", "/"), ("a:80", "/?x")];
        assert_eq!(addresses, expected.map(|(address, path)| (address.to_owned(), path.to_owned())));
    }
}
