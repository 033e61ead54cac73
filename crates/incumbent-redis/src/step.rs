//! The steps: one script each, and what has to be known about it.

use std::sync::LazyLock;

use incumbent_store::Effect;
use redis::Script;

/// A script, which is one atomic step.
pub(crate) struct Step {
    /// For messages: "cannot be done: opening a session".
    pub(crate) what: &'static str,
    pub(crate) effect: Effect,
    /// Whether somebody acts on it: see [`RedisOptions::wait`](crate::RedisOptions::wait).
    pub(crate) is_acted_on: bool,
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
}

/// A step that a server without memory refuses: it would need more.
macro_rules! grows {
    ($what:literal, $effect:ident, $acted_on:ident, $file:literal) => {
        step!($what, $effect, $acted_on, "#!lua\n", $file)
    };
}

/// A step that is made even then: leaders must be able to renew, and everybody to leave.
macro_rules! stays {
    ($what:literal, $effect:ident, $acted_on:ident, $file:literal) => {
        step!($what, $effect, $acted_on, "#!lua flags=allow-oom\n", $file)
    };
}

macro_rules! step {
    ($what:literal, $effect:ident, $acted_on:ident, $flags:literal, $file:literal) => {
        Step {
            what: $what,
            effect: Effect::$effect,
            is_acted_on: $acted_on,
            script: LazyLock::new(|| {
                let prelude = include_str!("scripts/prelude.lua");
                Code::new(&[$flags, prelude, include_str!(concat!("scripts/", $file))])
            }),
        }
    };
}

const ACTED_ON: bool = true;
const HINT: bool = false;

pub(crate) static IDENTITY: Step = stays!("asking which store it is", None, HINT, "identity.lua");
pub(crate) static OPEN: Step = grows!("opening a session", Write, HINT, "open.lua");
pub(crate) static RENEW: Step = stays!("renewing a session", None, ACTED_ON, "renew.lua");
pub(crate) static ENLIST: Step = grows!("enlisting", Write, ACTED_ON, "enlist.lua");
pub(crate) static STANDING: Step = stays!("asking for the standing", None, ACTED_ON, "standing.lua");
pub(crate) static PUBLISH: Step = grows!("publishing", Write, HINT, "publish.lua");
pub(crate) static WITHDRAW: Step = stays!("withdrawing", Write, ACTED_ON, "withdraw.lua");
pub(crate) static CLOSE: Step = stays!("closing a session", Write, ACTED_ON, "close.lua");
pub(crate) static LINE: Step = stays!("reading the line", None, HINT, "line.lua");
pub(crate) static CHANGED: Step = stays!("asking what has changed", None, HINT, "changed.lua");
pub(crate) static SET_OFFICE: Step = grows!("writing the office record", Write, ACTED_ON, "set_office.lua");
pub(crate) static EVICT: Step = stays!("evicting", Write, ACTED_ON, "evict.lua");
