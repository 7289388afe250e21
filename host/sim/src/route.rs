//! Which resource or endpoint a request is for.

use crate::fault::Match;
use crate::model::Model;
use crate::request::{Request, segments};
use crate::target::Target;

/// The verb and the coordinates of a request, as far as its URL shows them.
pub type RequestInfo = Match;

/// The coordinates of a request, for faults and the log.
#[must_use]
pub fn request_info(model: &Model, request: &Request) -> RequestInfo {
    let Route::Resource(target) = Route::of(model, &request.path) else {
        return RequestInfo {
            verb: request.method.to_string().to_lowercase(),
            ..RequestInfo::default()
        };
    };
    let one = !target.name.is_empty();
    let verb = match request.method.as_str() {
        "GET" if request.query.flag("watch") => "watch",
        "GET" if one => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if one => "delete",
        "DELETE" => "deletecollection",
        other => other,
    };
    RequestInfo {
        verb: verb.to_owned(),
        group: target.resource.group.clone(),
        resource: target.resource.plural.clone(),
        subresource: target.subresource,
        namespace: target.namespace,
        name: target.name,
    }
}

/// The endpoint of a path.
#[derive(Clone, Debug)]
pub enum Route {
    /// `/healthz`, `/livez`, `/readyz` and the paths below them.
    Health,
    /// `/version`.
    Version,
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/{group}`.
    Group(String),
    /// `/api/v1`, `/apis/{group}/{version}`: group and version.
    Resources(String, String),
    /// `/openapi/…`.
    OpenApi(String),
    /// A collection, an object or a subresource.
    Resource(Target),
    /// A served group and version, but no such resource in it.
    NoResource,
    /// No endpoint.
    Nowhere,
}

impl Route {
    /// Finds the endpoint of a path.
    #[must_use]
    pub fn of(model: &Model, path: &str) -> Route {
        let parts = segments(path);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Route::Health,
            ["version"] => Route::Version,
            ["openapi", rest @ ..] => Route::OpenApi(rest.join("/")),
            ["api"] => Route::CoreVersions,
            ["api", "v1"] => Route::Resources(String::new(), "v1".to_owned()),
            ["api", "v1", rest @ ..] => resource(model, "", "v1", rest),
            ["apis"] => Route::Groups,
            ["apis", group] => Route::Group((*group).to_owned()),
            ["apis", group, version] => {
                Route::Resources((*group).to_owned(), (*version).to_owned())
            }
            ["apis", group, version, rest @ ..] => resource(model, group, version, rest),
            _ => Route::Nowhere,
        }
    }
}

fn resource(model: &Model, group: &str, version: &str, path: &[&str]) -> Route {
    let (namespace, rest) = match path {
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", path),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        _ => ("", path),
    };
    let [plural, rest @ ..] = rest else {
        return Route::Nowhere;
    };
    let Some(resource) = model.resource(group, version, plural) else {
        let served = model
            .resources()
            .iter()
            .any(|resource| resource.group == group && resource.version == version);
        return if served {
            Route::NoResource
        } else {
            Route::Nowhere
        };
    };
    let mut target = Target::new(resource, namespace, "");
    match rest {
        [] => {}
        [name] => (*name).clone_into(&mut target.name),
        [name, subresource] if resource.subresource(subresource).is_some() => {
            (*name).clone_into(&mut target.name);
            (*subresource).clone_into(&mut target.subresource);
        }
        _ => return Route::NoResource,
    }
    let scoped = !namespace.is_empty();
    let fits = resource.namespaced == scoped || (!scoped && target.name.is_empty());
    if fits {
        Route::Resource(target)
    } else {
        Route::NoResource
    }
}
