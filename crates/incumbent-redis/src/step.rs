//! The steps: one script each, and what has to be known about it.

use std::sync::LazyLock;

use incumbent_store::Effect;
use redis::Script;

/// A script, which is one atomic step.
pub(crate) struct Step {
    /// For messages: "cannot be done: opening a session".
    pub(crate) what: &'static str,
    pub(crate) effect: Effect,
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
    ($what:literal, $effect:ident, $file:literal) => {
        step!($what, $effect, "#!lua\n", $file)
    };
}

/// A step that is made even then: leaders must be able to renew, and everybody to leave.
macro_rules! stays {
    ($what:literal, $effect:ident, $file:literal) => {
        step!($what, $effect, "#!lua flags=allow-oom\n", $file)
    };
}

macro_rules! step {
    ($what:literal, $effect:ident, $flags:literal, $file:literal) => {
        Step {
            what: $what,
            effect: Effect::$effect,
            script: LazyLock::new(|| {
                let prelude = include_str!("scripts/prelude.lua");
                Code::new(&[$flags, prelude, include_str!(concat!("scripts/", $file))])
            }),
        }
    };
}

pub(crate) static IDENTITY: Step = stays!("asking which store it is", None, "identity.lua");
pub(crate) static OPEN: Step = grows!("opening a session", Write, "open.lua");
pub(crate) static RENEW: Step = stays!("renewing a session", None, "renew.lua");
pub(crate) static ENLIST: Step = grows!("enlisting", Write, "enlist.lua");
pub(crate) static STANDING: Step = stays!("asking for the standing", None, "standing.lua");
pub(crate) static PUBLISH: Step = grows!("publishing", Write, "publish.lua");
pub(crate) static WITHDRAW: Step = stays!("withdrawing", Write, "withdraw.lua");
pub(crate) static CLOSE: Step = stays!("closing a session", Write, "close.lua");
pub(crate) static LINE: Step = stays!("reading the line", None, "line.lua");
pub(crate) static CHANGED: Step = stays!("asking what has changed", None, "changed.lua");
pub(crate) static SET_OFFICE: Step = grows!("writing the office record", Write, "set_office.lua");
pub(crate) static EVICT: Step = stays!("evicting", Write, "evict.lua");
