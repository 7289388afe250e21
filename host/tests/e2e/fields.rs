//! Fields of custom resources in the rules of a policy: the API server knows them.

use std::sync::Arc;
use std::time::Duration;

use davit::records::Records;
use davit_core::api::ControllerStatus;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, PATIENCE, RunningHost, Setup, builtin_guest, on_the_sim};
use crate::rollout::{condition, declared, declared_to, remembering};

const SITES: &str = "/apis/example.dev/v1/namespaces/default/sites";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The definition of sites, with these fields of the spec.
fn definition(fields: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": fields},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.example.dev"},
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"kind": "Site", "listKind": "SiteList", "plural": "sites", "singular": "site"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// A policy that deletes the sites of which this is true.
fn policy(when: &str) -> String {
    let rule = json!({
        "name": "retired", "match": {"resource": "sites.v1.example.dev"}, "when": when,
        "do": {"delete": {}},
    });
    let controller = json!({
        "name": "sites", "module": {"builtin": "policy"}, "mode": "Enforce",
        "config": {"rules": [rule]},
    });
    json!({"controllers": [controller]}).to_string()
}

async fn create(bench: &Bench, name: &str, spec: &Value) {
    let site = json!({
        "apiVersion": "example.dev/v1", "kind": "Site", "metadata": {"name": name}, "spec": spec,
    });
    bench.must("POST", SITES, &site).await;
}

async fn until_gone(bench: &Bench, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    let path = format!("{SITES}/{name}");
    while bench.send("GET", &path, &Value::Null).await.0 == 200 {
        assert!(Instant::now() < deadline, "{name} is not deleted");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the configuration is refused; returns the message.
async fn refusal(host: &RunningHost) -> String {
    let is_refused = |status: &ControllerStatus| condition(status, "Configured").1 == "Refused";
    let status = host.until_status_of("sites", is_refused).await;
    condition(&status, "Configured").2
}

fn reads_of_documents(bench: &Bench) -> usize {
    let log = bench.sim().log().into_iter();
    log.filter(|served| served.path.starts_with("/openapi/v3/"))
        .count()
}

#[test]
fn an_unknown_field_of_a_custom_resource_is_refused_until_the_definition_has_it() {
    on_the_sim(|bench| async move {
        let retired = json!({"retired": {"type": "boolean"}});
        bench.must("POST", DEFINITIONS, &definition(&retired)).await;
        let right = policy("object.spec.retired == true");
        let host = declared(&bench, &right).await;
        create(&bench, "first", &json!({"retired": true})).await;
        until_gone(&bench, "first").await;
        let stable = host.status_of("sites").await.stable.unwrap().revision;

        let wrong = policy("true && object.spec.retird == true");
        host.declare(&wrong, 2).await;
        let message = refusal(&host).await;
        let expected = "rules[0].when: rule retired: column 21: object.spec has no field \"retird\"; \
                        did you mean \"retired\"?";
        assert!(message.contains(expected), "{message}");
        // The former revision continues.
        create(&bench, "second", &json!({"retired": true})).await;
        until_gone(&bench, "second").await;
        let status = host.status_of("sites").await;
        assert_eq!(status.stable.unwrap().revision, stable);

        // While the server publishes the same, its document is not read again.
        let read = reads_of_documents(&bench);
        sleep(Duration::from_mins(3)).await;
        assert_eq!(reads_of_documents(&bench), read);

        let both = json!({"retired": {"type": "boolean"}, "retird": {"type": "boolean"}});
        let path = format!("{DEFINITIONS}/sites.example.dev");
        bench.must("PATCH", &path, &definition(&both)).await;
        let is_new = |status: &ControllerStatus| {
            let now = status.stable.as_ref();
            now.is_some_and(|now| now.revision != stable)
        };
        host.until_status_of("sites", is_new).await;
        create(&bench, "third", &json!({"retird": true})).await;
        until_gone(&bench, "third").await;
    });
}

/// After an update, the former module is gone: the host has no module cache.
#[test]
fn a_definition_that_loses_a_field_stops_no_policy_after_a_restart_or_an_update() {
    for is_updated in [false, true] {
        on_the_sim(|bench| async move {
            let guests = tempfile::tempdir().unwrap();
            let records = Arc::new(Records::memory());
            let mut module = std::fs::read(builtin_guest("policy")).unwrap();
            let ship = |module: &[u8]| {
                std::fs::write(guests.path().join("policy.wasm"), module).unwrap();
            };
            ship(&module);
            let start = || {
                let setup = Setup {
                    guests: Some(guests.path().to_owned()),
                    ..remembering(&records)
                };
                RunningHost::start_with(bench.client(), setup)
            };
            let both = json!({"retired": {"type": "boolean"}, "state": {"type": "string"}});
            bench.must("POST", DEFINITIONS, &definition(&both)).await;
            let config = policy("object.spec.retired == true || object.spec.state == 'old'");
            let host = declared_to(start(), &config, 1).await;
            create(&bench, "first", &json!({"retired": true})).await;
            until_gone(&bench, "first").await;
            let stable = host.status_of("sites").await.stable.unwrap();
            host.host.stop().await;

            let one = definition(&json!({"state": {"type": "string"}}));
            let path = format!("{DEFINITIONS}/sites.example.dev");
            bench.must("PATCH", &path, &one).await;
            if is_updated {
                // An empty custom section.
                module.extend([0, 3, 2, b'a', b'b']);
                ship(&module);
            }
            let host = declared_to(start(), &config, 1).await;
            create(&bench, "second", &json!({"state": "old"})).await;
            until_gone(&bench, "second").await;
            sleep(Duration::from_mins(3)).await;
            let status = host.status_of("sites").await;
            let (is, reason, message) = condition(&status, "Configured");
            assert_eq!(is, "True", "{reason}: {message}");
            let now = status.stable.unwrap();
            assert_eq!(now.digest != stable.digest, is_updated);
        });
    }
}
