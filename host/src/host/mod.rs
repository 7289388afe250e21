//! The host: one task that owns the store and every controller, and the tasks
//! that work for it.
//!
//! The task takes what happened (news of a stream, decisions of a guest,
//! outcomes of plans, a discovery, an operator's wish), lets the core digest
//! it, and starts what the core wants done. It never waits for any of that.

mod apply;
mod execute;
mod observe;
mod report;
mod run;
mod slot;
mod streams;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::{Api, ApiSettings};
use davit_cluster::clock::Clock;
use davit_cluster::events::Recorder;
use davit_core::manifest::Rate;
use davit_core::observation::{Disagreements, Observation};
use davit_core::watch;
use davit_engine::{Engine, Guest};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use report::Report;

/// A controller as it should run, with its guests.
pub type DesiredController = davit_core::desired::DesiredController<Arc<Guest>>;

use crate::config::{ClientConfig, ControllerConfig};
use crate::health::Health;
use crate::loader::{ControllerLoadError, Loader};
use crate::metrics::HostMetrics;
use crate::modules::Modules;
use crate::rollout::{Declared, Records, RolloutOptions, Rollouts, RolloutsHandle};
use run::{Input, Run};

/// What a host is made of.
pub struct HostOptions {
    /// The cluster. The client must not repeat requests by itself.
    pub client: kube::Client,
    /// How its API server is talked to.
    pub rates: ClientConfig,
    /// How watches behave.
    pub watch: watch::Settings,
    /// Where guests run.
    pub engine: Engine,
    /// Where they are found.
    pub modules: Modules,
    /// Where numbers go.
    pub metrics: Arc<HostMetrics>,
    /// Where rollouts are remembered.
    pub records: Arc<Records>,
    /// Where it says how it is.
    pub health: Arc<Health>,
    /// Who is told what happens.
    pub listener: Option<mpsc::UnboundedSender<Report>>,
    /// Spreads timers; give every replica another one.
    pub seed: u64,
}

/// How long a host that stops sends the events that wait.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// A running host.
pub struct Host {
    recorder: Recorder,
    handle: Handle,
    rollouts: Rollouts,
    task: JoinHandle<()>,
}

/// Speaks to a running host. After its end nothing is done and nothing is
/// answered.
#[derive(Clone)]
pub struct Handle(mpsc::UnboundedSender<Input>);

impl Host {
    /// Starts a host without controllers.
    #[must_use]
    pub fn start(options: HostOptions) -> Self {
        let clock = Clock::start();
        let rate = Rate {
            per_second: options.rates.qps,
            burst: options.rates.burst,
        };
        let settings = ApiSettings {
            rate: Some(rate),
            ..ApiSettings::default()
        };
        let api = Api::new(options.client.clone(), clock, &settings);
        let recorder = Recorder::start(api.clone());
        let (inbox, inputs) = mpsc::unbounded_channel();
        let handle = Handle(inbox.clone());
        let loader = Loader::new(options.engine.clone(), options.modules.clone());
        let rollouts = Rollouts::start(RolloutOptions {
            host: handle.clone(),
            loader: Arc::new(loader),
            records: Arc::clone(&options.records),
            recorder: recorder.clone(),
            metrics: Arc::clone(&options.metrics),
            namespace: options.client.default_namespace().to_owned(),
            health: Arc::clone(&options.health),
        });
        let run = Run::new(options, api, recorder.clone(), inbox);
        Self {
            recorder,
            handle,
            rollouts,
            task: tokio::spawn(run.until_stopped(inputs)),
        }
    }

    /// Makes these the controllers of the host, and no others. Those that changed
    /// are prepared first: with an error, nothing changes. A module that cannot
    /// be had now holds up its own controller alone, and is tried again. Another
    /// revision of a controller takes over as its rollout says; when it does,
    /// with the former one's queues.
    pub async fn apply(&self, controllers: &[ControllerConfig]) -> Result<(), ControllerLoadError> {
        self.rollouts.apply(controllers).await
    }

    /// Makes these the controllers of the host, and no others. What is wrong
    /// with one of them is said in its status, and harms no other.
    pub async fn declare(&self, controllers: Vec<Declared>) {
        self.rollouts.declare(controllers).await;
    }

    /// Speaks to its rollouts.
    #[must_use]
    pub fn rollouts(&self) -> RolloutsHandle {
        self.rollouts.handle()
    }

    /// Speaks to it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops: no more calls, and no more plans than those that are being
    /// carried out, which come to their end. Then the events that wait are sent,
    /// for some seconds.
    pub async fn stop(self) {
        self.handle.send(Input::Stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the host's task failed");
        }
        self.recorder.flush(FLUSH_WITHIN).await;
    }

    /// Whether the host's task has ended, which it does only when it is stopped
    /// or fails.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl Handle {
    /// Makes the host run exactly these controllers.
    pub fn run(&self, wanted: Vec<DesiredController>) {
        self.send(Input::Apply(wanted));
    }

    /// What is seen of each controller.
    pub async fn observe(&self) -> BTreeMap<String, Observation> {
        let (sender, answer) = oneshot::channel();
        self.send(Input::Observe(sender));
        answer.await.unwrap_or_default()
    }

    /// On what the revisions of a controller do not agree; none if no candidate
    /// of it is being tried.
    pub async fn disagreements(&self, controller: &str) -> Option<Disagreements> {
        let (answer, disagreements) = oneshot::channel();
        let controller = controller.to_owned();
        self.send(Input::Disagreements { controller, answer });
        disagreements.await.ok().flatten()
    }

    /// Lets a controller go on whose guardrails have tripped.
    pub fn reset(&self, controller: &str) {
        self.send(Input::Reset(controller.to_owned()));
    }

    fn send(&self, input: Input) {
        // The task ends only with the host.
        let _ = self.0.send(input);
    }
}
