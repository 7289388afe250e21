//! Streams and discovery.

use super::*;
use crate::failure::{Failure, FailureClass};

#[test]
fn discovery_is_repeated_after_thirty_seconds_and_after_a_failure_after_two() {
    let mut bench = Bench::new();
    assert_eq!(bench.discoveries, [Duration::ZERO]);
    bench.pass(60 * SECOND);
    assert_eq!(bench.discoveries.len(), 1, "it is still asked");
    let failure = Failure::new(FailureClass::Server, "no answer");
    bench.input(Input::Discovered(Err(failure)));
    bench.pass(10 * SECOND);
    assert_eq!(bench.discoveries, [Duration::ZERO, 62 * SECOND]);
    bench.discover(&["pods"]);
    bench.pass(40 * SECOND);
    assert_eq!(bench.discoveries[2..], [100 * SECOND]);
}

#[test]
fn a_controller_pauses_while_its_resource_is_not_served() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(false);
    // A single discovery without the resource may be a mistake of the API server.
    bench.discover(&["nodes"]);
    let object = bench.object("b");
    bench.update("pods", Update::Apply(object));
    assert_eq!(bench.called(), [("one", "ns/b")].into());
    bench.answer_all(false);
    bench.discover(&["nodes"]);
    assert!(bench.stream("pods").is_none());
    let paused = |report: &Report| matches!(report, Report::Paused { .. });
    assert!(bench.reports.iter().any(paused));
    let waiting = bench.waiting().unwrap();
    assert!(waiting.contains("is not served"), "{waiting}");
    bench.pass(60 * SECOND);
    assert!(bench.calls.is_empty(), "the absence of pods means nothing");
    bench.discover(&["nodes", "pods"]);
    assert!(bench.calls.is_empty());
    bench.list("pods", &["a", "c"]);
    bench.pass(SECOND);
    assert!(bench.called().contains(&("one", "ns/c")));
    assert_eq!(bench.waiting(), None);
}

#[test]
fn a_stream_runs_as_long_as_a_view_watches_its_resource() {
    let mut bench = Bench::running(&["a"]);
    let pods = bench.stream("pods");
    assert!(bench.stream("nodes").is_none(), "nobody watches nodes");
    bench.apply(vec![desired("two", enforce())]);
    assert_eq!(bench.stream("pods"), pods, "two controllers share it");
    bench.apply(vec![]);
    assert!(bench.streams.is_empty());
}

/// While the API server does not answer, one line of the log stands for all its
/// resources.
#[test]
fn an_interruption_is_a_warning_unless_the_api_server_is_unreachable() {
    let mut bench = Bench::running(&["a"]);
    let mut warns = |reachable| {
        bench.reports.clear();
        bench.input(Input::Reachable(reachable));
        let reason = format!("connection refused: {reachable}");
        bench.update("pods", Update::Status(Condition::Interrupted { reason }));
        bench.reports.iter().any(|report| {
            matches!(
                report,
                Report::Stream {
                    warning: Some(_),
                    ..
                }
            )
        })
    };
    assert!(!warns(false));
    assert!(warns(true));
}

/// What was listed once stays in the cache, and is not what the cluster has now.
#[test]
fn a_watch_that_breaks_after_its_list_is_observed_until_it_is_back() {
    let mut bench = Bench::running(&["a"]);
    let observed = |bench: &Bench| {
        let observed = &bench.machine.observe(bench.now, |_| true)["test"];
        assert!(observed.complete, "it has all lists");
        assert_eq!(observed.pending, None);
        observed.interrupted.as_ref().map(ToString::to_string)
    };
    assert_eq!(observed(&bench), None);
    let reason = "connection refused".to_owned();
    bench.update("pods", Update::Status(Condition::Interrupted { reason }));
    let why = "v1/pods cannot be watched: connection refused";
    assert_eq!(observed(&bench).as_deref(), Some(why));
    bench.update("pods", Update::Status(Condition::Synced));
    assert_eq!(observed(&bench), None);
}

/// A collector of garbage works without one resource of hundreds, and its rollouts with it.
#[test]
fn a_watch_of_everything_is_interrupted_if_all_of_it_is() {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    let mut everything = manifest();
    everything.watches[0].source = Source::EveryDeletable(vec![]);
    bench.apply(vec![DesiredController {
        stable: revision("one", everything),
        ..desired("one", enforce())
    }]);
    bench.list("pods", &["a"]);
    bench.list("nodes", &["b"]);
    let observed = |bench: &Bench| {
        let observed = &bench.machine.observe(bench.now, |_| true)["test"];
        observed.interrupted.clone().map(|one| one.resource)
    };
    let interrupt = |bench: &mut Bench, plural| {
        let reason = "refused".to_owned();
        bench.update(plural, Update::Status(Condition::Interrupted { reason }));
    };
    interrupt(&mut bench, "nodes");
    assert_eq!(observed(&bench), None);
    interrupt(&mut bench, "pods");
    assert!(observed(&bench).is_some());
    bench.update("nodes", Update::Status(Condition::Synced));
    assert_eq!(observed(&bench), None);
    // What is served no more is no part of it.
    bench.update("nodes", Update::Status(Condition::NotServed));
    bench.discover(&["pods"]);
    assert_eq!(observed(&bench).as_deref(), Some("v1/pods"));
}

#[test]
fn a_discovery_that_fails_is_counted_for_every_controller() {
    let mut bench = Bench::running(&["a"]);
    bench.reports.clear();
    let failure = Failure::new(FailureClass::Server, "no answer");
    bench.input(Input::Discovered(Err(failure)));
    let errors = bench.reports.iter();
    let errors = errors.filter(|report| matches!(report, Report::SyncError { .. }));
    assert_eq!(errors.count(), 1);
}

/// A controller that watches pods twice: all, and selected ones.
fn watching_twice() -> Bench {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    let mut both = manifest();
    let mut selected = both.watches[0].clone();
    selected.name = "web".into();
    selected.label_selector = "app=web".into();
    both.watches.push(selected);
    bench.apply(vec![DesiredController {
        stable: revision("one", both),
        ..desired("one", enforce())
    }]);
    bench
}

/// A series of a metric has one value.
#[test]
fn the_objects_of_a_resource_are_counted_over_all_selectors() {
    let mut bench = watching_twice();
    let streams: Vec<StreamId> = bench.streams.keys().copied().collect();
    assert_eq!(streams.len(), 2);
    for (stream, names) in streams.into_iter().zip([&["a", "b"][..], &["a"]]) {
        let items = names.iter().map(|name| bench.object(name)).collect();
        let updates = vec![Update::Reset {
            items,
            resource_version: "9".into(),
        }];
        bench.input(Input::Stream(Batch { stream, updates }));
    }
    let state = bench.machine.state(bench.now.instant);
    assert_eq!(state.objects, [("v1/pods".to_owned(), 3)].into());
}

/// What is watched twice is as good as the worse one, and what nobody watches any more is in no
/// metric: an alert on it would fire until the host starts again.
#[test]
fn a_resource_is_synced_while_every_stream_of_it_is() {
    let mut bench = watching_twice();
    let synced = |bench: &mut Bench| bench.machine.state(bench.now.instant).synced;
    let pods = |is_synced| [("v1/pods".to_owned(), is_synced)].into();
    assert_eq!(synced(&mut bench), pods(false));
    let streams: Vec<StreamId> = bench.streams.keys().copied().collect();
    let list = |bench: &mut Bench, stream| {
        let updates = vec![Update::Reset {
            items: Vec::new(),
            resource_version: "9".into(),
        }];
        bench.input(Input::Stream(Batch { stream, updates }));
    };
    list(&mut bench, streams[0]);
    assert_eq!(synced(&mut bench), pods(false));
    list(&mut bench, streams[1]);
    assert_eq!(synced(&mut bench), pods(true));
    let reason = "forbidden".to_owned();
    let updates = vec![Update::Status(Condition::Interrupted { reason })];
    bench.input(Input::Stream(Batch {
        stream: streams[0],
        updates,
    }));
    assert_eq!(synced(&mut bench), pods(false));
    bench.apply(Vec::new());
    assert_eq!(synced(&mut bench), [].into());
}
