//! The live reads of the recorded controller, with their answers: they serve a policy that asks
//! the same, where the recorded lists do not answer.
//!
//! An answer serves if it says what the API server had: a request that failed proves nothing about
//! the cluster. It serves for a while from its time on, and for the moment before it, because a
//! recorded call takes time and a call of a backtest takes none. An answer of later on may be
//! what the recorded controller caused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::recorded::{RecordedRun, RecordedStep};
use crate::controller::CallId;
use crate::failure::Failure;
use crate::journal::{Entry, LiveRead, Record};
use crate::live::{ReadAnswer, ReadRequest};
use crate::object::{ApiResource, ObjectRecord, ObjectRef, Uid};
use crate::path::FieldPath;
use crate::plan::{GetRequest, ListRequest};
use crate::time::Wall;

/// How old a recorded answer is at most when a policy asks, in milliseconds.
const MOST_AGE_MILLIS: i64 = 60_000;
/// How long after the question of a policy a recorded answer counts as of the same time, in
/// milliseconds.
const SAME_TIME_MILLIS: i64 = 1_000;
/// How many bytes of objects, and of names of deleted objects, are kept.
const MOST_BYTES: usize = 256 << 20;
/// About what a name takes beside its text, in bytes.
const NAME_BYTES: usize = 128;
/// The same of the request of an answer, which may have no object.
const ANSWER_BYTES: usize = 512;

/// The live reads of one controller over a span of a journal.
///
/// The answer to a question is entered after the moment at which the policy asks it, so the
/// span is read before the backtest: pass each of its entries to [`Self::note`].
#[derive(Debug)]
pub struct LiveAnswers {
    controller: String,
    /// The calls without an answer.
    calls: BTreeSet<CallId>,
    gets: BTreeMap<ObjectRef, Vec<TimedGet>>,
    lists: BTreeMap<ApiResource, Vec<TimedList>>,
    /// What the recorded controller deletes.
    run: RecordedRun,
    /// The last deletion of each object by the recorded controller, by the object's name.
    deletions: BTreeMap<ObjectRef, RecordedDeletion>,
    /// When its deletions started.
    started: BTreeSet<Wall>,
    /// The kinds that it has deleted objects of, and since when.
    kinds: BTreeMap<(Box<str>, Box<str>), Wall>,
    bytes: usize,
}

/// A deletion by the recorded controller.
#[derive(Clone, Debug)]
struct RecordedDeletion {
    uid: Uid,
    started: Wall,
}

/// The recorded answer about an object.
#[derive(Debug)]
pub(super) struct TimedGet {
    at: Wall,
    fields: Vec<FieldPath>,
    /// The object; or the failure which says that it does not exist, or has another uid.
    pub(super) result: Result<ObjectRecord, Failure>,
    /// The last deletion of an object of this name by the recorded controller before the answer.
    deletion: Option<RecordedDeletion>,
}

#[derive(Debug)]
struct TimedList {
    at: Wall,
    request: ListRequest,
    objects: Vec<ObjectRecord>,
}

impl LiveAnswers {
    /// No live reads yet of the controller of this name.
    #[must_use]
    pub fn of(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            calls: BTreeSet::new(),
            gets: BTreeMap::new(),
            lists: BTreeMap::new(),
            run: RecordedRun::new(controller),
            deletions: BTreeMap::new(),
            started: BTreeSet::new(),
            kinds: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Takes the next entry.
    pub fn note(&mut self, record: Record) {
        let at = record.now.wall;
        match record.entry {
            Entry::Keyframe { is_start: true } => self.restart(),
            Entry::Call(call) if *call.controller == *self.controller => {
                self.run.call(&call);
                self.calls.insert(call.id);
            }
            Entry::Answer(answer) => {
                self.run.answer(&answer);
                if self.calls.remove(&answer.call) {
                    for read in answer.live {
                        self.keep(read, at);
                    }
                }
            }
            Entry::Failure { call, .. } => {
                self.calls.remove(&call);
            }
            Entry::Ruling(ruling) => {
                let step = self.run.ruling(&ruling);
                self.note_step(step, at);
            }
            Entry::Execution(execution) => {
                let step = self.run.execution(&execution);
                self.note_step(step, at);
            }
            _ => {}
        }
    }

    /// Entries may be missing before the next one: another host may record from here on, whose
    /// identifiers are others.
    pub fn restart(&mut self) {
        self.calls.clear();
        self.run.restart();
    }

    fn note_step(&mut self, step: Option<RecordedStep>, at: Wall) {
        match step {
            Some(RecordedStep::Started(target)) => self.note_deletion(target, at),
            Some(RecordedStep::Failed(target)) => {
                let uid = Uid::new(&target.uid);
                let name = without_uid(target);
                if self.deletions.get(&name).is_some_and(|it| it.uid == uid) {
                    self.deletions.remove(&name);
                }
            }
            Some(RecordedStep::Done(..)) | None => {}
        }
    }

    fn note_deletion(&mut self, target: ObjectRef, started: Wall) {
        let kind = (target.group().into(), target.kind.as_str().into());
        self.kinds.entry(kind).or_insert(started);
        self.started.insert(started);
        self.bytes += NAME_BYTES + target.name.len() + target.namespace.len();
        if self.bytes <= MOST_BYTES {
            let uid = Uid::new(&target.uid);
            let deletion = RecordedDeletion { uid, started };
            self.deletions.insert(without_uid(target), deletion);
        }
    }

    fn keep(&mut self, read: LiveRead, at: Wall) {
        let answers = match &read.answer {
            ReadAnswer::Get(results) => results.len(),
            ReadAnswer::List(_) => 1,
        };
        self.bytes += read.answer.bytes() + answers * ANSWER_BYTES;
        if self.bytes > MOST_BYTES {
            return;
        }
        match (read.request, read.answer) {
            (ReadRequest::Get(requests), ReadAnswer::Get(results)) => {
                for (request, result) in requests.into_iter().zip(results) {
                    let is_definite = match &result {
                        Ok(_) => true,
                        Err(failure) => failure.class.means_gone(),
                    };
                    if is_definite {
                        self.keep_get(request, result, at);
                    }
                }
            }
            (ReadRequest::List(request), ReadAnswer::List(Ok(objects))) => {
                let timed = self.lists.entry(request.resource.clone()).or_default();
                timed.push(TimedList {
                    at,
                    request,
                    objects,
                });
            }
            _ => {}
        }
    }

    fn keep_get(&mut self, request: GetRequest, result: Result<ObjectRecord, Failure>, at: Wall) {
        let GetRequest { target, fields } = request;
        let deletion = self.deletions.get(&without_uid(target.clone())).cloned();
        self.gets.entry(target).or_default().push(TimedGet {
            at,
            fields,
            result,
            deletion,
        });
    }

    /// The recorded answer about an object that serves at this time; none if there is none.
    pub(super) fn get(&self, request: &GetRequest, now: Wall) -> Option<&TimedGet> {
        let serving = self.same(request).filter(|one| {
            let is_own = one.result.is_err()
                && one
                    .deletion
                    .as_ref()
                    .is_some_and(|deletion| deletion.started > now);
            serves(one.at, now) && !(is_own && one.at > now)
        });
        serving.min_by_key(|one| distance(one.at, now))
    }

    /// The objects that the same read has found up to this time, the last one first, however long
    /// ago: as they were before the recorded controller deleted them.
    pub(super) fn found_until(
        &self,
        request: &GetRequest,
        now: Wall,
    ) -> impl Iterator<Item = &ObjectRecord> {
        let deletion = self.deletions.get(&without_uid(request.target.clone()));
        let until = deletion.map_or(now, |deletion| deletion.started.min(now));
        let found = self.same(request).filter(move |one| one.at <= until);
        let mut found: Vec<&TimedGet> = found.filter(|one| one.result.is_ok()).collect();
        found.sort_by_key(|one| std::cmp::Reverse(one.at));
        found.into_iter().filter_map(|one| one.result.as_ref().ok())
    }

    fn same<'a>(&'a self, request: &GetRequest) -> impl Iterator<Item = &'a TimedGet> + use<'a> {
        let timed = self.gets.get(&request.target).into_iter().flatten();
        let fields = request.fields.clone();
        timed.filter(move |one| one.fields == fields)
    }

    /// The objects of a recorded list that serves at this time; none if there is none.
    pub(super) fn list(&self, request: &ListRequest, now: Wall) -> Option<&[ObjectRecord]> {
        let timed = self.lists.get(&request.resource)?.iter();
        let same = timed.filter(|one| one.request == *request);
        let serving = same.filter(|one| serves(one.at, now) && !self.deletes_between(now, one.at));
        let nearest = serving.min_by_key(|one| distance(one.at, now))?;
        Some(&nearest.objects)
    }

    /// Whether the recorded controller has started a deletion after one time and up to another.
    fn deletes_between(&self, after: Wall, to: Wall) -> bool {
        after < to && {
            let between = (Bound::Excluded(after), Bound::Included(to));
            self.started.range(between).next().is_some()
        }
    }

    /// Whether the recorded controller has deleted an object of a kind up to this time.
    pub(super) fn has_deleted(&self, group: &str, kind: &str, now: Wall) -> bool {
        let since = self.kinds.get(&(group.into(), kind.into()));
        since.is_some_and(|since| *since <= now)
    }
}

impl TimedGet {
    /// The object of this name that the recorded controller has deleted before the answer.
    pub(super) fn deleted(&self) -> Option<&Uid> {
        self.deletion.as_ref().map(|deletion| &deletion.uid)
    }
}

/// Whether an answer of a time serves a question of another time.
const fn serves(answer: Wall, question: Wall) -> bool {
    let later = answer.0.saturating_sub(question.0);
    later <= SAME_TIME_MILLIS && later >= -MOST_AGE_MILLIS
}

/// The name of an object, whatever its uid.
fn without_uid(target: ObjectRef) -> ObjectRef {
    ObjectRef {
        uid: String::new(),
        ..target
    }
}

const fn distance(one: Wall, other: Wall) -> u64 {
    one.0.abs_diff(other.0)
}
