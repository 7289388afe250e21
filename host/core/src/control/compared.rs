//! The results of a comparison with the cluster, across restarts of the host.

use crate::api::{ClusterComparisonStatus, ControllerStatus};
use crate::cluster_comparison::Totals;
use crate::observation::{ClusterObservation, Observation};
use crate::time::{Instant, Now};
use crate::times::time;

/// The results of the revision that is compared.
#[derive(Debug, Default)]
pub(super) struct ClusterCounts {
    /// The revision, when its counting started, and what earlier hosts have counted.
    before: Option<(String, String, Totals)>,
    /// What does not count of this host's: the former leader has recorded the same.
    dark: Totals,
    /// Whether the next observation shows what does not count.
    takes_over: bool,
    /// When the data half started the comparison that was last observed, and its results.
    last: Option<(Instant, Totals)>,
}

impl ClusterCounts {
    /// Continues from a record.
    pub(super) fn recorded(status: &ControllerStatus) -> Self {
        let recorded = status.cluster_comparison.as_ref();
        Self {
            before: recorded.map(|one| (one.revision.clone(), one.since.clone(), one.totals())),
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
        let is_other = |(former, _, _): &(String, String, Totals)| *former != revision;
        if self.before.as_ref().is_none_or(is_other) {
            let since = time(now.wall_at(observed.since));
            self.before = Some((revision, since, Totals::default()));
            (self.dark, self.last) = (Totals::default(), None);
        } else if self.takes_over {
            self.dark = observed.totals.clone();
        } else {
            self.continue_with(observed);
        }
        self.takes_over = false;
        self.last = Some((observed.since, observed.totals.clone()));
    }

    /// The data half may have started again since it was last observed.
    fn continue_with(&mut self, observed: &ClusterObservation) {
        let has_restarted = |(since, _): &(Instant, Totals)| *since != observed.since;
        if self.last.as_ref().is_some_and(has_restarted) {
            let counted = self.counted();
            if let Some((_, _, before)) = &mut self.before {
                before.merge(&counted);
            }
            self.dark = Totals::default();
        }
    }

    /// What this host has counted.
    fn counted(&self) -> Totals {
        let last = self
            .last
            .as_ref()
            .map(|(_, totals)| totals.since(&self.dark));
        last.unwrap_or_default()
    }

    /// The sum; none if nothing is compared.
    pub(super) fn status(&self) -> Option<ClusterComparisonStatus> {
        let (revision, since, before) = self.before.clone()?;
        let mut totals = before;
        totals.merge(&self.counted());
        Some(ClusterComparisonStatus::of(revision, since, &totals))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::digest::ModuleDigest;
    use crate::revision::{CallLimits, RevisionIdentity};
    use crate::time::Wall;
    use std::time::Duration;

    fn now(seconds: u64) -> Now {
        Now {
            instant: Instant::ZERO.after(Duration::from_secs(seconds)),
            wall: Wall(1_795_176_000_000),
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
            pending: None,
            complete: true,
            circuit_open: None,
            candidate: None,
            tripped: vec![],
            recent: None,
            deferred_deletions: None,
            idle_undo_kinds: None,
            refused: None,
            forbidden: 0,
            cluster: Some(ClusterObservation {
                revision,
                since: now(since).instant,
                totals,
            }),
            now: now(since),
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
        assert_eq!(status.since, "2026-11-20T11:59:57Z");
        counts.observe(Some(&seen(revision(2), 2, 3)), false, now(6));
        assert_eq!(counts.status(), None, "nobody asks for it any more");
    }
}
