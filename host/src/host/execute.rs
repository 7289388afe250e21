//! Carrying out one plan.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::write::{Decision, Writer};
use davit_core::controller::Outcome;
use davit_core::mapping::Mapping;
use davit_core::plan::Plan;
use davit_core::request::plan::withdrawn;
use tokio::time::Instant;

use super::slot::Braked;

/// Waits for a plan's turn and carries it out, unless the brake is pulled
/// meanwhile. Returns how long it took without the waiting.
pub(super) async fn carry_out(
    writer: &Writer,
    mapping: &Arc<Mapping>,
    plan: &Arc<Plan>,
    decision: &Decision,
    mut brake: Braked,
) -> (Outcome, Duration) {
    let course = tokio::select! {
        // In this order: what is stopped in the moment of its turn never begins.
        biased;
        () = brake.pulled() => return (withdrawn(plan), Duration::ZERO),
        course = writer.start(plan) => course,
    };
    let begun = Instant::now();
    let outcome = match course {
        Ok(course) => writer.execute(mapping, plan, decision, course).await,
        Err(outcome) => outcome,
    };
    (outcome, begun.elapsed())
}
