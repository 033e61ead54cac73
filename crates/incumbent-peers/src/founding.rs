//! How a consensus group begins, and how it tells a new member's disk from a wiped one. Pure:
//! reports go in, and what to write down, to say and to become comes out.
//!
//! A disk without votes may be new, or its votes may have been wiped: by itself a member cannot
//! tell. So every disk gets a random number before anything else, and a group is founded by a
//! *charter*, the list of the disks of ALL members:
//! 1. Members tell each other the numbers of their disks. Once all are blank, the lowest member
//!    draws up the charter.
//! 2. Each whose own disk is on it accepts it, durably. A disk accepts one charter in its life.
//! 3. A member that has heard that ALL have accepted it, or that one is admitted by it, is
//!    admitted: it votes, from term zero.
//!
//! If some members will not come, an operator who knows that nobody has ever voted in this group
//! can say so to one that waits ([`Founding::declare`]). It draws up a charter of those who are up,
//! a majority at least, and all else is the same: each of them accepts it, durably, and a member
//! that comes later meets a group that exists. Two such charters have a member in common, whose
//! disk accepts one.
//!
//! A disk that is lost after it was listed, and before its member accepted, leaves the others with
//! a charter that cannot be completed. By the same word of an operator they start over: each gives
//! its disk a new number, as if it had been exchanged, too, and is blank again. It does so only if
//! some disk on its charter is gone or silent, and if a majority is up that is not admitted. Under
//! a charter that a majority has not been admitted by, nobody was ever elected. One that was
//! admitted by it and was away votes with the others when it is back: its votes are on its disk,
//! and the disks that the others gave up have given none, so that each member still has one vote
//! per term. But its tokens are of the founding that was given up, and fences refuse one or the
//! other: it says so in its log, and what to do.
//!
//! So a member votes only under a charter that every disk on it has accepted. A second charter
//! would need the acceptance of a disk that has accepted the first, unless ALL disks were wiped,
//! and then there is nothing left to contradict. A blank disk that meets somebody admitted by a
//! charter without it was wiped: it rejoins like any that lost its state.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use incumbent_core::binary::{ReadError, Reader, Writer};
use incumbent_core::peers::{Group, MAX_MEMBERS, MemberId};
use incumbent_core::{StoreId, Timestamp};
use sha2::{Digest, Sha256};

/// A disk's random number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DiskId(pub(crate) [u8; 16]);

/// The disks of all members, at the founding; of a majority of them, where an operator has declared
/// the group founded. Never empty: its hash is the group's identity, and has to be another one each
/// time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Charter(pub(crate) BTreeMap<MemberId, DiskId>);

impl Charter {
    /// As it is sent and kept.
    pub(crate) fn write<'w>(&self, out: &'w mut Writer) -> &'w mut Writer {
        out.u8(self.0.len() as u8);
        self.0.iter().fold(out, |out, (member, disk)| out.member(*member).bytes(&disk.0))
    }

    /// Nothing but what [`write`](Charter::write) writes: each member once, in order.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Charter, ReadError> {
        let len = usize::from(reader.u8()?);
        if !(1..=MAX_MEMBERS).contains(&len) {
            return Err(ReadError::OutOfBounds);
        }
        let mut charter = Charter::default();
        for _ in 0..len {
            let (member, disk) = (reader.member()?, DiskId(reader.array()?));
            if charter.0.last_key_value().is_some_and(|(last, _)| *last >= member) {
                return Err(ReadError::OutOfBounds);
            }
            charter.0.insert(member, disk);
        }
        Ok(charter)
    }

    /// Which founding of which group it is: a group that was founded anew is another store.
    pub(crate) fn identity(&self, group: u64) -> StoreId {
        let mut hash = Sha256::new();
        hash.update(group.to_le_bytes());
        for (member, disk) in &self.0 {
            hash.update(member.0.to_le_bytes());
            hash.update(disk.0);
        }
        let digest = hash.finalize();
        let half = u128::from_be_bytes(std::array::from_fn(|at| digest[at]));
        StoreId::new(format!("consensus/{half:032x}"))
    }

    fn lists(&self, member: MemberId, disk: DiskId) -> bool {
        self.0.get(&member) == Some(&disk)
    }
}

/// How far a disk is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Progress {
    /// It has never voted and never accepted a charter.
    Blank,
    /// It has accepted this charter.
    Accepted(Charter),
    /// It votes under this charter.
    Admitted(Charter),
    /// It was wiped or damaged, and is on its way back.
    Lost,
}

impl Progress {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Progress::Blank => "blank",
            Progress::Accepted(_) => "accepted",
            Progress::Admitted(_) => "admitted",
            Progress::Lost => "lost",
        }
    }
}

/// What a member says about its disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct DiskReport {
    /// Whether it wants to know the same of others.
    pub(crate) asks: bool,
    pub(crate) disk: DiskId,
    pub(crate) progress: Progress,
}

/// What has come of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing to do.
    Wait,
    /// Write the acceptance down, then say [`Founding::on_written`].
    Accept(Charter),
    /// The group is founded: vote under this charter, from term zero.
    Found(Charter),
    /// The group exists, and this disk was wiped: come back as one that lost its state.
    Rejoin(Charter),
}

/// What has come of an operator's word.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Declared {
    /// Write the acceptance of this charter down, then say [`Founding::on_written`].
    Accepted(Charter),
    /// Write the new number down, with no charter, then say [`Founding::on_written`].
    StartedOver,
    /// All disks of the charter that was accepted are up and may accept it: it is about to be
    /// completed.
    InProgress,
    /// Those who are up are no majority.
    TooFew,
}

fn is_not_admitted(progress: &Progress) -> bool {
    matches!(progress, Progress::Blank | Progress::Accepted(_))
}

/// A member whose disk has not voted yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Founding {
    group: Group,
    disk: DiskId,
    accepted: Option<Charter>,
    /// An acceptance, or a new number, on its way to the disk.
    writing: bool,
    /// The number that the disk gets when that is written.
    next_disk: Option<DiskId>,
    /// What the others said last, and when.
    heard: BTreeMap<MemberId, (Timestamp, DiskId, Progress)>,
    every: Duration,
    ask_at: Timestamp,
}

/// A report older than so many intervals does not make a charter: its disk may be another by now.
const FRESH: u32 = 4;

impl Founding {
    pub(crate) fn new(
        now: Timestamp,
        group: Group,
        disk: DiskId,
        accepted: Option<Charter>,
        every: Duration,
    ) -> Founding {
        Founding { group, disk, accepted, writing: false, next_disk: None, heard: BTreeMap::new(), every, ask_at: now }
    }

    /// What this member says about itself.
    pub(crate) fn report(&self, asks: bool) -> DiskReport {
        let progress = match &self.accepted {
            // Not before it is durable.
            Some(charter) if !self.writing || self.next_disk.is_some() => Progress::Accepted(charter.clone()),
            _ => Progress::Blank,
        };
        DiskReport { asks, disk: self.disk, progress }
    }

    /// Who has not been heard yet.
    pub(crate) fn missing(&self) -> Vec<MemberId> {
        self.group.others().filter(|member| !self.heard.contains_key(member)).collect()
    }

    /// Whether the others are to be asked now.
    pub(crate) fn on_time(&mut self, now: Timestamp) -> bool {
        let due = now >= self.ask_at;
        if due {
            self.ask_at = now + self.every;
        }
        due
    }

    pub(crate) fn poll_timeout(&self) -> Timestamp {
        self.ask_at
    }

    /// A member has said this of itself. Who it is has been authenticated.
    pub(crate) fn on_report(&mut self, now: Timestamp, from: MemberId, report: &DiskReport) {
        if self.group.contains(from) && from != self.group.me() {
            self.heard.insert(from, (now, report.disk, report.progress.clone()));
        }
    }

    /// The acceptance, or the new number, is durable.
    pub(crate) fn on_written(&mut self) {
        self.writing = false;
        if let Some(disk) = self.next_disk.take() {
            (self.disk, self.accepted) = (disk, None);
        }
    }

    /// What is to be done now. To be asked after each change.
    pub(crate) fn step(&mut self, now: Timestamp) -> Step {
        if self.writing {
            return Step::Wait;
        }
        if let Some(step) = self.meet_admitted() {
            return step;
        }
        match self.accepted.clone() {
            Some(charter) if self.all_accepted(&charter) => Step::Found(charter),
            Some(_) => Step::Wait,
            None => match self.accepted_by_others().or_else(|| self.draw_up(now)) {
                Some(charter) => {
                    self.accepted = Some(charter.clone());
                    self.writing = true;
                    Step::Accept(charter)
                }
                None => Step::Wait,
            },
        }
    }

    fn me(&self) -> (MemberId, DiskId) {
        (self.group.me(), self.disk)
    }

    /// Somebody votes already: under our charter, so that all have accepted it; or under one
    /// without this disk.
    fn meet_admitted(&self) -> Option<Step> {
        let (me, disk) = self.me();
        let charters = self.heard.values().filter_map(|(_, _, progress)| match progress {
            Progress::Admitted(charter) => Some(charter),
            _ => None,
        });
        let mut lists = None;
        for charter in charters {
            if !charter.lists(me, disk) {
                return Some(Step::Rejoin(charter.clone()));
            }
            lists = Some(charter);
        }
        match (&self.accepted, lists) {
            (_, None) => None,
            (Some(mine), Some(theirs)) if mine == theirs => Some(Step::Found(mine.clone())),
            // It lists this disk, which knows nothing of it: an old copy was put back.
            (_, Some(theirs)) => Some(Step::Rejoin(theirs.clone())),
        }
    }

    fn all_accepted(&self, charter: &Charter) -> bool {
        let listed = |member: &MemberId| charter.0.contains_key(member);
        self.group.others().filter(listed).all(|member| match self.heard.get(&member) {
            Some((_, disk, Progress::Accepted(theirs) | Progress::Admitted(theirs))) => {
                theirs == charter && charter.lists(member, *disk)
            }
            _ => false,
        })
    }

    /// A charter that somebody else has accepted, and that lists this disk.
    fn accepted_by_others(&self) -> Option<Charter> {
        let (me, disk) = self.me();
        self.heard.values().find_map(|(_, _, progress)| match progress {
            Progress::Accepted(charter) if charter.lists(me, disk) => Some(charter.clone()),
            _ => None,
        })
    }

    /// The lowest member draws the charter up, so that there are not two.
    fn draw_up(&self, now: Timestamp) -> Option<Charter> {
        let is_lowest = self.group.members().first() == Some(&self.group.me());
        let charter = self.blank_disks(now);
        (is_lowest && charter.0.len() == self.group.members().len()).then_some(charter)
    }

    /// An operator says that this group is new and that those who are up are to found it. A member
    /// that has accepted a charter which cannot be completed takes `new_disk` as its disk's number.
    pub(crate) fn declare(&mut self, now: Timestamp, new_disk: DiskId) -> Declared {
        let quorum = self.group.quorum();
        let charter = self.blank_disks(now);
        let not_admitted = self.fresh(now).filter(|(_, _, progress)| is_not_admitted(progress)).count() + 1;
        match &self.accepted {
            _ if self.writing => Declared::InProgress,
            Some(accepted) if self.can_complete(now, accepted) => Declared::InProgress,
            Some(_) if not_admitted < quorum => Declared::TooFew,
            Some(_) => {
                (self.next_disk, self.writing) = (Some(new_disk), true);
                Declared::StartedOver
            }
            None if charter.0.len() < quorum => Declared::TooFew,
            None => {
                (self.accepted, self.writing) = (Some(charter.clone()), true);
                Declared::Accepted(charter)
            }
        }
    }

    /// Whether every disk on a charter is up and may still accept it. A disk that has accepted
    /// another charter never does: it accepts one, and gets a new number when it starts over.
    /// Neither does one that has lost its state.
    fn can_complete(&self, now: Timestamp, charter: &Charter) -> bool {
        let may_accept = |member: MemberId, disk: DiskId| {
            self.fresh(now).any(|(who, on, progress)| {
                let may = match progress {
                    Progress::Blank => true,
                    Progress::Accepted(theirs) | Progress::Admitted(theirs) => theirs == charter,
                    Progress::Lost => false,
                };
                (who, on) == (member, disk) && may
            })
        };
        charter.0.iter().all(|(member, disk)| (*member, *disk) == self.me() || may_accept(*member, *disk))
    }

    /// The disks of those who are up and have never voted, this one's included.
    fn blank_disks(&self, now: Timestamp) -> Charter {
        let blank = self.fresh(now).filter(|(_, _, progress)| **progress == Progress::Blank);
        Charter(blank.map(|(member, disk, _)| (member, disk)).chain([self.me()]).collect())
    }

    /// What the others said lately.
    fn fresh(&self, now: Timestamp) -> impl Iterator<Item = (MemberId, DiskId, &Progress)> {
        let fresh = self.heard.iter().filter(move |(_, (at, ..))| now.since(*at) <= self.every * FRESH);
        fresh.map(|(member, (_, disk, progress))| (*member, *disk, progress))
    }
}
