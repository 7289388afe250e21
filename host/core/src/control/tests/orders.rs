//! The order of inputs and effects: crashes, late answers, failing records.

use super::bench::{Bench, NAME};
use super::revisions::{identity, module, name_of, spec};
use crate::api::{ControllerSpec, ControllerStatus, ModuleSource, RequestResult};
use crate::control::LoadTarget;
use crate::control::requests::{abort, promote_fully, promote_step, retry, swap};
use crate::record::{ControllerRecord, Record};

/// The stable revision.
fn first() -> ControllerSpec {
    spec(1, STEPS)
}

/// The candidate.
fn second() -> ControllerSpec {
    spec(2, STEPS)
}

const STEPS: &[&str] = &["weight 10 for 1h", "weight 50 until promoted"];

fn rolling_out() -> Bench {
    let mut bench = Bench::running(first());
    bench.change(second());
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate(10)))));
    bench
}

fn candidate(weight: u8) -> (String, u8) {
    (name_of(&second()), weight)
}

/// A way to end a rollout or a step of it.
type OperatorRequest = fn(&mut Bench);

fn promotes(bench: &mut Bench) {
    let value = promote_fully(&bench.status().candidate.unwrap());
    bench.ask(|requests| requests.promote = Some(value));
}

fn promotes_the_step(bench: &mut Bench) {
    let value = promote_step(&bench.status().candidate.unwrap());
    bench.ask(|requests| requests.promote = Some(value));
}

fn aborts(bench: &mut Bench) {
    let value = abort(&bench.status().candidate.unwrap());
    bench.ask(|requests| requests.abort = Some(value));
}

fn swaps(bench: &mut Bench) {
    let generation = bench.declaration.generation.unwrap();
    let value = swap(&name_of(&second()), generation);
    bench.ask(|requests| requests.swap = Some(value));
}

/// A replica that gets the lease knows only what is recorded, so the lease stays.
#[test]
fn a_decision_is_being_recorded_until_a_write_has_succeeded() {
    let mut bench = rolling_out();
    assert!(!bench.control.is_recording(NAME));
    bench.is_recording = false;
    aborts(&mut bench);
    bench.settle();
    assert!(bench.writes.is_empty(), "the next attempt waits");
    assert!(bench.control.is_recording(NAME));
    bench.is_recording = true;
    bench.pass(60);
    assert!(!bench.control.is_recording(NAME));
}

/// The record is never behind the revisions that run, except that it may still have a
/// withdrawn candidate.
fn assert_recorded(bench: &Bench, after: &str) {
    let Some((stable, candidate)) = bench.runs() else {
        return;
    };
    let status = &bench.record.status;
    let recorded = status.stable.as_ref().map(|one| one.revision.as_str());
    assert_eq!(recorded, Some(stable.as_str()), "{after}");
    assert!(bench.record.spec(&stable).is_some(), "{after}");
    if let Some((candidate, weight)) = candidate {
        let recorded = status.candidate.as_ref().expect(after);
        assert_eq!(recorded.revision, candidate, "{after}");
        assert_eq!(recorded.weight, weight, "{after}");
        assert!(bench.record.spec(&candidate).is_some(), "{after}");
    }
}

/// Crashes after this many effects, starts another host, and lets it settle.
fn crash_after(effects: usize, ask: OperatorRequest) -> (Bench, Bench) {
    let mut bench = rolling_out();
    ask(&mut bench);
    bench.look();
    assert_recorded(&bench, "before any effect");
    for number in 0..effects {
        if !bench.write_one() {
            break;
        }
        assert_recorded(&bench, &format!("after effect {number}"));
    }
    let mut next = bench.crash();
    next.settle();
    assert_recorded(&next, "after a crash");
    next.pass(3);
    assert_recorded(&next, "3 s after a crash");
    (bench, next)
}

#[test]
fn a_first_revision_runs_once_it_is_recorded() {
    let mut bench = Bench::start(first(), ControllerRecord::default());
    assert_eq!(bench.runs(), None);
    bench.look();
    while bench.execute_one() {
        bench.look();
        assert_recorded(&bench, "while it starts");
    }
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
}

#[test]
fn a_step_a_promotion_and_a_swap_run_only_once_they_are_recorded() {
    let before = Some((name_of(&first()), Some(candidate(10))));
    let cases: [(OperatorRequest, _); 3] = [
        (promotes, (name_of(&second()), None)),
        (promotes_the_step, (name_of(&first()), Some(candidate(50)))),
        (swaps, (name_of(&second()), None)),
    ];
    for (ask, after) in cases {
        let mut bench = rolling_out();
        ask(&mut bench);
        bench.look();
        assert_eq!(bench.runs(), before, "not recorded yet");
        while bench.write_one() {
            assert_recorded(&bench, "in between");
        }
        assert_eq!(bench.runs(), Some(after));
    }
}

#[test]
fn a_crash_around_any_transition_loses_nothing() {
    let asks: [OperatorRequest; 4] = [promotes, promotes_the_step, swaps, aborts];
    for ask in asks {
        for effects in 0..4 {
            let (_, next) = crash_after(effects, ask);
            let (stable, candidate) = next.runs().unwrap();
            let runs = [Some(stable), candidate.map(|(name, _)| name)];
            let known = [name_of(&first()), name_of(&second())];
            for name in runs.into_iter().flatten() {
                assert!(known.contains(&name));
            }
        }
    }
}

#[test]
fn a_promotion_that_was_recorded_outlives_a_crash() {
    let (_, next) = crash_after(4, promotes);
    assert_eq!(next.runs(), Some((name_of(&second()), None)));
    // Otherwise it is decided again from the same request.
    let (_, next) = crash_after(0, promotes);
    assert_eq!(next.runs(), Some((name_of(&second()), None)));
}

#[test]
fn a_candidate_is_withdrawn_before_its_rollback_is_recorded() {
    let mut bench = rolling_out();
    aborts(&mut bench);
    bench.look();
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    assert!(bench.record.status.candidate.is_some());
}

#[test]
fn a_recorded_rejection_is_never_lost() {
    let (_, mut next) = crash_after(4, aborts);
    let rejected = next.status().rejected.unwrap();
    assert_eq!(rejected.revision, name_of(&second()));
    for _ in 0..3 {
        next = next.crash();
        next.settle();
        next.pass(5);
        assert_eq!(next.status().rejected.as_ref(), Some(&rejected));
        assert_eq!(next.runs(), Some((name_of(&first()), None)));
    }
    let value = retry(&rejected);
    next.ask(|requests| requests.retry = Some(value));
    next.settle();
    assert_eq!(next.runs(), Some((name_of(&first()), Some(candidate(10)))));
}

/// A write that was under way during the rollback ends later: it must not bring the
/// candidate back.
#[test]
fn a_late_record_of_a_step_does_not_bring_a_withdrawn_candidate_back() {
    let mut bench = rolling_out();
    promotes_the_step(&mut bench);
    bench.look();
    assert_eq!(bench.writes.len(), 1, "the next step is being recorded");
    aborts(&mut bench);
    bench.look();
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    while bench.write_one() {
        assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    }
    let recorded = &bench.record.status;
    assert!(recorded.candidate.is_none());
    assert!(recorded.rejected.is_some());
}

#[test]
fn a_record_that_fails_for_an_hour_holds_everything_but_a_rollback() {
    let mut bench = rolling_out();
    bench.is_recording = false;
    promotes(&mut bench);
    bench.reasons.clear();
    bench.pass(3600);
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate(10)))));
    let notices = bench.reasons.iter().filter(|one| **one == "NotRecorded");
    // At most one for each attempt, and attempts become rare.
    assert!((1..=125).contains(&notices.count()));
    let ready = ready(&bench.status());
    assert_eq!(ready, ("False".to_owned(), "NotRecorded".to_owned()));

    bench.is_recording = true;
    bench.pass(31);
    assert_eq!(bench.runs(), Some((name_of(&second()), None)));
    assert_eq!(ready_reason(&bench), "DryRun");
    assert_recorded(&bench, "at the end");
}

#[test]
fn an_abort_takes_effect_while_nothing_can_be_recorded() {
    let mut bench = rolling_out();
    bench.is_recording = false;
    aborts(&mut bench);
    bench.pass(60);
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    // The next host has no record of it, and decides again.
    let mut next = bench.crash();
    next.settle();
    assert_eq!(next.runs(), Some((name_of(&first()), None)));
    assert!(next.record.status.rejected.is_some());
}

/// After an error it is unknown whether a write was executed.
#[test]
fn a_write_whose_answer_is_lost_is_repeated() {
    let mut bench = rolling_out();
    promotes(&mut bench);
    bench.look();
    // The spec of the promoted revision.
    let (_, _, record) = &bench.writes[0];
    assert!(matches!(record, Record::Revision(_)));
    bench.write_one();
    let (id, _, record) = bench.writes.remove(0);
    bench.record.write(record);
    bench.fail(id);
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate(10)))));
    assert_eq!(
        bench.record.status.stable.as_ref().unwrap().revision,
        name_of(&second())
    );
    bench.pass(2);
    assert_eq!(bench.runs(), Some((name_of(&second()), None)));
}

#[test]
fn a_revision_that_was_loaded_for_an_old_spec_is_ignored() {
    let mut bench = Bench::running(first());
    bench.change(second());
    bench.look();
    let late = bench.loads.remove(0);
    // Meanwhile the operator has undone the change.
    bench.change(first());
    bench.answer(late.id, &second());
    bench.pass(3);
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    assert!(bench.status().candidate.is_none());
    assert_eq!(
        ready_reason(&bench),
        "DryRun",
        "what is described is loaded"
    );
    // The same answer again has no effect.
    bench.answer(late.id, &second());
    bench.pass(3);
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
}

/// Answers about the former resource's loads and records arrive late.
#[test]
fn another_resource_of_the_same_name_has_nothing_of_the_former_one() {
    let mut bench = rolling_out();
    promotes(&mut bench);
    bench.change(spec(3, STEPS));
    bench.look();
    let (loads, writes) = (bench.loads.clone(), bench.writes.clone());
    assert!(!loads.is_empty() && !writes.is_empty());
    bench.loads.clear();
    bench.writes.clear();
    // Its record is deleted with it.
    bench.record = ControllerRecord::default();
    bench.declaration.requests = crate::control::Requests::default();
    bench.replace("2", spec(9, STEPS));
    bench.look();
    assert_eq!(bench.runs(), None, "the former one stops");
    for load in loads {
        let LoadTarget::Desired { spec, .. } = load.target else {
            continue;
        };
        bench.answer(load.id, &spec);
    }
    for (id, ..) in writes {
        bench.succeed(id);
    }
    bench.settle();
    bench.pass(3);
    assert_eq!(bench.runs(), Some((name_of(&spec(9, STEPS)), None)));
    let owner = bench.last_owner.clone().unwrap();
    assert_eq!(
        (owner.name.as_str(), owner.uid.as_deref()),
        (NAME, Some("2"))
    );
}

/// After a start the spec may describe a third revision while the candidate of the
/// record waits: a request about the candidate must not promote the third one.
#[test]
fn a_request_about_a_candidate_never_promotes_another_revision() {
    let mut bench = rolling_out();
    promotes(&mut bench);
    let mut next = bench.crash();
    next.is_cache_lost = true;
    let mut third = spec(3, STEPS);
    third.rollout.analysis.min_decisions = 0;
    next.declaration.requests = bench.declaration.requests.clone();
    next.change(third.clone());
    next.settle();
    next.pass(30);
    assert_eq!(next.runs(), None, "the stable revision is lost");
    let status = next.status();
    assert_eq!(status.stable.unwrap().revision, name_of(&first()));
    assert_eq!(status.candidate.unwrap().revision, name_of(&second()));
    assert_eq!(status.lost.unwrap().ready, Some(name_of(&third)));
    // It is available again, and so is the rollout of the spec's revision.
    next.is_cache_lost = false;
    next.pass(70);
    let (stable, candidate) = next.runs().unwrap();
    assert_eq!(stable, name_of(&first()));
    assert_eq!(candidate, Some((name_of(&third), 10)));
}

/// A host that cannot write runs the recorded revisions.
#[test]
fn the_recorded_revision_runs_after_a_start_while_nothing_can_be_recorded() {
    let bench = rolling_out();
    let mut next = bench.crash();
    next.is_recording = false;
    next.settle();
    next.pass(10);
    assert_eq!(next.runs(), Some((name_of(&first()), Some(candidate(10)))));
}

#[test]
fn counts_are_recorded_every_ten_seconds_and_continue_after_a_crash() {
    let mut bench = rolling_out();
    bench.disagree(3);
    bench.pass(25);
    let recorded = bench.record.status.candidate.clone().unwrap();
    assert_eq!(recorded.comparison.different, 3);
    assert!((15..=25).contains(&recorded.elapsed_seconds));
    let mut next = bench.crash();
    next.disagree(2);
    next.pass(15);
    let continued = next.status().candidate.unwrap();
    assert_eq!(continued.since, recorded.since);
    assert_eq!(continued.comparison.different, 5);
    assert!(continued.elapsed_seconds > recorded.elapsed_seconds);
    assert!(continued.elapsed_seconds < recorded.elapsed_seconds + 17);
}

/// The state is restored from the record once, and writing it gives the same record.
#[test]
fn a_restored_state_is_written_as_it_was_recorded() {
    let mut lost = rolling_out().crash();
    lost.is_cache_lost = true;
    lost.settle();
    let mut rolled_back = rolling_out();
    aborts(&mut rolled_back);
    rolled_back.settle();
    for bench in [Bench::running(first()), rolling_out()]
        .into_iter()
        .chain([rolled_back, lost])
    {
        let recorded = &bench.record.status;
        let state = crate::control::state::Rollout::restore(recorded);
        let mut written = ControllerStatus::default();
        let lost = recorded.lost.as_ref();
        state.write(&mut written, lost.and_then(|lost| lost.ready.as_deref()));
        assert_eq!(written.stable, recorded.stable);
        assert_eq!(written.candidate, recorded.candidate);
        assert_eq!(written.rejected, recorded.rejected);
        assert_eq!(written.lost, recorded.lost);
    }
}

#[test]
fn the_clock_of_the_wall_never_gives_two_rollouts_one_name() {
    let mut bench = rolling_out();
    let since = |bench: &Bench| bench.status().candidate.unwrap().since;
    let before = since(&bench);
    aborts(&mut bench);
    bench.settle();
    let rejected = bench.status().rejected.unwrap();
    bench.now.wall.0 -= 3_600_000;
    let mut bench = bench.crash();
    bench.settle();
    let value = retry(&rejected);
    bench.ask(|requests| requests.retry = Some(value));
    bench.settle();
    assert!(since(&bench) > before);
    // The abort names the former rollout, not this one.
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate(10)))));
    let requests = bench.status().requests;
    let abort = requests.iter().find(|one| one.request == "abort").unwrap();
    assert_eq!(abort.result, RequestResult::Done);
}

fn ready(status: &ControllerStatus) -> (String, String) {
    let mut conditions = status.conditions.iter();
    let ready = conditions.find(|one| one.type_ == "Ready").unwrap();
    (ready.status.clone(), ready.reason.clone())
}

fn ready_reason(bench: &Bench) -> String {
    ready(&bench.status()).1
}

#[test]
fn other_fields_of_the_spec_do_not_change_the_revision() {
    assert_eq!(identity(&spec(1, &[])), identity(&first()));
}

#[test]
fn a_candidate_whose_steps_are_removed_is_promoted_unless_it_is_paused() {
    let mut bench = rolling_out();
    let mut without = spec(2, &[]);
    without.rollout.paused = true;
    bench.change(without.clone());
    bench.pass(5);
    assert_eq!(
        bench.runs(),
        Some((name_of(&first()), Some(candidate(10)))),
        "paused"
    );
    without.rollout.paused = false;
    bench.change(without);
    bench.pass(1);
    assert_eq!(bench.runs(), Some((name_of(&second()), None)));
}

#[test]
fn a_step_stands_still_while_the_described_revision_is_not_loaded() {
    let mut bench = rolling_out();
    bench.pass(5);
    let elapsed = |bench: &Bench| bench.status().candidate.map(|one| one.elapsed_seconds);
    let before = elapsed(&bench);
    bench.change(spec(3, STEPS));
    bench.look();
    assert_eq!(bench.loads.len(), 1);
    let load = bench.loads.remove(0);
    promotes(&mut bench);
    bench.pass(60);
    assert_eq!(elapsed(&bench), before);
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(candidate(10)))));
    let requests = bench.status().requests;
    assert_eq!(requests[0].result, RequestResult::Pending);
    // An abort holds.
    aborts(&mut bench);
    bench.look();
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    bench.answer(load.id, &spec(3, STEPS));
    bench.pass(1);
    let third = (name_of(&spec(3, STEPS)), 10);
    assert_eq!(bench.runs(), Some((name_of(&first()), Some(third))));
}

/// Recorded specs have the module, configuration and limits of a revision, not its
/// present permissions.
#[test]
fn nothing_runs_after_a_start_with_a_spec_that_cannot_be_read() {
    let bench = rolling_out();
    let recorded = bench.record.status.clone();
    let mut next = Bench::start_unreadable(&bench);
    next.settle();
    next.pass(30);
    assert_eq!(next.runs(), None);
    let status = next.status();
    assert_eq!(status.stable, recorded.stable);
    assert_eq!(status.candidate, recorded.candidate);
    assert_eq!(ready_reason(&next), "InvalidSpec");
    next.change(second());
    next.settle();
    assert_eq!(next.runs(), Some((name_of(&first()), Some(candidate(10)))));
}

/// Otherwise the revision of the spec would become stable like a first one, even if it
/// was rolled back.
#[test]
fn nothing_runs_after_a_start_until_the_record_is_read() {
    let mut bench = rolling_out();
    aborts(&mut bench);
    bench.settle();
    let rejected = bench.status().rejected;
    assert!(rejected.is_some());
    let mut next = bench.crash();
    next.unreadable = Some("the API server is away".to_owned());
    next.settle();
    next.pass(60);
    assert_eq!(next.runs(), None);
    assert!(next.control.is_settled(), "nobody waits for it");
    assert_eq!(next.record.status.rejected, rejected, "nothing is written");
    next.unreadable = None;
    next.pass(3);
    assert_eq!(next.runs(), Some((name_of(&first()), None)));
    assert_eq!(next.status().rejected, rejected);
}

/// The second revision, of another module.
fn third() -> ControllerSpec {
    ControllerSpec {
        module: ModuleSource::File("/guests/b.wasm".into()).into(),
        ..second()
    }
}

#[test]
fn modules_are_kept_as_long_as_the_record_names_them() {
    let mut bench = Bench::running(first());
    bench.change(third());
    bench.settle();
    let (stable, candidate) = (module(&first()), module(&third()));
    let both = Some([stable, candidate].into());
    assert_eq!(bench.modules, both);
    bench.is_recording = false;
    aborts(&mut bench);
    bench.change(first());
    bench.pass(60);
    assert_eq!(bench.runs(), Some((name_of(&first()), None)));
    assert_eq!(
        bench.modules, both,
        "a host that crashes now needs the candidate"
    );
    bench.is_recording = true;
    bench.pass(60);
    assert_eq!(bench.modules, Some([stable].into()));
}

/// It is unknown whether a write without an answer was executed.
#[test]
fn modules_of_a_write_without_an_answer_are_kept() {
    let mut bench = Bench::running(first());
    bench.change(third());
    bench.look();
    let starts_it = |record: &Record| matches!(record, Record::Status(write) if write.status.candidate.is_some());
    while !bench
        .writes
        .first()
        .is_some_and(|(_, _, record)| starts_it(record))
    {
        assert!(bench.execute_one());
        bench.look();
    }
    let (id, ..) = bench.writes.remove(0);
    bench.fail(id);
    bench.is_recording = false;
    bench.change(first());
    bench.pass(60);
    let both = [module(&first()), module(&third())];
    assert_eq!(bench.modules, Some(both.into()));
}

#[test]
fn a_failure_to_record_is_notified_rarely_while_it_lasts() {
    let mut bench = Bench::running(first());
    bench.reasons.clear();
    bench.is_recording = false;
    bench.change(second());
    bench.pass(900);
    let failures = bench.reasons.iter().filter(|one| **one == "NotRecorded");
    let count = failures.count();
    assert!((2..9).contains(&count), "{count} in 15 minutes");
}
