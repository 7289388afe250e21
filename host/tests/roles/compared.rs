//! A dry run that is compared with the cluster: the reads of its shipped roles are enough.

use std::collections::BTreeSet;

use davit_sim::Sim;
use davit_sim::model::DeleteOptions;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::process::{Process, free_port};
use crate::deploy::{ADMINISTRATOR, permissions};
use crate::metrics::scrape;
use crate::ports::{bearer, get};
use crate::stories::{node, pod};

const NAME: &str = "podgc";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// What the account of PodGC needs for Enforce alone.
const WRITES: [&str; 2] = ["delete pods", "patch pods/status"];

/// Marks a pod as PodGC does, as this manager of fields. The simulator notes who applies.
fn mark(cluster: &Cluster, pod: &str, manager: &str) {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
        "lastTransitionTime": "2026-11-20T10:00:00Z",
    });
    let applied = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": "default"},
        "status": {"phase": "Failed", "conditions": [condition]},
    });
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    let path = format!("{path}?fieldManager={manager}&force=true");
    let request = Request::patch(path)
        .header("Authorization", format!("Bearer {ADMINISTRATOR}"))
        .header("Content-Type", "application/apply-patch+yaml")
        .body(Full::from(applied.to_string()))
        .unwrap();
    let answer = cluster.block_on(cluster.sim.call(request)).unwrap();
    assert!(answer.status().is_success(), "{pod}: {}", answer.status());
}

/// Deletes a pod at once.
pub(crate) fn delete(sim: &Sim, pod: &str) {
    let now = DeleteOptions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    sim.delete("v1", "Pod", "default", pod, &now).unwrap();
}

/// kube-controller-manager's PodGC marks an orphaned pod and deletes it.
pub(crate) fn collect(cluster: &Cluster, pod: &str) {
    mark(cluster, pod, "kube-controller-manager");
    delete(&cluster.sim, pod);
}

/// A running pod of a node that does not exist.
pub(crate) fn orphan(cluster: &Cluster, name: &str) -> String {
    let created = cluster.sim.create(pod(name, "gone", "Running")).unwrap();
    created["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A host, and its port.
pub(crate) fn run(cluster: &Cluster) -> (Process, u16) {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    (cluster.run_with(&["--http", &address]), port)
}

/// How many objects wait for the other side; none if PodGC is not compared.
pub(crate) fn pending(cluster: &Cluster, port: u16) -> Option<u64> {
    let token = bearer(&cluster.token("davit-viewer"));
    let (_, body) = get(port, "/controllers/podgc/cluster", &token)?;
    let page: Value = serde_json::from_str(&body).ok()?;
    page["pending"].as_u64()
}

/// PodGC as a dry run. Its account has no write.
fn dry_run(compare_with: &Value) -> Cluster {
    let cluster = Cluster::new();
    cluster.sim.create(node("n", "True", json!([]))).unwrap();
    let config = json!({"terminatedPodThreshold": 0, "quarantine": "500ms", "period": "1s"});
    cluster.add(NAME, &config);
    let spec = json!({"mode": "DryRun", "compareWith": compare_with});
    cluster.change(NAME, json!({"spec": spec}));
    let mut role = cluster
        .sim
        .get(RBAC, "ClusterRole", "", "davit-podgc")
        .unwrap();
    let rules = role["rules"].as_array_mut().unwrap();
    let writes = BTreeSet::from(WRITES.map(str::to_owned));
    rules.retain(|rule| permissions(rule).is_disjoint(&writes));
    cluster.sim.update(role).unwrap();
    cluster
}

/// PodGC plans to delete two pods. The cluster's deletes one of them, and another controller of
/// Davit the other one.
fn compares(cluster: &Cluster, port: u16) {
    for name in ["of-the-cluster", "of-davit"] {
        orphan(cluster, name);
    }
    cluster.until("both are planned", |_| pending(cluster, port) == Some(2));
    collect(cluster, "of-the-cluster");
    // Only the managers of fields say that it is not the cluster's.
    mark(cluster, "of-davit", "davit/other");
    delete(&cluster.sim, "of-davit");
    cluster.until("both are counted", |_| {
        let counts = &cluster.status(NAME)["clusterComparison"];
        counts["agree"] == 1 && counts["otherActor"] == 1
    });
}

/// What the program has used. Whether it patches an event depends on the time.
fn used(cluster: &Cluster) -> BTreeSet<String> {
    let mut used = cluster.used();
    used.retain(|one| !one.ends_with(" events"));
    used
}

/// What the same dry run uses that is not compared.
fn used_without_a_comparison() -> BTreeSet<String> {
    let cluster = dry_run(&Value::Null);
    let (_host, port) = run(&cluster);
    orphan(&cluster, "planned");
    cluster.until("it is planned", |_| {
        scrape(&cluster, port).contains("ruling=\"dry-run\"")
    });
    cluster.until("the Controller says what runs", |_| {
        cluster.status(NAME)["stable"]["revision"].is_string()
    });
    assert_eq!(cluster.status(NAME)["clusterComparison"], Value::Null);
    used(&cluster)
}

#[test]
fn a_dry_run_is_compared_with_the_cluster_by_the_reads_of_its_roles() {
    let cluster = dry_run(&json!("Cluster"));
    let (_host, port) = run(&cluster);
    cluster.until("it is compared", |_| pending(&cluster, port) == Some(0));
    compares(&cluster, port);
    assert_eq!(cluster.denied(), BTreeSet::new());
    let used = used(&cluster);
    let mut reads = Cluster::granted(NAME);
    reads.retain(|one| !WRITES.contains(&one.as_str()));
    assert!(reads.is_subset(&used), "{used:?}");
    assert!(WRITES.iter().all(|one| !used.contains(*one)), "{used:?}");
    // `davit check` and the generated roles know no permission of a comparison. If it needs one,
    // they have to, and without it a dry run must say so.
    let before = used_without_a_comparison();
    let more: Vec<&String> = used.difference(&before).collect();
    assert!(more.is_empty(), "only the comparison needs {more:?}");
}

#[test]
fn a_dry_run_whose_pods_may_not_be_watched_is_compared_as_soon_as_they_may() {
    let cluster = dry_run(&json!("Cluster"));
    let role = "davit-podgc-watches";
    let shipped = cluster.sim.get(RBAC, "ClusterRole", "", role).unwrap();
    cluster.revoke(NAME, role, "watch pods");
    let (_host, port) = run(&cluster);
    cluster.until("the status says so", |_| {
        let ready = cluster.condition(NAME, "Ready");
        let message = ready["message"].as_str().unwrap_or_default();
        ready["reason"] == "Starting" && message.contains("cannot watch resource \"pods\"")
    });
    assert_eq!(pending(&cluster, port), None);
    assert_eq!(cluster.status(NAME)["clusterComparison"], Value::Null);

    let mut role = cluster.sim.get(RBAC, "ClusterRole", "", role).unwrap();
    role["rules"] = shipped["rules"].clone();
    cluster.sim.update(role).unwrap();
    cluster.until("it is compared", |_| pending(&cluster, port) == Some(0));
    compares(&cluster, port);
}
