//! What went wrong, for people and for scripts: one sentence, what to do next, and an exit code.

use std::error::Error;
use std::fmt;
use std::io;

use incumbent::peers::MemberError;
use incumbent::store::{Fault, StoreError};
use incumbent::{CandidacyError, ConnectError, OperatorError, ReadError, Refusal, StandError, Token, TransferRefused};
use rustix::io::Errno;

use crate::duration::show;
use crate::output::shell_word;

/// Exit codes of every verb but `run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The reader of the output has gone, as `head` does: no failure, and no message.
    ReaderGone = 0,
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

    /// Something of this host's has failed, with what to do where no more files can be opened.
    pub(crate) fn system(what: impl fmt::Display, error: &(dyn Error + 'static)) -> Failure {
        let failure = Failure::error(format!("{what}: {error}"));
        match system_error(error) {
            Some(Errno::MFILE | Errno::NFILE) => failure.next(RAISE_FILE_LIMIT),
            _ => failure,
        }
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

/// What to do where no more files can be opened.
const RAISE_FILE_LIMIT: &str = "raise the limit on open files (`ulimit -n` shows that of this process), then try again";

/// What to do about a store that failed like this.
fn advice(error: &StoreError) -> Option<&'static str> {
    // It has been said with the cause.
    if error.is_advised() && error.fault() != Fault::OutcomeUnknown {
        return None;
    }
    let cause = match error {
        StoreError::Unavailable { source, .. }
        | StoreError::OutcomeUnknown { source, .. }
        | StoreError::Denied { source, .. } => source.as_ref().and_then(|source| system_error(&**source)),
        _ => None,
    };
    let by_cause = cause.and_then(|cause| match cause {
        Errno::NOSPC => Some("make room where the store is (`df` and `df -i` show what is full), then try again"),
        Errno::MFILE | Errno::NFILE => Some(RAISE_FILE_LIMIT),
        Errno::FBIG => {
            Some("the store's files may not grow as large as they need to: raise `ulimit -f`, then try again")
        }
        Errno::DQUOT => Some("this user's quota is used up where the store is: make room, or have it raised"),
        Errno::ACCESS | Errno::PERM => {
            Some("act as the user that it belongs to, or let this user in (`ls -ld` shows who may, `id` who this is)")
        }
        Errno::ROFS => {
            Some("the store is on a file system that is mounted read-only: remount it, or name another store")
        }
        Errno::XDEV => Some(
            "the directory lies on more than one file system, or on layers of which one is read-only (overlayfs): \
             name one that lies on a single file system",
        ),
        _ => None,
    });
    by_cause.or_else(|| match (error, error.fault()) {
        (StoreError::Missing { .. }, _) => {
            Some("unless its name is wrong, `incumbent run` and `incumbent campaign` create it")
        }
        (_, Fault::Unavailable) => Some("check that it is running and can be reached, then try again"),
        (_, Fault::OutcomeUnknown) => Some("check `incumbent status`, and repeat the command if necessary"),
        (StoreError::Corrupt { .. }, _) => {
            Some("nothing was deleted: stop all candidates, then repair or remove what is named here")
        }
        // Beside a leader of this store, one of another would be the second.
        (StoreError::Foreign { .. }, _) => {
            Some("unless candidates have used this store already, name another one with --store, to all of them")
        }
        // Said by a server. What a directory or a group refuses comes with what to do.
        (StoreError::Denied { source: Some(_), .. }, _) => {
            Some("check the user and the password in the store's URL, and what the server lets this user do")
        }
        _ => None,
    })
}

/// What to do about an error that the library met and tried again after.
pub(crate) fn next_step(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match error.downcast_ref::<CandidacyError>() {
        Some(CandidacyError::Store(error)) => advice(error),
        _ => error.downcast_ref::<StoreError>().and_then(advice),
    }
}

/// What the kernel said, somewhere down the causes.
fn system_error(error: &(dyn Error + 'static)) -> Option<Errno> {
    let here = error.downcast_ref::<io::Error>().and_then(Errno::from_io_error);
    here.or_else(|| error.source().and_then(system_error))
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        match error {
            ConnectError::Store(error) => error.into(),
            ConnectError::UnknownScheme { .. } => {
                Failure::usage(error.to_string()).next("`incumbent --help` lists what can be written for --store")
            }
            ConnectError::Missing { .. } => Failure::new(Code::Unavailable, error.to_string())
                .next("unless its name is wrong, `incumbent run` and `incumbent campaign` create it"),
            ConnectError::Settings(_)
            | ConnectError::Group(_)
            | ConnectError::GraceTooLong { .. }
            | ConnectError::NoTtl
            | ConnectError::Url(_)
            | ConnectError::NotBuiltIn { .. } => Failure::usage(error.to_string()),
            error => Failure::error(error.to_string()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure { next: advice(&error).map(str::to_owned), ..Failure::new(code(&error), error.to_string()) }
    }
}

/// The exit code for a store that failed like this.
fn code(error: &StoreError) -> Code {
    match (error, error.fault()) {
        (_, Fault::Unavailable) => Code::Unavailable,
        (_, Fault::OutcomeUnknown) => Code::Timeout,
        (StoreError::Misuse { .. }, _) => Code::Usage,
        _ => Code::Error,
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        match &error {
            ReadError::Store(error) => error.clone().into(),
            ReadError::TimedOut { last, .. } => {
                Failure { next: advice(last).map(str::to_owned), ..Failure::new(code(last), error.to_string()) }
            }
            _ => Failure::error(error.to_string()),
        }
    }
}

impl From<CandidacyError> for Failure {
    fn from(error: CandidacyError) -> Failure {
        match error {
            CandidacyError::Store(error) => error.into(),
            CandidacyError::Settings(_) => Failure::usage(error.to_string()),
            CandidacyError::StoreReplaced { .. } => Failure::error(error.to_string()).next(
                "once nothing of the old store's leaders runs (`incumbent claims` on each host says what does) and its \
                 fences are reset, start this again; step by step: docs/runbooks.md#the-store-was-restored",
            ),
            CandidacyError::Member(MemberError::AnotherName { .. } | MemberError::Unnamed) => {
                Failure::usage(error.to_string())
            }
            CandidacyError::Member(ref why) if why.is_taken() => Failure::error(error.to_string())
                .next("check whether another process already runs as this member; `incumbent status` helps"),
            error => Failure::error(error.to_string()),
        }
    }
}

impl From<StandError> for Failure {
    fn from(error: StandError) -> Failure {
        match error {
            StandError::Candidacy(error) => error.into(),
            StandError::Name(error) => Failure::usage(format!("this candidate cannot stand: {error}")),
            error => Failure::error(error.to_string()),
        }
    }
}

/// The command that says that the work of the last leader has stopped. Its name is quoted already.
pub(crate) fn fenced_command(election: &str, token: Option<u64>) -> String {
    let token = token.map_or_else(|| "TOKEN".to_owned(), |token| token.to_string());
    format!("incumbent fenced {election} --token {token} --i-have-checked")
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
            OperatorError::Fencing { last, .. } => Failure::new(Code::No, text).next(format!(
                "once you have checked that this work has stopped, `{}` says so; step by step: \
                 docs/runbooks.md#nobody-leads",
                fenced_command(election, last.map(Token::get))
            )),
            OperatorError::NotLeading { .. } => {
                Failure::new(Code::No, text).next(format!("`incumbent leader {election}` shows who does"))
            }
            OperatorError::Recovering(recovery) => Failure::error(text).next(format!(
                "who does it goes on with `incumbent doctor {election} --recover --resume {0}`; to take it over, \
                 `incumbent doctor {election} --recover --take-over {0}`; step by step: \
                 docs/runbooks.md#healing-step-by-step",
                recovery.id
            )),
            OperatorError::NotAtLarge { .. } => {
                Failure::new(Code::No, text).next(format!("`incumbent history {election}` shows the terms"))
            }
            OperatorError::CalledOff => {
                Failure::error(text).next(format!("`incumbent status {election}` says who leads"))
            }
            OperatorError::NotPaused
            | OperatorError::NotHandingOver
            | OperatorError::NotFrozen
            | OperatorError::NotHeldBack
            | OperatorError::NotBenched { .. }
            | OperatorError::AlreadyFounded
            | OperatorError::NotLost => Failure::new(Code::No, format!("{text}, so there is nothing to do")),
            OperatorError::TimedOut { waited, missing } => {
                Failure::new(Code::Timeout, format!("not done within {}: {missing}", show(waited)))
            }
            OperatorError::Reason
            | OperatorError::CandidateName(_)
            | OperatorError::NoSuchMember(_)
            | OperatorError::NotAGroup => Failure::usage(text),
            OperatorError::NoHeir { .. } => Failure::error(text).next(
                "start another candidate first, or look why the others do not stand; --force leaves the office vacant",
            ),
            OperatorError::IsBenched { ref name, .. } => {
                let unbench = format!("incumbent unbench {election} {}", shell_word(name));
                Failure::error(text).next(format!("`{unbench}` lets it stand again"))
            }
            OperatorError::BenchFull => Failure::error(text)
                .next(format!("`incumbent status {election}` lists them, `incumbent unbench` takes one back")),
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
            OperatorError::Refused(TransferRefused::Leader(Refusal::Frozen)) => Failure::error(text).next(format!(
                "`incumbent status {election}` says by whom and why, `incumbent unfreeze {election}` ends it"
            )),
            _ => Failure::error(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use incumbent::store::Advised;

    use super::*;

    fn timed_out(errno: Errno) -> Failure {
        let last = StoreError::unavailable("cannot write /srv/x", io::Error::from(errno));
        ReadError::TimedOut { waited: Duration::from_secs(5), last }.into()
    }

    #[test]
    fn what_the_kernel_said_is_said_with_what_to_do_about_it() {
        for (errno, why, next) in [
            (Errno::NOSPC, "No space left on device", "make room"),
            (Errno::DQUOT, "quota exceeded", "quota is used up"),
            (Errno::ROFS, "Read-only file system", "mounted read-only"),
            (Errno::XDEV, "cross-device link", "overlayfs"),
            (Errno::MFILE, "Too many open files", "ulimit -n"),
            (Errno::FBIG, "File too large", "ulimit -f"),
            (Errno::IO, "Input/output error", "check that it is running"),
        ] {
            let failure = timed_out(errno);
            let text = failure.to_string();
            assert_eq!(failure.code, Code::Unavailable, "{text}");
            for words in ["cannot write /srv/x", why, next] {
                assert!(text.contains(words), "{words:?} is missing: {text}");
            }
        }
        let damaged = Failure::from(StoreError::Corrupt { what: "/srv/x: it is cut off".into() }).to_string();
        assert!(damaged.contains("/srv/x") && damaged.contains("repair or remove"), "{damaged}");
    }

    #[test]
    fn what_comes_with_its_advice_is_given_no_other() {
        let full = StoreError::unavailable("enlisting", Advised::about(io::Error::other("OOM"), "raise maxmemory"));
        let failure: Failure = ReadError::TimedOut { waited: Duration::from_secs(5), last: full }.into();
        assert!(failure.to_string().ends_with("enlisting: OOM; raise maxmemory"), "{failure}");
        let lost = StoreError::unknown("enlisting", Advised::about(io::Error::other("cut"), "start it"));
        assert!(Failure::from(lost).to_string().contains("repeat the command"), "nobody knows what was done");
    }

    #[test]
    fn what_is_denied_is_said_with_what_to_do_about_it() {
        let denied = |source: Arc<dyn Error + Send + Sync>| {
            let failure =
                Failure::from(StoreError::Denied { what: "cannot rename /srv/x".into(), source: Some(source) });
            assert_eq!(failure.code, Code::Error);
            failure.to_string()
        };
        for (errno, why, next) in [
            (Errno::ROFS, "Read-only file system", "remount it"),
            (Errno::ACCESS, "Permission denied", "act as the user"),
            (Errno::PERM, "not permitted", "act as the user"),
        ] {
            let text = denied(Arc::new(io::Error::from(errno)));
            assert!(text.contains(why) && text.contains(next), "{text}");
        }
        let text = denied(Arc::new(io::Error::other("NOAUTH")));
        assert!(text.contains("NOAUTH; check the user and the password in the store's URL"), "{text}");
    }
}
