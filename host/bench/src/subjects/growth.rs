//! How costs grow with the number of pods, and with the number of changes a second.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use davit::metrics::number;
use davit_sim::{Server, Sim};
use tempfile::NamedTempFile;
use tokio::time::interval;

use super::host::config;
use super::passes;
use crate::figure::Figure;
use crate::objects::{self, PODS_OF_A_NODE};
use crate::process::{Host, davit};
use crate::server;
use crate::usage;

const PODS: [usize; 6] = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000];
/// Changes of pods a second.
const RATES: [u32; 6] = [1, 5, 20, 100, 500, 2_000];
/// How long pods change at each rate.
const MEASURED: Duration = Duration::from_secs(20);

/// All five controllers, PodGC's pass and the API server in memory at each size.
pub(crate) async fn sizes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let compiled = server::with_nodes_and_pods(1, 1)?;
    at_rest(&compiled, directory.path()).await?;
    for pods in PODS {
        let nodes = pods.div_ceil(PODS_OF_A_NODE);
        let figure = |name: &str, value: f64, unit: &str| {
            let figure = Figure::new(format!("growth: {name}"), value, unit);
            figure.at(number(pods), "pods").report()
        };
        let sim = server::with_nodes_and_pods(nodes, pods)?;
        let (resident, used) = at_rest(&sim, directory.path()).await?;
        drop(sim);
        figure("resident, five controllers", resident, "MB")?;
        figure("processor time to rest", used.as_secs_f64(), "s")?;
        figure("PodGC's pass", passes::healthy(pods, nodes).await?, "ms")?;
        let (took, resident) = load(pods)?;
        figure("davit sim --load", took.as_secs_f64(), "s")?;
        figure("most resident of davit sim", resident, "MB")?;
    }
    Ok(())
}

/// Changes of pods at each rate, in a cluster of 20,000.
pub(crate) async fn rates() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let sim = server::with_nodes_and_pods(1_000, 20_000)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let mut changes = 0;
    for rate in RATES {
        let host = Host::start(&server, directory.path(), &config())?;
        host.at_rest().await?;
        let share = host.share(change(&sim, rate, &mut changes)).await?;
        Figure::new("growth: of a core, five controllers", share, "%")
            .at(f64::from(rate), "changes of pods a second")
            .report()?;
    }
    Ok(())
}

/// What a host has resident at rest, in megabytes, and what it has used until then.
async fn at_rest(sim: &Sim, directory: &Path) -> Result<(f64, Duration)> {
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let host = Host::start(&server, directory, &config())?;
    let rest = host.at_rest().await?;
    Ok((host.resident()?, rest.used))
}

/// Pods get another condition, which the controllers read.
async fn change(sim: &Sim, rate: u32, changes: &mut usize) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / rate);
    let (end, before) = (Instant::now() + MEASURED, *changes);
    while Instant::now() < end {
        ticks.tick().await;
        // No change repeats an earlier one, which would be none.
        sim.apply(objects::changed(*changes % 20_000, *changes))?;
        *changes += 1;
    }
    let sent = number(*changes - before) / MEASURED.as_secs_f64();
    ensure!(
        sent > 0.95 * f64::from(rate),
        "only {sent} changes a second"
    );
    Ok(())
}

/// `davit sim --load` of a file with so many pods: how long it takes, and the megabytes that it
/// has resident then.
pub(super) fn load(pods: usize) -> Result<(Duration, f64)> {
    let file = file(pods)?;
    let start = Instant::now();
    let mut child = Command::new(davit()?)
        .args(["sim", "--listen", "127.0.0.1:0", "--log", "warn", "--load"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .spawn()?;
    // The path of its kubeconfig is printed once it serves.
    let mut byte = [0; 1];
    let output = child.stdout.as_mut().context("no output")?;
    let ready = std::io::Read::read_exact(output, &mut byte);
    let took = start.elapsed();
    let resident = usage::most_resident(&child.id().to_string());
    child.kill()?;
    child.wait()?;
    ready.context("davit sim")?;
    Ok((took, resident? / 1e6))
}

/// A list of so many pods.
pub(super) fn file(pods: usize) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    let mut writer = std::io::BufWriter::new(file.as_file_mut());
    write!(writer, r#"{{"apiVersion":"v1","kind":"List","items":["#)?;
    for number in 0..pods {
        if number > 0 {
            writer.write_all(b",")?;
        }
        serde_json::to_writer(&mut writer, &objects::pod(number))?;
    }
    write!(writer, "]}}")?;
    writer.flush()?;
    drop(writer);
    Ok(file)
}
