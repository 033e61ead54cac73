//! The example against a real server.

use std::process::Command;

#[path = "../../booking.rs"]
mod booking;

#[tokio::test]
async fn sqlx() {
    booking::books_only_while_it_leads(|server| {
        let mut example = Command::new(env!("CARGO_BIN_EXE_incumbent-example-sqlx"));
        example.arg(server.url());
        example
    })
    .await;
}
