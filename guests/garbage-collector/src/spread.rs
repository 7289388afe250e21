//! From an owner to its dependents: when it is gone, or waits for them, each
//! has to be looked at. The work items are `UID` and, to go on from a place in
//! the index, `UID@CURSOR`, so that no number of dependents is too much for one
//! call.

use std::time::Duration;

use davit_guest::{Command, Context, Decision};

use crate::memory::Fact;
use crate::view::{BY_OWNER, Item, OBJECTS};
use crate::{DEPENDENTS, OBJECTS_QUEUE};

/// How many dependents one call looks at.
const PAGE: u32 = 2_000;

/// Has every dependent of an owner looked at that is not going already. With
/// those that are, owners that wait in a circle would be looked at for ever.
pub(crate) fn reconcile(cx: &Context<'_>, key: &str) -> Decision {
    let (uid, cursor) = parse(key);
    let objects = cx.watch(OBJECTS);
    let (dependents, next) = objects.index_page(BY_OWNER, uid, cursor, PAGE);
    let staying = dependents
        .iter()
        .filter(|it| !it.view.metadata.is_terminating());
    let rest = next.map(|cursor| now(DEPENDENTS, &format!("{uid}@{cursor}")));
    let was_deleted = objects.get(uid).is_none() && is_served(cx, uid, &dependents);
    let learnt = was_deleted.then(|| Fact::Deleted(uid).learn());
    Decision::done()
        .commands(learnt)
        .commands(staying.map(|it| now(OBJECTS_QUEUE, &it.reference.uid)))
        .commands(rest)
}

/// An item that is due at once.
pub(crate) fn now(queue: &str, key: &str) -> Command {
    Command::enqueue(queue, key, Duration::ZERO)
}

/// Whether the kind by which the owner is named is served. An owner that was in
/// the cache and is not any more was deleted then; otherwise its resource may
/// just be followed no longer.
fn is_served(cx: &Context<'_>, uid: &str, dependents: &[Item]) -> bool {
    let mut references = dependents
        .iter()
        .flat_map(|it| &it.view.metadata.owner_references)
        .filter(|it| it.uid == uid);
    references.any(|it| cx.lookup(&it.api_version, &it.kind).is_some())
}

fn parse(key: &str) -> (&str, u64) {
    match key.rsplit_once('@') {
        Some((uid, cursor)) => (uid, cursor.parse().unwrap_or_default()),
        None => (key, 0),
    }
}
