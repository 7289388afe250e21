//! How costs grow with the number of pods, and with the number of changes a second.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use davit::metrics::number;
use davit_sim::{Server, kubeconfig};
use tempfile::NamedTempFile;

use super::host::{compile, config};
use super::passes;
use crate::figure::Figure;
use crate::objects::{self, PODS_OF_A_NODE};
use crate::process::{Host, SimProcess};
use crate::server;

const PODS: [usize; 6] = [1_000, 3_000, 10_000, 30_000, 100_000, 300_000];
/// Changes of pods a second.
const RATES: [u32; 6] = [1, 5, 20, 100, 500, 2_000];
/// How long pods change at each rate.
const MEASURED: Duration = Duration::from_secs(20);

/// All five controllers, PodGC's pass and the API server in memory at each size.
pub(crate) async fn sizes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    compile(directory.path()).await?;
    for pods in PODS {
        let nodes = pods.div_ceil(PODS_OF_A_NODE);
        let figure = |name: &str, value: f64, unit: &str| {
            let figure = Figure::new(format!("growth: {name}"), value, unit);
            figure.at(number(pods), "pods").report()
        };
        let sim = server::with_nodes_and_pods(nodes, pods)?;
        let server = Server::start("127.0.0.1:0".parse()?, sim).await?;
        let host = start(&server, directory.path())?;
        let rest = host.at_rest().await?;
        figure("resident, five controllers", host.settled().await?, "MB")?;
        figure("processor time to rest", rest.used.as_secs_f64(), "s")?;
        drop((host, server));
        figure("PodGC's pass", passes::healthy(pods, nodes).await?, "ms")?;
        let loaded = load(pods)?;
        figure("davit sim --load", loaded.took.as_secs_f64(), "s")?;
        figure("most resident of davit sim", loaded.most_resident, "MB")?;
    }
    Ok(())
}

/// Five controllers on a server.
fn start(server: &Server, directory: &Path) -> Result<Host> {
    Host::start(&kubeconfig(&server.url()), directory, &config(), None)
}

/// Changes of pods at each rate, in a cluster of 20,000.
pub(crate) async fn rates() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let sim = server::with_nodes_and_pods(1_000, 20_000)?;
    let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
    let mut changes = 0;
    for rate in RATES {
        let host = start(&server, directory.path())?;
        host.at_rest().await?;
        let changing = server::change_pods_at(rate, &sim, 20_000, MEASURED, &mut changes);
        let share = host.share(changing).await?;
        Figure::new("growth: of a core, five controllers", share, "%")
            .at(f64::from(rate), "changes of pods a second")
            .report()?;
    }
    Ok(())
}

/// What `davit sim --load` needs for a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadCost {
    /// Until it serves.
    pub(super) took: Duration,
    /// The most megabytes that it has had resident until then.
    pub(super) most_resident: f64,
    /// The megabytes of the file.
    pub(super) file: f64,
}

/// Loads a file with so many pods.
pub(super) fn load(pods: usize) -> Result<LoadCost> {
    let file = file(pods)?;
    let bytes = file.as_file().metadata()?.len();
    let start = Instant::now();
    let sim = SimProcess::start(&["--load".as_ref(), file.path().as_ref()])?;
    Ok(LoadCost {
        took: start.elapsed(),
        most_resident: sim.most_resident()?,
        file: number(usize::try_from(bytes)?) / 1e6,
    })
}

/// A list of so many pods.
fn file(pods: usize) -> Result<NamedTempFile> {
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
