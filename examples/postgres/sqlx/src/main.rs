//! A transaction of a leader, with sqlx. Run it under a leadership, which says the election and its
//! token:
//!
//! ```text
//! incumbent run jobs/nightly -- incumbent-example-sqlx postgres://jobs@10.0.0.1/app
//! ```

use std::env;
use std::error::Error;
use std::process::ExitCode;

use sqlx::PgPool;

const STALE: &str = "IN409";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let url = env::args().nth(1).ok_or("say where the database is: postgres://user@host/database")?;
    let (election, token) = (env::var("INCUMBENT_ELECTION")?, env::var("INCUMBENT_TOKEN")?.parse()?);
    match book(&PgPool::connect(&url).await?, &election, token).await {
        // Another candidate leads. Trying again with this token is pointless.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(STALE) => {
            eprintln!("no longer leading: {}", error.message());
            Ok(ExitCode::FAILURE)
        }
        booked => Ok(booked.map(|()| ExitCode::SUCCESS)?),
    }
}

async fn book(pool: &PgPool, election: &str, token: i64) -> Result<(), sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query("SELECT incumbent.fence($1, $2)").bind(election).bind(token).execute(&mut *transaction).await?;
    sqlx::query("UPDATE account SET balance = balance - 10 WHERE id = 7").execute(&mut *transaction).await?;
    transaction.commit().await
}
