//! Every metric that the host publishes: its own, registered in one place, and
//! those that guests declare.
//!
//! The labels of the host's own metrics come from small fixed sets: names of
//! configured controllers and of their queues, rulings of the gate, failure
//! classes, resources that are watched.

mod calls;
mod collected;
mod events;
mod guest;
mod guests;
mod journal;
mod leases;
mod machine;
mod plans;
mod process;
mod queues;
mod registration;
mod requests;
mod rollouts;
mod traces;
mod watches;

use davit_core::manifest::MetricSpec;
use davit_core::untrusted;
use prometheus::core::Desc;
use prometheus::{Encoder, Registry, TextEncoder};

use crate::build;
pub use calls::CallMetrics;
pub use events::EventMetrics;
pub use guest::GuestMetrics;
use guest::GuestRegistry;
pub use guests::InstanceMetrics;
pub use journal::JournalMetrics;
pub use leases::LeaseMetrics;
pub use machine::MachineMetrics;
pub use plans::PlanMetrics;
pub use queues::QueueMetrics;
use registration::Registrar;
pub use registration::{MetricError, number};
pub use requests::RequestMetrics;
pub use rollouts::RolloutMetrics;
pub use traces::TraceMetrics;
pub use watches::WatchMetrics;

const CONTROLLER: &str = "controller";
/// The role of the revision that a figure is about: `stable` or `candidate`.
const ROLE: &str = "role";
const RESOURCE: &str = "resource";

/// The host's metrics, by subject.
#[derive(Debug)]
pub struct HostMetrics {
    /// Calls into guests.
    pub calls: CallMetrics,
    /// Instances of guests.
    pub instances: InstanceMetrics,
    /// Plans of guests.
    pub plans: PlanMetrics,
    /// How long items of the guests' queues take.
    pub queues: QueueMetrics,
    /// The machine's state.
    pub machine: MachineMetrics,
    /// The watches.
    pub watches: WatchMetrics,
    /// Kubernetes events.
    pub events: EventMetrics,
    /// Rollouts.
    pub rollouts: RolloutMetrics,
    /// Leader election.
    pub leases: LeaseMetrics,
    /// Requests to the API server.
    pub requests: RequestMetrics,
    /// Spans of traces.
    pub traces: TraceMetrics,
    /// The journal.
    pub journal: JournalMetrics,
    registry: Registry,
    guests: GuestRegistry,
    descriptions: Vec<Desc>,
}

impl HostMetrics {
    /// Registers them all.
    pub fn new() -> Result<Self, MetricError> {
        let registry = Registry::new();
        let registrar = Registrar::new(&registry);
        register_build(&registrar)?;
        process::register(&registrar)?;
        Ok(Self {
            calls: CallMetrics::new(&registrar)?,
            instances: InstanceMetrics::new(&registrar)?,
            plans: PlanMetrics::new(&registrar)?,
            queues: QueueMetrics::new(&registrar)?,
            machine: MachineMetrics::new(&registrar)?,
            watches: WatchMetrics::new(&registrar)?,
            events: EventMetrics::new(&registrar)?,
            rollouts: RolloutMetrics::new(&registrar)?,
            leases: LeaseMetrics::new(&registrar)?,
            requests: RequestMetrics::new(&registrar)?,
            traces: TraceMetrics::new(&registrar)?,
            journal: JournalMetrics::new(&registrar)?,
            descriptions: registrar.into_descriptions(),
            guests: GuestRegistry::default(),
            registry,
        })
    }

    /// Publishes the metrics of a controller's guest. One that has the name of another metric with
    /// another help or other labels is not published, and logged.
    #[must_use]
    pub fn register_guest(&self, controller: &str, specs: &[MetricSpec]) -> GuestMetrics {
        let is_of_host = |name: &str| self.descriptions.iter().any(|it| it.fq_name == name);
        let (guest, errors) = self.guests.register(controller, specs, is_of_host);
        for error in errors {
            // The error names a metric of the guest.
            let error = untrusted::line(&error.to_string(), untrusted::MOST_LOGGED);
            tracing::error!(controller, error, "a metric of the guest is not published");
        }
        guest
    }

    /// Publishes the metrics that a controller's guest declares now. Equal
    /// declarations keep the former metrics and their values.
    #[must_use]
    pub fn replace_guest(
        &self,
        controller: &str,
        specs: &[MetricSpec],
        former: Option<GuestMetrics>,
    ) -> GuestMetrics {
        let same = former.filter(|former| former.declares(specs));
        same.unwrap_or_else(|| self.register_guest(controller, specs))
    }

    /// The name and labels of every metric of the host.
    pub fn described(&self) -> impl Iterator<Item = (&str, &[String])> {
        let all = self.descriptions.iter();
        all.map(|one| (one.fq_name.as_str(), one.variable_labels.as_slice()))
    }

    /// All metrics, in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut buffer = Vec::new();
        let mut families = self.registry.gather();
        families.extend(self.guests.gather());
        families.sort_by(|one, other| one.name().cmp(other.name()));
        match TextEncoder::new().encode(&families, &mut buffer) {
            Ok(()) => String::from_utf8_lossy(&buffer).into_owned(),
            Err(error) => format!("# the metrics cannot be written: {error}\n"),
        }
    }
}

fn register_build(registrar: &Registrar<'_>) -> Result<(), MetricError> {
    let build::Info {
        version,
        commit,
        interface,
        ..
    } = build::INFO;
    let labels = ["version", "commit", "interface"];
    let help = "1, with the version, commit and interface of this Davit.";
    let gauge = registrar.gauge(build::METRIC, help, &labels)?;
    let values = [version, commit, interface];
    gauge.with_label_values(&values).set(1.0);
    Ok(())
}

#[cfg(test)]
mod tests;
