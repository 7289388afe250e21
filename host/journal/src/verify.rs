//! Reads all of a journal, and compares what belongs together.

use crate::format::{
    BlockRecord, ChunkHeader, FIRST, INDEX, KEYFRAME, RawEntry, Span, fingerprint,
};
use crate::info::{SegmentInfo, SegmentState};
use crate::parts::PartOrder;
use crate::segment::{Index, Inflater, SegmentFile, Walk};
use crate::{Cause, Damage, Error};

/// How many damages a [`Verification`] lists; it counts all.
const MAX_LISTED: usize = 1000;

/// What a journal holds, as [`Reader::verify`](crate::Reader::verify) found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Segments that were read.
    pub segments: u64,
    /// Good chunks with entries.
    pub chunks: u64,
    /// Good entries, those of keyframes included.
    pub entries: u64,
    /// The size of the segments, in bytes, without torn tails.
    pub bytes: u64,
    /// The size of all torn tails, in bytes: of segments that are still written, or whose writer
    /// was killed. A torn tail is no damage.
    pub tails: u64,
    /// Segments that end within their keyframe.
    pub without_keyframe: u64,
    /// How many parts are damaged.
    pub damages: u64,
    /// The first thousand of them.
    pub damage: Vec<Damage>,
}

impl Verification {
    pub(crate) fn report(&mut self, damage: Damage) {
        self.damages += 1;
        if self.damage.len() < MAX_LISTED {
            self.damage.push(damage);
        }
    }

    pub(crate) fn segment(&mut self, info: &SegmentInfo) -> Result<(), Error> {
        self.segments += 1;
        self.bytes += info.bytes;
        match info.state {
            SegmentState::Finished => {}
            SegmentState::Unfinished { tail } => self.tails += tail,
            SegmentState::WithoutKeyframe { tail } => {
                self.tails += tail;
                self.without_keyframe += 1;
            }
        }
        match info.open() {
            Ok(file) => self.file(&file),
            Err(Error::Damage(damage)) => {
                self.report(damage);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn file(&mut self, file: &SegmentFile) -> Result<(), Error> {
        let mut walk = Walk::new(file.body, file.end());
        let mut inflater = Inflater::new()?;
        let mut audit = Audit::new(file);
        let mut parts = PartOrder::default();
        let mut last = file.body;
        while let Some(next) = walk.next(file) {
            let fed = next.and_then(|(offset, header)| {
                let fed = inflater.feed(&header, &walk.data);
                fed.map_or_else(|cause| Err((offset, cause)), |()| Ok((offset, header)))
            });
            match fed {
                Ok((_, header)) if header.has(INDEX) => {}
                Ok((offset, header)) => {
                    self.chunks += u64::from(header.entries > 0);
                    audit.chunk(offset, &header);
                    last = offset;
                    while let Some((entry, is_keyframe)) = inflater.next() {
                        self.entries += 1;
                        audit.entry(&entry);
                        if parts.take(&entry, is_keyframe).is_torn {
                            self.report(file.damage(offset, Cause::Parts));
                        }
                    }
                }
                Err((offset, cause)) => {
                    walk.lose_block();
                    parts.lose();
                    audit.block = None;
                    self.report(file.damage(offset, cause));
                }
            }
        }
        if parts.close() && file.trailer.is_some() {
            self.report(file.damage(last, Cause::Parts));
        }
        if let (Some(trailer), false) = (file.trailer, audit.ends_well()) {
            self.report(file.damage(trailer.index, Cause::Index));
        }
        Ok(())
    }
}

/// Compares the index of a segment with its blocks, one block at a time.
struct Audit {
    /// None without an index to compare with, or after a difference.
    index: Option<Index>,
    /// The good block that is being read.
    block: Option<(BlockRecord, Span)>,
}

impl Audit {
    fn new(file: &SegmentFile) -> Self {
        Self {
            index: file.index(),
            block: None,
        }
    }

    fn chunk(&mut self, offset: u64, header: &ChunkHeader) {
        if header.has(FIRST) {
            self.end_block();
            let record = BlockRecord {
                offset,
                entries: 0,
                is_keyframe: header.has(KEYFRAME),
                times: (0, 0),
                fingerprints: Vec::new(),
            };
            self.block = Some((record, Span::default()));
        }
    }

    fn entry(&mut self, entry: &RawEntry<'_>) {
        if let Some((record, times)) = &mut self.block {
            record.entries += 1;
            times.add(entry.time);
            record.fingerprints.extend(entry.objects().map(fingerprint));
        }
    }

    fn end_block(&mut self) {
        let Some((mut record, times)) = self.block.take() else {
            return;
        };
        if record.entries == 0 {
            return;
        }
        record.times = times.stored();
        record.sort();
        let Some(index) = &mut self.index else {
            return;
        };
        // The records before it are of damaged blocks.
        let same = loop {
            match index.next(|_| true) {
                Some((found, _)) if found.offset < record.offset => {}
                found => break found.is_some_and(|(found, _)| found == record),
            }
        };
        if !same {
            self.index = None;
        }
    }

    /// Whether the segment has an index, and it has a true record of each good block.
    fn ends_well(mut self) -> bool {
        self.end_block();
        self.index.is_some()
    }
}
