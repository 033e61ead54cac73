//! The steps: one script each, and what has to be known about it.

use std::sync::LazyLock;

use incumbent_store::Effect;
use redis::Script;

/// A script, which is one atomic step.
pub(crate) struct Step {
    /// What it does, for error messages.
    pub(crate) what: &'static str,
    pub(crate) effect: Effect,
    /// Whether replicas have to have it before anybody acts on it: see
    /// [`RedisOptions::wait`](crate::RedisOptions::wait).
    pub(crate) needs_confirmation: bool,
    pub(crate) script: LazyLock<Code>,
}

/// A script's text, and the name under which a server remembers it.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl Code {
    pub(crate) fn new(parts: &[&str]) -> Code {
        let text = parts.concat();
        Code { hash: Script::new(&text).get_hash().to_owned(), text }
    }

    /// The commands in the line in which it failed, as the server says: it does not name the one
    /// that a user may not run.
    pub(crate) fn commands_at(&self, said: &str) -> Vec<String> {
        let line = said.rsplit_once("user_script:").map(|(_, rest)| rest);
        let digits = line.and_then(|rest| rest.split(|character: char| !character.is_ascii_digit()).next());
        let number = digits.and_then(|digits| digits.parse::<usize>().ok()).and_then(|number| number.checked_sub(1));
        let line = number.and_then(|number| self.text.lines().nth(number)).unwrap_or_default();
        let calls = line.split("call('").skip(1).filter_map(|call| call.split('\'').next());
        calls.map(str::to_lowercase).collect()
    }
}

/// What every script begins with.
pub(crate) const SERVER: &str = include_str!("scripts/server.lua");
const PRELUDE: &str = include_str!("scripts/prelude.lua");

/// A step that adds something, under a number that it draws. A server without memory refuses it: it
/// would need more.
macro_rules! refused_when_full {
    ($($step:tt)*) => {
        step!("#!lua\nlocal DRAWS = true\n", $($step)*)
    };
}

/// A step that is made even then: leaders must be able to renew, and everybody to leave.
macro_rules! allowed_when_full {
    ($($step:tt)*) => {
        step!("#!lua flags=allow-oom\nlocal DRAWS = false\n", $($step)*)
    };
}

macro_rules! step {
    ($flags:literal, $what:literal, $effect:ident, $needs_confirmation:ident, [$($part:literal),+]) => {
        Step {
            what: $what,
            effect: Effect::$effect,
            needs_confirmation: $needs_confirmation,
            script: LazyLock::new(|| {
                let parts = [$(include_str!(concat!("scripts/", $part, ".lua"))),+];
                Code::new(&[&[$flags, SERVER, PRELUDE][..], &parts].concat())
            }),
        }
    };
}

const CONFIRMED: bool = true;
const UNCONFIRMED: bool = false;

pub(crate) static IDENTITY: Step =
    allowed_when_full!("asking which store it is", None, UNCONFIRMED, ["sweep", "identity"]);
pub(crate) static OPEN: Step = refused_when_full!("opening a session", Write, UNCONFIRMED, ["sweep", "open"]);
pub(crate) static RENEW: Step = allowed_when_full!("renewing a session", None, CONFIRMED, ["sweep", "living", "renew"]);
pub(crate) static ENLIST: Step = refused_when_full!("enlisting", Write, CONFIRMED, ["place", "living", "enlist"]);
pub(crate) static STANDING: Step =
    allowed_when_full!("asking for the standing", None, CONFIRMED, ["place", "living", "standing"]);
pub(crate) static PUBLISH: Step = refused_when_full!("publishing", Write, UNCONFIRMED, ["sweep", "place", "publish"]);
pub(crate) static WITHDRAW: Step = allowed_when_full!("withdrawing", Write, CONFIRMED, ["sweep", "place", "withdraw"]);
pub(crate) static CLOSE: Step = allowed_when_full!("closing a session", Write, CONFIRMED, ["sweep", "close"]);
pub(crate) static LINE: Step = allowed_when_full!("reading the line", None, UNCONFIRMED, ["sweep", "line"]);
pub(crate) static ELECTIONS: Step =
    allowed_when_full!("listing the elections", None, UNCONFIRMED, ["sweep", "elections"]);
pub(crate) static CHANGED: Step =
    allowed_when_full!("asking what has changed", None, UNCONFIRMED, ["sweep", "changed"]);
pub(crate) static SET_OFFICE: Step =
    refused_when_full!("writing the office record", Write, CONFIRMED, ["sweep", "set_office"]);
pub(crate) static EVICT: Step = allowed_when_full!("evicting", Write, CONFIRMED, ["sweep", "evict"]);

#[cfg(test)]
mod tests {
    const OURS: &str = "META SESSIONS LINES ENTRIES PLACES OFFICES TOMBSTONES LED KEY KEYS[1] unpack(KEYS";

    /// The keys that a call names, from what comes before it in its script and what comes after its
    /// command.
    fn keys_of<'a>(before: &'a str, after: &'a str) -> Vec<&'a str> {
        let first = after.split([',', ')']).next().unwrap();
        // It stands for each of those that its loop names.
        match before.rsplit("for _, key in ").next() {
            Some(each) if first == "key" => {
                let each = each.strip_prefix("ipairs({").unwrap_or_else(|| panic!("{each}"));
                each.split('}').next().unwrap().split(", ").collect()
            }
            _ => vec![first],
        }
    }

    /// A cluster would refuse another, and who has rights on our keys only may not touch it.
    #[test]
    fn scripts_use_the_keys_that_they_are_given_and_no_others() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/scripts")).unwrap();
        let mut calls = 0;
        for script in folder {
            let path = script.unwrap().path();
            let script = std::fs::read_to_string(&path).unwrap();
            for (at, call) in script.match_indices("call(") {
                let arguments = &script[at + call.len()..];
                // Whoever guards a write names its key, which the fence passes on.
                if path.ends_with("writes.lua") && arguments.starts_with("unpack(ARGV") {
                    continue;
                }
                // A function of ours, of which each call is looked at where it stands.
                if script[..at].ends_with('p') && !arguments.starts_with('\'') {
                    continue;
                }
                let (command, after) = arguments.strip_prefix('\'').and_then(|call| call.split_once('\'')).unwrap();
                if ["INFO", "TIME", "PUBLISH"].contains(&command) {
                    continue;
                }
                for key in keys_of(&script[..at], after.trim_start_matches(", ")) {
                    assert!(OURS.split(' ').any(|ours| ours == key), "{command} {key} in {}", path.display());
                }
                calls += 1;
            }
        }
        assert!(calls > 50, "{calls}");
    }
}
