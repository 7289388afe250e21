//! What may never be written to a record.

use davit_core::api::{RequestResult, RequestStatus};

use super::*;

impl Trace {
    /// The specs of both revisions are recorded.
    fn activated() -> Self {
        let mut trace = Self::new();
        trace.activate(STABLE);
        trace.activate(CANDIDATE);
        trace
    }
}

/// A candidate in this step of the rollout that started then.
fn step(since: &str, step: u32) -> ControllerStatus {
    let mut status = rollout(50);
    if let Some(candidate) = &mut status.candidate {
        candidate.since = since.to_owned();
        (candidate.step, candidate.steps) = (step, 3);
    }
    status
}

fn answered(request: &str, result: RequestResult, message: &str) -> ControllerStatus {
    ControllerStatus {
        requests: vec![RequestStatus {
            request: request.to_owned(),
            value: "1".to_owned(),
            result,
            message: message.to_owned(),
            at: String::new(),
        }],
        ..stable()
    }
}

#[test]
fn a_status_names_only_revisions_whose_specs_are_recorded() {
    let mut trace = Trace::new();
    let problems = trace.write(rollout(50));
    reports(&problems, "whose spec is not recorded");
    trace.activate(STABLE);
    trace.activate(CANDIDATE);
    passes(&trace.write(rollout(50)));
}

#[test]
fn a_request_is_answered_once() {
    let mut trace = Trace::activated();
    passes(&trace.write(answered("abort", RequestResult::Pending, "")));
    passes(&trace.write(answered("abort", RequestResult::Done, "aborted")));
    passes(&trace.write(answered("abort", RequestResult::Done, "aborted")));
    // Another request has an answer of its own.
    passes(&trace.write(answered("reset", RequestResult::Refused, "")));
    let problems = trace.write(answered("reset", RequestResult::Done, ""));
    reports(&problems, "has two answers");
    let problems = trace.write(answered("reset", RequestResult::Done, "again"));
    reports(&problems, "has two answers");
}

#[test]
fn a_rollout_that_ended_does_not_return() {
    for ended in [stable(), rolled_back(), step("12:01", 1)] {
        let mut trace = Trace::activated();
        passes(&trace.write(step("12:00", 1)));
        passes(&trace.write(step("12:00", 2)));
        passes(&trace.write(ended));
        // The same revision is rolled out again.
        passes(&trace.write(step("12:02", 1)));
        reports(
            &trace.write(step("12:00", 2)),
            "candidate@12:00 continues after its end",
        );
    }
}

#[test]
fn a_revision_is_not_candidate_and_rejected() {
    let mut trace = Trace::activated();
    passes(&trace.write(rollout(50)));
    passes(&trace.write(rolled_back()));
    let mut both = rollout(50);
    both.rejected = rolled_back().rejected;
    reports(&trace.write(both.clone()), "is both candidate and rejected");
    if let Some(rejected) = &mut both.rejected {
        rejected.revision = "another".to_owned();
    }
    let problems = trace.write(both);
    assert!(!problems.iter().any(|problem| problem.contains("rejected")));
}

#[test]
fn a_paused_rollout_stays_in_its_step() {
    let promoted = || {
        let mut status = step("12:00", 2);
        status.requests = answered("promote", RequestResult::Done, "").requests;
        status
    };
    let paused = || {
        let mut trace = Trace::activated();
        passes(&trace.write(step("12:00", 1)));
        trace.records.confirm_pause(CONTROLLER, true);
        passes(&trace.write(step("12:00", 1)));
        trace
    };
    let moves = "a paused rollout changes its step";
    reports(&paused().write(step("12:00", 2)), moves);
    // An operator promotes the candidate, for one step.
    let mut trace = paused();
    passes(&trace.write(promoted()));
    let mut next = promoted();
    if let Some(candidate) = &mut next.candidate {
        candidate.step = 3;
    }
    reports(&trace.write(next), moves);
    // Another rollout, or a rollout by other steps, starts with its own first step.
    passes(&paused().write(step("12:01", 2)));
    let mut other_steps = step("12:00", 2);
    if let Some(candidate) = &mut other_steps.candidate {
        candidate.steps = 2;
    }
    passes(&paused().write(other_steps));
    // The operator continues the rollout.
    let mut trace = paused();
    trace.records.confirm_pause(CONTROLLER, false);
    passes(&trace.write(step("12:00", 2)));
}
