//! Simulation of the library: the real `Client`, its driver, handles and fences, many of them in
//! one world, in virtual time.
//!
//! Tokio's paused clock is global time, and one thread runs everything, so a seed replays event by
//! event. Each host has a clock that drifts and a gate that stops, delays and kills its tasks.
//! Between a host and the memory store each call travels by itself. What is checked is what users
//! are told: `check`, `elected`, `resign`, `proclaim`, observers, fences.

mod bystander;
mod checker;
mod clock;
mod faults;
mod fence;
mod gate;
mod host;
mod link;
mod scenario;
mod server;
mod user;
mod world;

use self::world::World;
use crate::report::{Counts, Outcome};
use crate::variant::Variant;

/// Runs one seed of the library's simulation.
pub(crate) fn run(seed: u64, variant: Variant, tracing: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("no runtime can be made: {error}"),
    };
    let checker = runtime.block_on(async {
        let world = World::new(seed, variant, tracing);
        let checker = world.checker.clone();
        tokio::select! {
            biased;
            () = checker.broken() => {}
            () = world.live() => {}
        }
        checker
    });
    drop(runtime);
    let (trace, violation, terms, looks) = checker.finish();
    Outcome { seed, violation, counts: Counts::from([("events", looks), ("terms", terms)]), trace }
}
