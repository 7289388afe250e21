//! All five controllers in one host beside an API server in memory: memory and processor time at
//! three sizes of a cluster, a second list, and the start.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use davit_sim::fault::{Match, WatchFault};
use davit_sim::{RequestRecord, Server, Sim, kubeconfig};
use tokio::time::sleep;

use crate::figure::Figure;
use crate::objects::{self, NODES, PODS};
use crate::process::{Host, nothing};
use crate::server;

/// Nobody renews the leases here: no node counts as silent.
pub(super) const NODE_EVICTION: &str = "- name: node-eviction\n  module: {builtin: node-eviction}\n  \
                             mode: Enforce\n  config: {nodeMonitorGracePeriod: 10h}\n";

struct Size {
    name: &'static str,
    nodes: usize,
    pods: usize,
    /// In megabytes.
    aim: f64,
}

pub(crate) async fn run() -> Result<()> {
    let directory = tempfile::tempdir()?;
    start(directory.path()).await?;
    compile(directory.path()).await?;
    for size in [
        Size {
            name: "empty cluster",
            nodes: 0,
            pods: 0,
            aim: 30.0,
        },
        Size {
            name: "1,000 nodes, 20,000 pods",
            nodes: 1_000,
            pods: 20_000,
            aim: 45.0,
        },
        Size {
            name: "5,000 nodes, 150,000 pods",
            nodes: NODES,
            pods: PODS,
            aim: 150.0,
        },
    ] {
        measure(directory.path(), &size).await?;
    }
    Ok(())
}

async fn measure(directory: &Path, size: &Size) -> Result<()> {
    let name = |what: &str| format!("host: {}, {what}", size.name);
    let is_large = size.pods == PODS;
    let sim = server::with_nodes_and_pods(size.nodes, size.pods)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let host = Host::start(&kubeconfig(&server.url()), directory, &config(), None)?;
    let ready = host.ready().await?;
    let rest = host.at_rest().await?;
    Figure::new(name("resident"), host.settled().await?, "MB")
        .aim(size.aim)
        .report()?;
    Figure::new(name("most resident so far"), host.most_resident()?, "MB").report()?;
    let seconds = |what: &str, time: Duration| Figure::new(name(what), time.as_secs_f64(), "s");
    seconds("start to ready", ready.after).report()?;
    seconds("processor time until ready", ready.used)
        .aim(is_large.then_some(2.0))
        .report()?;
    seconds("start to rest", rest.after).report()?;
    seconds("processor time until rest", rest.used).report()?;
    if !is_large {
        return Ok(());
    }
    let share = host.share(nothing()).await?;
    Figure::new(name("of a core at rest"), share, "%").report()?;
    let before = host.used()?;
    list_again(&sim).await?;
    let used = host.at_rest().await?.used.saturating_sub(before);
    Figure::new(
        name("processor time of a second list"),
        used.as_secs_f64(),
        "s",
    )
    .aim(3.0)
    .report()?;
    Figure::new(name("resident after it"), host.settled().await?, "MB")
        .aim(size.aim)
        .report()
}

/// Makes the host list the pods again.
async fn list_again(sim: &Sim) -> Result<()> {
    sim.limit_log(1_000);
    let began = Instant::now();
    let mut change = 0;
    while !sim.log().iter().any(is_list_of_pods) {
        ensure!(began.elapsed().as_secs() < 60, "nothing is listed again");
        // The watch ends before it sends this change, which nobody can ask for afterwards.
        change += 1;
        sim.apply(objects::changed(0, change))?;
        sim.disturb(&Match::new("watch", "pods"), WatchFault::Expire);
        // A list that has started is not disturbed.
        sleep(Duration::from_secs(2)).await;
    }
    sim.limit_log(0);
    Ok(())
}

/// A list of one answer or of pages, or a watch that starts with one.
fn is_list_of_pods(request: &RequestRecord) -> bool {
    let (path, query) = request.path.split_once('?').unwrap_or_default();
    let is_list = request.work.verb == "list" || query.contains("sendInitialEvents=true");
    path == "/api/v1/pods" && is_list
}

/// Compiles the modules of all five controllers into the directory.
pub(super) async fn compile(directory: &Path) -> Result<()> {
    let sim = server::with_nodes_and_pods(1, 1)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim).await?;
    let host = Host::start(&kubeconfig(&server.url()), directory, &config(), None)?;
    host.at_rest().await?;
    Ok(())
}

/// All five controllers.
pub(super) fn config() -> String {
    format!("{}{NODE_EVICTION}", without_node_eviction())
}

pub(super) fn without_node_eviction() -> &'static str {
    "controllers:\n\
     - name: podgc\n  module: {builtin: podgc}\n  mode: Enforce\n\
     - name: garbage-collector\n  module: {builtin: garbage-collector}\n  mode: Enforce\n\
     - name: taint-eviction\n  module: {builtin: taint-eviction}\n  mode: Enforce\n\
     - name: storage-version-gc\n  module: {builtin: storage-version-gc}\n  mode: Enforce\n"
}

/// From the start of the process to the end of the first decision's write.
async fn start(directory: &Path) -> Result<()> {
    let config = "controllers:\n- name: podgc\n  module: {builtin: podgc}\n  mode: Enforce\n  \
                  config: {terminatedPodThreshold: 1}\n";
    for module in ["compiled", "cached"] {
        let sim = davit::sim::start()?;
        server::import(&sim, [0, 20].into_iter().map(objects::pod))?;
        let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
        let (started, deletions) = (Instant::now(), Match::new("delete", "pods"));
        let _host = Host::start(&kubeconfig(&server.url()), directory, config, None)?;
        while sim.count(&deletions) == 0 {
            ensure!(started.elapsed().as_secs() < 60, "nothing is deleted");
            sleep(Duration::from_millis(1)).await;
        }
        let took = started.elapsed().as_secs_f64();
        let name = format!("host: start to its first deletion, module {module}");
        Figure::new(name, took, "s")
            .aim((module == "cached").then_some(0.3))
            .report()?;
    }
    Ok(())
}
