//! The host's log: on standard error, as text or as one JSON object a line.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use davit_core::untrusted;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text, with colour on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter of the log, which may change while the program runs. Copies share it.
#[derive(Clone, Debug)]
pub struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
    text: Arc<Mutex<String>>,
}

/// Why a filter is refused. The former one stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A part is neither a level nor a level of a part of the program.
    #[error(
        "\"{0}\" is not a filter of the log: use a level (error, warn, info, debug, trace, off), or \
         levels of parts of the program such as info,davit_cluster=debug"
    )]
    Part(String),
    /// The filter is too long.
    #[error("a filter of the log has at most {} bytes", LONGEST_FILTER)]
    Length,
    /// The log does not run any more.
    #[error("the log does not take another filter: {0}")]
    Ended(String),
}

/// The longest filter, in bytes.
pub const LONGEST_FILTER: usize = 1024;

impl LogFilter {
    /// The present filter.
    #[must_use]
    pub fn text(&self) -> String {
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        text.clone()
    }

    /// Replaces the filter. A line of the log names the new one, unless the former one
    /// leaves the line out.
    pub fn replace(&self, text: &str) -> Result<(), FilterError> {
        let (filter, text) = parse(text)?;
        let mut current = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        tracing::warn!(
            former = *current,
            filter = text,
            "the log has another filter"
        );
        let replaced = self.handle.reload(filter);
        replaced.map_err(|error| FilterError::Ended(error.to_string()))?;
        *current = text;
        Ok(())
    }
}

/// A filter that consists of levels, and of levels of parts of the program. The library
/// would take a word that is no level for the name of a part, and turn everything else
/// off.
fn parse(text: &str) -> Result<(EnvFilter, String), FilterError> {
    if text.len() > LONGEST_FILTER {
        return Err(FilterError::Length);
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    for part in &parts {
        let (target, level) = part.rsplit_once('=').unwrap_or(("davit", part));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':');
        let is_target = !target.is_empty() && target.bytes().all(is_name);
        if !is_target || level.parse::<LevelFilter>().is_err() || is_number(level) {
            let part = untrusted::line(part, untrusted::MOST_LOGGED);
            return Err(FilterError::Part(part));
        }
    }
    let text = parts.join(",");
    match EnvFilter::try_new(without_kube(&text)) {
        Ok(filter) => Ok((filter, text)),
        Err(_) => Err(FilterError::Part(text)),
    }
}

/// The library takes numbers for levels as well.
fn is_number(level: &str) -> bool {
    level.bytes().all(|byte| byte.is_ascii_digit())
}

/// Starts the log. `filter` has the form of `RUST_LOG`: `info`,
/// `davit=debug,davit_cluster=trace`.
pub fn start(format: LogFormat, filter: &str) -> Result<LogFilter> {
    let (parsed, text) = match parse(filter) {
        Ok(parsed) => parsed,
        // The variable is every program's: what only others know in it keeps no command from running.
        Err(_) if is_of_environment(filter) => {
            (EnvFilter::new(without_kube(filter)), filter.to_owned())
        }
        Err(error) => return Err(error).context("--log"),
    };
    let (parsed, handle) = reload::Layer::new(parsed);
    let registry = tracing_subscriber::registry().with(parsed);
    let layer = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(has_colour(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => registry.with(layer).try_init()?,
        LogFormat::Json => registry.with(layer.json().flatten_event(true)).try_init()?,
    }
    Ok(LogFilter {
        handle,
        text: Arc::new(Mutex::new(text)),
    })
}

fn is_of_environment(filter: &str) -> bool {
    std::env::var("RUST_LOG").is_ok_and(|variable| variable == filter)
}

/// The kube library logs every failed request as an error, without its URL. Davit
/// reports these failures itself. A filter that names the library keeps its log.
fn without_kube(filter: &str) -> String {
    if filter.contains("kube_client") || filter.trim() == "off" {
        return filter.to_owned();
    }
    let separator = if filter.trim().is_empty() { "" } else { "," };
    format!("{filter}{separator}kube_client::client::builder=off")
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
            ("info", "info,kube_client::client::builder=off"),
            ("", "kube_client::client::builder=off"),
            ("off", "off"),
            ("info,kube_client=debug", "info,kube_client=debug"),
        ] {
            assert_eq!(without_kube(given), expected);
            EnvFilter::try_new(without_kube(given)).unwrap();
        }
    }

    #[test]
    fn a_filter_consists_of_levels() {
        for filter in [
            "info",
            "OFF",
            "info,davit_cluster=debug",
            "warn, davit::driver=trace",
        ] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
        for (filter, named) in [
            ("", ""),
            ("debgu", "debgu"),
            ("info,davit=loud", "davit=loud"),
            ("info,=debug", "=debug"),
            ("info,", ""),
            ("3", "3"),
            ("davit[span{field=x}]=debug", "davit[span{field=x}]=debug"),
            ("a\u{1b}b", "a\\u{1b}b"),
        ] {
            let named = FilterError::Part(named.to_owned());
            assert_eq!(parse(filter).unwrap_err(), named, "{filter}");
        }
        let long = "davit=info,".repeat(100) + "info";
        assert_eq!(parse(&long).unwrap_err(), FilterError::Length);
    }

    #[test]
    fn a_refused_filter_changes_nothing() {
        let (layer, handle) = reload::Layer::<EnvFilter, Registry>::new(EnvFilter::new("info"));
        let text = Arc::new(Mutex::new("info".to_owned()));
        let log = LogFilter { handle, text };
        assert!(log.replace("debgu").is_err());
        assert_eq!(log.text(), "info");
        log.replace("davit=debug").unwrap();
        assert_eq!(log.text(), "davit=debug");
        drop(layer);
        assert!(matches!(log.replace("info"), Err(FilterError::Ended(_))));
        assert_eq!(log.text(), "davit=debug");
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
