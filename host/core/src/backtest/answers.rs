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
use crate::msgpack;
use crate::object::{ObjectRecord, ObjectRef, Uid};
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
    gets: BTreeMap<GetRequest, Gets>,
    lists: BTreeMap<ListRequest, ByTime<Vec<ObjectRecord>>>,
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

/// The answers to one read, in the order of their times: a guest that asks about the same object
/// again and again has many.
#[derive(Debug)]
struct ByTime<T>(BTreeMap<Place, T>);

/// The time of an answer, and how many answers to the same read the journal has before it.
type Place = (Wall, usize);

/// The answers about one object.
#[derive(Debug, Default)]
struct Gets {
    answers: ByTime<RecordedGet>,
    /// Those of them that have found an object, by its uid.
    found: BTreeMap<Uid, BTreeSet<Place>>,
}

/// The recorded answer about an object.
#[derive(Debug)]
pub(super) struct RecordedGet {
    /// The object; or the failure which says that it does not exist, or has another uid.
    pub(super) result: Result<ObjectRecord, Failure>,
    /// The last deletion of an object of this name by the recorded controller before the answer.
    deletion: Option<RecordedDeletion>,
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
            Some(
                RecordedStep::Done(..) | RecordedStep::Unanswered(_) | RecordedStep::Deferred(_),
            )
            | None => {}
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
                self.lists.entry(request).or_default().add(at, objects);
            }
            _ => {}
        }
    }

    fn keep_get(&mut self, request: GetRequest, result: Result<ObjectRecord, Failure>, at: Wall) {
        let name = without_uid(request.target.clone());
        let deletion = self.deletions.get(&name).cloned();
        let found = result.as_ref().ok().and_then(|one| uid_of(&one.data));
        let gets = self.gets.entry(request).or_default();
        let place = gets.answers.add(at, RecordedGet { result, deletion });
        if let Some(uid) = found {
            gets.found.entry(uid).or_default().insert(place);
        }
    }

    /// The recorded answer about an object that serves at this time; none if there is none.
    pub(super) fn get(&self, request: &GetRequest, now: Wall) -> Option<&RecordedGet> {
        let gets = self.gets.get(request)?;
        gets.answers.nearest(now, |at, one| {
            let deletion = one.deletion.as_ref();
            let is_own = one.result.is_err() && deletion.is_some_and(|it| it.started > now);
            !(is_own && at > now)
        })
    }

    /// The object that the same read found at this time, or in the moment after it. Only the first
    /// answer counts: a later one may be what the recorded controller caused.
    pub(super) fn found_at(&self, request: &GetRequest, now: Wall) -> Option<&ObjectRecord> {
        let latest = Wall(now.0.saturating_add(SAME_TIME_MILLIS));
        let answers = &self.gets.get(request)?.answers.0;
        let mut answers = answers.range((now, 0)..=(latest, usize::MAX));
        let (_, first) = answers.next()?;
        first.result.as_ref().ok()
    }

    /// The object of this uid as the same read has last found it up to this time, however long
    /// ago: as it was before the recorded controller deleted it.
    pub(super) fn found_until(
        &self,
        request: &GetRequest,
        uid: &Uid,
        now: Wall,
    ) -> Option<&ObjectRecord> {
        let gets = self.gets.get(request)?;
        let deletion = self.deletions.get(&without_uid(request.target.clone()));
        let until = deletion.map_or(now, |deletion| deletion.started.min(now));
        let mut places = gets.found.get(uid)?.range(..=(until, usize::MAX));
        gets.answers.get(places.next_back()?)?.result.as_ref().ok()
    }

    /// The objects of a recorded list that serves at this time; none if there is none.
    pub(super) fn list(&self, request: &ListRequest, now: Wall) -> Option<&[ObjectRecord]> {
        let answers = self.lists.get(request)?;
        let nearest = answers.nearest(now, |at, _| !self.deletes_between(now, at));
        nearest.map(Vec::as_slice)
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

impl RecordedGet {
    /// The object of this name that the recorded controller has deleted before the answer.
    pub(super) fn deleted(&self) -> Option<&Uid> {
        self.deletion.as_ref().map(|deletion| &deletion.uid)
    }
}

impl<T> Default for ByTime<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByTime<T> {
    fn add(&mut self, at: Wall, answer: T) -> Place {
        let place = (at, self.0.len());
        self.0.insert(place, answer);
        place
    }

    fn get(&self, place: &Place) -> Option<&T> {
        self.0.get(place)
    }

    /// The answer that is nearest to the time of a question, of those that may serve it and that
    /// `serves` holds for. Of two that are as near, the earlier one.
    fn nearest(&self, question: Wall, serves: impl Fn(Wall, &T) -> bool) -> Option<&T> {
        let oldest = (Wall(question.0.saturating_sub(MOST_AGE_MILLIS)), 0);
        let same = (question, usize::MAX);
        let latest = Wall(question.0.saturating_add(SAME_TIME_MILLIS));
        let fits = |((at, _), one): &(&Place, &T)| serves(*at, one);
        let earlier = self.0.range(oldest..=same).rev().find(fits);
        let later = (Bound::Excluded(same), Bound::Included((latest, usize::MAX)));
        let later = self.0.range(later).find(fits);
        let both = earlier.into_iter().chain(later);
        let nearest = both.min_by_key(|((at, _), _)| at.0.abs_diff(question.0));
        nearest.map(|(_, one)| one)
    }
}

/// The uid in an object's data.
pub(super) fn uid_of(data: &[u8]) -> Option<Uid> {
    let metadata = msgpack::field(data, "metadata").ok()??;
    match msgpack::Value::read(msgpack::field(metadata, "uid").ok()??) {
        Ok(msgpack::Value::Text(uid)) => Some(Uid::new(uid)),
        _ => None,
    }
}

/// The name of an object, whatever its uid.
fn without_uid(target: ObjectRef) -> ObjectRef {
    ObjectRef {
        uid: String::new(),
        ..target
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A guest may ask about one object every second, for weeks.
    #[test]
    fn an_answer_is_found_without_a_look_at_the_others() {
        let mut answers = ByTime::default();
        for second in 0..100_000 {
            answers.add(Wall(second * 1_000), second);
        }
        let looks = Cell::new(0);
        for (millis, found) in [
            (0, Some(0)),
            (50_000_400, Some(50_000)),
            (99_999_000, Some(99_999)),
        ] {
            looks.set(0);
            let look = |_, _: &i64| {
                looks.set(looks.get() + 1);
                true
            };
            assert_eq!(answers.nearest(Wall(millis), look).copied(), found);
            assert!(looks.get() <= 2, "{}", looks.get());
        }
    }

    /// The clock may be set back, and the journal has the answers in the order of their entries.
    #[test]
    fn the_answer_that_is_nearest_in_time_serves_whatever_the_order_of_the_entries() {
        let mut answers = ByTime::default();
        for millis in [100_000, 40_000, 70_500, 40_000, 69_000] {
            answers.add(Wall(millis), millis);
        }
        let nearest = |millis| answers.nearest(Wall(millis), |_, _| true).copied();
        assert_eq!(nearest(70_000), Some(70_500));
        assert_eq!(nearest(69_750), Some(69_000), "the earlier of two");
        assert_eq!(
            nearest(98_000),
            Some(70_500),
            "not one of two seconds later"
        );
        assert_eq!(nearest(99_000), Some(100_000));
        assert_eq!(nearest(160_000), Some(100_000));
        assert_eq!(nearest(160_001), None, "too old");
        assert_eq!(nearest(38_999), None, "later than the same second");
        let earlier = answers.nearest(Wall(70_000), |at, _| at.0 < 69_000);
        assert_eq!(earlier, Some(&40_000));
    }
}
