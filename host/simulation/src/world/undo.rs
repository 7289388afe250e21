//! What hosts keep before they delete it.

use davit_core::plan::Step;
use davit_core::request::{Method, Request};
use davit_core::undo::{KeptObject, NotKept};

use super::Link;
use super::in_flight::Execution;

impl Link<'_> {
    /// Keeps an object, unless the disk fails.
    pub(super) fn keep(&mut self, kept: &KeptObject) -> Result<(), NotKept> {
        if self.shared.fails_to_keep {
            self.note(format_args!("not kept: {}", kept.target));
            return Err(NotKept::Stopped);
        }
        self.note(format_args!("kept: {}", kept.target));
        self.shared.kept.insert(kept.target.uid.clone());
        Ok(())
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
        let must_be_kept = execution.steps.keeps_target() && deletes && is_deletion;
        if must_be_kept && !self.shared.kept.contains(&target.uid) {
            let what = format!("{target} is deleted without a copy");
            self.shared.violated(what);
        }
    }
}
