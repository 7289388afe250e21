//! Keyframes: the whole state at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::entry::{ControllerEntry, Entry, HeldEntry, Record, StreamEntry};
use crate::api::ControllerSpec;
use crate::coverage::UnlistedResourcesByView;
use crate::mapping::Mapping;
use crate::object::Uid;
use crate::store::{Object, StoreKeyframe};
use crate::time::Now;

/// Objects in a former state, by the controllers whose calls read them and by uid.
pub(super) type HeldByController = BTreeMap<Arc<str>, BTreeMap<Uid, Arc<Object>>>;

/// What a host gives to its journal, in order.
#[derive(Debug)]
pub enum JournalItem {
    /// One entry.
    Record(Record),
    /// The state at this moment. Its entries come before those of later items.
    Keyframe(Box<Keyframe>),
    /// No entry: the cache has no more so many bytes of objects that earlier items may refer to.
    Released(usize),
}

impl JournalItem {
    /// The bytes of memory that it keeps at most, but for the objects of the cache: of these,
    /// entries and keyframes count as references until the cache has released an object. So the
    /// list of a large cluster counts little, and a disk that hangs while its objects change
    /// counts all. (What a segment had when it was dropped is not counted.)
    #[must_use]
    pub fn bytes(&self) -> usize {
        let kept = match self {
            Self::Record(record) => record.entry.bytes(),
            Self::Keyframe(_) => 0,
            Self::Released(bytes) => return *bytes,
        };
        size_of::<Self>() + kept
    }

    /// The bytes of the objects of the cache that it refers to; for a keyframe, more than any
    /// cache has.
    #[must_use]
    pub fn shared_bytes(&self) -> usize {
        match self {
            Self::Record(record) => record.entry.shared_bytes(),
            Self::Keyframe(_) => 1 << 40,
            Self::Released(_) => 0,
        }
    }
}

/// The state at one moment, as references. Making it is cheap, whatever the size of the
/// cache.
#[derive(Clone, Debug)]
pub struct Keyframe {
    pub(super) now: Now,
    pub(super) is_start: bool,
    pub(super) store: StoreKeyframe,
    pub(super) mapping: Option<Arc<Mapping>>,
    pub(super) unlisted: Option<UnlistedResourcesByView>,
    pub(super) controllers: BTreeMap<String, Arc<ControllerEntry>>,
    pub(super) specs: BTreeMap<String, ControllerSpec>,
    pub(super) held: HeldByController,
    pub(super) is_held_stripped: bool,
    /// The streams that do not show what happens, by their resources.
    pub(super) interrupted: BTreeMap<String, StreamEntry>,
}

impl Keyframe {
    /// The time of the state.
    #[must_use]
    pub const fn now(&self) -> Now {
        self.now
    }

    /// The state as entries, from [`Entry::Keyframe`] to [`Entry::KeyframeEnd`].
    pub fn entries(&self) -> impl Iterator<Item = Record> {
        let start = Entry::Keyframe {
            is_start: self.is_start,
        };
        let mapping = self.mapping.iter().cloned().map(Entry::Mapping);
        let unlisted = self.unlisted.iter().cloned().map(Entry::Unlisted);
        let controllers = self.controllers.values().cloned().map(Entry::Controller);
        let specs = self.specs.iter().map(|(name, spec)| spec_entry(name, spec));
        let held = self.held.iter().map(|(controller, held)| {
            Entry::Held(Box::new(HeldEntry {
                controller: Arc::clone(controller),
                holds: held.values().cloned().collect(),
                releases: Vec::new(),
                is_stripped: self.is_held_stripped,
            }))
        });
        let interrupted = self.interrupted.values().cloned();
        let interrupted = interrupted.map(|one| Entry::Stream(Box::new(one)));
        let now = self.now;
        std::iter::once(start)
            .chain(self.store.changes().map(Entry::Cache))
            .chain(interrupted)
            .chain(mapping)
            .chain(unlisted)
            .chain(controllers)
            .chain(specs)
            .chain(held)
            .chain([Entry::KeyframeEnd])
            .map(move |entry| Record { now, entry })
    }
}

/// The entry of a spec.
pub(super) fn spec_entry(name: &str, spec: &ControllerSpec) -> Entry {
    Entry::Spec {
        controller: name.to_owned(),
        spec: serde_json::to_string(spec).unwrap_or_default().into(),
    }
}

/// A list gives 150,000 of them at once.
const _: () = assert!(size_of::<JournalItem>() <= 80);
