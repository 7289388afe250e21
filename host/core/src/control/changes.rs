//! Controllers of a configuration file, and the changes that operators make over HTTP.

use serde_json::Value;

use super::file::{Change, ChangeError, FileEntry};
use super::{ChangeId, Control, ControlEffect, DeclaredController, Entry, FileController, Report};
use crate::time::Now;

/// A change of a controller of the file, with its stage.
pub(super) struct PendingChange {
    pub(super) id: ChangeId,
    pub(super) controller: String,
    pub(super) stage: Stage,
}

pub(super) enum Stage {
    /// The host records a pause; then it applies the change.
    Pausing(Change),
    /// The change is applied; the next reconcile decides on it.
    Made,
    /// The decision is made; it is answered once that is recorded.
    Reconciled,
}

impl<G: Clone> Control<G> {
    pub(super) fn handle_file(&mut self, now: Now, all: Vec<FileController<G>>) {
        let mut declared = Vec::new();
        for FileController { name, spec, loaded } in all {
            let entry = match self.files.get_mut(&name) {
                Some(entry) => {
                    entry.replace(spec);
                    entry
                }
                None => self
                    .files
                    .entry(name.clone())
                    .or_insert_with(|| FileEntry::new(spec)),
            };
            let declaration = entry.declaration(&name);
            declared.push(DeclaredController {
                declaration,
                loaded,
            });
        }
        self.handle_declared(now, declared);
    }

    pub(super) fn handle_change(
        &mut self,
        now: Now,
        id: ChangeId,
        controller: &str,
        change: Change,
    ) {
        let known = self.controllers.get_mut(controller);
        let known = known.and_then(Entry::known_mut);
        let (entry, known) = match (self.files.get(controller), known) {
            (Some(entry), Some(known)) => (entry, known),
            (entry, _) => {
                let is_in_file = entry.is_some();
                return self.answer(id, Err(unknown(controller, is_in_file)));
            }
        };
        if let Err(error) = entry.check(&change) {
            return self.answer(id, Err(error));
        }
        let stage = if let Some(paused) = change.paused {
            // The pause is recorded first, so that a restart does not continue the
            // rollout.
            known.recording.pause(paused);
            Stage::Pausing(change)
        } else {
            self.make_change(now, controller, change);
            Stage::Made
        };
        self.changes.push(PendingChange {
            id,
            controller: controller.to_owned(),
            stage,
        });
        self.record(now, controller);
        self.run();
    }

    /// A controller of the configuration file in the form of the custom resource.
    pub fn file_controller(&self, name: &str) -> Result<Value, ChangeError> {
        let known = self.controllers.get(name).and_then(Entry::known);
        match (self.files.get(name), known) {
            (Some(entry), Some(known)) => Ok(entry.object(name, known.status())),
            (entry, _) => Err(unknown(name, entry.is_some())),
        }
    }

    /// All controllers of the configuration file.
    pub fn file_controllers(&self) -> Result<Vec<Value>, ChangeError> {
        let names = self.files.keys();
        names.map(|name| self.file_controller(name)).collect()
    }

    fn make_change(&mut self, now: Now, controller: &str, change: Change) {
        let known = self.controllers.get_mut(controller);
        let known = known.and_then(Entry::known_mut);
        if let (Some(entry), Some(known)) = (self.files.get_mut(controller), known) {
            let report = Report::Requested {
                controller: controller.to_owned(),
                change: change.clone(),
            };
            self.outputs.push_back(ControlEffect::Report(report).into());
            entry.change(change);
            known.declare(entry.declaration(controller), None, now.instant);
            self.due = now.instant;
        }
    }

    pub(super) fn answer(&mut self, id: ChangeId, result: Result<Value, ChangeError>) {
        self.push(ControlEffect::Answer { id, result });
    }

    /// Answers the changes of a controller whose decisions are recorded.
    pub(super) fn answer_changes(&mut self, name: &str) {
        let known = self.controllers.get(name).and_then(Entry::known);
        if known.is_some_and(|known| known.recording.is_under_way()) {
            return;
        }
        let is_answered = |one: &mut PendingChange| {
            one.controller == name && matches!(one.stage, Stage::Reconciled)
        };
        for change in self.changes.extract_if(.., is_answered).collect::<Vec<_>>() {
            let result = self.file_controller(name);
            self.answer(change.id, result);
        }
    }

    pub(super) fn paused(&mut self, now: Now, name: &str, result: Result<(), String>) {
        let is_it =
            |one: &PendingChange| one.controller == name && matches!(one.stage, Stage::Pausing(_));
        let Some(position) = self.changes.iter().position(is_it) else {
            return;
        };
        let PendingChange { id, stage, .. } = self.changes.remove(position);
        match (stage, result) {
            (Stage::Pausing(change), Ok(())) => {
                self.make_change(now, name, change);
                self.changes.push(PendingChange {
                    id,
                    controller: name.to_owned(),
                    stage: Stage::Made,
                });
            }
            (_, Err(error)) => self.answer(id, Err(ChangeError::Unrecorded(error))),
            (_, Ok(())) => {}
        }
    }
}

/// Why a controller cannot be returned: the file does not have it, or its record was
/// not read yet.
fn unknown(name: &str, is_in_file: bool) -> ChangeError {
    let name = name.to_owned();
    if is_in_file {
        ChangeError::Reading(name)
    } else {
        ChangeError::NotFound(name)
    }
}
