//! Rollouts from their start to their end: time, restarts, changes of the spec, and the
//! limits of the analysis.

use super::bench::Bench;
use super::revisions::{identity, module, name_of, spec};
use crate::api::ControllerSpec;
use crate::control::requests::{abandon, abort, promote_fully, retry};
use crate::observation::InterruptedResource;
use crate::rollout::compare::Counts;
use crate::rollout::progress::StepObservation;

const STEPS: &[&str] = &["shadow for 2m", "weight 10 for 2m", "weight 50 for 2m"];

/// The stable revision.
fn first() -> ControllerSpec {
    spec(1, STEPS)
}

/// The candidate.
fn second() -> ControllerSpec {
    spec(2, STEPS)
}

fn rolling_out_to(candidate: ControllerSpec) -> Bench {
    let mut bench = Bench::running(first());
    bench.change(candidate);
    bench.settle();
    assert_eq!(bench.candidate().step, 1);
    bench
}

fn rolling_out() -> Bench {
    rolling_out_to(second())
}

#[test]
fn a_step_continues_after_a_restart_without_the_time_in_between() {
    let mut bench = rolling_out();
    bench.pass(120 + 55);
    let before = bench.candidate();
    assert_eq!(before.step, 2);
    // A minute without a host follows.
    let mut next = bench.crash();
    next.settle();
    next.pass(20);
    let after = next.candidate();
    assert_eq!((after.step, &after.since), (2, &before.since));
    assert!((50..=80).contains(&after.elapsed_seconds), "{after:?}");
    next.pass(40);
    assert_eq!(next.candidate().step, 2, "not too early");
    next.pass(20);
    assert_eq!(next.candidate().step, 3);
    let mut last = next.crash();
    last.settle();
    last.pass(130);
    assert_eq!(last.stable(), before.revision);
    assert_eq!(last.status().candidate, None);
}

/// The spec is that of the stable revision, which is loaded first.
#[test]
fn a_rollout_of_a_moved_tag_continues_after_a_restart_while_its_source_is_away() {
    let mut bench = Bench::running(first());
    bench.replaced = 1;
    bench.pass(65);
    let before = bench.candidate();
    assert_eq!(before.revision, bench.name_at_source(&first()));
    let mut next = bench.crash();
    next.is_source_away = true;
    next.settle();
    next.pass(5);
    assert_eq!(next.candidate().since, before.since);
    let candidate = Some((before.revision.clone(), 0));
    assert_eq!(next.runs(), Some((name_of(&first()), candidate)));
    next.is_source_away = false;
    next.pass(70);
    assert_eq!(next.candidate().since, before.since);
    assert_eq!(next.candidate().step, 2);
    // The tag is back.
    next.replaced = 0;
    next.pass(65);
    assert_eq!(next.status().candidate, None);
    assert_eq!(next.stable(), name_of(&first()));
}

#[test]
fn no_time_passes_in_a_step_that_is_paused() {
    let mut paused = second();
    paused.rollout.paused = true;
    let mut bench = rolling_out_to(paused);
    bench.pass(600);
    let candidate = bench.candidate();
    assert_eq!((candidate.step, candidate.elapsed_seconds), (1, 0));
    assert_eq!(candidate.waits_for, "paused by an operator");
    bench.change(second());
    bench.pass(122);
    assert_eq!(bench.candidate().step, 2);
}

#[test]
fn no_time_passes_in_a_step_while_a_watch_is_interrupted() {
    let mut bench = rolling_out_to(second());
    bench.pass(30);
    let before = bench.candidate().elapsed_seconds;
    bench.interrupted = Some(interrupted(&bench));
    bench.pass(600);
    assert_eq!(
        bench.candidate().waits_for,
        "the end of the step's time, which does not pass: v1/pods cannot be watched: refused"
    );
    bench.interrupted = None;
    bench.candidate_interrupted = Some(interrupted(&bench));
    bench.pass(600);
    let candidate = bench.candidate();
    assert_eq!(candidate.step, 1);
    assert!(candidate.elapsed_seconds <= before + 20, "{candidate:?}");
    assert!(
        candidate.waits_for.contains("v1/pods"),
        "{}",
        candidate.waits_for
    );
    bench.candidate_interrupted = None;
    bench.pass(122);
    assert_eq!(bench.candidate().step, 2);
    assert_eq!(bench.candidate().waits_for, "the end of the step's time");
}

/// An API server that starts again interrupts every watch, and takes the writes of no status.
#[test]
fn an_interruption_is_in_the_status_once_it_lasts() {
    let mut bench = Bench::running(first());
    bench.pass(60);
    let synced = |bench: &Bench| bench.condition("Synced");
    let before = synced(&bench);
    assert_eq!(before.0, "True");
    bench.interrupted = Some(interrupted(&bench));
    bench.pass(14);
    assert_eq!(synced(&bench), before);
    bench.pass(20);
    let (status, reason, message) = synced(&bench);
    assert_eq!((&*status, &*reason), ("False", "Interrupted"));
    assert_eq!(message, "v1/pods cannot be watched: refused");
    bench.interrupted = None;
    bench.pass(20);
    assert_eq!(synced(&bench), before);
}

/// An interruption that starts now.
fn interrupted(bench: &Bench) -> InterruptedResource {
    InterruptedResource {
        resource: "v1/pods".into(),
        reason: "refused".into(),
        since: bench.now.instant,
    }
}

#[test]
fn a_step_without_decisions_is_inconclusive() {
    let mut spec = second();
    spec.rollout.analysis.min_decisions = 10;
    let mut bench = rolling_out_to(spec);
    bench.pass(600);
    let candidate = bench.candidate();
    assert_eq!(candidate.step, 1);
    assert_eq!(
        candidate.waits_for,
        "inconclusive: 0 of 10 targets compared"
    );
}

/// Before the former spec is loaded again, its lack of steps must not promote the
/// candidate of another spec.
#[test]
fn the_former_spec_ends_a_rollout_without_steps_and_without_its_source() {
    for steps in [STEPS, &[]] {
        for is_source_away in [false, true] {
            let mut bench = rolling_out();
            let before = bench.record.status.stable.clone();
            bench.is_source_away = is_source_away;
            bench.change(spec(1, steps));
            bench.look();
            assert_eq!(bench.status().stable, before);
            bench.settle();
            bench.pass(3);
            let status = bench.status();
            assert_eq!((&status.stable, status.candidate), (&before, None));
            assert_eq!(status.rejected, None);
            assert_eq!(bench.runs(), Some((name_of(&first()), None)));
        }
    }
}

/// The next stable revision still waits for its watches: the candidate would be
/// compared with a revision that is being replaced.
#[test]
fn a_candidate_is_judged_beside_the_stable_revision_alone() {
    let mut bench = Bench::running(spec(0, &[]));
    bench.former_stable = Some(identity(&spec(0, &[])));
    bench.change(spec(1, &[]));
    bench.settle();
    assert_eq!(bench.stable(), name_of(&first()));
    let (is, reason, message) = bench.condition("Synced");
    assert_eq!((&*is, &*reason), ("False", "Waiting"));
    let former = name_of(&spec(0, &[]));
    assert!(
        message.ends_with(&format!("until then {former} runs")),
        "{message}"
    );
    bench.change(second());
    bench.settle();
    bench.disagree(100);
    bench.pass(300);
    let candidate = bench.candidate();
    assert_eq!((candidate.step, candidate.elapsed_seconds), (1, 0));
    assert_eq!(candidate.comparison.different, 0);
    bench.former_stable = None;
    bench.observed = StepObservation::default();
    bench.pass(122);
    assert_eq!(bench.candidate().step, 2);
}

#[test]
fn an_abort_holds_when_the_steps_are_removed() {
    let mut bench = rolling_out();
    let before = bench.stable();
    let value = abort(&bench.candidate());
    bench.declaration.requests.abort = Some(value);
    bench.change(spec(2, &[]));
    bench.settle();
    let status = bench.status();
    assert_eq!(status.stable.unwrap().revision, before);
    let rejected = status.rejected.unwrap();
    assert_eq!(rejected.reason, "an operator aborted the rollout");
}

/// `davit rollback` returns to the revision that was stable before, not to one that
/// was only a candidate.
#[test]
fn the_record_knows_which_revisions_were_stable() {
    let mut bench = rolling_out();
    let before = bench.status().stable.unwrap();
    let value = abort(&bench.candidate());
    bench.ask(|requests| requests.abort = Some(value));
    bench.settle();
    bench.change(spec(3, STEPS));
    bench.settle();
    let value = promote_fully(&bench.candidate());
    bench.ask(|requests| requests.promote = Some(value));
    bench.settle();
    let stable = bench.status().stable.unwrap();
    assert_eq!(stable.revision, name_of(&spec(3, STEPS)));
    let history = bench.record.history();
    let since: Vec<_> = history.into_iter().map(|one| one.stable_since).collect();
    assert_eq!(since, [Some(stable.since), None, Some(before.since)]);
}

/// The spec may have changed while no host was running.
#[test]
fn a_recorded_candidate_that_the_spec_does_not_describe_owns_nothing() {
    let all = &["weight 100 until promoted"];
    let mut bench = Bench::running(first());
    bench.change(spec(2, all));
    bench.settle();
    let candidate = (name_of(&second()), 100);
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate))));
    bench.declaration.spec = Ok(spec(3, all));
    let mut next = bench.crash();
    next.is_source_away = true;
    next.settle();
    next.pass(300);
    assert_eq!(next.runs(), Some((name_of(&first()), None)));
    assert_eq!(next.candidate().revision, name_of(&second()));
    // The spec describes it again: the recorded module suffices.
    next.change(spec(2, all));
    next.settle();
    next.pass(3);
    let candidate = (name_of(&second()), 100);
    assert_eq!(next.runs(), Some((name_of(&first()), Some(candidate))));
}

/// The spec changes more than the built-in guest: an operator has to decide whether
/// that becomes stable without a rollout.
#[test]
fn a_lost_revision_is_replaced_only_when_an_operator_abandons_it() {
    let bench = Bench::running(first());
    let before = bench.status().stable.unwrap();
    let mut next = bench.crash();
    next.is_cache_lost = true;
    next.change(second());
    next.settle();
    next.pass(10);
    let lost = next.status().lost.unwrap();
    let ready = name_of(&second());
    assert_eq!(lost.ready.as_ref(), Some(&ready));
    let (is, reason, message) = next.condition("Degraded");
    assert_eq!((is.as_str(), reason.as_str()), ("True", "StableLost"));
    for part in ["it is not kept", &ready, "davit promote --full podgc"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    next.pass(300);
    assert_eq!(next.runs(), None);
    assert_eq!(next.status().stable.as_ref(), Some(&before));
    assert_eq!(next.status().lost.as_ref(), Some(&lost), "it is one loss");

    let value = abandon(&before, &lost);
    next.ask(|requests| requests.abandon = Some(value));
    next.settle();
    assert_eq!(next.runs(), Some((ready, None)));
    assert_eq!(next.status().lost, None);
}

/// A name has ten digits of a hash: modules can be made that share one. The digest
/// distinguishes them.
#[test]
fn a_module_with_the_name_of_the_stable_revision_and_another_digest_does_not_run() {
    let bench = Bench::running(first());
    for is_source_away in [false, true] {
        let mut next = bench.crash();
        next.is_source_away = is_source_away;
        let other = format!("sha256:{}", "7".repeat(64));
        next.record.status.stable.as_mut().unwrap().digest = other.clone();
        next.settle();
        next.pass(30);
        assert_eq!(next.runs(), None, "{is_source_away}");
        let lost = next.status().lost.unwrap();
        let found = format!("sha256:{}", module(&first()));
        for part in [&other, &found] {
            assert!(lost.reason.contains(part), "{part}: {}", lost.reason);
        }
    }
}

/// The same of a candidate.
#[test]
fn a_module_with_the_name_of_the_candidate_and_another_digest_does_not_run() {
    for is_source_away in [false, true] {
        let mut next = rolling_out().crash();
        next.is_source_away = is_source_away;
        let candidate = next.record.status.candidate.as_mut().unwrap();
        candidate.digest = format!("sha256:{}", "7".repeat(64));
        next.settle();
        next.pass(30);
        let (stable, candidate) = next.runs().unwrap();
        assert_eq!(stable, name_of(&first()));
        assert_eq!(candidate, None, "{is_source_away}");
    }
}

/// Observations of a candidate that exceeds a limit, each with a part of the reason.
fn excesses() -> [(StepObservation, &'static str); 3] {
    let failed_calls = StepObservation {
        failed_calls: 1,
        last_failure: "trap: unreachable".into(),
        ..StepObservation::default()
    };
    let disagreement = StepObservation {
        counts: Counts {
            only_candidate: 8,
            ..Counts::default()
        },
        ..StepObservation::default()
    };
    let spent = StepObservation {
        trip: Some("deletesPerMinute of 4".into()),
        ..StepObservation::default()
    };
    [
        (failed_calls, "trap: unreachable"),
        (disagreement, "on 8 of 8 targets"),
        (spent, "deletesPerMinute of 4"),
    ]
}

#[test]
fn a_candidate_that_exceeds_a_limit_is_rolled_back_until_an_operator_retries_it() {
    for (observed, reason) in excesses() {
        let mut candidate = second();
        candidate.rollout.analysis.max_disagreement_percent = Some(20);
        let mut bench = rolling_out_to(candidate);
        let before = bench.status().stable;
        bench.observed = observed;
        bench.pass(1);
        let status = bench.status();
        assert_eq!((&status.stable, status.candidate), (&before, None));
        let rejected = status.rejected.unwrap();
        assert!(rejected.reason.contains(reason), "{rejected:?}");
        let (is, why, message) = bench.condition("Progressing");
        assert_eq!((is.as_str(), why.as_str()), ("False", "RolledBack"));
        assert!(message.contains(&rejected.reason), "{message}");
        bench.pass(300);
        assert_eq!(bench.status().rejected.as_ref(), Some(&rejected));
        assert_eq!(bench.runs(), Some((name_of(&first()), None)));

        bench.observed = StepObservation::default();
        bench.ask(|requests| requests.retry = Some(retry(&rejected)));
        bench.settle();
        assert_eq!(bench.candidate().revision, rejected.revision);
    }
}

/// Restarts must not reset the failures of a candidate.
#[test]
fn failed_calls_of_a_candidate_are_counted_over_restarts() {
    let with_limit = |most| {
        let mut spec = second();
        spec.rollout.analysis.max_failed_calls = most;
        spec
    };
    let failed = |calls| StepObservation {
        failed_calls: calls,
        ..StepObservation::default()
    };
    let mut bench = rolling_out_to(with_limit(1000));
    bench.observed = failed(10);
    bench.pass(15);
    assert_eq!(bench.candidate().failed_calls, 10);
    let mut next = bench.crash();
    next.observed = failed(1);
    next.settle();
    next.pass(2);
    assert_eq!(next.candidate().failed_calls, 11);
    next.change(with_limit(10));
    next.pass(2);
    let reason = next.status().rejected.unwrap().reason;
    let expected = "11 calls failed (limit 10)";
    assert!(reason.contains(expected), "{reason}");
}

/// Decisions that replace each other faster than they are recorded.
#[test]
fn a_candidate_has_no_more_than_the_record_gives_it() {
    let in_one_step = |weight| spec(2, &[&format!("weight {weight} until promoted")]);
    let runs = |weight| Some((name_of(&first()), Some((name_of(&second()), weight))));
    let mut bench = Bench::running(first());
    bench.change(in_one_step(50));
    bench.settle();
    assert_eq!(bench.runs(), runs(50));

    for weight in [10, 90] {
        bench.change(in_one_step(weight));
        bench.look();
        while bench.writes.is_empty() && bench.execute_one() {}
        assert_eq!(bench.runs(), runs(50), "{weight} is not recorded");
    }
    bench.write_one();
    assert_eq!(bench.record.status.candidate.as_ref().unwrap().weight, 10);
    assert_eq!(bench.runs(), runs(10));
    bench.settle();
    assert_eq!(bench.runs(), runs(90));
}

/// The same with another candidate in each decision.
#[test]
fn a_candidate_that_the_record_does_not_name_owns_nothing() {
    let candidate = |config| spec(config, &["weight 50 until promoted"]);
    let runs = |config, weight| {
        let candidate = (name_of(&candidate(config)), weight);
        Some((name_of(&first()), Some(candidate)))
    };
    let mut bench = Bench::running(first());
    bench.change(candidate(2));
    bench.settle();
    for config in [3, 4] {
        bench.change(candidate(config));
        bench.look();
        while bench.candidate().revision != name_of(&candidate(config)) {
            let load = bench.loads.remove(0);
            bench.answer(load.id, &candidate(config));
            bench.look();
        }
        while config == 3 && !bench.writes_candidate(&candidate(3)) {
            assert!(bench.write_one());
            bench.look();
        }
        assert_eq!(bench.runs(), runs(2, 50), "{config} is not recorded");
    }
    bench.write_one();
    assert_eq!(bench.runs(), runs(2, 0));
    bench.settle();
    bench.pass(3);
    assert_eq!(bench.runs(), runs(4, 50));
}

/// The steps of a spec are those of the revision that it describes.
#[test]
fn a_candidate_keeps_its_weight_when_the_spec_describes_another_revision() {
    let mut bench = Bench::running(first());
    bench.change(spec(2, &["weight 20 until promoted"]));
    bench.settle();
    for weight in [90, 10] {
        bench.is_source_away = true;
        bench.change(spec(3, &[&format!("weight {weight} until promoted")]));
        bench.settle();
        bench.pass(30);
        assert_eq!(bench.candidate().weight, 20, "{weight}");
        let candidate = (name_of(&second()), 20);
        assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate))));
    }
}
