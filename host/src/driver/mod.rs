//! The driver: one task that owns the host's state machine, passes inputs to it, and
//! executes its effects in tasks of their own. It decides nothing, and waits for no
//! effect.

mod calls;
mod control;
mod decision;
mod execute;
pub(crate) mod identity;
mod leases;
mod log;
mod message;
mod task;
mod telemetry;
mod traces;

pub(crate) use calls::call_failure;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_core::api::{ClusterComparisonStatus, ControllerSpec};
use davit_core::control::{Change, ChangeError, ControlInput, StepProgress};
use davit_core::host::{Host, LeaseSettings};
use davit_core::machine::{self, Report};
use davit_core::observation::{ClusterFindings, Disagreements};
use davit_core::time::Now;
use davit_core::trust::TrustPolicy;
use davit_engine::Guest;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::health::Health;
use crate::journal::Journal;
use crate::loader::Loader;
use crate::metrics::HostMetrics;
use crate::records::Records;
use crate::traces::SpanQueue;
use message::Message;
use task::Task;

/// The parts of a driver.
pub(crate) struct DriverOptions {
    /// The API server.
    pub(crate) api: Api,
    /// Sends events.
    pub(crate) recorder: Recorder,
    /// Loads revisions.
    pub(crate) loader: Arc<Loader>,
    /// The records of rollouts.
    pub(crate) records: Arc<Records>,
    /// The namespace of the service accounts of controllers.
    pub(crate) namespace: String,
    /// The metrics.
    pub(crate) metrics: Arc<HostMetrics>,
    /// The state of the probes.
    pub(crate) health: Arc<Health>,
    /// Receives every report.
    pub(crate) listener: Option<mpsc::UnboundedSender<Report>>,
    /// Takes the traces of decisions, if they are sent.
    pub(crate) traces: Option<SpanQueue>,
    /// Records what the host sees and decides, if it is asked to.
    pub(crate) journal: Option<Journal>,
    /// Which modules may run and write.
    pub(crate) trust: TrustPolicy,
    /// The leases, if there are other replicas.
    pub(crate) leases: Option<LeaseSettings>,
    /// Spreads timers.
    pub(crate) seed: u64,
}

/// Starts the driver's task, which ends once the host is stopped.
pub(crate) fn start(options: DriverOptions) -> (Handle, JoinHandle<()>) {
    let (inbox, messages) = mpsc::unbounded_channel();
    let task = Task::new(options, inbox.clone());
    (Handle(inbox), tokio::spawn(task.run(messages)))
}

/// The records of the decisions about controllers that the host has, and applies: they are written a
/// moment later, or once the API server takes records again.
#[derive(Debug)]
#[must_use = "nothing else says when the decisions are recorded"]
pub struct PendingRecords(oneshot::Receiver<()>);

impl PendingRecords {
    /// Waits until the decisions are recorded, or the host has stopped.
    pub async fn recorded(self) {
        let _ = self.0.await;
    }
}

/// A handle of a running host. After the host's end, requests have no effect and no
/// answer.
#[derive(Clone)]
pub struct Handle(mpsc::UnboundedSender<Message>);

impl Handle {
    /// Declares controllers; returns once the host has them, so that no more than one
    /// declaration waits for it.
    pub(crate) async fn declare(&self, input: ControlInput<Arc<Guest>>) -> PendingRecords {
        let (taken, is_taken) = oneshot::channel();
        let (settled, is_settled) = oneshot::channel();
        self.send(Message::Declared {
            input,
            taken,
            settled,
        });
        // An error means that the host has stopped.
        let _ = is_taken.await;
        PendingRecords(is_settled)
    }

    /// The spec of each controller: the last valid one.
    pub(crate) async fn specs(&self) -> BTreeMap<String, ControllerSpec> {
        let specs = self.query(|host, _| host.specs()).await;
        specs.unwrap_or_default()
    }

    /// The targets on which the revisions of a controller disagree; none without a
    /// candidate.
    pub async fn disagreements(&self, controller: &str) -> Option<Disagreements> {
        let controller = controller.to_owned();
        let ask = move |host: &Host<Arc<Guest>>, now| host.disagreements(now, &controller);
        self.query(ask).await.flatten()
    }

    /// What the dry run of a controller and the cluster disagree on, and the results in the
    /// status; none if the controller is not compared with the cluster.
    pub async fn cluster_comparison(
        &self,
        controller: &str,
    ) -> Option<(ClusterFindings, Option<ClusterComparisonStatus>)> {
        let controller = controller.to_owned();
        let ask = move |host: &Host<Arc<Guest>>, now| {
            let found = host.cluster_findings(now, &controller)?;
            let mut statuses = host.statuses();
            let status = statuses.find(|(name, _)| *name == controller);
            Some((
                found,
                status.and_then(|(_, status)| status.cluster_comparison.clone()),
            ))
        };
        self.query(ask).await.flatten()
    }

    /// The progress of the step of a controller's candidate; none without a candidate.
    pub async fn progress(&self, controller: &str) -> Option<StepProgress> {
        let controller = controller.to_owned();
        let ask = move |host: &Host<Arc<Guest>>, _| host.progress(&controller);
        self.query(ask).await.flatten()
    }

    /// A controller of the configuration file as a custom resource.
    pub async fn file_controller(&self, name: &str) -> Result<Value, ChangeError> {
        let name = name.to_owned();
        let found = self.query(move |host, _| host.file_controller(&name)).await;
        found.unwrap_or(Err(ChangeError::Stopping))
    }

    /// The controllers of the configuration file as custom resources.
    pub async fn file_controllers(&self) -> Result<Vec<Value>, ChangeError> {
        let all = self.query(|host, _| host.file_controllers()).await;
        all.unwrap_or(Err(ChangeError::Stopping))
    }

    /// Changes a controller of the file; returns the changed controller.
    pub async fn change_file_controller(
        &self,
        name: &str,
        change: Change,
    ) -> Result<Value, ChangeError> {
        let (answer, changed) = oneshot::channel();
        self.send(Message::Change {
            controller: name.to_owned(),
            change,
            answer,
        });
        changed.await.unwrap_or(Err(ChangeError::Stopping))
    }

    /// Stops the host: it makes no more calls and starts no more plans. Plans that have
    /// started end.
    pub(crate) fn stop(&self) {
        self.send(machine::Input::Stop.into());
    }

    /// Queries the state; none if the host has stopped.
    async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Host<Arc<Guest>>, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Query(Box::new(move |host, now| {
            // The caller may be gone.
            let _ = answer.send(ask(host, now));
        })));
        answered.await.ok()
    }

    fn send(&self, message: Message) {
        // The task ends only with the host.
        let _ = self.0.send(message);
    }
}
