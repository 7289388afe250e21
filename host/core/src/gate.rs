//! The gate: one pure function that rules on every plan before a request is sent, in
//! every mode.
//!
//! The gate first refuses plans that can never be executed (no uid, a permission that
//! is not declared or granted), so that a dry run reports them too. Then it checks what
//! can change: leadership, mode, ownership, expectations, guardrails.

pub mod reads;

use std::fmt;

use crate::budget::Trip;
use crate::expectation::ExpectationState;
use crate::grant::Grant;
use crate::manifest::{Manifest, Permission};
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::object::ObjectRef;
use crate::plan::{Event, Plan, Step};
use crate::rollout::cohort::Ownership;
use crate::store::Object;

/// What the host does with the plans of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Its plans are executed.
    Enforce,
    /// A dry run: its plans are logged and counted.
    #[default]
    DryRun,
    /// It does not run.
    Disabled,
}

impl Mode {
    /// The word used in configurations and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "Enforce",
            Self::DryRun => "DryRun",
            Self::Disabled => "Disabled",
        }
    }
}

/// The inputs of a ruling besides the plan.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Whether this replica leads the controller.
    pub leading: bool,
    /// The mode of the revision.
    pub mode: Mode,
    /// The guest's manifest.
    pub manifest: &'a Manifest,
    /// What the operator granted.
    pub grant: &'a Grant,
    /// The resources that the API server serves.
    pub mapping: &'a Mapping,
    /// Whether this revision owns the plan.
    pub ownership: Ownership,
    /// Whether the snapshot of the decision has the target.
    pub knows_target: bool,
    /// The object of the cache that has the target's uid, and another name.
    pub other_with_uid: Option<&'a Object>,
    /// Why a plan for the target has to wait: an execution, or a write that the cache
    /// has not observed.
    pub expectation: Option<ExpectationState>,
    /// The guardrail that holds this plan back.
    pub tripped: Option<Trip>,
}

/// The gate's answer to one plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The plan is executed.
    Admit,
    /// The plan would be executed in the mode `Enforce`.
    DryRun,
    /// The plan cannot be executed now. It is decided again later.
    Wait(WaitReason),
    /// The plan can never be executed.
    Refuse(Refusal),
}

impl Ruling {
    /// One word of a fixed set, for a metric label.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Admit => "admitted",
            Self::DryRun => "dry-run",
            Self::Wait(WaitReason::NotLeading) => "not-leading",
            Self::Wait(WaitReason::Disabled) => "disabled",
            Self::Wait(WaitReason::NotOwned) => "not-owned",
            Self::Wait(WaitReason::Expectation(ExpectationState::InFlight)) => "in-flight",
            Self::Wait(WaitReason::Expectation(ExpectationState::NotObserved)) => "already-written",
            Self::Wait(WaitReason::Expectation(ExpectationState::Gone)) => "already-gone",
            Self::Wait(WaitReason::Tripped(_)) => "guardrail-tripped",
            Self::Wait(WaitReason::NotServed) => "not-served",
            Self::Refuse(Refusal::NoSteps) => "no-steps",
            Self::Refuse(Refusal::NoUid) => "no-uid",
            Self::Refuse(Refusal::OtherUid { .. }) => "other-uid",
            Self::Refuse(Refusal::NotDeclared { .. }) => "not-declared",
            Self::Refuse(Refusal::NotGranted { .. }) => "not-granted",
            Self::Refuse(Refusal::NotAPod) => "not-a-pod",
            Self::Refuse(Refusal::UnknownTarget) => "unknown-target",
            Self::Refuse(Refusal::CreatesOutside) => "creates-outside",
            Self::Refuse(Refusal::CreatesEvent) => "creates-event",
        }
    }
}

/// Why a plan has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Another replica leads the controller.
    NotLeading,
    /// The controller is disabled.
    Disabled,
    /// Another revision owns the target's cohort.
    NotOwned,
    /// The target is being written, or the cache has not observed its last write.
    Expectation(ExpectationState),
    /// A guardrail holds the plan back.
    Tripped(Trip),
    /// The API server does not serve a kind that the plan writes. It may serve the kind
    /// again: a version of a definition is turned off, or an aggregated API server is
    /// unavailable.
    NotServed,
}

/// Why a plan can never be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The plan has no steps.
    NoSteps,
    /// The target has no uid: the plan could hit another object of that name.
    NoUid,
    /// The uid is that of an object with another name: the name decides who owns a target,
    /// and the uid what is known about it.
    OtherUid {
        /// The namespace of the object with that uid; empty if it has none.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// The guest's manifest does not ask for this write.
    NotDeclared {
        /// The permission that the plan needs.
        permission: Permission,
    },
    /// The operator did not grant this write.
    NotGranted {
        /// The permission that the plan needs.
        permission: Permission,
        /// The namespace of the object; empty if it has none.
        namespace: String,
    },
    /// Only pods can be evicted.
    NotAPod,
    /// The plan creates an object, and its target is not in the snapshot: the API server
    /// compares the target's uid with no creation.
    UnknownTarget,
    /// The candidate's plan creates an object outside of its cohorts.
    CreatesOutside,
    /// The plan creates an event without an event step.
    CreatesEvent,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admit => f.write_str("admitted"),
            Self::DryRun => {
                f.write_str("dry run: the controller's mode is DryRun, or its module is unsigned")
            }
            Self::Wait(waiting) => waiting.fmt(f),
            Self::Refuse(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => f.write_str("waits: another replica leads the controller"),
            Self::Disabled => f.write_str("waits: the controller is disabled"),
            Self::NotOwned => f.write_str("waits: another revision owns the target"),
            Self::Expectation(ExpectationState::InFlight) => {
                f.write_str("waits: another plan for the target is being executed")
            }
            Self::Expectation(ExpectationState::NotObserved) => {
                f.write_str("waits: the cache has not observed the last write to the target yet")
            }
            Self::Expectation(ExpectationState::Gone) => {
                f.write_str("has nothing to do: the target was just deleted")
            }
            Self::Tripped(trip) => write!(f, "waits: {trip}"),
            Self::NotServed => f.write_str(
                "waits: the API server does not serve the kind of the object at the moment",
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSteps => f.write_str("refused: the plan has no steps"),
            Self::NoUid => f.write_str(
                "refused: the target has no uid, so the plan could hit another object of that name",
            ),
            Self::OtherUid { namespace, name } => write!(
                f,
                "refused: the target has the uid of {}",
                [namespace.as_str(), name]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join("/")
            ),
            Self::NotDeclared { permission } => write!(
                f,
                "refused: the guest's manifest does not declare the permission {permission}"
            ),
            Self::NotGranted {
                permission,
                namespace,
            } => {
                write!(f, "refused: spec.permissions does not grant {permission}")?;
                match namespace.as_str() {
                    "" => Ok(()),
                    namespace => write!(f, " in the namespace {namespace}"),
                }
            }
            Self::NotAPod => f.write_str("refused: only pods can be evicted"),
            Self::UnknownTarget => f.write_str(
                "refused: a plan that creates an object needs a target that the guest watches",
            ),
            Self::CreatesEvent => f.write_str(
                "refused: the plan creates an event as an object; an event needs an event step",
            ),
            Self::CreatesOutside => f.write_str(
                "refused: the candidate creates an object in a namespace whose objects the stable \
                 revision owns; spec.rollout.cohort says which are the candidate's",
            ),
        }
    }
}

/// Rules on one plan.
#[must_use]
pub fn judge(plan: &Plan, circumstances: &Circumstances<'_>) -> Ruling {
    match check_plan(plan, circumstances) {
        Ok(Availability::Served) => {}
        Ok(Availability::NotServed) => return Ruling::Wait(WaitReason::NotServed),
        Err(refusal) => return Ruling::Refuse(refusal),
    }
    if !circumstances.leading && !Mutant::IgnoreLeadership.is_active() {
        return Ruling::Wait(WaitReason::NotLeading);
    }
    if circumstances.mode == Mode::Disabled {
        return Ruling::Wait(WaitReason::Disabled);
    }
    match circumstances.ownership {
        _ if Mutant::IgnoreOwnership.is_active() => {}
        Ownership::Own => {}
        Ownership::OfOther => return Ruling::Wait(WaitReason::NotOwned),
        // Nobody else executes the plan: its target is the candidate's.
        Ownership::CreatesOutside => return Ruling::Refuse(Refusal::CreatesOutside),
    }
    if circumstances.mode == Mode::DryRun {
        return Ruling::DryRun;
    }
    if let Some(state) = circumstances.expectation {
        return Ruling::Wait(WaitReason::Expectation(state));
    }
    match circumstances.tripped {
        Some(trip) => Ruling::Wait(WaitReason::Tripped(trip)),
        None => Ruling::Admit,
    }
}

/// Whether the API server serves every kind that a plan writes, so that all its
/// permissions are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Availability {
    Served,
    NotServed,
}

fn check_plan(plan: &Plan, circumstances: &Circumstances<'_>) -> Result<Availability, Refusal> {
    if plan.steps.is_empty() {
        return Err(Refusal::NoSteps);
    }
    if plan.target.uid.is_empty() {
        return Err(Refusal::NoUid);
    }
    if let Some(other) = circumstances.other_with_uid {
        return Err(Refusal::OtherUid {
            namespace: other.namespace().to_owned(),
            name: other.name().to_owned(),
        });
    }
    let mut availability = Availability::Served;
    for step in &plan.steps {
        if matches!(step, Step::Create(_)) && !circumstances.knows_target {
            return Err(Refusal::UnknownTarget);
        }
        let required = requirement(step, &plan.target, circumstances.mapping)?;
        let Some((permission, namespace, name)) = required else {
            availability = Availability::NotServed;
            continue;
        };
        let Permission {
            verb,
            group,
            resource,
        } = &permission;
        if !circumstances.manifest.permits(verb, group, resource) {
            return Err(Refusal::NotDeclared { permission });
        }
        let grant = circumstances.grant;
        let namespace = grant.namespace_of(&permission, namespace, name);
        let is_granted = grant.allows_write(&permission, namespace);
        if !is_granted && !Mutant::IgnoreGrant.is_active() {
            return Err(Refusal::NotGranted {
                permission,
                namespace: namespace.to_owned(),
            });
        }
    }
    Ok(availability)
}

/// The permission that a step needs, and the namespace and the name of the object; none if
/// the kind is not served.
fn requirement<'a>(
    step: &'a Step,
    target: &'a ObjectRef,
    mapping: &Mapping,
) -> Result<Option<(Permission, &'a str, &'a str)>, Refusal> {
    let (verb, object, subresource) = match step {
        Step::Event(_) => {
            let namespace = Event::namespace(target);
            return Ok(Some((Permission::of_events(), namespace, "")));
        }
        Step::Patch(patch) => ("patch", target, patch.subresource.as_str()),
        Step::Delete(_) => ("delete", target, ""),
        Step::Evict(_) if target.api_version != "v1" || target.kind != "Pod" => {
            return Err(Refusal::NotAPod);
        }
        Step::Evict(_) => ("create", target, "eviction"),
        Step::Create(create) if is_event(&create.object) => return Err(Refusal::CreatesEvent),
        Step::Create(create) => ("create", &create.object, ""),
    };
    let Some(served) = mapping.by_kind(&object.api_version, &object.kind) else {
        return Ok(None);
    };
    let mut resource = served.resource.plural.clone();
    if !subresource.is_empty() {
        resource.push('/');
        resource.push_str(subresource);
    }
    let permission = Permission {
        verb: verb.to_owned(),
        group: served.resource.group.clone(),
        resource,
    };
    Ok(Some((permission, &object.namespace, &object.name)))
}

fn is_event(object: &ObjectRef) -> bool {
    object.kind == "Event" && matches!(object.group(), "" | "events.k8s.io")
}

#[cfg(test)]
mod tests;
