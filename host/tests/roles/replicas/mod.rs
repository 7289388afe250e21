//! Two replicas as processes: one writes, the other takes over.

mod evictions;
mod fleet;
mod load;
mod network;
mod partitions;
mod rolling;
mod rollouts;

use std::time::Duration;

use serde_json::json;

use crate::cluster::NAMESPACE;
use crate::stories::{exists, podgc};

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
