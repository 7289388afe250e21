//! The content of the store in persistent structures: a clone is a snapshot, and a
//! later write copies only the path to what it changes.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use imbl::{OrdMap, Vector};

use super::hashed::HashedSlots;
use super::index::Index;
use super::object::{Object, OpenedObject, ResourceVersion};
use super::slots::{Slot, SlotSets};
use super::{FieldsId, SegmentId, ViewId, ViewKey};
use crate::object::{Kind, Uid};
use crate::path::FieldTree;

/// The objects, how to find them, and the views that show them.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    slab: Vector<Option<Arc<Object>>>,
    /// By a hash of segment and key. A hash takes an eighth of the memory of the text;
    /// a lookup compares the texts of what it finds.
    by_key: HashedSlots,
    /// By a hash of the uid.
    by_uid: HashedSlots,
    /// The objects of every segment, by its number.
    members: SlotSets,
    segments: OrdMap<SegmentId, Arc<Members>>,
    views: OrdMap<ViewId, Arc<ViewState>>,
}

/// A segment, without its objects.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) kind: Kind,
    pub(super) len: usize,
}

/// The content of a view.
#[derive(Clone, Debug)]
pub(super) struct ViewState {
    pub(super) key: ViewKey,
    pub(super) fields: FieldsId,
    /// The fields that it shows.
    pub(super) visible: Arc<FieldTree>,
    /// The segments whose objects have more fields.
    pub(super) wider: BTreeSet<SegmentId>,
    /// The segments whose objects it shows, in order.
    pub(super) ready: Vec<SegmentId>,
    pub(super) indexes: Vec<Index>,
}

impl ViewState {
    /// Whether it shows the objects of a segment.
    pub(super) fn shows(&self, segment: SegmentId) -> bool {
        self.ready.binary_search(&segment).is_ok()
    }

    /// Updates the indexes for the change of an object from `old` to `new`.
    fn reindex(&mut self, slot: Slot, old: Option<&Object>, new: Option<&Object>) {
        if self.indexes.is_empty() {
            return;
        }
        let (old, new) = (old.map(Object::opened), new.map(Object::opened));
        for index in &mut self.indexes {
            if let Some(change) = index.change(old.as_ref(), new.as_ref()) {
                index.apply(slot, &change);
            }
        }
    }
}

impl State {
    pub(super) fn object(&self, slot: Slot) -> Option<&Arc<Object>> {
        self.slab.get(slot as usize)?.as_ref()
    }

    /// The object with that key.
    pub(super) fn find(&self, segment: SegmentId, key: &str) -> Option<(Slot, &Arc<Object>)> {
        self.candidates(&self.by_key, lookup_hash(&(segment, key)))
            .find(|(_, object)| object.segment() == segment && object.has_key(key))
    }

    /// The objects with that uid, at most one in a segment.
    pub(super) fn with_uid(&self, uid: &Uid) -> impl Iterator<Item = &Arc<Object>> {
        self.slots_with_uid(uid).map(|(_, object)| object)
    }

    /// The same with their slots.
    pub(super) fn slots_with_uid(&self, uid: &Uid) -> impl Iterator<Item = (Slot, &Arc<Object>)> {
        self.candidates(&self.by_uid, lookup_hash(uid))
            .filter(move |(_, object)| object.uid() == uid)
    }

    /// The objects of a segment in the order of their slots, starting at a slot.
    pub(super) fn members(
        &self,
        segment: SegmentId,
        from: Slot,
    ) -> impl Iterator<Item = (Slot, &Arc<Object>)> {
        self.members
            .iter(segment.0, from)
            .filter_map(|slot| Some((slot, self.object(slot)?)))
    }

    pub(super) fn segment(&self, segment: SegmentId) -> Option<&Members> {
        self.segments.get(&segment).map(|members| &**members)
    }

    pub(super) fn view(&self, view: ViewId) -> Option<&ViewState> {
        self.views.get(&view).map(|view| &**view)
    }

    pub(super) fn add_segment(&mut self, segment: SegmentId, kind: Kind) {
        let members = Members { kind, len: 0 };
        self.segments.insert(segment, Arc::new(members));
    }

    /// Drops a segment and its objects, and returns their slots.
    pub(super) fn drop_segment(&mut self, segment: SegmentId) -> Vec<Slot> {
        let slots: Vec<Slot> = self.members(segment, 0).map(|(slot, _)| slot).collect();
        for slot in &slots {
            self.remove(*slot);
        }
        self.segments.remove(&segment);
        slots
    }

    /// All views.
    pub(super) fn views(&self) -> impl Iterator<Item = (ViewId, &ViewState)> {
        self.views.iter().map(|(id, view)| (*id, &**view))
    }

    /// All objects, in the order of their slots.
    pub(super) fn objects(&self) -> impl Iterator<Item = (Slot, &Arc<Object>)> {
        let slots = (0..).zip(&self.slab);
        slots.filter_map(|(slot, object)| Some((slot, object.as_ref()?)))
    }

    pub(super) fn add_view(&mut self, view: ViewId, state: ViewState) {
        self.views.insert(view, Arc::new(state));
    }

    pub(super) fn drop_view(&mut self, view: ViewId) {
        self.views.remove(&view);
    }

    pub(super) fn view_mut(&mut self, view: ViewId) -> Option<&mut ViewState> {
        self.views.get_mut(&view).map(Arc::make_mut)
    }

    /// Puts an object into an empty slot.
    pub(super) fn insert(&mut self, slot: Slot, object: Arc<Object>) {
        let place = slot as usize;
        self.by_key
            .insert(lookup_hash(&(object.segment(), object.key())), slot);
        self.by_uid.insert(lookup_hash(object.uid()), slot);
        self.members.insert(object.segment().0, slot);
        if let Some(members) = self.segments.get_mut(&object.segment()) {
            Arc::make_mut(members).len += 1;
        }
        while self.slab.len() <= place {
            self.slab.push_back(None);
        }
        self.slab.set(place, Some(object));
    }

    /// Replaces an object in its slot.
    pub(super) fn update(&mut self, slot: Slot, object: Arc<Object>) {
        self.slab.set(slot as usize, Some(object));
    }

    /// Returns the former object if something refers to it: then the state has a copy.
    pub(super) fn set_version(
        &mut self,
        slot: Slot,
        version: ResourceVersion,
    ) -> Option<Arc<Object>> {
        let object = self.slab.get_mut(slot as usize)?.as_mut()?;
        if let Some(object) = Arc::get_mut(object) {
            object.set_version(version);
            return None;
        }
        let former = Arc::clone(object);
        Arc::make_mut(object).set_version(version);
        Some(former)
    }

    /// Puts back the former state of an object that has changed or is gone, unless its segment
    /// is gone or its name belongs to another uid.
    pub(super) fn put_back(&mut self, former: &Arc<Object>) {
        if self.segment(former.segment()).is_none() {
            return;
        }
        let found = self.find(former.segment(), former.key());
        let found = found.map(|(slot, present)| (slot, Arc::clone(present)));
        match found {
            Some((slot, present)) if present.uid() == former.uid() => {
                self.update(slot, Arc::clone(former));
                self.reindex_all(slot, Some(&present), Some(former));
            }
            Some(_) => {}
            None => {
                let free = Slot::try_from(self.slab.len()).unwrap_or(Slot::MAX);
                self.insert(free, Arc::clone(former));
                self.reindex_all(free, None, Some(former));
            }
        }
    }

    /// Empties a slot, and returns the object.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Arc<Object>> {
        let object = self.slab.get_mut(slot as usize)?.take()?;
        self.by_key
            .remove(lookup_hash(&(object.segment(), object.key())), slot);
        self.by_uid.remove(lookup_hash(object.uid()), slot);
        self.members.remove(object.segment().0, slot);
        if let Some(members) = self.segments.get_mut(&object.segment()) {
            Arc::make_mut(members).len -= 1;
        }
        Some(object)
    }

    /// Updates a view's indexes for an object that the view shows.
    pub(super) fn reindex(
        &mut self,
        view: ViewId,
        slot: Slot,
        old: Option<&OpenedObject<'_>>,
        new: Option<&OpenedObject<'_>>,
    ) {
        let Some(held) = self.view(view) else {
            return;
        };
        // What changes is found first, so that nothing is copied if nothing changes.
        let indexes = held.indexes.iter().enumerate();
        let changes = indexes.filter_map(|(place, index)| Some((place, index.change(old, new)?)));
        let changes: Vec<_> = changes.collect();
        if changes.is_empty() {
            return;
        }
        let Some(view) = self.view_mut(view) else {
            return;
        };
        for (place, change) in &changes {
            if let Some(index) = view.indexes.get_mut(*place) {
                index.apply(slot, change);
            }
        }
    }

    /// The same for every view that shows the object.
    pub(super) fn reindex_all(&mut self, slot: Slot, old: Option<&Object>, new: Option<&Object>) {
        let Some(segment) = new.or(old).map(Object::segment) else {
            return;
        };
        let views = self.views().filter(|(_, view)| view.shows(segment));
        let views: Vec<ViewId> = views.map(|(id, _)| id).collect();
        let (old, new) = (old.map(Object::opened), new.map(Object::opened));
        for view in views {
            self.reindex(view, slot, old.as_ref(), new.as_ref());
        }
    }

    /// Shows a segment's objects in a view, and returns them.
    pub(super) fn show(&mut self, view: ViewId, segment: SegmentId) -> Vec<(Slot, Arc<Object>)> {
        let members = self.owned_members(segment);
        if let Some(state) = self.view_mut(view) {
            if let Err(place) = state.ready.binary_search(&segment) {
                state.ready.insert(place, segment);
            }
            for (slot, object) in &members {
                state.reindex(*slot, None, Some(object));
            }
        }
        members
    }

    /// Removes a segment's objects from a view, and returns them.
    pub(super) fn hide(&mut self, view: ViewId, segment: SegmentId) -> Vec<(Slot, Arc<Object>)> {
        let members = self.owned_members(segment);
        if let Some(state) = self.view_mut(view) {
            state.ready.retain(|other| *other != segment);
            for (slot, object) in &members {
                state.reindex(*slot, Some(object), None);
            }
        }
        members
    }

    /// Sets whether the objects of a segment have fields that a view does not show. Returns
    /// whether that is a change.
    pub(super) fn set_wider(&mut self, view: ViewId, segment: SegmentId, is_wider: bool) -> bool {
        let is_same = |state: &ViewState| state.wider.contains(&segment) == is_wider;
        if self.view(view).is_none_or(is_same) {
            return false;
        }
        if let Some(state) = self.view_mut(view) {
            if is_wider {
                state.wider.insert(segment);
            } else {
                state.wider.remove(&segment);
            }
        }
        true
    }

    fn owned_members(&self, segment: SegmentId) -> Vec<(Slot, Arc<Object>)> {
        self.members(segment, 0)
            .map(|(slot, object)| (slot, Arc::clone(object)))
            .collect()
    }

    fn candidates<'a>(
        &'a self,
        hashes: &'a HashedSlots,
        hash: u32,
    ) -> impl Iterator<Item = (Slot, &'a Arc<Object>)> {
        let slots = hashes.with_hash(hash);
        slots.filter_map(|slot| Some((slot, self.object(slot)?)))
    }
}

/// Unlike the hash of a `HashMap`, the same in every process and every run.
pub(crate) fn lookup_hash(value: &impl Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::object::ChangeTimes;
    use super::*;
    use crate::object::ProjectedObject;
    use crate::time::Instant;

    const SEGMENT: SegmentId = SegmentId(3);

    fn object(name: &str, uid: &str) -> Arc<Object> {
        let item = ProjectedObject {
            namespace: "".into(),
            name: name.into(),
            uid: Uid::new(uid),
            resource_version: "1".into(),
            data: [0xc0].into(),
        };
        let changed = ChangeTimes::new(Instant::ZERO, Vec::new());
        Arc::new(Object::new(SEGMENT, name, &item, changed, None))
    }

    /// Two texts with the same hash.
    fn colliding(hash: impl Fn(&str) -> u32) -> [String; 2] {
        let mut texts = BTreeMap::new();
        for number in 0.. {
            let text = format!("o{number}");
            if let Some(other) = texts.insert(hash(&text), text.clone()) {
                return [other, text];
            }
        }
        unreachable!("there are more texts than hashes")
    }

    #[test]
    fn objects_with_the_same_hash_are_distinguished() {
        let names = colliding(|name| lookup_hash(&(SEGMENT, name)));
        let uids = colliding(|uid| lookup_hash(&Uid::new(uid)));
        let mut state = State::default();
        for (slot, (name, uid)) in (0..).zip(names.iter().zip(&uids)) {
            state.insert(slot, object(name, uid));
        }
        for (slot, (name, uid)) in (0..).zip(names.iter().zip(&uids)) {
            assert_eq!(state.find(SEGMENT, name).unwrap().0, slot);
            let uid = Uid::new(uid);
            let found: Vec<&str> = state.with_uid(&uid).map(|object| object.key()).collect();
            assert_eq!(found, [name]);
        }
    }

    #[test]
    fn an_object_that_is_gone_leaves_nothing_behind() {
        let mut state = State::default();
        state.insert(2, object("a", "u"));
        assert!(state.remove(1).is_none());
        assert_eq!(state.remove(2).unwrap().key(), "a");
        assert!(state.remove(2).is_none());
        assert!(state.by_key.is_empty() && state.by_uid.is_empty());
        assert_eq!(state.members(SEGMENT, 0).count(), 0);
    }
}
