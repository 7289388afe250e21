//! Leader election.

use prometheus::GaugeVec;

use super::registration::{MetricError, Registrar, flag};

/// `leader_election_master_status`, as client-go publishes it.
#[derive(Debug)]
pub struct LeaseMetrics {
    leads: GaugeVec,
}

impl LeaseMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            leads: registrar.gauge(
                "leader_election_master_status",
                "1 while this replica holds the Lease, 0 while it does not.",
                &["name"],
            )?,
        })
    }

    /// Sets whether this replica leads a controller.
    pub fn set(&self, controller: &str, leads: bool) {
        let gauge = self.leads.with_label_values(&[lease(controller)]);
        gauge.set(flag(leads));
    }

    /// Removes the gauge of a controller that is gone.
    pub fn remove(&self, controller: &str) {
        // Without leader election, there is no gauge.
        let _ = self.leads.remove_label_values(&[lease(controller)]);
    }
}

/// The name of a controller's Lease.
fn lease(controller: &str) -> String {
    format!("controller-{controller}")
}
