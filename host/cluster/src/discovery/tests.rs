use std::time::Duration;

use davit_core::failure::FailureClass;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Reply, Server};

fn aggregated(items: Value) -> Reply {
    let mut body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
    });
    body["items"] = items;
    Reply::Json(200, body)
}

fn pods() -> Reply {
    aggregated(json!([{"versions": [{"version": "v1", "resources": [{
        "resource": "pods",
        "responseKind": {"kind": "Pod"},
        "scope": "Namespaced",
        "verbs": ["get"],
    }]}]}]))
}

/// A server of 1.26 or later gets two requests.
#[tokio::test]
async fn two_requests_discover_everything() {
    let server = Server::new(|seen, _| match seen.uri.as_str() {
        "/api" => pods(),
        _ => aggregated(
            json!([{"metadata": {"name": "metrics.k8s.io"}, "versions": [
                {"version": "v1beta1", "freshness": "Stale"},
            ]}]),
        ),
    });
    let found = discover(&server.api()).await.unwrap();
    assert_eq!(server.seen().len(), 2);
    assert!(
        server.seen()[0]
            .header("accept")
            .starts_with("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,")
    );
    assert!(found.mapping.by_kind("v1", "Pod").is_some());
    assert_eq!(found.failed[0].0, "metrics.k8s.io/v1beta1");
}

/// The versions of an older server are requested in parallel: one that does not answer
/// delays no other, and has failed.
#[tokio::test(start_paused = true)]
async fn every_version_is_requested_from_an_older_server() {
    let server = Server::new(|seen, _| match seen.uri.as_str() {
        "/api" => Reply::Json(200, json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => {
            let versions = ["v1", "v2", "v3"].map(|version| json!({"version": version}));
            let group = json!({"name": "example.com", "versions": versions});
            Reply::Json(200, json!({"kind": "APIGroupList", "groups": [group]}))
        }
        "/apis/example.com/v1" | "/apis/example.com/v2" => Reply::Silence,
        _ => Reply::Json(
            200,
            json!({"resources": [{"name": "pods", "kind": "Pod", "namespaced": true}]}),
        ),
    });
    let start = tokio::time::Instant::now();
    let found = discover(&server.api()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(30));
    assert_eq!(found.mapping.iter().count(), 2);
    let failed: Vec<&str> = found.failed.iter().map(|(at, _)| &**at).collect();
    assert_eq!(failed, ["example.com/v1", "example.com/v2"]);
}

/// A connection that breaks within an answer proves nothing about what is served.
#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure() {
    let server = Server::new(|seen, _| {
        if seen.uri == "/api" {
            return pods();
        }
        let (sender, chunks) = tokio::sync::mpsc::unbounded_channel();
        let part = "{\"kind\": \"APIGroupDiscoveryList\", \"items\": [";
        sender.send(Ok(part.into())).unwrap();
        let error = std::io::ErrorKind::ConnectionReset.into();
        sender.send(Err(error)).unwrap();
        Reply::Stream(chunks)
    });
    let failure = discover(&server.api()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Timeout);
    assert!(failure.message.starts_with("discover /apis: "), "{failure}");
}
