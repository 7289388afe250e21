//! The tests compare patches with the output of Kubernetes 1.36.2's own code
//! for the same change, byte for byte, as JSON with sorted keys.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2023-11-14T22:13:20Z";
const EARLIER: &str = "2023-11-14T22:00:00Z";

fn now() -> Time {
    Time::parse(NOW).unwrap()
}

fn status(of: Value) -> PodStatus {
    serde_json::from_value(of).unwrap()
}

fn ready() -> Value {
    json!({"type": "Ready", "status": "True"})
}

fn pod_gc() -> PodCondition {
    PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        "DeletionByPodGC",
        "PodGC: node no longer exists",
        1,
    )
}

fn failed(old: &PodStatus) -> PodStatus {
    PodStatus {
        phase: "Failed".to_owned(),
        observed_generation: 1,
        ..old.clone()
    }
}

fn failed_by_pod_gc(old: &PodStatus) -> PodStatus {
    let mut new = failed(old);
    new.update_condition(pod_gc(), now());
    new
}

fn json_of(patch: &Patch) -> String {
    let body: Value = rmp_serde::from_slice(&patch.body).unwrap();
    body.to_string()
}

#[track_caller]
fn assert_patch(uid: &str, old: &PodStatus, new: &PodStatus, expected: &str) {
    let patch = status_patch(uid, old, new).unwrap();
    assert_eq!(patch.kind, "strategic-merge");
    assert_eq!(patch.subresource, "status");
    assert_eq!(json_of(&patch), expected);
}

#[test]
fn phase_and_observed_generation() {
    let old = status(json!({"phase": "Running"}));
    assert_patch(
        "u-1",
        &old,
        &failed(&old),
        r#"{"metadata":{"uid":"u-1"},"status":{"observedGeneration":1,"phase":"Failed"}}"#,
    );
}

#[test]
fn phase_alone() {
    let old = status(json!({"phase": "Running", "observedGeneration": 1}));
    assert_patch(
        "u-1",
        &old,
        &failed(&old),
        r#"{"metadata":{"uid":"u-1"},"status":{"phase":"Failed"}}"#,
    );
}

#[test]
fn a_new_condition_beside_another() {
    let old = status(json!({"phase": "Running", "conditions": [ready()]}));
    assert_patch(
        "u-1",
        &old,
        &failed_by_pod_gc(&old),
        r#"{"metadata":{"uid":"u-1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"DisruptionTarget"}],"conditions":[{"lastProbeTime":null,"lastTransitionTime":"2023-11-14T22:13:20Z","message":"PodGC: node no longer exists","observedGeneration":1,"reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"observedGeneration":1,"phase":"Failed"}}"#,
    );
}

#[test]
fn the_first_condition_needs_no_order() {
    let old = status(json!({"phase": "Running"}));
    assert_patch(
        "u-1",
        &old,
        &failed_by_pod_gc(&old),
        r#"{"metadata":{"uid":"u-1"},"status":{"conditions":[{"lastProbeTime":null,"lastTransitionTime":"2023-11-14T22:13:20Z","message":"PodGC: node no longer exists","observedGeneration":1,"reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"observedGeneration":1,"phase":"Failed"}}"#,
    );
}

#[test]
fn a_condition_that_holds_already_for_another_reason() {
    let former = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
        "message": "preempting", "lastTransitionTime": EARLIER, "lastProbeTime": null,
        "observedGeneration": 1,
    });
    let old = status(json!({"phase": "Running", "conditions": [ready(), former]}));
    assert_patch(
        "u-1",
        &old,
        &failed_by_pod_gc(&old),
        r#"{"metadata":{"uid":"u-1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"DisruptionTarget"}],"conditions":[{"message":"PodGC: node no longer exists","reason":"DeletionByPodGC","type":"DisruptionTarget"}],"observedGeneration":1,"phase":"Failed"}}"#,
    );
}

#[test]
fn a_condition_that_did_not_hold_keeps_its_place() {
    let former = json!({
        "type": "DisruptionTarget", "status": "False", "lastTransitionTime": EARLIER,
    });
    let old = status(json!({"phase": "Running", "conditions": [former, ready()]}));
    assert_patch(
        "u-1",
        &old,
        &failed_by_pod_gc(&old),
        r#"{"metadata":{"uid":"u-1"},"status":{"$setElementOrder/conditions":[{"type":"DisruptionTarget"},{"type":"Ready"}],"conditions":[{"lastTransitionTime":"2023-11-14T22:13:20Z","message":"PodGC: node no longer exists","observedGeneration":1,"reason":"DeletionByPodGC","status":"True","type":"DisruptionTarget"}],"observedGeneration":1,"phase":"Failed"}}"#,
    );
}

#[test]
fn the_taint_manager_leaves_the_phase_alone() {
    let old = status(json!({"phase": "Running", "conditions": [ready()]}));
    let mut new = old.clone();
    let condition = PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
        1,
    );
    assert!(new.update_condition(condition, now()));
    assert_patch(
        "u-1",
        &old,
        &new,
        r#"{"metadata":{"uid":"u-1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"DisruptionTarget"}],"conditions":[{"lastProbeTime":null,"lastTransitionTime":"2023-11-14T22:13:20Z","message":"Taint manager: deleting due to NoExecute taint","observedGeneration":1,"reason":"DeletionByTaintManager","status":"True","type":"DisruptionTarget"}]}}"#,
    );
}

#[test]
fn pgc_26_no_change() {
    let old = status(json!({"phase": "Running", "conditions": [ready()]}));
    assert_eq!(status_patch("myuid", &old, &old), None);
}

#[test]
fn pgc_27_message_change() {
    let old = PodStatus::default();
    let new = status(json!({"message": "foobar"}));
    assert_patch(
        "myuid",
        &old,
        &new,
        r#"{"metadata":{"uid":"myuid"},"status":{"message":"foobar"}}"#,
    );
}

#[test]
fn pgc_28_pod_condition_change() {
    let conditions = |ready: &str| {
        status(json!({"conditions": [
            {"type": "Ready", "status": ready},
            {"type": "PodScheduled", "status": "True"},
        ]}))
    };
    assert_patch(
        "myuid",
        &conditions("True"),
        &conditions("False"),
        r#"{"metadata":{"uid":"myuid"},"status":{"$setElementOrder/conditions":[{"type":"Ready"},{"type":"PodScheduled"}],"conditions":[{"status":"False","type":"Ready"}]}}"#,
    );
}

/// No guest writes the status of containers: the kubelet's fields are not part
/// of the change, and no patch touches them.
#[test]
fn pgc_29_additional_init_container_condition() {
    let old = status(json!({"phase": "Running"}));
    let new = status(json!({
        "phase": "Running",
        "initContainerStatuses": [{"name": "init-container", "ready": true}],
    }));
    assert_eq!(status_patch("myuid", &old, &new), None);
}

#[test]
fn without_a_uid_there_is_no_precondition_and_always_a_patch() {
    let old = status(json!({"phase": "Running"}));
    assert_patch("", &old, &old, "{}");
    assert_patch(
        "",
        &old,
        &failed(&old),
        r#"{"status":{"observedGeneration":1,"phase":"Failed"}}"#,
    );
}

#[test]
fn a_removed_field_is_null() {
    let condition = |more: Value| {
        let mut condition = json!({"type": "Ready", "status": "True"});
        let map = condition.as_object_mut().unwrap();
        map.extend(more.as_object().unwrap().clone());
        condition
    };
    let old = status(json!({
        "reason": "Evicted", "observedGeneration": 3,
        "conditions": [condition(json!({
            "reason": "r", "message": "m", "lastProbeTime": EARLIER, "observedGeneration": 2,
        }))],
    }));
    let new = status(json!({"conditions": [condition(json!({}))]}));
    assert_patch(
        "u-1",
        &old,
        &new,
        r#"{"metadata":{"uid":"u-1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"}],"conditions":[{"lastProbeTime":null,"message":null,"observedGeneration":null,"reason":null,"type":"Ready"}],"observedGeneration":null,"reason":null}}"#,
    );
}

#[test]
fn a_missing_condition_is_deleted() {
    let old = status(json!({"conditions": [ready(), {"type": "PodScheduled", "status": "True"}]}));
    let new = status(json!({"conditions": [ready()]}));
    assert_patch(
        "u-1",
        &old,
        &new,
        r#"{"metadata":{"uid":"u-1"},"status":{"$setElementOrder/conditions":[{"type":"Ready"}],"conditions":[{"$patch":"delete","type":"PodScheduled"}]}}"#,
    );
}

#[test]
fn pgc_30_append_a_pod_condition() {
    let mut it = status(json!({"conditions": [ready()]}));
    it.update_condition(pod_gc(), now());
    let types: Vec<&str> = it.conditions.iter().map(|c| c.r#type.as_str()).collect();
    assert_eq!(types, ["Ready", "DisruptionTarget"]);
}

#[test]
fn pgc_31_replace_a_pod_condition() {
    let former = json!({"type": "DisruptionTarget", "status": "False", "reason": "Foo"});
    let mut it = status(json!({"conditions": [former, ready()]}));
    it.update_condition(pod_gc(), now());
    let [first, second] = it.conditions.as_slice() else {
        panic!("two conditions, not {:?}", it.conditions);
    };
    assert_eq!(
        (first.reason.as_str(), first.status.as_str()),
        ("DeletionByPodGC", "True")
    );
    assert_eq!(second.r#type, "Ready");
}

#[test]
fn pgc_32_update_pod_condition() {
    let former = json!({
        "type": "Ready", "status": "True", "reason": "successfully",
        "message": "sync pod successfully", "lastProbeTime": NOW, "lastTransitionTime": EARLIER,
    });
    let condition: PodCondition = serde_json::from_value(former.clone()).unwrap();
    let differs = |change: fn(&mut PodCondition)| {
        let mut condition = condition.clone();
        change(&mut condition);
        condition
    };
    for (case, update, changed, transition) in [
        ("all equal", differs(|_| ()), false, EARLIER),
        (
            "new type",
            differs(|c| c.r#type = "PodScheduled".into()),
            true,
            NOW,
        ),
        (
            "status differs",
            differs(|c| c.status = "False".into()),
            true,
            NOW,
        ),
        (
            "reason differs",
            differs(|c| c.reason = "other".into()),
            true,
            EARLIER,
        ),
        (
            "message differs",
            differs(|c| c.message = "other".into()),
            true,
            EARLIER,
        ),
        (
            "probe time differs",
            differs(|c| c.last_probe_time = None),
            true,
            EARLIER,
        ),
        (
            "generation differs",
            differs(|c| c.observed_generation = 9),
            false,
            EARLIER,
        ),
    ] {
        let mut it = status(json!({"conditions": [former]}));
        assert_eq!(
            it.update_condition(update.clone(), now()),
            changed,
            "{case}"
        );
        let last = it.conditions.last().unwrap();
        assert_eq!(last.last_transition_time, Time::parse(transition), "{case}");
        assert_eq!(
            last.observed_generation, update.observed_generation,
            "{case}"
        );
    }
}
