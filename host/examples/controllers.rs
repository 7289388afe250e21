//! A thousand small controllers in one host, beside an API server in memory: how long until all
//! of them run, what each of them has resident, and how much of a core they need while nothing
//! happens.
//!
//! ```sh
//! cargo xtask guests && cargo build --release -p davit
//! cargo run --release -p davit --example controllers
//! ```

mod process;
mod rest;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use davit_sim::{Server, Sim};
use process::Host;
use rest::{MEASURED, share, until_idle};
use serde_json::json;
use tokio::time::sleep;

const CONTROLLERS: usize = 1_000;
/// What a host has used before it can be at rest.
const LEAST: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<()> {
    let sim = davit::sim::start()?;
    sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}))?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let directory = tempfile::tempdir()?;
    let one = measure(&server, directory.path(), 1).await?;
    ensure!(is_labelled(&sim)?, "no controller has decided");
    let all = measure(&server, directory.path(), CONTROLLERS).await?;
    let each = (all - one) * 1024.0 / davit::metrics::number(CONTROLLERS - 1);
    println!("resident for each                      {each:>8.1} KiB");
    Ok(())
}

/// Runs a host with so many controllers; returns what it has resident at rest, in megabytes.
async fn measure(server: &Server, directory: &Path, controllers: usize) -> Result<f64> {
    let started = Instant::now();
    let host = Host::start(server, directory, &config(controllers)?)?;
    until_idle(&host, LEAST).await?;
    println!("{controllers} controllers");
    println!(
        "{:<38} {:>8.1} s",
        "  start to rest",
        started.elapsed().as_secs_f64()
    );
    let before = host.used()?;
    sleep(MEASURED).await;
    share("  at rest", host.used()?.saturating_sub(before));
    let resident = host.resident()?;
    println!("{:<38} {resident:>8.1} MB", "  resident");
    Ok(resident)
}

/// Controllers of the guest that `davit new --kind event-driven` writes.
fn config(controllers: usize) -> Result<String> {
    let example = std::env::current_exe()?;
    let target = example.ancestors().nth(3).context("cargo's target")?;
    let module = target.join("wasm32-wasip2/guest/event_template.wasm");
    let mut config = "controllers:\n".to_owned();
    for number in 0..controllers {
        writeln!(
            config,
            "- name: team-{number:04}\n  module: {{file: {}}}\n  mode: Enforce\n  config: {{team: \
             team-{number:04}}}",
            module.display()
        )?;
    }
    Ok(config)
}

fn is_labelled(sim: &Sim) -> Result<bool> {
    let namespace = sim.get("v1", "Namespace", "", "new")?;
    Ok(namespace.pointer("/metadata/labels/team").is_some())
}
