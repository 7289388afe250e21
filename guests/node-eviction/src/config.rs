//! The operator's configuration, as `config.schema.json` describes it.

use std::time::Duration;

use davit_guest::ConfigError;
use serde::Deserialize;

/// What an operator can configure. The names are those of
/// kube-controller-manager's flags, or proposed for one (kubernetes issue
/// 131182).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// The pause between two passes over all nodes, more than 0s.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub node_monitor_period: Duration,
    /// How long a node may be silent before it counts as unresponsive, more than 0s.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub node_monitor_grace_period: Duration,
    /// The same for a node that has never reported whether it is ready, more than 0s.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub node_startup_grace_period: Duration,
    /// How long a node may be unresponsive or not ready before its pods are evicted, more than
    /// 0s.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub pod_eviction_timeout: Duration,
    /// From how many nodes a second pods are evicted in one zone. 0 for none.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub node_eviction_rate: f64,
    /// The same while a large zone is partly down. 0 for none.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub secondary_node_eviction_rate: f64,
    /// From how many nodes a second pods are evicted in a zone whose nodes are all down, while
    /// another zone is not. 0 for none; by default, `nodeEvictionRate`.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub zone_full_disruption_eviction_rate: Option<f64>,
    /// A zone of more nodes than this is large. In a smaller zone that is partly down, no pod is
    /// evicted.
    #[cfg_attr(test, schemars(range(min = 0, max = u32::MAX)))]
    pub large_cluster_size_threshold: u32,
    /// The share of nodes that are not ready (and at least three) from which a zone counts as
    /// partly down.
    #[cfg_attr(test, schemars(range(min = 0, max = 1)))]
    pub unhealthy_zone_threshold: f64,
    /// Whether nodes with the `NoExecute` taint not-ready or unreachable are left to taint-based
    /// eviction.
    pub skip_tainted_nodes: bool,
    /// Whether pods get the condition `DisruptionTarget` before they are deleted.
    pub disruption_target: bool,
}

impl Default for Config {
    /// The present or last defaults of kube-controller-manager.
    fn default() -> Self {
        Self {
            node_monitor_period: Duration::from_secs(5),
            node_monitor_grace_period: Duration::from_secs(50),
            node_startup_grace_period: Duration::from_mins(1),
            pod_eviction_timeout: Duration::from_mins(5),
            node_eviction_rate: 0.1,
            secondary_node_eviction_rate: 0.01,
            zone_full_disruption_eviction_rate: None,
            large_cluster_size_threshold: 50,
            unhealthy_zone_threshold: 0.55,
            skip_tainted_nodes: true,
            disruption_target: false,
        }
    }
}

impl Config {
    /// From how many nodes a second pods are evicted in a zone that is
    /// completely down.
    pub(crate) fn full_disruption_rate(&self) -> f64 {
        let rate = self.zone_full_disruption_eviction_rate;
        rate.unwrap_or(self.node_eviction_rate)
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        for (field, duration) in [
            ("nodeMonitorPeriod", self.node_monitor_period),
            ("nodeMonitorGracePeriod", self.node_monitor_grace_period),
            ("nodeStartupGracePeriod", self.node_startup_grace_period),
            ("podEvictionTimeout", self.pod_eviction_timeout),
        ] {
            if duration.is_zero() {
                return Err(ConfigError::new(field, "it must be more than 0s"));
            }
        }
        for (field, rate) in [
            ("nodeEvictionRate", self.node_eviction_rate),
            (
                "secondaryNodeEvictionRate",
                self.secondary_node_eviction_rate,
            ),
            (
                "zoneFullDisruptionEvictionRate",
                self.full_disruption_rate(),
            ),
        ] {
            if !(rate.is_finite() && rate >= 0.0) {
                return Err(ConfigError::new(field, "it must be 0 or more"));
            }
        }
        if !(0.0..=1.0).contains(&self.unhealthy_zone_threshold) {
            let message = "it must be between 0 and 1";
            return Err(ConfigError::new("unhealthyZoneThreshold", message));
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
