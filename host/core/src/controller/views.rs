//! The views of a revision.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::manifest::{Manifest, WatchSpec};
use crate::rollout::cohort::Cohort;
use crate::store::{ViewId, ViewSpec};

/// The views of a manifest's watches, in the order of the watches, and the cohort whose
/// fields they also hold.
#[derive(Clone, Debug)]
pub struct Views {
    /// One for each watch.
    pub ids: Vec<ViewId>,
    /// How targets are divided into cohorts.
    pub cohort: Cohort,
}

impl Views {
    /// The views by the names of their watches.
    pub(super) fn by_name(&self, manifest: &Manifest) -> Arc<BTreeMap<String, ViewId>> {
        let names = manifest.watches.iter().map(|watch| watch.name.clone());
        Arc::new(names.zip(self.ids.iter().copied()).collect())
    }

    /// The fields of a view: those that the guest declares, which it shows, and those that
    /// divide targets into cohorts.
    #[must_use]
    pub fn spec(watch: &WatchSpec, cohort: &Cohort) -> ViewSpec {
        let mut spec = ViewSpec::from(watch);
        spec.hidden = cohort.fields().iter().collect();
        spec
    }
}
