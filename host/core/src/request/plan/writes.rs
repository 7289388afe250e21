//! The writes of a plan, without executing it.

use super::field_manager;
use crate::failure::Failure;
use crate::mapping::Mapping;
use crate::plan::Plan;
use crate::request::Request;
use crate::request::step::{Keeping, StepContext};

/// The write of each step of a plan, as far as the plan says it: the version that the host may
/// read before a write, as a precondition, is missing. None for an event, and the failure of a step
/// that cannot be sent.
#[must_use]
pub fn writes(
    plan: &Plan,
    mapping: &Mapping,
    controller: &str,
) -> Vec<Option<Result<Request, Failure>>> {
    let field_manager = field_manager(controller);
    let steps = plan.steps.iter().map(|step| StepContext {
        mapping,
        target: &plan.target,
        step,
        field_manager: &field_manager,
        keeping: Keeping::Off,
    });
    steps.map(StepContext::write).collect()
}
