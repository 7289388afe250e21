//! The writes of a plan, and how they were answered.

use davit_core::controller::Outcome;
use davit_core::expectation::WriteResult;
use davit_core::mapping::Mapping;
use davit_core::plan::Plan;
use davit_core::request::Request;
use davit_core::request::plan::writes;
use serde::Serialize;
use serde_json::Value;

/// A write, as the plan says it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PreparedRequest {
    pub(super) method: &'static str,
    /// Path and query.
    pub(super) uri: String,
    /// The body, with the uid as a precondition.
    pub(super) body: Value,
}

/// A write, and how it was answered.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ReportedRequest {
    #[serde(flatten)]
    pub(super) request: PreparedRequest,
    /// [`OK`], the failure class of its step, or [`NOT_SENT`] behind a step that failed. A step
    /// may fail before its request is sent: the message of the failure says what has failed.
    pub(super) answer: &'static str,
}

pub(super) const OK: &str = "ok";
pub(super) const NOT_SENT: &str = "not-sent";

/// The writes of the steps of a plan, without what the host reads before it writes.
pub(super) fn prepared_requests(
    plan: &Plan,
    mapping: &Mapping,
    controller: &str,
) -> Vec<Option<PreparedRequest>> {
    let all = writes(plan, mapping, controller).into_iter();
    // A step that cannot be sent fails, and the outcome says why.
    all.map(|write| write?.ok().map(prepared)).collect()
}

fn prepared(request: Request) -> PreparedRequest {
    PreparedRequest {
        method: request.method.as_str(),
        uri: request.uri,
        body: serde_json::from_slice(&request.body).unwrap_or_default(),
    }
}

/// The writes of an executed plan. Its steps are executed in order, until one fails.
pub(super) fn reported_requests(
    writes: &[Option<PreparedRequest>],
    outcome: &Outcome,
) -> Vec<ReportedRequest> {
    let answer = |position: u32| match &outcome.failed {
        Some((failed, failure)) if position == *failed => failure.class.as_str(),
        Some((failed, _)) if position > *failed => NOT_SENT,
        _ => OK,
    };
    let writes = (0..).zip(writes);
    let reported = writes.filter_map(|(position, write)| {
        Some(ReportedRequest {
            request: write.clone()?,
            answer: answer(position),
        })
    });
    reported.collect()
}

/// What the writes left of the plan's target; none if that is not known.
pub(super) fn left(outcome: &Outcome) -> Option<String> {
    match outcome.written? {
        WriteResult::Gone => Some("the object is gone".to_owned()),
        WriteResult::Version(version) => Some(format!("the object has resourceVersion {version}")),
        WriteResult::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use davit_core::failure::{Failure, FailureClass};

    use super::*;

    fn answers(failed: Option<(u32, FailureClass)>) -> Vec<&'static str> {
        let write = |method| {
            Some(PreparedRequest {
                method,
                uri: "/api/v1/namespaces/default/pods/web".to_owned(),
                body: Value::Null,
            })
        };
        let writes = [write("PATCH"), None, write("DELETE"), write("POST")];
        let failed = failed.map(|(position, class)| (position, Failure::new(class, "")));
        let written = None;
        let reported = reported_requests(&writes, &Outcome { written, failed });
        reported.into_iter().map(|one| one.answer).collect()
    }

    #[test]
    fn steps_behind_a_failed_one_were_not_sent() {
        assert_eq!(answers(None), ["ok", "ok", "ok"]);
        let failed = Some((2, FailureClass::Conflict));
        assert_eq!(answers(failed), ["ok", "conflict", "not-sent"]);
        let failed = Some((0, FailureClass::Timeout));
        assert_eq!(answers(failed), ["timeout", "not-sent", "not-sent"]);
        // The event has failed: it sends nothing by itself.
        let failed = Some((1, FailureClass::Invalid));
        assert_eq!(answers(failed), ["ok", "not-sent", "not-sent"]);
    }
}
