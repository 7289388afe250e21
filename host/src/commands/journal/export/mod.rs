//! `davit journal export`: the decisions of a journal as a Parquet file, for data tools.
//! `docs/journal.md` has the columns.

mod file;
mod rows;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use davit_journal::{Part, Query};

use super::{Decoded, DecodedEntries, open, refuse_missing, refused};
use crate::cli::JournalExportArguments;
use crate::commands::print;
use file::DecisionFile;
use rows::DecisionRows;

/// How long after the span an outcome counts that follows its decision, in microseconds: an hour. An
/// execution ends within minutes.
const OUTCOMES_FOLLOW: i64 = 3_600_000_000;

pub(super) fn export(arguments: &JournalExportArguments) -> Result<()> {
    let output = arguments.output.as_path();
    // The file takes the place of what is there: that of a device would be gone.
    if fs::metadata(output).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        bail!("--output {}: it is a device or a pipe", output.display());
    }
    let partial = partial(output);
    let written = write(arguments, &partial);
    if written.is_err() {
        // A file without its end cannot be read.
        let _ = fs::remove_file(&partial);
    }
    let Summary {
        rows,
        damages,
        open,
    } = written?;
    let attempt = || format!("--output {}", output.display());
    fs::rename(&partial, output).with_context(attempt)?;
    let mut text = format!("{}: {rows} rows", output.display());
    if open > 0 {
        let _ = write!(text, ", {open} of them without an outcome");
    }
    print::out(&text)?;
    refuse_missing(damages)
}

/// What was written.
struct Summary {
    rows: u64,
    damages: u64,
    /// The plans that were admitted, and whose end the journal does not have.
    open: u64,
}

fn write(arguments: &JournalExportArguments, path: &Path) -> Result<Summary> {
    let (from, to) = arguments.span.micros();
    let reader = open(&arguments.directory).with_context(refused)?;
    let attempt = || format!("--output {}", path.display());
    let file = File::create(path).with_context(attempt)?;
    let mut file = DecisionFile::new(file).with_context(attempt)?;
    let mut rows = DecisionRows::new(arguments.controller.as_deref());
    let mut damages = 0;
    // What precedes the span has the modes of the controllers, and what follows it the outcomes.
    let query = Query::new(from, to.saturating_add(OUTCOMES_FOLLOW));
    for entry in DecodedEntries::read(&reader, query)? {
        let entry = match entry.with_context(refused)? {
            Decoded::Entry(entry) => *entry,
            Decoded::Damage(damage) => {
                eprintln!("davit: {damage}");
                damages += 1;
                continue;
            }
        };
        // Also if the journal does not have the start of the host that recorded the segment.
        if entry.is_after_gap {
            rows.restart();
        }
        let is_in_span = entry.part == Part::Span && entry.place.time < to;
        rows.take(entry.place.time, is_in_span, entry.record.entry);
        while let Some(row) = rows.next_complete() {
            file.push(row).with_context(attempt)?;
        }
    }
    while let Some(row) = rows.next_left() {
        file.push(row).with_context(attempt)?;
    }
    let open = rows.open_count();
    let rows = file.finish().with_context(attempt)?;
    Ok(Summary {
        rows,
        damages,
        open,
    })
}

/// Where the file is written until it is complete.
fn partial(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}
