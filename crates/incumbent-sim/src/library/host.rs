//! A host: one process after the other, each with a client, a way to the store, and users.

use std::sync::{Arc, Mutex};

use incumbent::Client;
use incumbent_store::{Awaited, lock};

use super::checker::{BootId, Checker};
use super::clock::HostClock;
use super::gate::Gate;
use super::link::Link;

/// One life of a host.
#[derive(Debug)]
pub(crate) struct Boot {
    pub(crate) id: BootId,
    pub(crate) gate: Arc<Gate>,
    pub(crate) link: Link,
    pub(crate) clock: Arc<HostClock>,
    pub(crate) checker: Arc<Checker>,
    client: Mutex<Option<Client>>,
    /// A user was told that this client is of no more use.
    failed: Awaited<bool>,
}

impl Boot {
    pub(crate) fn new(
        id: BootId,
        gate: Arc<Gate>,
        link: Link,
        clock: Arc<HostClock>,
        checker: Arc<Checker>,
        client: Client,
    ) -> Boot {
        let (client, failed) = (Mutex::new(Some(client)), Awaited::new(false));
        Boot { id, gate, link, clock, checker, client, failed }
    }

    /// The client, unless it was closed.
    pub(crate) fn client(&self) -> Option<Client> {
        lock(&self.client).clone()
    }

    pub(crate) fn take_client(&self) -> Option<Client> {
        lock(&self.client).take()
    }

    pub(crate) fn fail(&self) {
        self.failed.set(true);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    pub(crate) async fn failed(&self) {
        self.failed.wait_for(|failed| failed).await;
    }

    pub(crate) fn kill(&self) {
        self.checker.killed(self.id);
        self.gate.kill();
        drop(self.take_client());
    }

    /// How the names of its candidates begin.
    pub(crate) fn prefix(&self) -> String {
        format!("h{}b{}.", self.id.0, self.id.1)
    }

    /// Its client said that nothing of it is left.
    pub(crate) fn check_nothing_in_line(&self, lines: impl Iterator<Item = Vec<incumbent_core::Entry>>) {
        let prefix = self.prefix();
        let ours = |entry: &incumbent_core::Entry| entry.name.as_deref().is_some_and(|name| name.starts_with(&prefix));
        if let Some(entry) = lines.flatten().find(ours) {
            let text = format!("{prefix} closed its client for certain, and {} is in line", entry.token);
            self.checker.fail("CLOSE", text);
        }
    }
}
