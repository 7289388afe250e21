//! Decisions of the SDK as core's. Core checks them, as it does for a component: nothing is
//! refused here.

use davit_core::answer::{self, AnswerError, DecisionLimits};
use davit_core::manifest::Manifest;
use davit_core::plan::Decision;
use davit_core::time::Now;

use crate::bindings::davit::controller::decisions as wit;

davit_core::answer_translation!(wit);

/// Converts the answer to `items` work items.
pub(super) fn decisions(
    answer: Vec<wit::Decision>,
    items: usize,
    manifest: &Manifest,
    now: Now,
) -> Result<Vec<Decision>, AnswerError> {
    let answer = answer.into_iter();
    let answer = answer.map(|decision| translation::decision(decision, now));
    answer::check(answer, items, manifest, &DecisionLimits::default())
}

#[cfg(test)]
mod tests;
