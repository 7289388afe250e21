//! Decisions take effect once they are recorded, except those that must not wait.

use super::*;

#[test]
fn nothing_runs_before_the_stable_revision_is_recorded() {
    let mut bench = Bench::new();
    bench.recording = false;
    bench.declare(spec(1, &[]), Requests::default());
    bench.pass(Duration::from_mins(1));
    assert_eq!(bench.writes.len(), 1, "one write at a time");
    assert!(bench.streams.is_empty() && bench.calls.is_empty());
    bench.record();
    bench.list(&["a"]);
    assert_eq!(bench.answer(), [1]);
    let execute = bench.executes.pop_front().unwrap();
    assert_eq!(execute.plan.target.name, "a");
    assert_eq!(*execute.revision, *name(&spec(1, &[])));
    bench.executed(&execute);
}

#[test]
fn a_swap_takes_effect_once_it_is_recorded() {
    let mut bench = Bench::running(spec(1, &[]));
    assert_eq!(bench.answer(), [1]);
    bench.recording = false;
    bench.declare(spec(2, &[]), Requests::default());
    bench.pass(Duration::from_mins(1));
    bench.list(&["a", "b"]);
    assert_eq!(bench.answer(), [1], "the recorded revision decides");
    bench.record();
    bench.list(&["a", "b", "c"]);
    bench.pass(Duration::from_mins(1));
    let called = bench.answer();
    assert!(called.iter().all(|guest| *guest == 2), "{called:?}");
    assert!(!called.is_empty());
}

#[test]
fn a_candidate_owns_nothing_before_its_start_is_recorded() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.answer();
    bench.executes.clear();
    bench.recording = false;
    let all = ["weight 100 until promoted"];
    bench.declare(spec(2, &all), Requests::default());
    bench.pass(Duration::from_mins(1));
    bench.list(&["b"]);
    assert_eq!(bench.answer(), [1]);
    let execute = bench.executes.pop_front().unwrap();
    assert_eq!(*execute.revision, *name(&spec(1, &[])));
    bench.record();
    bench.pass(Duration::from_secs(1));
    bench.list(&["c"]);
    bench.answer();
    let revisions: Vec<&str> = bench.executes.iter().map(|one| &*one.revision).collect();
    let candidate = name(&spec(2, &[]));
    assert!(!revisions.is_empty());
    assert!(revisions.iter().all(|one| *one == candidate));
}

#[test]
fn a_rollback_takes_effect_before_it_is_recorded() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.answer();
    bench.executes.clear();
    let spec_of_candidate = spec(2, &["weight 100 until promoted"]);
    bench.declare(spec_of_candidate.clone(), Requests::default());
    bench.pass(Duration::from_secs(2));
    let candidate = bench.status().candidate.clone().expect("it is rolling out");
    bench.recording = false;
    let requests = Requests {
        abort: Some(requests::abort(&candidate)),
        ..Requests::default()
    };
    bench.calls.clear();
    bench.declare(spec_of_candidate, requests);
    bench.list(&["d"]);
    assert_eq!(bench.answer(), [1], "the candidate is not called");
    let revisions: Vec<&str> = bench.executes.iter().map(|one| &*one.revision).collect();
    assert_eq!(revisions, [name(&spec(1, &[]))]);
    bench.record();
    let rejected = bench.status().rejected.as_ref().expect("it is recorded");
    assert_eq!(rejected.revision, candidate.revision);
}

#[test]
fn a_candidate_whose_calls_fail_is_rolled_back() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.failing = Some(2);
    bench.declare(spec(2, &["shadow for 10m"]), Requests::default());
    bench.work(Duration::from_secs(30));
    let status = bench.status();
    assert_eq!(status.candidate, None);
    let rejected = status.rejected.as_ref().expect("it is rolled back");
    assert_eq!(rejected.revision, name(&spec(2, &[])));
    assert!(rejected.reason.contains("unreachable"), "{rejected:?}");
    let stable = &status.stable.as_ref().unwrap().revision;
    assert_eq!(*stable, name(&spec(1, &[])));
    // The stable revision continues.
    bench.list(&["a"]);
    bench.work(Duration::from_secs(2));
    assert!(bench.pods.is_empty());
}

/// The caller of a declaration waits until it is settled: later writes must not delay
/// the next declaration.
#[test]
fn a_declaration_stays_settled_while_records_are_renewed() {
    let mut bench = Bench::new();
    let all = || ["a", "b"].map(|name| declaration(name, spec(1, &[])));
    bench.recording = false;
    bench.declare_all(all().into());
    assert!(!bench.host.is_settled(bench.now), "nothing is recorded");
    bench.record();
    assert!(bench.host.is_settled(bench.now));
    bench.recording = false;
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.writes.len(), 2, "both records are being renewed");
    assert!(bench.host.is_settled(bench.now));
    bench.declare_all(all().into());
    assert!(!bench.host.is_settled(bench.now), "a write is under way");
    bench.record();
    assert!(bench.host.is_settled(bench.now));
}

#[test]
fn a_record_that_cannot_be_read_is_written_before_anything_runs() {
    let former = Bench::running(spec(1, &[]));
    let status = former.status().clone();
    let mut bench = Bench::new();
    (bench.readable, bench.recording) = (false, false);
    bench.declare_all(vec![Declaration {
        status: Some(status),
        ..declaration(NAME, spec(1, &[]))
    }]);
    bench.pass(Duration::from_mins(1));
    assert!(
        bench.streams.is_empty(),
        "another host may have decided otherwise"
    );
    bench.record();
    assert!(!bench.streams.is_empty());
}

/// A driver may handle several inputs before it polls for effects.
#[test]
fn a_plan_decided_when_it_must_not_start_any_more_is_not_executed() {
    let dry_run = ControllerSpec {
        mode: crate::gate::Mode::DryRun,
        ..spec(1, &[])
    };
    let declared = DeclaredController {
        declaration: declaration(NAME, dry_run),
        loaded: None,
    };
    for ends in [
        None,
        Some(Input::Machine(machine::Input::Stop)),
        Some(Input::Control(ControlInput::Declared(vec![declared]))),
        Some(Input::Control(ControlInput::Declared(vec![]))),
    ] {
        let mut bench = Bench::running(spec(1, &[]));
        let what = format!("{ends:?}");
        let call = bench.calls.pop_front().expect("the pod is listed");
        let decided = machine::Input::Answered {
            call: call.id,
            result: Ok(deletions(&call)),
            logged: 0,
            took: Duration::from_millis(1),
            copy: None,
        };
        bench.host.handle(bench.now, Input::Machine(decided));
        match ends {
            Some(input) => bench.input(input),
            // The host loses every lease.
            None => bench.host.machine.set_terms(bench.now, BTreeMap::new()),
        }
        bench.pass(Duration::from_secs(2));
        assert!(bench.executes.is_empty(), "{what}");
    }
}
