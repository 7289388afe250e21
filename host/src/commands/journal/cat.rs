//! `davit journal cat`

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use davit_core::controller::ControllerId;
use davit_core::journal::{Entry, Record, decode};
use davit_journal::{Error, Part, Query};

use super::json::{self, EntryLine};
use super::{open, text};
use crate::cli::{EntryFormat, JournalCatArguments};
use crate::commands::print;

pub(super) fn cat(arguments: &JournalCatArguments) -> Result<()> {
    let (from, to) = arguments.span.micros();
    let query = match &arguments.uid {
        Some(uid) => Query::new(from, to).about(uid).without_lead_in(),
        // What precedes the span has the names of the controllers.
        None => Query::new(from, to),
    };
    let reader = open(&arguments.directory)?;
    let (mut names, mut damages) = (Names::default(), 0_u64);
    for entry in reader.entries(&query) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Error::Damage(damage)) => {
                eprintln!("davit: {damage}");
                damages += 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let record = decode(&entry.payload)?;
        names.note(&record.entry);
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
            EntryFormat::Json => serde_json::to_string(&line)?,
            EntryFormat::Text => text::entry(&line, &record.entry),
        };
        if !print::out_to_reader(&line)? {
            return Ok(());
        }
    }
    match damages {
        0 => Ok(()),
        count => bail!("damaged parts of the journal, whose entries are missing: {count}"),
    }
}

/// The names of the controllers.
#[derive(Default)]
struct Names(BTreeMap<ControllerId, String>);

impl Names {
    fn note(&mut self, entry: &Entry) {
        match entry {
            Entry::Keyframe { is_start: true } => self.0.clear(),
            Entry::Controller(controller) => {
                if let Some(id) = controller.id {
                    self.0.insert(id, controller.name.clone());
                }
            }
            Entry::Call(call) => {
                let name = call.controller.as_ref().to_owned();
                self.0.insert(call.id.controller, name);
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
        self.0.get(&call.controller).map(String::as_str)
    }
}
