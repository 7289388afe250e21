//! Explanations of random objects: the guest decides the same, and the host executes it.

use std::time::Duration;

use davit_guest::testing::{Dice, Harness};
use davit_guest::{Plan, Step};
use policy::Policy;
use serde_json::{Value, json};

use crate::explained::{agree, explain, plans_of};
use crate::support::{MINUTE, config_of, names, object, owned_by, with};

/// How many clusters the rules with every feature meet. To compile rules takes long in a test.
const CLUSTERS: u64 = 3;

#[test]
fn an_explanation_of_random_objects_is_what_the_guest_decides() {
    let acts = std::thread::scope(|scope| {
        let shipped = names().into_iter().map(|name| config_of(&name)).zip(1..);
        let others = (0..CLUSTERS).map(|seed| (every_feature(), seed));
        let runs = shipped.chain(others);
        let runs: Vec<_> = runs
            .map(|(config, seed)| scope.spawn(move || run(&config, seed)))
            .collect();
        let acts = runs.into_iter().map(|run| run.join().unwrap());
        acts.sum::<usize>()
    });
    assert!(
        acts > 40,
        "only {acts} acts: the objects match too few rules"
    );
}

/// With this, a rule that deletes failed pods does so one by one.
const FLOOR: &str = "counts.failed > 3";

/// Compares at several times; returns the number of plans that were explained.
fn run(config: &Value, seed: u64) -> usize {
    let mut dice = Dice::new(seed);
    let mut harness = Harness::<Policy>::new(config).unwrap();
    for object in cluster(&mut dice) {
        harness.put(object);
    }
    let explained = plans_of(&explain(&harness));
    agree(&harness);
    harness.run();
    assert_executed(&harness, &explained, config);
    let mut acts = explained.len();
    for _ in 0..2 {
        let minutes = dice.pick(&[1, 5, 12]).copied().unwrap();
        harness.advance(minutes * MINUTE + Duration::from_secs(1));
        acts += plans_of(&explain(&harness)).len();
        agree(&harness);
    }
    acts
}

/// What is explained to happen now is executed now, but for groups, and what is done one by one:
/// they are decided a moment later.
fn assert_executed(harness: &Harness<Policy>, explained: &[Plan], config: &Value) {
    let rules = config["rules"].as_array().unwrap().iter();
    let later = rules.filter(|rule| !rule["keep"].is_null() || rule["hold"] == FLOOR);
    let later: Vec<&str> = later.map(|rule| rule["name"].as_str().unwrap()).collect();
    // An event is not among the executions.
    let is_write = |plan: &&Plan| !plan.steps.iter().all(|it| matches!(it, Step::Event(_)));
    for plan in explained.iter().filter(is_write) {
        let mut executions = harness.executions().iter();
        let is_executed = executions.any(|it| {
            it.plan.reason == plan.reason
                && it.plan.target == plan.target
                && it.plan.steps == plan.steps
        });
        assert!(
            is_executed || later.contains(&plan.reason.as_str()),
            "{plan:?}"
        );
    }
}

/// Rules with everything that a rule can have.
fn every_feature() -> Value {
    json!({
        "counts": {
            "failed": {"resource": "pods", "when": "object.status.phase == 'Failed'"},
            "nodes": {"resource": "nodes"},
        },
        "rules": [
            {"name": "note", "match": {"resource": "pods"},
             "when": "object.status.reason == 'Evicted'",
             "do": {"event": {"reason": "Seen", "message": "${object.metadata.name} was evicted"}}},
            {"name": "label", "match": {"resource": "pods", "namespaces": ["ci"]},
             "when": "object.metadata.labels['team'] == null && object.spec.nodeName != null",
             "do": {"label": {"team": "of-${object.spec.nodeName}"}}},
            {"name": "kept-of-owner", "match": {"resource": "pods"},
             "when": "object.status.phase in ['Failed', 'Succeeded']",
             "unless": "object.metadata.annotations['davit.dev/keep'] == 'true'",
             "keep": {"newest": 1, "per": "owner", "by": "finishedAt(object)"},
             "do": {"delete": {"propagationPolicy": "Foreground"}}},
            {"name": "old", "match": {"resource": "pods", "namespaceSelector": {"matchLabels": {"tier": "a"}}},
             "when": "age(object) > duration('10m') && int(object.metadata.labels['team']) > 1",
             "do": {"delete": {}}},
            {"name": "evicted", "match": {"resource": "pods"},
             "when": "node.spec.taints.exists(t, t.key == 'davit.dev/drain')",
             "hold": "counts.nodes > 3",
             "do": {"evict": {"thenDeleteAfter": "5m"}}},
            {"name": "failed-of-namespace", "match": {"resource": "pods"},
             "when": "object.status.phase == 'Failed'",
             "keep": {"newest": 2, "per": "namespace"},
             "hold": FLOOR,
             "do": {"delete": {}}},
            {"name": "failed", "match": {"resource": "pods"},
             "when": "object.status.phase == 'Failed'",
             "hold": FLOOR,
             "do": {"delete": {}}},
        ],
    })
}

/// Some nodes, namespaces, owners and pods, whose fields are those that the rules read.
fn cluster(dice: &mut Dice) -> Vec<Value> {
    let mut objects = Vec::new();
    for name in ["ci", "shop"] {
        let fields = [
            ("/metadata/labels/tier", json!(pick(dice, &["a", "b"]))),
            ("/metadata/labels/davit.dev~1preview", json!("true")),
            (
                "/metadata/annotations/davit.dev~1ttl",
                json!(pick(dice, &["1h", "soon", "240h"])),
            ),
        ];
        objects.push(with(object("v1", "Namespace", "", name), &fields));
    }
    for name in ["n1", "n2", "n3"] {
        objects.push(node(dice, name));
    }
    for name in ["j1", "j2"] {
        objects.push(job(dice, name));
    }
    for name in ["c1", "c2"] {
        let label = pick(dice, &["finished", "current"]);
        objects.push(with(
            object("v1", "ConfigMap", "ci", name),
            &[("/metadata/labels/davit.dev~1release", json!(label))],
        ));
    }
    let count = 20 + dice.below(20);
    for number in 0..count {
        let pod = pod(dice, &format!("p{number}"));
        objects.push(pod);
    }
    objects
}

fn node(dice: &mut Dice, name: &str) -> Value {
    let key = pick(
        dice,
        &[
            "davit.dev/drain",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/out-of-service",
            "other",
        ],
    );
    let status = pick(dice, &["True", "False", "Unknown"]);
    with(
        object("v1", "Node", "", name),
        &[
            (
                "/spec/taints",
                json!([{"key": key, "effect": "NoExecute", "timeAdded": time(dice)}]),
            ),
            (
                "/status/conditions",
                json!([{"type": "Ready", "status": status, "lastTransitionTime": time(dice)}]),
            ),
        ],
    )
}

fn job(dice: &mut Dice, name: &str) -> Value {
    let job = with(
        object("batch/v1", "Job", "ci", name),
        &[
            ("/metadata/uid", json!(name)),
            ("/metadata/labels/davit.dev~1clean-up", json!("true")),
            ("/status/completionTime", json!(time(dice))),
            (
                "/status/conditions",
                json!([{"type": "Complete", "status": pick(dice, &["True", "False"]), "lastTransitionTime": time(dice)}]),
            ),
        ],
    );
    owned_by(
        job,
        "batch/v1",
        pick(dice, &["CronJob", "Workflow"]),
        "owner",
    )
}

fn pod(dice: &mut Dice, name: &str) -> Value {
    let namespace = pick(dice, &["ci", "shop"]);
    let mut fields = vec![
        ("/metadata/creationTimestamp", json!(time(dice))),
        (
            "/status/phase",
            json!(pick(dice, &["Failed", "Succeeded", "Running"])),
        ),
        (
            "/status/containerStatuses",
            json!([{"name": "c", "state": {"terminated": {"exitCode": 0, "finishedAt": time(dice)}}}]),
        ),
        (
            "/spec/nodeName",
            json!(pick(dice, &["n1", "n2", "n3", "gone"])),
        ),
    ];
    for (field, value) in [
        ("/status/reason", json!("Evicted")),
        ("/metadata/labels/team", json!(pick(dice, &["1", "2", "x"]))),
        ("/metadata/annotations/davit.dev~1keep", json!("true")),
        ("/metadata/deletionTimestamp", json!(time(dice))),
    ] {
        if dice.below(3) == 0 {
            fields.push((field, value));
        }
    }
    let pod = with(object("v1", "Pod", namespace, name), &fields);
    match dice.below(4) {
        0 => pod,
        1 => owned_by(pod, "apps/v1", "ReplicaSet", "r"),
        _ => owned_by(pod, "batch/v1", "Job", pick(dice, &["j1", "j2"])),
    }
}

/// A time before the start of the harness, or a little after it.
fn time(dice: &mut Dice) -> &'static str {
    pick(
        dice,
        &[
            "2023-11-14T22:13:20Z",
            "2023-11-14T22:10:00Z",
            "2023-11-14T20:00:00Z",
            "2023-11-13T00:00:00Z",
            "2023-11-14T22:20:00Z",
        ],
    )
}

fn pick(dice: &mut Dice, values: &[&'static str]) -> &'static str {
    dice.pick(values).copied().unwrap()
}
