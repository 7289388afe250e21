//! `davit run`: runs controllers against a cluster until it is stopped.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::future::BoxFuture;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::{GuestArguments, LeaseArguments, PortArguments, RunArguments, TraceArguments};
use crate::commands;
use crate::config::{self, Config, ConfigFile};
use crate::driver::identity;
use crate::health::Health;
use crate::host::{Host, HostOptions, LeaseSettings};
use crate::http::access::Access;
use crate::http::address::ListenAddress;
use crate::http::requests::RequestPolicy;
use crate::http::tls::{self, CertificateFiles};
use crate::http::{self, Endpoints};
use crate::journal::{Journal, JournalSettings};
use crate::journal_settings;
use crate::metrics::HostMetrics;
use crate::modules::{Modules, ModulesOptions};
use crate::records::Records;
use crate::resource;
use crate::telemetry::LogFilter;
use crate::traces::{TraceExport, TraceSettings};
use davit_cluster::api::Api;
use davit_core::control::Declaration;
use davit_core::election::LeaseTiming;
use davit_core::startup::{ControllerOrigin, ControllersChange, RecordPlace};

/// How often the end of the host's task is noticed.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// How long a host that stops sends waiting spans.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// Runs until SIGINT or SIGTERM.
pub async fn run(arguments: RunArguments, log: LogFilter) -> Result<()> {
    let mut stop = StopSignals::new()?;
    let starting = end_by_signal()?;
    let file = arguments.config.map(ConfigFile::open).transpose()?;
    let config = match &file {
        Some(file) => config::parse(&file.path, file.text())?,
        None => Config::default(),
    };
    let namespace = arguments.namespace.namespace;
    let metrics = Arc::new(HostMetrics::new()?);
    let observer = Arc::new(metrics.requests.clone());
    let health = Arc::new(Health::default());
    let settings = journal_settings::settings(&arguments.journal, &config.journal)?;
    let place = settings.as_ref().map(|journal| journal.directory.clone());
    let journal = open_journal(
        settings,
        arguments.leases.replica_id.as_deref(),
        &metrics,
        &health,
    )?;
    let http2 = !arguments.http1;
    let client = commands::connect_in(arguments.cluster, http2, &namespace, observer).await?;
    let modules =
        modules(&arguments.guests, &client)?.with_copies(place.as_deref(), &metrics.journal);
    let settings = config.start_settings();
    let leases = leases(&arguments.leases, settings.origin)?;
    let has_leases = leases.is_some();
    let records = records(settings.origin, &arguments.guests, &client)?;
    let instance = leases.as_ref().map(|leases| leases.identity.clone());
    let traces = traces(arguments.traces, instance, &metrics)?;
    // In containers, the process ids of all replicas are the same.
    let seed = identity::random();
    let cache = arguments.guests.cache.clone();
    let engine = crate::engine::compiling_apart(cache, arguments.guests.engine)?;
    starting.abort();
    let host = Host::start(HostOptions {
        rates: config.client,
        records: Arc::new(records),
        health: Arc::clone(&health),
        traces: traces.as_ref().map(TraceExport::queue),
        journal,
        trust: config.trust(),
        leases,
        seed,
        ..HostOptions::new(client.clone(), engine, modules, Arc::clone(&metrics))
    });
    let policy = match settings.origin {
        ControllerOrigin::Cluster => RequestPolicy::Cluster,
        ControllerOrigin::File => RequestPolicy::File,
    };
    let endpoints = Endpoints {
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
        host: host.handle().clone(),
        requests: policy,
        log: Some(log),
        access: access(&arguments.ports, &client),
    };
    serve_ports(&arguments.ports, endpoints).await?;
    if policy == RequestPolicy::File && arguments.ports.http.is_none() {
        tracing::info!(
            "without --http, this host accepts no requests such as promote or abort: a step that \
             waits for an operator stays until the file changes"
        );
    }
    let declared = (settings.origin == ControllerOrigin::Cluster).then(|| {
        tracing::info!("running the Controllers of the cluster");
        let (sender, declared) = watch::channel(None);
        let api = Api::new(client, health.clock(), None);
        let (health, watches) = (Arc::clone(&health), metrics.watches.clone());
        tokio::spawn(resource::watch::follow(
            api, seed, sender, health, watches, has_leases,
        ));
        declared
    });
    // A configuration that is being applied when a signal arrives does not take effect.
    tokio::select! {
        name = stop.received() => {
            tracing::info!("{name}: stopping; the host finishes the plans in execution");
        }
        ended = apply_changes(&host, &health, file, &config, declared) => match ended? {},
    }
    host.stop().await;
    if let Some(traces) = traces {
        traces.flush(FLUSH_WITHIN).await;
    }
    tracing::info!("stopped");
    Ok(())
}

/// The leases of leader election; none if this is the only replica.
fn leases(arguments: &LeaseArguments, origin: ControllerOrigin) -> Result<Option<LeaseSettings>> {
    let named = arguments.replica_id.as_deref();
    let has_leases = origin.has_leases(arguments.single, named.is_some());
    if !has_leases.context("--replica-id")? {
        return Ok(None);
    }
    let timing = LeaseTiming {
        duration: arguments.leader_elect_lease_duration,
        renew_deadline: arguments.leader_elect_renew_deadline,
        retry_period: arguments.leader_elect_retry_period,
    };
    timing.check().context("--leader-elect-…")?;
    let identity = identity::of_replica(named);
    tracing::info!(identity, "taking part in leader election");
    Ok(Some(LeaseSettings { identity, timing }))
}

/// Opens the journal; none if nothing is recorded.
pub(crate) fn open_journal(
    settings: Option<JournalSettings>,
    replica: Option<&str>,
    metrics: &HostMetrics,
    health: &Arc<Health>,
) -> Result<Option<Journal>> {
    let Some(settings) = settings else {
        return Ok(None);
    };
    let instance = identity::of_replica(replica);
    let journal = Journal::open(
        &settings,
        instance,
        metrics.journal.clone(),
        Arc::clone(health),
    );
    let directory = settings.directory.display();
    let journal = journal.with_context(|| format!("--journal {directory}"))?;
    tracing::info!(%directory, "recording the journal");
    Ok(Some(journal))
}

/// Starts to send traces; none without a collector.
fn traces(
    arguments: TraceArguments,
    instance: Option<String>,
    metrics: &HostMetrics,
) -> Result<Option<TraceExport>> {
    let Some(endpoint) = arguments.otlp_endpoint else {
        return Ok(None);
    };
    let settings = TraceSettings {
        endpoint,
        ratio: arguments.trace_ratio,
        instance: instance.unwrap_or_else(|| identity::of_replica(None)),
    };
    let export = TraceExport::start(&settings, metrics.traces.clone());
    let export = export.context("--otlp-endpoint")?;
    let TraceSettings {
        endpoint, ratio, ..
    } = settings;
    tracing::info!(%endpoint, %ratio, "sending the traces of decisions");
    Ok(Some(export))
}

/// Who may use the port of `--http`.
pub(crate) fn access(ports: &PortArguments, client: &kube::Client) -> Access {
    if ports.insecure_http {
        Access::Everyone
    } else {
        Access::reviewed(client.clone())
    }
}

/// Serves the ports of `--probes` and `--http`, those that are set.
pub(crate) async fn serve_ports(ports: &PortArguments, endpoints: Endpoints) -> Result<()> {
    if let Some(address) = &ports.probes {
        let (address, _) = http::serve_probes(address, Arc::clone(&endpoints.health))
            .await
            .with_context(|| format!("--probes {address}"))?;
        tracing::info!(%address, "serving the probes");
    }
    match &ports.http {
        Some(address) => serve(address, ports, endpoints).await,
        None => Ok(()),
    }
}

/// Serves the port of `--http`.
async fn serve(address: &ListenAddress, ports: &PortArguments, endpoints: Endpoints) -> Result<()> {
    let files = ports
        .tls_cert_file
        .clone()
        .zip(ports.tls_private_key_file.clone());
    let files = files.map(|(certificate, key)| CertificateFiles { certificate, key });
    let tls = files.map(tls::acceptor).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let policy = endpoints.requests;
    let attempt = || {
        let advice = if ports.insecure_http {
            " with --insecure-http, which serves everyone and therefore only on loopback"
        } else {
            ""
        };
        format!("--http {address}{advice}")
    };
    let (address, _) = http::serve(address, tls, endpoints)
        .await
        .with_context(attempt)?;
    tracing::info!(%address, "serving /metrics, the probes and disagreements");
    if policy == RequestPolicy::File {
        tracing::info!(
            "davit promote, pause, abort and the like reach this host with --server \
             {scheme}://{address}"
        );
    }
    Ok(())
}

/// The records of rollouts: in the cluster, or beside the module cache.
fn records(
    origin: ControllerOrigin,
    arguments: &GuestArguments,
    client: &kube::Client,
) -> Result<Records> {
    let directory = arguments.cache.as_ref().map(|cache| cache.join("rollouts"));
    match (origin.record_place(directory.is_some()), directory) {
        (RecordPlace::Cluster, _) => {
            let namespace = client.default_namespace();
            Ok(Records::cluster(client.clone(), namespace))
        }
        (RecordPlace::Directory, Some(directory)) => Ok(Records::directory(directory)?),
        (RecordPlace::Directory | RecordPlace::Memory, _) => {
            tracing::warn!(
                "without --cache, a restart drops the records of rollouts: their progress and \
                 pauses"
            );
            Ok(Records::memory())
        }
    }
}

type Declarations = watch::Receiver<Option<Vec<Declaration>>>;

/// Applies the controllers of the file or of the cluster, and every change of them;
/// ends only with an error.
async fn apply_changes(
    host: &Host,
    health: &Health,
    file: Option<ConfigFile>,
    started_with: &Config,
    mut declared: Option<Declarations>,
) -> Result<Infallible> {
    if let (Some(controllers), Some(file)) = (&started_with.controllers, &file) {
        let applied = host.apply(controllers).await;
        let applied = applied.map_err(|error| config::refused(&file.path, controllers, &error))?;
        applied.recorded().await;
        health.set_declared();
    }
    let path = file
        .as_ref()
        .map(|file| file.path.clone())
        .unwrap_or_default();
    let mut changes = file.map(ConfigFile::follow);
    let mut look = interval(LOOK_PERIOD);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A later declaration, which may be a stop, does not wait for the record of this one.
    let mut recorded: BoxFuture<'static, ()> = Box::pin(pending());
    loop {
        tokio::select! {
            controllers = next(&mut declared) => {
                let declared = host.declare(controllers?).await;
                recorded = Box::pin(declared.recorded());
            }
            () = &mut recorded => {
                health.set_declared();
                recorded = Box::pin(pending());
            }
            text = next_text(&mut changes) => apply_file(host, &path, &text?, started_with).await,
            _ = look.tick() => {}
        }
        if host.is_finished() {
            bail!("the host's task ended: see the log above");
        }
    }
}

/// The next content of the configuration file, if there is one.
async fn next_text(changes: &mut Option<mpsc::Receiver<String>>) -> Result<String> {
    let Some(changes) = changes else {
        return pending().await;
    };
    let text = changes.recv().await;
    text.context("the watch of the configuration panicked, which is a bug of Davit: see the log")
}

/// The next declarations of the cluster. Without their source, nobody could stop a controller: a
/// process that starts again follows them.
async fn next(declared: &mut Option<Declarations>) -> Result<Vec<Declaration>> {
    let Some(declared) = declared else {
        return pending().await;
    };
    let changed = declared.changed().await;
    changed.context("the watch of Controllers panicked, which is a bug of Davit: see the log")?;
    Ok(declared.borrow_and_update().clone().unwrap_or_default())
}

/// Applies a changed file. If it has an error, nothing changes.
async fn apply_file(host: &Host, path: &Path, text: &str, started_with: &Config) {
    let config = match config::parse(path, text) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "the changed configuration is not applied");
            return;
        }
    };
    let change = started_with.change(&config);
    for part in change.deferred {
        tracing::warn!(path = %path.display(), "{part}: a change takes effect at the next start");
    }
    let controllers = match (change.controllers, &config.controllers) {
        (ControllersChange::Apply, Some(controllers)) => controllers,
        (ControllersChange::Apply | ControllersChange::None, _) => return,
        (ControllersChange::OtherOrigin, _) => {
            tracing::error!(
                path = %path.display(),
                "controllers: a change between controllers of the file and those of the cluster \
                 takes effect at the next start; until then the present controllers continue to \
                 run"
            );
            return;
        }
    };
    match host.apply(controllers).await {
        // As above, a later change does not wait for the record.
        Ok(_) => {
            tracing::info!(path = %path.display(), "the changed configuration is applied");
        }
        Err(error) => {
            let error = config::refused(path, controllers, &error);
            tracing::error!(%error, "the changed configuration is not applied");
        }
    }
}

/// The sources of modules; fails if the cache directory cannot be used.
pub fn modules(arguments: &GuestArguments, client: &kube::Client) -> Result<Modules> {
    let cache = arguments.cache.clone();
    let place = cache.clone().unwrap_or_default();
    Modules::new(ModulesOptions {
        guests: arguments.directory.clone(),
        cache,
        client: Some(client.clone()),
    })
    .with_context(|| format!("modules cannot be cached in {}", place.display()))
}

/// Ends the process at a signal during its start, which may wait for a disk, or for a program with
/// credentials. It has sent nothing that changes the cluster then, and its own files bear a kill. As the
/// first process of a container, it would not be ended by a signal that it does not handle.
pub(crate) fn end_by_signal() -> io::Result<JoinHandle<()>> {
    let mut stop = StopSignals::new()?;
    Ok(tokio::spawn(async move {
        let name = stop.received().await;
        tracing::info!("{name}: stopped before the start");
        std::process::exit(0);
    }))
}

/// SIGINT and SIGTERM.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Handles the signals from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one of them, and returns its name.
    pub async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
