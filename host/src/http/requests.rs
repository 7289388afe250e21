//! `/apis/davit.dev/v1alpha1/controllers`: the controllers of a configuration
//! file in the form of the custom resource, for the commands of operators.
//!
//! What is asked for here decides what is deleted in a cluster. So it is served
//! on loopback only, unless the operator who started the host said otherwise,
//! and never to a browser: a page that somebody visits must not be able to
//! promote anything, however it found the port.

use std::net::{IpAddr, SocketAddr};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::{Served, with_type};
use davit_core::control::{Change, ChangeError};

/// Where the controllers are.
pub(super) const PATH: &str = "/apis/davit.dev/v1alpha1/controllers";

/// The most that a change may take, in bytes.
const MOST_BYTES: usize = 64 * 1024;

/// What browsers send with every request that a page makes.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whose requests a host takes on its own port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestPolicy {
    /// Nobody's: it runs the Controllers of the cluster, which is where requests
    /// are made.
    #[default]
    Cluster,
    /// Of those who reach it over loopback.
    Loopback,
    /// Of everybody who reaches it.
    Everybody,
}

struct Refusal {
    code: StatusCode,
    reason: &'static str,
    message: String,
}

/// Answers as an API server does.
pub(super) async fn answer(
    request: Request<Incoming>,
    address: SocketAddr,
    served: &Served,
) -> Response<Full<Bytes>> {
    let answer = match respond(request, address, served).await {
        Ok(value) => (StatusCode::OK, value),
        Err(Refusal {
            code,
            reason,
            message,
        }) => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": message, "reason": reason, "code": code.as_u16(),
            });
            (code, status)
        }
    };
    with_type("application/json", answer.0, answer.1.to_string())
}

async fn respond(
    request: Request<Incoming>,
    address: SocketAddr,
    served: &Served,
) -> Result<Value, Refusal> {
    check_policy(served.requests, address.ip())?;
    check_sender(request.headers(), address.ip())?;
    let (parts, body) = request.into_parts();
    let rest = parts.uri.path().strip_prefix(PATH).unwrap_or_default();
    let name = rest.strip_prefix('/').unwrap_or_default();
    match parts.method {
        Method::GET if name.is_empty() => Ok(json!({
            "apiVersion": "davit.dev/v1alpha1", "kind": "ControllerList", "metadata": {},
            "items": served.rollouts.file_controllers().await,
        })),
        Method::GET => {
            let found = served.rollouts.file_controller(name).await;
            found.ok_or_else(|| refusal(&ChangeError::NotFound(name.to_owned())))
        }
        Method::PATCH if !name.is_empty() => {
            let change = read_change(&parts, body).await?;
            let changed = served.rollouts.change_file_controller(name, change).await;
            changed.map_err(|error| refusal(&error))
        }
        _ => Err(Refusal {
            code: StatusCode::METHOD_NOT_ALLOWED,
            reason: "MethodNotAllowed",
            message: "only GET, and PATCH of one controller".to_owned(),
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
            message: format!("the content type has to be {MERGE_PATCH}"),
        });
    }
    let body = Limited::new(body, MOST_BYTES).collect().await;
    let body = body.map_err(|error| wrong(format!("the body cannot be read: {error}")))?;
    let patch: Value = serde_json::from_slice(&body.to_bytes())
        .map_err(|error| wrong(format!("the body is not JSON: {error}")))?;
    Change::read(&patch).map_err(|error| refusal(&error))
}

fn check_policy(policy: RequestPolicy, address: IpAddr) -> Result<(), Refusal> {
    let message = match policy {
        RequestPolicy::Everybody => return Ok(()),
        RequestPolicy::Loopback if address.is_loopback() => return Ok(()),
        RequestPolicy::Loopback => format!(
            "requests are served on loopback only, and this host listens on {address}: start it \
             with --http 127.0.0.1:PORT, or with --allow-remote-requests if only those reach the \
             port who may decide what is deleted"
        ),
        RequestPolicy::Cluster => "this host runs the Controllers of its cluster: ask there, \
             without --server"
            .to_owned(),
    };
    Err(forbidden(message))
}

/// Refuses browsers: other sites' pages, and pages of a name that leads here by
/// now. Those send an `Origin` with every PATCH, the newer ones `Sec-Fetch-Site`
/// with everything.
fn check_sender(headers: &HeaderMap, address: IpAddr) -> Result<(), Refusal> {
    if headers.contains_key(ORIGIN) || headers.contains_key(SEC_FETCH_SITE) {
        return Err(forbidden("requests of browsers are refused".to_owned()));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if address.is_loopback() && !host.is_some_and(is_loopback_name) {
        let message = "the request's Host is not localhost or a loopback address".to_owned();
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
        ChangeError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
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
    fn requests_are_served_on_loopback_unless_said_otherwise() {
        let (loopback, remote) = ("127.0.0.1".parse().unwrap(), "10.0.0.1".parse().unwrap());
        let every = "0.0.0.0".parse().unwrap();
        for (policy, address, expected) in [
            (RequestPolicy::Loopback, loopback, true),
            (RequestPolicy::Loopback, "::1".parse().unwrap(), true),
            (RequestPolicy::Loopback, remote, false),
            (RequestPolicy::Loopback, every, false),
            (RequestPolicy::Everybody, remote, true),
            (RequestPolicy::Everybody, every, true),
            (RequestPolicy::Cluster, loopback, false),
        ] {
            let found = check_policy(policy, address);
            assert_eq!(found.is_ok(), expected, "{policy:?} {address}");
        }
    }

    #[test]
    fn a_host_is_loopback_by_name_or_address() {
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
