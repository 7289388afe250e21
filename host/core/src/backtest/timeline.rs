//! One timeline for the hosts of a journal: the monotonic clock of each starts again.

use std::time::Duration;

use crate::journal::Entry;
use crate::time::{Instant, Now};

/// The clocks of the entries, one after the other.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The monotonic time of the present host, and that of the timeline, at one moment.
    base: Option<(Instant, Instant)>,
    last: Option<Instant>,
    /// How long nothing was recorded before the last entry; none for the first one.
    idle: Option<Duration>,
}

impl Timeline {
    /// The time of an entry. The first host's clock is that of the timeline; a later host
    /// continues where the former one ended. Nobody knows what happened in between: a policy
    /// that lived through it would act on a cluster that stands still.
    pub(super) fn at(&mut self, now: Now, entry: &Entry) -> Now {
        let starts = matches!(entry, Entry::Keyframe { is_start: true });
        let (of_host, of_all) = match (self.base, self.last) {
            (Some(base), _) if !starts => base,
            (_, last) => (now.instant, last.unwrap_or(now.instant)),
        };
        self.base = Some((of_host, of_all));
        let instant = of_all.after(now.instant.since(of_host));
        // The machine's time never goes back.
        let instant = self.last.map_or(instant, |last| instant.max(last));
        self.idle = self.last.map(|last| instant.since(last));
        self.last = Some(instant);
        Now {
            instant,
            wall: now.wall,
        }
    }

    /// How long nothing was recorded before the last entry.
    pub(super) const fn idle(&self) -> Option<Duration> {
        self.idle
    }

    /// Entries are missing: the next one follows at once.
    pub(super) const fn lose(&mut self) {
        self.base = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Wall;

    fn at(timeline: &mut Timeline, seconds: u64, wall: i64, is_start: bool) -> u64 {
        let now = Now {
            instant: Instant::ZERO.after(Duration::from_secs(seconds)),
            wall: Wall(wall * 1_000),
        };
        let at = timeline.at(now, &Entry::Keyframe { is_start });
        at.instant.since(Instant::ZERO).as_secs()
    }

    #[test]
    fn a_host_that_starts_later_continues_where_the_former_one_ended() {
        let mut timeline = Timeline::default();
        assert_eq!(at(&mut timeline, 100, 1_000, true), 100);
        assert_eq!(at(&mut timeline, 160, 1_060, false), 160);
        assert_eq!(at(&mut timeline, 1, 1_090, true), 160);
        assert_eq!(at(&mut timeline, 11, 1_100, false), 170);
        // Decades later, as after a start with a wrong clock.
        assert_eq!(at(&mut timeline, 0, 1_795_176_000, true), 170);
        timeline.lose();
        assert_eq!(at(&mut timeline, 7_000, 1_795_186_000, false), 170);
    }

    #[test]
    fn a_wall_clock_that_was_set_back_moves_no_timer() {
        let mut timeline = Timeline::default();
        assert_eq!(at(&mut timeline, 100, 1_000, true), 100);
        assert_eq!(at(&mut timeline, 110, 500, false), 110);
        assert_eq!(at(&mut timeline, 0, 400, true), 110);
    }
}
