//! Expectations: writes that the cache has not observed yet.
//!
//! Until the watch delivers a write, the cache holds the object as it was before. A
//! guest that reads it then decides the same again; the expectation keeps the second
//! plan from being executed. An expectation expires after [`LAPSE`]: a uid precondition
//! makes a repeated write harmless, while a plan must not wait forever. It stays until
//! then even when the cache has observed the write: decisions that were made before may
//! still arrive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::mutant::Mutant;
use crate::object::Uid;
use crate::time::Instant;

/// How long the cache may lag behind a write before the write may be repeated.
pub const LAPSE: Duration = Duration::from_secs(30);

/// Why a plan for a target has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectationState {
    /// A plan for it is being executed.
    InFlight,
    /// The target was written, and the plan was decided before the cache observed that.
    NotObserved,
    /// The target was deleted, and the plan was decided before the cache observed that.
    Gone,
}

/// The version of an object in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObservedVersion {
    /// The object has this version.
    Version(u64),
    /// The object has a version that is not a number.
    Incomparable,
    /// The cache does not hold the object.
    Gone,
}

/// The effect of a write that the cache will observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// The object is gone.
    Gone,
    /// The object has this version or a later one.
    Version(u64),
    /// The API server did not return the version: any later one.
    Unknown,
}

#[derive(Clone, Debug)]
enum Expectation {
    /// With the version that the plan was decided on.
    InFlight(ObservedVersion),
    Gone,
    Version(u64),
}

/// The expectations of all objects that were written recently.
#[derive(Debug, Default)]
pub struct Expectations {
    by_uid: BTreeMap<Uid, (Expectation, Instant)>,
    /// When expectations expire, the earliest first. A later write may have replaced an
    /// expectation by then.
    lapsing: VecDeque<(Instant, Uid)>,
}

impl Expectations {
    /// Execution of a plan for this object starts. The plan was decided when the cache
    /// had the version `decided_on`.
    pub fn start(&mut self, uid: Uid, decided_on: ObservedVersion) {
        let expected = Expectation::InFlight(decided_on);
        self.by_uid.insert(uid, (expected, Instant::FAR_FUTURE));
    }

    /// Execution of the plan for this object ended. `written` is the effect of its last
    /// successful write, if there was one.
    pub fn end(&mut self, uid: &Uid, written: Option<WriteResult>, now: Instant) {
        let expected = match (written, self.by_uid.get(uid)) {
            (Some(WriteResult::Gone), _) => Expectation::Gone,
            (Some(WriteResult::Version(version)), _) => Expectation::Version(version),
            // Any version later than the observed one.
            (
                Some(WriteResult::Unknown),
                Some((Expectation::InFlight(ObservedVersion::Version(version)), _)),
            ) => Expectation::Version(version.saturating_add(1)),
            (Some(WriteResult::Unknown) | None, _) => {
                self.by_uid.remove(uid);
                return;
            }
        };
        let lapses = now.after(LAPSE);
        self.by_uid.insert(uid.clone(), (expected, lapses));
        self.lapsing.push_back((lapses, uid.clone()));
    }

    /// Why a plan for an object has to wait, if it has to. `decided_on` is the version
    /// that the plan was decided on, `seen` the version that the cache holds now.
    #[must_use]
    pub fn state(
        &self,
        uid: &Uid,
        decided_on: ObservedVersion,
        seen: ObservedVersion,
        now: Instant,
    ) -> Option<ExpectationState> {
        if Mutant::DropExpectations.is_active() {
            return None;
        }
        let (expected, _) = self.by_uid.get(uid).filter(|(_, lapses)| now < *lapses)?;
        match (expected, decided_on) {
            (Expectation::InFlight(_), _) => Some(ExpectationState::InFlight),
            // A uid is never reused. A decision from before the deletion can still
            // arrive: from a long call, or from a plan that waited.
            (Expectation::Gone, _) if seen == ObservedVersion::Gone => Some(ExpectationState::Gone),
            (Expectation::Gone, _) => Some(ExpectationState::NotObserved),
            (Expectation::Version(wanted), ObservedVersion::Version(version))
                if version < *wanted =>
            {
                Some(ExpectationState::NotObserved)
            }
            (Expectation::Version(_), _) => None,
        }
    }

    /// Whether the object is being written, or the cache has not observed its last
    /// write.
    #[must_use]
    pub fn is_open(&self, uid: &Uid, seen: ObservedVersion, now: Instant) -> bool {
        let held = self.state(uid, seen, seen, now);
        matches!(
            held,
            Some(ExpectationState::InFlight | ExpectationState::NotObserved)
        )
    }

    /// Drops expired expectations. Call it regularly, because [`Self::state`] may never
    /// be called for an object again.
    pub fn expire(&mut self, now: Instant) {
        while let Some((_, uid)) = self.lapsing.pop_front_if(|(lapses, _)| *lapses <= now) {
            let expected = self.by_uid.get(&uid);
            if expected.is_some_and(|(_, lapses)| *lapses <= now) {
                self.by_uid.remove(&uid);
            }
        }
    }

    /// The number of objects with an expectation.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether there is no expectation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: Uid = Uid::Uuid(7);

    /// The state for a plan that was decided on the present version.
    fn state(
        expectations: &Expectations,
        seen: ObservedVersion,
        now: Instant,
    ) -> Option<ExpectationState> {
        expectations.state(&UID, seen, seen, now)
    }

    #[test]
    fn a_plan_for_a_deleted_object_waits_until_the_cache_drops_it() {
        let mut expectations = Expectations::default();
        let start = Instant::ZERO;
        expectations.start(UID, ObservedVersion::Version(1));
        assert_eq!(
            state(&expectations, ObservedVersion::Version(1), start),
            Some(ExpectationState::InFlight)
        );
        expectations.end(&UID, Some(WriteResult::Gone), start);
        assert_eq!(
            state(&expectations, ObservedVersion::Version(9), start),
            Some(ExpectationState::NotObserved)
        );
        assert!(expectations.is_open(&UID, ObservedVersion::Version(9), start));
        // There is nothing to wait for any more, and nothing to delete.
        for _ in 0..2 {
            assert!(!expectations.is_open(&UID, ObservedVersion::Gone, start));
            let held = state(&expectations, ObservedVersion::Gone, start);
            assert_eq!(held, Some(ExpectationState::Gone));
        }
        expectations.expire(start.after(LAPSE));
        assert!(expectations.is_empty());
    }

    #[test]
    fn a_plan_for_a_patched_object_waits_until_the_cache_observes_its_version() {
        let mut expectations = Expectations::default();
        let start = Instant::ZERO;
        expectations.start(UID, ObservedVersion::Version(1));
        expectations.end(&UID, Some(WriteResult::Version(10)), start);
        assert_eq!(
            state(&expectations, ObservedVersion::Version(9), start),
            Some(ExpectationState::NotObserved)
        );
        assert_eq!(
            state(&expectations, ObservedVersion::Version(10), start),
            None
        );
    }

    #[test]
    fn a_decision_from_before_a_write_waits_however_late_it_arrives() {
        let mut expectations = Expectations::default();
        expectations.end(&UID, Some(WriteResult::Version(10)), Instant::ZERO);
        let late = |decided_on| {
            expectations.state(
                &UID,
                decided_on,
                ObservedVersion::Version(12),
                Instant::ZERO,
            )
        };
        assert_eq!(late(ObservedVersion::Version(11)), None);
        assert_eq!(
            late(ObservedVersion::Version(9)),
            Some(ExpectationState::NotObserved)
        );
        assert_eq!(
            late(ObservedVersion::Version(9)),
            Some(ExpectationState::NotObserved),
            "not only once"
        );
        assert!(!expectations.is_open(&UID, ObservedVersion::Version(12), Instant::ZERO));
    }

    #[test]
    fn the_event_may_come_before_the_answer() {
        let mut expectations = Expectations::default();
        expectations.start(UID, ObservedVersion::Version(1));
        expectations.end(&UID, Some(WriteResult::Version(10)), Instant::ZERO);
        assert_eq!(
            state(&expectations, ObservedVersion::Version(12), Instant::ZERO),
            None
        );
    }

    #[test]
    fn an_expectation_lapses() {
        let mut expectations = Expectations::default();
        expectations.end(&UID, Some(WriteResult::Gone), Instant::ZERO);
        let later = Instant::ZERO.after(LAPSE);
        assert_eq!(
            state(&expectations, ObservedVersion::Version(1), later),
            None
        );
        expectations.end(&UID, Some(WriteResult::Gone), Instant::ZERO);
        expectations.expire(later);
        assert_eq!(expectations.len(), 0);
    }

    #[test]
    fn a_second_write_renews_the_expectation() {
        let mut expectations = Expectations::default();
        let (start, lapsed) = (Instant::ZERO, Instant::ZERO.after(LAPSE));
        let again = start.after(LAPSE / 2);
        expectations.end(&UID, Some(WriteResult::Version(10)), start);
        expectations.end(&UID, Some(WriteResult::Version(20)), again);
        expectations.expire(lapsed);
        let seen = ObservedVersion::Version(10);
        assert_eq!(
            state(&expectations, seen, lapsed),
            Some(ExpectationState::NotObserved)
        );
        expectations.start(UID, ObservedVersion::Version(1));
        expectations.expire(again.after(LAPSE));
        let in_flight = state(&expectations, seen, again.after(LAPSE));
        assert_eq!(in_flight, Some(ExpectationState::InFlight));
        expectations.end(&UID, Some(WriteResult::Gone), again.after(LAPSE));
        expectations.expire(again.after(2 * LAPSE));
        assert!(expectations.is_empty());
    }

    /// The answer to an eviction has no version.
    #[test]
    fn a_write_without_a_version_expects_any_later_one() {
        let mut expectations = Expectations::default();
        expectations.start(UID, ObservedVersion::Version(9));
        expectations.end(&UID, Some(WriteResult::Unknown), Instant::ZERO);
        let at = |version| {
            state(
                &expectations,
                ObservedVersion::Version(version),
                Instant::ZERO,
            )
        };
        assert_eq!(at(9), Some(ExpectationState::NotObserved));
        assert_eq!(at(10), None);
        for decided_on in [ObservedVersion::Incomparable, ObservedVersion::Gone] {
            let mut expectations = Expectations::default();
            expectations.start(UID, decided_on);
            expectations.end(&UID, Some(WriteResult::Unknown), Instant::ZERO);
            assert!(expectations.is_empty());
        }
    }

    #[test]
    fn a_plan_without_a_write_leaves_no_expectation() {
        let mut expectations = Expectations::default();
        expectations.start(UID, ObservedVersion::Version(1));
        expectations.end(&UID, None, Instant::ZERO);
        assert_eq!(
            state(&expectations, ObservedVersion::Version(1), Instant::ZERO),
            None
        );
    }
}
