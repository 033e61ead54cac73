//! Leader election in PostgreSQL, with a fence inside your own transactions.
//!
//! # What is in the database
//! A schema of its own (`incumbent`, or `?schema=`), which the first who writes makes where it may,
//! or brings up to date, under a lock, so that many can start at once: who opens a session, orders
//! something, or raises a fence. Who only reads makes nothing, and sees elections without anybody
//! where there is none, and in an older one what it can. [`schema_ddl`] and `incumbent schema
//! postgres` print it for those who make it by hand. A role that takes part needs `USAGE` of the
//! schema and `EXECUTE` of its functions, and no right to a table.
//!
//! | table | what |
//! | --- | --- |
//! | `store` | one row: the identity, the schema's version, and which server wrote last |
//! | `number` | a sequence: tokens, versions and cursors of all elections, drawn under an election's lock |
//! | `session` | an id, a TTL, and when it expires |
//! | `election` | the last number that was drawn for it, and the office record |
//! | `entry` | a place in line: election, token, session, incarnation, name, value, readiness, merit |
//! | `mark` | the highest token that a fence has seen, and one to which a candidate is about to raise it |
//!
//! # From the seam to SQL
//! Each step is one function, called in one message in which it is a transaction of its own.
//!
//! | method | what the function does |
//! | --- | --- |
//! | `open_session` | inserts the session; now and then removes what nobody visits any more |
//! | `renew` | locks the session's row alone, however many elections it stands in; renews it if it has not expired; lists its entries, with the versions of those ahead and of the office records, and with what is left of those ahead where that is less than half a TTL |
//! | `enlist` | locks the election, draws the token, inserts the entry; removes the dead ahead of it |
//! | `standing` | ONE lock-free statement: own session, own entry, the one ahead and its session, the office record. Only if the one ahead is dead: locks the election and removes the dead, with their sessions, as far as they go |
//! | `publish`, `withdraw`, `evict`, `set_office` | lock the election, compare, change |
//! | `close` | locks the elections of the session in order, removes its entries, then the session |
//! | `elections`, `line` | one statement; the dead are not shown |
//! | `watch` | one statement that looks whether something has changed already; then notifications, and the time at which the one ahead may end |
//! | `identity` | reads the store's row |
//! | `promises` | the same, and the server's settings; proves that a connection hears what is told |
//!
//! # What it takes care of
//! - **Lock first, read in a later statement.** One statement has one snapshot: a common table
//!   expression that locks the election and then reads the line works on what was there before it
//!   waited, and removes the entry of a leader that has just been renewed. So each step is a
//!   `VOLATILE` function, and refuses every isolation level but READ COMMITTED (SQLSTATE `IN001`).
//!   Each message begins its transaction itself, and chains to it what follows the commit: a role's
//!   defaults may be other ones, with which it may not write, or waits for others.
//! - **A guard stands in a statement after the lock.** In the same one it is looked at before the
//!   wait, and not again if the other changed nothing: that revives an expired session.
//! - **The dead are removed with their sessions**, which are locked for it without waiting: a
//!   renewal and a removal cannot both succeed, and a step that holds an election's lock waits for
//!   no session. Only `close` waits for its own: whoever has locked one waits for no election.
//! - **Proof of life.** `expires_at` is computed after the statement has arrived, and its row stays
//!   locked until the commit is durable; `synchronous_commit` is raised where it is lower than
//!   that. A commit that no standby confirmed since the wait for it was cancelled is an unknown
//!   outcome (the server warns of it, whatever messages the role wants to see), and no call is ever
//!   cancelled at the server.
//! - **No row of a step that locks, or answers at length, is sent before its commit.** A server
//!   that cannot send waits without an end: for a process that is stopped while its answer is on
//!   the way, a cut link, a pooler in front of either. With the transaction open, such a renewal
//!   would keep the session locked, and a dead leader in line, for as long; an enlistment the
//!   election, and the leader's session; and a look at a long line the tables, so that nobody could
//!   bring the schema up to date. So a step fills a cursor that outlives its transaction, and is
//!   read from that behind the commit, in the same message. What it says is as of the transaction,
//!   so it proves the same. Only what answers with a word or two goes without.
//! - **NOTIFY is a transaction of its own**, behind the write in the same message. Inside it, it
//!   would take a lock of the whole cluster through the commit. What only an answer shows has a
//!   message of its own: that another is first in line, for which nobody waits; and which entries
//!   went with a session, for which `close` waits. Nobody is notified of renewals, nor
//!   of an enlistment behind somebody. Of a withdrawal and a publication those who listen are, also
//!   where nobody stands behind: an operator waits until the last in line has gone, and a leader
//!   until its heir says that it is ready. Both come with what candidates do, not with time.
//! - **A listening connection proves itself** by hearing what another one tells it: through a
//!   transaction pooler LISTEN succeeds and hears nothing, and `?listen=HOST:PORT` goes past it.
//!   Without one, waiting candidates poll once a second. What such a LISTEN leaves behind is taken
//!   back, but a busy pooler may run that on another of its connections: one that goes on listening
//!   hands notifications to whoever has got it.
//! - **Each answer proves itself.** pgbouncer before 1.21 gives the connection of a client that
//!   went away to the next one even if an answer is still to come on it. So nothing is sent ahead:
//!   one message, one answer. And since others may send ahead, each message begins with a random
//!   number that the server repeats: an answer without it, rows or an error, is not believed (a
//!   write's outcome is then unknown), and its connection is dropped.
//! - **Another server.** Each step compares system identifier, timeline, database and table with
//!   those that wrote last. After a failover to a standby, or in a restored dump, tokens leap above
//!   all that can have been given, all sessions end, and nobody leads for the longest TTL that was
//!   ever granted, which is an hour at most (SQLSTATE `IN003`). A standby's marks may be as old as
//!   all else: the fence refuses tokens from before the leap, and all of this store's until there
//!   has been one. The leap grows with the time since
//!   the last one, so that two standbys of one primary which are promoted in turn give no token
//!   twice. That rests on the servers' wall clocks: the second must not show an earlier time when
//!   it takes over than the first did. A standby knows nothing of a longer TTL that was granted
//!   right before. What shows in none of the four: an older state of the disk, files that were
//!   copied and are a server of its own (a base backup without recovery), and data that is restored
//!   alone, into tables that are there. `UPDATE incumbent.store SET history = ''` makes such a copy
//!   leap, too.
//! - **The row of `store`.** Where it was removed, or row-level security hides it, steps and fences
//!   are refused (SQLSTATE `IN004`): nobody knows then how far numbers have come.
//! - **The wall clock.** Sessions expire by the server's, the only one that SQL can read. Set back,
//!   their rest is clamped to a TTL; set forward, they expire early. Clients do not vouch with
//!   their own clocks for how much time has passed: a request that comes late looks like a clock
//!   that was set forward, each such request would keep a dead leader in line for longer, and one
//!   who is new has nothing to compare with.
//! - **A mark is wanted before it is raised**, in a transaction of its own: the fence then refuses
//!   lower tokens, and the raise waits for transactions that were open, whatever else comes. (Its
//!   lock alone is not enough: those who come queue behind a raise only until it gives up.)
//! - **Dropped calls.** A call that is given up before it was sent is not sent. One that was sent
//!   is finished, and until then its connection serves no other; the next call has another one,
//!   which is new unless it has answered somebody since: connections are often lost together.
//!   What is told to others, and to oneself to prove that a connection hears, is given up after a
//!   second or two.
//!
//! Every renewal is a transaction, and transaction ids are finite: 1,000 sessions with a TTL of 15
//! s use 200 a second, which makes the server freeze old rows of the whole cluster about every 12
//! days.
//!
//! Needs PostgreSQL 13 or newer.

mod answer;
mod connection;
mod connector;
mod error;
mod fence;
#[cfg(test)]
mod fuzz;
mod literal;
mod message;
mod options;
mod schema;
mod session;
mod store;
#[cfg(feature = "tls")]
mod tls;
mod watcher;

pub use connector::{Connecting, Connector, Messages, messages};
pub use fence::PostgresFence;
pub use options::PostgresOptions;
pub use schema::schema_ddl;
pub use store::PostgresStore;
pub use tokio_postgres;
