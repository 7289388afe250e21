//! Watches that no guest reads: what a journal records for later guests.

use super::Machine;
use crate::journal::Profile;
use crate::manifest::WatchSpec;
use crate::store::{ViewId, ViewSpec};
use crate::time::Now;

impl<G: Clone> Machine<G> {
    /// Watches the resources of a profile, too. No controller waits for them, and no guest
    /// reads more because of them.
    pub fn watch_profile(&mut self, now: Now, profile: &Profile) {
        self.set_journal_time(now);
        for watch in profile.watches() {
            let view = self.store.add_view(ViewSpec::from(watch));
            self.profile.push((watch.clone(), view));
        }
        self.attach_all(now);
        self.note_changes();
    }

    /// The watches of the profile, each with its view.
    pub(super) fn profile_watches(&self) -> impl Iterator<Item = (&WatchSpec, ViewId)> {
        self.profile.iter().map(|(watch, view)| (watch, *view))
    }
}
