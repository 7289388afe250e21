//! The host's log: on standard error, as text or as one JSON object a line.

use std::ffi::OsStr;
use std::io::IsTerminal;

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text, with colour on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log. `filter` has the form of `RUST_LOG`: `info`,
/// `davit=debug,davit_cluster=trace`.
pub fn start(format: LogFormat, filter: &str) -> Result<()> {
    let filter = EnvFilter::try_new(without_kube(filter))
        .with_context(|| format!("--log: \"{filter}\" is not a valid filter"))?;
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(has_colour(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => registry.with(layer).try_init()?,
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init()?,
    }
    Ok(())
}

/// The kube library logs every failed request as an error, without its URL. Davit
/// reports these failures itself. A filter that names the library keeps its log.
fn without_kube(filter: &str) -> String {
    if filter.contains("kube_client") || filter.contains("kube_runtime") || filter.trim() == "off" {
        return filter.to_owned();
    }
    let separator = if filter.trim().is_empty() { "" } else { "," };
    format!("{filter}{separator}kube_client::client::builder=off,kube_runtime::watcher=off")
}

/// Whether the output may have colour: it is a terminal, and the environment variable `NO_COLOR` is absent or empty (<https://no-color.org>).
pub(crate) fn has_colour(stream: &impl IsTerminal) -> bool {
    may_colour(
        stream.is_terminal(),
        std::env::var_os("NO_COLOR").as_deref(),
    )
}

fn may_colour(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kube_library_logs_only_if_the_filter_names_it() {
        for (given, expected) in [
            (
                "info",
                "info,kube_client::client::builder=off,kube_runtime::watcher=off",
            ),
            (
                "",
                "kube_client::client::builder=off,kube_runtime::watcher=off",
            ),
            ("off", "off"),
            ("info,kube_client=debug", "info,kube_client=debug"),
        ] {
            assert_eq!(without_kube(given), expected);
            EnvFilter::try_new(without_kube(given)).unwrap();
        }
    }

    #[test]
    fn only_a_terminal_without_no_color_has_colour() {
        for (is_terminal, no_color, expected) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("1"), false),
            (true, Some("0"), false),
            (false, None, false),
            (false, Some("1"), false),
        ] {
            let found = may_colour(is_terminal, no_color.map(OsStr::new));
            assert_eq!(found, expected, "{is_terminal} {no_color:?}");
        }
    }
}
