//! The operator's configuration, as `config.schema.json` describes it.

use std::time::Duration;

use davit_guest::{ApiResource, ConfigError};
use serde::Deserialize;

/// What an operator can configure.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// How many objects are reconciled at once at most, including their writes.
    pub concurrent_syncs: u32,
    /// How many dependents of one owner are orphaned at once at most.
    pub max_parallel_orphans: u32,
    /// Resources that are not watched, besides events.
    pub ignored_resources: Vec<GroupResource>,
    /// How long an owner that waits for its dependents also waits for resources
    /// that cannot be listed.
    #[serde(with = "davit_guest::duration")]
    pub unlisted_timeout: Duration,
}

/// A resource in any version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupResource {
    /// Empty for core.
    pub group: String,
    /// The plural name; `*` for all of the group.
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
