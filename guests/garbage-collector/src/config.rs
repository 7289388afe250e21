//! The operator's configuration, as `config.schema.json` describes it.

use std::time::Duration;

use davit_guest::{ApiResource, ConfigError};
use serde::Deserialize;

/// What an operator can configure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// How many objects are reconciled at once at most, including their writes.
    #[cfg_attr(test, schemars(range(min = 1, max = u32::MAX)))]
    pub concurrent_syncs: u32,
    /// How many dependents of one owner are orphaned at once at most.
    #[cfg_attr(test, schemars(range(min = 1, max = u32::MAX)))]
    pub max_parallel_orphans: u32,
    /// Resources that are not watched, besides events. Their objects are not collected, and as
    /// owners they are read live.
    pub ignored_resources: Vec<GroupResource>,
    /// How long an owner that is deleted with Foreground or Orphan waits for resources that
    /// exist but cannot be listed at the moment: they may have dependents.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub unlisted_timeout: Duration,
}

/// A resource in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[cfg_attr(test, schemars(deny_unknown_fields, extend("required" = ["resource"])))]
#[serde(default)]
pub struct GroupResource {
    /// The API group; empty for core.
    pub group: String,
    /// The plural name; `*` for all of the group.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub resource: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrent_syncs: 500,
            max_parallel_orphans: 20,
            ignored_resources: Vec::new(),
            unlisted_timeout: Duration::from_hours(6),
        }
    }
}

impl Config {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let at_least_one = [
            ("concurrentSyncs", self.concurrent_syncs),
            ("maxParallelOrphans", self.max_parallel_orphans),
        ];
        for (field, number) in at_least_one {
            if number == 0 {
                return Err(ConfigError::new(field, "it must be 1 or more"));
            }
        }
        let mut ignored = self.ignored_resources.iter();
        if let Some(position) = ignored.position(|it| it.resource.is_empty()) {
            let field = format!("ignoredResources[{position}].resource");
            return Err(ConfigError::new(&field, "it must be a plural name: pods"));
        }
        Ok(())
    }

    /// Whether the operator excluded a resource from the watch.
    pub(crate) fn ignores(&self, resource: &ApiResource) -> bool {
        let mut ignored = self.ignored_resources.iter();
        ignored.any(|it| {
            it.group == resource.group && (it.resource == resource.plural || it.resource == "*")
        })
    }

    /// The resources that are not watched. Events come and go by the thousand
    /// and own nothing: kube-controller-manager ignores the same two.
    pub(crate) fn ignored(&self) -> Vec<ApiResource> {
        let events = [("", "events"), ("events.k8s.io", "events")];
        let configured = self.ignored_resources.iter();
        let configured = configured.map(|it| (it.group.as_str(), it.resource.as_str()));
        // The version is ignored here.
        let ignored = events.into_iter().chain(configured);
        ignored
            .map(|(group, plural)| ApiResource::new(group, "v1", plural))
            .collect()
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
