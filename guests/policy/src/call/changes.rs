//! How soon a rule changes an object again. A rule that reacts to its own change, and one whose
//! change is undone by another rule or program, would write as fast as the API server answers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{Command, Object};
use serde::{Deserialize, Serialize};

use super::{Call, LONGEST_PAUSE};
use crate::evaluate::Evaluator;
use crate::rule::Rule;

/// The note with the last changes.
const NOTE: &str = "changes";
/// How many it has. A rule that changes more objects meanwhile is bounded by its number of objects.
const REMEMBERED: usize = 256;
/// From this change of an object on, a rule pauses. Fewer may come to rest by themselves.
const PAUSES: u32 = 3;

/// The last changes of objects, the newest at the end.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// None if the note has not been read.
    known: Option<Vec<LastChange>>,
    is_new: bool,
}

/// The last change of an object by a rule.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct LastChange {
    rule: String,
    uid: String,
    /// The version that it changed last.
    version: String,
    /// When, in milliseconds since the epoch.
    at: i64,
    /// How often, one soon after the other.
    times: u32,
    /// How often it was the same change as the one before.
    repeats: u32,
    /// A hash of the change.
    change: u64,
}

impl Call<'_> {
    /// Whether a rule has changed an object so recently that it waits. A change that failed is
    /// none, as in a dry run: the host decides how soon it is retried.
    pub(super) fn has_just_changed(&self, rule: &Rule, object: &Object<Value>) -> bool {
        let uid = object.reference.uid.as_str();
        let changed = self.last_change(rule, uid);
        changed.is_some_and(|it| {
            let is_paused = it.times >= PAUSES && self.passed(it.at) < it.pause(self.every());
            is_paused && it.has_effect(object)
        }) && !self.failed.contains(uid)
    }

    /// Remembers that a rule changes an object now.
    pub(super) fn note_change(
        &self,
        rule: &Rule,
        object: &Object<Value>,
        evaluator: &Evaluator<'_>,
    ) {
        let uid = object.reference.uid.as_str();
        let mut hasher = DefaultHasher::new();
        format!("{:?}", rule.actions.change(evaluator, object)).hash(&mut hasher);
        let change = hasher.finish();
        let mut changed = LastChange {
            rule: rule.name.clone(),
            uid: uid.to_owned(),
            version: object.resource_version.clone(),
            at: self.now(),
            times: 1,
            repeats: 1,
            change,
        };
        if let Some(before) = self.last_change(rule, uid) {
            let effect = u32::from(before.has_effect(object));
            if self.passed(before.at) < before.pause(self.every()).saturating_mul(2) {
                changed.times = before.times.saturating_add(effect);
            }
            if changed.times > 1 && before.change == change {
                changed.repeats = before.repeats.saturating_add(effect);
            }
        }
        if changed.repeats >= PAUSES {
            let message = format!(
                "the rule has made the same change {} times: another rule or program undoes it. \
                 The pause doubles each time, up to ten minutes",
                changed.repeats
            );
            let mut report = self.report.borrow_mut();
            report.failed(&rule.name, &object.reference, "do", &message);
        }
        let mut changes = self.changes.borrow_mut();
        changes.is_new = true;
        let known = changes.known.get_or_insert_default();
        known.retain(|it| it.rule != changed.rule || it.uid != changed.uid);
        known.push(changed);
        let excess = known.len().saturating_sub(REMEMBERED);
        known.drain(..excess);
    }

    /// The command that remembers the changes of the call, if there were any.
    pub(crate) fn remember_changes(&self) -> Option<Command> {
        let changes = self.changes.borrow();
        changes
            .is_new
            .then(|| Command::set_note(NOTE, changes.known.as_ref()))
    }

    fn last_change(&self, rule: &Rule, uid: &str) -> Option<LastChange> {
        let mut changes = self.changes.borrow_mut();
        let known = changes
            .known
            .get_or_insert_with(|| self.cx.note(NOTE).unwrap_or_default());
        let mut known = known.iter();
        known
            .find(|it| it.uid == uid && it.rule == rule.name)
            .cloned()
    }

    fn passed(&self, since: i64) -> Duration {
        let millis = u64::try_from(self.now().saturating_sub(since));
        Duration::from_millis(millis.unwrap_or_default())
    }
}

impl LastChange {
    /// Whether the object is another one since.
    fn has_effect(&self, object: &Object<Value>) -> bool {
        self.version != object.resource_version
    }

    /// How long the rule pauses: longer each time if it is the same change.
    fn pause(&self, every: Duration) -> Duration {
        let doubled = 1 << self.repeats.saturating_sub(PAUSES).min(16);
        every.saturating_mul(doubled).min(LONGEST_PAUSE.max(every))
    }
}
