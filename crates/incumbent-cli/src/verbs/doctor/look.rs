//! Looks at an election and asks everybody, without writing anything: no session, no entry, no
//! order.

use std::time::Duration;

use incumbent::fence::FileFence;
use incumbent::store::{BootClock, Clock};
use incumbent::{Client, ElectionName, Promises, Timestamp, Token, Unfenced, Witness};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::evidence::{Answer, Evidence, FenceSeen, Look, Round};
use crate::args::DoctorArgs;
use crate::claims::{HostClaims, read_claims};
use crate::failure::Failure;
use crate::json::VERSION;
use crate::output::shell_word;
use crate::store_url::StoreUrl;
use crate::verbs::status::age;

/// How long a host has to say what its processes claim.
const ANSWER: Duration = Duration::from_secs(10);
/// The rest between two rounds.
const REST: Duration = Duration::from_millis(500);
/// After how many rounds what is odd is taken to be so, and after how many nothing more can be
/// said.
const ENOUGH: usize = 3;
const MOST: usize = 5;

/// Where a host is named in the command that asks it.
const HOST: &str = "{host}";

/// One who looks.
pub(super) struct Doctor<'a> {
    pub(super) args: &'a DoctorArgs,
    pub(super) client: Client<Unfenced>,
    pub(super) store: &'a StoreUrl,
    pub(super) witness: Option<Witness>,
    pub(super) began: Timestamp,
}

impl Doctor<'_> {
    /// Asks until nothing is odd, or what is odd has stayed so.
    pub(super) async fn look(&self) -> Result<Evidence, Failure> {
        let first = self.round().await?;
        let promises = self.promises(&first.after).await?;
        // A group's identity is not the same for those who ask it and for its members.
        let of_store = promises.as_ref().filter(|_| first.after.group.is_none());
        let mut evidence = Evidence {
            election: self.election().to_string(),
            identity: of_store.map(|promises| promises.store.to_string()),
            tokens: of_store.map(|promises| (promises.tokens, promises.caveats.clone())),
            // With that option several hosts may share it.
            one_host: self.is_directory() && !self.store.url().contains("network=allow"),
            hosts_named: self.args.claims.is_some(),
            rounds: vec![first],
            witness: self.witnessed(promises.as_ref()),
            fences: self.args.fences.iter().map(|place| self.fence(place)).collect(),
        };
        while !is_enough(&evidence) {
            sleep(REST).await;
            evidence.rounds.push(self.round().await?);
        }
        Ok(evidence)
    }

    fn election(&self) -> &ElectionName {
        &self.args.target.election
    }

    fn since_began(&self) -> Duration {
        BootClock.now().since(self.began)
    }

    async fn round(&self) -> Result<Round, Failure> {
        let before = self.read().await?;
        let answers = self.ask_everybody().await;
        Ok(Round { before, answers, after: self.read().await? })
    }

    async fn read(&self) -> Result<Look, Failure> {
        let election =
            self.client.election(self.election().as_str()).map_err(|error| Failure::usage(error.to_string()))?;
        let status = election.status().await?;
        Ok(Look::new(status.get(), self.since_began(), age))
    }

    /// What the store says of itself. A server in whose election nobody stands is not asked: that
    /// may found the store.
    async fn promises(&self, seen: &Look) -> Result<Option<Promises>, Failure> {
        let founded = seen.in_line > 0 || self.is_directory();
        if founded { Ok(Some(self.client.promises().await?)) } else { Ok(None) }
    }

    fn is_directory(&self) -> bool {
        self.store.url().starts_with("file:")
    }

    fn witnessed(&self, promises: Option<&Promises>) -> Result<Option<(incumbent::Sighting, String)>, String> {
        let (Some(witness), Some(promises)) = (&self.witness, promises) else { return Ok(None) };
        let file = witness.path(&promises.store, self.election()).display().to_string();
        let seen = witness.seen(&promises.store, self.election()).map_err(|error| error.to_string())?;
        Ok(seen.map(|seen| (seen, file)))
    }

    fn fence(&self, directory: &std::path::Path) -> FenceSeen {
        let mark = FileFence::look(directory, self.election());
        let mark = mark.map(|mark| mark.map(|mark| (Token::get(mark.token), mark.store.to_string())));
        FenceSeen { place: directory.display().to_string(), mark: mark.map_err(|error| error.to_string()) }
    }

    /// Each host at the same time. Without a command this host alone.
    async fn ask_everybody(&self) -> Vec<Answer> {
        let Some(command) = &self.args.claims else {
            let claims = read_claims();
            return vec![Answer { host: claims.host.clone(), at: self.since_began(), claims: Ok(claims) }];
        };
        let mut asked = JoinSet::new();
        let hosts = if command.contains(HOST) { self.args.hosts.clone() } else { vec!["--claims".to_owned()] };
        for (place, host) in hosts.into_iter().enumerate() {
            let line = command.replace(HOST, &shell_word(&host));
            asked.spawn(async move { (place, host, ask(&line).await) });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            // One that panics has not answered.
            let Ok((place, host, said)) = answer else { continue };
            let at = self.since_began();
            match said {
                Err(why) => answers.push((place, Answer { host, at, claims: Err(why) })),
                Ok(all) => answers.extend(all.into_iter().map(|claims| {
                    let host = if command.contains(HOST) { host.clone() } else { claims.host.clone() };
                    (place, Answer { host, at, claims: Ok(claims) })
                })),
            }
        }
        answers.sort_by_key(|(place, _)| *place);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }
}

/// Whether more rounds would tell more.
fn is_enough(evidence: &Evidence) -> bool {
    let last = evidence.last();
    let odd = !last.is_settled()
        || !evidence.contradictions(last).is_empty()
        || !evidence.overdue(last).is_empty()
        || last.heard(&evidence.election).iter().any(|heard| evidence.is_elsewhere(heard))
        || last.after.head.is_none()
        || evidence.unclaimed().is_some()
        || evidence.seen_later().is_some();
    let rounds = evidence.rounds.len();
    !odd || rounds >= MOST || rounds >= ENOUGH && evidence.last_two().is_some()
}

/// What the command says: a line of JSON for each host.
async fn ask(line: &str) -> Result<Vec<HostClaims>, String> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let said = match timeout(ANSWER, command.output()).await {
        Err(_) => return Err(format!("no answer within {} s", ANSWER.as_secs())),
        Ok(said) => said.map_err(|error| error.to_string())?,
    };
    let text = String::from_utf8_lossy(&said.stdout);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if !said.status.success() || lines.is_empty() {
        let why = String::from_utf8_lossy(&said.stderr);
        let why = why.lines().last().unwrap_or("it said nothing").to_owned();
        return Err(format!("{}: {why}", said.status));
    }
    lines.into_iter().map(parse).collect()
}

fn parse(line: &str) -> Result<HostClaims, String> {
    let claims: HostClaims = serde_json::from_str(line).map_err(|error| format!("no claims: {error}"))?;
    if claims.v == VERSION {
        Ok(claims)
    } else {
        Err(format!("claims of version {}, which this build does not know", claims.v))
    }
}
