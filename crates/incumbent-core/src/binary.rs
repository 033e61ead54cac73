//! Fields as bytes, for messages and files: numbers are little-endian, and what has no fixed length
//! is preceded by it. Whatever is read, each step ends with a field or a reason.

use std::time::Duration;

use crate::time::nanos;

/// Puts fields together.
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

    /// What was written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Bytes whose number the reader knows.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A byte.
    pub fn u8(&mut self, number: u8) -> &mut Writer {
        self.bytes(&[number])
    }

    /// Two bytes.
    pub fn u16(&mut self, number: u16) -> &mut Writer {
        self.bytes(&number.to_le_bytes())
    }

    /// Four bytes.
    pub fn u32(&mut self, number: u32) -> &mut Writer {
        self.bytes(&number.to_le_bytes())
    }

    /// Eight bytes.
    pub fn u64(&mut self, number: u64) -> &mut Writer {
        self.bytes(&number.to_le_bytes())
    }

    /// Sixteen bytes.
    pub fn u128(&mut self, number: u128) -> &mut Writer {
        self.bytes(&number.to_le_bytes())
    }

    /// Yes or no.
    pub fn flag(&mut self, flag: bool) -> &mut Writer {
        self.u8(flag.into())
    }

    /// Nanoseconds, as many as there is room for.
    pub fn duration(&mut self, duration: Duration) -> &mut Writer {
        self.u64(nanos(duration))
    }

    /// Any number of bytes, preceded by it.
    pub fn block(&mut self, bytes: &[u8]) -> &mut Writer {
        self.u64(bytes.len() as u64).bytes(bytes)
    }

    /// Whether it is there, and then what it is.
    pub fn option<T>(&mut self, some: Option<T>, put: impl FnOnce(&mut Writer, T) -> &mut Writer) -> &mut Writer {
        match some {
            Some(some) => put(self.flag(true), some),
            None => self.flag(false),
        }
    }
}

/// Takes bytes apart.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

/// Why bytes are not what was to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// They end too early.
    #[error("it is cut short")]
    CutShort,
    /// A field has a value that it cannot have.
    #[error("a field is out of bounds")]
    OutOfBounds,
    /// They go on after the end.
    #[error("{bytes} bytes follow its end")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

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
    pub fn end(self) -> Result<(), ReadError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(ReadError::Trailing { bytes }),
        }
    }

    /// A fixed number of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(ReadError::CutShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], ReadError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ReadError::CutShort)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, ReadError> {
        self.array().map(u8::from_le_bytes)
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, ReadError> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, ReadError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Sixteen bytes.
    pub fn u128(&mut self) -> Result<u128, ReadError> {
        self.array().map(u128::from_le_bytes)
    }

    /// Yes or no.
    pub fn flag(&mut self) -> Result<bool, ReadError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ReadError::OutOfBounds),
        }
    }

    /// Nanoseconds.
    pub fn duration(&mut self) -> Result<Duration, ReadError> {
        self.u64().map(Duration::from_nanos)
    }

    /// Any number of bytes, preceded by it.
    pub fn block(&mut self) -> Result<&'a [u8], ReadError> {
        let len = usize::try_from(self.u64()?).map_err(|_| ReadError::OutOfBounds)?;
        self.bytes(len)
    }

    /// Whether it is there, and then what it is.
    pub fn option<T, E: From<ReadError>>(
        &mut self,
        take: impl FnOnce(&mut Reader<'a>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.flag()?.then(|| take(self)).transpose()
    }
}

/// FNV-1a: for finding damage and mix-ups, not for security.
pub fn checksum(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_and_nothing_else_is_read() {
        let mut writer = Writer::with_capacity(0);
        writer.u8(1).u16(0x0203).u32(4).u64(5).u128(6).flag(true).duration(Duration::from_secs(7));
        writer.block(b"text").option(Some(8), Writer::u16).option(None, Writer::u8).bytes(b"raw");
        let bytes = writer.into_bytes();
        assert_eq!(bytes[..3], [1, 3, 2], "little-endian");
        let read = |mut reader: Reader<'_>| {
            assert_eq!((reader.u8()?, reader.u16()?, reader.u32()?, reader.u64()?), (1, 0x0203, 4, 5));
            assert_eq!((reader.u128()?, reader.flag()?, reader.duration()?), (6, true, Duration::from_secs(7)));
            assert_eq!((reader.block()?, reader.option(Reader::u16)?), (&b"text"[..], Some(8)));
            assert_eq!((reader.option(Reader::u8)?, reader.array()?), (None, *b"raw"));
            reader.end()
        };
        assert_eq!(read(Reader::new(&bytes)), Ok(()));
        for len in 0..bytes.len() {
            assert_eq!(read(Reader::new(&bytes[..len])), Err(ReadError::CutShort), "{len}");
        }
        let longer = [&bytes[..], b"!!"].concat();
        assert_eq!(read(Reader::new(&longer)), Err(ReadError::Trailing { bytes: 2 }));
    }

    #[test]
    fn nonsense_is_refused_and_nothing_is_reserved_for_it() {
        assert_eq!(Reader::new(&[2]).flag(), Err(ReadError::OutOfBounds));
        assert_eq!(Reader::new(&[0xff; 12]).block(), Err(ReadError::CutShort));
    }

    #[test]
    fn the_checksum_is_the_usual_fnv_1a() {
        assert_eq!(checksum([]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(checksum(*b"foobar"), 0x8594_4171_f739_67e8);
    }
}
