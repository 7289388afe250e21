//! A guest's answers, good and bad.

use std::time::Duration;

use davit_core::answer::AnswerError;
use davit_core::manifest::{ManifestError, Rate};
use davit_core::object::ObjectRef;
use davit_core::plan::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, MeasureWhen, Patch,
    PatchKind, Plan, PlanMeasure, PropagationPolicy, QueueKey, Step, Verdict,
};
use davit_core::time::Instant;
use davit_engine::{CallError, DescribeError, Guest};

use crate::harness::{Config, NOW, ask, call, item, limits, odd_guest, odd_module, try_odd_guest};

async fn decide(behaviour: &str) -> Result<Decision, CallError> {
    let guest = odd_guest(limits()).await;
    let decisions = guest.reconcile(call(&[behaviour])).await?;
    let [decision] = <[Decision; 1]>::try_from(decisions).unwrap();
    Ok(decision)
}

fn target() -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
        uid: "uid-a".to_owned(),
    }
}

fn options(propagation_policy: Option<PropagationPolicy>) -> DeleteOptions {
    DeleteOptions {
        resource_version: "7".to_owned(),
        propagation_policy,
        grace_period_seconds: Some(0),
    }
}

fn waiting() -> QueueKey {
    QueueKey {
        queue: "work".to_owned(),
        key: "a".to_owned(),
    }
}

#[tokio::test]
async fn the_manifest_is_converted_completely() {
    let module = odd_module().await;
    let manifest = module
        .describe(&Config::default().bytes(), limits())
        .await
        .unwrap();
    assert_eq!(manifest.name, "odd");
    let watch = manifest.watch("pods").unwrap();
    assert_eq!(watch.fields[0].to_string(), "spec.nodeName");
    assert!(watch.indexes[0].unset && !watch.indexes[0].presence);
    assert_eq!(manifest.queues[0].retry_max, Duration::from_secs(1000));
    assert_eq!(manifest.ticks[0].period, Duration::from_secs(20));
    assert!(manifest.permits("patch", "", "pods/status"));
    assert!(!manifest.permits("patch", "", "pods"));
    assert_eq!(manifest.metrics[1].buckets, [0.1, 1.0]);
}

#[tokio::test]
async fn a_guest_may_refuse_its_configuration() {
    let refused = Config {
        describe: "refuse",
        ..Config::default()
    };
    let error = try_odd_guest(&refused, limits()).await.err().unwrap();
    assert_eq!(
        error.to_string(),
        "the configuration is not valid: describe: it asks for a refusal"
    );
    let nonsense = Guest::new(odd_module().await, vec![0xc1], limits()).await;
    let Err(DescribeError::Config { field, .. }) = nonsense else {
        panic!("no configuration error");
    };
    assert_eq!(field, "");
}

#[tokio::test]
async fn an_inconsistent_manifest_is_refused() {
    let bad = Config {
        describe: "bad-manifest",
        ..Config::default()
    };
    let error = try_odd_guest(&bad, limits()).await.err().unwrap();
    let DescribeError::Manifest(ManifestError::Undeclared { name, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(name, "work");
}

#[tokio::test]
async fn a_decision_is_converted_completely() {
    let decision = decide("everything").await.unwrap();
    let plan = Plan {
        target: target(),
        reason: "odd".to_owned(),
        message: "it was asked to".to_owned(),
        steps: vec![
            Step::Patch(Patch {
                kind: PatchKind::StrategicMerge,
                subresource: "status".to_owned(),
                body: vec![0x80],
            }),
            Step::Delete(options(Some(PropagationPolicy::Foreground))),
            Step::Evict(options(None)),
            Step::Create(Create {
                object: ObjectRef {
                    name: "b".to_owned(),
                    uid: String::new(),
                    ..target()
                },
                body: created(&decision),
            }),
            Step::Event(Event {
                event_type: "Warning".to_owned(),
                reason: "Odd".to_owned(),
                message: "it was asked to".to_owned(),
                component: "odd-controller".to_owned(),
            }),
        ],
        measures: vec![PlanMeasure {
            when: MeasureWhen::Succeeded,
            measure: Measure {
                metric: "odd_total".to_owned(),
                labels: vec!["odd".to_owned()],
                amount: Amount::Add(1.0),
            },
        }],
        when_cancelled: Some(waiting()),
    };
    let commands = vec![
        Command::Cancel(waiting()),
        Command::Enqueue(Enqueue {
            item: QueueKey {
                queue: "work".to_owned(),
                key: "later".to_owned(),
            },
            after: Duration::from_millis(u64::MAX),
            created_at: Some(Instant::ZERO),
            group: "zone-a".to_owned(),
        }),
        Command::SetRate {
            queue: "work".to_owned(),
            group: "zone-a".to_owned(),
            rate: Rate {
                per_second: 0.5,
                burst: 1,
            },
        },
        Command::SetNote {
            key: "seen".to_owned(),
            value: Some(vec![0xc3]),
        },
        Command::Measure(Measure {
            metric: "odd_seconds".to_owned(),
            labels: Vec::new(),
            amount: Amount::SecondsSince(Instant::ZERO),
        }),
    ];
    let expected = Decision {
        plans: vec![plan],
        commands,
        verdict: Verdict::RequeueAfter(Duration::from_millis(1_500)),
        parallel: 7,
    };
    assert_eq!(decision, expected);
}

#[tokio::test]
async fn a_page_of_a_decision_names_where_the_next_page_starts() {
    let decision = decide("continue-from").await.unwrap();
    let cursor = "the second half".to_owned();
    assert_eq!(decision.verdict, Verdict::ContinueFrom { cursor });
}

/// The body of the one creation, after a check of its fields.
fn created(decision: &Decision) -> Vec<u8> {
    let Step::Create(create) = &decision.plans[0].steps[3] else {
        panic!("no creation");
    };
    let kind = davit_core::msgpack::field(&create.body, "kind")
        .unwrap()
        .unwrap();
    assert_eq!(kind, b"\xa3Pod");
    create.body.clone()
}

#[tokio::test]
async fn the_engine_leaves_the_gates_rulings_to_the_gate() {
    let plan = |decision: Decision| decision.plans.into_iter().next().unwrap();
    let without_uid = plan(decide("no-uid").await.unwrap());
    assert_eq!(without_uid.target.uid, "");
    let undeclared = plan(decide("undeclared-write").await.unwrap());
    assert_eq!(undeclared.target.kind, "Node");
}

#[tokio::test]
async fn there_is_one_decision_for_each_item() {
    let guest = odd_guest(limits()).await;
    let both = guest.reconcile(call(&["done", "count"])).await.unwrap();
    assert_eq!(both[0].verdict, Verdict::Done);
    assert!(matches!(both[1].verdict, Verdict::Retry { .. }));

    for (keys, items, decisions) in [
        (["no-decision", "done"], 2, 1),
        (["two-decisions", "done"], 2, 3),
    ] {
        let error = guest.reconcile(call(&keys)).await.unwrap_err();
        let CallError::Malformed(malformed) = error else {
            panic!("{error}");
        };
        assert_eq!(malformed, AnswerError::Count { items, decisions });
        // The answer costs the guest its instance.
        assert_eq!(ask(&guest, "count").await.unwrap(), "1");
    }
}

#[tokio::test]
async fn a_malformed_answer_is_refused_by_name_and_place() {
    for (behaviour, expected) in [
        (
            "malformed-body",
            "decision 0, plan 0, step 0: the body of the patch is not JSON in MessagePack: \
             it is truncated",
        ),
        (
            "no-object",
            "decision 0, plan 0, step 0: the body of the patch is not an object",
        ),
        (
            "unknown-patch",
            "decision 0, plan 0, step 0: the patch kind is \"server-side\"; this host knows \
             strategic-merge, merge, json, apply and apply-force",
        ),
        (
            "unknown-policy",
            "decision 0, plan 0, step 0: the propagation policy is \"Sideways\"; this host knows \
             Background, Foreground and Orphan",
        ),
        (
            "unknown-event",
            "decision 0, plan 0, step 0: the event type is \"Alarm\"; this host knows Normal and \
             Warning",
        ),
        (
            "incomplete-create",
            "decision 0, plan 0, step 0: the body of the creation has no apiVersion and kind",
        ),
        (
            "unknown-time",
            "decision 0, plan 0: the time of a measure is \"perhaps\"; this host knows attempted, \
             succeeded, gone and failed",
        ),
        (
            "undeclared-metric",
            "decision 0, plan 0: the metric \"other_total\" is not declared",
        ),
        (
            "wrong-labels",
            "decision 0, plan 0: the measure of \"odd_total\" has 2 labels, 1 are declared",
        ),
        (
            "wrong-amount",
            "decision 0, plan 0: the measure of \"odd_total\" is Set(1.0), which a Counter does \
             not accept",
        ),
        (
            "undeclared-queue",
            "decision 0: the queue \"leisure\" is not declared",
        ),
        (
            "bad-rate",
            "decision 0: the rate is NaN a second with a burst of 1",
        ),
        (
            "not-cancelled",
            "decision 0, plan 0: the plan depends on the cancellation of \"a\", but no command \
             cancels it",
        ),
        ("many-plans", "decision 0: 20000 plans; the limit is 10000"),
        (
            "many-steps",
            "decision 0, plan 0: 100 steps; the limit is 32",
        ),
        (
            "many-commands",
            "decision 0: 20000 commands; the limit is 10000",
        ),
        (
            "long-cursor",
            "decision 0: 1025 bytes in the cursor; the limit is 1024",
        ),
    ] {
        let error = decide(behaviour).await.unwrap_err();
        let CallError::Malformed(malformed) = error else {
            panic!("{behaviour}: {error}");
        };
        assert_eq!(malformed.to_string(), expected, "{behaviour}");
    }
}

#[tokio::test]
async fn an_item_is_converted_completely() {
    use davit_core::failure::{Failure, FailureClass};
    use davit_core::plan::PlanFailure;

    let config = Config {
        reconcile: "item",
        ..Config::default()
    };
    let guest = try_odd_guest(&config, limits()).await.unwrap();
    let mut asked = call(&[]);
    asked.items = vec![davit_core::plan::WorkItem {
        attempt: 3,
        created_at: Instant::from_nanos(59_000_000_000),
        due_at: NOW.instant,
        failures: vec![PlanFailure {
            uid: "uid-a".to_owned(),
            step: 1,
            failure: Failure::new(FailureClass::UidMismatch, "it is another one"),
        }],
        cursor: "the second half".to_owned(),
        ..item("ns/a")
    }];
    let told = crate::harness::report(guest.reconcile(asked).await.unwrap());
    for part in [
        "queue: \"work\"",
        "key: \"ns/a\"",
        "attempt: 3",
        "cursor: \"the second half\"",
        "created-at: 1799999999000",
        "due-at: 1800000000000",
        "uid: \"uid-a\"",
        "step: 1",
        "class: \"uid-mismatch\"",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
}
