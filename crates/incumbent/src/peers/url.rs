//! From a URL to a group. Nothing is dialled and nothing is made here; a secret that is named is
//! read.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_core::peers::MAX_MEMBERS;
use incumbent_peers::{Algorithm, Member, MemberId, Members, Rules, Secret};
use incumbent_store::escape::unescape;
use incumbent_store::parse_duration;
use incumbent_store::url::Parts;

use super::group::{Group, SecretFrom};
use crate::error::{ConnectError, UrlError};

/// Where the members of a group are that only says how many they are.
const FIRST_ADDRESS: &str = "127.0.0.1:7411";
const USUAL_MEMBERS: u16 = 3;
/// A leader must be able to miss a heartbeat, and a heartbeat takes a thread its turn.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(3600);

/// What stands after the question mark.
#[derive(Default)]
struct Query<'a> {
    members: Option<&'a str>,
    listen: Option<&'a str>,
    rank: Option<u16>,
    data: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    timeout: Option<Duration>,
    majority: Option<bool>,
    takeover: Option<bool>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
}

pub(super) fn parse(url: &str) -> Result<Group, ConnectError> {
    let parts = Parts::split(url);
    let scheme = parts.map_or(url, |parts| parts.scheme);
    let (Some(parts), Ok(algorithm)) = (parts, scheme.parse::<Algorithm>()) else {
        let known = "consensus, bully and ring among peers".to_owned();
        return Err(ConnectError::UnknownScheme { scheme: scheme.to_owned(), known });
    };
    let group = group(algorithm, parts)?;
    group.check()?;
    Ok(group)
}

fn group(algorithm: Algorithm, parts: Parts<'_>) -> Result<Group, UrlError> {
    if !matches!(parts.path, "" | "/") {
        let expected = format!(
            "a {algorithm} URL has no path: members are listed as in {algorithm}://?members=a=HOST:PORT,b=HOST:PORT"
        );
        return Err(UrlError::Place { expected });
    }
    let query = read_query(algorithm, parts)?;
    let members = members(parts.authority, query.members)?;
    let rules = rules(algorithm, &query)?;
    rules.check()?;
    let secret = match &query.secret_file {
        Some(path) => SecretFrom::Given(Secret::read(path)?),
        None => SecretFrom::OfThisUser,
    };
    let (listen, rank) = (query.listen.map(str::to_owned), query.rank.map(MemberId));
    let tls = match (query.tls_ca, query.tls_cert, query.tls_key) {
        (None, None, None) => None,
        (Some(ca), Some(cert), Some(key)) => Some(tls(&ca, &cert, &key)?),
        (ca, cert, _) => {
            let missing = if ca.is_none() {
                "tls-ca"
            } else if cert.is_none() {
                "tls-cert"
            } else {
                "tls-key"
            };
            return Err(missing_option(missing, "TLS needs all three: tls-ca, tls-cert and tls-key"));
        }
    };
    #[cfg(not(feature = "peers-tls"))]
    let _: Option<()> = tls;
    let group = Group {
        members,
        rules,
        secret,
        listen,
        rank,
        data: query.data,
        #[cfg(feature = "peers-tls")]
        tls,
    };
    if matches!(group.secret, SecretFrom::OfThisUser) && !group.is_local() {
        let why = "members on other hosts share a secret: write one to a file that others cannot read, the same on \
                   every host, and name it with &secret-file=";
        return Err(missing_option("secret-file", why));
    }
    Ok(group)
}

#[cfg(feature = "peers-tls")]
fn tls(ca: &Path, cert: &Path, key: &Path) -> Result<incumbent_peers::Tls, UrlError> {
    Ok(incumbent_peers::Tls::read(ca, cert, key)?)
}

#[cfg(not(feature = "peers-tls"))]
fn tls(_ca: &Path, _cert: &Path, _key: &Path) -> Result<(), UrlError> {
    Err(bad_option("tls-ca", "this build has no TLS between peers: build it with the cargo feature `peers-tls`"))
}

fn missing_option(option: &'static str, why: &'static str) -> UrlError {
    UrlError::MissingOption { option, why }
}

fn bad_option(option: &str, expected: impl Into<String>) -> UrlError {
    UrlError::Option { option: option.to_owned(), expected: expected.into() }
}

fn read_query<'a>(algorithm: Algorithm, parts: Parts<'a>) -> Result<Query<'a>, UrlError> {
    let mut query = Query::default();
    for (name, value) in parts.options() {
        let value = value.unwrap_or_default();
        let fenced = algorithm.is_fenced();
        match name {
            "members" => query.members = Some(value),
            "listen" => query.listen = Some(value),
            "rank" => {
                query.rank = Some(value.parse().map_err(|_| bad_option(name, format!("a number, not {value:?}")))?)
            }
            "data" if fenced => query.data = Some(absolute(name, value)?),
            "data" => {
                let why = format!("a {algorithm} election writes nothing down: it takes no data directory");
                return Err(bad_option(name, why));
            }
            "secret-file" => query.secret_file = Some(absolute(name, value)?),
            "tls-ca" => query.tls_ca = Some(absolute(name, value)?),
            "tls-cert" => query.tls_cert = Some(absolute(name, value)?),
            "tls-key" => query.tls_key = Some(absolute(name, value)?),
            "timeout" => {
                let malformed = || bad_option(name, format!("it is written as 1500ms, 5s or 2m, not {value:?}"));
                query.timeout = Some(parse_duration(value).ok_or_else(malformed)?);
            }
            "majority" if !fenced => query.majority = Some(yes_or_no(name, value)?),
            "takeover" if !fenced => query.takeover = Some(yes_or_no(name, value)?),
            "majority" | "takeover" => {
                let why = "it is for bully and ring: consensus always needs a majority, and never takes over";
                return Err(bad_option(name, why));
            }
            _ => return Err(unknown(algorithm, name)),
        }
    }
    Ok(query)
}

/// The setting's name only: what stands behind it may be a secret that was written in the wrong
/// place.
fn unknown(algorithm: Algorithm, name: &str) -> UrlError {
    let known = if algorithm.is_fenced() {
        "members, listen, rank, secret-file, timeout, tls-ca, tls-cert, tls-key and data"
    } else {
        "members, listen, rank, secret-file, timeout, tls-ca, tls-cert, tls-key, majority and takeover"
    };
    UrlError::UnknownOption { option: name.to_owned(), known }
}

fn members(authority: &str, list: Option<&str>) -> Result<Members, UrlError> {
    let place = |expected: String| UrlError::Place { expected };
    let count = match list {
        Some(list) => match list.parse::<u16>() {
            Ok(count) => count,
            Err(_) if !authority.is_empty() => {
                return Err(place(format!(
                    "the members are listed, so {authority:?} before the question mark says nothing more"
                )));
            }
            Err(_) => return Ok(Members::parse(list)?),
        },
        None => USUAL_MEMBERS,
    };
    let first = if authority.is_empty() { FIRST_ADDRESS } else { authority };
    let no_address = || place(format!("{first:?} is not an address: it has to be host:port"));
    let (host, port) = first.rsplit_once(':').ok_or_else(no_address)?;
    let port: u16 = port.parse().map_err(|_| no_address())?;
    if count == 0 || usize::from(count) > MAX_MEMBERS || port.checked_add(count - 1).is_none() {
        return Err(place(format!(
            "a group has 1 to {MAX_MEMBERS} members, at ports up to 65535: {count} from {first} do not fit"
        )));
    }
    let member = |place: u16| {
        let address: std::sync::Arc<str> = format!("{host}:{}", port + place).into();
        Member { id: MemberId(place + 1), name: address.clone(), address }
    };
    Ok(Members::new((0..count).map(member))?)
}

/// All times are shares of the timeout, in the proportions of the defaults.
fn rules(algorithm: Algorithm, query: &Query<'_>) -> Result<Rules, UrlError> {
    let mut rules = Rules::defaults(algorithm);
    if let Some(timeout) = query.timeout {
        if !TIMEOUTS.contains(&timeout) {
            let expected = format!("it is between {:?} and {:?}", TIMEOUTS.start(), TIMEOUTS.end());
            return Err(bad_option("timeout", expected));
        }
        match &mut rules {
            Rules::Bully(rules) | Rules::Ring(rules) => {
                rules.leader_timeout = timeout;
                rules.heartbeat = timeout / 6;
                rules.answer_timeout = timeout / 3;
                rules.grace = timeout / 3;
            }
            Rules::Consensus(rules) => {
                rules.election_min = timeout;
                rules.election_max = timeout * 2;
                rules.heartbeat = timeout / 6;
                rules.grace = timeout / 3;
                rules.margin = timeout / 30;
            }
        }
    }
    if let Rules::Bully(rules) | Rules::Ring(rules) = &mut rules {
        rules.majority = query.majority.unwrap_or(rules.majority);
        rules.take_over = query.takeover.unwrap_or(rules.take_over);
    }
    Ok(rules)
}

fn yes_or_no(name: &str, value: &str) -> Result<bool, UrlError> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(bad_option(name, format!("yes or no, not {value:?}"))),
    }
}

/// A path, with `%20` and the like. No path has a zero byte in it.
fn absolute(name: &str, text: &str) -> Result<PathBuf, UrlError> {
    let what = || bad_option(name, "a percent sign needs two hexadecimal digits after it, as in %20");
    let bytes = unescape(text).filter(|bytes| !bytes.contains(&0)).ok_or_else(what)?;
    let path = PathBuf::from(OsString::from_vec(bytes));
    if path.is_absolute() { Ok(path) } else { Err(bad_option(name, "it needs an absolute path")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Group {
        parse(url).unwrap()
    }

    fn addresses(url: &str) -> Vec<String> {
        read(url).members.iter().map(|member| format!("{}={}={}", member.id, member.name, member.address)).collect()
    }

    fn refused(url: &str) -> String {
        parse(url).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn without_a_list_three_members_are_on_this_host_at_ports_in_a_row() {
        let three =
            ["1=127.0.0.1:7411=127.0.0.1:7411", "2=127.0.0.1:7412=127.0.0.1:7412", "3=127.0.0.1:7413=127.0.0.1:7413"];
        assert_eq!(addresses("consensus://"), three);
        assert_eq!(addresses("consensus:"), three);
        assert_eq!(addresses("bully://127.0.0.1:7411/?members=2"), three[..2]);
        assert_eq!(addresses("ring://[::1]:9?members=1"), ["1=[::1]:9=[::1]:9"]);
        assert_eq!(addresses("ring://?members=b=127.0.0.1:2,a=127.0.0.1:1"), ["1=b=127.0.0.1:2", "2=a=127.0.0.1:1"]);
    }

    #[test]
    fn the_times_are_shares_of_the_timeout_and_the_default_is_the_algorithms_own() {
        let Rules::Consensus(usual) = read("consensus://").rules else { panic!() };
        assert_eq!(usual, incumbent_peers::ConsensusSettings::default());
        let Rules::Consensus(same) = read("consensus://?timeout=1500ms").rules else { panic!() };
        assert_eq!(same, usual);
        let Rules::Bully(usual) = read("bully://").rules else { panic!() };
        let Rules::Bully(same) = read("bully://?timeout=1500ms").rules else { panic!() };
        assert_eq!(same, usual);
        let Rules::Ring(ring) = read("ring://?timeout=1m&majority=yes&takeover=no").rules else { panic!() };
        assert_eq!((ring.leader_timeout, ring.majority, ring.take_over), (Duration::from_secs(60), true, false));
        let Rules::Consensus(long) = read("consensus://?timeout=9s").rules else { panic!() };
        assert_eq!((long.election_max, long.grace), (Duration::from_secs(18), Duration::from_secs(3)));
    }

    #[test]
    fn what_makes_no_group_is_refused_with_a_sentence() {
        for (url, part) in [
            ("consensus://?members=a", "host:port"),
            ("consensus://?members=a=127.0.0.1:1,a=127.0.0.1:2", "twice"),
            ("consensus://?members=0", "1 to 32"),
            ("consensus://?members=33", "1 to 32"),
            ("consensus://127.0.0.1:65535?members=2", "65535"),
            ("consensus://127.0.0.1", "host:port"),
            ("consensus://127.0.0.1:1?members=a=127.0.0.1:1", "says nothing more"),
            ("consensus:///var/lib", "no path"),
            ("consensus://?members=10.0.0.1:1,10.0.0.2:1", "&secret-file="),
            ("consensus://?secret-file=relative", "absolute"),
            ("consensus://?secret-file=/nonexistent/secret", "/nonexistent/secret"),
            ("consensus://?data=relative", "absolute"),
            ("consensus://?data=/a%2", "percent"),
            ("consensus://?data=/a%00", "percent"),
            ("bully://?data=/x", "writes nothing down"),
            ("consensus://?majority=yes", "bully and ring"),
            ("bully://?majority=maybe", "yes or no"),
            ("ring://?timeout=5", "1500ms, 5s or 2m"),
            ("ring://?tls-ca=/x", "all three"),
            ("ring://?tls-ca=/x&tls-cert=/y&tls-key=/z", if cfg!(feature = "peers-tls") { "/x" } else { "no TLS" }),
            ("ring://?timeout=1ms", "between"),
            ("ring://?rank=x", "a number"),
            ("ring://?rank=9", "1, 2, 3"),
            ("ring://?listen=127.0.0.1:1", "&rank="),
            ("ring://?password=hunter2", "\"password\""),
        ] {
            let why = refused(url);
            assert!(why.contains(part), "{url}: {why}");
            assert!(!why.contains("hunter2"), "{why}");
        }
    }

    #[test]
    fn other_schemes_are_not_ours() {
        assert!(refused("file:///var").contains("consensus, bully and ring"));
        assert!(refused("nonsense").contains("nonsense"));
    }
}
