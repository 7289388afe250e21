//! Objects as dependents: whether an object still has an owner. The work items
//! are uids.

use std::collections::BTreeMap;
use std::rc::Rc;

use davit_guest::views::OwnerReference;
use davit_guest::{
    Context, Decision, DeleteOptions, FailureClass, Level, Object, Plan, Propagation, Reason,
    Retry, WorkItem,
};

use crate::config::Config;
use crate::cycle;
use crate::memory;
use crate::namespace;
use crate::owner::{Finding, Obstacle, Owners, Standing};
use crate::patch::{self, PatchForm, PatchVersion};
use crate::spread::now;
use crate::view::{BY_OWNER, FOREGROUND, Item, Meta, OBJECTS, ORPHAN};
use crate::{DEPENDENTS, OWNERS};

const WRONG_NAMESPACE: Reason = Reason::new("wrong-namespace");
const DROP_OWNERS: Reason = Reason::new("drop-owners");
const OWNERS_GONE: Reason = Reason::new("owners-gone");
const BREAK_CYCLE: Reason = Reason::new("break-cycle");

/// The attempt at which the log warns about an object that cannot be decided:
/// it has then been retried for about a minute.
const WARNING_ATTEMPT: u32 = 12;

/// From this attempt on, a conflict means that the object changes too fast to
/// be deleted at a version: it was read before each of the last two attempts.
const RESTLESS_ATTEMPT: u32 = 3;

/// Decides about the items of one call together: one batch holds all live
/// reads, and each owner is read once.
pub(crate) fn reconcile(
    config: &Config,
    cx: &Context<'_>,
    items: &[WorkItem],
) -> Vec<Result<Decision, Retry>> {
    let mut owners = Owners::new(config, cx);
    let subjects = subjects(cx, &mut owners, items);
    let findings = find_all(&mut owners, &subjects);
    let learnt = owners.read();
    let mut decisions: Vec<Result<Decision, Retry>> = items
        .iter()
        .zip(subjects)
        .zip(findings)
        .map(|((item, subject), findings)| match subject {
            Subject::Missing => Ok(of_missing(cx, &item.key)),
            Subject::Gone => Ok(Decision::done()),
            Subject::Unread(why) => Err(why),
            Subject::Item { object, deleted_by } => {
                let judge = Judge {
                    cx,
                    item,
                    object: &object,
                    deleted_by,
                    owners: &mut owners,
                };
                Ok(judge.decide(&findings))
            }
        })
        .collect();
    if let Some(first) = decisions.first_mut() {
        let decision = std::mem::replace(first, Ok(Decision::done()));
        let decision = decision.unwrap_or_else(Decision::from);
        *first = Ok(decision.commands(learnt));
    }
    decisions
}

/// What is known of the owners of each object. Those with few owners first: a call reads a bounded
/// number, and an object with more must not keep the others from being decided.
fn find_all(owners: &mut Owners<'_>, subjects: &[Subject]) -> Vec<Vec<Finding>> {
    let mut order: Vec<(usize, &Subject)> = subjects.iter().enumerate().collect();
    order.sort_by_key(|(_, subject)| subject.owners());
    let found = order.into_iter();
    let found = found.map(|(place, subject)| (place, find_owners(owners, subject)));
    let by_place: BTreeMap<usize, Vec<Finding>> = found.collect();
    by_place.into_values().collect()
}

/// The object of a work item.
enum Subject {
    /// The cache does not have it.
    Missing,
    /// The API server does not have it. The cache will observe that soon.
    Gone,
    /// It has changed since the cache's state, and the live read failed.
    Unread(Retry),
    Item {
        object: Rc<Item>,
        deleted_by: Precondition,
    },
}

impl Subject {
    /// How many owners the object names.
    fn owners(&self) -> usize {
        match self {
            Self::Item { object, .. } => object.view.metadata.owner_references.len(),
            Self::Missing | Self::Gone | Self::Unread(_) => 0,
        }
    }
}

/// The precondition of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precondition {
    /// The object still has the version that was decided on.
    Version,
    /// It is the same object. An object whose version changes faster than a
    /// deletion arrives could never be deleted at a version. So the uid is
    /// enough once repeated conflicts have turned out to be about something
    /// else than the owners, as in kube-controller-manager. It proves nothing about
    /// changes between the read and the deletion: the API server has no precondition
    /// on owner references.
    Uid,
}

/// The objects of a call's items. An object whose last deletion or patch met a
/// newer version is read live: the cache may lag.
fn subjects(cx: &Context<'_>, owners: &mut Owners<'_>, items: &[WorkItem]) -> Vec<Subject> {
    let cached: Vec<Option<Rc<Item>>> = items.iter().map(|it| owners.cached(&it.key)).collect();
    let conflicting: Vec<bool> = items.iter().map(met_conflict).collect();
    let again = cached.iter().zip(&conflicting);
    let targets: Vec<_> = again
        .filter(|(_, conflicting)| **conflicting)
        .filter_map(|(object, _)| Some(object.as_ref()?.reference.clone()))
        .collect();
    let mut answers = if targets.is_empty() {
        Vec::new().into_iter()
    } else {
        cx.live_get::<Meta>(&targets).into_iter()
    };
    let items = items.iter().zip(conflicting);
    cached
        .into_iter()
        .zip(items)
        .map(|(object, (item, conflicting))| match object {
            None => Subject::Missing,
            Some(object) if !conflicting => Subject::Item {
                object,
                deleted_by: Precondition::Version,
            },
            Some(object) => match answers.next() {
                Some(Ok(live)) => Subject::Item {
                    deleted_by: precondition(item, &object, &live),
                    object: Rc::new(live),
                },
                Some(Err(failure)) if failure.is_gone() => Subject::Gone,
                Some(Err(failure)) => Subject::Unread(failure.of_read(&object.reference)),
                None => Subject::Unread(Retry::new("the host gave no answer")),
            },
        })
        .collect()
}

/// The precondition after a conflict. The uid is enough if the version that was
/// just read was not enough before, and nothing that was decided on has changed
/// since before the item was enqueued.
fn precondition(item: &WorkItem, cached: &Item, live: &Item) -> Precondition {
    if item.attempt >= RESTLESS_ATTEMPT
        && cached.changed_at <= item.created_at
        && live.view.metadata == cached.view.metadata
    {
        Precondition::Uid
    } else {
        Precondition::Version
    }
}

/// Whether the item's object had another version than the one that was decided
/// on.
pub(crate) fn met_conflict(item: &WorkItem) -> bool {
    let mut failures = item.failures.iter();
    failures.any(|it| it.uid == item.key && it.failure.class == FailureClass::Conflict)
}

/// What is known of each owner of an object; nothing for a terminating object,
/// because it does not matter.
fn find_owners(owners: &mut Owners<'_>, subject: &Subject) -> Vec<Finding> {
    let Subject::Item { object, .. } = subject else {
        return Vec::new();
    };
    if object.view.metadata.is_terminating() {
        return Vec::new();
    }
    let references = object.view.metadata.owner_references.iter();
    references
        .map(|reference| owners.find(reference, &object.reference.namespace))
        .collect()
}

/// An object that is gone may have left dependents.
fn of_missing(cx: &Context<'_>, uid: &str) -> Decision {
    let dependents = cx.watch(OBJECTS).index_count(BY_OWNER, uid);
    let look = (dependents > 0).then(|| now(DEPENDENTS, uid));
    Decision::done().commands(look)
}

/// Decides about one object.
struct Judge<'a, 'o> {
    cx: &'a Context<'a>,
    item: &'a WorkItem,
    object: &'a Item,
    deleted_by: Precondition,
    owners: &'a mut Owners<'o>,
}

/// An object's owner references, by the state of the owners.
#[derive(Default)]
struct SortedReferences<'a> {
    solid: Vec<&'a OwnerReference>,
    waiting: Vec<&'a OwnerReference>,
    dangling: Vec<&'a OwnerReference>,
    /// The cache does not have one of the solid owners.
    unobserved: bool,
}

impl<'a> Judge<'a, '_> {
    fn decide(mut self, findings: &[Finding]) -> Decision {
        let refused = patch::was_refused(self.object, &self.item.failures);
        let learnt = refused.then(|| {
            let kind = &self.object.reference;
            memory::learn_merge_only(&kind.api_version, &kind.kind)
        });
        let decision = if self.object.view.metadata.is_terminating() {
            self.of_terminating()
        } else {
            match self.sort(findings) {
                Ok(sorted) => self.of_sorted(&sorted),
                Err((reference, obstacle)) => self.of_undecidable(reference, &obstacle),
            }
        };
        decision.commands(learnt)
    }

    /// For a terminating object, only its finalizers and cycles matter.
    fn of_terminating(&mut self) -> Decision {
        let metadata = &self.object.view.metadata;
        let uid = &self.object.reference.uid;
        if metadata.lets_dependents_go() {
            return Decision::done().commands([now(OWNERS, uid)]);
        }
        if !metadata.waits_for_dependents() {
            return Decision::done();
        }
        let unblock = self.break_cycle();
        Decision::done()
            .plans(unblock)
            .commands([now(DEPENDENTS, uid), now(OWNERS, uid)])
    }

    /// Sorts the references. It stops at the first owner that cannot be
    /// decided, since the object may have to stay for that owner.
    fn sort(
        &mut self,
        findings: &[Finding],
    ) -> Result<SortedReferences<'a>, (&'a OwnerReference, Obstacle)> {
        let mut sorted = SortedReferences::default();
        let references = self.object.view.metadata.owner_references.iter();
        for (reference, finding) in references.zip(findings) {
            match self.owners.standing(reference, finding) {
                Ok(Standing::Solid) => sorted.solid.push(reference),
                Ok(Standing::SolidUnobserved) => {
                    sorted.solid.push(reference);
                    sorted.unobserved = true;
                }
                Ok(Standing::Waiting) => sorted.waiting.push(reference),
                Ok(Standing::Dangling) => sorted.dangling.push(reference),
                Err(obstacle) => return Err((reference, obstacle)),
            }
        }
        Ok(sorted)
    }

    fn of_sorted(&mut self, sorted: &SortedReferences<'_>) -> Decision {
        let lost: Vec<_> = sorted
            .dangling
            .iter()
            .chain(&sorted.waiting)
            .copied()
            .collect();
        if lost.is_empty() {
            let event = namespace::event(self.object, self.owners);
            let plan = event.map(|event| self.plan(WRONG_NAMESPACE, "").event(event));
            let decision = if sorted.unobserved {
                Decision::retry("an owner is not in the cache yet")
            } else {
                Decision::done()
            };
            return decision.plans(plan);
        }
        if !sorted.solid.is_empty() {
            let message = format!("{} of its owners are deleted or being deleted", lost.len());
            let patch =
                patch::drop_references(self.object, self.form(), PatchVersion::ThisVersion, &lost);
            let plan = self.plan(DROP_OWNERS, &message).patch(patch);
            return self.with_event(plan);
        }
        if sorted.waiting.is_empty() || !self.has_dependents() {
            return self.delete(self.policy(), "all of its owners are gone");
        }
        if let Some(plan) = self.break_cycle() {
            // The deletion follows when the cache has observed this.
            return self.with_event(plan);
        }
        self.delete(
            Propagation::Foreground,
            "its owner is deleted in the foreground",
        )
    }

    /// An object that cannot be decided stays. It is retried until it can be,
    /// except an object whose owner is seen in another namespace: that one
    /// never can.
    fn of_undecidable(&mut self, reference: &OwnerReference, obstacle: &Obstacle) -> Decision {
        let OwnerReference {
            api_version,
            kind,
            name,
            ..
        } = reference;
        let owner = format!("{api_version} {kind} {name}");
        let why = match obstacle {
            Obstacle::NoNamespace => {
                let event = namespace::event(self.object, self.owners);
                if let Some(event) = event {
                    return Decision::done().plans([self.plan(WRONG_NAMESPACE, "").event(event)]);
                }
                format!("its owner {owner} is namespaced, but the object is cluster-scoped")
            }
            Obstacle::Unmappable => {
                if self.item.attempt == WARNING_ATTEMPT {
                    let object = self.object.reference.to_string();
                    self.cx.log(
                        Level::Warn,
                        "object is kept: the kind of its owner is not served",
                        &[("object", &object), ("owner", &owner)],
                    );
                }
                format!("the kind of its owner {owner} is not served")
            }
            Obstacle::Unread(why) => format!("its owner {owner} could not be read: {why}"),
        };
        Decision::retry(why)
    }

    fn delete(&mut self, policy: Propagation, message: &str) -> Decision {
        let options = DeleteOptions::new().propagation(policy);
        let options = match self.deleted_by {
            Precondition::Version => options.only_version(&self.object.resource_version),
            Precondition::Uid => options,
        };
        let plan = self.plan(OWNERS_GONE, message).delete(options);
        self.with_event(plan)
    }

    /// A decision with this plan, and an event about a reference across
    /// namespaces.
    fn with_event(&mut self, plan: Plan) -> Decision {
        let plan = match namespace::event(self.object, self.owners) {
            Some(event) => plan.event(event),
            None => plan,
        };
        Decision::done().plans([plan])
    }

    /// The form of patch for the object's references.
    fn form(&self) -> PatchForm {
        PatchForm::of(self.cx, self.object, &self.item.failures)
    }

    fn plan(&self, reason: Reason, message: &str) -> Plan {
        Plan::new(self.object.reference.clone(), reason, message)
    }

    /// The propagation policy that the object itself asks for, by a finalizer
    /// that was set before its deletion.
    fn policy(&self) -> Propagation {
        let metadata = &self.object.view.metadata;
        if metadata.has_finalizer(ORPHAN) {
            Propagation::Orphan
        } else if metadata.has_finalizer(FOREGROUND) {
            Propagation::Foreground
        } else {
            Propagation::Background
        }
    }

    /// Whether objects other than itself name it as owner.
    fn has_dependents(&self) -> bool {
        let uid = &self.object.reference.uid;
        let objects = self.cx.watch(OBJECTS);
        let (first, next) = objects.index_page(BY_OWNER, uid, 0, 2);
        next.is_some()
            || first
                .iter()
                .any(|it: &Object<Meta>| it.reference.uid != *uid)
    }

    fn break_cycle(&mut self) -> Option<Plan> {
        let closing = cycle::closing_references(self.object, self.owners);
        if closing.is_empty() {
            return None;
        }
        let patch = patch::unblock(self.object, self.form(), |it| closing.contains(&it));
        let message = "the object and its owners would wait for each other";
        Some(self.plan(BREAK_CYCLE, message).patch(patch))
    }
}
