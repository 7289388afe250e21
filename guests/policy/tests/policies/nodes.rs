//! Policies about nodes and the pods on them.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{
    Case, HOUR, MINUTE, SECOND, START, advance, left, left_at, object, owned_by, running, with,
};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case {
            name: "fenced-node-pods",
            story: fenced,
            expected: vec![
                "ci/healthy ci/labelled ci/no-longer ci/stays ci/tainted",
                "ci/healthy ci/no-longer ci/stays",
                "true",
            ],
            changes: vec![
                ("/rules/0/when", "1m", "2m"),
                ("/rules/0/when", "1m", "50s"),
                ("/rules/0/when", "davit.dev/fenced", "davit.dev/off"),
                ("/rules/0/when", "out-of-service", "out"),
                (
                    "/rules/0/when",
                    "now - object.metadata.deletionTimestamp > duration('1m') &&",
                    "",
                ),
                ("/rules/0/proof", "live", "cache"),
                ("/rules/0/do/delete/gracePeriodSeconds", "0", "30"),
            ],
        },
        drain_with_budgets(),
        Case {
            name: "unreachable-node-pods",
            story: unreachable,
            expected: vec![
                "ci/healthy ci/stateful ci/web",
                "ci/healthy ci/stateful",
                "ci/healthy ci/stateful ci/web-2",
                "ci/healthy ci/stateful",
            ],
            changes: vec![
                ("/rules/0/when", "15m", "16m"),
                ("/rules/0/when", "15m", "14m"),
                ("/rules/0/when", "o.kind == 'ReplicaSet'", "true"),
                ("/rules/0/when", "/unreachable", "/not-ready"),
                ("/rules/0/hold", "nodes * 3", "nodes * 2"),
                ("/rules/0/hold", "nodes * 3", "nodes * 5"),
                ("/counts/unreachable/when", "/unreachable", "/not-ready"),
            ],
        },
        marking(),
    ]
}

fn drain_with_budgets() -> Case {
    Case {
        name: "drain-with-budgets",
        story: drain,
        expected: vec![
            "ci/budget ci/daemon ci/elsewhere ci/equal ci/key ci/no-operator ci/static ci/tolerates ci/value",
            "ci/budget ci/daemon ci/elsewhere ci/equal ci/key ci/no-operator ci/static ci/tolerates ci/value",
            "ci/daemon ci/elsewhere ci/equal ci/key ci/no-operator ci/static ci/tolerates ci/value",
        ],
        changes: vec![
            ("/rules/0/do/evict/thenDeleteAfter", "10m", "12m"),
            ("/rules/0/do/evict/thenDeleteAfter", "10m", "8m"),
            ("/rules/0/when", "davit.dev/drain", "davit.dev/no"),
            ("/rules/0/unless", "'DaemonSet'", "'None'"),
            ("/rules/0/unless", "config.mirror", "config.none"),
            ("/rules/0/unless", "t.key == null", "false"),
            ("/rules/0/unless", "t.key == 'davit.dev/drain'", "false"),
            ("/rules/0/unless", "t.key == 'davit.dev/drain'", "true"),
            ("/rules/0/unless", "t.operator == 'Exists'", "false"),
            ("/rules/0/unless", "t.operator == 'Exists'", "true"),
            ("/rules/0/unless", "t.operator == null", "false"),
            ("/rules/0/unless", "t.operator == 'Equal'", "false"),
            ("/rules/0/unless", "n.key == 'davit.dev/drain'", "true"),
            ("/rules/0/unless", "n.value == null ? '' : n.value", "''"),
            (
                "/rules/0/unless",
                "n.value == null ? '' : n.value",
                "n.value",
            ),
            ("/rules/0/unless", "t.value == null ? '' : t.value", "''"),
            (
                "/rules/0/unless",
                "t.value == null ? '' : t.value",
                "t.value",
            ),
        ],
    }
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
            "Node/broken Warning NodeTainted: not ready since 2023-11-14T22:13:20Z, \
             Node/not-ready Warning NodeTainted: not ready since 2023-11-14T22:13:20Z",
        ],
        changes: vec![
            ("/rules/0/when", "labels.owner", "labels.team"),
            ("/rules/0/unless", "kube-", "cube-"),
            ("/rules/0/unless", "'default', ", ""),
            ("/rules/0/unless", ", 'davit-system'", ""),
            ("/rules/0/do/label/owner", "unknown", "nobody"),
            (
                "/rules/0/do/annotate/davit.dev~1owner-missing-since",
                "${now}",
                "x",
            ),
            ("/rules/1/when", "10m", "11m"),
            ("/rules/1/when", "10m", "9m"),
            ("/rules/1/when", "'Unknown'", "'Never'"),
            ("/rules/1/when", "'False'", "'Never'"),
            (
                "/rules/1/when",
                ".status in ['False', 'Unknown']",
                " != null",
            ),
            ("/rules/1/do/taint/key", "not-ready", "broken"),
            ("/rules/1/do/taint/value", "true", "false"),
            ("/rules/1/do/taint/effect", "NoSchedule", "NoExecute"),
            ("/rules/1/do/event/type", "Warning", "Normal"),
            ("/rules/1/do/event/reason", "NodeTainted", "Tainted"),
            ("/rules/1/do/event/message", "not ready", "away"),
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
    harness.put(node("labelled", &[label()]));
    harness.put(node(
        "tainted",
        &[taint("node.kubernetes.io/out-of-service")],
    ));
    harness.put(node("healthy", &[]));
    harness.put(node("no-longer", &[label()]));
    harness.put_on_server(node("no-longer", &[]));
    for name in ["labelled", "tainted", "healthy", "no-longer"] {
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
    harness.put(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"namespace": "ci", "name": "all"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "budget"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1,
                   "expectedPods": 1, "observedGeneration": 1},
    }));
    harness.put(node("n1", &[taint("davit.dev/drain")]));
    harness.put(node("n2", &[]));
    let taints = json!([
        {"key": "davit.dev/drain", "value": "yes", "effect": "NoExecute"},
        {"key": "davit.dev/other", "value": "x", "effect": "NoExecute"},
    ]);
    harness.put(node("n3", &[("/spec/taints", taints)]));
    let budget = ("/metadata/labels/app", json!("budget"));
    harness.put(with(running("budget", "n1"), &[budget]));
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
        // The value of another taint.
        ("value-of-other", "n3", json!({"key": key, "value": "x"})),
    ] {
        let tolerations = ("/spec/tolerations", json!([toleration]));
        harness.put(with(running(name, node), &[tolerations]));
    }
    left_at(harness, "Pod", &[MINUTE, 9 * MINUTE, 11 * MINUTE])
}

fn unreachable(harness: &mut Harness<Policy>) -> Vec<String> {
    let gone = || [taint("node.kubernetes.io/unreachable")];
    harness.put(node("n1", &gone()));
    for name in ["n2", "n3", "n4"] {
        harness.put(node(name, &[]));
    }
    let of_replica_set = |name, node| owned_by(running(name, node), "apps/v1", "ReplicaSet", "r");
    harness.put(of_replica_set("web", "n1"));
    harness.put(of_replica_set("healthy", "n2"));
    harness.put(owned_by(
        running("stateful", "n1"),
        "apps/v1",
        "StatefulSet",
        "s",
    ));
    let mut outcome = left_at(harness, "Pod", &[15 * MINUTE, 15 * MINUTE + SECOND]);
    // Two of four are more than 30 %.
    harness.put(node("n3", &gone()));
    harness.put(of_replica_set("web-2", "n1"));
    advance(harness, HOUR);
    outcome.push(left(harness, "Pod"));
    harness.put(node("n3", &[]));
    advance(harness, 2 * MINUTE);
    outcome.push(left(harness, "Pod"));
    outcome
}

fn marks(harness: &mut Harness<Policy>) -> Vec<String> {
    for name in ["default", "found", "kube-system", "davit-system"] {
        harness.put(object("v1", "Namespace", "", name));
    }
    let owner = ("/metadata/labels/owner", json!("team"));
    harness.put(with(object("v1", "Namespace", "", "owned"), &[owner]));
    let ready = |status: &str| {
        let condition = json!([{"type": "Ready", "status": status, "lastTransitionTime": START}]);
        [("/status/conditions", condition)]
    };
    harness.put(node("broken", &ready("Unknown")));
    harness.put(node("not-ready", &ready("False")));
    harness.put(node("well", &ready("True")));
    let mut outcome = Vec::new();
    advance(harness, 10 * MINUTE);
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
        let text = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
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
