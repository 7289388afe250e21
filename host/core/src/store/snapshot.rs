//! Reading a view: the source of the guest's `cache` interface.

use std::borrow::Cow;
use std::sync::Arc;

use super::index::Index;
use super::slots::Slot;
use super::state::{State, ViewState};
use super::{Object, Place, ResourceVersion, SegmentId, ViewId, ViewKey};
use crate::msgpack;
use crate::object::{Kind, ObjectRecord, ObjectRef, Uid};
use crate::path::FieldTree;
use crate::time::Instant;

/// The store at one moment. Cheap to clone and to send to another thread.
#[derive(Clone, Debug)]
pub struct Snapshot {
    state: State,
    /// Whether it has objects in a former state.
    has_former: bool,
}

impl Snapshot {
    pub(super) fn new(state: State) -> Self {
        Self {
            state,
            has_former: false,
        }
    }

    pub(super) const fn state(&self) -> &State {
        &self.state
    }

    /// The same with some objects in a former state, which may be gone by now. A name that
    /// belongs to another uid by now stays that of the other object.
    #[must_use]
    pub(crate) fn with_former<'a>(&self, objects: impl Iterator<Item = &'a Arc<Object>>) -> Self {
        let mut state = self.state.clone();
        for former in objects {
            state.put_back(former);
        }
        Self {
            state,
            has_former: true,
        }
    }

    /// Whether it has objects in a former state: what is decided on it must not be written.
    #[must_use]
    pub const fn has_former(&self) -> bool {
        self.has_former
    }

    /// The content of a view; none if there was no such view.
    #[must_use]
    pub fn view(&self, view: ViewId) -> Option<View<'_>> {
        View::new(&self.state, view)
    }

    /// The object with that uid. If several segments have it, the object of the segment
    /// that was added first.
    #[must_use]
    pub fn find(&self, uid: &Uid) -> Option<&Arc<Object>> {
        let found = self.state.with_uid(uid);
        found.min_by_key(|object| object.segment())
    }

    /// What each segment has of the object with that uid, in the order in which they were added. One
    /// has the fields that other controllers declare, and not those of another.
    #[must_use]
    pub fn copies(&self, uid: &Uid) -> Vec<&Arc<Object>> {
        let mut copies: Vec<_> = self.state.with_uid(uid).collect();
        copies.sort_by_key(|object| object.segment());
        copies
    }

    /// Whether it has this object: the uid, the group, the kind and the name of one.
    #[must_use]
    pub fn has(&self, wanted: &ObjectRef) -> bool {
        let group = wanted.group();
        let uid = Uid::new(&wanted.uid);
        let mut found = self.state.with_uid(&uid);
        found.any(|object| {
            let segment = self.state.segment(object.segment());
            let is_of_kind = segment.is_some_and(|segment| {
                *segment.kind.kind == *wanted.kind && segment.kind.group() == group
            });
            is_of_kind && object.namespace() == wanted.namespace && object.name() == wanted.name
        })
    }

    /// The object with the uid of this one, if that has another name or is in another
    /// namespace. The kind does not count: an object may be served in two groups.
    #[must_use]
    pub fn other_with_uid_of(&self, wanted: &ObjectRef) -> Option<&Object> {
        let uid = Uid::new(&wanted.uid);
        let is_it =
            |one: &&Arc<Object>| one.namespace() == wanted.namespace && one.name() == wanted.name;
        if self.state.with_uid(&uid).any(|one| is_it(&one)) {
            return None;
        }
        self.find(&uid).map(|one| &**one)
    }

    /// The versions of the object with that uid, one for each segment that has
    /// it.
    pub fn versions_of(&self, uid: &Uid) -> impl Iterator<Item = &ResourceVersion> {
        self.state.with_uid(uid).map(|object| object.version())
    }
}

/// The content of a view at one moment.
///
/// Lists come in pages, always in the same, unspecified order. A cursor is 0 for the
/// first page, then the `next` of the page before; any other number is some place in
/// the list. In a later snapshot, a cursor still skips no object that was in the list
/// all the time.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    state: &'a State,
    view: &'a ViewState,
}

/// An object in a view.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The object.
    pub object: &'a Arc<Object>,
    /// Its kind.
    pub kind: &'a Kind,
    /// The last change of the fields that the view reads.
    pub changed_at: Instant,
    /// The fields that the view shows; none if the object has no others.
    visible: Option<&'a FieldTree>,
}

impl<'a> Entry<'a> {
    /// What the view shows of the object, as MessagePack. Fields that only others read
    /// are left out: a guest's decisions must not depend on other controllers.
    #[must_use]
    pub fn data(&self) -> Cow<'a, [u8]> {
        let data = self.object.data();
        match self.visible.map(|visible| msgpack::select(visible, &data)) {
            None => data,
            // What cannot be read has no fields to show.
            Some(selected) => Cow::Owned(selected.unwrap_or_else(|_| EMPTY_MAP.to_vec())),
        }
    }

    /// The object in the form that a guest reads.
    #[must_use]
    pub fn record(&self) -> ObjectRecord {
        ObjectRecord {
            kind: self.kind.clone(),
            resource_version: self.object.version().to_string().into(),
            changed_at: self.changed_at,
            data: self.data().into(),
        }
    }
}

/// A map without entries, as MessagePack.
const EMPTY_MAP: [u8; 1] = [0x80];

/// A part of a longer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of this part.
    pub items: Vec<T>,
    /// The cursor of the next part; none at the end.
    pub next: Option<u64>,
}

impl<'a> View<'a> {
    pub(super) fn new(state: &'a State, view: ViewId) -> Option<Self> {
        let view = state.view(view)?;
        Some(Self { state, view })
    }

    /// The number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        let segments = self.view.ready.iter();
        segments
            .filter_map(|segment| self.state.segment(*segment))
            .map(|members| members.len)
            .sum()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of objects of a kind.
    #[must_use]
    pub fn len_of(&self, api_version: &str, kind: &str) -> usize {
        let segments = self.view.ready.iter();
        segments
            .filter_map(|segment| self.state.segment(*segment))
            .filter(|members| &*members.kind.kind == kind)
            .filter(|members| &*members.kind.api_version == api_version)
            .map(|members| members.len)
            .sum()
    }

    /// The key of an object in the view.
    #[must_use]
    pub fn key_of<'o>(&self, object: &'o Object) -> Cow<'o, str> {
        match self.view.key {
            ViewKey::Name => Cow::Borrowed(object.key()),
            ViewKey::Uid => Cow::Owned(object.uid().to_string()),
        }
    }

    /// The last change of the fields of an object that the view reads. For fields that
    /// no view read at the time, the latest possible time.
    #[must_use]
    pub fn changed_at(&self, object: &Object) -> Instant {
        object.changed().of(self.view.fields)
    }

    /// The object with that key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Entry<'a>> {
        match self.view.key {
            ViewKey::Uid => self.get_by_uid(key),
            ViewKey::Name => {
                let mut segments = self.view.ready.iter();
                let (_, object) = segments.find_map(|id| self.state.find(*id, key))?;
                self.entry(object)
            }
        }
    }

    /// The object with that uid. If two resources serve it, the object of the segment
    /// that was added first.
    #[must_use]
    pub fn get_by_uid(&self, uid: &str) -> Option<Entry<'a>> {
        let uid = Uid::new(uid);
        let object = self
            .state
            .with_uid(&uid)
            .filter(|object| self.view.shows(object.segment()))
            .min_by_key(|object| object.segment())?;
        self.entry(object)
    }

    /// The slots of the objects with that key: at most one by name, one in each segment by uid.
    fn slots_of_key(&self, key: &str) -> Vec<Slot> {
        match self.view.key {
            ViewKey::Uid => {
                let uid = Uid::new(key);
                let found = self.state.slots_with_uid(&uid);
                found.map(|(slot, _)| slot).collect()
            }
            ViewKey::Name => {
                let segments = self.view.ready.iter();
                let found = segments.filter_map(|id| self.state.find(*id, key));
                found.map(|(slot, _)| slot).collect()
            }
        }
    }

    /// The objects' keys, `limit` at most, from `cursor` on.
    #[must_use]
    pub fn keys(&self, cursor: u64, limit: usize) -> Page<Cow<'a, str>> {
        let keys = self
            .objects(cursor)
            .map(|(at, object)| (at, self.key_of(object)));
        page(keys, limit)
    }

    /// The objects, `limit` at most, from `cursor` on.
    #[must_use]
    pub fn scan(&self, cursor: u64, limit: usize) -> Page<Entry<'a>> {
        let entries = self.objects(cursor);
        page(
            entries.filter_map(|(at, object)| Some((at, self.entry(object)?))),
            limit,
        )
    }

    /// An index of the view; none if the view has no index of that name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<IndexView<'a>> {
        let index = self
            .view
            .indexes
            .iter()
            .find(|index| index.name() == name)?;
        Some(IndexView { view: *self, index })
    }

    /// Every object at or after a cursor. A cursor is a segment's number above a slot.
    fn objects(&self, cursor: u64) -> impl Iterator<Item = (u64, &'a Arc<Object>)> {
        let state = self.state;
        let first = SegmentId((cursor >> Slot::BITS) as u32);
        let begin = self.view.ready.partition_point(|segment| *segment < first);
        let segments = self.view.ready.get(begin..).unwrap_or_default();
        segments.iter().flat_map(move |segment| {
            let start = u64::from(segment.0) << Slot::BITS;
            // The cursor is in the first segment, or before all segments.
            let from = Slot::try_from(cursor.saturating_sub(start)).unwrap_or(Slot::MAX);
            state
                .members(*segment, from)
                .map(move |(slot, object)| (start | u64::from(slot), object))
        })
    }

    fn entry(&self, object: &'a Arc<Object>) -> Option<Entry<'a>> {
        let is_wider = self.view.wider.contains(&object.segment());
        Some(Entry {
            object,
            kind: &self.state.segment(object.segment())?.kind,
            changed_at: self.changed_at(object),
            visible: is_wider.then_some(&*self.view.visible),
        })
    }
}

/// An index of a view at one moment.
#[derive(Clone, Copy, Debug)]
pub struct IndexView<'a> {
    view: View<'a>,
    index: &'a Index,
}

impl<'a> IndexView<'a> {
    /// The objects that have a value, `limit` at most, from `cursor` on.
    #[must_use]
    pub fn get(&self, value: &str, cursor: u64, limit: usize) -> Page<Entry<'a>> {
        let Ok(from) = Slot::try_from(cursor) else {
            return page(std::iter::empty(), limit);
        };
        let entries = self.index.slots(value, from).filter_map(|slot| {
            let entry = self.view.entry(self.view.state.object(slot)?)?;
            Some((u64::from(slot), entry))
        });
        page(entries, limit)
    }

    /// At most `limit` objects that have a value, in the index's order, after a place;
    /// and the place of the last one, if more follow. None if the index has no order.
    #[must_use]
    pub fn in_order(
        &self,
        value: &str,
        after: Option<&Place>,
        limit: usize,
    ) -> Option<(Vec<Entry<'a>>, Option<Place>)> {
        self.index.order()?;
        let mut slots = self.index.slots_after(value, after);
        let entries = slots.by_ref().take(limit);
        let entries = entries.filter_map(|slot| self.view.entry(self.view.state.object(slot)?));
        let entries: Vec<Entry<'a>> = entries.collect();
        let last = entries.last().filter(|_| slots.next().is_some());
        let next = last.and_then(|entry| {
            Some(Place {
                order: self.index.order_of(&entry.object.data())?.into_owned(),
                key: entry.object.key().to_owned(),
            })
        });
        Some((entries, next))
    }

    /// Whether the object with a key has a value.
    #[must_use]
    pub fn has(&self, value: &str, key: &str) -> bool {
        let slots = self.view.slots_of_key(key);
        let has = |slot: &Slot| self.index.slots(value, *slot).next() == Some(*slot);
        slots.iter().any(has)
    }

    /// The number of objects that have a value.
    #[must_use]
    pub fn count(&self, value: &str) -> u32 {
        self.index.count(value)
    }

    /// At most `limit` values after `after` in byte order, each with the number of its
    /// objects.
    #[must_use]
    pub fn values(&self, after: Option<&str>, limit: usize) -> Vec<(&'a str, u32)> {
        self.index.keys(after).take(limit).collect()
    }

    /// At most `limit` values after `after` in byte order that another index lacks.
    #[must_use]
    pub fn values_without(
        &self,
        other: &IndexView<'_>,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<&'a str> {
        // Both are in order, so that one walk through each finds them.
        let mut others = other.index.keys(after).map(|(value, _)| value).peekable();
        let values = self.index.keys(after).map(|(value, _)| value);
        let lacking = values.filter(|value| {
            while others.next_if(|other| other < value).is_some() {}
            others.next_if_eq(value).is_none()
        });
        lacking.take(limit).collect()
    }

    /// The values of an object, each once, in byte order. The object may be one that
    /// the view showed earlier.
    #[must_use]
    pub fn values_of(&self, object: &Object) -> Vec<String> {
        let data = object.data();
        let values = self.index.values_of(&data).into_iter();
        values.map(Cow::into_owned).collect()
    }
}

fn page<T>(mut all: impl Iterator<Item = (u64, T)>, limit: usize) -> Page<T> {
    let items = all.by_ref().take(limit).map(|(_, item)| item).collect();
    let next = all.next().map(|(at, _)| at);
    Page { items, next }
}
