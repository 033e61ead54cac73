//! The memory store held to what every store must do: in its three shapes in virtual time; and by
//! the wall clock and on two threads, for what virtual time, on one thread, cannot show.

use std::time::Duration;

use incumbent_store::memory::Shape;
use incumbent_testkit::conformance::Time;
use incumbent_testkit::{Memory, conformance};

fn memory(shape: Shape) -> Memory {
    Memory::new(shape, Time::Virtual, Duration::from_secs(10))
}

conformance!(fair, Time::Virtual, memory(Shape::FAIR));
conformance!(single, Time::Virtual, memory(Shape::SINGLE));
conformance!(observed, Time::Virtual, memory(Shape::OBSERVED));
conformance!(one_host, Time::Virtual, memory(Shape::ONE_HOST));
conformance!(threads, Time::Real, Memory::new(Shape::FAIR, Time::Real, Duration::from_secs(2)));
