//! Writes a journal: segments with keyframes, chunks, and the index at the end of each.
//!
//! A failed operation ends the segment. What was half written is cut, and the caller starts
//! another segment when it likes; until then every operation returns [`Error::NoSegment`].

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zstd::stream::raw::{Encoder, Operation as _};

use crate::compress::{compress, encoder};
use crate::directory::{Directory, Listing, file_name};
use crate::format::{
    BlockRecord, CHUNK, CHUNK_HEADER, ChunkHeader, FIRST, Header, INDEX, KEYFRAME, KEYFRAME_END,
    MAX_INDEX, MAX_METADATA, Piece, Span, Trailer, check_entry, check_size, fingerprint, put_entry,
};
use crate::parts::pieces;
use crate::storage::{Files, Storage};
use crate::{Cut, Error};

/// How large a journal becomes, and how it is compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// When the clock is this far from its start, a segment ends: as often a keyframe is written.
    pub segment_age: Duration,
    /// After this much behind its keyframe a segment ends, in bytes of the file.
    pub segment_bytes: u64,
    /// The oldest segments are removed while all together are larger, in bytes. The segment that
    /// is being written is never removed.
    pub total_bytes: u64,
    /// A segment is removed when the one that follows it is older than this.
    pub max_age: Duration,
    /// The size of a block, in bytes before compression: what a reader decompresses at least. More
    /// than 4 MiB compress no better.
    pub block_bytes: usize,
    /// The level of zstd, 1 to 19.
    pub level: i32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            segment_age: Duration::from_secs(6 * 3600),
            segment_bytes: 64 << 20,
            total_bytes: 1 << 30,
            max_age: Duration::from_secs(7 * 24 * 3600),
            block_bytes: 4 << 20,
            level: 6,
        }
    }
}

/// What a writer found and did when it opened a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The last segment, if its writer was killed and left a torn tail.
    pub cut: Option<Cut>,
    /// The segments that were too old or too much.
    pub removed: Vec<PathBuf>,
    /// How many lines of the file `held` could not be read: their segments are held no longer,
    /// and may be removed by age ([`Writer::hold`]).
    pub unreadable_held: usize,
}

/// What a writer has done since it was opened, and the size of its directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Entries that reached the file, those of keyframes included.
    pub entries: u64,
    /// Bytes that reached a file.
    pub written_bytes: u64,
    /// Segments that were removed by age or size.
    pub removed: u64,
    /// Those of them that were held for longer ([`Writer::hold`]): the directory was too large.
    pub removed_held: u64,
    /// The segments of the directory.
    pub segments: u64,
    /// The size of all segments, in bytes.
    pub bytes: u64,
}

/// Records a journal in a directory.
pub struct Writer<S: Storage = Files> {
    storage: S,
    directory: Directory,
    settings: Settings,
    encoder: Encoder<'static>,
    /// A chunk on its way to the file.
    buffer: Vec<u8>,
    open: Option<Segment<S::File>>,
    /// What a failed operation left behind, and the disk did not let cut.
    leftover: Option<Leftover>,
    totals: Totals,
    /// The last time that the caller gave.
    now: i64,
}

/// The segment that is being written.
struct Segment<F> {
    file: F,
    path: PathBuf,
    sequence: u64,
    start: i64,
    /// The length of the file up to its last whole chunk.
    length: u64,
    /// Where the keyframe ends; none while it is written.
    keyframe_end: Option<u64>,
    /// The entries that are in no chunk yet, encoded.
    pending: Vec<u8>,
    pending_entries: u32,
    pending_times: Span,
    /// The time of the last entry of the block.
    last: i64,
    block: Block,
    index: Vec<u8>,
    blocks: u32,
    keyframe: u64,
    entries: u64,
    times: Span,
}

/// The block that is being written.
#[derive(Default)]
struct Block {
    /// Where its first chunk starts, once there is one.
    offset: Option<u64>,
    /// The size of its entries, in bytes.
    raw: usize,
    entries: u32,
    times: Span,
    fingerprints: Vec<u32>,
}

enum Leftover {
    Cut(PathBuf, u64),
    Remove(PathBuf),
}

impl Writer {
    /// Locks the directory, which is created if it does not exist, and makes it ready: a torn
    /// tail of the last segment is cut, and segments that are too old are removed. No segment is
    /// started.
    ///
    /// Fails if another process records there, if a segment has another version of the format, or
    /// if the disk fails.
    pub fn open(directory: &Path, settings: Settings, now: i64) -> Result<(Self, Recovery), Error> {
        Self::open_on(Files, directory, settings, now)
    }
}

impl<S: Storage> Writer<S> {
    /// Like [`Writer::open`], with a storage of the caller.
    pub fn open_on(
        storage: S,
        directory: &Path,
        settings: Settings,
        now: i64,
    ) -> Result<(Self, Recovery), Error> {
        let mut writer = Self {
            storage,
            directory: Directory::open(directory)?,
            encoder: encoder(settings.level, settings.block_bytes).map_err(Error::Compression)?,
            settings,
            buffer: Vec::new(),
            open: None,
            leftover: None,
            totals: Totals::default(),
            now,
        };
        let cut = writer.directory.cut_tail(&mut writer.storage)?;
        let removed = writer.remove_old(now)?;
        let recovery = Recovery {
            cut,
            removed,
            unreadable_held: writer.directory.unreadable_held(),
        };
        Ok((writer, recovery))
    }

    /// Whether the caller should start a segment before it appends: there is none, or the open
    /// one is old or large enough. A clock that was set back far makes it old, too.
    #[must_use]
    pub fn needs_segment(&self, now: i64) -> bool {
        let Some(segment) = &self.open else {
            return true;
        };
        let Some(keyframe_end) = segment.keyframe_end else {
            return false;
        };
        let age = self.settings.segment_age.as_micros();
        u128::from(now.abs_diff(segment.start)) >= age
            || segment.length - keyframe_end >= self.settings.segment_bytes
            || segment.index.len() >= MAX_INDEX / 2
    }

    /// Ends the open segment, removes old segments, and starts another one. What is appended next
    /// is its keyframe, until [`Writer::end_keyframe`]. `metadata` says who records; readers get
    /// it as it is.
    pub fn start_segment(&mut self, now: i64, metadata: &[u8]) -> Result<(), Error> {
        check_size("the metadata", metadata.len(), MAX_METADATA)?;
        self.finish()?;
        self.clear_leftover()?;
        self.now = now;
        self.remove_old(now)?;
        let sequence = self.directory.take_sequence();
        let path = self.directory.path().join(file_name(sequence, now));
        let file = self.storage.create(&path);
        let file = file.map_err(|source| Error::io("create", &path, source))?;
        let header = Header {
            sequence,
            start: now,
            metadata: metadata.to_owned(),
        };
        self.open = Some(Segment::new(file, path, &header));
        let header = header.encode();
        self.attempt(|writer, segment| writer.write(segment, &header))
    }

    /// Appends an entry: its time, the uids of the objects that it is about, and its payload. It
    /// reaches the file with the next flush, or when enough has come together.
    pub fn append(&mut self, time: i64, objects: &[&str], payload: &[u8]) -> Result<(), Error> {
        check_entry(objects, payload)?;
        self.now = time;
        self.attempt(|writer, segment| {
            let mut pieces = pieces(objects, payload);
            pieces.try_for_each(|piece| writer.push(segment, time, objects, piece))
        })
    }

    fn push(
        &mut self,
        segment: &mut Segment<S::File>,
        time: i64,
        objects: &[&str],
        content: (Piece, &[u8]),
    ) -> Result<(), Error> {
        segment.push(time, objects, content);
        if segment.pending.len() >= CHUNK {
            self.write_chunk(segment, 0)?;
        }
        if segment.block.raw >= self.settings.block_bytes {
            self.write_chunk(segment, 0)?;
            segment.end_block();
        }
        Ok(())
    }

    /// Keeps the open segment until this time, whatever its age, also by later writers of the
    /// directory. The limit of the directory's size still holds. Segments are removed in their
    /// order, so later ones stay too.
    pub fn hold(&mut self, until: i64) -> Result<(), Error> {
        let segment = self.open.as_ref().ok_or(Error::NoSegment)?;
        self.directory.hold(segment.sequence, until)
    }

    /// The keyframe is complete: what follows are entries as they come. The keyframe is synced to
    /// the disk.
    pub fn end_keyframe(&mut self) -> Result<(), Error> {
        self.attempt(|writer, segment| {
            if segment.keyframe_end.is_some() {
                return Ok(());
            }
            writer.write_chunk(segment, KEYFRAME_END)?;
            segment.end_block();
            segment.keyframe_end = Some(segment.length);
            writer.sync(segment)?;
            let directory = writer.directory.path();
            let synced = writer.storage.sync_directory(directory);
            synced.map_err(|source| Error::io("sync", directory, source))
        })
    }

    /// Writes what was appended to the file, and with `sync` waits until it is on the disk.
    /// Without, it survives the end of the process, but not the end of the machine.
    pub fn flush(&mut self, sync: bool) -> Result<(), Error> {
        self.attempt(|writer, segment| {
            writer.write_chunk(segment, 0)?;
            if sync { writer.sync(segment) } else { Ok(()) }
        })
    }

    /// Ends the open segment with its index, if one is open, and unlocks the directory.
    pub fn close(mut self) -> Result<(), Error> {
        self.finish()
    }

    /// What was done so far, and the size of the directory.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let open = self.open.as_ref();
        Totals {
            removed: self.directory.removed(),
            removed_held: self.directory.removed_held(),
            segments: self.directory.len() as u64 + u64::from(open.is_some()),
            bytes: self.directory.bytes() + open.map_or(0, |segment| segment.length),
            ..self.totals
        }
    }

    /// Ends the open segment with its index. One without a whole keyframe is removed.
    fn finish(&mut self) -> Result<(), Error> {
        if self.open.is_none() {
            return Ok(());
        }
        self.attempt(|writer, segment| {
            if segment.keyframe_end.is_some() {
                writer.write_chunk(segment, 0)?;
                segment.end_block();
                writer.write_index(segment)?;
                writer.sync(segment)?;
            }
            Ok(())
        })?;
        if let Some(segment) = self.open.take() {
            if segment.keyframe_end.is_some() {
                self.directory.close(segment.listing());
            } else {
                self.abandon(segment);
            }
        }
        Ok(())
    }

    /// An operation on the open segment. If it fails, the segment ends.
    fn attempt(
        &mut self,
        operation: impl FnOnce(&mut Self, &mut Segment<S::File>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut segment = self.open.take().ok_or(Error::NoSegment)?;
        let done = operation(self, &mut segment);
        match done {
            Ok(()) => self.open = Some(segment),
            Err(_) => self.abandon(segment),
        }
        done
    }

    /// Leaves a failed segment as its last whole chunk ended it, or removes it if its keyframe is
    /// not whole: a disk may be full because of it.
    fn abandon(&mut self, segment: Segment<S::File>) {
        self.leftover = Some(if segment.keyframe_end.is_some() {
            Leftover::Cut(segment.path.clone(), segment.length)
        } else {
            Leftover::Remove(segment.path.clone())
        });
        if segment.keyframe_end.is_some() {
            self.directory.close(segment.listing());
        }
        drop(segment);
        // The next start of a segment attempts it again, and reports the error.
        _ = self.clear_leftover();
    }

    fn clear_leftover(&mut self) -> Result<(), Error> {
        let Some(leftover) = &self.leftover else {
            return Ok(());
        };
        let (action, path, done) = match leftover {
            Leftover::Cut(path, length) => ("cut", path, self.storage.truncate(path, *length)),
            Leftover::Remove(path) => ("remove", path, self.storage.remove(path)),
        };
        match done {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(action, path, source))
            }
            _ => {
                self.leftover = None;
                Ok(())
            }
        }
    }

    /// Compresses what is pending as one chunk, and writes it. Without entries and flags there is
    /// nothing to write.
    fn write_chunk(&mut self, segment: &mut Segment<S::File>, flags: u32) -> Result<(), Error> {
        if segment.pending_entries == 0 && flags == 0 {
            return Ok(());
        }
        let is_first = segment.block.offset.is_none();
        let mut header = ChunkHeader {
            flags,
            entries: segment.pending_entries,
            raw: size(segment.pending.len()),
            data: 0,
            times: segment.pending_times.stored(),
            checksum: 0,
        };
        if is_first {
            header.flags |= FIRST;
            segment.block.offset = Some(segment.length);
            self.encoder.reinit().map_err(Error::Compression)?;
        }
        if segment.keyframe_end.is_none() {
            header.flags |= KEYFRAME;
        }
        self.buffer.clear();
        self.buffer.resize(CHUNK_HEADER, 0);
        compress(&mut self.encoder, &segment.pending, &mut self.buffer)
            .map_err(Error::Compression)?;
        self.write_buffer(segment, header)?;
        self.totals.entries += u64::from(header.entries);
        segment.note_chunk(&header);
        let rest = self.settings.total_bytes.saturating_sub(segment.length);
        let (storage, now) = (&mut self.storage, self.now);
        // Until this segment has its whole keyframe, nothing else has the state of its time.
        let least = usize::from(segment.keyframe_end.is_none());
        let removed = self.directory.remove_surplus(storage, rest, least, now);
        removed.map(drop)
    }

    fn write_index(&mut self, segment: &mut Segment<S::File>) -> Result<(), Error> {
        let offset = segment.length;
        let header = ChunkHeader {
            flags: INDEX,
            entries: segment.blocks,
            raw: size(segment.index.len()),
            data: 0,
            times: (0, 0),
            checksum: 0,
        };
        self.buffer.clear();
        self.buffer.resize(CHUNK_HEADER, 0);
        self.buffer.append(&mut segment.index);
        self.write_buffer(segment, header)?;
        let trailer = Trailer {
            index: offset,
            keyframe: segment.keyframe,
            entries: segment.entries,
            times: segment.times.stored(),
        };
        let trailer = trailer.encode(segment.sequence, segment.length);
        self.write(segment, &trailer)
    }

    /// Writes a chunk whose data stand in the buffer behind the place of the header.
    fn write_buffer(
        &mut self,
        segment: &mut Segment<S::File>,
        mut header: ChunkHeader,
    ) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Some((place, data)) = buffer.split_at_mut_checked(CHUNK_HEADER) {
            header.data = size(data.len());
            header.checksum = crc32fast::hash(data);
            place.copy_from_slice(&header.encode(segment.sequence, segment.length));
        }
        let written = self.write(segment, &buffer);
        // What a single large entry needed is not kept.
        buffer.clear();
        buffer.shrink_to(2 * CHUNK);
        self.buffer = buffer;
        written
    }

    /// Appends all of the bytes. The length of the segment grows only if that succeeds.
    fn write(&mut self, segment: &mut Segment<S::File>, bytes: &[u8]) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let written = self.storage.write(&mut segment.file, rest);
            let written = written.and_then(|count| match rest.split_at_checked(count) {
                Some((_, rest)) if count > 0 => Ok(rest),
                _ => Err(io::ErrorKind::WriteZero.into()),
            });
            match written {
                Ok(left) => rest = left,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::io("write", &segment.path, source)),
            }
        }
        segment.length += bytes.len() as u64;
        self.totals.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self, segment: &mut Segment<S::File>) -> Result<(), Error> {
        let synced = self.storage.sync(&mut segment.file);
        synced.map_err(|source| Error::io("sync", &segment.path, source))
    }

    /// Removes what is too old or too much. The last segment stays: nothing else has the state
    /// of its time.
    fn remove_old(&mut self, now: i64) -> Result<Vec<PathBuf>, Error> {
        let oldest = now.saturating_sub(micros(self.settings.max_age));
        let (directory, storage) = (&mut self.directory, &mut self.storage);
        let mut removed = directory.remove_older(storage, oldest, now)?;
        let total = self.settings.total_bytes;
        removed.extend(directory.remove_surplus(storage, total, 1, now)?);
        Ok(removed)
    }
}

impl<F> Segment<F> {
    fn new(file: F, path: PathBuf, header: &Header) -> Self {
        Self {
            file,
            path,
            sequence: header.sequence,
            start: header.start,
            length: 0,
            keyframe_end: None,
            pending: Vec::new(),
            pending_entries: 0,
            pending_times: Span::default(),
            last: 0,
            block: Block::default(),
            index: Vec::new(),
            blocks: 0,
            keyframe: 0,
            entries: 0,
            times: Span::default(),
        }
    }

    fn listing(&self) -> Listing {
        Listing {
            sequence: self.sequence,
            start: self.start,
            path: self.path.clone(),
            bytes: self.length,
        }
    }

    fn push(&mut self, time: i64, objects: &[&str], content: (Piece, &[u8])) {
        let before = self.pending.len();
        put_entry(&mut self.pending, self.last, time, objects, content);
        self.last = time;
        self.pending_entries += 1;
        self.pending_times.add(time);
        self.block.raw += self.pending.len() - before;
        let fingerprints = objects.iter().map(|object| fingerprint(object));
        self.block.fingerprints.extend(fingerprints);
    }

    /// What is pending is in the file now.
    fn note_chunk(&mut self, header: &ChunkHeader) {
        self.block.entries += header.entries;
        self.block.times.join(self.pending_times);
        if self.keyframe_end.is_none() {
            self.keyframe += u64::from(header.entries);
        } else {
            self.entries += u64::from(header.entries);
            self.times.join(self.pending_times);
        }
        self.pending.clear();
        self.pending.shrink_to(2 * CHUNK);
        self.pending_entries = 0;
        self.pending_times = Span::default();
    }

    /// The next chunk starts a block. The index has a record of each block with entries.
    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.last = 0;
        if let Some(offset) = block.offset.filter(|_| block.entries > 0) {
            let mut record = BlockRecord {
                offset,
                entries: block.entries,
                is_keyframe: self.keyframe_end.is_none(),
                times: block.times.stored(),
                fingerprints: block.fingerprints,
            };
            record.sort();
            record.put(&mut self.index);
            self.blocks += 1;
        }
    }
}

fn size(length: usize) -> u32 {
    // The limits of entries, chunks and the index are far below.
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
