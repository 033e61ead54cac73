//! What messages are made of: numbers, flags, members, terms and values, each with its bounds. For these frames, and for
//! what a transport sends beside them.

use bytes::Bytes;

use super::WireError;
use crate::entry::{Nonce, Token};
use crate::name::MAX_VALUE_BYTES;
use crate::peers::group::MemberId;

/// Puts bytes together.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// With room for so many bytes; it grows when it has to.
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer(Vec::with_capacity(bytes))
    }

    /// What was written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A byte.
    pub fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    /// A number.
    pub fn u64(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// A member's number.
    pub fn member(&mut self, member: MemberId) {
        self.bytes(&member.0.to_le_bytes());
    }

    /// A value, preceded by its length; [`WireError::OutOfBounds`] if it is larger than any reader accepts.
    pub fn value(&mut self, value: &[u8]) -> Result<(), WireError> {
        let len = u32::try_from(value.len()).map_err(|_| WireError::OutOfBounds)?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(WireError::OutOfBounds);
        }
        self.bytes(&len.to_le_bytes());
        self.bytes(value);
        Ok(())
    }

    /// Bytes whose number the reader knows.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

/// Takes bytes apart. Whatever they are, each step ends with what was asked for or a reason.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// From the first byte on.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// There is nothing more.
    pub fn end(self) -> Result<(), WireError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(WireError::Trailing { bytes }),
        }
    }

    /// So many bytes.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::CutShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// The same, of a number that was read.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::CutShort)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[number]| number)
    }

    /// A number.
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Yes or no.
    pub fn flag(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::OutOfBounds),
        }
    }

    /// A member's number.
    pub fn member(&mut self) -> Result<MemberId, WireError> {
        self.take().map(u16::from_le_bytes).map(MemberId)
    }

    /// A term, or zero for none.
    pub fn term_or_zero(&mut self) -> Result<u64, WireError> {
        let term = self.u64()?;
        if term > Token::MAX { Err(WireError::OutOfBounds) } else { Ok(term) }
    }

    /// The number of a question.
    pub fn nonce(&mut self) -> Result<Nonce, WireError> {
        self.u64().map(Nonce)
    }

    /// A value, preceded by its length.
    pub fn value(&mut self) -> Result<Bytes, WireError> {
        let len = usize::try_from(self.take().map(u32::from_le_bytes)?).map_err(|_| WireError::OutOfBounds)?;
        if len > MAX_VALUE_BYTES {
            return Err(WireError::OutOfBounds);
        }
        self.bytes(len).map(Bytes::copy_from_slice)
    }
}
