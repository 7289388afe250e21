//! Owners that wait: with the finalizer `orphan` until their dependents are
//! orphaned, with `foregroundDeletion` until they are deleted. The work items
//! are the owners' uids. Every change of a dependent enqueues them.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::views::OwnerReference;
use davit_guest::{Context, Decision, Level, ObjectRef, Plan, Reason, Retry, WorkItem};

use crate::config::Config;
use crate::dependent::met_conflict;
use crate::memory;
use crate::owner::Owners;
use crate::patch::{self, PatchForm, PatchVersion};
use crate::unlisted::UnlistedResources;
use crate::view::{BY_OWNER, FOREGROUND, Item, Meta, OBJECTS, ORPHAN};

/// The reason of the plan for an owner that waits no longer.
const RELEASE_OWNER: Reason = Reason::new("release-owner");
/// The reason of the plan for a dependent that stays.
const ORPHANED: Reason = Reason::new("orphan");

/// How many dependents of one owner one decision orphans. The next decision
/// finds the rest.
const MAX_ORPHANS: u32 = 2_000;

/// How many dependents are read first to find one that keeps its owner.
const FIRST_PAGE: u32 = 8;
/// How many dependents are read at once after that.
const PAGE: u32 = 500;

/// The requeue period of an owner that waits for a resource which cannot be
/// listed. It costs no request.
const RECHECK_PERIOD: Duration = Duration::from_secs(5);
/// How long an owner waits before the log warns.
const WARN_AFTER: Duration = Duration::from_mins(1);

/// Does what an owner waits for. Releases the owner if it waits for nothing.
pub(crate) fn reconcile(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
) -> Result<Decision, Retry> {
    let Some(cached) = cx.watch(OBJECTS).get(&item.key) else {
        return Ok(memory::expire(cx, item));
    };
    let Some(owner) = current(cx, item, cached)? else {
        return Ok(Decision::done());
    };
    let owner = WaitingOwner {
        config,
        cx,
        item,
        owner: &owner,
    };
    Ok(owner.decide())
}

/// The current owner: read live if its last patch met a newer version. None if
/// it is gone.
fn current(cx: &Context<'_>, item: &WorkItem, cached: Item) -> Result<Option<Item>, Retry> {
    if met_conflict(item) {
        cx.live::<Meta>(&cached.reference)
    } else {
        Ok(Some(cached))
    }
}

/// An owner that may be waiting for its dependents.
struct WaitingOwner<'a> {
    config: &'a Config,
    cx: &'a Context<'a>,
    item: &'a WorkItem,
    owner: &'a Item,
}

impl WaitingOwner<'_> {
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

    /// Removes the owner from all dependents that name its uid. A wrong
    /// reference to it must not delete the dependent either. The last
    /// dependent's change enqueues the owner again.
    fn orphans(&self) -> Decision {
        let (cx, failures) = (self.cx, &self.item.failures);
        let uid = &self.owner.reference.uid;
        let objects = cx.watch(OBJECTS);
        let (mut dependents, _) = objects.index_page(BY_OWNER, uid, 0, MAX_ORPHANS);
        dependents.retain(|it| it.reference.uid != *uid);
        // A refusal for one object holds for all objects of its kind.
        let refused = dependents
            .iter()
            .filter(|it| patch::was_refused(it, failures));
        let merge_only: BTreeSet<(&str, &str)> = refused.map(kind).collect();
        let plans = dependents.iter().map(|dependent| {
            let form = if merge_only.contains(&kind(dependent)) {
                PatchForm::Merge
            } else {
                PatchForm::of(cx, dependent, &[])
            };
            orphan(dependent, &self.owner.reference, form)
        });
        let learnt = merge_only.iter();
        let learnt = learnt.map(|(api_version, kind)| memory::learn_merge_only(api_version, kind));
        Decision::done().plans(plans).commands(learnt)
    }

    /// Whether a dependent keeps its owner: an object other than the owner
    /// itself, whose reference really means the owner. A dependent that blocks
    /// its owner keeps the owner as long as it exists. Any other keeps it until
    /// its own deletion was sent: an owner that another finalizer keeps counts
    /// as an owner afterwards.
    fn is_kept(&self) -> bool {
        let uid = &self.owner.reference.uid;
        let objects = self.cx.watch(OBJECTS);
        let mut owners = Owners::new(self.config, self.cx);
        let (mut at, mut most) = (Some(0), FIRST_PAGE);
        while let Some(cursor) = at {
            let (dependents, next) = objects.index_page(BY_OWNER, uid, cursor, most);
            if dependents.iter().any(|it| self.keeps(it, &mut owners)) {
                return true;
            }
            (at, most) = (next, PAGE);
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
            .filter(|it| it.means(&self.owner.reference, namespace));
        let meant: Vec<&OwnerReference> = meant.collect();
        if meant.iter().any(|it| it.blocks()) {
            return true;
        }
        // A dependent that stays for an undecidable owner was decided about as
        // well. That owner may be this one, named in a version that is not
        // served.
        let mut references = references.iter();
        !meant.is_empty()
            && !dependent.view.metadata.is_terminating()
            && !references.any(|it| owners.is_undecidable(it, namespace))
    }

    /// Removes a finalizer, unless there may be dependents that the cache does
    /// not cover.
    fn release(&self, finalizer: &str) -> Decision {
        let unlisted = UnlistedResources::new(self.config, self.cx);
        if let Some(resource) = unlisted.first() {
            let name = match resource.plural.as_str() {
                "" => resource.group.clone(),
                plural => format!("{plural}.{}", resource.group),
            };
            let waited = self.cx.since(self.item.created_at);
            if (WARN_AFTER..WARN_AFTER + RECHECK_PERIOD).contains(&waited) {
                let owner = self.owner.reference.to_string();
                let reason = &resource.reason;
                self.cx.log(
                    Level::Warn,
                    "owner waits for its dependents: a resource that may have dependents is not listed",
                    &[("owner", &owner), ("resource", &name), ("reason", reason)],
                );
            }
            return Decision::requeue_after(RECHECK_PERIOD);
        }
        let patch = patch::release(self.owner, finalizer);
        let message = "it waits for no dependents any more";
        let target = self.owner.reference.clone();
        Decision::done().plans([Plan::new(target, RELEASE_OWNER, message).patch(patch)])
    }
}

fn orphan(dependent: &Item, owner: &ObjectRef, form: PatchForm) -> Plan {
    let references = dependent.view.metadata.owner_references.iter();
    let dropped: Vec<_> = references.filter(|it| it.uid == owner.uid).collect();
    let message = format!("its owner {owner} is deleted and orphans it");
    Plan::new(dependent.reference.clone(), ORPHANED, message).patch(patch::drop_references(
        dependent,
        form,
        PatchVersion::AnyVersion,
        &dropped,
    ))
}

fn kind(item: &Item) -> (&str, &str) {
    (&item.reference.api_version, &item.reference.kind)
}
