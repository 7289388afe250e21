//! `davit sim`: a Kubernetes API from memory.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use davit_sim::fault::Fault;
use davit_sim::helpers::{Kubelet, KubeletOptions, NamespaceController};
use davit_sim::{Config, Identity, Rbac, Server, Sim, kubeconfig, kubeconfig_with_token};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::cli::SimArguments;
use crate::commands::print::out;
use crate::driver::identity;
use crate::run::StopSignals;

/// Serves until SIGINT or SIGTERM.
pub async fn run(arguments: SimArguments) -> Result<()> {
    let config = config(&arguments);
    tracing::info!("the seed is {}", config.seed);
    let rbac = config.rbac.clone();
    let sim = new(config)?;
    // A server process does not use the request log, which would grow without limit.
    sim.limit_log(0);
    load(&sim, &arguments.load)?;
    for fault in &arguments.fault {
        check(&sim, fault)?;
        sim.add_fault(fault.clone());
    }
    // The helpers run until they are dropped.
    let _kubelet = arguments
        .kubelet
        .then(|| start_kubelet(&sim, &arguments.silent_node));
    let _namespaces = arguments
        .namespaces
        .then(|| NamespaceController::start(&sim));
    if rbac.is_some() {
        tokio::spawn(log_denials(sim.denials()));
    }
    let mut stop = StopSignals::new()?;
    let (server, kubeconfig) = serve(arguments.listen, sim, rbac.as_ref()).await?;
    let path = write_kubeconfig(&server, &kubeconfig)?;
    // The first line, and the only one on standard output: for scripts.
    out(&path.display().to_string())?;
    tracing::info!(
        "serving {}; try: kubectl --kubeconfig {} get nodes",
        server.url(),
        path.display()
    );
    let name = stop.received().await;
    tracing::info!("{name}: stopped");
    // The file may be gone already.
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// Starts the server; returns it with the text of a kubeconfig. With RBAC it speaks TLS:
/// kubectl sends no token without TLS.
async fn serve(listen: SocketAddr, sim: Sim, rbac: Option<&Rbac>) -> Result<(Server, String)> {
    let context = || format!("--listen {listen}");
    let Some(rbac) = rbac else {
        let server = Server::start(listen, sim).await.with_context(context)?;
        let kubeconfig = kubeconfig(&server.url());
        return Ok((server, kubeconfig));
    };
    let names = vec![listen.ip().to_string(), "localhost".to_owned()];
    let identity = Identity::new(names).context("--rbac")?;
    let server = Server::start_tls(listen, sim, &identity)
        .await
        .with_context(context)?;
    let kubeconfig = kubeconfig_with_token(
        &server.url(),
        Some(identity.certificate()),
        &rbac.administrator_token,
    );
    Ok((server, kubeconfig))
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

/// A different seed in every process.
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
        rbac: arguments.rbac.then(|| Rbac {
            administrator_token: random_token(),
        }),
        ..Config::default()
    }
}

/// 128 random bits.
fn random_token() -> String {
    format!("{:016x}{:016x}", identity::random(), identity::random())
}

/// Logs every denied request: some clients do not show the refusal.
async fn log_denials(mut denials: broadcast::Receiver<String>) {
    loop {
        match denials.recv().await {
            Ok(why) => tracing::warn!("{why}"),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!("{missed} more requests were denied");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Loads the objects of files.
pub(crate) fn load(sim: &Sim, files: &[PathBuf]) -> Result<()> {
    for path in files {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("--load: {name} cannot be read"))?;
        let loaded = sim.load_from(BufReader::new(file));
        let loaded = loaded.with_context(|| format!("--load: {name}"))?;
        tracing::info!("{name}: loaded {loaded} objects");
    }
    Ok(())
}

/// Refuses a fault that can never match.
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
        "--fault: no resource {:?} is served: use the plural, and --load the CustomResourceDefinition of a custom resource",
        name.trim_end_matches('/')
    )
}

/// Starts the kubelets of all nodes but these.
pub(crate) fn start_kubelet(sim: &Sim, silent_nodes: &[String]) -> Kubelet {
    let kubelet = Kubelet::start(sim, KubeletOptions::default());
    for node in silent_nodes {
        kubelet.silence(node);
    }
    kubelet
}

/// Writes a kubeconfig into a file of its own, which only its owner may read.
pub(crate) fn write_kubeconfig(server: &Server, kubeconfig: &str) -> Result<PathBuf> {
    let port = server.address().port();
    let path = std::env::temp_dir().join(format!("davit-sim-{port}.kubeconfig"));
    write_private(&path, kubeconfig)
        .with_context(|| format!("the kubeconfig {} cannot be written", path.display()))?;
    Ok(path)
}

/// Writes a file that only its owner may read. An existing file is replaced, because
/// it would keep its permissions.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}
