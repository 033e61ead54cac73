//! Candidates for tests that speak to a store, or to the library on one, themselves.

use bytes::Bytes;
use incumbent::{Candidacy, Leadership};
use incumbent_store::{Held, Incarnation, NewEntry, Nonce, Place, Publication, Session, Standing, StoreError, Version};

use crate::patience::within;

/// A candidate's words, as an incarnation of this number.
pub fn entry(number: u128) -> NewEntry {
    NewEntry::new(Incarnation::from_bits(number), "node-1", "10.0.0.7:80")
}

/// What one holds who stands there. `None`: it is not in line, or not told.
pub fn held_of(standing: &Standing) -> Option<Held> {
    match &standing.place {
        Place::Leading(held) => Some(held.clone()),
        Place::Behind { held, .. } => held.clone(),
        Place::Gone => None,
    }
}

/// What one holds who is in line. Panics if nobody is.
pub fn held(standing: &Standing) -> Held {
    held_of(standing).unwrap_or_else(|| panic!("not in line: {:?}", standing.place))
}

/// Waits for the office, in real time.
pub async fn lead(candidacy: &mut Candidacy) -> Leadership {
    within(candidacy.elected()).await.expect("a candidacy that goes on").expect("an election that goes on")
}

/// Replaces what an entry says now, whatever that is. `None`: refused.
pub async fn publish(
    session: &dyn Session,
    held: &Held,
    value: impl Into<Bytes>,
    ready: Option<Nonce>,
) -> Result<Option<Version>, StoreError> {
    let was = session.standing(held, None).await?.published;
    session.publish(held, was, &Publication::new(value).ready(ready)).await
}
