//! A process with one session that obeys lines on its standard input and answers each with one
//! line.
//!
//! Its argument is the store's directory. It ends with its input.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "it is part of the tests")]
#![allow(clippy::zombie_processes, reason = "what it leaves behind outlives it, and is ended by the test")]

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use incumbent_file::{FileOptions, FileStore};
use incumbent_store::{
    Cas, ElectionName, Held, Incarnation, NewEntry, Paused, Place, Publication, Session, Standing, Store, StoreError,
    Watched,
};

struct TestProcess {
    path: String,
    options: FileOptions,
    store: Option<FileStore>,
    session: Option<Arc<dyn Session>>,
    held: HashMap<ElectionName, Held>,
    enlisted: u128,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a directory");
    let options = FileOptions::new().without_notifications(arguments.next().as_deref() == Some("--no-notifications"));
    let mut process = TestProcess { path, options, store: None, session: None, held: HashMap::new(), enlisted: 0 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let answer = runtime.block_on(process.obey(&line)).unwrap_or_else(|error| format!("error {error}"));
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}

impl TestProcess {
    async fn obey(&mut self, line: &str) -> Result<String, StoreError> {
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            // It was evicted before it knew its token.
            ["standing" | "publish" | "withdraw" | "hand-over" | "lead" | "follow", election, ..]
                if !self.held.contains_key(&name(election)) =>
            {
                Ok("no entry".into())
            }
            ["found"] => {
                self.store = Some(FileStore::open_with(&self.path, self.options)?);
                Ok("done".into())
            }
            ["open", ttl_ms] => {
                let ttl = Duration::from_millis(ttl_ms.parse().unwrap());
                self.session = Some(self.store()?.open_session(ttl).await?);
                Ok("done".into())
            }
            ["enlist", election] => self.enlist(election).await,
            ["standing", election] => Ok(told(&self.session().standing(&self.held(election), None).await?)),
            ["lead", election] => self.lead(election).await,
            ["follow", election] => self.follow(election).await,
            ["renew"] => {
                let held: Vec<_> = self.held.values().cloned().collect();
                let renewal = self.session().renew(&held).await?;
                Ok(format!("renewed gone={}", renewal.gone.len()))
            }
            ["publish", election, value] => self.publish(election, value).await,
            ["withdraw", election] => Ok(cas(self.session().withdraw(&self.held(election), None).await?)),
            ["hand-over", election] => self.hand_over(election).await,
            ["evict-head", election] => self.evict_head(election).await,
            ["pause", election] => self.set_paused(election, Some(Paused::new("a test"))).await,
            ["resume", election] => self.set_paused(election, None).await,
            ["count"] => {
                incumbent_file::start_fault_points();
                Ok("done".into())
            }
            ["leave-lifeline"] => Ok(self.leave_lifeline()),
            ["close"] => {
                self.session().close().await?;
                Ok("done".into())
            }
            other => panic!("unknown: {other:?}"),
        }
    }

    async fn publish(&mut self, election: &str, value: &str) -> Result<String, StoreError> {
        let held = self.held(election);
        let value = bytes::Bytes::copy_from_slice(value.as_bytes());
        let was = self.session().standing(&held, None).await?.published;
        let published = self.session().publish(&held, was, &Publication::new(value)).await?;
        Ok(cas(if published.is_some() { Cas::Done } else { Cas::Refused }))
    }

    async fn hand_over(&mut self, election: &str) -> Result<String, StoreError> {
        let held = self.held(election);
        let line = self.store()?.line(&name(election), 10).await?;
        let heir = line.entries.iter().find(|entry| entry.token > held.token).map(|entry| entry.id.clone());
        Ok(cas(self.session().withdraw(&held, heir.as_ref()).await?))
    }

    async fn evict_head(&mut self, election: &str) -> Result<String, StoreError> {
        let line = self.store()?.line(&name(election), 1).await?;
        let Some(head) = line.entries.first() else { return Ok("nobody".into()) };
        Ok(cas(self.store()?.evict(&name(election), head).await?))
    }

    async fn set_paused(&mut self, election: &str, paused: Option<Paused>) -> Result<String, StoreError> {
        let office = self.store()?.line(&name(election), 1).await?.office;
        let to = office.clone().with_paused(paused);
        Ok(cas(self.store()?.set_office(&name(election), office.version, &to).await?))
    }

    /// Leaves something that lives on, holds the descriptor, and does nothing with it.
    fn leave_lifeline(&self) -> String {
        let lifeline = self.session().lifeline().unwrap().try_clone_to_owned().unwrap();
        let guardian = Command::new("sleep").arg("60").stdin(lifeline).stdout(Stdio::null()).spawn().unwrap();
        guardian.id().to_string()
    }

    async fn enlist(&mut self, election: &str) -> Result<String, StoreError> {
        self.enlisted += 1;
        let incarnation = Incarnation::from_bits((u128::from(std::process::id()) << 64) | self.enlisted);
        let entry = NewEntry::new(incarnation, "process", "value");
        let standing = self.session().enlist(&name(election), &entry).await?;
        if let Place::Leading(held) | Place::Behind { held: Some(held), .. } = &standing.place {
            self.held.insert(name(election), held.clone());
        }
        Ok(told(&standing))
    }

    /// Waits until it leads, as a candidate does: it follows the one ahead.
    async fn lead(&mut self, election: &str) -> Result<String, StoreError> {
        let held = self.held(election);
        loop {
            let standing = self.session().standing(&held, None).await?;
            let Place::Behind { ahead, .. } = &standing.place else { return Ok(told(&standing)) };
            let mut watched = Watched::new(held.clone(), standing.office.version);
            watched.ahead = Some(ahead.id.clone());
            self.session().watch(&watched, standing.cursor).await?;
        }
    }

    /// Says that it waits, and waits until its place changes.
    async fn follow(&mut self, election: &str) -> Result<String, StoreError> {
        println!("waiting");
        std::io::stdout().flush().unwrap();
        self.lead(election).await
    }

    fn store(&mut self) -> Result<&FileStore, StoreError> {
        if self.store.is_none() {
            self.store = Some(FileStore::open_with(&self.path, self.options)?);
        }
        Ok(self.store.as_ref().unwrap())
    }

    fn session(&self) -> Arc<dyn Session> {
        self.session.clone().expect("a session")
    }

    fn held(&self, election: &str) -> Held {
        self.held.get(&name(election)).cloned().expect("an entry")
    }
}

fn name(election: &str) -> ElectionName {
    ElectionName::new(election).unwrap()
}

fn told(standing: &Standing) -> String {
    match &standing.place {
        Place::Leading(held) => format!("leading {}", held.token),
        Place::Behind { held: Some(held), .. } => format!("behind {}", held.token),
        other => format!("{other:?}"),
    }
}

fn cas(cas: Cas) -> String {
    match cas {
        Cas::Done => "done".into(),
        Cas::Refused => "refused".into(),
    }
}
