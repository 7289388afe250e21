//! The machine's side of a journal: it keeps entries until the driver takes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::entry::{
    AnswerEntry, CallEntry, ControllerEntry, Entry, HeldEntry, Record, StreamEntry,
};
use super::keyframe::{HeldByController, JournalItem, Keyframe, spec_entry};
use super::reads::{AnswerCopy, LiveRead};
use super::strip;
use crate::api::ControllerSpec;
use crate::circuit::CallFailure;
use crate::controller::CallId;
use crate::coverage::UnlistedResourcesByView;
use crate::live::{ReadAnswer, ReadId, ReadRequest};
use crate::mapping::Mapping;
use crate::object::Uid;
use crate::plan::Decision;
use crate::store::{Object, ResourceVersion, Slot, Snapshot, StateChange, StoreKeyframe};
use crate::time::Now;
use crate::watch::Condition;

/// The entries that the driver has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    now: Now,
    items: Vec<JournalItem>,
    calls: BTreeMap<CallId, CallUnderWay>,
    /// The live reads without an answer.
    reads: BTreeMap<ReadId, (CallId, ReadRequest)>,
    /// What the last entries of each kind say.
    unlisted: Option<UnlistedResourcesByView>,
    controllers: BTreeMap<String, Arc<ControllerEntry>>,
    specs: BTreeMap<String, ControllerSpec>,
    /// The objects that the calls of each controller read in a former state.
    held: HeldByController,
    /// Whether one of them was a Secret, whose data is left out.
    is_held_stripped: bool,
    /// The streams that do not show what happens, by their resources: a reader may start with a
    /// keyframe.
    interrupted: BTreeMap<String, StreamEntry>,
}

/// A call without an answer.
#[derive(Debug)]
struct CallUnderWay {
    snapshot: Snapshot,
    live: Vec<LiveRead>,
}

impl Recorder {
    /// The time of the entries from now on.
    pub(crate) const fn set_time(&mut self, now: Now) {
        self.now = now;
    }

    /// Takes the entries.
    pub(crate) fn take(&mut self) -> Vec<JournalItem> {
        std::mem::take(&mut self.items)
    }

    pub(crate) fn note(&mut self, entry: Entry) {
        if let Entry::Stream(stream) = &entry {
            self.note_stream(stream);
        }
        let now = self.now;
        self.items.push(JournalItem::Record(Record { now, entry }));
    }

    fn note_stream(&mut self, stream: &StreamEntry) {
        if !stream.is_current {
            return;
        }
        let resource = &stream.resource;
        if stream.condition == Condition::Synced {
            self.interrupted.remove(resource);
        } else {
            self.interrupted.insert(resource.clone(), stream.clone());
        }
    }

    /// Changes of the cache, and the bytes of the objects that they replace or remove.
    pub(crate) fn note_changes(&mut self, changes: Vec<StateChange>, released: usize) {
        for change in changes {
            self.note(Entry::Cache(change));
        }
        if released > 0 {
            self.items.push(JournalItem::Released(released));
        }
    }

    pub(crate) fn note_unlisted(&mut self, unlisted: &UnlistedResourcesByView) {
        let last = self.unlisted.as_ref();
        if !last.is_some_and(|last| Arc::ptr_eq(last, unlisted) || last == unlisted) {
            self.unlisted = Some(Arc::clone(unlisted));
            self.note(Entry::Unlisted(Arc::clone(unlisted)));
        }
    }

    /// The controllers as they are now.
    pub(crate) fn note_controllers(&mut self, present: Vec<ControllerEntry>) {
        let is_removed = |name: &String| !present.iter().any(|one| one.name == *name);
        let removed = self
            .controllers
            .extract_if(.., |name, _| is_removed(name))
            .map(|(controller, _)| Entry::Removed { controller });
        self.held.retain(|name, _| !is_removed(&name.to_string()));
        for entry in removed.collect::<Vec<_>>() {
            self.note(entry);
        }
        for one in present {
            let last = self.controllers.get(&one.name);
            if last.is_none_or(|last| **last != one) {
                let one = Arc::new(one);
                self.controllers.insert(one.name.clone(), Arc::clone(&one));
                self.note(Entry::Controller(one));
            }
        }
    }

    /// The specs as they are now.
    pub(crate) fn note_specs(&mut self, specs: BTreeMap<String, ControllerSpec>) {
        for (name, spec) in &specs {
            if self.specs.get(name) != Some(spec) {
                self.note(spec_entry(name, spec));
            }
        }
        self.specs = specs;
    }

    /// The objects that the next call of a controller reads in a former state. `recorded` says
    /// what of an object may be recorded, and whether that is less than all of it.
    pub(crate) fn note_held<'a>(
        &mut self,
        controller: &Arc<str>,
        held: impl Iterator<Item = &'a Arc<Object>>,
        recorded: impl Fn(&Arc<Object>) -> (Arc<Object>, bool),
    ) {
        let last = self.held.remove(controller).unwrap_or_default();
        let (mut present, mut holds) = (BTreeMap::new(), Vec::new());
        let mut is_stripped = false;
        for object in held {
            let uid = object.uid().clone();
            let known = last.get(&uid).filter(|it| it.version() == object.version());
            let kept = known.cloned().unwrap_or_else(|| {
                let (kept, is_less) = recorded(object);
                is_stripped |= is_less;
                holds.push(Arc::clone(&kept));
                kept
            });
            present.insert(uid, kept);
        }
        let releases = last.into_keys().filter(|uid| !present.contains_key(uid));
        let releases: Vec<Uid> = releases.collect();
        self.is_held_stripped |= is_stripped;
        if !present.is_empty() {
            self.held.insert(Arc::clone(controller), present);
        }
        if !holds.is_empty() || !releases.is_empty() {
            self.note(Entry::Held(Box::new(HeldEntry {
                controller: Arc::clone(controller),
                holds,
                releases,
                is_stripped,
            })));
        }
    }

    pub(crate) fn note_call(&mut self, call: CallEntry, snapshot: &Snapshot) {
        let under_way = CallUnderWay {
            snapshot: snapshot.clone(),
            live: Vec::new(),
        };
        self.calls.insert(call.id, under_way);
        self.note(Entry::Call(Box::new(call)));
    }

    pub(crate) fn note_read_request(&mut self, read: ReadId, call: CallId, request: &ReadRequest) {
        self.reads.insert(read, (call, request.clone()));
    }

    pub(crate) fn note_read(&mut self, read: ReadId, answer: &ReadAnswer) {
        if let Some((call, request)) = self.reads.remove(&read)
            && let Some(call) = self.calls.get_mut(&call)
        {
            let answer = strip::answer(answer.clone());
            call.live.push(LiveRead { request, answer });
        }
    }

    pub(crate) fn note_answer(
        &mut self,
        call: CallId,
        is_void: bool,
        result: &Result<Vec<Decision>, CallFailure>,
        copy: Option<Box<AnswerCopy>>,
        took: Duration,
    ) {
        let Some(CallUnderWay { snapshot, live }) = self.calls.remove(&call) else {
            return;
        };
        let (decisions, reads) = match copy {
            Some(copy) => (copy.decisions, Some(copy.reads)),
            None => (result.as_ref().cloned().unwrap_or_default(), None),
        };
        let answer = AnswerEntry {
            call,
            versions: versions(&decisions, &snapshot),
            result: match result {
                Ok(_) => Ok(strip::decisions(decisions)),
                Err(failure) => Err(failure.clone()),
            },
            is_void,
            took,
            reads,
            live,
        };
        self.note(Entry::Answer(Box::new(answer)));
    }

    /// Adds the whole state: what the entries so far say, and nothing newer, because a reader
    /// that knows these entries skips it.
    pub(crate) fn note_keyframe(
        &mut self,
        store: StoreKeyframe,
        mapping: Option<Arc<Mapping>>,
        is_start: bool,
    ) {
        let keyframe = Keyframe {
            now: self.now,
            is_start,
            store,
            mapping,
            unlisted: self.unlisted.clone(),
            controllers: self.controllers.clone(),
            specs: self.specs.clone(),
            held: self.held.clone(),
            is_held_stripped: self.is_held_stripped,
            interrupted: self.interrupted.clone(),
        };
        self.items.push(JournalItem::Keyframe(Box::new(keyframe)));
    }
}

/// The versions of the plans' targets.
fn versions(decisions: &[Decision], snapshot: &Snapshot) -> Vec<(Slot, ResourceVersion)> {
    let plans = decisions.iter().flat_map(|decision| &decision.plans);
    let versions: BTreeMap<Slot, ResourceVersion> = plans
        .flat_map(|plan| {
            let uid = Uid::new(&plan.target.uid);
            let slots = snapshot.slots_of(&uid);
            slots
                .map(|(slot, version)| (slot, version.clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    versions.into_iter().collect()
}
