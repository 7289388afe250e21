//! `davit journal`: shows, checks, copies and exports a recorded journal. Reading needs no lock, so it
//! works beside a running host.

mod cat;
mod decoded;
mod export;
mod follow;
mod info;
mod json;
pub(super) mod plans;
#[cfg(test)]
pub(super) mod testing;
mod text;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use davit_core::journal::decode;
use davit_journal::{Error, Query, Reader, Verification};
use jiff::Timestamp;

use super::print;
use crate::cli::{JournalCommand, JournalCutArguments, JournalVerifyArguments};

pub(super) use decoded::{Decoded, DecodedEntries};
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
    let reader = open(&arguments.directory)?;
    let found = reader.verify()?;
    let unreadable = unreadable(&reader)?;
    let mut lines = vec![summary(&found)];
    lines.extend(found.damage.iter().map(ToString::to_string));
    lines.extend(unreadable.first.iter().cloned());
    print::out(&lines.join("\n"))?;
    refuse_damage(&found)?;
    match unreadable.count {
        0 => Ok(()),
        count => bail!("entries of the journal that cannot be decoded: {count}"),
    }
}

/// Entries whose bytes are whole, and mean nothing.
#[derive(Debug, Default)]
struct Unreadable {
    count: u64,
    /// The first [`Self::MOST`] of them.
    first: Vec<String>,
}

impl Unreadable {
    const MOST: usize = 1000;
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
                let (segment, at) = (entry.segment, time(entry.time));
                let text = format!("segment {segment}, {at}: {error}");
                unreadable.first.push(text);
            }
        }
    }
    Ok(unreadable)
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

#[cfg(test)]
mod tests {
    use davit_core::journal::Entry;
    use davit_journal::{Settings, Writer};

    use super::*;

    /// Its checksums match: a host wrote it so, or something between lost a part of it.
    #[test]
    fn an_entry_that_cannot_be_decoded_is_found_with_its_segment_and_time() {
        let directory = testing::journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::KeyframeEnd),
        ]);
        assert_eq!(
            unreadable(&open(directory.path()).unwrap()).unwrap().count,
            0
        );
        let mut writer = Writer::open(directory.path(), Settings::default(), 0)
            .unwrap()
            .0;
        writer.start_segment(2_000_000, b"").unwrap();
        writer.end_keyframe().unwrap();
        writer.append(3_000_000, &[], &[1, 0x93, 7]).unwrap();
        writer.close().unwrap();
        let found = unreadable(&open(directory.path()).unwrap()).unwrap();
        assert_eq!(found.count, 1);
        let place = "segment 2, 1970-01-01T00:00:03.000Z: an entry of the journal is damaged";
        assert!(found.first[0].starts_with(place), "{found:?}");
    }
}
