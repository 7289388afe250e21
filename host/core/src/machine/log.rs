//! Which of many alike reports the log is to have.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::controller::Outcome;
use crate::failure::{Failure, FailureClass};
use crate::gate::{Ruling, WaitReason};
use crate::plan::{PatchKind, Plan, Step};
use crate::throttle::{SuppressedCount, Throttle};
use crate::time::Instant;

/// How long the same ruling on the same target is not logged again.
const REPEAT_AFTER: Duration = Duration::from_mins(10);
/// How many rulings are remembered: a resync in a dry run may name as many
/// targets as the cluster has.
const REMEMBERED: usize = 200_000;

/// Decides which reports the log is to have.
#[derive(Debug, Default)]
pub(super) struct LogPolicy {
    /// When a ruling on a target was last logged, by a hash of both: there may be
    /// many.
    rulings: BTreeMap<u64, Instant>,
    /// Failures of plans that are the API server's.
    failures: Throttle<(String, FailureClass)>,
    /// What went wrong with streams and discovery.
    interruptions: Throttle<String>,
}

impl LogPolicy {
    /// Whether a ruling was not logged for a while. Admissions never are, since
    /// their outcome is; of waits only those for a kind.
    pub(super) fn is_news(
        &mut self,
        controller: &str,
        plan: &Plan,
        ruling: &Ruling,
        now: Instant,
    ) -> bool {
        match ruling {
            Ruling::Admit => return false,
            Ruling::Wait(waiting) if *waiting != WaitReason::NotServed => return false,
            Ruling::Wait(_) | Ruling::DryRun | Ruling::Refuse(_) => {}
        }
        if self.rulings.len() >= REMEMBERED {
            self.rulings.retain(|_, at| now.since(*at) < REPEAT_AFTER);
            if self.rulings.len() >= REMEMBERED {
                self.rulings.clear();
            }
        }
        let mut ruled = DefaultHasher::new();
        (controller, &plan.target, &plan.reason, ruling.as_str()).hash(&mut ruled);
        let last = self.rulings.insert(ruled.finish(), now);
        last.is_none_or(|at| now.since(at) >= REPEAT_AFTER)
    }

    /// Whether the outcome of a plan is worth a warning. What is wrong with the
    /// API server is not logged again for every target.
    pub(super) fn outcome(
        &mut self,
        controller: &str,
        plan: &Plan,
        outcome: &Outcome,
        now: Instant,
    ) -> Option<SuppressedCount> {
        let (step, failure) = outcome.failed.as_ref()?;
        if is_first_of_its_kind(plan, *step, failure) {
            return None;
        }
        match failure.class {
            FailureClass::Timeout | FailureClass::Throttled | FailureClass::Server => {
                let cause = (controller.to_owned(), failure.class);
                self.failures.admit(cause, now)
            }
            _ => Some(SuppressedCount(0)),
        }
    }

    /// Whether an interruption of a stream or of discovery is worth a warning.
    pub(super) fn interruption(&mut self, cause: &str, now: Instant) -> Option<SuppressedCount> {
        self.interruptions.admit(cause.to_owned(), now)
    }
}

/// Whether what failed is a strategic merge patch of a kind that takes none, as
/// custom resources do not. The guest learns of it and sends a merge patch: the
/// first of each kind is no reason to warn.
fn is_first_of_its_kind(plan: &Plan, step: u32, failure: &Failure) -> bool {
    let patch = plan.steps.get(step as usize);
    let is_strategic =
        matches!(patch, Some(Step::Patch(patch)) if patch.kind == PatchKind::StrategicMerge);
    is_strategic && failure.class == FailureClass::UnsupportedMedia
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::ObjectRef;
    use crate::plan::{DeleteOptions, Patch};

    fn failed(step: Step, class: FailureClass) -> (Plan, Outcome) {
        let plan = Plan {
            target: ObjectRef::default(),
            reason: String::new(),
            message: String::new(),
            steps: vec![step],
            measures: vec![],
            when_cancelled: None,
        };
        let outcome = Outcome {
            written: None,
            failed: Some((0, Failure::new(class, "refused"))),
        };
        (plan, outcome)
    }

    /// Custom resources take no strategic merge patch, and there is no other patch
    /// to try where a merge patch is not understood.
    #[test]
    fn a_strategic_merge_patch_that_is_not_understood_is_no_warning() {
        let patch = |kind| {
            Step::Patch(Patch {
                kind,
                subresource: String::new(),
                body: vec![0x80],
            })
        };
        let unsupported = FailureClass::UnsupportedMedia;
        for (kind, class, warns) in [
            (PatchKind::StrategicMerge, unsupported, false),
            (PatchKind::StrategicMerge, FailureClass::Invalid, true),
            (PatchKind::Merge, unsupported, true),
        ] {
            let (plan, outcome) = failed(patch(kind), class);
            let mut policy = LogPolicy::default();
            let warning = policy.outcome("a", &plan, &outcome, Instant::ZERO);
            assert_eq!(warning.is_some(), warns, "{kind:?}");
        }
    }

    #[test]
    fn a_failure_of_the_server_is_not_logged_for_every_target() {
        let mut policy = LogPolicy::default();
        let mut warnings = |class| {
            let (plan, outcome) = failed(Step::Delete(DeleteOptions::default()), class);
            let times = (0..1_000).map(|number| Instant::from_nanos(9_000_000 * number));
            times
                .filter(|now| policy.outcome("a", &plan, &outcome, *now).is_some())
                .count()
        };
        assert_eq!(warnings(FailureClass::Timeout), 1);
        assert_eq!(warnings(FailureClass::Throttled), 1);
        assert_eq!(warnings(FailureClass::Invalid), 1_000);
    }

    #[test]
    fn a_dry_run_logs_each_plan_once_in_ten_minutes() {
        let mut policy = LogPolicy::default();
        let (plan, _) = failed(Step::Delete(DeleteOptions::default()), FailureClass::Server);
        let mut is_news = |seconds| {
            let now = Instant::ZERO.after(Duration::from_secs(seconds));
            policy.is_news("a", &plan, &Ruling::DryRun, now)
        };
        assert!(is_news(0));
        assert!(!is_news(599));
        assert!(is_news(599 + 600));
    }
}
