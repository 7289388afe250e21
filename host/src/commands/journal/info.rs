//! `davit journal info`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, Result};
use davit_core::digest::ModuleDigest;
use davit_core::journal::{ControllerEntry, Entry, RevisionEntry, decode};
use davit_core::untrusted::line;
use davit_journal::{Error, Query, Reader, SegmentInfo, SegmentState};
use serde::Serialize;

use super::text::LONGEST;
use super::{json, json_line, open, refused, time};
use crate::cli::{EntryFormat, JournalInfoArguments};
use crate::commands::print;
use crate::journal::SegmentOrigin;

pub(super) fn info(arguments: &JournalInfoArguments) -> Result<()> {
    let reader = open(&arguments.directory).with_context(refused)?;
    let contents = Contents::of(&reader).with_context(refused)?;
    let text = match arguments.output {
        EntryFormat::Text => text(&reader, &contents),
        EntryFormat::Json => lines(&reader, &contents)?.join("\n"),
    };
    print::out(&text)
}

fn text(reader: &Reader, contents: &Contents) -> String {
    let mut parts = vec![table(reader.segments()), contents.controllers()];
    parts.push(contents.kinds());
    let gaps = gaps(reader.segments());
    let gaps: Vec<String> = gaps.iter().map(ToString::to_string).collect();
    parts.extend((!gaps.is_empty()).then(|| gaps.join("\n")));
    let damaged = contents.damaged;
    parts.extend(
        (damaged > 0).then(|| format!("damaged parts: {damaged}. davit journal verify names them")),
    );
    parts.join("\n\n")
}

/// A line for each segment, and one for all of them.
fn lines(reader: &Reader, contents: &Contents) -> Result<Vec<String>> {
    let mut lines = segments(reader.segments())?;
    lines.push(json_line(&Total {
        kind: "total",
        segments: reader.segments().len(),
        controllers: &contents.controllers,
        entries_by_kind: &contents.kinds,
        gaps: gaps(reader.segments()),
        damaged_parts: contents.damaged,
    })?);
    Ok(lines)
}

/// A line for each segment.
pub(super) fn segments(all: &[SegmentInfo]) -> Result<Vec<String>> {
    let lines = all.iter().map(|one| json_line(&SegmentLine::new(one)));
    lines.collect()
}

/// A segment, as its headers and its index describe it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SegmentLine {
    kind: &'static str,
    segment: u64,
    from: String,
    to: String,
    keyframe_entries: u64,
    entries: u64,
    bytes: u64,
    state: &'static str,
    host: String,
}

impl SegmentLine {
    fn new(info: &SegmentInfo) -> Self {
        let last = info.times.map_or(info.start, |(_, last)| last);
        Self {
            kind: "segment",
            segment: info.sequence,
            from: time(info.start),
            to: time(last.max(info.start)),
            keyframe_entries: info.keyframe,
            entries: info.entries,
            bytes: info.bytes,
            state: match info.state {
                SegmentState::Finished => "finished",
                SegmentState::Unfinished { .. } => "unfinished",
                SegmentState::WithoutKeyframe { .. } => "without-keyframe",
            },
            host: SegmentOrigin::read(&info.metadata).instance,
        }
    }

    fn row(self) -> Vec<String> {
        vec![
            self.segment.to_string(),
            self.from,
            self.to,
            self.keyframe_entries.to_string(),
            self.entries.to_string(),
            self.bytes.to_string(),
            self.state.replace('-', " "),
            line(&self.host, LONGEST),
        ]
    }
}

/// What all segments have.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Total<'a> {
    kind: &'static str,
    segments: usize,
    controllers: &'a BTreeMap<String, BTreeSet<String>>,
    entries_by_kind: &'a BTreeMap<&'static str, u64>,
    gaps: Vec<Gap>,
    damaged_parts: u64,
}

/// The table of the segments.
fn table(all: &[SegmentInfo]) -> String {
    let titles = [
        "SEGMENT", "FROM", "TO", "KEYFRAME", "ENTRIES", "BYTES", "STATE", "HOST",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|one| SegmentLine::new(one).row()));
    print::table(&rows)
}

/// A time of which entries may be missing.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Gap {
    from: String,
    to: String,
    before_segment: u64,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            from,
            to,
            before_segment,
        } = self;
        write!(
            f,
            "gap from {from} to {to}, before segment {before_segment}"
        )
    }
}

/// Where entries may be missing between two segments.
fn gaps(all: &[SegmentInfo]) -> Vec<Gap> {
    let pairs = all.iter().zip(all.iter().skip(1));
    let gaps = pairs.filter_map(|(one, next)| {
        let follows = next.sequence == one.sequence + 1;
        if follows && SegmentOrigin::read(&next.metadata).continues {
            return None;
        }
        let last = one.times.map_or(one.start, |(_, last)| last);
        Some(Gap {
            from: time(last),
            to: time(next.start),
            before_segment: next.sequence,
        })
    });
    gaps.collect()
}

/// The modules that the entries name, as far as they can be read.
pub(super) fn modules(reader: &Reader) -> Result<BTreeSet<ModuleDigest>> {
    let mut modules = BTreeSet::new();
    for entry in reader.entries(&Query::new(i64::MIN, i64::MAX)) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(_)) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Ok(record) = decode(&entry.payload)
            && let Entry::Controller(controller) = &record.entry
        {
            modules.extend(revisions(controller).map(|revision| revision.module));
        }
    }
    Ok(modules)
}

fn revisions(controller: &ControllerEntry) -> impl Iterator<Item = &RevisionEntry> {
    let candidate = controller.candidate.iter().map(|it| &it.revision);
    controller.stable.iter().chain(candidate)
}

/// What the entries say. Its size does not depend on their number.
#[derive(Default)]
struct Contents {
    kinds: BTreeMap<&'static str, u64>,
    /// The modules of each controller, as `sha256:…`.
    controllers: BTreeMap<String, BTreeSet<String>>,
    /// The damaged parts, those segments included of which nothing can be read.
    damaged: u64,
}

impl Contents {
    fn of(reader: &Reader) -> Result<Self> {
        let mut contents = Self::default();
        for entry in reader.entries(&Query::new(i64::MIN, i64::MAX)) {
            match entry {
                Ok(entry) => contents.add(&decode(&entry.payload)?.entry),
                Err(Error::Damage(_)) => contents.damaged += 1,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(contents)
    }

    fn add(&mut self, entry: &Entry) {
        *self.kinds.entry(json::kind(entry)).or_default() += 1;
        if let Entry::Controller(controller) = entry {
            let modules = revisions(controller).map(|it| format!("sha256:{}", it.module));
            let known = self.controllers.entry(controller.name.clone());
            known.or_default().extend(modules);
        }
    }

    fn controllers(&self) -> String {
        let mut rows = vec![vec!["CONTROLLER".to_owned(), "MODULE".to_owned()]];
        for (controller, modules) in &self.controllers {
            let rest = std::iter::repeat("");
            let controller = line(controller, LONGEST);
            let names = std::iter::once(controller.as_str()).chain(rest);
            let each = names.zip(modules);
            rows.extend(each.map(|(name, module)| vec![name.to_owned(), module.clone()]));
        }
        print::table(&rows)
    }

    fn kinds(&self) -> String {
        let mut rows = vec![vec!["KIND".to_owned(), "ENTRIES".to_owned()]];
        let kinds = self.kinds.iter();
        rows.extend(kinds.map(|(kind, count)| vec![(*kind).to_owned(), count.to_string()]));
        print::table(&rows)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use davit_journal::{Settings, Writer};
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::commands::journal::testing::{call, journal, podgc};

    /// Two hosts record: the first one one segment, the second one two, which are not finished.
    fn recorded() -> TempDir {
        let directory = journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::Controller(Arc::new(podgc(BTreeMap::new())))),
            (1, Entry::KeyframeEnd),
            (4, call(1, "podgc", "pods", "a")),
        ]);
        let opened = Writer::open(directory.path(), Settings::default(), 0);
        let (mut writer, _) = opened.unwrap();
        for (seconds, origin) in [
            (7, r#"{"instance":"second"}"#),
            (8, r#"{"instance":"second","continues":true}"#),
        ] {
            let metadata = origin.as_bytes();
            writer.start_segment(seconds * 1_000_000, metadata).unwrap();
            writer.end_keyframe().unwrap();
        }
        drop(writer);
        directory
    }

    #[test]
    fn a_line_of_json_has_what_the_text_shows_of_a_segment_and_the_last_one_the_rest() {
        let directory = recorded();
        let reader = open(directory.path()).unwrap();
        let contents = Contents::of(&reader).unwrap();
        let lines = lines(&reader, &contents).unwrap();
        let lines = lines.iter().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        let expected = json!({
            "kind": "segment",
            "segment": 1,
            "from": "1970-01-01T00:00:01.000Z",
            "to": "1970-01-01T00:00:04.000Z",
            "keyframeEntries": 3,
            "entries": 1,
            "bytes": reader.segments()[0].bytes,
            "state": "finished",
            "host": "",
        });
        assert_eq!(lines[0], expected);
        assert_eq!(lines[2]["host"], "second");
        assert_eq!(lines[2]["state"], "unfinished");
        let expected = json!({
            "kind": "total",
            "segments": 3,
            "controllers": {"podgc": [format!("sha256:{}", ModuleDigest::of(b""))]},
            "entriesByKind": {"call": 1, "controller": 1, "keyframe": 1, "keyframe-end": 1},
            "gaps": [{
                "from": "1970-01-01T00:00:04.000Z",
                "to": "1970-01-01T00:00:07.000Z",
                "beforeSegment": 2,
            }],
            "damagedParts": 0,
        });
        assert_eq!(lines[3], expected);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn the_text_has_the_segments_the_controllers_the_kinds_and_the_gaps() {
        let directory = recorded();
        let reader = open(directory.path()).unwrap();
        let text = text(&reader, &Contents::of(&reader).unwrap());
        let module = format!("podgc        sha256:{}", ModuleDigest::of(b""));
        for part in [
            "1         1970-01-01T00:00:01.000Z   1970-01-01T00:00:04.000Z   3 ",
            "finished",
            "second",
            &module,
            "keyframe-end   1",
            "gap from 1970-01-01T00:00:04.000Z to 1970-01-01T00:00:07.000Z, before segment 2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("damaged"), "{text}");
    }
}
