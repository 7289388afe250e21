//! The operator's configuration, as `config.schema.json` describes it.

use davit_guest::ConfigError;
use serde::Deserialize;

/// What an operator can configure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// When a pod is evicted if its tolerated time changes while the timer is running. The time
    /// counts from the start of its taint. A taint that is removed no longer counts, whatever
    /// the policy.
    pub reschedule: Reschedule,
    /// When the tolerated time of a taint starts.
    pub count_from: CountFrom,
    /// How a pod is removed.
    pub deletion: Deletion,
    /// Whether tolerations with the operators `Lt` and `Gt` match, as with the feature gate
    /// `TaintTolerationComparisonOperators`.
    pub toleration_comparison_operators: bool,
    /// How many pods are evicted at once at most.
    #[cfg_attr(test, schemars(range(min = 1, max = u32::MAX)))]
    pub max_parallel_evictions: u32,
}

/// When a pod is evicted if its tolerated time changes while the timer is
/// running. The time always counts from the start of its taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum Reschedule {
    /// At the time that was first decided, as in kube-controller-manager.
    Keep,
    /// After the shortest of the times.
    ShortenOnly,
    /// After the present time.
    Recompute,
}

/// When the time for which a pod tolerates a taint starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
pub enum CountFrom {
    /// When the host first sees the pod under the taint, as in kube-controller-manager. A
    /// restart of the host restarts the times.
    Observed,
    /// At the taint's `timeAdded`, or when the pod was bound to its node if that is later. A
    /// `timeAdded` that is missing, in the future or before the node's creation does not count.
    TimeAdded,
}

/// How a pod is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum Deletion {
    /// By a DELETE, as in kube-controller-manager.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_schema_is_current() {
        davit_guest::testing::assert_config_schema_is_current::<Config>(
            env!("CARGO_MANIFEST_DIR"),
            env!("CARGO_PKG_NAME"),
        );
    }
}
