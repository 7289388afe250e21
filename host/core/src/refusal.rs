//! Kubernetes' `Status`, and the meaning of a refused request.

use std::time::Duration;

use crate::failure::FailureClass;
use crate::watch::Refusal;
use serde::Deserialize;

/// The fields of a `Status` that the host reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `Status`, if the body is one.
    pub kind: String,
    /// The HTTP status.
    pub code: u16,
    /// The reason: `Conflict`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The details.
    pub details: StatusDetails,
}

/// The fields of the details of a `Status` that the host reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    /// The name of the object.
    pub name: String,
    /// The seconds to wait; 0 if none.
    pub retry_after_seconds: u64,
    /// The causes.
    pub causes: Vec<StatusCause>,
}

/// One cause in the details of a `Status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    /// The reason: `FieldValueInvalid`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The field's path.
    pub field: String,
}

/// The longest pause that a server can ask for. A tick has no events that end its pause
/// early.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// An answer that is not a success.
#[derive(Clone, Debug)]
pub struct ErrorResponse {
    /// The HTTP status.
    pub code: u16,
    /// The body.
    pub status: Status,
    /// The pause, from the header or the body, at most five minutes.
    pub retry_after: Option<Duration>,
}

impl ErrorResponse {
    /// Reads the answer. If the body is not a `Status` (a page of a proxy, a path
    /// without a handler), it becomes the message.
    #[must_use]
    pub fn read(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let status = serde_json::from_slice::<Status>(body)
            .ok()
            .filter(|status| status.kind == "Status")
            .unwrap_or_else(|| Status {
                message: shortened(&String::from_utf8_lossy(body)),
                ..Status::default()
            });
        let seconds = status.details.retry_after_seconds;
        let in_body = (seconds > 0).then(|| Duration::from_secs(seconds));
        Self {
            code,
            retry_after: retry_after.or(in_body).map(at_most),
            status,
        }
    }

    /// Whether a disruption budget refuses an eviction, and not an overloaded server.
    #[must_use]
    pub fn is_disruption_budget(&self) -> bool {
        self.has_cause("DisruptionBudget")
    }

    fn has_cause(&self, reason: &str) -> bool {
        let mut causes = self.status.details.causes.iter();
        causes.any(|cause| cause.reason == reason)
    }

    /// The class of the failure. The texts were recorded from a 1.36 server; only the
    /// text distinguishes these cases.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self.code {
            // The answer names a missing object. Without a name, the resource is not
            // served: to treat that as a deleted object would let a garbage collector
            // delete its dependents.
            404 if self.status.details.name.is_empty() => FailureClass::Unmappable,
            404 | 410 => FailureClass::NotFound,
            409 if self.is_about_uid_precondition() => FailureClass::UidMismatch,
            409 => FailureClass::Conflict,
            415 => FailureClass::UnsupportedMedia,
            422 if self.is_about_immutable_uid() => FailureClass::UidMismatch,
            // The write was allowed. What is to be written is about to go with its namespace.
            403 if self.has_cause("NamespaceTerminating") => FailureClass::Conflict,
            401 | 403 => FailureClass::Forbidden,
            429 if self.is_disruption_budget() => FailureClass::DisruptionBudget,
            429 => FailureClass::Throttled,
            400..500 => FailureClass::Invalid,
            500 if self.is_about_schema() => FailureClass::Invalid,
            _ => FailureClass::Server,
        }
    }

    /// `409 Conflict: Operation cannot be fulfilled on …`, for the message of a
    /// failure.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { code, status, .. } = self;
        match (status.reason.as_str(), status.message.as_str()) {
            ("", "") => format!("the server answered {code}"),
            ("", message) => format!("the server answered {code}: {message}"),
            (reason, message) => format!("the server answered {code} {reason}: {message}"),
        }
    }

    fn is_about_uid_precondition(&self) -> bool {
        let message = &self.status.message;
        message.contains("the UID in the precondition")
            || message.contains("UID in precondition")
            // An apply with a uid never creates.
            || message.contains("uid mismatch: ")
    }

    /// An apply whose fields do not fit the schema: the answer is of an error of the server.
    fn is_about_schema(&self) -> bool {
        let message = &self.status.message;
        message.contains("failed to create typed patch object")
            || message.contains("failed to create manager for existing fields")
    }

    fn is_about_immutable_uid(&self) -> bool {
        const IMMUTABLE: &str = "field is immutable";
        self.status
            .details
            .causes
            .iter()
            .any(|cause| cause.field == "metadata.uid" && cause.message.contains(IMMUTABLE))
    }
}

impl From<ErrorResponse> for Refusal {
    fn from(refused: ErrorResponse) -> Self {
        Self {
            code: refused.code,
            message: refused.status.message,
            retry_after: refused.retry_after,
        }
    }
}

impl From<Status> for Refusal {
    /// A status that arrives as a watch event.
    fn from(status: Status) -> Self {
        let seconds = status.details.retry_after_seconds;
        Self {
            code: status.code,
            message: status.message,
            retry_after: (seconds > 0).then(|| at_most(Duration::from_secs(seconds))),
        }
    }
}

fn at_most(pause: Duration) -> Duration {
    pause.min(LONGEST_PAUSE)
}

fn shortened(text: &str) -> String {
    const LONGEST: usize = 300;
    text.trim().chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a 1.36 server answers.
    #[test]
    fn refusals_that_only_their_texts_distinguish() {
        let class = |code, reason: &str, message: &str, cause: &str| {
            let body = serde_json::json!({
                "kind": "Status", "code": code, "reason": reason, "message": message,
                "details": {"name": "a", "causes": [{"reason": cause}]},
            });
            ErrorResponse::read(code, None, body.to_string().as_bytes()).class()
        };
        let ends = "configmaps \"a\" is forbidden: unable to create new content in namespace ns \
                    because it is being terminated";
        let forbidden = class(403, "Forbidden", ends, "NamespaceTerminating");
        assert_eq!(forbidden, FailureClass::Conflict);
        assert_eq!(class(403, "Forbidden", ends, ""), FailureClass::Forbidden);
        let untyped = "failed to create typed patch object (ns/a; /v1, Kind=ConfigMap): .dta: \
                       field not declared in schema";
        assert_eq!(class(500, "", untyped, ""), FailureClass::Invalid);
        assert_eq!(class(500, "", "etcd is away", ""), FailureClass::Server);
    }

    #[test]
    fn a_server_cannot_ask_for_a_pause_of_a_day() {
        let day = Duration::from_hours(24);
        let body = br#"{"kind": "Status", "details": {"retryAfterSeconds": 86400}}"#;
        for refused in [
            ErrorResponse::read(429, Some(day), b""),
            ErrorResponse::read(500, None, body),
        ] {
            assert_eq!(refused.retry_after, Some(LONGEST_PAUSE));
        }
        let soon = ErrorResponse::read(429, Some(Duration::from_secs(7)), b"");
        assert_eq!(soon.retry_after, Some(Duration::from_secs(7)));
        let event: Status = serde_json::from_slice(body).unwrap();
        assert_eq!(Refusal::from(event).retry_after, Some(LONGEST_PAUSE));
    }
}
