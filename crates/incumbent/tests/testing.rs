//! What the `test-util` feature gives to those who test code that runs under a leadership.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test speaks by panicking")]

use std::time::Duration;

use incumbent::testing;
use incumbent::{LossReason, TransferError};

#[tokio::test(start_paused = true)]
async fn an_office_can_be_stopped_lost_and_given_back_without_a_store() {
    let (office, control) = testing::leadership("jobs", 7).unwrap();
    let term = office.term();
    assert_eq!((term.token().get(), term.is_stopping()), (7, false));
    term.proclaim("here").await.unwrap();
    control.stop(LossReason::Paused);
    assert_eq!(term.stopping().await.reason(), LossReason::Paused);
    term.check().unwrap();
    let Err(TransferError::Refused { leadership: office, .. }) = office.transfer_to("b", Duration::ZERO).await else {
        panic!()
    };
    office.resign().await.unwrap();
    control.given_back().await;
    assert_eq!(term.check().unwrap_err().reason(), LossReason::Resigned);
}

#[tokio::test(start_paused = true)]
async fn the_time_that_remains_can_be_set_and_runs_out() {
    let (office, control) = testing::leadership("jobs", 7).unwrap();
    control.set_remaining(Duration::from_secs(5));
    assert_eq!(office.remaining(), Duration::from_secs(5));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(office.check().unwrap_err().reason(), LossReason::LocalDeadline);
    // What a user has seen end never comes back.
    control.set_remaining(Duration::from_secs(5));
    office.check().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn malformed_offices_are_refused() {
    assert!(testing::leadership("", 7).is_none());
    assert!(testing::leadership("jobs", 0).is_none());
}
