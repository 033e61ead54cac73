//! Leader election on Redis: a fair line, tokens that grow, and promises that are read from the
//! server.
//!
//! This page is about [`RedisStore`]: one server, a primary with replicas, or a cluster. A majority
//! of servers that know nothing of each other is [`redlock`].
//!
//! # Where things are
//! Eight keys, which share a hash tag; `{incumbent}` unless the option `prefix` says otherwise.
//! Tokens, versions and cursors are points on one counter of changes, written with 16 digits, so
//! that they compare as text.
//!
//! | key | type | what |
//! | --- | --- | --- |
//! | `{incumbent}:m` | hash | `format`, `id` (the store's identity), `change` (the counter), `lineage` (of the server's history), `clock` and `wall` (the store's clock, and the server's when it was last set), `longest` (the longest TTL that was granted), `shortest` (no open session has a shorter one), `taken_over` (when this history began), `hold` (until when nobody new takes office), and `waited` (with `?wait=`, so that every step writes something) |
//! | `{incumbent}:s` | sorted set | sessions, by when they expire. A session is called after a change and its TTL. And `R session` for one that has not been heard of since another history began |
//! | `{incumbent}:l` | sorted set, all scores 0 | the lines: `election \0 token` |
//! | `{incumbent}:e` | hash | `election \0 token`: version, session, incarnation, name, merit, readiness and value. And the newest number that a session, an entry, what it says or an order was given, beside no name |
//! | `{incumbent}:p` | sorted set, all scores 0 | what a session holds: `session \0 election \0 token incarnation`; and `T ttl session`, for the shortest and the longest TTL |
//! | `{incumbent}:o` | hash | the office records: version, end of the tombstone, record with the tombstone and without |
//! | `{incumbent}:z` | sorted set | tombstones, by when they go |
//! | `{incumbent}:h` | hash | the entry of each election that was last told that it leads |
//!
//! No key has a TTL, and each holds a member that says nothing, so that all are there always. If
//! one is not, somebody deleted or evicted it, or the server was emptied: the next step founds the
//! store anew, and everybody is told by its new identity. No part can vanish in silence, and no
//! script touches a key that it was not given. If anything was left, or one comes who knew another
//! store there, nobody takes office for the longest TTL that was left, and for that of the one who
//! asks, from the founding on: a leader may not have been told yet.
//!
//! # From the seam to Redis
//! | method | requests |
//! | --- | --- |
//! | `open_session`, `enlist`, `standing`, `publish`, `withdraw`, `close`, `set_office`, `evict`, `identity` | one script each (`src/scripts`), sent once; the text of a script only where the server does not know it yet |
//! | `renew` | a script for each page of 500 places that the session holds |
//! | `line` | a script for each page of 500 entries or 1 MiB. If anything changes in between, it begins again with pages of twice the size |
//! | `elections` | a script for each page of 500 |
//! | `watch` | `SUBSCRIBE` on a connection of its own, then one script that asks what has changed since |
//! | `promises` | `INFO`, `CONFIG GET`, a `PUBLISH` that nobody hears and the identity |
//! | with every new connection | `HELLO`, `TYPE` of each key and `INFO`; Sentinels are asked for the primary first (`SENTINEL get-master-addr-by-name`) |
//!
//! Channels: `{incumbent}:e:<election>\0<token>` when an entry is gone or says something else,
//! `{incumbent}:h:<election>` when the first in line does, `{incumbent}:o:<election>` when the
//! office record does; and `{incumbent}:-` when the store was founded anew, which everybody hears
//! who waits. Of the others a follower hears of the one ahead and of nobody else. Since nothing
//! expires at the server unless it is asked something, a follower also looks again when the time of
//! the one ahead has passed.
//!
//! # What every script does first
//! - **Is this the primary?** A script that writes nothing runs on a replica, too, and would make a
//!   leader of what is no longer so.
//! - **Is it the same history?** `master_replid` becomes another with every restart and every
//!   failover, and then the newest changes may be lost. So the counter leaps by 2^28, and by 2^20
//!   for each second since the clock was last set: of two servers that go on from the same change
//!   the later one gives the higher tokens, as far as their wall clocks agree. Entries that were
//!   never told that they lead are dropped, and come again with a token above the leap; nobody
//!   takes office for the longest TTL that was granted in the history before, as far as it is
//!   known, and for the TTL of the one who asks, since a leader that is forgotten may still believe
//!   in its deadline; and every session gets a full TTL again, if its owner says, knowing of the
//!   new history, that it was renewed less than a TTL ago. One that was not may have been
//!   succeeded. Whatever a primary still gives that was replaced is below all of that, and a fence
//!   refuses it; one that is restarted while the other goes on leaps above it. (The first replica
//!   of a server, and the last that has been gone for an hour, change the history as well.) What
//!   cannot be known: a forgotten leader with a TTL that is longer than all of these.
//! - **Does it know less than we do?** In another history of the server than the one in which we
//!   met more, it is a primary that was replaced and goes on: it is left, and nothing is done
//!   there. In the same one, an old copy was put back into a running server, and the store is
//!   founded anew. That is seen by the counter, in `{incumbent}:m`: by one who has met a higher
//!   one, and, since a step that draws a number for others to see keeps it in `{incumbent}:e` as
//!   well, by one who comes fresh and would draw it again. An old copy of another key alone founds
//!   nothing anew, and no token comes again. With `{incumbent}:o` orders are undone in silence.
//!   With `{incumbent}:s`, `l` or `e` a leader may be forgotten, and another lead beside it until
//!   its next renewal: nobody leads past an entry that stays in the line, and a renewal names no
//!   place whose entry is in none. With `{incumbent}:p` it is told, too, but its entry stays, and
//!   nobody leads until it is deposed or its session ends. (With `z` and `h` whoever leads goes on:
//!   what they say is looked at again.) Old copies of both, `m` and `e`, put back together, are
//!   noticed only by one who knew the newer ones. So put back none into a running server, or delete
//!   all eight after it: then the store is founded anew.
//! - **Can it count on?** Scripts count exactly up to 2^53. Before the counter gets there (the
//!   server's clock is centuries ahead, say) every step is refused, and changes nothing.
//! - **What time is it?** The store has a clock of its own, which follows the server's wall clock
//!   by steps of at most half the shortest TTL (a second where no session is open and a leader may
//!   be forgotten). A wall clock that jumps ahead expires nobody who renews in time; one that jumps
//!   back gives the dead no more time. Redis shows scripts no clock that does not jump; but clients
//!   have one. Each step says what the store's clock showed in an earlier answer, and how long ago
//!   that was heard: where the wall clock agrees, all of that has passed. So the store keeps up
//!   with the time while anybody asks now and then. A night in which nobody did looks like a jump:
//!   the first who asks may be shown a dead leader, for its TTL less half the shortest (half a TTL
//!   where all are alike).
//! - **Who is due to go?** Up to 200 sessions and tombstones. `enlist` and `standing` leave that to
//!   the others, since they look for themselves at what they depend on: nobody leads past an
//!   expired entry that is still there, and no tombstone counts whose time has passed.
//!
//! # What it takes care of
//! - **Nothing is left half-done.** A script is not rolled back. So it is made of parts (each that
//!   is due goes, then the step itself), and nothing that can fail comes after the first write of a
//!   part; notifications are published with `pcall`: a user without rights on the channels makes
//!   whole steps. If somebody makes something else of one of the keys, or damages what stands in
//!   it, the steps that need it are refused. Those who were due may have gone by then, each as a
//!   whole; of the step itself nothing is made.
//! - **Full memory.** Renewals, standings, withdrawals, evictions and the end of a session are made
//!   even then; what would need more memory is refused before anything was written.
//! - **Steps and subscriptions have connections of their own.** The server closes one with
//!   subscriptions when too much is queued on it. None repeats anything: a write that was sent and
//!   not answered is [`OutcomeUnknown`](incumbent_store::StoreError::OutcomeUnknown). A connection
//!   on which an answer was awaited in vain for a second is not used again.
//! - **Replicas that confirm** (`?wait=N`). `WAIT` waits for everything that was sent earlier on
//!   its connection, so the steps that have to be confirmed have a connection of their own; `WAIT`
//!   follows each of them there. Every such step writes something, since replicas confirm at once
//!   what a new connection has not written. A step that too few confirm is unavailable, or its
//!   outcome unknown, and all connections are made anew: another server may be the primary.
//! - **Fences have connections of their own**, each to the member of a cluster that keeps its mark.
//!   No renewal waits for one. With `?wait=N` marks, and what is written behind them, are confirmed
//!   in the same way as steps.
//! - **Finding the primary.** With every connection Sentinels are asked for it, or a member of a
//!   cluster for the one that keeps our keys. One that says nothing for 0.3 s has the next asked
//!   beside it, and the first good answer counts. A Sentinel whose primary cannot be reached, or is
//!   a replica, has given none; what several name is dialled once. A member that no longer keeps
//!   our keys has done nothing: the step is made at the other, once. While they are on their way
//!   (`ASK`, `TRYAGAIN`) no step is made, and it is unavailable. A server that turns out to be a
//!   replica is left, and the step is unavailable. Several servers that are no cluster are refused:
//!   each would have a leader of its own.
//! - **Versions.** Another format than this version's is refused with a sentence, and left alone.
//!
//! # Rights
//! The least that a user needs: `~{incumbent}* &{incumbent}* +evalsha +eval +info +time +exists
//! +type +del +hmget +hget +hset +hdel +hexists +hscan +zadd +zrem +zscore +zmscore +zrangebylex
//! +zrevrangebylex +zrangebyscore +publish +subscribe +unsubscribe +hello +ping`, with
//! `+select` for another database than 0, and `+config|get` for promises that are better than the
//! weakest. With another prefix the keys and channels are `~{prefix}* &{prefix}*`.
//!
//! A fence needs `+evalsha +eval +info +type +get +set`, on its mark's key and on those that
//! it guards, and the commands of what is written behind it. It needs none of the keys above.
//!
//! `?wait=N` needs `+wait`. At Sentinels a user needs
//! `+sentinel|get-master-addr-by-name`, and nothing else.
//!
//! Needs Redis 7.0 or newer.

mod answer;
mod connection;
mod entry;
mod error;
mod fence;
#[cfg(test)]
mod fuzz;
mod info;
mod keys;
mod on_demand;
mod options;
mod primary;
pub mod redlock;
mod session;
mod step;
mod store;
mod watcher;

pub use fence::{GuardedScript, RedisFence, RedisWrite};
pub use options::RedisOptions;
pub use redis;
pub use redlock::RedlockStore;
pub use store::RedisStore;
