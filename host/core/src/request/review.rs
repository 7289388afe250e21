//! Access reviews: the API server says whether a service account may do something.

use std::fmt;

use serde::Deserialize;
use serde_json::json;

use super::{JSON, Method, Request, RequestError};
use crate::account::Account;
use crate::failure::{Failure, FailureClass};

/// Where reviews are created.
pub const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A question: may this account use the verb on the resource? Displays as
/// `list coordination.k8s.io/leases in kube-system`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessReview {
    /// The API group; empty for the core group, `*` for all.
    pub group: String,
    /// The plural of the resource; `*` for all.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The verb.
    pub verb: &'static str,
    /// The account. Last, because most reviews are about few accounts, and are compared by
    /// the fields in their order.
    pub account: Account,
}

/// An answer of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReviewAnswer {
    /// The account may.
    Allowed,
    /// The account may not.
    Denied {
        /// Why, as far as the API server says it; may be empty.
        reason: String,
    },
}

impl AccessReview {
    /// The request that asks the API server.
    #[must_use]
    pub fn request(&self) -> Request {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self.account.user(),
                "groups": self.account.groups(),
                "resourceAttributes": {
                    "verb": self.verb, "group": self.group, "resource": self.resource,
                    "namespace": self.namespace,
                },
            },
        });
        Request {
            method: Method::Post,
            uri: PATH.to_owned(),
            accept: JSON,
            content_type: JSON,
            body: body.to_string().into_bytes(),
        }
    }

    /// The answer to [`Self::request`]. Fails if the API server has not decided.
    pub fn answer(&self, answer: Result<&[u8], &RequestError>) -> Result<ReviewAnswer, Failure> {
        let attempt = format!("review whether {} may {self}", self.account);
        let body = answer.map_err(|error| error.failure(&attempt))?;
        let answer: Answer = serde_json::from_slice(body).map_err(|error| {
            let message = format!("{attempt}: the answer cannot be read: {error}");
            Failure::new(FailureClass::Server, message)
        })?;
        let status = answer.status;
        if status.allowed {
            return Ok(ReviewAnswer::Allowed);
        }
        // Not allowed is denied, also after an error of an authorizer (a role that does not
        // exist any more): the API server refuses such a request too.
        let reasons = [status.reason, status.evaluation_error];
        let reasons: Vec<String> = reasons.into_iter().filter(|one| !one.is_empty()).collect();
        Ok(ReviewAnswer::Denied {
            reason: reasons.join("; "),
        })
    }
}

#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    allowed: bool,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    evaluation_error: String,
}

impl fmt::Display for AccessReview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.verb)?;
        if !self.group.is_empty() && self.group != "*" {
            write!(f, "{}/", self.group)?;
        }
        match self.resource.as_str() {
            "*" => f.write_str("every resource")?,
            resource => f.write_str(resource)?,
        }
        if !self.namespace.is_empty() {
            write!(f, " in {}", self.namespace)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::request::NoAnswer;

    fn review() -> AccessReview {
        AccessReview {
            account: Account {
                namespace: "davit".to_owned(),
                name: "gc".to_owned(),
            },
            group: "coordination.k8s.io".to_owned(),
            resource: "leases".to_owned(),
            namespace: "kube-system".to_owned(),
            verb: "list",
        }
    }

    fn answer(body: &Value) -> Result<ReviewAnswer, Failure> {
        review().answer(Ok(body.to_string().as_bytes()))
    }

    #[test]
    fn a_request_names_the_user_with_its_groups() {
        let Request { uri, body, .. } = review().request();
        assert_eq!(uri, PATH);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let expected = json!({
            "user": "system:serviceaccount:davit:gc",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:davit", "system:authenticated"],
            "resourceAttributes": {
                "verb": "list", "group": "coordination.k8s.io", "resource": "leases",
                "namespace": "kube-system",
            },
        });
        assert_eq!(body["spec"], expected);
    }

    #[test]
    fn what_is_not_allowed_is_denied() {
        let denied = |reason: &str| ReviewAnswer::Denied {
            reason: reason.to_owned(),
        };
        let allowed = json!({"status": {"allowed": true}});
        assert_eq!(answer(&allowed), Ok(ReviewAnswer::Allowed));
        let nothing = json!({"status": {"allowed": false}});
        assert_eq!(answer(&nothing), Ok(denied("")));
        let broken = json!({"status": {
            "allowed": false, "reason": "no", "evaluationError": "role not found",
        }});
        assert_eq!(answer(&broken), Ok(denied("no; role not found")));
    }

    #[test]
    fn without_a_decision_there_is_no_answer() {
        for strange in [json!({}), json!({"status": {}}), json!([])] {
            assert!(answer(&strange).is_err());
        }
        let lost = RequestError::NoAnswer(NoAnswer::strange("cut"));
        let failure = review().answer(Err(&lost)).unwrap_err();
        assert_eq!(
            failure.message,
            "review whether davit/gc may list coordination.k8s.io/leases in kube-system: no \
             answer: cut"
        );
    }

    #[test]
    fn a_review_of_everything_says_so() {
        let all = AccessReview {
            group: "*".to_owned(),
            resource: "*".to_owned(),
            namespace: String::new(),
            ..review()
        };
        assert_eq!(all.to_string(), "list every resource");
    }
}
