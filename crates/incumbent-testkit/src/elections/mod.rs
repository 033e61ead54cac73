//! What every store must make possible for those who use the library on it: the same tests as a
//! user would write, with the same [`Harness`](crate::conformance::Harness) as the suite at the
//! seam.
//!
//! ```text
//! incumbent_testkit::elections!(etcd_elections, Time::Real, EtcdHarness::start().await);
//! ```

mod benching;
mod choosing;
mod fixture;
mod leaving;
mod notices;
mod readying;
mod recording;
mod sharing;
mod standing;
mod watching;

pub use benching::*;
pub use choosing::*;
pub use leaving::*;
pub use notices::*;
pub use readying::*;
pub use recording::*;
pub use sharing::*;
pub use standing::*;
pub use watching::*;

/// One test per behaviour: `elections!(module_name, Time::Virtual, harness_expression)`.
#[macro_export]
macro_rules! elections {
    ($module:ident, $time:expr, $harness:expr) => {
        $crate::suite_tests! { elections, $module, $time, $harness;
            candidates_lead_one_after_the_other_with_growing_tokens
            a_candidate_that_nobody_rivals_leads_at_once
            a_client_stands_once_in_an_election_and_again_after_leaving
            one_session_holds_many_elections
            clients_that_share_a_store_on_threads_hold_each_office_alone
            a_leader_whose_entry_is_deleted_loses_office_and_gets_back_in_line
            a_follower_whose_entry_is_deleted_gets_back_in_line
            several_predecessors_gone_at_once_make_the_next_one_lead
            trying_once_leads_or_leaves_nothing_behind
            running_does_the_work_once_and_leaves
            running_goes_on_with_the_next_term_after_a_loss
            fences_are_raised_before_anybody_is_in_office
            a_fence_that_refuses_for_good_keeps_the_candidate_out_of_office
            a_fence_of_another_store_keeps_the_candidate_out_of_office_until_it_is_reset
            an_unhealthy_candidate_leaves_the_line_and_comes_back
            bad_names_and_large_values_are_refused_before_anything_is_written
            an_observer_sees_leaders_values_and_vacancy
            an_observer_is_told_of_pause_and_end
            tokens_never_go_back_for_an_observer
            a_proclamation_changes_the_value_and_not_the_leader
            readings_have_an_age
            events_tell_of_election_and_loss
            giving_the_office_back_is_certain_and_may_be_said_of_a_lost_one
            leaving_in_office_makes_no_further_term
            a_dropped_leadership_is_given_back
            a_dropped_candidacy_leaves_the_line_and_its_leadership_lasts
            cancelled_campaigns_leave_no_entry
            a_cancelled_wait_keeps_the_place
            one_that_leaves_hands_over_to_the_best_while_it_works
            one_that_leaves_and_has_nobody_to_hand_over_to_leads_on_until_it_does
            closing_a_client_drains_and_leaves_nothing
            dropping_every_handle_leaves_nothing
            a_supervised_candidate_keeps_its_place_until_the_work_has_stopped
            an_office_goes_to_a_candidate_that_is_not_next
            a_leader_hands_its_own_office_over
            a_transfer_to_somebody_unknown_or_ambiguous_is_refused
            a_transfer_past_a_foreign_candidate_is_refused
            an_heir_gets_ready_while_the_leader_leads_on
            an_heir_that_declines_leaves_the_office_where_it_is
            an_heir_undoes_what_it_did_when_it_is_called_off
            a_leader_asked_to_resign_goes_to_the_end_of_the_line
            a_deposed_leader_is_told_so
            deposing_somebody_who_does_not_lead_is_refused
            a_pause_empties_the_line_and_a_resumption_fills_it
            a_paused_election_goes_on_with_the_one_that_is_to_lead_first
            while_one_operator_heals_an_election_no_other_lets_candidates_back
            a_pause_names_the_foreign_candidates
            a_vacant_office_goes_to_the_highest_priority
            among_equal_priorities_the_line_decides
            an_unwell_leader_hands_over_to_one_that_is_fit
            health_moves_an_office_three_times_and_then_an_operator_is_asked
            an_unwell_leader_of_a_frozen_office_stays
            a_frozen_office_stays_where_it_is
            the_next_in_line_follows_in_a_frozen_office
            a_freeze_is_over_when_its_time_is
            a_benched_candidate_leaves_the_line_and_its_office_goes_to_one_that_is_fit
            a_name_is_benched_also_while_nobody_has_it
            a_leader_that_nobody_can_follow_is_benched_only_by_those_who_insist
            in_a_frozen_election_only_those_that_do_not_lead_are_benched
            an_order_to_the_bench_is_over_when_its_time_is
            a_pause_and_a_transfer_that_race_do_not_erase_each_other
            an_end_reaches_everyone_and_those_who_come_later_start_afresh
            terms_on_record_are_opened_before_office_and_closed_before_the_next_one_leads
            the_record_says_by_whose_order_a_term_ended
            a_leader_that_lost_its_entry_closes_its_term_late
            the_first_in_line_of_a_recorded_election_leads_once_its_term_is_open
            an_election_keeps_no_record_of_terms_unless_it_is_asked_to
        }
    };
}
