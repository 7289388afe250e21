//! The bytes of a segment: headers, entries and the index. `docs/journal.md` describes them.
//!
//! All numbers are little-endian. What is decoded here may come from anywhere: every length is
//! compared with a limit before anything of that length is allocated.

use crc32fast::Hasher;

use crate::{Entry, Error, Part};

/// The version of the format that this crate writes. It reads the earlier ones too.
pub const VERSION: u32 = 2;
/// The largest payload of an entry, in bytes. It is stored in parts if it does not fit into one
/// chunk.
pub const MAX_ENTRY: usize = 256 << 20;
/// The most objects that an entry is about.
pub const MAX_OBJECTS: usize = 1000;
/// The longest uid of an object, in bytes.
pub const MAX_OBJECT: usize = 512;
/// The most metadata in the header of a segment, in bytes.
pub const MAX_METADATA: usize = 64 << 10;

/// The encoder fills a chunk up to this size, in bytes before compression. An entry that starts
/// below it may exceed it.
pub(crate) const CHUNK: usize = 128 << 10;
/// The most data in a chunk, in bytes: before and after compression, which may add some.
pub(crate) const MAX_CHUNK: usize = 4 << 20;
/// The largest index of a segment, in bytes.
pub(crate) const MAX_INDEX: usize = 16 << 20;
/// The largest entry that is stored whole, and the largest part of one that is not, in bytes.
pub(crate) const MAX_PART: usize = 2 << 20;
/// The payload of each part of an entry that is not stored whole, in bytes.
pub(crate) const PART: usize = 1 << 20;
/// A decoder allocates a window of up to two to the power of this.
pub(crate) const MAX_WINDOW_LOG: u32 = 22;

const MAGIC: [u8; 8] = *b"DAVITJNL";
const CHUNK_MAGIC: [u8; 4] = *b"DJck";
const TRAILER_MAGIC: [u8; 4] = *b"DJnd";

/// Magic, version and their checksum: these stay where they are in every version.
pub(crate) const PREFIX: usize = 16;
/// A segment's header without its metadata.
const FIXED_HEADER: usize = PREFIX + 24;
/// The longest header of a segment.
pub(crate) const MAX_HEADER: usize = FIXED_HEADER + MAX_METADATA;
/// A chunk's header.
pub(crate) const CHUNK_HEADER: usize = 44;
/// The end of a segment that ended regularly.
pub(crate) const TRAILER: usize = 48;

/// Which part of an entry stands in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The entry itself.
    Whole,
    /// The first part: others follow.
    First,
    /// A part between two others.
    Middle,
    /// The last part.
    Last,
}

impl Piece {
    /// What stands in front of the number of objects, which is never that large; none for a
    /// whole entry.
    const fn mark(self) -> Option<u64> {
        let first = MAX_OBJECTS as u64 + 1;
        match self {
            Self::Whole => None,
            Self::First => Some(first),
            Self::Middle => Some(first + 1),
            Self::Last => Some(first + 2),
        }
    }

    fn of_mark(number: u64) -> Option<Self> {
        let mut parts = [Self::First, Self::Middle, Self::Last].into_iter();
        parts.find(|part| part.mark() == Some(number))
    }
}

/// The chunk starts a block: the decoder needs nothing that precedes it.
pub(crate) const FIRST: u32 = 1;
/// The chunk's entries belong to the keyframe.
pub(crate) const KEYFRAME: u32 = 2;
/// The keyframe ends with this chunk.
pub(crate) const KEYFRAME_END: u32 = 4;
/// The chunk is the index of the segment.
pub(crate) const INDEX: u32 = 8;
const FLAGS: u32 = FIRST | KEYFRAME | KEYFRAME_END | INDEX;

/// Reads numbers and parts from bytes; nothing, where they end early.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Seven bits a byte, the lowest first; the highest bit says that more follow.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn length(&mut self, limit: usize) -> Option<usize> {
        let length = usize::try_from(self.varint()?).ok()?;
        (length <= limit).then_some(length)
    }
}

fn put_varint(into: &mut Vec<u8>, mut value: u64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            into.push(byte);
            return;
        }
        into.push(byte | 0x80);
    }
}

/// Small differences in either direction become small numbers.
fn zigzag(value: i64) -> u64 {
    (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// What stands at the start of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) start: i64,
    pub(crate) metadata: Vec<u8>,
}

/// Why the start of a file is no header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    /// The bytes end before the header does.
    Short,
    /// They are not those of a header.
    Invalid,
    /// They are the header of a segment of this other version.
    Version(u32),
}

impl Header {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.start.to_le_bytes());
        #[allow(clippy::cast_possible_truncation, reason = "at most MAX_METADATA")]
        bytes.extend((self.metadata.len() as u32).to_le_bytes());
        bytes.extend(&self.metadata);
        let (_, checked) = bytes.split_at(PREFIX);
        let checksum = crc32fast::hash(checked);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// The header at the start of the bytes, and its length.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, usize), HeaderError> {
        let mut cursor = Cursor(bytes);
        let version = Self::version(cursor.take(PREFIX).ok_or(HeaderError::Short)?)?;
        if !(1..=VERSION).contains(&version) {
            return Err(HeaderError::Version(version));
        }
        let checked = cursor;
        let mut fixed = || Some((cursor.u64()?, cursor.i64()?, cursor.u32()? as usize));
        let (sequence, start, length) = fixed().ok_or(HeaderError::Short)?;
        if length > MAX_METADATA {
            return Err(HeaderError::Invalid);
        }
        let metadata = cursor.take(length).ok_or(HeaderError::Short)?.to_vec();
        let checksum = cursor.u32().ok_or(HeaderError::Short)?;
        let (checked, _) = checked.0.split_at(FIXED_HEADER - PREFIX - 4 + length);
        if checksum != crc32fast::hash(checked) {
            return Err(HeaderError::Invalid);
        }
        let header = Self {
            sequence,
            start,
            metadata,
        };
        Ok((header, FIXED_HEADER + length))
    }

    fn version(prefix: &[u8]) -> Result<u32, HeaderError> {
        let mut cursor = Cursor(prefix);
        let is_magic = cursor.take(MAGIC.len()) == Some(&MAGIC);
        let version = cursor.u32().ok_or(HeaderError::Short)?;
        let checksum = cursor.u32().ok_or(HeaderError::Short)?;
        let (checked, _) = prefix.split_at(PREFIX - 4);
        if is_magic && checksum == crc32fast::hash(checked) {
            Ok(version)
        } else {
            Err(HeaderError::Invalid)
        }
    }
}

/// What precedes the data of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHeader {
    pub(crate) flags: u32,
    /// How many entries it has; of an index, how many blocks.
    pub(crate) entries: u32,
    /// The size of the entries, in bytes.
    pub(crate) raw: u32,
    /// The size of the data that follow: of the entries after compression.
    pub(crate) data: u32,
    /// The earliest and the latest time of its entries; without entries zero.
    pub(crate) times: (i64, i64),
    /// Of the data.
    pub(crate) checksum: u32,
}

impl ChunkHeader {
    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The size of the chunk with its header.
    pub(crate) fn size(&self) -> u64 {
        CHUNK_HEADER as u64 + u64::from(self.data)
    }

    /// The checksum includes the segment and the place in it, which are not stored: a chunk that
    /// is copied elsewhere, or is part of a payload, is none.
    pub(crate) fn encode(&self, sequence: u64, offset: u64) -> [u8; CHUNK_HEADER] {
        let mut bytes = Vec::with_capacity(CHUNK_HEADER);
        bytes.extend(CHUNK_MAGIC);
        for number in [self.flags, self.entries, self.raw, self.data] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.times.0.to_le_bytes());
        bytes.extend(self.times.1.to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        bytes.extend(placed_checksum(sequence, offset, &bytes).to_le_bytes());
        let mut array = [0; CHUNK_HEADER];
        array.copy_from_slice(&bytes);
        array
    }

    /// Nothing if this is no header of a chunk at this place of this segment.
    pub(crate) fn decode(bytes: &[u8], sequence: u64, offset: u64) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let is_magic = cursor.take(CHUNK_MAGIC.len())? == CHUNK_MAGIC;
        let header = Self {
            flags: cursor.u32()?,
            entries: cursor.u32()?,
            raw: cursor.u32()?,
            data: cursor.u32()?,
            times: (cursor.i64()?, cursor.i64()?),
            checksum: cursor.u32()?,
        };
        let (checked, _) = bytes.split_at_checked(CHUNK_HEADER - 4)?;
        let is_checked = cursor.u32()? == placed_checksum(sequence, offset, checked);
        let limit = if header.has(INDEX) {
            MAX_INDEX
        } else {
            MAX_CHUNK
        };
        let fits = |size: u32| size as usize <= limit;
        let is_valid = header.flags & !FLAGS == 0 && fits(header.raw) && fits(header.data);
        (is_magic && is_checked && is_valid).then_some(header)
    }

    /// The next place from `from` on at which a header of a chunk could start.
    pub(crate) fn find(bytes: &[u8], from: usize) -> Option<usize> {
        let rest = bytes.get(from..)?;
        let found = rest
            .windows(CHUNK_MAGIC.len())
            .position(|four| four == CHUNK_MAGIC);
        found.map(|position| from + position)
    }
}

fn placed_checksum(sequence: u64, offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// The end of a segment that ended regularly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// Where the chunk with the index starts.
    pub(crate) index: u64,
    /// The entries of the keyframe.
    pub(crate) keyframe: u64,
    /// The entries after the keyframe.
    pub(crate) entries: u64,
    /// The earliest and the latest time of the entries after the keyframe; without any zero.
    pub(crate) times: (i64, i64),
}

impl Trailer {
    pub(crate) fn encode(&self, sequence: u64, offset: u64) -> [u8; TRAILER] {
        let mut bytes = Vec::with_capacity(TRAILER);
        bytes.extend(TRAILER_MAGIC);
        for number in [self.index, self.keyframe, self.entries] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.times.0.to_le_bytes());
        bytes.extend(self.times.1.to_le_bytes());
        bytes.extend(placed_checksum(sequence, offset, &bytes).to_le_bytes());
        let mut array = [0; TRAILER];
        array.copy_from_slice(&bytes);
        array
    }

    /// Nothing if this is no trailer at this place of this segment.
    pub(crate) fn decode(bytes: &[u8], sequence: u64, offset: u64) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let is_magic = cursor.take(TRAILER_MAGIC.len())? == TRAILER_MAGIC;
        let trailer = Self {
            index: cursor.u64()?,
            keyframe: cursor.u64()?,
            entries: cursor.u64()?,
            times: (cursor.i64()?, cursor.i64()?),
        };
        let (checked, _) = bytes.split_at_checked(TRAILER - 4)?;
        let is_checked = cursor.u32()? == placed_checksum(sequence, offset, checked);
        (is_magic && is_checked && trailer.index < offset).then_some(trailer)
    }
}

/// Appends an entry, or a part of one. `last` is the time of the entry before it in the block.
pub(crate) fn put_entry(
    into: &mut Vec<u8>,
    last: i64,
    time: i64,
    objects: &[&str],
    (piece, payload): (Piece, &[u8]),
) {
    put_varint(into, zigzag(time.wrapping_sub(last)));
    if let Some(mark) = piece.mark() {
        put_varint(into, mark);
    }
    put_varint(into, objects.len() as u64);
    for object in objects {
        put_varint(into, object.len() as u64);
        into.extend(object.as_bytes());
    }
    put_varint(into, payload.len() as u64);
    into.extend(payload);
}

/// An entry as it stands in a chunk.
pub(crate) struct RawEntry<'a> {
    pub(crate) time: i64,
    pub(crate) piece: Piece,
    objects: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl<'a> RawEntry<'a> {
    /// The entry at the cursor; nothing if the bytes are none.
    pub(crate) fn decode(cursor: &mut Cursor<'a>, last: i64) -> Option<Self> {
        let time = last.wrapping_add(unzigzag(cursor.varint()?));
        let first = cursor.varint()?;
        let (piece, count) = match Piece::of_mark(first) {
            Some(part) => (part, cursor.length(MAX_OBJECTS)?),
            None => (Piece::Whole, usize::try_from(first).ok()?),
        };
        if count > MAX_OBJECTS {
            return None;
        }
        let start = cursor.0;
        for _ in 0..count {
            Self::object(cursor)?;
        }
        let (objects, _) = start.split_at(start.len() - cursor.0.len());
        let length = cursor.length(MAX_PART)?;
        let payload = cursor.take(length)?;
        Some(Self {
            time,
            piece,
            objects,
            payload,
        })
    }

    fn object(cursor: &mut Cursor<'a>) -> Option<&'a str> {
        let length = cursor.length(MAX_OBJECT)?;
        str::from_utf8(cursor.take(length)?).ok()
    }

    pub(crate) fn to_entry(&self, payload: Vec<u8>, part: Part, segment: u64) -> Entry {
        Entry {
            time: self.time,
            objects: self.objects().map(str::to_owned).collect(),
            payload,
            part,
            segment,
        }
    }

    /// The objects as they are stored.
    pub(crate) const fn encoded_objects(&self) -> &'a [u8] {
        self.objects
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &'a str> {
        let mut cursor = Cursor(self.objects);
        std::iter::from_fn(move || Self::object(&mut cursor))
    }
}

/// The earliest and the latest of some times, which come in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Option<(i64, i64)>);

impl Span {
    pub(crate) fn add(&mut self, time: i64) {
        self.join(Self(Some((time, time))));
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.0 = match (self.0, other.0) {
            (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
            (one, other) => one.or(other),
        };
    }

    /// As headers have it: zero without a time.
    pub(crate) fn stored(self) -> (i64, i64) {
        self.0.unwrap_or_default()
    }
}

/// What the index says about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockRecord {
    /// Where its first chunk starts.
    pub(crate) offset: u64,
    /// How many entries it has.
    pub(crate) entries: u32,
    pub(crate) is_keyframe: bool,
    /// The earliest and the latest time of its entries.
    pub(crate) times: (i64, i64),
    /// The fingerprints of the objects in it, sorted and distinct.
    pub(crate) fingerprints: Vec<u32>,
}

/// What stands for an object in the index. Two objects may have the same fingerprint.
pub(crate) fn fingerprint(object: &str) -> u32 {
    crc32fast::hash(object.as_bytes())
}

impl BlockRecord {
    /// As the index has it: each fingerprint once, in order.
    pub(crate) fn sort(&mut self) {
        self.fingerprints.sort_unstable();
        self.fingerprints.dedup();
    }

    /// Appends the record, whose fingerprints are sorted.
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        put_varint(into, self.offset);
        put_varint(into, u64::from(self.entries));
        put_varint(into, u64::from(self.is_keyframe));
        put_varint(into, zigzag(self.times.0));
        put_varint(into, zigzag(self.times.1));
        put_varint(into, self.fingerprints.len() as u64);
        let mut last = 0;
        for fingerprint in &self.fingerprints {
            put_varint(into, u64::from(fingerprint - last));
            last = *fingerprint;
        }
    }

    /// The record at the cursor, with the fingerprints that `keep` chooses: a reader has no use
    /// for all of them at once.
    pub(crate) fn decode(
        cursor: &mut Cursor<'_>,
        mut keep: impl FnMut(u32) -> bool,
    ) -> Option<Self> {
        let mut record = Self {
            offset: cursor.varint()?,
            entries: u32::try_from(cursor.varint()?).ok()?,
            is_keyframe: match cursor.varint()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            times: (unzigzag(cursor.varint()?), unzigzag(cursor.varint()?)),
            fingerprints: Vec::new(),
        };
        let mut last: u32 = 0;
        for _ in 0..cursor.varint()? {
            last = last.checked_add(u32::try_from(cursor.varint()?).ok()?)?;
            if keep(last) {
                record.fingerprints.push(last);
            }
        }
        Some(record)
    }
}

/// Fails if an entry is larger than the format allows.
pub(crate) fn check_entry(objects: &[&str], payload: &[u8]) -> Result<(), Error> {
    check_size("the entry's list of objects", objects.len(), MAX_OBJECTS)?;
    for object in objects {
        check_size("the uid of an object", object.len(), MAX_OBJECT)?;
    }
    check_size("the entry", payload.len(), MAX_ENTRY)
}

/// Fails if a size exceeds its limit.
pub(crate) fn check_size(what: &'static str, size: usize, limit: usize) -> Result<(), Error> {
    if size > limit {
        return Err(Error::TooLarge { what, size, limit });
    }
    Ok(())
}
