//! Plans: the gate's rulings, and the results of executed plans.

use std::time::Duration;

use davit_core::controller::Outcome;
use davit_core::gate::Ruling;
use davit_core::rollout::Role;
use prometheus::{CounterVec, HistogramVec};

use super::registration::{MetricError, Registrar};
use super::{CONTROLLER, ROLE};

const BUCKETS: [f64; 9] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 30.0];

/// `davit_plan*`
#[derive(Debug)]
pub struct PlanMetrics {
    rulings: CounterVec,
    executions: CounterVec,
    duration: HistogramVec,
}

impl PlanMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            rulings: registrar.counter(
                "davit_plans_total",
                "Plans that guests returned, by the gate's ruling.",
                &[CONTROLLER, ROLE, "ruling"],
            )?,
            executions: registrar.counter(
                "davit_plan_executions_total",
                "Executed plans, by result: ok, gone or a failure class.",
                &[CONTROLLER, "result"],
            )?,
            duration: registrar.histogram(
                "davit_plan_execution_duration_seconds",
                "Duration of a plan's execution, all its steps.",
                &[CONTROLLER],
                &BUCKETS,
            )?,
        })
    }

    /// Counts a ruling of the gate.
    pub fn ruled(&self, controller: &str, role: Role, ruling: &Ruling) {
        let labels = [controller, role.as_str(), ruling.as_str()];
        self.rulings.with_label_values(&labels).inc();
    }

    /// Counts a plan that was executed.
    pub fn executed(&self, controller: &str, outcome: &Outcome, took: Duration) {
        let result = match &outcome.failed {
            None => "ok",
            Some((_, failure)) if failure.class.means_gone() => "gone",
            Some((_, failure)) => failure.class.as_str(),
        };
        let labels = [controller, result];
        self.executions.with_label_values(&labels).inc();
        let duration = self.duration.with_label_values(&[controller]);
        duration.observe(took.as_secs_f64());
    }
}
