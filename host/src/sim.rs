//! `davit sim`: a Kubernetes API from memory.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use davit_sim::{Config, Server, Sim, kubeconfig};

use crate::cli::SimArguments;
use crate::run::StopSignals;

/// Serves until SIGINT or SIGTERM.
pub async fn run(arguments: SimArguments) -> Result<()> {
    let sim = start()?;
    for path in &arguments.load {
        let name = path.display();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--load: {name} cannot be read"))?;
        let loaded = sim.load(&text).with_context(|| format!("--load: {name}"))?;
        tracing::info!("{name}: loaded {loaded} objects");
    }
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
    let config = Config {
        seed: u64::from(std::process::id()),
        ..Config::default()
    };
    Sim::new(config, jiff::Timestamp::now()).context("the API server in memory cannot be started")
}

fn write_kubeconfig(server: &Server) -> Result<PathBuf> {
    let port = server.address().port();
    let path = std::env::temp_dir().join(format!("davit-sim-{port}.kubeconfig"));
    std::fs::write(&path, kubeconfig(&server.url()))
        .with_context(|| format!("the kubeconfig {} cannot be written", path.display()))?;
    Ok(path)
}
