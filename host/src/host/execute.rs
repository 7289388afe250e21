//! Carrying out one plan.

use davit_cluster::write::{Decision, Writer};
use davit_core::controller::Outcome;
use davit_core::expectation::Written;
use davit_core::mapping::Mapping;
use davit_core::plan::{Plan, Step};

/// Carries out the steps of a plan in order, until one fails.
pub(super) async fn carry_out(
    writer: &Writer,
    mapping: &Mapping,
    plan: &Plan,
    decision: &Decision,
) -> Outcome {
    let mut written = None;
    for (position, step) in (0..).zip(&plan.steps) {
        match writer
            .carry_out(mapping, &plan.target, step, decision)
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
