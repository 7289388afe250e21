//! Modules that must have signatures, from a real registry.

use std::sync::Arc;
use std::time::Duration;

use davit::host::{Host, HostOptions};
use davit::loader::Loader;
use davit::modules::Modules;
use davit::records::Records;
use davit_cluster::api::chain;
use davit_core::api::{ControllerSpec, ControllerStatus};
use davit_core::control::{Declaration, Requests};
use davit_core::record::Owner;
use davit_guest::testing::Pod;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::time::{Instant, sleep};

use crate::cluster::api_server;
use crate::deploy::{Allowed, NAMESPACE};
use crate::host::{engine, options};
use crate::registry::{Protection, Registry};
use crate::signer::{Signer, push_signatures, sign};
use crate::{OTHER_WASM, WASM, digest, fetch, module, modules, podgc, recall, refusal};

const LAYER: &str = "application/wasm";
const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// An artefact that must have signatures.
fn signed(registry: &Registry, name: &str, verify: &Value) -> Value {
    let reference = format!("{}/{name}", registry.host);
    json!({"oci": {"reference": reference, "insecure": true}, "verify": verify})
}

async fn push(registry: &Registry, name: &str, wasm: &[u8]) -> String {
    registry.push(name, CONFIG, &[(LAYER, wasm)]).await;
    registry.manifest_digest(name).await
}

#[tokio::test]
async fn a_module_is_fetched_only_with_the_signatures_that_the_spec_requires() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let directory = tempdir().unwrap();
    let modules = modules(directory.path(), None);
    let (alice, bob, mallory) = (Signer::new(), Signer::new(), Signer::new());
    let all = |signers: &[&Signer]| {
        let keys: Vec<Value> = signers.iter().map(|signer| signer.key()).collect();
        json!({"allOf": keys})
    };
    let manifest = push(&registry, "a:1", WASM).await;
    let by_alice = signed(&registry, "a:1", &all(&[&alice]));
    let error = refusal(&modules, by_alice.clone()).await;
    let host = &registry.host;
    let start = format!("the artefact {host}/a:1: the manifest {manifest} is not signed");
    assert!(error.starts_with(&start), "{error}");

    sign(&registry, "a", "1", &[&mallory]).await;
    let error = refusal(&modules, by_alice.clone()).await;
    assert!(error.contains("satisfies verify.allOf[0]"), "{error}");

    sign(&registry, "a", "1", &[&mallory, &alice]).await;
    assert_eq!(fetch(&modules, by_alice.clone()).await.unwrap().wasm, WASM);
    let both = signed(&registry, "a:1", &all(&[&alice, &bob]));
    let error = refusal(&modules, both.clone()).await;
    assert!(error.contains("satisfies verify.allOf[1]"), "{error}");
    let any = |number: u32| {
        let any = json!({"minimumMatches": number, "signatures": [bob.key(), alice.key()]});
        signed(&registry, "a:1", &json!({"anyOf": any}))
    };
    assert_eq!(fetch(&modules, any(1)).await.unwrap().wasm, WASM);
    let error = refusal(&modules, any(2)).await;
    assert!(
        error.contains("has 1 of the signatures of verify.anyOf"),
        "{error}"
    );
    sign(&registry, "a", "1", &[&alice, &bob]).await;
    assert_eq!(fetch(&modules, both).await.unwrap().wasm, WASM);
    assert_eq!(fetch(&modules, any(2)).await.unwrap().wasm, WASM);

    // A signature of another manifest, at the place of those of this one.
    let other = push(&registry, "a:2", OTHER_WASM).await;
    push_signatures(&registry, "a", &other, vec![alice.signature(&manifest)]).await;
    let moved = signed(&registry, "a:2", &all(&[&alice]));
    let error = refusal(&modules, moved.clone()).await;
    assert!(
        error.contains(&format!("one is of another manifest, {manifest}")),
        "{error}"
    );
    // The tag of a signed module names another one.
    push(&registry, "a:1", OTHER_WASM).await;
    assert!(
        refusal(&modules, by_alice)
            .await
            .contains("of another manifest")
    );
}

/// The signatures are those of one manifest. So they do not cover another module of the
/// same repository, although a pin names it.
#[tokio::test]
async fn a_pin_does_not_lead_to_a_module_beside_the_signed_one() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let directory = tempdir().unwrap();
    let modules = modules(directory.path(), None);
    let alice = Signer::new();
    push(&registry, "a:1", WASM).await;
    sign(&registry, "a", "1", &[&alice]).await;
    push(&registry, "a:2", OTHER_WASM).await;
    let mut pinned = signed(&registry, "a:1", &json!({"allOf": [alice.key()]}));
    pinned["digest"] = json!(digest(WASM));
    assert_eq!(fetch(&modules, pinned.clone()).await.unwrap().wasm, WASM);
    pinned["digest"] = json!(digest(OTHER_WASM));
    let error = refusal(&modules, pinned.clone()).await;
    assert!(error.contains("and digest pins"), "{error}");
    // Also if the cache has it.
    let mut unsigned = pinned.clone();
    unsigned.as_object_mut().unwrap().remove("verify");
    assert_eq!(fetch(&modules, unsigned).await.unwrap().wasm, OTHER_WASM);
    assert!(refusal(&modules, pinned).await.contains("and digest pins"));
}

#[tokio::test]
async fn a_key_is_read_from_a_config_map() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let directory = tempdir().unwrap();
    let alice = Signer::new();
    push(&registry, "a:1", WASM).await;
    sign(&registry, "a", "1", &[&alice]).await;
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": NAMESPACE, "name": "keys"},
        "data": {"alice.pub": alice.public(), "none.pub": "no key"},
    });
    let (_sim, client) = api_server(&[config_map]);
    let modules = modules(directory.path(), Some(client));
    let by = |key: &str| {
        let at = json!({"namespace": NAMESPACE, "name": "keys", "key": key});
        signed(
            &registry,
            "a:1",
            &json!({"allOf": [{"key": {"configMap": at}}]}),
        )
    };
    assert_eq!(fetch(&modules, by("alice.pub")).await.unwrap().wasm, WASM);
    let error = refusal(&modules, by("none.pub")).await;
    assert!(
        error.contains("the public key of verify.allOf[0] cannot be used"),
        "{error}"
    );
    let error = refusal(&modules, by("bob.pub")).await;
    assert!(
        error.contains("there is no key \"bob.pub\" under data"),
        "{error}"
    );
}

/// The cache is one directory for the modules of every source.
#[tokio::test]
async fn without_its_registry_a_module_is_recalled_only_if_it_was_verified() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let (directory, elsewhere) = (tempdir().unwrap(), tempdir().unwrap());
    let (alice, bob) = (Signer::new(), Signer::new());
    push(&registry, "a:1", WASM).await;
    push(&registry, "b:1", OTHER_WASM).await;
    sign(&registry, "a", "1", &[&alice]).await;
    let pinned = |name: &str, wasm: &[u8], signer: &Signer| {
        let mut source = signed(&registry, name, &json!({"allOf": [signer.key()]}));
        source["digest"] = json!(digest(wasm));
        source
    };
    let good = pinned("a:1", WASM, &alice);
    let by_bob = pinned("a:1", WASM, &bob);
    let unsigned = pinned("b:1", OTHER_WASM, &alice);
    let mut unverified = unsigned.clone();
    unverified.as_object_mut().unwrap().remove("verify");
    let first = modules(directory.path(), None);
    fetch(&first, good.clone()).await.unwrap();
    fetch(&first, unverified.clone()).await.unwrap();
    refusal(&first, unsigned.clone()).await;
    let without_seals = modules(elsewhere.path(), None);
    let mut plain = good.clone();
    plain.as_object_mut().unwrap().remove("verify");
    fetch(&without_seals, plain).await.unwrap();
    drop(registry);

    let restarted = modules(directory.path(), None);
    let recalled = async |modules: &Modules, source: &Value| {
        let recalled = recall(modules, &module(source.clone())).await;
        let recalled = recalled.map(|module| module.wasm);
        let fetched = fetch(modules, source.clone()).await;
        let fetched = fetched.map(|module| module.wasm);
        assert_eq!(recalled.as_ref().ok(), fetched.as_ref().ok());
        fetched
    };
    assert_eq!(recalled(&restarted, &good).await.unwrap(), WASM);
    assert_eq!(recalled(&restarted, &unverified).await.unwrap(), OTHER_WASM);
    for source in [by_bob, unsigned] {
        let error = recalled(&restarted, &source).await.unwrap_err();
        assert!(error.contains("cannot be reached"), "{error}");
    }
    let error = recalled(&without_seals, &good).await.unwrap_err();
    assert!(error.contains("cannot be reached"), "{error}");
}

/// Two controllers with the same module, of which only one requires signatures.
#[tokio::test]
async fn a_module_that_another_controller_has_loaded_does_not_count_as_signed() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let directory = tempdir().unwrap();
    let wasm = podgc();
    push(&registry, "a:1", &wasm).await;
    let verify = json!({"allOf": [Signer::new().key()]});
    let mut required = signed(&registry, "a:1", &verify);
    required["digest"] = json!(digest(&wasm));
    let mut unsigned = required.clone();
    unsigned.as_object_mut().unwrap().remove("verify");
    let loader = Loader::new(engine(), modules(directory.path(), None));
    let spec = |source: Value| ControllerSpec::of(module(source));
    let _running = loader.load(&spec(unsigned.clone())).await.unwrap();
    drop(registry);
    loader.load_recorded(&spec(unsigned)).await.unwrap();
    let required = spec(required);
    for loaded in [
        loader.load(&required).await,
        loader.load_recorded(&required).await,
    ] {
        let error = chain(&loaded.err().unwrap());
        assert!(error.contains("cannot be reached"), "{error}");
    }
}

/// A host with one controller, PodGC from a registry.
struct Bench {
    host: Option<Host>,
    records: Arc<Records>,
    sim: Allowed,
    client: kube::Client,
    cache: TempDir,
}

impl Bench {
    fn new() -> Self {
        let (sim, client) = api_server(&[]);
        let mut bench = Self {
            host: None,
            records: Arc::new(Records::memory()),
            sim,
            client,
            cache: tempdir().unwrap(),
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        self.host = Some(Host::start(HostOptions {
            modules: modules(self.cache.path(), Some(self.client.clone())),
            records: Arc::clone(&self.records),
            ..options(self.client.clone())
        }));
    }

    async fn stop(&mut self) {
        self.host.take().unwrap().stop().await;
    }

    async fn declare(&self, module: &Value) {
        let spec = json!({
            "module": module, "mode": "Enforce", "serviceAccountName": "davit-podgc",
            "config": {"quarantine": "1s", "period": "1s"},
        });
        let declaration = Declaration {
            name: "podgc".to_owned(),
            generation: Some(1),
            object: None,
            status: None,
            spec: ControllerSpec::read(&spec),
            requests: Requests::default(),
        };
        let host = self.host.as_ref().unwrap();
        host.declare(vec![declaration]).await.recorded().await;
    }

    async fn until(&self, fits: impl Fn(&ControllerStatus) -> bool) -> ControllerStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = self.records.status(&Owner::named("podgc")).await.unwrap();
            if fits(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "the status stays {status:#?}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// PodGC deletes a pod of a missing node: it runs, and may write.
    async fn until_pod_is_deleted(&self, name: &str) {
        let pod = Pod::new(name).node("missing");
        self.sim.create(pod.into()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.sim.get("v1", "Pod", "default", name).is_ok() {
            assert!(Instant::now() < deadline, "the pod {name} is not deleted");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Whether the condition `Verified` has this status and reason.
fn is_verified(status: &ControllerStatus, value: &str, reason: &str) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.type_ == "Verified" && one.status == value && one.reason == reason)
}

#[tokio::test]
async fn a_module_without_its_signature_does_not_run_and_the_running_one_continues() {
    let Some(registry) = Registry::start(Protection::None) else {
        return;
    };
    let (alice, mallory) = (Signer::new(), Signer::new());
    let first = podgc();
    // The same guest as another module: with an empty custom section.
    let second = [&first[..], &[0, 1, 0]].concat();
    push(&registry, "podgc:1", &first).await;
    sign(&registry, "podgc", "1", &[&alice]).await;
    let source = |tag: &str| {
        let verify = json!({"allOf": [alice.key()]});
        signed(&registry, &format!("podgc:{tag}"), &verify)
    };
    let mut bench = Bench::new();
    bench.declare(&source("1")).await;
    let runs = |wasm: &[u8]| {
        let digest = digest(wasm);
        move |status: &ControllerStatus| {
            status
                .stable
                .as_ref()
                .is_some_and(|stable| stable.digest == digest)
        }
    };
    let status = bench.until(runs(&first)).await;
    assert!(is_verified(&status, "True", "Verified"), "{status:#?}");
    bench.until_pod_is_deleted("one").await;

    // Not signed, then by another key.
    push(&registry, "podgc:2", &second).await;
    bench.declare(&source("2")).await;
    let status = bench
        .until(|status| is_verified(status, "False", "NotSigned"))
        .await;
    assert!(
        runs(&first)(&status) && status.candidate.is_none(),
        "{status:#?}"
    );
    assert_eq!(status.summary, "NotSigned: module");
    bench.until_pod_is_deleted("two").await;
    sign(&registry, "podgc", "2", &[&mallory]).await;
    bench
        .until(|status| {
            let mut conditions = status.conditions.iter();
            conditions.any(|one| one.message.contains("satisfies verify.allOf[0]"))
        })
        .await;

    // After a restart as before: the signed module, without its registry's help.
    bench.stop().await;
    bench.start();
    bench.declare(&source("2")).await;
    bench.until_pod_is_deleted("three").await;
    let status = bench
        .until(|status| is_verified(status, "False", "NotSigned"))
        .await;
    assert!(runs(&first)(&status), "{status:#?}");

    // The missing signature is pushed: the host retries.
    sign(&registry, "podgc", "2", &[&alice]).await;
    let status = bench.until(runs(&second)).await;
    assert!(is_verified(&status, "True", "Verified"), "{status:#?}");
    let last = source("2");
    drop(registry);
    bench.stop().await;
    bench.start();
    bench.declare(&last).await;
    bench.until_pod_is_deleted("four").await;
    assert!(runs(&second)(&bench.until(|_| true).await));
    bench.stop().await;
}
