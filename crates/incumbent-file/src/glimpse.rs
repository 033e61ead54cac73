//! What a cursor of this store says, and whether it is still so.

use std::collections::BTreeMap;

use incumbent_store::{Cursor, StoreError};

use crate::shelf::Shelf;
use crate::venue::Venue;

/// An election's state, cut down to a cursor. A directory keeps no history, so a watch cannot ask what has
/// happened since; it asks whether what was seen is still so.
///
/// The parts are the low bits of numbers that only grow. Two states that follow each other never look the same; after some
/// million changes between a look and a watch they might, and the hint is lost, which is why candidates look again
/// now and then anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Glimpse {
    pub(crate) office: u64,
    pub(crate) head: u64,
    pub(crate) said: u64,
}

impl Glimpse {
    const OFFICE_BITS: u32 = 24;
    const HEAD_BITS: u32 = 20;
    const SAID_BITS: u32 = 20;

    pub(crate) fn of(office: u64, head: Option<u64>, said: &BTreeMap<u64, u64>) -> Glimpse {
        let said = said.iter().fold(0u64, |sum, (number, times)| {
            sum.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40).wrapping_add(*times)
        });
        Glimpse {
            office: low(office, Glimpse::OFFICE_BITS),
            head: low(head.unwrap_or(0), Glimpse::HEAD_BITS),
            said: low(said, Glimpse::SAID_BITS),
        }
    }

    pub(crate) fn from_cursor(cursor: Cursor) -> Glimpse {
        Glimpse {
            said: low(cursor.0, Glimpse::SAID_BITS),
            head: low(cursor.0 >> Glimpse::SAID_BITS, Glimpse::HEAD_BITS),
            office: cursor.0 >> (Glimpse::SAID_BITS + Glimpse::HEAD_BITS),
        }
    }

    pub(crate) fn cursor(self) -> Cursor {
        Cursor((((self.office << Glimpse::HEAD_BITS) | self.head) << Glimpse::SAID_BITS) | self.said)
    }
}

fn low(number: u64, bits: u32) -> u64 {
    number & ((1 << bits) - 1)
}

impl Venue<'_> {
    /// Whether the office record is another one than a cursor says.
    pub(crate) fn office_differs(&self, from: Glimpse) -> Result<bool, StoreError> {
        let office = self.numbers(Shelf::Office)?.last().copied();
        Ok(Glimpse::of(office.unwrap_or(0), None, &BTreeMap::new()).office != from.office)
    }

    /// Whether anyone has published something since.
    pub(crate) fn said_differs(&self, from: Glimpse) -> Result<bool, StoreError> {
        Ok(Glimpse::of(0, None, &self.said()?).said != from.said)
    }

    /// Whether another entry is first in line.
    pub(crate) fn head_differs(&self, from: Glimpse) -> Result<bool, StoreError> {
        Ok(Glimpse::of(0, self.head()?, &BTreeMap::new()).head != from.head)
    }

    /// Who is first in line.
    pub(crate) fn head(&self) -> Result<Option<u64>, StoreError> {
        Ok(self.numbers(Shelf::Line)?.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_keeps_what_was_seen_apart() {
        let said = BTreeMap::from([(3, 1)]);
        let glimpse = Glimpse::of(7, Some(3), &said);
        assert_eq!(Glimpse::from_cursor(glimpse.cursor()), glimpse);
        for other in [
            Glimpse::of(8, Some(3), &said),
            Glimpse::of(7, Some(4), &said),
            Glimpse::of(7, None, &said),
            Glimpse::of(7, Some(3), &BTreeMap::from([(3, 2)])),
            Glimpse::of(7, Some(3), &BTreeMap::new()),
            Glimpse::of(7, Some(3), &BTreeMap::from([(4, 1)])),
        ] {
            assert_ne!(other.cursor(), glimpse.cursor());
        }
    }
}
