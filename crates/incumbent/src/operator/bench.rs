//! Orders to the bench: keeping candidates out of the line, by name.

use std::sync::Arc;
use std::time::Duration;

use incumbent_core::{BenchOrder, Entry, LONGEST, Line, MAX_LINE, Office, Refusal, check_candidate_name};

use super::{Operator, refuse_fencing, refuse_foreign};
use crate::backend::end_of;
use crate::error::{OperatorError, TransferRefused, Unfinished};
use crate::observer::CandidateInfo;

/// What benching a name would do now: see [`foresee_bench`](Operator::foresee_bench).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BenchForecast {
    /// The one of that name that leads.
    pub leader: Option<CandidateInfo>,
    /// To whom it would hand over.
    pub heir: Option<CandidateInfo>,
    /// Those of that name that wait in line: they would leave it.
    pub followers: Vec<CandidateInfo>,
    /// As what [`bench`](Operator::bench) would be refused.
    pub refused: Option<OperatorError>,
}

impl BenchForecast {
    fn new(line: &Line, name: &str) -> BenchForecast {
        let is_meant = |entry: &&Entry| entry.name.as_deref() == Some(name);
        let leader = line.entries.first().filter(is_meant);
        BenchForecast {
            leader: leader.map(CandidateInfo::from),
            heir: leader.and(heir(line, name)).map(CandidateInfo::from),
            followers: line.entries.iter().skip(1).filter(is_meant).map(CandidateInfo::from).collect(),
            refused: refuse_bench(line, name, false).err(),
        }
    }
}

/// The best behind the leader that is fit and not benched. Nobody gets past one of another library.
fn heir<'a>(line: &'a Line, name: &str) -> Option<&'a Entry> {
    let is_benched = |entry: &Entry| {
        entry.name.as_deref().is_some_and(|other| other == name || line.office.benched.get(other).is_some())
    };
    let behind = line.entries.iter().skip(1).take_while(|entry| !entry.is_foreign());
    let fit = behind.filter(|entry| !entry.merit.unwell && !is_benched(entry));
    fit.reduce(|best, other| if other.merit.is_better_than(best.merit) { other } else { best })
}

/// What keeps an order from being written down.
fn refuse_bench(line: &Line, name: &str, vacates: bool) -> Result<(), OperatorError> {
    let is_meant = |entry: &&Entry| entry.name.as_deref() == Some(name);
    refuse_foreign(line.entries.iter().filter(is_meant))?;
    let Some(leader) = line.entries.first().filter(is_meant) else { return Ok(()) };
    if line.office.frozen.is_some() {
        return Err(TransferRefused::Leader(Refusal::Frozen).into());
    }
    if vacates {
        return Ok(());
    }
    refuse_fencing(line)?;
    let unwell = line.entries.iter().skip(1).filter(|entry| entry.merit.unwell).map(CandidateInfo::from).collect();
    match heir(line, name) {
        Some(_) => Ok(()),
        None => Err(OperatorError::NoHeir { leader: Box::new(leader.into()), unwell }),
    }
}

impl Operator {
    /// Keeps the candidates of this name out of the line, also those that stand later: until
    /// [`unbench`](Operator::unbench), or `lasts` from when each of them has first read it. One
    /// that leads hands over first, to the best that is fit; where there is nobody, the order is
    /// refused. `Ok`: nobody of that name is in line. Out of time, what was ordered stays. Benching
    /// a name again replaces the order.
    ///
    /// Names are not unique: all of that name are meant. In a [frozen](Operator::freeze) election
    /// the order is refused for one that leads. Not where there is no line.
    pub async fn bench(
        &self,
        name: impl Into<String>,
        lasts: Option<Duration>,
        within: Duration,
    ) -> Result<(), OperatorError> {
        self.keep_out(name.into(), lasts, false, within).await
    }

    /// The same, also where that leaves the office vacant: one that leads tries to hand over for as
    /// long as its TTL, and leaves in any case.
    pub async fn bench_anyway(
        &self,
        name: impl Into<String>,
        lasts: Option<Duration>,
        within: Duration,
    ) -> Result<(), OperatorError> {
        self.keep_out(name.into(), lasts, true, within).await
    }

    async fn keep_out(
        &self,
        name: String,
        lasts: Option<Duration>,
        vacates: bool,
        within: Duration,
    ) -> Result<(), OperatorError> {
        check_name(&name)?;
        let (record, until) = (self.record("bench")?, end_of(within));
        record.refuse_bench_without_line(until).await?;
        let name: Arc<str> = name.into();
        let lasts = lasts.map(|lasts| lasts.min(LONGEST));
        let order = BenchOrder::new(name.clone(), record.port.nonce(), lasts, self.order()?).vacating(vacates);
        let is_there = |office: &Office| office.benched.get(&name) == Some(&order);
        record
            .change_office(until, |line| {
                if is_there(&line.office) {
                    return Ok(None);
                }
                refuse_bench(line, &name, vacates)?;
                let benched = line.office.benched.with(order.clone());
                if !benched.fits() {
                    return Err(OperatorError::BenchFull);
                }
                Ok(Some(line.office.clone().with_benched(benched)))
            })
            .await?;
        let mut seen = false;
        record
            .wait_until(until, Unfinished::BenchedLeft, |line| {
                // A store may answer with what was so a moment before it was written.
                seen |= is_there(&line.office);
                if seen && !is_there(&line.office) {
                    return Some(Err(OperatorError::CalledOff));
                }
                let is_in_line = line.entries.iter().any(|entry| entry.name.as_deref() == Some(&*name));
                (seen && !is_in_line).then_some(Ok(()))
            })
            .await
    }

    /// What [`bench`](Operator::bench) would do now, and nothing is done.
    pub async fn foresee_bench(&self, name: &str, within: Duration) -> Result<BenchForecast, OperatorError> {
        check_name(name)?;
        let (record, until) = (self.record("bench")?, end_of(within));
        record.refuse_bench_without_line(until).await?;
        self.order()?;
        Ok(BenchForecast::new(&record.read_until(MAX_LINE, until).await?, name))
    }

    /// Lets the candidates of this name stand again. They come back by themselves.
    pub async fn unbench(&self, name: &str, within: Duration) -> Result<(), OperatorError> {
        check_name(name)?;
        let is_there = |office: &Office| office.benched.get(name).is_some();
        let missing = OperatorError::NotBenched { name: name.to_owned() };
        self.take_out("unbench", within, is_there, missing, |office| {
            let benched = office.benched.retain(|order| *order.name != *name);
            office.with_benched(benched)
        })
        .await
    }
}

/// What no candidate may be called would wait in the record for nobody.
fn check_name(name: &str) -> Result<(), OperatorError> {
    check_candidate_name(name).map_err(OperatorError::CandidateName)
}
