//! Decisions that are too long for one answer and come in pages.

use super::*;
use crate::controller::execution::ItemExecution;

fn continue_from(plans: Vec<Plan>, cursor: &str) -> Decision {
    let cursor = cursor.to_owned();
    decide(plans, Verdict::ContinueFrom { cursor })
}

/// The key, the cursor and the attempt of the only item of a call.
fn asked(call: &CallRequest<()>) -> (&str, &str, u32) {
    let [item] = &call.items[..] else {
        panic!("{:?}", call.items);
    };
    (&item.key, &item.cursor, item.attempt)
}

/// The cache observes a pod, and the first page of the decision deletes this one.
fn first_part(bench: &mut Bench) -> PlanId {
    bench.see("a", 1, "");
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "", 0));
    bench.answer(call.id, vec![continue_from(vec![delete("a")], "b")]);
    let carried = bench.carried();
    assert_eq!(carried.len(), 1);
    carried[0].0
}

#[test]
fn the_next_page_is_called_for_when_the_plans_of_the_last_have_ended() {
    let mut bench = Bench::enforcing();
    let plan = first_part(&mut bench);
    assert!(bench.call().is_none());
    bench.outcome(plan, succeeded(WriteResult::Gone));
    assert_eq!(bench.timeout(), Some(bench.now));
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "b", 0));
    bench.answer(call.id, vec![decide(vec![delete("b")], Verdict::Done)]);
    let (plan, _) = bench.carried()[0];
    bench.outcome(plan, succeeded(WriteResult::Gone));
    bench.pass(600 * SECOND);
    assert!(bench.call().is_none());
}

/// So that all reports of a decision name the same one.
#[test]
fn the_pages_of_a_decision_share_its_id() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let first = bench.call().unwrap();
    assert_eq!((first.continues, first.reasons.len()), (None, 1));
    bench.answer(first.id, vec![continue_from(vec![delete("a")], "b")]);
    let (plan, _) = bench.carried()[0];
    bench.outcome(plan, succeeded(WriteResult::Gone));
    let next = bench.call().unwrap();
    let id = DecisionId {
        call: first.id,
        position: 0,
    };
    assert_eq!((next.continues, next.reasons.len()), (Some(id), 0));
    bench.answer(next.id, vec![decide(vec![], Verdict::Done)]);
    let effects = bench.effects();
    let ended = effects.iter().find_map(|effect| match effect {
        Effect::Reconciled {
            decision, finish, ..
        } => Some((*decision, *finish)),
        _ => None,
    });
    assert_eq!(ended, Some((id, "done")));
}

/// Whatever the verdict of the last page, and although its own plans succeed.
#[test]
fn a_failure_in_any_page_is_retried_after_the_last_page() {
    let mut bench = Bench::enforcing();
    let plan = first_part(&mut bench);
    bench.outcome(plan, failed(FailureClass::Server));
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "b", 0));
    bench.answer(call.id, vec![decide(vec![delete("b")], Verdict::Done)]);
    let (plan, _) = bench.carried()[0];
    bench.outcome(plan, succeeded(WriteResult::Gone));
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "", 1));
    assert_eq!(call.items[0].failures[0].uid, "a");
}

#[test]
fn an_item_enqueued_meanwhile_is_decided_from_its_first_page() {
    let mut bench = Bench::enforcing();
    let plan = first_part(&mut bench);
    bench.see("a", 2, "node");
    bench.outcome(plan, succeeded(WriteResult::Gone));
    // A started decision goes before pending items.
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "b", 0));
    bench.answer(call.id, vec![decide(vec![], Verdict::Done)]);
    let calls = std::iter::from_fn(|| bench.call());
    let calls: Vec<CallRequest<()>> = calls.collect();
    let mut again = calls.iter().filter(|call| call.items[0].queue == "pods");
    assert_eq!(asked(again.next().unwrap()), ("ns/a", "", 0));
}

/// A dry run does not decide forever.
#[test]
fn a_dry_run_shows_every_part_once() {
    let mut bench = Bench::new(manifest(), Settings::default());
    bench.see("a", 1, "");
    let call = bench.call().unwrap();
    bench.answer(call.id, vec![continue_from(vec![delete("a")], "b")]);
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "b", 0));
    bench.answer(call.id, vec![decide(vec![delete("b")], Verdict::Done)]);
    let shown = bench.rulings();
    assert_eq!(shown, [Ruling::DryRun, Ruling::DryRun]);
    bench.pass(600 * SECOND);
    assert!(bench.call().is_none());
}

/// The revision that replaces it does not know the cursor.
#[test]
fn another_revision_decides_from_the_start() {
    for asks in [false, true] {
        let mut bench = Bench::enforcing();
        let plan = first_part(&mut bench);
        bench.outcome(plan, failed(FailureClass::Server));
        let old = asks.then(|| bench.call().unwrap().id);
        bench
            .controller
            .reconfigure(bench.now, loaded(manifest()), views(bench.view));
        if let Some(old) = old {
            bench.answer(old, vec![decide(vec![delete("b")], Verdict::Done)]);
            assert!(bench.carried().is_empty());
        }
        let call = bench.call().unwrap();
        assert_eq!(asked(&call), ("ns/a", "", 0));
        bench.answer(call.id, vec![decide(vec![], Verdict::Done)]);
        bench.settle();
        bench.pass(600 * SECOND);
        assert!(bench.call().is_none(), "nothing is left of the first part");
    }
}

/// Plans of the first page that have not started never start, and no page follows.
#[test]
fn a_swap_during_a_page_ends_the_decision() {
    let mut bench = Bench::enforcing();
    let plan = first_part(&mut bench);
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest()), views(bench.view));
    bench.settle();
    bench.outcome(plan, succeeded(WriteResult::Gone));
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "", 0));
}

#[test]
fn a_call_about_a_part_that_fails_has_the_item_decided_from_the_start() {
    let mut bench = Bench::enforcing();
    let plan = first_part(&mut bench);
    bench.outcome(plan, succeeded(WriteResult::Gone));
    let call = bench.call().unwrap();
    let failure = CallFailure::new(CallFailureKind::Trap, "test");
    bench.fail(call.id, failure);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "", 1));
    bench.controller.handle_call_void(bench.now, call.id);
    let call = bench.call().unwrap();
    assert_eq!(asked(&call), ("ns/a", "", 1));
}

/// A decision may have pages without end.
#[test]
fn an_item_waits_once_for_an_object_however_many_plans_are_deferred() {
    let snapshot = Store::default().snapshot();
    let call = CallId {
        controller: ControllerId(1),
        number: 1,
    };
    let id = DecisionId { call, position: 0 };
    let mut execution = ItemExecution::new(id, vec![], snapshot, 1, Verdict::Done);
    for _ in 0..1000 {
        execution.hold(Uid::new("a"));
    }
    assert_eq!(execution.unseen, [Uid::new("a")].into());
}
