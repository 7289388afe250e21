//! How soon a rule changes an object again. A rule that reacts to its own change, and one whose
//! change is undone by another rule or program, would write as fast as the API server answers.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{Command, Object};
use serde::{Deserialize, Serialize};

use super::{Call, LONGEST_PAUSE};
use crate::evaluate::Evaluator;
use crate::rule::Rule;

/// How many notes have the last changes: calls that are made at once seldom write the same one.
const NOTES: u64 = 64;
/// How many changes each of them has, of some fifty bytes each.
const REMEMBERED: usize = 16;
/// From this change of an object on, a rule pauses. Fewer may come to rest by themselves.
const PAUSES: u32 = 3;

/// The last changes of objects.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Those of the notes that were read, by the number of the note; the newest at the end.
    known: BTreeMap<u64, Vec<LastChange>>,
    /// The notes that changed.
    new: BTreeSet<u64>,
}

/// The last change of an object by a rule. Texts are hashes: there are many.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct LastChange {
    /// Of the rule and the object's uid.
    id: u64,
    /// Of the version that was changed.
    version: u64,
    /// Of the change.
    change: u64,
    /// In milliseconds since the epoch.
    at: i64,
    /// How often the object was changed, one time soon after the other.
    times: u32,
    /// How often it was the same change as the one before, and undone in between.
    repeats: u32,
    /// Whether the rule has found the object as it should be since.
    was_settled: bool,
}

impl Call<'_> {
    /// Whether a rule has changed an object so recently that it waits. A change that failed is
    /// none, as in a dry run: the host decides how soon it is retried.
    pub(super) fn has_just_changed(&self, rule: &Rule, object: &Object<Value>) -> bool {
        let changed = self.last_change(rule, object);
        changed.is_some_and(|it| {
            let pause = it.pause(self.every());
            let is_recent = self.passed(it.at).is_some_and(|passed| passed < pause);
            it.times >= PAUSES && is_recent && it.has_effect(object)
        }) && !self.failed.contains(object.reference.uid.as_str())
    }

    /// Remembers that a rule changes an object now.
    pub(super) fn note_change(
        &self,
        rule: &Rule,
        object: &Object<Value>,
        evaluator: &Evaluator<'_>,
    ) {
        let change = hash(&format!("{:?}", rule.actions.change(evaluator, object)));
        let mut last = LastChange {
            id: id(rule, object),
            version: hash(&object.resource_version),
            change,
            at: self.now(),
            times: 1,
            repeats: 1,
            was_settled: false,
        };
        if let Some(before) = self.last_change(rule, object)
            && self.is_soon_after(&before)
        {
            let effect = u32::from(before.has_effect(object));
            last.times = before.times.saturating_add(effect);
            if before.change == change {
                let undone = u32::from(before.was_settled);
                last.repeats = before.repeats.saturating_add(undone);
            }
        }
        if last.repeats >= PAUSES {
            let message = format!(
                "the rule has made the same change {} times: another rule or program undoes it. \
                 The pause doubles each time, up to ten minutes",
                last.repeats
            );
            let mut report = self.report.borrow_mut();
            report.failed(&rule.name, &object.reference, "do", &message);
        }
        self.change_note(last.id, |known| {
            known.retain(|it| it.id != last.id);
            known.push(last);
            let excess = known.len().saturating_sub(REMEMBERED);
            known.drain(..excess);
        });
    }

    /// Remembers that a rule has nothing to change in an object.
    pub(super) fn note_settled(&self, rule: &Rule, object: &Object<Value>) {
        if self
            .last_change(rule, object)
            .is_none_or(|it| it.was_settled)
        {
            return;
        }
        let id = id(rule, object);
        self.change_note(id, |known| {
            for it in known.iter_mut().filter(|it| it.id == id) {
                it.was_settled = true;
            }
        });
    }

    /// The commands that remember the changes of the call.
    pub(crate) fn remember_changes(&self) -> Vec<Command> {
        let changes = self.changes.borrow();
        let new = changes.new.iter();
        new.map(|number| Command::set_note(&note(*number), changes.known.get(number)))
            .collect()
    }

    fn last_change(&self, rule: &Rule, object: &Object<Value>) -> Option<LastChange> {
        let id = id(rule, object);
        let mut changes = self.changes.borrow_mut();
        let known = changes.known.entry(id % NOTES);
        let known = known.or_insert_with(|| self.cx.note(&note(id % NOTES)).unwrap_or_default());
        known.iter().find(|it| it.id == id).copied()
    }

    /// Changes the note of a change that was looked up before.
    fn change_note(&self, id: u64, change: impl FnOnce(&mut Vec<LastChange>)) {
        let mut changes = self.changes.borrow_mut();
        changes.new.insert(id % NOTES);
        change(changes.known.entry(id % NOTES).or_default());
    }

    /// Whether a change now follows another one so soon that both are counted together. One of
    /// which nobody knows how long ago it was is.
    fn is_soon_after(&self, before: &LastChange) -> bool {
        let soon = before.pause(self.every()).saturating_mul(2);
        self.passed(before.at).is_none_or(|passed| passed < soon)
    }

    /// How long ago a time was; none if the clock was set back since.
    fn passed(&self, since: i64) -> Option<Duration> {
        let millis = u64::try_from(self.now().saturating_sub(since)).ok()?;
        Some(Duration::from_millis(millis))
    }
}

impl LastChange {
    /// Whether the object is another one since.
    fn has_effect(&self, object: &Object<Value>) -> bool {
        self.version != hash(&object.resource_version)
    }

    /// How long the rule pauses: longer each time if it is the same change.
    fn pause(&self, every: Duration) -> Duration {
        let doubled = 1 << self.repeats.saturating_sub(PAUSES).min(16);
        every.saturating_mul(doubled).min(LONGEST_PAUSE.max(every))
    }
}

fn note(number: u64) -> String {
    format!("changes/{number}")
}

fn id(rule: &Rule, object: &Object<Value>) -> u64 {
    hash(&(&rule.name, &object.reference.uid))
}

pub(super) fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
