//! Changes by an operator, a rollout or leadership while controllers run.

use super::*;
use crate::gate::WaitReason;

/// A plan that has not started was admitted by rules that do not hold any more.
#[test]
fn changed_settings_withdraw_plans_that_have_not_started() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(true);
    let id = bench.executes[0].id.controller;
    bench.apply(vec![desired("one", enforce())]);
    assert!(bench.withdrawn.is_empty(), "nothing has changed");
    bench.apply(vec![desired("one", Settings::default())]);
    assert_eq!(bench.withdrawn, [id]);
    let mut other_user = desired("one", Settings::default());
    other_user.account = Some(account("another"));
    bench.apply(vec![other_user]);
    assert_eq!(bench.withdrawn, [id, id]);
}

#[test]
fn a_rollback_withdraws_plans_that_have_not_started() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(false);
    bench.apply(vec![beside("one", "two", 100)]);
    bench.pass(SECOND);
    bench.answer_all(true);
    assert_eq!(bench.deleting(), ["a"]);
    bench.apply(vec![desired("one", enforce())]);
    assert_eq!(bench.withdrawn, [bench.executes[0].id.controller]);
    assert_eq!(bench.released, ["two"]);
    // The stable revision decides its admitted plans again.
    let execute = bench.executes.pop_front().unwrap();
    bench.input(Input::Executed {
        plan: execute.id,
        outcome: crate::request::plan::withdrawn(&execute.plan),
        took: Duration::ZERO,
    });
    bench.pass(10 * SECOND);
    bench.answer_all(true);
    assert_eq!(bench.deleting(), ["a"]);
    let name = revision("one", manifest()).identity.to_string();
    assert_eq!(*bench.executes[0].revision, *name);
}

/// A candidate of the pods with this label.
fn of_tier(tier: &str) -> DesiredController<Guest> {
    let mut both = beside("one", "two", 100);
    both.cohort.labels = [("tier".to_owned(), tier.to_owned())].into();
    if let Some((_, step)) = &mut both.candidate {
        step.share.cohort.clone_from(&both.cohort);
    }
    both
}

/// Answers every waiting call; only the candidate deletes.
fn answer_harmfully(bench: &mut Bench) {
    while let Some(call) = bench.calls.pop_front() {
        bench.answer(&call, call.guest == "two");
    }
}

/// A harmful candidate must not own targets outside of its cohort until the labels of
/// every pod are listed.
#[test]
fn a_narrower_cohort_holds_before_its_labels_are_listed() {
    let mut bench = Bench::running(&["a"]);
    bench.answer_all(false);
    bench.apply(vec![beside("one", "two", 100)]);
    bench.pass(SECOND);
    answer_harmfully(&mut bench);
    assert_eq!(bench.deleting(), ["a"]);
    let plan = bench.executes.pop_front().unwrap();
    bench.executed(&plan);

    bench.apply(vec![of_tier("batch")]);
    let pod = bench.object("b");
    bench.update("pods", Update::Apply(pod));
    bench.pass(60 * SECOND);
    answer_harmfully(&mut bench);
    assert!(bench.executes.is_empty());

    let stream = *bench.streams.last_key_value().unwrap().0;
    assert_ne!(Some(stream), bench.stream("pods"), "another list is needed");
    let items = [("b", "web"), ("c", "batch"), ("d", "web")].map(|(name, tier)| {
        let labels = serde_json::json!({"metadata": {"labels": {"tier": tier}}});
        ProjectedObject {
            data: crate::api::encode_config(&labels).unwrap().into(),
            ..bench.object(name)
        }
    });
    let updates = vec![Update::Reset {
        items: items.into(),
        resource_version: bench.version.to_string().into(),
    }];
    bench.input(Input::Stream(Batch { stream, updates }));
    bench.pass(60 * SECOND);
    answer_harmfully(&mut bench);
    assert_eq!(bench.deleting(), ["c"]);
}

#[test]
fn a_candidate_that_was_never_started_is_dropped_without_a_trace() {
    let mut bench = Bench::running(&["a"]);
    let mut both = beside("one", "two", 100);
    let nodes = watch("nodes", Source::One(resource("nodes")));
    let step = both.candidate.take().unwrap().1;
    let candidate = Manifest {
        watches: [manifest().watches, vec![nodes]].concat(),
        ..manifest()
    };
    both.candidate = Some((revision("two", candidate), step));
    bench.apply(vec![both]);
    assert!(bench.stream("nodes").is_some());
    bench.apply(vec![desired("one", enforce())]);
    assert!(bench.stream("nodes").is_none());
    assert_eq!(bench.released, ["two"]);
    assert!(bench.withdrawn.is_empty());
}

#[test]
fn without_leadership_nothing_is_executed() {
    let mut bench = Bench::running(&["a", "b"]);
    let call = bench.calls.pop_front().unwrap();
    bench.answer(&call, true);
    assert_eq!(bench.executes.len(), 1);
    let execute = bench.executes.pop_front().unwrap();
    bench.lead(&[]);
    bench.run();
    assert_eq!(bench.withdrawn, [execute.id.controller]);
    bench.executed(&execute);
    bench.answer_all(true);
    assert!(bench.executes.is_empty());
    let waits = |report: &Report| {
        matches!(
            report,
            Report::Ruled {
                ruling: Ruling::Wait(WaitReason::NotLeading),
                ..
            }
        )
    };
    assert!(bench.reports.iter().any(waits));
    // With leadership, plans that were not executed are decided again.
    bench.lead(&["test"]);
    bench.run();
    bench.pass(SECOND);
    bench.answer_all(true);
    assert_eq!(bench.deleting(), ["b"]);
}

/// A new leader has to decide on many objects again, in a resync. It starts with the items
/// whose plans it has left to the former leader, the oldest first.
#[test]
fn with_leadership_deferred_plans_are_decided_before_the_resync_comes_to_them() {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", enforce())]);
    bench.lead(&[]);
    let pods: Vec<String> = (100..400).map(|number| format!("pod-{number}")).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    bench.list("pods", &pods);
    let due = ["late-b", "late-c", "late-a"];
    while let Some(call) = bench.calls.pop_front() {
        bench.answer(&call, false);
        bench.pass(SECOND / 50);
    }
    for name in due {
        bench.pass(SECOND);
        let pod = bench.object(name);
        bench.update("pods", Update::Apply(pod));
        bench.answer_all(true);
    }
    assert!(bench.executes.is_empty());
    bench.lead(&["test"]);
    bench.run();
    for _ in due {
        let call = bench.calls.pop_front().unwrap();
        bench.answer(&call, true);
    }
    assert_eq!(bench.deleting(), due);
}

/// The number of plans and of withdrawals that the machine outputs.
fn left(bench: &mut Bench) -> (usize, usize) {
    let before = bench.withdrawn.len();
    bench.run();
    (bench.executes.len(), bench.withdrawn.len() - before)
}

#[test]
fn a_plan_admitted_when_leadership_is_lost_is_not_executed() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.execute(answered(&call, true));
    bench.lead(&[]);
    assert_eq!(left(&mut bench), (0, 1));
    // It is decided again, with leadership.
    bench.lead(&["test"]);
    bench.run();
    bench.pass(10 * SECOND);
    bench.answer_all(true);
    assert_eq!(bench.deleting(), ["a"]);
}

/// Every plan ends, so that a stop does not wait for one that nobody executes.
#[test]
fn a_plan_that_waits_for_the_driver_when_the_host_stops_ends_as_withdrawn() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.execute(answered(&call, true));
    bench.machine.handle(bench.now, Input::Stop);
    assert_eq!(left(&mut bench), (0, 1));
    let ended = |report: &Report| matches!(report, Report::Executed { outcome, .. } if outcome.failed.is_some());
    assert!(bench.reports.iter().any(ended));
    assert!(bench.machine.is_stopped());
}

/// A withdrawn plan makes room for other plans of its item, which are ruled on by the
/// present settings.
#[test]
fn plans_admitted_in_the_moment_of_a_change_of_mode_never_leave() {
    let mut bench = Bench::running(&["a", "b"]);
    let call = bench.calls.pop_front().unwrap();
    let decision = Decision {
        plans: ["ns/a", "ns/b"].map(delete).into(),
        commands: vec![],
        verdict: Verdict::Done,
        parallel: 1,
    };
    let answer = Input::Answered {
        call: call.id,
        result: Ok(vec![decision]),
        logged: 0,
        took: Duration::ZERO,
        copy: None,
    };
    bench.execute(answer);
    let dry_run = desired("one", Settings::default());
    bench.machine.apply(bench.now, vec![dry_run]);
    assert_eq!(left(&mut bench), (0, 1));
    let ruled = |report: &Report| {
        matches!(
            report,
            Report::Ruled {
                ruling: Ruling::DryRun,
                ..
            }
        )
    };
    assert!(bench.reports.iter().any(ruled));
}

#[test]
fn plans_of_a_controller_that_is_removed_in_the_same_moment_never_leave() {
    let mut bench = Bench::running(&["a"]);
    let call = bench.calls.pop_front().unwrap();
    bench.execute(answered(&call, true));
    bench.machine.apply(bench.now, vec![]);
    assert_eq!(left(&mut bench), (0, 1));
    bench.input(Input::Stop);
    assert!(bench.machine.is_stopped(), "no plan is left");
}
