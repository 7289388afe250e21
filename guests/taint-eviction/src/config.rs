//! The operator's configuration, as `config.schema.json` describes it.

use davit_guest::ConfigError;
use serde::Deserialize;

/// What an operator can choose.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// What a change of the tolerated time means for a pod whose time already
    /// runs.
    pub reschedule: Reschedule,
    /// When the time of a taint begins.
    pub count_from: CountFrom,
    /// How a pod is removed.
    pub deletion: Deletion,
    /// Whether the operators `Lt` and `Gt` match (Kubernetes' feature gate
    /// `TaintTolerationComparisonOperators`).
    pub toleration_comparison_operators: bool,
    /// How many pods are evicted at once.
    pub max_parallel_evictions: u32,
}

/// When a pod is evicted whose tolerated time changes while it runs. The time
/// always counts from the start of its taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reschedule {
    /// When it was first decided, as kube-controller-manager does.
    Keep,
    /// When the shortest of the times has passed.
    ShortenOnly,
    /// When the present time has passed.
    Recompute,
}

/// When the time that a pod tolerates a taint for begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum CountFrom {
    /// When the host has first seen the pod under the taint, as in
    /// kube-controller-manager.
    Observed,
    /// When the taint was added, as its `timeAdded` says, or the pod came.
    TimeAdded,
}

/// How a pod is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deletion {
    /// By a DELETE, as kube-controller-manager does.
    Delete,
    /// Through the eviction API, so that disruption budgets hold.
    Evict,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reschedule: Reschedule::ShortenOnly,
            count_from: CountFrom::Observed,
            deletion: Deletion::Delete,
            toleration_comparison_operators: false,
            max_parallel_evictions: 128,
        }
    }
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.max_parallel_evictions == 0 {
            return Err(ConfigError::new(
                "maxParallelEvictions",
                "it must be 1 or more",
            ));
        }
        Ok(())
    }
}
