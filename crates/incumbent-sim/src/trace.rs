//! What one run tells: the first broken rule, and a readable account for those who want to read it.

use std::fmt::{self, Arguments, Write};

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which rule: one of ARCHITECTURE.md, or a word for what no user may meet.
    pub rule: &'static str,
    /// How.
    pub text: String,
    /// When, in nanoseconds of global time.
    pub at: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broken at {:.6} s: {}", self.rule, self.at as f64 / 1e9, self.text)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// Lines with the global time in front, if somebody wants to read them.
    text: Option<String>,
    violation: Option<Violation>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Trace {
        Trace { text: on.then(String::new), violation: None }
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

    /// Notes a broken rule. Only the first counts: the others may follow from it.
    pub(crate) fn fail(&mut self, now: u64, rule: &'static str, text: String) {
        if self.violation.is_none() {
            self.line(now, "CHECK", format_args!("{rule} broken: {text}"));
            self.violation = Some(Violation { rule, text, at: now });
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.violation.is_some()
    }

    /// The account, and the first broken rule.
    pub(crate) fn finish(&mut self) -> (String, Option<Violation>) {
        (self.text.take().unwrap_or_default(), self.violation.take())
    }
}

/// Writes a line if the trace is on; its words are put together only then.
macro_rules! trace {
    ($world:expr, $who:expr, $($what:tt)*) => {
        if $world.checker.trace.on() {
            let now = $world.now;
            $world.checker.trace.line(now, &$who, format_args!($($what)*));
        }
    };
}
pub(crate) use trace;
