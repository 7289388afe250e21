//! What a controller may do, named by what its plans do. Each becomes an RBAC rule that an
//! operator grants. Watches need no permission here.

use serde::de::DeserializeOwned;

use crate::{ApiResource, LiveFields, Manifest, Permission, fields_of};

/// The permissions of a controller.
///
/// ```
/// use davit_guest::{Manifest, resources};
///
/// let manifest = Manifest::new("podgc", "1.0.0", "Deletes pods that nobody needs.")
///     .reads_live(resources::NODES)
///     .patches_status(resources::PODS)
///     .deletes(resources::PODS);
/// assert_eq!(manifest.permissions.len(), 3);
/// ```
impl Manifest {
    /// The guest reads objects live: [`Context::live_get`](crate::Context::live_get).
    #[must_use]
    pub fn reads_live(self, resource: impl Into<ApiResource>) -> Self {
        self.may("get", &resource.into(), "")
    }

    /// The guest lists objects live: [`Context::live_list`](crate::Context::live_list).
    #[must_use]
    pub fn lists_live(self, resource: impl Into<ApiResource>) -> Self {
        self.may("list", &resource.into(), "")
    }

    /// Plans create objects: [`Plan::create`](crate::Plan::create).
    #[must_use]
    pub fn creates(self, resource: impl Into<ApiResource>) -> Self {
        self.may("create", &resource.into(), "")
    }

    /// Plans patch objects: [`Plan::patch`](crate::Plan::patch).
    #[must_use]
    pub fn patches(self, resource: impl Into<ApiResource>) -> Self {
        self.may("patch", &resource.into(), "")
    }

    /// Plans patch the subresource `status`: [`Patch::status`](crate::Patch::status),
    /// [`Patch::apply_status`](crate::Patch::apply_status).
    #[must_use]
    pub fn patches_status(self, resource: impl Into<ApiResource>) -> Self {
        self.may("patch", &resource.into(), "/status")
    }

    /// Plans apply objects that may not exist yet: [`Plan::apply`](crate::Plan::apply). For
    /// objects that exist, [`patches`](Self::patches) is enough. The controller's account also
    /// needs `get`: the host reads whose an object is before it applies it without its uid.
    #[must_use]
    pub fn applies(self, resource: impl Into<ApiResource>) -> Self {
        let resource = resource.into();
        self.may("patch", &resource, "")
            .may("create", &resource, "")
    }

    /// Plans delete objects: [`Plan::delete`](crate::Plan::delete).
    #[must_use]
    pub fn deletes(self, resource: impl Into<ApiResource>) -> Self {
        self.may("delete", &resource.into(), "")
    }

    /// Plans evict objects: [`Plan::evict`](crate::Plan::evict).
    #[must_use]
    pub fn evicts(self, resource: impl Into<ApiResource>) -> Self {
        self.may("create", &resource.into(), "/eviction")
    }

    /// Plans record events: [`Plan::event`](crate::Plan::event).
    #[must_use]
    pub fn records_events(self) -> Self {
        self.may("create", &ApiResource::new("", "v1", "events"), "")
    }

    #[inline(never)]
    fn may(mut self, verb: &str, resource: &ApiResource, subresource: &str) -> Self {
        self.permissions.push(Permission {
            verb: verb.to_owned(),
            group: resource.group.clone(),
            resource: format!("{}{subresource}", resource.plural),
        });
        self
    }
}

/// What the live reads of a resource ask for.
///
/// ```
/// use davit_guest::{Identity, LiveFields, resources};
///
/// // The identity alone: whether a node exists.
/// let nodes = LiveFields::of::<Identity>(resources::NODES);
/// assert!(nodes.fields.is_empty());
/// ```
impl LiveFields {
    /// The fields of a view.
    #[must_use]
    #[inline(never)]
    pub fn of<T: DeserializeOwned>(resource: impl Into<ApiResource>) -> Self {
        Self::new(&resource.into(), fields_of::<T>())
    }

    /// These fields, as a watch declares them.
    #[must_use]
    #[inline(never)]
    pub fn new(resource: &ApiResource, fields: Vec<String>) -> Self {
        Self {
            group: resource.group.clone(),
            resource: resource.plural.clone(),
            fields,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::{JOBS, PODS};

    #[test]
    fn each_step_has_its_rule() {
        let manifest = Manifest::new("a", "1", "b")
            .reads_live(PODS)
            .lists_live(JOBS)
            .creates(JOBS)
            .patches(JOBS)
            .patches_status(JOBS)
            .applies(PODS)
            .deletes(PODS)
            .evicts(PODS)
            .records_events();
        let permissions = manifest.permissions.iter();
        let rules: Vec<String> = permissions
            .map(|it| format!("{} {}/{}", it.verb, it.group, it.resource))
            .collect();
        assert_eq!(
            rules,
            [
                "get /pods",
                "list batch/jobs",
                "create batch/jobs",
                "patch batch/jobs",
                "patch batch/jobs/status",
                "patch /pods",
                "create /pods",
                "delete /pods",
                "create /pods/eviction",
                "create /events",
            ]
        );
    }
}
