//! Which reports the log gets, if many are alike.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use crate::circuit::CallFailure;
use crate::controller::Outcome;
use crate::failure::{Failure, FailureClass};
use crate::gate::{Ruling, WaitReason};
use crate::plan::{PatchKind, Plan, Step};
use crate::throttle::{SuppressedCount, Throttle, cause_of};
use crate::time::Instant;

/// The pause before the same ruling on the same target is logged again.
const REPEAT_AFTER: Duration = Duration::from_mins(10);
/// The most rulings that are stored: a resync in a dry run may rule on every object of
/// the cluster.
const REMEMBERED: usize = 200_000;

/// The bytes of a line besides the guest's text.
const LINE: usize = 64;
/// The most text of a guest in a line: its message and its other fields.
const LONGEST_LINE: usize = 8 * 1024;
/// The time in which the text of a guest is counted.
const PERIOD: Duration = Duration::from_mins(1);

/// The text of a controller's guests in the log.
#[derive(Debug)]
struct LogVolume {
    /// The most bytes in a period.
    most: usize,
    /// The bytes in this period.
    bytes: usize,
    since: Instant,
    is_exceeded: bool,
}

impl LogVolume {
    const fn new(most: usize, now: Instant) -> Self {
        Self {
            most,
            bytes: 0,
            since: now,
            is_exceeded: false,
        }
    }

    /// The bytes that are left in this period.
    fn room(&mut self, now: Instant) -> usize {
        if now.since(self.since) >= PERIOD {
            *self = Self::new(self.most, now);
        }
        self.most.saturating_sub(self.bytes)
    }
}

/// Decides which reports the log gets.
#[derive(Debug, Default)]
pub(super) struct LogPolicy {
    /// When a ruling on a target was last logged, by a hash of both: there may be many.
    rulings: BTreeMap<u64, Instant>,
    /// Failures of plans, of live reads and of calls, by controller and cause.
    failures: Throttle<(String, String)>,
    /// Interruptions of streams and failed discoveries.
    interruptions: Throttle<String>,
    /// The text of each controller's guests.
    volumes: BTreeMap<String, LogVolume>,
    /// The controllers whose text exceeded its bound, with the bound.
    exceeded: Vec<(String, usize)>,
}

impl LogPolicy {
    /// Whether to log a ruling: it was not logged for a while. Admissions are never
    /// logged, because their outcome is; of waits, only those for a kind that is not
    /// served.
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
        let ruled = ruled.finish();
        let last = self.rulings.get(&ruled);
        if last.is_some_and(|at| now.since(*at) < REPEAT_AFTER) {
            return false;
        }
        // A line that is dropped now may be logged the next time.
        let is_logged = self.has_room(controller, plan.text_bytes(), now);
        if is_logged {
            self.rulings.insert(ruled, now);
        }
        is_logged
    }

    /// Sets how many bytes of guest text the log takes in 60 seconds.
    pub(super) fn set_most(&mut self, controller: &str, most: usize, now: Instant) {
        if let Some(volume) = self.volumes.get_mut(controller) {
            volume.most = most;
        } else {
            let volume = LogVolume::new(most, now);
            self.volumes.insert(controller.to_owned(), volume);
        }
    }

    /// A controller was removed.
    pub(super) fn forget(&mut self, controller: &str) {
        self.volumes.remove(controller);
    }

    /// How many bytes of text one more call of a guest may log.
    pub(super) fn room(&mut self, controller: &str, now: Instant) -> usize {
        let volume = self.volumes.get_mut(controller);
        volume.map_or(usize::MAX, |volume| volume.room(now))
    }

    /// A guest has logged text during a call.
    pub(super) fn logged(&mut self, controller: &str, bytes: usize, now: Instant) {
        if let Some(volume) = self.volumes.get_mut(controller) {
            volume.bytes = volume.bytes.saturating_add(bytes);
            if volume.room(now) == 0 {
                self.note_excess(controller);
            }
        }
    }

    /// Whether the log takes another line with guest text of this size.
    pub(super) fn has_room(&mut self, controller: &str, bytes: usize, now: Instant) -> bool {
        let Some(volume) = self.volumes.get_mut(controller) else {
            return true;
        };
        let line = bytes.min(LONGEST_LINE) + LINE;
        let has_room = volume.room(now) >= line;
        if has_room {
            volume.bytes += line;
        } else {
            self.note_excess(controller);
        }
        has_room
    }

    fn note_excess(&mut self, controller: &str) {
        if let Some(volume) = self.volumes.get_mut(controller)
            && !std::mem::replace(&mut volume.is_exceeded, true)
        {
            self.exceeded.push((controller.to_owned(), volume.most));
        }
    }

    /// The controllers whose text has exceeded its bound since the last time.
    pub(super) fn take_exceeded(&mut self) -> Vec<(String, usize)> {
        std::mem::take(&mut self.exceeded)
    }

    /// Whether to log a warning for the outcome of a plan. What fails alike for many
    /// targets, such as a permission that is missing, is not logged for every one.
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
        let class = failure.class.as_str();
        let cause = match failure.class {
            FailureClass::Timeout | FailureClass::Throttled | FailureClass::Server => {
                class.to_owned()
            }
            _ => {
                let verb = plan.steps.get(*step as usize).map_or("none", Step::verb);
                let target = &plan.target;
                format!("{class} {verb} {} {}", target.api_version, target.kind)
            }
        };
        self.failures.admit((controller.to_owned(), cause), now)
    }

    /// Whether to log a warning for a live read that the API server refused.
    pub(super) fn read_failure(
        &mut self,
        controller: &str,
        class: FailureClass,
        now: Instant,
    ) -> Option<SuppressedCount> {
        let cause = format!("read: {}", class.as_str());
        self.failures.admit((controller.to_owned(), cause), now)
    }

    /// Whether to log a warning for a call that failed: the cause has had none for a
    /// while, and there is room for the guest's text.
    pub(super) fn call_failure(
        &mut self,
        controller: &str,
        failure: &CallFailure,
        now: Instant,
    ) -> Option<SuppressedCount> {
        let cause = format!("call: {}", failure.kind.as_str());
        let suppressed = self.failures.admit((controller.to_owned(), cause), now)?;
        let bytes = failure.message.len() + failure.guest_message.len();
        self.has_room(controller, bytes, now).then_some(suppressed)
    }

    /// Whether to log a warning for an interruption of a stream or of discovery.
    pub(super) fn interruption(&mut self, cause: &str, now: Instant) -> Option<SuppressedCount> {
        self.interruptions.admit(cause_of(cause), now)
    }
}

/// Whether the failure is a strategic merge patch of a kind that does not accept one,
/// such as a custom resource. The guest gets the failure and sends a merge patch: the
/// first one of each kind needs no warning.
fn is_first_of_its_kind(plan: &Plan, step: u32, failure: &Failure) -> bool {
    let patch = plan.steps.get(step as usize);
    let is_strategic =
        matches!(patch, Some(Step::Patch(patch)) if patch.kind == PatchKind::StrategicMerge);
    is_strategic && failure.class == FailureClass::UnsupportedMedia
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::CallFailureKind;
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

    /// Custom resources accept no strategic merge patch. Where a merge patch is not
    /// accepted either, there is no other patch.
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
    fn a_failure_is_not_logged_for_every_target() {
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
        assert_eq!(warnings(FailureClass::Forbidden), 1);
        assert_eq!(warnings(FailureClass::Invalid), 1);
        assert_eq!(warnings(FailureClass::Conflict), 1);
    }

    #[test]
    fn each_kind_of_failed_call_has_a_line_of_its_own() {
        let mut policy = LogPolicy::default();
        let mut lines = |kind| {
            let failure = CallFailure::new(kind, "unreachable");
            let times = (0..1_000).map(|number| Instant::from_nanos(9_000_000 * number));
            times
                .filter(|now| policy.call_failure("a", &failure, *now).is_some())
                .count()
        };
        assert_eq!(lines(CallFailureKind::Trap), 1);
        assert_eq!(lines(CallFailureKind::Timeout), 1);
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
