//! The instances of all guests.

use davit_engine::InstanceUsage;
use prometheus::Gauge;

use super::registration::{MetricError, Registrar, number};

/// `davit_guest_instances` and `davit_guest_memory_bytes`
#[derive(Debug)]
pub struct InstanceMetrics {
    instances: Gauge,
    memory: Gauge,
}

impl InstanceMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let instances = registrar.gauge(
            "davit_guest_instances",
            "Instances of all guests, idle ones included.",
            &[],
        )?;
        let memory = registrar.gauge(
            "davit_guest_memory_bytes",
            "Linear memory of all instances of guests.",
            &[],
        )?;
        Ok(Self {
            instances: instances.with_label_values(&[] as &[&str]),
            memory: memory.with_label_values(&[] as &[&str]),
        })
    }

    /// Sets what the instances use now.
    pub fn set(&self, usage: InstanceUsage) {
        self.instances.set(number(usage.instances));
        self.memory.set(number(usage.memory));
    }
}
