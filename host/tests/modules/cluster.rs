//! Modules from `ConfigMaps` of the API server in memory.

use std::convert::Infallible;

use davit_sim::model::DeleteOptions;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tempfile::tempdir;
use tower::service_fn;

use crate::deploy::{self, Allowed, NAMESPACE};
use crate::{OTHER_WASM, WASM, digest, fetch, module, modules, refusal};

/// The name of the pull secrets of the tests.
const SECRET: &str = "registry";

/// An API server with RBAC, the objects of `deploy/` and these, and a client with the
/// permissions of Davit's account.
pub(crate) fn api_server(objects: &[Value]) -> (Allowed, kube::Client) {
    let sim = deploy::sim("2026-11-20T10:00:00Z".parse().unwrap());
    let api_version = "rbac.authorization.k8s.io/v1";
    // What an operator grants who uses a pull secret: see docs/access.md.
    let grant = [
        json!({
            "apiVersion": api_version, "kind": "Role",
            "metadata": {"name": "davit-pull", "namespace": NAMESPACE},
            "rules": [{
                "apiGroups": [""], "resources": ["secrets"], "resourceNames": [SECRET],
                "verbs": ["get"],
            }],
        }),
        json!({
            "apiVersion": api_version, "kind": "RoleBinding",
            "metadata": {"name": "davit-pull", "namespace": NAMESPACE},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "davit-pull",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "davit", "namespace": NAMESPACE}],
        }),
    ];
    for object in grant.iter().chain(objects) {
        sim.create(object.clone()).unwrap();
    }
    let client = deploy::davit(&sim);
    (Allowed(sim), client)
}

/// The pull secret of this type, and where a source names it.
pub(crate) fn pull_secret(kind: &str, data: &Value) -> (Value, Value) {
    let name = json!({"namespace": NAMESPACE, "name": SECRET});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": name, "data": data,
    });
    (secret, name)
}

/// The pull secret with this entry for a registry.
pub(crate) fn docker_config(registry: &str, entry: &Value) -> (Value, Value) {
    let config = json!({"auths": {registry: entry}}).to_string();
    let data = json!({".dockerconfigjson": base64(config.as_bytes())});
    pull_secret("kubernetes.io/dockerconfigjson", &data)
}

/// A value in JSON.
pub(crate) fn base64(bytes: &[u8]) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap()
}

fn config_map(binary: &Value, text: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": "guests"},
        "binaryData": binary, "data": text,
    })
}

fn source(key: &str) -> Value {
    json!({"configMap": {"namespace": NAMESPACE, "name": "guests", "key": key}})
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
        "the key a.wasm of the ConfigMap davit-system/guests"
    );

    let at = module(source("a.wasm")).source;
    let before = modules.probe(&at).await.unwrap();
    assert_eq!(modules.probe(&at).await.unwrap(), before);
    sim.delete(
        "v1",
        "ConfigMap",
        NAMESPACE,
        "guests",
        &DeleteOptions::default(),
    )
    .unwrap();
    let gone = refusal(&modules, source("a.wasm")).await;
    assert_eq!(
        gone,
        "the ConfigMap davit-system/guests: the object does not exist"
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
    let start = "the ConfigMap davit-system/guests: ";
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
    let (sim, client) = api_server(&[]);
    let elsewhere = json!({"configMap": {"namespace": "default", "name": "guests", "key": "a"}});
    let error = refusal(&modules(directory.path(), Some(client)), elsewhere).await;
    assert!(
        error.contains("grant Davit's service account the verb get"),
        "{error}"
    );
    // Davit's role is about its own namespace.
    assert_eq!(deploy::denied(&sim).len(), 1);
    sim.clear_log();
    let nowhere = refusal(&modules(directory.path(), None), source("a.wasm")).await;
    assert!(nowhere.contains("there is no cluster"), "{nowhere}");
}
