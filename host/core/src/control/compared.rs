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
