//! Leader election as pure state machines.
//!
//! Nothing in this crate does I/O, reads a clock or draws a random number by itself: time comes in
//! as an argument, randomness as a seed, and what is to be done comes out. What production runs is
//! what the simulator and the model checker run: the same code, not a model of it.
//!
//! - [`Participant`] is one process with a store: a session and any number of candidacies.
//! - [`peers::MemberMachine`] is one member of a group with no store. A driver has to know these
//!   two, and no other machine.
//! - [`Lease`] says until when a session may be believed to live.
//! - The rest is the vocabulary that machines and stores share.

mod backoff;
mod bench;
pub mod binary;
mod candidacy;
mod entry;
mod keeper;
mod lease;
mod machine;
mod name;
mod office;
mod outbox;
mod participant;
pub mod peers;
mod policy;
mod rng;
mod settings;
mod standing;
mod tenure;
mod terms;
mod time;

pub use bench::{BenchOrder, Benched, MAX_BENCHED, MAX_BENCHED_BYTES};
pub use entry::{
    Decline, Entry, EntryId, Held, Incarnation, Merit, NewEntry, Nonce, Observed, Preparation, Publication, Token,
    TokenOutOfRange, Version,
};
pub use keeper::{Attempt, Epoch};
pub use lease::Lease;
pub use machine::{
    Answer, CallId, CandidacyId, Candidate, Command, Event, Hint, Input, LossReason, Op, Output, Stay, Successor,
    TermNo, Title, WatchFor, WatchId,
};
pub use name::{ElectionName, MAX_LINE, MAX_NAME_BYTES, MAX_VALUE_BYTES, NameError, check_candidate_name, check_value};
pub use office::{
    Act, Deposed, Ended, Frozen, Handover, Heir, HeldBack, MAX_REASON_BYTES, Office, Order, Paused, Pending, Recovery,
    Refusal,
};
pub use participant::Participant;
#[doc(hidden)]
pub use policy::{Flaw, Policy};
pub use rng::Rng;
pub use settings::{LONGEST, Settings, SettingsError, Shortfall, stretch};
pub use standing::{
    Cas, Cursor, Fault, ForgottenBy, Head, Line, Liveness, Place, Proof, Renewal, Seen, Servers, Standing, StillBehind,
    StoreId, Watched,
};
pub use terms::{LastTerm, MAX_TERMS, MAX_TERMS_BYTES, Origin, Shot, ShotResult, TermEnd, TermRecord, Terms};
pub use time::Timestamp;
