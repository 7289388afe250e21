//! How soon a rule changes an object again. A rule that reacts to its own change, and one whose
//! change is undone by another rule or program, would write as fast as the API server answers.

use davit_guest::dynamic::Value;
use davit_guest::{Command, Object};
use serde::{Deserialize, Serialize};

use super::{Call, LONGEST_PAUSE};
use crate::rule::Rule;

/// From this change of an object on, the rule pauses, and the status has it. Fewer may come to rest
/// by themselves.
const PAUSES: u32 = 3;

/// The note that a rule has changed an object.
#[derive(Deserialize, Serialize)]
struct Changed {
    uid: String,
    /// The version that it changed.
    version: String,
    /// The last time, in milliseconds since the epoch.
    at: i64,
    /// How often, without a time in which the object stayed as it should be.
    times: u32,
}

impl Call<'_> {
    /// Whether a rule has changed an object so recently that it waits. A change that failed is
    /// none, as in a dry run: the host decides how soon it is tried again.
    pub(super) fn has_just_changed(&self, rule: &Rule, object: &Object<Value>) -> bool {
        let changed = self.changed(rule, object);
        changed.is_some_and(|it| {
            it.times >= PAUSES && it.has_effect(object) && self.now() < self.pause_end(&it)
        }) && !self.failed.contains(object.reference.uid.as_str())
    }

    /// Notes that a rule changes an object now.
    pub(super) fn note_change(&self, rule: &Rule, object: &Object<Value>) {
        let before = self.changed(rule, object);
        let times = before.map_or(1, |it| {
            it.times.saturating_add(u32::from(it.has_effect(object)))
        });
        let changed = Changed {
            uid: object.reference.uid.clone(),
            version: object.resource_version.clone(),
            at: self.now(),
            times,
        };
        let mut report = self.report.borrow_mut();
        if times >= PAUSES {
            let message = format!(
                "the rule changes it for the {times}th time: another rule or program undoes the \
                 change, or the rule does not read what it has written. It pauses longer each \
                 time, up to ten minutes"
            );
            report.failed(&rule.name, &object.reference, "do", &message);
        }
        let note = change_note(rule, &object.reference.key());
        report
            .commands
            .push(Command::set_note(&note, Some(&changed)));
    }

    /// Forgets the change of an object that has stayed as it should be. Until then, when that will
    /// be.
    pub(super) fn forget_change(&self, rule: &Rule, object: &Object<Value>) -> Option<i64> {
        let end = self.pause_end(&self.changed(rule, object)?);
        if self.now() < end {
            return Some(end);
        }
        let note = change_note(rule, &object.reference.key());
        let forgotten = Command::set_note(&note, None::<&Changed>);
        self.report.borrow_mut().commands.push(forgotten);
        None
    }

    fn changed(&self, rule: &Rule, object: &Object<Value>) -> Option<Changed> {
        let changed: Option<Changed> = self.cx.note(&change_note(rule, &object.reference.key()));
        changed.filter(|it| it.uid == object.reference.uid)
    }

    fn pause_end(&self, changed: &Changed) -> i64 {
        let doubled = 1 << changed.times.saturating_sub(PAUSES).min(16);
        let pause = self.every().saturating_mul(doubled);
        let pause = pause.min(LONGEST_PAUSE.max(self.every()));
        let millis = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
        changed.at.saturating_add(millis)
    }
}

impl Changed {
    /// Whether the object is another one since.
    fn has_effect(&self, object: &Object<Value>) -> bool {
        self.version != object.resource_version
    }
}

/// The key of the note about an object.
pub(super) fn change_note(rule: &Rule, key: &str) -> String {
    format!("changed/{}/{key}", rule.name)
}
