//! When revisions start.

use super::*;
use crate::desired::TrippedGuardrail;

#[test]
fn a_controller_starts_once_its_watches_are_synced() {
    let mut bench = Bench::new();
    bench.apply(vec![desired("one", enforce())]);
    assert!(bench.streams.is_empty(), "nothing is known to be served");
    let waiting = bench.waiting().unwrap();
    assert!(waiting.contains("the first discovery"), "{waiting}");
    bench.discover(&["pods"]);
    assert!(!bench.has_started());
    assert_eq!(bench.waiting().unwrap(), "test: v1/pods is being listed");
    assert!(
        bench.machine.observe(bench.now, |_| true)["test"]
            .stable
            .is_none()
    );
    bench.list("pods", &["a", "b"]);
    assert!(bench.has_started());
    assert_eq!(bench.called(), [("one", "ns/a"), ("one", "ns/b")].into());
    assert_eq!(bench.waiting(), None);
    let stable = bench.machine.observe(bench.now, |_| true)["test"]
        .stable
        .clone();
    assert_eq!(stable, Some(revision("one", manifest()).identity));
}

/// A watch of every resource is useful with any of them, but an object of a resource
/// that is not listed yet is not absent.
#[test]
fn a_revision_waits_thirty_seconds_for_resources_that_it_can_do_without() {
    let everything = Manifest {
        watches: vec![watch("pods", Source::EveryDeletable(vec![]))],
        ..manifest()
    };
    let mut one = desired("one", enforce());
    one.stable = revision("one", everything);
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![one.clone()]);
    bench.list("pods", &["a"]);
    bench.pass(29 * SECOND);
    assert!(!bench.has_started());
    bench.pass(2 * SECOND);
    assert!(bench.has_started());
    assert_eq!(
        bench.machine.observe(bench.now, |_| true)["test"].pending,
        None
    );
    // The status says what the collector does without.
    let reason = "nodes is forbidden".to_owned();
    bench.update("nodes", Update::Status(Condition::Interrupted { reason }));
    let pending = bench.machine.observe(bench.now, |_| true)["test"]
        .pending
        .clone();
    let expected = "v1/nodes cannot be listed: nodes is forbidden";
    assert_eq!(pending.unwrap().to_string(), expected);
    bench.list("nodes", &[]);
    assert_eq!(
        bench.machine.observe(bench.now, |_| true)["test"].pending,
        None
    );
    // With all of them, nothing is left to wait for.
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![one]);
    bench.list("pods", &["a"]);
    bench.list("nodes", &[]);
    assert!(bench.has_started());
}

#[test]
fn an_optional_resource_that_is_not_served_is_not_waited_for() {
    let optional = |optional| Manifest {
        watches: vec![
            watch("pods", Source::One(resource("pods"))),
            WatchSpec {
                optional,
                ..watch("widgets", Source::One(resource("widgets")))
            },
        ],
        ..manifest()
    };
    for is_optional in [true, false] {
        let mut one = desired("one", enforce());
        one.stable = revision("one", optional(is_optional));
        let mut bench = Bench::new();
        bench.discover(&["pods"]);
        bench.apply(vec![one]);
        bench.list("pods", &[]);
        bench.pass(60 * SECOND);
        assert_eq!(bench.has_started(), is_optional);
        let warns = |report: &Report| matches!(report, Report::NotServed { .. });
        assert_eq!(bench.reports.iter().any(warns), !is_optional);
    }
}

#[test]
fn a_swap_voids_calls_in_flight_and_keeps_their_items() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.reports.clear();
    bench.apply(vec![desired("two", enforce())]);
    assert!(bench.has_started(), "its watch is the same");
    assert_eq!(bench.released, ["one"]);
    bench.answer(&call, true);
    assert!(bench.executes.is_empty(), "its answer is void");
    bench.pass(SECOND);
    assert_eq!(bench.called(), [("two", "ns/a")].into());
    assert!(
        bench.withdrawn.is_empty(),
        "plans known to its successor go on"
    );
}

#[test]
fn a_revision_with_other_watches_replaces_the_stable_one_once_they_are_synced() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(false);
    let mut two = desired("two", enforce());
    let nodes = watch("nodes", Source::One(resource("nodes")));
    two.stable = revision(
        "two",
        Manifest {
            watches: [manifest().watches, vec![nodes]].concat(),
            ..manifest()
        },
    );
    bench.apply(vec![two]);
    bench.update("pods", Update::Status(Condition::Synced));
    let object = bench.object("b");
    bench.update("pods", Update::Apply(object));
    assert_eq!(bench.called(), [("one", "ns/b")].into(), "one still runs");
    bench.answer_all(false);
    bench.list("nodes", &[]);
    bench.pass(SECOND);
    assert_eq!(bench.called(), [("two", "ns/a"), ("two", "ns/b")].into());
}

/// The candidate is compared with the revision that it may replace.
#[test]
fn a_candidate_starts_after_the_stable_revision() {
    let mut bench = Bench::running(&["a"]);
    let nodes = watch("nodes", Source::One(resource("nodes")));
    let mut both = beside("two", "three", 0);
    both.stable = revision(
        "two",
        Manifest {
            watches: [manifest().watches, vec![nodes]].concat(),
            ..manifest()
        },
    );
    bench.apply(vec![both]);
    bench.pass(10 * SECOND);
    assert!(!bench.has_started_candidate(), "its own watches are synced");
    bench.list("nodes", &[]);
    assert!(bench.has_started_candidate());
    let observed = &bench.machine.observe(bench.now, |_| true)["test"];
    let candidate = observed.candidate.as_ref().unwrap();
    assert_eq!(candidate.identity, revision("three", manifest()).identity);
}

#[test]
fn a_candidate_is_promoted_with_its_calls_in_flight() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(false);
    bench.apply(vec![beside("one", "two", 0)]);
    bench.pass(SECOND);
    bench.calls.retain(|call| call.guest == "two");
    let call = bench.calls.pop_front().expect("it starts with a resync");
    bench.apply(vec![desired("two", enforce())]);
    assert!(bench.released.contains(&"one"));
    bench.answer(&call, true);
    assert_eq!(bench.deleting(), ["a"]);
    let is_promoted = |report: &Report| matches!(report, Report::Promoted { .. });
    assert!(bench.reports.iter().any(is_promoted));
}

#[test]
fn a_guardrail_that_was_tripped_before_the_start_defers_plans() {
    let mut one = desired("one", enforce());
    one.settings.guardrails.deletes_per_minute = Some(10);
    one.tripped = vec![TrippedGuardrail {
        guardrail: crate::budget::Guardrail::Deletes,
        limit: 10,
        until: None,
    }];
    let mut bench = Bench::new();
    bench.discover(&["pods"]);
    bench.apply(vec![one]);
    bench.list("pods", &["a"]);
    bench.answer_all(true);
    assert!(bench.executes.is_empty());
    bench.machine.reset(bench.now.instant, "test");
    bench.pass(SECOND);
    bench.answer_all(true);
    assert_eq!(bench.deleting(), ["a"]);
}
