//! The library's suite on the memory store: in each of its shapes in virtual time, and once with
//! threads and real time.

use std::time::Duration;

use incumbent::store::memory::Shape;
use incumbent_testkit::conformance::Time;
use incumbent_testkit::{Memory, elections};

fn memory(shape: Shape, time: Time) -> Memory {
    Memory::new(shape, time, Duration::from_secs(2))
}

elections!(fair, Time::Virtual, memory(Shape::FAIR, Time::Virtual));
elections!(single, Time::Virtual, memory(Shape::SINGLE, Time::Virtual));
elections!(observed, Time::Virtual, memory(Shape::OBSERVED, Time::Virtual));
elections!(threads, Time::Real, memory(Shape::FAIR, Time::Real));
