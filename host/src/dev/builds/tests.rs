use std::sync::Arc;
use std::time::Duration;

use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::controller::{CallId, ControllerId};
use davit_core::machine::State;
use davit_core::object::ObjectRef;
use davit_core::plan::{DeleteOptions, Step};
use davit_core::queue::QueueStats;
use davit_core::rollout::Role;

use super::*;

const ITEM: &str = "pass";

fn item(key: &str) -> QueueKey {
    QueueKey {
        queue: "passes".to_owned(),
        key: key.to_owned(),
    }
}

fn decision(number: u64) -> DecisionId {
    let controller = ControllerId(1);
    DecisionId {
        call: CallId { controller, number },
        position: 0,
    }
}

fn delete(name: &str, grace_period_seconds: i64) -> Plan {
    Plan {
        target: ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: "ci".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        },
        reason: "old".to_owned(),
        message: "it is old".to_owned(),
        steps: vec![Step::Delete(DeleteOptions {
            grace_period_seconds: Some(grace_period_seconds),
            ..DeleteOptions::default()
        })],
        measures: Vec::new(),
        when_cancelled: None,
    }
}

fn ruled(key: &str, number: u64, plan: Plan, ruling: Ruling) -> Report {
    Report::Ruled {
        controller: "dev".to_owned(),
        role: Role::Stable,
        revision: "a".into(),
        dry_run: true,
        item: item(key),
        decision: decision(number),
        plan: Arc::new(plan),
        ruling,
        is_news: true,
    }
}

fn state(due: usize) -> Report {
    let queue = QueueStats {
        queue: "passes".to_owned(),
        depth: due,
        delayed: 1,
        processing: 0,
        adds: 0,
        retries: 0,
        unfinished_work: Duration::ZERO,
        longest_running: Duration::ZERO,
    };
    Report::State(Box::new(State {
        controllers: vec![ControllerState {
            name: "dev".to_owned(),
            circuit_open: false,
            queues: vec![queue],
            guardrails: Vec::new(),
            bound_uses: Vec::new(),
        }],
        ..State::default()
    }))
}

/// Adds what one build decides in one call, until it is compared.
fn build(builds: &mut Builds, plans: &[(&str, i64)]) -> Vec<String> {
    let number = builds.start();
    for (name, grace) in plans {
        let report = ruled(ITEM, number.into(), delete(name, *grace), Ruling::DryRun);
        assert!(builds.add(&report).is_empty());
    }
    settle(builds)
}

/// The lines after some seconds in which nothing happens.
fn settle(builds: &mut Builds) -> Vec<String> {
    (0..6).flat_map(|_| builds.add(&state(0))).collect()
}

#[test]
fn objects_for_which_a_build_decides_otherwise_are_named() {
    let mut builds = Builds::default();
    assert_eq!(
        build(&mut builds, &[("a", 0), ("b", 0), ("c", 0)]),
        ["build 1: plans for 3 objects"]
    );
    assert_eq!(
        build(&mut builds, &[("c", 0)]),
        ["compared with build 1: v1 Pod: 2 fewer (ci/a, ci/b), 1 as before"]
    );
    assert_eq!(
        build(&mut builds, &[("c", 30), ("d", 0)]),
        ["compared with build 2: v1 Pod: 1 more (ci/d), 1 different (ci/c)"]
    );
    assert_eq!(
        build(&mut builds, &[("d", 0), ("c", 30)]),
        ["compared with build 3: nothing differs, 2 as before"]
    );
    assert_eq!(
        build(&mut builds, &[]),
        ["compared with build 4: v1 Pod: 2 fewer (ci/c, ci/d)"]
    );
    assert_eq!(
        build(&mut builds, &[]),
        ["compared with build 5: nothing differs, 0 as before"]
    );
}

fn reconciled(key: &str, number: u64) -> Report {
    Report::Reconciled {
        controller: "dev".to_owned(),
        role: Role::Stable,
        decision: decision(number),
        finish: "done",
        item: item(key),
        took: Duration::ZERO,
    }
}

#[test]
fn the_plans_of_an_item_that_is_decided_again_without_any_count_no_more() {
    let mut builds = Builds::default();
    builds.start();
    for (key, number, name) in [("one", 1, "a"), ("two", 2, "b")] {
        builds.add(&ruled(key, number, delete(name, 0), Ruling::DryRun));
        builds.add(&reconciled(key, number));
    }
    // What its own decision has planned stays.
    builds.add(&reconciled("one", 3));
    assert_eq!(settle(&mut builds), ["build 1: plans for 1 objects"]);
    assert_eq!(
        build(&mut builds, &[("b", 0)]),
        ["compared with build 1: nothing differs, 1 as before"]
    );
}

#[test]
fn a_build_is_compared_once_nothing_is_due() {
    let mut builds = Builds::default();
    build(&mut builds, &[("a", 0)]);
    builds.start();
    for due in [1, 0, 1, 0] {
        assert!(builds.add(&state(due)).is_empty(), "{due} due");
    }
    let late = ruled(ITEM, 2, delete("a", 0), Ruling::DryRun);
    assert!(builds.add(&late).is_empty());
    assert_eq!(settle(&mut builds).len(), 1);
    assert!(settle(&mut builds).is_empty(), "once");
}

#[test]
fn the_last_decision_about_an_item_counts() {
    let mut builds = Builds::default();
    build(&mut builds, &[("a", 0), ("b", 0)]);
    // A tick after a pod is gone, and another item.
    for report in [
        ruled(ITEM, 7, delete("b", 0), Ruling::DryRun),
        ruled("other", 8, delete("c", 0), Ruling::DryRun),
    ] {
        builds.add(&report);
    }
    assert_eq!(
        build(&mut builds, &[("b", 0), ("c", 0)]),
        ["compared with build 1: nothing differs, 2 as before"]
    );
    assert_eq!(builds.present.plans, 2);
}

#[test]
fn what_is_not_decided_or_refused_is_no_decision_of_a_build() {
    let mut builds = Builds::default();
    build(&mut builds, &[("a", 0)]);
    let failed = Report::Called {
        controller: "dev".to_owned(),
        call: decision(2).call,
        role: Role::Stable,
        failure: Some(CallFailure::new(CallFailureKind::Trap, "unreachable")),
        warning: None,
        took: Duration::ZERO,
    };
    let refused = davit_core::gate::Refusal::NoUid;
    let refused = ruled(ITEM, 2, delete("a", 0), Ruling::Refuse(refused));
    builds.start();
    assert!(builds.add(&failed).is_empty());
    assert!(builds.add(&refused).is_empty());
    assert_eq!(
        settle(&mut builds),
        ["compared with build 1: v1 Pod: 1 fewer (ci/a) (failed calls: 1)"]
    );
    // The next one is compared with the last build that decided about everything.
    assert_eq!(
        build(&mut builds, &[("a", 0)]),
        ["compared with build 1: nothing differs, 1 as before"]
    );
}

#[test]
fn a_line_names_some_of_many_objects() {
    let mut builds = Builds::default();
    build(&mut builds, &[]);
    let names: Vec<String> = (0..12).map(|number| format!("p{number:02}")).collect();
    let plans: Vec<(&str, i64)> = names.iter().map(|name| (name.as_str(), 0)).collect();
    let lines = build(&mut builds, &plans);
    let [line] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(line.contains("12 more (ci/p00, "), "{line}");
    assert!(line.ends_with("ci/p09 and 2 more)"), "{line}");
}
