//! What was just written and is not yet seen in the cache.
//!
//! Between the answer to a write and the watch event that tells of it, the
//! cache shows the object as it was. A guest that reads it then decides the
//! same again: an expectation keeps that second decision from being carried
//! out. Expectations lapse, since uid preconditions make a repeated write
//! harmless, while one that waits for ever would not be. Until then they stay,
//! seen or not: decisions that were made before it was seen are still to come.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::mutant::Mutant;
use crate::object::Uid;
use crate::time::Instant;

/// How long the cache may lag behind a write before the write may be repeated.
pub const LAPSE: Duration = Duration::from_secs(30);

/// Why a target is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectationState {
    /// A plan for it is being executed.
    InFlight,
    /// It was written, and what the plan was decided on does not show it yet.
    NotSeenYet,
    /// It was deleted a moment ago: the plan was decided before that was seen.
    Gone,
}

/// What the cache shows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// It has this version.
    Version(u64),
    /// It has a version that is no number.
    Incomparable,
    /// It is not there.
    Gone,
}

/// What the cache will show once it has caught up with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The object is gone.
    Gone,
    /// The object has this version or a later one.
    Version(u64),
    /// The server did not say: whatever comes next.
    Unknown,
}

#[derive(Clone, Debug)]
enum Expected {
    /// What the plan was decided on.
    InFlight(Seen),
    Gone,
    Version(u64),
}

/// What is expected of every object that was written a moment ago.
#[derive(Debug, Default)]
pub struct Expectations {
    by_uid: BTreeMap<Uid, (Expected, Instant)>,
    /// When what was expected of an object lapses, the earliest first. Something
    /// else may be expected of it by then.
    lapsing: VecDeque<(Instant, Uid)>,
}

impl Expectations {
    /// A plan for this object is being executed, which was decided when the
    /// cache showed that of it.
    pub fn begin(&mut self, uid: Uid, decided_on: Seen) {
        let expected = Expected::InFlight(decided_on);
        self.by_uid.insert(uid, (expected, Instant::FAR_FUTURE));
    }

    /// The plan for this object has ended; `written` is what its last
    /// successful write left behind, if there was one.
    pub fn end(&mut self, uid: &Uid, written: Option<Written>, now: Instant) {
        let expected = match (written, self.by_uid.get(uid)) {
            (Some(Written::Gone), _) => Expected::Gone,
            (Some(Written::Version(version)), _) => Expected::Version(version),
            // Any later one than that which was seen.
            (Some(Written::Unknown), Some((Expected::InFlight(Seen::Version(version)), _))) => {
                Expected::Version(version.saturating_add(1))
            }
            (Some(Written::Unknown) | None, _) => {
                self.by_uid.remove(uid);
                return;
            }
        };
        let lapses = now.after(LAPSE);
        self.by_uid.insert(uid.clone(), (expected, lapses));
        self.lapsing.push_back((lapses, uid.clone()));
    }

    /// Whether a plan for an object is held, given what the cache showed of it
    /// when the plan was decided, and what it shows now.
    #[must_use]
    pub fn held(
        &self,
        uid: &Uid,
        decided_on: Seen,
        seen: Seen,
        now: Instant,
    ) -> Option<ExpectationState> {
        if Mutant::DropExpectations.is_active() {
            return None;
        }
        let (expected, _) = self.by_uid.get(uid).filter(|(_, lapses)| now < *lapses)?;
        match (expected, decided_on) {
            (Expected::InFlight(_), _) => Some(ExpectationState::InFlight),
            // A uid never comes back. A decision from before can: of a call that
            // takes long, or of a plan that waited for its turn.
            (Expected::Gone, _) if seen == Seen::Gone => Some(ExpectationState::Gone),
            (Expected::Gone, _) => Some(ExpectationState::NotSeenYet),
            (Expected::Version(wanted), Seen::Version(version)) if version < *wanted => {
                Some(ExpectationState::NotSeenYet)
            }
            (Expected::Version(_), _) => None,
        }
    }

    /// Whether the object is being written, or the cache does not show yet what
    /// was: something is still to come.
    #[must_use]
    pub fn is_open(&self, uid: &Uid, seen: Seen, now: Instant) -> bool {
        let held = self.held(uid, seen, seen, now);
        matches!(
            held,
            Some(ExpectationState::InFlight | ExpectationState::NotSeenYet)
        )
    }

    /// Forgets what has lapsed; called now and then, so that objects nobody
    /// asks about again take no memory.
    pub fn expire(&mut self, now: Instant) {
        while let Some((_, uid)) = self.lapsing.pop_front_if(|(lapses, _)| *lapses <= now) {
            let expected = self.by_uid.get(&uid);
            if expected.is_some_and(|(_, lapses)| *lapses <= now) {
                self.by_uid.remove(&uid);
            }
        }
    }

    /// How many objects something is expected of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_uid.len()
    }

    /// Whether nothing is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_uid.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: Uid = Uid::Uuid(7);

    /// Of a plan that was decided on what the cache shows now.
    fn held(expectations: &Expectations, seen: Seen, now: Instant) -> Option<ExpectationState> {
        expectations.held(&UID, seen, seen, now)
    }

    #[test]
    fn a_deleted_object_is_held_until_the_cache_has_lost_it() {
        let mut expectations = Expectations::default();
        let start = Instant::ZERO;
        expectations.begin(UID, Seen::Version(1));
        assert_eq!(
            held(&expectations, Seen::Version(1), start),
            Some(ExpectationState::InFlight)
        );
        expectations.end(&UID, Some(Written::Gone), start);
        assert_eq!(
            held(&expectations, Seen::Version(9), start),
            Some(ExpectationState::NotSeenYet)
        );
        assert!(expectations.is_open(&UID, Seen::Version(9), start));
        // From here on there is nothing to wait for, and nothing to delete.
        for _ in 0..2 {
            assert!(!expectations.is_open(&UID, Seen::Gone, start));
            let held = held(&expectations, Seen::Gone, start);
            assert_eq!(held, Some(ExpectationState::Gone));
        }
        expectations.expire(start.after(LAPSE));
        assert!(expectations.is_empty());
    }

    #[test]
    fn a_patched_object_is_held_until_its_version_is_seen() {
        let mut expectations = Expectations::default();
        let start = Instant::ZERO;
        expectations.begin(UID, Seen::Version(1));
        expectations.end(&UID, Some(Written::Version(10)), start);
        assert_eq!(
            held(&expectations, Seen::Version(9), start),
            Some(ExpectationState::NotSeenYet)
        );
        assert_eq!(held(&expectations, Seen::Version(10), start), None);
    }

    #[test]
    fn a_decision_from_before_a_write_is_held_however_late_it_comes() {
        let mut expectations = Expectations::default();
        expectations.end(&UID, Some(Written::Version(10)), Instant::ZERO);
        let late =
            |decided_on| expectations.held(&UID, decided_on, Seen::Version(12), Instant::ZERO);
        assert_eq!(late(Seen::Version(11)), None);
        assert_eq!(late(Seen::Version(9)), Some(ExpectationState::NotSeenYet));
        assert_eq!(
            late(Seen::Version(9)),
            Some(ExpectationState::NotSeenYet),
            "not only once"
        );
        assert!(!expectations.is_open(&UID, Seen::Version(12), Instant::ZERO));
    }

    #[test]
    fn the_event_may_come_before_the_answer() {
        let mut expectations = Expectations::default();
        expectations.begin(UID, Seen::Version(1));
        expectations.end(&UID, Some(Written::Version(10)), Instant::ZERO);
        assert_eq!(held(&expectations, Seen::Version(12), Instant::ZERO), None);
    }

    #[test]
    fn an_expectation_lapses() {
        let mut expectations = Expectations::default();
        expectations.end(&UID, Some(Written::Gone), Instant::ZERO);
        let later = Instant::ZERO.after(LAPSE);
        assert_eq!(held(&expectations, Seen::Version(1), later), None);
        expectations.end(&UID, Some(Written::Gone), Instant::ZERO);
        expectations.expire(later);
        assert_eq!(expectations.len(), 0);
    }

    #[test]
    fn what_is_expected_anew_outlasts_what_was_before() {
        let mut expectations = Expectations::default();
        let (start, lapsed) = (Instant::ZERO, Instant::ZERO.after(LAPSE));
        let again = start.after(LAPSE / 2);
        expectations.end(&UID, Some(Written::Version(10)), start);
        expectations.end(&UID, Some(Written::Version(20)), again);
        expectations.expire(lapsed);
        let seen = Seen::Version(10);
        assert_eq!(
            held(&expectations, seen, lapsed),
            Some(ExpectationState::NotSeenYet)
        );
        expectations.begin(UID, Seen::Version(1));
        expectations.expire(again.after(LAPSE));
        let in_flight = held(&expectations, seen, again.after(LAPSE));
        assert_eq!(in_flight, Some(ExpectationState::InFlight));
        expectations.end(&UID, Some(Written::Gone), again.after(LAPSE));
        expectations.expire(again.after(2 * LAPSE));
        assert!(expectations.is_empty());
    }

    /// An eviction does not say what it wrote.
    #[test]
    fn what_was_written_without_a_version_is_any_later_one() {
        let mut expectations = Expectations::default();
        expectations.begin(UID, Seen::Version(9));
        expectations.end(&UID, Some(Written::Unknown), Instant::ZERO);
        let at = |version| held(&expectations, Seen::Version(version), Instant::ZERO);
        assert_eq!(at(9), Some(ExpectationState::NotSeenYet));
        assert_eq!(at(10), None);
        for decided_on in [Seen::Incomparable, Seen::Gone] {
            let mut expectations = Expectations::default();
            expectations.begin(UID, decided_on);
            expectations.end(&UID, Some(Written::Unknown), Instant::ZERO);
            assert!(expectations.is_empty());
        }
    }

    #[test]
    fn a_plan_that_wrote_nothing_leaves_nothing_behind() {
        let mut expectations = Expectations::default();
        expectations.begin(UID, Seen::Version(1));
        expectations.end(&UID, None, Instant::ZERO);
        assert_eq!(held(&expectations, Seen::Version(1), Instant::ZERO), None);
    }
}
