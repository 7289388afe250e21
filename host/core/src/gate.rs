//! The gate: one pure function that every plan passes before a request is
//! made, in every mode.
//!
//! What can never be right (no uid, a write outside what was declared or
//! granted) is refused whatever the mode, so that a dry run shows it too. Then
//! comes what depends on the moment: leadership, mode, ownership, what was
//! written a moment ago, the budget.

use std::fmt;

use crate::budget::Trip;
use crate::expectation::ExpectationState;
use crate::manifest::{Manifest, Permission};
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::object::ObjectRef;
use crate::plan::{Plan, Step};

/// What a controller may do to the cluster.
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

/// Everything the gate judges by besides the plan.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Whether this replica leads the controller.
    pub leading: bool,
    /// The controller's mode.
    pub mode: Mode,
    /// What the guest declared.
    pub manifest: &'a Manifest,
    /// What the operator granted of it; none for all.
    pub granted: Option<&'a [Permission]>,
    /// What the API server serves.
    pub mapping: &'a Mapping,
    /// Whether the target belongs to the cohort that this revision owns.
    pub owns_target: bool,
    /// What of the target is under way, or not yet seen in the cache.
    pub held: Option<ExpectationState>,
    /// The guardrail that holds this plan back.
    pub tripped: Option<Trip>,
}

/// What becomes of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It is executed.
    Admit,
    /// It would be executed in the mode Enforce.
    DryRun,
    /// Not now, without fault: it may be asked again.
    Wait(Waiting),
    /// Not as it is, and not by trying again.
    Refuse(Refusal),
}

impl Ruling {
    /// One word of a fixed set, for a metric label.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Admit => "admitted",
            Self::DryRun => "dry-run",
            Self::Wait(Waiting::NotLeading) => "not-leading",
            Self::Wait(Waiting::Disabled) => "disabled",
            Self::Wait(Waiting::NotOwned) => "not-owned",
            Self::Wait(Waiting::Held(ExpectationState::InFlight)) => "in-flight",
            Self::Wait(Waiting::Held(ExpectationState::NotSeenYet)) => "already-written",
            Self::Wait(Waiting::Held(ExpectationState::Gone)) => "already-gone",
            Self::Wait(Waiting::Tripped(_)) => "guardrail-tripped",
            Self::Wait(Waiting::NotServed) => "not-served",
            Self::Refuse(Refusal::NoSteps) => "no-steps",
            Self::Refuse(Refusal::NoUid) => "no-uid",
            Self::Refuse(Refusal::NotDeclared { .. }) => "not-declared",
            Self::Refuse(Refusal::NotGranted { .. }) => "not-granted",
            Self::Refuse(Refusal::NotAPod) => "not-a-pod",
        }
    }
}

/// Why a plan has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Another replica leads the controller.
    NotLeading,
    /// The controller is disabled.
    Disabled,
    /// Another revision owns the target's cohort.
    NotOwned,
    /// The target is being written, or the cache does not show it yet.
    Held(ExpectationState),
    /// A guardrail holds it back.
    Tripped(Trip),
    /// The API server does not serve a kind that the plan writes. It may again:
    /// the version of a definition is off for a while, or an aggregated API
    /// server is away.
    NotServed,
}

/// Why a plan can never be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no steps.
    NoSteps,
    /// Its target has no uid: it could hit another object of that name.
    NoUid,
    /// The guest's manifest does not ask for this write.
    NotDeclared {
        /// What it would take.
        permission: Permission,
    },
    /// The operator did not grant this write.
    NotGranted {
        /// What it would take.
        permission: Permission,
    },
    /// Only pods can be evicted.
    NotAPod,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admit => f.write_str("admitted"),
            Self::DryRun => f.write_str("dry run: the controller's mode is DryRun"),
            Self::Wait(waiting) => waiting.fmt(f),
            Self::Refuse(refusal) => refusal.fmt(f),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => f.write_str("waits: another replica leads the controller"),
            Self::Disabled => f.write_str("waits: the controller is disabled"),
            Self::NotOwned => f.write_str("waits: another revision owns the target"),
            Self::Held(ExpectationState::InFlight) => {
                f.write_str("waits: another plan for the target is being executed")
            }
            Self::Held(ExpectationState::NotSeenYet) => {
                f.write_str("waits: the target was just written and the cache does not show it yet")
            }
            Self::Held(ExpectationState::Gone) => {
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
            Self::NotDeclared { permission } => write!(
                f,
                "refused: the guest's manifest does not declare the permission {permission}"
            ),
            Self::NotGranted { permission } => write!(
                f,
                "refused: the operator did not grant the permission {permission}"
            ),
            Self::NotAPod => f.write_str("refused: only pods can be evicted"),
        }
    }
}

/// Rules on one plan.
#[must_use]
pub fn judge(plan: &Plan, circumstances: &Circumstances<'_>) -> Ruling {
    match check_plan(plan, circumstances) {
        Ok(Checked::Served) => {}
        Ok(Checked::NotServed) => return Ruling::Wait(Waiting::NotServed),
        Err(refusal) => return Ruling::Refuse(refusal),
    }
    if !circumstances.leading && !Mutant::IgnoreLeadership.is_active() {
        return Ruling::Wait(Waiting::NotLeading);
    }
    if circumstances.mode == Mode::Disabled {
        return Ruling::Wait(Waiting::Disabled);
    }
    if !circumstances.owns_target && !Mutant::IgnoreOwnership.is_active() {
        return Ruling::Wait(Waiting::NotOwned);
    }
    if circumstances.mode == Mode::DryRun {
        return Ruling::DryRun;
    }
    if let Some(held) = circumstances.held {
        return Ruling::Wait(Waiting::Held(held));
    }
    match circumstances.tripped {
        Some(trip) => Ruling::Wait(Waiting::Tripped(trip)),
        None => Ruling::Admit,
    }
}

/// Whether what a plan writes is known, so that its permissions could be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    Served,
    NotServed,
}

fn check_plan(plan: &Plan, circumstances: &Circumstances<'_>) -> Result<Checked, Refusal> {
    if plan.steps.is_empty() {
        return Err(Refusal::NoSteps);
    }
    if plan.target.uid.is_empty() {
        return Err(Refusal::NoUid);
    }
    let mut checked = Checked::Served;
    for step in &plan.steps {
        let permission = match needed(step, &plan.target, circumstances.mapping)? {
            Needed::Nothing => continue,
            Needed::Unknown => {
                checked = Checked::NotServed;
                continue;
            }
            Needed::Permission(permission) => permission,
        };
        let Permission {
            verb,
            group,
            resource,
        } = &permission;
        if !circumstances.manifest.permits(verb, group, resource) {
            return Err(Refusal::NotDeclared { permission });
        }
        let granted = circumstances.granted.is_none_or(|granted| {
            granted
                .iter()
                .any(|rule| rule.covers(verb, group, resource))
        });
        if !granted {
            return Err(Refusal::NotGranted { permission });
        }
    }
    Ok(checked)
}

/// What a step takes.
enum Needed {
    /// An event is the host's.
    Nothing,
    /// The kind is not served.
    Unknown,
    Permission(Permission),
}

fn needed(step: &Step, target: &ObjectRef, mapping: &Mapping) -> Result<Needed, Refusal> {
    let (verb, object, subresource) = match step {
        Step::Event(_) => return Ok(Needed::Nothing),
        Step::Patch(patch) => ("patch", target, patch.subresource.as_str()),
        Step::Delete(_) => ("delete", target, ""),
        Step::Evict(_) if target.api_version != "v1" || target.kind != "Pod" => {
            return Err(Refusal::NotAPod);
        }
        Step::Evict(_) => ("create", target, "eviction"),
        Step::Create(create) => ("create", &create.object, ""),
    };
    let Some(served) = mapping.by_kind(&object.api_version, &object.kind) else {
        return Ok(Needed::Unknown);
    };
    let mut resource = served.resource.plural.clone();
    if !subresource.is_empty() {
        resource.push('/');
        resource.push_str(subresource);
    }
    Ok(Needed::Permission(Permission {
        verb: verb.to_owned(),
        group: served.resource.group.clone(),
        resource,
    }))
}

#[cfg(test)]
mod tests;
