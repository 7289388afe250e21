//! Carrying out one plan.

use std::time::Duration;

use davit_cluster::api::Course;
use davit_cluster::write::{Decision, Writer};
use davit_core::controller::Outcome;
use davit_core::expectation::Written;
use davit_core::failure::{Failure, FailureClass};
use davit_core::mapping::Mapping;
use davit_core::plan::{Plan, Step};
use tokio::time::Instant;

use super::slot::Braked;

/// Waits for a plan's turn and carries it out, unless the brake is pulled
/// meanwhile. Returns how long it took without the waiting.
pub(super) async fn carry_out(
    writer: &Writer,
    mapping: &Mapping,
    plan: &Plan,
    decision: &Decision,
    mut brake: Braked,
) -> (Outcome, Duration) {
    let course = tokio::select! {
        // In this order: what is stopped in the moment of its turn never begins.
        biased;
        () = brake.pulled() => return (not_begun(plan), Duration::ZERO),
        course = writer.begin(plan) => course,
    };
    let begun = Instant::now();
    let outcome = match course {
        Ok(course) => steps(writer, mapping, plan, decision, course).await,
        Err(failed) => Outcome {
            written: None,
            failed: Some(failed),
        },
    };
    (outcome, begun.elapsed())
}

/// What becomes of a plan that was kept back: its item comes again.
fn not_begun(plan: &Plan) -> Outcome {
    let message = format!(
        "{}: not begun, since the controller was changed meanwhile",
        plan.target
    );
    Outcome {
        written: None,
        failed: Some((0, Failure::new(FailureClass::Conflict, message))),
    }
}

/// Carries out the steps of a plan in order, until one fails.
async fn steps(
    writer: &Writer,
    mapping: &Mapping,
    plan: &Plan,
    decision: &Decision,
    mut course: Course,
) -> Outcome {
    let mut written = None;
    for (position, step) in (0..).zip(&plan.steps) {
        match writer
            .execute(mapping, &plan.target, step, decision, &mut course)
            .await
        {
            Ok(done) => {
                // What was created is another object, and an event is none of
                // the target's.
                if !matches!(step, Step::Create(_) | Step::Event(_)) {
                    written = Some(after(written, done.written()));
                }
            }
            Err(failure) => {
                return Outcome {
                    written,
                    failed: Some((position, failure)),
                };
            }
        }
    }
    Outcome {
        written,
        failed: None,
    }
}

/// What two writes in a row left behind: what does not say its version has a
/// later one than the write before it.
fn after(before: Option<Written>, written: Written) -> Written {
    match (before, written) {
        (Some(Written::Version(version)), Written::Unknown) => {
            Written::Version(version.saturating_add(1))
        }
        (_, written) => written,
    }
}
