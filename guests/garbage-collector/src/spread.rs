//! From an owner to its dependents: when it is gone, or waits for them, each
//! has to be looked at. The work items are `UID` and, to go on from a place in
//! the index, `UID@CURSOR`, so that no number of dependents is too much for one
//! call.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_guest::{Command, Context, Decision, ObjectRef};

use crate::config::Config;
use crate::memory::Fact;
use crate::owner;
use crate::view::{self, BY_OWNER, Item, Meta, OBJECTS, OwnerReference};
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
        None if cursor == 0 => look_after(config, cx, uid, &dependents),
        _ => Vec::new(),
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
/// the kind: soon nobody can be asked any more, so the API server is asked at
/// once. That it is gone counts, and that its kind is; a read that fails does
/// not, because the resource may just be followed no longer. Owners of other
/// kinds are read with their dependents.
fn look_after(config: &Config, cx: &Context<'_>, uid: &str, dependents: &[Item]) -> Vec<Command> {
    let mut names: BTreeMap<(&str, &str), (&OwnerReference, &str)> = BTreeMap::new();
    for dependent in dependents {
        let references = dependent.view.metadata.owner_references.iter();
        for it in references.filter(|it| it.uid == uid && may_be_custom(it)) {
            names
                .entry((&it.api_version, &it.kind))
                .or_insert((it, &dependent.reference.namespace));
        }
    }
    let targets: Vec<ObjectRef> = names
        .into_iter()
        .filter_map(|((api_version, kind), (reference, namespace))| {
            let mapped = cx.lookup(api_version, kind)?;
            // It went because of the configuration, not because it was deleted.
            if config.ignores(&mapped.resource) {
                return None;
            }
            owner::target(reference, namespace, &mapped)
        })
        .collect();
    if targets.is_empty() {
        return Vec::new();
    }
    let answers = cx.live_get::<Meta>(&targets);
    let failures = targets
        .iter()
        .zip(answers)
        .filter_map(|(target, answer)| Some((target, answer.err()?)));
    failures
        .filter_map(|(target, failure)| match failure.class.as_str() {
            "unmappable" => Some(Fact::GoneWithKind {
                uid,
                api_version: &target.api_version,
                kind: &target.kind,
            }),
            _ => owner::means_gone(&failure).then_some(Fact::Absent(target)),
        })
        .map(|fact| fact.learn())
        .collect()
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
