//! `Status`: the API server's answer to a failed request, and to a successful deletion,
//! with its own messages.

mod field;

use serde::Serialize;
use serde_json::{Value, json};

pub use field::FieldError;

/// The result of a request; the error is the answer to a failed one.
pub type Result<T> = std::result::Result<T, Box<Status>>;

/// A `metav1.Status`. As an error its text is the message.
#[derive(Clone, Debug, Default, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The HTTP status; also the `code` of a failure.
    pub code: u16,
    /// The machine-readable reason; empty for errors the server did not classify.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// The object and the causes.
    pub details: Option<Details>,
    /// The token to continue with after an expired one.
    pub continue_token: String,
}

/// The resource that a message is about, or a kind in its place (`GroupResource`).
#[derive(Clone, Copy, Debug)]
pub struct GroupResource<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural name.
    pub resource: &'a str,
}

impl std::fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&qualify(self.resource, self.group))
    }
}

/// `StatusDetails`: the object of a [`Status`] and the causes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group of `kind`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// A resource (`pods`) or, for validation errors, a kind (`Pod`).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// One entry for every finding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// Seconds until a retry makes sense.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One finding of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cause {
    /// The class of the finding, `FieldValueInvalid` for example.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
    /// The message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The path of the field that is wrong.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Status {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Box<Self> {
        Box::new(Status {
            code,
            reason,
            message: message.into(),
            ..Status::default()
        })
    }

    fn with_details(mut self: Box<Self>, details: Details) -> Box<Self> {
        self.details = Some(details);
        self
    }

    fn about(self: Box<Self>, resource: GroupResource<'_>, name: &str) -> Box<Self> {
        self.with_details(Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..Details::default()
        })
    }

    /// 400: the request is malformed.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Box<Self> {
        Status::new(400, "BadRequest", message)
    }

    /// 404: no such object.
    #[must_use]
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Box<Self> {
        Status::new(404, "NotFound", format!("{resource} {name:?} not found")).about(resource, name)
    }

    /// 404: no such endpoint.
    #[must_use]
    pub fn no_endpoint() -> Box<Self> {
        Status::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(Details::default())
    }

    /// 405: the endpoint has no such verb.
    #[must_use]
    pub fn method_not_allowed() -> Box<Self> {
        Status::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with_details(Details::default())
    }

    /// 409: an object of that name exists.
    #[must_use]
    pub fn already_exists(resource: GroupResource<'_>, name: &str, terminating: bool) -> Box<Self> {
        let prefix = if terminating {
            "object is being deleted: "
        } else {
            ""
        };
        Status::new(
            409,
            "AlreadyExists",
            format!("{prefix}{resource} {name:?} already exists"),
        )
        .about(resource, name)
    }

    /// 409: the stored object has another version, or is another object.
    #[must_use]
    pub fn conflict(resource: GroupResource<'_>, name: &str, why: impl AsRef<str>) -> Box<Self> {
        Status::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {resource} {name:?}: {}",
                why.as_ref()
            ),
        )
        .about(resource, name)
    }

    /// 409: a pod that cannot be bound. The server names the subresource.
    #[must_use]
    pub fn binding_conflict(pod: &str, why: &str) -> Box<Self> {
        Status::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on pods/binding {pod:?}: {why}"),
        )
        .with_details(Details {
            name: pod.to_owned(),
            kind: "pods/binding".to_owned(),
            ..Details::default()
        })
    }

    /// 409: the version sent is not the stored one.
    #[must_use]
    pub fn modified(resource: GroupResource<'_>, name: &str) -> Box<Self> {
        Status::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409: an apply that conflicts with other field managers, each with the paths of
    /// its fields.
    #[must_use]
    pub fn apply_conflict(conflicts: &[(String, Vec<String>)]) -> Box<Self> {
        let all: Vec<(&String, &String)> = conflicts
            .iter()
            .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
            .collect();
        let message = if let [(manager, path)] = all.as_slice() {
            format!("Apply failed with 1 conflict: conflict with {manager}: {path}")
        } else {
            let lines: Vec<String> = conflicts
                .iter()
                .map(|(manager, paths)| {
                    format!("conflicts with {manager}:\n- {}", paths.join("\n- "))
                })
                .collect();
            let count = all.len();
            format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
        };
        let causes = all
            .into_iter()
            .map(|(manager, path)| Cause {
                reason: "FieldManagerConflict",
                message: format!("conflict with {manager}"),
                field: path.clone(),
            })
            .collect();
        Status::new(409, "Conflict", message).with_details(Details {
            causes,
            ..Details::default()
        })
    }

    /// 401: the credentials are unknown.
    #[must_use]
    pub fn unauthorized() -> Box<Self> {
        Status::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: admission denies the request.
    #[must_use]
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: impl AsRef<str>) -> Box<Self> {
        Status::new(
            403,
            "Forbidden",
            format!("{resource} {name:?} is forbidden: {}", why.as_ref()),
        )
        .about(resource, name)
    }

    /// 403: authorization denies the request. A collection has no name, and a path has
    /// no resource: the message omits what is empty.
    #[must_use]
    pub fn denied(resource: GroupResource<'_>, name: &str, why: &str) -> Box<Self> {
        let mut about = resource.to_string();
        if !name.is_empty() {
            about = format!("{about} {name:?}");
        }
        if !about.is_empty() {
            about += " is ";
        }
        Status::new(403, "Forbidden", format!("{about}forbidden: {why}")).about(resource, name)
    }

    /// 422: a validating admission policy denies the request. As in the API server, the
    /// message is that of a 403.
    #[must_use]
    pub fn denied_by_policy(resource: GroupResource<'_>, name: &str, why: &str) -> Box<Self> {
        let mut status = Status::denied(resource, name, why);
        status.code = 422;
        status.reason = "Invalid";
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                message: why.to_owned(),
                ..Cause::default()
            });
        }
        status
    }

    /// 403: a disruption budget with a negative count.
    #[must_use]
    pub fn negative_budget(name: &str) -> Box<Self> {
        // The server has the resource in the singular here.
        const RESOURCE: &str = "poddisruptionbudget";
        let why = "pdb disruptions allowed is negative";
        Status::new(
            403,
            "Forbidden",
            format!("{RESOURCE}.policy {name:?} is forbidden: {why}"),
        )
        .with_details(Details {
            name: name.to_owned(),
            group: "policy".to_owned(),
            kind: RESOURCE.to_owned(),
            ..Details::default()
        })
    }

    /// 403: a create in a terminating namespace.
    #[must_use]
    pub fn terminating_namespace(
        resource: GroupResource<'_>,
        name: &str,
        namespace: &str,
    ) -> Box<Self> {
        let mut status = Status::forbidden(
            resource,
            name,
            format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            ),
        );
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating",
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
        }
        status
    }

    /// 410: a version that the history no longer has.
    #[must_use]
    pub fn expired(message: impl Into<String>) -> Box<Self> {
        Status::new(410, "Expired", message)
    }

    /// 413: the body is too large.
    #[must_use]
    pub fn too_large(why: impl AsRef<str>) -> Box<Self> {
        Status::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: {}", why.as_ref()),
        )
    }

    /// 406: no form of objects that the client accepts, though the media type
    /// would do.
    #[must_use]
    pub fn not_acceptable() -> Box<Self> {
        Status::new(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    }

    /// 415: a body of a type the endpoint does not read; lists those it does.
    #[must_use]
    pub fn unsupported_media(accepted: &[&str]) -> Box<Self> {
        Status::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// 415 as the router of the built-in resources words it.
    #[must_use]
    pub fn unsupported_patch() -> Box<Self> {
        Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
            .with_details(Details::default())
    }

    /// 422 of a JSON patch that does not apply.
    #[must_use]
    pub fn rejected() -> Box<Self> {
        Status::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
        .with_details(Details::default())
    }

    /// 422: the findings of validation. `kind` may also be a resource name,
    /// where the server uses one.
    #[must_use]
    pub fn invalid(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Box<Self> {
        let mut texts: Vec<String> = Vec::new();
        for error in errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let summary = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        Status::new(
            422,
            "Invalid",
            format!("{} {name:?} is invalid: {summary}", qualify(kind, group)),
        )
        .with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: errors.iter().map(FieldError::cause).collect(),
            ..Details::default()
        })
    }

    /// 429 with a `Retry-After` (0: none).
    #[must_use]
    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Box<Self> {
        Status::new(429, "TooManyRequests", message).with_details(Details {
            retry_after_seconds,
            ..Details::default()
        })
    }

    /// 500 for an error that has no class.
    #[must_use]
    pub fn unclassified(message: impl Into<String>) -> Box<Self> {
        Status::new(500, "", message)
    }

    /// 500 for a broken invariant of the server.
    #[must_use]
    pub fn internal(message: impl AsRef<str>) -> Box<Self> {
        let message = message.as_ref();
        Status::new(
            500,
            "InternalError",
            format!("Internal error occurred: {message}"),
        )
        .with_details(Details {
            causes: vec![Cause {
                message: message.to_owned(),
                ..Cause::default()
            }],
            ..Details::default()
        })
    }

    /// 501: the simulator does not implement this.
    #[must_use]
    pub fn not_simulated(what: &str) -> Box<Self> {
        Status::new(501, "NotImplemented", format!("{what} is not simulated"))
    }

    /// 503: the server is unavailable for a while.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Box<Self> {
        Status::new(503, "ServiceUnavailable", message)
    }

    /// 504: a version that the server has not reached yet.
    #[must_use]
    pub fn too_new(asked: u64, current: u64) -> Box<Self> {
        Status::new(
            504,
            "Timeout",
            format!("Too large resource version: {asked}, current: {current}"),
        )
        .with_details(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                ..Cause::default()
            }],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }

    /// Seconds for the `Retry-After` header, if the answer carries one.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        self.details
            .as_ref()
            .map(|details| details.retry_after_seconds)
            .filter(|seconds| *seconds > 0)
    }

    /// The answer's body.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut metadata = json!({});
        if !self.continue_token.is_empty() {
            metadata = json!({"continue": self.continue_token});
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata,
            "status": "Failure", "message": self.message, "code": self.code,
        });
        if let Value::Object(map) = &mut body {
            if !self.reason.is_empty() {
                map.insert("reason".to_owned(), self.reason.into());
            }
            if let Some(details) = &self.details {
                map.insert("details".to_owned(), json!(details));
            }
        }
        body
    }
}

/// The body of a success: with the object's coordinates after a deletion, with the code
/// after an eviction or a binding.
#[must_use]
pub fn success(details: Option<&Details>, code: Option<u16>) -> Value {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
    });
    if let Value::Object(map) = &mut body {
        if let Some(details) = details {
            map.insert("details".to_owned(), json!(details));
        }
        if let Some(code) = code {
            map.insert("code".to_owned(), code.into());
        }
    }
    body
}

/// `kind.group`, or just `kind` for the core group.
#[must_use]
pub fn qualify(kind: &str, group: &str) -> String {
    if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    }
}
