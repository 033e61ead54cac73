//! Stopping the work of the last leader from outside before its successor is in office (STONITH):
//! what may be stopped, how often, and what follows when it fails. When it is done is the core's.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use incumbent_core::{ElectionName, Origin, ShotResult, TermRecord};
use incumbent_store::{Clock, lock};

use crate::fence::BoxFuture;
use crate::shots::{Aim, Budget};

/// How long after a failure it is tried again: after the first, the second, the third; then as
/// where nobody takes office before it has succeeded.
const PAUSES: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(15), Duration::from_secs(45)];
const REFUSED: Duration = Duration::from_secs(300);

/// Stops the work of a leader from outside: switches off its host, or has its cloud do so.
pub trait Shooter: fmt::Debug + Send + Sync + 'static {
    /// Stops the work of this term, and answers when it has certainly stopped, or that could not be
    /// achieved. Called once for each attempt, however long it takes: bound it. If the candidate
    /// loses its place meanwhile, the future is dropped. One that blocks its thread cannot be:
    /// until it has ended, this process fires no other shot at the same target.
    fn shoot<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Shooting>;
}

/// What is to be stopped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Target {
    /// The election.
    pub election: ElectionName,
    /// What it is called: what the leader said it is called when it has to be stopped, or its host.
    /// One of those that were listed, of letters, digits and `._:-`.
    pub name: Arc<str>,
    /// The term whose work is to be stopped, as it is on record. Everybody who can write to the
    /// store can write that.
    pub term: TermRecord,
    /// Which attempt at this term this is, counted across all candidates. Above 1: it may have been
    /// shot at before.
    pub attempt: u32,
}

impl Target {
    /// This attempt at the work of this term, under this name.
    pub fn new(election: ElectionName, name: impl Into<Arc<str>>, term: TermRecord, attempt: u32) -> Target {
        Target { election, name: name.into(), term, attempt }
    }
}

/// What came of stopping it.
///
/// Why it did not succeed is put on record, for people: a line of 128 bytes at most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shooting {
    /// The work has certainly stopped.
    Stopped,
    /// It failed, and why.
    Failed(Arc<str>),
    /// It did not end in time: nobody knows whether the work has stopped. Why.
    TimedOut(Arc<str>),
}

/// As the end of a sentence on what was done.
impl fmt::Display for Shooting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shooting::Stopped => f.write_str("succeeded: it has stopped"),
            Shooting::Failed(why) => write!(f, "failed: {why}"),
            Shooting::TimedOut(why) => write!(f, "failed, and nobody knows whether it has stopped: {why}"),
        }
    }
}

/// What follows when the work of the last leader could not be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnFailure {
    /// Three more attempts, after 5, 15 and 45 seconds; then as `Refuse`.
    #[default]
    Retry,
    /// Nobody takes office. It is tried again every five minutes; a late word of the last leader
    /// that its work has stopped, or [an operator's](crate::Operator::fenced), ends the wait.
    Refuse,
    /// Takes office all the same. The record says that the last leader was not stopped.
    Anyway,
}

/// Stops the work of the last leader from outside, where its term is on record and not known to
/// have ended: see [`Candidate::stonith`](crate::Candidate::stonith).
///
/// Everybody who can write to the store can say what the last leader is called. So only what is
/// listed here is ever shot at; never the own host; one target for one term in ten minutes, and for
/// three terms in an hour in all elections of the process together, or of the host
/// ([`counted_in`](Stonith::counted_in)).
///
/// ```
/// use incumbent::fence::BoxFuture;
/// use incumbent::{Shooter, Shooting, Stonith, Target};
///
/// /// A switch that has one plug for each host.
/// #[derive(Debug)]
/// struct Plugs;
///
/// impl Plugs {
///     async fn switch_off(&self, _plug: &str) -> Result<(), std::io::Error> {
///         Ok(()) // Speaks to the switch, for a minute at most.
///     }
/// }
///
/// impl Shooter for Plugs {
///     fn shoot<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Shooting> {
///         Box::pin(async move {
///             match self.switch_off(&target.name).await {
///                 Ok(()) => Shooting::Stopped,
///                 Err(error) => Shooting::Failed(error.to_string().into()),
///             }
///         })
///     }
/// }
///
/// let stonith = Stonith::new(Plugs, ["node-1", "node-2", "node-3"]);
/// # drop(stonith);
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is given to a candidate"]
pub struct Stonith {
    shooter: Arc<dyn Shooter>,
    targets: BTreeSet<Arc<str>>,
    on_failure: OnFailure,
    budget: Budget,
    pub(crate) delay: Option<Duration>,
}

impl Stonith {
    /// Stops it like this, if it is one of these.
    pub fn new(shooter: impl Shooter, targets: impl IntoIterator<Item: Into<Arc<str>>>) -> Stonith {
        let targets = targets.into_iter().map(Into::into).collect();
        let (on_failure, budget) = (OnFailure::default(), Budget::default());
        Stonith { shooter: Arc::new(shooter), targets, on_failure, budget, delay: None }
    }

    /// What follows when it fails.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Stonith {
        self.on_failure = on_failure;
        self
    }

    /// Counts the shots in this file, together with all processes of this host that name it, and
    /// not for this process alone. It is made, in a directory that is there, and to which nobody
    /// else should be able to write. While it cannot be used, this process counts for itself, and
    /// its log says so.
    pub fn counted_in(mut self, file: impl Into<PathBuf>) -> Stonith {
        self.budget = Budget::in_file(file.into());
        self
    }

    /// How long the last leader has to say late that its work has stopped: the grace and two
    /// renewal intervals, unless this is set.
    pub fn delay(mut self, delay: Duration) -> Stonith {
        self.delay = Some(delay);
        self
    }

    /// Fires this attempt, unless something stands against it. What came of it; after how long it
    /// is to be tried again, before anybody is in office; and why it did not succeed.
    pub(crate) async fn fire(
        &self,
        election: ElectionName,
        term: TermRecord,
        attempt: u32,
        own: &Origin,
        clock: &dyn Clock,
    ) -> (ShotResult, Option<Duration>, Arc<str>) {
        if has_started_anew(&term.origin, own) {
            tracing::warn!(%election, token = %term.token, "the last leader was {}, which has started anew", own.target);
            return (ShotResult::Stopped, None, "".into());
        }
        // It lasts until the shooter's future is gone, also where that is dropped late.
        let under_way = match self.permit(&election, &term, own, clock).await {
            Ok(begun) => begun,
            Err(why) => {
                let said = self.why_refused(why, &term.origin);
                tracing::warn!(
                    "the last leader of {election} is not stopped from outside: {said}; once you have checked that its \
                     work has stopped, `incumbent fenced {election} --token {} --i-have-checked` says so \
                     (docs/runbooks.md#nobody-leads)",
                    term.token
                );
                let again = if why == Refused::UnderWay { self.again(attempt) } else { Some(REFUSED) };
                let again = again.filter(|_| self.on_failure != OnFailure::Anyway);
                return (ShotResult::Failed, again, line_of(&said));
            }
        };
        let name = under_way.0.clone();
        let before = if attempt > 1 { ", which may have been shot at before" } else { "" };
        tracing::warn!(%election, token = %term.token, attempt, "stopping {name} from outside{before}");
        let target = Target { election, name, term, attempt };
        let outcome = self.shooter.shoot(&target).await;
        let (result, again, why) = match &outcome {
            Shooting::Stopped => (ShotResult::Stopped, None, "".into()),
            Shooting::Failed(why) => (ShotResult::Failed, self.again(attempt), line_of(why)),
            Shooting::TimedOut(why) => (ShotResult::TimedOut, self.again(attempt), line_of(why)),
        };
        let next = match again {
            Some(again) => format!("; again in {} s", again.as_secs()),
            None if result == ShotResult::Stopped => String::new(),
            None => "; the next leader takes office all the same".to_owned(),
        };
        tracing::warn!(election = %target.election, attempt, "stopping {} from outside {outcome}{next}", target.name);
        (result, again, why)
    }

    /// Permits a shot, and counts it.
    async fn permit(
        &self,
        election: &ElectionName,
        term: &TermRecord,
        own: &Origin,
        clock: &dyn Clock,
    ) -> Result<UnderWay, Refused> {
        let begun = UnderWay::begin(self.target_of(&term.origin, own)?)?;
        let aim = Aim { name: begun.0.clone(), election: election.clone(), token: term.token };
        let may = self.budget.spend(aim, clock.now()).await;
        may.then_some(begun).ok_or(Refused::Spent)
    }

    /// Why nothing is fired, with the names that matter. The record keeps its first 128 bytes.
    fn why_refused(&self, why: Refused, origin: &Origin) -> String {
        let listed = || self.targets.iter().map(|target| &**target).collect::<Vec<_>>().join(", ");
        match why {
            Refused::NotListed => format!("{:?} is not among the targets ({})", name_of(origin), listed()),
            why => why.to_string(),
        }
    }

    /// What to shoot at, if that is allowed.
    fn target_of(&self, origin: &Origin, own: &Origin) -> Result<Arc<str>, Refused> {
        let name = name_of(origin);
        let is_plain =
            |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._:-".contains(letter));
        if name.is_empty() {
            return Err(Refused::Unnamed);
        }
        let is_own = |theirs: &str, ours: &str| !theirs.is_empty() && theirs == ours;
        let is_ours = is_own(&origin.boot, &own.boot) || is_own(&origin.host, &own.host);
        if is_ours || is_own(name, &own.host) || is_own(name, &own.target) {
            return Err(Refused::OwnHost);
        }
        if !is_plain(name) || !self.targets.contains(name) {
            return Err(Refused::NotListed);
        }
        Ok(name.clone())
    }

    /// What came of an attempt that ended without an answer, and when it is tried again.
    pub(crate) fn after_no_answer(&self, attempt: u32) -> (ShotResult, Option<Duration>, Arc<str>) {
        (ShotResult::TimedOut, self.again(attempt), "it ended without an answer".into())
    }

    fn again(&self, attempt: u32) -> Option<Duration> {
        let tries = usize::try_from(attempt).unwrap_or(usize::MAX).saturating_sub(1);
        match self.on_failure {
            OnFailure::Anyway => None,
            OnFailure::Refuse => Some(REFUSED),
            OnFailure::Retry => Some(PAUSES.get(tries).copied().unwrap_or(REFUSED)),
        }
    }
}

/// Whether the work was done at what we are called ourselves, where it has to be stopped, before
/// that was started anew. Only where both say so: hosts of one name are not always one host.
fn has_started_anew(origin: &Origin, own: &Origin) -> bool {
    let is_known = |text: &str| !text.is_empty();
    is_known(&own.target)
        && origin.target == own.target
        && is_known(&origin.boot)
        && is_known(&own.boot)
        && origin.boot != own.boot
}

/// What it is called when it has to be stopped.
fn name_of(origin: &Origin) -> &Arc<str> {
    if origin.target.is_empty() { &origin.host } else { &origin.target }
}

/// Why nothing is fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("the record does not say where it worked")]
    Unnamed,
    #[error("it worked on this very host")]
    OwnHost,
    #[error("what it is called is not among the targets that were listed")]
    NotListed,
    #[error("an earlier shot at it, by this process, has not ended")]
    UnderWay,
    #[error("it was shot at less than ten minutes ago, or three shots have been fired from here within an hour")]
    Spent,
}

/// A shot by this process at this target, until it is dropped.
struct UnderWay(Arc<str>);

/// What this process is shooting at.
static SHOOTING_AT: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());

impl UnderWay {
    fn begin(name: Arc<str>) -> Result<UnderWay, Refused> {
        let is_alone = lock(&SHOOTING_AT).insert(name.clone());
        is_alone.then_some(()).ok_or(Refused::UnderWay)?;
        Ok(UnderWay(name))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        lock(&SHOOTING_AT).remove(&self.0);
    }
}

/// One line of text.
fn line_of(text: &str) -> Arc<str> {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect::<String>().trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nothing;

    impl Shooter for Nothing {
        fn shoot<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Shooting> {
            Box::pin(async { Shooting::Stopped })
        }
    }

    #[test]
    fn only_what_is_listed_and_not_on_this_host_is_shot_at() {
        let stonith = Stonith::new(Nothing, ["node-1", "plug-7", "a b", "here", "plug-0"]);
        let own = Origin::new("here", "boot-0", "").with_target("plug-0");
        let target = |origin: Origin| stonith.target_of(&origin, &own);
        assert_eq!(target(Origin::new("node-1", "boot-1", "")), Ok("node-1".into()));
        assert_eq!(target(Origin::new("node-9", "boot-1", "").with_target("plug-7")), Ok("plug-7".into()));
        assert_eq!(target(Origin::new("node-1", "boot-1", "").with_target("plug-8")), Err(Refused::NotListed));
        assert_eq!(target(Origin::new("a b", "boot-1", "")), Err(Refused::NotListed), "though it is listed");
        assert_eq!(target(Origin::default()), Err(Refused::Unnamed));
        for own_host in [
            Origin::new("node-1", "boot-0", ""),
            Origin::new("here", "boot-1", "").with_target("plug-7"),
            Origin::new("node-1", "boot-1", "").with_target("here"),
            Origin::new("node-1", "boot-1", "").with_target("plug-0"),
        ] {
            assert_eq!(target(own_host.clone()), Err(Refused::OwnHost), "{own_host:?}");
        }
    }

    #[test]
    fn what_we_are_called_ourselves_has_stopped_if_it_was_started_anew() {
        let own = Origin::new("here", "boot-0", "").with_target("plug-0");
        let was = |boot: &str, target: &str| Origin::new("here", boot, "").with_target(target);
        assert!(has_started_anew(&was("boot-1", "plug-0"), &own));
        for other in [was("boot-0", "plug-0"), was("", "plug-0"), was("boot-1", "plug-1"), was("boot-1", "")] {
            assert!(!has_started_anew(&other, &own), "{other:?}");
        }
        assert!(!has_started_anew(&was("boot-1", ""), &Origin::new("here", "boot-0", "")), "names are not unique");
    }

    #[test]
    fn failures_are_tried_again_with_growing_pauses_or_not_at_all() {
        let stonith = |on_failure| Stonith::new(Nothing, ["a"]).on_failure(on_failure);
        let seconds = |on_failure| -> Vec<Option<u64>> {
            let again = |attempt| stonith(on_failure).again(attempt);
            [1, 2, 3, 4, u32::MAX].map(|attempt| again(attempt).map(|pause| pause.as_secs())).to_vec()
        };
        assert_eq!(seconds(OnFailure::Retry), [Some(5), Some(15), Some(45), Some(300), Some(300)]);
        assert_eq!(seconds(OnFailure::Refuse), [Some(300); 5]);
        assert_eq!(seconds(OnFailure::Anyway), [None; 5]);
    }
}
