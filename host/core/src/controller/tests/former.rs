//! Calls that read objects in a former state, because their dry run is compared.

use super::*;

/// The next call, which reads a pod that is gone.
fn call_with_former(bench: &mut Bench) -> CallRequest<()> {
    let pod = bench.store.snapshot().find(&Uid::new("a")).cloned();
    let pod = pod.expect("it is there");
    bench.lose("a");
    let snapshot = bench.store.snapshot().with_former([&pod].into_iter());
    bench.controller.continue_resync(bench.now, &snapshot);
    let call = bench
        .controller
        .poll_call(bench.now, Role::Stable, &snapshot, &bench.mapping);
    call.expect("the change is news")
}

/// Only then is a snapshot with former states made.
#[test]
fn a_call_is_due_while_an_item_is_and_the_guest_has_room() {
    let mut manifest = manifest();
    manifest.triggers.truncate(1);
    let mut bench = Bench::new(manifest, Settings::default());
    bench.settle();
    assert!(!bench.controller.has_due_call(bench.now), "nothing is");
    bench.see("a", 1, "n1");
    assert!(bench.controller.has_due_call(bench.now));
    let call = bench.call().expect("it is due");
    assert!(!bench.controller.has_due_call(bench.now), "it is in a call");
    let plans = (0..1000).map(|one| delete(&format!("p{one}"))).collect();
    let controller = &mut bench.controller;
    controller.handle_decisions(call.id, vec![decide(plans, Verdict::Done)], Duration::ZERO);
    bench.see("b", 1, "n1");
    assert_eq!(bench.timeout(), Some(bench.now), "the answer is work");
    assert!(!bench.controller.has_due_call(bench.now), "and no call");
}

/// Whatever has changed since the call: the gate itself knows what it was decided on.
#[test]
fn the_gate_admits_no_plan_that_was_decided_on_a_former_state() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "n1");
    bench.see("b", 1, "n1");
    bench.settle();
    let call = call_with_former(&mut bench);
    let plans = || vec![delete("a"), delete("b")];
    bench.answer(
        call.id,
        vec![decide(plans(), Verdict::Done); call.items.len()],
    );
    assert_eq!(bench.rulings(), [Ruling::DryRun, Ruling::DryRun]);
}

/// A cursor carries over what a guest has counted on an earlier page.
#[test]
fn a_page_after_one_that_read_a_former_state_is_not_executed_either() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "n1");
    bench.see("b", 1, "n1");
    bench.settle();
    let call = call_with_former(&mut bench);
    let next = Verdict::ContinueFrom { cursor: "1".into() };
    bench.answer(call.id, vec![decide(vec![], next); call.items.len()]);
    let page = bench.call().expect("a page is left");
    assert!(!page.snapshot.has_former());
    bench.answer(page.id, vec![decide(vec![delete("b")], Verdict::Done)]);
    assert_eq!(bench.rulings(), [Ruling::DryRun]);
}
