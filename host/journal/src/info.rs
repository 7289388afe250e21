//! What a reader knows of a segment without its entries.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::segment::SegmentFile;

/// A segment as a reader found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The file.
    pub path: PathBuf,
    /// Its place in the order in which segments were written.
    pub sequence: u64,
    /// When it was started: the time of its keyframe's state.
    pub start: i64,
    /// The earliest and the latest time of the entries after the keyframe, if there are any.
    pub times: Option<(i64, i64)>,
    /// How many entries the keyframe has.
    pub keyframe: u64,
    /// How many entries follow the keyframe.
    pub entries: u64,
    /// The size, in bytes, without a torn tail.
    pub bytes: u64,
    /// What the writer's caller recorded about itself.
    pub metadata: Vec<u8>,
    /// How the segment ends.
    pub state: SegmentState,
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// With its index.
    Finished,
    /// Without an index: it is still written, or its writer was killed.
    Unfinished {
        /// The size of what follows the last good chunk, in bytes.
        tail: u64,
    },
    /// Within its keyframe. Queries skip it, since its entries are no whole state.
    WithoutKeyframe {
        /// The size of what follows the last good chunk, in bytes.
        tail: u64,
    },
}

impl SegmentInfo {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let file = SegmentFile::open(path)?;
        let mut info = Self {
            path: file.path.clone(),
            sequence: file.header.sequence,
            start: file.header.start,
            times: None,
            keyframe: 0,
            entries: 0,
            bytes: file.length,
            metadata: file.header.metadata.clone(),
            state: SegmentState::Finished,
        };
        if let Some(trailer) = file.trailer {
            info.times = (trailer.entries > 0).then_some(trailer.times);
            info.keyframe = trailer.keyframe;
            info.entries = trailer.entries;
            return Ok(info);
        }
        let scan = file.scan();
        let tail = file.length - scan.end;
        info.times = scan.times.0;
        info.keyframe = scan.keyframe;
        info.entries = scan.entries;
        info.bytes = scan.end;
        info.state = if scan.has_keyframe {
            SegmentState::Unfinished { tail }
        } else {
            SegmentState::WithoutKeyframe { tail }
        };
        Ok(info)
    }

    /// Opens the segment as it was: without what another process has appended since.
    pub(crate) fn open(&self) -> Result<SegmentFile, Error> {
        let mut file = SegmentFile::open(&self.path)?;
        if self.state != SegmentState::Finished {
            file.trailer = None;
            file.length = file.length.min(self.bytes);
        }
        Ok(file)
    }

    pub(crate) fn has_keyframe(&self) -> bool {
        !matches!(self.state, SegmentState::WithoutKeyframe { .. })
    }

    pub(crate) fn first(&self) -> i64 {
        self.times
            .map_or(self.start, |(first, _)| first.min(self.start))
    }

    pub(crate) fn last(&self) -> i64 {
        self.times
            .map_or(self.start, |(_, last)| last.max(self.start))
    }
}
