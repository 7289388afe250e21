//! A registry of the test, which requires tokens like Docker Hub, and sends invalid
//! answers.

use std::sync::Arc;
use std::time::Duration;

use davit::host::Host;
use davit_core::api::ControllerSpec;
use davit_core::control::{Declaration, Requests};
use davit_core::record::Owner;
use http::StatusCode;
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::time::sleep;

use crate::cluster::{api_server, docker_config};
use crate::deployed::process::free_port;
use crate::host::options;
use crate::server::{Answer, Received, Server, respond, respond_with};
use crate::{WASM, digest, fetch, module, modules, refusal};

/// The content of a registry.
#[derive(Clone)]
struct Offer {
    /// The size in its manifest.
    size: usize,
    /// The content of the layer.
    blob: Vec<u8>,
    /// Who gets a token: everyone if `None`, or the user with this header
    /// `Authorization`.
    user: Option<String>,
    /// The address of the token service in the challenge.
    token_host: Option<String>,
    /// The answer of the token service.
    token: (StatusCode, String),
}

struct Strange(Server);

impl Strange {
    async fn start(offer: Offer) -> Self {
        Self(Server::start(move |host, request| answer(host, &offer, request)).await)
    }

    fn host(&self) -> &str {
        &self.0.host
    }

    fn source(&self) -> Value {
        self.0.source()
    }

    /// The requests, without the address: method, path and query.
    fn seen(&self) -> Vec<String> {
        let seen = self.0.requests().into_iter();
        seen.map(|request| request.line).collect()
    }
}

fn answer(host: &str, offer: &Offer, request: &Received) -> Answer {
    let authorization = request.authorization.as_deref();
    let path = request.path();
    if path == "/token" {
        let known = offer.user.is_none() || authorization == offer.user.as_deref();
        return if known {
            respond(offer.token.0, offer.token.1.clone())
        } else {
            respond(StatusCode::UNAUTHORIZED, "no such user")
        };
    }
    if authorization != Some("Bearer a-token") {
        let host = offer.token_host.as_deref().unwrap_or(host);
        let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"test\"");
        return respond_with(StatusCode::UNAUTHORIZED, "WWW-Authenticate", &challenge);
    }
    let layer = digest(WASM);
    if path == "/v2/team/a/manifests/1" {
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.wasm.config.v0+json",
                "digest": digest(b"{}"), "size": 2,
            },
            "layers": [{"mediaType": "application/wasm", "digest": layer, "size": offer.size}],
        });
        return respond(StatusCode::OK, manifest.to_string());
    }
    if path == format!("/v2/team/a/blobs/{layer}") {
        return respond(StatusCode::OK, offer.blob.clone());
    }
    respond(StatusCode::NOT_FOUND, "{}")
}

fn honest() -> Offer {
    Offer {
        size: WASM.len(),
        blob: WASM.to_vec(),
        user: None,
        token_host: None,
        token: (StatusCode::OK, json!({"token": "a-token"}).to_string()),
    }
}

#[tokio::test]
async fn a_token_is_requested_anonymously_or_with_the_pull_secret() {
    let directory = tempdir().unwrap();
    let open = Strange::start(honest()).await;
    let fetched = fetch(&modules(directory.path(), None), open.source()).await;
    assert_eq!(fetched.unwrap().wasm, WASM);
    let expected = "GET /token?scope=repository%3Ateam%2Fa%3Apull&service=test";
    assert!(open.seen().iter().any(|line| line == expected));

    let directory = tempdir().unwrap();
    // "me:pass"
    let user = Some("Basic bWU6cGFzcw==".to_owned());
    let private = Strange::start(Offer { user, ..honest() }).await;
    let error = refusal(&modules(directory.path(), None), private.source()).await;
    let words = "has no token for anonymous access; its token service answers: no such user";
    assert!(error.contains(words), "{error}");
    let (secret, name) = docker_config(private.host(), &json!({"auth": "bWU6cGFzcw=="}));
    let (_sim, client) = api_server(&[secret]);
    let mut source = private.source();
    source["oci"]["pullSecret"] = name;
    let fetched = fetch(&modules(directory.path(), Some(client)), source).await;
    assert_eq!(fetched.unwrap().wasm, WASM);
}

#[tokio::test]
async fn an_unreachable_token_service_is_not_reported_as_a_denial() {
    let directory = tempdir().unwrap();
    let token_host = Some(format!("127.0.0.1:{}", free_port()));
    let registry = Strange::start(Offer {
        token_host,
        ..honest()
    })
    .await;
    let error = refusal(&modules(directory.path(), None), registry.source()).await;
    assert!(
        error.contains("cannot be reached: Connection refused"),
        "{error}"
    );
}

/// An overloaded token service is not a denial, and a malformed token is an error.
#[tokio::test]
async fn an_error_has_the_answer_of_a_token_service_that_gives_no_token() {
    let directory = tempdir().unwrap();
    let envelope = |code: &str| {
        let error = json!({"code": code, "message": "as it is"});
        json!({"errors": [error]}).to_string()
    };
    let cases = [
        (
            503,
            "try later".to_owned(),
            "token service answers: try later",
        ),
        (429, String::new(), "token service answers: nothing"),
        (
            429,
            envelope("TOOMANYREQUESTS"),
            "answered: TOOMANYREQUESTS: as it is",
        ),
        (401, envelope("UNAUTHORIZED"), "denies anonymous access"),
        (200, "no token".to_owned(), "cannot be used: expected"),
        (
            200,
            json!({"token": "two\nlines"}).to_string(),
            "cannot be used: it has characters that an HTTP header cannot have",
        ),
    ];
    for (status, answer, words) in cases {
        let token = (StatusCode::from_u16(status).unwrap(), answer);
        let registry = Strange::start(Offer { token, ..honest() }).await;
        let modules = modules(directory.path(), None);
        let error = refusal(&modules, registry.source()).await;
        assert!(error.contains(words), "{status}: {error}");
        let source = module(registry.source()).source;
        modules.probe(&source).await.unwrap_err();
    }
}

#[tokio::test]
async fn a_module_that_is_not_the_pinned_one_is_not_pulled() {
    let directory = tempdir().unwrap();
    let registry = Strange::start(honest()).await;
    let mut source = registry.source();
    source["digest"] = json!(digest(b"another"));
    let error = refusal(&modules(directory.path(), None), source).await;
    assert!(error.contains(&digest(WASM)), "{error}");
    let seen = registry.seen();
    let mut blobs = seen.iter().filter(|line| line.contains("/blobs/"));
    assert!(
        blobs.all(|line| line.ends_with(&digest(b"another"))),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_cached_module_is_not_pulled_again() {
    let directory = tempdir().unwrap();
    let registry = Strange::start(honest()).await;
    let modules = modules(directory.path(), None);
    for _ in 0..2 {
        fetch(&modules, registry.source()).await.unwrap();
    }
    let seen = registry.seen();
    let blobs = seen.iter().filter(|line| line.contains("/blobs/"));
    assert_eq!(blobs.count(), 1, "{seen:?}");
}

#[tokio::test]
async fn a_blob_that_does_not_match_its_digest_is_refused() {
    let directory = tempdir().unwrap();
    let blob = b"something else".to_vec();
    let registry = Strange::start(Offer { blob, ..honest() }).await;
    let error = refusal(&modules(directory.path(), None), registry.source()).await;
    assert!(error.contains("does not match its digest"), "{error}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_blob_larger_than_any_module_is_refused_whatever_its_manifest_declares() {
    let directory = tempdir().unwrap();
    let offer = Offer {
        blob: vec![0; 40 << 20],
        ..honest()
    };
    let registry = Strange::start(offer.clone()).await;
    let error = refusal(&modules(directory.path(), None), registry.source()).await;
    assert!(
        error.contains("the host loads modules of up to 33554432 bytes"),
        "{error}"
    );

    let size = 40 << 20;
    let registry = Strange::start(Offer { size, ..offer }).await;
    let error = refusal(&modules(directory.path(), None), registry.source()).await;
    assert!(error.contains("the module has 41943040 bytes"), "{error}");
    let seen = registry.seen();
    assert!(
        !seen.iter().any(|line| line.contains("/blobs/")),
        "{seen:?}"
    );
}

/// Registries count pulls: an unusable module is not pulled again and again.
#[tokio::test]
async fn a_module_that_cannot_be_used_is_pulled_once() {
    // A component, but not a guest.
    let registry = Strange::start(honest()).await;
    let (_sim, client) = api_server(&[]);
    let options = options(client);
    let records = Arc::clone(&options.records);
    let host = Host::start(options);
    let declare = async |mode: &str| {
        let spec = json!({"module": registry.source(), "mode": mode});
        host.declare(vec![Declaration {
            name: "a".to_owned(),
            generation: Some(1),
            object: None,
            status: None,
            spec: ControllerSpec::read(&spec),
            requests: Requests::default(),
        }])
        .await
        .recorded()
        .await;
    };
    let pulls = || {
        let seen = registry.seen();
        let blobs = seen.iter().filter(|line| line.contains("/blobs/"));
        blobs.count()
    };
    let refused = async || {
        let status = records.status(&Owner::named("a")).await.unwrap();
        let mut conditions = status.conditions.into_iter();
        let verified = conditions.find(|one| one.type_ == "Verified");
        verified.is_some_and(|one| one.status == "False" && one.reason == "NotAGuest")
    };
    declare("DryRun").await;
    while !refused().await {
        sleep(Duration::from_millis(20)).await;
    }
    // The first retry would come after two seconds.
    sleep(Duration::from_millis(2500)).await;
    declare("Disabled").await;
    sleep(Duration::from_millis(200)).await;
    assert!(refused().await);
    assert_eq!(pulls(), 1);
    host.stop().await;
}
