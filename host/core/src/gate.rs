//! The gate: one pure function that every plan passes before a request is
//! made, in every mode.
//!
//! What can never be right (no uid, a write outside what was declared or
//! granted) is refused whatever the mode, so that a dry run shows it too. Then
//! comes what depends on the moment: leadership, mode, ownership, what was
//! written a moment ago, the budget.

use std::fmt;

use crate::budget::Spent;
use crate::expectation::Held;
use crate::manifest::{Manifest, Permission};
use crate::mapping::Mapping;
use crate::object::ObjectRef;
use crate::plan::{Plan, Step};

/// What a controller may do to the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Its plans are carried out.
    Enforce,
    /// Its plans are shown.
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

/// Everything the gate looks at besides the plan.
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
    pub held: Option<Held>,
    /// The guardrail that holds this plan back.
    pub spent: Option<Spent>,
}

/// What becomes of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// It is carried out.
    Admit,
    /// It would be carried out in the mode Enforce.
    Show,
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
            Self::Show => "shown",
            Self::Wait(Waiting::NotLeading) => "not-leading",
            Self::Wait(Waiting::Disabled) => "disabled",
            Self::Wait(Waiting::NotOwned) => "not-owned",
            Self::Wait(Waiting::Held(Held::InFlight)) => "in-flight",
            Self::Wait(Waiting::Held(Held::NotSeenYet)) => "already-written",
            Self::Wait(Waiting::Held(Held::Gone)) => "already-gone",
            Self::Wait(Waiting::Spent(_)) => "budget-spent",
            Self::Refuse(Refusal::NoSteps) => "no-steps",
            Self::Refuse(Refusal::NoUid) => "no-uid",
            Self::Refuse(Refusal::NotServed { .. }) => "not-served",
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
    Held(Held),
    /// A guardrail holds it back.
    Spent(Spent),
}

/// Why a plan can never be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no steps.
    NoSteps,
    /// Its target has no uid: it could hit another object of that name.
    NoUid,
    /// The API server serves no such kind.
    NotServed {
        /// The object whose kind is unknown.
        object: ObjectRef,
    },
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
            Self::Admit => f.write_str("carried out"),
            Self::Show => f.write_str("shown only: the controller's mode is DryRun"),
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
            Self::Held(Held::InFlight) => {
                f.write_str("waits: another plan for the target is being carried out")
            }
            Self::Held(Held::NotSeenYet) => {
                f.write_str("waits: the target was just written and the cache does not show it yet")
            }
            Self::Held(Held::Gone) => f.write_str("has nothing to do: the target was just deleted"),
            Self::Spent(spent) => write!(f, "waits: {spent}"),
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
            Self::NotServed { object } => write!(
                f,
                "refused: the API server serves no kind {} {}",
                object.api_version, object.kind
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
    if let Err(refusal) = check_plan(plan, circumstances) {
        return Ruling::Refuse(refusal);
    }
    if !circumstances.leading {
        return Ruling::Wait(Waiting::NotLeading);
    }
    if circumstances.mode == Mode::Disabled {
        return Ruling::Wait(Waiting::Disabled);
    }
    if !circumstances.owns_target {
        return Ruling::Wait(Waiting::NotOwned);
    }
    if circumstances.mode == Mode::DryRun {
        return Ruling::Show;
    }
    if let Some(held) = circumstances.held {
        return Ruling::Wait(Waiting::Held(held));
    }
    match circumstances.spent {
        Some(spent) => Ruling::Wait(Waiting::Spent(spent)),
        None => Ruling::Admit,
    }
}

fn check_plan(plan: &Plan, circumstances: &Circumstances<'_>) -> Result<(), Refusal> {
    if plan.steps.is_empty() {
        return Err(Refusal::NoSteps);
    }
    if plan.target.uid.is_empty() {
        return Err(Refusal::NoUid);
    }
    for step in &plan.steps {
        let Some(permission) = needed(step, &plan.target, circumstances.mapping)? else {
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
        let granted = circumstances.granted.is_none_or(|granted| {
            granted
                .iter()
                .any(|rule| rule.covers(verb, group, resource))
        });
        if !granted {
            return Err(Refusal::NotGranted { permission });
        }
    }
    Ok(())
}

/// The permission that a step takes; none for an event, which is the host's.
fn needed(
    step: &Step,
    target: &ObjectRef,
    mapping: &Mapping,
) -> Result<Option<Permission>, Refusal> {
    let (verb, object, subresource) = match step {
        Step::Event(_) => return Ok(None),
        Step::Patch(patch) => ("patch", target, patch.subresource.as_str()),
        Step::Delete(_) => ("delete", target, ""),
        Step::Evict(_) if target.api_version != "v1" || target.kind != "Pod" => {
            return Err(Refusal::NotAPod);
        }
        Step::Evict(_) => ("create", target, "eviction"),
        Step::Create(create) => ("create", &create.object, ""),
    };
    let served = mapping
        .by_kind(&object.api_version, &object.kind)
        .ok_or_else(|| Refusal::NotServed {
            object: object.clone(),
        })?;
    let mut resource = served.resource.plural.clone();
    if !subresource.is_empty() {
        resource.push('/');
        resource.push_str(subresource);
    }
    Ok(Some(Permission {
        verb: verb.to_owned(),
        group: served.resource.group.clone(),
        resource,
    }))
}

#[cfg(test)]
mod tests;
