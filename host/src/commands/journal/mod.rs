//! `davit journal`: shows, checks, copies and exports a recorded journal. Reading needs no lock, so it
//! works beside a running host.

mod cat;
mod cut;
mod decoded;
mod export;
mod follow;
mod info;
mod json;
pub(super) mod plans;
mod reads;
#[cfg(test)]
pub(super) mod testing;
mod text;

use std::fmt::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use davit_core::journal::decode;
use davit_core::untrusted;
use davit_journal::{Error, Query, Reader, Verification};
use jiff::Timestamp;
use serde::Serialize;

use super::print;
use crate::cli::{EntryFormat, JournalCommand, JournalVerifyArguments};

pub(super) use decoded::{Decoded, DecodedEntries};
pub(super) use follow::{Follower, SegmentOrder};
pub(super) use json::{command, verdict};
pub(super) use reads::{LONGEST_FIELDS, ReportedRead, reported_reads, request};
pub(super) use text::{LONGEST, decision};

/// Why a journal was not read, replayed or explained, or not all of it. The program exits with
/// another code than after a difference.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedJournal(pub(super) String);

/// `davit journal`
pub fn journal(command: &JournalCommand) -> Result<()> {
    match command {
        JournalCommand::Info(arguments) => info::info(arguments),
        JournalCommand::Cat(arguments) => cat::cat(arguments),
        JournalCommand::Verify(arguments) => verify(arguments),
        JournalCommand::Cut(arguments) => cut::cut(arguments),
        JournalCommand::Export(arguments) => export::export(arguments),
    }
}

/// The error of a journal that cannot be read, or not all of it.
fn refused() -> RefusedJournal {
    RefusedJournal("the journal cannot be read".to_owned())
}

/// Why nothing of a journal is about the controller with this name: the journal has only others.
pub(super) fn unknown_controller<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let known = match untrusted::line(&known, LONGEST) {
        none if none.is_empty() => "none".to_owned(),
        known => known,
    };
    let wanted = untrusted::line(wanted, LONGEST);
    format!("the journal has no controller {wanted} in this span, only: {known}")
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

/// Damage that it finds is no error of reading: it exits 1.
fn verify(arguments: &JournalVerifyArguments) -> Result<()> {
    let reader = open(&arguments.directory).with_context(refused)?;
    let found = reader.verify().with_context(refused)?;
    let unreadable = unreadable(&reader).with_context(refused)?;
    let lines = match arguments.output {
        EntryFormat::Text => found_as_text(&found, &unreadable),
        EntryFormat::Json => found_as_json(&reader, &found, &unreadable)?,
    };
    print::out(&lines.join("\n"))?;
    refuse_damage(&found)?;
    match unreadable.count {
        0 => Ok(()),
        count => bail!("entries of the journal that cannot be decoded: {count}"),
    }
}

fn found_as_text(found: &Verification, unreadable: &Unreadable) -> Vec<String> {
    let mut lines = vec![summary(found)];
    lines.extend(found.damage.iter().map(ToString::to_string));
    lines.extend(unreadable.first.iter().map(ToString::to_string));
    lines
}

/// The segments, what is wrong in them, and the numbers of all of it.
fn found_as_json(
    reader: &Reader,
    found: &Verification,
    unreadable: &Unreadable,
) -> Result<Vec<String>> {
    let mut lines = info::segments(reader.segments())?;
    for damage in &found.damage {
        let mut segments = reader.segments().iter();
        let segment = segments.find(|one| one.path == damage.path);
        lines.push(json_line(&DamageLine {
            kind: "damage",
            segment: segment.map(|one| one.sequence),
            path: damage.path.display().to_string(),
            offset: damage.offset,
            cause: damage.cause.to_string(),
        })?);
    }
    for entry in &unreadable.first {
        lines.push(json_line(entry)?);
    }
    lines.push(json_line(&TotalLine {
        kind: "total",
        found: found.into(),
        undecodable_entries: unreadable.count,
    })?);
    Ok(lines)
}

/// A value in a line of JSON.
fn json_line(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value).context("cannot be written as JSON")?;
    Ok(untrusted::json(text))
}

/// A damaged part.
#[derive(Debug, Serialize)]
struct DamageLine {
    kind: &'static str,
    /// None if the segment's header is damaged.
    segment: Option<u64>,
    path: String,
    offset: u64,
    cause: String,
}

/// What all segments have.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TotalLine {
    kind: &'static str,
    #[serde(flatten)]
    found: Quantities,
    undecodable_entries: u64,
}

/// The numbers of a [`Verification`].
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Quantities {
    segments: u64,
    entries: u64,
    bytes: u64,
    unfinished_bytes: u64,
    damaged_parts: u64,
}

impl From<&Verification> for Quantities {
    fn from(found: &Verification) -> Self {
        Self {
            segments: found.segments,
            entries: found.entries,
            bytes: found.bytes,
            unfinished_bytes: found.tails,
            damaged_parts: found.damages,
        }
    }
}

/// Entries whose bytes are whole, and mean nothing.
#[derive(Debug, Default)]
struct Unreadable {
    count: u64,
    /// The first [`Self::MOST`] of them.
    first: Vec<UndecodableEntry>,
}

impl Unreadable {
    const MOST: usize = 1000;
}

/// An entry that cannot be decoded.
#[derive(Debug, Serialize)]
struct UndecodableEntry {
    kind: &'static str,
    segment: u64,
    time: String,
    cause: String,
}

impl fmt::Display for UndecodableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "segment {}, {}: {}", self.segment, self.time, self.cause)
    }
}

/// Decodes each entry. Damage is not reported again.
fn unreadable(reader: &Reader) -> Result<Unreadable> {
    let mut unreadable = Unreadable::default();
    for entry in reader.entries(&Query::new(i64::MIN, i64::MAX)) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Err(error) = decode(&entry.payload) {
            unreadable.count += 1;
            if unreadable.first.len() < Unreadable::MOST {
                unreadable.first.push(UndecodableEntry {
                    kind: "undecodable",
                    segment: entry.segment,
                    time: time(entry.time),
                    cause: error.to_string(),
                });
            }
        }
    }
    Ok(unreadable)
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

/// Fails if a command has left out damaged parts.
fn refuse_missing(damages: u64) -> Result<()> {
    match damages {
        0 => Ok(()),
        count => bail!(RefusedJournal(format!(
            "damaged parts of the journal, whose entries are missing: {count}"
        ))),
    }
}

/// A time in microseconds since the epoch, in RFC 3339.
pub(super) fn time(micros: i64) -> String {
    let time = Timestamp::from_microsecond(micros).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use davit_core::journal::Entry;
    use davit_journal::{Settings, Writer};
    use serde_json::Value;
    use tempfile::TempDir;

    use super::*;
    use crate::cli::{Arguments, Command};

    /// Its checksums match: a host wrote it so, or something between lost a part of it.
    #[test]
    fn an_entry_that_cannot_be_decoded_is_found_with_its_segment_and_time() {
        let directory = undecodable();
        let found = unreadable(&open(directory.path()).unwrap()).unwrap();
        assert_eq!(found.count, 1);
        let place = "segment 2, 1970-01-01T00:00:03.000Z: an entry of the journal is damaged";
        let first = found.first[0].to_string();
        assert!(first.starts_with(place), "{first}");
    }

    /// A journal with a segment whose last entry cannot be decoded, and one without damage.
    fn undecodable() -> TempDir {
        let directory = testing::journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::KeyframeEnd),
        ]);
        let mut writer = Writer::open(directory.path(), Settings::default(), 0)
            .unwrap()
            .0;
        writer.start_segment(2_000_000, b"").unwrap();
        writer.end_keyframe().unwrap();
        writer.append(3_000_000, &[], &[1, 0x93, 7]).unwrap();
        writer.close().unwrap();
        directory
    }

    /// The command that is parsed from these arguments behind `davit journal`.
    fn run(arguments: &[&str]) -> Result<()> {
        let all = ["davit", "journal"].iter().chain(arguments);
        let parsed = Arguments::try_parse_from(all).unwrap().command;
        let Command::Journal(tool) = parsed else {
            panic!("davit journal");
        };
        journal(&tool.command)
    }

    fn values(lines: &[String]) -> Vec<Value> {
        let values = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        values.collect()
    }

    #[test]
    fn what_is_wrong_with_a_journal_is_a_line_of_json_each() {
        let directory = undecodable();
        let reader = open(directory.path()).unwrap();
        // The last byte of the first segment's keyframe.
        let path = &reader.segments()[0].path;
        let mut bytes = std::fs::read(path).unwrap();
        let chunk = bytes.windows(4).position(|part| part == b"DJck").unwrap();
        bytes[chunk + 44] ^= 1;
        std::fs::write(path, bytes).unwrap();
        let reader = open(directory.path()).unwrap();
        let (found, unreadable) = (reader.verify().unwrap(), unreadable(&reader).unwrap());
        let lines = values(&found_as_json(&reader, &found, &unreadable).unwrap());

        let kinds: Vec<&Value> = lines.iter().map(|line| &line["kind"]).collect();
        let expected = ["segment", "segment", "damage", "undecodable", "total"];
        assert_eq!(kinds, expected, "{lines:#?}");
        assert_eq!(lines[1]["from"], "1970-01-01T00:00:02.000Z");
        let damage = &lines[2];
        assert_eq!(damage["segment"], 1);
        assert_eq!(damage["offset"], chunk);
        assert_eq!(
            damage["cause"],
            "the checksum of the chunk's data does not match"
        );
        assert!(damage["path"].as_str().unwrap().ends_with(".journal"));
        assert_eq!(lines[3]["segment"], 2);
        assert_eq!(lines[3]["time"], "1970-01-01T00:00:03.000Z");
        let total = &lines[4];
        assert_eq!(total["segments"], 2);
        assert_eq!(total["damagedParts"], found.damages);
        assert_eq!(total["undecodableEntries"], 1);
        assert_eq!(total["unfinishedBytes"], 0);

        // The exit code is the same in both formats.
        let path = directory.path().to_str().unwrap();
        for format in ["text", "json"] {
            let error = run(&["verify", path, "--output", format]).unwrap_err();
            assert!(!error.is::<RefusedJournal>(), "it exits 1: {error}");
            let error = error.to_string();
            assert!(
                error.starts_with("damaged parts of the journal: "),
                "{error}"
            );
        }
    }

    /// It exits 2, as of the commands that replay and explain it.
    #[test]
    fn a_journal_that_cannot_be_read_is_refused_by_each_command() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("output");
        let output = output.to_str().unwrap();
        let export = ["--decisions", "--output", output];
        let commands = |path| {
            [
                vec!["info", path],
                vec!["cat", path],
                vec!["verify", path],
                vec!["cut", path, "--output", output],
                [&["export", path], &export[..]].concat(),
            ]
        };
        let none = directory.path().join("none");
        for command in commands(none.to_str().unwrap()) {
            let error = run(&command).unwrap_err();
            assert!(error.is::<RefusedJournal>(), "{command:?}: {error:#}");
        }
        // The entry of another one cannot be decoded, which verify finds.
        let undecodable = undecodable();
        let path = undecodable.path().to_str().unwrap();
        for command in commands(path) {
            let refused = ["info", "cat", "export"].contains(&command[0]);
            let error = run(&command).err();
            let error = error.as_ref();
            let is_refused = error.is_some_and(anyhow::Error::is::<RefusedJournal>);
            assert_eq!(is_refused, refused, "{command:?}: {error:?}");
        }
    }

    #[test]
    fn a_journal_without_damage_is_verified_as_json() {
        let directory = testing::journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::KeyframeEnd),
        ]);
        let path = directory.path().to_str().unwrap();
        run(&["verify", path, "-o", "json"]).unwrap();
        run(&["info", path, "-o", "json"]).unwrap();
    }
}
