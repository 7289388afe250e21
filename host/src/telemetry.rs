//! The host's log: on standard error, as text or as one JSON object a line.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For collectors.
    Json,
}

/// Starts the log. `filter` is what `RUST_LOG` takes: `info`,
/// `davit=debug,davit_cluster=trace`.
pub fn start(format: LogFormat, filter: &str) -> Result<()> {
    let filter =
        EnvFilter::try_new(filter).with_context(|| format!("--log: \"{filter}\" is no filter"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => registry.with(layer).try_init()?,
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init()?,
    }
    Ok(())
}
