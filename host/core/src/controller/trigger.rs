//! Which keys a trigger names.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::manifest::{Manifest, Trigger, TriggerKey};
use crate::store::{Change, Object, Snapshot, View};

/// The triggers of the watch at a place in a manifest.
pub(super) fn triggers_of(manifest: &Manifest, position: usize) -> impl Iterator<Item = &Trigger> {
    let watch = manifest.watches.get(position);
    let triggers = manifest.triggers.iter();
    triggers.filter(move |trigger| watch.is_some_and(|watch| watch.name == trigger.watch))
}

/// The keys that a trigger names for one change.
pub(super) fn changed_keys(
    trigger: &TriggerKey,
    change: &Change,
    snapshot: &Snapshot,
) -> BTreeSet<String> {
    let (Some(view), Some(object)) = (
        snapshot.view(change.view),
        change.new.as_ref().or(change.old.as_ref()),
    ) else {
        return BTreeSet::new();
    };
    match trigger {
        TriggerKey::OwnKey => BTreeSet::from([view.key_of(object).into_owned()]),
        TriggerKey::OwnUid => BTreeSet::from([object.uid().to_string()]),
        TriggerKey::Constant(key) => BTreeSet::from([key.clone()]),
        TriggerKey::Index(index) => [&change.old, &change.new]
            .into_iter()
            .flatten()
            .flat_map(|object| index_values(&view, index, object))
            .collect(),
    }
}

fn index_values(view: &View<'_>, index: &str, object: &Arc<Object>) -> Vec<String> {
    let Some(index) = view.index(index) else {
        return Vec::new();
    };
    let values = index.values_of(object).into_iter();
    values.map(Cow::into_owned).collect()
}
