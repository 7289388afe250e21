//! The driver: one task that owns the machine, feeds it with what happens, and
//! carries out its effects in tasks of their own. It decides nothing, and waits
//! for none of them.

mod calls;
mod execute;
mod log;
mod message;
mod task;
mod telemetry;

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_core::machine::{Input, Report};
use davit_core::observation::{Disagreements, Observation};
use davit_core::watch;
use davit_engine::Guest;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::control::DataHalf;
use crate::health::Health;
use crate::metrics::HostMetrics;
use message::Message;
use task::Task;

/// A controller as it should run, with its guests.
pub type DesiredController = davit_core::desired::DesiredController<Arc<Guest>>;

/// What a driver needs.
pub(crate) struct DriverOptions {
    /// The API server.
    pub(crate) api: Api,
    /// Takes events.
    pub(crate) recorder: Recorder,
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

/// Starts the driver's task, which ends once the machine is stopped.
pub(crate) fn start(options: DriverOptions) -> (Handle, JoinHandle<()>) {
    let (inbox, messages) = mpsc::unbounded_channel();
    let task = Task::new(options, inbox.clone());
    (Handle(inbox), tokio::spawn(task.run(messages)))
}

/// Speaks to a running host. After its end nothing is done and nothing is
/// answered.
#[derive(Clone)]
pub struct Handle(mpsc::UnboundedSender<Message>);

impl DataHalf for Handle {
    fn run(&self, desired: Vec<DesiredController>) {
        self.input(Input::Desired(desired));
    }

    async fn observe(&self) -> BTreeMap<String, Observation> {
        let (sender, answer) = oneshot::channel();
        self.send(Message::Observe(sender));
        answer.await.unwrap_or_default()
    }

    fn reset(&self, controller: &str) {
        let controller = controller.to_owned();
        self.input(Input::Reset { controller });
    }
}

impl Handle {
    /// On what the revisions of a controller disagree; none without a candidate.
    pub async fn disagreements(&self, controller: &str) -> Option<Disagreements> {
        let (answer, disagreements) = oneshot::channel();
        let controller = controller.to_owned();
        self.send(Message::Disagreements { controller, answer });
        disagreements.await.ok().flatten()
    }

    /// Stops the machine: no more calls, and no more plans than those that have
    /// begun, which come to their end.
    pub(crate) fn stop(&self) {
        self.input(Input::Stop);
    }

    fn input(&self, input: Input<Arc<Guest>>) {
        self.send(Message::Input(input));
    }

    fn send(&self, message: Message) {
        // The task ends only with the host.
        let _ = self.0.send(message);
    }
}
