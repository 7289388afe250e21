//! Who may use the host's port. The API server decides: it authenticates the bearer token
//! of a request and authorizes its user for the path, as kube-controller-manager has it
//! do for its own `/metrics`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::header::{
    AUTHORIZATION, CONNECTION, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE,
};
use hyper::{Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::requests::{name_in, status};
use super::server::Answer;
use crate::resource::describe;

/// The token of a request through the API server's proxy, which removes
/// `Authorization`.
pub const PROXIED: HeaderName = HeaderName::from_static("x-davit-authorization");

/// How long an answer of the API server holds, as in kube-controller-manager.
const HOLDS_FOR: Duration = Duration::from_secs(10);
/// The most answers that are kept.
const MOST_ANSWERS: usize = 1000;
/// The most questions to the API server at a time.
const MOST_REVIEWS: usize = 4;
/// How long the API server may take for both answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who may use the port.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everyone who reaches it. For a port on loopback.
    Everyone,
    /// Users whom the API server authenticates and authorizes.
    Reviewed(Arc<Reviewer>),
}

/// By [`key`], until when each answer holds.
type KnownAnswers = HashMap<[u8; 32], (Instant, Result<(), Denial>)>;

/// Asks the API server about users.
pub struct Reviewer {
    client: Client,
    slots: Semaphore,
    /// The definite answers.
    known: Mutex<KnownAnswers>,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reviewer")
    }
}

/// Why a request is denied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// It has no token.
    #[error(
        "a bearer token is required: send the header Authorization: Bearer TOKEN, with a token \
         that kubectl create token prints for a ServiceAccount with the ClusterRole davit-viewer or, \
         for the log, davit-operator (davit: --token-file)"
    )]
    NoToken,
    /// The API server does not know the token.
    #[error("the API server does not accept the bearer token: it may have expired")]
    Unknown,
    /// The user lacks the permission.
    #[error(
        "{user} cannot {verb} {path}: bind a ClusterRole with that path in nonResourceURLs, such \
         as davit-viewer, or davit-operator for the log; or for the controllers of a file, one \
         with the resource controllers.davit.dev"
    )]
    Forbidden {
        /// The user's name.
        user: String,
        /// The method, in lower case.
        verb: String,
        /// The path.
        path: String,
    },
    /// The API server gave no answer.
    #[error("cannot ask the API server who sends this request: {0}")]
    Unavailable(String),
}

impl Access {
    /// Asks the API server.
    #[must_use]
    pub fn reviewed(client: Client) -> Self {
        Self::Reviewed(Arc::new(Reviewer {
            client,
            slots: Semaphore::new(MOST_REVIEWS),
            known: Mutex::default(),
        }))
    }

    pub(super) async fn check<B>(&self, request: &Request<B>) -> Result<(), Denial> {
        match self {
            Self::Everyone => Ok(()),
            Self::Reviewed(reviewer) => {
                let token = token(request.headers()).ok_or(Denial::NoToken)?;
                let verb = request.method().as_str().to_ascii_lowercase();
                reviewer.check(token, &verb, request.uri().path()).await
            }
        }
    }
}

impl Reviewer {
    async fn check(&self, token: &str, verb: &str, path: &str) -> Result<(), Denial> {
        let key = key(token, verb, path);
        if let Some(answer) = self.known(&key) {
            return answer;
        }
        let review = async {
            let _slot = self.slots.acquire().await;
            match self.known(&key) {
                Some(answer) => answer,
                None => self.review(token, verb, path).await,
            }
        };
        let answer = timeout(PATIENCE, review).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", PATIENCE.as_secs());
            Err(Denial::Unavailable(reason))
        });
        if !matches!(answer, Err(Denial::Unavailable(_))) {
            self.remember(key, &answer);
        }
        answer
    }

    async fn review(&self, token: &str, verb: &str, path: &str) -> Result<(), Denial> {
        let unavailable = |error: kube::Error| Denial::Unavailable(describe(&error));
        let question = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &question).await;
        let status = answer.map_err(unavailable)?.status.unwrap_or_default();
        let user = match status.user {
            Some(user) if status.authenticated == Some(true) => user,
            _ => return Err(Denial::Unknown),
        };
        let name = user.username.clone().unwrap_or_default();
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let question = access_review(user, verb, path);
        let answer = reviews.create(&PostParams::default(), &question).await;
        let status = answer.map_err(unavailable)?.status.unwrap_or_default();
        if status.allowed {
            return Ok(());
        }
        Err(Denial::Forbidden {
            user: name,
            verb: verb.to_owned(),
            path: path.to_owned(),
        })
    }

    fn known(&self, key: &[u8; 32]) -> Option<Result<(), Denial>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = known.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn remember(&self, key: [u8; 32], answer: &Result<(), Denial>) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_ANSWERS {
            // Whoever tries many tokens must not displace those that are valid.
            known.retain(|_, (until, answer)| now < *until && answer.is_ok());
        }
        if known.len() < MOST_ANSWERS {
            known.insert(key, (now + HOLDS_FOR, answer.clone()));
        }
    }
}

impl Denial {
    /// The answer in the form of an API server.
    pub(super) fn answer(&self) -> Answer {
        let (code, reason) = match self {
            Self::NoToken | Self::Unknown => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::Forbidden { .. } => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        };
        let mut answer = status(code, reason, &self.to_string());
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
        if code == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        answer
    }
}

/// The bearer token of a request.
fn token(headers: &HeaderMap) -> Option<&str> {
    let header = headers
        .get(AUTHORIZATION)
        .or_else(|| headers.get(PROXIED))?;
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Identifies a question without the token itself, which a dump of memory would show.
fn key(token: &str, verb: &str, path: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [token, verb, path] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Whether a user may use a path. The controllers of a file are the resource whose path they
/// have: every user of a cluster may get the paths below `/apis` for discovery.
fn access_review(user: UserInfo, verb: &str, path: &str) -> SubjectAccessReview {
    let text = |text: &str| Some(text.to_owned());
    let controllers = name_in(path).map(|name| ResourceAttributes {
        group: text("davit.dev"),
        version: text("v1alpha1"),
        resource: text("controllers"),
        name: text(name).filter(|name| !name.is_empty()),
        verb: text(if verb == "get" && name.is_empty() {
            "list"
        } else {
            verb
        }),
        ..ResourceAttributes::default()
    });
    let other = controllers.is_none().then(|| NonResourceAttributes {
        path: text(path),
        verb: text(verb),
    });
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: other,
            resource_attributes: controllers,
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_either_header() {
        for (name, value, expected) in [
            ("authorization", "Bearer abc", Some("abc")),
            ("authorization", "bearer  abc ", Some("abc")),
            ("x-davit-authorization", "Bearer abc", Some("abc")),
            ("authorization", "Basic abc", None),
            ("authorization", "Bearer", None),
            ("authorization", "Bearer ", None),
            ("cookie", "Bearer abc", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            assert_eq!(token(&headers), expected, "{name}: {value}");
        }
    }

    #[test]
    fn the_controllers_of_a_file_are_reviewed_as_a_resource() {
        let path = "/apis/davit.dev/v1alpha1/controllers";
        for (verb, path, resource, other) in [
            ("get", path.to_owned(), Some(("list", None)), None),
            (
                "get",
                format!("{path}/podgc"),
                Some(("get", Some("podgc"))),
                None,
            ),
            (
                "patch",
                format!("{path}/podgc"),
                Some(("patch", Some("podgc"))),
                None,
            ),
            ("get", "/metrics".to_owned(), None, Some("/metrics")),
            (
                "get",
                format!("{path}x"),
                None,
                Some("/apis/davit.dev/v1alpha1/controllersx"),
            ),
        ] {
            let spec = access_review(UserInfo::default(), verb, &path).spec;
            let found = spec.resource_attributes.as_ref().map(|asked| {
                assert_eq!(asked.group.as_deref(), Some("davit.dev"));
                (asked.verb.as_deref().unwrap(), asked.name.as_deref())
            });
            assert_eq!(found, resource, "{path}");
            let found = spec.non_resource_attributes.and_then(|asked| asked.path);
            assert_eq!(found.as_deref(), other, "{path}");
        }
    }

    #[test]
    fn questions_that_differ_have_different_keys() {
        let questions = [
            ("token", "get", "/metrics"),
            ("other", "get", "/metrics"),
            ("token", "patch", "/metrics"),
            ("token", "get", "/livez"),
            ("tokeng", "et", "/metrics"),
        ];
        let keys: std::collections::BTreeSet<[u8; 32]> = questions
            .iter()
            .map(|(token, verb, path)| key(token, verb, path))
            .collect();
        assert_eq!(keys.len(), questions.len());
    }
}
