//! The fence of PostgreSQL in other languages. (`make test-sqlx` runs the one that needs sqlx.)

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::process::Command;

mod booking;

fn file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "postgres", name].iter().collect()
}

#[tokio::test]
async fn plain_sql() {
    booking::books_only_while_it_leads(|server| {
        let mut shell = Command::new("sh");
        let psql = "psql -X -v ON_ERROR_STOP=1 -v election=\"$INCUMBENT_ELECTION\" -v token=\"$INCUMBENT_TOKEN\" \
            -f \"$0\" \"$1\"";
        shell.args(["-c", psql]).arg(file("fence.sql")).arg(server.url());
        shell
    })
    .await;
}

#[tokio::test]
async fn python() {
    booking::books_only_while_it_leads(|server| {
        // The distribution's, which has the distribution's packages.
        let mut python = Command::new("/usr/bin/python3");
        python.arg(file("fence.py")).arg(server.url());
        python
    })
    .await;
}

/// What the page on fences shows is what was run above.
#[test]
fn the_page_shows_the_programs_as_they_are() {
    let page = std::fs::read_to_string(file("../../docs/fencing.md")).unwrap();
    for (language, program) in [("sql", "fence.sql"), ("python", "fence.py"), ("rs", "sqlx/src/main.rs")] {
        let program = std::fs::read_to_string(file(program)).unwrap();
        let section = page.split_once("\n## In PostgreSQL\n").unwrap().1;
        let shown = section.split_once(&format!("```{language}\n")).unwrap().1.split_once("```").unwrap().0;
        assert!(program.contains(shown), "{language}:\n{shown}");
    }
}
