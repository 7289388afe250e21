//! A dry run beside what the cluster deletes.

use super::*;
use crate::cluster_comparison::Totals;

pub(super) fn compared() -> Settings {
    Settings {
        mode: Mode::DryRun,
        compares_with_cluster: true,
        ..Settings::default()
    }
}

/// A machine whose controller is compared, with a pod that its guest has left alone.
fn running() -> Bench {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", compared())]);
    bench.list("pods", &["a"]);
    bench.answer_all(false);
    bench
}

impl Bench {
    fn totals(&self, controller: &str) -> Totals {
        let observed = self.machine.observe(self.now, |_| true);
        let cluster = observed[controller].cluster.as_ref();
        let cluster = cluster.expect("it is compared");
        let mut totals = cluster.totals.clone();
        totals.merge(&cluster.early);
        totals
    }

    /// A watch shows that a pod is gone.
    fn gone(&mut self, name: &str) {
        let pod = self.object(name);
        self.update("pods", Update::Delete(pod));
    }
}

fn reads(call: &Call<Guest>, uid: &str) -> bool {
    call.snapshot.find(&Uid::new(uid)).is_some()
}

#[test]
fn a_guest_reads_what_the_cluster_has_deleted_until_it_has_decided() {
    let mut bench = running();
    bench.gone("a");
    let call = bench.calls.pop_front().expect("the change is news");
    assert!(reads(&call, "a"), "as it was before");
    bench.pass(3 * SECOND);
    bench.answer(&call, true);
    let totals = bench.totals("test");
    assert_eq!((totals.agree, totals.delays.median()), (1, Some(3160)));
    bench.pass(Duration::ZERO);
    let call = bench.calls.pop_front().expect("the end is news now");
    assert!(!reads(&call, "a"));
    bench.answer(&call, false);
    bench.pass(600 * SECOND);
    assert_eq!(bench.totals("test"), totals, "it counts once");
    assert!(bench.executes.is_empty());
}

#[test]
fn a_guest_reads_the_cache_again_when_the_window_is_over() {
    let mut bench = running();
    bench.gone("a");
    bench.answer_all(false);
    bench.pass(290 * SECOND);
    assert!(bench.calls.is_empty());
    bench.pass(20 * SECOND);
    let call = bench.calls.pop_front().expect("the end is news now");
    assert!(!reads(&call, "a"));
    assert_eq!(bench.totals("test").only_cluster, 1);
    let found = bench.machine.cluster_findings(bench.now, "test").unwrap();
    assert_eq!(found.last[0].object.name, "a");
}

#[test]
fn what_another_controller_of_davit_deletes_is_not_the_clusters() {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    let other = DesiredController {
        name: "other".into(),
        ..desired("two", enforce())
    };
    bench.apply(vec![desired("one", compared()), other]);
    bench.list("pods", &["a"]);
    while let Some(call) = bench.calls.pop_front() {
        let deletes = call.guest == "two";
        bench.answer(&call, deletes);
    }
    assert_eq!(bench.deleting(), ["a"]);
    bench.gone("a");
    let calls: Vec<_> = bench.calls.drain(..).collect();
    assert!(
        calls.iter().all(|call| !reads(call, "a")),
        "nothing is held"
    );
    bench.pass(600 * SECOND);
    assert_eq!(bench.totals("test"), Totals::default());
}

/// Another replica executes the plans of the other controller: they are the same here.
#[test]
fn what_davit_deletes_on_another_replica_is_not_the_clusters() {
    let mut bench = Bench::new();
    bench.lead(&["test"]);
    bench.discover(&["pods", "nodes"]);
    let other = DesiredController {
        name: "other".into(),
        leads: false,
        ..desired("two", enforce())
    };
    bench.apply(vec![desired("one", compared()), other]);
    bench.list("pods", &["a"]);
    while let Some(call) = bench.calls.pop_front() {
        let deletes = call.guest == "two";
        bench.answer(&call, deletes);
    }
    assert!(bench.executes.is_empty(), "the other replica does");
    bench.gone("a");
    bench.pass(600 * SECOND);
    assert_eq!(bench.totals("test"), Totals::default());
}

/// What a comparison sees of a pod is no news for the guest, and costs nothing without one.
#[test]
fn a_comparison_has_views_of_its_own() {
    let mut bench = running();
    let fields = |bench: &Bench| {
        let stream = bench.stream("pods").unwrap();
        bench.streams[&stream].fields.clone()
    };
    let status = |fields: &crate::path::FieldTree| fields.field("status").is_some();
    assert!(status(&fields(&bench)));
    let mut marked = bench.object("a");
    let conditions = serde_json::json!({"status": {"phase": "Failed"}});
    marked.data = rmp_serde::to_vec_named(&conditions).unwrap().into();
    bench.update("pods", Update::Apply(marked));
    assert!(bench.calls.is_empty(), "the guest does not read the phase");
    let stopped = Settings {
        compares_with_cluster: false,
        ..compared()
    };
    bench.apply(vec![desired("one", stopped)]);
    assert!(
        bench.machine.observe(bench.now, |_| true)["test"]
            .cluster
            .is_none()
    );
    assert_eq!(bench.machine.store.views().count(), 1);
}

#[test]
fn another_revision_starts_to_count_again() {
    let mut bench = running();
    bench.gone("a");
    bench.answer_all(true);
    assert_eq!(bench.totals("test").agree, 1);
    bench.apply(vec![desired("two", compared())]);
    assert_eq!(bench.totals("test"), Totals::default());
}

/// A deletion that a list shows happened at any time since the watch was heard last.
#[test]
fn a_deletion_in_a_gap_of_the_watch_has_no_time() {
    let mut bench = running();
    bench.pass(60 * SECOND);
    bench.list("pods", &[]);
    bench.answer_all(true);
    let totals = bench.totals("test");
    assert_eq!((totals.agree, totals.untimed), (1, 1));
    assert_eq!(totals.delays.median(), None);
}

/// The end of a watch delivers nothing.
#[test]
fn an_interruption_does_not_shorten_the_gap() {
    let mut bench = running();
    bench.pass(60 * SECOND);
    let reason = "connection reset".to_owned();
    bench.update("pods", Update::Status(Condition::Interrupted { reason }));
    bench.list("pods", &[]);
    bench.answer_all(true);
    let totals = bench.totals("test");
    assert_eq!((totals.agree, totals.untimed), (1, 1));
}

/// For example while a permission is missing: the cluster may delete what the cache still has.
#[test]
fn a_window_lasts_for_as_long_as_a_watch_is_interrupted() {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", compared())]);
    bench.list("pods", &["gone", "left"]);
    bench.answer_all(true);
    let reason = "the server answered 403".to_owned();
    bench.update("pods", Update::Status(Condition::Interrupted { reason }));
    bench.pass(900 * SECOND);
    assert_eq!(bench.totals("test"), Totals::default());
    bench.list("pods", &["left"]);
    let totals = bench.totals("test");
    assert_eq!((totals.agree, totals.untimed), (1, 1));
    bench.pass(600 * SECOND);
    assert_eq!(bench.totals("test").only_davit, 1);
}

/// A watch with a selector says of an object that does not match any more that it is deleted.
#[test]
fn an_object_that_leaves_a_selector_is_not_known_to_be_deleted() {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    let mut selected = manifest();
    selected.watches[0].label_selector = "app=web".into();
    bench.apply(vec![DesiredController {
        stable: revision("one", selected),
        ..desired("one", compared())
    }]);
    bench.list("pods", &["planned", "left"]);
    while let Some(call) = bench.calls.pop_front() {
        bench.answer(&call, call.items[0].key == "ns/planned");
    }
    for pod in ["planned", "left"] {
        bench.gone(pod);
        let call = bench.calls.pop_front().expect("the change is news");
        assert!(!reads(&call, pod), "it is not held");
        bench.answer(&call, false);
    }
    bench.pass(600 * SECOND);
    let totals = bench.totals("test");
    assert_eq!(
        (totals.agree, totals.only_davit, totals.only_cluster),
        (0, 0, 0)
    );
    assert_eq!(totals.unknown, 2);
}

/// The revision before read it as it was, and has made what it liked of it.
#[test]
fn another_revision_is_called_about_what_was_held() {
    let mut bench = running();
    bench.gone("a");
    bench.answer_all(false);
    bench.apply(vec![desired("two", compared())]);
    bench.pass(Duration::ZERO);
    assert!(bench.called().contains(&("two", "ns/a")));
    assert!(bench.calls.iter().all(|call| !reads(call, "a")));
}
