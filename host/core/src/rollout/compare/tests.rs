use super::*;
use crate::manifest::QueueSpec;
use crate::object::{ObjectRef, ProjectedObject};
use crate::plan::{DeleteOptions, Enqueue, Patch, PatchKind, Step};
use crate::queue::Queues;
use crate::store::{SegmentId, Store, testing};

const WINDOW: Duration = Duration::from_secs(30);

/// Two revisions that reconcile pods.
struct Bench {
    store: Store,
    segment: SegmentId,
    comparison: Comparison,
    /// The pending items of the other revision.
    timers: PendingSnapshot,
    /// Whether the plans were decided before the last write.
    stale: bool,
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(Duration::from_secs(seconds))
}

fn pod(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "test".into(),
        name: name.into(),
        uid: name.into(),
    }
}

fn plan(name: &str, step: Step) -> Arc<Plan> {
    Arc::new(Plan {
        target: pod(name),
        reason: "test".into(),
        message: String::new(),
        steps: vec![step],
        measures: vec![],
        when_cancelled: None,
    })
}

fn delete(name: &str) -> Arc<Plan> {
    plan(name, Step::Delete(DeleteOptions::default()))
}

fn patch(name: &str, body: &[(&str, &str)]) -> Arc<Plan> {
    let mut bytes = Vec::new();
    rmp::encode::write_map_len(&mut bytes, u32::try_from(body.len()).unwrap()).unwrap();
    for text in body.iter().flat_map(|(key, value)| [key, value]) {
        rmp::encode::write_str(&mut bytes, text).unwrap();
    }
    plan(
        name,
        Step::Patch(Patch {
            kind: PatchKind::Merge,
            subresource: "status".into(),
            body: bytes,
        }),
    )
}

fn key(key: &str) -> QueueKey {
    QueueKey {
        queue: "pods".into(),
        key: key.into(),
    }
}

impl Bench {
    fn new() -> Self {
        let (store, _, segment) = testing::pods();
        Self {
            store,
            segment,
            comparison: Comparison::new(at(5), WINDOW),
            timers: PendingSnapshot::default(),
            stale: false,
        }
    }

    fn with(pods: &[&str]) -> Self {
        let mut bench = Self::new();
        for name in pods {
            bench.create(name, 0);
        }
        bench
    }

    fn create(&mut self, name: &str, seconds: u64) {
        let item = ProjectedObject {
            namespace: "test".into(),
            name: name.into(),
            uid: Uid::new(name),
            resource_version: "1".into(),
            data: [0x80].into(),
        };
        self.store
            .apply(self.segment, item, at(seconds), &mut Vec::new());
    }

    fn remove(&mut self, name: &str) {
        self.store
            .remove(self.segment, "test", name, &Uid::new(name), &mut Vec::new());
    }

    fn reconcile(&mut self, role: Role, item: &str, seconds: u64, plans: &[Arc<Plan>]) {
        let reconcile = Reconciliation {
            role,
            item: &key(item),
            snapshot: &self.store.snapshot(),
            started: at(seconds),
            other: &self.timers,
        };
        for plan in plans {
            self.comparison
                .decided(at(seconds), reconcile, plan, self.stale);
        }
        self.comparison.reconciled(reconcile);
    }

    fn stable(&mut self, item: &str, seconds: u64, plans: &[Arc<Plan>]) {
        self.reconcile(Role::Stable, item, seconds, plans);
    }

    fn candidate(&mut self, item: &str, seconds: u64, plans: &[Arc<Plan>]) {
        self.reconcile(Role::Candidate, item, seconds, plans);
    }

    fn counts(&mut self, seconds: u64) -> Counts {
        let snapshot = self.store.snapshot();
        self.comparison.tidy(at(seconds), &snapshot);
        *self.comparison.counts()
    }
}

#[test]
fn equal_steps_agree_whatever_their_messages() {
    let mut bench = Bench::with(&["a", "b"]);
    let mut other = (*delete("a")).clone();
    other.reason = "another".into();
    if let Some(Step::Delete(options)) = other.steps.first_mut() {
        options.resource_version = "77".into();
    }
    bench.stable("tick", 1, &[delete("a")]);
    bench.candidate("tick", 2, &[Arc::new(other)]);
    let stable = patch("b", &[("phase", "Failed"), ("at", "2026-01-31T09:30:00Z")]);
    let candidate = patch("b", &[("at", "2026-01-31T09:30:07Z"), ("phase", "Failed")]);
    bench.stable("b", 3, &[stable]);
    bench.candidate("b", 3, &[candidate]);
    let counts = bench.counts(3);
    assert_eq!((counts.agree, counts.compared()), (2, 2));
    assert_eq!(bench.comparison.disagreements().count(), 0);
}

#[test]
fn other_steps_differ() {
    let graceful = DeleteOptions {
        grace_period_seconds: Some(30),
        ..DeleteOptions::default()
    };
    let pairs = [
        (delete("a"), plan("a", Step::Delete(graceful.clone()))),
        (
            plan("a", Step::Delete(graceful.clone())),
            plan("a", Step::Evict(graceful)),
        ),
        (
            patch("a", &[("phase", "Failed")]),
            patch("a", &[("phase", "Succeeded")]),
        ),
        (
            patch("a", &[("phase", "Failed")]),
            patch("a", &[("reason", "Failed")]),
        ),
    ];
    for (stable, candidate) in pairs {
        let mut bench = Bench::with(&["a"]);
        bench.stable("a", 1, &[Arc::clone(&stable)]);
        bench.candidate("a", 1, &[candidate]);
        assert_eq!(bench.counts(1).different, 1, "{stable:?}");
        let disagreement = bench.comparison.disagreements().next().unwrap();
        assert!(disagreement.stable.is_some() && disagreement.candidate.is_some());
    }
}

#[test]
fn a_target_waits_for_the_other_revision() {
    let mut bench = Bench::with(&["a"]);
    bench.candidate("tick", 1, &[delete("a")]);
    assert_eq!(bench.counts(30), Counts::default());
    bench.stable("tick", 30, &[delete("a")]);
    assert_eq!(bench.counts(60).agree, 1);
}

#[test]
fn a_target_that_lives_on_was_left_alone_by_the_other() {
    let mut bench = Bench::with(&["a", "b"]);
    bench.candidate("tick", 1, &[delete("a")]);
    bench.stable("another-queue's-item", 1, &[delete("b")]);
    let counts = bench.counts(31);
    assert_eq!((counts.only_candidate, counts.only_stable), (1, 1));
    assert_eq!(counts.disagreements(), 2);
}

#[test]
fn a_target_that_was_gone_too_early_is_unknown() {
    let mut bench = Bench::with(&["a"]);
    bench.stable("tick", 10, &[delete("a")]);
    bench.remove("a");
    bench.candidate("tick", 20, &[]);
    let counts = bench.counts(40);
    assert_eq!((counts.unknown, counts.compared()), (1, 0));
}

#[test]
fn a_reconcile_of_the_same_version_counts_although_the_target_is_gone() {
    // The candidate reconciles after the decision, while the target still exists.
    let mut bench = Bench::with(&["a"]);
    bench.stable("tick", 10, &[delete("a")]);
    bench.candidate("tick", 11, &[]);
    bench.remove("a");
    assert_eq!(bench.counts(40).only_stable, 1);
    // It reconciled before the decision, and the target has not changed since.
    let mut bench = Bench::with(&["a"]);
    bench.candidate("tick", 9, &[]);
    bench.stable("tick", 10, &[delete("a")]);
    bench.remove("a");
    assert_eq!(bench.counts(40).only_stable, 1);
    // The stable revision reconciled before there was a candidate.
    let mut bench = Bench::with(&["a"]);
    bench.candidate("tick", 10, &[delete("a")]);
    bench.remove("a");
    assert_eq!(bench.counts(40).only_candidate, 1);
    // They reconciled before the target existed.
    for role in Role::ALL {
        let mut bench = Bench::new();
        bench.candidate("tick", 9, &[]);
        bench.stable("tick", 9, &[]);
        bench.create("a", 10);
        bench.reconcile(role, "tick", 11, &[delete("a")]);
        bench.remove("a");
        assert_eq!(bench.counts(41).unknown, 1);
    }
}

#[test]
fn a_timer_after_the_window_counts_as_a_decision() {
    for (seconds, expected) in [(29, (1, 0)), (31, (0, 1))] {
        let mut bench = Bench::with(&["a"]);
        let spec = QueueSpec::new("pods");
        let mut queues = Queues::new(at(0), &[spec], &[]);
        let timer = Enqueue {
            item: key("a"),
            after: Duration::from_secs(10 + seconds),
            created_at: None,
            group: String::new(),
        };
        queues.enqueue(at(0), &timer).unwrap();
        bench.timers = queues.pending();
        bench.candidate("a", 10, &[delete("a")]);
        bench.remove("a");
        let counts = bench.counts(40);
        assert_eq!((counts.unknown, counts.only_candidate), expected);
    }
}

#[test]
fn a_later_decision_corrects_the_result() {
    let mut bench = Bench::with(&["a"]);
    bench.candidate("tick", 1, &[delete("a")]);
    assert_eq!(bench.counts(31).only_candidate, 1);
    bench.stable("tick", 100, &[delete("a")]);
    let counts = bench.counts(100);
    assert_eq!((counts.agree, counts.disagreements()), (1, 0));
    assert_eq!(bench.comparison.disagreements().count(), 0);
}

#[test]
fn the_same_decision_again_is_no_second_target() {
    let mut bench = Bench::with(&["a"]);
    for seconds in 1..100 {
        bench.candidate("tick", seconds, &[delete("a")]);
        bench.counts(seconds);
    }
    assert_eq!(bench.counts(200).only_candidate, 1);
    assert_eq!(bench.comparison.disagreements().count(), 1);
}

#[test]
fn a_new_step_counts_from_nothing() {
    let mut bench = Bench::with(&["a"]);
    bench.candidate("tick", 1, &[delete("a")]);
    bench.counts(31);
    assert_eq!(bench.comparison.disagreements().count(), 1);
    bench.comparison.restart_counts(at(32));
    assert_eq!(bench.comparison.counted_since(), at(32));
    assert_eq!(bench.counts(32), Counts::default());
    // Counts and disagreements are of the same step.
    assert_eq!(bench.comparison.disagreements().count(), 0);
    bench.candidate("tick", 40, &[delete("a")]);
    assert_eq!(bench.counts(70).only_candidate, 1);
    assert_eq!(bench.comparison.disagreements().count(), 1);
}

/// Both deleted it in the former step; that its window was still open when the
/// step ended is no disagreement.
#[test]
fn a_target_that_was_compared_before_the_step_does_not_disagree_in_it() {
    let mut bench = Bench::with(&["a"]);
    bench.candidate("a", 10, &[delete("a")]);
    bench.stable("a", 11, &[delete("a")]);
    assert_eq!(bench.counts(12).agree, 1);
    bench.comparison.restart_counts(at(13));
    assert_eq!(bench.counts(100), Counts::default());
    assert_eq!(bench.comparison.disagreements().count(), 0);
    assert!(bench.comparison.by_item.is_empty() && bench.comparison.pending.is_empty());
    // After another decision, it counts in this step too.
    bench.stable("a", 101, &[delete("a")]);
    assert_eq!(bench.counts(101).agree, 1);
}

#[test]
fn a_target_that_waits_for_the_other_revision_is_pending() {
    let mut bench = Bench::with(&["a", "b", "c"]);
    assert_eq!(bench.comparison.pending(), 0);
    bench.candidate("tick", 10, &[delete("a"), delete("b")]);
    bench.stable("c", 11, &[delete("c")]);
    assert_eq!(bench.comparison.pending(), 3);
    // Compared immediately, although its window is still open.
    bench.stable("tick", 12, &[delete("a")]);
    assert_eq!((bench.counts(12).agree, bench.comparison.pending()), (1, 2));
    // A new step does not change waiting targets.
    bench.comparison.restart_counts(at(13));
    assert_eq!(bench.comparison.pending(), 2);
    let counts = bench.counts(50);
    assert_eq!((counts.only_candidate, counts.only_stable), (1, 1));
    assert_eq!(bench.comparison.pending(), 0);
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut bench = Bench::new();
    for number in 0..MOST_TARGETS + 2000 {
        let name = format!("pod-{number}");
        bench.candidate(&name, 1, &[delete(&name)]);
        bench.stable(&name, 1, &[patch(&name, &[("phase", "Failed")])]);
    }
    let counts = bench.counts(100);
    assert_eq!(counts.different, MOST_TARGETS as u64 + 2000);
    let comparison = &bench.comparison;
    assert_eq!(comparison.targets.len(), MOST_TARGETS);
    assert_eq!(comparison.disagreements().count(), MOST_DISAGREEMENTS);
    assert!(comparison.by_item.is_empty() && comparison.pending.is_empty());
    assert!(
        comparison
            .reconciles
            .iter()
            .all(|times| times.last.len() <= MOST_ITEMS)
    );
    let newest = comparison.disagreements().next().unwrap();
    let name = format!("pod-{}", MOST_TARGETS + 1999);
    assert_eq!(newest.stable.as_ref().unwrap().plan.target.name, name);
}

#[test]
fn plans_that_are_compared_have_a_bound_in_bytes() {
    let mut bench = Bench::new();
    let long = "x".repeat(1000);
    bench.comparison.set_most_bytes(20_000);
    let held = |comparison: &Comparison| {
        let targets = comparison.targets.values();
        let sides = targets.flat_map(|target| target.stable.iter().chain(&target.candidate));
        let targets: usize = sides.map(|side| side.plan.bytes()).sum();
        let disagreements = comparison.disagreements().map(Disagreement::bytes);
        (targets, disagreements.sum::<usize>())
    };
    for number in 0..100 {
        let name = format!("pod-{number}");
        bench.create(&name, 0);
        bench.candidate(&name, 1, &[patch(&name, &[("phase", &long)])]);
        if number % 2 == 0 {
            bench.stable(&name, 1, &[delete(&name)]);
        }
        let (targets, disagreements) = held(&bench.comparison);
        assert!(targets <= 2 * 20_000 && disagreements <= 20_000);
    }
    assert!(bench.comparison.targets.len() > 10, "the newest are kept");
    // Half were compared immediately. Of the others, most were dropped before their windows
    // ended: nobody knows what the stable revision would have done.
    let counts = bench.counts(100);
    assert_eq!(counts.different, 50);
    assert_eq!(counts.only_candidate + counts.unknown, 50);
    assert!(counts.unknown > 25, "{counts:?}");
}

/// A guest chooses the keys of its items, and may be done with each immediately.
#[test]
fn items_that_were_reconciled_have_a_bound_in_bytes() {
    let mut bench = Bench::new();
    bench.comparison.set_most_bytes(20_000);
    for number in 0..100 {
        bench.stable(&format!("{number:01000}"), 1, &[]);
    }
    let [stable, _] = &bench.comparison.reconciles;
    let keys = stable.last.keys().chain(&stable.order);
    let bytes: usize = keys.map(|item| item.key.len()).sum();
    assert!((10_000..=20_000).contains(&bytes), "{bytes}");
}

/// Targets that are dropped while they wait do not stay among those that wait, however
/// long the window is.
#[test]
fn targets_that_are_dropped_do_not_wait_any_more() {
    let mut bench = Bench::new();
    bench.comparison.set_window(Duration::from_hours(1000));
    for number in 0..3 * MOST_TARGETS {
        let name = format!("pod-{number}");
        bench.candidate(&name, 1, &[delete(&name)]);
    }
    assert!(bench.comparison.pending.len() <= 2 * MOST_TARGETS + 1);
    assert!(bench.comparison.by_item.len() <= 2 * MOST_TARGETS + 1);
    assert_eq!(bench.comparison.counts().unknown, 2 * MOST_TARGETS as u64);
}

/// The version names the state that was read, not what is written.
#[test]
fn revisions_agree_on_an_apply_whatever_version_they_have_read() {
    let apply = |version: &str, phase: &str, force: bool| {
        let body = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "resourceVersion": version},
            "status": {"phase": phase, "metadata": {"resourceVersion": phase}},
        });
        let apply = Step::Apply(crate::plan::Apply {
            object: ObjectRef::default(),
            subresource: "status".into(),
            force,
            body: rmp_serde::to_vec_named(&body).unwrap(),
        });
        fingerprint::of(&plan("a", apply))
    };
    assert_eq!(apply("1", "Failed", false), apply("2", "Failed", false));
    assert_ne!(apply("1", "Failed", false), apply("1", "Running", false));
    assert_ne!(apply("1", "Failed", false), apply("1", "Failed", true));
}
