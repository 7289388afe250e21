//! Owners that wait: with the finalizer `orphan` for their dependents to be let
//! go, with `foregroundDeletion` for the blocking ones to be deleted. The work
//! items are the owners' uids, and come with every change of a dependent.

use std::collections::BTreeMap;

use davit_guest::{Context, Decision, ObjectRef, Plan, WorkItem};

use crate::config::Config;
use crate::dependent::met_conflict;
use crate::memory::Fact;
use crate::owner;
use crate::patch::{self, Form};
use crate::view::{BY_OWNER, Item, Meta, OBJECTS};

/// How many dependents of one owner one decision orphans. The next decision
/// finds the rest.
const MOST_ORPHANS: u32 = 2_000;

/// How many dependents are looked at first to see whether one blocks its owner.
const FIRST_LOOK: u32 = 8;
/// How many at once after that.
const LOOK: u32 = 500;

/// Does what an owner waits for, or lets it go when it waits for nothing.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let Some(cached) = cx.watch(OBJECTS).get(&item.key) else {
        return Decision::done();
    };
    let metadata = &cached.view.metadata;
    if metadata.lets_dependents_go() {
        let orphans = orphans(cx, item, &cached);
        if !orphans.plans.is_empty() {
            return orphans.parallel(config.max_parallel_orphans);
        }
    } else if !metadata.waits_for_dependents() || is_blocked(cx, &cached) {
        return Decision::done();
    }
    match current(cx, item, cached) {
        Ok(Some(owner)) => release(owner),
        Ok(None) => Decision::done(),
        Err(why) => Decision::retry(why),
    }
}

/// Takes the owner off its dependents, all that name its uid: a wrong reference
/// to it, too, is not to get its dependent deleted. The last dependent's change
/// brings the owner back here.
fn orphans(cx: &Context<'_>, item: &WorkItem, owner: &Item) -> Decision {
    let uid = &owner.reference.uid;
    let objects = cx.watch(OBJECTS);
    let (mut dependents, _) = objects.index_page(BY_OWNER, uid, 0, MOST_ORPHANS);
    dependents.retain(|it| it.reference.uid != *uid);
    // What one of them has shown about its kind holds for all of the kind.
    let merge_only: BTreeMap<(&str, &str), Fact<'_>> = dependents
        .iter()
        .filter_map(|it| Some((kind(it), patch::refusal(it, &item.failures)?)))
        .collect();
    let plans = dependents.iter().map(|dependent| {
        let form = if merge_only.contains_key(&kind(dependent)) {
            Form::Merge
        } else {
            Form::of(cx, dependent, &[])
        };
        orphan(dependent, &owner.reference, form)
    });
    Decision::done()
        .plans(plans)
        .commands(merge_only.values().map(Fact::learn))
}

fn orphan(dependent: &Item, owner: &ObjectRef, form: Form) -> Plan {
    let references = dependent.view.metadata.owner_references.iter();
    let dropped: Vec<_> = references.filter(|it| it.uid == owner.uid).collect();
    let message = format!("its owner {owner} is deleted without it");
    Plan::new(dependent.reference.clone(), "orphan", message)
        .patch(patch::drop_references(dependent, form, &dropped))
}

fn kind(item: &Item) -> (&str, &str) {
    (&item.reference.api_version, &item.reference.kind)
}

/// Whether a dependent keeps its owner from going: another object than the
/// owner itself, whose reference really means it. A dependent that is going
/// already blocks as long as it is there.
fn is_blocked(cx: &Context<'_>, owner: &Item) -> bool {
    let uid = &owner.reference.uid;
    let objects = cx.watch(OBJECTS);
    let blocks = |dependent: &Item| {
        let ObjectRef {
            uid: own,
            namespace,
            ..
        } = &dependent.reference;
        let mut references = dependent.view.metadata.owner_references.iter();
        own != uid && references.any(|it| it.blocks() && it.means(owner, namespace))
    };
    let (mut at, mut most) = (Some(0), FIRST_LOOK);
    while let Some(cursor) = at {
        let (dependents, next) = objects.index_page(BY_OWNER, uid, cursor, most);
        if dependents.iter().any(blocks) {
            return true;
        }
        (at, most) = (next, LOOK);
    }
    false
}

/// The owner as it is now: read live if its last patch met a newer version.
/// None if it is gone.
fn current(cx: &Context<'_>, item: &WorkItem, cached: Item) -> Result<Option<Item>, String> {
    if !met_conflict(item) {
        return Ok(Some(cached));
    }
    let target = cached.reference;
    match cx.live_get::<Meta>(std::slice::from_ref(&target)).pop() {
        Some(Ok(live)) => Ok(Some(live)),
        Some(Err(failure)) if owner::means_gone(&failure) => Ok(None),
        Some(Err(failure)) => Err(format!("{target} could not be read: {}", failure.message)),
        None => Err("the host gave no answer".to_owned()),
    }
}

fn release(owner: Item) -> Decision {
    let patch = patch::release(&owner);
    let message = "it has no dependents left to wait for";
    let plan = Plan::new(owner.reference, "release-owner", message).patch(patch);
    Decision::done().plans([plan])
}
