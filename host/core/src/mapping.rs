//! The resources that the API server serves: the result of discovery.

use std::collections::BTreeMap;

use crate::object::ApiResource;

/// One resource that the API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Group, version and plural name.
    pub resource: ApiResource,
    /// The kind of its objects.
    pub kind: String,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// `get`, `list`, `watch`, `delete`, …
    pub verbs: Vec<String>,
    /// Whether this is the group's preferred version of the resource.
    pub preferred: bool,
}

/// Every resource that the API server serves, without subresources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    by_kind: BTreeMap<(String, String), ServedResource>,
    by_resource: BTreeMap<ApiResource, (String, String)>,
}

/// The answer of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// The served resources that are known.
    pub mapping: Mapping,
    /// The group versions (`metrics.k8s.io/v1beta1`) that did not answer, or whose
    /// answer is out of date, each with the reason. The mapping may lack their
    /// resources although they are served.
    pub failed: Vec<(String, String)>,
}

impl Discovery {
    /// Whether the mapping has every served resource.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty()
    }
}

impl Mapping {
    /// The mapping of a discovery's result.
    #[must_use]
    pub fn new(served: impl IntoIterator<Item = ServedResource>) -> Self {
        let mut mapping = Self::default();
        for entry in served {
            let kind = (entry.resource.api_version(), entry.kind.clone());
            mapping
                .by_resource
                .insert(entry.resource.clone(), kind.clone());
            mapping.by_kind.insert(kind, entry);
        }
        mapping
    }

    /// Adds the resources of `before` whose group versions did not answer: without an
    /// answer, they may still be served.
    #[must_use]
    pub fn or_from(self, before: &Self, failed: &[String]) -> Self {
        let lost = before.iter().filter(|served| {
            let api_version = served.resource.api_version();
            failed.contains(&api_version) && self.by_resource(&served.resource).is_none()
        });
        let lost: Vec<ServedResource> = lost.cloned().collect();
        let kept = self.by_kind.into_values();
        Self::new(kept.chain(lost))
    }

    /// The resource of a kind; none if it is not served.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&ServedResource> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// The mapping of a resource; none if it is not served.
    #[must_use]
    pub fn by_resource(&self, resource: &ApiResource) -> Option<&ServedResource> {
        self.by_kind.get(self.by_resource.get(resource)?)
    }

    /// All served resources, ordered by kind.
    pub fn iter(&self) -> impl Iterator<Item = &ServedResource> {
        self.by_kind.values()
    }

    /// The preferred version of every resource that can be listed, watched and
    /// deleted: what the garbage collector watches.
    pub fn deletable(&self) -> impl Iterator<Item = &ServedResource> {
        self.iter().filter(|served| served.is_deletable())
    }
}

impl ServedResource {
    /// Whether this is the preferred version of a resource that can be listed, watched and
    /// deleted.
    #[must_use]
    pub fn is_deletable(&self) -> bool {
        let has = |verb: &&str| self.verbs.iter().any(|have| have == verb);
        self.preferred && ["list", "watch", "delete"].iter().all(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(group: &str, plural: &str, kind: &str) -> ServedResource {
        ServedResource {
            resource: ApiResource::new(group, "v1", plural),
            kind: kind.into(),
            namespaced: true,
            verbs: ["list", "watch", "delete"].map(String::from).into(),
            preferred: true,
        }
    }

    #[test]
    fn a_kind_and_its_resource_lead_to_each_other() {
        let mapping = Mapping::new([served("apps", "deployments", "Deployment")]);
        let found = mapping.by_kind("apps/v1", "Deployment").unwrap();
        assert_eq!(mapping.by_resource(&found.resource), Some(found));
        assert_eq!(mapping.by_kind("v1", "Deployment"), None);
    }

    #[test]
    fn only_resources_that_can_be_listed_watched_and_deleted_are_deletable() {
        let mut read_only = served("", "componentstatuses", "ComponentStatus");
        read_only.verbs = vec!["get".into(), "list".into()];
        let mut old = served("apps", "replicasets", "ReplicaSet");
        old.preferred = false;
        let mapping = Mapping::new([read_only, old, served("", "pods", "Pod")]);
        let deletable: Vec<&str> = mapping.deletable().map(|served| &*served.kind).collect();
        assert_eq!(deletable, ["Pod"]);
    }

    #[test]
    fn resources_of_a_group_without_an_answer_stay() {
        let before = Mapping::new([
            served("apps", "deployments", "Deployment"),
            served("batch", "jobs", "Job"),
        ]);
        let now = Mapping::new([served("", "pods", "Pod")]);
        let merged = now.or_from(&before, &["batch/v1".to_owned()]);
        let kinds: Vec<&str> = merged.iter().map(|served| &*served.kind).collect();
        assert_eq!(kinds, ["Job", "Pod"]);
    }
}
