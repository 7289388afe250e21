//! A candidate beside the stable revision.

use std::collections::BTreeSet;

use super::*;
use crate::budget::{Cooldown, Guardrails};
use crate::plan::Create;
use crate::rollout::cohort::{Cohort, Unit};
use proptest::prelude::*;

const WINDOW: Duration = Duration::from_secs(30);

pub(super) fn share(weight: u8) -> Share {
    Share {
        cohort: Cohort {
            unit: Unit::Uid,
            ..Cohort::default()
        },
        weight,
    }
}

/// Step 1 with this weight.
pub(super) fn step(weight: u8) -> CandidateStep {
    CandidateStep {
        share: share(weight),
        number: 1,
        window: Some(WINDOW),
    }
}

impl Bench {
    pub(super) fn start_candidate(&mut self, weight: u8) {
        self.controller.start_candidate(
            self.now,
            loaded(manifest()),
            views(self.view),
            step(weight),
        );
    }

    /// Lets a revision decide on every due item. It deletes those of these pods that it
    /// is called about and that its snapshot has. Returns the pods to delete now.
    pub(super) fn decide(&mut self, role: Role, deletes: &[&str]) -> Vec<(PlanId, String)> {
        while let Some(call) = self.call_of(role) {
            let decisions = call.items.iter().map(|item| {
                let pod = item.key.trim_start_matches("ns/");
                let exists = call.snapshot.find(&Uid::new(pod)).is_some();
                let wanted = exists && deletes.contains(&pod) && item.queue == "pods";
                let plans = wanted.then(|| delete(pod));
                decide(plans.into_iter().collect(), Verdict::Done)
            });
            self.answer(call.id, decisions.collect());
        }
        let carried = self.carried().into_iter();
        carried
            .map(|(id, plan)| (id, plan.target.name.clone()))
            .collect()
    }

    fn finish(&mut self, plans: Vec<(PlanId, String)>) {
        for (id, pod) in plans {
            self.outcome(id, succeeded(WriteResult::Gone));
            self.lose(&pod);
        }
    }
}

fn names(plans: &[(PlanId, String)]) -> Vec<&str> {
    plans.iter().map(|(_, name)| name.as_str()).collect()
}

#[test]
fn a_shadow_decides_and_writes_nothing() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(0);
    for name in ["a", "b", "c"] {
        bench.see(name, 1, "n1");
    }
    assert!(bench.decide(Role::Candidate, &["a", "b"]).is_empty());
    let stable = bench.decide(Role::Stable, &["b", "c"]);
    assert_eq!(names(&stable), ["b", "c"]);
    bench.finish(stable);
    bench.pass(WINDOW);
    let snapshot = bench.store.snapshot();
    bench.controller.housekeep(bench.now, &snapshot);
    let counts = *bench.controller.comparison().unwrap().counts();
    assert_eq!(
        (counts.agree, counts.only_candidate, counts.only_stable),
        (1, 1, 1)
    );
}

/// Nobody else executes its plan: the analysis learns that.
#[test]
fn a_candidate_that_creates_outside_of_its_cohorts_is_refused() {
    let mut manifest = manifest();
    manifest.permissions[0].verb = "create".into();
    let mut bench = Bench::new(manifest.clone(), enforce());
    let mut step = step(100);
    step.share.cohort.namespaces.insert("ns".into());
    let views = views(bench.view);
    bench
        .controller
        .start_candidate(bench.now, loaded(manifest), views, step);
    bench.see("a", 1, "n1");
    for (role, namespace) in [(Role::Candidate, "shop"), (Role::Stable, "ns")] {
        let call = bench.call_of(role).expect("it decides about the pod");
        let mut plan = delete("a");
        let object = ObjectRef {
            namespace: namespace.into(),
            name: "b".into(),
            uid: String::new(),
            ..plan.target.clone()
        };
        let body = vec![0x80];
        plan.steps = vec![Step::Create(Create { object, body })];
        bench.answer(call.id, vec![decide(vec![plan], Verdict::Done)]);
    }
    assert_eq!(
        bench.rulings(),
        [
            Ruling::Refuse(Refusal::WritesOutside),
            Ruling::Wait(WaitReason::NotOwned)
        ]
    );
    let candidate = bench.controller.candidate().unwrap();
    assert_eq!(candidate.tally().refused_writes, 1);
}

/// The namespace that the guest names decides who owns the target; the expectation is
/// about the uid.
#[test]
fn a_target_under_the_uid_of_another_object_is_refused() {
    let mut bench = Bench::enforcing();
    let mut step = step(100);
    step.share.cohort.namespaces.insert("test".into());
    let views = views(bench.view);
    bench
        .controller
        .start_candidate(bench.now, loaded(manifest()), views, step);
    bench.see("a", 1, "n1");
    for (namespace, name) in [("test", "a"), ("ns", "b")] {
        let call = bench.call_of(Role::Candidate).expect("it decides");
        let mut plan = delete("a");
        plan.target.namespace = namespace.into();
        plan.target.name = name.into();
        bench.answer(call.id, vec![decide(vec![plan], Verdict::Done)]);
        let refusal = Refusal::OtherUid {
            namespace: "ns".into(),
            name: "a".into(),
        };
        assert_eq!(
            refusal.to_string(),
            "refused: the target has the uid of ns/a"
        );
        assert_eq!(bench.rulings(), [Ruling::Refuse(refusal)]);
        bench.see("a", 2, "n2");
        bench.pass(Duration::from_hours(1));
    }
    // The stable revision does not wait for it.
    let plans = bench.decide(Role::Stable, &["a"]);
    assert_eq!(names(&plans), ["a"]);
    // Another group may serve the same object.
    let mut plan = delete("a");
    plan.target.api_version = "metrics.k8s.io/v1".into();
    let snapshot = bench.store.snapshot();
    assert!(snapshot.other_with_uid_of(&plan.target).is_none());
}

#[test]
fn a_shorter_window_holds_for_targets_that_wait_already() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(0);
    let long = CandidateStep {
        window: Some(Duration::from_hours(24)),
        ..step(0)
    };
    bench.controller.set_step(bench.now, long);
    bench.see("a", 1, "n1");
    bench.decide(Role::Candidate, &["a"]);
    bench.decide(Role::Stable, &[]);
    bench.pass(10 * WINDOW);
    let only_candidate = |bench: &mut Bench| {
        let snapshot = bench.store.snapshot();
        bench.controller.housekeep(bench.now, &snapshot);
        let comparison = bench.controller.comparison().unwrap();
        comparison.counts().only_candidate
    };
    assert_eq!(only_candidate(&mut bench), 0);
    bench.controller.set_step(bench.now, step(0));
    assert_eq!(only_candidate(&mut bench), 1);
}

#[test]
fn each_target_has_one_owner_at_every_weight() {
    let pods: Vec<String> = (0..40).map(|number| format!("pod-{number}")).collect();
    let all: Vec<&str> = pods.iter().map(String::as_str).collect();
    for weight in [0, 10, 50, 90, 100] {
        let mut bench = Bench::enforcing();
        bench.start_candidate(weight);
        for pod in &all {
            bench.see(pod, 1, "n1");
        }
        let mut deleted = vec![];
        loop {
            let mut plans = bench.decide(Role::Candidate, &all);
            plans.extend(bench.decide(Role::Stable, &all));
            if plans.is_empty() {
                break;
            }
            deleted.extend(plans.iter().map(|(_, pod)| pod.clone()));
            bench.finish(plans);
        }
        deleted.sort_unstable();
        let mut expected = all.clone();
        expected.sort_unstable();
        assert_eq!(deleted, expected, "{weight} %");
    }
}

#[test]
fn a_target_whose_owner_changes_is_not_written_twice() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(0);
    bench.see("a", 1, "n1");
    bench.decide(Role::Candidate, &["a"]);
    let under_way = bench.decide(Role::Stable, &["a"]);
    assert_eq!(names(&under_way), ["a"]);
    bench.controller.set_share(bench.now, share(100));
    assert!(bench.decide(Role::Candidate, &["a"]).is_empty());
    bench.finish(under_way);
    assert!(bench.decide(Role::Candidate, &[]).is_empty());
    assert!(bench.decide(Role::Stable, &[]).is_empty());
}

#[test]
fn a_target_that_has_left_the_cache_keeps_its_owner() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(0);
    let cohort = Cohort {
        unit: Unit::Node,
        ..Cohort::default()
    };
    let everything = Share {
        cohort,
        weight: 100,
    };
    bench.controller.set_share(bench.now, everything);
    bench.see("a", 1, "n1");
    let calls = [Role::Stable, Role::Candidate].map(|role| bench.call_of(role).unwrap());
    bench.lose("a");
    for (call, owns) in calls.into_iter().zip([false, true]) {
        bench.answer(call.id, vec![decide(vec![delete("a")], Verdict::Done)]);
        assert_eq!(!bench.carried().is_empty(), owns);
    }
}

#[test]
fn items_left_to_the_other_revision_keep_their_times() {
    for promoted in [false, true] {
        let mut bench = Bench::enforcing();
        bench.see("a", 1, "n1");
        bench.decide(Role::Stable, &[]);
        bench.start_candidate(if promoted { 0 } else { 100 });
        let created = bench.now;
        let loser = if promoted {
            Role::Candidate
        } else {
            Role::Stable
        };
        bench.see("a", 2, "n2");
        assert!(bench.decide(loser, &["a"]).is_empty(), "the other owns it");
        bench.pass(SECOND * 100);
        if promoted {
            bench.controller.promote(bench.now);
        } else {
            bench.controller.drop_candidate(bench.now);
        }
        assert!(bench.controller.candidate().is_none());
        let mut calls = std::iter::from_fn(|| bench.call());
        let call = calls.find(|call| call.items[0].queue == "pods").unwrap();
        assert_eq!(call.items[0].created_at, created, "promoted: {promoted}");
    }
}

#[test]
fn a_candidate_starts_with_the_items_and_notes_of_the_stable_revision() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let call = bench.call().unwrap();
    let created = call.items[0].created_at;
    let mut decision = decide(vec![], Verdict::RequeueAfter(100 * SECOND));
    decision.commands = vec![Command::SetNote {
        key: "k".into(),
        value: Some(vec![1]),
    }];
    bench.answer(call.id, vec![decision]);
    bench.see("b", 1, "");
    let reconciling = bench.call().unwrap();
    bench.pass(10 * SECOND);
    bench.start_candidate(0);
    let mut seen = BTreeSet::new();
    while let Some(call) = bench.call_of(Role::Candidate) {
        assert_eq!(call.notes.get("k").map(|value| &**value), Some(&[1][..]));
        let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
        bench.answer(call.id, done.collect());
        for item in call.items {
            assert_eq!(item.created_at, created);
            seen.insert(item.key);
        }
    }
    // The candidate reconciles items that the stable revision is executing.
    assert_eq!(seen, BTreeSet::from(["ns/a".to_owned(), "ns/b".to_owned()]));
    assert_eq!(reconciling.items[0].key, "ns/b");
}

#[test]
fn the_plans_of_a_revision_that_is_gone_still_come_to_their_end() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(100);
    bench.see("a", 1, "n1");
    let candidate = bench.decide(Role::Candidate, &["a"]);
    bench.controller.drop_candidate(bench.now);
    assert!(
        bench.decide(Role::Stable, &["a"]).is_empty(),
        "it is under way"
    );
    // It failed: the stable revision retries.
    bench.outcome(candidate[0].0, failed(FailureClass::Server));
    assert_eq!(names(&bench.decide(Role::Stable, &["a"])), ["a"]);
}

#[test]
fn a_candidate_has_its_part_of_a_guardrail() {
    let settings = Settings {
        guardrails: Guardrails {
            deletes_per_minute: Some(4),
            cooldown: Cooldown::UntilReset,
            ..Guardrails::default()
        },
        ..enforce()
    };
    let mut bench = Bench::new(manifest(), settings);
    bench.start_candidate(50);
    let pods: Vec<String> = (0..40).map(|number| format!("pod-{number}")).collect();
    let all: Vec<&str> = pods.iter().map(String::as_str).collect();
    for pod in &all {
        bench.see(pod, 1, "n1");
    }
    let begun = bench.decide(Role::Candidate, &all);
    assert_eq!(begun.len(), 2);
    bench.finish(begun);
    let tripped: Vec<Trip> = bench.controller.tripped(bench.now).copied().collect();
    assert_eq!(tripped.len(), 1);
    assert_eq!((tripped[0].role, tripped[0].limit), (Role::Candidate, 2));
    let begun = bench.decide(Role::Stable, &all);
    assert_eq!(begun.len(), 2, "what is left");
    bench.finish(begun);
    bench.pass(3600 * SECOND);
    assert!(bench.decide(Role::Stable, &all).is_empty(), "not by itself");
    bench.controller.reset(bench.now);
    assert_eq!(bench.decide(Role::Stable, &all).len(), 4);
}

#[test]
fn a_failing_candidate_costs_the_stable_revision_nothing() {
    let mut bench = Bench::enforcing();
    bench.start_candidate(50);
    bench.see("a", 1, "n1");
    for _ in 0..20 {
        if let Some(call) = bench.call_of(Role::Candidate) {
            let failure = CallFailure::new(CallFailureKind::Trap, "unreachable");
            bench.fail(call.id, failure);
        }
        bench.pass(SECOND);
    }
    let candidate = bench.controller.candidate().unwrap();
    assert!(candidate.tally().failed_calls >= 5);
    assert!(candidate.tally().last_failure.contains("unreachable"));
    let stable = bench.controller.stable().circuit().state();
    assert_eq!(stable, &crate::circuit::CircuitState::Closed);
    assert!(bench.call().is_some());
}

/// An event in the life of a controller with a candidate.
#[derive(Clone, Debug)]
enum Event {
    Appears(u8),
    Decides(bool),
    Ends,
    Weighs(u8),
    Tries(u8),
    Promotes,
    Drops,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..12_u8).prop_map(Event::Appears),
        6 => any::<bool>().prop_map(Event::Decides),
        4 => Just(Event::Ends),
        2 => (0..=100_u8).prop_map(Event::Weighs),
        1 => (0..=100_u8).prop_map(Event::Tries),
        1 => Just(Event::Promotes),
        1 => Just(Event::Drops),
    ];
    prop::collection::vec(event, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Both revisions delete every pod. Whatever happens to the rollout, each pod is
    /// deleted exactly once.
    #[test]
    fn every_target_is_written_exactly_once(events in events()) {
        let mut bench = Bench::enforcing();
        let mut alive = BTreeSet::new();
        let mut begun = BTreeSet::new();
        let mut under_way: Vec<(PlanId, String)> = vec![];
        let mut number = 0;
        let mut step = |bench: &mut Bench, event: Event| {
            bench.pass(SECOND);
            match event {
                Event::Appears(node) => {
                    number += 1;
                    let pod = format!("pod-{number}");
                    bench.see(&pod, number, &format!("n{node}"));
                    alive.insert(pod);
                }
                Event::Decides(candidate) => {
                    let role = if candidate { Role::Candidate } else { Role::Stable };
                    let all: Vec<&str> = alive.iter().map(String::as_str).collect();
                    for (id, pod) in bench.decide(role, &all) {
                        prop_assert!(begun.insert(pod.clone()), "{pod} twice");
                        under_way.push((id, pod));
                    }
                }
                Event::Ends => {
                    let done = std::mem::take(&mut under_way);
                    for (_, pod) in &done {
                        alive.remove(pod);
                    }
                    bench.finish(done);
                }
                Event::Weighs(weight) => bench.controller.set_share(bench.now, share(weight)),
                Event::Tries(weight) => bench.start_candidate(weight),
                Event::Promotes => drop(bench.controller.promote(bench.now)),
                Event::Drops => drop(bench.controller.drop_candidate(bench.now)),
            }
            Ok(alive.is_empty())
        };
        for event in events {
            step(&mut bench, event)?;
        }
        let mut over = false;
        for round in 0..60 {
            step(&mut bench, Event::Decides(round % 2 == 0))?;
            over = step(&mut bench, Event::Ends)?;
        }
        prop_assert!(over, "some pod was left to nobody");
    }
}
