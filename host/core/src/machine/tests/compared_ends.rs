//! A comparison with the cluster ends: nothing that was decided on held objects is written.

use super::compared::compared;
use super::*;

/// The pods that the API server still has.
const LIVE: usize = 600;

/// A call of a compared controller that reads a pod that is gone.
fn reading_a_held_pod() -> (Bench, Call<Guest>, Vec<String>) {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", compared())]);
    let live: Vec<String> = (0..LIVE).map(|number| format!("live-{number}")).collect();
    let names = live.iter().map(String::as_str).chain(["gone"]);
    bench.list("pods", &names.collect::<Vec<_>>());
    bench.settle(false);
    let pod = bench.object("gone");
    bench.update("pods", Update::Delete(pod));
    let call = bench.calls.pop_front().expect("the change is news");
    assert!(
        call.snapshot.find(&Uid::new("gone")).is_some(),
        "it is held"
    );
    (bench, call, live)
}

/// An answer that deletes all of these pods: the guest has counted the held one.
fn deletes_all(call: &Call<Guest>, pods: &[String], command: Option<Command>) -> Input {
    let plans = pods.iter().map(|pod| delete(&format!("ns/{pod}")));
    let decision = Decision {
        plans: plans.collect(),
        commands: command.into_iter().collect(),
        verdict: Verdict::RequeueAfter(5 * SECOND),
        parallel: 0,
    };
    Input::Answered {
        call: call.id,
        result: Ok(vec![decision]),
        logged: 0,
        took: Duration::from_millis(1),
        copy: None,
    }
}

impl Bench {
    /// Answers the calls until there are none.
    fn settle(&mut self, deletes: bool) {
        while !self.calls.is_empty() {
            self.answer_all(deletes);
            self.pass(Duration::ZERO);
        }
    }

    /// The controller is switched to Enforce, as `docs/adoption.md` has it. Every later call
    /// reads what the API server has.
    fn enforce(&mut self) {
        self.apply(vec![desired("one", enforce())]);
    }

    fn assert_that_every_pod_lives(&mut self) {
        for _ in 0..50 {
            for call in std::mem::take(&mut self.calls) {
                let held = call.snapshot.find(&Uid::new("gone"));
                assert!(held.is_none(), "it is not held any more");
                assert!(call.notes.is_empty(), "nothing is left of what it decided");
                self.answer(&call, false);
            }
            self.pass(20 * SECOND);
        }
        assert_eq!(self.deleting(), Vec::<&str>::new());
    }
}

#[test]
fn a_call_in_flight_that_has_read_held_objects_writes_nothing_after_the_switch() {
    let (mut bench, call, live) = reading_a_held_pod();
    bench.enforce();
    bench.input(deletes_all(&call, &live, None));
    bench.assert_that_every_pod_lives();
}

#[test]
fn an_answer_about_held_objects_that_is_half_ruled_writes_nothing_after_the_switch() {
    for slices in 1..8 {
        let (mut bench, call, live) = reading_a_held_pod();
        bench.execute(deletes_all(&call, &live, None));
        for _ in 1..slices {
            bench.machine.work(bench.now);
        }
        bench.enforce();
        bench.assert_that_every_pod_lives();
    }
}

/// A guest may keep in a note or a timer what it has counted.
#[test]
fn notes_and_timers_of_a_guest_that_has_read_held_objects_end_with_the_comparison() {
    let (mut bench, call, _) = reading_a_held_pod();
    let note = Command::SetNote {
        key: "excess".into(),
        value: Some(vec![1]),
    };
    bench.input(deletes_all(&call, &[], Some(note)));
    bench.enforce();
    bench.assert_that_every_pod_lives();
}

/// Not only Enforce: a controller that is not compared for a while may enforce later.
#[test]
fn a_comparison_that_ends_in_a_dry_run_leaves_nothing_to_a_later_switch() {
    let (mut bench, call, live) = reading_a_held_pod();
    let dry_run = Settings {
        compares_with_cluster: false,
        ..compared()
    };
    bench.apply(vec![desired("one", dry_run)]);
    bench.enforce();
    bench.input(deletes_all(&call, &live, None));
    bench.assert_that_every_pod_lives();
}
