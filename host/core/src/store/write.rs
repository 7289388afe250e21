//! Writing updates of streams into the store.

use std::sync::Arc;

use super::object::{ChangeTimes, OpenedObject};
use super::segment::Reader;
use super::slots::Slot;
use super::{Change, MissingFields, Object, ResourceVersion, SegmentId, Store};
use crate::msgpack;
use crate::mutant::Mutant;
use crate::object::{ProjectedObject, Uid, object_key};
use crate::path::FieldTree;
use crate::time::Instant;

/// Whether the version of an object has to be above the stored one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Checked,
    Any,
}

/// A write to a segment that was dropped does nothing: its stream may deliver updates
/// after the last view is gone.
impl Store {
    /// Applies an object that a watch added or modified, with the fields that the
    /// segment was last listed with.
    ///
    /// Ignored if its resource version is not above the stored one of the same name,
    /// whatever the uids: since Kubernetes 1.35 the versions of a resource's objects
    /// can be compared as integers. Versions that are not integers apply in the order
    /// of their arrival.
    ///
    /// `changes` gets every view whose fields changed. If the name now belongs to
    /// another uid, the old object disappears and the new one appears.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "nobody has use for an object that the store has"
    )]
    pub fn apply(
        &mut self,
        segment: SegmentId,
        item: ProjectedObject,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        self.put(segment, &item, Order::Checked, now, changes);
    }

    /// Applies a deletion. Ignored if the name belongs to another uid by now; an empty
    /// uid matches any.
    pub fn remove(
        &mut self,
        segment: SegmentId,
        namespace: &str,
        name: &str,
        uid: &Uid,
        changes: &mut Vec<Change>,
    ) {
        if let Some((slot, stored)) = self.state.find(segment, &object_key(namespace, name))
            && (uid.is_empty() || stored.uid() == uid)
        {
            self.vacate(segment, slot, changes);
        }
    }

    /// Applies a complete list of a segment, which has the fields in `listed`. Objects
    /// that the list lacks are gone. Views that waited for these fields show the
    /// segment's objects from now on.
    ///
    /// The versions of a list's objects are not compared: after a restore of the
    /// cluster's database they are lower than the stored ones. If a name occurs twice,
    /// the last one counts.
    ///
    /// The store does not change if the list lacks fields that a view shows already.
    pub fn replace(
        &mut self,
        segment: SegmentId,
        listed: FieldTree,
        items: impl IntoIterator<Item = ProjectedObject>,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Result<(), MissingFields> {
        let items: Vec<ProjectedObject> = items.into_iter().collect();
        let Some(entry) = self.segments.get_mut(&segment) else {
            return Ok(());
        };
        let loses = |reader: &Reader| reader.ready && !listed.covers(&reader.tree);
        if entry.readers.iter().any(loses) {
            return Err(MissingFields {
                resource: entry.spec.resource.to_string(),
            });
        }
        if entry.listed.as_ref() != Some(&listed) {
            // An object with other fields is a worse sample.
            entry.choose_dictionary(&items);
        }
        entry.listed = Some(listed);
        self.note_width(segment);
        let mut seen: Vec<Slot> = items
            .into_iter()
            .filter_map(|item| self.put(segment, &item, Order::Any, now, changes))
            .collect();
        seen.sort_unstable();
        let gone: Vec<Slot> = self
            .state
            .members(segment, 0)
            .map(|(slot, _)| slot)
            .filter(|slot| seen.binary_search(slot).is_err())
            .filter(|_| !Mutant::KeepUnlistedObjects.is_active())
            .collect();
        for slot in gone {
            self.vacate(segment, slot, changes);
        }
        self.show_to_waiting(segment, changes);
        Ok(())
    }

    /// Shows a segment's objects in the views that waited for its list.
    fn show_to_waiting(&mut self, id: SegmentId, changes: &mut Vec<Change>) {
        let Some(segment) = self.segments.get_mut(&id) else {
            return;
        };
        let mut views = Vec::new();
        for reader in &mut segment.readers {
            let covered = |listed: &FieldTree| listed.covers(&reader.tree);
            if !reader.ready && segment.listed.as_ref().is_some_and(covered) {
                reader.ready = true;
                views.extend_from_slice(&reader.views);
            }
        }
        for view in views {
            self.show(view, id, changes);
        }
    }

    /// Stores an object under its name, and returns its slot.
    fn put(
        &mut self,
        id: SegmentId,
        item: &ProjectedObject,
        order: Order,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Option<Slot> {
        let segment = self.segments.get_mut(&id)?;
        let key = item.key();
        let Some((slot, stored)) = self.state.find(id, &key) else {
            return Some(self.occupy(id, &key, item, now, changes));
        };
        let version = ResourceVersion::new(&item.resource_version);
        if order == Order::Checked && !version.may_follow(stored.version()) {
            return Some(slot);
        }
        if *stored.uid() != item.uid {
            self.vacate(id, slot, changes);
            return Some(self.occupy(id, &key, item, now, changes));
        }
        let data = stored.data();
        if *data == *item.data {
            if *stored.version() != version {
                let copied = self.state.set_version(slot, version);
                copied.inspect(|old| self.log.note_copied(old));
            }
            return Some(slot);
        }
        let old = Arc::clone(stored);
        let data = data.into_owned();
        let mut earlier = Vec::new();
        let mut touched = Vec::new();
        for reader in segment.readers.iter().filter(|reader| reader.ready) {
            if msgpack::subset_equal(&reader.tree, &data, &item.data) {
                earlier.push((reader.fields, old.changed().of(reader.fields)));
            } else {
                touched.extend_from_slice(&reader.views);
            }
        }
        let changed = ChangeTimes::new(now, earlier);
        let dictionary = segment.dictionary_for(&item.data);
        let new = Arc::new(Object::new(id, &key, item, changed, dictionary));
        segment.bytes = segment.bytes + new.bytes() - old.bytes();
        let fields = (&*data, &*item.data);
        self.log
            .note_update(slot, &new, fields, &segment.spec, &touched);
        self.state.update(slot, Arc::clone(&new));
        self.log.note_released(&old);
        touched.sort_unstable();
        let (before, after) = (
            OpenedObject::of(&old, &data),
            OpenedObject::of(&new, &item.data),
        );
        for view in touched {
            self.state.reindex(view, slot, Some(&before), Some(&after));
            changes.push(Change {
                view,
                old: Some(Arc::clone(&old)),
                new: Some(Arc::clone(&new)),
            });
        }
        Some(slot)
    }

    /// Stores a new object in a free slot.
    fn occupy(
        &mut self,
        id: SegmentId,
        key: &str,
        item: &ProjectedObject,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Slot {
        let slot = self.free.pop().unwrap_or(self.next_slot);
        self.next_slot = self.next_slot.max(slot + 1);
        let Some(segment) = self.segments.get_mut(&id) else {
            return slot;
        };
        let changed = ChangeTimes::new(now, Vec::new());
        let dictionary = segment.dictionary_for(&item.data);
        let object = Arc::new(Object::new(id, key, item, changed, dictionary));
        self.state.insert(slot, Arc::clone(&object));
        self.log.note_object(slot, &object, &segment.spec);
        segment.bytes += object.bytes();
        let opened = OpenedObject::of(&object, &item.data);
        for view in segment.ready_views() {
            self.state.reindex(view, slot, None, Some(&opened));
            changes.push(Change {
                view,
                old: None,
                new: Some(Arc::clone(&object)),
            });
        }
        slot
    }

    /// Removes an object from its slot.
    fn vacate(&mut self, id: SegmentId, slot: Slot, changes: &mut Vec<Change>) {
        let Some(object) = self.state.remove(slot) else {
            return;
        };
        self.free.push(slot);
        self.log.note_removal(slot, &object);
        self.log.note_released(&object);
        let Some(segment) = self.segments.get_mut(&id) else {
            return;
        };
        segment.bytes -= object.bytes();
        let opened = object.opened();
        for view in segment.ready_views() {
            self.state.reindex(view, slot, Some(&opened), None);
            changes.push(Change {
                view,
                old: Some(Arc::clone(&object)),
                new: None,
            });
        }
    }
}
