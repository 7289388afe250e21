//! Registries that send too much, ask for credentials that they must not get, and lead
//! the host elsewhere.

use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::tempdir;

use crate::cluster::{api_server, docker_config};
use crate::deployed::process::davit;
use crate::registry::{Protection, Registry};
use crate::server::{Answer, Received, Server, respond, respond_with};
use crate::{WASM, digest, fetch, module, modules, refusal};

/// "me:pass"
const BASIC: &str = "Basic bWU6cGFzcw==";

fn manifest() -> String {
    json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.wasm.config.v0+json", "digest": digest(b"{}"), "size": 2,
        },
        "layers": [{
            "mediaType": "application/wasm", "digest": digest(WASM), "size": WASM.len(),
        }],
    })
    .to_string()
}

/// JSON of this length.
fn padded(json: &str, bytes: usize) -> String {
    json.to_owned() + &" ".repeat(bytes - json.len())
}

/// A registry that asks for nothing, with this manifest.
fn open(manifest: &str, request: &Received) -> Answer {
    match request.path() {
        "/v2/" => respond(StatusCode::OK, "{}"),
        path if path.contains("/manifests/") => respond(StatusCode::OK, manifest.to_owned()),
        path if path.contains("/blobs/") => respond(StatusCode::OK, WASM),
        _ => respond(StatusCode::NOT_FOUND, "{}"),
    }
}

/// A pull secret for a registry, and the source with it.
fn with_secret(registry: &str, source: &Value) -> (Value, Value) {
    let (secret, name) = docker_config(registry, &json!({"auth": "bWU6cGFzcw=="}));
    let mut source = source.clone();
    source["oci"]["pullSecret"] = name;
    (secret, source)
}

#[tokio::test]
async fn a_manifest_has_four_mebibytes_at_most() {
    for (bytes, is_accepted) in [(4 << 20, true), ((4 << 20) + 1, false)] {
        let manifest = padded(&manifest(), bytes);
        let registry = Server::start(move |_, request| open(&manifest, request)).await;
        let directory = tempdir().unwrap();
        let fetched = fetch(&modules(directory.path(), None), registry.source()).await;
        if is_accepted {
            assert_eq!(fetched.unwrap().wasm, WASM);
        } else {
            let error = fetched.unwrap_err();
            let words = "the artefact's manifest cannot be used: it has more than 4194304 bytes";
            assert!(error.contains(words), "{error}");
        }
    }
}

#[tokio::test]
async fn an_answer_of_a_token_service_has_64_kibibytes_at_most() {
    for (bytes, is_accepted) in [(64 << 10, true), ((64 << 10) + 1, false)] {
        let token = padded(&json!({"token": "a-token"}).to_string(), bytes);
        let registry = Server::start(move |host, request| {
            if request.path() == "/token" {
                return respond(StatusCode::OK, token.clone());
            }
            if request.authorization.as_deref() == Some("Bearer a-token") {
                return open(&manifest(), request);
            }
            let challenge = format!("Bearer realm=\"http://{host}/token\"");
            respond_with(StatusCode::UNAUTHORIZED, "WWW-Authenticate", &challenge)
        })
        .await;
        let directory = tempdir().unwrap();
        let fetched = fetch(&modules(directory.path(), None), registry.source()).await;
        if is_accepted {
            assert_eq!(fetched.unwrap().wasm, WASM);
        } else {
            let error = fetched.unwrap_err();
            let words = "cannot be used: its answer has more than 65536 bytes";
            assert!(error.contains(words), "{error}");
        }
    }
}

/// To another path of the same registry, and to another server.
#[tokio::test]
async fn a_redirect_carries_neither_credentials_nor_a_token() {
    let elsewhere = Server::start(|_, request| open(&manifest(), request)).await;
    for bearer in [false, true] {
        for to in [String::new(), format!("http://{}", elsewhere.host)] {
            let registry = Server::start(move |host, request| {
                let realm = format!("Bearer realm=\"http://{host}/token\"");
                let challenge = if bearer {
                    &realm
                } else {
                    "Basic realm=\"test\""
                };
                let access = if bearer { "Bearer a-token" } else { BASIC };
                let path = request.path();
                if path == "/token" {
                    return respond(StatusCode::OK, json!({"token": "a-token"}).to_string());
                }
                if let Some(content) = path.strip_prefix("/elsewhere") {
                    let line = format!("GET {content}");
                    let authorization = None;
                    return open(
                        &manifest(),
                        &Received {
                            line,
                            authorization,
                        },
                    );
                }
                if request.authorization.as_deref() != Some(access) {
                    return respond_with(StatusCode::UNAUTHORIZED, "WWW-Authenticate", challenge);
                }
                let location = format!("{to}/elsewhere{path}");
                respond_with(StatusCode::TEMPORARY_REDIRECT, "Location", &location)
            })
            .await;
            let (secret, source) = with_secret(&registry.host, &registry.source());
            let (_sim, client) = api_server(&[secret]);
            let directory = tempdir().unwrap();
            let modules = modules(directory.path(), Some(client));
            assert_eq!(fetch(&modules, source.clone()).await.unwrap().wasm, WASM);
            modules.probe(&module(source).source).await.unwrap();
            let all = [registry.requests(), elsewhere.requests()].concat();
            let mut redirected = all
                .iter()
                .filter(|one| one.path().starts_with("/elsewhere"));
            assert!(redirected.clone().count() >= 2, "{all:#?}");
            assert!(
                redirected.all(|one| one.authorization.is_none()),
                "{all:#?}"
            );
        }
    }
}

/// Where a cloud has its metadata service.
const METADATA: &str = "http://169.254.169.254/latest/meta-data";

#[tokio::test]
async fn a_registry_on_loopback_does_not_lead_to_a_link_local_address() {
    let realm = format!("Bearer realm=\"{METADATA}?role=davit\"");
    let cases: [(&'static str, String, StatusCode); 2] = [
        ("WWW-Authenticate", realm, StatusCode::UNAUTHORIZED),
        ("Location", METADATA.to_owned(), StatusCode::FOUND),
    ];
    for (header, value, status) in cases {
        let registry = Server::start(move |_, _| respond_with(status, header, &value)).await;
        let directory = tempdir().unwrap();
        let before = Instant::now();
        let error = refusal(&modules(directory.path(), None), registry.source()).await;
        let words = format!(
            "names {METADATA}, which is not used: 169.254.169.254 is at the link-local address \
             169.254.169.254"
        );
        assert!(error.contains(&words), "{header}: {error}");
        // No connection was attempted.
        assert!(before.elapsed() < Duration::from_secs(5), "{header}");
    }
}

/// The test is the proxy by which the program reaches a registry at no address of its
/// own; and it is the service on loopback that must not be reached.
#[tokio::test]
async fn a_registry_elsewhere_does_not_lead_to_loopback() {
    let private =
        Server::start(|_, _| respond(StatusCode::OK, json!({"token": "a-token"}).to_string()))
            .await;
    let port = private.host.rsplit(':').next().unwrap().to_owned();
    for name in ["127.0.0.1", "localhost"] {
        let url = format!("http://{name}:{port}/private");
        let realm = format!("Bearer realm=\"{url}\"");
        let challenges: [(&'static str, String, StatusCode); 2] = [
            ("WWW-Authenticate", realm, StatusCode::UNAUTHORIZED),
            ("Location", url.clone(), StatusCode::FOUND),
        ];
        for (header, value, status) in challenges {
            let proxy = Server::start(move |_, _| respond_with(status, header, &value)).await;
            let output = check_through(&proxy.host).await;
            let words =
                format!("names {url}, which is not used: {name} is at the loopback address");
            assert!(output.contains(&words), "{header}: {output}");
            let asked = proxy.requests();
            assert!(
                asked[0].line.starts_with("GET http://registry.example/v2/"),
                "{asked:?}"
            );
        }
    }
    assert!(private.requests().is_empty());
}

/// The findings of `davit check` about a module of the registry `registry.example`,
/// which is reached through a proxy.
async fn check_through(proxy: &str) -> String {
    let directory = tempdir().unwrap();
    let file = directory.path().join("davit.yaml");
    let module = "{oci: {reference: \"registry.example/team/a:1\", insecure: true}}";
    std::fs::write(
        &file,
        format!("controllers:\n- name: a\n  module: {module}\n"),
    )
    .unwrap();
    let mut command = davit();
    command.args(["check", "--offline", "--config"]).arg(&file);
    command.env("HTTP_PROXY", format!("http://{proxy}"));
    command.env("NO_PROXY", "127.0.0.1,localhost");
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = ran.await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn redirects_end() {
    let registry = Server::start(|_, _| respond_with(StatusCode::FOUND, "Location", "/v2/")).await;
    let directory = tempdir().unwrap();
    let error = refusal(&modules(directory.path(), None), registry.source()).await;
    assert!(
        error.contains("the end of more than 5 redirects"),
        "{error}"
    );
    assert_eq!(registry.requests().len(), 6);
}

/// The registry is Debian's, on HTTPS, and names a token service on HTTP.
#[tokio::test]
async fn credentials_go_to_a_token_service_on_https_only() {
    let tokens =
        Server::start(|_, _| respond(StatusCode::OK, json!({"token": "a-token"}).to_string()))
            .await;
    let realm = format!("http://{}/token", tokens.host);
    let Some(registry) = Registry::start(Protection::Token(realm.clone())) else {
        return;
    };
    let reference = format!("{}/a:1", registry.host);
    let source = json!({"oci": {"reference": reference, "caCert": {"file": registry.ca()}}});
    let (secret, source) = with_secret(&registry.host, &source);
    let (_sim, client) = api_server(&[secret]);
    let directory = tempdir().unwrap();
    let error = refusal(&modules(directory.path(), Some(client)), source).await;
    let words = format!("names {realm}, which is not used: it is not an https URL");
    assert!(error.contains(&words), "{error}");
    let seen = tokens.requests();
    assert!(seen.is_empty(), "{seen:?}");
}
