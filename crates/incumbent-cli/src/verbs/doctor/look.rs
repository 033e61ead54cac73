//! Looks at an election and asks everybody, without writing anything: no session, no entry, no
//! order.

use std::time::Duration;

use incumbent::fence::FileFence;
use incumbent::store::{BootClock, Clock, Fault, StoreError};
use incumbent::{Client, ElectionName, Promises, StoreId, Timestamp, Token, Unfenced, Witness};
use rustix::process::geteuid;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::ask::ask;
use super::evidence::{Answer, Evidence, FenceSeen, Look, Round, without_twins};
use crate::args::DoctorArgs;
use crate::claims::read_claims;
use crate::failure::Failure;
use crate::output::shell_word;
use crate::store_url::StoreUrl;
use crate::verbs::status::since;

/// The rest between two rounds.
const REST: Duration = Duration::from_millis(500);
/// After how many rounds what is odd is taken to be so, and after how many nothing more can be
/// said.
const ENOUGH: usize = 3;
const MOST: usize = 5;

/// Where a host is named in the command that asks it.
pub(super) const HOST: &str = "{host}";

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
        let first = self.round(&[]).await?;
        let found_before = self.found_before();
        let promises = self.promises(&first, found_before.is_some()).await?;
        // A group's identity is not the same for those who ask it and for its members.
        let of_store = promises.as_ref().filter(|_| first.after.group.is_none());
        // A server that is not asked is taken for the one that was there before.
        let store = promises.as_ref().map(|promises| promises.store.clone()).or_else(|| found_before.clone());
        let mut evidence = Evidence {
            election: self.election().to_string(),
            identity: of_store.map(|promises| promises.store.to_string()),
            tokens: of_store.map(|promises| (promises.tokens, promises.caveats.clone())),
            one_host: self.is_one_host(),
            hosts_named: self.args.claims.is_some(),
            rounds: vec![first],
            witness: self.witnessed(store.as_ref()),
            found_before: found_before.zip(self.file_of_place()).map(|(store, file)| (store.to_string(), file)),
            fences: self.args.fences.iter().map(|place| self.fence(place)).collect(),
        };
        while !is_enough(&evidence) {
            sleep(REST).await;
            let silent = evidence.silent();
            evidence.rounds.push(self.round(&silent).await?);
        }
        Ok(evidence)
    }

    pub(super) fn election(&self) -> &ElectionName {
        &self.args.target.election
    }

    fn since_began(&self) -> Duration {
        BootClock.now().since(self.began)
    }

    /// Asks everybody but those who did not answer a moment ago: each would have to be waited for
    /// again.
    async fn round(&self, silent: &[Answer]) -> Result<Round, Failure> {
        let before = self.read().await?;
        let mut answers = self.ask_everybody(silent).await;
        without_twins(&mut answers);
        Ok(Round { before, answers, after: self.read().await? })
    }

    async fn read(&self) -> Result<Look, Failure> {
        let election =
            self.client.election(self.election().as_str()).map_err(|error| Failure::usage(error.to_string()))?;
        let status = election.status().await?;
        Ok(Look::new(status.get(), self.since_began(), since))
    }

    /// What the store says of itself. To ask may found it: a server in whose election nobody of
    /// this library stands is asked only where somebody claims an office, a fence has a mark, or
    /// this host was here before, which may be another store's.
    async fn promises(&self, seen: &Round, known: bool) -> Result<Option<Promises>, Failure> {
        let founded = seen.after.founded || self.is_directory();
        let compared = known || !seen.heard(self.election().as_str()).is_empty() || !self.args.fences.is_empty();
        if !founded && !compared {
            return Ok(None);
        }
        // One attempt at a time: a cluster that is choosing its own leader answers the next.
        for _ in 1..MOST {
            match self.ask_promises().await {
                Err(error) if error.fault() == Fault::Unavailable => sleep(REST).await,
                promises => return Ok(Some(promises?)),
            }
        }
        Ok(Some(self.ask_promises().await?))
    }

    /// The smallest TTL, which nobody asks for here, etcd tells of a lease alone, and that is a
    /// write. What it promises of its tokens is always the same.
    async fn ask_promises(&self) -> Result<Promises, StoreError> {
        if self.store.url().starts_with("etcd") {
            return Ok(Promises::new(self.client.identity().await?));
        }
        self.client.promises().await
    }

    pub(super) fn is_directory(&self) -> bool {
        self.store.url().starts_with("file:")
    }

    pub(super) fn witnessed(&self, store: Option<&StoreId>) -> Result<Option<(incumbent::Sighting, String)>, String> {
        let (Some(witness), Some(store)) = (&self.witness, store) else { return Ok(None) };
        let file = witness.path(store, self.election()).display().to_string();
        let seen = witness.seen(store, self.election()).map_err(|error| error.to_string())?;
        Ok(seen.map(|seen| (seen, file)))
    }

    /// Which store this host has found here before. What cannot be read says nothing.
    fn found_before(&self) -> Option<StoreId> {
        self.witness.as_ref()?.store_at(&self.store.place()?).ok()?
    }

    fn file_of_place(&self) -> Option<String> {
        Some(self.witness.as_ref()?.path_of_place(&self.store.place()?).display().to_string())
    }

    fn fence(&self, directory: &std::path::Path) -> FenceSeen {
        let mark = FileFence::look(directory, self.election());
        let mark = mark.map(|mark| mark.map(|mark| (Token::get(mark.token), mark.store.to_string())));
        FenceSeen { place: directory.display().to_string(), mark: mark.map_err(|error| error.to_string()) }
    }

    /// Whether every candidate is a process of this host.
    pub(super) fn is_one_host(&self) -> bool {
        // With that option several hosts may share a directory.
        self.is_directory() && !self.store.url().contains("network=allow")
    }

    /// Each host at the same time. Without a command this host alone.
    pub(super) async fn ask_everybody(&self, silent: &[Answer]) -> Vec<Answer> {
        let Some(command) = &self.args.claims else {
            // A directory lets in no user but the one that it belongs to.
            let claims = read_claims(self.is_directory().then(|| geteuid().as_raw()));
            return vec![Answer { host: claims.host.clone(), at: self.since_began(), claims: Ok(claims) }];
        };
        let mut asked = JoinSet::new();
        let hosts = if command.contains(HOST) { self.args.hosts.clone() } else { vec!["--claims".to_owned()] };
        let mut answers: Vec<(usize, Answer)> = Vec::new();
        for (place, host) in hosts.into_iter().enumerate() {
            if let Some(answer) = silent.iter().find(|answer| answer.host == host) {
                answers.push((place, answer.clone()));
                continue;
            }
            let line = command.replace(HOST, &shell_word(&host));
            asked.spawn(async move { (place, host, ask(&line).await) });
        }
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
        || !evidence.orphans(last).is_empty()
        || !evidence.running_out(last).is_empty()
        || !evidence.suspended(last).is_empty()
        || last.heard(&evidence.election).iter().any(|heard| evidence.is_elsewhere(heard))
        || last.after.head.is_none()
        || evidence.unclaimed().is_some()
        || last.after.left_open.is_some()
        || !last.after.stay.is_empty()
        || last.after.foreign > 0 && !evidence.fences.is_empty()
        || last.after.fence_differently()
        || evidence.seen_later().is_some();
    let rounds = evidence.rounds.len();
    !odd || rounds >= MOST || rounds >= ENOUGH && evidence.last_two().is_some()
}
