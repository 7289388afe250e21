//! `GET /controllers/NAME/cluster`: where the dry run of a controller and the cluster disagree,
//! as JSON; and the same as text for `davit diff NAME --against cluster`.

use davit_core::api::{ClusterComparisonStatus, HumanDuration};
use davit_core::cluster_comparison::Finding;
use davit_core::observation::ClusterFindings;
use davit_core::time::{Instant, Now};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::disagreements::Target;

/// How the dry run of a controller compares with the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The revision that is compared.
    pub revision: String,
    /// The controller of Kubernetes that it replaces; absent if it replaces none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
    /// How long a target waits for the other side: `5m`.
    pub window: String,
    /// The results so far, as in the status; absent until the host has recorded some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<ClusterComparisonStatus>,
    /// Targets that wait for the other side.
    pub pending: usize,
    /// The last targets that only one side deletes since the start of this host, the newest
    /// first.
    pub last: Vec<Difference>,
}

/// A target that only one side deletes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// When that side first deleted it, RFC 3339.
    pub at: String,
    /// `only-davit` or `only-cluster`.
    pub result: String,
    /// The object.
    pub target: Target,
    /// The reason of the controller's plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who deleted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// What the API showed of the object's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saw: Option<String>,
    /// How much earlier the deletion may have been, in seconds, if the watch had a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_seconds: Option<u64>,
}

impl Page {
    /// Converts what the host found and what its status says.
    #[must_use]
    pub fn new(found: &ClusterFindings, counts: Option<ClusterComparisonStatus>) -> Self {
        let last = found.last.iter();
        Self {
            revision: found.revision.clone(),
            replaces: found.replaces.map(|actor| actor.to_string()),
            window: HumanDuration(found.window).to_string(),
            counts: counts.filter(|counts| counts.revision == found.revision),
            pending: found.pending,
            last: last.map(|one| difference(found.now, one)).collect(),
        }
    }
}

fn difference(now: Now, found: &Finding) -> Difference {
    let gap = found.gap.map(|gap| gap.as_secs());
    Difference {
        at: time(now, found.at),
        result: found.difference.as_str().to_owned(),
        target: (&found.object).into(),
        reason: found.reason.clone(),
        actor: found.actor.map(|actor| actor.to_string()),
        saw: found.saw.clone(),
        gap_seconds: gap.filter(|seconds| *seconds > 0),
    }
}

fn time(now: Now, at: Instant) -> String {
    let wall = Timestamp::from_millisecond(now.wall_at(at).0);
    wall.unwrap_or(Timestamp::MAX).to_string()
}
