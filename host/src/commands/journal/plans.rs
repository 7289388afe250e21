//! Which plan of a decision a ruling or an execution is about.
//!
//! The entry names the decision, the target, and what the host kept of the reason. Several plans
//! of a decision may have all of these in common. But the gate rules on each plan once, in the
//! order of the decision, and executes one plan about an object at a time. So a ruling is about
//! the first plan without one, and an execution about the first admitted plan that has not ended.

use davit_core::bounds::text::REASON;
use davit_core::untrusted::shorten;

/// How far a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum PlanProgress {
    /// The journal has no ruling on it so far.
    Decided,
    /// It is admitted, and has not ended.
    Admitted,
    /// It has ended, or will never be executed.
    Over,
}

/// The plan that a ruling with this reason is about. `plans` are those of the decision about the
/// target, in their order, each with its place, its reason and how far it is.
pub(in crate::commands) fn ruled<'p, K>(
    plans: impl IntoIterator<Item = (K, &'p str, PlanProgress)>,
    reason: &str,
) -> Option<K> {
    first(plans, reason, PlanProgress::Decided)
}

/// The plan that an execution with this reason is about.
pub(in crate::commands) fn executed<'p, K>(
    plans: impl IntoIterator<Item = (K, &'p str, PlanProgress)>,
    reason: &str,
) -> Option<K> {
    first(plans, reason, PlanProgress::Admitted)
}

/// The first plan with this progress; if the journal lacks the entry before, the first that may
/// still get there.
fn first<'p, K>(
    plans: impl IntoIterator<Item = (K, &'p str, PlanProgress)>,
    reason: &str,
    wanted: PlanProgress,
) -> Option<K> {
    let mut other = None;
    for (place, of_plan, progress) in plans {
        if progress == PlanProgress::Over || !is_kept_as(of_plan, reason) {
            continue;
        }
        if progress == wanted {
            return Some(place);
        }
        other.get_or_insert(place);
    }
    other
}

/// Whether the host keeps this reason of a plan as that text.
fn is_kept_as(reason: &str, kept: &str) -> bool {
    if reason == kept {
        return true;
    }
    let mut reason = reason.to_owned();
    shorten(&mut reason, REASON);
    reason == kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_with_the_same_reason_are_ruled_on_in_their_order_and_end_one_at_a_time() {
        use PlanProgress::{Admitted, Decided, Over};
        let plans = |progress: [PlanProgress; 3]| {
            let places = (0..).zip(progress);
            places.map(|(place, progress)| (place, "same", progress))
        };
        assert_eq!(ruled(plans([Decided; 3]), "same"), Some(0));
        assert_eq!(ruled(plans([Admitted, Decided, Decided]), "same"), Some(1));
        assert_eq!(executed(plans([Over, Decided, Admitted]), "same"), Some(2));
        assert_eq!(executed(plans([Over, Decided, Decided]), "same"), Some(1));
        assert_eq!(executed(plans([Over; 3]), "same"), None);
        assert_eq!(ruled(plans([Decided; 3]), "other"), None);
    }

    #[test]
    fn a_long_reason_is_found_by_what_the_host_keeps_of_it() {
        let long = "it failed\n".repeat(100);
        let mut kept = long.clone();
        shorten(&mut kept, REASON);
        let plans = [
            (0, "other", PlanProgress::Decided),
            (1, &*long, PlanProgress::Decided),
        ];
        assert_eq!(ruled(plans, &kept), Some(1));
    }
}
