//! The URLs that name stores: `scheme://authority/path?option=value&...`, split in one place
//! ([`Parts`]), and printed without passwords ([`redacted`]).
//!
//! What stores of servers have in common is read here, too ([`Scheme`]): servers, credentials,
//! certificates, as in `scheme[s]://[user:password@]host[:port][,...][/path][?option=value&...]`.
//! What a path and the other options mean only the store knows. Nothing is dialled; the files that
//! are named are read.

use std::collections::BTreeSet;
use std::fmt;

use crate::error::StoreError;
use crate::escape::unescape;

/// The parts of a store's URL as they are written: nothing is decoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Parts<'a> {
    /// What comes before the first colon.
    pub scheme: &'a str,
    /// What comes between the two slashes, which may be left out, and the path.
    pub authority: &'a str,
    /// From its first slash on. Empty if there is none.
    pub path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits a URL. `None`: it has no scheme.
    pub fn split(url: &'a str) -> Option<Parts<'a>> {
        let (scheme, rest) = url.split_once(':')?;
        let (authority, path, query) = split_rest(rest.strip_prefix("//").unwrap_or(rest));
        Some(Parts { scheme, authority, path, query: query.unwrap_or_default() })
    }

    /// The options in their order, with what follows their equals sign.
    pub fn options(&self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> {
        let options = self.query.split('&').filter(|option| !option.is_empty());
        options.map(|option| option.split_once('=').map_or((option, None), |(word, value)| (word, Some(value))))
    }
}

/// Without anything that may be secret.
impl fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

fn split_rest(rest: &str) -> (&str, &str, Option<&str>) {
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    (authority, path, query)
}

/// The URL with every password replaced by `***`: in the authority, and in options whose name says
/// that they are secret.
pub fn redacted(url: &str) -> String {
    map_secrets(url, |_| "***".to_owned())
}

/// The passwords in a URL.
pub fn secrets(url: &str) -> Vec<String> {
    let mut secrets = Vec::new();
    map_secrets(url, |secret| {
        secrets.push(secret.to_owned());
        String::new()
    });
    secrets
}

fn map_secrets(url: &str, mut replace: impl FnMut(&str) -> String) -> String {
    let (start, rest) = url.split_at(url.find("://").map_or(0, |colon| colon + 3));
    let (authority, path, query) = split_rest(rest);
    // A password may have an unescaped @ in it, and by mistake a slash: the host comes after the
    // last @. A path alone, as that of a directory, may have an @, too.
    let place = if authority.is_empty() { path } else { &rest[..authority.len() + path.len()] };
    let place = match place.rsplit_once('@').filter(|_| !authority.is_empty()) {
        Some((user, host)) => match user.split_once(':') {
            Some((user, password)) => format!("{user}:{}@{host}", replace(password)),
            None => format!("{user}@{host}"),
        },
        None => place.to_owned(),
    };
    let Some(query) = query else { return format!("{start}{place}") };
    let options: Vec<_> = query
        .split('&')
        .map(|option| match option.split_once('=') {
            Some((word, value)) if is_secret(word) => format!("{word}={}", replace(value)),
            _ => option.to_owned(),
        })
        .collect();
    format!("{start}{place}?{}", options.join("&"))
}

fn is_secret(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    // The name of a file with a secret is none.
    if word.ends_with("-file") || ["key", "tls-key", "sslkey"].contains(&word.as_str()) {
        return false;
    }
    ["pass", "pwd", "secret", "token", "key", "auth", "credential"].iter().any(|part| word.contains(part))
}

/// What tells the URLs of one kind of store from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scheme {
    /// What stands before `://`. With an `s` behind it, it asks for TLS.
    pub name: &'static str,
    /// What it leads to, as messages say it: "an etcd store".
    pub store: &'static str,
    /// The port of servers that are named without one.
    pub port: u16,
}

/// What a URL says, percent-decoded where that is allowed: user, password, path, and the values of
/// options.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    /// Who we are: a name and a password.
    pub user: Option<(String, String)>,
    /// At least one, each as `host:port`.
    pub servers: Vec<String>,
    /// What follows the servers, from its `/` on. Empty if nothing does.
    pub path: String,
    /// Certificates, if the scheme asks for TLS.
    pub tls: Option<Tls>,
    /// The options in their order, but for those that became [`Url::tls`].
    pub options: Vec<(String, String)>,
}

/// What the options `ca`, `cert` and `key` name, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Whom we trust.
    pub ca: String,
    /// Our certificate and its key.
    pub identity: Option<(String, String)>,
}

/// What a file of PEM holds, and how the line ends with which that begins.
const CERTIFICATE: (&str, &str) = ("certificate", "CERTIFICATE-----");
const KEY: (&str, &str) = ("private key", "PRIVATE KEY-----");

impl Scheme {
    /// Reads a URL. What goes wrong is told without the password.
    pub fn read(self, url: &str) -> Result<Url, StoreError> {
        let (Some(speaks_tls), Some(parts)) = (self.speaks_tls(url), Parts::split(url)) else {
            return Err(self.wrong(format_args!("it begins with {0}:// or {0}s://", self.name)));
        };
        let Parts { authority, path, .. } = parts;
        // Either part of a password, which would then be taken for a port and a path, or of a path
        // that looks like one.
        if path.contains('@') {
            return Err(self.wrong("before an @ a / is written as %2F, and in a path an @ as %40"));
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(self.user(user)?), hosts),
            None => (None, authority),
        };
        let servers = hosts.split(',').map(|host| self.server(host)).collect::<Result<_, _>>()?;
        let path = self.decoded(path)?;
        let mut options = parts.options().map(|option| self.option(option)).collect::<Result<Vec<_>, _>>()?;
        // Of two that contradict each other one would count, and nobody would be told which.
        let mut words = BTreeSet::new();
        if let Some((twice, _)) = options.iter().find(|(word, _)| !words.insert(word.clone())) {
            return Err(self.wrong(format_args!("the option {twice:?} is named twice")));
        }
        let tls = if speaks_tls { Some(self.take_tls(&mut options)?) } else { None };
        Ok(Url { scheme: self, user, servers, path, tls, options })
    }

    /// A server as `host:port`, with the usual port if it has none. An IPv6 address stands in
    /// brackets.
    pub fn server(self, host: &str) -> Result<String, StoreError> {
        let strange = |character: char| character.is_whitespace() || character.is_control() || character == '/';
        // The colons of an IPv6 address are behind its bracket.
        let address_end = host.rfind(']').map_or(0, |bracket| bracket + 1);
        let (address, port) = match host[address_end..].find(':') {
            Some(colon) => (&host[..address_end + colon], Some(&host[address_end + colon + 1..])),
            None => (host, None),
        };
        if address.is_empty() || host.contains(strange) {
            return Err(self.wrong("every server is host:port"));
        }
        match port {
            None => Ok(format!("{host}:{}", self.port)),
            Some(port) if is_port(port) => Ok(host.to_owned()),
            Some(_) => Err(self.wrong("a port is a number from 1 to 65535")),
        }
    }

    /// The URL, or a part of it, is malformed.
    pub fn wrong(self, what: impl fmt::Display) -> StoreError {
        StoreError::Misuse { what: format!("the URL of {}: {what}", self.store) }
    }

    /// Whether it asks for TLS.
    fn speaks_tls(self, url: &str) -> Option<bool> {
        let rest = url.strip_prefix(self.name)?;
        if rest.starts_with("://") { Some(false) } else { rest.starts_with("s://").then_some(true) }
    }

    fn user(self, text: &str) -> Result<(String, String), StoreError> {
        let (name, password) = text.split_once(':').ok_or_else(|| self.wrong("before the @ there is user:password"))?;
        Ok((self.decoded(name)?, self.decoded(password)?))
    }

    fn option(self, (word, value): (&str, Option<&str>)) -> Result<(String, String), StoreError> {
        let value = value.ok_or_else(|| self.wrong("an option is option=value"))?;
        Ok((word.to_owned(), self.decoded(value)?))
    }

    /// What `%40` and the like stand for.
    pub fn decoded(self, text: &str) -> Result<String, StoreError> {
        let bytes = unescape(text).ok_or_else(|| self.wrong("a % is followed by two hexadecimal digits"))?;
        String::from_utf8(bytes).map_err(|_| self.wrong("what is percent-encoded is UTF-8"))
    }

    /// A certificate comes with its key, and there are no certificates that everybody trusts.
    fn take_tls(self, options: &mut Vec<(String, String)>) -> Result<Tls, StoreError> {
        let (mut ca, mut certificate, mut key) = (None, None, None);
        let mut others = Vec::new();
        for (word, value) in options.drain(..) {
            match word.as_str() {
                "ca" => ca = Some(self.pem(&value, CERTIFICATE)?),
                "cert" => certificate = Some(self.pem(&value, CERTIFICATE)?),
                "key" => key = Some(self.pem(&value, KEY)?),
                _ => others.push((word, value)),
            }
        }
        *options = others;
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(self.wrong("the options cert and key go together")),
        };
        let needs_ca =
            format_args!("{}s:// needs the option ca, a file with the certificates that are trusted", self.name);
        Ok(Tls { ca: ca.ok_or_else(|| self.wrong(needs_ca))?, identity })
    }

    fn pem(self, path: &str, (holds, begins): (&str, &str)) -> Result<String, StoreError> {
        let bytes = std::fs::read(path);
        let bytes = bytes.map_err(|error| self.wrong(format_args!("the file {path:?} cannot be read: {error}")))?;
        if bytes.is_empty() {
            return Err(self.wrong(format_args!("the file {path:?} is empty")));
        }
        // What counts in it is ASCII; comments may be in any encoding.
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let is_begin = |line: &str| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(begins);
        if !text.lines().any(is_begin) {
            // With no certificate in it nobody would be trusted, and no server be reached.
            return Err(self.wrong(format_args!("the file {path:?} has no {holds} in it (PEM)")));
        }
        Ok(text)
    }
}

impl Url {
    /// The store does not know an option of this name, at least not in a URL such as this.
    pub fn unknown_option(&self, word: &str) -> StoreError {
        match &self.tls {
            Some(_) => self.scheme.wrong(format_args!("the option {word:?} is not known")),
            None => {
                self.scheme.wrong(format_args!("the option {word:?} is not known, or needs {}s://", self.scheme.name))
            }
        }
    }
}

/// Without the password, and without what options hold.
impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Url")
            .field("scheme", &self.scheme.name)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("servers", &self.servers)
            .field("path", &self.path)
            .field("tls", &self.tls)
            .field("options", &self.options.iter().map(|(word, _)| word).collect::<Vec<_>>())
            .finish()
    }
}

/// Without the key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|digit| digit.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    const STORE: Scheme = Scheme { name: "abacus", store: "an abacus store", port: 88 };

    fn read(url: &str) -> Url {
        STORE.read(url).unwrap()
    }

    fn refusal(url: &str) -> String {
        STORE.read(url).expect_err(url).to_string()
    }

    /// A certificate and its key, in one file.
    const OWN: &str = "-----BEGIN CERTIFICATE-----\nx\n-----BEGIN EC PRIVATE KEY-----\nx\n";

    /// A file that is gone with the test.
    struct Pem(PathBuf);

    impl Pem {
        fn holding(test: &str, bytes: &[u8]) -> Pem {
            let path = std::env::temp_dir().join(format!("incumbent-url-{test}-{}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            Pem(path)
        }

        fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }
    }

    impl Drop for Pem {
        fn drop(&mut self) {
            _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_url_is_split_as_it_is_written() {
        let split = |url| {
            let parts = Parts::split(url).unwrap();
            (parts.scheme, parts.authority, parts.path, parts.options().collect::<Vec<_>>())
        };
        assert_eq!(split("file:///var/lib?ttl=none"), ("file", "", "/var/lib", vec![("ttl", Some("none"))]));
        assert_eq!(split("file:/var"), ("file", "", "/var", vec![]));
        assert_eq!(split("file://localhost/var"), ("file", "localhost", "/var", vec![]));
        assert_eq!(split("consensus:"), ("consensus", "", "", vec![]));
        assert_eq!(split("ring://[::1]:9?a=b=c&&d"), ("ring", "[::1]:9", "", vec![("a", Some("b=c")), ("d", None)]));
        assert_eq!(Parts::split("nonsense"), None);
    }

    #[test]
    fn passwords_are_never_shown() {
        for (url, shown) in [
            ("redis://user:hunter2@host:6379/0", "redis://user:***@host:6379/0"),
            ("postgres://u:p@ss@host/db?sslmode=require", "postgres://u:***@host/db?sslmode=require"),
            ("postgres://u:p/ss@host/db", "postgres://u:***@host/db"),
            ("postgres://u:p#ss@host/db", "postgres://u:***@host/db"),
            ("u:hunter2@host", "u:***@host"),
            ("etcd://host?password=hunter2&ca=/x", "etcd://host?password=***&ca=/x"),
            ("etcd://host?authToken=abc", "etcd://host?authToken=***"),
            ("file:///var/lib/x", "file:///var/lib/x"),
            ("file:///var/a:b@c", "file:///var/a:b@c"),
            ("consensus://?secret-file=/etc/s&rank=1", "consensus://?secret-file=/etc/s&rank=1"),
            ("consensus://?secret=hunter2", "consensus://?secret=***"),
            ("etcds://a?cert=/c&key=/etc/k.pem", "etcds://a?cert=/c&key=/etc/k.pem"),
            ("ring://?tls-key=/etc/k.pem", "ring://?tls-key=/etc/k.pem"),
            ("postgres://u@a/db?sslkey=/etc/k.pem", "postgres://u@a/db?sslkey=/etc/k.pem"),
            (
                "postgres://a/db?Password-File=/etc/p&sslpassword=x",
                "postgres://a/db?Password-File=/etc/p&sslpassword=***",
            ),
            ("etcd://a?apikey=abc&secret-key=abc", "etcd://a?apikey=***&secret-key=***"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(redacted(url), shown);
            assert_eq!(!secrets(url).is_empty(), url != shown, "{url}");
        }
    }

    #[test]
    fn servers_have_a_port_of_their_own_or_the_usual_one() {
        let url = read("abacus://a:1,b,[::1]:3,[::1]");
        assert_eq!(url.servers, ["a:1", "b:88", "[::1]:3", "[::1]:88"]);
        assert_eq!((url.user, url.path, url.tls, url.options), (None, String::new(), None, vec![]));
    }

    #[test]
    fn user_password_path_and_values_are_decoded() {
        let url = read("abacus://us%3Aer:p%40s@s%2Fw@a,b/te%20am/?b=x%26y=z&&a=%C3%A9&c=");
        assert_eq!(url.user, Some(("us:er".into(), "p@s@s/w".into())));
        assert_eq!(url.servers, ["a:88", "b:88"]);
        assert_eq!(url.path, "/te am/");
        let options = [("b", "x&y=z"), ("a", "é"), ("c", "")].map(|(word, value)| (word.to_owned(), value.to_owned()));
        assert_eq!(url.options, options);
    }

    #[test]
    fn what_is_wrong_is_said_in_the_stores_name_and_without_the_password() {
        for (url, why) in [
            ("http://host", "begins with abacus:// or abacuss://"),
            ("abacus:host", "begins with"),
            ("abacus://", "host:port"),
            ("abacus://:1", "host:port"),
            ("abacus://a, b", "host:port"),
            ("abacus://a,", "host:port"),
            ("abacus://fe80::1", "from 1 to 65535"),
            ("abacus://host:port", "from 1 to 65535"),
            ("abacus://host:0", "from 1 to 65535"),
            ("abacus://host:+1", "from 1 to 65535"),
            ("abacus://host:65536", "from 1 to 65535"),
            ("abacus://[::1]:", "from 1 to 65535"),
            ("abacus://secret@host", "user:password"),
            ("abacus://user:se%zzcret@host", "two hexadecimal digits"),
            ("abacus://user:secret%ff@host", "UTF-8"),
            ("abacus://user:1/secret@host", "%2F"),
            ("abacus://host/%e", "two hexadecimal digits"),
            ("abacus://host?secret", "option=value"),
            ("abacus://host?a=secret&b=c&a=secret", "\"a\" is named twice"),
        ] {
            let said = refusal(url);
            assert!(said.contains("the URL of an abacus store: ") && said.contains(why), "{url}: {said}");
            assert!(!said.contains("cret"), "{url}: {said}");
        }
    }

    #[test]
    fn tls_takes_its_files_out_of_the_options() {
        let begin = "-----BEGIN CERTIFICATE-----\nCA";
        let ca = Pem::holding("ca", &[b"# caf\xe9\n", begin.as_bytes()].concat());
        let own = Pem::holding("own", OWN.as_bytes());
        let url = read(&format!("abacuss://a?x=1&ca={}&cert={}&key={1}&y=2", ca.path(), own.path()));
        let tls = url.tls.unwrap();
        assert_eq!(tls.ca, format!("# caf\u{fffd}\n{begin}"));
        assert_eq!(tls.identity, Some((OWN.to_owned(), OWN.to_owned())));
        assert_eq!(url.options.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(read(&format!("abacuss://a?ca={}", ca.path())).tls.unwrap().identity, None);
    }

    #[test]
    fn tls_needs_somebody_to_trust_and_a_key_for_each_certificate() {
        let (pem, empty) = (Pem::holding("pem", OWN.as_bytes()), Pem::holding("empty", b""));
        let other = Pem::holding("other", b"-----BEGIN CERTIFICATE REQUEST-----\nx");
        let (pem, empty, other) = (pem.path(), empty.path(), other.path());
        for (options, why) in [
            (String::new(), "abacuss:// needs the option ca"),
            (format!("cert={pem}&key={pem}"), "abacuss:// needs the option ca"),
            (format!("ca={pem}&cert={pem}"), "cert and key go together"),
            (format!("ca={pem}&key={pem}"), "cert and key go together"),
            (format!("ca={empty}"), "is empty"),
            (format!("ca={other}"), "has no certificate in it"),
            (format!("ca={pem}&cert={pem}&key={other}"), "has no private key in it"),
            ("ca=/nowhere/ca.pem".to_owned(), "\"/nowhere/ca.pem\" cannot be read"),
        ] {
            let said = refusal(&format!("abacuss://a?{options}"));
            assert!(said.contains(why), "{options}: {said}");
        }
    }

    #[test]
    fn an_option_that_nobody_knows_may_only_lack_tls() {
        let pem = Pem::holding("unknown", OWN.as_bytes());
        let without = read("abacus://a?ca=/nowhere");
        assert_eq!(without.options, [("ca".to_owned(), "/nowhere".to_owned())]);
        assert!(without.unknown_option("ca").to_string().ends_with("\"ca\" is not known, or needs abacuss://"));
        let with = read(&format!("abacuss://a?ca={}", pem.path()));
        assert!(with.unknown_option("beads").to_string().ends_with("\"beads\" is not known"));
    }

    #[test]
    fn neither_passwords_nor_keys_nor_options_are_printed() {
        let pem = Pem::holding("printed", [OWN, "secret"].concat().as_bytes());
        let url = format!("abacuss://me:secret@a?token=secret&ca={}&cert={0}&key={0}", pem.path());
        let shown = format!("{:?}", read(&url));
        assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
    }
}
