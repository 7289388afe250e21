//! What a module may do that anybody may replace who may write to its `ConfigMap`.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_core::digest::ModuleDigest;
use davit_guest::testing::Pod;
use serde_json::json;

use crate::cluster::{Cluster, module};

const NAME: &str = "podgc";

/// PodGC from a `ConfigMap`, with all that it declares granted, beside two ended pods of
/// which it keeps one.
fn cluster() -> Cluster {
    let cluster = Cluster::new();
    let sim = &cluster.sim;
    for name in ["a", "b"] {
        let pod = Pod::new(name).phase("Succeeded");
        sim.create(pod.into()).unwrap();
    }
    sim.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "guests", "namespace": "davit-system"},
        "binaryData": {"podgc.wasm": module("podgc.wasm")},
    }))
    .unwrap();
    cluster.add(NAME, &json!({"terminatedPodThreshold": 1}));
    let spec = json!({
        "module": {
            "builtin": null,
            "configMap": {"namespace": "davit-system", "name": "guests", "key": "podgc.wasm"},
        },
        "permissions": {
            "reads": [{"resource": "pods"}, {"resource": "nodes"}],
            "writes": [
                {"verb": "delete", "resource": "pods"},
                {"verb": "patch", "resource": "pods/status"},
            ],
        },
        "rollout": null,
    });
    cluster.change(NAME, json!({"spec": spec}));
    cluster
}

fn pods(cluster: &Cluster) -> usize {
    let left = ["a", "b"].into_iter();
    left.filter(|name| cluster.sim.get("v1", "Pod", "default", name).is_ok())
        .count()
}

/// Waits until the host runs the module; returns whether it wrote nothing in a second.
fn writes_nothing(cluster: &Cluster) -> bool {
    cluster.until("it watches pods", |_| cluster.used().contains("watch pods"));
    cluster.until("the host says that the module is unsigned", |_| {
        cluster.condition(NAME, "Ready")["reason"] == "Unsigned"
            && cluster.is(NAME, "Synced", "True")
    });
    std::thread::sleep(Duration::from_secs(1));
    let used = cluster.used();
    pods(cluster) == 2 && !used.contains("delete pods") && !used.contains("patch pods/status")
}

#[test]
fn an_unsigned_module_deletes_nothing_until_its_digest_is_pinned() {
    let cluster = cluster();
    let davit = cluster.run();
    assert!(writes_nothing(&cluster));
    let message = cluster.condition(NAME, "Verified")["message"].to_string();
    let digest = ModuleDigest::of(&module("podgc.wasm").0);
    assert!(message.contains(&format!("sha256:{digest}")), "{message}");
    assert_eq!(cluster.status(NAME)["stable"]["unsigned"], true);

    drop(davit);
    let _davit = cluster.run();
    assert!(writes_nothing(&cluster), "nor after a restart");

    let pinned = json!({"spec": {"module": {"digest": format!("sha256:{digest}")}}});
    cluster.change(NAME, pinned);
    cluster.until("a pod is deleted", |_| pods(&cluster) == 1);
    cluster.until("the module is verified", |_| {
        cluster.is(NAME, "Verified", "True")
    });
    assert_eq!(cluster.denied(), BTreeSet::new());
}
