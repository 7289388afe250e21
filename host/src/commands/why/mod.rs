//! `davit why`: the decisions about an object, from a journal.

mod book;
mod kinds;
mod lives;
mod queues;
mod requests;
mod saw;
mod story;
#[cfg(test)]
mod tests;
mod text;

use anyhow::{Context as _, Result, bail};
use davit_core::journal::decode;
use davit_core::untrusted;
use davit_journal::{Error, Query, Reader};
use serde::Serialize;

use super::journal::RefusedJournal;
use super::journal::{LONGEST, SegmentOrder, open, time};
use super::print;
use crate::cli::{WhyArguments, WhyFormat};
use crate::http::disagreements::Target;
use book::Book;
pub(super) use lives::ObjectQuery;
use lives::{Life, Lives};
pub(super) use saw::lines_of_key;
use story::ReportedDecision;
pub(super) use text::read_live;

/// `davit why`
pub fn why(arguments: &WhyArguments) -> Result<()> {
    let refused = || RefusedJournal("the journal cannot be read".to_owned());
    let reader = open(&arguments.journal).with_context(refused)?;
    let mut reading = Reading::new(&reader, arguments.span.micros());
    let objects = reading.objects(arguments).with_context(refused)?;
    if objects.is_empty() {
        let absent = reading.absent(arguments);
        // It may be in the part that cannot be read.
        return Err(match reading.damage {
            Some(damage) => RefusedJournal(format!(
                "a part of the journal cannot be read, and the rest does not answer: {damage}; \
                 {absent}"
            ))
            .into(),
            None => anyhow::Error::msg(absent),
        });
    }
    let stories = reading.stories(objects).with_context(refused)?;
    print::out(&match arguments.output {
        WhyFormat::Text => text::text(&stories),
        WhyFormat::Json => {
            untrusted::json(serde_json::to_string_pretty(&WhyPage { objects: stories })?)
        }
    })?;
    match reading.damage {
        Some(damage) => bail!(RefusedJournal(format!(
            "a part of the journal cannot be read: {damage}"
        ))),
        None => Ok(()),
    }
}

/// The answer.
#[derive(Debug, Serialize)]
struct WhyPage {
    objects: Vec<ObjectStory>,
}

/// The decisions about an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectStory {
    object: Target,
    first: String,
    last: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_cache: Option<String>,
    decisions: Vec<ReportedDecision>,
}

/// A journal that is read.
struct Reading<'r> {
    reader: &'r Reader,
    from: i64,
    to: i64,
    /// The first part that cannot be read.
    damage: Option<String>,
    /// The kinds of the objects that the journal has, if it does not know the wanted kind.
    other_kinds: Option<Vec<String>>,
}

impl<'r> Reading<'r> {
    fn new(reader: &'r Reader, (from, to): (i64, i64)) -> Self {
        Self {
            reader,
            from,
            to,
            damage: None,
            other_kinds: None,
        }
    }

    /// The error for an object that the journal does not have: the kinds that it has, or what it
    /// spans.
    fn absent(&self, arguments: &WhyArguments) -> String {
        let WhyArguments { kind, name, .. } = arguments;
        if let Some(others) = &self.other_kinds {
            let others = match untrusted::line(&others.join(", "), LONGEST) {
                none if none.is_empty() => "none".to_owned(),
                others => others,
            };
            return format!(
                "the journal knows no kind {kind} in this span; it has objects of: {others}"
            );
        }
        let segments = self.reader.segments();
        let first = segments.iter().map(|one| one.start).min();
        let last = segments.iter().map(|one| {
            let last = one.times.map_or(one.start, |(_, last)| last);
            last.max(one.start)
        });
        let (first, last) = (first.map(time), last.max().map(time));
        format!(
            "the journal has no {kind} {name} in this span; it spans {} to {}",
            first.unwrap_or_default(),
            last.unwrap_or_default()
        )
    }

    /// The objects that are asked for. With a uid, the index says from when on to read.
    fn objects(&mut self, arguments: &WhyArguments) -> Result<Vec<Life>> {
        let uid = arguments.uid.as_deref();
        if let Some(uid) = uid {
            let about = Query::new(self.from, self.to).about(uid);
            let mut first: Option<i64> = None;
            self.each(&about, |entry| {
                if let Some(entry) = entry {
                    first = Some(first.map_or(entry.time, |first| first.min(entry.time)));
                }
                Ok(())
            })?;
            let Some(first) = first else {
                return Ok(Vec::new());
            };
            self.from = self.from.max(first);
        }
        let wanted = ObjectQuery::new(&arguments.kind, &arguments.name, uid);
        let mut lives = Lives::new(wanted);
        let mut order = SegmentOrder::new(self.reader);
        self.each(&Query::new(self.from, self.to), |entry| {
            if let Some(entry) = entry {
                if order.enter(entry.segment) {
                    lives.restart();
                }
                lives.entry(entry.time, &decode(&entry.payload)?);
            }
            Ok(())
        })?;
        self.other_kinds = lives.other_kinds();
        Ok(lives.into_all())
    }

    fn stories(&mut self, lives: Vec<Life>) -> Result<Vec<ObjectStory>> {
        let mut book = Book::new(self.reader, lives);
        self.each(&Query::new(self.from, self.to), |entry| {
            match entry {
                Some(entry) => book.entry(&entry, decode(&entry.payload)?),
                None => book.lose(),
            }
            Ok(())
        })?;
        Ok(book.end())
    }

    /// Calls with each entry, and with none in place of those that are lost.
    fn each(
        &mut self,
        query: &Query,
        mut take: impl FnMut(Option<davit_journal::Entry>) -> Result<()>,
    ) -> Result<()> {
        for entry in self.reader.entries(query) {
            match entry {
                Ok(entry) => take(Some(entry))?,
                Err(Error::Damage(damage)) => {
                    self.damage.get_or_insert_with(|| damage.to_string());
                    take(None)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
