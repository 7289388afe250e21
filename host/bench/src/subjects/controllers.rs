//! A thousand small controllers in one host, beside an API server in memory: how long until all
//! of them run, what each of them has resident, and how much of a core they need while nothing
//! happens.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use davit::metrics::number;
use davit_sim::{Server, Sim, kubeconfig};
use serde_json::json;
use tokio::time::sleep;

use crate::figure::Figure;
use crate::process::{Host, guest, nothing};

const CONTROLLERS: usize = 1_000;
/// Changes of an object that all of them watch.
const CHANGES: usize = 20;

pub(crate) async fn run() -> Result<()> {
    let sim = davit::sim::start()?;
    sim.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}))?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let directory = tempfile::tempdir()?;
    let one = start(&server, directory.path(), 1).await?;
    ensure!(is_labelled(&sim)?, "no controller has decided");
    let alone = one.settled().await?;
    drop(one);
    let all = start(&server, directory.path(), CONTROLLERS).await?;
    let each = (all.settled().await? - alone) * 1e3 / number(CONTROLLERS - 1);
    Figure::new("controllers: resident for each of 1,000", each, "kB")
        .aim(102.4)
        .report()?;
    let share = all.share(nothing()).await?;
    Figure::new("controllers: of a core for 1,000 at rest", share, "%")
        .aim(1.0)
        .report()?;
    let (before, began) = (all.used()?, Instant::now());
    for change in 0..CHANGES {
        sim.apply(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "new", "labels": {"team": format!("another-{change}")}},
        }))?;
        sleep(Duration::from_millis(500)).await;
    }
    let used = all.at_rest().await?.used.saturating_sub(before);
    let used = used.as_secs_f64() - share / 100.0 * began.elapsed().as_secs_f64();
    let each = used * 1e6 / number(CONTROLLERS * CHANGES);
    let name = "controllers: a change that all 1,000 reconcile, for each of them";
    Figure::new(name, each, "µs").report()
}

/// Runs a host with so many controllers until it rests.
async fn start(server: &Server, directory: &Path, controllers: usize) -> Result<Host> {
    let host = Host::start(
        &kubeconfig(&server.url()),
        directory,
        &config(controllers)?,
        None,
    )?;
    let rest = host.at_rest().await?;
    let name = format!("controllers: start of {controllers} to rest");
    Figure::new(name, rest.after.as_secs_f64(), "s").report()?;
    Ok(host)
}

/// Controllers of the guest that `davit new --kind event-driven` writes.
fn config(controllers: usize) -> Result<String> {
    let module = guest("event_template")?;
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
