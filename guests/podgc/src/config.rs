//! The operator's configuration, as `config.schema.json` describes it.

use std::time::Duration;

use davit_guest::ConfigError;
use serde::Deserialize;

/// What an operator can configure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// How many terminated pods the cluster keeps before the oldest are deleted. 0 or less
    /// keeps all.
    #[cfg_attr(test, schemars(range(min = i32::MIN, max = i32::MAX)))]
    pub terminated_pod_threshold: i32,
    /// The pause between two passes over the cluster, more than 0s.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub period: Duration,
    /// How long a node must be missing before its pods are deleted.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub quarantine: Duration,
    /// How many pods of one decision are deleted at once at most.
    #[cfg_attr(test, schemars(range(min = 1, max = u32::MAX)))]
    pub max_parallel_deletes: u32,
}

impl Default for Config {
    /// The defaults of kube-controller-manager.
    fn default() -> Self {
        Self {
            terminated_pod_threshold: 12_500,
            period: Duration::from_secs(20),
            quarantine: Duration::from_secs(40),
            max_parallel_deletes: 20,
        }
    }
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        if self.period.is_zero() {
            return Err(ConfigError::new("period", "it must be more than 0s"));
        }
        if self.max_parallel_deletes == 0 {
            return Err(ConfigError::new(
                "maxParallelDeletes",
                "it must be 1 or more",
            ));
        }
        Ok(())
    }

    /// How many terminated pods the cluster keeps; none if it keeps all.
    pub(crate) fn threshold(&self) -> Option<usize> {
        usize::try_from(self.terminated_pod_threshold)
            .ok()
            .filter(|&threshold| threshold > 0)
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
