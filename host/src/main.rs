//! The program `davit`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use davit::cli::{Arguments, Command};
use davit::commands::answer::NoAnswer;
use davit::commands::backtest::RefusedBacktest;
use davit::commands::journal::RefusedJournal;
use davit::commands::policy::Shortfall;
use davit::{commands, demo, dev, inspect, new, record, run, sim, telemetry};
use davit_cluster::api::chain;
use davit_core::untrusted;
use tikv_jemallocator::Jemalloc;
use tokio::runtime::Runtime;

/// A host has many small objects that live long, and frees many at once after a list: see
/// docs/adr/0024-jemalloc.md. `.cargo/config.toml` has its settings.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The exit code of a usage error, as clap's, and of a journal that cannot be replayed or
/// tested, or that proves nothing.
const USAGE: u8 = 2;
/// The exit code of a request that no host answered in time.
const NO_ANSWER: u8 = 3;
/// The exit code of rules that act on more objects than `--fail-if` allows, and of policies that
/// were not converted as a whole.
const SHORTFALL: u8 = 4;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Without a runtime, a logger or anything else that takes memory.
    if let Command::Compile(limits) = arguments.command {
        return davit_engine::run_child(limits.memory, limits.processor_time);
    }
    match start(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // On one line, and with each cause once. Texts of clusters and journals are among
            // them: no character controls the terminal.
            let text = chain(error.as_ref());
            let words: Vec<&str> = text.split_whitespace().collect();
            let text = untrusted::line(&words.join(" "), usize::MAX);
            eprintln!("davit: {text}");
            if error.is::<NoAnswer>() {
                ExitCode::from(NO_ANSWER)
            } else if error.is::<Shortfall>() {
                ExitCode::from(SHORTFALL)
            } else if error.is::<RefusedJournal>() || error.is::<RefusedBacktest>() {
                ExitCode::from(USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// How long the end of the process waits for what may never end: a program for credentials, or a disk
/// that does not answer.
const LINGERS: Duration = Duration::from_secs(2);

fn start(arguments: Arguments) -> Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let ended = runtime.block_on(execute(arguments));
    runtime.shutdown_timeout(LINGERS);
    ended
}

async fn execute(arguments: Arguments) -> Result<()> {
    // The demo has the terminal for itself by default. A command about a Controller
    // prints its error once, at the end.
    let filter = match &arguments.command {
        // The guest's own lines would repeat with each run.
        Command::Inspect(inspected) if inspected.determinism.is_some() => "off",
        Command::Run(_) | Command::Record(_) | Command::Sim(_) | Command::Inspect(_) => "info",
        Command::Demo(_) | Command::Dev(_) => "error",
        _ => "off",
    };
    let filter = arguments.log.unwrap_or_else(|| filter.to_owned());
    let log = telemetry::start(arguments.log_format, &filter)?;
    match arguments.command {
        Command::Run(arguments) => run::run(*arguments, log).await,
        Command::Record(arguments) => record::run(*arguments, log).await,
        Command::Sim(arguments) => sim::run(arguments).await,
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Inspect(arguments) => inspect::run(arguments).await,
        Command::New(arguments) => new::run(&arguments),
        Command::Dev(arguments) => Box::pin(dev::run(*arguments)).await,
        Command::Promote(arguments) => commands::promote(arguments).await,
        Command::Pause(arguments) => commands::pause(arguments).await,
        Command::Resume(arguments) => commands::resume(arguments).await,
        Command::Retry(arguments) => commands::retry(arguments).await,
        Command::Abort(arguments) => commands::abort(arguments).await,
        Command::Reset(arguments) => commands::reset(arguments).await,
        Command::Stop(arguments) => commands::stop(arguments).await,
        Command::Start(arguments) => commands::start(arguments).await,
        Command::Grant(arguments) => commands::grant(arguments).await,
        Command::Rollback(arguments) => commands::rollback(arguments).await,
        Command::History(arguments) => commands::history(arguments).await,
        Command::Diff(arguments) => commands::diff(arguments).await,
        Command::Log(arguments) => commands::log(arguments).await,
        Command::Get(arguments) => commands::get(arguments).await,
        Command::Journal(arguments) => commands::journal(&arguments.command),
        Command::Replay(arguments) => commands::replay(arguments).await,
        Command::Backtest(arguments) => Box::pin(commands::backtest(*arguments)).await,
        Command::Policy(arguments) => Box::pin(commands::policy(arguments)).await,
        Command::Why(arguments) => commands::why(&arguments),
        Command::Restore(arguments) => Box::pin(commands::restore(arguments)).await,
        Command::Check(arguments) => commands::check(arguments).await,
        Command::Version(arguments) => commands::version(arguments).await,
        Command::Completion(arguments) => commands::completion(&arguments),
        Command::Crds => commands::crds(),
        Command::Compile(_) => Ok(()),
    }
}
