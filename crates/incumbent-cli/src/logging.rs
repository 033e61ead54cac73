//! The library's tracing events: printed with --verbose, and the last error kept for messages that
//! need a cause.

use std::error::Error;
use std::fmt::{Debug, Write};
use std::sync::Mutex;

use incumbent::store::lock;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::failure;
use crate::output::Console;

/// The last error that the library met and tried again after.
static LAST_ERROR: Mutex<Option<LastError>> = Mutex::new(None);

/// What the library met.
#[derive(Clone, Debug)]
pub(crate) struct LastError {
    pub(crate) text: String,
    /// What to do about it, where that is known.
    pub(crate) next: Option<&'static str>,
}

/// Installs the subscriber. What is printed goes through `console`, which keeps secrets.
pub(crate) fn begin(verbose: bool, console: &Console) {
    // It fails only if there is a subscriber already.
    let _ = tracing::subscriber::set_global_default(Logger { verbose, console: console.clone() });
}

/// What the library last met and tried again after.
pub(crate) fn last_error() -> Option<LastError> {
    lock(&LAST_ERROR).clone()
}

struct Logger {
    verbose: bool,
    console: Console,
}

impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("incumbent") && *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = EventText::default();
        event.record(&mut text);
        if self.verbose {
            self.console.note(format!("{}{}", text.message, text.fields));
        } else if *event.metadata().level() <= Level::WARN {
            self.console.warn(format!("{}{}", text.message, text.fields));
        } else if *event.metadata().level() == Level::INFO {
            self.console.note(text.message.as_str());
        }
        #[cfg(feature = "faults")]
        panic_if_asked_to(&text.message);
        if let Some(error) = text.error {
            *lock(&LAST_ERROR) = Some(error);
        }
    }

    // Spans are not looked at: one id is enough.
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
struct EventText {
    message: String,
    fields: String,
    error: Option<LastError>,
}

impl Visit for EventText {
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_debug(field, &format_args!("{value}"));
        if let Some(error) = &mut self.error {
            error.next = failure::next_step(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => {
                self.error = Some(LastError { text: format!("{value:?}"), next: None });
                write!(self.fields, ": {value:?}")
            }
            name => write!(self.fields, " [{name} {value:?}]"),
        };
    }
}
