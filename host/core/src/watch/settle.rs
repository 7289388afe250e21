//! From what a list brought, in order, to what is there at its end.

use super::Change;
use crate::object::ProjectedObject;

/// The last state of every object that is not gone, ordered by namespace and
/// name. Of several changes of one object the last counts.
///
/// Sorting keeps the memory of a large list at one copy of its objects, where a
/// map would also need every key a second time.
pub(crate) fn settle(mut changes: Vec<Change>) -> Vec<ProjectedObject> {
    changes.sort_by(|a, b| key(a).cmp(&key(b)));
    // What is kept of a run of equal keys is its first: look from the end.
    changes.reverse();
    changes.dedup_by(|later, kept| key(later) == key(kept));
    changes.reverse();
    changes
        .into_iter()
        .filter(|change| !change.deleted)
        .map(|change| change.object)
        .collect()
}

fn key(change: &Change) -> (&str, &str) {
    (&change.object.namespace, &change.object.name)
}
