//! What kube-apiserver bounds: sizes, times, and what one request may reach. From the source of
//! Kubernetes 1.36, not recorded.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

use serde_json::{Value, json};

use crate::support::{call, config_map, pod, send, sim, watch};

/// Each copy doubles what the next one copies: without a limit, forty of them are a tebibyte.
#[tokio::test(start_paused = true)]
async fn copies_of_a_json_patch_are_limited() {
    let sim = sim();
    sim.create(config_map("a")).expect("created");
    let double =
        |at: usize| json!({"op": "copy", "from": "/metadata", "path": format!("/metadata/x{at}")});
    let path = "/api/v1/namespaces/default/configmaps/a";
    for (count, expected) in [(5, 200), (40, 422)] {
        let patch: Vec<Value> = (0..count).map(double).collect();
        let body = json!(patch).to_string().into_bytes();
        let patch = send(&sim, "PATCH", path, "application/json-patch+json", body);
        assert_eq!(patch.await.expect("stays").status(), expected, "{count}");
    }
}

/// A slip of a path would else delete the pods of every namespace.
#[tokio::test(start_paused = true)]
async fn all_namespaces_together_are_only_read() {
    let sim = sim();
    sim.create(pod("p")).expect("created");
    sim.create(definition()).expect("created");
    for (method, path, expected) in [
        ("DELETE", "/api/v1/pods", 405),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/apis/example.com/v1/widgets", 404),
        ("POST", "/apis/example.com/v1/widgets", 404),
        ("GET", "/apis/example.com/v1/widgets", 200),
        ("DELETE", "/api/v1/namespaces/default/pods", 200),
    ] {
        let body = (method == "POST").then(|| pod("q"));
        let (code, answer) = call(&sim, method, path, body).await;
        assert_eq!(code, expected, "{method} {path}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_has_no_version_of_its_own() {
    let sim = sim();
    for name in ["a", "b", "c"] {
        sim.create(config_map(name)).expect("created");
    }
    let path = "/api/v1/configmaps?limit=1";
    let (_, page) = call(&sim, "GET", path, None).await;
    let token = page["metadata"]["continue"].as_str().expect("a token");
    for (version, expected) in [("", 200), ("0", 200), ("1", 400)] {
        let path = format!("{path}&continue={token}&resourceVersion={version}");
        let (code, answer) = call(&sim, "GET", &path, None).await;
        assert_eq!(code, expected, "{version}: {answer}");
    }
}

/// etcd takes requests of 1.5 MiB.
#[tokio::test(start_paused = true)]
async fn an_object_has_the_size_that_etcd_takes() {
    let sim = sim();
    sim.create(definition()).expect("created");
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |text: usize| {
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"text": "x".repeat(text)},
        })
    };
    let (code, refused) = call(&sim, "POST", widgets, Some(widget(1_600_000))).await;
    assert_eq!(
        (code, refused["message"].as_str()),
        (500, Some("etcdserver: request is too large"))
    );
    let (code, answer) = call(&sim, "POST", widgets, Some(widget(1_000_000))).await;
    assert_eq!(code, 201, "{answer}");
    let more = json!({"spec": {"more": "x".repeat(1_000_000)}});
    let (code, _) = call(&sim, "PATCH", &format!("{widgets}/w"), Some(more)).await;
    assert_eq!(code, 500);
}

/// No clock counts that far.
#[tokio::test(start_paused = true)]
async fn a_watch_may_have_any_timeout() {
    let sim = sim();
    let path = format!("/api/v1/pods?watch=1&timeoutSeconds={}", i64::MAX);
    let mut changes = watch(&sim, &path).await;
    sim.create(pod("p")).expect("created");
    assert_eq!(changes.event().await, ("ADDED".into(), "p".into()));
}

fn definition() -> Value {
    let schema = json!({"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    })
}
