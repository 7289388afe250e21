//! The rollouts of controllers.

use prometheus::GaugeVec;

use super::CONTROLLER;
use super::registration::{MetricError, Registrar, total};
use davit_core::api::{ComparisonStatus, ControllerStatus};

/// `davit_rollout_*`
#[derive(Debug)]
pub struct RolloutMetrics {
    step: GaugeVec,
    weight: GaugeVec,
    comparison: GaugeVec,
    lost: GaugeVec,
}

impl RolloutMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            step: registrar.gauge(
                "davit_rollout_step",
                "The candidate's step, counted from 1; 0 without a candidate.",
                &[CONTROLLER],
            )?,
            weight: registrar.gauge(
                "davit_rollout_weight",
                "The share of the cohorts that the candidate owns, in percent.",
                &[CONTROLLER],
            )?,
            comparison: registrar.gauge(
                "davit_rollout_comparison",
                "Targets compared in the current step of a rollout, by result.",
                &[CONTROLLER, "result"],
            )?,
            lost: registrar.gauge(
                "davit_stable_revision_lost",
                "1 while the stable revision cannot be loaded, so that the controller does nothing.",
                &[CONTROLLER],
            )?,
        })
    }

    /// Sets the gauges of a controller's rollout.
    pub fn set(&self, controller: &str, status: &ControllerStatus) {
        let labels = [controller];
        let candidate = status.candidate.as_ref();
        let gauge = self.lost.with_label_values(&labels);
        gauge.set(if status.lost.is_some() { 1.0 } else { 0.0 });
        let (step, weight) = candidate.map_or((0, 0), |one| (one.step, one.weight));
        let gauge = self.step.with_label_values(&labels);
        gauge.set(f64::from(step));
        let gauge = self.weight.with_label_values(&labels);
        gauge.set(f64::from(weight));
        let comparison = candidate.map(|one| one.comparison).unwrap_or_default();
        for (result, count) in results(&comparison) {
            let gauge = self.comparison.with_label_values(&[controller, result]);
            gauge.set(total(count));
        }
    }

    /// Removes the gauges of a controller that is gone.
    pub fn remove(&self, controller: &str) {
        // The controller may never have had these gauges.
        let _ = self.step.remove_label_values(&[controller]);
        let _ = self.weight.remove_label_values(&[controller]);
        let _ = self.lost.remove_label_values(&[controller]);
        for (result, _) in results(&ComparisonStatus::default()) {
            let labels = [controller, result];
            let _ = self.comparison.remove_label_values(&labels);
        }
    }
}

/// The results of a comparison, as in all outputs.
fn results(comparison: &ComparisonStatus) -> [(&'static str, u64); 5] {
    [
        ("agree", comparison.agree),
        ("only-stable", comparison.only_stable),
        ("only-candidate", comparison.only_candidate),
        ("different", comparison.different),
        ("unknown", comparison.unknown),
    ]
}
