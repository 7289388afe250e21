//! `davit journal cat`

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};
use davit_core::controller::ControllerId;
use davit_core::journal::{Entry, Record, decode};
use davit_core::untrusted;
use davit_journal::{Error, Part, Query, Reader};

use super::json::{self, EntryLine};
use super::{
    RefusedJournal, SegmentOrder, open, refuse_missing, refused, text, unknown_controller,
};
use crate::cli::{EntryFormat, JournalCatArguments};
use crate::commands::print;

pub(super) fn cat(arguments: &JournalCatArguments) -> Result<()> {
    let reader = open(&arguments.directory).with_context(refused)?;
    let damages = each(&reader, arguments, |entry| {
        let line = EntryLine::new(entry.entry, entry.record, entry.controller);
        let line = match arguments.output {
            EntryFormat::Json => untrusted::json(serde_json::to_string(&line)?),
            EntryFormat::Text => text::entry(&line, &entry.record.entry),
        };
        print::out_to_reader(&line)
    })?;
    damages.map_or(Ok(()), refuse_missing)
}

/// An entry that was asked for.
#[derive(Clone, Copy, Debug)]
struct WantedEntry<'a> {
    entry: &'a davit_journal::Entry,
    record: &'a Record,
    /// The controller that it is about; none if it is about none, or not known.
    controller: Option<&'a str>,
}

/// The entries that can be wanted. An answer has the number of its controller: what precedes it,
/// and is about no object, has the name.
fn query(arguments: &JournalCatArguments) -> Query {
    let (from, to) = arguments.span.micros();
    match (&arguments.uid, &arguments.controller) {
        (Some(uid), None) => Query::new(from, to).about(uid).without_lead_in(),
        _ => Query::new(from, to),
    }
}

/// Passes each wanted entry, while there is somebody to read it. Returns the number of parts that
/// cannot be read; none if nobody reads any more.
fn each(
    reader: &Reader,
    arguments: &JournalCatArguments,
    mut pass: impl FnMut(WantedEntry<'_>) -> Result<bool>,
) -> Result<Option<u64>> {
    let (from, to) = arguments.span.micros();
    let (mut names, mut damages) = (Names::new(reader), 0_u64);
    let mut known = BTreeSet::new();
    for entry in reader.entries(&query(arguments)) {
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
        if let Some(controller) = controller.filter(|name| !known.contains(*name)) {
            known.insert(controller.to_owned());
        }
        let wanted = arguments.controller.as_deref();
        let is_of_it = wanted.is_none_or(|wanted| controller == Some(wanted));
        let uid = arguments.uid.as_ref();
        let is_about = uid.is_none_or(|uid| entry.objects.contains(uid));
        let is_start = matches!(record.entry, Entry::Keyframe { is_start: true });
        let is_in_span = match entry.part {
            Part::Keyframe => is_start && (from..to).contains(&entry.time),
            Part::LeadIn => false,
            Part::Span => true,
        };
        let wanted = WantedEntry {
            entry: &entry,
            record: &record,
            controller,
        };
        if is_in_span && is_of_it && is_about && !pass(wanted)? {
            return Ok(None);
        }
    }
    if let Some(wanted) = &arguments.controller
        && !known.contains(wanted)
    {
        let known = known.iter().map(String::as_str);
        bail!(RefusedJournal(unknown_controller(wanted, known)));
    }
    Ok(Some(damages))
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
    use clap::Parser as _;
    use davit_core::gate::Ruling;

    use super::*;
    use crate::cli::{Arguments, Command, JournalCommand};
    use crate::commands::journal::testing::{answer, call, deletion, journal, pod, ruling};

    /// The kinds of the entries that these options choose, each with its controller.
    fn chosen(directory: &tempfile::TempDir, options: &[&str]) -> Vec<(String, Option<String>)> {
        try_choose(directory, options).unwrap()
    }

    fn try_choose(
        directory: &tempfile::TempDir,
        options: &[&str],
    ) -> Result<Vec<(String, Option<String>)>> {
        let path = directory.path().to_str().unwrap();
        let first = ["davit", "journal", "cat", path];
        let command = Arguments::try_parse_from(first.iter().chain(options));
        let Command::Journal(tool) = command.unwrap().command else {
            panic!("a command that reads a journal");
        };
        let JournalCommand::Cat(arguments) = tool.command else {
            panic!("the entries of a journal");
        };
        let reader = open(directory.path()).unwrap();
        let mut chosen = Vec::new();
        each(&reader, &arguments, |wanted| {
            let kind = format!("{:?}", wanted.record.entry);
            let kind = kind.split(['(', ' ']).next().unwrap().to_owned();
            chosen.push((kind, wanted.controller.map(str::to_owned)));
            Ok(true)
        })?;
        Ok(chosen)
    }

    /// An answer has the number of its controller, and the entry with the name is about no object.
    #[test]
    fn the_decisions_of_one_controller_about_an_object_are_found() {
        let (one, other) = (pod("a", "a"), pod("b", "b"));
        let directory = journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::KeyframeEnd),
            (2, call(7, "podgc", "pods", "default/a")),
            (3, answer(7, vec![deletion(&one)])),
            (3, ruling(7, &one, Ruling::Admit)),
            (4, call(8, "podgc", "pods", "default/b")),
            (5, answer(8, vec![deletion(&other)])),
        ]);
        let of = |options: &[&str]| chosen(&directory, options);
        let named = |kind: &str| (kind.to_owned(), Some("podgc".to_owned()));
        let both = of(&["--uid", "a", "--controller", "podgc"]);
        assert_eq!(both, [named("Answer"), named("Ruling")]);
        assert_eq!(of(&["--uid", "c", "--controller", "podgc"]), []);
        let from = "1970-01-01T00:00:03Z";
        let span = of(&["--uid", "a", "--controller", "podgc", "--from", from]);
        assert_eq!(span, both, "the name precedes the span");
        let kinds: Vec<String> = of(&["--uid", "a"]).into_iter().map(|it| it.0).collect();
        assert_eq!(kinds, ["Answer", "Ruling"]);
    }

    #[test]
    fn a_controller_that_the_journal_does_not_have_is_refused() {
        let directory = journal([
            (1, Entry::Keyframe { is_start: true }),
            (1, Entry::KeyframeEnd),
            (2, call(7, "podgc", "pods", "default/a")),
        ]);
        let error = try_choose(&directory, &["--controller", "podcg"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the journal has no controller podcg in this span, only: podgc"
        );
    }

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
