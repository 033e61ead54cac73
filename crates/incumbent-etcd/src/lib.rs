//! Leader election on etcd, in one line with Go's `concurrency.Election` and `etcdctl elect`.
//!
//! # Where things are
//! | key | what | lease |
//! | --- | --- | --- |
//! | `<prefix><election>/<lease>.<incarnation>.<name>` | an entry, in Go's place; the value is the candidate's | the session's |
//! | `<prefix>//incumbent/<election>/ready/<lease>.<incarnation>.<name>` | the handover that this candidate is ready for, and the words of its merit, while there is either to say | the session's |
//! | `<prefix>//incumbent/<election>/office` | the office record | none; the tombstone's if it says nothing else |
//! | `<prefix>//incumbent//<lease>` | proof that a lease is there that a member did not know | the session's |
//! | `<prefix>//incumbent/<election>/office/ended` | is there as long as the record's tombstone counts | one of `keep` |
//!
//! `<lease>` is the session's lease in hexadecimal, as Go writes it; Go's own entries end there. Go
//! looks at prefixes and revisions, never at how another's key ends, so the rest says who it is. (A
//! record beside each entry would double what the servers write: measured, it took a fifth of the
//! elections per second at 16 at once, and a third at 128.) In names `/`, `%`, blanks and what is
//! not ASCII are escaped as `%2f`; in our own keys `/` and `%` in an election's name are `%2F` and
//! `%25`.
//!
//! The token is the entry's `create_revision`. An enlistment that arrives twice makes the same key
//! twice, with another token: an entry's id is `<lease>.<incarnation>.<name>@<token>`. An entry is
//! ours if its key reads like this and the lease that it names is the one that holds it; a copy, or
//! one that was moved to another lease, is a foreign candidate. A user who gives a Go session the
//! lease of one of ours has two candidates in line: `<lease>` alone is not among our session's
//! keys.
//!
//! With authentication, a candidate's role needs to read and write the prefixes
//! `<prefix><election>/` and `<prefix>//incumbent/`; an observer's, to read them.
//!
//! # From the seam to etcd
//! | method | requests |
//! | --- | --- |
//! | `open_session` | `LeaseGrant`; the TTL is the one in the answer |
//! | `enlist` | ONE `Txn`. If nothing is in `<election>/<lease>.` (a ranged compare: `create_revision == 0`): put the entry, newest two of the line, what is beside the line; for one with a merit, put its record. Else: look which of our session's keys are there. After a line that was empty the next one is expected to be: if nothing is in `<election>/` nor beside it, put, and nothing is left to read; else the other one follows |
//! | `standing` | ONE read-only `Txn`. If the entry's `create_revision == token`, its lease is ours, nothing in the line is older (a ranged compare) and nothing is beside it: that is all, and our own `mod_revision`. A follower compares the key that it was behind instead, and reads that while it is there. Else: our entry, the newest entry older than the token, what is beside the line; and if our entry is not there, `LeaseTimeToLive` tells a lost entry from a lost session, with such a put as with `renew` |
//! | `publish` | `Txn`. If `create_revision == token`, the lease is ours and the `mod_revision` is the one that was seen: put entry; with readiness or a merit put its record, with neither delete it where there is one |
//! | `withdraw` | `Txn`. If `create_revision == token`, and the heir's `create_revision` is the heir's token: delete entry, and the record of its readiness where there is one. Else: look at the entry |
//! | `renew` | one `LeaseKeepAlive` on the session's stream, then read-only `Txn`s of up to 100 of our entries each (a linearizable read), all with the keep-alive's `raft_term` and `cluster_id`. While an enlistment may arrive that was not answered, or an entry is there that was not named: `LeaseTimeToLive` with keys in between, and what it names is read along. If the keep-alive says that the lease is gone: a put that hangs on it, which all members refuse if it is |
//! | `close` | `LeaseRevoke` |
//! | `elections` | read-only `Txn`s: the keys below the prefix, all of etcd without one, by a thousand, 100,000 at most, without values |
//! | `line` | read-only `Txn`: oldest entries, what is beside the line; more than a thousand in pages, as they were at the first one's revision |
//! | `watch` | one `Watch` stream for the whole store; a watch per key, from the cursor's revision + 1. A session's: its own entry, the one ahead, the heir's, the office record and its tombstone; news that makes no leader can wait for 20 ms. Others': the key of the entry that was first when the line was read, or `<election>/` if it was empty; the last one's; the office record |
//! | `set_office` | `Txn`. If the record's `mod_revision` is the version: put or delete the record, put or delete the tombstone. With a tombstone, a read and a `LeaseGrant` before it |
//! | `evict` | `Txn`. If `create_revision` is the token and `mod_revision` the version: delete entry and readiness. Else: read the entry |
//! | `identity` | a read |
//! | `promises` | a read, for the cluster's identity; once, `LeaseGrant` of a second and `LeaseRevoke`, for the smallest TTL |
//!
//! Writes of one session (`enlist`, `publish`, `withdraw`) that are asked for at the same time, for
//! different elections, travel as one: one write to the servers' disks for up to 120 of them (60
//! with a user and a password). A few go alone and at once; none waits for company.
//!
//! # What it takes care of
//! - **Proof of life.** A replaced leader goes on answering keep-alives for seconds (etcd#15247).
//!   So a keep-alive counts only if, after its answer, a linearizable read succeeds in the same
//!   term: the keep-alive's header is made before the lease is renewed, and a leader of that term
//!   that can still answer the read had not been replaced by then. The term and the cluster are
//!   compared, not the member: two members in one term have one leader.
//!   What no client can help: such a leader also ends leases that were renewed with its successor,
//!   as soon as it goes on (the same issue; rarer in releases since 2024). The promises say so.
//! - **Guards** compare creation **and** lease: a foreign `put` keeps the first and takes the
//!   second away. Only the withdrawal of an entry that we made ourselves does not ask for the
//!   lease: otherwise nothing would remove it.
//! - **Names that begin alike.** `jobs/` holds the entries of `jobs` and of `jobs/nightly`. Ours
//!   are told apart, with a second request where the first one met only the longer name's; Go's are
//!   not: a Go candidate in `jobs` waits for those in `jobs/nightly`.
//! - **One write to a line at a time.** etcd looks at all guards of a transaction before it writes
//!   anything. Two entries that one transaction makes in one line would have one token, and both
//!   would lead: `batch.rs` asserts that it never happens.
//! - **An entry without a lease** was overwritten from outside. While the lease that its key names
//!   lives, its owner is about to remove it, and those behind wait. Else it blocks the line: the
//!   candidate behind it is told which key it is
//!   ([`StoreError::Corrupt`](incumbent_store::StoreError)), and an operator can depose it like any
//!   other.
//! - **Compaction, restarts, lost streams**: every watch resolves, and the waiting candidate reads
//!   again.
//!
//! Needs etcd 3.4 or newer.

mod batch;
mod connect;
mod endpoints;
mod enlist;
mod error;
mod fence;
#[cfg(test)]
mod fuzz;
mod guard;
mod heartbeat;
mod keys;
mod office;
mod options;
mod own_entries;
#[cfg(feature = "rpc")]
#[doc(hidden)]
pub mod rpc;
#[cfg(not(feature = "rpc"))]
#[allow(dead_code, unreachable_pub, reason = "all of it is there for tests and benchmarks")]
mod rpc;
mod session;
mod standing;
mod store;
mod txn;
mod watch_queue;
mod watcher;

pub use fence::EtcdFence;
pub use guard::{EntryGuard, EtcdWrite, Guarded};
pub use options::EtcdOptions;
pub use store::EtcdStore;
pub use tonic::transport::Channel;
