//! Leader election.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collected::{Collected, Family, Kind};
use super::registration::{MetricError, Registrar, flag};

/// Whether this replica leads each controller that has a Lease.
type Leads = BTreeMap<String, bool>;

const FAMILIES: &[Family<Leads>] = &[Family {
    name: "leader_election_master_status",
    help: "1 while this replica holds the Lease, 0 while it does not.",
    kind: Kind::Gauge,
    labels: &["name"],
    samples: |all, samples| {
        for (controller, leads) in all {
            samples.add(&[&format!("controller-{controller}")], flag(*leads));
        }
    },
}];

/// `leader_election_master_status`, as client-go publishes it.
#[derive(Debug)]
pub struct LeaseMetrics(Collected<Leads>);

impl LeaseMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Collected::register(registrar, FAMILIES).map(Self)
    }

    /// Sets whether this replica leads a controller.
    pub fn set(&self, controller: &str, leads: bool) {
        self.0.change(|all| {
            let all = Arc::make_mut(all);
            if let Some(known) = all.get_mut(controller) {
                *known = leads;
            } else {
                all.insert(controller.to_owned(), leads);
            }
        });
    }

    /// Removes the gauge of a controller that is gone.
    pub fn remove(&self, controller: &str) {
        self.0.change(|all| {
            Arc::make_mut(all).remove(controller);
        });
    }
}
