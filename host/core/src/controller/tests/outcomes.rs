//! The outcomes of plans, and their items.

use super::*;
use crate::budget::{Cooldown, Guardrails};
use crate::plan::{Create, Measure};

#[test]
fn a_deleted_object_is_not_deleted_again_while_the_cache_lags() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, succeeded(WriteResult::Gone));
    bench.effects();
    // Another change of the same pod arrives before its deletion.
    bench.see("a", 2, "n1");
    let (call, queue, _) = bench.keys().unwrap();
    assert_eq!(queue, "nodes");
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    let rulings = bench.rulings();
    assert!(
        matches!(
            rulings[..],
            [Ruling::Wait(WaitReason::Expectation(
                ExpectationState::NotObserved
            ))]
        ),
        "{rulings:?}"
    );
    let (call, ..) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![], Verdict::Done)]);
    // It is reconciled again as soon as the deletion is observed.
    assert!(bench.call().is_none());
    bench.lose("a");
    let mut queues = vec![];
    while let Some((id, queue, _)) = bench.keys() {
        queues.push(queue);
        bench.answer(id, vec![decide(vec![], Verdict::Done)]);
    }
    queues.sort();
    assert_eq!(queues, ["nodes", "pods"]);
}

/// Two items are about one object: one was decided before the deletion was observed,
/// and its answer arrives afterwards.
#[test]
fn an_earlier_decision_does_not_delete_a_gone_object_again() {
    for verdict in [Verdict::Done, Verdict::RequeueWhenObserved] {
        let mut bench = Bench::enforcing();
        bench.see("a", 1, "n1");
        let (first, ..) = bench.keys().unwrap();
        let (second, ..) = bench.keys().unwrap();
        bench.answer(first, vec![decide(vec![delete("a")], Verdict::Done)]);
        let plan = bench.carried()[0].0;
        bench.outcome(plan, succeeded(WriteResult::Gone));
        bench.lose("a");
        let before = decide(vec![delete("a")], verdict.clone());
        bench.answer(second, vec![before]);
        assert_eq!(
            bench.rulings(),
            [Ruling::Wait(WaitReason::Expectation(
                ExpectationState::Gone
            ))]
        );
        // The resync at its end enqueues each item once.
        bench.settle();
        assert_eq!(bench.timeout(), None);
    }
}

/// Two items are about one object, and one of them would be decided again after a minute.
#[test]
fn a_plan_is_decided_again_when_the_one_before_it_has_ended() {
    for written in [None, Some(WriteResult::Version(5))] {
        let mut bench = Bench::enforcing();
        bench.see("a", 1, "n1");
        let (first, ..) = bench.keys().unwrap();
        let (second, queue, keys) = bench.keys().unwrap();
        bench.answer(first, vec![decide(vec![delete("a")], Verdict::Done)]);
        let plan = bench.carried()[0].0;
        let later = Verdict::RequeueAfter(Duration::from_secs(60));
        bench.answer(second, vec![decide(vec![delete("a")], later)]);
        assert!(bench.keys().is_none(), "the first plan has not ended");
        let outcome = Outcome {
            written,
            failed: None,
        };
        bench.outcome(plan, outcome);
        if written.is_some() {
            assert!(bench.keys().is_none(), "its write is not observed");
            bench.see("a", 5, "n1");
        }
        let snapshot = bench.store.snapshot();
        bench.controller.housekeep(bench.now, &snapshot);
        let (_, again, its_keys) = bench.keys().unwrap();
        assert_eq!((again, its_keys), (queue, keys));
    }
}

/// A plan that creates `ns/b` for the pod.
fn creating(name: &str) -> Plan {
    let mut plan = delete(name);
    let object = ObjectRef {
        name: "b".into(),
        uid: String::new(),
        ..plan.target.clone()
    };
    let body = vec![0x80];
    plan.steps = vec![Step::Create(Create { object, body })];
    plan
}

fn may_create() -> Bench {
    let mut manifest = manifest();
    manifest.permissions[0].verb = "create".into();
    Bench::new(manifest, enforce())
}

/// What is created for an object would outlive it.
#[test]
fn nothing_is_created_for_a_target_that_has_gone_since_the_decision() {
    let mut bench = may_create();
    bench.see("a", 1, "n1");
    let (call, ..) = bench.keys().unwrap();
    bench.lose("a");
    bench.answer(call, vec![decide(vec![creating("a")], Verdict::Done)]);
    let gone = WaitReason::Expectation(ExpectationState::Gone);
    assert_eq!(bench.rulings(), [Ruling::Wait(gone)]);
    assert!(bench.carried().is_empty());
}

/// Nobody notices when the cache has another object, and an apply succeeds each time.
#[test]
fn an_item_that_waits_for_the_write_of_another_object_is_not_decided_at_once() {
    let mut bench = may_create();
    bench.see("a", 1, "");
    let (call, queue, _) = bench.keys().unwrap();
    let plans = vec![creating("a")];
    bench.answer(call, vec![decide(plans, Verdict::RequeueWhenObserved)]);
    let plan = bench.carried()[0].0;
    let done = Outcome {
        written: None,
        failed: None,
    };
    bench.outcome(plan, done);
    let soon = bench.now.after(Duration::from_secs(1));
    assert_eq!(bench.timeout(), Some(soon), "not at once");
    bench.pass(Duration::from_secs(1));
    let (_, again, _) = bench.keys().unwrap();
    assert_eq!(again, queue);
}

/// An item that waits for its writes continues when one of its objects was already
/// gone.
#[test]
fn requeue_when_observed_continues_when_a_target_is_gone() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.see("b", 1, "");
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/b"]);
    bench.outcome(plan, succeeded(WriteResult::Gone));
    bench.lose("a");
    bench.settle();
    let before = decide(vec![delete("a")], Verdict::RequeueWhenObserved);
    bench.answer(call, vec![before]);
    let (_, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/b"]);
}

#[test]
fn the_reason_of_a_retry_is_reported() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let retry = Verdict::Retry {
        reason: "its owner could not be read".into(),
    };
    bench.answer(call, vec![decide(vec![], retry)]);
    let told = bench.effects().into_iter().find_map(|effect| match effect {
        Effect::Retried { item, reason, .. } => Some((item.queue, item.key, reason)),
        _ => None,
    });
    let expected = ["pods", "ns/a", "its owner could not be read"].map(String::from);
    assert_eq!(told.map(<[String; 3]>::from), Some(expected));
}

#[test]
fn an_item_ends_although_its_plan_outlives_its_revision() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest()), views(bench.view));
    bench.outcome(plan, failed(FailureClass::Server));
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    assert_eq!(
        (call.items[0].key.as_str(), call.items[0].attempt),
        ("ns/a", 1)
    );
}

#[test]
fn a_failed_write_is_retried_with_its_failure() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, failed(FailureClass::Server));
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    let item = &call.items[0];
    assert_eq!((item.key.as_str(), item.attempt), ("ns/a", 1));
    assert_eq!(item.failures[0].failure.class, FailureClass::Server);
    assert_eq!(item.failures[0].uid, "a");
}

#[test]
fn a_target_that_is_gone_is_no_failure() {
    for class in [FailureClass::NotFound, FailureClass::UidMismatch] {
        let mut bench = Bench::enforcing();
        let plan = deleting(&mut bench);
        bench.outcome(plan, failed(class));
        bench.pass(60 * SECOND);
        assert!(bench.call().is_none(), "{class}");
    }
}

#[test]
fn a_forbidden_write_waits_longer_and_an_invalid_one_longest() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, failed(FailureClass::Forbidden));
    bench.pass(29 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    assert!(bench.call().is_some());

    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, failed(FailureClass::Invalid));
    bench.pass(299 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    let failure = &call.items[0].failures[0].failure;
    assert_eq!(failure.class, FailureClass::Invalid);
}

#[test]
fn an_item_waits_for_the_servers_pause() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    let mut outcome = failed(FailureClass::Throttled);
    if let Some((_, failure)) = &mut outcome.failed {
        failure.retry_after = Some(20 * SECOND);
    }
    bench.outcome(plan, outcome);
    assert_eq!(bench.timeout(), Some(bench.now.after(20 * SECOND)));
}

#[test]
fn a_refused_plan_is_not_retried() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let mut plan = delete("a");
    plan.target.uid.clear();
    bench.answer(call, vec![decide(vec![plan], Verdict::Done)]);
    assert_eq!(bench.rulings(), [Ruling::Refuse(Refusal::NoUid)]);
    bench.pass(1000 * SECOND);
    assert!(bench.call().is_none());
}

#[test]
fn a_spent_budget_makes_plans_wait() {
    let settings = Settings {
        guardrails: Guardrails {
            deletes_per_minute: Some(1),
            cooldown: Cooldown::After(60 * SECOND),
            ..Guardrails::default()
        },
        ..enforce()
    };
    let mut bench = Bench::new(manifest(), settings);
    for name in ["a", "b"] {
        bench.see(name, 1, "");
    }
    let mut carried = vec![];
    while let Some((call, _, keys)) = bench.keys() {
        let name = keys[0].trim_start_matches("ns/").to_owned();
        bench.answer(call, vec![decide(vec![delete(&name)], Verdict::Done)]);
        carried.extend(bench.carried());
    }
    assert_eq!(carried.len(), 1);
    bench.outcome(carried[0].0, succeeded(WriteResult::Gone));
    bench.pass(59 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/b"]);
    bench.answer(call, vec![decide(vec![delete("b")], Verdict::Done)]);
    assert_eq!(bench.carried().len(), 1);
}

/// The operator changes the guardrail while another plan of the same item is
/// still being executed: no trigger names the item again.
#[test]
fn a_change_of_a_guardrail_during_an_item_decides_its_deferred_plans_again() {
    for in_parts in [false, true] {
        let settings = Settings {
            guardrails: Guardrails {
                deletes_per_minute: Some(1),
                cooldown: Cooldown::UntilReset,
                ..Guardrails::default()
            },
            ..enforce()
        };
        let mut bench = Bench::new(manifest(), settings);
        bench.see("a", 1, "");
        let (call, ..) = bench.keys().unwrap();
        let timer = Command::Enqueue(Enqueue {
            item: QueueKey {
                queue: "pods".into(),
                key: "timer".into(),
            },
            after: Duration::ZERO,
            created_at: None,
            group: String::new(),
        });
        let mut decision = decide(vec![], Verdict::Done);
        decision.commands.push(timer);
        bench.answer(call, vec![decision]);
        let (call, _, keys) = bench.keys().unwrap();
        assert_eq!(keys, ["timer"]);
        let cursor = "c".to_owned();
        let verdict = if in_parts {
            Verdict::ContinueFrom { cursor }
        } else {
            Verdict::Done
        };
        bench.answer(call, vec![decide(vec![delete("a"), delete("b")], verdict)]);
        let carried = bench.carried();
        assert_eq!(carried.len(), 1);
        bench.controller.set(bench.now, enforce());
        bench.outcome(carried[0].0, succeeded(WriteResult::Gone));
        if in_parts {
            let call = bench.call().unwrap();
            assert_eq!(call.items[0].cursor, "c");
            bench.answer(call.id, vec![decide(vec![], Verdict::Done)]);
        }
        let calls = std::iter::from_fn(|| bench.keys());
        let keys: Vec<String> = calls.flat_map(|(_, _, keys)| keys).collect();
        assert!(keys.contains(&"timer".to_owned()), "{keys:?}");
    }
}

#[test]
fn requeue_when_observed_waits_for_the_cache() {
    let mut bench = Bench::enforcing();
    for name in ["a", "b"] {
        bench.see(name, 1, "n1");
    }
    let (call, queue, _) = bench.keys().unwrap();
    assert_eq!(queue, "nodes");
    let plans = vec![delete("a"), delete("b")];
    bench.answer(call, vec![decide(plans, Verdict::RequeueWhenObserved)]);
    for (id, _) in bench.carried() {
        bench.outcome(id, succeeded(WriteResult::Version(5)));
    }
    bench.settle();
    bench.see("a", 5, "n1-gone");
    // The change itself enqueues the node's key, which is removed here.
    bench.settle();
    bench.see("b", 5, "n1");
    assert!(bench.call().is_none(), "no declared field has changed");
    // Housekeeping observes the version.
    let snapshot = bench.store.snapshot();
    bench.controller.housekeep(bench.now, &snapshot);
    let (_, queue, keys) = bench.keys().unwrap();
    assert_eq!((queue.as_str(), keys), ("nodes", vec!["n1".to_owned()]));
}

#[test]
fn measures_count_the_outcomes_of_plans() {
    for (outcome, expected) in [
        (succeeded(WriteResult::Gone), vec!["attempted", "succeeded"]),
        (failed(FailureClass::NotFound), vec!["attempted", "gone"]),
        (failed(FailureClass::Server), vec!["attempted", "failed"]),
    ] {
        let mut bench = Bench::enforcing();
        bench.see("a", 1, "");
        let (call, ..) = bench.keys().unwrap();
        let mut plan = delete("a");
        let measure = |when, name: &str| PlanMeasure {
            when,
            measure: Measure {
                metric: name.into(),
                labels: vec![],
                amount: Amount::Add(1.0),
            },
        };
        plan.measures = vec![
            measure(MeasureWhen::Attempted, "attempted"),
            measure(MeasureWhen::Succeeded, "succeeded"),
            measure(MeasureWhen::Gone, "gone"),
            measure(MeasureWhen::Failed, "failed"),
        ];
        bench.answer(call, vec![decide(vec![plan], Verdict::Done)]);
        let (id, _) = bench.carried()[0];
        bench.outcome(id, outcome);
        let counted: Vec<String> = bench
            .effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Measure(measure) => Some(measure.metric),
                _ => None,
            })
            .collect();
        assert_eq!(counted, expected);
    }
}

#[test]
fn a_guest_that_keeps_failing_opens_its_circuit_and_keeps_its_items() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let mut failures = 0;
    while failures < 5 {
        match bench.call() {
            Some(call) => {
                let failure = CallFailure::new(CallFailureKind::Trap, "unreachable");
                bench.fail(call.id, failure);
                failures += 1;
            }
            None => bench.pass(SECOND),
        }
    }
    assert!(!matches!(
        bench.controller.stable().circuit().state(),
        crate::circuit::CircuitState::Closed
    ));
    bench.see("b", 1, "");
    assert!(bench.call().is_none());
    let opens = bench.timeout().unwrap();
    bench.now = opens;
    let (probe, _, keys) = bench.keys().unwrap();
    assert!(bench.call().is_none(), "one probe at a time");
    bench.answer(probe, vec![decide(vec![], Verdict::Done)]);
    let mut seen = keys;
    bench.pass(60 * SECOND);
    while let Some((id, _, keys)) = bench.keys() {
        seen.extend(keys);
        bench.answer(id, vec![decide(vec![], Verdict::Done)]);
    }
    seen.sort();
    assert_eq!(seen, ["ns/a", "ns/b"]);
}

#[test]
fn a_dry_run_waits_for_no_observation() {
    let mut bench = Bench::new(manifest(), Settings::default());
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let decision = decide(vec![delete("a")], Verdict::RequeueWhenObserved);
    bench.answer(call, vec![decision]);
    assert_eq!(bench.rulings(), [Ruling::DryRun]);
    assert!(bench.call().is_none());
    assert_eq!(bench.timeout(), None);
}

/// A plan for a kind that is not served at the moment, by the gate or by the API
/// server's answer.
#[test]
fn an_item_is_requeued_when_the_kind_of_its_plan_is_served_again() {
    let served = Bench::enforcing().mapping;
    for by_gate in [true, false] {
        let mut bench = Bench::enforcing();
        if by_gate {
            bench.mapping = Arc::default();
            bench.see("a", 1, "");
            let (call, _, keys) = bench.keys().unwrap();
            assert_eq!(keys, ["ns/a"]);
            bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
            let waits = Ruling::Wait(crate::gate::WaitReason::NotServed);
            assert_eq!(bench.rulings(), [waits]);
            assert!(bench.call().is_none(), "nothing has changed");
        } else {
            let plan = deleting(&mut bench);
            bench.outcome(plan, failed(FailureClass::Unmappable));
        }
        bench.mapping = served.clone();
        bench.controller.handle_mapping(bench.now);
        let call = bench.call().unwrap();
        let item = &call.items[0];
        assert_eq!((item.key.as_str(), item.attempt), ("ns/a", 1));
        assert_eq!(item.failures[0].failure.class, FailureClass::Unmappable);
        bench.answer(call.id, vec![decide(vec![], Verdict::Done)]);
        bench.controller.handle_mapping(bench.now);
        bench.pass(60 * SECOND);
        assert!(bench.call().is_none(), "it was done");
    }
}

/// The served resources may change without a discovery that shows both states.
#[test]
fn an_item_whose_kind_is_not_served_is_reconciled_periodically() {
    let mut bench = Bench::enforcing();
    bench.mapping = Arc::default();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    bench.pass(29 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(60 * SECOND);
    assert!(bench.call().is_some());
}
