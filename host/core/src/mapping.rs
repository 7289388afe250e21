//! What the API server serves: the answer of discovery, as data.

use std::collections::BTreeMap;

use crate::object::ApiResource;

/// One resource that the API server serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Group, version and plural name.
    pub resource: ApiResource,
    /// The kind of its objects.
    pub kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// `get`, `list`, `watch`, `delete`, …
    pub verbs: Vec<String>,
    /// Whether this is the group's preferred version of the resource.
    pub preferred: bool,
}

/// Every resource that the API server serves, subresources left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    by_kind: BTreeMap<(String, String), Served>,
    by_resource: BTreeMap<ApiResource, (String, String)>,
}

impl Mapping {
    /// Takes the answer of discovery.
    #[must_use]
    pub fn new(served: impl IntoIterator<Item = Served>) -> Self {
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

    /// The resource of a kind; none when it is not served.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Served> {
        self.by_kind.get(&(api_version.to_owned(), kind.to_owned()))
    }

    /// What is known of a resource; none when it is not served.
    #[must_use]
    pub fn by_resource(&self, resource: &ApiResource) -> Option<&Served> {
        self.by_kind.get(self.by_resource.get(resource)?)
    }

    /// Everything served, ordered by kind.
    pub fn iter(&self) -> impl Iterator<Item = &Served> {
        self.by_kind.values()
    }

    /// The preferred version of every resource that can be listed, watched and
    /// deleted: what the garbage collector looks after.
    pub fn deletable(&self) -> impl Iterator<Item = &Served> {
        self.iter().filter(|served| {
            served.preferred
                && ["list", "watch", "delete"]
                    .iter()
                    .all(|verb| served.verbs.iter().any(|have| have == verb))
        })
    }
}
