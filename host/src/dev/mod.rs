//! `davit dev`: builds a guest after each change of its sources, runs it, and prints what it
//! would do, and what it would do otherwise than the build before.
//!
//! The host and the guest are those of `davit run`. The cluster is one in memory, or that of a
//! kubeconfig; there, the guest only runs dry.

mod build;
mod builds;
mod screen;
mod sources;

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use davit_cluster::connect;
use davit_core::digest::ModuleDigest;
use davit_sim::helpers::{Kubelet, NamespaceController};
use davit_sim::{Server, kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::cli::DevArguments;
use crate::config;
use crate::engine;
use crate::host::{Host, HostOptions, Report};
use crate::inspect;
use crate::metrics::HostMetrics;
use crate::modules::{Modules, ModulesOptions};
use crate::run::StopSignals;
use crate::sim;
use build::Build;
use screen::Screen;
use sources::Sources;

/// The name of the controller, also as field manager.
const NAME: &str = "dev";
/// How often the files are read.
const PERIOD: Duration = Duration::from_millis(500);

/// Runs until SIGINT or SIGTERM.
pub async fn run(arguments: DevArguments) -> Result<()> {
    let named = &arguments.kubeconfig;
    if !arguments.cluster && (named.kubeconfig.is_some() || named.context.is_some()) {
        bail!(
            "--kubeconfig and --context need --cluster: without it, the guest runs on a cluster in \
             memory"
        );
    }
    let screen = Screen::new(!arguments.enforce);
    let session = Session::new(&arguments, &screen)?;
    let mut sources = session.sources(&arguments);
    // Before anything is started: the paths may be wrong.
    sources.changed()?;
    let mut stop = StopSignals::new()?;
    let place = Place::open(&arguments).await?;
    screen.step(&place.text);
    let (listener, mut reports) = mpsc::unbounded_channel();
    let host = host(place.client.clone(), listener, &arguments)?;
    let ended = tokio::select! {
        _ = stop.received() => Ok(()),
        ended = session.develop(&host, &mut sources) => ended.map(|never| match never {}),
        () = show(&mut reports, &screen) => Ok(()),
    };
    host.stop().await;
    // What was executed meanwhile.
    while let Ok(report) = reports.try_recv() {
        screen.report(&report);
    }
    ended
}

async fn show(reports: &mut mpsc::UnboundedReceiver<Report>, screen: &Screen) {
    while let Some(report) = reports.recv().await {
        screen.report(&report);
        if screen.is_unread() {
            return;
        }
    }
}

fn host(
    client: kube::Client,
    listener: mpsc::UnboundedSender<Report>,
    arguments: &DevArguments,
) -> Result<Host> {
    let modules = Modules::new(ModulesOptions {
        guests: None,
        cache: None,
        client: None,
    });
    let engine = engine::compiling_apart(None, arguments.engine)?;
    let metrics = HostMetrics::new()?;
    Ok(Host::start(HostOptions {
        listener: Some(listener),
        ..HostOptions::new(client, engine, modules?, metrics.into())
    }))
}

/// The cluster.
struct Place {
    client: kube::Client,
    text: String,
    _memory: Option<Memory>,
}

/// A cluster in memory. Its parts run until they are dropped.
struct Memory {
    _server: Server,
    _kubelet: Option<Kubelet>,
    _namespaces: NamespaceController,
    kubeconfig: PathBuf,
}

impl Place {
    async fn open(arguments: &DevArguments) -> Result<Self> {
        if arguments.cluster {
            // Its watches say nothing for a minute.
            let client = connect::connect(&arguments.kubeconfig.clone().into()).await?;
            return Ok(Self {
                client,
                text: "dry run on the cluster of the kubeconfig: nothing is changed".to_owned(),
                _memory: None,
            });
        }
        let sim = sim::start()?;
        sim.limit_log(0);
        sim::load(&sim, &arguments.load)?;
        let kubelet = arguments.kubelet.then(|| sim::start_kubelet(&sim, &[]));
        let namespaces = NamespaceController::start(&sim);
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(loopback, sim).await?;
        let url = server.url();
        let path = sim::write_kubeconfig(&server, &kubeconfig(&url))?;
        let mode = if arguments.enforce {
            "enforced"
        } else {
            "dry run"
        };
        let text = format!(
            "{mode} on a cluster in memory: kubectl --kubeconfig {}",
            path.display()
        );
        let url = url.parse().context("the address of the API server")?;
        Ok(Self {
            client: connect::client(kube::Config::new(url))?,
            text,
            _memory: Some(Memory {
                _server: server,
                _kubelet: kubelet,
                _namespaces: namespaces,
                kubeconfig: path,
            }),
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // The file may be gone already.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// What is built and run again after each change.
struct Session<'a> {
    build: Build,
    config: Option<PathBuf>,
    /// Whether what a build has read is watched: not if the operator has named what is.
    watches_reads: bool,
    mode: &'static str,
    /// The components that were built: the host reads one while the next is built.
    components: TempDir,
    /// What the host got last.
    last: RefCell<Option<(ModuleDigest, Value)>>,
    screen: &'a Screen,
}

impl<'a> Session<'a> {
    fn new(arguments: &DevArguments, screen: &'a Screen) -> Result<Self> {
        Ok(Self {
            build: Build::new(arguments)?,
            config: arguments.config.clone(),
            watches_reads: arguments.watch.is_empty(),
            mode: if arguments.enforce {
                "Enforce"
            } else {
                "DryRun"
            },
            components: TempDir::new().context("a temporary directory cannot be created")?,
            last: RefCell::new(None),
            screen,
        })
    }

    fn sources(&self, arguments: &DevArguments) -> Sources {
        let (mut named, parts) = if self.watches_reads {
            self.build.sources()
        } else {
            (arguments.watch.clone(), Vec::new())
        };
        named.extend(self.config.clone());
        Sources::new(named, self.build.module()).with_parts(parts)
    }

    /// Builds and runs the guest, again after each change; ends only with an error.
    async fn develop(&self, host: &Host, sources: &mut Sources) -> Result<Infallible> {
        loop {
            if let Err(error) = self.attempt(host, sources).await {
                self.screen.failure(&format!("{error:#}"));
            }
            let changed = loop {
                sleep(PERIOD).await;
                if host.is_finished() {
                    bail!("the host's task ended: --log error shows why");
                }
                if let Some(path) = sources.changed()? {
                    break path;
                }
            };
            let path = changed.strip_prefix(".").unwrap_or(&changed);
            self.screen.step(&format!("{} has changed", path.display()));
        }
    }

    /// Builds the guest and passes it to the host. After an error, the former one runs on.
    async fn attempt(&self, host: &Host, sources: &mut Sources) -> Result<()> {
        self.screen.step(&self.build.text());
        let started = SystemTime::now();
        let built = self.build.run().await?;
        if self.watches_reads {
            sources.add(self.build.read_by(&built), started);
        }
        let config = match &self.config {
            Some(path) => inspect::configuration(path)?,
            None => Value::Null,
        };
        let (path, digest) = self.kept(&built)?;
        let now = Some((digest, config.clone()));
        if *self.last.borrow() == now {
            self.screen
                .step("the same component and configuration: the guest continues to run");
            return Ok(());
        }
        let file = json!({"controllers": [{
            "name": NAME,
            "mode": self.mode,
            "module": {"file": path, "digest": format!("sha256:{digest}")},
            "config": config,
        }]});
        let file = config::parse(Path::new("the controller"), &file.to_string())?;
        let applied = host.apply(&file.controllers.unwrap_or_default()).await?;
        applied.recorded().await;
        self.last.replace(now);
        Ok(())
    }

    /// A copy of a component under a name of its own.
    fn kept(&self, built: &Path) -> Result<(PathBuf, ModuleDigest)> {
        let name = built.display();
        let bytes = std::fs::read(built).with_context(|| format!("{name} cannot be read"))?;
        let digest = ModuleDigest::of(&bytes);
        let path = self.components.path().join(format!("{digest}.wasm"));
        std::fs::write(&path, bytes).with_context(|| format!("{name} cannot be copied"))?;
        Ok((path, digest))
    }
}
