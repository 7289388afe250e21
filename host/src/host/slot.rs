//! One controller in the host: what runs, and what is about to take over.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::write::Writer;
use davit_core::controller::Controller;
use davit_core::manifest::Manifest;
use davit_core::store::ViewId;
use davit_core::time::Instant;
use davit_engine::Guest;

use super::prepare::{Prepared, Recipe};
use crate::metrics::GuestMetrics;

/// One controller.
pub(super) struct Slot {
    /// What runs; none until its watches are complete for the first time.
    pub(super) active: Option<Active>,
    /// What takes over once its watches are complete.
    pub(super) incoming: Option<Incoming>,
}

/// A controller that runs.
pub(super) struct Active {
    /// Its number, never used twice: what comes back from an earlier
    /// controller of the same name is not this one's.
    pub(super) number: u64,
    pub(super) core: Controller,
    pub(super) guest: Arc<Guest>,
    pub(super) recipe: Recipe,
    /// The views of the manifest's watches, in their order.
    pub(super) views: Vec<ViewId>,
    pub(super) views_by_name: Arc<BTreeMap<String, ViewId>>,
    /// None if they could not be published.
    pub(super) metrics: Option<GuestMetrics>,
    pub(super) writer: Writer,
    /// Whether every watch shows what it should. A resource that is served no
    /// longer takes its objects out of the cache: their absence must not be
    /// taken for the cluster's.
    pub(super) complete: bool,
    /// Calls under way.
    pub(super) calls: u32,
    /// How many calls may be.
    pub(super) most_calls: u32,
}

/// A revision whose watches are not complete yet.
pub(super) struct Incoming {
    pub(super) prepared: Prepared,
    /// The views of its manifest's watches, in their order.
    pub(super) views: Vec<ViewId>,
    /// Since when it waits.
    pub(super) since: Instant,
}

impl Slot {
    /// What its guest is made of, or will be.
    pub(super) fn latest(&self) -> Option<(&Recipe, &Arc<Guest>)> {
        match (&self.incoming, &self.active) {
            (Some(incoming), _) => Some((&incoming.prepared.recipe, &incoming.prepared.guest)),
            (None, Some(active)) => Some((&active.recipe, &active.guest)),
            (None, None) => None,
        }
    }

    /// The views that a manifest's watches need: those of an identical watch
    /// that runs already, or none.
    pub(super) fn reusable_views(&self, manifest: &Manifest) -> Vec<Option<ViewId>> {
        let active = self.active.as_ref();
        let reusable = |watch| {
            let active = active?;
            let watches = &active.core.manifest().watches;
            let position = watches.iter().position(|running| running == watch)?;
            active.views.get(position).copied()
        };
        manifest.watches.iter().map(reusable).collect()
    }

    /// Every view that is in use.
    pub(super) fn views(&self) -> impl Iterator<Item = ViewId> {
        let active = self.active.iter().flat_map(|active| &active.views);
        let incoming = self.incoming.iter().flat_map(|incoming| &incoming.views);
        active.chain(incoming).copied()
    }
}

/// A manifest's watches by name, with their views.
pub(super) fn by_name(manifest: &Manifest, views: &[ViewId]) -> Arc<BTreeMap<String, ViewId>> {
    let names = manifest.watches.iter().map(|watch| watch.name.clone());
    Arc::new(names.zip(views.iter().copied()).collect())
}
