//! Attribution by who wrote the mark.

use super::*;

/// A pod that Davit has written, and whose mark this manager has set.
fn marked_by(manager: &str) -> Value {
    let condition = "k:{\"type\":\"DisruptionTarget\"}";
    let reason = json!({"f:reason": {}});
    let fields = json!({"f:status": {"f:conditions": {condition: reason}}});
    let mut pod = marked(ORPHANED);
    pod["metadata"]["managedFields"] = json!([
        {"manager": "davit/labels", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
        {"manager": manager, "fieldsV1": fields},
    ]);
    pod
}

#[test]
fn a_mark_is_its_writers_whatever_else_davit_has_written() {
    let mut bench = Bench::podgc(&["cluster", "davit"]);
    for (pod, manager) in [
        ("cluster", "kube-controller-manager"),
        ("davit", "davit/podgc"),
    ] {
        bench.put(pod, pod, &marked_by(manager));
        bench.gone(pod);
    }
    assert_eq!(bench.held(), 1);
    assert_eq!(bench.end(), [0, 0, 1, 0, 0]);
}

#[test]
fn what_davit_has_written_and_nobody_has_marked_is_davits() {
    let mut bench = Bench::podgc(&["a"]);
    let mut pod = running();
    pod["metadata"]["managedFields"] = json!([{"manager": "davit/labels"}]);
    bench.put("a", "a", &pod);
    bench.plan("a");
    bench.put("a", "a", &terminating(pod));
    assert_eq!(bench.counts(), [0, 0, 0, 1, 0]);
}
