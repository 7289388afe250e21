//! Leases that nobody needs any more: those of replicas that have ended, and of controllers
//! that were deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::StoredLease;
use super::name::LeaseName;
use crate::time::Instant;

/// How long a lease has to stay unchanged until it is deleted.
const LEFT_FOR: Duration = Duration::from_hours(1);

/// The leases that this replica has no use for, each with its version and since when it has
/// that version.
#[derive(Debug, Default)]
pub(super) struct Strays(BTreeMap<LeaseName, (String, Instant)>);

impl Strays {
    /// Handles a reading of all leases, of which some are in use.
    pub(super) fn observe(
        &mut self,
        read: &BTreeMap<LeaseName, StoredLease>,
        is_in_use: impl Fn(&LeaseName) -> bool,
        now: Instant,
    ) {
        let is_stray = |name: &LeaseName| read.contains_key(name) && !is_in_use(name);
        self.0.retain(|name, _| is_stray(name));
        for (name, StoredLease { version, .. }) in read.iter().filter(|(name, _)| is_stray(name)) {
            let known = self.0.get(name);
            if known.is_none_or(|(known, _)| known != version) {
                self.0.insert(name.clone(), (version.clone(), now));
            }
        }
    }

    /// A lease to delete at this version, if it still has that.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(LeaseName, String)> {
        let is_due = |at: &Instant| now.since(*at) >= LEFT_FOR;
        let (name, _) = self.0.iter().find(|(_, (_, since))| is_due(since))?;
        let name = name.clone();
        let (version, _) = self.0.remove(&name)?;
        Some((name, version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{Lease, ReadyControllers};
    use crate::time::Wall;

    fn at(minutes: u64) -> Instant {
        Instant::ZERO.after(Duration::from_mins(minutes))
    }

    fn read(versions: &[(&str, u32)]) -> BTreeMap<LeaseName, StoredLease> {
        let lease = Lease {
            holder: None,
            duration: Duration::from_secs(15),
            acquired: Wall(0),
            renewed: Wall(0),
            transitions: 0,
            ready: ReadyControllers::default(),
        };
        let stored = versions.iter().map(|(name, version)| {
            let stored = StoredLease {
                lease: lease.clone(),
                version: version.to_string(),
            };
            (LeaseName::Replica((*name).to_owned()), stored)
        });
        stored.collect()
    }

    #[test]
    fn a_lease_that_nobody_renews_for_an_hour_is_deleted_at_its_version() {
        let mut strays = Strays::default();
        let is_own = |name: &LeaseName| *name == LeaseName::Replica("own".to_owned());
        strays.observe(
            &read(&[("own", 1), ("gone", 1), ("other", 1)]),
            is_own,
            at(0),
        );
        strays.observe(
            &read(&[("own", 1), ("gone", 1), ("other", 2)]),
            is_own,
            at(30),
        );
        assert_eq!(strays.take_due(at(59)), None);
        let gone = LeaseName::Replica("gone".to_owned());
        assert_eq!(strays.take_due(at(60)), Some((gone, "1".to_owned())));
        assert_eq!(strays.take_due(at(60)), None, "once for each reading");
        // It could not be deleted: after another hour, again.
        strays.observe(&read(&[("gone", 1)]), is_own, at(61));
        assert_eq!(strays.take_due(at(62)), None);
        assert!(strays.take_due(at(121)).is_some());
    }
}
