use std::sync::Arc;
use std::time::Duration;

use davit_core::plan::{Plan, QueueKey};
use davit_core::queue::PendingSnapshot;
use davit_core::rollout::Role;
use davit_core::rollout::compare::{Comparison, Counts, Look};
use davit_core::store::Store;
use davit_core::time::Wall;
use serde_json::json;

use super::*;

fn packed(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

fn plan(reason: &str, steps: Vec<plan::Step>) -> Arc<Plan> {
    Arc::new(Plan {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: "p1".into(),
            uid: "7b1c".into(),
        },
        reason: reason.into(),
        message: "its node is gone".into(),
        steps,
        measures: vec![],
        when_cancelled: None,
    })
}

/// What both revisions decided about one pod, as the host answers it.
fn found() -> Disagreements {
    let patch = plan::Step::Patch(plan::Patch {
        kind: PatchKind::StrategicMerge,
        subresource: "status".into(),
        body: packed(&json!({"status": {"phase": "Failed"}})),
    });
    let delete = plan::Step::Delete(plan::DeleteOptions {
        grace_period_seconds: Some(0),
        ..plan::DeleteOptions::default()
    });
    let second = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
    let item = QueueKey {
        queue: "orphaned".into(),
        key: "n1".into(),
    };
    let (mut comparison, snapshot) = (
        Comparison::new(Instant::ZERO, Duration::from_secs(30)),
        Store::default().snapshot(),
    );
    let mut decided = |role, seconds, plan| {
        let look = Look {
            role,
            item: &item,
            snapshot: &snapshot,
            began: second(seconds),
            other: &PendingSnapshot::default(),
        };
        comparison.decided(second(seconds), look, &[plan], |_| false);
    };
    decided(
        Role::Stable,
        10,
        plan("orphaned", vec![patch, delete.clone()]),
    );
    decided(Role::Candidate, 12, plan("lost", vec![delete]));
    Disagreements {
        revisions: ["aaaa".into(), "bbbb".into()],
        counts: Counts {
            agree: 97,
            ..*comparison.counts()
        },
        last: comparison.disagreements().cloned().collect(),
        now: Now {
            instant: second(72),
            wall: Wall(1_700_000_060_000),
        },
    }
}

#[test]
fn both_plans_are_told_with_their_reasons() {
    let page = Page::from(&found());
    let written = serde_json::to_value(&page).unwrap();
    let delete = json!({"step": "delete", "gracePeriodSeconds": 0});
    let side = |at: &str, reason: &str, steps: Value| {
        json!({
            "at": at, "queue": "orphaned", "key": "n1", "reason": reason,
            "message": "its node is gone", "steps": steps,
        })
    };
    let patch = json!({
        "step": "patch", "kind": "strategic-merge", "subresource": "status",
        "body": {"status": {"phase": "Failed"}},
    });
    assert_eq!(
        written,
        json!({
            "stable": "aaaa",
            "candidate": "bbbb",
            "counts": {
                "agree": 97, "disagree": 1, "onlyStable": 0, "onlyCandidate": 0, "different": 1,
                "unknown": 0,
            },
            "disagreements": [{
                "at": "2023-11-14T22:13:20Z",
                "verdict": "different",
                "target": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "p1",
                    "uid": "7b1c",
                },
                "stable": side("2023-11-14T22:13:18Z", "orphaned", json!([patch, delete])),
                "candidate": side("2023-11-14T22:13:20Z", "lost", json!([delete])),
            }],
        })
    );
    assert_eq!(serde_json::from_value::<Page>(written).unwrap(), page);
}

#[test]
fn steps_are_told_in_words() {
    let deletion = Deletion {
        resource_version: "12".into(),
        propagation_policy: Some("Orphan".into()),
        grace_period_seconds: None,
    };
    for (step, words) in [
        (Step::Delete(Deletion::default()), "delete"),
        (
            Step::Evict(deletion),
            "evict (Orphan, only at resourceVersion 12)",
        ),
        (
            Step::Patch {
                kind: "merge".into(),
                subresource: String::new(),
                body: json!({"a": null}),
            },
            "patch it (merge): {\"a\":null}",
        ),
        (
            Step::Event {
                event_type: "Warning".into(),
                reason: "Evicted".into(),
                message: "too long".into(),
            },
            "event Warning Evicted: too long",
        ),
    ] {
        assert_eq!(step.to_string(), words);
    }
}
