//! What every store must do. A store's crate implements [`Harness`] and writes one line:
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use incumbent_store::Store;
//! # use incumbent_store::memory::{MemoryStore, Shape};
//! use incumbent_testkit::conformance::{Harness, Time};
//!
//! struct Memory(MemoryStore);
//!
//! impl Harness for Memory {
//!     async fn store(&self) -> Arc<dyn Store> {
//!         Arc::new(self.0.clone())
//!     }
//!     fn ttl(&self) -> Duration {
//!         Duration::from_secs(2)
//!     }
//! }
//!
//! incumbent_testkit::conformance!(memory, Time::Real, Memory(MemoryStore::new(Shape::FAIR)));
//! ```
//!
//! It becomes one test per behaviour, in a module of the given name; the expression is evaluated
//! inside the test's runtime, and may `.await`. Behaviours that a store honestly does not promise
//! (a line, watches, who forgets the dead) are read from its
//! [`Promises`](incumbent_store::Promises), and what must hold instead is tested.
//!
//! Nothing here waits for a fixed time: conditions are read again until they hold, within a
//! generous bound.

mod evictions;
mod fixture;
mod harness;
mod limits;
mod line;
mod model;
mod office;
mod races;
mod sessions;
mod tokens;
mod watches;

pub use evictions::*;
pub use harness::{Harness, Time, run, unique};
pub use limits::*;
pub use line::*;
pub use model::*;
pub use office::*;
pub use races::*;
pub use sessions::*;
pub use tokens::*;
pub use watches::*;

/// One test per behaviour: `conformance!(module_name, Time::Virtual, harness_expression)`.
#[macro_export]
macro_rules! conformance {
    ($module:ident, $time:expr, $harness:expr) => {
        $crate::suite_tests! { conformance, $module, $time, $harness;
            the_line_is_first_in_first_out
            a_candidate_behind_is_shown_the_one_right_ahead
            enlisting_again_as_the_same_incarnation_adds_nothing
            an_enlistment_that_was_cancelled_is_settled_by_repeating_it
            a_second_candidacy_of_one_session_is_refused_and_names_the_first
            standing_says_gone_for_an_entry_that_was_withdrawn
            standing_says_gone_for_an_entry_of_another_session
            several_predecessors_may_go_at_once
            a_standing_that_is_told_whom_it_was_behind_is_the_same
            publishing_changes_the_value_and_the_readiness
            what_is_said_of_merit_is_read_back_in_the_line_and_by_the_next
            publishing_is_refused_for_an_entry_that_is_gone
            a_late_publication_puts_nothing_old_back
            withdrawing_again_is_done_and_touches_nobody_else
            withdrawing_for_an_heir_is_done_only_while_the_heir_is_there
            a_line_is_cut_at_the_limit_and_says_so
            a_foreign_candidate_stands_in_line_without_an_incarnation
            tokens_grow_over_withdrawals_and_an_emptied_line
            tokens_grow_over_a_session_that_fell_silent
            tokens_grow_over_an_ended_election
            two_sessions_are_independent
            one_session_stands_in_many_elections
            a_renewal_names_what_is_gone_and_what_was_not_named
            a_renewal_says_who_is_still_ahead_only_while_it_is_so
            a_renewed_session_stays
            closing_a_session_removes_its_entries
            a_silent_session_is_forgotten_by_whom_the_store_says
            a_session_and_its_store_say_the_same_about_themselves
            a_ttl_of_a_month_is_granted_as_far_as_was_said_beforehand
            an_eviction_removes_exactly_what_was_seen
            an_eviction_is_refused_when_the_entry_has_changed
            an_eviction_of_what_was_renewed_meanwhile_is_refused_where_rivals_forget
            an_eviction_is_told_to_the_owner_in_every_way
            a_wake_is_only_a_hint
            a_watch_from_a_cursor_misses_nothing
            a_watch_wakes_on_what_comes_after_it
            dropped_watches_leave_nothing_behind
            one_leaves_and_exactly_one_is_woken
            a_publication_wakes_those_who_follow_the_head_and_not_those_who_wait_for_a_place
            an_office_record_that_has_moved_on_is_not_overwritten
            racing_writers_of_the_office_record_erase_nothing_of_each_other
            a_blank_office_record_is_removed
            a_tombstone_goes_after_its_time
            the_office_record_is_seen_with_every_standing
            names_and_values_beyond_the_limits_are_refused
            names_and_values_at_the_limits_are_kept
            elections_with_similar_names_are_kept_apart
            elections_are_listed_by_their_names
            nobody_appears_ahead_of_a_sitting_leader
            racing_candidates_get_different_tokens_and_one_leader
            a_random_history_agrees_with_the_table
        }
    };
}

/// The tests of a suite, in a module.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_tests {
    ($suite:ident, $module:ident, $time:expr, $harness:expr; $($behaviour:ident)*) => {
        mod $module {
            #[allow(unused_imports, reason = "the harness may need nothing of its surroundings")]
            use super::*;
            $crate::suite_each! { $suite, $time, $harness; $($behaviour)* }
        }
    };
}

/// One test of a suite, and then the rest.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_each {
    ($suite:ident, $time:expr, $harness:expr;) => {};
    ($suite:ident, $time:expr, $harness:expr; $behaviour:ident $($rest:ident)*) => {
        #[test]
        fn $behaviour() {
            $crate::conformance::run($time, async { $harness }, async |harness| {
                $crate::$suite::$behaviour(harness).await
            });
        }
        $crate::suite_each! { $suite, $time, $harness; $($rest)* }
    };
}
