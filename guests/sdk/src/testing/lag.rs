//! Objects that the cache lags behind on.

use std::collections::BTreeMap;

use davit_core::object::ProjectedObject;
use davit_core::stream::{StreamId, Update};

use super::cluster::Id;

/// The updates that tests delay, by the object and the stream: the last of each.
#[derive(Debug, Default)]
pub(super) struct Lag(BTreeMap<Id, BTreeMap<StreamId, Update>>);

impl Lag {
    /// From now on the cache does not follow this object.
    pub(super) fn start(&mut self, id: Id) {
        self.0.entry(id).or_default();
    }

    pub(super) fn contains(&self, id: &Id) -> bool {
        self.0.contains_key(id)
    }

    /// The cache follows it again. Returns what it has missed.
    pub(super) fn end(&mut self, id: &Id) -> BTreeMap<StreamId, Update> {
        self.0.remove(id).unwrap_or_default()
    }

    /// Removes the delayed updates from those of a stream of a kind.
    pub(super) fn filter(&mut self, stream: StreamId, kind: &str, updates: &mut Vec<Update>) {
        if self.0.is_empty() {
            return;
        }
        let mut held = |object: &ProjectedObject, update: Update| {
            let id = (kind.to_owned(), object.key());
            let streams = self.0.get_mut(&id);
            streams
                .map(|streams| streams.insert(stream, update))
                .is_some()
        };
        updates.retain_mut(|update| match update {
            Update::Apply(object) => !held(object, Update::Apply(object.clone())),
            Update::Delete(object) => !held(object, Update::Delete(object.clone())),
            Update::Reset { items, .. } => {
                items.retain(|object| !held(object, Update::Apply(object.clone())));
                true
            }
            Update::Status(_) => true,
        });
    }
}
