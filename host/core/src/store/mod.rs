//! The cache: one copy of every object, however many guests read it.
//!
//! A *segment* is one list of a resource's objects; it keeps every field that one of
//! its views reads. A *view* is one watch of one revision: it shows the objects of its
//! segments, with indexes and change times of its own fields. A view shows the objects
//! of a segment only after the segment was listed with all fields that the view reads.
//!
//! Only the machine writes to the [`Store`]; every write returns the views that it
//! changed. A [`Snapshot`] is the state at one moment: taking one is cheap, and it
//! never changes.

mod change;
mod feeds;
mod hashed;
mod index;
mod object;
mod pack;
mod patch;
mod renewal;
mod replayed;
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
use crate::path::{FieldPath, FieldTree, Segment as Step};

pub use change::{StateChange, StoreKeyframe, ViewDefinition};
pub use feeds::{Feed, FeedUpdate, Feeds};
pub use index::Place;
pub(crate) use object::ObjectParts;
pub use object::{Object, ResourceVersion};
pub use patch::{BytesPatch, Run};
pub use renewal::{Renewal, Renewals};
pub use replayed::{MisfitChange, ReplayedCache};
pub use segment::{SegmentId, SegmentSpec};
pub use slots::Slot;
pub use snapshot::{Entry, IndexView, Page, Snapshot, View};
pub(crate) use state::lookup_hash;

use change::ChangeLog;
use index::Index;
use segment::Segment;
use state::{State, ViewState};

/// The number of a view; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub(crate) u32);

/// The number of a set of fields. Views that read the same fields share it, and with it
/// the times at which these fields changed: a candidate sees the same times as the
/// stable revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FieldsId(pub(crate) u32);

/// What a view shows of its segments.
#[derive(Clone, Debug, Default)]
pub struct ViewSpec {
    /// The fields that the view shows. A change of other fields does not change the
    /// view.
    pub fields: FieldTree,
    /// Fields that the view reads too, but does not show: those that divide targets into
    /// cohorts.
    pub hidden: FieldTree,
    /// Its secondary indexes. The view also reads their paths.
    pub indexes: Vec<IndexSpec>,
    /// How it names its objects.
    pub key: ViewKey,
}

/// How a view names an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ViewKey {
    /// `namespace/name`, or `name` for a cluster-scoped object. For views of
    /// one segment.
    #[default]
    Name,
    /// The uid, in a view of many resources.
    Uid,
}

impl From<&WatchSpec> for ViewSpec {
    fn from(watch: &WatchSpec) -> Self {
        Self {
            fields: watch.fields.iter().collect(),
            hidden: FieldTree::default(),
            indexes: watch.indexes.clone(),
            key: match watch.source {
                Source::One(_) => ViewKey::Name,
                Source::EveryDeletable(_) => ViewKey::Uid,
            },
        }
    }
}

/// A change in a view: an object appeared (no `old`), disappeared (no `new`), or
/// changed in a field that the view reads.
///
/// The changes of one object follow each other, in the order of their views.
#[derive(Clone, Debug)]
pub struct Change {
    /// The view that shows it.
    pub view: ViewId,
    /// The object before the change.
    pub old: Option<Arc<Object>>,
    /// The object after the change.
    pub new: Option<Arc<Object>>,
}

impl Change {
    /// Whether both are about the same change of an object, in different views.
    #[must_use]
    pub fn is_of_same_object(&self, other: &Self) -> bool {
        let same = |one: &Option<Arc<Object>>, other: &Option<Arc<Object>>| match (one, other) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        self.view < other.view && same(&self.old, &other.old) && same(&self.new, &other.new)
    }
}

/// The view does not exist: it was removed, or belongs to another store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store has no view {}", .0.0)]
pub struct UnknownView(pub ViewId);

/// A list has fewer fields than a view already shows, and would remove them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource} was listed without fields that a watch already shows: \
     list it again with the fields that its segment asks for now"
)]
pub struct MissingFields {
    /// The resource that was listed.
    pub resource: String,
}

/// The cluster's objects.
#[derive(Debug, Default)]
pub struct Store {
    state: State,
    segments: BTreeMap<SegmentId, Segment>,
    by_spec: BTreeMap<Arc<SegmentSpec>, SegmentId>,
    views: BTreeMap<ViewId, Watch>,
    /// Free slots below `next_slot`.
    free: Vec<Slot>,
    next_slot: Slot,
    next_segment: u32,
    next_view: u32,
    next_fields: u32,
    /// The changes of the state, for a journal.
    log: ChangeLog,
}

/// The fields that every view shows.
fn identity() -> FieldTree {
    let names = ["name", "namespace", "uid"];
    let field = |name: &str| Step::Field(name.into());
    let paths = names.map(|name| FieldPath::of(vec![field("metadata"), field(name)]));
    paths.iter().collect()
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
        let mut visible = identity();
        visible.merge(&tree);
        tree.merge(&spec.hidden);
        let view = ViewId(self.next_view);
        self.next_view += 1;
        let (fields, tree) = self.intern(tree);
        let state = ViewState {
            key: spec.key,
            fields,
            visible: Arc::new(visible),
            ready: Vec::new(),
            wider: BTreeSet::new(),
            indexes: spec.indexes.into_iter().map(Index::new).collect(),
        };
        self.log.note_view(view, &state);
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

    /// Adds a segment to a view, and creates the segment if no view has it yet.
    ///
    /// If the segment was listed with all fields of the view, its objects appear
    /// immediately. Otherwise they appear after the next list ([`Self::needs_list`]).
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
        {
            if segment.join(view, watch.fields, &watch.tree) {
                self.show(view, id, changes);
            }
            self.note_width(id);
        }
        Ok(id)
    }

    /// Removes a segment from a view: its objects disappear from the view. A segment
    /// without views is dropped.
    pub fn detach(&mut self, view: ViewId, segment: SegmentId, changes: &mut Vec<Change>) {
        let Some(watch) = self.views.get_mut(&view) else {
            return;
        };
        if !watch.segments.remove(&segment) {
            return;
        }
        if self
            .state
            .view(view)
            .is_some_and(|state| state.shows(segment))
        {
            self.hide(view, segment, changes);
        }
        self.leave(view, segment);
    }

    /// Removes a view, and the segments that no other view has.
    pub fn remove_view(&mut self, view: ViewId) {
        let Some(watch) = self.views.remove(&view) else {
            return;
        };
        self.state.drop_view(view);
        self.log.note(|| StateChange::DropView(view));
        for segment in watch.segments {
            self.leave(view, segment);
        }
    }

    /// Keeps the changes of the state from now on, for [`Self::take_log`].
    pub fn start_log(&mut self) {
        self.log.start();
    }

    /// Takes the changes of the state since they were last taken; none without
    /// [`Self::start_log`].
    pub fn take_log(&mut self) -> Vec<StateChange> {
        self.log.take()
    }

    /// Adds the heartbeats to the log that it does not have yet. Call it once a second, and before
    /// [`Self::keyframe`]; otherwise [`Self::take_log`] has them when another heartbeat of the
    /// same object comes, or when views change.
    pub(crate) fn release_renewals(&mut self) {
        self.log.release_renewals();
    }

    /// The same before somebody reads these views, if they show something of them.
    pub(crate) fn release_renewals_of(&mut self, views: impl Iterator<Item = ViewId>) {
        self.log.release_renewals_of(views);
    }

    /// Takes the bytes of the objects that were replaced or removed since they were last taken,
    /// and that something still refers to, such as a change before that.
    pub(crate) fn take_released(&mut self) -> usize {
        self.log.take_released()
    }

    /// The state at this moment, for a journal. Taking it is cheap.
    #[must_use]
    pub fn keyframe(&self) -> StoreKeyframe {
        let specs = self.segments();
        let specs = specs.map(|(segment, spec)| (segment, Arc::clone(spec)));
        StoreKeyframe::new(self.state.clone(), specs.collect())
    }

    /// An object as the journal has it, and whether that is less than all of it.
    pub(crate) fn recorded(&self, object: &Arc<Object>) -> (Arc<Object>, bool) {
        match self.segment_spec(object.segment()) {
            Some(spec) => change::recorded(object, spec),
            // It may be a Secret, and nobody reads it any more.
            None => (Arc::new(object.with_data(&[0xc0])), true),
        }
    }

    /// The state at this moment. Taking it is cheap, and later writes do not change it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.state.clone())
    }

    /// The current state of a view.
    #[must_use]
    pub fn view(&self, view: ViewId) -> Option<View<'_>> {
        View::new(&self.state, view)
    }

    /// Whether a view shows the objects of all its segments.
    #[must_use]
    pub fn synced(&self, view: ViewId) -> Option<bool> {
        self.views.get(&view)?;
        Some(self.segments_of(view).all(|(_, ready)| ready))
    }

    /// The segments of a view, each with whether the view shows its objects.
    pub fn segments_of(&self, view: ViewId) -> impl Iterator<Item = (SegmentId, bool)> {
        let watch = self.views.get(&view).into_iter();
        let state = self.state.view(view);
        let segments = watch.flat_map(|watch| watch.segments.iter());
        segments.map(move |segment| {
            let ready = state.is_some_and(|state| state.shows(*segment));
            (*segment, ready)
        })
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

    /// The resource and selectors of a segment.
    #[must_use]
    pub fn segment_spec(&self, segment: SegmentId) -> Option<&Arc<SegmentSpec>> {
        Some(&self.segments.get(&segment)?.spec)
    }

    /// All fields that the views of a segment read: its next list has to have them.
    #[must_use]
    pub fn segment_fields(&self, segment: SegmentId) -> Option<&FieldTree> {
        Some(self.segments.get(&segment)?.fields())
    }

    /// Whether a view of the segment waits for its next list.
    #[must_use]
    pub fn needs_list(&self, segment: SegmentId) -> bool {
        self.segments
            .get(&segment)
            .is_some_and(|segment| segment.readers.iter().any(|reader| !reader.ready))
    }

    /// The number of objects of a segment.
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

    /// The size of a segment's objects in bytes: keys and compressed data, without overhead.
    #[must_use]
    pub fn segment_bytes(&self, segment: SegmentId) -> usize {
        self.segments
            .get(&segment)
            .map_or(0, |segment| segment.bytes)
    }

    /// The segment of that spec; created if it does not exist.
    fn segment_id(&mut self, spec: &SegmentSpec) -> SegmentId {
        if let Some(id) = self.by_spec.get(spec) {
            return *id;
        }
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        self.state.add_segment(id, spec.kind.clone());
        let segment = Segment::new(spec.clone());
        self.by_spec.insert(Arc::clone(&segment.spec), id);
        self.log.note(|| StateChange::AddSegment {
            segment: id,
            spec: Arc::clone(&segment.spec),
        });
        self.segments.insert(id, segment);
        id
    }

    /// The number of a set of fields: views that read the same fields get the same one.
    fn intern(&mut self, tree: FieldTree) -> (FieldsId, Arc<FieldTree>) {
        if let Some(watch) = self.views.values().find(|watch| *watch.tree == tree) {
            return (watch.fields, Arc::clone(&watch.tree));
        }
        let fields = FieldsId(self.next_fields);
        self.next_fields += 1;
        (fields, Arc::new(tree))
    }

    /// Notes in every view of a segment whether its objects have fields that the view
    /// does not show.
    fn note_width(&mut self, id: SegmentId) {
        let Some(segment) = self.segments.get(&id) else {
            return;
        };
        let views = segment.readers.iter().flat_map(|reader| &reader.views);
        for view in views {
            let Some(state) = self.state.view(*view) else {
                continue;
            };
            let listed = segment.listed.as_ref();
            let is_wider = listed.is_some_and(|listed| !state.visible.covers(listed));
            if self.state.set_wider(*view, id, is_wider) {
                self.log.note(|| StateChange::Width {
                    view: *view,
                    segment: id,
                    is_wider,
                });
            }
        }
    }

    fn leave(&mut self, view: ViewId, id: SegmentId) {
        let Some(segment) = self.segments.get_mut(&id) else {
            return;
        };
        segment.leave(view);
        if segment.readers.is_empty() {
            self.by_spec.remove(&segment.spec);
            self.segments.remove(&id);
            self.free.extend(self.state.drop_segment(id));
            self.log.note(|| StateChange::DropSegment(id));
        }
    }

    /// Shows a segment's objects in a view.
    fn show(&mut self, view: ViewId, segment: SegmentId, changes: &mut Vec<Change>) {
        let members = self.state.show(view, segment);
        self.log.note(|| StateChange::Show { view, segment });
        changes.extend(members.into_iter().map(|(_, object)| Change {
            view,
            old: None,
            new: Some(object),
        }));
    }

    /// Removes a segment's objects from a view.
    fn hide(&mut self, view: ViewId, segment: SegmentId, changes: &mut Vec<Change>) {
        let members = self.state.hide(view, segment);
        self.log.note(|| StateChange::Hide { view, segment });
        changes.extend(members.into_iter().map(|(_, object)| Change {
            view,
            old: Some(object),
            new: None,
        }));
    }
}
