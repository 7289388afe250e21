//! The storage of Davit's *journal*: an append-only record of what a host saw and decided.
//!
//! The crate knows nothing of what is recorded. An [`Entry`] is a time, the objects that it is
//! about, and a payload. A [`Writer`] appends entries to *segments*, files of a directory; each
//! segment starts with a *keyframe*, entries that together are the whole state at its start. A
//! [`Reader`] lists the segments, also beside a writer in another process, and yields the entries
//! of a span of time, or those about one object. `docs/journal.md` has the layout of a segment
//! and the guarantees.
//!
//! Nothing here has a thread or reads a clock: times are arguments, in microseconds since the
//! Unix epoch.

mod compress;
mod directory;
mod format;
mod held;
mod info;
mod parts;
mod reader;
mod segment;
mod storage;
mod verify;
mod writer;

use std::io;
use std::path::{Path, PathBuf};

pub use format::{MAX_ENTRY, MAX_METADATA, MAX_OBJECT, MAX_OBJECTS, VERSION};
pub use info::{SegmentInfo, SegmentState};
pub use reader::{Entries, Query, Reader};
pub use storage::{Files, Storage};
pub use verify::Verification;
pub use writer::{Recovery, Settings, Totals, Writer};

/// One entry of the journal, as a reader yields it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Microseconds since the Unix epoch, as the writer's caller gave them.
    pub time: i64,
    /// The uids of the objects that the entry is about.
    pub objects: Vec<String>,
    /// What the writer's caller recorded.
    pub payload: Vec<u8>,
    /// Why the entry is part of the answer.
    pub part: Part,
    /// The sequence number of the segment. A replay resets its state where the number changes:
    /// what happened between two segments may be unknown.
    pub segment: u64,
}

/// Why an entry is part of the answer to a [`Query`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It belongs to the keyframe of its segment.
    Keyframe,
    /// It was recorded after the keyframe, and its time is before the span.
    LeadIn,
    /// Its time is in the span.
    Span,
}

/// A torn tail that was cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment. It was removed if not even its header was complete.
    pub path: PathBuf,
    /// How many bytes were cut.
    pub bytes: u64,
}

/// What failed, and on which file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another writer holds the lock of the directory.
    #[error("another process records its journal in {}", .0.display())]
    Locked(PathBuf),
    /// A segment was written by a later version of Davit.
    #[error(
        "{} has version {found} of the journal's format; this version of Davit knows version \
         {VERSION} and those before it",
        path.display()
    )]
    Version {
        /// The segment.
        path: PathBuf,
        /// The version of its format.
        found: u32,
    },
    /// The operating system refused an operation.
    #[error("failed to {action} {}", path.display())]
    Io {
        /// What was attempted: a verb, as in "failed to write".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// An entry or a header exceeds a limit of the format. The writer's segment continues.
    #[error("{what} has the size {size}; the limit is {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size, in bytes; of a list, its length.
        size: usize,
        /// The largest size that the format allows.
        limit: usize,
    },
    /// The writer has no segment: none was started, or the last one failed.
    #[error("the journal has no segment to append to: start one")]
    NoSegment,
    /// The compressor failed, for lack of memory.
    #[error("failed to compress")]
    Compression(#[source] io::Error),
    /// A part of a segment cannot be read.
    #[error(transparent)]
    Damage(#[from] Damage),
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Io {
            action,
            path,
            source,
        }
    }
}

/// A part of a segment that cannot be read. The entries in it are lost; those before it and
/// those from the next good block on are not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is damaged at byte {offset}: {cause}", path.display())]
pub struct Damage {
    /// The segment.
    pub path: PathBuf,
    /// Where the damage starts, in bytes from the start of the file.
    pub offset: u64,
    /// What is wrong there.
    pub cause: Cause,
}

/// What is wrong with a part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The header of the segment is not one of a journal, or its checksum does not match.
    #[error("the segment's header is not valid")]
    SegmentHeader,
    /// The header of a chunk is none, or its checksum does not match.
    #[error("the chunk's header is not valid")]
    ChunkHeader,
    /// The checksum of a chunk's data does not match.
    #[error("the checksum of the chunk's data does not match")]
    Checksum,
    /// The file ends within a chunk.
    #[error("the file ends within a chunk")]
    Short,
    /// The checksums match, but the data are no entries, or not those that the header says.
    #[error("the chunk does not hold the entries that its header says")]
    Contents,
    /// A chunk is good, but continues a block whose earlier part is damaged.
    #[error("the chunk continues a block that is damaged")]
    Continuation,
    /// A part of an entry is missing, is there twice, or is not whole.
    #[error("the parts of an entry do not fit together")]
    Parts,
    /// The index at the end of the segment does not say what its blocks hold.
    #[error("the index does not match the blocks")]
    Index,
    /// The file was removed after the directory was listed.
    #[error("the segment was removed")]
    Removed,
    /// The operating system failed to read.
    #[error("the file cannot be read")]
    Unreadable,
}
