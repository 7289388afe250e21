use std::sync::Arc;
use std::time::Duration;

use davit_core::plan::{Plan, QueueKey};
use davit_core::queue::PendingSnapshot;
use davit_core::rollout::Role;
use davit_core::rollout::compare::{Comparison, Counts, Reconciliation};
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

/// The decisions of both revisions about one pod, as the host returns them.
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
    decided(
        plan("orphaned", vec![patch, delete.clone()]),
        plan("lost", vec![delete]),
    )
}

/// One disagreement: the decisions of the stable revision and of the candidate.
fn decided(stable: Arc<Plan>, candidate: Arc<Plan>) -> Disagreements {
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
        let look = Reconciliation {
            role,
            item: &item,
            snapshot: &snapshot,
            started: second(seconds),
            other: &PendingSnapshot::default(),
        };
        comparison.decided(second(seconds), look, &plan, false);
        comparison.reconciled(look);
    };
    decided(Role::Stable, 10, stable);
    decided(Role::Candidate, 12, candidate);
    Disagreements {
        revisions: ["aaaa".into(), "bbbb".into()],
        counts: Counts {
            agree: 97,
            ..*comparison.counts()
        },
        pending: comparison.pending(),
        counted_since: comparison.counted_since(),
        last: comparison.disagreements().cloned().collect(),
        now: Now {
            instant: second(72),
            wall: Wall(1_700_000_060_000),
        },
    }
}

#[test]
fn a_disagreement_has_both_plans_with_their_reasons() {
    let page = Page::new(&found(), None);
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
            "countedSince": "2023-11-14T22:13:08Z",
            "pending": 0,
            "counts": {
                "agree": 97, "disagree": 1, "onlyStable": 0, "onlyCandidate": 0, "different": 1,
                "unknown": 0,
            },
            "disagreements": [{
                "at": "2023-11-14T22:13:20Z",
                "result": "different",
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

/// Who may look at a rollout may not read Secrets.
#[test]
fn the_data_of_secrets_is_on_no_page() {
    let secret = ObjectRef {
        api_version: "v1".into(),
        kind: "Secret".into(),
        ..ObjectRef::default()
    };
    let create = plan::Step::Create(plan::Create {
        object: secret.clone(),
        body: packed(&json!({"kind": "Secret", "stringData": {"password": "hunter2"}})),
    });
    let patch = plan::Step::Patch(plan::Patch {
        kind: PatchKind::Json,
        subresource: String::new(),
        body: packed(&json!([{"op": "add", "path": "/data/a", "value": "hunter2"}])),
    });
    let of_secret = |reason, step| {
        Arc::new(Plan {
            target: secret.clone(),
            ..(*plan(reason, vec![step])).clone()
        })
    };
    let found = decided(of_secret("copied", create), of_secret("rotated", patch));
    let page = serde_json::to_string(&Page::new(&found, None)).unwrap();
    assert!(page.contains("\"password\":\"\""), "{page}");
    assert!(!page.contains("hunter2"), "{page}");
}

#[test]
fn a_page_has_room_for_two_mebibytes_of_plans() {
    let body = |bytes: usize| {
        let patch = plan::Step::Patch(plan::Patch {
            kind: PatchKind::Merge,
            subresource: String::new(),
            body: packed(&json!({"spec": "x".repeat(bytes)})),
        });
        plan("larger", vec![patch])
    };
    let count = |bytes| {
        let found = decided(body(bytes), plan("gone", vec![]));
        Page::new(&found, None).disagreements.len()
    };
    assert_eq!(count(1_000_000), 1);
    assert_eq!(count(3_000_000), 0);
}

#[test]
fn steps_of_a_plan_are_written_as_text() {
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
            "patch the object (merge): {\"a\":null}",
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

#[test]
fn the_text_of_a_step_has_its_progress_and_what_it_waits_for() {
    let page = |elapsed, left, decisions, min_decisions| StepPage {
        number: 1,
        of: 2,
        text: "shadow for 10m".into(),
        elapsed_seconds: elapsed,
        left_seconds: left,
        waits_for: String::new(),
        decisions,
        min_decisions,
    };
    for (page, expected) in [
        (
            page(40, Some(560), 3, 10),
            "40s elapsed, 9m20s left, 3 of 10 decisions",
        ),
        (
            page(600, Some(0), 3, 10),
            "10m elapsed, its time is over, 3 of 10 decisions; it waits for more, or for davit \
             promote",
        ),
        (
            page(0, Some(600), 0, 0),
            "0s elapsed, 10m left, 0 decisions",
        ),
        (
            page(3661, None, 12, 10),
            "1h1m1s elapsed, until promoted, 12 of 10 decisions",
        ),
    ] {
        let expected = format!("step 1 of 2 (shadow for 10m): {expected}");
        assert_eq!(page.to_string(), expected);
    }
}
