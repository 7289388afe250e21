//! One segment, for reading: its header, its chunks, its index, and where it ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::DParameter;

use crate::format::{
    BlockRecord, CHUNK_HEADER, ChunkHeader, Cursor, FIRST, Header, HeaderError, INDEX, KEYFRAME,
    KEYFRAME_END, MAX_HEADER, MAX_WINDOW_LOG, RawEntry, Span, TRAILER, Trailer,
};
use crate::{Cause, Damage, Error};

/// How much of a file is searched at once for the next chunk.
const WINDOW: usize = 64 << 10;

/// A segment that is open for reading.
pub(crate) struct SegmentFile {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) header: Header,
    /// Where the first chunk starts.
    pub(crate) body: u64,
    /// The length of the file when it was opened.
    pub(crate) length: u64,
    /// What ends the segment, unless it is still written or the writer was killed.
    pub(crate) trailer: Option<Trailer>,
}

impl SegmentFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let damage = |cause| {
            Error::Damage(Damage {
                path: path.to_owned(),
                offset: 0,
                cause,
            })
        };
        let file = File::open(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => damage(Cause::Removed),
            _ => Error::io("open", path, source),
        })?;
        let failed = |source| Error::io("read", path, source);
        let length = file.metadata().map_err(failed)?.len();
        let mut start = vec![0; MAX_HEADER.min(usize::try_from(length).unwrap_or(MAX_HEADER))];
        file.read_exact_at(&mut start, 0).map_err(failed)?;
        let (header, body) = Header::decode(&start).map_err(|error| match error {
            HeaderError::Short => damage(Cause::Short),
            HeaderError::Invalid => damage(Cause::SegmentHeader),
            HeaderError::Version(found) => Error::Version {
                path: path.to_owned(),
                found,
            },
        })?;
        let mut segment = Self {
            path: path.to_owned(),
            file,
            header,
            body: body as u64,
            length,
            trailer: None,
        };
        segment.trailer = segment.read_trailer();
        Ok(segment)
    }

    fn read_trailer(&self) -> Option<Trailer> {
        let offset = self.length.checked_sub(TRAILER as u64)?;
        let mut bytes = [0; TRAILER];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        let trailer = Trailer::decode(&bytes, self.header.sequence, offset)?;
        (trailer.index >= self.body).then_some(trailer)
    }

    /// Where the chunks with entries end.
    pub(crate) fn end(&self) -> u64 {
        self.trailer.map_or(self.length, |trailer| trailer.index)
    }

    pub(crate) fn damage(&self, offset: u64, cause: Cause) -> Damage {
        let path = self.path.clone();
        Damage {
            path,
            offset,
            cause,
        }
    }

    /// Reads bytes that are below the end of the file as it was.
    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), Cause> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Cause::Short,
            _ => Cause::Unreadable,
        })
    }

    fn chunk_header(&self, offset: u64, limit: u64) -> Result<ChunkHeader, Cause> {
        if limit.saturating_sub(offset) < CHUNK_HEADER as u64 {
            return Err(Cause::Short);
        }
        let mut bytes = [0; CHUNK_HEADER];
        self.read(&mut bytes, offset)?;
        let header = ChunkHeader::decode(&bytes, self.header.sequence, offset);
        header.ok_or(Cause::ChunkHeader)
    }

    /// Where the next valid header of a chunk starts, from an offset on; else the limit.
    fn next_chunk(&self, mut from: u64, limit: u64) -> u64 {
        let mut window = Vec::new();
        while limit.saturating_sub(from) >= CHUNK_HEADER as u64 {
            let size = usize::try_from(limit - from).map_or(WINDOW, |size| size.min(WINDOW));
            window.resize(size, 0);
            if self.read(&mut window, from).is_err() {
                break;
            }
            let mut at = 0;
            while let Some(found) = ChunkHeader::find(&window, at) {
                let offset = from + found as u64;
                let header = window.get(found..found + CHUNK_HEADER);
                let header =
                    header.and_then(|h| ChunkHeader::decode(h, self.header.sequence, offset));
                if header.is_some() {
                    return offset;
                }
                at = found + 1;
            }
            // A header may start at the end of this window.
            from += (size - CHUNK_HEADER + 1) as u64;
        }
        limit
    }

    /// Reads the checksums of the whole segment. Nothing is decompressed.
    pub(crate) fn scan(&self) -> Scan {
        let mut scan = Scan {
            end: self.body,
            ..Scan::default()
        };
        let mut walk = Walk::new(self.body, self.length);
        while let Some(next) = walk.next(self) {
            let (_, header) = match next {
                Ok(found) => found,
                // The chunk itself is good.
                Err((_, Cause::Continuation)) => {
                    scan.end = walk.offset;
                    continue;
                }
                Err(_) => continue,
            };
            scan.end = walk.offset;
            if header.has(KEYFRAME) {
                scan.keyframe += u64::from(header.entries);
            } else if header.entries > 0 && !header.has(INDEX) {
                scan.entries += u64::from(header.entries);
                scan.times.join(Span(Some(header.times)));
            }
            scan.has_keyframe |= header.has(KEYFRAME_END) || !header.has(KEYFRAME);
        }
        scan
    }

    /// The index of a segment that ended regularly; nothing if it is damaged.
    pub(crate) fn index(&self) -> Option<Index> {
        let trailer = self.trailer?;
        let mut walk = Walk::new(trailer.index, self.length - TRAILER as u64);
        let (_, header) = walk.next(self)?.ok()?;
        if !header.has(INDEX) {
            return None;
        }
        let index = Index {
            data: walk.data,
            at: 0,
            end: trailer.index,
        };
        index.is_valid(self.body, header.entries).then_some(index)
    }
}

/// What the headers of a segment's chunks say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// Where the last good chunk ends. What follows is torn.
    pub(crate) end: u64,
    pub(crate) keyframe: u64,
    /// The entries after the keyframe.
    pub(crate) entries: u64,
    pub(crate) times: Span,
    pub(crate) has_keyframe: bool,
}

/// Goes from chunk to chunk between two offsets. Where one is damaged, it continues at the next.
pub(crate) struct Walk {
    offset: u64,
    limit: u64,
    /// Whether the blocks' parts so far are complete.
    is_synced: bool,
    /// The data of the last chunk.
    pub(crate) data: Vec<u8>,
}

impl Walk {
    pub(crate) fn new(offset: u64, limit: u64) -> Self {
        Self {
            offset,
            limit,
            is_synced: false,
            data: Vec::new(),
        }
    }

    /// Continues elsewhere.
    pub(crate) fn jump(&mut self, offset: u64, limit: u64) {
        (self.offset, self.limit, self.is_synced) = (offset, limit, false);
    }

    /// The rest of the block cannot be decoded.
    pub(crate) fn lose_block(&mut self) {
        self.is_synced = false;
    }

    /// The next chunk and where it starts, or what is wrong there. `data` has its data then.
    pub(crate) fn next(
        &mut self,
        file: &SegmentFile,
    ) -> Option<Result<(u64, ChunkHeader), (u64, Cause)>> {
        if self.offset >= self.limit {
            return None;
        }
        let offset = self.offset;
        let header = match file.chunk_header(offset, self.limit) {
            Ok(header) if header.size() <= self.limit - offset => header,
            Ok(_) => return Some(Err(self.skip(file, Cause::Short))),
            Err(cause) => return Some(Err(self.skip(file, cause))),
        };
        self.data.resize(header.data as usize, 0);
        if let Err(cause) = file.read(&mut self.data, offset + CHUNK_HEADER as u64) {
            return Some(Err(self.skip(file, cause)));
        }
        self.offset = offset + header.size();
        if crc32fast::hash(&self.data) != header.checksum {
            self.is_synced = false;
            return Some(Err((offset, Cause::Checksum)));
        }
        let is_alone = header.has(INDEX) || header.entries == 0;
        self.is_synced |= header.has(FIRST);
        if !self.is_synced && !is_alone {
            return Some(Err((offset, Cause::Continuation)));
        }
        Some(Ok((offset, header)))
    }

    fn skip(&mut self, file: &SegmentFile, cause: Cause) -> (u64, Cause) {
        let offset = self.offset;
        self.is_synced = false;
        self.offset = match cause {
            // A disk that fails is not asked for every byte.
            Cause::Unreadable => self.limit,
            _ => file.next_chunk(offset + 1, self.limit),
        };
        (offset, cause)
    }
}

/// Decompresses the chunks of a block, one after the other.
pub(crate) struct Inflater {
    decoder: Decoder<'static>,
    raw: Vec<u8>,
    /// The entries that were not read yet start here.
    at: usize,
    last: i64,
    is_keyframe: bool,
}

impl Inflater {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut decoder = Decoder::new().map_err(Error::Compression)?;
        let window = DParameter::WindowLogMax(MAX_WINDOW_LOG);
        decoder.set_parameter(window).map_err(Error::Compression)?;
        Ok(Self {
            decoder,
            raw: Vec::new(),
            at: 0,
            last: 0,
            is_keyframe: false,
        })
    }

    /// Takes a chunk, and checks every entry in it before it returns the first.
    pub(crate) fn feed(&mut self, header: &ChunkHeader, data: &[u8]) -> Result<(), Cause> {
        if header.has(FIRST) {
            self.decoder.reinit().map_err(|_| Cause::Contents)?;
            self.last = 0;
        }
        self.is_keyframe = header.has(KEYFRAME);
        self.at = 0;
        self.inflate(header.raw as usize, data);
        if self.raw.len() == header.raw as usize && self.holds(header) {
            return Ok(());
        }
        self.raw.clear();
        Err(Cause::Contents)
    }

    /// Leaves other than `size` bytes if the data are no more of the frame, or of another size.
    fn inflate(&mut self, size: usize, data: &[u8]) {
        self.raw.clear();
        // One more, to see what is too much.
        self.raw.reserve_exact(size + 1);
        let mut input = InBuffer::around(data);
        let mut output = OutBuffer::around(&mut self.raw);
        let mut is_whole = false;
        while !is_whole {
            let before = (input.pos(), output.pos());
            if self.decoder.run(&mut input, &mut output).is_err() {
                break;
            }
            let is_stuck = before == (input.pos(), output.pos());
            is_whole = is_stuck && input.pos() == data.len();
            if is_stuck {
                break;
            }
        }
        if !is_whole {
            self.raw.clear();
            self.raw.resize(size + 1, 0);
        }
    }

    fn holds(&self, header: &ChunkHeader) -> bool {
        let mut cursor = Cursor(&self.raw);
        let (mut last, mut times) = (self.last, Span::default());
        for _ in 0..header.entries {
            let Some(entry) = RawEntry::decode(&mut cursor, last) else {
                return false;
            };
            last = entry.time;
            times.add(last);
        }
        cursor.0.is_empty() && times.stored() == header.times
    }

    /// The next entry of the chunk, and whether it belongs to the keyframe.
    pub(crate) fn next(&mut self) -> Option<(RawEntry<'_>, bool)> {
        let mut cursor = Cursor(self.raw.get(self.at..)?);
        if cursor.0.is_empty() {
            return None;
        }
        let entry = RawEntry::decode(&mut cursor, self.last)?;
        self.at = self.raw.len() - cursor.0.len();
        self.last = entry.time;
        Some((entry, self.is_keyframe))
    }
}

/// The index of a segment, as bytes: its records are decoded one at a time.
pub(crate) struct Index {
    data: Vec<u8>,
    at: usize,
    /// Where the last block ends.
    end: u64,
}

impl Index {
    /// The next block's record, and where the block ends.
    pub(crate) fn next(&mut self, keep: impl FnMut(u32) -> bool) -> Option<(BlockRecord, u64)> {
        let mut cursor = Cursor(self.data.get(self.at..)?);
        let record = BlockRecord::decode(&mut cursor, keep)?;
        self.at = self.data.len() - cursor.0.len();
        let next = BlockRecord::decode(&mut cursor, |_| false);
        Some((record, next.map_or(self.end, |next| next.offset)))
    }

    /// Whether the blocks follow each other from `body` on, and are as many as the header says.
    fn is_valid(&self, body: u64, count: u32) -> bool {
        let mut cursor = Cursor(&self.data);
        let mut next = body;
        for _ in 0..count {
            match BlockRecord::decode(&mut cursor, |_| false) {
                Some(record) if (next..self.end).contains(&record.offset) => {
                    next = record.offset + 1;
                }
                _ => return false,
            }
        }
        cursor.0.is_empty()
    }
}
