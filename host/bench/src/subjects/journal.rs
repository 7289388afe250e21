//! The journal at the size of a large cluster: what recording costs a host, the size of a change
//! on the disk, and how long a backtest takes for each entry, and for what.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use davit::metrics::number;
use davit_sim::{Server, Sim, kubeconfig};
use serde::Deserialize;
use tokio::time::sleep;

use super::host::NODE_EVICTION;
use crate::figure::Figure;
use crate::objects::{NODES, PODS};
use crate::process::{Host, MEASURED, backtest};
use crate::server;

/// Changes of pods a second: of a large cluster, and at most those that fill the journal.
const RATE: u32 = 20;
const FAST: u32 = 2_000;
/// Renewals of leases a second: of each node every ten seconds.
const RENEWALS: u32 = 500;
/// A week with 20 changes a second in five minutes, in microseconds for each change.
const AIM: f64 = 300e6 / (7.0 * 24.0 * 3600.0 * 20.0);

const CONFIG: &str = "controllers:\n\
                      - name: podgc\n  module: {builtin: podgc}\n  mode: Enforce\n\
                      - name: taint-eviction\n  module: {builtin: taint-eviction}\n  mode: Enforce\n";

/// What `davit backtest` says of its time, in seconds.
#[derive(Debug, Deserialize)]
struct Times {
    entries: f64,
    calls: f64,
    took: f64,
    journal: f64,
    guest: f64,
    machine: f64,
}

pub(crate) async fn run() -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES, PODS)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let directory = tempfile::tempdir()?;
    let journal = directory.path().join("journal");
    let mut changes = 0;
    let without = start(&server, directory.path(), None).await?;
    let plain = cost(&sim, &without, &mut changes).await?;
    drop(without);
    let with = start(&server, directory.path(), Some(&journal)).await?;
    let recorded = cost(&sim, &with, &mut changes).await?;
    let share = (recorded.share - plain.share).max(0.0);
    Figure::new(
        "journal: of a core to record 20 changes a second",
        share,
        "%",
    )
    .aim(5.0)
    .report()?;
    let memory = (recorded.resident - plain.resident).max(0.0);
    Figure::new("journal: resident to record", memory, "MB")
        .aim(16.0)
        .report()?;
    fill(&sim, &with, &journal, &mut changes).await?;
    drop(with);
    for controller in ["podgc", "taint-eviction"] {
        replay(&journal, controller)?;
    }
    leases(directory.path()).await
}

/// The heartbeats of all nodes, recorded for a controller that decides by them.
async fn leases(directory: &Path) -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES, 1)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let config = format!("controllers:\n{NODE_EVICTION}");
    let mut shares = Vec::new();
    let journal = directory.join("leases");
    for journal in [None, Some(&*journal)] {
        let host = Host::start(&kubeconfig(&server.url()), directory, &config, journal)?;
        host.at_rest().await?;
        // What the first list was recorded as is written within a second.
        sleep(Duration::from_secs(2)).await;
        let before = journal.map(size).transpose()?.unwrap_or_default();
        let mut renewals = 0;
        let share = host.share(async {
            renewals = server::renew_leases(&sim, NODES, RENEWALS, MEASURED).await?;
            Ok(())
        });
        shares.push(share.await?);
        // What a second has collected is written then.
        sleep(Duration::from_secs(2)).await;
        if let Some(journal) = journal {
            let each = (size(journal)? - before) / number(renewals);
            Figure::new("journal: a renewal of a lease on the disk", each, "B").report()?;
        }
    }
    let names = ["without a journal", "recorded"];
    for (name, share) in names.into_iter().zip(shares) {
        let name = format!("journal: of a core for 500 leases a second, {name}");
        Figure::new(name, share, "%").report()?;
    }
    Ok(())
}

struct Cost {
    share: f64,
    resident: f64,
}

async fn start(server: &Server, directory: &Path, journal: Option<&Path>) -> Result<Host> {
    let host = Host::start(&kubeconfig(&server.url()), directory, CONFIG, journal)?;
    host.at_rest().await?;
    Ok(host)
}

/// What a host needs while a few pods change.
async fn cost(sim: &Sim, host: &Host, changes: &mut usize) -> Result<Cost> {
    let share = host
        .share(server::change_pods_at(RATE, sim, PODS, MEASURED, changes))
        .await?;
    Ok(Cost {
        share,
        resident: host.resident()?,
    })
}

/// Records many changes, and reports the size of each on the disk.
async fn fill(sim: &Sim, host: &Host, journal: &Path, changes: &mut usize) -> Result<()> {
    let (before, first) = (size(journal)?, *changes);
    server::change_pods(FAST, sim, PODS, MEASURED, changes).await?;
    host.at_rest().await?;
    // What a second has collected is written then.
    sleep(Duration::from_secs(2)).await;
    let bytes = (size(journal)? - before) / number(*changes - first);
    Figure::new("journal: a change of a pod on the disk", bytes, "B").report()
}

fn size(directory: &Path) -> Result<f64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(number(usize::try_from(bytes)?))
}

fn replay(journal: &Path, controller: &str) -> Result<()> {
    let log = backtest(journal, controller)?;
    let mut times = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let times: Times = times.next().with_context(|| format!("no times: {log}"))?;
    ensure!(times.entries > number(PODS), "{times:?}");
    let name = |what: &str| format!("journal: a backtest of {controller}, {what}");
    let each = |seconds: f64| seconds * 1e6 / times.entries;
    let report = |what: &str, seconds: f64| Figure::new(name(what), each(seconds), "µs").report();
    Figure::new(name("each entry"), each(times.took), "µs")
        .aim(AIM)
        .report()?;
    report("of it waiting for the journal's reader", times.journal)?;
    report("of it in the guest's calls", times.guest)?;
    report("of it in the state and the machine", times.machine)?;
    Figure::new(
        name("calls for 1,000 entries"),
        1e3 * times.calls / times.entries,
        "",
    )
    .report()
}
