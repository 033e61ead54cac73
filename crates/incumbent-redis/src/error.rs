//! From Redis' errors to ours: who has to act, and whether the step can have been made.

use std::sync::Arc;

use incumbent_store::{Advised, Effect, StoreError, with_causes};
use redis::{ErrorKind, RedisError};

use crate::step::Code;

/// Refused by the server before anything was done.
const REFUSED: [&str; 14] = [
    "READONLY",
    "INCREPLICA",
    "INCREPLACED",
    "INCREPLICATED",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "BUSY",
    "OOM",
    "NOREPLICAS",
    "MISCONF",
];

/// Sorts what a step failed with.
pub(crate) fn classify(error: RedisError, effect: Effect, what: &str) -> StoreError {
    if is_denied(&error) {
        return StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(error)) };
    }
    match error.code() {
        Some(code) if REFUSED.contains(&code) => {
            let next = next_step(code);
            unavailable(error, what, next)
        }
        Some("INCFORMAT") => StoreError::Foreign {
            what: format!(
                "the elections in this Redis are written in format {}, which this version does not know: use the one \
                 that wrote them, or a newer one",
                error.detail().unwrap_or("unknown")
            ),
        },
        Some("INCDAMAGED") => StoreError::Corrupt {
            what: format!("{what}: {}", error.detail().unwrap_or("what the server keeps cannot be read")),
        },
        Some("INCHIGHEST") => {
            let what = format!(
                "{what}: the next token would be {}, and Redis counts exactly up to 2^53 only. Set the server's clock \
                 right; if it is right, delete the keys of the store, restart its candidates and reset its fences",
                error.detail().unwrap_or("higher")
            );
            StoreError::Unavailable { what, source: None }
        }
        Some("INCRAISED") => StoreError::Unavailable {
            what: format!("{what}: somebody has raised or reset it in this moment; look who leads, and try again"),
            source: None,
        },
        // It was as it should be when the connection was made.
        Some("WRONGTYPE") => {
            StoreError::Corrupt { what: format!("{what}: somebody has overwritten a key of ours: {error}") }
        }
        // It does not know a command or an argument, or refuses such keys in one script.
        Some("ERR" | "CROSSSLOT") => StoreError::Misuse { what: format!("{what}: {error}") },
        // Whether it was sent cannot be told from whether its answer was lost, and a server that
        // says what we do not know may say something else next time.
        _ if effect == Effect::Write => StoreError::unknown(what, error),
        _ => StoreError::unavailable(what, error),
    }
}

/// The same for a script, with what its user lacks: inside of a script the server does not say
/// which right that is.
pub(crate) fn classify_script(error: RedisError, effect: Effect, what: &str, code: &Code, keys: &str) -> StoreError {
    let lacks_right = is_denied(&error) && !matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
    if !lacks_right {
        return classify(error, effect, what);
    }
    let commands: Vec<_> = code.commands_at(&error.to_string()).iter().map(|command| format!("+{command}")).collect();
    let lacks = if commands.is_empty() { String::new() } else { format!(", here {}", commands.join(" or ")) };
    let next = format!(
        "the user needs ~{keys} &{keys} and the commands that docs/choosing-a-store.md#redis lists{lacks} (ACL SETUSER)"
    );
    StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(Advised::about(error, next))) }
}

/// What to do about a refusal that does not pass by itself, or not at once.
fn next_step(code: &str) -> Option<&'static str> {
    Some(match code {
        "OOM" => {
            "the server's memory is full: make room, or raise its maxmemory. Leaders stay, and everybody may leave; \
             nobody comes, and no order is written"
        }
        "READONLY" | "INCREPLICA" | "MASTERDOWN" => {
            "it takes no writes, and knows not the newest: name the primary, or Sentinels that know where it is \
             (?sentinel=NAME)"
        }
        "INCREPLACED" => {
            "it was replaced as primary, and takes writes all the same: make it a replica of its successor, or name \
             Sentinels that know where that is (?sentinel=NAME)"
        }
        "INCREPLICATED" => "make its replicas servers of their own (REPLICAOF NO ONE), or name another server",
        "NOREPLICAS" => {
            "the server takes no writes while too few replicas are connected (min-replicas-to-write): start them"
        }
        "MISCONF" => {
            "the server takes no writes since it cannot save its data (stop-writes-on-bgsave-error): its log says why, \
             a full disk for example"
        }
        "LOADING" => "the server reads its data from its disk, and answers when it has: this passes by itself",
        "BUSY" => "a script has the server to itself: this passes, or `redis-cli SCRIPT KILL` ends it",
        "CLUSTERDOWN" => "the cluster lacks members or slots: `redis-cli CLUSTER INFO` says what is missing",
        _ => return None,
    })
}

/// Sorts what a dial failed with: nothing was asked for yet. What a server says then for no other
/// reason than that it is busy (it has too many clients, say) passes.
pub(crate) fn classify_dial(error: RedisError, what: &str) -> StoreError {
    if error.kind() == ErrorKind::InvalidClientConfig {
        return StoreError::Misuse { what: format!("{what}: {error}") };
    }
    // The client drops the code of what it was refused while it chose a database.
    if is_denied(&error) || error.to_string().contains("has no permissions to run") {
        return StoreError::Denied { what: what.to_owned(), source: Some(Arc::new(error)) };
    }
    if error.to_string().contains("DB index is out of range") {
        let what = format!("{what}: the server has no such database (the number after the / of the URL): {error}");
        return StoreError::Misuse { what };
    }
    let said = with_all_causes(&error);
    if said.contains("SELECT is not allowed in cluster mode") {
        let what = format!("{what}: a cluster has no database but 0: leave the number after the / of the URL out");
        return StoreError::Misuse { what };
    }
    if is_no_redis(&error, &said) {
        let what =
            format!("{what}: what answers there is not Redis, at least not as it is asked (is TLS wanted?): {said}");
        return StoreError::Misuse { what };
    }
    let next = next_step(error.code().unwrap_or_default()).or_else(|| next_step_of_tls(&said));
    unavailable(error, what, next)
}

/// With what to do next, if that is known.
fn unavailable(error: RedisError, what: &str, next: Option<&str>) -> StoreError {
    match next {
        Some(next) => StoreError::unavailable(what, Advised::about(error, next)),
        None => StoreError::unavailable(what, error),
    }
}

/// Whether it speaks another language, be it that one of the two sides means to speak TLS.
fn is_no_redis(error: &RedisError, said: &str) -> bool {
    error.kind() == ErrorKind::Parse || said.contains("received corrupt message")
}

/// What to do about a certificate. Those are renewed while candidates run, and so a leader that
/// meets an old one tries again.
fn next_step_of_tls(said: &str) -> Option<&'static str> {
    if said.contains("invalid peer certificate") {
        Some(
            "its certificate has to be signed by one that ca= names, be valid by this host's clock, and be for the host \
             that the URL names",
        )
    } else if said.contains("received fatal alert") {
        Some("the server refuses this side's certificate, or the lack of one: check cert= and key=")
    } else {
        None
    }
}

fn with_all_causes(error: &RedisError) -> String {
    with_causes(&error.to_string(), &Some(Arc::new(error.clone()) as _))
}

/// Whether somebody has to give us a right, or another password.
pub(crate) fn is_denied(error: &RedisError) -> bool {
    let by_code = matches!(error.code(), Some("NOPERM" | "NOAUTH" | "WRONGPASS"));
    // Inside of a script a missing right has no code of its own.
    let in_script = error.detail().is_some_and(|said| said.starts_with("The user executing the script can't"));
    by_code || in_script || error.kind() == ErrorKind::AuthenticationFailed
}

/// Whether the connection is of no use any more: it is lost, or leads to a server that is not the
/// primary of our keys.
pub(crate) fn ends_connection(error: &RedisError) -> bool {
    error.code().is_none() || matches!(error.code(), Some("READONLY" | "INCREPLICA" | "INCREPLACED" | "MOVED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some("details".to_owned()))
    }

    fn cut() -> RedisError {
        RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe))
    }

    #[test]
    fn a_right_that_a_script_lacks_is_named() {
        let code =
            Code::new(&["#!lua\n", "local a = 1\n", "return redis.call('ZADD', KEYS[1]), call('HGET', KEYS[1])"]);
        let refused = |said: &str| {
            let error = redis::make_extension_error("ERR".into(), Some(said.into()));
            classify_script(error, Effect::Write, "enlisting", &code, "{team}*").to_string()
        };
        let said = refused("The user executing the script can't run this command, on @user_script:3.");
        assert!(said.contains("~{team}* &{team}*") && said.contains("here +zadd or +hget"), "{said}");
        let said = refused("The user executing the script can't run this command");
        assert!(said.contains("~{team}*") && !said.contains("here"), "{said}");
    }

    #[test]
    fn a_write_that_may_have_arrived_has_an_unknown_outcome_and_a_read_has_none() {
        assert!(matches!(classify(cut(), Effect::Write, "w"), StoreError::OutcomeUnknown { .. }));
        assert!(matches!(classify(cut(), Effect::None, "r"), StoreError::Unavailable { .. }));
        assert!(ends_connection(&cut()));
        // What the server says then is not known to pass, nor to stay.
        assert!(matches!(classify(said("UNBLOCKED"), Effect::Write, "w"), StoreError::OutcomeUnknown { .. }));
        assert!(matches!(classify(said("UNBLOCKED"), Effect::None, "r"), StoreError::Unavailable { .. }));
    }

    #[test]
    fn what_the_server_refused_changed_nothing() {
        for code in REFUSED {
            let sorted = classify(said(code), Effect::Write, "w");
            assert!(matches!(sorted, StoreError::Unavailable { .. }), "{code}: {sorted:?}");
        }
        assert!(
            ends_connection(&said("INCREPLICA"))
                && ends_connection(&said("INCREPLACED"))
                && !ends_connection(&said("OOM"))
        );
    }

    #[test]
    fn what_trying_again_cannot_cure_says_who_has_to_act() {
        for code in ["NOPERM", "NOAUTH", "WRONGPASS"] {
            assert!(matches!(classify(said(code), Effect::Write, "w"), StoreError::Denied { .. }), "{code}");
        }
        let in_script = "The user executing the script can't run this command or subcommand";
        let in_script = redis::make_extension_error("ERR".into(), Some(in_script.into()));
        assert!(matches!(classify(in_script, Effect::Write, "w"), StoreError::Denied { .. }));
        assert!(matches!(classify(said("INCFORMAT"), Effect::Write, "w"), StoreError::Foreign { .. }));
        assert!(matches!(classify(said("WRONGTYPE"), Effect::Write, "w"), StoreError::Corrupt { .. }));
        let newer = classify(redis::make_extension_error("INCFORMAT".into(), Some("2".into())), Effect::None, "r");
        assert!(newer.to_string().contains("format 2"), "{newer}");
        assert!(matches!(classify(said("ERR"), Effect::Write, "w"), StoreError::Misuse { .. }));
    }
}
