//! One controller whose dry run is compared with the cluster.

use std::sync::Arc;

use crate::cluster_comparison::ClusterComparison;
use crate::manifest::WatchSpec;
use crate::observation::ClusterObservation;
use crate::revision::RevisionIdentity;
use crate::store::{Object, Snapshot, ViewId};

/// A controller whose dry run is compared with the cluster.
#[derive(Debug)]
pub(super) struct ComparedController {
    /// Views of its own: what it needs to see of an object must not make the guest reconcile.
    pub(super) watches: Vec<(WatchSpec, ViewId)>,
    /// None before the stable revision runs.
    pub(super) comparison: Option<(RevisionIdentity, ClusterComparison)>,
}

impl ComparedController {
    /// This replica leads the controller from now on.
    pub(super) fn take_over(&mut self) {
        if let Some((_, comparison)) = &mut self.comparison {
            comparison.take_over();
        }
    }

    /// Its watches, each with its view.
    pub(super) fn watches(&self) -> impl Iterator<Item = (&WatchSpec, ViewId)> {
        self.watches.iter().map(|(watch, view)| (watch, *view))
    }

    /// The cache as the controller's calls read it; none if nothing of it is held.
    pub(super) fn read(&self, snapshot: &Snapshot) -> Option<Snapshot> {
        let (_, comparison) = self.comparison.as_ref()?;
        let held = comparison.held();
        (held.len() > 0).then(|| snapshot.with_former(held))
    }

    /// The objects that are held.
    pub(super) fn held(&self) -> impl Iterator<Item = &Arc<Object>> {
        let comparison = self.comparison.iter();
        comparison.flat_map(|(_, comparison)| comparison.held())
    }

    /// Its results.
    pub(super) fn observe(&self) -> Option<ClusterObservation> {
        let (revision, comparison) = self.comparison.as_ref()?;
        Some(ClusterObservation {
            revision: revision.clone(),
            since: comparison.since(),
            totals: comparison.totals().clone(),
            early: comparison.early().clone(),
        })
    }

    /// Whether a view is that of one of its watches.
    pub(super) fn has_view(&self, view: ViewId) -> bool {
        self.watches.iter().any(|(_, own)| *own == view)
    }
}
