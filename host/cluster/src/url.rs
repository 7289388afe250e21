//! Paths and queries of the API.

use std::fmt::Write as _;

use davit_core::object::ApiResource;

/// The path of a resource, of its objects in a namespace, or of one of them.
/// Empty parts are left out.
pub(crate) fn path(
    resource: &ApiResource,
    namespace: &str,
    name: &str,
    subresource: &str,
) -> String {
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

/// Adds parameters to a path; those with an empty value are left out.
pub(crate) fn with_query(mut path: String, parameters: &[(&str, &str)]) -> String {
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

/// Whether the text can name an object in a path. The API refuses other names,
/// but in a path they would not get as far: `..` leads elsewhere.
pub(crate) fn is_name(text: &str) -> bool {
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
