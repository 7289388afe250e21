use serde_json::{Value, json};

use super::*;
use crate::testing::{Reply, Server, status};

fn resource(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "verbs": ["get", "list", "watch", "delete"],
        "subresources": [{"subresource": "status", "verbs": ["get"]}],
    })
}

fn aggregated(items: Value) -> Reply {
    let mut body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
    });
    body["items"] = items;
    Reply::Json(200, body)
}

fn lookup<'a>(found: &'a Discovery, api_version: &str, kind: &str) -> Option<&'a ServedResource> {
    found.mapping.by_kind(api_version, kind)
}

#[tokio::test]
async fn two_requests_discover_everything() {
    let server = Server::new(|seen, _| match seen.uri.as_str() {
        "/api" => aggregated(json!([{"versions": [{
            "version": "v1",
            "freshness": "Current",
            "resources": [
                resource("pods", "Pod", "Namespaced"),
                resource("nodes", "Node", "Cluster"),
                {"resource": "odd", "scope": "Cluster", "responseKind": {}},
            ],
        }]}])),
        _ => aggregated(json!([
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
    });
    let found = discover(&server.api()).await.unwrap();
    assert_eq!(server.seen().len(), 2);
    assert!(
        server.seen()[0]
            .header("accept")
            .starts_with("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,")
    );
    let pod = lookup(&found, "v1", "Pod").unwrap();
    assert!(pod.namespaced && pod.preferred);
    assert_eq!(pod.resource, ApiResource::new("", "v1", "pods"));
    assert!(!lookup(&found, "v1", "Node").unwrap().namespaced);
    assert!(
        lookup(&found, "example.com/v1", "Gadget")
            .unwrap()
            .preferred
    );
    assert!(
        !lookup(&found, "example.com/v1beta1", "Gadget")
            .unwrap()
            .preferred
    );
    // Only the older version has it.
    assert!(
        lookup(&found, "example.com/v1beta1", "Widget")
            .unwrap()
            .preferred
    );
    assert_eq!(found.mapping.iter().count(), 5);
    assert!(!found.is_complete());
    assert_eq!(found.failed[0].0, "metrics.k8s.io/v1beta1");
}

#[tokio::test]
async fn every_version_is_requested_from_an_older_server() {
    let plain = |name: &str, kind: &str| {
        json!({"kind": "APIResourceList", "resources": [
            {"name": name, "kind": kind, "namespaced": true, "verbs": ["get"]},
            {"name": format!("{name}/status"), "kind": kind, "namespaced": true, "verbs": ["get"]},
        ]})
    };
    let server = Server::new(move |seen, _| match seen.uri.as_str() {
        "/api" => Reply::Json(200, json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => Reply::Json(
            200,
            json!({"kind": "APIGroupList", "groups": [{
                "name": "example.com",
                "versions": [{"version": "v2"}, {"version": "v1"}, {"version": "v0"}],
                "preferredVersion": {"version": "v1"},
            }]}),
        ),
        "/api/v1" => Reply::Json(200, plain("pods", "Pod")),
        "/apis/example.com/v0" => {
            Reply::Json(503, status(503, "ServiceUnavailable", "down", json!({})))
        }
        _ => Reply::Json(200, plain("gadgets", "Gadget")),
    });
    let found = discover(&server.api()).await.unwrap();
    assert_eq!(found.mapping.iter().count(), 3);
    assert!(lookup(&found, "v1", "Pod").unwrap().preferred);
    assert!(
        lookup(&found, "example.com/v1", "Gadget")
            .unwrap()
            .preferred
    );
    assert!(
        !lookup(&found, "example.com/v2", "Gadget")
            .unwrap()
            .preferred
    );
    let (group_version, reason) = &found.failed[0];
    assert_eq!(group_version, "example.com/v0");
    assert!(reason.contains("503 ServiceUnavailable: down"), "{reason}");
}

#[tokio::test]
async fn discovery_without_groups_fails() {
    let server = Server::new(|seen, _| match seen.uri.as_str() {
        "/api" => aggregated(json!([])),
        _ => Reply::Json(500, status(500, "InternalError", "oh", json!({}))),
    });
    let failure = discover(&server.api()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Server);
    assert_eq!(
        failure.message,
        "discover /apis: the server answered 500 InternalError: oh"
    );
}

#[tokio::test]
async fn an_empty_answer_is_a_failure() {
    let server = Server::new(|_, _| aggregated(json!([])));
    let failure = discover(&server.api()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Server);
    assert_eq!(
        failure.message,
        "ask what is served: the answer names no resource"
    );
}
