//! What guardrails have admitted elsewhere: by a host that led before, or by this one before
//! the controller stopped. It counts when the controller starts.

use std::time::Duration;

use crate::api::{ControllerStatus, RecentWritesStatus};
use crate::budget::{CountedWrites, RecentWrites, WINDOW};
use crate::observation::Observation;
use crate::time::{Instant, Now};
use crate::times;

/// How far the clock of the host that wrote a record may be ahead or behind. A record says
/// when it was written; nobody knows whose clock is right.
const CLOCK_ERROR: Duration = Duration::from_mins(5);

/// Writes that count until a minute is over since this host has learned of them.
#[derive(Debug)]
pub(super) struct CarriedWrites {
    former: CountedWrites,
    until: Instant,
    /// What counts here, when the controller was last observed.
    admitted: Option<CountedWrites>,
}

impl CarriedWrites {
    /// What a record has. This host's clock does not decide that it is over: if it is wrong,
    /// twice the limit would be written in a minute.
    pub(super) fn recorded(status: &ControllerStatus, now: Now) -> Self {
        let recorded = status.recent_writes.as_ref();
        let former = recorded.map(|recorded| CountedWrites {
            recent: recorded.parts(),
            may_be_over: may_be_over(recorded, now),
        });
        Self {
            former: former.unwrap_or_default(),
            until: now.instant.after(WINDOW),
            admitted: None,
        }
    }

    /// What has to count once the controller starts, or this host leads it.
    pub(super) fn former(&self) -> CountedWrites {
        self.former
    }

    pub(super) fn is_empty(&self) -> bool {
        self.former.recent == RecentWrites::default()
    }

    /// Follows a controller, which counts what is carried if it runs and this host leads it.
    pub(super) fn observe(&mut self, seen: Option<&Observation>, leads: bool, now: Instant) {
        match seen.and_then(|seen| seen.recent) {
            Some(recent) if leads => {
                self.former = CountedWrites::default();
                self.admitted = Some(recent);
            }
            Some(_) => {}
            // It was stopped, perhaps for lack of a grant.
            None => {
                if let Some(admitted) = self.admitted.take() {
                    (self.former, self.until) = (admitted, now.after(WINDOW));
                }
            }
        }
        if self.until <= now {
            self.former = CountedWrites::default();
        }
    }
}

/// Whether nothing of a record counts, if the clocks differ by some minutes at most. A record
/// of a later time, or without one, may be of this moment.
fn may_be_over(recorded: &RecentWritesStatus, now: Now) -> bool {
    let at = recorded.at.as_deref().and_then(times::read);
    let age = at.map_or(0, |at| now.wall.0.saturating_sub(at.0));
    u64::try_from(age).is_ok_and(|age| Duration::from_millis(age) > WINDOW + CLOCK_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;
    use crate::times::time;

    const HOUR: i64 = 60 * 60 * 1000;
    const MINUTE: i64 = 60 * 1000;
    const THEN: Wall = Wall(1_700_000_000_000);

    fn recent() -> RecentWrites {
        RecentWrites {
            deletes: [3, 0, 2, 0, 0, 0],
            ..RecentWrites::default()
        }
    }

    fn carried(written: Option<Wall>, read: Wall) -> CarriedWrites {
        let mut recorded = RecentWritesStatus::of(recent().into(), None, THEN).unwrap();
        recorded.at = written.map(time);
        let status = ControllerStatus {
            recent_writes: Some(recorded),
            ..ControllerStatus::default()
        };
        let now = Now {
            instant: Instant::ZERO,
            wall: read,
        };
        CarriedWrites::recorded(&status, now)
    }

    /// The next host reads the record of this one, which does not know more.
    #[test]
    fn a_record_keeps_its_time_as_long_as_it_may_be_over() {
        let mut moved = carried(Some(THEN), Wall(THEN.0 + HOUR)).former();
        moved.recent.deletes.rotate_right(1);
        let later = Now {
            instant: Instant::ZERO,
            wall: Wall(THEN.0 + HOUR + MINUTE / 2),
        };
        let recorded = RecentWritesStatus::of(recent().into(), None, THEN).unwrap();
        let recorded = RecentWritesStatus::of(moved, Some(&recorded), later.wall).unwrap();
        assert!(may_be_over(&recorded, later));
        // This host writes.
        (moved.recent.deletes[0], moved.may_be_over) = (1, false);
        let recorded = RecentWritesStatus::of(moved, Some(&recorded), later.wall).unwrap();
        assert!(!may_be_over(&recorded, later));
    }

    #[test]
    fn a_record_of_an_hour_ago_may_be_over() {
        let after = |millis: i64| Wall(THEN.0 + millis);
        let hour_ago = CountedWrites {
            recent: recent(),
            may_be_over: true,
        };
        assert_eq!(carried(Some(THEN), after(HOUR)).former(), hour_ago);
        // Clocks may be wrong by some minutes, and by any time in the other direction.
        for read in [after(0), after(MINUTE), after(5 * MINUTE), after(-HOUR)] {
            let former = carried(Some(THEN), read).former();
            assert_eq!(former, recent().into(), "{read:?}");
        }
        // Of a former version.
        assert_eq!(carried(None, after(HOUR)).former(), recent().into());
    }

    #[test]
    fn recorded_writes_count_for_a_minute() {
        let mut carried = carried(Some(THEN), THEN);
        let at = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        carried.observe(None, false, at(59));
        assert_eq!(carried.former(), recent().into());
        carried.observe(None, false, at(60));
        assert!(carried.is_empty());
    }
}
