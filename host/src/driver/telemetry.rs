//! The machine's reports, for the log, the metrics, the probes and observers.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_core::api::ControllerStatus;
use davit_core::machine::{Report, State};
use davit_core::manifest::MetricSpec;
use davit_core::rollout::Role;
use davit_core::time::Instant;
use davit_core::watch::Condition;
use davit_engine::InstanceUsage;
use tokio::sync::mpsc;

use super::decision::DecisionNames;
use super::log;
use crate::health::Health;
use crate::metrics::{GuestMetrics, HostMetrics};

pub(super) struct Telemetry {
    pub(super) api: Api,
    pub(super) recorder: Recorder,
    pub(super) names: DecisionNames,
    pub(super) metrics: Arc<HostMetrics>,
    /// The metrics of the controllers' guests, by the controllers' names.
    pub(super) guests: BTreeMap<String, GuestMetrics>,
    pub(super) health: Arc<Health>,
    pub(super) listener: Option<mpsc::UnboundedSender<Report>>,
}

impl Telemetry {
    pub(super) fn report(&mut self, report: Report, now: Instant) {
        let report = match report {
            // No log line is about it.
            Report::State(state) => {
                if self.listener.is_some() {
                    self.observe(Report::State(state.clone()));
                }
                return self.state(*state);
            }
            report => report,
        };
        self.measure(&report, now);
        log::log(&report, &self.names);
        self.observe(report);
    }

    fn observe(&self, report: Report) {
        if let Some(listener) = &self.listener {
            // Without an observer, the host continues.
            let _ = listener.send(report);
        }
    }

    /// Sets the metrics of controllers that the machine does not report. `leads` says
    /// whether this replica leads a controller; none if there are no other replicas.
    pub(super) fn controllers<'a>(
        &self,
        statuses: impl Iterator<Item = (&'a str, &'a ControllerStatus)>,
        leads: impl Fn(&str) -> Option<bool>,
    ) {
        for (controller, status) in statuses {
            self.metrics.rollouts.set(controller, status);
            if let Some(leads) = leads(controller) {
                self.metrics.leases.set(controller, leads);
            }
        }
    }

    /// The host's task runs, and waits for this.
    pub(super) fn heartbeat(&self, waiting: Option<String>) {
        self.health.heartbeat(waiting);
    }

    /// Sets the metrics of the streams and instances of the whole host.
    pub(super) fn host(&self, streams: usize, instances: InstanceUsage) {
        self.metrics.watches.set_streams(streams);
        self.metrics.instances.set(instances);
    }

    fn measure(&mut self, report: &Report, now: Instant) {
        let metrics = &self.metrics;
        match report {
            Report::Removed { controller } => {
                self.guests.remove(controller);
            }
            Report::Started {
                controller,
                manifest,
                ..
            }
            | Report::Promoted {
                controller,
                manifest,
                ..
            } => self.publish(controller, &manifest.metrics),
            Report::Ruled {
                controller,
                role,
                ruling,
                ..
            } => metrics.plans.ruled(controller, *role, ruling),
            Report::Executed {
                controller,
                outcome,
                took,
                ..
            } => metrics.plans.executed(controller, outcome, *took),
            Report::Called {
                controller,
                role,
                failure,
                took,
                ..
            } => {
                let result = failure.as_ref().map_or(Ok(()), |failure| Err(failure.kind));
                metrics.calls.ended(controller, *role, result, *took);
            }
            Report::Measured {
                controller,
                measure,
            } => {
                if let Some(guest) = self.guests.get(controller) {
                    guest.record(measure, now);
                }
            }
            Report::SeriesDropped { controller, series } => {
                if let Some(guest) = self.guests.get(controller) {
                    for series in series {
                        guest.forget(series);
                    }
                }
            }
            Report::Dequeued {
                controller,
                queue,
                waited,
            } => metrics.queues.dequeued(controller, queue, *waited),
            Report::Reconciled {
                controller,
                role: Role::Stable,
                item,
                took,
                ..
            } => metrics.queues.reconciled(controller, &item.queue, *took),
            Report::Stream {
                resource,
                condition: Condition::Interrupted { .. },
                ..
            } => metrics.watches.interrupted(resource),
            Report::SyncError { controller } => {
                if let Some(guest) = self.guests.get(controller) {
                    guest.sync_error();
                }
            }
            Report::State(_)
            | Report::Stream { .. }
            | Report::CandidateStarted { .. }
            | Report::Reconciled { .. }
            | Report::Paused { .. }
            | Report::NotServed { .. }
            | Report::CircuitOpened { .. }
            | Report::ReadForbidden { .. }
            | Report::Retried { .. }
            | Report::LogExceeded { .. }
            | Report::ListRefused { .. }
            | Report::DiscoveryFailed { .. }
            | Report::DiscoveryIncomplete { .. } => {}
        }
    }

    /// Publishes the metrics that the guest of a controller declares now.
    fn publish(&mut self, controller: &str, specs: &[MetricSpec]) {
        let former = self.guests.remove(controller);
        let guest = self.metrics.replace_guest(controller, specs, former);
        self.guests.insert(controller.to_owned(), guest);
    }

    fn state(&self, state: State) {
        self.metrics.machine.set(state);
        self.metrics.events.set(&self.recorder.stats());
        self.health.set_absence(self.api.absence());
    }
}
