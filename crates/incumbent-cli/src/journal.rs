//! What the library says while it works: shown to those who ask for it, and remembered for sentences that need a cause.

use std::fmt::{Debug, Write};
use std::sync::{Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::say::Say;

/// The last error that the library met and tried again after.
static LAST_ERROR: Mutex<Option<String>> = Mutex::new(None);

/// Begins to listen. What is shown goes through `say`, which keeps secrets.
pub(crate) fn begin(verbose: bool, say: &Say) {
    // It fails only if somebody listens already.
    let _ = tracing::subscriber::set_global_default(Journal { verbose, say: say.clone() });
}

/// What the library last met and tried again after.
pub(crate) fn last_error() -> Option<String> {
    LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

struct Journal {
    verbose: bool,
    say: Say,
}

impl Subscriber for Journal {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("incumbent") && *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        if self.verbose {
            self.say.note(format!("{}{}", words.message, words.fields));
        } else if *event.metadata().level() <= Level::WARN {
            self.say.warn(format!("{}{}", words.message, words.fields));
        }
        #[cfg(feature = "faults")]
        panic_if_asked_to(&words.message);
        if let Some(error) = words.error {
            *LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    }

    // Spans are not looked at: one number does for all.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Fault tests have the task panic that says something which ends with these words: in the task
/// that drives candidacies, every failure does with "failed".
#[cfg(feature = "faults")]
fn panic_if_asked_to(message: &str) {
    if std::env::var("INCUMBENT_PANIC_AT").is_ok_and(|words| message.ends_with(&words)) {
        panic!("a test asked for a panic here: {message}");
    }
}

#[derive(Default)]
struct Words {
    message: String,
    fields: String,
    error: Option<String>,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => {
                self.error = Some(format!("{value:?}"));
                write!(self.fields, ": {value:?}")
            }
            name => write!(self.fields, " [{name} {value:?}]"),
        };
    }
}
