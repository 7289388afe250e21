//! Paths and queries of the API.

use std::fmt::Write as _;

use crate::object::ApiResource;

/// The path of a resource, of its objects in a namespace, or of one object. Empty parts
/// are omitted.
#[must_use]
pub fn path(resource: &ApiResource, namespace: &str, name: &str, subresource: &str) -> String {
    let mut path = String::with_capacity(80);
    if resource.group.is_empty() {
        path.push_str("/api");
    } else {
        path.push_str("/apis");
        push_segment(&mut path, &resource.group);
    }
    push_segment(&mut path, &resource.version);
    if !namespace.is_empty() {
        path.push_str("/namespaces");
        push_segment(&mut path, namespace);
    }
    for part in [resource.plural.as_str(), name, subresource] {
        if !part.is_empty() {
            push_segment(&mut path, part);
        }
    }
    path
}

/// Adds parameters to a path; those with an empty value are omitted.
#[must_use]
pub fn with_query(mut path: String, parameters: &[(&str, &str)]) -> String {
    let mut separator = '?';
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        path.push(separator);
        path.push_str(name);
        path.push('=');
        push_encoded(&mut path, value);
        separator = '&';
    }
    path
}

/// The target of a request, as far as its path shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource and subresource, without names: `apps/v1/deployments/*/status`.
    /// Requests of one kind cause similar work for a server.
    pub kind: String,
}

impl Route {
    /// The route of a path, with or without a query.
    #[must_use]
    pub fn of(uri: &str) -> Self {
        let path = uri.split('?').next().unwrap_or_default();
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => "",
        };
        let mut kind = group.to_owned();
        let mut add = |part: &str| {
            kind.push('/');
            kind.push_str(part);
        };
        add(parts.next().unwrap_or_default());
        let mut parts: Vec<_> = parts.collect();
        if parts.len() > 2 && parts.first() == Some(&"namespaces") {
            parts.drain(..2);
        }
        for (position, part) in parts.into_iter().enumerate() {
            add(if position == 1 { "*" } else { part });
        }
        Self {
            group: group.to_owned(),
            kind,
        }
    }
}

/// Whether a text can name an object in a path. The API server refuses other names, but
/// a path with such a name leads elsewhere, `..` for example.
pub(super) fn is_name(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(['/', '%'])
}

fn push_segment(path: &mut String, segment: &str) {
    path.push('/');
    push_encoded(path, segment);
}

fn push_encoded(text: &mut String, part: &str) {
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_leaves_names_out() {
        for (uri, group, kind) in [
            ("/api/v1/pods?limit=5", "", "/v1/pods"),
            (
                "/api/v1/namespaces/ns/pods/p/status",
                "",
                "/v1/pods/*/status",
            ),
            ("/api/v1/namespaces/ns", "", "/v1/namespaces/*"),
            (
                "/apis/apps/v1/namespaces/ns/deployments",
                "apps",
                "apps/v1/deployments",
            ),
            (
                "/apis/apps/v1/namespaces/ns/deployments/d",
                "apps",
                "apps/v1/deployments/*",
            ),
            ("/apis", "", "/"),
        ] {
            let route = Route::of(uri);
            assert_eq!(
                (route.group.as_str(), route.kind.as_str()),
                (group, kind),
                "{uri}"
            );
        }
    }

    #[test]
    fn paths_of_the_core_and_of_groups() {
        let pods = ApiResource::new("", "v1", "pods");
        assert_eq!(path(&pods, "", "", ""), "/api/v1/pods");
        assert_eq!(
            path(&pods, "ns", "p", "status"),
            "/api/v1/namespaces/ns/pods/p/status"
        );
        let roles = ApiResource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
        assert_eq!(
            path(&roles, "", "system:node", ""),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"
        );
    }

    #[test]
    fn nothing_breaks_out_of_its_place() {
        let pods = ApiResource::new("", "v1", "pods");
        assert_eq!(
            path(&pods, "a/b", "c?d#e", ""),
            "/api/v1/namespaces/a%2Fb/pods/c%3Fd%23e"
        );
        let query = [("labelSelector", "a=b,c in (d&e)"), ("limit", "")];
        assert_eq!(
            with_query("/x".into(), &query),
            "/x?labelSelector=a%3Db%2Cc%20in%20%28d%26e%29"
        );
        for text in ["", ".", "..", "a/b", "a%2Fb"] {
            assert!(!is_name(text), "{text}");
        }
        assert!(is_name("system:node"));
    }
}
