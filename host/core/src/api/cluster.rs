//! The status of a dry run that is compared with the cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cluster_comparison::Totals;

/// How the dry run of a controller compares with the deletions that Davit did not make: the
/// number of objects, by result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterComparisonStatus {
    /// The revision that is compared. Another revision starts to count again.
    pub revision: String,
    /// When counting started, RFC 3339. A restart of the host does not end it.
    pub since: String,
    /// The controller and the cluster's own both delete it.
    pub agree: u64,
    /// Only the controller would delete it.
    pub only_davit: u64,
    /// Only the cluster's own controller has deleted it.
    pub only_cluster: u64,
    /// The controller would delete it, and somebody has deleted it whom the controller does
    /// not replace.
    pub other_actor: u64,
    /// It cannot be compared: the API does not show who deleted it, or the controller could not
    /// decide on it any more.
    pub unknown: u64,
    /// It may have been counted before a restart or a takeover: the controller has planned on
    /// it soon after, or it was pending then.
    pub interrupted: u64,
    /// For how long nobody compared, in seconds: hosts were down, or the controller was
    /// stopped. What was deleted meanwhile is in no count. At most ten minutes too long for
    /// each restart.
    pub unobserved_seconds: u64,
    /// Until when the comparison is known to have run, RFC 3339, to ten minutes.
    pub observed_until: String,
    /// Those that both delete and whose delay is unknown, because the watch had a gap.
    pub untimed: u64,
    /// Those that both delete, the controller earlier.
    pub earlier: u64,
    /// Those that both delete, the controller later.
    pub later: u64,
    /// The median of the delays, in milliseconds: how much later than the cluster the
    /// controller decides. Negative if it decides earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_milliseconds: Option<i64>,
    /// The delays, the earliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub delays: Vec<DelayStatus>,
}

/// A delay, rounded to an eighth, and how often there was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DelayStatus {
    /// How much later than the cluster the controller decides, in milliseconds. Negative if it
    /// decides earlier.
    pub milliseconds: i64,
    /// The number of objects.
    pub count: u64,
}

impl ClusterComparisonStatus {
    /// The status of a revision that has these results since that time.
    #[must_use]
    pub fn of(revision: String, since: String, totals: &Totals) -> Self {
        let delays = totals.delays.entries();
        Self {
            revision,
            since,
            agree: totals.agree,
            only_davit: totals.only_davit,
            only_cluster: totals.only_cluster,
            other_actor: totals.other,
            unknown: totals.unknown,
            interrupted: totals.interrupted,
            unobserved_seconds: 0,
            observed_until: String::new(),
            untimed: totals.untimed,
            earlier: totals.delays.earlier(),
            later: totals.delays.later(),
            median_milliseconds: totals.delays.median(),
            delays: delays
                .map(|(milliseconds, count)| DelayStatus {
                    milliseconds,
                    count,
                })
                .collect(),
        }
    }

    /// The results.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let delays = self.delays.iter();
        Totals {
            agree: self.agree,
            only_davit: self.only_davit,
            only_cluster: self.only_cluster,
            other: self.other_actor,
            unknown: self.unknown,
            interrupted: self.interrupted,
            untimed: self.untimed,
            delays: delays.map(|one| (one.milliseconds, one.count)).collect(),
        }
    }
}
