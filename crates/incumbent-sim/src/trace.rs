//! A readable account of one run, written only when somebody wants to read it.

use std::fmt::{Arguments, Write};

/// Lines of text with the global time in front.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    text: Option<String>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Trace {
        Trace { text: on.then(String::new) }
    }

    pub(crate) fn on(&self) -> bool {
        self.text.is_some()
    }

    pub(crate) fn line(&mut self, now: u64, who: &str, what: Arguments<'_>) {
        if let Some(text) = &mut self.text {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:>12.6} {who:<7} {what}", now as f64 / 1e9);
        }
    }

    pub(crate) fn into_text(self) -> String {
        self.text.unwrap_or_default()
    }
}

/// Writes a line if the trace is on; its words are put together only then.
macro_rules! trace {
    ($world:expr, $who:expr, $($what:tt)*) => {
        if $world.trace.on() {
            let now = $world.now;
            $world.trace.line(now, &$who, format_args!($($what)*));
        }
    };
}
pub(crate) use trace;
