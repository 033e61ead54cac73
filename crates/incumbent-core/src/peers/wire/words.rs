//! What messages are made of beside plain fields: members, terms and values, each with its bounds.
//! For these frames, and for what a transport sends beside them.

use bytes::Bytes;

use super::WireError;
use crate::binary::{ReadError, Reader, Writer};
use crate::entry::{Nonce, Token};
use crate::name::MAX_VALUE_BYTES;
use crate::peers::group::MemberId;

impl Writer {
    /// A member's number.
    pub fn member(&mut self, member: MemberId) -> &mut Writer {
        self.u16(member.0)
    }

    /// A value, preceded by its length; [`WireError::OutOfBounds`] if it is larger than any reader
    /// accepts.
    pub fn value(&mut self, value: &[u8]) -> Result<&mut Writer, WireError> {
        if value.len() > MAX_VALUE_BYTES {
            return Err(WireError::OutOfBounds);
        }
        Ok(self.u32(value.len() as u32).bytes(value))
    }
}

impl Reader<'_> {
    /// A member's number.
    pub fn member(&mut self) -> Result<MemberId, ReadError> {
        self.u16().map(MemberId)
    }

    /// A term, or zero for none.
    pub fn term_or_zero(&mut self) -> Result<u64, ReadError> {
        let term = self.u64()?;
        if term > Token::MAX { Err(ReadError::OutOfBounds) } else { Ok(term) }
    }

    /// The number of a question.
    pub fn nonce(&mut self) -> Result<Nonce, ReadError> {
        self.u64().map(Nonce)
    }

    /// A value, preceded by its length.
    pub fn value(&mut self) -> Result<Bytes, ReadError> {
        let len = usize::try_from(self.u32()?).map_err(|_| ReadError::OutOfBounds)?;
        if len > MAX_VALUE_BYTES {
            return Err(ReadError::OutOfBounds);
        }
        self.bytes(len).map(Bytes::copy_from_slice)
    }
}
