//! The table of figures, for people and for programs.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::figure::Figure;

const NAME: usize = 66;

/// The figures of one subject.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) subject: String,
    pub(crate) figures: Vec<Figure>,
    /// Why figures are missing, if some are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failure: Option<String>,
}

pub(crate) fn print_header() {
    println!(
        "{:<NAME$} {:>10} {:<6} {:>8} {:>6} {:>5}",
        "figure", "value", "unit", "aim", "ratio", "aim"
    );
}

/// Prints one line.
pub(crate) fn print(figure: &Figure) {
    let most = figure.yardstick.as_ref().and_then(|one| one.aim);
    let aim = figure.aim.map(short).unwrap_or_default();
    let ratio = figure.ratio().map(|ratio| format!("{ratio:.2}"));
    let most = most.map(|most| format!("{most:.2}"));
    let verdict = match figure.holds() {
        Some(true) => "ok",
        Some(false) => "OVER",
        None => "",
    };
    let name = match &figure.at {
        Some(at) => format!("{}, {} {}", figure.name, at.value, at.unit),
        None => figure.name.clone(),
    };
    let line = format!(
        "{name:<NAME$} {:>10} {:<6} {aim:>8} {:>6} {:>5} {verdict}",
        short(figure.value),
        figure.unit,
        ratio.unwrap_or_default(),
        most.unwrap_or_default(),
    );
    println!("{}", line.trim_end());
    if let Some(yardstick) = &figure.yardstick {
        let name = format!("    of {}", yardstick.name);
        println!(
            "{name:<NAME$} {:>10} {}",
            short(yardstick.value),
            figure.unit
        );
    }
}

/// Writes all figures.
pub(crate) fn write(path: &Path, sections: &[Section]) -> Result<()> {
    let text = serde_json::to_string_pretty(sections)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

/// Three digits that count.
fn short(value: f64) -> String {
    let places = match value.abs() {
        0.0 => 0,
        below if below < 0.1 => 4,
        below if below < 1.0 => 3,
        below if below < 10.0 => 2,
        below if below < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.places$}")
}
