//! `davit sim`: a Kubernetes API from memory.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use davit_sim::fault::Fault;
use davit_sim::helpers::{Kubelet, KubeletOptions, NamespaceController};
use davit_sim::{Config, Server, Sim, kubeconfig};

use crate::cli::SimArguments;
use crate::run::StopSignals;

/// Serves until SIGINT or SIGTERM.
pub async fn run(arguments: SimArguments) -> Result<()> {
    let config = config(&arguments);
    tracing::info!("the seed is {}", config.seed);
    let sim = new(config)?;
    // Nobody would ever read it, and it would grow for as long as this serves.
    sim.limit_log(0);
    load(&sim, &arguments.load)?;
    for fault in &arguments.fault {
        check(&sim, fault)?;
        sim.add_fault(fault.clone());
    }
    // They work until they are dropped.
    let _kubelet = arguments
        .kubelet
        .then(|| start_kubelet(&sim, &arguments.silent_node));
    let _namespaces = arguments
        .namespaces
        .then(|| NamespaceController::start(&sim));
    let mut stop = StopSignals::new()?;
    let server = Server::start(arguments.listen, sim)
        .await
        .with_context(|| format!("--listen {}", arguments.listen))?;
    let path = write_kubeconfig(&server)?;
    // The first line, and the only one on standard output: for scripts.
    println!("{}", path.display());
    tracing::info!(
        "serving {}; try: kubectl --kubeconfig {} get nodes",
        server.url(),
        path.display()
    );
    let name = stop.received().await;
    tracing::info!("{name}: stopped");
    // Nobody minds if somebody else removed it first.
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// An empty API server whose clock shows the present.
pub fn start() -> Result<Sim> {
    new(Config {
        seed: some_seed(),
        ..Config::default()
    })
}

fn new(config: Config) -> Result<Sim> {
    Sim::new(config, jiff::Timestamp::now()).context("the API server in memory cannot be started")
}

/// Another one in every process.
fn some_seed() -> u64 {
    u64::from(std::process::id())
}

fn config(arguments: &SimArguments) -> Config {
    Config {
        seed: arguments.seed.unwrap_or_else(some_seed),
        history: arguments.history.0,
        history_events: arguments.history_events,
        default_toleration_seconds: arguments.default_tolerations.map(i64::from),
        remember_deletions: false,
        ..Config::default()
    }
}

fn load(sim: &Sim, files: &[PathBuf]) -> Result<()> {
    for path in files {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--load: {name} cannot be read"))?;
        let loaded = sim.load(&text).with_context(|| format!("--load: {name}"))?;
        tracing::info!("{name}: loaded {loaded} objects");
    }
    Ok(())
}

/// A fault that can never happen is a mistake.
fn check(sim: &Sim, fault: &Fault) -> Result<()> {
    let (plural, subresource) = (&fault.matches.resource, &fault.matches.subresource);
    let served = sim.with_model(|model, _| {
        model.resources().iter().any(|resource| {
            (plural.is_empty() || resource.plural == *plural)
                && (subresource.is_empty() || resource.subresource(subresource).is_some())
        })
    });
    if served {
        return Ok(());
    }
    let name = [plural.as_str(), subresource.as_str()].join("/");
    bail!(
        "--fault: no resource {:?} is served: write its plural, and --load the CustomResourceDefinition of a custom one",
        name.trim_end_matches('/')
    )
}

fn start_kubelet(sim: &Sim, silent_nodes: &[String]) -> Kubelet {
    let kubelet = Kubelet::start(sim, KubeletOptions::default());
    for node in silent_nodes {
        kubelet.silence(node);
    }
    kubelet
}

fn write_kubeconfig(server: &Server) -> Result<PathBuf> {
    let port = server.address().port();
    let path = std::env::temp_dir().join(format!("davit-sim-{port}.kubeconfig"));
    std::fs::write(&path, kubeconfig(&server.url()))
        .with_context(|| format!("the kubeconfig {} cannot be written", path.display()))?;
    Ok(path)
}
