//! The status of the custom resource.
//!
//! It is also the record of a rollout: a host that starts continues from it.

use super::cluster::ClusterComparisonStatus;
use crate::budget::{CountedWrites, RecentWrites};
use crate::grant::Permissions;
use crate::notes::GuestReport;
use crate::rollout::compare::Counts;
use crate::rollout::progress::StepObservation;
use crate::time::Wall;
use crate::times::time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The observed state of a controller. It is also the record that a host continues
/// from after a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerStatus {
    /// The generation of the spec that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What to act on first, in at most 40 characters. The message of the condition
    /// `Ready` has the details.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The host that wrote this status last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStatus>,
    /// The revision that runs, and that a rollback returns to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<RevisionStatus>,
    /// Set if the host cannot load the stable revision after a start. Nothing runs
    /// then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostStatus>,
    /// The revision that is being rolled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// The revision that was rolled back last. The host does not start it again unless
    /// the spec changes or an operator retries it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedStatus>,
    /// The guardrails that have tripped and defer plans.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["guardrail"],
    ))]
    pub tripped: Vec<TrippedStatus>,
    /// What guardrails have admitted in the last 60 seconds. A replica that takes over counts
    /// it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_writes: Option<RecentWritesStatus>,
    /// How the dry run compares with the cluster, if `spec.compareWith` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_comparison: Option<ClusterComparisonStatus>,
    /// What the guest of the stable revision reports, such as rules of a policy that could
    /// not be evaluated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub reports: Vec<GuestReport>,
    /// The rules that `spec.permissions` lacks: revisions declare them, and do not run
    /// without them. `davit grant` adds them. If they are too many for a status, these are
    /// the first of them.
    #[serde(skip_serializing_if = "Permissions::is_empty")]
    pub missing_permissions: Permissions,
    /// The host's answers to the requests in the annotations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["request"],
    ))]
    pub requests: Vec<RequestStatus>,
    /// The conditions Ready, Resolved, Verified, Compiled, Configured, Granted, Authorized,
    /// Synced, Leading, Progressing and Degraded; Recording if the host has a journal, and Undo
    /// with spec.undo. Reconciling and Stalled are present only while they are True.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["type"],
    ))]
    pub conditions: Vec<ConditionStatus>,
}

/// A host that runs a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    /// The id of the host. Each start has another.
    pub id: String,
    /// The pod or machine that the host runs on.
    pub name: String,
    /// When the host wrote this status, RFC 3339. It does so at least once a minute.
    pub renewed_at: String,
}

/// A revision: a module with a configuration and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// The name of the revision: ten hexadecimal digits. The same module,
    /// configuration and limits have the same name.
    pub revision: String,
    /// The SHA-256 of the module, such as `sha256:9f86d0…`.
    pub digest: String,
    /// The first twelve hexadecimal digits of the SHA-256 of the configuration.
    pub config_hash: String,
    /// When the revision became stable, RFC 3339 with milliseconds.
    pub since: String,
    /// Set if the module is neither built in, nor pinned by its digest, nor signed. The
    /// host's configuration says what such a module may do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsigned: bool,
}

/// A stable revision that the host cannot load after a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostStatus {
    /// When the revision was lost, RFC 3339 with milliseconds. The annotation
    /// `davit.dev/abandon` names this time.
    pub since: String,
    /// Why the host cannot load the revision.
    pub reason: String,
    /// The revision that becomes stable when an operator abandons the lost one: the one
    /// that the spec describes. Absent until the host has loaded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
}

/// A revision that is being rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// The name of the revision.
    pub revision: String,
    /// The SHA-256 of the module, such as `sha256:9f86d0…`.
    pub digest: String,
    /// The first twelve hexadecimal digits of the SHA-256 of the configuration.
    pub config_hash: String,
    /// When the rollout started, RFC 3339 with milliseconds. Revision and time name
    /// one rollout.
    pub since: String,
    /// Set if the module is neither built in, nor pinned by its digest, nor signed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsigned: bool,
    /// The number of the step, counted from 1.
    pub step: u32,
    /// The number of steps.
    pub steps: u32,
    /// The step as the spec writes it, such as `weight 10 for 10m`.
    pub step_text: String,
    /// The share of the cohorts that the candidate owns, in percent.
    pub weight: u8,
    /// How long the candidate has run in this step, in seconds. Time without a running
    /// host does not count.
    pub elapsed_seconds: u64,
    /// The same as a duration, such as `3m10s`.
    #[serde(default)]
    pub elapsed: String,
    /// How much of the step is left, such as `6m50s`, or `until promoted`.
    #[serde(default)]
    pub remaining: String,
    /// Why the candidate stays in the step.
    pub waits_for: String,
    /// How the candidate's decisions compare with those of the stable revision in this
    /// step.
    pub comparison: ComparisonStatus,
    /// The number of the candidate's failed calls in this step.
    #[serde(default)]
    pub failed_calls: u64,
    /// The number of the candidate's plans that the gate or the API server refused in
    /// this step.
    #[serde(default)]
    pub refused_writes: u64,
}

/// The number of compared targets, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ComparisonStatus {
    /// Both revisions decided the same.
    pub agree: u64,
    /// The revisions disagree: the sum of the next three fields.
    pub disagree: u64,
    /// Only the stable revision has a plan.
    pub only_stable: u64,
    /// Only the candidate has a plan.
    pub only_candidate: u64,
    /// Both revisions have a plan, and the plans differ.
    pub different: u64,
    /// The target was deleted before the other revision reconciled it.
    pub unknown: u64,
}

/// A revision that was rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedStatus {
    /// The name of the revision.
    pub revision: String,
    /// When the revision was rolled back, RFC 3339 with milliseconds. The annotation
    /// `davit.dev/retry` names this time.
    pub at: String,
    /// The number of the step in which it was rolled back, counted from 1.
    pub step: u32,
    /// The cause in at most two words, such as `refused writes`.
    #[serde(default)]
    pub cause: String,
    /// The cause with its figures.
    pub reason: String,
}

/// A tripped guardrail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrippedStatus {
    /// The field of the spec, such as `deletesPerMinute`.
    pub guardrail: String,
    /// The limit in any 60 seconds, in writes or deletions.
    pub limit: u32,
    /// When the guardrail tripped, RFC 3339 with milliseconds. The annotation
    /// `davit.dev/reset` names this time.
    pub since: String,
    /// When the host admits plans again, RFC 3339. If absent, an operator has to reset
    /// the guardrail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// What guardrails have admitted in the last 60 seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecentWritesStatus {
    /// When they were counted, RFC 3339. A host that starts more than six minutes later counts
    /// them too, but a guardrail that trips because of them alone is reset after a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The writes in each ten seconds, the latest first, if a guardrail limits them.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub writes: Vec<u32>,
    /// The deletions and evictions in each ten seconds, the latest first, if a guardrail
    /// limits them.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub deletes: Vec<u32>,
}

impl RecentWritesStatus {
    /// The status; none if nothing counts. The same counts as before keep their time: it is
    /// not earlier than the last write. So do those that may be over: they have become no
    /// more certain.
    #[must_use]
    pub fn of(counted: CountedWrites, before: Option<&Self>, now: Wall) -> Option<Self> {
        let CountedWrites {
            recent,
            may_be_over,
        } = counted;
        let before = before.filter(|before| may_be_over || before.parts() == recent);
        let at = before.map_or_else(|| Some(time(now)), |before| before.at.clone());
        let trimmed = |parts: &[u32]| {
            let length = parts
                .iter()
                .rposition(|part| *part > 0)
                .map_or(0, |last| last + 1);
            parts.iter().take(length).copied().collect()
        };
        (recent != RecentWrites::default()).then(|| Self {
            at,
            writes: trimmed(&recent.writes),
            deletes: trimmed(&recent.deletes),
        })
    }

    /// The counts. What is older than 60 seconds does not count.
    #[must_use]
    pub fn parts(&self) -> RecentWrites {
        let mut recent = RecentWrites::default();
        let fill = |parts: &mut [u32], recorded: &[u32]| {
            for (part, recorded) in parts.iter_mut().zip(recorded) {
                *part = *recorded;
            }
        };
        fill(&mut recent.writes, &self.writes);
        fill(&mut recent.deletes, &self.deletes);
        recent
    }
}

/// The host's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// The name of the annotation without `davit.dev/`: `promote`, `abort`, `retry`,
    /// `abandon`, `reset` or `swap`.
    pub request: String,
    /// The value of the annotation.
    pub value: String,
    /// The result of the request.
    pub result: RequestResult,
    /// Details of the result.
    pub message: String,
    /// When the host first gave this answer, RFC 3339.
    pub at: String,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RequestResult {
    /// The host has fulfilled the request.
    Done,
    /// The request does not fit the present state. It has no effect, now or later.
    Refused,
    /// The host will fulfil the request as soon as it can.
    Pending,
}

/// A condition, as in the Kubernetes API conventions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionStatus {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The reason of the status, one word in CamelCase.
    pub reason: String,
    /// Details of the reason.
    pub message: String,
    /// When the status last changed, RFC 3339.
    pub last_transition_time: String,
    /// The generation of the spec that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl RequestStatus {
    /// Whether both are the same answer, whenever they were given.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.request == other.request
            && self.value == other.value
            && self.result == other.result
            && self.message == other.message
    }
}

impl CandidateStatus {
    /// The step as people read it: `step 2 of 3 (weight 10 for 10m)`.
    #[must_use]
    pub fn step_in_words(&self) -> String {
        let Self {
            step,
            steps,
            step_text,
            ..
        } = self;
        format!("step {step} of {steps} ({step_text})")
    }
}

impl ControllerStatus {
    /// The answer to the request of this name and value.
    #[must_use]
    pub fn answer(&self, request: &str, value: &str) -> Option<&RequestStatus> {
        let mut answers = self.requests.iter();
        answers.find(|answer| answer.request == request && answer.value == value)
    }

    /// When the last guardrail tripped. A reset that names this time resets all of them,
    /// unless another has tripped since.
    #[must_use]
    pub fn last_trip(&self) -> Option<&str> {
        // Texts of the same form are in the order of their times.
        let times = self.tripped.iter().map(|tripped| tripped.since.as_str());
        times.max()
    }
}

impl From<&Counts> for ComparisonStatus {
    fn from(counts: &Counts) -> Self {
        Self {
            agree: counts.agree,
            disagree: counts.disagreements(),
            only_stable: counts.only_stable,
            only_candidate: counts.only_candidate,
            different: counts.different,
            unknown: counts.unknown,
        }
    }
}

/// The recorded counts of a candidate.
impl From<&CandidateStatus> for StepObservation {
    fn from(status: &CandidateStatus) -> Self {
        Self {
            counts: (&status.comparison).into(),
            failed_calls: status.failed_calls,
            refused_writes: status.refused_writes,
            ..Self::default()
        }
    }
}

impl From<&ComparisonStatus> for Counts {
    fn from(status: &ComparisonStatus) -> Self {
        Self {
            agree: status.agree,
            only_stable: status.only_stable,
            only_candidate: status.only_candidate,
            different: status.different,
            unknown: status.unknown,
        }
    }
}
