//! The rollouts of controllers, their guardrails, and events about them.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::CounterVec;

use super::CONTROLLER;
use super::collected::{Collected, Family, Kind, Samples};
use super::registration::{MetricError, Registrar, flag, total};
use davit_core::api::{ClusterComparisonStatus, ComparisonStatus, ControllerStatus};
use davit_core::budget::Guardrail;

/// The reason of the event that an alert is about.
const ROLLED_BACK: &str = "RolledBack";

/// What the metrics say of the status of each controller.
type Rollouts = BTreeMap<String, Rollout>;

/// What the metrics say of the status of a controller.
#[derive(Clone, Debug, Default)]
struct Rollout {
    step: u32,
    weight: u8,
    comparison: ComparisonStatus,
    cluster: Option<ClusterComparisonStatus>,
    /// Whether the condition Ready is True, and its reason; none before there is one.
    ready: Option<(bool, String)>,
    is_lost: bool,
    /// In the order of [`Guardrail::ALL`].
    tripped: [bool; Guardrail::ALL.len()],
}

const FAMILIES: &[Family<Rollouts>] = &[
    Family {
        name: "davit_rollout_step",
        help: "The candidate's step, counted from 1; 0 without a candidate.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER],
        samples: |all, samples| each(all, samples, |one| f64::from(one.step)),
    },
    Family {
        name: "davit_rollout_weight",
        help: "The share of the cohorts that the candidate owns, in percent.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER],
        samples: |all, samples| each(all, samples, |one| f64::from(one.weight)),
    },
    Family {
        name: "davit_rollout_comparison",
        help: "Targets compared in the current step of a rollout, by result.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER, "result"],
        samples: |all, samples| {
            for (controller, one) in all {
                for (result, count) in results(&one.comparison) {
                    samples.add(&[controller, result], total(count));
                }
            }
        },
    },
    Family {
        name: "davit_cluster_comparison",
        help: "Targets of a dry run compared with the cluster, by result.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER, "result"],
        samples: |all, samples| {
            for (controller, comparison) in compared(all) {
                for (result, count) in cluster_results(comparison) {
                    samples.add(&[controller, result], total(count));
                }
            }
        },
    },
    Family {
        name: "davit_cluster_comparison_median_delay_seconds",
        help: "How much later than the cluster the dry run decides; negative if earlier.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER],
        samples: |all, samples| {
            for (controller, comparison) in compared(all) {
                if let Some(milliseconds) = comparison.median_milliseconds {
                    samples.add(&[controller], seconds(milliseconds));
                }
            }
        },
    },
    Family {
        name: "davit_controller_ready",
        help: "1 while the condition Ready of the controller is True, 0 while it is not, by its reason.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER, "reason"],
        samples: |all, samples| {
            for (controller, one) in all {
                if let Some((is_ready, reason)) = &one.ready {
                    samples.add(&[controller, reason], flag(*is_ready));
                }
            }
        },
    },
    Family {
        name: "davit_stable_revision_lost",
        help: "1 while the stable revision cannot be loaded, so that the controller does nothing.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER],
        samples: |all, samples| each(all, samples, |one| flag(one.is_lost)),
    },
    Family {
        name: "davit_guardrail_tripped",
        help: "1 while a guardrail is tripped and defers plans.",
        kind: Kind::Gauge,
        labels: &[CONTROLLER, "guardrail"],
        samples: |all, samples| {
            for (controller, one) in all {
                for (guardrail, is_tripped) in Guardrail::ALL.iter().zip(one.tripped) {
                    samples.add(&[controller, guardrail.field()], flag(is_tripped));
                }
            }
        },
    },
];

/// `davit_rollout_*`
#[derive(Debug)]
pub struct RolloutMetrics {
    rollouts: Collected<Rollouts>,
    events: CounterVec,
}

impl RolloutMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            rollouts: Collected::register(registrar, FAMILIES)?,
            events: registrar.counter(
                "davit_controller_events_total",
                "Events about a Controller, by reason.",
                &[CONTROLLER, "reason"],
            )?,
        })
    }

    /// Sets what the metrics say of a controller.
    pub fn set(&self, controller: &str, status: &ControllerStatus) {
        let rollout = Rollout::of(status);
        self.rollouts.change(|rollouts| {
            let rollouts = Arc::make_mut(rollouts);
            if let Some(known) = rollouts.get_mut(controller) {
                *known = rollout;
                return;
            }
            rollouts.insert(controller.to_owned(), rollout);
            // A counter that appears with its first event shows no increase.
            let _ = self.events.with_label_values(&[controller, ROLLED_BACK]);
        });
    }

    /// Counts an event about a controller.
    pub fn event(&self, controller: &str, reason: &str) {
        let counter = self.events.with_label_values(&[controller, reason]);
        counter.inc();
    }

    /// Forgets a controller that is gone. The events about it stay counted.
    pub fn remove(&self, controller: &str) {
        let rollouts = &self.rollouts;
        rollouts.change(|all| drop(Arc::make_mut(all).remove(controller)));
    }
}

impl Rollout {
    fn of(status: &ControllerStatus) -> Self {
        let candidate = status.candidate.as_ref();
        let is_tripped = |guardrail: Guardrail| {
            status
                .tripped
                .iter()
                .any(|one| one.guardrail == guardrail.field())
        };
        let ready = status.conditions.iter().find(|one| one.type_ == "Ready");
        Self {
            ready: ready.map(|ready| (ready.status == "True", ready.reason.clone())),
            step: candidate.map_or(0, |one| one.step),
            weight: candidate.map_or(0, |one| one.weight),
            comparison: candidate.map(|one| one.comparison).unwrap_or_default(),
            cluster: status.cluster_comparison.clone(),
            is_lost: status.lost.is_some(),
            tripped: Guardrail::ALL.map(is_tripped),
        }
    }
}

fn each(all: &Rollouts, samples: &mut Samples, value: impl Fn(&Rollout) -> f64) {
    for (controller, one) in all {
        samples.add(&[controller], value(one));
    }
}

/// The controllers that are compared with the cluster.
fn compared(all: &Rollouts) -> impl Iterator<Item = (&str, &ClusterComparisonStatus)> {
    all.iter()
        .filter_map(|(controller, one)| Some((controller.as_str(), one.cluster.as_ref()?)))
}

fn seconds(milliseconds: i64) -> f64 {
    let sign = if milliseconds < 0 { -1.0 } else { 1.0 };
    sign * total(milliseconds.unsigned_abs()) / 1000.0
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
