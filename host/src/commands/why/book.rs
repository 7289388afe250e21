//! The calls of a journal, and what they decided about the objects that are asked for.

use std::collections::{BTreeMap, VecDeque};

use davit_core::circuit::CallFailure;
use davit_core::controller::{CallId, DecisionId};
use davit_core::journal::{
    AnswerEntry, CallEntry, Entry, Record, RecordedCall, ReplayOutcome, RevisionEntry,
};
use davit_core::object::ObjectRef;
use davit_core::plan::{Decision, Step};
use davit_journal::{Part, Reader};
use sha2::{Digest as _, Sha256};

use super::lives::Life;
use super::queues::QueueKinds;
use super::requests::prepared_requests;
use super::story::{
    Content, Item, ReportedDecision, ReportedPlan, Revision, Saw, Story, at, millis,
};
use super::{ObjectStory, saw};
use crate::commands::journal::{Follower, command, time, verdict};
use crate::http::disagreements::{Target, step};

/// The stories of objects while a journal is read.
pub(super) struct Book {
    follower: Follower,
    chapters: Vec<(Life, Story)>,
    /// The calls under way.
    calls: BTreeMap<CallId, CallEntry>,
    /// The last calls that ended, the latest last: the host may refuse their answers.
    ended: VecDeque<EndedCall>,
    queues: QueueKinds,
}

/// How many calls that ended are kept. A host refuses an answer as soon as it has it.
const MOST_ENDED: usize = 64;

/// A call that ended, with what is known of it.
struct EndedCall {
    time: i64,
    call: CallEntry,
    answer: AnswerEntry,
    /// The call as the guest saw it, or why it is not known.
    recorded: Result<Box<RecordedCall>, String>,
}

impl Book {
    pub(super) fn new(reader: &Reader, lives: Vec<Life>) -> Self {
        let chapters = lives.into_iter().map(|life| (life, Story::default()));
        Self {
            follower: Follower::new(reader),
            chapters: chapters.collect(),
            calls: BTreeMap::new(),
            ended: VecDeque::new(),
            queues: QueueKinds::default(),
        }
    }

    /// Takes the next entry.
    pub(super) fn entry(&mut self, stored: &davit_journal::Entry, record: Record) {
        // Another host may record from here on, also if the journal does not have its start.
        let is_missing = self.follower.enter(stored.segment);
        if is_missing || matches!(record.entry, Entry::Keyframe { is_start: true }) {
            self.calls.clear();
            self.ended.clear();
            self.stories().for_each(Story::restart);
        }
        let mut answer = None;
        match &record.entry {
            Entry::Call(call) => {
                self.calls.insert(call.id, (**call).clone());
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
        if let Ok(call) = &ended.recorded {
            self.queues.note(call);
        }
        for (life, story) in &mut self.chapters {
            ended.report(life, story);
        }
        self.ended.push_back(ended);
        if self.ended.len() > MOST_ENDED {
            self.ended.pop_front();
        }
    }

    /// Entries are missing here.
    pub(super) fn lose(&mut self) {
        self.follower.lose();
    }

    /// The host refused an answer. The failure of a guest is its answer, and reported already.
    fn refuse(&mut self, call: CallId, failure: &CallFailure, time: i64) {
        let place = self.ended.iter().rposition(|ended| ended.call.id == call);
        let Some(mut ended) = place.and_then(|place| self.ended.remove(place)) else {
            return;
        };
        if ended.answer.result.is_ok() {
            ended.answer.result = Err(failure.clone());
            ended.time = time;
            for (life, story) in &mut self.chapters {
                ended.report(life, story);
            }
        }
    }

    fn stories(&mut self) -> impl Iterator<Item = &mut Story> {
        self.chapters.iter_mut().map(|(_, story)| story)
    }

    /// The stories, in the order of the objects.
    pub(super) fn end(self) -> Vec<ObjectStory> {
        let Self {
            chapters, queues, ..
        } = self;
        let stories = chapters.into_iter().map(|(life, story)| {
            let object = &life.object;
            let kind = (object.group().to_owned(), object.kind.clone());
            // The key of an item may be the name of objects of several kinds.
            let is_about = |reported: &ReportedDecision| {
                let item = reported.item.as_ref();
                !reported.content.plans.is_empty()
                    || item.is_none_or(|item| {
                        item.key == object.uid
                            || queues.may_name(&reported.controller, &item.queue, &kind)
                    })
            };
            let mut decisions = story.folded();
            decisions.retain(is_about);
            ObjectStory {
                object: Target::from(object),
                first: time(life.first),
                last: time(life.last),
                left_cache: life.left.map(time),
                decisions,
            }
        });
        stories.collect()
    }
}

impl EndedCall {
    /// Adds its decisions about the object to the story.
    fn report(&self, life: &Life, story: &mut Story) {
        let object = &life.object;
        for (position, item) in self.call.items.iter().enumerate() {
            let (decision, failure) = match &self.answer.result {
                Ok(decisions) => (decisions.get(position), None),
                Err(failure) => (None, Some(failure.to_string())),
            };
            let is_about = self.is_about(&item.key, life);
            let mut content = content(decision, failure, object, self.answer.is_void);
            if let (Some(decision), Ok(call)) = (decision, &self.recorded) {
                let plans = decision.plans.iter();
                let plans = plans.filter(|plan| plan.target.uid == object.uid);
                for (reported, plan) in content.plans.iter_mut().zip(plans) {
                    reported.writes = prepared_requests(plan, &call.mapping, &call.controller);
                }
            }
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

    /// Whether a key means the object. A name means the object that had it in this call; if the
    /// journal does not have what the guest saw, the one that had it at the time.
    fn is_about(&self, key: &str, life: &Life) -> bool {
        let object = &life.object;
        let has = |call: &RecordedCall| {
            let mut views = call.revision.views.values();
            views.any(|view| {
                let view = call.snapshot.view(*view);
                view.is_some_and(|view| view.get_by_uid(&object.uid).is_some())
            })
        };
        let had_name = || match &self.recorded {
            Ok(call) => has(call),
            Err(_) => life.had_name_at(self.time),
        };
        key == object.uid || saw::is_key_of(key, object) && had_name()
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
            config: known.map(|it| rmp_serde::from_slice(&it.config).unwrap_or_default()),
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
            writes: Vec::new(),
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
