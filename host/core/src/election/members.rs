//! The replicas that take part in elections, and which of them each lease prefers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::StoredLease;
use crate::digest::ModuleDigest;
use crate::time::Instant;

/// The replicas that this one has heard of.
#[derive(Debug)]
pub(super) struct Members {
    identity: String,
    /// The version of each replica's own lease, since when it has that version, and how
    /// long it is valid.
    others: BTreeMap<String, Presence>,
    /// When a replica last came or went.
    changed: Instant,
}

#[derive(Debug)]
struct Presence {
    version: String,
    since: Instant,
    lasts: Duration,
    is_live: bool,
}

impl Members {
    /// This replica alone.
    pub(super) fn new(identity: &str, now: Instant) -> Self {
        Self {
            identity: identity.to_owned(),
            others: BTreeMap::new(),
            changed: now,
        }
    }

    /// Handles a reading of the leases of all replicas, by their identities. Returns whether
    /// a replica has come or gone.
    pub(super) fn observe(&mut self, read: &BTreeMap<String, StoredLease>, now: Instant) -> bool {
        let before: Vec<String> = self.live().map(ToOwned::to_owned).collect();
        self.others.retain(|one, _| read.contains_key(one));
        for (identity, stored) in read.iter().filter(|(one, _)| **one != self.identity) {
            let StoredLease { lease, version } = stored;
            let is_held = lease.holder.as_ref() == Some(identity);
            let known = self.others.entry(identity.clone()).or_insert(Presence {
                version: version.clone(),
                since: now,
                lasts: lease.duration,
                // It may be of a replica that has ended: it is live once it renews.
                is_live: false,
            });
            if known.version != *version {
                *known = Presence {
                    version: version.clone(),
                    since: now,
                    lasts: lease.duration,
                    is_live: is_held,
                };
            }
            known.is_live &= now.since(known.since) < known.lasts;
        }
        let has_changed = !self.live().eq(before.iter().map(String::as_str));
        if has_changed {
            self.changed = now;
        }
        has_changed
    }

    /// For how long no replica has come or gone.
    pub(super) fn settled_for(&self, now: Instant) -> Duration {
        now.since(self.changed)
    }

    /// The replica that should hold a lease. The order of all replicas is another one for
    /// each lease, so that they share the leases, and a replica that comes or goes moves
    /// no lease between the others (rendezvous hashing).
    pub(super) fn preferred(&self, lease: &str) -> &str {
        let preferred = self.live().max_by_key(|replica| rank(lease, replica));
        preferred.unwrap_or(&self.identity)
    }

    /// The same among the others; none if this replica is alone.
    pub(super) fn preferred_other(&self, lease: &str) -> Option<&str> {
        let others = self.live().filter(|one| *one != self.identity);
        others.max_by_key(|replica| rank(lease, replica))
    }

    /// This replica and the others that renew their leases.
    fn live(&self) -> impl Iterator<Item = &str> {
        let others = self.others.iter().filter(|(_, one)| one.is_live);
        let others = others.map(|(identity, _)| identity.as_str());
        others.chain([self.identity.as_str()])
    }
}

fn rank(lease: &str, replica: &str) -> [u8; 32] {
    ModuleDigest::of(format!("{lease} {replica}").as_bytes()).0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::election::Lease;
    use crate::time::Wall;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn read(replicas: &[(&str, u32)]) -> BTreeMap<String, StoredLease> {
        let stored = |identity: &str, version: u32| StoredLease {
            lease: Lease {
                holder: Some(identity.to_owned()),
                duration: Duration::from_secs(15),
                acquired: Wall(0),
                renewed: Wall(0),
                transitions: 0,
            },
            version: version.to_string(),
        };
        let all = replicas.iter();
        all.map(|(identity, version)| ((*identity).to_owned(), stored(identity, *version)))
            .collect()
    }

    fn preferred(members: &Members) -> Vec<String> {
        let leases = (0..100).map(|number| format!("controller-{number}"));
        leases
            .map(|lease| members.preferred(&lease).to_owned())
            .collect()
    }

    #[test]
    fn a_replica_that_does_not_renew_its_lease_gets_nothing() {
        let mut members = Members::new("a", at(0));
        members.observe(&read(&[("b", 1)]), at(0));
        assert!(
            preferred(&members).iter().all(|one| one == "a"),
            "it may be gone"
        );
        members.observe(&read(&[("b", 2)]), at(5));
        assert!(preferred(&members).iter().any(|one| one == "b"));
        assert_eq!(members.settled_for(at(8)), Duration::from_secs(3));
        members.observe(&read(&[("b", 2)]), at(20));
        assert!(preferred(&members).iter().all(|one| one == "a"));
        members.observe(&read(&[("b", 3)]), at(21));
        members.observe(&read(&[]), at(22));
        assert!(
            preferred(&members).iter().all(|one| one == "a"),
            "it was deleted"
        );
    }

    /// Replicas agree without a word, and a third one takes only what it gets.
    #[test]
    fn replicas_share_the_leases_and_move_no_more_than_needed() {
        let members_of = |identity: &str, others: &[&str]| {
            let mut members = Members::new(identity, at(0));
            for version in 1..=2 {
                let read = read(&others.iter().map(|one| (*one, version)).collect::<Vec<_>>());
                members.observe(&read, at(u64::from(version)));
            }
            members
        };
        let two = preferred(&members_of("a", &["a", "b"]));
        assert_eq!(two, preferred(&members_of("b", &["a", "b"])));
        let of_a = two.iter().filter(|one| *one == "a").count();
        assert!((35..=65).contains(&of_a), "{of_a}");
        let three = preferred(&members_of("a", &["b", "c"]));
        let moved: BTreeSet<&String> = two
            .iter()
            .zip(&three)
            .filter(|(former, next)| former != next)
            .map(|(_, next)| next)
            .collect();
        assert_eq!(moved, BTreeSet::from([&"c".to_owned()]));
    }
}
