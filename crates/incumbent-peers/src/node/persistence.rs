//! What a consensus member writes down, and how it comes to be one: the founding of its group.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use incumbent_core::peers::consensus::{Boot, PeerRole, PersistId, Stored};
use incumbent_core::peers::{Abstention, Input, MemberId};
use incumbent_core::{Event, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::start::consensus;
use super::{Node, NodeEvent, Phase};
use crate::counters::add;
use crate::disk::{Disk, Record};
use crate::founding::{Charter, DiskId, DiskReport, Progress, Step};
use crate::packet::Packet;

/// A locked directory, and a sender whose end says that it is free.
pub(super) type HeldDisk = Arc<(Disk, mpsc::Sender<()>)>;

/// What is written down, and what is on its way there.
pub(super) struct Persistence {
    pub(super) disk: HeldDisk,
    pub(super) record: Record,
    pub(super) writing: Option<(Writing, JoinHandle<io::Result<()>>)>,
    /// The newest state that has to be written after the one that is being written.
    pub(super) next: Option<Writing>,
    /// When to ask the others for the charter, while it is not known.
    pub(super) ask_at: Timestamp,
    /// Whether it has been logged that a member has another charter.
    pub(super) mixed_up: bool,
    /// When to log again that the group has not been founded.
    pub(super) remind_at: Timestamp,
}

/// How often a member logs that it still waits for its group to be founded.
const REMIND_EVERY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Writing {
    Charter,
    State(PersistId),
}

impl Node {
    pub(super) fn persist(&mut self, id: PersistId, stored: Stored) {
        if let Some(persistence) = &mut self.persistence {
            persistence.record.stored = Some(stored);
            persistence.write(Writing::State(id));
        }
    }

    pub(super) fn on_written(&mut self, (what, result): (Writing, io::Result<()>)) {
        let tally = &self.shared.meter.tally;
        add(if result.is_ok() { &tally.persisted } else { &tally.persist_failed }, 1);
        if let Err(why) = &result {
            tracing::error!(member = %self.shared.me, %why, "the state could not be written");
        }
        if let Some(persistence) = &mut self.persistence
            && let Some(next) = persistence.next.take()
        {
            persistence.write(next);
        }
        match (what, result.is_ok()) {
            (Writing::State(id), true) => self.input(Input::Persisted(id)),
            (Writing::State(id), false) => self.input(Input::PersistFailed(id)),
            (Writing::Charter, written) => {
                if let Phase::Forming(founding) = &mut self.phase {
                    if !written {
                        // What was not accepted durably was not accepted.
                        let why = Event::NotVoting(Abstention::CannotPersist);
                        self.note(&why);
                        self.events.extend([why, Event::Failed, Event::Done { certain: true }].map(NodeEvent::Event));
                        self.candidate = None;
                        return self.end();
                    }
                    founding.on_written();
                    let report = founding.report(true);
                    self.send_report(&report);
                    self.on_forming();
                }
            }
        }
    }

    pub(super) fn send_report(&self, report: &DiskReport) {
        for outbox in self.shared.outboxes.values() {
            outbox.push(Packet::Founding(report.clone()), &self.shared.meter);
        }
    }

    pub(super) fn on_report(&mut self, from: MemberId, report: &DiskReport) {
        let now = self.now();
        let answer = match &mut self.phase {
            Phase::Forming(founding) => {
                founding.on_report(now, from, report);
                self.on_forming();
                self.own_report()
            }
            Phase::Running(_) => {
                if let Progress::Admitted(charter) = &report.progress {
                    self.learn_charter(charter);
                }
                self.own_report()
            }
            Phase::Over => return,
        };
        if let Some(answer) = answer.filter(|_| report.asks)
            && let Some(outbox) = self.shared.outboxes.get(&from)
        {
            outbox.push(Packet::Founding(answer), &self.shared.meter);
        }
    }

    fn own_report(&self) -> Option<DiskReport> {
        let persistence = self.persistence.as_ref()?;
        match &self.phase {
            Phase::Forming(founding) => Some(founding.report(false)),
            Phase::Running(machine) => {
                let progress = match &persistence.record.charter {
                    Some(charter) if machine.role() != PeerRole::Rejoining => Progress::Admitted(charter.clone()),
                    _ => Progress::Lost,
                };
                Some(DiskReport { asks: false, disk: persistence.record.disk, progress })
            }
            Phase::Over => None,
        }
    }

    pub(super) fn ask_for_charter(&mut self, now: Timestamp) {
        if let Some(persistence) = &mut self.persistence
            && persistence.record.charter.is_none()
            && now >= persistence.ask_at
        {
            persistence.ask_at = now + self.rules.heartbeat();
            let report = DiskReport { asks: true, disk: persistence.record.disk, progress: Progress::Lost };
            self.send_report(&report);
        }
    }

    fn learn_charter(&mut self, charter: &Charter) {
        let Some(persistence) = &mut self.persistence else { return };
        match &persistence.record.charter {
            None => {
                persistence.record.charter = Some(charter.clone());
                let _ = self.shared.identity.set(charter.identity(self.shared.fingerprint));
                if persistence.record.stored.is_some() {
                    persistence.write(Writing::Charter);
                }
            }
            Some(ours) if ours != charter && !std::mem::replace(&mut persistence.mixed_up, true) => {
                tracing::error!(
                    "another member belongs to another founding of this group: a disk was mixed up, or the founding was \
                     given up while one that it was complete for was away. Move the data of the one that is alone with its \
                     founding aside, and start it again: it comes back as one that lost its state"
                );
            }
            Some(_) => {}
        }
    }

    /// Something has changed while the group forms: goes as far as it can.
    pub(super) fn on_forming(&mut self) {
        let now = self.now();
        let Phase::Forming(founding) = &mut self.phase else { return };
        match founding.step(now) {
            Step::Wait => {}
            Step::Accept(charter) => self.accept(charter),
            Step::Found(charter) => {
                tracing::info!(member = %self.shared.me, "the group is founded");
                self.become_member(charter, Boot::New);
            }
            Step::Rejoin(charter) => {
                tracing::warn!("the group exists and this member has no state: it was lost");
                self.become_member(charter, Boot::Lost);
            }
        }
    }

    /// Writes the acceptance of a charter down.
    pub(super) fn accept(&mut self, charter: Charter) {
        if let Some(persistence) = &mut self.persistence {
            persistence.record.charter = Some(charter);
            persistence.write(Writing::Charter);
        }
    }

    /// Writes down that this disk, under a new number, has accepted no charter.
    pub(super) fn start_over(&mut self, disk: DiskId) {
        if let Some(persistence) = &mut self.persistence {
            persistence.record = Record { disk, charter: None, stored: None };
            persistence.write(Writing::Charter);
        }
    }

    /// Logs now and then what the founding waits for: a first start that never ends should not be a
    /// riddle.
    pub(super) fn remind(&mut self, now: Timestamp) {
        let (Phase::Forming(founding), Some(persistence)) = (&self.phase, &mut self.persistence) else { return };
        if now < persistence.remind_at {
            return;
        }
        persistence.remind_at = now + REMIND_EVERY;
        match &founding.missing()[..] {
            [] => tracing::warn!(
                "all members are here and the group is not founded yet; if this stays so, a disk was exchanged meanwhile: \
                 an operator may declare the group founded (`incumbent peers found`), and it starts over"
            ),
            missing => {
                let names: Vec<_> = missing.iter().map(|member| self.members.name(*member)).collect();
                tracing::warn!(
                    "the group has never been complete: its first election waits for {}, unless an operator declares it \
                     founded without",
                    names.join(" and ")
                );
            }
        }
    }

    fn become_member(&mut self, charter: Charter, boot: Boot) {
        let _ = self.shared.identity.set(charter.identity(self.shared.fingerprint));
        if let Some(persistence) = &mut self.persistence {
            persistence.record.charter = Some(charter);
        }
        let parts = ((self.candidate, self.value.clone()), self.rng.fork());
        match consensus(self.now(), self.group.clone(), &self.rules, boot, parts) {
            Ok(machine) => {
                self.phase = Phase::Running(machine);
                // The others need not ask again.
                if let Some(report) = self.own_report() {
                    self.send_report(&report);
                }
            }
            Err(why) => {
                // The same settings have been accepted before.
                tracing::error!(%why, "cannot take part");
                self.end();
            }
        }
    }
}

impl Persistence {
    /// Writes the record as it is now, after what is being written.
    fn write(&mut self, what: Writing) {
        if self.writing.is_some() {
            // A state includes the charter, and a later state the earlier ones.
            if !matches!((self.next, what), (Some(Writing::State(_)), Writing::Charter)) {
                self.next = Some(what);
            }
            return;
        }
        let (disk, record) = (self.disk.clone(), self.record.clone());
        self.writing = Some((what, tokio::task::spawn_blocking(move || disk.0.write(&record))));
    }
}

/// What has been written.
pub(super) fn poll_written(
    persistence: &mut Option<Persistence>,
    cx: &mut Context<'_>,
) -> Poll<(Writing, io::Result<()>)> {
    let Some(persistence) = persistence else { return Poll::Pending };
    let Some((what, task)) = &mut persistence.writing else { return Poll::Pending };
    let what = *what;
    let result = std::task::ready!(Pin::new(task).poll(cx)).unwrap_or_else(|why| Err(io::Error::other(why)));
    persistence.writing = None;
    Poll::Ready((what, result))
}
