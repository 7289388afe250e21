//! Reads the attributes of a request from its URL alone: authorization comes before
//! routing.

use http::Method;

use super::Query;
use crate::access::Attributes;
use crate::name::{self, NameRule};
use crate::selector::exact_name;

/// Reads a request's method, path and query. `parts` are the segments of
/// the path, decoded.
pub(super) fn attributes(method: &Method, path: &str, parts: &[&str], query: &Query) -> Attributes {
    let no_resource = || Attributes {
        verb: method.as_str().to_lowercase(),
        path: Some(path.to_owned()),
        ..Attributes::default()
    };
    let (group, rest) = match parts {
        ["api", _version, rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        _ => return no_resource(),
    };
    if rest.is_empty() {
        return no_resource();
    }
    let mut asked = Attributes {
        verb: verb(method).to_owned(),
        group: group.to_owned(),
        ..Attributes::default()
    };
    // A namespace is in itself.
    let rest = match rest {
        ["namespaces", namespace, below @ ..] => {
            (*namespace).clone_into(&mut asked.namespace);
            match below {
                [] | ["status" | "finalize", ..] => rest,
                _ => below,
            }
        }
        _ => rest,
    };
    let at = |place: usize| rest.get(place).copied().unwrap_or_default().to_owned();
    (asked.resource, asked.name, asked.subresource) = (at(0), at(1), at(2));
    if asked.name.is_empty() {
        set_collection(&mut asked, query);
    }
    asked
}

fn set_collection(asked: &mut Attributes, query: &Query) {
    match asked.verb.as_str() {
        "get" if query.flag("watch") => "watch",
        "get" => "list",
        "delete" => "deletecollection",
        _ => return,
    }
    .clone_into(&mut asked.verb);
    if asked.verb == "deletecollection" {
        return;
    }
    // A list of one name is allowed to whom that name is allowed.
    let selector = query.get("fieldSelector").unwrap_or_default();
    asked.name = exact_name(selector)
        .filter(|name| name::problems(NameRule::PathSegment, name).is_empty())
        .unwrap_or_default();
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(method: &str, url: &str) -> Attributes {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        super::attributes(&method, path, &parts, &Query::parse(query))
    }

    #[test]
    fn urls() {
        for (method, url, denial) in [
            (
                "GET",
                "/api/v1/pods?watch=1",
                "cannot watch resource \"pods\" in API group \"\" at the cluster scope",
            ),
            (
                "GET",
                "/api/v1/namespaces/n",
                "cannot get resource \"namespaces\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "PUT",
                "/api/v1/namespaces/n/finalize",
                "cannot update resource \"namespaces/finalize\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "GET",
                "/api/v1/namespaces",
                "cannot list resource \"namespaces\" in API group \"\" at the cluster scope",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/n/deployments",
                "cannot deletecollection resource \"deployments\" in API group \"apps\" in the namespace \"n\"",
            ),
            (
                "POST",
                "/api/v1/namespaces/n/pods/p/eviction",
                "cannot create resource \"pods/eviction\" in API group \"\" in the namespace \"n\"",
            ),
            (
                "GET",
                "/apis/not.served/v1/things/t",
                "cannot get resource \"things\" in API group \"not.served\" at the cluster scope",
            ),
            ("GET", "/apis/apps/v1", "cannot get path \"/apis/apps/v1\""),
            ("GET", "/api/v1", "cannot get path \"/api/v1\""),
            ("POST", "/metrics", "cannot post path \"/metrics\""),
        ] {
            let asked = attributes(method, url);
            assert_eq!(asked.denial("u"), format!("User \"u\" {denial}"), "{url}");
        }
    }

    #[test]
    fn a_list_of_one_name_has_that_name() {
        let list = "/api/v1/namespaces/n/configmaps";
        assert_eq!(
            attributes("GET", &format!("{list}?fieldSelector=metadata.name%3Da")).name,
            "a"
        );
        let unlike = format!("{list}?watch=1&fieldSelector=metadata.name!%3Da");
        assert_eq!(attributes("GET", &unlike).name, "");
        let all = format!("{list}?fieldSelector=metadata.name%3Da");
        assert_eq!(attributes("DELETE", &all).name, "");
    }
}
