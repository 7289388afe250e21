//! Discovery: the resources that the API server serves.

use std::sync::Arc;
use std::time::Duration;

use super::Machine;
use super::report::Report;
use crate::failure::Failure;
use crate::journal::Entry;
use crate::mapping::Discovery;
use crate::time::Now;

/// The period of discovery.
const PERIOD: Duration = Duration::from_secs(30);
/// The pause after a failed discovery.
const RETRY: Duration = Duration::from_secs(2);

impl<G: Clone> Machine<G> {
    pub(super) fn handle_discovery(&mut self, now: Now, result: Result<Discovery, Failure>) {
        match result {
            Ok(discovery) => {
                self.discover_at = Some(now.instant.after(PERIOD));
                self.discovered(now, discovery);
            }
            Err(failure) => {
                self.discover_at = Some(now.instant.after(RETRY));
                let warning = self.warns(now.instant, &failure.message);
                self.outbox
                    .report(Report::DiscoveryFailed { failure, warning });
                let running = self.running().map(|(name, _)| name.clone());
                for controller in running.collect::<Vec<String>>() {
                    self.outbox.report(Report::SyncError { controller });
                }
            }
        }
    }

    fn discovered(&mut self, now: Now, discovery: Discovery) {
        let failed = discovery.failed.into_iter();
        let failed: Vec<String> = failed.map(|(version, _)| version).collect();
        if !failed.is_empty()
            && let Some(suppressed) = self.warns(now.instant, &failed.join(", "))
        {
            self.outbox.report(Report::DiscoveryIncomplete {
                failed: failed.clone(),
                suppressed,
            });
        }
        let before = self.mapping.as_deref();
        let mapping = match before {
            Some(before) => discovery.mapping.or_from(before, &failed),
            None => discovery.mapping,
        };
        self.streams
            .coverage
            .note_discovery(&self.store, before, &mapping, &failed);
        let has_changed = before.is_some_and(|before| *before != mapping);
        let is_first = before.is_none();
        let mapping = Arc::new(mapping);
        if let Some(journal) = &mut self.outbox.journal
            && (is_first || has_changed)
        {
            journal.note(Entry::Mapping(Arc::clone(&mapping)));
        }
        self.mapping = Some(mapping);
        self.streams.list_returned();
        self.attach_all(now);
        if has_changed {
            self.running_mut()
                .for_each(|(_, controller)| controller.handle_mapping(now.instant));
        }
        self.count_overdue();
    }

    /// Reports every controller with a watch that was not listed for a whole period of
    /// discovery.
    fn count_overdue(&mut self) {
        let overdue = self.streams.overdue(&self.store);
        let late = self.running().filter(|(_, controller)| {
            let views = controller.stable().views().ids.iter();
            let mut segments = views.flat_map(|view| self.store.segments_of(*view));
            segments.any(|(segment, _)| overdue.contains(&segment))
        });
        let late: Vec<String> = late.map(|(name, _)| name.clone()).collect();
        for controller in late {
            self.outbox.report(Report::SyncError { controller });
        }
    }
}
