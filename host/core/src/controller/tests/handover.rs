//! The state that a revision passes on to the next one, and to a candidate.

use super::candidate::{share, step};
use super::*;
use crate::budget::{Cooldown, Guardrails};

/// With a queue that no trigger feeds, and a tick.
fn with_timers() -> Manifest {
    let mut manifest = manifest();
    manifest.queues.push(queue("timers", 1));
    manifest.ticks = vec![TickSpec {
        queue: "nodes".into(),
        key: "tick".into(),
        period: 20 * SECOND,
    }];
    manifest
}

fn try_beside(bench: &mut Bench, weight: u8) {
    let (now, views) = (bench.now, views(bench.view));
    bench
        .controller
        .start_candidate(now, loaded(with_timers()), views, step(weight));
}

/// Answers every call: items of `timers` and the tick delete their pods, others have no
/// plans. Returns the items of both.
fn work(bench: &mut Bench, role: Role) -> Vec<(String, Instant)> {
    let mut items = Vec::new();
    while let Some(call) = bench.call_of(role) {
        let decisions = call.items.iter().map(|item| {
            let wants = item.queue == "timers" || item.key == "tick";
            if wants {
                items.push((item.key.clone(), item.created_at));
            }
            let plans = wants.then(|| delete(&item.key));
            decide(plans.into_iter().collect(), Verdict::Done)
        });
        let decisions = decisions.collect();
        bench.answer(call.id, decisions);
    }
    items
}

/// The cache observes a pod, and an item about it is enqueued in `timers`.
fn with_timer(bench: &mut Bench, pod: &str) {
    bench.see(pod, 1, "");
    while let Some(call) = bench.call() {
        let enqueue = |item: &crate::plan::WorkItem| {
            let timer = Command::Enqueue(Enqueue {
                item: QueueKey {
                    queue: "timers".into(),
                    key: pod.into(),
                },
                after: 5 * SECOND,
                created_at: None,
                group: String::new(),
            });
            let is_pod = item.queue == "pods";
            Decision {
                commands: is_pod.then_some(timer).into_iter().collect(),
                ..decide(vec![], Verdict::Done)
            }
        };
        let decisions = call.items.iter().map(enqueue).collect();
        bench.answer(call.id, decisions);
    }
}

#[test]
fn plans_of_a_replaced_revision_that_did_not_start_never_do() {
    let mut bench = Bench::enforcing();
    for pod in ["a", "b", "c"] {
        bench.see(pod, 1, "");
    }
    let (call, ..) = bench.keys().unwrap();
    let all = ["a", "b", "c"].map(delete).into();
    let decision = Decision {
        parallel: 1,
        ..decide(all, Verdict::Done)
    };
    bench.answer(call, vec![decision]);
    let [(first, _)] = bench.carried()[..] else {
        panic!("one at once");
    };
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest()), views(bench.view));
    bench.outcome(first, succeeded(WriteResult::Gone));
    bench.lose("a");
    assert!(bench.carried().is_empty());
    // The new revision decides on the unchanged item.
    let mut keys = Vec::new();
    while let Some((call, _, called)) = bench.keys() {
        keys.extend(called);
        bench.answer(call, vec![decide(vec![], Verdict::Done)]);
    }
    keys.sort();
    assert_eq!(keys, ["ns/a", "ns/b", "ns/c"]);
    assert!(bench.carried().is_empty());
}

fn reconfigure(bench: &mut Bench, manifest: Manifest) {
    let views = views(bench.view);
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest), views);
}

/// The same without the queue `pods`.
fn without_pods() -> Manifest {
    let mut manifest = manifest();
    manifest.triggers.retain(|trigger| trigger.queue != "pods");
    manifest.queues.retain(|queue| queue.name != "pods");
    manifest
}

#[test]
fn a_plan_that_fails_after_its_queue_was_gone_for_a_while_is_retried_with_its_failure() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    reconfigure(&mut bench, without_pods());
    reconfigure(&mut bench, manifest());
    bench.see("b", 1, "");
    let mut keys = Vec::new();
    while let Some((call, _, called)) = bench.keys() {
        bench.answer(call, vec![decide(vec![], Verdict::Done)]);
        keys.extend(called);
    }
    assert_eq!(keys, ["ns/b"], "a key is reconciled at most once at a time");
    bench.outcome(plan, failed(FailureClass::Server));
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    let item = &call.items[0];
    assert_eq!((item.key.as_str(), item.attempt), ("ns/a", 1));
    assert_eq!(item.failures[0].failure.class, FailureClass::Server);
    // The plans of the next run are counted separately.
    bench.answer(call.id, vec![decide(vec![delete("a")], Verdict::Done)]);
    let plan = bench.carried()[0].0;
    bench.outcome(plan, succeeded(WriteResult::Gone));
    bench.lose("a");
    bench.settle();
    assert_eq!(bench.timeout(), None);
}

#[test]
fn an_item_of_a_queue_that_is_gone_waits_for_nothing() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let decision = decide(vec![delete("a")], Verdict::RequeueWhenObserved);
    bench.answer(call, vec![decision]);
    let plan = bench.carried()[0].0;
    bench.outcome(plan, succeeded(WriteResult::Version(2)));
    reconfigure(&mut bench, without_pods());
    bench.see("a", 2, "");
    bench.settle();
    assert_eq!(bench.timeout(), None);
}

#[test]
fn a_tick_with_plans_of_the_other_revision_keeps_its_period() {
    let mut bench = Bench::new(with_timers(), enforce());
    try_beside(&mut bench, 0);
    for _ in 0..3 {
        assert_eq!(work(&mut bench, Role::Candidate).len(), 1);
        bench.pass(19 * SECOND);
        assert!(work(&mut bench, Role::Candidate).is_empty());
        bench.pass(SECOND);
    }
    assert!(bench.carried().is_empty(), "it is a shadow");
}

fn guarded() -> Settings {
    Settings {
        guardrails: Guardrails {
            deletes_per_minute: Some(0),
            cooldown: Cooldown::UntilReset,
            ..Guardrails::default()
        },
        ..enforce()
    }
}

#[test]
fn a_tick_that_waits_for_a_guardrail_keeps_its_period() {
    let mut bench = Bench::new(with_timers(), guarded());
    for _ in 0..3 {
        assert_eq!(work(&mut bench, Role::Stable).len(), 1);
        bench.pass(20 * SECOND);
    }
    assert!(bench.carried().is_empty());
}

#[test]
fn a_tick_with_an_invalid_plan_keeps_its_period() {
    let mut bench = Bench::new(with_timers(), enforce());
    for _ in 0..3 {
        assert_eq!(work(&mut bench, Role::Stable).len(), 1);
        let (plan, _) = bench.carried()[0];
        bench.outcome(plan, failed(FailureClass::Invalid));
        bench.pass(20 * SECOND);
    }
}

#[test]
fn an_item_that_waits_for_a_guardrail_is_reconciled_after_its_change() {
    let mut bench = Bench::new(with_timers(), guarded());
    let created = bench.now;
    with_timer(&mut bench, "a");
    bench.pass(5 * SECOND);
    assert_eq!(work(&mut bench, Role::Stable).len(), 1);
    bench.pass(3600 * SECOND);
    work(&mut bench, Role::Stable);
    assert!(bench.carried().is_empty());
    bench.controller.set(bench.now, enforce());
    let mut items = work(&mut bench, Role::Stable);
    items.retain(|(key, _)| key == "a");
    assert_eq!(items, [("a".to_owned(), created)]);
}

#[test]
fn an_item_that_was_left_to_the_other_is_reconciled_when_its_owner_changes() {
    let mut bench = Bench::new(with_timers(), enforce());
    let created = bench.now;
    with_timer(&mut bench, "a");
    try_beside(&mut bench, 0);
    bench.pass(5 * SECOND);
    assert!(
        work(&mut bench, Role::Candidate)
            .iter()
            .any(|(key, _)| key == "a")
    );
    assert!(bench.carried().is_empty());
    bench.controller.set_share(bench.now, share(100));
    let items = work(&mut bench, Role::Candidate);
    assert!(items.contains(&("a".to_owned(), created)), "{items:?}");
    let carried = bench.carried();
    assert!(carried.iter().any(|(_, plan)| plan.target.name == "a"));
}

#[test]
fn a_candidate_with_changed_views_keeps_its_counts() {
    let mut bench = Bench::enforcing();
    let views = views(bench.view);
    bench
        .controller
        .start_candidate(bench.now, loaded(manifest()), views.clone(), step(100));
    bench.see("a", 1, "");
    let call = bench.call_of(Role::Candidate).unwrap();
    let failure = crate::circuit::CallFailure::new(CallFailureKind::Trap, "it trapped");
    bench.fail(call.id, failure);
    let before = bench.controller.candidate().unwrap().id;
    bench
        .controller
        .change_candidate_views(bench.now, views, step(0));
    let candidate = bench.controller.candidate().unwrap();
    assert_eq!((candidate.id, candidate.tally().failed_calls), (before, 1));
}

/// Decides on three deletions, of which one has started.
fn deleting_three(bench: &mut Bench) -> PlanId {
    for pod in ["a", "b", "c"] {
        bench.see(pod, 1, "");
    }
    let (call, ..) = bench.keys().unwrap();
    let decision = Decision {
        parallel: 1,
        ..decide(["a", "b", "c"].map(delete).into(), Verdict::Done)
    };
    bench.answer(call, vec![decision]);
    bench.carried()[0].0
}

/// Ends the deletions one by one and, a minute later, every window.
fn until_compared(bench: &mut Bench, first: PlanId) -> crate::rollout::compare::Counts {
    let mut under_way = vec![first];
    for pod in ["a", "b", "c"] {
        for id in std::mem::take(&mut under_way) {
            bench.outcome(id, succeeded(WriteResult::Gone));
        }
        bench.lose(pod);
        under_way.extend(bench.carried().iter().map(|(id, _)| *id));
    }
    bench.pass(60 * SECOND);
    let snapshot = bench.store.snapshot();
    bench.controller.housekeep(bench.now, &snapshot);
    *bench.controller.comparison().unwrap().counts()
}

fn all_alike(bench: &mut Bench) {
    let mut decided = false;
    while let Some(call) = bench.call_of(Role::Candidate) {
        let decisions = call.items.iter().map(|_| {
            let plans = if decided {
                vec![]
            } else {
                ["a", "b", "c"].map(delete).into()
            };
            decided = true;
            decide(plans, Verdict::Done)
        });
        let decisions = decisions.collect();
        bench.answer(call.id, decisions);
    }
}

#[test]
fn plans_from_before_a_rollout_are_compared_with_the_candidate() {
    let mut bench = Bench::enforcing();
    let first = deleting_three(&mut bench);
    bench.start_candidate(0);
    all_alike(&mut bench);
    let counts = until_compared(&mut bench, first);
    assert_eq!((counts.agree, counts.disagreements()), (3, 0), "{counts:?}");
}

#[test]
fn plans_from_before_a_step_are_compared_in_it() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(0);
    let first = deleting_three(&mut bench);
    let now = bench.now;
    bench.controller.set_step(
        now,
        CandidateStep {
            number: 2,
            ..step(0)
        },
    );
    all_alike(&mut bench);
    let counts = until_compared(&mut bench, first);
    assert_eq!((counts.agree, counts.disagreements()), (3, 0), "{counts:?}");
}

/// The stable revision has just deleted it, and the cache has not observed that yet:
/// the candidate decides on an object that is gone.
#[test]
fn writes_from_before_a_rollout_are_not_disagreements() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, succeeded(WriteResult::Gone));
    bench.start_candidate(0);
    assert!(bench.decide(Role::Candidate, &["a"]).is_empty());
    bench.lose("a");
    bench.pass(60 * SECOND);
    let snapshot = bench.store.snapshot();
    bench.controller.housekeep(bench.now, &snapshot);
    let counts = bench.controller.comparison().unwrap().counts();
    assert_eq!(counts.disagreements(), 0, "{counts:?}");
}
