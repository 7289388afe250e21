//! The host as a process beside an API server in memory: what it has resident
//! when the cluster is empty and when it has 1,000 nodes and 20,000 small pods,
//! and how long 2,000 orphaned pods take from the first to the last deletion.
//!
//! ```sh
//! cargo xtask guests && cargo build --release -p davit
//! cargo run --release -p davit --example footprint
//! ```

mod process;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use davit::metrics;
use davit_sim::fault::Match;
use davit_sim::{Server, Sim};
use process::Host;
use serde_json::json;
use tokio::time::sleep;

const NODES: usize = 1_000;
const PODS: usize = 20_000;
const ORPHANS: usize = 2_000;
const CONFIG: &str = "controllers:\n- name: podgc\n  module: {builtin: podgc}\n  mode: Enforce\n  \
                      config: {quarantine: 2s, maxParallelDeletes: 64}\n";

#[tokio::main]
async fn main() -> Result<()> {
    let sim = davit::sim::start()?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let directory = std::env::temp_dir().join(format!("davit-footprint-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = measure(&sim, &server, &directory).await;
    std::fs::remove_dir_all(&directory)?;
    result
}

async fn measure(sim: &Sim, server: &Server, directory: &Path) -> Result<()> {
    let host = Host::start(server, directory, CONFIG)?;
    sleep(Duration::from_secs(5)).await;
    println!(
        "resident, empty cluster                 {:>7.1} MB",
        host.resident()?
    );
    for number in 0..NODES {
        create_node(sim, number)?;
    }
    for number in 0..PODS {
        create_pod(sim, number, &format!("node-{:04}", number % NODES))?;
    }
    sleep(Duration::from_secs(10)).await;
    println!(
        "resident, {NODES} nodes and {PODS} pods     {:>7.1} MB",
        host.resident()?
    );
    drop(host);

    for number in 0..ORPHANS {
        create_pod(sim, PODS + number, "gone")?;
    }
    let host = Host::start(server, directory, CONFIG)?;
    let deletions = Match::new("delete", "pods");
    let first = until(sim, &deletions, 1).await?;
    let last = until(sim, &deletions, ORPHANS).await?;
    let took = last.duration_since(first).as_secs_f64();
    println!("{ORPHANS} orphaned pods, first to last deletion {took:>7.2} s");
    let requests = sim.count(&Match::new("patch", "pods")) + sim.count(&deletions);
    println!(
        "writes a pod                            {:>7.2}",
        metrics::number(requests) / metrics::number(ORPHANS)
    );
    println!(
        "resident afterwards                     {:>7.1} MB",
        host.resident()?
    );
    println!(
        "processor time                          {:>7.2} s",
        host.used()?.as_secs_f64()
    );
    Ok(())
}

async fn until(sim: &Sim, requests: &Match, count: usize) -> Result<Instant> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while sim.count(requests) < count {
        ensure!(Instant::now() < deadline, "the pods are not deleted");
        sleep(Duration::from_millis(2)).await;
    }
    Ok(Instant::now())
}

fn create_node(sim: &Sim, number: usize) -> Result<()> {
    sim.create(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": format!("node-{number:04}")},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))?;
    Ok(())
}

fn create_pod(sim: &Sim, number: usize, node: &str) -> Result<()> {
    sim.create(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("pod-{number:06}"), "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "example.com/main"}],
        },
        "status": {"phase": "Running"},
    }))?;
    Ok(())
}
