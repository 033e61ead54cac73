//! `--watch`: shows something again whenever it has changed, in place on a terminal.

use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;

use crate::failure::{Code, Failure};
use crate::output::{Console, out};
use crate::reader_gone::reader_gone;

/// How often it is read.
const EVERY: Duration = Duration::from_secs(1);
/// Clears the screen, and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Something to show, once.
pub(super) struct Shown {
    pub(super) text: String,
    /// What has to be another for it to be shown again where nothing can be shown in place: without
    /// ages, which are always others.
    pub(super) news: String,
}

/// Shows what is read until nobody reads it any more. What cannot be read for now is said, and read
/// again.
pub(super) async fn watch(
    console: &Console,
    mut read: impl AsyncFnMut() -> Result<Shown, Failure>,
) -> Result<u8, Failure> {
    let in_place = io::stdout().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb");
    let show = async {
        let (mut last, mut told) = (None, None);
        loop {
            match read().await {
                Ok(Shown { text, news }) => {
                    told = None;
                    let seen = if in_place { &text } else { &news };
                    if last.as_ref() != Some(seen) {
                        last = Some(seen.clone());
                        out(&if in_place { format!("{CLEAR}{text}") } else { text })?;
                    }
                }
                Err(failure) if matches!(failure.code, Code::Unavailable | Code::Timeout) => {
                    let failure = failure.to_string();
                    if told.as_ref() != Some(&failure) {
                        console.note(format!("what was shown last may be out of date: {failure}"));
                        told = Some(failure);
                    }
                }
                Err(failure) => return Err(failure),
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    tokio::select! {
        done = show => done,
        () = reader_gone() => Ok(0),
    }
}
