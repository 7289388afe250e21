//! The lists of a host that continues a journal.

use serde_json::json;

use super::bench::{FAILED, Guest, IDLE, Recorder, SECOND, Trial, delete, nothing};
use crate::backtest::Report;
use crate::plan::{Decision, Verdict};

/// Deletes pods whose node does not exist, as the caches have it.
const ORPHANED: Guest = Guest {
    name: "orphaned",
    policy: |key, pod, call| {
        let nodes = call.snapshot.view(call.views["nodes"]).unwrap();
        match pod["spec"]["nodeName"].as_str() {
            Some(node) if nodes.get(node).is_none() => delete(key, pod),
            // Nodes trigger no call.
            _ => Decision {
                verdict: Verdict::RequeueAfter(SECOND / 2),
                ..nothing()
            },
        }
    },
};

/// A host with the pod a on the node n1, which ends.
fn former() -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    recorder.node("n1", None);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.stop();
    recorder
}

fn run(guest: Guest, open_loop: bool, recorder: &Recorder) -> Report {
    let mut trial = Trial::of(guest);
    trial.settings.open_loop = open_loop;
    trial.run(&recorder.records).unwrap()
}

fn end(recorder: &mut Recorder) {
    recorder.pass(200 * SECOND);
    recorder.node("end", None);
}

/// A host calls no guest before all its lists are complete.
#[test]
fn a_policy_decides_on_all_lists_of_the_next_host_together() {
    for (late, open_loop) in [
        ("nodes", false),
        ("nodes", true),
        ("pods", false),
        ("pods", true),
    ] {
        let mut recorder = former();
        // Meanwhile the node and its pod are replaced.
        recorder.remove("a");
        recorder.take("nodes", "n1");
        recorder.node("n2", None);
        let pod = json!({
            "metadata": {"name": "b", "namespace": "ns", "uid": "b"},
            "spec": {"nodeName": "n2"},
            "status": {"phase": "Running"},
        });
        recorder.put("pods", "ns/b", pod);
        recorder.lists_late = Some(late);
        recorder.restart();
        recorder.pass(2 * SECOND);
        recorder.list_again();
        end(&mut recorder);
        let report = run(ORPHANED, open_loop, &recorder);
        assert_eq!(report.candidate.deletions, 0, "{late} {open_loop}");
        assert_eq!(report.agreement.only_candidate, 0, "{late} {open_loop}");
        assert_eq!(report.activity.failed_plans, 0, "{late} {open_loop}");
    }
}

/// The next host may have no permission for one of them.
#[test]
fn a_policy_waits_a_minute_for_a_list_of_the_next_host() {
    let mut recorder = former();
    recorder.lists_late = Some("nodes");
    recorder.restart();
    recorder.pod("a", "a", "Failed");
    recorder.pass(200 * SECOND);
    recorder.pod("end", "end", "Running");
    let report = run(FAILED, false, &recorder);
    assert_eq!(report.candidate.deletions, 1);
    let at = report.candidate.worst_minute_ends.unwrap();
    let expected = "2026-11-20T12:01:11.000Z";
    assert_eq!(at, expected, "a minute after the restart");
}

/// The list of the pods comes after that minute, and shows that the pod is gone.
#[test]
fn a_plan_about_an_object_that_no_host_lists_counts_in_no_loop() {
    for open_loop in [false, true] {
        let mut recorder = former();
        recorder.remove("a");
        recorder.take("nodes", "n1");
        recorder.lists_late = Some("pods");
        recorder.restart();
        recorder.pass(100 * SECOND);
        recorder.list_again();
        end(&mut recorder);
        let report = run(ORPHANED, open_loop, &recorder);
        assert_eq!(report.candidate.deletions, 0, "{open_loop}");
        assert_eq!(report.agreement.only_candidate, 0, "{open_loop}");
    }
}
