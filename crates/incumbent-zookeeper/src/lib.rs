//! Leader election on ZooKeeper, in our own dialect or in that of Curator, kazoo or
//! go-leaderelection.
//!
//! # Where things are
//! | node | what | kind |
//! | --- | --- | --- |
//! | `<chroot>/<election>/` | the line: its children are the entries | container: ZooKeeper removes it when it is empty |
//! | `<chroot>/<election>/incumbent-<incarnation>-<sequence>` | an entry of ours: incarnation, name, readiness, an empty line, the value | ephemeral, sequential |
//! | `<chroot>/%incumbent/offices/<election>` | the office record | persistent; its absence is a blank one |
//! | `<chroot>/%incumbent/sessions/<random>` | a session's heartbeat | ephemeral |
//! | `<chroot>/%incumbent/candidates/<election>/<guid>` | in foreign dialects, what our candidate says about itself | ephemeral, made in one step with its entry |
//! | `<chroot>/%incumbent/id`, `clock` | the store's identity; written to for the servers' time | persistent |
//!
//! In our own places `/` and `%` in an election's name are `%2F` and `%25`; in the path of a line
//! `/` stays, so that an election is where other libraries look for it. An entry's id is
//! `<node>@<czxid>`, its token is the `czxid`: it grows with every change in the ensemble, also
//! when the parent is made anew and its sequence starts again.
//!
//! An election belongs to one chroot. The line of `team/jobs` is also that of `jobs` below the
//! chroot `/team`, but each of the two has an office record of its own: a candidate that comes to
//! a line through a place where another store lives is refused.
//!
//! # Dialects
//! | dialect | an entry's node | order | its data |
//! | --- | --- | --- | --- |
//! | `ours` | `incumbent-<32 hex>-<sequence>` | the sequence, by serial arithmetic: it may go round | as above |
//! | `curator-latch` | `_c_<uuid>-latch-<sequence>` | text after the last `latch-` | the candidate's name |
//! | `curator-selector` | `_c_<uuid>-lock-<sequence>` | text after the last `lock-` | the candidate's name |
//! | `kazoo` | `<32 hex>__lock__<sequence>` | the sequence | the candidate's name |
//! | `go-leaderelection` | `le_<sequence>` | the whole name, of all children | the candidate's name |
//!
//! An entry of another dialect is refused by name before we stand: neither side would follow the
//! other. In a foreign dialect an entry is written once, when it is made: Curator's followers wait
//! for it to go with a watch that any change uses up.
//!
//! # From the seam to ZooKeeper
//! | method | requests |
//! | --- | --- |
//! | `open_session` | two short connections to each server, for its longest session and its tick; a connection of its own, asked for the TTL and a tick; `create` of the heartbeat node. On a connection that the user gave: only the node |
//! | `renew` | `setData` of the heartbeat node, `getEphemerals` behind it. In foreign dialects a record that somebody has removed is made again |
//! | `enlist` | `create2`, and behind it ONE `multiRead`: children, office record. In foreign dialects a `multi` makes entry and record. Before the first time in an election: `sync`, `getChildren` |
//! | `standing` | `sync`, and behind it ONE `multiRead`. While the one that we were behind is there: office record, own entry, that one. Else: children, office record, own entry; then `getData` of the one ahead |
//! | `publish` | counted by the session, and refused if another was sent since the caller looked; then `setData` of the entry; in foreign dialects `multi[check entry, setData record]` |
//! | `withdraw` | `delete`; with an heir `multi[check heir, delete]` |
//! | `close` | closes the connection and waits until that was answered; on a connection that the user gave, deletes entries and heartbeat |
//! | `elections` | `sync`, the names of the office records, then `getChildren` of every node below the chroot, 64 at a time and 30,000 at most |
//! | `line` | `sync`, `getChildren`, `getData` of each entry, office record, the parent's `Stat` again: unchanged, or once more |
//! | `watch` | one-shot watches by `exists` and `getChildren`, compared with what was seen: a session's on its own connection, others' on the shared one |
//! | `set_office` | `getData` and the version of the node above; `create`, or `multi[check above, setData]`, or `multi[setData above, delete]`; an end in `go-leaderelection` makes its `DONE` in the same step, and the first to find nobody left removes it |
//! | `evict` | `getData`, `delete` with the version |
//! | `identity` | `getData` of the identity |
//! | `promises` | the identity; the servers' tick, as for a session |
//!
//! # Why that is enough
//! **Proof of life.** An answered request does not extend a session. Only the ensemble's leader
//! expires sessions, and it hears of the living from the servers that they are connected to, every
//! half tick; a server that is cut off goes on answering reads. So a renewal is a write, which the
//! leader commits, and an answered one proves the renewal *before* it: what the server reported of
//! that went the same way. For this the earlier one has to have been answered a tick before the
//! newer one is sent (`Proof::Earlier`); where it has not, the deadline counts from the last
//! renewal that has. A session that is opened with its connection is committed by the leader: the
//! opening proves itself. One on a connection of the user's is older than that, and office is taken
//! only after the renewal that proves the opening. A connection that was made again in between
//! proves no less: the leader itself has to confirm the session then. The margin is a tick, and it
//! is asked for on top of the TTL.
//!
//! What remains: a leader of the ensemble that stalls for longer than the margin; and one whose
//! requests for reports, every half tick, do not reach the server between two renewals, while
//! everything that the server says does reach the leader, and stops doing so right after the
//! second. Then the leader counts from one renewal earlier, or from a ping of the connection's own
//! if that came later, and not from the one that counts here.
//!
//! **Timeouts.** A session's timeout is negotiated anew whenever its connection is made again, with
//! each server's own `maxSessionTimeout`: the attempt alone can shorten it, whether or not its
//! answer arrives. So what counts, from the opening on, is the smallest that any of the servers
//! grants; and the largest tick, since the ensemble's leader counts in its own, and the leader
//! changes. Both are said (`max-session-timeout`, `tick`) or asked for, of every address behind
//! every name: when a session is opened, when its connection is lost or made again, and once per
//! TTL. A server that does not answer delays nobody for longer than a moment, and what it said last
//! counts; no session is moved to one that has never answered. A server that grants less than was
//! counted on moves the deadlines back; terms drain, and the session is replaced by one that counts
//! on less. On a connection of the user's nobody can be asked: losing it ends every term on it at
//! once, unless `max_session_timeout` says what to count on.
//!
//! What remains: a server that grants less since it was asked last, and that takes the session over
//! before it is asked again; and another one behind the same address (a load balancer), or, with
//! TLS, behind the same name. Say `max-session-timeout` then.
//!
//! **Connections.** A connection that is lost is made again by the client, which waits twice as
//! long before each round of dials as before the last. So after an outage it comes back within as
//! long again as the outage lasted (seen: 0.7 s after 1 s, 2.6 s after 4 s, 3.9 s after 9 s), and
//! an outage of more than half of what the deadline leaves may cost the office. New sessions and
//! readers dial at once.
//!
//! **Winning.** What is older than an entry only ever goes: the sequence and the `czxid` grow. The
//! three answers of `standing` come in this order: the list, the office record, our own entry. If
//! our entry is there at the last, with our session as its owner and with its `czxid`, it was there
//! at the second, and nothing older than the list shows was: so at the moment at which the office
//! record was read, all of it was true together. That holds with one answer for each as well;
//! servers take one request for all three in one piece anyway. A `sync` before it makes the answer
//! as new as the call. It is left out when a watch on the same connection asked for the look: that
//! server knows of what woke us. Even an old answer makes no second leader: it is a state that was
//! committed, first in line stays first, and our entry is there as long as the session is, whose
//! deadline the renewals keep, and without which nobody takes office.
//!
//! **The office record** has the `mzxid` as its version, since a node's own version starts again
//! with the node. For the same reason `setData` with a version could hit a record that was removed
//! and made anew; so a removal changes the node above all records in the same step, and a write
//! checks it. A tombstone's time is told by the servers' clock.
//!
//! **Cursors.** ZooKeeper tells a reader no number for "now". But nodes say when they last changed,
//! and an answer behind a `sync` is no older than anything that was seen before the `sync` was
//! sent. So the cursor is the newest change that this store had seen by then. A change that it does
//! not cover wakes once too often, and is covered from then on.
//!
//! **Ambiguous requests.** An enlistment without an answer is found by its guid among the nodes
//! that our session owns; what was sent on a connection arrives before a later request is answered,
//! or never. While the connection is down nothing is sent: it would wait in a queue and arrive when
//! nobody expects it. A session that nobody renews is closed by us, since its connection would keep
//! it alive for ever.
//!
//! # Sizes
//! Servers refuse requests and records that are larger than their `jute.maxbuffer`, 1 MiB unless it
//! is set. Answers are not cut by that, and we take them at any size: a line of 10,000 is half a
//! megabyte of names, which every look reads. Java's clients do refuse larger answers: Curator's
//! candidates stand in no line of more than some 17,000. When a session ends, the ensemble writes
//! the paths of all its entries into one record (ZOOKEEPER-4306), and cannot go on if that is too
//! large: give one session no more than some thousands of elections, or the servers a larger
//! `jute.maxbuffer`.
//!
//! Needs ZooKeeper 3.6 or newer.

mod connection;
mod dialect;
mod elections;
mod enlist;
mod error;
mod fence;
#[cfg(test)]
mod fuzz;
mod guard;
mod line;
mod lingering_watch;
mod node;
mod office;
mod options;
mod own_entries;
mod paths;
mod servers;
mod session;
mod store;
mod watcher;

pub use dialect::Dialect;
pub use fence::ZooKeeperFence;
pub use guard::Guarded;
pub use options::{Access, ZooKeeperOptions};
pub use store::ZooKeeperStore;
pub use zookeeper_client;
