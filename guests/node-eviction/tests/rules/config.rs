//! The operator's configuration, and the manifest that follows from it.

use davit_guest::testing::{Harness, Pod};
use node_eviction::NodeEviction;
use serde_json::{Value, json};

fn harness(config: &Value) -> Harness<NodeEviction> {
    Harness::new(config).expect("a valid configuration")
}

fn schema() -> Value {
    harness(&Value::Null).config_schema()
}

fn refused(config: &Value) -> Option<(String, String)> {
    Harness::<NodeEviction>::refused(config)
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    harness(&Value::Null).assert_schema_is_read();
}

#[test]
fn the_schemas_defaults_match_the_configuration() {
    harness(&Value::Null).assert_schema_defaults();
}

#[test]
fn the_schemas_bounds_match_the_configuration() {
    let schema = schema();
    let properties = schema["properties"].as_object().unwrap();
    for (name, property) in properties {
        for (bound, beyond) in [("minimum", -0.5), ("maximum", 0.5)] {
            let Some(value) = property[bound].as_f64() else {
                continue;
            };
            let at = property[bound].clone();
            assert_eq!(refused(&json!({name: at})), None, "{name} {bound}");
            let beyond = refused(&json!({name: value + beyond}));
            assert_eq!(beyond.map(|(field, _)| field).as_ref(), Some(name));
        }
    }
}

#[test]
fn a_rate_may_be_a_whole_number() {
    assert_eq!(
        refused(&json!({"nodeEvictionRate": 1, "unhealthyZoneThreshold": 1})),
        None
    );
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    for (config, field, message) in [
        (
            json!({"nodeEvictionQPS": 1}),
            "nodeEvictionQPS",
            "unknown field",
        ),
        (
            json!({"nodeMonitorPeriod": 5}),
            "nodeMonitorPeriod",
            "expected a duration such as 30s, 10m or 1h30m, found 5",
        ),
        (
            json!({"nodeMonitorPeriod": "0s"}),
            "nodeMonitorPeriod",
            "more than 0s",
        ),
        (
            json!({"nodeMonitorGracePeriod": "0s"}),
            "nodeMonitorGracePeriod",
            "more than 0s",
        ),
        (
            json!({"nodeStartupGracePeriod": "0s"}),
            "nodeStartupGracePeriod",
            "more than 0s",
        ),
        (
            json!({"podEvictionTimeout": "0s"}),
            "podEvictionTimeout",
            "more than 0s",
        ),
        (
            json!({"nodeEvictionRate": -0.1}),
            "nodeEvictionRate",
            "0 or more",
        ),
        (
            json!({"nodeEvictionRate": "1"}),
            "nodeEvictionRate",
            "expected a number, found \"1\"",
        ),
        (
            json!({"secondaryNodeEvictionRate": -1}),
            "secondaryNodeEvictionRate",
            "0 or more",
        ),
        (
            json!({"largeClusterSizeThreshold": 0.5}),
            "largeClusterSizeThreshold",
            "expected a whole number, found a number with a fraction",
        ),
        (
            json!({"unhealthyZoneThreshold": 1.1}),
            "unhealthyZoneThreshold",
            "between 0 and 1",
        ),
        (
            json!({"skipTaintedNodes": "no"}),
            "skipTaintedNodes",
            "expected true or false, found \"no\"",
        ),
        (json!([]), "", "expected a map, found a list"),
    ] {
        Harness::<NodeEviction>::assert_refused(&config, field, message);
    }
}

/// The least privilege for the rules: no write of nodes. And no heartbeat
/// triggers a reconcile.
#[test]
fn the_manifest_asks_for_the_least_privilege() {
    let harness = harness(&json!({"nodeMonitorPeriod": "500ms"}));
    let manifest = harness.manifest();
    let permissions: Vec<String> = manifest
        .permissions
        .iter()
        .map(|it| format!("{} {}/{}", it.verb, it.group, it.resource))
        .collect();
    assert_eq!(
        permissions,
        [
            "get /nodes",
            "get coordination.k8s.io/leases",
            "get /pods",
            "patch /pods/status",
            "delete /pods",
            "create /events",
        ]
    );
    assert!(manifest.triggers.is_empty());
    assert_eq!(manifest.ticks[0].period, 500);
    let watches: Vec<(&str, &str)> = manifest
        .watches
        .iter()
        .map(|watch| (&*watch.name, &*watch.namespace))
        .collect();
    assert_eq!(
        watches,
        [
            ("nodes", ""),
            ("heartbeats", ""),
            ("leases", "kube-node-lease"),
            ("pods", ""),
            ("daemonsets", ""),
        ]
    );
    let heartbeats = [
        "status.conditions[*].lastHeartbeatTime",
        "status.conditions[*].lastTransitionTime",
        "status.conditions[*].type",
    ];
    assert_eq!(manifest.watches[1].fields, heartbeats);
    let nodes = &manifest.watches[0].fields;
    assert!(
        !nodes.iter().any(|field| field.contains("Time")),
        "{nodes:?}"
    );
}

/// A pass over a healthy cluster reads its nodes and leases, and no pod.
#[test]
fn a_pass_over_a_healthy_cluster_reads_no_pod() {
    let mut harness = harness(&Value::Null);
    for number in 0..100 {
        let name = format!("node-{number}");
        harness.put(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }));
        harness.put(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
        }));
        harness.put(Pod::new(&name).node(&name).into());
    }
    harness.run();
    assert_eq!(harness.objects_read(), 200);
}
