//! `/apis/davit.dev/v1alpha1/controllers`: the controllers of a configuration file in
//! the form of the custom resource, for the commands of operators.
//!
//! A request can cause deletions. It needs the same access as every path of the port, and
//! the host accepts none from a browser: a page that a user visits must not promote
//! anything, even if it finds a port on loopback.

use std::net::IpAddr;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use super::server::Answer;
use super::{Endpoints, with_type};
use davit_core::api::API_VERSION;
use davit_core::control::{Change, ChangeError};

/// The path of the controllers.
const PATH: &str = "/apis/davit.dev/v1alpha1/controllers";

/// The largest change, in bytes.
const MOST_BYTES: usize = 64 * 1024;

/// A header that browsers send with every request of a page.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Which requests a host accepts on its own port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestPolicy {
    /// None: the host runs the cluster's Controllers, whose annotations are the
    /// requests.
    #[default]
    Cluster,
    /// Requests about the controllers of its file.
    File,
}

/// Why a request is refused.
pub(super) struct Refusal {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

/// Answers in the form of an API server.
pub(super) async fn answer(request: Request<Incoming>, endpoints: &Endpoints) -> Answer {
    match respond(request, endpoints).await {
        Ok(value) => with_type("application/json", StatusCode::OK, value.to_string()),
        Err(refusal) => refusal.answer(),
    }
}

/// The name of the controller that a path is about, empty for all of them; none if the path
/// is about something else.
pub(super) fn name_in(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(PATH)?;
    match rest.strip_prefix('/') {
        Some(name) => Some(name),
        None => rest.is_empty().then_some(""),
    }
}

impl Refusal {
    pub(super) fn answer(&self) -> Answer {
        status(self.code, self.reason, &self.message)
    }
}

/// A failure in the form of an API server.
pub(super) fn status(code: StatusCode, reason: &str, message: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    let mut answer = with_type("application/json", code, status.to_string());
    if code == StatusCode::SERVICE_UNAVAILABLE {
        let headers = answer.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

async fn respond(request: Request<Incoming>, endpoints: &Endpoints) -> Result<Value, Refusal> {
    if endpoints.requests == RequestPolicy::Cluster {
        let message = "this host runs the Controllers of its cluster: make the request there, \
                       without --server";
        return Err(forbidden(message.to_owned()));
    }
    let (parts, body) = request.into_parts();
    let name = name_in(parts.uri.path()).unwrap_or_default();
    match parts.method {
        Method::GET if name.is_empty() => {
            let items = endpoints.host.file_controllers().await;
            Ok(json!({
                "apiVersion": API_VERSION, "kind": "ControllerList", "metadata": {},
                "items": items.map_err(|error| refusal(&error))?,
            }))
        }
        Method::GET => {
            let found = endpoints.host.file_controller(name).await;
            found.map_err(|error| refusal(&error))
        }
        Method::PATCH if !name.is_empty() => {
            let change = read_change(&parts, body).await?;
            let changed = endpoints.host.change_file_controller(name, change).await;
            changed.map_err(|error| refusal(&error))
        }
        _ => Err(Refusal {
            code: StatusCode::METHOD_NOT_ALLOWED,
            reason: "MethodNotAllowed",
            message: "only GET, and PATCH of one controller, are allowed".to_owned(),
        }),
    }
}

async fn read_change(parts: &Parts, body: Incoming) -> Result<Change, Refusal> {
    const MERGE_PATCH: &str = "application/merge-patch+json";
    let wrong = |message: String| Refusal {
        code: StatusCode::BAD_REQUEST,
        reason: "BadRequest",
        message,
    };
    let kind = parts.headers.get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != MERGE_PATCH) {
        return Err(Refusal {
            code: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            reason: "UnsupportedMediaType",
            message: format!("the content type must be {MERGE_PATCH}"),
        });
    }
    let body = Limited::new(body, MOST_BYTES).collect().await;
    let body = body.map_err(|error| wrong(format!("the body cannot be read: {error}")))?;
    let patch: Value = serde_json::from_slice(&body.to_bytes())
        .map_err(|error| wrong(format!("the body is not JSON: {error}")))?;
    Change::read(&patch).map_err(|error| refusal(&error))
}

/// Refuses browsers: pages of other sites, and pages whose name now resolves to this
/// host. Browsers send `Origin` with every PATCH, newer ones `Sec-Fetch-Site` with
/// every request.
pub(super) fn check_sender(headers: &HeaderMap, address: IpAddr) -> Result<(), Refusal> {
    if headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) {
        return Err(forbidden(
            "this host refuses requests of browsers".to_owned(),
        ));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if address.is_loopback() && !host.is_some_and(is_loopback_name) {
        let message = "the request's Host header is not localhost or a loopback address".to_owned();
        return Err(forbidden(message));
    }
    Ok(())
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn forbidden(message: String) -> Refusal {
    Refusal {
        code: StatusCode::FORBIDDEN,
        reason: "Forbidden",
        message,
    }
}

fn refusal(error: &ChangeError) -> Refusal {
    let (code, reason) = match error {
        ChangeError::NotFound(_) => (StatusCode::NOT_FOUND, "NotFound"),
        ChangeError::InFile(_) | ChangeError::Invalid { .. } => {
            (StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
        }
        ChangeError::Unrecorded(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        ChangeError::Reading(_) | ChangeError::Stopping => {
            (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
        }
    };
    let message = davit_cluster::api::chain(error);
    Refusal {
        code,
        reason,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_the_controllers_names_them() {
        for (path, expected) in [
            (PATH, Some("")),
            ("/apis/davit.dev/v1alpha1/controllers/podgc", Some("podgc")),
            ("/apis/davit.dev/v1alpha1/controllersx", None),
            ("/apis/davit.dev/v1alpha1", None),
            ("/controllers/podgc", None),
        ] {
            assert_eq!(name_in(path), expected, "{path}");
        }
    }

    #[test]
    fn a_host_header_is_loopback_by_name_or_address() {
        for (host, expected) in [
            ("localhost", true),
            ("LOCALHOST:8080", true),
            ("127.0.0.1:8080", true),
            ("127.1.2.3", true),
            ("[::1]:8080", true),
            ("evil.example.com:8080", false),
            ("localhost.example.com", false),
            ("10.0.0.1:8080", false),
            ("", false),
        ] {
            assert_eq!(is_loopback_name(host), expected, "{host}");
        }
    }
}
