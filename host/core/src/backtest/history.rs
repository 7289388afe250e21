//! The cluster as a journal describes it, entry by entry.
//!
//! Unlike [`crate::journal::Replay`], it takes no snapshots and keeps no indexes: a backtest
//! applies millions of changes, and asks for objects by slot, uid and name alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::journal::ControllerEntry;
use crate::mapping::Mapping;
use crate::object::{ApiResource, Uid};
use crate::path::FieldTree;
use crate::store::{
    Object, Renewals, SegmentId, SegmentSpec, Slot, StateChange, ViewDefinition, ViewId,
    lookup_hash,
};

/// The highest slot that is accepted: the slots below take memory.
const MOST_SLOTS: Slot = 1 << 24;

/// A change that does not fit: a part of the journal is missing or wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the journal's changes of the cache do not fit: {0}")]
pub struct HistoryError(String);

/// What a change of the cache means for the objects.
#[derive(Debug)]
pub(super) enum ObjectChange {
    /// Nothing changes for them.
    None,
    /// The object in this slot is new, or has another state.
    Put {
        slot: Slot,
        /// Whether no slot had its uid before.
        is_new: bool,
    },
    /// The objects in these slots have another state.
    Renewed(Vec<Slot>),
    /// The object is gone from this segment.
    Remove {
        segment: SegmentId,
        object: Arc<Object>,
        /// Whether another segment still has it.
        is_left: bool,
    },
    /// Other lists, or other fields of them, are recorded from now on.
    Lists,
}

/// An object with the version that the policy under test reads: versions of the backtest,
/// because what the policy writes is a version too.
#[derive(Clone, Debug)]
pub(super) struct VersionedObject {
    pub(super) object: Arc<Object>,
    pub(super) version: u64,
}

/// A list that the journal has.
#[derive(Debug)]
pub(super) struct RecordedList {
    pub(super) spec: Arc<SegmentSpec>,
    /// The fields of the views that show it: those that its objects have for sure.
    pub(super) fields: FieldTree,
    /// Whether a view shows it: only then it is complete.
    pub(super) is_listed: bool,
}

/// The state by now.
#[derive(Debug, Default)]
pub(super) struct History {
    lists: BTreeMap<SegmentId, RecordedList>,
    views: BTreeMap<ViewId, View>,
    slots: Vec<Option<VersionedObject>>,
    /// By a hash of the uid: the objects themselves have the uid.
    by_uid: Hashes,
    /// By a hash of segment and key.
    by_key: Hashes,
    pub(super) mapping: Option<Arc<Mapping>>,
    pub(super) controllers: BTreeMap<String, Arc<ControllerEntry>>,
    pub(super) specs: BTreeMap<String, Arc<str>>,
    /// The fields of the complete lists so far, also of former hosts.
    known: BTreeMap<ApiResource, FieldTree>,
    /// The groups and kinds of all lists so far, also of former hosts.
    kinds: BTreeSet<(Box<str>, Box<str>)>,
    /// The last version: of history and of the policy's writes.
    last_version: u64,
}

/// Slots by the hash of a text. A lookup compares the texts of what it finds.
type Hashes = BTreeSet<(u32, Slot)>;

#[derive(Debug)]
struct View {
    definition: Arc<ViewDefinition>,
    shows: BTreeSet<SegmentId>,
}

impl History {
    /// Another host starts: its cache is empty. The mapping stays until the host has one.
    pub(super) fn restart(&mut self) {
        *self = Self {
            mapping: self.mapping.take(),
            known: std::mem::take(&mut self.known),
            kinds: std::mem::take(&mut self.kinds),
            last_version: self.last_version,
            ..Self::default()
        };
    }

    /// The next version of an object.
    pub(super) const fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    /// The last version of any object.
    pub(super) const fn last_version(&self) -> u64 {
        self.last_version
    }

    pub(super) fn list(&self, segment: SegmentId) -> Option<&RecordedList> {
        self.lists.get(&segment)
    }

    pub(super) fn lists(&self) -> impl Iterator<Item = (SegmentId, &RecordedList)> {
        self.lists.iter().map(|(segment, list)| (*segment, list))
    }

    /// The complete list of a resource, without selectors.
    pub(super) fn whole_list(&self, resource: &ApiResource) -> Option<(SegmentId, &RecordedList)> {
        let is_whole = |list: &RecordedList| {
            let spec = &list.spec;
            list.is_listed
                && spec.resource == *resource
                && !spec.is_selected()
                && spec.namespace.is_empty()
        };
        self.lists().find(|(_, list)| is_whole(list))
    }

    /// Whether a complete list has every object of a group and kind in a namespace.
    pub(super) fn lists_all(&self, group: &str, kind: &str, namespace: &str) -> bool {
        let is_it = |list: &RecordedList| {
            let spec = &list.spec;
            list.is_listed
                && spec.kind.group() == group
                && *spec.kind.kind == *kind
                && !spec.is_selected()
                && (spec.namespace.is_empty() || *spec.namespace == *namespace)
        };
        self.lists.values().any(is_it)
    }

    /// The fields that complete lists of a resource had so far; none if there was none.
    pub(super) fn known_fields(&self, resource: &ApiResource) -> Option<&FieldTree> {
        self.known.get(resource)
    }

    /// Whether a list of a group and kind was recorded so far.
    pub(super) fn has_recorded(&self, group: &str, kind: &str) -> bool {
        self.kinds.contains(&(group.into(), kind.into()))
    }

    /// The objects of a list, in the order of their keys.
    pub(super) fn members(&self, segment: SegmentId) -> impl Iterator<Item = &VersionedObject> {
        let held = self.slots.iter().flatten();
        let mut members: Vec<_> = held
            .filter(|held| held.object.segment() == segment)
            .collect();
        members.sort_unstable_by_key(|held| held.object.key());
        members.into_iter()
    }

    pub(super) fn object(&self, slot: Slot) -> Option<&VersionedObject> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The object with this key: of two, which only a wrong journal has, the later one.
    pub(super) fn find(&self, segment: SegmentId, key: &str) -> Option<&VersionedObject> {
        self.candidates(&self.by_key, lookup_hash(&(segment, key)))
            .map(|(_, held)| held)
            .filter(|held| held.object.segment() == segment && held.object.key() == key)
            .max_by_key(|held| held.version)
    }

    /// The object with this uid, in each list that has it.
    pub(super) fn with_uid(&self, uid: &Uid) -> impl Iterator<Item = &VersionedObject> {
        self.slots_with_uid(uid).map(|(_, held)| held)
    }

    fn slots_with_uid(&self, uid: &Uid) -> impl Iterator<Item = (Slot, &VersionedObject)> {
        self.candidates(&self.by_uid, lookup_hash(uid))
            .filter(move |(_, held)| held.object.uid() == uid)
    }

    fn candidates(
        &self,
        hashes: &Hashes,
        hash: u32,
    ) -> impl Iterator<Item = (Slot, &VersionedObject)> {
        hashes
            .range((hash, Slot::MIN)..)
            .take_while(move |(other, _)| *other == hash)
            .filter_map(|(_, slot)| Some((*slot, self.object(*slot)?)))
    }

    /// Whether any list has the object with this uid.
    pub(super) fn has(&self, uid: &Uid) -> bool {
        self.with_uid(uid).next().is_some()
    }

    /// Gives every copy of an object a new version.
    pub(super) fn touch(&mut self, uid: &Uid) -> u64 {
        let version = self.next_version();
        let slots: Vec<Slot> = self.slots_with_uid(uid).map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(Some(held)) = self.slots.get_mut(slot as usize) {
                held.version = version;
            }
        }
        version
    }

    /// Applies a change of the cache. It is not trusted.
    pub(super) fn apply(&mut self, change: &StateChange) -> Result<ObjectChange, HistoryError> {
        match change {
            StateChange::AddView(definition) => {
                let view = View {
                    definition: Arc::clone(definition),
                    shows: BTreeSet::new(),
                };
                self.views.insert(definition.view, view);
                Ok(ObjectChange::None)
            }
            StateChange::DropView(view) => {
                self.views.remove(view);
                self.note_fields();
                Ok(ObjectChange::Lists)
            }
            StateChange::AddSegment { segment, spec } => {
                let list = RecordedList {
                    spec: Arc::clone(spec),
                    fields: FieldTree::default(),
                    is_listed: false,
                };
                let kind = &spec.kind;
                self.kinds
                    .insert((kind.group().into(), Box::from(&*kind.kind)));
                self.lists.insert(*segment, list);
                Ok(ObjectChange::None)
            }
            StateChange::DropSegment(segment) => {
                self.drop_list(*segment);
                Ok(ObjectChange::Lists)
            }
            StateChange::Show { view, segment } => {
                let shown = self.views.get_mut(view);
                let shown = shown.filter(|_| self.lists.contains_key(segment));
                let Some(shown) = shown else {
                    return Err(misfit(format!(
                        "view {} or segment {} is unknown",
                        view.0, segment.0
                    )));
                };
                shown.shows.insert(*segment);
                self.note_fields();
                Ok(ObjectChange::Lists)
            }
            StateChange::Hide { view, segment } => {
                if let Some(view) = self.views.get_mut(view) {
                    view.shows.remove(segment);
                }
                self.note_fields();
                Ok(ObjectChange::Lists)
            }
            StateChange::Width { .. } => Ok(ObjectChange::None),
            StateChange::Put { slot, object, .. } => self.put(*slot, object),
            StateChange::Renew(renewals) => self.renew(renewals),
            StateChange::Remove { slot, uid } => self.remove(*slot, uid),
        }
    }

    fn renew(&mut self, renewals: &Renewals) -> Result<ObjectChange, HistoryError> {
        let mut slots = Vec::new();
        for (slot, renewal) in &renewals.renewed {
            let held = self.object(*slot);
            let Some(renewed) = held.and_then(|held| held.object.renewed(renewal)) else {
                return Err(misfit(format!(
                    "slot {slot} does not have what was renewed"
                )));
            };
            self.put(*slot, &Arc::new(renewed))?;
            slots.push(*slot);
        }
        Ok(ObjectChange::Renewed(slots))
    }

    fn put(&mut self, slot: Slot, object: &Arc<Object>) -> Result<ObjectChange, HistoryError> {
        if slot >= MOST_SLOTS {
            return Err(misfit(format!("slot {slot} is too high")));
        }
        if !self.lists.contains_key(&object.segment()) {
            return Err(misfit(format!("segment {} is unknown", object.segment().0)));
        }
        let version = self.next_version();
        let place = slot as usize;
        if self.slots.len() <= place {
            self.slots.resize(place + 1, None);
        }
        let Some(held) = self.slots.get_mut(place) else {
            return Err(misfit(format!("slot {slot} is too high")));
        };
        if let Some(held) = held {
            let old = &held.object;
            let is_same = old.segment() == object.segment()
                && old.uid() == object.uid()
                && old.key() == object.key();
            if !is_same {
                return Err(misfit(format!("slot {slot} has another object")));
            }
            held.object = Arc::clone(object);
            held.version = version;
            return Ok(ObjectChange::Put {
                slot,
                is_new: false,
            });
        }
        *held = Some(VersionedObject {
            object: Arc::clone(object),
            version,
        });
        let is_new = !self.has(object.uid());
        self.by_key
            .insert((lookup_hash(&(object.segment(), object.key())), slot));
        self.by_uid.insert((lookup_hash(object.uid()), slot));
        Ok(ObjectChange::Put { slot, is_new })
    }

    fn remove(&mut self, slot: Slot, uid: &Uid) -> Result<ObjectChange, HistoryError> {
        let held = self.slots.get_mut(slot as usize).map(Option::take);
        let Some(held) = held.flatten().filter(|held| held.object.uid() == uid) else {
            return Err(misfit(format!("slot {slot} does not have {uid}")));
        };
        let object = held.object;
        self.forget(slot, &object);
        Ok(ObjectChange::Remove {
            segment: object.segment(),
            is_left: self.has(object.uid()),
            object,
        })
    }

    /// Forgets where an object was.
    fn forget(&mut self, slot: Slot, object: &Object) {
        let key = lookup_hash(&(object.segment(), object.key()));
        self.by_key.remove(&(key, slot));
        self.by_uid.remove(&(lookup_hash(object.uid()), slot));
    }

    fn drop_list(&mut self, segment: SegmentId) {
        let held = (0..).zip(&self.slots);
        let members = held.filter_map(|(slot, held)| {
            let object = &held.as_ref()?.object;
            (object.segment() == segment).then_some(slot)
        });
        for slot in members.collect::<Vec<Slot>>() {
            let held = self.slots.get_mut(slot as usize).map(Option::take);
            if let Some(held) = held.flatten() {
                self.forget(slot, &held.object);
            }
        }
        self.lists.remove(&segment);
        for view in self.views.values_mut() {
            view.shows.remove(&segment);
        }
    }

    /// The fields of each list are those of the views that show it.
    fn note_fields(&mut self) {
        for (segment, list) in &mut self.lists {
            let showing = self.views.values();
            let mut showing = showing
                .filter(|view| view.shows.contains(segment))
                .peekable();
            list.is_listed = showing.peek().is_some();
            list.fields = FieldTree::default();
            for view in showing {
                list.fields.merge(&view.definition.visible);
            }
            let spec = &list.spec;
            let selectors = [&spec.namespace, &spec.label_selector, &spec.field_selector];
            if list.is_listed && selectors.into_iter().all(String::is_empty) {
                let known = self.known.entry(spec.resource.clone()).or_default();
                known.merge(&list.fields);
            }
        }
    }
}

fn misfit(why: String) -> HistoryError {
    HistoryError(why)
}
