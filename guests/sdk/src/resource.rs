//! Resources of the API.

use crate::ApiResource;

/// A resource of the API that a guest names in its code. [`ApiResource`] is one that the
/// configuration names.
///
/// ```
/// use davit_guest::Resource;
///
/// const WIDGETS: Resource = Resource::new("example.com", "v1", "widgets");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
}

impl Resource {
    /// A resource by group (empty for core), version and plural name.
    #[must_use]
    pub const fn new(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self {
            group,
            version,
            plural,
        }
    }
}

impl From<Resource> for ApiResource {
    // Manifests have many: inlined, they would be kilobytes of a component.
    #[inline(never)]
    fn from(resource: Resource) -> Self {
        Self::new(resource.group, resource.version, resource.plural)
    }
}

/// Resources that many guests use.
pub mod resources {
    use super::Resource;

    /// Every resource, for the permissions of a guest that handles all of them.
    pub const ALL: Resource = Resource::new("*", "*", "*");
    /// `ConfigMap`s.
    pub const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");
    /// `DaemonSet`s.
    pub const DAEMON_SETS: Resource = Resource::new("apps", "v1", "daemonsets");
    /// Deployments.
    pub const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
    /// Jobs.
    pub const JOBS: Resource = Resource::new("batch", "v1", "jobs");
    /// Leases.
    pub const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
    /// Namespaces.
    pub const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
    /// Nodes.
    pub const NODES: Resource = Resource::new("", "v1", "nodes");
    /// Pods.
    pub const PODS: Resource = Resource::new("", "v1", "pods");
}
