//! The live reads of the recorded controller, with their answers: they serve a policy that asks
//! the same at about the same time.

use std::collections::{BTreeMap, BTreeSet};

use crate::controller::CallId;
use crate::failure::Failure;
use crate::journal::{Entry, LiveRead, Record};
use crate::live::{ReadAnswer, ReadRequest};
use crate::object::{ApiResource, ObjectRecord, ObjectRef};
use crate::path::FieldPath;
use crate::plan::{GetRequest, ListRequest};
use crate::time::Wall;

/// How far a recorded answer is at most from the time at which a policy asks, in milliseconds.
const NEAR_MILLIS: u64 = 60_000;
/// How many bytes of objects are kept.
const MOST_BYTES: usize = 256 << 20;

/// The live reads of one controller over a span of a journal.
///
/// The answer to a question may be entered after the moment at which the policy asks it, so the
/// span is read before the backtest: pass each of its entries to [`Self::note`].
#[derive(Debug, Default)]
pub struct LiveAnswers {
    controller: String,
    /// The calls without an answer.
    calls: BTreeSet<CallId>,
    gets: BTreeMap<ObjectRef, Vec<TimedGet>>,
    lists: BTreeMap<ApiResource, Vec<TimedList>>,
    bytes: usize,
}

#[derive(Debug)]
struct TimedGet {
    at: Wall,
    fields: Vec<FieldPath>,
    result: Result<ObjectRecord, Failure>,
}

#[derive(Debug)]
struct TimedList {
    at: Wall,
    request: ListRequest,
    result: Result<Vec<ObjectRecord>, Failure>,
}

impl LiveAnswers {
    /// No live reads yet of the controller of this name.
    #[must_use]
    pub fn of(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            ..Self::default()
        }
    }

    /// Takes the next entry.
    pub fn note(&mut self, record: Record) {
        match record.entry {
            Entry::Keyframe { is_start: true } => self.calls.clear(),
            Entry::Call(call) if *call.controller == *self.controller => {
                self.calls.insert(call.id);
            }
            Entry::Answer(answer) if self.calls.remove(&answer.call) => {
                for read in answer.live {
                    self.keep(read, record.now.wall);
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, read: LiveRead, at: Wall) {
        self.bytes += read.answer.bytes();
        if self.bytes > MOST_BYTES {
            return;
        }
        match (read.request, read.answer) {
            (ReadRequest::Get(requests), ReadAnswer::Get(results)) => {
                for (request, result) in requests.into_iter().zip(results) {
                    let GetRequest { target, fields } = request;
                    let timed = TimedGet { at, fields, result };
                    self.gets.entry(target).or_default().push(timed);
                }
            }
            (ReadRequest::List(request), ReadAnswer::List(result)) => {
                let timed = self.lists.entry(request.resource.clone()).or_default();
                timed.push(TimedList {
                    at,
                    request,
                    result,
                });
            }
            _ => {}
        }
    }

    /// The recorded answer about an object that is nearest to this time; none if there is none
    /// near it.
    pub(super) fn get(
        &self,
        request: &GetRequest,
        now: Wall,
    ) -> Option<&Result<ObjectRecord, Failure>> {
        let timed = self.gets.get(&request.target)?.iter();
        let same = timed.filter(|one| one.fields == request.fields);
        let nearest = same.min_by_key(|one| distance(one.at, now))?;
        (distance(nearest.at, now) <= NEAR_MILLIS).then_some(&nearest.result)
    }

    /// The same of a list.
    pub(super) fn list(
        &self,
        request: &ListRequest,
        now: Wall,
    ) -> Option<&Result<Vec<ObjectRecord>, Failure>> {
        let timed = self.lists.get(&request.resource)?.iter();
        let same = timed.filter(|one| one.request == *request);
        let nearest = same.min_by_key(|one| distance(one.at, now))?;
        (distance(nearest.at, now) <= NEAR_MILLIS).then_some(&nearest.result)
    }
}

const fn distance(one: Wall, other: Wall) -> u64 {
    one.0.abs_diff(other.0)
}
