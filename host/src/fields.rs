//! Checks the fields that a policy names against what the API server publishes.
//!
//! The guest `policy` knows the fields of Kubernetes' own kinds in one version, and refuses others
//! itself. Which fields the API server's version has, and those of custom resources, is judged
//! here by the guest's own code: so a mistake is refused in the same words, before the revision
//! runs. It is a help, not a guard: an API server that publishes nothing, or does not answer, keeps
//! no controller from running.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use davit_core::load::{LoadErrorKind, RevisionLoadError};
use davit_core::manifest::{Manifest, Source};
use davit_core::object::ApiResource;
use davit_core::revision::RevisionIdentity;
use davit_core::untrusted;
use policy::explain::{self, ConfigError, Published as Known};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::published::{Fields, Published, undescribed};
use crate::repeat::RepeatedLine;

/// The guest whose configuration is checked.
const GUEST: &str = "policy";

/// How long a start waits for the API server's answers to its own requests.
const PATIENCE: Duration = Duration::from_secs(5);

/// The stack of the thread that reads expressions: they nest deep.
const STACK: usize = 16 << 20;

static NOT_CHECKED: RepeatedLine = RepeatedLine::new();

/// The check of one API server.
pub(crate) struct FieldCheck {
    published: Published,
}

impl FieldCheck {
    /// The check against what this API server publishes.
    pub(crate) fn by(client: kube::Client) -> Self {
        Self {
            published: Published::by(client),
        }
    }

    /// Refuses a revision whose configuration names a field that objects do not have.
    pub(crate) async fn check(
        &self,
        identity: &RevisionIdentity,
        manifest: &Manifest,
    ) -> Result<(), RevisionLoadError> {
        let resources = watched(manifest);
        if manifest.name != GUEST || resources.is_empty() {
            return Ok(());
        }
        match self.checked(&resources, identity.config().to_vec()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(mistake)) => Err(refusal(&mistake)),
            Err(why) => {
                let resources = resources.iter().map(ToString::to_string);
                note(&resources.collect::<Vec<_>>().join(", "), &why);
                Ok(())
            }
        }
    }

    /// Whether objects have the fields that a configuration names; an error if that is unknown.
    async fn checked(
        &self,
        resources: &BTreeSet<ApiResource>,
        config: Vec<u8>,
    ) -> Result<Result<(), ConfigError>, String> {
        let fields = match timeout(PATIENCE, self.published.fields(resources)).await {
            Ok(Ok(Some(fields))) => {
                let undescribed = undescribed(resources, &fields);
                if !undescribed.is_empty() {
                    note(&undescribed.join(", "), "it does not describe them");
                }
                published(&fields)
            }
            Ok(Ok(None)) => return Err("the API server publishes no OpenAPI documents".to_owned()),
            Ok(Err(error)) => return Err(format!("{error:#}")),
            Err(_) => return Err(format!("the API server did not answer within {PATIENCE:?}")),
        };
        let check = move || {
            let thread = thread::Builder::new().name("fields".to_owned());
            let check = move || explain::check(&config, &fields);
            thread.stack_size(STACK).spawn(check).ok()?.join().ok()
        };
        let checked = spawn_blocking(check).await.ok().flatten();
        checked.ok_or_else(|| "the check ended without an answer".to_owned())
    }
}

/// The same, as the guest's code takes it.
pub(crate) fn published(fields: &Fields) -> Known {
    let mut known = Known::default();
    for (resource, objects) in fields {
        let ApiResource {
            group,
            version,
            plural,
        } = resource;
        known.insert(group, version, plural, Arc::clone(objects));
    }
    known
}

/// The resources that a guest watches.
fn watched(manifest: &Manifest) -> BTreeSet<ApiResource> {
    let watched = manifest.watches.iter().filter_map(|it| match &it.source {
        Source::One(resource) => Some(resource),
        Source::EveryDeletable(_) => None,
    });
    watched.cloned().collect()
}

fn refusal(mistake: &ConfigError) -> RevisionLoadError {
    // The suggestion is a text of whoever has defined the resource.
    let line = |text: &str| untrusted::line(text, untrusted::MOST_LOGGED);
    let (field, reason) = (line(&mistake.field), line(&mistake.message));
    let message = format!("the configuration is not valid: {field}: {reason}");
    RevisionLoadError::new(LoadErrorKind::UnknownField { field, reason }, message)
}

fn note(resources: &str, why: &str) {
    if let Some(suppressed) = NOT_CHECKED.admit(&format!("{resources}: {why}")) {
        tracing::info!(
            "the fields of {resources} are not checked against the API server: {why}{suppressed}"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::join;
    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;

    const SITES: &str = "/openapi/v3/apis/example.dev/v1?hash=1";
    const OTHERS: &str = "/openapi/v3/apis/other.dev/v1?hash=2";

    /// An API server that answers so after a second, or never.
    fn server(
        answer: impl Fn(&str) -> Option<(StatusCode, Value)> + Clone + Send + 'static,
    ) -> FieldCheck {
        let service = service_fn(move |request: Request<Body>| {
            let answer = answer(&request.uri().to_string());
            async move {
                let Some((status, body)) = answer else {
                    return std::future::pending().await;
                };
                sleep(Duration::from_secs(1)).await;
                let body = Body::from(body.to_string().into_bytes());
                let response = Response::builder().status(status).body(body).unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        FieldCheck::by(kube::Client::new(service, "default"))
    }

    fn documents(path: &str) -> (StatusCode, Value) {
        let site = json!({"group": "example.dev", "version": "v1", "kind": "Site"});
        let body = match path {
            "/openapi/v3" => json!({"paths": {
                "apis/example.dev/v1": {"serverRelativeURL": SITES},
                "apis/other.dev/v1": {"serverRelativeURL": OTHERS},
            }}),
            SITES => json!({
                "paths": {"/apis/example.dev/v1/sites/{name}": {
                    "get": {"x-kubernetes-group-version-kind": site},
                }},
                "components": {"schemas": {"Site": {
                    "type": "object", "properties": {"size": {"type": "integer"}},
                    "x-kubernetes-group-version-kind": [site],
                }}},
            }),
            _ => {
                return (
                    StatusCode::NOT_FOUND,
                    json!({"kind": "Status", "code": 404}),
                );
            }
        };
        (StatusCode::OK, body)
    }

    async fn check(fields: &FieldCheck, when: &str) -> Result<Result<(), ConfigError>, String> {
        check_in(fields, "example.dev", when).await
    }

    /// Checks a policy for the sites of a group.
    async fn check_in(
        fields: &FieldCheck,
        group: &str,
        when: &str,
    ) -> Result<Result<(), ConfigError>, String> {
        let rule = json!({
            "name": "a", "match": {"resource": format!("sites.v1.{group}")}, "when": when,
            "do": {"delete": {}},
        });
        let config = davit_core::api::encode_config(&json!({"rules": [rule]})).unwrap();
        let resources = BTreeSet::from([ApiResource::new(group, "v1", "sites")]);
        fields.checked(&resources, config).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_is_judged_by_what_the_server_publishes() {
        let fields = server(|path| Some(documents(path)));
        assert_eq!(check(&fields, "object.size > 3").await, Ok(Ok(())));
        let mistake = check(&fields, "object.sise > 3")
            .await
            .unwrap()
            .unwrap_err();
        let error = refusal(&mistake);
        assert_eq!(
            error.to_string(),
            "config: the configuration is not valid: rules[0].when: rule a: column 8: object has no \
             field \"sise\"; did you mean \"size\"?"
        );
        assert_eq!(error.in_spec().field, "config.rules[0].when");
    }

    /// The fields of pods in a server that has one of them no more, and another one already.
    fn pods(path: &str) -> (StatusCode, Value) {
        let pod = json!({"group": "", "version": "v1", "kind": "Pod"});
        let schema =
            |name: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}]});
        let body = if path == "/openapi/v3" {
            json!({"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=1"}}})
        } else {
            json!({
                "paths": {"/api/v1/namespaces/{namespace}/pods/{name}": {
                    "parameters": [{"name": "pretty", "in": "query"}],
                    "get": {"x-kubernetes-group-version-kind": pod},
                }},
                "components": {"schemas": {
                    "Pod": {
                        "type": "object", "x-kubernetes-group-version-kind": [pod],
                        "properties": {
                            "metadata": schema("ObjectMeta"), "spec": schema("PodSpec"),
                            "status": {"type": "object"},
                        },
                    },
                    "ObjectMeta": {"type": "object", "properties": {
                        "creationTimestamp": {"type": "string", "format": "date-time"},
                    }},
                    "PodSpec": {"type": "object", "properties": {
                        "nodeName": {"type": "string"},
                        "mood": {"type": "string"},
                    }},
                }},
            })
        };
        (StatusCode::OK, body)
    }

    /// What the guest says of a policy for pods, and then the API server.
    async fn check_pods(when: &str) -> (Result<(), String>, Result<(), String>) {
        let rule = json!({
            "name": "a", "match": {"resource": "pods"}, "when": when, "do": {"delete": {}},
        });
        let config = davit_core::api::encode_config(&json!({"rules": [rule]})).unwrap();
        let in_words = |it: ConfigError| it.message;
        let guest = explain::check(&config, &Known::default()).map_err(in_words);
        let resources = BTreeSet::from([ApiResource::new("", "v1", "pods")]);
        let server = server(|path| Some(pods(path)));
        let judged = server.checked(&resources, config).await.unwrap();
        (guest, judged.map_err(in_words))
    }

    #[tokio::test(start_paused = true)]
    async fn a_field_of_a_built_in_kind_is_one_of_the_servers_version() {
        let (guest, server) = check_pods("object.spec.priority > 3").await;
        assert_eq!(guest, Ok(()));
        let refused = "rule a: column 13: object.spec has no field \"priority\"";
        assert_eq!(server, Err(refused.to_owned()));

        // Davit may be older than the server.
        let (guest, _) = check_pods("object.spec.mood == 'low'").await;
        let guest = guest.unwrap_err();
        assert!(guest.ends_with("is read as [\"mood\"]"), "{guest}");
        let both = check_pods("object.spec['mood'] == 'low'").await;
        assert_eq!(both, (Ok(()), Ok(())));
        let (guest, server) = check_pods("object.spec['moot'] == 'low'").await;
        assert_eq!(guest, Ok(()));
        let refused =
            "rule a: column 13: object.spec has no field \"moot\"; did you mean \"mood\"?";
        assert_eq!(server, Err(refused.to_owned()));

        // What both have keeps its type, and what the server does not describe is Davit's.
        let (_, server) =
            check_pods("now - object.metadata.creationTimestamp > duration('1h')").await;
        assert_eq!(server, Ok(()));
        let (_, server) = check_pods("object.status.fase == 'Failed'").await;
        assert!(server.unwrap_err().ends_with("did you mean \"phase\"?"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_publishes_nothing_or_does_not_answer_refuses_nothing() {
        type Answer = fn(&str) -> Option<(StatusCode, Value)>;
        let answers: [(Answer, &str); 4] = [
            (|_| None, "did not answer within 5s"),
            (
                |_| {
                    Some((
                        StatusCode::NOT_FOUND,
                        json!({"kind": "Status", "code": 404}),
                    ))
                },
                "publishes no OpenAPI documents",
            ),
            (
                |_| {
                    Some((
                        StatusCode::FORBIDDEN,
                        json!({"kind": "Status", "code": 403}),
                    ))
                },
                "/openapi/v3 cannot be read",
            ),
            (
                |path| match path {
                    "/openapi/v3" => Some(documents(path)),
                    _ => None,
                },
                "did not answer within 5s",
            ),
        ];
        for (answer, why) in answers {
            let unknown = check(&server(answer), "object.sise > 3").await.unwrap_err();
            assert!(unknown.contains(why), "{unknown}");
        }
        // What is not described may be anything.
        let empty: Answer = |_| Some((StatusCode::OK, json!({})));
        assert_eq!(check(&server(empty), "object.sise > 3").await, Ok(Ok(())));
    }
    #[tokio::test(start_paused = true)]
    async fn a_document_that_hangs_concerns_only_the_policies_that_need_it() {
        let fields = server(|path| (path != OTHERS).then(|| documents(path)));
        let soon = async {
            sleep(Duration::from_millis(500)).await;
            check(&fields, "object.sise > 3").await
        };
        let (hangs, judged) = join!(check_in(&fields, "other.dev", "object.sise > 3"), soon);
        let why = hangs.unwrap_err();
        assert!(why.contains("did not answer within 5s"), "{why}");
        assert!(judged.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn policies_that_start_together_read_a_document_once() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&log);
        let fields = server(move |path| {
            seen.lock().unwrap().push(path.to_owned());
            Some(documents(path))
        });
        let (one, other) = join!(
            check(&fields, "object.sise > 3"),
            check(&fields, "object.size > 3")
        );
        assert!(one.unwrap().is_err());
        assert_eq!(other, Ok(Ok(())));
        let reads = |log: &[String]| log.iter().filter(|path| *path == SITES).count();
        assert_eq!(reads(&log.lock().unwrap()), 1);
        // Nor is it read again while its URL is the same.
        assert_eq!(check(&fields, "object.size > 3").await, Ok(Ok(())));
        assert_eq!(reads(&log.lock().unwrap()), 1);
    }
}
