//! The pace of a resync, and the capacity that it leaves to fresh events.

use std::collections::BTreeSet;

use super::*;
use crate::manifest::Rate;

const MILLI: Duration = Duration::from_millis(1);

/// Only names of pods are reconciled, up to ten in a call.
fn names_only() -> Manifest {
    let mut manifest = manifest();
    manifest.triggers.retain(|trigger| trigger.queue == "pods");
    manifest.queues = vec![QueueSpec {
        workers: 1000,
        ..queue("pods", 10)
    }];
    manifest
}

fn with_pods(count: u64) -> Bench {
    let mut bench = Bench::new(names_only(), enforce());
    for pod in 0..count {
        bench.see(&format!("pod-{pod:03}"), pod + 1, "");
    }
    bench
}

fn reconfigured(bench: &mut Bench) {
    let views = views(bench.view);
    bench
        .controller
        .reconfigure(bench.now, loaded(names_only()), views);
}

/// Answers every possible call after this time; returns the keys of the calls.
fn work(bench: &mut Bench, took: Duration) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    while let Some(call) = bench.call() {
        keys.extend(call.items.iter().map(|item| item.key.clone()));
        let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
        let done = done.collect();
        bench.answer_in(took, call.id, done);
    }
    keys
}

#[test]
fn at_its_start_a_controller_does_not_rest() {
    let mut bench = Bench::new(names_only(), enforce());
    // The controller does not get these changes: it starts with the cache as it is.
    let mut changes = Vec::new();
    for pod in 0..300 {
        let item = ProjectedObject {
            namespace: "ns".into(),
            name: format!("pod-{pod:03}").into(),
            uid: Uid::new(&format!("pod-{pod:03}")),
            resource_version: "1".into(),
            data: [0x80].as_slice().into(),
        };
        bench
            .store
            .apply(bench.segment, item, bench.now, &mut changes);
    }
    assert_eq!(work(&mut bench, 5 * MILLI).len(), 300);
}

#[test]
fn a_swap_resyncs_with_rests() {
    let mut bench = with_pods(300);
    assert_eq!(work(&mut bench, MILLI).len(), 300);
    reconfigured(&mut bench);
    let mut seen = BTreeSet::new();
    let mut rounds = 0;
    loop {
        let page = work(&mut bench, MILLI);
        if page.is_empty() && bench.timeout().is_none() {
            break;
        }
        rounds += 1;
        seen.extend(page);
        // Fresh events are reconciled in between.
        bench.see("pod-000", 1000 + rounds, &rounds.to_string());
        assert!(work(&mut bench, MILLI).contains("ns/pod-000"));
        let Some(next) = bench.timeout() else { break };
        let rest = next.since(bench.now);
        // A page takes several calls, each followed by a rest of three times its
        // length.
        assert!(rest <= 30 * MILLI, "{rest:?}");
        bench.now = next;
    }
    assert_eq!(seen.len(), 300);
    assert!(rounds >= 4, "{rounds}");
}

#[test]
fn a_long_call_is_followed_by_a_short_rest() {
    let mut bench = with_pods(100);
    work(&mut bench, MILLI);
    reconfigured(&mut bench);
    let call = bench.call().unwrap();
    let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
    let done = done.collect();
    bench.answer_in(10 * SECOND, call.id, done);
    while bench.call().is_some() {}
    let next = bench.timeout().unwrap();
    assert_eq!(next.since(bench.now), 20 * MILLI);
}

/// A zone in which evictions have stopped may hold thousands of pods for hours.
#[test]
fn items_that_wait_for_a_rate_hold_up_no_start_resync() {
    let mut bench = with_pods(700);
    let stop = Command::SetRate {
        queue: "pods".into(),
        group: "zone".into(),
        rate: Rate {
            per_second: 0.0,
            burst: 1,
        },
    };
    while let Some(call) = bench.call() {
        let wait = |item: &crate::plan::WorkItem| Decision {
            commands: vec![
                stop.clone(),
                Command::Enqueue(Enqueue {
                    item: QueueKey {
                        queue: "pods".into(),
                        key: format!("waiting-{}", item.key),
                    },
                    after: Duration::ZERO,
                    created_at: None,
                    group: "zone".into(),
                }),
            ],
            ..decide(vec![], Verdict::Done)
        };
        let waits = call.items.iter().map(wait).collect();
        bench.answer(call.id, waits);
    }
    reconfigured(&mut bench);
    assert_eq!(work(&mut bench, Duration::ZERO).len(), 700);
}
