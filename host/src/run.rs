//! `davit run`: controllers against a cluster, until told to stop.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use davit_cluster::connect::{self, ConnectOptions};
use davit_core::watch;
use davit_engine::{Engine, EngineConfig};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::{GuestArguments, RunArguments};
use crate::config::{self, ClientConfig};
use crate::host::{Host, HostOptions};
use crate::http::{self, Health, Served};
use crate::metrics::HostMetrics;
use crate::modules::{Modules, ModulesOptions};

/// How often the configuration file is looked at. A mounted `ConfigMap` changes
/// by a link, which a watch of the file would miss.
const CONFIG_PERIOD: Duration = Duration::from_secs(1);

/// Runs until SIGINT or SIGTERM.
pub async fn run(arguments: RunArguments) -> Result<()> {
    let mut file = ConfigFile::open(arguments.config)?;
    let config = config::parse(&file.path, &file.text)?;
    let client = connect::connect(&ConnectOptions {
        kubeconfig: arguments.kubeconfig,
        context: arguments.context,
    })
    .await?;
    let metrics = Arc::new(HostMetrics::new()?);
    let health = Arc::new(Health::default());
    let modules = modules(&arguments.guests, &client)?;
    let host = Host::start(HostOptions {
        client,
        rates: config.client,
        watch: watch::Settings::default(),
        engine: engine(&arguments.guests)?,
        modules,
        metrics: Arc::clone(&metrics),
        health: Arc::clone(&health),
        listener: None,
        seed: u64::from(std::process::id()),
    });
    host.apply(config.controllers.as_deref().unwrap_or_default())
        .await
        .with_context(|| file.path.display().to_string())?;
    if let Some(address) = arguments.http {
        let served = Served {
            metrics,
            health,
            host: host.handle().clone(),
        };
        let (address, _) = http::serve(address, served)
            .await
            .with_context(|| format!("--http {address}"))?;
        tracing::info!(%address, "serving /metrics, the probes and disagreements");
    }
    until_stopped(&host, &mut file, config.client).await?;
    host.stop().await;
    tracing::info!("stopped");
    Ok(())
}

async fn until_stopped(host: &Host, file: &mut ConfigFile, client: ClientConfig) -> Result<()> {
    let mut stop = StopSignals::new()?;
    let mut look = interval(CONFIG_PERIOD);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            name = stop.received() => {
                tracing::info!("{name}: no new work; the writes in flight come to their end");
                return Ok(());
            }
            _ = look.tick() => {}
        }
        if host.is_finished() {
            bail!("the host's task ended: see the log above");
        }
        if file.has_changed() {
            take_on(host, file, client).await;
        }
    }
}

/// Takes on a changed file; with an error in it, everything stays as it is.
async fn take_on(host: &Host, file: &ConfigFile, client: ClientConfig) {
    let path = file.path.display();
    match config::parse(&file.path, &file.text) {
        Err(error) => tracing::error!("the changed configuration is not used: {error}"),
        Ok(config) => {
            if let Err(error) = host
                .apply(config.controllers.as_deref().unwrap_or_default())
                .await
            {
                let error = anyhow::Error::new(error);
                tracing::error!("the changed configuration is not used: {path}: {error:#}");
                return;
            }
            tracing::info!("{path}: the changed configuration is taken on");
            if config.client != client {
                tracing::warn!("{path}: client: takes effect with the next start");
            }
        }
    }
}

/// The engine that guests run in.
pub fn engine(arguments: &GuestArguments) -> Result<Engine> {
    let config = EngineConfig {
        cache_dir: arguments.cache.clone(),
        ..EngineConfig::default()
    };
    Ok(Engine::new(config)?)
}

/// Where guests are found; fails if they cannot be kept where they should be.
pub fn modules(arguments: &GuestArguments, client: &kube::Client) -> Result<Modules> {
    let cache = arguments.cache.clone();
    let place = cache.clone().unwrap_or_default();
    Modules::new(ModulesOptions {
        guests: arguments.directory.clone(),
        cache,
        client: Some(client.clone()),
    })
    .with_context(|| format!("modules cannot be kept in {}", place.display()))
}

/// The configuration file, and what it said last.
struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    fn open(path: PathBuf) -> Result<Self> {
        let text = config::read(&path)?;
        Ok(Self { path, text })
    }

    /// Reads the file again. One that is being replaced may not be there for a
    /// moment: that is no change.
    fn has_changed(&mut self) -> bool {
        match config::read(&self.path) {
            Ok(text) if text != self.text => {
                self.text = text;
                true
            }
            _ => false,
        }
    }
}

/// SIGINT and SIGTERM.
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Takes the signals over from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one of them, and says which.
    pub async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
