//! From the changes of a list, in order, to the state at its end.

use super::Change;
use crate::object::ProjectedObject;

/// The last state of every object that still exists, ordered by namespace and name. Of
/// several changes of one object the last one counts.
///
/// Sorting needs the memory of one copy of the objects; a map would also need every key
/// a second time.
pub(crate) fn settle(mut changes: Vec<Change>) -> Vec<ProjectedObject> {
    changes.sort_by(|a, b| key(a).cmp(&key(b)));
    // Of each run of equal keys the first one is kept, so the last change comes first.
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
