//! The steps of a recovery: what follows what, what has to be typed before, and what is written
//! down. It asks, reads and acts through [`Outside`] alone.
//!
//! Where a recovery stands, the last line of its journal says. `done`: the next step, if what was
//! stopped is still stopped; `intent`: the same step once more, with everything asked for again.

use std::collections::BTreeMap;

use super::journal::{Details, Journal, OFF, Phase, Step, Storage};
use super::question::Question;
use crate::failure::{Code, Failure};

/// What a recovery sees and does.
pub(super) trait Outside {
    /// Tells the operator.
    fn tell(&mut self, text: &str);
    /// What was typed, or stands in the file of answers.
    async fn ask(&mut self, question: &Question) -> Result<String, Failure>;
    fn election(&self) -> String;
    async fn identity(&mut self) -> Result<String, Failure>;
    /// Keeps what can be seen before anything is touched. Says whether the store may be older than
    /// it was, or another one.
    async fn gather(&mut self) -> Result<bool, Failure>;
    /// Writes into the election's record that this recovery is at this step.
    async fn lock(&mut self, step: Step) -> Result<(), Failure>;
    async fn unlock(&mut self) -> Result<(), Failure>;
    /// Pauses the election, and stops whatever does not heed that.
    async fn stop(&mut self) -> Result<(), Failure>;
    /// Whether it is still paused by us, and nobody is in line.
    async fn is_paused(&mut self) -> Result<bool, Failure>;
    /// What each host says of its processes.
    async fn hosts(&mut self) -> Result<Vec<(String, HostState)>, Failure>;
    /// What the user's command says of a host's data. Nothing: there is no command.
    async fn compare(&mut self, host: &str) -> Result<Option<String>, Failure>;
    /// Whether there is a command that reconciles.
    fn reconciles(&self) -> bool;
    /// Makes the data of a host like the survivor's. `again`: it may have been done already.
    async fn reconcile(&mut self, host: &str, survivor: &str, again: bool) -> Result<(), Failure>;
    /// Which tokens would be given again, and which fences refuse.
    async fn counter(&mut self) -> Result<Counter, Failure>;
    async fn raise(&mut self, floor: u64) -> Result<(), Failure>;
    async fn reset(&mut self, fence: &str) -> Result<(), Failure>;
    /// Lets the election go on with this candidate first, and waits until it leads.
    async fn elect(&mut self, name: &str) -> Result<(), Failure>;
    async fn leads(&mut self, name: &str) -> Result<bool, Failure>;
    /// Looks once more, and says how it is.
    async fn examine(&mut self) -> Result<u8, Failure>;
}

/// What is known of a host's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HostState {
    /// None of them claims the office, and none works under it.
    Quiet,
    /// One does.
    Claims(String),
    /// It did not answer, or not for all of them.
    Silent(String),
}

/// What is to be done about tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counter {
    /// Tokens up to this one were seen, or a fence stands there, and the store can be raised above.
    pub(super) raise: Option<u64>,
    /// It cannot: why, and what can be done.
    pub(super) advice: Option<String>,
    /// Fences of this store that refuse its next leader, where it cannot be raised.
    pub(super) above: Vec<String>,
    /// Fences that know another store.
    pub(super) strange: Vec<String>,
}

/// Takes a recovery from where its journal says it stands to its end, and answers with the exit
/// code of the doctor's last look.
pub(super) async fn recover<S: Storage>(
    journal: &mut Journal<S>,
    outside: &mut impl Outside,
) -> Result<Option<u8>, Failure> {
    let (store, election) = (outside.identity().await?, outside.election());
    if let Some((known, of)) = journal.about().filter(|about| *about != (&*store, &*election)) {
        let text =
            format!("this is {election} in the store {store}, and the journal is about {of} in the store {known}");
        return Err(Failure::error(text).next("nothing was changed; name the store that it is about"));
    }
    let mut next = resume_at(journal, outside).await?;
    let mut exit = None;
    while let Some(step) = next {
        outside.tell(&format!("step {step}"));
        if (Step::Compare..=Step::Elect).contains(&step) {
            still_ours(outside, step).await?;
        }
        match step {
            Step::Evidence => evidence(journal, outside, &store).await?,
            Step::Stop => stop(journal, outside).await?,
            Step::Compare => compare(journal, outside).await?,
            Step::Reconcile => reconcile(journal, outside).await?,
            Step::Counter => counter(journal, outside).await?,
            Step::Elect => elect(journal, outside).await?,
            Step::Resume => exit = Some(resume(journal, outside).await?),
        }
        next = step.next();
    }
    Ok(exit)
}

/// The step that comes next. `None`: all are done.
async fn resume_at<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<Option<Step>, Failure> {
    let Some(last) = journal.last() else { return Ok(Some(Step::Evidence)) };
    let is_done = last.phase == Phase::Done && last.details.of.is_none();
    let next = if is_done { last.step.next() } else { Some(last.step) };
    let Some(step) = next.filter(|step| (Step::Compare..=Step::Elect).contains(step)) else { return Ok(next) };
    let chosen = last.details.survivor.clone().filter(|_| last.step == Step::Elect);
    if let Some(name) = chosen
        && outside.leads(&name).await?
    {
        journal.done(Step::Elect, Details { survivor: Some(name), ..Details::default() })?;
        return Ok(Some(Step::Resume));
    }
    if is_stopped(journal, outside).await? {
        return Ok(Some(step));
    }
    outside.tell("what was stopped is no longer so: everything is stopped, compared and reconciled again");
    Ok(Some(Step::Stop))
}

/// Whether nobody leads, as when the journal said so: what was compared since is still so.
async fn is_stopped<S: Storage>(journal: &Journal<S>, outside: &mut impl Outside) -> Result<bool, Failure> {
    if !outside.is_paused().await? {
        return Ok(false);
    }
    let known = journal.hosts();
    let is_quiet = |(host, state): &(String, HostState)| match state {
        // One that was off and is back was not looked at.
        HostState::Quiet => known.get(host).is_some_and(|word| word != OFF),
        HostState::Claims(_) => false,
        HostState::Silent(_) => known.get(host).is_some_and(|word| word == OFF),
    };
    let asked = outside.hosts().await?;
    if let Some(host) = known.keys().find(|host| asked.iter().all(|(name, _)| name != *host)) {
        outside.tell(&format!("{host} was asked before, and is not among the hosts now"));
        return Ok(false);
    }
    Ok(asked.iter().all(is_quiet))
}

async fn evidence<S: Storage>(
    journal: &mut Journal<S>,
    outside: &mut impl Outside,
    store: &str,
) -> Result<(), Failure> {
    let older = outside.gather().await?;
    let details =
        Details { election: Some(outside.election()), store: Some(store.to_owned()), older, ..Details::default() };
    journal.done(Step::Evidence, details)
}

async fn stop<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<(), Failure> {
    word(outside, Question::Stop).await?;
    outside.lock(Step::Stop).await?;
    journal.intent(Step::Stop, Details::default())?;
    outside.stop().await?;
    let mut hosts = BTreeMap::new();
    for (host, state) in outside.hosts().await? {
        let found = match state {
            HostState::Quiet => "no claim".to_owned(),
            HostState::Claims(what) => {
                return Err(Failure::error(format!("{host} has not stopped: {what}")));
            }
            HostState::Silent(why) => {
                outside.tell(&format!("{host} cannot be asked: {why}"));
                word(outside, Question::Off(host.clone())).await?;
                OFF.to_owned()
            }
        };
        outside.tell(&format!("{host}: {found}"));
        hosts.insert(host, found);
    }
    journal.done(Step::Stop, Details { hosts, ..Details::default() })
}

async fn compare<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<(), Failure> {
    let mut hosts = BTreeMap::new();
    for host in answering(journal) {
        if let Some(found) = outside.compare(&host).await? {
            outside.tell(&format!("{host}: {found}"));
            hosts.insert(host, found);
        }
    }
    journal.done(Step::Compare, Details { hosts, ..Details::default() })
}

async fn reconcile<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<(), Failure> {
    let hosts = answering(journal);
    let survivor = word(outside, Question::Survivor(hosts.clone())).await?;
    // What is kept must not be half of something else.
    if journal.has_begun(&survivor) {
        let text = format!("{survivor} was made like another host, or half of it was: its data cannot be what is kept");
        return Err(Failure::error(text));
    }
    let details = |of: Option<&str>| Details {
        of: of.map(str::to_owned),
        survivor: Some(survivor.clone()),
        ..Details::default()
    };
    for host in hosts.iter().filter(|host| **host != survivor) {
        if journal.is_reconciled(host, &survivor) {
            continue;
        }
        let again = journal.has_begun(host);
        if !outside.reconciles() {
            word(outside, Question::ByHand(host.clone())).await?;
        } else if again {
            word(outside, Question::Again(host.clone())).await?;
        }
        still_ours(outside, Step::Reconcile).await?;
        journal.intent(Step::Reconcile, details(Some(host)))?;
        if outside.reconciles() {
            outside.reconcile(host, &survivor, again).await?;
        }
        journal.done(Step::Reconcile, details(Some(host)))?;
    }
    for (host, _) in journal.hosts().into_iter().filter(|(_, found)| found == OFF) {
        outside.tell(&format!("{host} is off: reconcile it before it is started again"));
    }
    journal.done(Step::Reconcile, details(None))
}

async fn counter<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<(), Failure> {
    let found = if journal.is_older() { outside.counter().await? } else { Counter::default() };
    let Counter { raise, advice, above, strange } = found;
    let mut floor = None;
    if let Some(least) = raise {
        let typed = word(outside, Question::Floor(least)).await?;
        floor = typed.parse().ok();
        still_ours(outside, Step::Counter).await?;
        journal.intent(Step::Counter, Details { floor, ..Details::default() })?;
        outside.raise(floor.unwrap_or(least)).await?;
    }
    if let Some(advice) = advice {
        outside.tell(&advice);
        if word(outside, Question::WaitOrReset).await? == "reset" {
            // The fence could not tell an old leader from a new one.
            if let Some((host, _)) = journal.hosts().iter().find(|(_, found)| *found == OFF) {
                let text = format!("{host} has not said itself that it has stopped: its tokens would count again");
                return Err(Failure::error(text));
            }
            reset(journal, outside, above).await?;
        }
    }
    reset(journal, outside, strange).await?;
    journal.done(Step::Counter, Details { floor, ..Details::default() })
}

/// Each by itself, with its place typed.
async fn reset<S: Storage>(
    journal: &mut Journal<S>,
    outside: &mut impl Outside,
    fences: Vec<String>,
) -> Result<(), Failure> {
    for fence in fences {
        word(outside, Question::Fence(fence.clone())).await?;
        still_ours(outside, Step::Counter).await?;
        let details = Details { of: Some(fence.clone()), ..Details::default() };
        journal.intent(Step::Counter, details.clone())?;
        outside.reset(&fence).await?;
        journal.done(Step::Counter, details)?;
    }
    Ok(())
}

async fn elect<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<(), Failure> {
    let name = word(outside, Question::Elect).await?;
    still_ours(outside, Step::Elect).await?;
    let details = Details { survivor: Some(name.clone()), ..Details::default() };
    journal.intent(Step::Elect, details.clone())?;
    outside.elect(&name).await?;
    outside.tell(&format!("{name} leads"));
    journal.done(Step::Elect, details)
}

async fn resume<S: Storage>(journal: &mut Journal<S>, outside: &mut impl Outside) -> Result<u8, Failure> {
    journal.intent(Step::Resume, Details::default())?;
    outside.unlock().await?;
    let exit = outside.examine().await?;
    journal.done(Step::Resume, Details::default())?;
    Ok(exit)
}

/// A person may think for an hour: meanwhile somebody else may have taken this recovery over, or
/// let the candidates back.
async fn still_ours(outside: &mut impl Outside, step: Step) -> Result<(), Failure> {
    if outside.is_paused().await? {
        return outside.lock(step).await;
    }
    Err(Failure::error("the election is no longer paused by this recovery, and nothing more was done"))
}

/// The hosts that have answered: the others are off.
fn answering<S: Storage>(journal: &Journal<S>) -> Vec<String> {
    journal.hosts().into_iter().filter(|(_, found)| found != OFF).map(|(host, _)| host).collect()
}

/// What was typed, if it is an answer. Any other word ends this run, and nothing is done.
async fn word(outside: &mut impl Outside, question: Question) -> Result<String, Failure> {
    let typed = outside.ask(&question).await?;
    if question.takes(&typed) {
        return Ok(typed);
    }
    Err(Failure::new(Code::No, format!("{typed:?} is no answer to that, and nothing more was done")))
}

#[cfg(test)]
mod tests;
