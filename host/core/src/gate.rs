//! The gate: one pure function that rules on every plan before a request is sent, in
//! every mode.
//!
//! The gate first refuses plans that can never be executed (no uid, a permission that
//! is not declared or granted), so that a dry run reports them too. Then it checks what
//! can change: leadership, mode, ownership, expectations, guardrails.

pub mod reads;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Plans are executed.
    Enforce,
    /// Plans are logged and counted, not executed.
    #[default]
    DryRun,
    /// The guest is not called.
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
            Self::Refuse(Refusal::WritesOutside) => "writes-outside",
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
    /// The plan creates or applies another object, and its target is not in the snapshot: the
    /// API server does not compare the target's uid.
    UnknownTarget,
    /// The candidate's plan creates or applies an object outside of its cohorts.
    WritesOutside,
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
                "refused: a plan that creates or applies another object needs a target that the \
                 guest watches",
            ),
            Self::CreatesEvent => f.write_str(
                "refused: the plan creates an event as an object; an event needs an event step",
            ),
            Self::WritesOutside => f.write_str(
                "refused: the candidate writes another object that belongs to the stable revision: \
                 its target does not own it, and spec.rollout.cohort says which are the candidate's",
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
        Ownership::WritesOutside => return Ruling::Refuse(Refusal::WritesOutside),
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
        if step.writes_other(&plan.target).is_some() && !circumstances.knows_target {
            return Err(Refusal::UnknownTarget);
        }
        for write in writes(step, &plan.target)?.into_iter().flatten() {
            match write.required(circumstances.mapping) {
                Some(permission) => check_write(&write, permission, circumstances)?,
                None => availability = Availability::NotServed,
            }
        }
    }
    Ok(availability)
}

fn check_write(
    write: &Write<'_>,
    permission: Permission,
    circumstances: &Circumstances<'_>,
) -> Result<(), Refusal> {
    let Permission {
        verb,
        group,
        resource,
    } = &permission;
    if !circumstances.manifest.permits(verb, group, resource) {
        return Err(Refusal::NotDeclared { permission });
    }
    let grant = circumstances.grant;
    let namespace = grant.namespace_of(&permission, write.namespace, write.name);
    let is_granted = grant.allows_write(&permission, namespace);
    if !is_granted && !Mutant::IgnoreGrant.is_active() {
        return Err(Refusal::NotGranted {
            permission,
            namespace: namespace.to_owned(),
        });
    }
    Ok(())
}

/// What a step does that needs a permission.
struct Write<'a> {
    verb: &'static str,
    /// The kind of the object; none for events.
    object: Option<&'a ObjectRef>,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl<'a> Write<'a> {
    fn of(verb: &'static str, object: &'a ObjectRef, subresource: &'a str) -> Self {
        Self {
            verb,
            object: Some(object),
            subresource,
            namespace: &object.namespace,
            name: &object.name,
        }
    }

    fn of_event(target: &'a ObjectRef) -> Self {
        Self {
            verb: "create",
            object: None,
            subresource: "",
            namespace: Event::namespace(target),
            name: "",
        }
    }

    /// The permission; none if the kind is not served.
    fn required(&self, mapping: &Mapping) -> Option<Permission> {
        let Some(object) = self.object else {
            return Some(Permission::of_events());
        };
        let served = mapping.by_kind(&object.api_version, &object.kind)?;
        let mut resource = served.resource.plural.clone();
        if !self.subresource.is_empty() {
            resource.push('/');
            resource.push_str(self.subresource);
        }
        Some(Permission::new(
            self.verb,
            served.resource.group.clone(),
            resource,
        ))
    }
}

/// What a step writes. An apply that may create the object needs two permissions, as the
/// API server asks for them.
fn writes<'a>(step: &'a Step, target: &'a ObjectRef) -> Result<[Option<Write<'a>>; 2], Refusal> {
    let write = match step {
        Step::Event(_) => Write::of_event(target),
        Step::Patch(patch) => Write::of("patch", target, &patch.subresource),
        Step::Delete(_) => Write::of("delete", target, ""),
        Step::Evict(_) if target.api_version != "v1" || target.kind != "Pod" => {
            return Err(Refusal::NotAPod);
        }
        Step::Evict(_) => Write::of("create", target, "eviction"),
        Step::Create(create) if is_event(&create.object) => return Err(Refusal::CreatesEvent),
        Step::Create(create) => Write::of("create", &create.object, ""),
        Step::Apply(apply) if apply.may_create() && is_event(&apply.object) => {
            return Err(Refusal::CreatesEvent);
        }
        Step::Apply(apply) => {
            let creates = apply.may_create();
            let creates = creates.then(|| Write::of("create", &apply.object, ""));
            let patches = Write::of("patch", &apply.object, &apply.subresource);
            return Ok([Some(patches), creates]);
        }
    };
    Ok([Some(write), None])
}

fn is_event(object: &ObjectRef) -> bool {
    object.kind == "Event" && matches!(object.group(), "" | "events.k8s.io")
}

#[cfg(test)]
mod tests;
