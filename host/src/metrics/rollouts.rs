//! The rollouts of controllers, their guardrails, and events about them.

use prometheus::{CounterVec, GaugeVec};

use super::CONTROLLER;
use super::registration::{MetricError, Registrar, flag, total};
use davit_core::api::{ClusterComparisonStatus, ComparisonStatus, ControllerStatus};
use davit_core::budget::Guardrail;

/// The reason of the event that an alert is about.
const ROLLED_BACK: &str = "RolledBack";

/// `davit_rollout_*`
#[derive(Debug)]
pub struct RolloutMetrics {
    step: GaugeVec,
    weight: GaugeVec,
    comparison: GaugeVec,
    cluster: GaugeVec,
    cluster_delay: GaugeVec,
    lost: GaugeVec,
    tripped: GaugeVec,
    events: CounterVec,
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
            cluster: registrar.gauge(
                "davit_cluster_comparison",
                "Targets of a dry run compared with the cluster, by result.",
                &[CONTROLLER, "result"],
            )?,
            cluster_delay: registrar.gauge(
                "davit_cluster_comparison_median_delay_seconds",
                "How much later than the cluster the dry run decides; negative if earlier.",
                &[CONTROLLER],
            )?,
            lost: registrar.gauge(
                "davit_stable_revision_lost",
                "1 while the stable revision cannot be loaded, so that the controller does nothing.",
                &[CONTROLLER],
            )?,
            tripped: registrar.gauge(
                "davit_guardrail_tripped",
                "1 while a guardrail is tripped and defers plans.",
                &[CONTROLLER, "guardrail"],
            )?,
            events: registrar.counter(
                "davit_controller_events_total",
                "Events about a Controller, by reason.",
                &[CONTROLLER, "reason"],
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
        for guardrail in Guardrail::ALL {
            let field = guardrail.field();
            let is_tripped = status.tripped.iter().any(|one| one.guardrail == field);
            let gauge = self.tripped.with_label_values(&[controller, field]);
            gauge.set(flag(is_tripped));
        }
        // A counter that appears with its first event shows no increase.
        let _ = self.events.with_label_values(&[controller, ROLLED_BACK]);
        let comparison = candidate.map(|one| one.comparison).unwrap_or_default();
        for (result, count) in results(&comparison) {
            let gauge = self.comparison.with_label_values(&[controller, result]);
            gauge.set(total(count));
        }
        self.set_cluster(controller, status.cluster_comparison.as_ref());
    }

    /// Sets the gauges of a comparison with the cluster; without one, there are none.
    fn set_cluster(&self, controller: &str, comparison: Option<&ClusterComparisonStatus>) {
        let none = ClusterComparisonStatus::default();
        for (result, count) in cluster_results(comparison.unwrap_or(&none)) {
            let labels = [controller, result];
            if comparison.is_some() {
                self.cluster.with_label_values(&labels).set(total(count));
            } else {
                let _ = self.cluster.remove_label_values(&labels);
            }
        }
        let median = comparison.and_then(|one| one.median_milliseconds);
        if let Some(milliseconds) = median {
            let millis = total(milliseconds.unsigned_abs());
            let sign = if milliseconds < 0 { -1.0 } else { 1.0 };
            let gauge = self.cluster_delay.with_label_values(&[controller]);
            gauge.set(sign * millis / 1000.0);
        } else {
            let _ = self.cluster_delay.remove_label_values(&[controller]);
        }
    }

    /// Counts an event about a controller.
    pub fn event(&self, controller: &str, reason: &str) {
        let counter = self.events.with_label_values(&[controller, reason]);
        counter.inc();
    }

    /// Removes the gauges of a controller that is gone.
    pub fn remove(&self, controller: &str) {
        self.set_cluster(controller, None);
        // The controller may never have had these gauges.
        let _ = self.step.remove_label_values(&[controller]);
        let _ = self.weight.remove_label_values(&[controller]);
        let _ = self.lost.remove_label_values(&[controller]);
        for guardrail in Guardrail::ALL {
            let labels = [controller, guardrail.field()];
            let _ = self.tripped.remove_label_values(&labels);
        }
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

/// The results of a comparison with the cluster, as in all outputs.
fn cluster_results(comparison: &ClusterComparisonStatus) -> [(&'static str, u64); 6] {
    [
        ("agree", comparison.agree),
        ("only-davit", comparison.only_davit),
        ("only-cluster", comparison.only_cluster),
        ("other-actor", comparison.other_actor),
        ("unknown", comparison.unknown),
        ("interrupted", comparison.interrupted),
    ]
}
