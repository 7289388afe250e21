//! The end of a story: the waits for a cluster at rest, and what is wrong with it then.

use std::time::Duration;

use davit_sim::direct;
use davit_sim::model::DeletionKind;

use super::{HEARTBEAT, SLOW_HEARTBEAT, Story};
use crate::cluster;
use crate::fate::{left_over, terminates, text};

/// The cluster is at rest when nobody writes for this time.
const QUIET: Duration = Duration::from_secs(90);
/// How long the cluster may take to come to rest.
const LONGEST_CALM: Duration = Duration::from_hours(1);
/// How long a healthy host may take to send its events: longer than it retries one.
const LONGEST_EVENTS: Duration = Duration::from_secs(300);
/// How long a healthy host may take to finish its work: less than an expectation lasts.
const PROMPT: Duration = Duration::from_secs(25);
/// How long operators reset guardrails that trip again and again.
const LONGEST_RESETS: Duration = Duration::from_secs(300);

impl Story {
    /// Ends all faults; limits and rollouts stay. A healthy host has to finish its work
    /// soon: before an expectation lapses, and before an item is due that waits for
    /// something else. Returns the work that is left.
    pub(super) fn hurry(&mut self) -> Vec<String> {
        self.repair();
        self.operators.enforce(&mut self.simulation);
        self.declare();
        self.heartbeat = SLOW_HEARTBEAT;
        self.pass(self.discovered_at.since(self.now()));
        self.heartbeat = HEARTBEAT;
        let mut problems = self.elect();
        let mut since = self.now();
        let mut is_limited = false;
        let deadline = since.after(LONGEST_RESETS);
        while self.now().since(since) < PROMPT && self.now() < deadline {
            self.pass(Duration::from_secs(5));
            problems.extend(self.leaderless());
            if self.operators.reset(&mut self.simulation) {
                self.declare();
                since = self.now();
                is_limited = true;
            }
            // A kubelet waits for the pod's grace period.
            if cluster::list(&self.simulation.world, "Pod")
                .iter()
                .any(terminates)
            {
                since = self.now();
            }
        }
        if self.now() >= deadline && is_limited {
            // At one write a minute, some work takes longer.
            return problems;
        }
        for problem in self.left_over() {
            let time = PROMPT.as_secs();
            problems.push(format!("{problem} ({time} s after the last fault ended)"));
        }
        problems
    }

    /// Waits until nobody writes any more. Returns whether the cluster came to rest.
    pub(super) fn comes_to_rest(&mut self) -> bool {
        let is_loud = |story: &Self| {
            let last = story.simulation.world.writes().last();
            last.is_some_and(|write| story.now().since(write.at) < QUIET)
        };
        self.pass_while(LONGEST_CALM, is_loud);
        !is_loud(self)
    }

    /// Waits until the hosts have sent their events. Each event is retried for two minutes.
    pub(super) fn unsent_events(&mut self) -> Option<String> {
        self.pass_while(LONGEST_EVENTS, |story| {
            story.simulation.world.waiting_events() > 0
        });
        let waiting = self.simulation.world.waiting_events();
        (waiting > 0).then(|| {
            let time = LONGEST_EVENTS.as_secs();
            format!("{waiting} events still wait {time} s after the last write")
        })
    }

    /// Objects that the controllers should have deleted or changed.
    fn left_over(&self) -> Vec<String> {
        let world = &self.simulation.world;
        let mut problems = left_over(&cluster::list_all(world), &cluster::list(world, "Node"));
        problems.extend(self.stale_versions());
        problems.extend(self.ended_pods());
        problems
    }

    pub(super) fn problems(&mut self) -> Vec<String> {
        let statuses = self.operators.problems(&mut self.simulation);
        self.world().check_events();
        let world = &self.simulation.world;
        let mut problems = world.violations().to_vec();
        problems.extend(self.fates.missing(&cluster::list_all(world)));
        problems.extend(self.left_over());
        problems.extend(self.deleted_twice());
        problems.extend(self.evicted_early());
        problems.extend(statuses);
        problems
    }

    /// Storage versions that name an API server without a lease, or lack one that has a
    /// lease.
    fn stale_versions(&self) -> Vec<String> {
        let model = self.simulation.world.model();
        let leases = direct::list(model, "coordination.k8s.io/v1", "Lease", "kube-system");
        let leases = leases.unwrap_or_default();
        let is_there = |server: &String| {
            let mut names = leases.iter().map(|lease| text(lease, "/metadata/name"));
            names.any(|name| name == server)
        };
        let mut problems = Vec::new();
        for resource in 0..3_u64 {
            let name = format!("example.com.r{resource}");
            let api = "internal.apiserver.k8s.io/v1alpha1";
            let version = direct::get(model, api, "StorageVersion", "", &name);
            let entries = version.map(|version| version["status"]["storageVersions"].clone());
            let entries = entries.unwrap_or_default();
            let named = entries.as_array().into_iter().flatten();
            let mut named: Vec<String> = named
                .map(|entry| text(entry, "/apiServerID").to_owned())
                .collect();
            named.sort();
            let wanted = (0..=resource + 1).map(|server| format!("server-{server}"));
            let wanted: Vec<String> = wanted.filter(is_there).collect();
            if named != wanted {
                problems.push(format!(
                    "the storage version {name} names the API servers {named:?} instead of \
                     {wanted:?}"
                ));
            }
        }
        problems
    }

    /// Objects that the garbage collector deleted more than once. Pods do not count,
    /// because other controllers delete them too.
    fn deleted_twice(&self) -> Vec<String> {
        if self.forgot {
            return Vec::new();
        }
        let counts = self.requested().filter_map(|(uid, requests)| {
            let known = self.deleted.get(uid)?;
            (requests > known + 1).then(|| {
                let allowed = known + 1;
                format!("DELETE was sent {requests} times for {uid}, and {allowed} are enough")
            })
        });
        counts.collect()
    }

    /// How often the deletion of each object was requested.
    fn requested(&self) -> impl Iterator<Item = (&str, usize)> {
        let deletions = self.simulation.world.model().deletions();
        deletions.map(|(uid, steps)| {
            let requested = |kind: DeletionKind| kind == DeletionKind::Requested;
            let requests = steps.iter().filter(|step| requested(step.kind)).count();
            (uid, requests)
        })
    }

    /// After a rest, the host knows what it has requested: whatever made it forget before, one more
    /// request for each object is enough.
    pub(super) fn remember_deletions(&mut self) {
        for problem in self.deleted_twice() {
            self.world().violated(problem);
        }
        if self.forgot {
            let requested = self.requested();
            let known = requested.filter(|(uid, _)| self.deleted.contains_key(*uid));
            let known: Vec<_> = known.map(|(uid, count)| (uid.to_owned(), count)).collect();
            self.deleted.extend(known);
        }
        // Another host does not know the requests of the former leader.
        self.forgot = self.has_replicas();
    }
}
