//! Measures Davit: one table of figures with their aims. `cargo xtask bench` builds what it
//! needs and runs it.

mod figure;
mod machine;
mod objects;
mod plots;
mod process;
mod server;
mod subjects;
mod table;
mod usage;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::{Parser, ValueEnum};

use figure::Figure;
use table::Section;
use tikv_jemallocator::Jemalloc;

/// As `davit` has it: memory and time follow from it.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

#[derive(Parser)]
#[command(name = "davit-bench", about = "Measures Davit")]
struct Arguments {
    /// What to measure; everything but `swaps` by default.
    #[arg(value_enum)]
    subjects: Vec<Subject>,
    /// Where the figures are written as JSON.
    #[arg(long, default_value = "target/bench.json")]
    output: PathBuf,
    /// Writes to this API server instead of one in memory: to pods of a namespace
    /// `davit-bench`, and 60 nodes of its own. Its controllers enforce in all of the cluster: it is
    /// refused if it has other pods or nodes, and kube-controller-manager has to be stopped.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Draws what was measured at several sizes into SVG files of this directory.
    #[arg(long)]
    plots: Option<PathBuf>,
    /// Measures one subject in this process and prints its figures as JSON.
    #[arg(long, hide = true)]
    figures: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// From the API server's JSON to the declared fields.
    Projector,
    /// The cache.
    Store,
    /// Large answers of guests.
    Answers,
    /// Calls into guests, and what comes before them.
    Calls,
    /// One call of each controller, in wasm and natively.
    Passes,
    /// All controllers in one host.
    Host,
    /// Nodes that say they are alive.
    Heartbeats,
    /// From an event to a write, and swaps.
    Latency,
    /// Swaps for an hour, as often as the file is read.
    Swaps,
    /// Rules in CEL.
    Policy,
    /// A thousand controllers in one host.
    Controllers,
    /// The API server in memory.
    Simulator,
    /// Recording, and backtests.
    Journal,
    /// Writes beside those of a bare client.
    Writes,
    /// What every controller has to survive.
    Extremes,
    /// How costs grow with the number of pods.
    Growth,
    /// How costs grow with the number of changes a second.
    Rates,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.figures {
        let [subject] = arguments.subjects[..] else {
            bail!("--figures takes one subject");
        };
        return measure(subject, arguments.kubeconfig.as_deref());
    }
    let subjects = match &arguments.subjects[..] {
        [] => Subject::value_variants()
            .iter()
            .copied()
            .filter(|subject| *subject != Subject::Swaps)
            .collect(),
        some => some.to_vec(),
    };
    table::print_header();
    let sections = subjects
        .iter()
        .map(|subject| section(*subject, arguments.kubeconfig.as_deref()));
    let sections: Vec<Section> = sections.collect::<Result<_>>()?;
    table::write(&arguments.output, &sections)?;
    if let Some(directory) = &arguments.plots {
        plots::draw(directory, &sections)?;
    }
    let failed = sections.iter().filter(|one| one.failure.is_some()).count();
    if failed > 0 {
        bail!("{failed} subjects could not be measured");
    }
    Ok(())
}

/// Measures in a process of its own, whose memory nobody else has used.
fn section(subject: Subject, kubeconfig: Option<&Path>) -> Result<Section> {
    let name = subject
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--figures", &name]);
    if let Some(path) = kubeconfig {
        command.arg("--kubeconfig").arg(path);
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut figures = Vec::new();
    let mut failure = None;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        match serde_json::from_str::<Figure>(&line?) {
            Ok(figure) => {
                table::print(&figure);
                figures.push(figure);
            }
            // The others are worth having.
            Err(error) => failure = Some(format!("a figure cannot be read: {error}")),
        }
    }
    let status = child.wait()?;
    let failure = failure.or_else(|| (!status.success()).then(|| status.to_string()));
    Ok(Section {
        subject: name,
        figures,
        failure,
    })
}

#[tokio::main]
async fn measure(subject: Subject, kubeconfig: Option<&Path>) -> Result<()> {
    match subject {
        Subject::Projector => subjects::projector::run(),
        Subject::Store => subjects::store::run(),
        Subject::Answers => subjects::answers::run(),
        Subject::Calls => subjects::calls::run().await,
        Subject::Passes => subjects::passes::run().await,
        Subject::Host => subjects::host::run().await,
        Subject::Heartbeats => subjects::heartbeats::run().await,
        Subject::Latency => subjects::latency::run().await,
        Subject::Swaps => subjects::latency::lasting().await,
        Subject::Policy => subjects::policy::run().await,
        Subject::Controllers => subjects::controllers::run().await,
        Subject::Simulator => subjects::simulator::run().await,
        Subject::Journal => subjects::journal::run().await,
        Subject::Writes => subjects::writes::run(kubeconfig).await,
        Subject::Extremes => {
            subjects::extremes::run().await?;
            subjects::resources::run().await
        }
        Subject::Growth => subjects::growth::sizes().await,
        Subject::Rates => subjects::growth::rates().await,
    }
}
