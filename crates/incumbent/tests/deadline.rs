//! The atomic of a term, in every order in which its threads can take their steps (loom).

#![allow(dead_code, reason = "the file under test is the library's, and only some of it is used here")]

use incumbent_core::Timestamp;
use loom::sync::Arc;
use loom::thread;

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}
#[path = "../src/deadline.rs"]
mod deadline;

use deadline::{Deadline, Lapse};

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn deadline() -> Arc<Deadline> {
    Arc::new(Deadline::new(at(10)))
}

#[test]
fn what_a_user_has_seen_end_is_never_extended() {
    loom::model(|| {
        let deadline = deadline();
        let (renewed, again) = (deadline.clone(), deadline.clone());
        let driver = thread::spawn(move || renewed.move_to(at(20)));
        let other = thread::spawn(move || again.lapse(at(10)));
        let seen = deadline.lapse(at(10));
        if seen != Lapse::Serving {
            assert_eq!(deadline.get(), Timestamp::ZERO, "it was over");
        }
        let (moved, other) = (driver.join().unwrap_or(false), other.join().unwrap_or(Lapse::Over));
        let over = deadline.get() == Timestamp::ZERO;
        assert_eq!(over, seen != Lapse::Serving || other != Lapse::Serving, "over is over for all, or for none");
        assert!(over || moved, "who serves on was extended");
        assert!(!(seen == Lapse::Noticed && other == Lapse::Noticed), "one alone is the first to notice");
        assert_eq!(over, seen == Lapse::Noticed || other == Lapse::Noticed, "somebody tells the driver");
    });
}

#[test]
fn what_the_driver_has_ended_stays_ended() {
    loom::model(|| {
        let deadline = deadline();
        let (looked, ended) = (deadline.clone(), deadline.clone());
        let user = thread::spawn(move || (looked.lapse(at(10)), looked.lapse(at(5))));
        // Only the driver extends and ends, one after the other.
        let driver = thread::spawn(move || {
            ended.move_to(at(20));
            ended.end();
            ended.move_to(at(30))
        });
        let (first, then) = user.join().unwrap_or((Lapse::Over, Lapse::Over));
        assert!(first == Lapse::Serving || then == Lapse::Over, "{first:?}, then {then:?}");
        assert!(!driver.join().unwrap_or(true), "nothing moves it after its end");
        assert_eq!(deadline.get(), Timestamp::ZERO);
    });
}
