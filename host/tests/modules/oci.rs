//! Artefacts in a real registry.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::cluster::{api_server, base64, docker_config, pull_secret};
use crate::deploy::NAMESPACE;
use crate::deployed::process::free_port;
use crate::host::engine;
use crate::registry::{PASSWORD, Protection, Registry, USER};
use crate::{OTHER_WASM, WASM, digest, fetch, module, modules, podgc, refusal};

const LAYER: &str = "application/wasm";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const FORMER_LAYER: &str = "application/vnd.wasm.content.layer.v1+wasm";
const FORMER_CONFIG: &str = "application/vnd.wasm.config.v1+json";

fn plain(reference: &str) -> Value {
    json!({"oci": {"reference": reference, "insecure": true}})
}

/// A working component goes through a registry into the engine.
#[tokio::test]
async fn both_media_types_are_pulled_by_tag_and_by_digest() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let podgc = podgc();
    let directory = tempdir().unwrap();
    let modules = modules(directory.path(), None);
    let host = &registry.host;
    registry
        .push("guests/podgc:1", CONFIG, &[(LAYER, &podgc)])
        .await;
    let fetched = fetch(&modules, plain(&format!("{host}/guests/podgc:1")))
        .await
        .unwrap();
    assert_eq!(
        fetched.origin,
        format!("the artefact {host}/guests/podgc:1")
    );
    let loaded = engine().load(fetched.wasm).await.unwrap();
    assert_eq!(loaded.digest(), fetched.digest);

    registry
        .push("former:1", FORMER_CONFIG, &[(FORMER_LAYER, WASM)])
        .await;
    let manifest = registry.manifest_digest("former:1").await;
    for reference in [
        format!("{host}/former:1"),
        format!("{host}/former@{manifest}"),
    ] {
        let fetched = fetch(&modules, plain(&reference)).await.unwrap();
        assert_eq!(fetched.wasm, WASM, "{reference}");
    }
    let wrong = format!("{host}/former@{}", digest(b"another manifest"));
    let missing = refusal(&modules, plain(&wrong)).await;
    assert!(missing.contains("has no such artefact"), "{missing}");
}

#[tokio::test]
async fn a_moved_tag_is_detected_and_a_pinned_module_stays() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let directory = tempdir().unwrap();
    let first = modules(directory.path(), None);
    let source = plain(&format!("{}/a:latest", registry.host));
    registry.push("a:latest", CONFIG, &[(LAYER, WASM)]).await;
    let at = module(source.clone()).source;
    let before = first.probe(&at).await.unwrap();
    assert_eq!(first.probe(&at).await.unwrap(), before);
    fetch(&first, source.clone()).await.unwrap();

    registry
        .push("a:latest", CONFIG, &[(LAYER, OTHER_WASM)])
        .await;
    assert_ne!(first.probe(&at).await.unwrap(), before);
    assert_eq!(
        fetch(&first, source.clone()).await.unwrap().wasm,
        OTHER_WASM
    );
    let mut pinned = source.clone();
    pinned["digest"] = json!(digest(WASM));
    assert_eq!(fetch(&first, pinned.clone()).await.unwrap().wasm, WASM);
    let elsewhere = tempdir().unwrap();
    let elsewhere = modules(elsewhere.path(), None);
    // The tag names another module, and the repository still has the former one.
    assert_eq!(fetch(&elsewhere, pinned.clone()).await.unwrap().wasm, WASM);
    pinned["digest"] = json!(digest(b"never pushed"));
    let error = refusal(&elsewhere, pinned).await;
    assert!(
        error.contains(&digest(b"never pushed")) && error.contains(&digest(OTHER_WASM)),
        "{error}"
    );

    // The pinned module is kept, but another repository does not have it.
    registry.push("b:1", CONFIG, &[(LAYER, OTHER_WASM)]).await;
    let mut renamed = plain(&format!("{}/b:1", registry.host));
    renamed["digest"] = json!(digest(WASM));
    let error = refusal(&first, renamed).await;
    assert!(
        error.contains(&digest(WASM)) && error.contains(&digest(OTHER_WASM)),
        "{error}"
    );

    // The registry stops.
    drop(registry);
    let restarted = modules(directory.path(), None);
    let mut recorded = source.clone();
    recorded["digest"] = json!(digest(WASM));
    assert_eq!(fetch(&restarted, recorded).await.unwrap().wasm, WASM);
    let error = refusal(&restarted, source).await;
    assert!(
        error.contains("cannot be reached: Connection refused"),
        "{error}"
    );
    restarted.probe(&at).await.unwrap_err();
}

#[tokio::test]
async fn an_artefact_that_is_not_one_module_is_refused() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let directory = tempdir().unwrap();
    let modules = modules(directory.path(), None);
    let host = &registry.host;
    let tar = "application/vnd.oci.image.layer.v1.tar+gzip";
    registry.push("image:1", CONFIG, &[(tar, b"tar")]).await;
    registry
        .push(
            "two:1",
            CONFIG,
            &[(LAYER, WASM), (FORMER_LAYER, OTHER_WASM)],
        )
        .await;
    let image = refusal(&modules, plain(&format!("{host}/image:1"))).await;
    let start = format!(
        "the artefact {host}/image:1: the artefact holds no module: its layers are of type {tar}"
    );
    assert!(image.starts_with(&start), "{image}");
    let two = refusal(&modules, plain(&format!("{host}/two:1"))).await;
    assert!(two.contains("the artefact has 2 layers of wasm"), "{two}");
    let tag = refusal(&modules, plain(&format!("{host}/image:2"))).await;
    let text =
        format!("the registry {host} has no such artefact: check the repository and the tag");
    assert!(tag.ends_with(&text), "{tag}");
    // The registry speaks plain HTTP.
    let tls = json!({"oci": {"reference": format!("{host}/image:1")}});
    let tls = refusal(&modules, tls).await;
    assert!(tls.contains("cannot be reached"), "{tls}");
}

fn password(registry: &str, password: &str) -> Value {
    let entry = json!({"username": USER, "password": password});
    docker_config(registry, &entry).0
}

#[tokio::test]
async fn a_pull_secret_gives_access_to_a_private_registry() {
    let Some(registry) = Registry::start(Protection::Password) else {
        return;
    };
    let host = registry.host.clone();
    registry.push("a:1", CONFIG, &[(LAYER, WASM)]).await;
    let anonymous = plain(&format!("{host}/a:1"));
    let basic = json!({
        "username": base64(USER.as_bytes()), "password": base64(PASSWORD.as_bytes()),
    });
    let (basic, name) = pull_secret("kubernetes.io/basic-auth", &basic);
    let mut with_secret = anonymous.clone();
    with_secret["oci"]["pullSecret"] = name;
    for object in [password(&host, PASSWORD), basic] {
        let directory = tempdir().unwrap();
        let (_sim, client) = api_server(&[object]);
        let modules = modules(directory.path(), Some(client));
        let fetched = fetch(&modules, with_secret.clone()).await.unwrap();
        assert_eq!(fetched.wasm, WASM);
        modules
            .probe(&module(with_secret.clone()).source)
            .await
            .unwrap();
    }

    let directory = tempdir().unwrap();
    let refusal_with = async |objects: &[Value], source: &Value| {
        let (_sim, client) = api_server(objects);
        refusal(&modules(directory.path(), Some(client)), source.clone()).await
    };
    let error = refusal_with(&[], &anonymous).await;
    assert!(error.contains("denies anonymous access"), "{error}");
    assert!(error.ends_with("needs a pullSecret"), "{error}");
    let error = refusal_with(&[], &with_secret).await;
    assert_eq!(
        error,
        "the Secret davit-system/registry: the object does not exist"
    );
    let error = refusal_with(&[password(&host, "wrong")], &with_secret).await;
    assert!(error.contains("denies the user puller"), "{error}");
    assert!(!error.contains("wrong"), "{error}");
    let other = password("other.example.com", PASSWORD);
    let error = refusal_with(&[other], &with_secret).await;
    let text = format!("it has no credentials for {host}; it has some for: other.example.com");
    assert_eq!(error, format!("the Secret davit-system/registry: {text}"));
}

#[tokio::test]
async fn a_ca_cert_makes_a_registry_with_its_own_authority_trusted() {
    let Some(registry) = Registry::start(Protection::Tls) else {
        return;
    };
    registry.push("a:1", CONFIG, &[(LAYER, WASM)]).await;
    let reference = format!("{}/a:1", registry.host);
    let certificate = std::fs::read_to_string(registry.ca()).unwrap();
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": "ca"},
        "data": {"ca.pem": certificate, "none.pem": "no certificate"},
    });
    let (_sim, client) = api_server(&[config_map]);
    let in_cluster = |key: &str| {
        let at = json!({"namespace": NAMESPACE, "name": "ca", "key": key});
        json!({"oci": {"reference": reference, "caCert": {"configMap": at}}})
    };
    let from_file = json!({"oci": {"reference": reference, "caCert": {"file": registry.ca()}}});
    for source in [from_file, in_cluster("ca.pem")] {
        let directory = tempdir().unwrap();
        let modules = modules(directory.path(), Some(client.clone()));
        assert_eq!(fetch(&modules, source).await.unwrap().wasm, WASM);
    }
    let directory = tempdir().unwrap();
    let modules = modules(directory.path(), Some(client));
    let untrusted = refusal(&modules, json!({"oci": {"reference": reference}})).await;
    assert!(
        untrusted.contains("cannot be reached: invalid peer certificate"),
        "{untrusted}"
    );
    let none = refusal(&modules, in_cluster("none.pem")).await;
    assert!(
        none.contains("the certificates of caCert cannot be used"),
        "{none}"
    );
}

#[tokio::test]
async fn an_unreachable_registry_is_named_with_the_reason() {
    let directory = tempdir().unwrap();
    let modules = modules(directory.path(), None);
    let host = format!("127.0.0.1:{}", free_port());
    let error = refusal(&modules, plain(&format!("{host}/a:1"))).await;
    let start =
        format!("the artefact {host}/a:1: the registry {host} cannot be reached: Connection");
    assert!(error.starts_with(&start), "{error}");
}
