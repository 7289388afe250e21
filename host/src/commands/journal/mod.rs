//! `davit journal`: shows, checks, copies and exports a recorded journal. Reading needs no lock, so it
//! works beside a running host.

mod cat;
mod export;
mod follow;
mod info;
mod json;
#[cfg(test)]
pub(super) mod testing;
mod text;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use davit_journal::{Reader, Verification};
use jiff::Timestamp;

use super::print;
use crate::cli::{JournalCommand, JournalCutArguments, JournalVerifyArguments};

pub(super) use follow::{Follower, SegmentOrder};
pub(super) use json::{command, verdict};
pub(super) use text::{LONGEST, decision};

/// `davit journal`
pub fn journal(command: &JournalCommand) -> Result<()> {
    match command {
        JournalCommand::Info(arguments) => info::info(arguments),
        JournalCommand::Cat(arguments) => cat::cat(arguments),
        JournalCommand::Verify(arguments) => verify(arguments),
        JournalCommand::Cut(arguments) => cut(arguments),
        JournalCommand::Export(arguments) => export::export(arguments),
    }
}

/// Opens a journal for reading; fails if there is none.
pub(super) fn open(directory: &Path) -> Result<Reader> {
    if !directory.exists() {
        bail!("{} does not exist", directory.display());
    }
    let reader = Reader::open(directory)?;
    if reader.segments().is_empty() && reader.unreadable().is_empty() {
        bail!("{} has no segments of a journal", directory.display());
    }
    Ok(reader)
}

fn verify(arguments: &JournalVerifyArguments) -> Result<()> {
    let found = open(&arguments.directory)?.verify()?;
    let mut lines = vec![summary(&found)];
    lines.extend(found.damage.iter().map(ToString::to_string));
    print::out(&lines.join("\n"))?;
    refuse_damage(&found)
}

fn cut(arguments: &JournalCutArguments) -> Result<()> {
    let (from, to) = arguments.span.micros();
    let reader = open(&arguments.directory)?;
    let copied = reader.cut(from, to, &arguments.output)?;
    let output = arguments.output.display();
    if copied.segments == 0 {
        bail!("no segment has entries of this span");
    }
    print::out(&format!("{output}: {}", summary(&copied)))?;
    refuse_damage(&copied).with_context(|| output.to_string())
}

fn summary(found: &Verification) -> String {
    let Verification {
        segments,
        entries,
        bytes,
        tails,
        damages,
        ..
    } = found;
    let mut text =
        format!("{segments} segments, {entries} entries, {bytes} bytes, {damages} damaged parts");
    if *tails > 0 {
        // They are no damage: the host writes on, or was killed.
        let _ = write!(text, ", {tails} bytes of unfinished entries");
    }
    text
}

fn refuse_damage(found: &Verification) -> Result<()> {
    match found.damages {
        0 => Ok(()),
        count => bail!("damaged parts of the journal: {count}"),
    }
}

/// A time in microseconds since the epoch, in RFC 3339.
pub(super) fn time(micros: i64) -> String {
    let time = Timestamp::from_microsecond(micros).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
