//! What is said and remembered of a controller: the status of the custom
//! resource.
//!
//! It is also all that a rollout is remembered by: a host that starts, or leads
//! from now on, goes on from here.

use crate::rollout::compare::Counts;
use crate::rollout::progress::StepObservation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is said and remembered of a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerStatus {
    /// The generation of the spec that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// What to act on first, in at most 40 characters; the condition `Ready` has
    /// the reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub summary: String,
    /// The host that wrote this last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStatus>,
    /// The revision that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<RevisionStatus>,
    /// Why nothing runs, if the stable revision cannot be had again after a
    /// start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostStatus>,
    /// The revision that is being tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateStatus>,
    /// The last revision that was rolled back. It is not tried again as long as
    /// the spec asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedStatus>,
    /// The guardrails that hold plans back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["guardrail"],
    ))]
    pub tripped: Vec<TrippedStatus>,
    /// The host's answer to each request that the annotations hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["request"],
    ))]
    pub requests: Vec<RequestStatus>,
    /// Ready, Resolved, Verified, Compiled, Configured, Synced, Leading,
    /// Progressing and Degraded; Reconciling or Stalled if true.
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
    /// Its number: another one after each start.
    pub id: String,
    /// The pod or machine that it runs on.
    pub name: String,
    /// When it wrote this, RFC 3339: every ten seconds if nothing else changes.
    pub renewed_at: String,
}

/// A revision: a module with a configuration and limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Its name: ten hexadecimal digits, the same for the same module,
    /// configuration and limits.
    pub revision: String,
    /// The module's SHA-256: `sha256:…`.
    pub digest: String,
    /// The first twelve hexadecimal digits of the configuration's SHA-256.
    pub config_hash: String,
    /// Since when, RFC 3339 with milliseconds.
    pub since: String,
}

/// A stable revision that cannot be had again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostStatus {
    /// Since when, RFC 3339 with milliseconds: it names what `davit promote
    /// --full` abandons.
    pub since: String,
    /// Why.
    pub reason: String,
    /// The revision that the spec describes, which takes over once the lost one
    /// is abandoned; none as long as it cannot be had either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
}

/// A revision that is being tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CandidateStatus {
    /// Its name.
    pub revision: String,
    /// The module's SHA-256: `sha256:…`.
    pub digest: String,
    /// The first twelve hexadecimal digits of the configuration's SHA-256.
    pub config_hash: String,
    /// Since when, RFC 3339 with milliseconds: it tells this trial of the
    /// revision from any other.
    pub since: String,
    /// The step, counted from 1.
    pub step: u32,
    /// How many steps there are.
    pub steps: u32,
    /// The step in words: `weight 10 for 10m`.
    pub step_text: String,
    /// The share of the cohorts that it owns, in percent.
    pub weight: u8,
    /// How long the step has been under way while the candidate was running,
    /// in seconds.
    pub elapsed_seconds: u64,
    /// The same for people: `3m10s`.
    #[serde(default)]
    pub elapsed: String,
    /// How much of the step is left: `6m50s`, or `until promoted`.
    #[serde(default)]
    pub remaining: String,
    /// Why the step goes on.
    pub waits_for: String,
    /// How its decisions compare with the stable revision's, in this step.
    pub comparison: ComparisonStatus,
    /// Calls of it that failed in this step.
    #[serde(default)]
    pub failed_calls: u64,
    /// Plans of it that were refused in this step, by the gate or by the API
    /// server.
    #[serde(default)]
    pub refused_writes: u64,
}

/// How many targets the revisions decided on alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ComparisonStatus {
    /// Both do the same.
    pub agree: u64,
    /// Any of the next three.
    pub disagree: u64,
    /// Only the stable revision does something.
    pub only_stable: u64,
    /// Only the candidate does something.
    pub only_candidate: u64,
    /// Both do something, but not the same.
    pub different: u64,
    /// The target was gone too early to tell.
    pub unknown: u64,
}

/// A revision that was rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedStatus {
    /// Its name.
    pub revision: String,
    /// When, RFC 3339 with milliseconds: it names what `davit retry` forgives.
    pub at: String,
    /// The step in which it was, counted from 1.
    pub step: u32,
    /// Why, in two words: `refused writes`.
    #[serde(default)]
    pub cause: String,
    /// Why, with what was counted.
    pub reason: String,
}

/// A guardrail that holds plans back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrippedStatus {
    /// The field that sets it: `deletesPerMinute`.
    pub guardrail: String,
    /// Plans that it lets through in 60 seconds.
    pub limit: u32,
    /// Since when, RFC 3339 with milliseconds: it names what `davit reset`
    /// resets.
    pub since: String,
    /// Until when, RFC 3339; until an operator resets it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

/// The host's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestStatus {
    /// The annotation without `davit.dev/`: `promote`, `abort`, `retry`,
    /// `abandon`, `reset` or `swap`.
    pub request: String,
    /// The annotation's value.
    pub value: String,
    /// What came of it.
    pub result: RequestResult,
    /// A sentence.
    pub message: String,
    /// Since when this is the answer, RFC 3339.
    pub at: String,
}

/// What comes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RequestResult {
    /// The host did what the request asks for.
    Done,
    /// The request does not fit things as they are. It stays without effect.
    Refused,
    /// The request fits, and is in force until the host can fulfil it.
    Pending,
}

/// A condition, as Kubernetes writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionStatus {
    /// Which.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// When the status last changed, RFC 3339.
    pub last_transition_time: String,
    /// The generation of the spec that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl RequestStatus {
    /// Whether both say the same, whenever it was.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.request == other.request
            && self.value == other.value
            && self.result == other.result
            && self.message == other.message
    }
}

impl CandidateStatus {
    /// The step that it is in, for people: `step 2 of 3 (weight 10 for 10m)`.
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

    /// When the last of the guardrails tripped that hold plans back: what
    /// resets them all, unless another has tripped meanwhile.
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

/// What was counted of a candidate, as far as it is written down.
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
