//! From an owner to its dependents: when it is gone, or waits for them, each
//! has to be looked at. The work items are `UID` and, to go on from a place in
//! the index, `UID@CURSOR`, so that no number of dependents is too much for one
//! call.

use std::collections::BTreeSet;
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
    let deleted = match objects.get(uid) {
        Some(_) => Vec::new(),
        None => deletions(cx, uid, &dependents),
    };
    Decision::done()
        .commands(deleted)
        .commands(staying.map(|it| now(OBJECTS_QUEUE, &it.reference.uid)))
        .commands(rest)
}

/// An item that is due at once.
pub(crate) fn now(queue: &str, key: &str) -> Command {
    Command::enqueue(queue, key, Duration::ZERO)
}

/// What is to be remembered of an owner that was in the cache and is not any
/// more: under the names whose kind is served it was deleted. Otherwise its
/// resource may just be followed no longer.
fn deletions(cx: &Context<'_>, uid: &str, dependents: &[Item]) -> Vec<Command> {
    let references = dependents
        .iter()
        .flat_map(|it| &it.view.metadata.owner_references);
    let kinds: BTreeSet<(&str, &str)> = references
        .filter(|it| it.uid == uid)
        .map(|it| (it.api_version.as_str(), it.kind.as_str()))
        .collect();
    let served = kinds
        .into_iter()
        .filter(|(api_version, kind)| cx.lookup(api_version, kind).is_some());
    served
        .map(|(api_version, kind)| {
            let fact = Fact::Deleted {
                uid,
                api_version,
                kind,
            };
            fact.learn()
        })
        .collect()
}

fn parse(key: &str) -> (&str, u64) {
    match key.rsplit_once('@') {
        Some((uid, cursor)) => (uid, cursor.parse().unwrap_or_default()),
        None => (key, 0),
    }
}
