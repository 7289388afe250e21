//! `davit journal cat`

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use davit_core::controller::ControllerId;
use davit_core::journal::{Entry, Record, decode};
use davit_core::untrusted;
use davit_journal::{Error, Part, Query, Reader};

use super::json::{self, EntryLine};
use super::{SegmentOrder, open, refuse_missing, refused, text};
use crate::cli::{EntryFormat, JournalCatArguments};
use crate::commands::print;

pub(super) fn cat(arguments: &JournalCatArguments) -> Result<()> {
    let (from, to) = arguments.span.micros();
    let query = match &arguments.uid {
        Some(uid) => Query::new(from, to).about(uid).without_lead_in(),
        // What precedes the span has the names of the controllers.
        None => Query::new(from, to),
    };
    let reader = open(&arguments.directory).with_context(refused)?;
    let (mut names, mut damages) = (Names::new(&reader), 0_u64);
    for entry in reader.entries(&query) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(damage)) => {
                eprintln!("davit: {damage}");
                damages += 1;
                continue;
            }
            Err(error) => return Err(error).with_context(refused),
        };
        let record = decode(&entry.payload).with_context(refused)?;
        names.note(entry.segment, &record.entry);
        let controller = names.controller(&record);
        let is_wanted = match (&arguments.controller, controller) {
            (None, _) => true,
            (Some(wanted), Some(controller)) => wanted == controller,
            (Some(_), None) => false,
        };
        let is_start = matches!(record.entry, Entry::Keyframe { is_start: true });
        let is_in_span = match entry.part {
            Part::Keyframe => is_start && (from..to).contains(&entry.time),
            Part::LeadIn => false,
            Part::Span => true,
        };
        if !is_in_span || !is_wanted {
            continue;
        }
        let line = EntryLine::new(&entry, &record, controller);
        let line = match arguments.output {
            EntryFormat::Json => untrusted::json(serde_json::to_string(&line)?),
            EntryFormat::Text => text::entry(&line, &record.entry),
        };
        if !print::out_to_reader(&line)? {
            return Ok(());
        }
    }
    refuse_missing(damages)
}

/// The names of the controllers.
struct Names {
    order: SegmentOrder,
    names: BTreeMap<ControllerId, String>,
}

impl Names {
    fn new(reader: &Reader) -> Self {
        Self {
            order: SegmentOrder::new(reader),
            names: BTreeMap::new(),
        }
    }

    fn note(&mut self, segment: u64, entry: &Entry) {
        // Another host may record from here on, also if the journal does not have its start.
        if self.order.enter(segment) || matches!(entry, Entry::Keyframe { is_start: true }) {
            self.names.clear();
        }
        match entry {
            Entry::Controller(controller) => {
                if let Some(id) = controller.id {
                    self.names.insert(id, controller.name.clone());
                }
            }
            Entry::Call(call) => {
                let name = call.controller.as_ref().to_owned();
                self.names.insert(call.id.controller, name);
            }
            _ => {}
        }
    }

    /// The controller that an entry is about; none if it is about none, or not known.
    fn controller<'a>(&'a self, record: &'a Record) -> Option<&'a str> {
        let call = match &record.entry {
            Entry::Answer(answer) => answer.call,
            Entry::Failure { call, .. } => *call,
            entry => return json::controller(entry),
        };
        self.names.get(&call.controller).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::journal::testing::{answer, call, journal};

    /// The journal has nothing of the second host's start: its disk was full.
    #[test]
    fn the_controllers_of_one_host_do_not_name_those_of_another_one() {
        let directory = journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::KeyframeEnd),
            (2, call(7, "podgc", "pods", "a")),
            (9, Entry::Keyframe { is_start: false }),
            (9, Entry::KeyframeEnd),
            (10, answer(7, vec![])),
        ]);
        let reader = open(directory.path()).unwrap();
        let mut names = Names::new(&reader);
        let mut named = Vec::new();
        for entry in reader.entries(&Query::new(i64::MIN, i64::MAX)) {
            let entry = entry.unwrap();
            let record = decode(&entry.payload).unwrap();
            names.note(entry.segment, &record.entry);
            named.push(names.controller(&record).map(str::to_owned));
        }
        assert_eq!(named[2].as_deref(), Some("podgc"));
        assert_eq!(named[5], None);
    }
}
