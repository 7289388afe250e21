use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::refusal::ErrorResponse;
use crate::request::NoAnswer;

/// The answers of a server by path: a body, or why there is none.
type Answers = BTreeMap<&'static str, Result<String, RequestError>>;

fn refused(code: u16, reason: &str, message: &str) -> RequestError {
    let status = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
    let refused = ErrorResponse::read(code, None, status.to_string().as_bytes());
    RequestError::Refused(Box::new(refused))
}

fn answers<const N: usize>(all: [(&'static str, Value); N]) -> Answers {
    let all = all.map(|(path, body)| (path, Ok(body.to_string())));
    BTreeMap::from(all)
}

/// Sends requests to this server; the last request that was sent is answered first.
fn discover(answers: &Answers) -> Result<Discovery, Failure> {
    discover_and_count(answers).0
}

/// The same, with the largest number of requests under way.
fn discover_and_count(answers: &Answers) -> (Result<Discovery, Failure>, usize) {
    let mut attempt = DiscoveryAttempt::start();
    let (mut under_way, mut most) = (Vec::new(), 0);
    loop {
        match attempt.poll() {
            ParallelAction::Send(number, request) => {
                under_way.push((number, request));
                most = most.max(under_way.len());
            }
            ParallelAction::Wait => {
                let (number, request) = under_way.pop().expect("a request is under way");
                let answer = answers.get(&*request.uri).cloned();
                let answer = answer.unwrap_or_else(|| Err(refused(404, "NotFound", "nothing")));
                attempt.handle(number, answer.as_deref().map(str::as_bytes));
            }
            ParallelAction::Done(result) => return (result, most),
        }
    }
}

fn resource(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "verbs": ["get", "list", "watch", "delete"],
        "subresources": [{"subresource": "status", "verbs": ["get"]}],
    })
}

fn aggregated(items: Value) -> Value {
    let mut body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
    });
    body["items"] = items;
    body
}

/// Pods.
fn core() -> Value {
    aggregated(json!([{"versions": [
        {"version": "v1", "resources": [resource("pods", "Pod", "Namespaced")]},
    ]}]))
}

/// One group with these versions.
fn group(versions: Value) -> Value {
    let mut group = json!({"metadata": {"name": "example.com"}});
    group["versions"] = versions;
    aggregated(json!([group]))
}

fn gadgets() -> Value {
    group(json!([{"version": "v1", "resources": [resource("gadgets", "Gadget", "Namespaced")]}]))
}

fn lookup<'a>(found: &'a Discovery, api_version: &str, kind: &str) -> Option<&'a ServedResource> {
    found.mapping.by_kind(api_version, kind)
}

#[test]
fn two_requests_discover_everything() {
    let answers = answers([
        (
            "/api",
            aggregated(json!([{"versions": [{
                "version": "v1",
                "freshness": "Current",
                "resources": [
                    resource("pods", "Pod", "Namespaced"),
                    resource("nodes", "Node", "Cluster"),
                    {"resource": "odd", "scope": "Cluster", "responseKind": {}},
                ],
            }]}])),
        ),
        (
            "/apis",
            aggregated(json!([
                {"metadata": {"name": "example.com"}, "versions": [
                    {"version": "v1", "resources": [resource("gadgets", "Gadget", "Namespaced")]},
                    {"version": "v1beta1", "resources": [
                        resource("gadgets", "Gadget", "Namespaced"),
                        resource("widgets", "Widget", "Cluster"),
                    ]},
                ]},
                {"metadata": {"name": "metrics.k8s.io"}, "versions": [
                    {"version": "v1beta1", "freshness": "Stale"},
                ]},
            ])),
        ),
    ]);
    let (found, most) = discover_and_count(&answers);
    assert_eq!(most, 2);
    let found = found.unwrap();
    let pod = lookup(&found, "v1", "Pod").unwrap();
    assert!(pod.namespaced && pod.preferred);
    assert_eq!(pod.resource, ApiResource::new("", "v1", "pods"));
    assert!(!lookup(&found, "v1", "Node").unwrap().namespaced);
    let is_preferred = |version, kind| lookup(&found, version, kind).unwrap().preferred;
    assert!(is_preferred("example.com/v1", "Gadget"));
    assert!(!is_preferred("example.com/v1beta1", "Gadget"));
    // Only the older version has it.
    assert!(is_preferred("example.com/v1beta1", "Widget"));
    assert_eq!(found.mapping.iter().count(), 5);
    assert!(!found.is_complete());
    assert_eq!(found.failed[0].0, "metrics.k8s.io/v1beta1");
}

/// The answers of a server before 1.26, whose group has these versions, `v1` preferred.
fn plain(versions: &[&str]) -> Answers {
    let list = |name: &str, kind: &str| {
        json!({"kind": "APIResourceList", "resources": [
            {"name": name, "kind": kind, "namespaced": true, "verbs": ["get"]},
            {"name": format!("{name}/status"), "kind": kind, "namespaced": true, "verbs": ["get"]},
        ]})
    };
    let versions: Vec<Value> = versions.iter().map(|it| json!({"version": it})).collect();
    answers([
        ("/api", json!({"kind": "APIVersions", "versions": ["v1"]})),
        (
            "/apis",
            json!({"kind": "APIGroupList", "groups": [{
                "name": "example.com",
                "versions": versions,
                "preferredVersion": {"version": "v1"},
            }]}),
        ),
        ("/api/v1", list("pods", "Pod")),
        ("/apis/example.com/v1", list("gadgets", "Gadget")),
        ("/apis/example.com/v2", list("gadgets", "Gadget")),
    ])
}

#[test]
fn every_version_is_requested_from_an_older_server() {
    let mut answers = plain(&["v2", "v1", "v0"]);
    let down = refused(503, "ServiceUnavailable", "down");
    answers.insert("/apis/example.com/v0", Err(down));
    let found = discover(&answers).unwrap();
    assert_eq!(found.mapping.iter().count(), 3);
    let is_preferred = |version, kind| lookup(&found, version, kind).unwrap().preferred;
    assert!(is_preferred("v1", "Pod"));
    assert!(is_preferred("example.com/v1", "Gadget"));
    assert!(!is_preferred("example.com/v2", "Gadget"));
    let (group_version, reason) = &found.failed[0];
    assert_eq!(group_version, "example.com/v0");
    assert!(reason.contains("503 ServiceUnavailable: down"), "{reason}");
}

#[test]
fn at_most_eight_requests_are_under_way() {
    let names: Vec<String> = (1..=20).map(|number| format!("v{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (found, most) = discover_and_count(&plain(&names));
    assert_eq!(most, 8);
    // Every request has been sent: all other versions answer 404.
    let found = found.unwrap();
    assert_eq!(found.mapping.iter().count(), 3);
    assert_eq!(found.failed.len(), 18);
}

#[test]
fn discovery_without_groups_fails() {
    let mut answers = answers([("/api", aggregated(json!([])))]);
    answers.insert("/apis", Err(refused(500, "InternalError", "oh")));
    let failure = discover(&answers).unwrap_err();
    assert_eq!(failure.class, FailureClass::Server);
    assert_eq!(
        failure.message,
        "discover /apis: the server answered 500 InternalError: oh"
    );
}

#[test]
fn an_empty_answer_is_a_failure() {
    let empty = || aggregated(json!([]));
    let failure = discover(&answers([("/api", empty()), ("/apis", empty())])).unwrap_err();
    assert_eq!(failure.class, FailureClass::Server);
    assert_eq!(
        failure.message,
        "ask what is served: the answer names no resource"
    );
}

/// Otherwise, the resources of the other half would count as not served.
#[test]
fn a_half_empty_answer_is_a_failure() {
    let none = json!([{"versions": [{"version": "v1", "resources": []}]}]);
    for (core, named, path) in [
        (aggregated(json!([])), gadgets(), "/api"),
        (aggregated(none), gadgets(), "/api"),
        (core(), aggregated(json!([])), "/apis"),
        (
            core(),
            json!({"kind": "APIGroupList", "groups": []}),
            "/apis",
        ),
    ] {
        let failure = discover(&answers([("/api", core), ("/apis", named)])).unwrap_err();
        let expected = format!("discover {path}: the answer names no resource");
        assert_eq!(failure.message, expected);
    }
}

/// What cannot be read is unknown: the known groups stay.
#[test]
fn an_answer_that_no_server_gives_is_a_failure() {
    let unnamed = aggregated(json!([{"versions": [
        {"version": "v1", "resources": [resource("pods", "Impostor", "Cluster")]},
    ]}]));
    let no_version = aggregated(json!([{"metadata": {"name": "example.com"}}]));
    let no_name = group(json!([{"version": ""}]));
    for (root, body, problem) in [
        ("/apis", unnamed, "it names a group \"\""),
        ("/api", gadgets(), "it names a group \"example.com\""),
        (
            "/apis",
            no_version,
            "the group \"example.com\" has no version",
        ),
        (
            "/apis",
            no_name,
            "the group \"example.com\" has a version without a name",
        ),
        ("/api", json!("nonsense"), ""),
        ("/apis", json!({"kind": "Status", "code": 200}), ""),
        ("/apis", json!({"kind": "APIGroupDiscoveryList"}), ""),
    ] {
        let mut answers = answers([("/api", core()), ("/apis", gadgets())]);
        answers.insert(root, Ok(body.to_string()));
        let failure = discover(&answers).unwrap_err();
        assert_eq!(failure.class, FailureClass::Server);
        let expected = format!("discover {root}: the answer cannot be read: {problem}");
        assert!(failure.message.starts_with(&expected), "{failure}");
    }
}

/// Every prefix of an answer is refused, whatever it names completely.
#[test]
fn an_answer_that_is_cut_off_is_a_failure() {
    for (root, body) in [("/api", core()), ("/apis", gadgets())] {
        let whole = body.to_string();
        for length in 0..whole.len() {
            let mut answers = answers([("/api", core()), ("/apis", gadgets())]);
            let cut = whole.get(..length).unwrap().to_owned();
            answers.insert(root, Ok(cut));
            assert!(discover(&answers).is_err(), "{length} bytes of {root}");
        }
    }
    // In the plain form, only this group version is unknown.
    let mut answers = plain(&["v1"]);
    let whole = answers["/apis/example.com/v1"].clone().unwrap();
    for length in 0..whole.len() {
        let cut = whole.get(..length).unwrap().to_owned();
        answers.insert("/apis/example.com/v1", Ok(cut));
        let found = discover(&answers).unwrap();
        assert!(lookup(&found, "v1", "Pod").is_some());
        assert_eq!(found.failed[0].0, "example.com/v1", "{length} bytes");
    }
}

/// A root that does not answer proves nothing about its groups.
#[test]
fn a_root_that_does_not_answer_is_a_failure() {
    let silence = RequestError::NoAnswer(NoAnswer::silence(std::time::Duration::from_secs(30)));
    for error in [refused(404, "NotFound", "no"), silence] {
        for root in ["/api", "/apis"] {
            let mut answers = answers([("/api", core()), ("/apis", gadgets())]);
            answers.insert(root, Err(error.clone()));
            let failure = discover(&answers).unwrap_err();
            let expected = format!("discover {root}: ");
            assert!(failure.message.starts_with(&expected), "{failure}");
        }
    }
}

/// The list of groups names the version: it may be served, whatever its own answer is.
#[test]
fn a_version_that_answers_404_has_failed() {
    let mut answers = plain(&["v1", "v2"]);
    answers.remove("/apis/example.com/v1");
    let found = discover(&answers).unwrap();
    assert_eq!(found.failed[0].0, "example.com/v1");
    assert!(lookup(&found, "example.com/v2", "Gadget").is_some());
    // All that it had is kept.
    let before = discover(&plain(&["v1", "v2"])).unwrap().mapping;
    let failed = [found.failed[0].0.clone()];
    assert_eq!(found.mapping.or_from(&before, &failed).iter().count(), 3);
}

/// With the wrong scope, an owner that exists would answer 404: it would seem deleted.
#[test]
fn a_resource_without_a_known_scope_or_name_fails_its_version() {
    let problems = [
        (
            resource("gizmos", "Gizmo", ""),
            "\"gizmos\" has the scope \"\"",
        ),
        (
            resource("gizmos", "Gizmo", "namespaced"),
            "\"gizmos\" has the scope \"namespaced\"",
        ),
        (
            resource("", "Gizmo", "Cluster"),
            "of the kind \"Gizmo\" has no name",
        ),
    ];
    for (bad, problem) in problems {
        let good = resource("gadgets", "Gadget", "Namespaced");
        let versions = json!([{"version": "v1", "resources": [bad, good]}]);
        let found = discover(&answers([("/api", core()), ("/apis", group(versions))])).unwrap();
        assert!(lookup(&found, "example.com/v1", "Gizmo").is_none());
        assert!(lookup(&found, "example.com/v1", "Gadget").is_some());
        let expected = [(
            "example.com/v1".to_owned(),
            format!("the resource {problem}"),
        )];
        assert_eq!(found.failed, expected);
    }
    for bad in [
        json!({"name": "", "kind": "Gizmo", "namespaced": true}),
        json!({"name": "gizmos", "kind": "Gizmo"}),
    ] {
        let mut answers = plain(&["v1"]);
        let list = json!({"resources": [bad]}).to_string();
        answers.insert("/apis/example.com/v1", Ok(list));
        let found = discover(&answers).unwrap();
        assert_eq!(found.failed[0].0, "example.com/v1");
    }
}

/// A Go server writes a list without elements as null. Adapters of metrics and `KubeVirt` serve
/// subresources and actions without a resource of their own.
#[test]
fn an_empty_list_may_be_null_and_an_action_has_no_kind() {
    let mut action = resource("expand-vm-spec", "", "Namespaced");
    action["verbs"] = Value::Null;
    action["subresources"] = Value::Null;
    let good = resource("gadgets", "Gadget", "Namespaced");
    let versions = json!([
        {"version": "v1", "resources": [action, good]},
        {"version": "v2", "resources": null, "freshness": "Current"},
    ]);
    let found = discover(&answers([("/api", core()), ("/apis", group(versions))])).unwrap();
    assert!(lookup(&found, "example.com/v1", "Gadget").is_some());
    assert!(found.is_complete(), "{:?}", found.failed);

    let mut answers = plain(&["v1", "v2"]);
    let list = json!({"resources": [
        {"name": "gadgets", "kind": "Gadget", "namespaced": true, "verbs": ["get"]},
        {"name": "machines/vnc", "kind": "", "namespaced": true, "verbs": null},
        {"name": "expand-vm-spec", "kind": "", "namespaced": true, "verbs": null},
    ]});
    answers.insert("/apis/example.com/v1", Ok(list.to_string()));
    let none = json!({"kind": "APIResourceList", "resources": null});
    answers.insert("/apis/example.com/v2", Ok(none.to_string()));
    let found = discover(&answers).unwrap();
    assert!(lookup(&found, "example.com/v1", "Gadget").is_some());
    assert!(found.is_complete(), "{:?}", found.failed);
}

/// A stale version may list what it served before. That is served as far as is known, and
/// the version may serve more.
#[test]
fn a_version_that_is_not_current_has_failed() {
    for freshness in ["Stale", "Unknown"] {
        let gadget = resource("gadgets", "Gadget", "Namespaced");
        let versions = json!([
            {"version": "v1", "freshness": freshness, "resources": [gadget]},
            {"version": "v2", "freshness": freshness},
        ]);
        let found = discover(&answers([("/api", core()), ("/apis", group(versions))])).unwrap();
        assert!(lookup(&found, "example.com/v1", "Gadget").is_some());
        let failed: Vec<&str> = found.failed.iter().map(|(at, _)| &**at).collect();
        assert_eq!(failed, ["example.com/v1", "example.com/v2"]);
    }
}

/// Adapters of metrics serve a group version without resources: that is no failure, or no
/// discovery of such a cluster would ever be complete.
#[test]
fn a_current_version_may_be_empty() {
    let versions = json!([
        {"version": "v1", "freshness": "Current", "resources": []},
        {"version": "v2", "resources": [resource("gadgets", "Gadget", "Namespaced")]},
    ]);
    let found = discover(&answers([("/api", core()), ("/apis", group(versions))])).unwrap();
    assert!(found.is_complete());
    assert_eq!(found.mapping.iter().count(), 2);
}

#[test]
fn an_answer_counts_once() {
    let mut attempt = DiscoveryAttempt::start();
    let sent = [attempt.poll(), attempt.poll()];
    assert!(matches!(sent[1], ParallelAction::Send(1, _)));
    assert!(matches!(attempt.poll(), ParallelAction::Wait));
    let (core, late) = (core().to_string(), gadgets().to_string());
    attempt.handle(0, Ok(core.as_bytes()));
    attempt.handle(0, Ok(late.as_bytes()));
    attempt.handle(7, Ok(late.as_bytes()));
    assert!(matches!(attempt.poll(), ParallelAction::Wait));
    attempt.handle(1, Ok(late.as_bytes()));
    let ParallelAction::Done(Ok(found)) = attempt.poll() else {
        panic!("all answers are there");
    };
    assert_eq!(found.mapping.iter().count(), 2);
}
