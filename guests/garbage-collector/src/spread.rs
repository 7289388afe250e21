//! From an owner to its dependents: when it is gone, or waits for them, each
//! has to be looked at. The work items are `UID` and, to go on from a place in
//! the index, `UID@CURSOR`, so that no number of dependents is too much for one
//! call.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::{Command, Context, Decision};

use crate::config::Config;
use crate::memory::{Fact, Lesson, Source};
use crate::view::{self, BY_OWNER, Item, OBJECTS, OwnerReference};
use crate::{DEPENDENTS, OBJECTS_QUEUE};

/// How many dependents one call looks at.
const PAGE: u32 = 2_000;

/// Has every dependent of an owner looked at that is not going already. With
/// those that are, owners that wait in a circle would be looked at for ever.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, key: &str) -> Decision {
    let (uid, cursor) = parse(key);
    let objects = cx.watch(OBJECTS);
    let (dependents, next) = objects.index_page(BY_OWNER, uid, cursor, PAGE);
    let staying = dependents
        .iter()
        .filter(|it| !it.view.metadata.is_terminating());
    let rest = next.map(|cursor| now(DEPENDENTS, &format!("{uid}@{cursor}")));
    let learnt = match objects.get(uid) {
        None => look_after(config, cx, uid, &dependents),
        Some(_) => Vec::new(),
    };
    Decision::done()
        .commands(learnt)
        .commands(staying.map(|it| now(OBJECTS_QUEUE, &it.reference.uid)))
        .commands(rest)
}

/// An item that is due at once.
pub(crate) fn now(queue: &str, key: &str) -> Command {
    Command::enqueue(queue, key, Duration::ZERO)
}

/// What is to be remembered of an owner that went from the cache a moment ago.
/// With a custom resource's definition first its objects are deleted, and then
/// the kind: soon nobody can be asked any more.
fn look_after(config: &Config, cx: &Context<'_>, uid: &str, dependents: &[Item]) -> Vec<Command> {
    let references = dependents
        .iter()
        .flat_map(|it| &it.view.metadata.owner_references);
    let kinds: BTreeSet<(&str, &str)> = references
        .filter(|it| it.uid == uid && may_be_custom(it))
        .map(|it| (it.api_version.as_str(), it.kind.as_str()))
        .collect();
    let mut lesson = Lesson::default();
    for (api_version, kind) in kinds {
        let served = cx.lookup(api_version, kind);
        // One that is ignored did not go because it was deleted.
        if served.is_some_and(|it| !config.ignores(&it.resource)) {
            lesson.learn(uid, &Fact::Left { api_version, kind });
        }
    }
    lesson.commands(cx, Source::Owner)
}

/// Whether a definition may be what serves the kind: its group has a dot
/// (`ValidateCustomResourceDefinitionSpec`).
fn may_be_custom(reference: &OwnerReference) -> bool {
    view::group(&reference.api_version).contains('.')
}

fn parse(key: &str) -> (&str, u64) {
    match key.rsplit_once('@') {
        Some((uid, cursor)) => (uid, cursor.parse().unwrap_or_default()),
        None => (key, 0),
    }
}
