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
}

/// A step that a server without memory refuses: it would need more.
macro_rules! refused_when_full {
    ($what:literal, $effect:ident, $needs_confirmation:ident, $file:literal) => {
        step!($what, $effect, $needs_confirmation, "#!lua\n", $file)
    };
}

/// A step that is made even then: leaders must be able to renew, and everybody to leave.
macro_rules! allowed_when_full {
    ($what:literal, $effect:ident, $needs_confirmation:ident, $file:literal) => {
        step!($what, $effect, $needs_confirmation, "#!lua flags=allow-oom\n", $file)
    };
}

macro_rules! step {
    ($what:literal, $effect:ident, $needs_confirmation:ident, $flags:literal, $file:literal) => {
        Step {
            what: $what,
            effect: Effect::$effect,
            needs_confirmation: $needs_confirmation,
            script: LazyLock::new(|| {
                let prelude = include_str!("scripts/prelude.lua");
                Code::new(&[$flags, prelude, include_str!(concat!("scripts/", $file))])
            }),
        }
    };
}

const CONFIRMED: bool = true;
const UNCONFIRMED: bool = false;

pub(crate) static IDENTITY: Step = allowed_when_full!("asking which store it is", None, UNCONFIRMED, "identity.lua");
pub(crate) static OPEN: Step = refused_when_full!("opening a session", Write, UNCONFIRMED, "open.lua");
pub(crate) static RENEW: Step = allowed_when_full!("renewing a session", None, CONFIRMED, "renew.lua");
pub(crate) static ENLIST: Step = refused_when_full!("enlisting", Write, CONFIRMED, "enlist.lua");
pub(crate) static STANDING: Step = allowed_when_full!("asking for the standing", None, CONFIRMED, "standing.lua");
pub(crate) static PUBLISH: Step = refused_when_full!("publishing", Write, UNCONFIRMED, "publish.lua");
pub(crate) static WITHDRAW: Step = allowed_when_full!("withdrawing", Write, CONFIRMED, "withdraw.lua");
pub(crate) static CLOSE: Step = allowed_when_full!("closing a session", Write, CONFIRMED, "close.lua");
pub(crate) static LINE: Step = allowed_when_full!("reading the line", None, UNCONFIRMED, "line.lua");
pub(crate) static ELECTIONS: Step = allowed_when_full!("listing the elections", None, UNCONFIRMED, "elections.lua");
pub(crate) static CHANGED: Step = allowed_when_full!("asking what has changed", None, UNCONFIRMED, "changed.lua");
pub(crate) static SET_OFFICE: Step =
    refused_when_full!("writing the office record", Write, CONFIRMED, "set_office.lua");
pub(crate) static EVICT: Step = allowed_when_full!("evicting", Write, CONFIRMED, "evict.lua");
