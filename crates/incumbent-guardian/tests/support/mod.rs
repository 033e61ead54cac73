//! Scenarios with real processes: the test program starts itself again as supervisor and as
//! commands with every bad habit.
//!
//! A test waits for what it can see (a line, an exit, an entry in `/proc`), each with a bound, and
//! never for time to pass.

mod programs;
mod runner;
mod scenario;

pub(crate) use programs::run_role;
pub(crate) use runner::run;
#[allow(unused_imports, reason = "each test program uses some of these")]
pub(crate) use scenario::{
    HORDE, Scenario, alive, comes_true, exits_with, is_running, kill, kinds, parent, state, stop_and_wait,
};
