//! From an owner to its dependents: when an owner is gone, or waits for its
//! dependents, each of them must be decided. The work items are `UID` and, to
//! continue at a place in the index, `UID@CURSOR`, so that any number of
//! dependents fits into calls of bounded size.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::views::{self, OwnerReference};
use davit_guest::{Command, Context, Decision, Enqueue, QueueName};

use crate::config::Config;
use crate::memory::{self, Fact};
use crate::view::{BY_OWNER, Item, OBJECTS};
use crate::{DEPENDENTS, OBJECTS_QUEUE};

/// How many dependents the first call enqueues at most: they are decided about before the next
/// call reads the rest.
const FIRST_PAGE: u32 = 50;
/// How long the rest waits for that: the calls about thousands of dependents would keep the host's
/// processors from the first writes. An API server needs longer for the writes of the first page.
const HEAD_START: Duration = Duration::from_millis(20);
/// How many dependents each further call enqueues at most.
const PAGE: u32 = 2_000;

/// Enqueues every dependent of an owner that is not terminating. With the
/// terminating ones, owners that wait in a cycle would enqueue each other
/// forever.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, key: &str) -> Decision {
    let (uid, cursor) = parse(key);
    let objects = cx.watch(OBJECTS);
    let (page, pause) = if cursor == 0 {
        (FIRST_PAGE, HEAD_START)
    } else {
        (PAGE, Duration::ZERO)
    };
    let (dependents, next) = objects.index_page(BY_OWNER, uid, cursor, page);
    let staying = dependents
        .iter()
        .filter(|it| !it.view.metadata.is_terminating());
    let rest = next.map(|cursor| {
        let key = format!("{uid}@{cursor}");
        Enqueue::new(DEPENDENTS, &key).after(pause).into()
    });
    let learnt = match objects.get(uid) {
        None => record_kinds(config, cx, uid, &dependents),
        Some(_) => Vec::new(),
    };
    Decision::done()
        .commands(learnt)
        .commands(staying.map(|it| now(OBJECTS_QUEUE, &it.reference.uid)))
        .commands(rest)
}

/// Enqueues an item that is due now.
pub(crate) fn now(queue: QueueName, key: &str) -> Command {
    Enqueue::new(queue, key).into()
}

/// The facts to record about an owner that disappeared from the cache a moment
/// ago. When a custom resource's definition is deleted, its objects disappear
/// first, and then the kind: soon no read can find the owner.
fn record_kinds(config: &Config, cx: &Context<'_>, uid: &str, dependents: &[Item]) -> Vec<Command> {
    let references = dependents
        .iter()
        .flat_map(|it| &it.view.metadata.owner_references);
    let kinds: BTreeSet<(&str, &str)> = references
        .filter(|it| it.uid == uid && may_be_custom(it))
        .map(|it| (it.api_version.as_str(), it.kind.as_str()))
        .collect();
    let mut left = Vec::new();
    for (api_version, kind) in kinds {
        let served = cx.lookup(api_version, kind);
        // An ignored resource did not disappear because its objects were
        // deleted.
        if served.is_some_and(|it| !config.ignores(&it.resource)) {
            left.push(Fact::Left { api_version, kind });
        }
    }
    memory::learn_left(cx, uid, &left)
}

/// Whether a definition of a custom resource may serve the kind: its group
/// contains a dot (`ValidateCustomResourceDefinitionSpec`).
fn may_be_custom(reference: &OwnerReference) -> bool {
    views::group(&reference.api_version).contains('.')
}

fn parse(key: &str) -> (&str, u64) {
    match key.rsplit_once('@') {
        Some((uid, cursor)) => (uid, cursor.parse().unwrap_or_default()),
        None => (key, 0),
    }
}
