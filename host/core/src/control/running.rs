//! What the data half runs.

use super::{Control, Entry, Output};
use crate::desired::DesiredController;

impl<G: Clone> Control<G> {
    /// The controllers that the data half has to run.
    #[must_use]
    pub fn desired(&self) -> Vec<DesiredController<G>> {
        self.applied().cloned().collect()
    }

    fn applied(&self) -> impl Iterator<Item = &DesiredController<G>> {
        let known = self.controllers.values().filter_map(Entry::known);
        known.filter_map(|one| one.applied.as_ref())
    }

    /// Gives the data half the controllers that should run, if they have changed.
    pub(super) fn run(&mut self) {
        if !self.applied().eq(&self.running) {
            self.running = self.desired();
            self.outputs.push_back(Output::Run(self.running.clone()));
        }
    }
}
