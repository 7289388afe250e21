//! Requests of operators: each gets one final answer.

use super::bench::Bench;
use super::revisions::{name_of, spec};
use crate::api::{CandidateStatus, ControllerSpec, RequestResult, RequestStatus};
use crate::control::Requests;
use crate::control::requests::{abort, promote_fully, promote_step, retry, swap};

const STEPS: &[&str] = &[
    "shadow for 5m",
    "shadow until promoted",
    "weight 100 until promoted",
];

/// The stable revision.
fn first() -> ControllerSpec {
    spec(1, STEPS)
}

/// The candidate.
fn second() -> ControllerSpec {
    spec(2, STEPS)
}

fn rolling_out() -> Bench {
    let mut bench = Bench::running(first());
    bench.change(second());
    bench.settle();
    assert_eq!(bench.candidate().step, 1);
    bench
}

impl Bench {
    /// Makes a request, and lets it take effect.
    fn request(&mut self, change: impl FnOnce(&mut Requests)) {
        self.ask(change);
        self.settle();
    }

    fn answer_to(&self, request: &str) -> RequestStatus {
        let requests = self.status().requests;
        let found = requests.into_iter().find(|one| one.request == request);
        found.expect("every request is answered")
    }
}

#[test]
fn a_refused_request_never_takes_effect_later() {
    let mut bench = rolling_out();
    let of_step_2 = promote_step(&CandidateStatus {
        step: 2,
        ..bench.candidate()
    });
    bench.request(|requests| requests.promote = Some(of_step_2.clone()));
    let refused = bench.answer_to("promote");
    assert_eq!(refused.result, RequestResult::Refused);
    assert!(refused.message.contains("step 1 of 3"), "{refused:?}");
    bench.pass(360);
    assert_eq!(bench.candidate().step, 2);
    assert_eq!(bench.status().requests, [refused]);

    // The same value with a suffix is another request, which fits by now.
    let repeated = format!("{of_step_2}#again");
    bench.request(|requests| requests.promote = Some(repeated.clone()));
    let done = bench.answer_to("promote");
    assert_eq!((&done.value, done.result), (&repeated, RequestResult::Done));
    assert!(done.message.contains("step 3 of 3"), "{done:?}");
    assert_eq!(bench.candidate().step, 3);

    // An operator removes the annotation after reading the answer.
    bench.request(|requests| *requests = Requests::default());
    assert_eq!(bench.status().requests, []);
}

#[test]
fn a_request_that_does_not_fit_is_refused_with_the_reason() {
    let mut bench = Bench::running(first());
    let at = "2026-11-20T10:00:00.000Z";
    bench.request(|requests| {
        *requests = Requests {
            promote: Some("yes".into()),
            abort: Some("now".into()),
            abandon: Some("aaaa@then".into()),
            retry: Some(format!("aaaa@{at}")),
            reset: Some(at.into()),
            swap: Some("aaaa@7".into()),
        }
    });
    assert_eq!(bench.status().requests.len(), 6);
    for (request, reason) in [
        (
            "promote",
            "must have the form REVISION@SINCE/STEP or REVISION@SINCE/all",
        ),
        ("abort", "must have the form REVISION@SINCE"),
        ("abandon", "must have the form REVISION@SINCE"),
        ("retry", "no revision is rejected"),
        ("reset", "no guardrail is tripped"),
        ("swap", "generation is 1, not 7"),
    ] {
        let answer = bench.answer_to(request);
        assert_eq!(answer.result, RequestResult::Refused, "{answer:?}");
        assert!(answer.message.contains(reason), "{answer:?}");
    }
}

/// To clear queues and notes, no guardrail has to be tripped.
#[test]
fn a_reset_without_a_trip_clears_queues_and_notes_once() {
    let mut bench = Bench::running(first());
    let since = bench.status().stable.unwrap().since;
    bench.request(|requests| requests.reset = Some(format!("{since}#1")));
    let answer = bench.answer_to("reset");
    assert_eq!(answer.result, RequestResult::Done, "{answer:?}");
    assert_eq!(answer.message, "queues and notes were cleared");
    assert_eq!(bench.resets, 1);
    bench.pass(5);
    assert_eq!(bench.resets, 1);
    bench.request(|requests| requests.reset = Some(format!("{since}#2")));
    assert_eq!(bench.resets, 2);
}

/// The annotation is still there when the next host starts.
#[test]
fn the_next_host_does_not_answer_a_request_again() {
    let mut bench = rolling_out();
    let candidate = bench.candidate();
    bench.request(|requests| requests.abort = Some(abort(&candidate)));
    let done = bench.answer_to("abort");
    assert_eq!(done.result, RequestResult::Done);
    let rejected = bench.status().rejected.unwrap();
    assert_eq!(rejected.revision, candidate.revision);

    bench.declaration.requests.retry = Some(retry(&rejected));
    let mut next = bench.crash();
    next.settle();
    assert_eq!(next.candidate().step, 1);
    let retried = next.answer_to("retry");
    assert_eq!(retried.result, RequestResult::Done);
    assert!(retried.message.contains("step 1 of 3"), "{retried:?}");
    next.pass(60);
    assert_eq!(next.candidate().step, 1);
    assert_eq!(next.answer_to("abort"), done);
}

#[test]
fn a_request_is_pending_while_the_described_revision_cannot_be_loaded() {
    let mut bench = rolling_out();
    let value = promote_fully(&bench.candidate());
    bench.is_source_away = true;
    bench.change(spec(3, STEPS));
    bench.request(|requests| requests.promote = Some(value.clone()));
    let pending = bench.answer_to("promote");
    assert_eq!(pending.result, RequestResult::Pending);
    assert_eq!(pending.message, "it cannot be read");
    // The candidate stays in its step.
    bench.pass(600);
    assert_eq!(bench.stable(), name_of(&first()));
    let candidate = bench.candidate();
    assert_eq!(
        (candidate.revision.as_str(), candidate.step),
        (name_of(&second()).as_str(), 1)
    );
    assert_eq!(
        candidate.waits_for,
        "the host is loading the revision that the spec describes"
    );

    bench.is_source_away = false;
    bench.change(second());
    bench.settle();
    assert_eq!(bench.answer_to("promote").result, RequestResult::Done);
    assert_eq!(bench.stable(), name_of(&second()));
}

/// A rollback without steps.
#[test]
fn a_swap_is_of_one_spec_and_also_of_a_rejected_revision() {
    let mut bench = rolling_out();
    let revision = name_of(&second());
    let of_the_former_spec = swap(&revision, 1);
    bench.request(|requests| requests.swap = Some(of_the_former_spec));
    assert_eq!(bench.answer_to("swap").result, RequestResult::Refused);
    assert_eq!(bench.candidate().revision, revision);

    let value = abort(&bench.candidate());
    bench.request(|requests| requests.abort = Some(value));
    assert!(bench.status().rejected.is_some());
    let value = swap(&revision, 2);
    bench.request(|requests| {
        *requests = Requests {
            swap: Some(value),
            ..Requests::default()
        }
    });
    let done = bench.answer_to("swap");
    assert_eq!(done.result, RequestResult::Done, "{done:?}");
    assert_eq!(bench.stable(), revision);
    let status = bench.status();
    assert_eq!((status.candidate, status.rejected), (None, None));

    // The next change of the spec is rolled out in steps again.
    bench.change(first());
    bench.settle();
    assert_eq!(bench.candidate().step, 1);
    assert_eq!(bench.status().requests, [done]);
}

/// Annotations stay: a request names one rollout.
#[test]
fn requests_about_a_rollout_have_no_effect_on_the_next_one() {
    let mut bench = rolling_out();
    let of_first_rollout = bench.candidate();
    bench.request(|requests| requests.abort = Some(abort(&of_first_rollout)));
    let rejected = bench.status().rejected.unwrap();
    bench.request(|requests| requests.retry = Some(retry(&rejected)));
    let again = bench.candidate();
    assert_eq!(again.revision, of_first_rollout.revision);
    assert_ne!(again.since, of_first_rollout.since);
    bench.pass(60);
    assert_eq!(bench.candidate().since, again.since);

    bench.request(|requests| requests.promote = Some(promote_fully(&again)));
    assert_eq!(bench.stable(), again.revision);
    bench.change(spec(1, &[]));
    bench.settle();
    assert_eq!(bench.stable(), name_of(&first()));
    bench.change(second());
    bench.settle();
    bench.pass(60);
    assert_eq!(bench.stable(), name_of(&first()));
    assert_eq!(bench.candidate().step, 1);
}
