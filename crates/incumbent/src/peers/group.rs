//! A group of peers as a client has to know it: who is in it, by which rules, and what this process
//! would be in it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use incumbent_core::{ElectionName, LONGEST, Settings};
use incumbent_peers::{Algorithm, ConfigError, GroupConfig, Member, MemberId, Members, Rules, Secret};
use incumbent_store::binary::checksum;
use incumbent_store::escape::{Digits, file_name};
use incumbent_store::{StoreError, state_directory};

use crate::backend::PATIENCE;
use crate::error::{CandidacyError, ConnectError, MemberError};

/// A group of peers, and which of them this process is if it stands. Made from a URL, or here.
///
/// ```
/// use incumbent::peers::{Algorithm, Group, Members, Secret};
///
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let members = Members::parse("a=10.0.0.1:7411,b=10.0.0.2:7411,c=10.0.0.3:7411")?;
/// let secret = Secret::new("correct horse battery staple")?;
/// let group = Group::new(Algorithm::Consensus, members, secret).rank(2).data("/var/lib/group");
/// # let _ = group;
/// # Ok(()) }
/// # example().unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Group {
    pub(super) members: Members,
    pub(super) rules: Rules,
    pub(super) secret: SecretFrom,
    pub(super) listen: Option<String>,
    pub(super) rank: Option<MemberId>,
    pub(super) data: Option<PathBuf>,
    #[cfg(feature = "peers-tls")]
    pub(super) tls: Option<incumbent_peers::Tls>,
}

/// Where the secret comes from.
#[derive(Clone, Debug)]
pub(super) enum SecretFrom {
    Given(Secret),
    /// A file of this user's own, made by the first member: for groups on one host.
    OfThisUser,
}

/// What a process is that has not been told.
pub(super) enum MemberChoice {
    /// This member.
    One(MemberId),
    /// The first of these that does not run yet.
    FirstFree(Vec<MemberId>),
}

impl Group {
    /// A group with the default times.
    pub fn new(algorithm: Algorithm, members: Members, secret: Secret) -> Group {
        Group {
            members,
            rules: Rules::defaults(algorithm),
            secret: SecretFrom::Given(secret),
            listen: None,
            rank: None,
            data: None,
            #[cfg(feature = "peers-tls")]
            tls: None,
        }
    }

    /// Reads a URL. See [the module](crate::peers) for what can be written.
    pub fn from_url(url: &str) -> Result<Group, ConnectError> {
        super::url::parse(url)
    }

    /// Which member this process is, by its number.
    pub fn rank(mut self, rank: u16) -> Group {
        self.rank = Some(MemberId(rank));
        self
    }

    /// Where this member listens, if not at its address in the list.
    pub fn listen(mut self, address: impl Into<String>) -> Group {
        self.listen = Some(address.into());
        self
    }

    /// Where this member writes down its votes. It must outlive the process.
    pub fn data(mut self, directory: impl Into<PathBuf>) -> Group {
        self.data = Some(directory.into());
        self
    }

    /// Mutual TLS, beneath the secret: nobody on the way can read what is said. All members, and
    /// all who ask them, need it.
    #[cfg(feature = "peers-tls")]
    pub fn tls(mut self, tls: incumbent_peers::Tls) -> Group {
        self.tls = Some(tls);
        self
    }

    /// Other times and rules, of the same algorithm.
    pub fn with_rules(mut self, rules: Rules) -> Group {
        self.rules = rules;
        self
    }

    /// How the group elects.
    pub fn algorithm(&self) -> Algorithm {
        self.rules.algorithm()
    }

    /// Who is in it.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The times and rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How many members are a majority.
    pub fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    /// How many members a leader needs: a majority, but for bully and ring without the majority
    /// rule.
    pub fn needed(&self) -> usize {
        match &self.rules {
            Rules::Bully(rules) | Rules::Ring(rules) if !rules.majority => 1,
            _ => self.majority(),
        }
    }

    /// Takes over what a client's builder says about times.
    pub(crate) fn with_times(
        mut self,
        ttl: Option<Duration>,
        grace: Option<Duration>,
        margin: Option<Duration>,
        drift_ppm: Option<u32>,
    ) -> Result<Group, ConnectError> {
        if ttl.is_some() {
            return Err(ConnectError::NoTtl);
        }
        if let Some(grace) = grace.filter(|grace| *grace > LONGEST) {
            return Err(ConnectError::GraceTooLong { grace });
        }
        match &mut self.rules {
            Rules::Bully(rules) | Rules::Ring(rules) => rules.grace = grace.unwrap_or(rules.grace),
            Rules::Consensus(rules) => {
                rules.grace = grace.unwrap_or(rules.grace);
                rules.margin = margin.unwrap_or(rules.margin);
                rules.drift_ppm = drift_ppm.unwrap_or(rules.drift_ppm);
            }
        }
        self.rules.check()?;
        Ok(self)
    }

    /// The times in the words of a client.
    pub(crate) fn settings(&self) -> Settings {
        let (timeout, grace, heartbeat) = match &self.rules {
            Rules::Bully(rules) | Rules::Ring(rules) => (rules.leader_timeout, rules.grace, rules.heartbeat),
            Rules::Consensus(rules) => (rules.election_min, rules.grace, rules.heartbeat),
        };
        let mut settings = Settings::for_ttl(timeout);
        (settings.grace, settings.renew_every) = (grace, heartbeat);
        if let Rules::Consensus(rules) = &self.rules {
            (settings.margin, settings.drift_ppm) = (rules.margin, rules.drift_ppm);
        }
        settings
    }

    /// How often those who are not members ask.
    pub(super) fn ask_every(&self) -> Duration {
        self.settings().renew_every.clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// Whether all members are on this host, whichever that is.
    pub(super) fn is_local(&self) -> bool {
        self.members.iter().all(|member| is_loopback(&member.address))
    }

    /// Which member a process is that stands under this name.
    pub(super) fn slots(&self, name: &str) -> Result<MemberChoice, CandidacyError> {
        let named = self.members.by_name(name);
        if let Some(given) = self.given()? {
            return match named {
                Some(named) if named.id != given.id => {
                    Err(MemberError::AnotherName { is: given.name.to_string(), named: name.to_owned() }.into())
                }
                _ => Ok(MemberChoice::One(given.id)),
            };
        }
        if let Some(named) = named {
            return Ok(MemberChoice::One(named.id));
        }
        let all: Vec<_> = self.members.iter().map(|member| member.id).collect();
        match all[..] {
            [only] => Ok(MemberChoice::One(only)),
            _ if self.is_local() => Ok(MemberChoice::FirstFree(all)),
            _ => Err(MemberError::Unnamed.into()),
        }
    }

    /// The member that `rank` or `listen` name.
    fn given(&self) -> Result<Option<&Member>, StoreError> {
        if let Some(rank) = self.rank {
            let unknown = || misuse(format!("there is no member {rank}: the list has {}", self.numbers()));
            return self.members.get(rank).map(Some).ok_or_else(unknown);
        }
        let Some(listen) = &self.listen else { return Ok(None) };
        let unknown = || {
            misuse(format!("{listen} is not the address of a listed member: &rank= says which of them listens there"))
        };
        self.members.by_address(listen).map(Some).ok_or_else(unknown)
    }

    fn numbers(&self) -> String {
        let numbers: Vec<_> = self.members.iter().map(|member| member.id.to_string()).collect();
        numbers.join(", ")
    }

    /// What is wrong with rank, listen and rules, before anybody stands.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if let Rules::Consensus(rules) = &self.rules
            && rules.positions
        {
            let what = "`positions` says that the application has records whose position decides who may be elected, and a \
                        client cannot tell the member of them: leave it off, or run an `incumbent_peers::Node` yourself";
            return Err(misuse(what.to_owned()));
        }
        self.given().map(|_| ())
    }

    /// What all members, and all who ask them, have to know. `make`: whether to make a secret where
    /// there is none.
    pub(super) fn config(&self, election: &ElectionName, make: bool) -> Result<GroupConfig, StoreError> {
        let secret = match &self.secret {
            SecretFrom::Given(secret) => secret.clone(),
            SecretFrom::OfThisUser => secret_of_this_user(make)?,
        };
        let mut config = GroupConfig::new(election.clone(), self.members.clone(), self.algorithm(), secret);
        #[cfg(feature = "peers-tls")]
        {
            config.tls = self.tls.clone();
        }
        // A member that is stopped must not use up the patience for those who would answer.
        config.link.answer_timeout = config.link.answer_timeout.min(PATIENCE / 2);
        Ok(config)
    }

    /// Where this member writes down its votes; nowhere if it has none.
    pub(super) fn data_of(&self, me: MemberId, election: &ElectionName) -> Result<Option<PathBuf>, StoreError> {
        match (&self.data, self.algorithm()) {
            (_, Algorithm::Bully | Algorithm::Ring) => Ok(None),
            (Some(data), _) => Ok(Some(data.clone())),
            (None, _) => {
                // By name, as the group is known by its names: a member that has moved keeps its
                // votes.
                let directory = votes_of(election)?.join(escaped(self.members.name(me)));
                make_private(&directory)?;
                Ok(Some(directory))
            }
        }
    }
}

/// Where the votes of all members of this election lie that this user runs.
fn votes_of(election: &ElectionName) -> Result<PathBuf, StoreError> {
    Ok(of_this_user("&data=")?.join("votes").join(escaped(election.as_str())))
}

/// A group and the one election that it holds, once somebody has said which.
#[derive(Debug)]
pub(crate) struct GroupElection {
    pub(crate) group: Group,
    election: OnceLock<ElectionName>,
}

impl GroupElection {
    pub(crate) fn new(group: Group) -> GroupElection {
        GroupElection { group, election: OnceLock::new() }
    }

    /// One group holds one election: the first that is used.
    pub(crate) fn check(&self, election: &ElectionName) -> Result<(), StoreError> {
        let ours = self.election.get_or_init(|| election.clone());
        if ours == election {
            return Ok(());
        }
        Err(misuse(format!(
            "a group of peers holds one election: this client's holds {ours}, not {election}; another one needs members of its own"
        )))
    }
}

pub(super) fn misuse(what: String) -> StoreError {
    StoreError::Misuse { what }
}

fn is_loopback(address: &str) -> bool {
    let Some((host, _)) = address.rsplit_once(':') else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn secret_of_this_user(make: bool) -> Result<Secret, StoreError> {
    let directory = of_this_user("&secret-file=")?;
    let path = directory.join("secret");
    if make {
        make_private(&directory)?;
        return Secret::read_or_create(&path).map_err(secret_error);
    }
    match Secret::read(&path) {
        Err(ConfigError::SecretFile { why, .. }) if why.kind() == std::io::ErrorKind::NotFound => {
            let what = format!("no member has ever run for this user: there is no secret at {}", path.display());
            Err(StoreError::Unavailable { what, source: None })
        }
        read => read.map_err(secret_error),
    }
}

fn secret_error(error: ConfigError) -> StoreError {
    StoreError::Denied { what: error.to_string(), source: None }
}

/// The folder for what this user's groups keep.
fn of_this_user(instead: &str) -> Result<PathBuf, StoreError> {
    let state = state_directory().ok_or_else(|| {
        misuse(format!("neither XDG_STATE_HOME nor HOME says where this user keeps things: say it with {instead}"))
    })?;
    Ok(state.join("peers"))
}

fn make_private(directory: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| {
        StoreError::unavailable(format!("the directory {} cannot be made", directory.display()), error)
    })
}

/// The name of a file. A long one is cut, and told from others by a checksum.
fn escaped(text: &str) -> String {
    let mut name = file_name(text, Digits::Lower, |character| character.is_ascii_alphanumeric());
    if name.len() > 200 {
        name.truncate(180);
        name.push_str(&format!("~{:016x}", checksum(text.bytes())));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_safe_short_and_distinct() {
        assert_eq!(escaped("jobs/nightly"), "jobs%2fnightly");
        assert_eq!(escaped(".."), "%2e.");
        assert_eq!(escaped("127.0.0.1:7411"), "127.0.0.1%3a7411");
        let long = |last: char| format!("{}{last}", "/x".repeat(120));
        assert!(escaped(&long('a')).len() <= 200);
        assert_ne!(escaped(&long('a')), escaped(&long('b')));
    }

    #[test]
    fn loopback_is_known_by_address_and_by_name() {
        for address in ["127.0.0.1:1", "127.8.9.1:1", "localhost:1", "[::1]:1"] {
            assert!(is_loopback(address), "{address}");
        }
        for address in ["10.0.0.1:1", "example.org:1", "[::2]:1"] {
            assert!(!is_loopback(address), "{address}");
        }
    }

    fn group(url: &str) -> Group {
        Group::from_url(url).unwrap()
    }

    fn slot(url: &str, name: &str) -> Result<Option<u16>, String> {
        match group(url).slots(name) {
            Ok(MemberChoice::One(id)) => Ok(Some(id.0)),
            Ok(MemberChoice::FirstFree(_)) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn which_member_a_process_is_follows_from_rank_listen_name_or_what_is_free() {
        let list = "bully://?members=a=127.0.0.1:71,b=127.0.0.1:72";
        assert_eq!(slot(&format!("{list}&rank=2"), "x"), Ok(Some(2)));
        assert_eq!(slot(&format!("{list}&listen=127.0.0.1:71"), "x"), Ok(Some(1)));
        assert_eq!(slot(&format!("{list}&listen=0.0.0.0:71&rank=1"), "x"), Ok(Some(1)));
        assert_eq!(slot(list, "b"), Ok(Some(2)));
        assert_eq!(slot(list, "x"), Ok(None), "the first that is free");
        assert!(slot(&format!("{list}&rank=2"), "a").unwrap_err().contains("another member"));
    }

    #[test]
    fn records_that_a_client_cannot_tell_of_are_refused() {
        let Rules::Consensus(mut rules) = *group("consensus://").rules() else { panic!("it is consensus") };
        rules.positions = true;
        let group = group("consensus://").with_rules(Rules::Consensus(rules));
        let error = crate::Client::builder().with_group(group).unwrap_err().to_string();
        assert!(error.contains("positions"), "{error}");
    }

    #[test]
    fn a_client_holds_one_election() {
        let group_election = GroupElection::new(group("ring://"));
        let name = |text: &str| ElectionName::new(text).unwrap();
        group_election.check(&name("a")).unwrap();
        group_election.check(&name("a")).unwrap();
        let error = group_election.check(&name("b")).unwrap_err().to_string();
        assert!(error.contains("holds a, not b"), "{error}");
    }
}
