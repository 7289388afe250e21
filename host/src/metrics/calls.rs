//! Calls into guests.

use std::time::Duration;

use davit_core::circuit::CallFailureKind;
use davit_core::rollout::Role;
use prometheus::{CounterVec, HistogramVec};

use super::registration::{MetricError, Registrar};
use super::{CONTROLLER, ROLE};

const BUCKETS: [f64; 10] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0,
];

/// `davit_guest_call*`
#[derive(Debug)]
pub struct CallMetrics {
    calls: CounterVec,
    duration: HistogramVec,
}

impl CallMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            calls: registrar.counter(
                "davit_guest_calls_total",
                "Calls into a guest, by result: ok or the kind of the failure.",
                &[CONTROLLER, ROLE, "result"],
            )?,
            duration: registrar.histogram(
                "davit_guest_call_duration_seconds",
                "Duration of a call into a guest, live reads included.",
                &[CONTROLLER, ROLE],
                &BUCKETS,
            )?,
        })
    }

    /// Counts a call that ended.
    pub fn ended(
        &self,
        controller: &str,
        role: Role,
        result: Result<(), CallFailureKind>,
        took: Duration,
    ) {
        let role = role.as_str();
        let result = result.map_or_else(CallFailureKind::as_str, |()| "ok");
        let labels = [controller, role, result];
        self.calls.with_label_values(&labels).inc();
        let duration = self.duration.with_label_values(&[controller, role]);
        duration.observe(took.as_secs_f64());
    }
}
