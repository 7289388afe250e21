//! Access reviews: the API server says whether a service account may do something.

use std::fmt;

use serde::Deserialize;
use serde_json::json;

use super::{JSON, Method, Request, RequestError};
use crate::account::Account;
use crate::failure::{Failure, FailureClass};

/// Where the permissions of accounts are reviewed.
pub const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Where the host reviews its own permissions.
pub const OWN_PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A question about the service account of a controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessReview {
    /// May the host impersonate this account, for its live reads and its writes? Displays
    /// as `impersonate davit-system/davit-podgc`.
    Impersonation(Account),
    /// May the account read this? Displays like its [`Access`].
    Access(Access),
}

/// A permission of an account. Displays as
/// `list coordination.k8s.io/leases in kube-system`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
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
    /// The account that the question is about.
    #[must_use]
    pub fn account(&self) -> &Account {
        match self {
            Self::Impersonation(account) | Self::Access(Access { account, .. }) => account,
        }
    }

    /// The request that asks the API server.
    #[must_use]
    pub fn request(&self) -> Request {
        let (uri, kind, spec) = match self {
            Self::Impersonation(Account { namespace, name }) => {
                let attributes = json!({
                    "verb": "impersonate", "group": "", "resource": "serviceaccounts",
                    "namespace": namespace, "name": name,
                });
                let spec = json!({"resourceAttributes": attributes});
                (OWN_PATH, "SelfSubjectAccessReview", spec)
            }
            Self::Access(access) => {
                let attributes = json!({
                    "verb": access.verb, "group": access.group, "resource": access.resource,
                    "namespace": access.namespace,
                });
                let account = &access.account;
                let spec = json!({
                    "user": account.user(), "groups": account.groups(),
                    "resourceAttributes": attributes,
                });
                (PATH, "SubjectAccessReview", spec)
            }
        };
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec,
        });
        Request {
            method: Method::Post,
            uri: uri.to_owned(),
            accept: JSON,
            content_type: JSON,
            body: body.to_string().into_bytes(),
        }
    }

    /// The answer to [`Self::request`]. Fails if the API server has not decided.
    pub fn answer(&self, answer: Result<&[u8], &RequestError>) -> Result<ReviewAnswer, Failure> {
        let attempt = match self {
            Self::Impersonation(_) => format!("review whether Davit may {self}"),
            Self::Access(access) => format!("review whether {} may {self}", access.account),
        };
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
        match self {
            Self::Impersonation(account) => write!(f, "impersonate {account}"),
            Self::Access(access) => access.fmt(f),
        }
    }
}

impl fmt::Display for Access {
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

    fn account() -> Account {
        Account {
            namespace: "davit".to_owned(),
            name: "gc".to_owned(),
        }
    }

    fn access() -> Access {
        Access {
            account: account(),
            group: "coordination.k8s.io".to_owned(),
            resource: "leases".to_owned(),
            namespace: "kube-system".to_owned(),
            verb: "list",
        }
    }

    fn review() -> AccessReview {
        AccessReview::Access(access())
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

    /// As `rest.ImpersonatingConfig` needs it: the verb on the service account by name.
    #[test]
    fn the_host_asks_about_itself_whether_it_may_impersonate() {
        let Request { uri, body, .. } = AccessReview::Impersonation(account()).request();
        assert_eq!(uri, OWN_PATH);
        let body: Value = serde_json::from_slice(&body).unwrap();
        let expected = json!({
            "resourceAttributes": {
                "verb": "impersonate", "group": "", "resource": "serviceaccounts",
                "namespace": "davit", "name": "gc",
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
        let failure = AccessReview::Impersonation(account()).answer(Err(&lost));
        assert_eq!(
            failure.unwrap_err().message,
            "review whether Davit may impersonate davit/gc: no answer: cut"
        );
    }

    #[test]
    fn a_review_of_everything_says_so() {
        let all = Access {
            group: "*".to_owned(),
            resource: "*".to_owned(),
            namespace: String::new(),
            ..access()
        };
        assert_eq!(all.to_string(), "list every resource");
    }
}
