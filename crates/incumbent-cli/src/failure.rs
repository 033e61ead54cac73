//! What went wrong, as a person reads it and as a script sees it: one sentence, what to do next, and an exit code.

use std::error::Error;
use std::fmt;

use incumbent::store::{Fault, StoreError};
use incumbent::{ConnectError, OperatorError, ReadError, SeatError, StandError, TransferRefused};

use crate::span::show;

/// Exit codes of every verb but `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Whoever reads the output has seen enough: nothing is wrong, and nothing is said.
    NobodyReads = 0,
    Error = 1,
    Usage = 2,
    No = 3,
    Timeout = 4,
    Unavailable = 5,
}

/// An error that ends the command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    what: String,
    next: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into(), next: None }
    }

    pub(crate) fn error(what: impl Into<String>) -> Failure {
        Failure::new(Code::Error, what)
    }

    pub(crate) fn usage(what: impl Into<String>) -> Failure {
        Failure::new(Code::Usage, what)
    }

    /// What the reader can do about it, unless it is known already.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Failure {
        self.next.get_or_insert(next.into());
        self
    }

    /// What was being done.
    pub(crate) fn doing(mut self, doing: impl fmt::Display) -> Failure {
        self.what = format!("{doing}: {}", self.what);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.next {
            Some(next) => write!(f, "; {next}"),
            None => Ok(()),
        }
    }
}

/// An error and its causes, each said once.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        match error {
            ConnectError::Store(error) => error.into(),
            ConnectError::UnknownScheme { .. } => {
                Failure::usage(error.to_string()).next("`incumbent --help` lists what can be written for --store")
            }
            ConnectError::Missing { .. } => Failure::new(Code::Unavailable, error.to_string())
                .next("is its name right? `incumbent run` and `incumbent campaign` make it"),
            ConnectError::Settings(_)
            | ConnectError::Times { .. }
            | ConnectError::Url { .. }
            | ConnectError::NotBuiltIn { .. } => Failure::usage(error.to_string()),
            error => Failure::error(with_causes(&error)),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let text = with_causes(&error);
        match (&error, error.fault()) {
            (_, Fault::Unavailable) => {
                Failure::new(Code::Unavailable, text).next("look whether it runs and can be reached, and try again")
            }
            (_, Fault::OutcomeUnknown) => {
                Failure::new(Code::Timeout, text).next("look at `incumbent status`, and repeat it if need be")
            }
            (StoreError::Misuse { .. }, _) => Failure::usage(text),
            _ => Failure::error(text),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match error {
            ReadError::Store(error) => error.into(),
            ReadError::TimedOut { ref last, .. } if last.fault() == Fault::OutcomeUnknown => {
                Failure::new(Code::Timeout, with_causes(&error))
                    .next("look at `incumbent status`, and repeat it if need be")
            }
            error => Failure::new(Code::Unavailable, with_causes(&error))
                .next("look whether it runs and can be reached, and try again"),
        }
    }
}

impl From<SeatError> for Failure {
    fn from(error: SeatError) -> Failure {
        match error {
            SeatError::Store(error) => error.into(),
            SeatError::Settings(_) => Failure::usage(error.to_string()),
            SeatError::NoMember { .. } => Failure::error(error.to_string())
                .next("look whether another process is this member already, and at `incumbent status`"),
            error => Failure::error(with_causes(&error)),
        }
    }
}

impl From<StandError> for Failure {
    fn from(error: StandError) -> Failure {
        match error {
            StandError::Seat(error) => error.into(),
            StandError::Name(error) => Failure::usage(format!("this candidate cannot stand: {error}")),
            error => Failure::error(with_causes(&error)),
        }
    }
}

impl Failure {
    /// An operator's act on this election failed.
    pub(crate) fn of_act(error: OperatorError, election: &str) -> Failure {
        let text = error.to_string();
        match error {
            OperatorError::Read(error) => error.into(),
            OperatorError::Vacant | OperatorError::NotLeading { leads: None, .. } => {
                Failure::new(Code::No, text).next(format!("`incumbent status {election}` says why"))
            }
            OperatorError::NotLeading { .. } => {
                Failure::new(Code::No, text).next(format!("`incumbent leader {election}` says who that is"))
            }
            OperatorError::Nothing { what } => Failure::new(Code::No, format!("{what}, so there is nothing to do")),
            OperatorError::TimedOut { waited, what } => {
                Failure::new(Code::Timeout, format!("not done within {}: {what}", show(waited)))
            }
            OperatorError::Misuse { .. } => Failure::usage(text),
            OperatorError::Unsupported { .. } => Failure::error(text),
            OperatorError::Refused(TransferRefused::NoSuchCandidate(name)) => {
                Failure::new(Code::No, format!("no candidate {name:?} is in line"))
                    .next(format!("`incumbent candidates {election}` lists those who are"))
            }
            OperatorError::Refused(TransferRefused::Ambiguous { name, ids }) => {
                Failure::error(format!("{} candidates are called {name:?}: {}", ids.len(), ids.join(", ")))
                    .next("name one by its id")
            }
            OperatorError::Refused(TransferRefused::Read(error)) => error.into(),
            _ => Failure::error(text),
        }
    }
}
