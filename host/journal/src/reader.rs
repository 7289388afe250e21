//! Reads a journal: lists its segments, yields entries, verifies, and copies a part.
//!
//! A reader needs no lock. It sees the segments as they were when it opened the directory; what
//! another process appends or removes afterwards changes nothing, except that a removed segment
//! cannot be read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::directory::{self, file_name};
use crate::format::{BlockRecord, INDEX, RawEntry, fingerprint};
use crate::info::SegmentInfo;
use crate::parts::Parts;
use crate::segment::{Index, Inflater, SegmentFile, Walk};
use crate::storage::{FILE_MODE, create_directory};
use crate::verify::Verification;
use crate::{Cause, Damage, Entry, Error, Part};

/// Which entries a reader yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    from: i64,
    to: i64,
    object: Option<String>,
    has_lead_in: bool,
}

impl Query {
    /// The entries from a time until before another, both in microseconds since the epoch. What
    /// leads to the state at `from` precedes them: the keyframe of the segment that covers `from`,
    /// and what follows it. Each later segment starts with its keyframe too. A span that ends
    /// before it starts is empty, and has only what leads to it.
    #[must_use]
    pub fn new(from: i64, to: i64) -> Self {
        Self {
            from,
            to: to.max(from),
            object: None,
            has_lead_in: true,
        }
    }

    /// Only the entries about this object. The index chooses the blocks that are read.
    #[must_use]
    pub fn about(mut self, uid: &str) -> Self {
        self.object = Some(uid.to_owned());
        self
    }

    /// Only the entries of the span itself, without any keyframe.
    #[must_use]
    pub fn without_lead_in(mut self) -> Self {
        self.has_lead_in = false;
        self
    }

    /// Why an entry is part of the answer; nothing if it is none.
    fn part(&self, entry: &RawEntry<'_>, is_keyframe: bool) -> Option<Part> {
        let part = match (is_keyframe, entry.time) {
            (true, _) => Part::Keyframe,
            (_, time) if time < self.from => Part::LeadIn,
            (_, time) if time < self.to => Part::Span,
            _ => return None,
        };
        let is_wanted = self.has_lead_in || part == Part::Span;
        let is_about = |uid: &String| entry.objects().any(|object| object == uid);
        (is_wanted && self.object.as_ref().is_none_or(is_about)).then_some(part)
    }

    /// Whether a block can have an entry of the answer.
    fn needs(&self, block: &BlockRecord) -> bool {
        let (first, last) = block.times;
        let is_in_time = block.is_keyframe || first < self.to;
        let is_wanted = self.has_lead_in || (!block.is_keyframe && last >= self.from);
        is_in_time && is_wanted && (self.object.is_none() || !block.fingerprints.is_empty())
    }
}

/// A journal that is open for reading.
#[derive(Clone, Debug)]
pub struct Reader {
    segments: Vec<SegmentInfo>,
    unreadable: Vec<Damage>,
}

impl Reader {
    /// Opens the journal of a directory, or a single segment.
    ///
    /// Fails if the directory cannot be read, or if a segment has another version of the format.
    /// A segment with a damaged header is one of [`Reader::unreadable`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let paths = if path.is_dir() {
            let listings = directory::list(path)?.into_iter();
            listings.map(|listing| listing.path).collect()
        } else {
            vec![path.to_owned()]
        };
        let mut reader = Self {
            segments: Vec::new(),
            unreadable: Vec::new(),
        };
        let is_single = !path.is_dir();
        if is_single {
            fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
        }
        for (place, path) in paths.iter().enumerate() {
            let is_last = place + 1 == paths.len();
            match SegmentInfo::read(path) {
                Ok(info) => reader.segments.push(info),
                // Removed, or created just now: it has no entry.
                Err(Error::Damage(Damage {
                    cause: Cause::Removed,
                    ..
                })) if !is_single => {}
                Err(Error::Damage(Damage {
                    cause: Cause::Short,
                    ..
                })) if is_last && !is_single => {}
                Err(Error::Damage(damage)) => reader.unreadable.push(damage),
                Err(error) => return Err(error),
            }
        }
        Ok(reader)
    }

    /// The segments, in the order in which they were written.
    #[must_use]
    pub fn segments(&self) -> &[SegmentInfo] {
        &self.segments
    }

    /// The segments whose header is damaged: nothing in them can be read.
    #[must_use]
    pub fn unreadable(&self) -> &[Damage] {
        &self.unreadable
    }

    /// The entries of a query, in the order in which they were written. Where a segment is
    /// damaged, an error takes the place of the lost entries, and the entries from the next good
    /// block on follow it.
    #[must_use]
    pub fn entries(&self, query: &Query) -> Entries<'_> {
        let segments = self.covering(query);
        Entries {
            unreadable: self.unreadable.iter(),
            segments: segments.into_iter(),
            fingerprint: query.object.as_deref().map(fingerprint),
            query: query.clone(),
            current: None,
        }
    }

    /// The segments that a query needs, the one that covers its start first.
    fn covering(&self, query: &Query) -> Vec<&SegmentInfo> {
        let whole = self.segments.iter().filter(|info| info.has_keyframe());
        let mut covering: Vec<&SegmentInfo> = whole.collect();
        let last_start = covering.iter().rposition(|info| info.start <= query.from);
        // Where the clock was set back, an earlier segment may reach into the span.
        let first_reach = covering.iter().position(|info| info.last() >= query.from);
        let first = match (last_start, first_reach) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other).unwrap_or_default(),
        };
        covering.drain(..first);
        covering.retain(|info| {
            let is_needed = query.has_lead_in || info.last() >= query.from;
            is_needed && info.first() < query.to
        });
        covering
    }

    /// Reads everything, and compares each index with its blocks.
    pub fn verify(&self) -> Result<Verification, Error> {
        let mut verification = Verification::default();
        for damage in &self.unreadable {
            verification.report(damage.clone());
        }
        for info in &self.segments {
            verification.segment(info)?;
        }
        Ok(verification)
    }

    /// Copies the segments that cover a span into another directory, without torn tails, and
    /// verifies the copies. The times are in microseconds since the epoch.
    ///
    /// Fails if a segment of the same name exists there.
    pub fn cut(&self, from: i64, to: i64, directory: &Path) -> Result<Verification, Error> {
        create_directory(directory)
            .map_err(|source| Error::io("create the directory", directory, source))?;
        let mut verification = Verification::default();
        for info in self.covering(&Query::new(from, to)) {
            let name = file_name(info.sequence, info.start);
            let path = directory.join(name);
            copy(info, &path)?;
            match SegmentInfo::read(&path) {
                Ok(copy) => verification.segment(&copy)?,
                Err(Error::Damage(damage)) => verification.report(damage),
                Err(error) => return Err(error),
            }
        }
        Ok(verification)
    }
}

fn copy(info: &SegmentInfo, to: &Path) -> Result<(), Error> {
    let from = File::open(&info.path).map_err(|source| Error::io("open", &info.path, source))?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(FILE_MODE);
    let target = options.open(to);
    let mut target = target.map_err(|source| Error::io("create", to, source))?;
    let copied = io::copy(&mut from.take(info.bytes), &mut target);
    copied.map_err(|source| Error::io("write", to, source))?;
    target
        .sync_all()
        .map_err(|source| Error::io("sync", to, source))
}

/// The entries of a query, each or an error in its place.
pub struct Entries<'r> {
    unreadable: std::slice::Iter<'r, Damage>,
    segments: std::vec::IntoIter<&'r SegmentInfo>,
    query: Query,
    fingerprint: Option<u32>,
    current: Option<Blocks>,
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(damage) = self.unreadable.next() {
            return Some(Err(damage.clone().into()));
        }
        loop {
            if let Some(blocks) = &mut self.current {
                if let Some(next) = blocks.next(&self.query, self.fingerprint) {
                    return Some(next.map_err(Error::Damage));
                }
                self.current = None;
            }
            let info = self.segments.next()?;
            match Blocks::open(info) {
                Ok(blocks) => self.current = Some(blocks),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The blocks of one segment that a query needs.
struct Blocks {
    file: SegmentFile,
    /// None if the whole segment is read.
    index: Option<Index>,
    walk: Walk,
    inflater: Inflater,
    parts: Parts,
    /// Where the last chunk stands.
    offset: u64,
    /// The entry that follows an error.
    waiting: Option<Entry>,
}

impl Blocks {
    fn open(info: &SegmentInfo) -> Result<Self, Error> {
        let file = info.open()?;
        let index = file.index();
        let limit = match index {
            Some(_) => file.body,
            None => file.end(),
        };
        Ok(Self {
            walk: Walk::new(file.body, limit),
            file,
            index,
            inflater: Inflater::new()?,
            parts: Parts::default(),
            offset: 0,
            waiting: None,
        })
    }

    fn next(&mut self, query: &Query, object: Option<u32>) -> Option<Result<Entry, Damage>> {
        if let Some(entry) = self.waiting.take() {
            return Some(Ok(entry));
        }
        loop {
            while let Some((entry, is_keyframe)) = self.inflater.next() {
                let Some(part) = query.part(&entry, is_keyframe) else {
                    continue;
                };
                let (payload, is_torn) = self.parts.add(&entry, is_keyframe);
                let segment = self.file.header.sequence;
                let entry = payload.map(|payload| entry.to_entry(payload, part, segment));
                if is_torn {
                    self.waiting = entry;
                    return Some(Err(self.file.damage(self.offset, Cause::Parts)));
                }
                if let Some(entry) = entry {
                    return Some(Ok(entry));
                }
            }
            let next = match self.walk.next(&self.file) {
                Some(Ok((_, header))) if header.has(INDEX) => continue,
                Some(Ok((offset, header))) => {
                    self.offset = offset;
                    let fed = self.inflater.feed(&header, &self.walk.data);
                    fed.map_err(|cause| (offset, cause))
                }
                // The damage that makes it so was reported.
                Some(Err((_, Cause::Continuation))) => continue,
                Some(Err(fault)) => Err(fault),
                None => match self.next_block(query, object) {
                    Some(()) => continue,
                    None => return self.end(),
                },
            };
            if let Err((offset, cause)) = next {
                self.walk.lose_block();
                self.parts.lose();
                return Some(Err(self.file.damage(offset, cause)));
            }
        }
    }

    /// Nothing follows. An entry without its last part is damage, unless the segment is one that
    /// is still written, or whose writer was killed.
    fn end(&mut self) -> Option<Result<Entry, Damage>> {
        let is_torn = self.parts.close() && self.file.trailer.is_some();
        is_torn.then(|| Err(self.file.damage(self.offset, Cause::Parts)))
    }

    /// Moves on to the next block that the query needs.
    fn next_block(&mut self, query: &Query, object: Option<u32>) -> Option<()> {
        let index = self.index.as_mut()?;
        loop {
            let (block, end) = index.next(|fingerprint| Some(fingerprint) == object)?;
            if query.needs(&block) {
                self.walk.jump(block.offset, end);
                return Some(());
            }
        }
    }
}
