//! What a backtest found. The names of the fields are those of the JSON output, and stay.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// What a backtest found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The controller.
    pub controller: String,
    /// What the policy is compared with.
    pub against: Against,
    /// The revision under test.
    pub policy: Policy,
    /// The time that was tested.
    pub span: Span,
    /// What the policy under test would have deleted.
    pub candidate: Side,
    /// What the other side deleted: the recorded controller, or the cluster's controllers.
    pub recorded: Side,
    /// Where both agree.
    pub agreement: Agreement,
    /// The guardrails that would have tripped, the first [`Self::MOST_TRIPS`].
    pub guardrail_trips: Vec<GuardrailTrip>,
    /// How many guardrails would have tripped.
    pub guardrail_trip_count: u64,
    /// The most surprising objects.
    pub surprising: Vec<Surprise>,
    /// What the policy could not decide.
    pub undecided: UndecidedReport,
    /// How many parts of the journal cannot be read: the report lacks their entries.
    pub damaged_parts: u64,
    /// The first [`Self::MOST_DAMAGE`] of them: the segment, the place and the cause.
    pub damage: Vec<String>,
    /// What the backtest did.
    pub activity: Activity,
    /// What is special about this journal or policy.
    pub notes: Vec<String>,
    /// What a backtest does not model.
    pub not_modelled: Vec<String>,
}

impl Report {
    /// How many trips of guardrails are listed.
    pub const MOST_TRIPS: usize = 100;
    /// How many damaged parts of the journal are listed.
    pub const MOST_DAMAGE: usize = 10;
}

/// What a policy is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    /// The recorded controller: the plans that it executed.
    #[default]
    Recorded,
    /// The cluster's own controllers: what the recorded objects show of their deletions.
    Cluster,
}

impl Against {
    /// The word of the JSON output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Cluster => "cluster",
        }
    }
}

/// The revision under test.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The name of the revision.
    pub revision: String,
    /// The digest of its module.
    pub module: String,
    /// The name of the recorded revision at the start of the span; empty if unknown.
    pub recorded_revision: String,
    /// Whether its deletions take effect for itself.
    pub closed_loop: bool,
    /// Whether objects stay that the other side deleted and it did not.
    pub keep: bool,
    /// How long they stay otherwise, in seconds: the tolerance, and against the cluster the window
    /// of the comparison at least.
    pub tolerance_seconds: f64,
}

/// The time that was tested.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// The start, in RFC 3339: the policy runs from then on.
    pub from: String,
    /// The end, in RFC 3339: the time of the last entry.
    pub to: String,
    /// The start that was asked for, in RFC 3339; none for the start of the journal.
    pub asked_from: Option<String>,
    /// The end that was asked for, in RFC 3339; none for the end of the journal.
    pub asked_to: Option<String>,
    /// The time that passed for the policy, in seconds: without the time in which nobody
    /// recorded.
    pub seconds: f64,
    /// The time of which the journal has no entries that can be used, in seconds of the wall
    /// clock.
    pub missing_seconds: f64,
    /// The part of it before the start of the policy.
    pub missing_before_seconds: f64,
    /// The part of it after the last entry.
    pub missing_after_seconds: f64,
    /// The items that wait for a later time at the end: what they would decide is not counted.
    pub pending_items: u64,
}

/// The deletions and evictions of one side, each object once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// All of them.
    pub deletions: u64,
    /// By the reason of the plan.
    pub by_reason: BTreeMap<String, u64>,
    /// By namespace; `(cluster)` for cluster-scoped objects.
    pub by_namespace: BTreeMap<String, u64>,
    /// By the kind of the object.
    pub by_kind: BTreeMap<String, u64>,
    /// By the kind of the owner that controls the object; `none` or `not recorded`.
    pub by_owner_kind: BTreeMap<String, u64>,
    /// By the hour, which has the time of its start in RFC 3339.
    pub by_hour: BTreeMap<String, u64>,
    /// The deletions of the worst minute: of any 60 seconds.
    pub deletes_per_minute: u64,
    /// When the worst minute ended, in RFC 3339; none without deletions.
    pub worst_minute_ends: Option<String>,
    /// The deletions that history shows to have been unnecessary.
    pub regret: RegretReport,
}

/// Deletions that history shows to have been unnecessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegretReport {
    /// Pods whose node was back within ten minutes; none if the journal does not say it of each.
    pub nodes_back: Option<u64>,
    /// Objects that somebody created again under the same name within a minute; none if the
    /// journal does not say it of each.
    pub recreated: Option<u64>,
    /// Those of both that the journal shows.
    pub known: u64,
    /// How many more there may be of both.
    pub unknown: u64,
}

impl Default for RegretReport {
    /// Nothing was deleted.
    fn default() -> Self {
        Self {
            nodes_back: Some(0),
            recreated: Some(0),
            known: 0,
            unknown: 0,
        }
    }
}

/// Where both sides agree.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agreement {
    /// The objects that both delete.
    pub agree: u64,
    /// Those of them that both delete within a second.
    pub same_time: u64,
    /// Those of them that the candidate deletes earlier.
    pub earlier: Spread,
    /// Those of them that the candidate deletes later.
    pub later: Spread,
    /// The objects that only the candidate deletes.
    pub only_candidate: u64,
    /// The objects that only the recorded controller deleted; 0 against the cluster.
    pub only_recorded: u64,
    /// The objects that only the cluster's controllers deleted; none against the recorded
    /// controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_cluster: Option<u64>,
    /// Against the cluster: the objects that the candidate deletes, and somebody else deleted than
    /// the controller that it replaces, within the window of the comparison.
    pub by_others: u64,
    /// The objects that one side alone deletes, and of which the journal does not say whether the
    /// other side has: they are of a kind that no recorded list has, or went while nobody recorded,
    /// or after a request of the recorded controller without a recorded answer.
    ///
    /// Against the cluster also those of which nobody knows whether, or by whom, they were deleted:
    /// nothing shows the author, the watch was interrupted, or they may only match its selector no
    /// longer.
    pub unknown: u64,
    /// Against the cluster: whether the journal has the fields by which it is known who deleted an
    /// object, for each deletion that it has. Otherwise objects that both delete may count as
    /// deleted by others. None against the recorded controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_attribution_complete: Option<bool>,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// The median, in seconds.
    pub median_seconds: f64,
    /// The 90th percentile, in seconds.
    pub p90_seconds: f64,
    /// The longest, in seconds.
    pub max_seconds: f64,
    /// How many are in which range, from short to long; none without times.
    pub buckets: Vec<SpreadBucket>,
}

/// A range of a distribution: above the range before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadBucket {
    /// The longest time of the range, in seconds; none for the last range.
    pub up_to_seconds: Option<u64>,
    /// How many.
    pub count: u64,
}

/// A guardrail that would have tripped.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardrailTrip {
    /// The field of the spec that sets it.
    pub guardrail: String,
    /// Its limit in any 60 seconds.
    pub limit: u32,
    /// When it tripped, in RFC 3339.
    pub at: String,
    /// When it admits plans again, in RFC 3339; none if an operator has to reset it.
    pub until: Option<String>,
    /// How many plans it deferred. A plan that is decided again counts again.
    pub deferred: u64,
}

/// An object on which both sides differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Surprise {
    /// How they differ.
    pub difference: Difference,
    /// The object.
    pub object: String,
    /// Its uid.
    pub uid: String,
    /// The reason of the plan.
    pub reason: String,
    /// The message of the plan; empty if only the recorded controller deleted it. If only the
    /// cluster deleted it, what its object showed.
    pub message: String,
    /// When the candidate deletes it, in RFC 3339.
    pub candidate_at: Option<String>,
    /// When the other side deleted it, in RFC 3339.
    pub recorded_at: Option<String>,
    /// The object as the guest saw it when it decided.
    pub saw: Option<Value>,
}

/// How both sides differ on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Only the candidate deletes it.
    OnlyCandidate,
    /// Only the recorded controller deleted it.
    OnlyRecorded,
    /// Only the cluster's controllers deleted it.
    OnlyCluster,
    /// The candidate deletes it earlier.
    Earlier,
    /// The candidate deletes it later.
    Later,
}

impl Difference {
    /// The word of the JSON output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnlyCandidate => "only-candidate",
            Self::OnlyRecorded => "only-recorded",
            Self::OnlyCluster => "only-cluster",
            Self::Earlier => "earlier",
            Self::Later => "later",
        }
    }
}

/// The items that the policy could not decide, because the journal has no answer to a live read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndecidedReport {
    /// The items that were not decided up to the end.
    pub items: u64,
    /// Those of them that became moot: a later call about the item read nothing live, for
    /// instance because the object was gone by then.
    pub moot_items: u64,
    /// The items that were decided by a later call alone.
    pub late_items: u64,
    /// Whether there were more items: only the first hundred thousand are distinguished.
    pub is_cut: bool,
    /// The live reads that failed because the journal has no answer. A retry counts again.
    pub reads: u64,
    /// The first [`Self::MOST_READS`] of them, each once.
    pub first_reads: Vec<String>,
}

impl UndecidedReport {
    /// How many live reads are listed.
    pub const MOST_READS: usize = 10;
}

/// What the backtest did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Activity {
    /// The entries of the journal that were read.
    pub entries: u64,
    /// The calls into the guest.
    pub calls: u64,
    /// The calls that failed.
    pub failed_calls: u64,
    /// The plans that were executed.
    pub executed_plans: u64,
    /// The plans that failed: their target was gone, or had another version.
    pub failed_plans: u64,
    /// The plans that the gate refused.
    pub refused_plans: u64,
    /// The patches that were applied.
    pub patches: u64,
    /// The patches that are not modelled.
    pub unmodelled_patches: u64,
    /// The plans that failed because no recorded list has the kind of their target: nobody knows
    /// whether it existed.
    pub unrecorded_targets: u64,
    /// The objects that the policy would have created.
    pub creations: u64,
    /// The live reads.
    pub live_reads: u64,
    /// Those of them that got a recorded answer to the same read.
    pub recorded_reads: u64,
}

/// What a backtest never models.
pub(super) fn not_modelled() -> Vec<String> {
    let all = [
        "Replacements that controllers would have created for what the policy deletes, and objects \
         that garbage collection would have deleted with their owners, are not modelled: only the \
         objects of the recorded history exist.",
        "What users, schedulers and other controllers would have done otherwise is not modelled: \
         they do what history says.",
        "A deletion takes effect when it is decided. Finalizers, grace periods, disruption budgets, \
         admission and the client-side rate of requests are not modelled.",
        "Objects that the policy would have created are counted, and do not exist afterwards. JSON \
         patches are not applied.",
        "No time passes for the policy while nobody records, and what is deleted meanwhile is not \
         compared. Deletions of one side near the start or the end of the span may have been the \
         other side's before or after it.",
        "The age of a change counts from the start of the span if it happened before.",
    ];
    all.map(str::to_owned).to_vec()
}
