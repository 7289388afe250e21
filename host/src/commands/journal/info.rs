//! `davit journal info`

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use davit_core::journal::{Entry, RevisionEntry, decode};
use davit_core::untrusted::line;
use davit_journal::{Error, Query, Reader, SegmentInfo, SegmentState};

use super::text::LONGEST;
use super::{json, open, time};
use crate::cli::JournalInfoArguments;
use crate::commands::print;
use crate::journal::SegmentOrigin;

pub(super) fn info(arguments: &JournalInfoArguments) -> Result<()> {
    let reader = open(&arguments.directory)?;
    let contents = Contents::of(&reader)?;
    let mut parts = vec![segments(reader.segments()), contents.controllers()];
    parts.push(contents.kinds());
    let gaps = gaps(reader.segments());
    parts.extend((!gaps.is_empty()).then(|| gaps.join("\n")));
    let damaged = contents.damaged + reader.unreadable().len();
    parts.extend(
        (damaged > 0).then(|| format!("damaged parts: {damaged}. davit journal verify names them")),
    );
    print::out(&parts.join("\n\n"))
}

/// The table of the segments.
fn segments(all: &[SegmentInfo]) -> String {
    let titles = [
        "SEGMENT", "FROM", "TO", "KEYFRAME", "ENTRIES", "BYTES", "STATE", "HOST",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|one| {
        let last = one.times.map_or(one.start, |(_, last)| last.max(one.start));
        let state = match one.state {
            SegmentState::Finished => "finished",
            SegmentState::Unfinished { .. } => "unfinished",
            SegmentState::WithoutKeyframe { .. } => "without keyframe",
        };
        vec![
            one.sequence.to_string(),
            time(one.start),
            time(last),
            one.keyframe.to_string(),
            one.entries.to_string(),
            one.bytes.to_string(),
            state.to_owned(),
            line(&SegmentOrigin::read(&one.metadata).instance, LONGEST),
        ]
    }));
    print::table(&rows)
}

/// Where entries may be missing between two segments.
fn gaps(all: &[SegmentInfo]) -> Vec<String> {
    let pairs = all.iter().zip(all.iter().skip(1));
    let gaps = pairs.filter_map(|(one, next)| {
        let follows = next.sequence == one.sequence + 1;
        if follows && SegmentOrigin::read(&next.metadata).continues {
            return None;
        }
        let last = one.times.map_or(one.start, |(_, last)| last);
        let (from, to) = (time(last), time(next.start));
        Some(format!(
            "gap from {from} to {to}, before segment {}",
            next.sequence
        ))
    });
    gaps.collect()
}

/// What the entries say. Its size does not depend on their number.
#[derive(Default)]
struct Contents {
    kinds: BTreeMap<&'static str, u64>,
    /// The modules of each controller, as `sha256:…`.
    controllers: BTreeMap<String, BTreeSet<String>>,
    damaged: usize,
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
        contents.damaged = contents.damaged.saturating_sub(reader.unreadable().len());
        Ok(contents)
    }

    fn add(&mut self, entry: &Entry) {
        *self.kinds.entry(json::kind(entry)).or_default() += 1;
        if let Entry::Controller(controller) = entry {
            let candidate = controller.candidate.iter().map(|it| &it.revision);
            let revisions = controller.stable.iter().chain(candidate);
            let modules = revisions.map(|it: &RevisionEntry| format!("sha256:{}", it.module));
            let known = self.controllers.entry(line(&controller.name, LONGEST));
            known.or_default().extend(modules);
        }
    }

    fn controllers(&self) -> String {
        let mut rows = vec![vec!["CONTROLLER".to_owned(), "MODULE".to_owned()]];
        for (controller, modules) in &self.controllers {
            let rest = std::iter::repeat("");
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
