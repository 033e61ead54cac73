//! An operator: reads the line, then changes the office record or removes the leader, through the
//! same network as everyone else and as often as it takes, within a bound.

use std::time::Duration;

use incumbent_core::{
    Answer, BenchOrder, Cas, Deposed, ElectionName, Ended, Entry, Fault, Frozen, Handover, Heir, Line, Nonce, Office,
    Op, Paused, Rng, Token,
};

use super::checker::Fields;
use super::process::name_of;

/// What an operator does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Pause,
    Resume,
    /// With this candidate first.
    ResumeFirst,
    End,
    Transfer,
    Resign,
    Depose,
    /// For good, or for a while.
    Freeze,
    Unfreeze,
    /// One name, for good or for a while; in any case, or only if somebody can follow.
    Bench,
    /// The same name again.
    Unbench,
    /// That health has moved the office too often.
    Acknowledge,
}

#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) act: Act,
    name: ElectionName,
    nonce: Nonce,
    within: Duration,
    keep: Duration,
    /// How long a freeze or a bench lasts.
    pub(crate) lasts: Option<Duration>,
    /// Who is to lead when a pause is over, or is benched.
    pub(crate) first: usize,
    /// Whether one that is benched leaves in any case.
    pub(crate) vacates: bool,
    dice: Rng,
    tries: u32,
    /// Numbers the attempts: an answer to an older one is ignored.
    pub(crate) attempt: u64,
    /// Who is to lead next, once that was decided.
    pub(crate) heir: Option<Token>,
    doing: Doing,
}

#[derive(Clone, Debug)]
enum Doing {
    Reading,
    Writing(Option<Box<Entry>>),
    Evicting,
    Done,
}

const MOST_TRIES: u32 = 6;

impl Operator {
    pub(crate) fn new(act: Act, name: ElectionName, ttl: Duration, first: usize, mut dice: Rng) -> Operator {
        let within = ttl * (1 + dice.below(4) as u32) / 2;
        let nonce = dice.nonce();
        let lasts = (dice.below(2) == 0).then_some(ttl);
        let vacates = dice.fork().below(2) == 0;
        Operator {
            act,
            name,
            nonce,
            within,
            keep: ttl * 3,
            lasts,
            first,
            vacates,
            dice,
            tries: 0,
            attempt: 0,
            heir: None,
            doing: Doing::Reading,
        }
    }

    /// Which fields of the office record it has a say in.
    pub(crate) fn fields(&self) -> Fields {
        match self.act {
            Act::Pause | Act::Resume | Act::ResumeFirst => Fields { paused: true, ..Fields::default() },
            Act::Acknowledge => Fields { held_back: true, ..Fields::default() },
            Act::End => Fields::ALL,
            Act::Freeze | Act::Unfreeze => Fields { frozen: true, ..Fields::default() },
            Act::Bench | Act::Unbench => Fields { benched: true, ..Fields::default() },
            Act::Transfer | Act::Resign => Fields { handover: true, ..Fields::default() },
            Act::Depose => Fields { deposed: true, ..Fields::default() },
        }
    }

    /// Starts, or starts over.
    pub(crate) fn begin(&mut self) -> Option<Op> {
        if matches!(self.doing, Doing::Done) || self.tries >= MOST_TRIES {
            return None;
        }
        self.tries += 1;
        self.attempt += 1;
        self.doing = Doing::Reading;
        Some(Op::Line(self.name.clone(), 64))
    }

    /// What to ask next.
    pub(crate) fn on_answer(&mut self, answer: Result<Answer, Fault>) -> Option<Op> {
        let Ok(answer) = answer else { return None };
        match (std::mem::replace(&mut self.doing, Doing::Done), answer) {
            (Doing::Reading, Answer::Line(line)) => {
                let (office, evict) = self.decide(&line)?;
                self.attempt += 1;
                self.doing = Doing::Writing(evict);
                Some(Op::SetOffice(self.name.clone(), line.office.version, Box::new(office)))
            }
            (Doing::Writing(Some(entry)), Answer::Cas(Cas::Done)) => {
                self.attempt += 1;
                self.doing = Doing::Evicting;
                Some(Op::Evict(self.name.clone(), entry))
            }
            (Doing::Writing(_) | Doing::Evicting, Answer::Cas(Cas::Refused)) => self.begin_again(),
            _ => None,
        }
    }

    fn begin_again(&mut self) -> Option<Op> {
        self.doing = Doing::Reading;
        self.begin()
    }

    fn decide(&mut self, line: &Line) -> Option<(Office, Option<Box<Entry>>)> {
        let was = line.office.clone();
        let head = line.entries.first();
        let (nonce, within) = (self.nonce, self.within);
        let handover = |heir: Option<Heir>, from| Some(Handover::new(from, heir, nonce, within));
        match self.act {
            Act::Pause => Some((was.with_paused(Paused::new("maintenance")), None)),
            Act::Resume => Some((was.with_paused(None), None)),
            Act::ResumeFirst => {
                let paused = was.paused.clone()?.until_leads(name_of(self.first));
                Some((was.with_paused(paused), None))
            }
            Act::Freeze => Some((was.with_frozen(Frozen::new(nonce, self.lasts, "maintenance")), None)),
            Act::Unfreeze => Some((was.with_frozen(None), None)),
            Act::Bench => {
                let order = BenchOrder::new(name_of(self.first), nonce, self.lasts, "new disk").vacating(self.vacates);
                let benched = was.benched.with(order);
                Some((was.with_benched(benched), None))
            }
            Act::Unbench => {
                let name = name_of(self.first);
                let benched = was.benched.retain(|order| *order.name != *name);
                Some((was.with_benched(benched), None))
            }
            Act::Acknowledge => Some((was.with_held_back(None), None)),
            Act::End => {
                let ended = Some(Ended::new(self.nonce, self.keep));
                Some((Office::default().with_version(was.version).with_ended(ended), None))
            }
            Act::Resign => Some((was.with_handover(handover(None, head?.token)), None)),
            Act::Transfer => {
                let behind = line.entries.get(1..)?;
                let heir = behind.get(self.dice.below(behind.len() as u64) as usize)?;
                self.heir = Some(heir.token);
                let heir = Heir::of(heir)?;
                Some((was.with_handover(handover(Some(heir), head?.token)), None))
            }
            Act::Depose => {
                let head = head.filter(|head| !head.is_foreign())?;
                Some((was.with_deposed(Deposed::new(head.token)), Some(Box::new(head.clone()))))
            }
        }
    }
}
