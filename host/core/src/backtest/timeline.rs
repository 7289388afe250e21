//! One timeline for the hosts of a journal: the monotonic clock of each starts again.

use std::time::Duration;

use crate::journal::Entry;
use crate::time::{Instant, Now, Wall};

/// The clocks of the entries, one after the other.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The monotonic time of the present host, and that of the timeline, at one moment.
    base: Option<(Instant, Instant)>,
    last: Option<(Instant, Wall)>,
    /// The time in which nobody recorded.
    pub(super) gaps: Duration,
}

impl Timeline {
    /// The time of an entry. The first host's clock is that of the timeline; a later host
    /// continues as much later as the wall clock says.
    pub(super) fn at(&mut self, now: Now, entry: &Entry) -> Now {
        let starts = matches!(entry, Entry::Keyframe { is_start: true });
        let (of_host, of_all) = match (self.base, self.last) {
            (Some(base), _) if !starts => base,
            (_, None) => (now.instant, now.instant),
            (_, Some((last, wall))) => {
                let millis = now.wall.0.saturating_sub(wall.0).max(0).unsigned_abs();
                let gap = Duration::from_millis(millis);
                self.gaps += gap;
                (now.instant, last.after(gap))
            }
        };
        self.base = Some((of_host, of_all));
        let instant = of_all.after(now.instant.since(of_host));
        // The machine's time never goes back.
        let instant = self.last.map_or(instant, |(last, _)| instant.max(last));
        self.last = Some((instant, now.wall));
        Now {
            instant,
            wall: now.wall,
        }
    }

    /// Entries are missing: the next one follows as the wall clock says.
    pub(super) const fn lose(&mut self) {
        self.base = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(timeline: &mut Timeline, seconds: u64, wall: i64, is_start: bool) -> u64 {
        let now = Now {
            instant: Instant::ZERO.after(Duration::from_secs(seconds)),
            wall: Wall(wall * 1_000),
        };
        let at = timeline.at(now, &Entry::Keyframe { is_start });
        at.instant.since(Instant::ZERO).as_secs()
    }

    #[test]
    fn a_host_that_starts_later_continues_the_timeline() {
        let mut timeline = Timeline::default();
        assert_eq!(at(&mut timeline, 100, 1_000, true), 100);
        assert_eq!(at(&mut timeline, 160, 1_060, false), 160);
        assert_eq!(at(&mut timeline, 1, 1_090, true), 190);
        assert_eq!(at(&mut timeline, 11, 1_100, false), 200);
        assert_eq!(timeline.gaps, Duration::from_secs(30));
    }

    #[test]
    fn a_wall_clock_that_was_set_back_moves_no_timer() {
        let mut timeline = Timeline::default();
        assert_eq!(at(&mut timeline, 100, 1_000, true), 100);
        assert_eq!(at(&mut timeline, 110, 500, false), 110);
        assert_eq!(at(&mut timeline, 0, 400, true), 110);
    }
}
