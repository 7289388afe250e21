//! The attributes of a request, as authorization sees it.

/// `authorizer.Attributes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `create` and so on; of a path, the method.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The plural name.
    pub resource: String,
    /// The subresource.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The path, if the request is not for a resource of the API.
    pub path: Option<String>,
}

impl Attributes {
    /// The resource with its subresource, as rules name it.
    pub(crate) fn full_resource(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }

    /// The message for a user without the permission.
    pub(crate) fn denial(&self, user: &str) -> String {
        let verb = &self.verb;
        if let Some(path) = &self.path {
            return format!("User {user:?} cannot {verb} path {path:?}");
        }
        let scope = if self.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", self.namespace)
        };
        format!(
            "User {user:?} cannot {verb} resource {:?} in API group {:?} {scope}",
            self.full_resource(),
            self.group
        )
    }
}
