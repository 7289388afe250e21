//! The output of commands: tables, ages, JSON and YAML.

use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, Result};
use davit_core::untrusted;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::cli::Format;

/// Prints to standard output. A closed pipe is no error.
pub(crate) fn out(text: &str) -> Result<()> {
    out_to_reader(text).map(|_| ())
}

/// Prints to standard output; returns whether a reader is left.
pub(crate) fn out_to_reader(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("standard output cannot be written"),
    }
}

/// A value in JSON or YAML.
pub(crate) fn serialized(value: &impl Serialize, format: Format) -> Result<String> {
    match format {
        Format::Json => {
            let text = serde_json::to_string_pretty(value);
            Ok(untrusted::json(text.context("cannot be written as JSON")?))
        }
        Format::Yaml => {
            let text = serde_saphyr::to_string(value).context("cannot be written as YAML")?;
            Ok(text.trim_end().to_owned())
        }
    }
}

/// A part of a value; null if absent.
pub(crate) fn part<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    const NOTHING: &Value = &Value::Null;
    value.pointer(pointer).unwrap_or(NOTHING)
}

/// A text in a value; empty if absent.
pub(crate) fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    part(value, pointer).as_str().unwrap_or_default()
}

/// Rows of cells, aligned in columns.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("   ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The age of a time, as kubectl writes ages; the text itself if it is no time.
pub(crate) fn age(since: &str, now: Timestamp) -> String {
    let Ok(since) = since.parse::<Timestamp>() else {
        return since.to_owned();
    };
    let seconds = now.duration_since(since).as_secs().max(0).unsigned_abs();
    span(seconds)
}

/// A span of time in its largest unit, and the next one while the span is short.
pub(crate) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_kubectl_writes_them() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (780, "13m"),
            (7200, "120m"),
            (10_860, "3h1m"),
            (36_000, "10h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }

    #[test]
    fn a_text_that_is_no_time_is_its_own_age() {
        let now = "2026-11-20T10:00:00Z".parse().unwrap();
        assert_eq!(age("2026-11-20T09:47:00.000Z", now), "13m");
        assert_eq!(age("2026-11-20T10:00:05Z", now), "0s", "clocks differ");
        assert_eq!(age("yesterday", now), "yesterday");
    }
}
