//! The host: the driver of the machine and the rollouts, started and stopped as
//! one.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::{Api, ApiSettings};
use davit_cluster::clock::Clock;
use davit_cluster::events::Recorder;
use davit_core::control::Declaration;
pub use davit_core::machine::Report;
use davit_core::manifest::Rate;
use davit_core::watch;
use davit_engine::Engine;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::{ClientConfig, ControllerConfig};
use crate::control::{ControlHandle, ControlOptions, ControlTask};
use crate::driver::{self, DriverOptions, Handle};
use crate::health::Health;
use crate::loader::{ControllerLoadError, Loader};
use crate::metrics::HostMetrics;
use crate::modules::Modules;
use crate::records::Records;

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
    /// Receives every report.
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
    control: ControlTask,
    task: JoinHandle<()>,
}

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
        let (handle, task) = driver::start(DriverOptions {
            api,
            recorder: recorder.clone(),
            watch: options.watch,
            metrics: Arc::clone(&options.metrics),
            health: Arc::clone(&options.health),
            listener: options.listener,
            seed: options.seed,
        });
        let loader = Loader::new(options.engine, options.modules);
        let control = ControlTask::start(ControlOptions {
            data: handle.clone(),
            clock,
            loader: Arc::new(loader),
            records: options.records,
            recorder: recorder.clone(),
            metrics: options.metrics,
            namespace: options.client.default_namespace().to_owned(),
            health: options.health,
        });
        Self {
            recorder,
            handle,
            control,
            task,
        }
    }

    /// Makes these the controllers of the host, and no others. Those that changed
    /// are prepared first: with an error, nothing changes. A module that cannot
    /// be had now holds up its own controller alone, and is tried again. Another
    /// revision of a controller takes over as its rollout says; when it does,
    /// with the former one's queues.
    pub async fn apply(&self, controllers: &[ControllerConfig]) -> Result<(), ControllerLoadError> {
        self.control.apply(controllers).await
    }

    /// Makes these the controllers of the host, and no others. What is wrong
    /// with one of them is said in its status, and harms no other.
    pub async fn declare(&self, controllers: Vec<Declaration>) {
        self.control.declare(controllers).await;
    }

    /// Speaks to the control half.
    #[must_use]
    pub fn control(&self) -> ControlHandle {
        self.control.handle()
    }

    /// Speaks to it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops: no more calls, and no more plans than those that have begun, which
    /// come to their end. Then the events that wait are sent, for some seconds.
    pub async fn stop(self) {
        self.handle.stop();
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
