//! Executed plans.

use std::fmt;
use std::sync::Arc;

use davit_core::plan::Plan;
use davit_core::time::Instant;

/// A plan that a machine admitted.
#[derive(Clone, Debug)]
pub struct ExecutedPlan {
    /// When the machine admitted it.
    pub at: Instant,
    /// The name of the controller.
    pub controller: String,
    /// The name of the revision.
    pub revision: Arc<str>,
    /// The plan.
    pub plan: Arc<Plan>,
}

impl fmt::Display for ExecutedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (controller, revision, plan) = (&self.controller, &self.revision, &self.plan);
        let (reason, target, message) = (&plan.reason, &plan.target, &plan.message);
        write!(
            f,
            "{controller} ({revision}) executes {reason} {target}: {message}"
        )
    }
}
