//! Objects that are being deleted already: every policy leaves them alone.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{
    HOUR, SECOND, START, config_of, ended, names, object, owned_by, running, with,
};

const CLAUSE: &str = "object.metadata.deletionTimestamp == null";

const A_WEEK_AGO: &str = "2023-11-07T22:13:20Z";

/// They only mark objects, or act on those that are being deleted.
const OTHERS: [&str; 2] = ["fenced-node-pods", "marks"];

/// An object that a policy ends.
fn subject(policy: &str) -> Value {
    let label =
        |name: &str, value: &str| (format!("/metadata/labels/davit.dev~1{name}"), json!(value));
    let labelled = |it: Value, (pointer, value): (String, Value)| with(it, &[(&pointer, value)]);
    match policy {
        "ended-pods" | "ended-pods-quota" => ended("Failed", "a"),
        "failed-pods-of-owner" => owned_by(ended("Failed", "a"), "batch/v1", "Job", "j"),
        "cronjob-pods" => owned_by(ended("Succeeded", "a"), "batch/v1", "Job", "j"),
        "drain-with-budgets" | "unreachable-node-pods" => {
            owned_by(running("a", "n1"), "apps/v1", "ReplicaSet", "r")
        }
        "finished-jobs" => labelled(
            with(
                object("batch/v1", "Job", "ci", "a"),
                &[("/status/completionTime", json!(START))],
            ),
            label("clean-up", "true"),
        ),
        "unused-configmaps" => labelled(
            object("v1", "ConfigMap", "ci", "a"),
            label("release", "finished"),
        ),
        "released-volumes" => with(
            object("v1", "PersistentVolume", "", "a"),
            &[
                ("/metadata/annotations/davit.dev~1keep", json!("false")),
                ("/status/phase", json!("Released")),
                ("/status/lastPhaseTransitionTime", json!(A_WEEK_AGO)),
            ],
        ),
        "preview-namespaces" => labelled(
            with(
                object("v1", "Namespace", "", "a"),
                &[("/metadata/annotations/davit.dev~1ttl", json!("30m"))],
            ),
            label("preview", "true"),
        ),
        name => panic!("the policy {name} has no object here"),
    }
}

/// How many plans there are for an object as soon as the policy ends it.
fn plans(policy: &str, config: &Value, subject: Value) -> usize {
    let mut harness = Harness::<Policy>::new(config).unwrap();
    let taints = ["davit.dev/drain", "node.kubernetes.io/unreachable"]
        .map(|key| json!({"key": key, "effect": "NoExecute", "timeAdded": START}));
    let node = |name: &str| object("v1", "Node", "", name);
    harness.put(with(node("n1"), &[("/spec/taints", json!(taints))]));
    for name in ["n2", "n3", "n4"] {
        harness.put(node(name));
    }
    let complete = json!([{"type": "Complete", "status": "True", "lastTransitionTime": START}]);
    let fields = [
        ("/metadata/uid", json!("j")),
        ("/status/conditions", complete),
    ];
    let job = with(object("batch/v1", "Job", "ci", "j"), &fields);
    harness.put(owned_by(job, "batch/v1", "CronJob", "c"));
    harness.put(subject);
    let hours = match policy {
        "ended-pods" => 24,
        "finished-jobs" => 6,
        _ => 1,
    };
    harness.advance(hours * HOUR + SECOND);
    harness.executions().len()
}

/// A policy whose `keep` spares nothing.
fn config(policy: &str) -> Value {
    let mut config = config_of(policy);
    for field in ["newest", "above"] {
        if let Some(number) = config.pointer_mut(&format!("/rules/0/keep/{field}")) {
            *number = json!(0);
        }
    }
    config
}

/// The rules of a configuration, each with the clause too.
fn with_clause(config: &Value) -> Value {
    let mut config = config.clone();
    for rule in config["rules"].as_array_mut().unwrap() {
        let when = rule["when"].as_str().unwrap();
        assert!(!when.contains("deletionTimestamp"), "{when}");
        rule["when"] = json!(format!("{CLAUSE} && ({when})"));
    }
    config
}

/// The guest leaves them alone by itself, unless a rule reads `metadata.deletionTimestamp`. A
/// rule that reads it has to spare them by a clause.
#[test]
fn what_is_being_deleted_is_left_alone_with_the_clause_and_without_it() {
    for policy in names().iter().filter(|it| !OTHERS.contains(&it.as_str())) {
        let shipped = config(policy);
        let with_clause = with_clause(&shipped);
        let terminating = with(
            subject(policy),
            &[
                ("/metadata/deletionTimestamp", json!(START)),
                ("/metadata/finalizers", json!(["example.com/wait"])),
            ],
        );
        for config in [&shipped, &with_clause] {
            assert_eq!(plans(policy, config, terminating.clone()), 0, "{policy}");
            assert!(plans(policy, config, subject(policy)) > 0, "{policy}");
        }
    }
}
