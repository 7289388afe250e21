//! Which keys a trigger names.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::manifest::TriggerKey;
use crate::store::{Change, Object, Snapshot, View, ViewId};

/// How many keys are read from the store at once.
const PAGE: usize = 1000;

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

/// Every key that a trigger can name in the present state.
pub(super) fn all_keys(trigger: &TriggerKey, view: ViewId, snapshot: &Snapshot) -> Vec<String> {
    let Some(view) = snapshot.view(view) else {
        return Vec::new();
    };
    match trigger {
        TriggerKey::OwnKey => pages(|cursor| {
            let page = view.keys(cursor, PAGE);
            let keys = page.items.into_iter().map(Cow::into_owned);
            (keys.collect(), page.next)
        }),
        TriggerKey::OwnUid => pages(|cursor| {
            let page = view.scan(cursor, PAGE);
            let uids = page
                .items
                .iter()
                .map(|entry| entry.object.uid().to_string());
            (uids.collect(), page.next)
        }),
        TriggerKey::Constant(_) if view.is_empty() => Vec::new(),
        TriggerKey::Constant(key) => vec![key.clone()],
        TriggerKey::Index(index) => {
            let Some(index) = view.index(index) else {
                return Vec::new();
            };
            let values = index.values(None, usize::MAX).into_iter();
            values.map(|(value, _)| value.to_owned()).collect()
        }
    }
}

fn index_values(view: &View<'_>, index: &str, object: &Arc<Object>) -> Vec<String> {
    let Some(index) = view.index(index) else {
        return Vec::new();
    };
    let values = index.values_of(object).into_iter();
    values.map(Cow::into_owned).collect()
}

fn pages(page: impl Fn(u64) -> (Vec<String>, Option<u64>)) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let (more, next) = page(at);
        keys.extend(more);
        cursor = next;
    }
    keys
}
