//! Triggers that are about some objects only.

use super::*;
use crate::manifest::TriggerCondition;

/// Pods whose node is a pod on the node `hot`: the related objects are those of the same watch.
fn conditional() -> Manifest {
    let mut manifest = manifest();
    manifest.triggers.retain(|trigger| trigger.queue == "pods");
    manifest.triggers[0].condition = Some(TriggerCondition {
        index: "node".into(),
        related: "pods".into(),
        related_index: "node".into(),
        related_value: "hot".into(),
        note_prefix: Some("seen/".into()),
    });
    manifest
}

/// A controller whose first resync has ended.
fn started() -> Bench {
    let mut bench = Bench::new(conditional(), enforce());
    bench.settle();
    bench
}

/// The due keys, each answered with `done`.
fn due(bench: &mut Bench) -> Vec<String> {
    let mut due = Vec::new();
    while let Some((call, _, keys)) = bench.keys() {
        let done = keys.iter().map(|_| decide(vec![], Verdict::Done));
        bench.answer(call, done.collect());
        due.extend(keys);
    }
    due.sort();
    due
}

#[test]
fn a_change_counts_while_a_related_object_has_the_value() {
    let mut bench = started();
    bench.see("b", 1, "cold");
    bench.see("a", 2, "ns/b");
    bench.see("b", 3, "hot");
    assert_eq!(due(&mut bench), [""; 0]);
    bench.see("c", 4, "ns/b");
    assert_eq!(due(&mut bench), ["ns/c"]);
    // It was on that node until now.
    bench.see("c", 5, "ns/a");
    assert_eq!(due(&mut bench), ["ns/c"]);
    bench.lose("a");
    assert_eq!(due(&mut bench), ["ns/a"]);
    bench.lose("c");
    bench.see("d", 6, "ns/nobody");
    assert_eq!(due(&mut bench), [""; 0]);
}

#[test]
fn a_change_counts_while_there_is_a_note() {
    let mut bench = started();
    bench.see("b", 1, "hot");
    bench.see("a", 2, "ns/b");
    let (call, ..) = bench.keys().unwrap();
    let mut decision = decide(vec![], Verdict::Done);
    decision.commands = vec![Command::SetNote {
        key: "seen/ns/a".into(),
        value: Some(vec![1]),
    }];
    bench.answer(call, vec![decision]);
    bench.see("b", 3, "cold");
    bench.lose("a");
    assert_eq!(due(&mut bench), ["ns/a"]);
}

#[test]
fn a_resync_names_the_same_objects() {
    let mut bench = started();
    for pod in 0..3_000 {
        let node = if pod % 1_000 == 7 { "ns/b" } else { "ns/z" };
        bench.see(&format!("pod-{pod:04}"), pod + 1, node);
    }
    bench.see("b", 4_000, "hot");
    assert_eq!(due(&mut bench), [""; 0]);
    let views = views(bench.view);
    bench
        .controller
        .reconfigure(bench.now, loaded(conditional()), views);
    assert_eq!(
        due(&mut bench),
        ["ns/pod-0007", "ns/pod-1007", "ns/pod-2007"]
    );
}
