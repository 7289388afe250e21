//! Owners that wait: with the finalizer `orphan` for their dependents to be let
//! go, with `foregroundDeletion` for them to be deleted. The work items are the
//! owners' uids, and come with every change of a dependent.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::{Context, Decision, Level, ObjectRef, Plan, WorkItem};

use crate::config::Config;
use crate::dependent::met_conflict;
use crate::memory;
use crate::owner::{self, Owners};
use crate::patch::{self, At, Form};
use crate::unlisted::Unlisted;
use crate::view::{BY_OWNER, FOREGROUND, Item, Meta, OBJECTS, ORPHAN, OwnerReference};

/// How many dependents of one owner one decision orphans. The next decision
/// finds the rest.
const MOST_ORPHANS: u32 = 2_000;

/// How many dependents are looked at first to see whether one keeps its owner.
const FIRST_LOOK: u32 = 8;
/// How many at once after that.
const LOOK: u32 = 500;

/// When an owner is looked at again that waits for a resource which cannot be
/// listed. It costs no request.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long it has waited when an operator is told.
const TELL_AFTER: Duration = Duration::from_mins(1);

/// Does what an owner waits for, or lets it go when it waits for nothing.
pub(crate) fn reconcile(config: &Config, cx: &Context<'_>, item: &WorkItem) -> Decision {
    let Some(cached) = cx.watch(OBJECTS).get(&item.key) else {
        return memory::tidy(cx, item);
    };
    match current(cx, item, cached) {
        Ok(Some(owner)) => Waiting {
            config,
            cx,
            item,
            owner: &owner,
        }
        .decide(),
        Ok(None) => Decision::done(),
        Err(why) => Decision::retry(why),
    }
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

/// An owner that may be waiting for its dependents.
struct Waiting<'a> {
    config: &'a Config,
    cx: &'a Context<'a>,
    item: &'a WorkItem,
    owner: &'a Item,
}

impl Waiting<'_> {
    fn decide(&self) -> Decision {
        let metadata = &self.owner.view.metadata;
        if metadata.lets_dependents_go() {
            let orphans = self.orphans();
            if orphans.plans.is_empty() {
                return self.release(ORPHAN);
            }
            return orphans.parallel(self.config.max_parallel_orphans);
        }
        if metadata.waits_for_dependents() && !self.is_kept() {
            return self.release(FOREGROUND);
        }
        Decision::done()
    }

    /// Takes the owner off its dependents, all that name its uid: a wrong
    /// reference to it, too, is not to get its dependent deleted. The last
    /// dependent's change brings the owner back here.
    fn orphans(&self) -> Decision {
        let (cx, failures) = (self.cx, &self.item.failures);
        let uid = &self.owner.reference.uid;
        let objects = cx.watch(OBJECTS);
        let (mut dependents, _) = objects.index_page(BY_OWNER, uid, 0, MOST_ORPHANS);
        dependents.retain(|it| it.reference.uid != *uid);
        // What one of them has shown about its kind holds for all of the kind.
        let refused = dependents
            .iter()
            .filter(|it| patch::was_refused(it, failures));
        let merge_only: BTreeSet<(&str, &str)> = refused.map(kind).collect();
        let plans = dependents.iter().map(|dependent| {
            let form = if merge_only.contains(&kind(dependent)) {
                Form::Merge
            } else {
                Form::of(cx, dependent, &[])
            };
            orphan(dependent, &self.owner.reference, form)
        });
        let learnt = merge_only.iter();
        let learnt = learnt.map(|(api_version, kind)| memory::learn_merge_only(api_version, kind));
        Decision::done().plans(plans).commands(learnt)
    }

    /// Whether a dependent keeps its owner from going: another object than the
    /// owner itself, whose reference really means it. One that blocks its owner
    /// keeps it as long as it is there, any other until its deletion was sent:
    /// an owner that a finalizer of somebody else's holds counts as one to live
    /// for afterwards.
    fn is_kept(&self) -> bool {
        let uid = &self.owner.reference.uid;
        let objects = self.cx.watch(OBJECTS);
        let mut owners = Owners::new(self.config, self.cx);
        let (mut at, mut most) = (Some(0), FIRST_LOOK);
        while let Some(cursor) = at {
            let (dependents, next) = objects.index_page(BY_OWNER, uid, cursor, most);
            if dependents.iter().any(|it| self.keeps(it, &mut owners)) {
                return true;
            }
            (at, most) = (next, LOOK);
        }
        false
    }

    fn keeps(&self, dependent: &Item, owners: &mut Owners<'_>) -> bool {
        let ObjectRef { uid, namespace, .. } = &dependent.reference;
        if *uid == self.owner.reference.uid {
            return false;
        }
        let references = &dependent.view.metadata.owner_references;
        let meant = references
            .iter()
            .filter(|it| it.means(self.owner, namespace));
        let meant: Vec<&OwnerReference> = meant.collect();
        if meant.iter().any(|it| it.blocks()) {
            return true;
        }
        // One that stays for an owner which nobody can judge was decided about as
        // well. It may be this owner, named in a version that is not served.
        let mut references = references.iter();
        !meant.is_empty()
            && !dependent.view.metadata.is_terminating()
            && !references.any(|it| owners.is_beyond_judging(it, namespace))
    }

    /// Takes a finalizer off, unless there may be dependents that nobody sees.
    fn release(&self, finalizer: &str) -> Decision {
        let unlisted = Unlisted::new(self.config, self.cx);
        if let Some(resource) = unlisted.first() {
            let name = match resource.plural.as_str() {
                "" => resource.group.clone(),
                plural => format!("{plural}.{}", resource.group),
            };
            let waited = self.cx.since(self.item.created_at);
            if (TELL_AFTER..TELL_AFTER + LOOK_AGAIN).contains(&waited) {
                let owner = self.owner.reference.to_string();
                let reason = &resource.reason;
                self.cx.log(
                    Level::Warn,
                    "an owner waits: a resource that may hold dependents cannot be listed",
                    &[("owner", &owner), ("resource", &name), ("reason", reason)],
                );
            }
            return Decision::requeue_after(LOOK_AGAIN);
        }
        let patch = patch::release(self.owner, finalizer);
        let message = "it has no dependents left to wait for";
        let target = self.owner.reference.clone();
        Decision::done().plans([Plan::new(target, "release-owner", message).patch(patch)])
    }
}

fn orphan(dependent: &Item, owner: &ObjectRef, form: Form) -> Plan {
    let references = dependent.view.metadata.owner_references.iter();
    let dropped: Vec<_> = references.filter(|it| it.uid == owner.uid).collect();
    let message = format!("its owner {owner} is deleted without it");
    Plan::new(dependent.reference.clone(), "orphan", message).patch(patch::drop_references(
        dependent,
        form,
        At::AnyVersion,
        &dropped,
    ))
}

fn kind(item: &Item) -> (&str, &str) {
    (&item.reference.api_version, &item.reference.kind)
}
