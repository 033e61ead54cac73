//! What networks, servers and users do to a store in its life, against real servers and through
//! the fault proxy. A store's crate implements [`Host`] and writes one line:
//!
//! ```text
//! incumbent_testkit::hostile!(hostile, Etcd);
//! ```
//!
//! It becomes one test for each [`Case`]; those that take long only with the crate's feature
//! `faults`. That no two lead at once is asserted everywhere, and no exception lifts it. What a
//! store cannot meet beyond that it declares in [`Host::EXCEPTIONS`], and an exception that the
//! store meets after all fails its test.
//!
//! Times are multiples of the TTL, and generous: how long an office was empty is printed.

mod connections;
mod crowd;
mod fixture;
mod flawed;
mod servers;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use incumbent_store::{ElectionName, Store};

pub use connections::*;
pub use crowd::*;
pub use fixture::Fixture;
pub use flawed::{Flaw, flawed};
pub use servers::*;

/// The servers of a store, for one test, which may do to them what it likes.
///
/// What a host cannot do to its servers it answers with `false`, and the store declares the case.
pub trait Host: Sized + Send + Sync + 'static {
    /// All that the store cannot meet.
    const EXCEPTIONS: &'static [Exception];
    /// What candidates ask for: long enough for a slow machine.
    const TTL: Duration;

    /// Starts the servers.
    fn start() -> impl Future<Output = Self>;

    /// Where they listen, as `host:port`. None where nothing is connected to anything.
    fn addresses(&self) -> Vec<String>;

    /// A store with connections of its own to these addresses. `None`: it takes only one.
    fn store(&self, addresses: &[String]) -> Option<Arc<dyn Store>>;

    /// Puts so many at the end of the line, for a few minutes.
    fn crowd(&self, election: &ElectionName, count: usize) -> impl Future<Output = ()>;

    /// Restarts the servers with the same data, and less of something.
    fn restart_with_less(&mut self) -> impl Future<Output = bool> {
        async { false }
    }

    /// Takes all space away from the servers.
    fn fill(&mut self) -> impl Future<Output = bool> {
        async { false }
    }

    /// Gives it back.
    fn make_room(&mut self) -> impl Future<Output = ()> {
        async {}
    }

    /// Sets the servers' wall clock so many seconds off the true time.
    fn set_wall_clock(&mut self, seconds_off: i64) -> impl Future<Output = bool> {
        let _ = seconds_off;
        async { false }
    }
}

/// What every store should meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// A leader leads on while one of its addresses hangs.
    HungEndpoint,
    /// A leader whose only connection hangs is replaced.
    CutOff,
    /// The same where the server is not heard, but hears.
    AnswersLost,
    /// The same where the server is heard, but does not hear.
    QuestionsLost,
    /// A write whose connection was cut after it went through has an unknown outcome, and repeating
    /// it settles it.
    CutAfterTheRequest,
    /// Answers that come late revive no term, and leave nobody in line twice.
    LateAnswers,
    /// A leader that finds another cluster behind its address stops, and says what it has found.
    AnotherCluster,
    /// Servers that come back with other limits have one leader.
    OtherLimits,
    /// Without space leaders lead on, and may leave; with space others come again.
    OutOfSpace,
    /// A slow server costs nobody an office, and offices are handed on.
    SlowServer,
    /// Ten thousand stand in one line.
    TenThousand,
    /// A wall clock that steps costs nobody an office, and gives the dead no more time.
    WallClock,
    /// Reads that are given up cost nobody an office, and leave nothing behind.
    CancelledReads,
}

/// A case that a store cannot meet, and why.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The case.
    pub case: Case,
    /// Whether it is met now and then, so that meeting it once says nothing.
    pub at_times: bool,
    /// What keeps the store from meeting it.
    pub why: &'static str,
}

impl Exception {
    /// One that is never met.
    pub const fn new(case: Case, why: &'static str) -> Exception {
        Exception { case, at_times: false, why }
    }

    /// One that is met now and then.
    pub const fn at_times(case: Case, why: &'static str) -> Exception {
        Exception { case, at_times: true, why }
    }

    /// The same reason for several cases.
    pub const fn each<const COUNT: usize>(cases: [Case; COUNT], why: &'static str) -> [Exception; COUNT] {
        let mut each = [Exception::new(cases[0], why); COUNT];
        let mut number = 1;
        while number < COUNT {
            each[number].case = cases[number];
            number += 1;
        }
        each
    }
}

/// Why a case was not met.
#[derive(Debug)]
pub struct Unmet(String);

/// Whether a case was met. What no store may do is a panic instead.
pub type Outcome = Result<(), Unmet>;

/// Whether what should be so is so.
fn ensure(so: bool, else_say: impl FnOnce() -> String) -> Outcome {
    if so { Ok(()) } else { Err(Unmet(else_say())) }
}

/// Nothing here takes longer.
const BOUND: Duration = Duration::from_secs(300);

fn outcome_of<H: Host, F: Future<Output = Outcome>>(flaw: Option<Flaw>, test: impl Fn(Fixture<H>) -> F) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let run = async { test(Fixture::start(flaw).await).await };
        tokio::time::timeout(BOUND, run).await.unwrap_or_else(|_| panic!("it did not end within {BOUND:?}"))
    })
}

/// Runs one test, and holds the store to its case or to its exception.
pub fn run<H: Host, F: Future<Output = Outcome>>(case: Case, test: impl Fn(Fixture<H>) -> F) {
    settle(H::EXCEPTIONS, case, outcome_of::<H, F>(None, test));
}

fn settle(exceptions: &[Exception], case: Case, outcome: Outcome) {
    let declared = exceptions.iter().find(|exception| exception.case == case);
    match (declared, outcome) {
        (None, Ok(())) => {}
        (None, Err(Unmet(what))) => panic!("{case:?}: {what}"),
        (Some(exception), Err(Unmet(what))) => println!("{case:?}: {what}, as declared: {}", exception.why),
        (Some(Exception { at_times: true, .. }), Ok(())) => println!("{case:?} is met, this time"),
        (Some(exception), Ok(())) => {
            panic!("{case:?} is met: take the exception out, which says {:?}", exception.why)
        }
    }
}

/// Runs one test with a store that is wrong on purpose. Panics if nobody notices.
pub fn must_catch<H: Host, F: Future<Output = Outcome>>(flaw: Flaw, test: impl Fn(Fixture<H>) -> F) {
    match catch_unwind(AssertUnwindSafe(|| outcome_of::<H, F>(Some(flaw), test))) {
        Ok(Ok(())) => panic!("{flaw:?} was not noticed"),
        Ok(Err(Unmet(what))) => println!("{flaw:?} is caught: {what}"),
        Err(_) => println!("{flaw:?} is caught by a panic"),
    }
}

/// One test per case: `hostile!(module_name, Host)`.
#[macro_export]
macro_rules! hostile {
    ($module:ident, $host:ty) => {
        mod $module {
            use super::*;
            $crate::hostile_each! { run, Case, $host;
                CutAfterTheRequest a_connection_is_cut_after_the_request_went_through
                AnotherCluster another_cluster_is_behind_the_same_address
                CancelledReads a_user_cancels_reads
            }
            #[cfg(feature = "faults")]
            mod with_faults {
                use super::*;
                $crate::hostile_each! { run, Case, $host;
                    HungEndpoint an_endpoint_hangs
                    CutOff a_leader_is_cut_off
                    AnswersLost answers_are_lost
                    QuestionsLost questions_are_lost
                    LateAnswers answers_come_late
                    OtherLimits a_server_comes_back_with_other_limits
                    OutOfSpace a_server_is_out_of_space
                    SlowServer a_server_is_slow
                    TenThousand ten_thousand_stand_in_one_line
                    WallClock a_wall_clock_steps
                }
            }
        }
    };
}

/// Stores that are wrong on purpose, and what must catch each: `hostile_catches!(module_name,
/// Host)`, for a host without exceptions in these tests.
#[macro_export]
macro_rules! hostile_catches {
    ($module:ident, $host:ty) => {
        mod $module {
            use super::*;
            $crate::hostile_each! { must_catch, Flaw, $host;
                OneAddress an_endpoint_hangs
                RenewalsAssumed a_leader_is_cut_off
                RenewalsAssumed answers_are_lost
                RenewalsAssumed questions_are_lost
                RenewalsAssumed answers_come_late
                OneIdentity another_cluster_is_behind_the_same_address
                RenewalsAssumed a_server_comes_back_with_other_limits
                NothingUnknown a_connection_is_cut_after_the_request_went_through
                RenewalsNeedSpace a_server_is_out_of_space
                Impatient a_server_is_slow
                ShortLine ten_thousand_stand_in_one_line
                ClockTrusted a_wall_clock_steps
                ReadsPoison a_user_cancels_reads
            }
        }
    };
}

/// One test of the suite, and then the rest.
#[doc(hidden)]
#[macro_export]
macro_rules! hostile_each {
    ($run:ident, $kind:ident, $host:ty;) => {};
    ($run:ident, $kind:ident, $host:ty; $what:ident $test:ident $($rest:ident)*) => {
        #[test]
        fn $test() {
            $crate::hostile::$run::<$host, _>($crate::hostile::$kind::$what, $crate::hostile::$test);
        }
        $crate::hostile_each! { $run, $kind, $host; $($rest)* }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &[Exception] =
        &[Exception::new(Case::CutOff, "a reason"), Exception::at_times(Case::HungEndpoint, "another")];

    fn unmet() -> Outcome {
        Err(Unmet("it was not".to_owned()))
    }

    #[test]
    fn a_claim_is_met_or_declared() {
        settle(DECLARED, Case::SlowServer, Ok(()));
        settle(DECLARED, Case::CutOff, unmet());
        settle(DECLARED, Case::HungEndpoint, unmet());
        settle(DECLARED, Case::HungEndpoint, Ok(()));
    }

    #[test]
    #[should_panic(expected = "it was not")]
    fn a_claim_that_is_neither_fails() {
        settle(DECLARED, Case::SlowServer, unmet());
    }

    #[test]
    #[should_panic(expected = "take the exception out, which says \"a reason\"")]
    fn an_exception_that_is_met_fails() {
        settle(DECLARED, Case::CutOff, Ok(()));
    }
}
