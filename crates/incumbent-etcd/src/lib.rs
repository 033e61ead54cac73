//! Leader election on etcd, in one line with Go's `concurrency.Election` and `etcdctl elect`.
//!
//! # Where things are
//! | key | what | lease |
//! | --- | --- | --- |
//! | `<prefix><election>/<lease>` | an entry: Go's place and Go's format; the value is the candidate's | the session's |
//! | `<prefix>//incumbent//<lease>` | the session's introduction: an incarnation and a name | the session's |
//! | `<prefix>//incumbent/<election>/candidates/<lease>` | a record: the candidate's incarnation, name and readiness, where the introduction does not tell | the session's |
//! | `<prefix>//incumbent/<election>/office` | the office record | none; the tombstone's if it says nothing else |
//! | `<prefix>//incumbent/<election>/office/ended` | is there as long as the record's tombstone counts | one of `keep` |
//!
//! `<lease>` is the session's lease in hexadecimal. In our own keys `/` and `%` in an election's name are `%2F` and
//! `%25`. The token is the entry's `create_revision`. A session uses the same key each time it stands, so an entry's id
//! is `<lease>@<token>`.
//!
//! A session introduces itself in one transaction with its first entry; from then on its entries under that name are
//! one key each. What others see as their incarnation is made of the introduction's and the token. Under another name,
//! when it is ready for a handover, and while another enlistment of the session may still arrive, an entry has a record,
//! written in one transaction with it; a record that is older than the entry is about another one, and says nothing.
//! An entry with neither is a foreign candidate. Introductions never change, so stores remember whom they have met.
//!
//! With authentication, a candidate's role needs to read and write the prefixes `<prefix><election>/` and
//! `<prefix>//incumbent/`; an observer's, to read them.
//!
//! # From the seam to etcd
//! | method | requests |
//! | --- | --- |
//! | `open_session` | `LeaseGrant`; the TTL is the one in the answer |
//! | `enlist` | ONE `Txn`. If our entry is not there: put it (the first time with the introduction, or with a record), newest two of the line, range office, a few records and introductions. Else: read it and its record. After a line that was empty the next one is expected to be: if nothing is in `<election>/` nor in our own place (ranged compares: `create_revision == 0`), put, and nothing is left to read; else the other one follows. Among many sessions, one more when somebody is met for the first time |
//! | `standing` | ONE read-only `Txn`. If the entry's `create_revision == token`, its lease is ours, nothing in the line is older (a ranged compare) and there is no office record: that is all. Else: our entry, the newest entry older than the token, range office, a few records and introductions; and if our entry is not there, `LeaseTimeToLive` tells a lost entry from a lost session |
//! | `publish` | `Txn`. If `create_revision == token` and the lease is ours: put entry; with readiness, or where there is one, put record |
//! | `withdraw` | `Txn`. If `create_revision == token`, and the heir's `create_revision` is the heir's token: delete entry, and its record where it has one. Else: look at both; an orphaned record is deleted by a second one |
//! | `renew` | one `LeaseKeepAlive` on the session's stream, then read-only `Txn`s of up to 100 of our entries each and the introduction (a linearizable read), all with the keep-alive's `raft_term` and `cluster_id` |
//! | `close` | `LeaseRevoke` |
//! | `line` | read-only `Txn`: oldest entries, oldest records, range office; a second one, with their introductions, if it shows entries of sessions that were never met |
//! | `watch` | one `Watch` stream for the whole store; a watch per target, from the cursor's revision + 1. `Gone`, `Entry`: the entry's key. `Head`: the key of the one who was first when the line was read, or `<election>/` if nobody was. `Office`: the office record and its tombstone |
//! | `set_office` | `Txn`. If the record's `mod_revision` is the version: put or delete the record, put or delete the tombstone. With a tombstone, a read and a `LeaseGrant` before it |
//! | `evict` | `Txn`. If `create_revision` is the token and `mod_revision` the version: delete entry, delete record. Else: read the entry |
//! | `promises` | a read, for the cluster's identity; once, `LeaseGrant` of a second and `LeaseRevoke`, for the smallest TTL |
//!
//! Writes of one session (`enlist`, `publish`, `withdraw`) that are asked for at the same time, for different elections,
//! travel as one: one write to the servers' disks for up to 120 of them. A few go alone and at once;
//! none waits for company.
//!
//! # What it takes care of
//! - **Proof of life.** A replaced leader goes on answering keep-alives for seconds (etcd#15247). So a keep-alive counts
//!   only if, after its answer, a linearizable read succeeds in the same term: the keep-alive's header is made before
//!   the lease is renewed, and a leader of that term that can still answer the read had not been replaced by then. The
//!   term and the cluster are compared, not the member: two members in one term have one leader.
//! - **Guards** compare creation **and** lease: a foreign `put` keeps the first and takes the second away. Only the
//!   withdrawal of an entry that we made ourselves does not ask for the lease: otherwise nothing would remove it.
//! - **Names that begin alike.** `jobs/` holds the entries of `jobs` and of `jobs/nightly`. Ours are told apart, with a
//!   second request where the first one met only the longer name's; Go's are not: a Go candidate in `jobs` waits for
//!   those in `jobs/nightly`.
//! - **An entry without a lease** blocks the line: whoever stands behind it is told which key it is
//!   ([`StoreError::Corrupt`](incumbent_store::StoreError)), and an operator can depose it like any other.
//! - **Compaction, restarts, lost streams**: every watch resolves, and the one who waits reads again.
//!
//! Needs etcd 3.4 or newer.

mod answer;
mod batch;
mod cork;
mod dial;
mod endpoints;
mod enlisting;
mod fault;
mod guard;
mod heartbeat;
mod introductions;
mod keys;
mod options;
mod session;
mod standing;
mod stays;
mod store;
mod watcher;

pub use etcd_client;
pub use guard::{EtcdMark, Guarded};
pub use options::EtcdOptions;
pub use store::EtcdStore;
