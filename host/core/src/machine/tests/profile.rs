//! What a journal records beside what guests read.

use serde_json::json;

use super::*;
use crate::journal::{Entry, JournalItem, Profile, Replay};
use crate::store::StateChange;

fn profile(fields: &[&str]) -> Profile {
    let resources = json!([
        {"apiVersion": "v1", "resource": "pods", "fields": fields},
        {"apiVersion": "v1", "resource": "nodes", "fields": ["spec.taints"]},
    ]);
    Profile::read(&json!({"resources": resources})).unwrap()
}

fn replayed(bench: &mut Bench) -> (Replay, usize) {
    let (mut replay, mut puts) = (Replay::default(), 0);
    for item in bench.machine.take_journal() {
        let records = match item {
            JournalItem::Record(record) => vec![record],
            JournalItem::Keyframe(keyframe) => keyframe.entries().collect(),
            JournalItem::Released(_) => Vec::new(),
        };
        for record in records {
            puts += usize::from(matches!(
                record.entry,
                Entry::Cache(StateChange::Put { .. })
            ));
            replay.handle(record).unwrap();
        }
    }
    (replay, puts)
}

#[test]
fn a_profile_is_recorded_without_a_controller() {
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench
        .machine
        .watch_profile(bench.now, &profile(&["spec.priority"]));
    bench.discover(&["pods", "nodes"]);
    bench.list("pods", &["a", "b"]);
    bench.list("nodes", &["n"]);
    let later = bench.object("c");
    bench.update("pods", Update::Apply(later));
    let (replay, puts) = replayed(&mut bench);
    assert!(replay.is_complete());
    assert_eq!(puts, 4);
    assert!(bench.calls.is_empty());
    // A later discovery, and a controller that comes and goes, end no stream of it.
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", enforce())]);
    bench.list("pods", &["a", "b"]);
    bench.apply(vec![]);
    assert!(bench.stream("pods").is_some() && bench.stream("nodes").is_some());
}

#[test]
fn a_controller_shares_the_list_of_a_profile_and_reads_no_more() {
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench
        .machine
        .watch_profile(bench.now, &profile(&["spec.priority"]));
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", enforce())]);
    let pods = bench.streams.values();
    let pods: Vec<_> = pods.filter(|spec| spec.resource.plural == "pods").collect();
    assert_eq!(pods.len(), 1, "one list");
    let path = "spec.priority".parse::<crate::path::FieldPath>().unwrap();
    assert!(pods[0].fields.covers(&[path.clone()].iter().collect()));
    bench.list("pods", &["a"]);
    // The nodes of the profile are not listed, and the controller runs.
    let call = bench.calls.pop_front().expect("the guest is called");
    let view = call.views["pods"];
    let (replay, _) = replayed(&mut bench);
    assert!(replay.snapshot().view(view).is_some());
    let views = bench.machine.store.views();
    assert_eq!(views.count(), 3);
}

#[test]
fn a_resource_of_a_profile_that_is_not_served_is_reported_and_recorded_later() {
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench
        .machine
        .watch_profile(bench.now, &profile(&["spec.priority"]));
    bench.discover(&["pods"]);
    let is_missing = |report: &Report| {
        matches!(report, Report::NotServed { guest, resource }
            if guest == "profile" && resource.plural == "nodes")
    };
    assert!(bench.reports.iter().any(is_missing));
    bench.discover(&["pods", "nodes"]);
    assert!(bench.stream("nodes").is_some());
}
