//! `davit why`: the decisions about an object, from a journal.

mod lives;
mod saw;
mod story;
mod text;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use davit_core::circuit::CallFailure;
use davit_core::controller::{CallId, ControllerId, DecisionId};
use davit_core::journal::{
    AnswerEntry, CallEntry, Entry, Record, RecordedCall, ReplayOutcome, RevisionEntry, decode,
};
use davit_core::object::ObjectRef;
use davit_core::plan::{Decision, Step};
use davit_journal::{Error, Part, Query, Reader};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::journal::{Follower, command, open, time, verdict};
use super::print;
use super::replay::RefusedReplay;
use crate::cli::{WhyArguments, WhyFormat};
use crate::http::disagreements::{Target, step};
pub(super) use lives::ObjectQuery;
use lives::{Life, Lives};
use story::{Content, Item, ReportedDecision, ReportedPlan, Revision, Saw, Story, at, millis};

/// `davit why`
pub fn why(arguments: &WhyArguments) -> Result<()> {
    let refused = || RefusedReplay("the journal cannot be read".to_owned());
    let reader = open(&arguments.journal).with_context(refused)?;
    let mut reading = Reading::new(&reader, arguments.span.micros());
    let objects = reading.objects(arguments).with_context(refused)?;
    if objects.is_empty() {
        let absent = absent(arguments, &reader);
        // It may be in the part that cannot be read.
        return Err(match reading.damage {
            Some(damage) => RefusedReplay(format!(
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
        WhyFormat::Json => serde_json::to_string_pretty(&WhyPage { objects: stories })?,
    })?;
    match reading.damage {
        Some(damage) => bail!(RefusedReplay(format!(
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

/// The error for an object that the journal does not have: what the journal spans.
fn absent(arguments: &WhyArguments, reader: &Reader) -> String {
    let segments = reader.segments();
    let first = segments.iter().map(|one| one.start).min();
    let last = segments.iter().map(|one| {
        let last = one.times.map_or(one.start, |(_, last)| last);
        last.max(one.start)
    });
    let (first, last) = (first.map(time), last.max().map(time));
    format!(
        "the journal has no {} {} in this span; it spans {} to {}",
        arguments.kind,
        arguments.name,
        first.unwrap_or_default(),
        last.unwrap_or_default()
    )
}

/// A journal that is read.
struct Reading<'r> {
    reader: &'r Reader,
    from: i64,
    to: i64,
    /// The first part that cannot be read.
    damage: Option<String>,
}

impl<'r> Reading<'r> {
    fn new(reader: &'r Reader, (from, to): (i64, i64)) -> Self {
        Self {
            reader,
            from,
            to,
            damage: None,
        }
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
        self.each(&Query::new(self.from, self.to), |entry| {
            if let Some(entry) = entry {
                lives.entry(entry.time, &decode(&entry.payload)?);
            }
            Ok(())
        })?;
        Ok(lives.into_all())
    }

    fn stories(&mut self, lives: Vec<Life>) -> Result<Vec<ObjectStory>> {
        let mut book = Book::new(self.reader, lives);
        self.each(&Query::new(self.from, self.to), |entry| {
            match entry {
                Some(entry) => book.entry(&entry, decode(&entry.payload)?),
                None => book.follower.lose(),
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

/// The stories of objects while a journal is read.
struct Book {
    follower: Follower,
    chapters: Vec<(Life, Story)>,
    /// The calls under way.
    calls: BTreeMap<CallId, CallEntry>,
    /// The last call of each controller that ended: the host may refuse its answer.
    ended: BTreeMap<ControllerId, EndedCall>,
}

/// A call that ended, with what is known of it.
struct EndedCall {
    time: i64,
    call: CallEntry,
    answer: AnswerEntry,
    /// The call as the guest saw it, or why it is not known.
    recorded: Result<Box<RecordedCall>, String>,
}

impl Book {
    fn new(reader: &Reader, lives: Vec<Life>) -> Self {
        let chapters = lives.into_iter().map(|life| (life, Story::default()));
        Self {
            follower: Follower::new(reader),
            chapters: chapters.collect(),
            calls: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    fn entry(&mut self, stored: &davit_journal::Entry, record: Record) {
        let mut answer = None;
        match &record.entry {
            Entry::Keyframe { is_start: true } => {
                self.calls.clear();
                self.ended.clear();
                self.stories().for_each(Story::restart);
            }
            Entry::Call(call) => {
                self.calls.insert(call.id, call.clone());
            }
            Entry::Answer(ended) => answer = Some(AnswerEntry::clone(ended)),
            Entry::Failure { call, failure } => self.refuse(*call, failure, stored.time),
            Entry::Ruling(ruling) => self.stories().for_each(|story| story.rule(ruling)),
            Entry::Execution(ended) => self.stories().for_each(|story| story.execute(ended)),
            _ => {}
        }
        let outcome = self.follower.handle(stored.segment, record);
        let Some(answer) = answer else { return };
        let call = self.calls.remove(&answer.call);
        let (Some(call), Part::Span) = (call, stored.part) else {
            return;
        };
        let recorded = match outcome {
            Ok(Some(ReplayOutcome::Call(call))) => Ok(call),
            Ok(Some(ReplayOutcome::Skip { why, .. })) => Err(why.to_string()),
            Ok(None) => Err("the journal does not have the state before the call".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        let ended = EndedCall {
            time: stored.time,
            call,
            answer,
            recorded,
        };
        for (life, story) in &mut self.chapters {
            ended.report(&life.object, story);
        }
        self.ended.insert(ended.call.id.controller, ended);
    }

    /// The host refused an answer. The failure of a guest is its answer, and reported already.
    fn refuse(&mut self, call: CallId, failure: &CallFailure, time: i64) {
        let Some(mut ended) = self.ended.remove(&call.controller) else {
            return;
        };
        if ended.call.id == call && ended.answer.result.is_ok() {
            ended.answer.result = Err(failure.clone());
            ended.time = time;
            for (life, story) in &mut self.chapters {
                ended.report(&life.object, story);
            }
        }
    }

    fn stories(&mut self) -> impl Iterator<Item = &mut Story> {
        self.chapters.iter_mut().map(|(_, story)| story)
    }

    fn end(self) -> Vec<ObjectStory> {
        let chapters = self.chapters.into_iter();
        let stories = chapters.map(|(life, story)| ObjectStory {
            object: Target::from(&life.object),
            first: time(life.first),
            last: time(life.last),
            left_cache: life.left.map(time),
            decisions: story.folded(),
        });
        stories.collect()
    }
}

impl EndedCall {
    /// Adds its decisions about the object to the story.
    fn report(&self, object: &ObjectRef, story: &mut Story) {
        for (position, item) in self.call.items.iter().enumerate() {
            let (decision, failure) = match &self.answer.result {
                Ok(decisions) => (decisions.get(position), None),
                Err(failure) => (None, Some(failure.to_string())),
            };
            let is_about = self.is_about(&item.key, object);
            let content = content(decision, failure, object, self.answer.is_void);
            if !is_about && content.plans.is_empty() {
                continue;
            }
            let id = self.call.continues.unwrap_or(DecisionId {
                call: self.call.id,
                position: u32::try_from(position).unwrap_or(u32::MAX),
            });
            let reason = self.call.reasons.get(position);
            let reported = ReportedDecision {
                controller: self.call.controller.to_string(),
                revision: self.revision(),
                decision: decision.map(|_| id.to_string()),
                item: Some(Item {
                    queue: item.queue.clone(),
                    key: item.key.clone(),
                    reason: reason.map_or("page", |reason| reason.as_str()),
                    attempt: item.attempt,
                }),
                saw: self.saw(object),
                content,
                took_millis: millis(self.answer.took),
                ..ReportedDecision::default()
            };
            story.add(id, at(reported, self.time));
        }
    }

    /// Whether a key means the object. A name means the object that had it in this call.
    fn is_about(&self, key: &str, object: &ObjectRef) -> bool {
        let has = |call: &RecordedCall| {
            let mut views = call.revision.views.values();
            views.any(|view| {
                let view = call.snapshot.view(*view);
                view.is_some_and(|view| view.get_by_uid(&object.uid).is_some())
            })
        };
        key == object.uid
            || saw::is_key_of(key, object) && self.recorded.as_ref().is_ok_and(|call| has(call))
    }

    fn revision(&self) -> Revision {
        let recorded = self.recorded.as_ref().ok();
        let known = recorded.map(|call| &call.revision);
        Revision {
            name: self.call.revision.to_string(),
            role: self.call.role.as_str(),
            module: known
                .map(|it| format!("sha256:{}", it.module))
                .unwrap_or_default(),
            configuration: known.map(configuration).unwrap_or_default(),
        }
    }

    fn saw(&self, object: &ObjectRef) -> Saw {
        match &self.recorded {
            Ok(call) => saw::saw(call, object),
            Err(why) => Saw {
                unknown: Some(why.clone()),
                ..Saw::default()
            },
        }
    }
}

/// The SHA-256 of a revision's configuration.
fn configuration(revision: &RevisionEntry) -> String {
    let digest = Sha256::digest(&revision.config);
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

fn content(
    decision: Option<&Decision>,
    failure: Option<String>,
    object: &ObjectRef,
    is_void: bool,
) -> Content {
    let Some(decision) = decision else {
        return Content {
            failure,
            is_void,
            ..Content::default()
        };
    };
    let all = decision.plans.iter();
    let plans = all.filter(|plan| plan.target.uid == object.uid);
    let plans: Vec<ReportedPlan> = plans
        .map(|plan| ReportedPlan {
            target: Target::from(&plan.target),
            reason: plan.reason.clone(),
            message: plan.message.clone(),
            steps: plan.steps.iter().map(step).collect(),
            actions: plan
                .steps
                .iter()
                .map(Step::verb)
                .collect::<Vec<_>>()
                .join("+"),
            ruling: None,
            execution: None,
        })
        .collect();
    Content {
        verdict: Some(verdict(&decision.verdict)),
        other_plans: decision.plans.len() - plans.len(),
        plans,
        commands: decision.commands.iter().map(command).collect(),
        failure: None,
        is_void,
    }
}
