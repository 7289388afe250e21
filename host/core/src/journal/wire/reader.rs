//! Reading MessagePack that is not trusted.

use super::UnreadableEntry;
use crate::msgpack::{self, DecodeError, Head};

/// The bytes that are left.
#[derive(Debug)]
pub(in crate::journal) struct Reader<'a>(&'a [u8]);

impl From<DecodeError> for UnreadableEntry {
    fn from(_: DecodeError) -> Self {
        Self::Damaged("it is not MessagePack")
    }
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many bytes are left: no list has more values.
    pub(super) const fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) const fn end(&self) -> Result<(), UnreadableEntry> {
        if self.0.is_empty() {
            return Ok(());
        }
        Err(UnreadableEntry::Damaged("something follows it"))
    }

    pub(super) fn boolean(&mut self) -> Result<bool, UnreadableEntry> {
        match self.head()? {
            Head::Bool(value) => Ok(value),
            _ => Err(UnreadableEntry::Damaged("a truth value is missing")),
        }
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, UnreadableEntry> {
        match self.head()? {
            Head::Unsigned(value) => Ok(value),
            _ => Err(UnreadableEntry::Damaged("a number is missing")),
        }
    }

    pub(super) fn signed(&mut self) -> Result<i64, UnreadableEntry> {
        let missing = UnreadableEntry::Damaged("a number is missing");
        match self.head()? {
            Head::Signed(value) => Ok(value),
            Head::Unsigned(value) => i64::try_from(value).map_err(|_| missing),
            _ => Err(missing),
        }
    }

    pub(super) fn float(&mut self) -> Result<f64, UnreadableEntry> {
        match self.head()? {
            Head::Float(value) => Ok(value),
            _ => Err(UnreadableEntry::Damaged("a number is missing")),
        }
    }

    pub(super) fn text(&mut self) -> Result<&'a str, UnreadableEntry> {
        let missing = UnreadableEntry::Damaged("a text is missing");
        let Head::Text(len) = self.head()? else {
            return Err(missing);
        };
        std::str::from_utf8(self.take(len)?).map_err(|_| missing)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], UnreadableEntry> {
        match self.head()? {
            Head::Binary(len) => self.take(len),
            _ => Err(UnreadableEntry::Damaged("bytes are missing")),
        }
    }

    /// The length of a list.
    pub(super) fn list(&mut self) -> Result<usize, UnreadableEntry> {
        match self.head()? {
            Head::List(len) => Ok(len as usize),
            _ => Err(UnreadableEntry::Damaged("a list is missing")),
        }
    }

    /// The start of a structure with at least so many fields. Returns how many more it has.
    pub(super) fn fields(&mut self, known: usize) -> Result<usize, UnreadableEntry> {
        let len = self.list()?;
        let missing = UnreadableEntry::Damaged("a field is missing");
        len.checked_sub(known).ok_or(missing)
    }

    /// Skips values.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), UnreadableEntry> {
        for _ in 0..count {
            self.0 = msgpack::split(self.0)?.1;
        }
        Ok(())
    }

    /// Whether the next value is nil, which is skipped then.
    pub(super) fn is_nil(&mut self) -> Result<bool, UnreadableEntry> {
        let (head, rest) = Head::read(self.0)?;
        let is_nil = matches!(head, Head::Nil);
        if is_nil {
            self.0 = rest;
        }
        Ok(is_nil)
    }

    /// Whether the next value is a text.
    pub(super) fn is_text(&self) -> Result<bool, UnreadableEntry> {
        Ok(matches!(Head::read(self.0)?.0, Head::Text(_)))
    }

    fn head(&mut self) -> Result<Head, UnreadableEntry> {
        let (head, rest) = Head::read(self.0)?;
        self.0 = rest;
        Ok(head)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], UnreadableEntry> {
        let cut = UnreadableEntry::Damaged("it is cut off");
        let (taken, rest) = self.0.split_at_checked(len).ok_or(cut)?;
        self.0 = rest;
        Ok(taken)
    }
}
