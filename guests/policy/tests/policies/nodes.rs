//! Policies about nodes and the pods on them.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{
    Case, MINUTE, SECOND, START, advance, left, left_at, object, owned_by, running, with,
};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            name: "fenced-node-pods",
            story: fenced,
            expected: vec![
                "ci/labelled ci/no-condition ci/no-longer ci/not-fenced ci/ready-again ci/stays \
                 ci/tainted",
                "ci/no-condition ci/no-longer ci/not-fenced ci/ready-again ci/stays",
                "true",
            ],
        },
        Case {
            name: "unreachable-node-pods",
            story: unreachable,
            expected: vec![
                "ci/alone ci/foreign ci/healthy ci/not-ready ci/returned ci/stateful ci/web",
                "ci/alone ci/foreign ci/healthy ci/not-ready ci/returned ci/stateful",
                "ci/alone ci/foreign ci/healthy ci/not-ready ci/returned ci/stateful ci/web-2",
                "ci/alone ci/foreign ci/healthy ci/not-ready ci/returned ci/stateful",
            ],
        },
        Case {
            name: "unreachable-node-pods",
            story: tolerating,
            expected: vec![
                "ci/empty ci/empty-operator ci/equal ci/exists ci/no-operator ci/tolerates",
            ],
        },
        marking(),
    ];
    cases.extend(drain_with_budgets());
    cases
}

/// Which pods leave the node at once, and when the one leaves that a budget protects.
fn drain_with_budgets() -> [Case; 2] {
    let name = "drain-with-budgets";
    [
        Case {
            name,
            story: drain,
            expected: vec![
                "ci/daemon ci/elsewhere ci/equal ci/key ci/no-operator ci/static ci/tolerates ci/uncordoned ci/value",
            ],
        },
        Case {
            name,
            story: drain_of_budget,
            expected: vec!["ci/budget", "ci/budget", ""],
        },
    ]
}

fn marking() -> Case {
    Case {
        name: "marks",
        story: marks,
        expected: vec![
            "null unknown team null null",
            "\"2023-11-14T22:13:20Z\"",
            "",
            "broken:true not-ready:true",
            "Node/broken Warning NodeTainted: not ready since 2023-11-14T22:04:20Z, \
             Node/not-ready Warning NodeTainted: not ready since 2023-11-14T22:04:20Z",
        ],
    }
}

fn node(name: &str, fields: &[(&str, Value)]) -> Value {
    with(object("v1", "Node", "", name), fields)
}

fn taint(key: &str) -> (&'static str, Value) {
    let taint = json!([{"key": key, "effect": "NoExecute", "timeAdded": START}]);
    ("/spec/taints", taint)
}

fn fenced(harness: &mut Harness<Policy>) -> Vec<String> {
    let label = || ("/metadata/labels/davit.dev~1fenced", json!("true"));
    let ready = |status: &str| {
        let conditions = json!([
            {"type": "DiskPressure", "status": "False"},
            {"type": "Ready", "status": status},
        ]);
        ("/status/conditions", conditions)
    };
    harness.put(node("labelled", &[label(), ready("Unknown")]));
    harness.put(node(
        "tainted",
        &[taint("node.kubernetes.io/out-of-service"), ready("False")],
    ));
    harness.put(node("not-fenced", &[ready("Unknown")]));
    // Somebody forgot to remove the fence.
    harness.put(node("ready-again", &[label(), ready("True")]));
    harness.put(node("no-condition", &[label()]));
    harness.put(node("no-longer", &[label(), ready("Unknown")]));
    harness.put_on_server(node("no-longer", &[ready("Unknown")]));
    for name in [
        "labelled",
        "tainted",
        "not-fenced",
        "ready-again",
        "no-condition",
        "no-longer",
    ] {
        let terminating = [
            ("/metadata/deletionTimestamp", json!(START)),
            ("/metadata/deletionGracePeriodSeconds", json!(30)),
        ];
        harness.put(with(running(name, name), &terminating));
    }
    harness.put(running("stays", "labelled"));
    let mut outcome = Vec::new();
    for time in [MINUTE, SECOND] {
        advance(harness, time);
        outcome.push(harness.keys("Pod").join(" "));
    }
    let mut plans = harness
        .executions()
        .iter()
        .map(|it| format!("{:?}", it.plan));
    let is_immediate = plans.all(|it| it.contains("grace-period-seconds: Some(0)"));
    outcome.push(is_immediate.to_string());
    outcome
}

fn drain(harness: &mut Harness<Policy>) -> Vec<String> {
    harness.put(node("n1", &[taint("davit.dev/drain")]));
    harness.put(node("n2", &[]));
    let taints = json!([
        {"key": "davit.dev/drain", "value": "yes", "effect": "NoExecute"},
        {"key": "davit.dev/other", "value": "x", "effect": "NoExecute"},
    ]);
    harness.put(node("n3", &[("/spec/taints", taints)]));
    // The cache does not have it yet: nobody drains the node any more.
    harness.put(node("n4", &[taint("davit.dev/drain")]));
    harness.put_on_server(node("n4", &[]));
    harness.put(running("uncordoned", "n4"));
    harness.put(running("free", "n1"));
    harness.put(running("elsewhere", "n2"));
    harness.put(owned_by(
        running("daemon", "n1"),
        "apps/v1",
        "DaemonSet",
        "d",
    ));
    let mirror = "/metadata/annotations/kubernetes.io~1config.mirror";
    harness.put(with(running("static", "n1"), &[(mirror, json!("x"))]));
    let key = "davit.dev/drain";
    for (name, node, toleration) in [
        ("tolerates", "n1", json!({"operator": "Exists"})),
        ("key", "n1", json!({"operator": "Exists", "key": key})),
        ("other-key", "n1", json!({"operator": "Exists", "key": "x"})),
        ("equal", "n1", json!({"operator": "Equal", "key": key})),
        ("no-operator", "n1", json!({"key": key})),
        ("other-value", "n1", json!({"key": key, "value": "x"})),
        ("value", "n3", json!({"key": key, "value": "yes"})),
        // It asks for a greater number, not for the same value.
        (
            "greater",
            "n3",
            json!({"key": key, "operator": "Gt", "value": "yes"}),
        ),
        // The value of another taint.
        ("value-of-other", "n3", json!({"key": key, "value": "x"})),
    ] {
        let tolerations = ("/spec/tolerations", json!([toleration]));
        harness.put(with(running(name, node), &[tolerations]));
    }
    left_at(harness, "Pod", &[SECOND])
}

fn drain_of_budget(harness: &mut Harness<Policy>) -> Vec<String> {
    harness.put(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "ci", "name": "all"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "budget"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
                   "expectedPods": 1, "observedGeneration": 1},
    }));
    harness.put(node("n1", &[taint("davit.dev/drain")]));
    let budget = ("/metadata/labels/app", json!("budget"));
    harness.put(with(running("budget", "n1"), &[budget]));
    let times = [MINUTE, 599 * SECOND, 601 * SECOND];
    left_at(harness, "Pod", &times)
}

fn unreachable(harness: &mut Harness<Policy>) -> Vec<String> {
    unreachable_nodes(harness);
    let of_replica_set = |name, node| owned_by(running(name, node), "apps/v1", "ReplicaSet", "r");
    harness.put(of_replica_set("web", "n1"));
    harness.put(of_replica_set("returned", "n3"));
    harness.put(of_replica_set("not-ready", "n4"));
    harness.put(of_replica_set("healthy", "n5"));
    harness.put(running("alone", "n1"));
    harness.put(owned_by(
        running("stateful", "n1"),
        "apps/v1",
        "StatefulSet",
        "s",
    ));
    let mut foreign = owned_by(running("foreign", "n1"), "apps/v1", "StatefulSet", "s");
    if let Some(Value::Array(owners)) = foreign.pointer_mut("/metadata/ownerReferences") {
        owners
            .push(json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}));
    }
    harness.put(foreign);
    // Three of ten are 30 %.
    let mut outcome = left_at(harness, "Pod", &[MINUTE, MINUTE + SECOND]);
    // Two of six are more.
    harness.put(node("n2", &[]));
    for name in ["n7", "n8", "n9", "n10"] {
        harness.remove("Node", name);
    }
    harness.put(of_replica_set("web-2", "n1"));
    advance(harness, 2 * MINUTE);
    outcome.push(left(harness, "Pod"));
    harness.show("Node", "n3");
    advance(harness, 2 * MINUTE);
    outcome.push(left(harness, "Pod"));
    outcome
}

/// Pods of a `ReplicaSet` on a node that has been unreachable for long, of which some tolerate that.
fn tolerating(harness: &mut Harness<Policy>) -> Vec<String> {
    unreachable_nodes(harness);
    let of_replica_set = |name, node| owned_by(running(name, node), "apps/v1", "ReplicaSet", "r");
    let key = "node.kubernetes.io/unreachable";
    for (name, toleration) in [
        ("tolerates", json!({"operator": "Exists"})),
        (
            "empty",
            json!({"key": "", "operator": "Exists", "effect": ""}),
        ),
        (
            "exists",
            json!({"key": key, "operator": "Exists", "effect": "NoExecute"}),
        ),
        (
            "equal",
            json!({"key": key, "operator": "Equal", "value": ""}),
        ),
        ("no-operator", json!({"key": key})),
        ("empty-operator", json!({"key": key, "operator": ""})),
        (
            "for-a-time",
            json!({"key": key, "operator": "Exists", "tolerationSeconds": 300}),
        ),
        ("other-key", json!({"key": "x", "operator": "Exists"})),
        (
            "other-value",
            json!({"key": key, "operator": "Equal", "value": "x"}),
        ),
        ("greater", json!({"key": key, "operator": "Gt"})),
        (
            "other-effect",
            json!({"key": key, "operator": "Exists", "effect": "NoSchedule"}),
        ),
    ] {
        let tolerations = ("/spec/tolerations", json!([toleration]));
        harness.put(with(of_replica_set(name, "n1"), &[tolerations]));
    }
    left_at(harness, "Pod", &[2 * MINUTE])
}

/// Ten nodes, of which n1, n2 and n3 are unreachable in the cache, and n1 and n2 on the API
/// server.
fn unreachable_nodes(harness: &mut Harness<Policy>) {
    let key = "node.kubernetes.io/unreachable";
    // A quarter of an hour ago in a minute.
    let added = "2023-11-14T21:59:20Z";
    // As the node lifecycle controller taints a node: only the second has a time.
    let taints = json!([
        {"key": key, "effect": "NoSchedule"},
        {"key": key, "effect": "NoExecute", "timeAdded": added},
    ]);
    let gone = [("/spec/taints", taints)];
    for name in ["n1", "n2", "n3"] {
        harness.put(node(name, &gone));
    }
    harness.put_on_server(node("n3", &[]));
    let other = json!([
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": added},
    ]);
    harness.put(node("n4", &[("/spec/taints", other)]));
    for name in ["n5", "n6", "n7", "n8", "n9", "n10"] {
        harness.put(node(name, &[]));
    }
}

fn marks(harness: &mut Harness<Policy>) -> Vec<String> {
    for name in ["default", "found", "kube-system", "davit-system"] {
        harness.put(object("v1", "Namespace", "", name));
    }
    let owner = ("/metadata/labels/owner", json!("team"));
    harness.put(with(object("v1", "Namespace", "", "owned"), &[owner]));
    // Ten minutes ago in a minute.
    let since = "2023-11-14T22:04:20Z";
    let ready = |status: &str| {
        let condition = json!([{"type": "Ready", "status": status, "lastTransitionTime": since}]);
        [("/status/conditions", condition)]
    };
    harness.put(node("broken", &ready("Unknown")));
    harness.put(node("not-ready", &ready("False")));
    harness.put(node("well", &ready("True")));
    let mut outcome = Vec::new();
    advance(harness, MINUTE);
    let owners = ["default", "found", "owned", "kube-system", "davit-system"].map(|name| {
        let namespace = harness.object("Namespace", name).unwrap();
        let owner = namespace["metadata"]["labels"]["owner"].clone();
        owner.as_str().unwrap_or("null").to_owned()
    });
    outcome.push(owners.join(" "));
    let found = harness.object("Namespace", "found").unwrap();
    outcome.push(found["metadata"]["annotations"]["davit.dev/owner-missing-since"].to_string());
    outcome.push(tainted(harness));
    advance(harness, SECOND);
    outcome.push(tainted(harness));
    outcome.push(events(harness));
    outcome
}

/// The nodes that no new pod is scheduled to, with the value of the taint.
fn tainted(harness: &Harness<Policy>) -> String {
    let nodes = harness.keys("Node").into_iter().filter_map(|name| {
        let taints = &harness.object("Node", &name).unwrap()["spec"]["taints"];
        let is_marked =
            taints[0]["key"] == "davit.dev/not-ready" && taints[0]["effect"] == "NoSchedule";
        is_marked.then(|| format!("{name}:{}", taints[0]["value"].as_str().unwrap_or_default()))
    });
    nodes.collect::<Vec<_>>().join(" ")
}

fn events(harness: &Harness<Policy>) -> String {
    let events = harness.keys("Event").into_iter().map(|key| {
        let event = harness.object("Event", &key).unwrap();
        let text = |pointer: &str| {
            let text = event.pointer(pointer).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        format!(
            "{}/{} {} {}: {}",
            text("/involvedObject/kind"),
            text("/involvedObject/name"),
            text("/type"),
            text("/reason"),
            text("/message"),
        )
    });
    events.collect::<Vec<_>>().join(", ")
}
