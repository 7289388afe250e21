//! Which keys a trigger names.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::manifest::{Manifest, Trigger, TriggerKey};
use crate::store::{Change, Object, Snapshot, View, ViewId};

/// How many keys a page of a sweep has.
const PAGE: usize = 128;
/// How many due items a sweep leaves be: what it adds beyond what is soon worked
/// off only makes the queues long.
const MOST_DUE: usize = 512;

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

/// A look at every key that triggers can name, a page at a time: a cluster has
/// more of them than may hold up what is due.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweep {
    left: VecDeque<(ViewId, Trigger)>,
    cursor: Cursor,
    /// Whether it waits for what it has added to be worked off.
    is_crowded: bool,
}

#[derive(Clone, Debug, Default)]
enum Cursor {
    #[default]
    Start,
    At(u64),
    After(String),
}

impl Sweep {
    /// Starts anew, over these.
    pub(super) fn begin(&mut self, triggers: impl Iterator<Item = (ViewId, Trigger)>) {
        self.left = triggers.collect();
        self.cursor = Cursor::Start;
    }

    /// Whether it can go on at once.
    pub(super) fn is_due(&self) -> bool {
        !self.left.is_empty() && !self.is_crowded
    }

    /// The next keys, with the queue that they go to; none at the end, and none
    /// while so many items are due.
    pub(super) fn next(
        &mut self,
        due: usize,
        snapshot: &Snapshot,
    ) -> Option<(String, Vec<String>)> {
        self.is_crowded = due >= MOST_DUE;
        if self.is_crowded {
            return None;
        }
        let (view, trigger) = self.left.front()?;
        let queue = trigger.queue.clone();
        let view = snapshot.view(*view);
        let (keys, cursor) = view.map_or_else(Default::default, |view| {
            page(&trigger.key, &view, &self.cursor)
        });
        if cursor.is_none() {
            self.left.pop_front();
        }
        self.cursor = cursor.unwrap_or_default();
        Some((queue, keys))
    }
}

fn page(key: &TriggerKey, view: &View<'_>, from: &Cursor) -> (Vec<String>, Option<Cursor>) {
    let cursor = match from {
        Cursor::At(at) => *at,
        Cursor::Start | Cursor::After(_) => 0,
    };
    match key {
        TriggerKey::OwnKey => {
            let page = view.keys(cursor, PAGE);
            let keys = page.items.into_iter().map(Cow::into_owned);
            (keys.collect(), page.next.map(Cursor::At))
        }
        TriggerKey::OwnUid => {
            let page = view.scan(cursor, PAGE);
            let uids = page.items.iter();
            let uids = uids.map(|entry| entry.object.uid().to_string());
            (uids.collect(), page.next.map(Cursor::At))
        }
        TriggerKey::Constant(_) if view.is_empty() => (Vec::new(), None),
        TriggerKey::Constant(key) => (vec![key.clone()], None),
        TriggerKey::Index(index) => {
            let Some(index) = view.index(index) else {
                return (Vec::new(), None);
            };
            let after = match from {
                Cursor::After(value) => Some(value.as_str()),
                Cursor::Start | Cursor::At(_) => None,
            };
            let values = index.values(after, PAGE).into_iter();
            let values: Vec<String> = values.map(|(value, _)| value.to_owned()).collect();
            let full = values.len() == PAGE;
            let next = values.last().filter(|_| full).cloned();
            (values, next.map(Cursor::After))
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
