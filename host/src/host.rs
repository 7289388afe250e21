//! The host: the driver of the machine and the rollouts, started and stopped as a
//! whole.

use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::events::Recorder;
use davit_core::control::{ControlInput, Declaration, DeclaredController, FileController};
pub use davit_core::host::LeaseSettings;
pub use davit_core::machine::Report;
use davit_core::trust::TrustPolicy;
use davit_engine::Engine;
use futures::future::try_join_all;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::{ClientConfig, ControllerConfig};
use crate::driver::{self, DriverOptions, Handle, PendingRecords, identity};
use crate::health::Health;
use crate::journal::Journal;
use crate::loader::{ControllerLoadError, Loader};
use crate::loading;
use crate::memory;
use crate::metrics::HostMetrics;
use crate::modules::Modules;
use crate::records::Records;
use crate::traces::SpanQueue;

/// The parts of a host.
pub struct HostOptions {
    /// The client of the cluster. It must not retry requests.
    pub client: kube::Client,
    /// The rate limits of requests.
    pub rates: ClientConfig,
    /// The engine of guests.
    pub engine: Engine,
    /// The sources of modules.
    pub modules: Modules,
    /// The metrics.
    pub metrics: Arc<HostMetrics>,
    /// The records of rollouts.
    pub records: Arc<Records>,
    /// The state of the probes.
    pub health: Arc<Health>,
    /// Receives every report.
    pub listener: Option<mpsc::UnboundedSender<Report>>,
    /// Takes the traces of decisions, if they are sent.
    pub traces: Option<SpanQueue>,
    /// Records what the host sees and decides, if it is asked to.
    pub journal: Option<Journal>,
    /// Which modules may run and write.
    pub trust: TrustPolicy,
    /// The leases, if there are other replicas.
    pub leases: Option<LeaseSettings>,
    /// The seed of timers; every replica needs another one.
    pub seed: u64,
}

impl HostOptions {
    /// A host that keeps its records in memory: the only replica, without a journal.
    #[must_use]
    pub fn new(
        client: kube::Client,
        engine: Engine,
        modules: Modules,
        metrics: Arc<HostMetrics>,
    ) -> Self {
        Self {
            client,
            rates: ClientConfig::default(),
            engine,
            modules,
            metrics,
            records: Arc::new(Records::memory()),
            health: Arc::default(),
            listener: None,
            traces: None,
            journal: None,
            trust: TrustPolicy::default(),
            leases: None,
            seed: identity::random(),
        }
    }
}

/// How long a host that stops sends waiting events.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// A running host.
pub struct Host {
    trust: TrustPolicy,
    recorder: Recorder,
    handle: Handle,
    loader: Arc<Loader>,
    records: Arc<Records>,
    task: JoinHandle<()>,
}

impl Host {
    /// Starts a host without controllers.
    #[must_use]
    pub fn start(options: HostOptions) -> Self {
        let clock = options.health.clock();
        let rate = options.rates.rate();
        let api = Api::new(options.client.clone(), clock, Some(rate));
        let recorder = Recorder::start(api.clone());
        let records = options.records.over(&api);
        let loader = Loader::new(options.engine, options.modules).checking_fields(&options.client);
        let loader = Arc::new(loader.within(memory::container_limit()));
        let (handle, task) = driver::start(DriverOptions {
            api,
            recorder: recorder.clone(),
            loader: Arc::clone(&loader),
            records: Arc::clone(&records),
            namespace: options.client.default_namespace().to_owned(),
            metrics: options.metrics,
            health: options.health,
            listener: options.listener,
            traces: options.traces,
            journal: options.journal,
            trust: options.trust,
            leases: options.leases,
            seed: options.seed,
        });
        Self {
            trust: options.trust,
            recorder,
            loader,
            records,
            handle,
            task,
        }
    }

    /// Replaces the controllers of the host. First it loads the revisions of changed
    /// controllers: after an error, nothing changes. A revision that cannot be loaded
    /// now delays only its own controller; the host retries to load it.
    pub async fn apply(
        &self,
        configs: &[ControllerConfig],
    ) -> Result<PendingRecords, ControllerLoadError> {
        let specs = self.handle.specs().await;
        let loaded = configs.iter().map(async |config| {
            let former = specs.get(&config.name);
            loading::load_for_file(&self.loader, &self.records, config, former, self.trust).await
        });
        let loaded = try_join_all(loaded).await?;
        let file = configs.iter().zip(loaded).map(|(config, loaded)| {
            let ControllerConfig { name, spec } = config.clone();
            FileController { name, spec, loaded }
        });
        let file = ControlInput::File(file.collect());
        Ok(self.handle.declare(file).await)
    }

    /// Replaces the controllers of the host. An error in one is in its status, and does
    /// not affect others.
    pub async fn declare(&self, declarations: Vec<Declaration>) -> PendingRecords {
        let declared = declarations
            .into_iter()
            .map(|declaration| DeclaredController {
                declaration,
                loaded: None,
            });
        let declared = ControlInput::Declared(declared.collect());
        self.handle.declare(declared).await
    }

    /// The handle of the host.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops the host: it makes no more calls and starts no more plans. Plans that have
    /// started end. Then the host sends waiting events for some seconds.
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
