//! What is known of the cluster: one copy of every object, however many guests
//! read it.
//!
//! A *segment* is one stream of a resource's objects; it keeps every field that
//! one of its views reads. A *view* is one watch of one revision of a guest: it
//! shows the objects of its segments, with indexes and change times of its own
//! fields. A view shows a segment's objects only once the segment was listed
//! with everything that the view reads; until then they are not there for it.
//!
//! [`Store`] is written to by the loop that follows the streams; every write
//! tells which views it changed. A [`Snapshot`] is the state at one moment: it
//! costs next to nothing to take and never changes.

mod feeds;
mod index;
mod object;
mod segment;
mod slots;
mod snapshot;
mod state;
mod write;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::{IndexSpec, Source, WatchSpec};
use crate::path::FieldTree;

pub use feeds::{Feed, FeedUpdate, Feeds};
pub use index::Place;
pub use object::{Object, ResourceVersion};
pub use segment::{SegmentId, SegmentSpec};
pub use snapshot::{Entry, IndexView, Page, Snapshot, View};

use index::Index;
use segment::Segment;
use slots::Slot;
use state::{State, ViewState};

/// A view's number; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(u32);

/// The number of a set of fields. Views that read the same fields share it, and
/// with it the times at which these fields changed: a candidate sees what the
/// stable revision of the same guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FieldsId(u32);

/// What a view shows of its segments.
#[derive(Clone, Debug)]
pub struct ViewSpec {
    /// The fields it reads. A change of others is none for it.
    pub fields: FieldTree,
    /// Its secondary indexes. What they are over is added to the fields.
    pub indexes: Vec<IndexSpec>,
    /// What its objects are called.
    pub key: ViewKey,
}

/// What a view calls an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKey {
    /// `namespace/name`, or `name` for a cluster-scoped object. For views of
    /// one segment.
    Name,
    /// The uid, in a view of many resources.
    Uid,
}

impl From<&WatchSpec> for ViewSpec {
    fn from(watch: &WatchSpec) -> Self {
        Self {
            fields: watch.fields.iter().collect(),
            indexes: watch.indexes.clone(),
            key: match watch.source {
                Source::One(_) => ViewKey::Name,
                Source::EveryDeletable(_) => ViewKey::Uid,
            },
        }
    }
}

/// An object of a view appeared (no `old`), disappeared (no `new`), or changed
/// in a field that the view reads.
#[derive(Clone, Debug)]
pub struct Change {
    /// The view that shows it.
    pub view: ViewId,
    /// What it showed before.
    pub old: Option<Arc<Object>>,
    /// What it shows now.
    pub new: Option<Arc<Object>>,
}

/// There is no such view: it was removed, or belongs to another store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has no view {}", .0.0)]
pub struct UnknownView(pub ViewId);

/// A list was made for fewer fields than a view already shows. It would take
/// them away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource} was listed without fields that a watch already shows: \
     list it again with the fields that its segment asks for now"
)]
pub struct TooFewFields {
    /// The resource that was listed.
    pub resource: String,
}

/// The cluster's objects, written to by the loop that follows its streams.
#[derive(Debug, Default)]
pub struct Store {
    state: State,
    segments: BTreeMap<SegmentId, Segment>,
    views: BTreeMap<ViewId, Watch>,
    /// Slots below `next_slot` that hold nothing.
    free: Vec<Slot>,
    next_slot: Slot,
    next_segment: u32,
    next_view: u32,
    next_fields: u32,
}

/// The writer's side of a view.
#[derive(Debug)]
struct Watch {
    fields: FieldsId,
    tree: Arc<FieldTree>,
    segments: BTreeSet<SegmentId>,
}

impl Store {
    /// Adds a view without segments.
    pub fn add_view(&mut self, spec: ViewSpec) -> ViewId {
        let mut tree = spec.fields;
        tree.merge(&spec.indexes.iter().flat_map(IndexSpec::paths).collect());
        let view = ViewId(self.next_view);
        self.next_view += 1;
        let (fields, tree) = self.intern(tree);
        let state = ViewState {
            key: spec.key,
            fields,
            ready: Vec::new(),
            indexes: spec.indexes.into_iter().map(Index::new).collect(),
        };
        self.state.add_view(view, state);
        let segments = BTreeSet::new();
        self.views.insert(
            view,
            Watch {
                fields,
                tree,
                segments,
            },
        );
        view
    }

    /// Adds a segment to a view, and starts the segment if nobody had it yet.
    ///
    /// If it was listed with what the view reads, its objects appear at once.
    /// Otherwise they do when it is listed again ([`Self::needs_list`]).
    pub fn attach(
        &mut self,
        view: ViewId,
        spec: &SegmentSpec,
        changes: &mut Vec<Change>,
    ) -> Result<SegmentId, UnknownView> {
        if !self.views.contains_key(&view) {
            return Err(UnknownView(view));
        }
        let id = self.segment_id(spec);
        if let (Some(watch), Some(segment)) =
            (self.views.get_mut(&view), self.segments.get_mut(&id))
            && watch.segments.insert(id)
            && segment.join(view, watch.fields, &watch.tree)
        {
            self.show(view, id, changes);
        }
        Ok(id)
    }

    /// Takes a segment out of a view: its objects disappear from it. A segment
    /// without views is forgotten.
    pub fn detach(&mut self, view: ViewId, segment: SegmentId, changes: &mut Vec<Change>) {
        let Some(watch) = self.views.get_mut(&view) else {
            return;
        };
        if !watch.segments.remove(&segment) {
            return;
        }
        if self.is_ready(view, segment) {
            self.hide(view, segment, changes);
        }
        self.leave(view, segment);
    }

    /// Removes a view, with the segments that no other view has.
    pub fn remove_view(&mut self, view: ViewId) {
        let Some(watch) = self.views.remove(&view) else {
            return;
        };
        self.state.drop_view(view);
        for segment in watch.segments {
            self.leave(view, segment);
        }
    }

    /// The state at this moment. It costs next to nothing, and what is written
    /// later does not show in it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.state.clone())
    }

    /// A view's present state.
    #[must_use]
    pub fn view(&self, view: ViewId) -> Option<View<'_>> {
        View::new(&self.state, view)
    }

    /// Whether a view shows the objects of all its segments.
    #[must_use]
    pub fn synced(&self, view: ViewId) -> Option<bool> {
        let segments = &self.views.get(&view)?.segments;
        Some(segments.iter().all(|segment| self.is_ready(view, *segment)))
    }

    /// A view's segments, each with whether the view shows its objects.
    pub fn segments_of(&self, view: ViewId) -> impl Iterator<Item = (SegmentId, bool)> {
        self.views
            .get(&view)
            .into_iter()
            .flat_map(|watch| watch.segments.iter())
            .map(move |segment| (*segment, self.is_ready(view, *segment)))
    }

    /// All views.
    pub fn views(&self) -> impl Iterator<Item = ViewId> {
        self.views.keys().copied()
    }

    /// All segments.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &Arc<SegmentSpec>)> {
        self.segments
            .iter()
            .map(|(id, segment)| (*id, &segment.spec))
    }

    /// What a segment is a stream of.
    #[must_use]
    pub fn segment_spec(&self, segment: SegmentId) -> Option<&Arc<SegmentSpec>> {
        Some(&self.segments.get(&segment)?.spec)
    }

    /// Everything that a segment's views read: what its next list has to keep.
    #[must_use]
    pub fn segment_fields(&self, segment: SegmentId) -> Option<FieldTree> {
        Some(self.segments.get(&segment)?.fields())
    }

    /// Whether a view of the segment waits for a list of it.
    #[must_use]
    pub fn needs_list(&self, segment: SegmentId) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|segment| segment.readers.iter().any(|reader| !reader.ready))
    }

    /// How many objects a segment holds.
    #[must_use]
    pub fn segment_len(&self, segment: SegmentId) -> usize {
        self.state.segment(segment).map_or(0, |members| members.len)
    }

    /// The keys of a segment's objects.
    pub fn keys_of(&self, segment: SegmentId) -> impl Iterator<Item = &str> {
        let members = self.state.members(segment, 0);
        members.map(|(_, object)| object.key())
    }

    /// Whether a segment has an object of that key.
    #[must_use]
    pub fn holds(&self, segment: SegmentId, key: &str) -> bool {
        self.state.find(segment, key).is_some()
    }

    /// The size of a segment's objects in bytes: their data and keys, without
    /// the overhead of holding them.
    #[must_use]
    pub fn segment_bytes(&self, segment: SegmentId) -> usize {
        self.segments
            .get(&segment)
            .map_or(0, |segment| segment.bytes)
    }

    fn is_ready(&self, view: ViewId, segment: SegmentId) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|segment| segment.is_ready(view))
    }

    /// The segment of that spec, begun if there is none.
    fn segment_id(&mut self, spec: &SegmentSpec) -> SegmentId {
        if let Some((id, _)) = self.segments().find(|(_, other)| ***other == *spec) {
            return id;
        }
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.state.add_segment(id, spec.kind.clone());
        self.segments.insert(id, Segment::new(spec.clone()));
        id
    }

    /// The number of a set of fields: that of a view which reads the same.
    fn intern(&mut self, tree: FieldTree) -> (FieldsId, Arc<FieldTree>) {
        if let Some(watch) = self.views.values().find(|watch| *watch.tree == tree) {
            return (watch.fields, Arc::clone(&watch.tree));
        }
        let fields = FieldsId(self.next_fields);
        self.next_fields += 1;
        (fields, Arc::new(tree))
    }

    fn leave(&mut self, view: ViewId, id: SegmentId) {
        let Some(segment) = self.segments.get_mut(&id) else {
            return;
        };
        segment.leave(view);
        if segment.readers.is_empty() {
            self.segments.remove(&id);
            self.free.extend(self.state.drop_segment(id));
        }
    }

    /// Lets a view show a segment's objects.
    fn show(&mut self, view: ViewId, segment: SegmentId, changes: &mut Vec<Change>) {
        let members = self.members(segment);
        if let Some(state) = self.state.view_mut(view) {
            if let Err(place) = state.ready.binary_search(&segment) {
                state.ready.insert(place, segment);
            }
            for (slot, object) in &members {
                state.reindex(*slot, None, Some(object));
            }
        }
        changes.extend(members.into_iter().map(|(_, object)| Change {
            view,
            old: None,
            new: Some(object),
        }));
    }

    /// Takes a segment's objects out of a view.
    fn hide(&mut self, view: ViewId, segment: SegmentId, changes: &mut Vec<Change>) {
        let members = self.members(segment);
        if let Some(state) = self.state.view_mut(view) {
            state.ready.retain(|other| *other != segment);
            for (slot, object) in &members {
                state.reindex(*slot, Some(object), None);
            }
        }
        changes.extend(members.into_iter().map(|(_, object)| Change {
            view,
            old: Some(object),
            new: None,
        }));
    }

    fn members(&self, segment: SegmentId) -> Vec<(Slot, Arc<Object>)> {
        self.state
            .members(segment, 0)
            .map(|(slot, object)| (slot, Arc::clone(object)))
            .collect()
    }
}
