//! What is held of the objects that the cluster deletes, and what counts as a deletion.

use super::*;

/// A guest that counts the pods that have ended would count it too, and would delete another.
#[test]
fn a_pod_that_has_ended_is_not_held() {
    let mut bench = Bench::podgc(&["a"]);
    bench.put("a", "a", &json!({"status": {"phase": "Succeeded"}}));
    bench.gone("a");
    assert_eq!(bench.held(), 0);
    assert_eq!(bench.end(), [0, 0, 0, 0, 1], "anybody may have deleted it");
}

#[test]
fn a_mark_of_podgc_on_a_pod_that_terminates_already_is_a_deletion() {
    let mut bench = Bench::podgc(&["a"]);
    bench.put("a", "a", &terminating(running()));
    assert_eq!(bench.held(), 0, "a user may have deleted it");
    bench.put("a", "a", &terminating(marked(ORPHANED)));
    bench.gone("a");
    assert_eq!(bench.held(), 1);
    assert_eq!(bench.end(), [0, 0, 1, 0, 0]);
}

/// PodGC deletes by force what was evicted from a node that is gone since.
#[test]
fn a_mark_of_podgc_on_a_pod_that_another_has_marked_is_a_deletion() {
    let mut bench = Bench::podgc(&["only", "both"]);
    let mut evicted = terminating(marked("EvictionByEvictionAPI"));
    evicted["status"]["phase"] = json!("Running");
    for pod in ["only", "both"] {
        bench.put(pod, pod, &evicted);
    }
    assert_eq!(bench.held(), 0);
    bench.plan("both");
    bench.pass(SECOND);
    for pod in ["only", "both"] {
        bench.put(pod, pod, &terminating(marked(ORPHANED)));
        bench.gone(pod);
    }
    assert_eq!(bench.held(), 1);
    assert_eq!(bench.end(), [1, 0, 1, 0, 0]);
    assert_eq!(bench.median(), Some(-1000));
}

/// No kubelet ends a pod without a node. PodGC may, and so may whoever owns its finalizer.
#[test]
fn the_end_of_a_pod_that_terminates_without_a_node_is_unknown() {
    let mut bench = Bench::podgc(&["a"]);
    let pod = |phase: &str| terminating(json!({"status": {"phase": phase}}));
    bench.put("a", "a", &pod("Pending"));
    bench.put("a", "a", &pod("Failed"));
    bench.gone("a");
    assert_eq!(bench.end(), [0, 0, 0, 0, 1]);
}

/// The API server says that the object is gone: the guest cannot decide on it.
#[test]
fn a_live_read_of_what_is_held_makes_the_result_unknown() {
    let mut bench = Bench::podgc(&["a", "b"]);
    bench.collect("a");
    bench.collect("b");
    let object = |kind: &str, name: &str, uid: &str| ObjectRef {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: "ns".into(),
        name: name.into(),
        uid: uid.into(),
    };
    let other = [object("Pod", "a", "b"), object("ConfigMap", "a", "")];
    for other in other {
        assert!(bench.comparison.read_live(&other).is_none(), "{other}");
    }
    let held = object("Pod", "a", "a");
    assert!(bench.comparison.read_live(&held).is_some());
    assert_eq!(bench.end(), [0, 0, 1, 0, 1]);
}
