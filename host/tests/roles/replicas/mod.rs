//! Two replicas as processes: one writes, the other takes over.

mod evictions;
mod fleet;
mod load;
mod network;
mod partitions;
mod rolling;
mod rollouts;

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;

use crate::cluster::NAMESPACE;
use crate::stories::{exists, pod, podgc};

/// As a container does that starts again: the name of its pod stays, and the Lease of its former run
/// is another one's.
#[test]
fn a_replica_that_dies_and_returns_under_its_name_leads_again() {
    let story = podgc();
    let cluster = story.cluster();
    let collect = |name: &str| {
        cluster.sim.create(pod(name, "gone", "Running")).unwrap();
        cluster.until("PodGC deletes the pod", |sim| !exists(sim, "Pod", name));
    };
    let first = cluster.run_replica("a");
    cluster.until("PodGC does its work", story.done);
    collect("before");
    // With SIGKILL.
    drop(first);
    let _second = cluster.run_replica("a");
    collect("after");
    assert_eq!(cluster.denied(), BTreeSet::new());
}

#[test]
fn a_replica_that_may_not_use_leases_runs_nothing() {
    let story = podgc();
    let cluster = story.cluster();
    let rbac = "rbac.authorization.k8s.io/v1";
    let mut role = cluster.sim.get(rbac, "Role", NAMESPACE, "davit").unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["resources"] != json!(["leases"]));
    cluster.sim.update(role).unwrap();
    cluster.sim.clear_log();
    let _davit = cluster.run_replica("a");
    cluster.until("the request for leases is refused", |_| {
        cluster.denied().iter().any(|one| one.contains("leases"))
    });
    // Long enough for a replica to start, and to cache what it watches.
    std::thread::sleep(Duration::from_secs(3));
    assert!(exists(&cluster.sim, "Pod", "orphan"));
    let status = cluster.status("podgc");
    assert!(status.is_null(), "nothing is recorded: {status}");
}
