//! Which streams fill the store.
//!
//! One stream fills a segment, with the fields that its views read. When the views read
//! more fields, a *successor* lists the resource with all of them. The current stream
//! continues until the successor has seen everything that the current one has
//! delivered: a list takes seconds, and changes must not wait for it. Then the
//! successor fills the segment.
//!
//! ```text
//! current     list ── change ── change ── change ── change ✕
//! successor                 list ………………………… end ── change ── taken over
//! ```
//!
//! So the store never replaces a newer state by an older one, whichever of the two
//! streams is ahead. This needs versions that can be compared. If they are not
//! integers, the current stream ends before its successor sends its request.

use std::collections::BTreeMap;

use super::{Change, MissingFields, ResourceVersion, SegmentId, Store};
use crate::object::ProjectedObject;
use crate::path::FieldTree;
use crate::stream::{StreamId, Update};
use crate::time::Instant;
use crate::watch::{self, settle};

/// A stream that has to run.
#[derive(Clone, Debug)]
pub struct Feed {
    /// The segment that it fills, or will fill.
    pub segment: SegmentId,
    /// The fields that it keeps.
    pub fields: FieldTree,
}

/// The effect of an update on the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedUpdate {
    /// The store holds the update now or later, or no stream needs it.
    Changes,
    /// The store holds another list: more views may be complete, and [`Feeds::follow`]
    /// is due.
    List,
}

/// The streams that have to run.
#[derive(Debug, Default)]
pub struct Feeds {
    streams: BTreeMap<StreamId, Feed>,
    followed: BTreeMap<SegmentId, SegmentStreams>,
    next: u32,
}

/// The streams of one segment.
#[derive(Debug)]
struct SegmentStreams {
    current: StreamId,
    /// The newest version that the current stream delivered; none before its first
    /// list.
    delivered: Option<ResourceVersion>,
    successor: Option<Successor>,
}

/// The stream that will replace the current one.
#[derive(Debug)]
struct Successor {
    id: StreamId,
    /// The list that it delivered, with the changes since.
    listed: Option<CompleteList>,
}

#[derive(Debug)]
struct CompleteList {
    changes: Vec<watch::Change>,
    version: ResourceVersion,
}

impl Feeds {
    /// Adjusts the streams of the followed segments to the fields that the store's
    /// views read. Call it when either has changed, and after every list.
    pub fn follow(&mut self, store: &Store, is_followed: impl Fn(SegmentId) -> bool) {
        let segments = store.segments().map(|(segment, _)| segment);
        let segments: Vec<SegmentId> = segments.filter(|it| is_followed(*it)).collect();
        self.followed
            .retain(|segment, _| segments.binary_search(segment).is_ok());
        for segment in segments {
            self.follow_segment(segment, store);
        }
        let followed = &self.followed;
        self.streams.retain(|id, feed| {
            let streams = followed.get(&feed.segment);
            streams.is_some_and(|streams| streams.has(*id))
        });
    }

    /// Ends the streams of a segment. [`Self::follow`] starts another one, which lists
    /// immediately.
    pub fn list_again(&mut self, segment: SegmentId) {
        self.followed.remove(&segment);
    }

    /// The streams that have to run, with the fields that they keep.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &Feed)> {
        self.streams.iter().map(|(id, feed)| (*id, feed))
    }

    /// Whether a stream has to run.
    #[must_use]
    pub fn contains(&self, stream: StreamId) -> bool {
        self.streams.contains_key(&stream)
    }

    /// The segment that a stream fills, or will fill.
    #[must_use]
    pub fn segment(&self, stream: StreamId) -> Option<SegmentId> {
        Some(self.streams.get(&stream)?.segment)
    }

    /// Whether a stream is the current one of its segment.
    #[must_use]
    pub fn fills(&self, stream: StreamId) -> bool {
        let mut followed = self.followed.values();
        followed.any(|streams| streams.current == stream)
    }

    /// Applies an update of a stream.
    pub fn update(
        &mut self,
        store: &mut Store,
        stream: StreamId,
        update: Update,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Result<FeedUpdate, MissingFields> {
        let (object, deleted) = match update {
            Update::Apply(object) => (object, false),
            Update::Delete(object) => (object, true),
            Update::Reset {
                items,
                resource_version,
            } => return self.replace(store, stream, items, &resource_version, now, changes),
            Update::Status(_) => return Ok(FeedUpdate::Changes),
        };
        let change = watch::Change { object, deleted };
        Ok(self.change(store, stream, change, now, changes))
    }

    /// Applies a complete list of that version.
    fn replace(
        &mut self,
        store: &mut Store,
        stream: StreamId,
        items: Vec<ProjectedObject>,
        version: &str,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Result<FeedUpdate, MissingFields> {
        let Some(feed) = self.streams.get(&stream) else {
            return Ok(FeedUpdate::Changes);
        };
        let Some(streams) = self.followed.get_mut(&feed.segment) else {
            return Ok(FeedUpdate::Changes);
        };
        let version = ResourceVersion::new(version);
        if streams.current == stream {
            // The successor may have sent its request before this list was made. Only a
            // successor that starts now is sure to see at least as much.
            streams.successor = None;
            streams.delivered = Some(version);
            store.replace(feed.segment, feed.fields.clone(), items, now, changes)?;
            return Ok(FeedUpdate::List);
        }
        let Some(successor) = streams.successor_of(stream) else {
            return Ok(FeedUpdate::Changes);
        };
        let applied = |object| watch::Change {
            object,
            deleted: false,
        };
        successor.listed = Some(CompleteList {
            changes: items.into_iter().map(applied).collect(),
            version,
        });
        take_over(streams, feed, store, now, changes)
    }

    fn change(
        &mut self,
        store: &mut Store,
        stream: StreamId,
        change: watch::Change,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> FeedUpdate {
        let Some(feed) = self.streams.get(&stream) else {
            return FeedUpdate::Changes;
        };
        let Some(streams) = self.followed.get_mut(&feed.segment) else {
            return FeedUpdate::Changes;
        };
        let version = ResourceVersion::new(&change.object.resource_version);
        if streams.current == stream {
            raise(streams.delivered.as_mut(), version);
            if change.deleted {
                let (namespace, name) = (&change.object.namespace, &change.object.name);
                let uid = &change.object.uid;
                store.remove(feed.segment, namespace, name, uid, changes);
            } else {
                store.apply(feed.segment, change.object, now, changes);
            }
            return FeedUpdate::Changes;
        }
        let Some(successor) = streams.successor_of(stream) else {
            return FeedUpdate::Changes;
        };
        if let Some(listed) = &mut successor.listed {
            listed.changes.push(change);
            raise(Some(&mut listed.version), version);
        }
        // A list with all fields of the views is never refused.
        take_over(streams, feed, store, now, changes).unwrap_or(FeedUpdate::Changes)
    }

    fn follow_segment(&mut self, segment: SegmentId, store: &Store) {
        let Some(wanted) = store.segment_fields(segment) else {
            return;
        };
        let Some(streams) = self.followed.get(&segment) else {
            let current = self.start(segment, wanted.clone());
            self.followed.insert(segment, SegmentStreams::new(current));
            return;
        };
        let coming = match (&streams.successor, &streams.delivered) {
            (Some(successor), _) => Some(successor.id),
            (None, None) => Some(streams.current),
            (None, Some(_)) => None,
        };
        let feed = coming.and_then(|id| self.streams.get(&id));
        let is_covered = feed.is_some_and(|feed| feed.fields.covers(wanted));
        let shows = streams.delivered.as_ref();
        // Before its first list, a stream must list every field that a view shows
        // already: an earlier stream may have had more fields.
        let needs_another = !is_covered && (shows.is_none() || store.needs_list(segment));
        let is_comparable = shows.is_some_and(|version| version.number().is_some());
        let another = needs_another.then(|| self.start(segment, wanted.clone()));
        let Some(streams) = self.followed.get_mut(&segment) else {
            return;
        };
        match another {
            Some(id) if !is_comparable => *streams = SegmentStreams::new(id),
            Some(id) => streams.successor = Some(Successor { id, listed: None }),
            None if !store.needs_list(segment) => streams.successor = None,
            None => {}
        }
    }

    fn start(&mut self, segment: SegmentId, fields: FieldTree) -> StreamId {
        let id = StreamId(self.next);
        self.next += 1;
        self.streams.insert(id, Feed { segment, fields });
        id
    }
}

impl SegmentStreams {
    fn new(current: StreamId) -> Self {
        Self {
            current,
            delivered: None,
            successor: None,
        }
    }

    fn has(&self, stream: StreamId) -> bool {
        let successor = self.successor.as_ref();
        self.current == stream || successor.is_some_and(|it| it.id == stream)
    }

    fn successor_of(&mut self, stream: StreamId) -> Option<&mut Successor> {
        self.successor.as_mut().filter(|it| it.id == stream)
    }
}

/// Lets the successor fill the segment, if it has seen everything that the current
/// stream delivered.
fn take_over(
    streams: &mut SegmentStreams,
    feed: &Feed,
    store: &mut Store,
    now: Instant,
    changes: &mut Vec<Change>,
) -> Result<FeedUpdate, MissingFields> {
    let delivered = streams.delivered.as_ref().and_then(ResourceVersion::number);
    let knows_all = |listed: &CompleteList| match (delivered, listed.version.number()) {
        (Some(delivered), Some(listed)) => listed >= delivered,
        _ => true,
    };
    let ready = |it: &mut Successor| it.listed.as_ref().is_some_and(knows_all);
    let Some(Successor {
        id,
        listed: Some(listed),
    }) = streams.successor.take_if(ready)
    else {
        return Ok(FeedUpdate::Changes);
    };
    *streams = SegmentStreams::new(id);
    streams.delivered = Some(listed.version);
    let items = settle(listed.changes);
    store.replace(feed.segment, feed.fields.clone(), items, now, changes)?;
    Ok(FeedUpdate::List)
}

/// Sets a version to the later one of two, or, if they cannot be compared, to the
/// second.
fn raise(version: Option<&mut ResourceVersion>, to: ResourceVersion) {
    if let Some(version) = version
        && to.may_follow(version)
    {
        *version = to;
    }
}
