//! Which modules drivers keep.

use std::collections::BTreeSet;

use super::{Control, ControlEffect};
use crate::digest::ModuleDigest;

impl<G: Clone> Control<G> {
    /// Outputs the needed modules, if they have changed.
    pub(super) fn keep_modules(&mut self) {
        if !std::mem::take(&mut self.modules_may_change) {
            return;
        }
        if let Some(modules) = self.modules()
            && modules != self.kept_modules
        {
            self.push(ControlEffect::KeepModules(modules.clone()));
            self.kept_modules = modules;
        }
    }

    /// The modules that the controllers need; none while a record is unknown.
    fn modules(&self) -> Option<BTreeSet<ModuleDigest>> {
        let mut needed = BTreeSet::new();
        for entry in self.controllers.values() {
            needed.extend(entry.known()?.modules()?);
        }
        Some(needed)
    }
}
