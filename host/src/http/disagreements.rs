//! `GET /controllers/NAME/disagreements`: where candidate and stable revision
//! disagree, as JSON; and the same as text for `davit diff`.

use std::fmt;
use std::time::Duration;

use davit_core::object::ObjectRef;
use davit_core::plan::{self, PatchKind};
use davit_core::rollout::compare;
use davit_core::secrets;
use davit_core::time::{Instant, Now};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use davit_core::api::ComparisonStatus;
use davit_core::api::HumanDuration;
use davit_core::control::StepProgress;
use davit_core::observation::Disagreements;

/// How a candidate's decisions compare with the stable revision's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The stable revision's name.
    pub stable: String,
    /// The candidate's name.
    pub candidate: String,
    /// The progress of the step; none before the rollout has recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepPage>,
    /// The start of the counts: the start of the step, or of the host if that was
    /// later. RFC 3339.
    pub counted_since: String,
    /// The targets compared since then, by result.
    pub counts: ComparisonStatus,
    /// Targets on which one revision has decided, and which are counted once the
    /// other has decided too.
    pub pending: usize,
    /// The last disagreements since then, the newest first: as many as there is room for.
    pub disagreements: Vec<Disagreement>,
}

/// The progress of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepPage {
    /// Its number, counted from 1.
    pub number: u32,
    /// The number of steps.
    pub of: u32,
    /// The step as in the spec: `shadow for 10m`.
    pub text: String,
    /// The time that has passed in the step.
    pub elapsed_seconds: u64,
    /// The time that is left; none if the step lasts until promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<u64>,
    /// What the step waits for.
    pub waits_for: String,
    /// Targets compared in the step, also by earlier hosts.
    pub decisions: u64,
    /// The number of decisions that the step needs to succeed by itself.
    pub min_decisions: u64,
}

/// A target on which the revisions disagree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disagreement {
    /// The time of the disagreement, RFC 3339.
    pub at: String,
    /// `only-stable`, `only-candidate` or `different`.
    pub result: String,
    /// The object.
    pub target: Target,
    /// The stable revision's decision, if it decided on the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<Side>,
    /// The candidate's decision, if it decided on the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Side>,
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// `v1`, `apps/v1`, …
    pub api_version: String,
    /// `Pod`
    pub kind: String,
    /// Empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The decision of one revision about a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// The time of the decision, RFC 3339.
    pub at: String,
    /// The queue of the item that it was decided for.
    pub queue: String,
    /// That item's key.
    pub key: String,
    /// The plan's reason, one word.
    pub reason: String,
    /// The plan's message, a sentence.
    pub message: String,
    /// The plan's steps, in order.
    pub steps: Vec<Step>,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "step",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Step {
    /// Changes fields of the target.
    Patch {
        /// `strategic-merge`, `merge` or `json`.
        kind: String,
        /// `status`, or empty.
        subresource: String,
        /// The patch.
        body: Value,
    },
    /// Deletes the target.
    Delete(Deletion),
    /// Deletes the target, a pod, as far as its disruption budgets allow.
    Evict(Deletion),
    /// Creates another object.
    Create {
        /// The object.
        body: Value,
    },
    /// Applies a configuration to the target or to another object.
    Apply {
        /// `status`, or empty.
        subresource: String,
        /// Whether fields are taken from other field managers.
        force: bool,
        /// The configuration.
        body: Value,
    },
    /// Emits a Kubernetes event about the target.
    Event {
        /// `Normal` or `Warning`.
        event_type: String,
        /// One word in camel case.
        reason: String,
        /// A sentence.
        message: String,
    },
}

/// The options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// A precondition besides the uid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The propagation policy; the resource's default if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation_policy: Option<String>,
    /// The grace period in seconds; the object's own if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
}

/// The most bytes of plans on a page, as they are in memory. A viewer may ask for many pages at once.
const MOST_BYTES: usize = 2 << 20;

impl Page {
    /// Converts the disagreements that the host found and the progress of the step.
    #[must_use]
    pub fn new(found: &Disagreements, progress: Option<&StepProgress>) -> Self {
        let [stable, candidate] = found.revisions.clone();
        let mut room = MOST_BYTES;
        let last = found.last.iter().filter(|one| {
            let sides = one.stable.iter().chain(&one.candidate);
            let bytes: usize = sides.map(|side| side.plan.bytes()).sum();
            let left = room.checked_sub(bytes);
            room = left.unwrap_or(room);
            left.is_some()
        });
        let progress = progress.filter(|progress| progress.revision == candidate);
        Self {
            stable,
            candidate,
            step: progress.map(StepPage::from),
            counted_since: time(found.now, found.counted_since),
            counts: (&found.counts).into(),
            pending: found.pending,
            disagreements: last
                .filter_map(|one| disagreement(found.now, one))
                .collect(),
        }
    }
}

impl From<&StepProgress> for StepPage {
    fn from(progress: &StepProgress) -> Self {
        Self {
            number: progress.number,
            of: progress.of,
            text: progress.text.clone(),
            elapsed_seconds: progress.elapsed.as_secs(),
            // Rounded up: a second that has started is not over.
            left_seconds: progress
                .left
                .map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0)),
            waits_for: progress.waits_for.clone(),
            decisions: progress.compared,
            min_decisions: progress.min_decisions,
        }
    }
}

impl fmt::Display for StepPage {
    /// `step 1 of 2 (shadow for 10m): 40s elapsed, 9m20s left, 3 of 10 decisions`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |seconds| HumanDuration(Duration::from_secs(seconds));
        let Self {
            number, of, text, ..
        } = self;
        write!(f, "step {number} of {of} ({text}): ")?;
        write!(f, "{} elapsed, ", time(self.elapsed_seconds))?;
        match self.left_seconds {
            Some(0) => f.write_str("its time is over, ")?,
            Some(left) => write!(f, "{} left, ", time(left))?,
            None => f.write_str("until promoted, ")?,
        }
        match self.min_decisions {
            0 => write!(f, "{} decisions", self.decisions)?,
            least => write!(f, "{} of {least} decisions", self.decisions)?,
        }
        if self.left_seconds == Some(0) && self.decisions < self.min_decisions {
            f.write_str("; it waits for more, or for davit promote")?;
        }
        Ok(())
    }
}

/// None if neither revision decided on the target: that is not a disagreement.
fn disagreement(now: Now, found: &compare::Disagreement) -> Option<Disagreement> {
    let any = found.stable.as_ref().or(found.candidate.as_ref())?;
    let side = |side: &compare::Side| Side {
        at: time(now, side.at),
        queue: side.item.queue.clone(),
        key: side.item.key.clone(),
        reason: side.plan.reason.clone(),
        message: side.plan.message.clone(),
        steps: steps(&side.plan),
    };
    Some(Disagreement {
        at: time(now, found.at),
        result: found.agreement.as_str().to_owned(),
        target: (&any.plan.target).into(),
        stable: found.stable.as_ref().map(side),
        candidate: found.candidate.as_ref().map(side),
    })
}

/// The steps of a plan. Who may read the page may not read Secrets: their data is not in it.
fn steps(plan: &plan::Plan) -> Vec<Step> {
    let without_data = |one: &plan::Step| {
        let mut one = one.clone();
        secrets::strip_step(&plan.target, &mut one);
        step(&one)
    };
    plan.steps.iter().map(without_data).collect()
}

/// A step of a plan, with its body as JSON.
pub(crate) fn step(step: &plan::Step) -> Step {
    match step {
        plan::Step::Patch(patch) => Step::Patch {
            kind: match patch.kind {
                PatchKind::StrategicMerge => "strategic-merge",
                PatchKind::Merge => "merge",
                PatchKind::Json => "json",
            }
            .to_owned(),
            subresource: patch.subresource.clone(),
            body: decode(&patch.body),
        },
        plan::Step::Delete(options) => Step::Delete(options.into()),
        plan::Step::Evict(options) => Step::Evict(options.into()),
        plan::Step::Create(create) => Step::Create {
            body: decode(&create.body),
        },
        plan::Step::Apply(apply) => Step::Apply {
            subresource: apply.subresource.clone(),
            force: apply.force,
            body: decode(&apply.body),
        },
        plan::Step::Event(event) => Step::Event {
            event_type: event.event_type.clone(),
            reason: event.reason.clone(),
            message: event.message.clone(),
        },
    }
}

/// A guest's MessagePack as JSON. The engine refuses malformed MessagePack; should
/// some get here, the result is the error.
fn decode(body: &[u8]) -> Value {
    rmp_serde::from_slice(body)
        .unwrap_or_else(|error| Value::String(format!("not MessagePack: {error}")))
}

fn time(now: Now, at: Instant) -> String {
    let wall = Timestamp::from_millisecond(now.wall_at(at).0);
    wall.unwrap_or(Timestamp::MAX).to_string()
}

impl From<&ObjectRef> for Target {
    fn from(target: &ObjectRef) -> Self {
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
            uid,
        } = target.clone();
        Self {
            api_version,
            kind,
            namespace,
            name,
            uid,
        }
    }
}

impl From<&plan::DeleteOptions> for Deletion {
    fn from(options: &plan::DeleteOptions) -> Self {
        let policy = options.propagation_policy;
        Self {
            resource_version: options.resource_version.clone(),
            propagation_policy: policy.map(|policy| policy.as_str().to_owned()),
            grace_period_seconds: options.grace_period_seconds,
        }
    }
}

impl fmt::Display for Target {
    /// `v1 Pod ns/name`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.api_version, self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Patch {
                kind,
                subresource,
                body,
            } => {
                write!(f, "patch {} ({kind}): {body}", part(subresource))
            }
            Self::Delete(options) => write!(f, "delete{options}"),
            Self::Evict(options) => write!(f, "evict{options}"),
            Self::Create { body } => write!(f, "create {body}"),
            Self::Apply {
                subresource,
                force,
                body,
            } => {
                let force = if *force { " (force)" } else { "" };
                write!(f, "apply {}{force}: {body}", part(subresource))
            }
            Self::Event {
                event_type,
                reason,
                message,
            } => write!(f, "event {event_type} {reason}: {message}"),
        }
    }
}

fn part(subresource: &str) -> &str {
    if subresource.is_empty() {
        "the object"
    } else {
        subresource
    }
}

impl fmt::Display for Deletion {
    /// The options that were given: ` (grace period 0 s, Background)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grace = self.grace_period_seconds;
        let grace = grace.map(|seconds| format!("grace period {seconds} s"));
        let version = Some(&self.resource_version).filter(|version| !version.is_empty());
        let version = version.map(|version| format!("only at resourceVersion {version}"));
        let given = [grace, self.propagation_policy.clone(), version];
        let given: Vec<String> = given.into_iter().flatten().collect();
        if given.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", given.join(", "))
    }
}

#[cfg(test)]
mod tests;
