//! Which keys a trigger names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::manifest::{Manifest, Trigger, TriggerCondition, TriggerKey};
use crate::notes::Notes;
use crate::store::{Change, Object, Snapshot, View, ViewId};

/// The triggers of the watch at a place in a manifest.
pub(super) fn triggers_of(manifest: &Manifest, position: usize) -> impl Iterator<Item = &Trigger> {
    let watch = manifest.watches.get(position);
    let triggers = manifest.triggers.iter();
    triggers.filter(move |trigger| watch.is_some_and(|watch| watch.name == trigger.watch))
}

/// What triggers are judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct TriggerContext<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The guest's views, by the names of their watches.
    pub(super) views: &'a BTreeMap<String, ViewId>,
    pub(super) notes: &'a Notes,
}

/// The key of the object that a note is about, by the condition of a trigger.
pub(super) fn noted_key<'n>(trigger: &Trigger, note: &'n str) -> Option<&'n str> {
    let condition = trigger.condition.as_ref()?;
    note.strip_prefix(condition.note_prefix.as_ref()?)
}

impl TriggerContext<'_> {
    /// The keys that a trigger names for one change.
    pub(super) fn changed_keys(&self, trigger: &Trigger, change: &Change) -> BTreeSet<String> {
        let (Some(view), Some(object)) = (
            self.snapshot.view(change.view),
            change.new.as_ref().or(change.old.as_ref()),
        ) else {
            return BTreeSet::new();
        };
        let key = match &trigger.key {
            TriggerKey::OwnKey => view.key_of(object).into_owned(),
            TriggerKey::OwnUid => object.uid().to_string(),
            TriggerKey::Constant(key) => key.clone(),
            TriggerKey::Index(index) => {
                let objects = [&change.old, &change.new].into_iter().flatten();
                return objects
                    .flat_map(|object| values_of(&view, index, object))
                    .collect();
            }
        };
        let objects = [&change.old, &change.new].map(Option::as_ref);
        if self.is_about(trigger, &view, objects, &key) {
            BTreeSet::from([key])
        } else {
            BTreeSet::new()
        }
    }

    /// Whether a trigger is about an object, which was and is like this.
    pub(super) fn is_about(
        &self,
        trigger: &Trigger,
        view: &View<'_>,
        objects: [Option<&Arc<Object>>; 2],
        key: &str,
    ) -> bool {
        let Some(condition) = &trigger.condition else {
            return true;
        };
        self.is_related(condition, view, objects) || self.is_noted(condition, key)
    }

    fn is_noted(&self, condition: &TriggerCondition, key: &str) -> bool {
        let prefix = condition.note_prefix.as_ref();
        prefix.is_some_and(|prefix| self.notes.contains_key(&format!("{prefix}{key}")))
    }

    fn is_related(
        &self,
        condition: &TriggerCondition,
        view: &View<'_>,
        objects: [Option<&Arc<Object>>; 2],
    ) -> bool {
        let related = self.views.get(&condition.related);
        let related = related.and_then(|view| self.snapshot.view(*view));
        let Some(index) = related.and_then(|view| view.index(&condition.related_index)) else {
            // Whoever does not know asks the guest. A valid manifest declares both.
            return true;
        };
        let value = &condition.related_value;
        // In most clusters no object has it, and then none is read.
        if index.count(value) == 0 {
            return false;
        }
        let objects = objects.into_iter().flatten();
        let mut keys = objects.flat_map(|object| values_of(view, &condition.index, object));
        keys.any(|key| index.has(value, &key))
    }
}

fn values_of(view: &View<'_>, index: &str, object: &Arc<Object>) -> Vec<String> {
    let index = view.index(index);
    index.map_or_else(Vec::new, |index| index.values_of(object))
}
