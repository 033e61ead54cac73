//! The seam: what leader election needs of a coordination system.
//!
//! A store implements [`Store`] and [`Session`]. It makes one attempt per call, repeats nothing
//! that may have been done, takes no moment from the client's clock, and keeps no opinion about who
//! should lead: the machines in `incumbent-core` do that. Every store passes the conformance suite
//! of `incumbent-testkit`.
//!
//! The words of the protocol ([`Entry`], [`Standing`], [`Office`] and so on) come from
//! `incumbent-core` and are re-exported here, so that a store depends on this crate alone.

mod awaited;
mod clock;
mod durable;
mod duration;
mod error;
pub mod escape;
pub mod fence;
mod local_fs;
mod lock;
pub mod memory;
mod process;
mod promises;
mod random;
pub mod record;
mod seam;
mod state_directory;
pub mod url;

pub use awaited::Awaited;
pub use clock::{Alarm, BootClock, Clock, TokioClock, wall_clock_ms};
pub use durable::{make_dir_durably, replace_durably};
pub use duration::parse_duration;
pub use error::{Advised, Effect, StoreError, with_causes};
pub use incumbent_core::{
    BenchOrder, Benched, Cas, Cursor, Decline, Deposed, ElectionName, Ended, Entry, EntryId, Fault, ForgottenBy,
    Frozen, Handover, Head, Heir, Held, HeldBack, Incarnation, LONGEST, Line, Liveness, MAX_NAME_BYTES,
    MAX_REASON_BYTES, MAX_VALUE_BYTES, Merit, NameError, NewEntry, Nonce, Observed, Office, Order, Origin, Paused,
    Place, Preparation, Proof, Publication, Recovery, Refusal, Renewal, Seen, Servers, Standing, StillBehind, StoreId,
    TermEnd, TermRecord, Terms, Timestamp, Token, Version, Watched, binary, check_candidate_name, check_value,
};
pub use local_fs::not_local;
pub use lock::lock;
pub use process::{Namespaces, Process};
pub use promises::{LineKind, Promises, TokenStrength};
pub use random::{random, random_id, random_words};
pub use seam::{Fut, Session, Shortened, Store, Wake};
pub use state_directory::state_directory;
