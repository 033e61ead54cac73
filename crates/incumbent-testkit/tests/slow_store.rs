//! The suite judges what a store does and not how quickly: a store whose every call is late passes,
//! too.

use std::sync::Arc;
use std::time::Duration;

use incumbent_store::memory::{MemoryStore, Shape};
use incumbent_store::{Store, TokioClock};
use incumbent_testkit::conformance::{Harness, Time};
use incumbent_testkit::{FaultStore, Faults, Odds, conformance};

struct Slow(FaultStore);

impl Slow {
    fn new(shape: Shape) -> Slow {
        let odds =
            Odds { delay_request: 500, delay_answer: 500, longest_delay: Duration::from_millis(30), ..Odds::default() };
        let memory = MemoryStore::with_clock(shape, Arc::new(TokioClock::new()));
        Slow(FaultStore::new(Arc::new(memory), Faults::seeded(1, odds)))
    }
}

impl Harness for Slow {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.clone())
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn crowd(&self) -> usize {
        30
    }
}

conformance!(fair, Time::Virtual, Slow::new(Shape::FAIR));
conformance!(single, Time::Virtual, Slow::new(Shape::SINGLE));
conformance!(observed, Time::Virtual, Slow::new(Shape::OBSERVED));
