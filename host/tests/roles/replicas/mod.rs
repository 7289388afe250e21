//! Two replicas as processes: one writes, the other takes over.

mod evictions;
mod fleet;
mod load;
mod network;
mod partitions;
mod rolling;
mod rollouts;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::{Cluster, NAMESPACE, Process};
use crate::stories::{exists, pod, podgc};

/// Creates a pod of a node that does not exist, and waits until PodGC has deleted the pod.
/// Returns how long that took.
fn collect(cluster: &Cluster, name: &str) -> Duration {
    cluster.sim.create(pod(name, "gone", "Running")).unwrap();
    let at = Instant::now();
    cluster.until("PodGC deletes the pod", |sim| !exists(sim, "Pod", name));
    at.elapsed()
}

/// How often the pod of that name was deleted.
fn deletions(cluster: &Cluster, name: &str) -> usize {
    let log = cluster.sim.log();
    let of_pod = log.iter().filter(|served| {
        served.work.verb == "delete" && served.path.ends_with(&format!("/pods/{name}"))
    });
    of_pod.count()
}

fn signal(process: &Process, signal: &str) {
    let id = process.0.id().to_string();
    let sent = Command::new("kill").args([signal, &id]).status().unwrap();
    assert!(sent.success());
}

/// Long enough for a replica to start, and to cache what it watches.
fn settle() {
    std::thread::sleep(Duration::from_secs(3));
}

/// With a lease duration of four seconds: see `Cluster::run_replica`.
#[test]
fn another_replica_takes_over_when_the_holder_dies_stops_or_hangs() {
    let story = podgc();
    let cluster = story.cluster();
    cluster.sim.clear_log();
    let holds = |name: &str| fleet::holder(&cluster.sim, "podgc").as_deref() == Some(name);
    let a = cluster.run_replica("a");
    cluster.until("a leads", |_| holds("a"));
    cluster.until("PodGC does its work", story.done);
    let b = cluster.run_replica("b");
    collect(&cluster, "first");
    settle();

    let ((mut leader, name), (mut follower, other)) = if holds("a") {
        ((a, "a"), (b, "b"))
    } else {
        ((b, "b"), (a, "a"))
    };
    signal(&leader, "-KILL");
    let took = collect(&cluster, "after-kill");
    println!("after SIGKILL of the holder: {took:?}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    assert!(holds(other));
    leader.0.wait().unwrap();

    leader = cluster.run_replica(name);
    settle();
    collect(&cluster, "beside-a-new-replica");
    let (stopped, next) = if holds(other) {
        (&mut follower, name)
    } else {
        (&mut leader, other)
    };
    signal(stopped, "-TERM");
    let took = collect(&cluster, "after-term");
    println!("after SIGTERM of the holder: {took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    assert!(stopped.0.wait().unwrap().success());
    assert!(holds(next));

    // A holder that hangs does not write when it continues.
    let former = if next == name { other } else { name };
    let hanging = if next == name { leader } else { follower };
    let _new = cluster.run_replica(former);
    settle();
    assert!(holds(next));
    signal(&hanging, "-STOP");
    let took = collect(&cluster, "after-stop");
    println!("after SIGSTOP of the holder: {took:?}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    signal(&hanging, "-CONT");
    collect(&cluster, "last");
    for name in ["first", "after-kill", "after-term", "after-stop", "last"] {
        assert_eq!(deletions(&cluster, name), 1, "{name}");
    }
    assert!(holds(former));
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
    settle();
    assert!(exists(&cluster.sim, "Pod", "orphan"));
    let status = cluster.status("podgc");
    assert!(status.is_null(), "nothing is recorded: {status}");
}
