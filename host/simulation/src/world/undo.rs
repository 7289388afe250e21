//! What hosts keep before they delete it.

use std::time::Duration;

use davit_core::plan::Step;
use davit_core::request::{Method, Request};
use davit_core::undo::{KeptObject, NotKept};

use super::in_flight::Execution;
use super::shared::UndoneKinds;
use super::{Link, World};
use crate::fault::FaultKind;

/// How far a copy is.
pub(super) enum Copying {
    /// The disk has it, or does not take it.
    Ended(Result<(), NotKept>),
    /// The disk has it after this time.
    Lasts(Duration),
}

impl World {
    /// From now on, a deletion by one of these controllers of an object of its kinds (`Pod`),
    /// without a copy, is a violation.
    pub fn expect_copies(&mut self, kinds: UndoneKinds) {
        self.shared.undo = kinds;
    }
}

impl Link<'_> {
    /// Keeps an object, unless the disk fails.
    pub(super) fn keep(&mut self, kept: &KeptObject) -> Copying {
        let conditions = &self.shared.conditions;
        if self.shared.dice.chance(conditions.no_copies) {
            self.shared.count(FaultKind::CopyFailure);
            self.note(format_args!("not kept: {}", kept.target));
            return Copying::Ended(Err(NotKept::Stopped));
        }
        if self.shared.dice.chance(conditions.slow_copies) {
            let time = self.shared.dice.duration(&conditions.copying);
            self.shared.count(FaultKind::LateCopy);
            return Copying::Lasts(time);
        }
        self.note_kept(kept);
        Copying::Ended(Ok(()))
    }

    /// The disk has an object.
    pub(super) fn note_kept(&mut self, kept: &KeptObject) {
        self.note(format_args!("kept: {}", kept.target));
        self.shared.kept.insert(kept.target.uid.clone());
    }

    /// Nothing is deleted that had to be kept and was not.
    pub(super) fn check_kept(&mut self, execution: &Execution, request: &Request) {
        let is_deletion = match request.method {
            Method::Delete => true,
            Method::Post => request.uri.contains("/eviction"),
            Method::Get | Method::Patch => false,
        };
        let target = &execution.steps.plan().target;
        let mut steps = execution.steps.plan().steps.iter();
        let deletes = steps.any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)));
        let kinds = self.shared.undo.get(execution.controller());
        let must_be_kept = execution.steps.keeps_target()
            || kinds.is_some_and(|kinds| kinds.contains(&target.kind));
        let is_kept = self.shared.kept.contains(&target.uid);
        if must_be_kept && deletes && is_deletion && !is_kept {
            let what = format!("{target} is deleted without a copy");
            self.shared.violated(what);
        }
    }
}
