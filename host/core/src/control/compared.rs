//! The results of a comparison with the cluster, across restarts of the host.

use std::time::Duration;

use crate::api::{ClusterComparisonStatus, ControllerStatus};
use crate::cluster_comparison::Totals;
use crate::observation::{ClusterObservation, Observation};
use crate::time::{Instant, Now, Wall};
use crate::times::{read, time};

/// How exact the record says until when was compared. A status that changed with the time
/// would be written all the time.
const RECORDED_TO: Duration = Duration::from_mins(10);

/// The results of the revision that is compared.
#[derive(Debug, Default)]
pub(super) struct ClusterCounts {
    /// What earlier hosts, and earlier comparisons of this one, have counted.
    before: Option<Record>,
    /// What does not count of this host's: the former leader has recorded the same.
    dark: Results,
    /// Whether the next observation shows what does not count.
    takes_over: bool,
    /// Whether nobody has compared this revision before: then its early targets count.
    is_first: bool,
    /// When the data half started the comparison that was last observed, and its results.
    last: Option<(Instant, Results)>,
}

#[derive(Clone, Debug)]
struct Record {
    revision: String,
    /// When counting started.
    since: String,
    totals: Totals,
    /// Until when the comparison ran.
    until: Wall,
    /// For how long it did not.
    unobserved: Duration,
}

/// The results of a comparison of the data half.
#[derive(Clone, Debug, Default)]
struct Results {
    totals: Totals,
    early: Totals,
}

impl Results {
    fn of(observed: &ClusterObservation) -> Self {
        Self {
            totals: observed.totals.clone(),
            early: observed.early.clone(),
        }
    }

    /// What counts of them.
    fn counted(&self, dark: &Self, is_first: bool) -> Totals {
        let mut counted = self.totals.since(&dark.totals);
        let early = self.early.since(&dark.early);
        if is_first {
            counted.merge(&early);
        } else {
            // They may have counted before. As what, nobody knows.
            counted.interrupted += early.targets();
        }
        counted
    }
}

impl ClusterCounts {
    /// Continues from a record.
    pub(super) fn recorded(status: &ControllerStatus) -> Self {
        let before = status.cluster_comparison.as_ref().map(|one| Record {
            revision: one.revision.clone(),
            since: one.since.clone(),
            totals: one.totals(),
            // A record of an older version does not say.
            until: read(&one.observed_until).unwrap_or(Wall(i64::MAX)),
            unobserved: Duration::from_secs(one.unobserved_seconds),
        });
        Self {
            before,
            ..Self::default()
        }
    }

    /// This host takes over from the one that recorded the results, and has compared beside it.
    pub(super) fn take_over(&mut self) {
        self.takes_over = true;
    }

    /// Follows a controller that this host leads. `is_compared` says whether its spec asks for
    /// it.
    pub(super) fn observe(&mut self, seen: Option<&Observation>, is_compared: bool, now: Now) {
        if !is_compared {
            *self = Self::default();
            return;
        }
        let Some(observed) = seen.and_then(|seen| seen.cluster.as_ref()) else {
            // What is compared from now on counts.
            self.takes_over = false;
            return;
        };
        let revision = observed.revision.to_string();
        let is_other = |before: &Record| before.revision != revision;
        if self.before.as_ref().is_none_or(is_other) {
            self.start(revision, now.wall_at(observed.since));
        } else if self.takes_over {
            self.dark = Results::of(observed);
        } else {
            self.continue_with(observed);
        }
        self.takes_over = false;
        self.last = Some((observed.since, Results::of(observed)));
        if let Some(before) = &mut self.before {
            before.observe(now.wall_at(observed.since), now.wall);
        }
    }

    /// Nobody has compared this revision before.
    fn start(&mut self, revision: String, since: Wall) {
        self.before = Some(Record {
            revision,
            since: time(since),
            totals: Totals::default(),
            until: since,
            unobserved: Duration::ZERO,
        });
        (self.dark, self.last) = (Results::default(), None);
        self.is_first = true;
    }

    /// The data half may have started again since it was last observed.
    fn continue_with(&mut self, observed: &ClusterObservation) {
        let has_restarted = |(since, _): &(Instant, Results)| *since != observed.since;
        if self.last.as_ref().is_some_and(has_restarted) {
            let counted = self.counted();
            if let Some(before) = &mut self.before {
                before.totals.merge(&counted);
            }
            self.dark = Results::default();
            self.is_first = false;
        }
    }

    /// What this host has counted.
    fn counted(&self) -> Totals {
        let last = self.last.as_ref();
        let counted = last.map(|(_, results)| results.counted(&self.dark, self.is_first));
        counted.unwrap_or_default()
    }

    /// The sum; none if nothing is compared.
    pub(super) fn status(&self) -> Option<ClusterComparisonStatus> {
        let before = self.before.clone()?;
        let mut totals = before.totals;
        totals.merge(&self.counted());
        let known = before.until != Wall(i64::MAX);
        let until = known.then(|| time(rounded_down(before.until)));
        Some(ClusterComparisonStatus {
            unobserved_seconds: before.unobserved.as_secs(),
            observed_until: until.unwrap_or_default(),
            ..ClusterComparisonStatus::of(before.revision, before.since, &totals)
        })
    }
}

impl Record {
    /// A comparison that runs since `since` runs still.
    fn observe(&mut self, since: Wall, now: Wall) {
        let gap = since.0.saturating_sub(self.until.0);
        self.unobserved += Duration::from_millis(u64::try_from(gap).unwrap_or_default());
        self.until = now;
    }
}

fn rounded_down(at: Wall) -> Wall {
    let step = i64::try_from(RECORDED_TO.as_millis()).unwrap_or(i64::MAX);
    Wall(at.0.div_euclid(step) * step)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::digest::ModuleDigest;
    use crate::revision::{CallLimits, RevisionIdentity};

    fn now(seconds: u64) -> Now {
        Now {
            instant: Instant::ZERO.after(Duration::from_secs(seconds)),
            wall: Wall(1_795_176_000_000 + 1000 * i64::try_from(seconds).unwrap()),
        }
    }

    fn revision(number: u8) -> RevisionIdentity {
        let limits = CallLimits {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
        };
        RevisionIdentity::new(ModuleDigest([number; 32]), Arc::default(), limits)
    }

    /// What the data half shows of a revision that it compares since then.
    fn seen(revision: RevisionIdentity, since: u64, agree: u64) -> Observation {
        let totals = Totals {
            agree,
            delays: [(-400, agree)].into_iter().collect(),
            ..Totals::default()
        };
        Observation {
            stable: None,
            executes: true,
            pending: None,
            complete: true,
            interrupted: None,
            circuit_open: None,
            candidate: None,
            tripped: vec![],
            recent: None,
            deferred_deletions: None,
            reports: Vec::new(),
            idle_undo_kinds: None,
            refused: None,
            forbidden: 0,
            cluster: Some(ClusterObservation {
                revision,
                since: now(since).instant,
                totals,
                early: Totals::default(),
            }),
            now: now(since),
        }
    }

    /// The same with early targets.
    fn with_early(mut seen: Observation, early: Totals) -> Observation {
        if let Some(cluster) = &mut seen.cluster {
            cluster.early = early;
        }
        seen
    }

    fn only_davit(only_davit: u64) -> Totals {
        Totals {
            only_davit,
            ..Totals::default()
        }
    }

    fn recorded(agree: u64) -> ClusterCounts {
        let totals = Totals {
            agree,
            delays: [(-400, agree)].into_iter().collect(),
            ..Totals::default()
        };
        let name = revision(1).to_string();
        let status = ControllerStatus {
            cluster_comparison: Some(ClusterComparisonStatus::of(
                name,
                "2026-11-19T10:00:00Z".into(),
                &totals,
            )),
            ..ControllerStatus::default()
        };
        ClusterCounts::recorded(&status)
    }

    fn agree(counts: &ClusterCounts) -> u64 {
        counts.status().unwrap().agree
    }

    #[test]
    fn a_restart_continues_the_counts_and_their_median() {
        let mut counts = recorded(10);
        counts.observe(None, true, now(1));
        counts.observe(Some(&seen(revision(1), 2, 3)), true, now(5));
        let status = counts.status().unwrap();
        assert_eq!((status.agree, status.earlier), (13, 13));
        assert_eq!(status.median_milliseconds, Some(-398));
        assert_eq!(
            status.since, "2026-11-19T10:00:00Z",
            "it does not start again"
        );
    }

    /// The data half starts again, for example after a grant was missing for a while.
    #[test]
    fn a_comparison_that_starts_again_adds_to_what_it_had() {
        let mut counts = recorded(10);
        counts.observe(Some(&seen(revision(1), 2, 3)), true, now(5));
        counts.observe(Some(&seen(revision(1), 6, 1)), true, now(7));
        assert_eq!(agree(&counts), 14);
        counts.observe(Some(&seen(revision(1), 6, 2)), true, now(8));
        assert_eq!(agree(&counts), 15);
    }

    /// The former leader has recorded ten; this host had counted eight of them.
    #[test]
    fn what_was_compared_in_the_dark_does_not_count_twice() {
        let mut counts = recorded(10);
        counts.take_over();
        counts.observe(Some(&seen(revision(1), 2, 8)), true, now(5));
        assert_eq!(agree(&counts), 10);
        counts.observe(Some(&seen(revision(1), 2, 11)), true, now(6));
        assert_eq!(agree(&counts), 13);
    }

    #[test]
    fn another_revision_counts_by_itself_and_says_since_when() {
        let mut counts = recorded(10);
        counts.observe(Some(&seen(revision(2), 2, 3)), true, now(5));
        let status = counts.status().unwrap();
        assert_eq!(
            (status.agree, status.revision),
            (3, revision(2).to_string())
        );
        assert_eq!(status.since, "2026-11-20T12:00:02Z");
        counts.observe(Some(&seen(revision(2), 2, 3)), false, now(6));
        assert_eq!(counts.status(), None, "nobody asks for it any more");
    }

    /// Before the restart, the dry run has planned on the same objects.
    #[test]
    fn early_targets_are_interrupted_unless_nobody_has_compared_before() {
        let early = |since| with_early(seen(revision(1), since, 3), only_davit(2));
        let mut counts = ClusterCounts::default();
        counts.observe(Some(&early(2)), true, now(500));
        let status = counts.status().unwrap();
        assert_eq!((status.agree, status.only_davit), (3, 2));
        let mut next = ClusterCounts::recorded(&ControllerStatus {
            cluster_comparison: Some(status),
            ..ControllerStatus::default()
        });
        next.observe(Some(&early(2)), true, now(500));
        let status = next.status().unwrap();
        assert_eq!((status.agree, status.only_davit), (6, 2));
        assert_eq!(status.interrupted, 2);
        // The data half starts again.
        counts.observe(Some(&early(600)), true, now(900));
        let status = counts.status().unwrap();
        assert_eq!((status.agree, status.only_davit), (6, 2));
        assert_eq!(status.interrupted, 2);
    }

    /// The former leader counts them too, at the same time or later.
    #[test]
    fn targets_that_were_pending_at_a_takeover_are_interrupted() {
        let mut counts = recorded(10);
        counts.take_over();
        let before = with_early(seen(revision(1), 2, 8), only_davit(1));
        counts.observe(Some(&before), true, now(5));
        let after = with_early(seen(revision(1), 2, 9), only_davit(4));
        counts.observe(Some(&after), true, now(6));
        let status = counts.status().unwrap();
        assert_eq!((status.agree, status.only_davit), (11, 0));
        assert_eq!(status.interrupted, 3);
    }

    #[test]
    fn the_time_without_a_comparison_is_summed_up() {
        let mut counts = ClusterCounts::default();
        counts.observe(Some(&seen(revision(1), 0, 0)), true, now(1100));
        let status = counts.status().unwrap();
        assert_eq!(status.unobserved_seconds, 0);
        assert_eq!(status.observed_until, "2026-11-20T12:10:00Z");
        // The controller is stopped, and starts again.
        counts.observe(Some(&seen(revision(1), 1200, 0)), true, now(1300));
        let status = counts.status().unwrap();
        assert_eq!(status.unobserved_seconds, 100);
        // The host restarts. Its record says until when it has compared, to ten minutes.
        let recorded = || ControllerStatus {
            cluster_comparison: Some(status.clone()),
            ..ControllerStatus::default()
        };
        let mut next = ClusterCounts::recorded(&recorded());
        next.observe(Some(&seen(revision(1), 1500, 0)), true, now(1510));
        assert_eq!(next.status().unwrap().unobserved_seconds, 100 + 300);
        // Another replica has compared meanwhile.
        let mut other = ClusterCounts::recorded(&recorded());
        other.take_over();
        other.observe(Some(&seen(revision(1), 50, 0)), true, now(1510));
        assert_eq!(other.status().unwrap().unobserved_seconds, 100);
    }
}
