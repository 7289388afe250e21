//! How much of the limits of a controller is used.

use davit_core::bounds::Bound;
use davit_core::budget::Guardrail;
use davit_core::machine::{BoundUse, ControllerState};
use davit_core::rollout::Role;
use prometheus::GaugeVec;

use super::registration::{MetricError, Registrar, number};
use super::{CONTROLLER, ROLE};

/// `davit_guardrail_left_ratio`, `davit_limit_used_ratio`
#[derive(Debug)]
pub struct LimitMetrics {
    left: GaugeVec,
    used: GaugeVec,
}

impl LimitMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            left: registrar.gauge(
                "davit_guardrail_left_ratio",
                "The share of a guardrail that is left of the last 60 seconds.",
                &[CONTROLLER, "guardrail"],
            )?,
            used: registrar.gauge(
                "davit_limit_used_ratio",
                "The share of a limit that is used by what the host keeps for a revision.",
                &[CONTROLLER, ROLE, "limit"],
            )?,
        })
    }

    /// Sets the gauges of a controller.
    pub fn set(&self, state: &ControllerState) {
        let controller = state.name.as_str();
        for guardrail in Guardrail::ALL {
            let labels = [controller, guardrail.field()];
            let mut uses = state.guardrails.iter();
            match uses.find(|one| one.guardrail == guardrail) {
                Some(one) => {
                    let left = one.limit.saturating_sub(one.used);
                    let gauge = self.left.with_label_values(&labels);
                    gauge.set(ratio(left, one.limit));
                }
                // An operator may have removed the guardrail.
                None => drop(self.left.remove_label_values(&labels)),
            }
        }
        let has_candidate = state
            .bound_uses
            .iter()
            .any(|one| one.role == Role::Candidate);
        if !has_candidate {
            self.remove_role(controller, Role::Candidate);
        }
        for BoundUse {
            role,
            bound,
            used,
            most,
        } in &state.bound_uses
        {
            let labels = [controller, role.as_str(), bound.field()];
            let gauge = self.used.with_label_values(&labels);
            gauge.set(ratio(*used, *most));
        }
    }

    /// Removes the gauges of a controller that is gone.
    pub fn remove(&self, controller: &str) {
        for guardrail in Guardrail::ALL {
            let labels = [controller, guardrail.field()];
            let _ = self.left.remove_label_values(&labels);
        }
        for role in Role::ALL {
            self.remove_role(controller, role);
        }
    }

    fn remove_role(&self, controller: &str, role: Role) {
        for bound in Bound::ALL {
            let labels = [controller, role.as_str(), bound.field()];
            let _ = self.used.remove_label_values(&labels);
        }
    }
}

/// A share; that of a limit of zero is zero.
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    number(part) / number(whole)
}
