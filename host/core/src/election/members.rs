//! The replicas that take part in elections, and which of them each lease prefers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::lease::StoredLease;
use super::ready::ReadyControllers;
use crate::digest::ModuleDigest;
use crate::time::Instant;

/// The replicas that this one has heard of.
#[derive(Debug)]
pub(super) struct Members {
    identity: String,
    /// The controllers that this replica can run.
    ready: BTreeSet<String>,
    /// Those of them that the others know.
    listed: ReadyControllers,
    /// How long after a renewal a replica counts. It is shorter than the duration: a replica
    /// that acquires the lease of one that has died does not give it back.
    lasts: Duration,
    /// The version of each replica's own lease, and since when it has that version.
    others: BTreeMap<String, Presence>,
}

#[derive(Debug)]
struct Presence {
    version: String,
    since: Instant,
    is_live: bool,
    /// The controllers that it can run.
    ready: ReadyControllers,
}

impl Members {
    /// This replica alone.
    pub(super) fn new(identity: &str, renew_deadline: Duration) -> Self {
        Self {
            identity: identity.to_owned(),
            lasts: renew_deadline,
            ready: BTreeSet::new(),
            listed: ReadyControllers::default(),
            others: BTreeMap::new(),
        }
    }

    /// Whether this is the identity of this replica.
    pub(super) fn is_own(&self, identity: &str) -> bool {
        self.identity == identity
    }

    /// The controllers that this replica can run.
    pub(super) fn ready(&self) -> &BTreeSet<String> {
        &self.ready
    }

    /// Sets which controllers this replica can run, and which of them the others know.
    pub(super) fn set_ready(&mut self, ready: BTreeSet<String>, listed: ReadyControllers) {
        (self.ready, self.listed) = (ready, listed);
    }

    /// Handles a reading of the leases of all replicas, by their identities. Returns whether
    /// a replica has come or gone, or what it can run has changed.
    pub(super) fn observe(&mut self, read: &BTreeMap<String, StoredLease>, now: Instant) -> bool {
        let mut has_changed = false;
        self.others.retain(|identity, one| {
            let stays = read.contains_key(identity);
            has_changed |= one.is_live && !stays;
            stays
        });
        for (identity, stored) in read.iter().filter(|(one, _)| **one != self.identity) {
            let StoredLease { lease, version } = stored;
            let is_held = lease.holder.as_ref() == Some(identity);
            let known = self.others.entry(identity.clone()).or_insert(Presence {
                version: version.clone(),
                since: now,
                // It may be of a replica that has ended: it is live once it renews.
                is_live: false,
                ready: lease.ready.clone(),
            });
            let was_live = known.is_live;
            if known.version != *version {
                has_changed |= was_live && known.ready != lease.ready;
                *known = Presence {
                    version: version.clone(),
                    since: now,
                    is_live: is_held,
                    ready: lease.ready.clone(),
                };
            }
            known.is_live &= now.since(known.since) < self.lasts;
            has_changed |= known.is_live != was_live;
        }
        has_changed
    }

    /// The replica that should hold the lease of a controller: one that can run it, if
    /// there is one. The order of all replicas is another one for each lease, so that they
    /// share the leases, and a replica that comes or goes moves no lease between the others
    /// (rendezvous hashing).
    pub(super) fn preferred(&self, controller: &str) -> &str {
        let own = (self.identity.as_str(), &self.listed);
        let preferred = first(controller, self.others().chain([own]));
        preferred.unwrap_or(&self.identity)
    }

    /// The same among the others; none if this replica is alone.
    pub(super) fn preferred_other(&self, controller: &str) -> Option<&str> {
        first(controller, self.others())
    }

    /// Another replica that can run a controller, if this one cannot.
    pub(super) fn substitute(&self, controller: &str) -> Option<&str> {
        let can_run = |one: &&str| {
            let other = self.others.get(*one);
            other.is_some_and(|other| other.ready.contains(controller))
        };
        let is_needed = !self.ready.contains(controller);
        self.preferred_other(controller)
            .filter(|other| is_needed && can_run(other))
    }

    /// The other replicas that renew their leases, each with the controllers that it can
    /// run.
    fn others(&self) -> impl Iterator<Item = (&str, &ReadyControllers)> {
        let live = self.others.iter().filter(|(_, one)| one.is_live);
        live.map(|(identity, one)| (identity.as_str(), &one.ready))
    }
}

/// The first of these replicas for the lease of a controller.
fn first<'a>(
    controller: &str,
    replicas: impl Iterator<Item = (&'a str, &'a ReadyControllers)>,
) -> Option<&'a str> {
    let first = replicas
        .max_by_key(|(replica, ready)| (ready.contains(controller), rank(controller, replica)));
    first.map(|(replica, _)| replica)
}

fn rank(lease: &str, replica: &str) -> [u8; 32] {
    ModuleDigest::of(format!("{lease} {replica}").as_bytes()).0
}

#[cfg(test)]
mod tests {
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
                ready: ReadyControllers::default(),
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
        let mut members = Members::new("a", Duration::from_secs(10));
        members.observe(&read(&[("b", 1)]), at(0));
        assert!(
            preferred(&members).iter().all(|one| one == "a"),
            "it may be gone"
        );
        members.observe(&read(&[("b", 2)]), at(5));
        assert!(preferred(&members).iter().any(|one| one == "b"));
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
            let mut members = Members::new(identity, Duration::from_secs(10));
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
