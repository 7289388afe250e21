//! The driver: one task that owns the host's state machine, feeds it with what
//! happens, and executes its effects in tasks of their own. It decides nothing, and
//! waits for none of them.

mod calls;
mod control;
mod execute;
mod identity;
mod log;
mod message;
mod task;
mod telemetry;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_core::api::ControllerSpec;
use davit_core::control::{Change, ChangeError, ControlInput, StepProgress};
use davit_core::host::Host;
use davit_core::machine::{self, Report};
use davit_core::observation::Disagreements;
use davit_core::time::Now;
use davit_core::watch;
use davit_engine::Guest;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::health::Health;
use crate::loader::Loader;
use crate::metrics::HostMetrics;
use crate::records::Records;
use message::Message;
use task::Task;

/// What a driver needs.
pub(crate) struct DriverOptions {
    /// The API server.
    pub(crate) api: Api,
    /// Takes events.
    pub(crate) recorder: Recorder,
    /// Loads revisions.
    pub(crate) loader: Arc<Loader>,
    /// Where rollouts are recorded.
    pub(crate) records: Arc<Records>,
    /// The namespace of the service accounts of controllers.
    pub(crate) namespace: String,
    /// How watches behave.
    pub(crate) watch: watch::Settings,
    /// Where numbers go.
    pub(crate) metrics: Arc<HostMetrics>,
    /// What the probes answer from.
    pub(crate) health: Arc<Health>,
    /// Receives every report.
    pub(crate) listener: Option<mpsc::UnboundedSender<Report>>,
    /// Spreads timers.
    pub(crate) seed: u64,
}

/// Starts the driver's task, which ends once the host is stopped.
pub(crate) fn start(options: DriverOptions) -> (Handle, JoinHandle<()>) {
    let (inbox, messages) = mpsc::unbounded_channel();
    let task = Task::new(options, inbox.clone());
    (Handle(inbox), tokio::spawn(task.run(messages)))
}

/// Speaks to a running host. After its end nothing is done and nothing is
/// answered.
#[derive(Clone)]
pub struct Handle(mpsc::UnboundedSender<Message>);

impl Handle {
    /// Declares controllers; returns once what follows is recorded.
    pub(crate) async fn declare(&self, input: ControlInput<Arc<Guest>>) {
        let (settled, done) = oneshot::channel();
        self.send(Message::Declared { input, settled });
        // An error: the host has stopped.
        let _ = done.await;
    }

    /// The spec of each controller: the last that could be read.
    pub(crate) async fn specs(&self) -> BTreeMap<String, ControllerSpec> {
        let specs = self.query(|host, _| host.specs()).await;
        specs.unwrap_or_default()
    }

    /// On what the revisions of a controller disagree; none without a candidate.
    pub async fn disagreements(&self, controller: &str) -> Option<Disagreements> {
        let controller = controller.to_owned();
        let ask = move |host: &Host<Arc<Guest>>, now| host.disagreements(now, &controller);
        self.query(ask).await.flatten()
    }

    /// How far the step of a controller's candidate is; none without a candidate.
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

    /// Changes a controller of the file; returns it as it is then.
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

    /// Stops the host: no more calls, and no more plans than those that have begun,
    /// which come to their end.
    pub(crate) fn stop(&self) {
        self.send(machine::Input::Stop.into());
    }

    /// Asks about the state; none if the host has stopped.
    async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Host<Arc<Guest>>, Now) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Query(Box::new(move |host, now| {
            // Whoever asked may have gone.
            let _ = answer.send(ask(host, now));
        })));
        answered.await.ok()
    }

    fn send(&self, message: Message) {
        // The task ends only with the host.
        let _ = self.0.send(message);
    }
}
