//! Changes of the store's state, in the form in which a journal keeps them: applied in
//! order to an empty [`ReplayedCache`](super::ReplayedCache), they give the same state.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::index::Index;
use super::renewal::{HeldRenewals, Renewal, Renewals};
use super::slots::Slot;
use super::state::{State, ViewState};
use super::{FieldsId, Object, SegmentId, SegmentSpec, ViewId, ViewKey};
use crate::manifest::IndexSpec;
use crate::object::Uid;
use crate::path::FieldTree;
use crate::secrets;

/// A change of the state. What follows from it is not a change of its own: the indexes
/// follow from the objects.
///
/// There is none for a version that changes alone, as with every heartbeat of a node.
#[derive(Clone, Debug)]
pub enum StateChange {
    /// A view without objects.
    AddView(Arc<ViewDefinition>),
    /// The view is gone.
    DropView(ViewId),
    /// A segment without objects.
    AddSegment {
        /// The segment.
        segment: SegmentId,
        /// Its resource and selectors.
        spec: Arc<SegmentSpec>,
    },
    /// The segment is gone, with its objects. No view shows it any more.
    DropSegment(SegmentId),
    /// A view shows the objects of a segment.
    Show {
        /// The view.
        view: ViewId,
        /// The segment.
        segment: SegmentId,
    },
    /// A view shows the objects of a segment no more.
    Hide {
        /// The view.
        view: ViewId,
        /// The segment.
        segment: SegmentId,
    },
    /// Whether the objects of a segment have fields that a view does not show.
    Width {
        /// The view.
        view: ViewId,
        /// The segment.
        segment: SegmentId,
        /// Whether they have.
        is_wider: bool,
    },
    /// A new object, or the next state of the object in that slot. Pages of a view follow
    /// the order of the slots.
    Put {
        /// Its slot.
        slot: Slot,
        /// The object, without the data of a Secret.
        object: Arc<Object>,
        /// Whether it is a Secret whose data is left out.
        is_stripped: bool,
    },
    /// Leases have other fields, or nodes other times of heartbeats. There may be hundreds a
    /// second, and nothing else about them changes.
    Renew(Box<Renewals>),
    /// The object in the slot is gone.
    Remove {
        /// The slot.
        slot: Slot,
        /// The object's uid.
        uid: Uid,
    },
}

/// What a view shows, and how.
#[derive(Clone, Debug)]
pub struct ViewDefinition {
    pub(crate) view: ViewId,
    pub(crate) key: ViewKey,
    pub(crate) fields: FieldsId,
    pub(crate) visible: Arc<FieldTree>,
    pub(crate) indexes: Vec<Arc<IndexSpec>>,
}

impl ViewDefinition {
    fn of(view: ViewId, state: &ViewState) -> Self {
        Self {
            view,
            key: state.key,
            fields: state.fields,
            visible: Arc::clone(&state.visible),
            indexes: state
                .indexes
                .iter()
                .map(|index| index.spec().clone())
                .collect(),
        }
    }

    /// The view without objects.
    pub(super) fn state(&self) -> ViewState {
        ViewState {
            key: self.key,
            fields: self.fields,
            visible: Arc::clone(&self.visible),
            wider: BTreeSet::new(),
            ready: Vec::new(),
            indexes: self.indexes.iter().cloned().map(Index::new).collect(),
        }
    }
}

/// The changes since they were last taken, while somebody takes them.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    changes: Option<Vec<StateChange>>,
    /// What is added later, because nobody reads it now.
    held: HeldRenewals,
    /// The bytes of the objects that they replace or remove, and that something refers to.
    released: usize,
}

impl ChangeLog {
    /// Keeps changes from now on.
    pub(super) fn start(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Takes the changes.
    pub(super) fn take(&mut self) -> Vec<StateChange> {
        self.changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Takes the bytes of the objects that were replaced or removed while something referred to
    /// them.
    pub(super) fn take_released(&mut self) -> usize {
        std::mem::take(&mut self.released)
    }

    /// The state has this object no more. Counts it if something refers to it besides the
    /// caller: a change that nobody has written yet, above all.
    pub(super) fn note_released(&mut self, object: &Arc<Object>) {
        if Arc::strong_count(object) > 1 {
            self.note_copied(object);
        }
    }

    /// The state has a copy of this object, because something refers to it.
    pub(super) fn note_copied(&mut self, object: &Object) {
        if self.changes.is_some() {
            self.released += object.bytes();
        }
    }

    /// A change of what there is beside the objects, or of what views show.
    pub(super) fn note(&mut self, change: impl FnOnce() -> StateChange) {
        self.release_renewals();
        self.push(change);
    }

    /// Adds the renewals that it did not add when they came.
    pub(super) fn release_renewals(&mut self) {
        if let (Some(changes), Some(renewals)) = (&mut self.changes, self.held.take()) {
            changes.push(StateChange::Renew(Box::new(renewals)));
        }
    }

    /// The same before somebody reads these views.
    pub(super) fn release_renewals_of(&mut self, views: impl Iterator<Item = ViewId>) {
        if self.held.are_in(views) {
            self.release_renewals();
        }
    }

    fn push(&mut self, change: impl FnOnce() -> StateChange) {
        if let Some(changes) = &mut self.changes {
            changes.push(change());
        }
    }

    pub(super) fn note_view(&mut self, view: ViewId, state: &ViewState) {
        self.note(|| StateChange::AddView(Arc::new(ViewDefinition::of(view, state))));
    }

    pub(super) fn note_object(&mut self, slot: Slot, object: &Arc<Object>, spec: &SegmentSpec) {
        self.push(|| put(slot, object, spec));
    }

    /// The object in the slot has other fields from now on: those before and those after. These
    /// views show some of what changed.
    pub(super) fn note_update(
        &mut self,
        slot: Slot,
        object: &Arc<Object>,
        fields: (&[u8], &[u8]),
        spec: &SegmentSpec,
        views: &[ViewId],
    ) {
        if self.changes.is_none() {
            return;
        }
        let Some(renewal) = Renewal::of(&spec.resource, object, fields) else {
            self.held.forget(slot);
            self.note_object(slot, object, spec);
            return;
        };
        if self.held.have(slot) {
            // The other one is of what it was then.
            self.release_renewals();
        }
        self.held.add(slot, renewal, views);
    }

    /// The object in the slot is gone.
    pub(super) fn note_removal(&mut self, slot: Slot, object: &Object) {
        self.held.forget(slot);
        self.push(|| StateChange::Remove {
            slot,
            uid: object.uid().clone(),
        });
    }
}

impl StateChange {
    /// The change with an object that has no fields; none for another change.
    pub(crate) fn emptied(&self) -> Option<Self> {
        /// MessagePack of an empty map.
        const NOTHING: [u8; 1] = [0x80];
        let Self::Put { slot, object, .. } = self else {
            return None;
        };
        Some(Self::Put {
            slot: *slot,
            object: Arc::new(object.with_data(&NOTHING)),
            is_stripped: true,
        })
    }
}

/// An object as the journal has it.
fn put(slot: Slot, object: &Arc<Object>, spec: &SegmentSpec) -> StateChange {
    let (object, is_stripped) = recorded(object, spec);
    StateChange::Put {
        slot,
        object,
        is_stripped,
    }
}

/// An object without what the journal does not have, and whether that is something.
pub(super) fn recorded(object: &Arc<Object>, spec: &SegmentSpec) -> (Arc<Object>, bool) {
    let is_secret = secrets::are_of(&spec.resource);
    let stripped = is_secret.then(|| secrets::without_data(&object.data()));
    match stripped.flatten() {
        Some(data) => (Arc::new(object.with_data(&data)), true),
        None => (Arc::clone(object), false),
    }
}

/// The state at one moment. Taking it is cheap; reading it is not.
#[derive(Clone, Debug)]
pub struct StoreKeyframe {
    state: State,
    specs: Vec<(SegmentId, Arc<SegmentSpec>)>,
}

impl StoreKeyframe {
    pub(super) const fn new(state: State, specs: Vec<(SegmentId, Arc<SegmentSpec>)>) -> Self {
        Self { state, specs }
    }

    /// The changes that lead from an empty store to this state: segments, views, objects
    /// in the order of their slots, and what the views show.
    pub fn changes(&self) -> impl Iterator<Item = StateChange> {
        let specs = self.specs.iter();
        let segments = specs.map(|(segment, spec)| StateChange::AddSegment {
            segment: *segment,
            spec: Arc::clone(spec),
        });
        let views = self.state.views();
        let views =
            views.map(|(view, state)| StateChange::AddView(ViewDefinition::of(view, state).into()));
        let objects = self.state.objects().filter_map(|(slot, object)| {
            let spec = self
                .specs
                .binary_search_by_key(&object.segment(), |it| it.0);
            let (_, spec) = self.specs.get(spec.ok()?)?;
            Some(put(slot, object, spec))
        });
        let shows = self.state.views().flat_map(|(view, state)| {
            let wider = state.wider.iter().map(move |segment| StateChange::Width {
                view,
                segment: *segment,
                is_wider: true,
            });
            let ready = state.ready.iter().map(move |segment| StateChange::Show {
                view,
                segment: *segment,
            });
            wider.chain(ready)
        });
        segments.chain(views).chain(objects).chain(shows)
    }
}
