//! Modules from `ConfigMaps` of the API server in memory.

use std::convert::Infallible;

use davit_sim::Sim;
use davit_sim::model::DeleteOptions;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::tempdir;
use tower::service_fn;

use crate::{OTHER_WASM, WASM, digest, fetch, module, modules, refusal};

/// An API server in memory with these objects.
pub(crate) fn api_server(objects: &[Value]) -> (Sim, kube::Client) {
    let now = "2026-11-20T10:00:00Z".parse().unwrap();
    let sim = Sim::new(davit_sim::Config::default(), now).unwrap();
    for object in objects {
        sim.create(object.clone()).unwrap();
    }
    let service = {
        let sim = sim.clone();
        service_fn(move |request: Request<Body>| {
            let sim = sim.clone();
            async move { sim.call(request).await }
        })
    };
    (sim, kube::Client::new(service, "default"))
}

/// A value in JSON.
pub(crate) fn base64(bytes: &[u8]) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap()
}

fn config_map(binary: &Value, text: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "davit", "name": "guests"},
        "binaryData": binary, "data": text,
    })
}

fn source(key: &str) -> Value {
    json!({"configMap": {"namespace": "davit", "name": "guests", "key": key}})
}

#[tokio::test]
async fn a_change_of_a_config_map_is_detected_and_its_module_fetched() {
    let directory = tempdir().unwrap();
    let object = config_map(&json!({"a.wasm": base64(WASM)}), &json!({}));
    let (sim, client) = api_server(std::slice::from_ref(&object));
    let modules = modules(directory.path(), Some(client));
    let fetched = fetch(&modules, source("a.wasm")).await.unwrap();
    assert_eq!(fetched.wasm, WASM);
    assert_eq!(
        fetched.origin,
        "the key a.wasm of the ConfigMap davit/guests"
    );

    let at = module(source("a.wasm")).source;
    let before = modules.probe(&at).await.unwrap();
    assert_eq!(modules.probe(&at).await.unwrap(), before);
    sim.delete(
        "v1",
        "ConfigMap",
        "davit",
        "guests",
        &DeleteOptions::default(),
    )
    .unwrap();
    let gone = refusal(&modules, source("a.wasm")).await;
    assert_eq!(
        gone,
        "the ConfigMap davit/guests: the object does not exist"
    );
    modules.probe(&at).await.unwrap_err();
    let mut recorded = source("a.wasm");
    recorded["digest"] = json!(digest(WASM));
    let recorded = fetch(&modules, recorded).await.unwrap();
    assert_eq!(recorded.wasm, WASM);
    let object = config_map(&json!({"a.wasm": base64(OTHER_WASM)}), &json!({}));
    sim.create(object).unwrap();
    assert_ne!(modules.probe(&at).await.unwrap(), before);
    assert_eq!(
        fetch(&modules, source("a.wasm")).await.unwrap().wasm,
        OTHER_WASM
    );
    let mut pinned = source("a.wasm");
    pinned["digest"] = json!(digest(b"a third one"));
    let error = refusal(&modules, pinned).await;
    assert!(error.contains(&digest(OTHER_WASM)), "{error}");
}

#[tokio::test]
async fn an_error_names_the_problem_with_a_config_map() {
    let directory = tempdir().unwrap();
    let binary = json!({"a.wasm": base64(WASM), "c.wasm": base64(WASM)});
    let object = config_map(&binary, &json!({"text.wasm": "AGFzbQ=="}));
    let (_sim, client) = api_server(&[object]);
    let modules = modules(directory.path(), Some(client));
    let start = "the ConfigMap davit/guests: ";
    assert_eq!(
        refusal(&modules, source("b.wasm")).await,
        format!(
            "{start}there is no key \"b.wasm\" under binaryData; the keys there: a.wasm, c.wasm"
        )
    );
    let text = refusal(&modules, source("text.wasm")).await;
    assert!(
        text.contains("is under data, which holds text: put the module under binaryData"),
        "{text}"
    );
}

/// An API server stores no such `ConfigMap`; the host does not rely on that.
#[tokio::test]
async fn a_config_map_above_its_limit_is_refused() {
    let directory = tempdir().unwrap();
    let service = service_fn(|_: Request<Body>| async {
        let large = json!({"large.wasm": base64(&vec![0; (1 << 20) + 1])});
        let body = config_map(&large, &json!({})).to_string().into_bytes();
        Ok::<_, Infallible>(Response::new(Body::from(body)))
    });
    let client = kube::Client::new(service, "default");
    let modules = modules(directory.path(), Some(client));
    let large = refusal(&modules, source("large.wasm")).await;
    assert!(
        large.contains("has 1048577 bytes, and a ConfigMap holds 1048576 at most"),
        "{large}"
    );
}

#[tokio::test]
async fn a_forbidden_config_map_and_a_missing_one_are_different_errors() {
    let directory = tempdir().unwrap();
    let service = service_fn(|_: Request<Body>| async {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "reason": "Forbidden", "code": 403, "message": "configmaps is forbidden",
        });
        let body = Body::from(status.to_string().into_bytes());
        Ok::<_, Infallible>(Response::builder().status(403).body(body).unwrap())
    });
    let client = kube::Client::new(service, "default");
    let error = refusal(&modules(directory.path(), Some(client)), source("a.wasm")).await;
    assert!(
        error.contains("grant Davit's service account the verb get"),
        "{error}"
    );
    let nowhere = refusal(&modules(directory.path(), None), source("a.wasm")).await;
    assert!(nowhere.contains("there is no cluster"), "{nowhere}");
}
