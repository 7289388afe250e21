//! When the watches of the recording host were interrupted.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::coverage::CATCH_UP;
use crate::journal::StreamEntry;
use crate::object::ApiResource;
use crate::time::Instant;
use crate::watch::Condition;

/// The gaps in the watches, by the names of their resources.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchGaps {
    /// Since when a watch is interrupted.
    open: BTreeMap<String, Instant>,
    /// When the last gap ended, and how long it was.
    ended: BTreeMap<String, (Instant, Duration)>,
}

impl WatchGaps {
    /// Takes the condition of a watch.
    pub(super) fn note(&mut self, entry: &StreamEntry, now: Instant) {
        let resource = &entry.resource;
        if !entry.is_current {
            return;
        }
        if entry.condition != Condition::Synced {
            self.open.entry(resource.clone()).or_insert(now);
        } else if let Some(since) = self.open.remove(resource) {
            let ended = (now, now.since(since));
            self.ended.insert(resource.clone(), ended);
        }
    }

    /// How long before it a change that the journal has now can have happened. What a list has
    /// changed follows the entry that ends the gap, at the same time.
    pub(super) fn before(&self, resource: &ApiResource, now: Instant) -> Duration {
        let ends_now = self.ended.values().any(|(at, _)| *at == now);
        if self.open.is_empty() && !ends_now {
            return Duration::ZERO;
        }
        let resource = resource.to_string();
        let open = self.open.get(&resource).map(|since| now.since(*since));
        let ended = self.ended.get(&resource).filter(|(at, _)| *at == now);
        open.or(ended.map(|(_, gap)| *gap)).unwrap_or_default()
    }

    /// Since when nobody sees what happens to the objects of a resource: since the start of a
    /// gap, which is open, or has ended so lately that the watch may still catch up. None if they
    /// are watched.
    pub(super) fn since(&self, resource: &ApiResource, now: Instant) -> Option<Instant> {
        let resource = resource.to_string();
        let ended = self.ended.get(&resource);
        let ended = ended.filter(|(at, _)| now.since(*at) < CATCH_UP);
        let open = self.open.get(&resource).copied();
        open.or(ended.map(|(at, gap)| at.before(*gap)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::ZERO.after(SECOND * seconds)
    }

    fn entry(resource: &str, is_current: bool, is_synced: bool) -> StreamEntry {
        StreamEntry {
            resource: resource.into(),
            condition: if is_synced {
                Condition::Synced
            } else {
                Condition::NotServed
            },
            is_current,
        }
    }

    #[test]
    fn a_gap_reaches_from_the_first_interruption_to_the_list() {
        let mut gaps = WatchGaps::default();
        let pods = ApiResource::new("", "v1", "pods");
        let nodes = ApiResource::new("", "v1", "nodes");
        gaps.note(&entry("v1/pods", true, true), at(1));
        // A second stream that only lists.
        gaps.note(&entry("v1/pods", false, false), at(2));
        assert_eq!(gaps.before(&pods, at(2)), Duration::ZERO);
        gaps.note(&entry("v1/pods", true, false), at(3));
        gaps.note(&entry("v1/pods", true, false), at(5));
        assert_eq!(gaps.before(&pods, at(6)), 3 * SECOND);
        assert_eq!(gaps.before(&nodes, at(6)), Duration::ZERO);
        assert_eq!(gaps.since(&pods, at(6)), Some(at(3)));
        gaps.note(&entry("v1/pods", true, true), at(10));
        assert_eq!(gaps.before(&pods, at(10)), 7 * SECOND);
        assert_eq!(gaps.before(&nodes, at(10)), Duration::ZERO);
        assert_eq!(gaps.before(&pods, at(11)), Duration::ZERO);
        assert_eq!(
            gaps.since(&pods, at(11)),
            Some(at(3)),
            "late events may come"
        );
        assert_eq!(gaps.since(&pods, at(60)), None);
        assert_eq!(gaps.since(&nodes, at(6)), None);
    }
}
