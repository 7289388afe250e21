//! Requests as the model understands them: the URL taken apart.

use bytes::Bytes;
use http::Method;

use crate::access::{Attributes, Impersonation};
use crate::fault::Match;
use crate::model::{Body, Model, Target};
use crate::protobuf;
use crate::status::{Result, Status};

/// What a request asks for: verb, resource and coordinates, as far as the URL
/// says.
pub type Work = Match;

/// A request without its transport.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, still escaped.
    pub path: String,
    /// The query.
    pub query: Query,
    /// `Content-Type`, or empty.
    pub content_type: String,
    /// `Accept`, or empty.
    pub accept: String,
    /// `User-Agent`, or empty.
    pub user_agent: String,
    /// The bearer's token, or empty.
    pub bearer: String,
    /// Whom the sender speaks as, if not for itself.
    pub impersonation: Option<Impersonation>,
    /// The body, or empty.
    pub body: Bytes,
}

impl Request {
    /// What is asked for, as authorization sees it.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let parts = segments(&self.path);
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Attributes::of(&self.method, &self.path, &parts, &self.query)
    }

    /// What is asked for, as faults are matched and requests logged.
    #[must_use]
    pub fn work(&self, model: &Model) -> Work {
        let Route::Resource(target) = Route::of(model, &self.path) else {
            return Work {
                verb: self.method.to_string().to_lowercase(),
                ..Work::default()
            };
        };
        let one = !target.name.is_empty();
        let verb = match self.method.as_str() {
            "GET" if self.query.flag("watch") => "watch",
            "GET" if one => "get",
            "GET" => "list",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" if one => "delete",
            "DELETE" => "deletecollection",
            other => other,
        };
        Work {
            verb: verb.to_owned(),
            group: target.resource.group.clone(),
            resource: target.resource.plural.clone(),
            subresource: target.subresource,
            namespace: target.namespace,
            name: target.name,
        }
    }

    /// The body of a create or an update, or 415.
    pub fn object(&self) -> Result<Body> {
        let media_type = self
            .content_type
            .split(';')
            .next()
            .unwrap_or_default()
            .trim();
        match media_type {
            "" | "application/json" => Ok(Body::JsonText(self.body.clone())),
            "application/yaml" => Ok(Body::YamlText(self.body.clone())),
            protobuf::MEDIA_TYPE => Ok(Body::Protobuf(self.body.clone())),
            _ => Err(Status::unsupported_media(&[
                "application/json",
                "application/yaml",
                protobuf::MEDIA_TYPE,
            ])),
        }
    }
}

/// A query string, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=1&b=%20`. Bytes that are no UTF-8 are replaced.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (
                        decode(&name.replace('+', " ")),
                        decode(&value.replace('+', " ")),
                    )
                })
                .collect(),
        )
    }

    /// The first value of a parameter.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter, but empty ones.
    #[must_use]
    pub fn all(&self, name: &str) -> Vec<String> {
        self.0
            .iter()
            .filter(|(other, value)| other == name && !value.is_empty())
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// A parameter as the API server reads truth: there, and not `0` or
    /// `false`.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// A parameter as a number, or 400.
    pub fn number(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!(
                    "strconv.ParseInt: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }
}

/// Percent-decoding.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%')
            .then(|| after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok()))
            .flatten()
            .filter(|hex| hex.bytes().all(|c| c.is_ascii_hexdigit()))
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub enum Route {
    /// `/healthz`, `/livez`, `/readyz` and what lies below them.
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
    /// Nothing.
    Nowhere,
}

impl Route {
    /// Finds out where a path leads.
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

fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(decode).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_strings() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch=1&limit=x&empty&p=a+b&bad=%zz%");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert!(query.flag("watch"));
        assert!(query.flag("empty"));
        assert!(!query.flag("absent"));
        assert_eq!(query.get("p"), Some("a b"));
        assert_eq!(query.get("bad"), Some("%zz%"));
        assert_eq!(query.number("limit").expect_err("no number").code, 400);
    }
}
