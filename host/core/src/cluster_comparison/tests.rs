mod bounds;
mod early;
mod held;
mod managers;
mod watches;

use serde_json::{Value, json};

use super::*;
use crate::manifest::TickSpec;
use crate::object::ProjectedObject;
use crate::store::{SegmentId, Store, testing};

const SECOND: Duration = Duration::from_secs(1);
const ORPHANED: &str = "DeletionByPodGC";

/// A comparison beside a cache of pods.
struct Bench {
    store: Store,
    segment: SegmentId,
    comparison: ClusterComparison,
    now: Instant,
    version: u64,
    /// The gap before the next change was observed.
    gap: Duration,
    /// The uids that Davit deletes.
    own: Vec<&'static str>,
    /// Whether the watch has a selector.
    is_selected: bool,
}

fn manifest(name: &str) -> Manifest {
    Manifest {
        name: name.into(),
        ..Manifest::default()
    }
}

fn every_deletable(name: &str) -> Manifest {
    Manifest {
        watches: vec![WatchSpec::new("objects", Source::EveryDeletable(vec![]))],
        ..manifest(name)
    }
}

fn running() -> Value {
    json!({"status": {"phase": "Running"}, "spec": {"nodeName": "n1"}})
}

fn marked(reason: &str) -> Value {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": reason});
    json!({"status": {"phase": "Failed", "conditions": [condition]}})
}

fn terminating(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-11-20T10:00:00Z");
    pod
}

fn owned(by: &str) -> Value {
    json!({"metadata": {"ownerReferences": [{"uid": by}]}})
}

impl Bench {
    /// A comparison of PodGC with running pods, whose uids are their names.
    fn podgc(pods: &[&'static str]) -> Self {
        let mut bench = Self::of(&manifest("podgc"));
        for pod in pods {
            bench.put(pod, pod, &running());
        }
        bench
    }

    fn of(manifest: &Manifest) -> Self {
        let (store, _, segment) = testing::pods();
        let now = Instant::ZERO.after(1000 * SECOND);
        Self {
            store,
            segment,
            comparison: ClusterComparison::new(now, manifest),
            now,
            version: 0,
            gap: Duration::ZERO,
            own: vec![],
            is_selected: false,
        }
    }

    fn cached(&self, uid: &str) -> Option<Arc<Object>> {
        self.store.snapshot().find(&Uid::new(uid)).cloned()
    }

    /// A watch shows this state of a pod.
    fn put(&mut self, name: &str, uid: &'static str, data: &Value) {
        let old = self.cached(uid);
        self.version += 1;
        let item = ProjectedObject {
            namespace: "ns".into(),
            name: name.into(),
            uid: Uid::new(uid),
            resource_version: self.version.to_string().into(),
            data: rmp_serde::to_vec_named(data).unwrap().into(),
        };
        self.store
            .apply(self.segment, item, self.now, &mut Vec::new());
        let new = self.cached(uid);
        self.observe(uid, old.as_ref(), new.as_ref());
    }

    /// A watch shows that a pod is gone.
    fn gone(&mut self, uid: &'static str) {
        let old = self.cached(uid).expect("the pod is cached");
        let (store, name) = (&mut self.store, old.name());
        store.remove(self.segment, "ns", name, old.uid(), &mut Vec::new());
        self.observe(uid, Some(&old), None);
    }

    fn observe(&mut self, uid: &'static str, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        let kind = Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        };
        let change = ObservedChange {
            kind: &kind,
            old,
            new,
            gap: self.gap,
            is_own: self.own.contains(&uid),
            is_selected: self.is_selected,
        };
        let snapshot = self.store.snapshot();
        self.comparison.observed(self.now, change, &snapshot);
    }

    /// PodGC of the cluster marks a pod and deletes it.
    fn collect(&mut self, uid: &'static str) {
        self.put(uid, uid, &marked(ORPHANED));
        self.gone(uid);
    }

    /// The controller plans to delete a pod.
    fn plan(&mut self, uid: &str) -> Option<Arc<Object>> {
        let object = ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "ns".into(),
            name: uid.into(),
            uid: uid.into(),
        };
        let snapshot = self.store.snapshot();
        self.comparison
            .decided(self.now, &object, "orphaned", &snapshot)
    }

    fn pass(&mut self, time: Duration) -> usize {
        self.now = self.now.after(time);
        let snapshot = self.store.snapshot();
        self.comparison.tidy(self.now, &snapshot, |_| true).len()
    }

    /// Lets every window end.
    fn end(&mut self) -> [u64; 5] {
        self.pass(window(&Manifest::default()));
        self.counts()
    }

    /// Agreements, only-davit, only-cluster, by others, unknown.
    fn counts(&self) -> [u64; 5] {
        let totals = self.totals();
        [
            totals.agree,
            totals.only_davit,
            totals.only_cluster,
            totals.other,
            totals.unknown,
        ]
    }

    /// All results, early ones too.
    fn totals(&self) -> Totals {
        let mut totals = self.comparison.totals().clone();
        totals.merge(self.comparison.early());
        totals
    }

    fn median(&self) -> Option<i64> {
        self.totals().delays.median()
    }

    fn held(&self) -> usize {
        self.comparison.held().len()
    }
}

#[test]
fn a_plan_before_the_clusters_deletion_agrees_and_is_earlier() {
    let mut bench = Bench::podgc(&["a"]);
    bench.plan("a");
    bench.pass(2 * SECOND);
    // A dry run repeats its plan: the first one counts.
    bench.plan("a");
    bench.collect("a");
    assert_eq!(bench.counts(), [1, 0, 0, 0, 0]);
    assert_eq!(bench.median(), Some(-2000));
    assert_eq!(bench.end(), [1, 0, 0, 0, 0], "it counts once");
}

/// The object is gone: the controller reads it as it was until it has decided.
#[test]
fn a_plan_after_the_clusters_deletion_agrees_and_is_later() {
    let mut bench = Bench::podgc(&["a"]);
    bench.collect("a");
    assert_eq!(bench.held(), 1);
    let snapshot = bench.store.snapshot();
    assert!(snapshot.find(&Uid::new("a")).is_none());
    let read = snapshot.with_former(bench.comparison.held());
    let pod = read.find(&Uid::new("a")).expect("the controller reads it");
    assert_eq!(Traces::of(pod).phase, "Running", "as it was before");
    bench.pass(5 * SECOND);
    assert!(bench.plan("a").is_some(), "it is not held any more");
    assert_eq!((bench.held(), bench.counts()), (0, [1, 0, 0, 0, 0]));
    assert_eq!(bench.median(), Some(5010));
    bench.plan("a");
    assert_eq!(bench.end(), [1, 0, 0, 0, 0]);
}

#[test]
fn a_plan_that_nothing_follows_is_only_davits() {
    let mut bench = Bench::podgc(&["a"]);
    bench.plan("a");
    assert_eq!(bench.counts(), [0; 5], "its window is open");
    assert_eq!(bench.comparison.pending(), 1);
    assert_eq!(bench.end(), [0, 1, 0, 0, 0]);
    let finding = bench.comparison.findings().next().unwrap();
    assert_eq!(finding.difference, Difference::OnlyDavit);
    assert_eq!(finding.reason.as_deref(), Some("orphaned"));
    assert_eq!((&*finding.object.name, finding.actor), ("a", None));
    // As long as the pod is there, the plan is repeated.
    bench.plan("a");
    assert_eq!(bench.end(), [0, 1, 0, 0, 0], "it counts once");
}

#[test]
fn a_deletion_that_the_controller_saw_and_left_is_only_the_clusters() {
    let mut bench = Bench::podgc(&["a"]);
    bench.collect("a");
    assert_eq!(bench.pass(299 * SECOND), 0, "its window is open");
    assert_eq!(bench.pass(SECOND), 1, "it is not held any more");
    assert_eq!(bench.counts(), [0, 0, 1, 0, 0]);
    let finding = bench.comparison.findings().next().unwrap();
    assert_eq!(finding.difference, Difference::OnlyCluster);
    assert_eq!(finding.actor, Some(Actor::PodGc));
    let saw = finding.saw.as_deref();
    assert_eq!(saw, Some("phase Failed, DisruptionTarget DeletionByPodGC"));
}

/// Attribution decides: that both happened to the same object is no agreement.
#[test]
fn a_deletion_by_somebody_else_is_neither_agreement_nor_disagreement() {
    let mut bench = Bench::podgc(&["user", "tainted", "evicted", "nobody"]);
    for pod in ["user", "tainted", "evicted"] {
        bench.plan(pod);
    }
    bench.put("user", "user", &terminating(running()));
    bench.put("tainted", "tainted", &marked("DeletionByTaintManager"));
    bench.put("evicted", "evicted", &marked("EvictionByEvictionAPI"));
    bench.put("nobody", "nobody", &terminating(running()));
    assert_eq!(bench.counts(), [0, 0, 0, 3, 0]);
    assert_eq!(bench.held(), 0);
    assert_eq!(bench.end(), [0, 0, 0, 3, 0]);
}

#[test]
fn davits_own_deletions_are_not_the_clusters() {
    let mut bench = Bench::podgc(&["here", "there"]);
    bench.own = vec!["here"];
    bench.collect("here");
    // Another replica has patched it.
    let mut pod = marked(ORPHANED);
    pod["metadata"]["managedFields"] = json!([{"manager": "kubelet"}, {"manager": "davit/podgc"}]);
    bench.put("there", "there", &pod);
    bench.gone("there");
    assert_eq!((bench.held(), bench.end()), (0, [0; 5]));
}

#[test]
fn a_pod_of_the_same_name_is_another_target() {
    let mut bench = Bench::podgc(&["a"]);
    bench.collect("a");
    bench.put("a", "b", &running());
    assert_eq!(
        bench.held(),
        0,
        "nobody reads a former object under its name"
    );
    bench.plan("b");
    assert_eq!(
        bench.counts(),
        [0; 5],
        "it is not a plan for the former one"
    );
    assert_eq!(bench.end(), [0, 1, 0, 0, 1]);
}

#[test]
fn what_a_list_shows_after_a_gap_has_no_time_and_maybe_no_author() {
    let mut bench = Bench::podgc(&["marked", "unmarked"]);
    bench.plan("marked");
    bench.plan("unmarked");
    bench.pass(60 * SECOND);
    bench.gap = 50 * SECOND;
    bench.put("marked", "marked", &marked(ORPHANED));
    bench.gone("unmarked");
    assert_eq!(bench.counts(), [1, 0, 0, 0, 1]);
    assert_eq!((bench.median(), bench.totals().untimed), (None, 1));
}

#[test]
fn a_terminated_pod_agrees_and_is_no_evidence_without_a_plan() {
    let mut bench = Bench::podgc(&["both", "cluster"]);
    let ended = json!({"status": {"phase": "Succeeded"}});
    for pod in ["both", "cluster"] {
        bench.put(pod, pod, &ended);
    }
    bench.plan("both");
    bench.gone("both");
    bench.gone("cluster");
    assert_eq!(bench.end(), [1, 0, 0, 0, 1], "anybody may have deleted it");
}

/// PodGC deletes pods that are stuck although they are terminating already.
#[test]
fn a_plan_about_a_terminating_pod_waits_for_its_end() {
    let mut bench = Bench::podgc(&["a"]);
    bench.put("a", "a", &terminating(running()));
    bench.plan("a");
    bench.pass(SECOND);
    let mut failed = terminating(running());
    failed["status"]["phase"] = json!("Failed");
    bench.put("a", "a", &failed);
    assert_eq!(bench.counts(), [0; 5]);
    bench.gone("a");
    assert_eq!(
        (bench.end(), bench.median()),
        ([1, 0, 0, 0, 0], Some(-1000))
    );
}

/// taint-eviction marks it, and deletes it no more: Davit plans no deletion either. PodGC forces
/// the end of what it marks.
#[test]
fn a_mark_of_a_pod_that_terminates_already_is_a_deletion_by_podgc_alone() {
    for (name, reason, only_cluster) in [
        ("taint-eviction", "DeletionByTaintManager", 1),
        ("node-eviction", "NodeLost", 1),
        ("podgc", ORPHANED, 2),
    ] {
        let mut bench = Bench::of(&manifest(name));
        let mut mark = marked(reason);
        mark["status"]["phase"] = json!("Running");
        if reason == "NodeLost" {
            mark = json!({"status": {"phase": "Running", "reason": reason}});
        }
        for pod in ["x", "y"] {
            bench.put(pod, pod, &running());
        }
        bench.put("x", "x", &terminating(running()));
        bench.put("x", "x", &terminating(mark.clone()));
        bench.put("y", "y", &mark);
        bench.put("y", "y", &terminating(mark));
        bench.gone("x");
        bench.gone("y");
        assert_eq!(bench.end(), [0, 0, only_cluster, 0, 0], "{name}");
    }
}

/// A call that was under way when the pod went proves nothing about it.
#[test]
fn a_plan_for_a_pod_that_is_gone_is_no_target() {
    let mut bench = Bench::podgc(&["a"]);
    bench.put("a", "a", &terminating(running()));
    bench.gone("a");
    bench.plan("a");
    assert_eq!((bench.comparison.pending(), bench.end()), (0, [0; 5]));
}

#[test]
fn a_guest_of_its_own_name_is_compared_with_everybody_but_davit() {
    let mut bench = Bench::of(&manifest("descheduler"));
    for pod in ["user", "podgc", "davit"] {
        bench.put(pod, pod, &running());
    }
    bench.own = vec!["davit"];
    bench.plan("user");
    bench.put("user", "user", &terminating(running()));
    bench.collect("podgc");
    bench.collect("davit");
    assert_eq!(bench.end(), [1, 0, 1, 0, 0]);
    let finding = bench.comparison.findings().next().unwrap();
    assert_eq!(finding.actor, Some(Actor::PodGc), "the actor has a name");
}

#[test]
fn the_garbage_collector_is_known_by_owners_that_are_gone() {
    let mut bench = Bench::of(&every_deletable("garbage-collector"));
    bench.put("owner", "owner", &running());
    bench.put("kept", "kept", &running());
    for (pod, owner) in [("early", "owner"), ("late", "owner"), ("user", "kept")] {
        bench.put(pod, pod, &owned(owner));
    }
    for pod in ["early", "late", "user"] {
        bench.plan(pod);
    }
    // The watch of the dependents is ahead of that of their owner.
    bench.gone("early");
    bench.put("owner", "owner", &terminating(running()));
    bench.gone("owner");
    bench.gone("late");
    bench.gone("user");
    assert_eq!(
        bench.counts(),
        [1, 0, 0, 0, 0],
        "of the others, the owner may follow"
    );
    assert_eq!(bench.end(), [2, 0, 0, 1, 0]);
}

/// As long as its owner is there, it seems to be the work of PodGC, as the pods of a Job do.
#[test]
fn a_pod_that_has_ended_may_be_collected_before_its_owner_is_seen_to_go() {
    let mut bench = Bench::of(&every_deletable("garbage-collector"));
    bench.put("owner", "owner", &running());
    let mut ended = owned("owner");
    ended["status"] = json!({"phase": "Succeeded"});
    bench.put("a", "a", &ended);
    bench.plan("a");
    bench.gone("a");
    assert_eq!(bench.counts(), [0; 5], "its owner may follow");
    bench.gone("owner");
    assert_eq!(bench.end(), [1, 0, 0, 0, 0]);
}

/// It may only match no longer, unless it was about to go.
#[test]
fn what_a_watch_with_a_selector_shows_no_more_is_unknown() {
    let mut bench = Bench::of(&manifest("descheduler"));
    bench.is_selected = true;
    for pod in ["planned", "left", "gone"] {
        bench.put(pod, pod, &running());
    }
    bench.plan("planned");
    bench.put("gone", "gone", &terminating(running()));
    assert_eq!(bench.held(), 1);
    for pod in ["planned", "left", "gone"] {
        bench.gone(pod);
    }
    assert_eq!(bench.held(), 1, "what may live on is not held");
    assert_eq!(bench.end(), [0, 0, 1, 0, 2]);
}

/// Who may patch the status of a pod chooses them.
#[test]
fn a_finding_has_one_line_of_a_bounded_length_for_what_an_object_showed() {
    let mut bench = Bench::podgc(&["a"]);
    let mut pod = marked(ORPHANED);
    pod["status"]["reason"] = json!(format!("\u{1b}[2J\n312 agree{}", "!".repeat(100_000)));
    bench.put("a", "a", &pod);
    bench.gone("a");
    assert_eq!(bench.end(), [0, 0, 1, 0, 0]);
    let finding = bench.comparison.findings().next().unwrap();
    let saw = finding.saw.as_deref().unwrap();
    assert!(saw.contains("reason \\u{1b}[2J\\n312 agree!!"), "{saw}");
    assert!(saw.len() < 1_000, "{}", saw.len());
}

#[test]
fn a_window_fits_the_timers() {
    let mut podgc = manifest("podgc");
    assert_eq!(window(&podgc), Duration::from_mins(5));
    podgc.ticks.push(TickSpec {
        queue: "passes".into(),
        key: "pass".into(),
        period: Duration::from_mins(10),
    });
    assert_eq!(window(&podgc), Duration::from_mins(40));
}
