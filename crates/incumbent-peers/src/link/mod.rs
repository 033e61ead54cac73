//! Connections: who is at the other end, that nobody has touched what it says, and that there are
//! not too many.
//!
//! A member dials each other member and speaks on that connection alone; it hears on those that
//! others have dialled. Someone who is not a member dials one and hears the answers on the same
//! connection. Nothing here knows what the messages are for.

pub(crate) mod channel;
pub(crate) mod dial;
pub(crate) mod handshake;
pub(crate) mod limit;
pub(crate) mod listen;
pub(crate) mod outbox;
