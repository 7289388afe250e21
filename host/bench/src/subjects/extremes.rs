//! What every controller has to survive within the default limits, also those of the client:
//! each of these ends in the right state, or the bench fails. The time from the trigger to that
//! state and the most memory are the figures.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use davit_sim::fault::{Match, WatchFault};
use davit_sim::model::DeleteOptions;
use davit_sim::{Server, Sim, kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::figure::Figure;
use crate::objects::{self, NODES, PODS, PODS_OF_A_NODE};
use crate::process::{Host, one_controller};
use crate::server::{self, count, import, list};

/// How long an extreme may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often the state of the server is read.
const POLL: Duration = Duration::from_millis(200);
const BLOCKING: usize = 100_000;
/// A quarter of what the shipped Deployment allows, in megabytes.
const MOST_RESIDENT: f64 = 512.0;

pub(crate) async fn run() -> Result<()> {
    terminated_pods().await?;
    orphans_of_a_node().await?;
    intolerant_pods_of_a_node().await?;
    taints_that_pass().await?;
    blocking_dependents().await?;
    silent_nodes().await?;
    list_during_changes().await
}

/// A host beside a server, until a measurement ends.
pub(super) struct Bench {
    sim: Sim,
    _server: Server,
    _directory: TempDir,
    pub(super) host: Host,
    started: Instant,
}

impl Bench {
    /// Starts a host with one controller.
    async fn start(sim: Sim, controller: &str, config: &str) -> Result<Self> {
        let server = Server::start("127.0.0.1:0".parse()?, sim.clone()).await?;
        let text = kubeconfig(&server.url());
        Self::beside(sim, server, &text, &one_controller(controller, config))
    }

    /// The same over TLS, with HTTP/2.
    pub(super) async fn start_tls(sim: Sim, controller: &str) -> Result<Self> {
        let (server, text) = server::start_tls(&sim).await?;
        Self::beside(sim, server, &text, &one_controller(controller, "{}"))
    }

    fn beside(sim: Sim, server: Server, kubeconfig: &str, config: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let host = Host::start(kubeconfig, directory.path(), config, None)?;
        Ok(Self {
            sim,
            _server: server,
            _directory: directory,
            host,
            started: Instant::now(),
        })
    }

    /// The same, and waits until it rests.
    async fn at_rest(sim: Sim, controller: &str, config: &str) -> Result<Self> {
        let mut bench = Self::start(sim, controller, config).await?;
        bench.host.at_rest().await?;
        bench.started = Instant::now();
        Ok(bench)
    }

    /// Waits until so many objects of a resource are left, and reports the figures.
    async fn until_left(&self, name: &str, resource: (&str, &str), left: usize) -> Result<()> {
        self.until(name, || count(&self.sim, resource), left).await
    }

    /// The same for objects that are counted in another way.
    pub(super) async fn until(
        &self,
        name: &str,
        count: impl Fn() -> Result<usize>,
        left: usize,
    ) -> Result<()> {
        loop {
            let asked = Instant::now();
            let now = count()?;
            if now == left {
                break;
            }
            ensure!(self.started.elapsed() < PATIENCE, "{name}: {now} are left");
            // While it counts, the server answers nobody else.
            sleep(POLL.max(5 * asked.elapsed())).await;
        }
        self.report(name)?;
        // It stops there.
        self.host.at_rest().await?;
        let now = count()?;
        ensure!(now == left, "{name}: {now} are left in the end");
        Ok(())
    }

    /// Waits until the host is ready, and reports when.
    pub(super) async fn report_ready(&self, name: &str) -> Result<()> {
        let ready = self.host.ready().await?.after.as_secs_f64();
        Figure::new(format!("extremes: {name}"), ready, "s").report()
    }

    /// Waits until the host rests, and reports the figures.
    async fn until_rest(&self, name: &str) -> Result<()> {
        self.host.at_rest().await?;
        self.report(name)
    }

    fn report(&self, name: &str) -> Result<()> {
        let took = self.started.elapsed().as_secs_f64();
        Figure::new(format!("extremes: {name}"), took, "s").report()?;
        let most = self.host.most_resident()?;
        Figure::new(format!("extremes: {name}, most resident"), most, "MB")
            .aim(MOST_RESIDENT)
            .report()
    }
}

/// 150,000 terminated pods when PodGC starts: all but the threshold go.
async fn terminated_pods() -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES, 0)?;
    import(&sim, (0..PODS).map(objects::terminated))?;
    let bench = Bench::start(sim, "podgc", "{terminatedPodThreshold: 1000}").await?;
    bench
        .until_left("150,000 terminated pods", ("", "pods"), 1_000)
        .await
}

/// A node is missing that 10,000 pods were bound to.
async fn orphans_of_a_node() -> Result<()> {
    let sim = server::with_nodes_and_pods(100, 0)?;
    import(&sim, (0..10_000).map(|number| bound(number, "gone")))?;
    let bench = Bench::start(sim, "podgc", "{quarantine: 2s}").await?;
    bench
        .until_left("10,000 orphans of one node", ("", "pods"), 0)
        .await
}

/// A node with 6,000 pods gets a taint that none of them tolerates.
async fn intolerant_pods_of_a_node() -> Result<()> {
    let sim = server::with_nodes_and_pods(100, 0)?;
    import(&sim, (0..6_000).map(|number| bound(number, "node-0001")))?;
    let bench = Bench::at_rest(sim, "taint-eviction", "{}").await?;
    set_taint(&bench.sim, 1, "example.com/broken", true)?;
    bench
        .until_left("6,000 pods of one tainted node", ("", "pods"), 0)
        .await
}

/// All nodes are tainted within a second, and a second later no node is: every pod tolerates the
/// taint for ten seconds, and none may go. The taint of one more node stays, whose pod tolerates
/// nothing.
async fn taints_that_pass() -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES + 1, 0)?;
    import(&sim, (0..PODS).map(impatient))?;
    let intolerant = bound(PODS, &objects::node_name(NODES));
    import(&sim, [intolerant].into_iter())?;
    let bench = Bench::at_rest(sim, "taint-eviction", "{}").await?;
    let key = "node.kubernetes.io/unreachable";
    set_taint(&bench.sim, NODES, key, true)?;
    for is_set in [true, false] {
        let started = Instant::now();
        for node in 0..NODES {
            set_taint(&bench.sim, node, key, is_set)?;
        }
        sleep(Duration::from_secs(1).saturating_sub(started.elapsed())).await;
    }
    bench
        .until_rest("5,000 nodes tainted for a second, 150,000 pods")
        .await?;
    // No timer may be left.
    sleep(Duration::from_secs(15)).await;
    let left = count(&bench.sim, ("", "pods"))?;
    ensure!(left == PODS, "{left} pods are left");
    Ok(())
}

/// An owner that is deleted in the foreground, with 100,000 dependents that block it.
async fn blocking_dependents() -> Result<()> {
    let sim = server::with_nodes_and_pods(0, 0)?;
    let owner = sim.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "owner", "namespace": "default"},
    }))?;
    let uid = owner.pointer("/metadata/uid").cloned();
    let dependents = (0..BLOCKING).map(|number| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("dependent-{number:06}"), "namespace": "default",
                "ownerReferences": [{
                    "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid,
                    "blockOwnerDeletion": true,
                }],
            },
        })
    });
    import(&sim, dependents)?;
    let bench = Bench::at_rest(sim, "garbage-collector", "{}").await?;
    let others = count(&bench.sim, ("", "configmaps"))? - BLOCKING - 1;
    let foreground = DeleteOptions {
        propagation_policy: Some("Foreground".to_owned()),
        ..DeleteOptions::default()
    };
    let sim = &bench.sim;
    sim.delete("v1", "ConfigMap", "default", "owner", &foreground)?;
    bench
        .until_left("100,000 blocking dependents", ("", "configmaps"), others)
        .await
}

/// Every node is silent at once, and no pod may go, because nobody can distinguish a dead cluster
/// from a host that sees nothing. Then every node but one is back: only its pods go.
async fn silent_nodes() -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES, PODS)?;
    let config = "{nodeMonitorGracePeriod: 20s, podEvictionTimeout: 15s}";
    let bench = Bench::at_rest(sim, "node-eviction", config).await?;
    // All of them have been silent for longer than the timeout.
    sleep(Duration::from_mins(1)).await;
    let left = untouched(&bench.sim)?;
    ensure!(left == PODS, "{left} pods are left of silent nodes");
    // For longer than the timeout of the node that stays away, which starts again.
    for round in 0..8 {
        for node in 0..NODES - 1 {
            renew(&bench.sim, node, round)?;
        }
        sleep(Duration::from_secs(5)).await;
    }
    bench
        .until_rest("5,000 nodes silent for a minute, then all but one back")
        .await?;
    let left = untouched(&bench.sim)?;
    ensure!(left == PODS - PODS_OF_A_NODE, "{left} pods are left");
    Ok(())
}

/// The number of pods that nobody has deleted. Those of a silent node stay with a deletion
/// timestamp: there is no kubelet.
fn untouched(sim: &Sim) -> Result<usize> {
    let pods = list(sim, ("", "pods"))?;
    let deleted = b"\"deletionTimestamp\"";
    let is_deleted = |metadata: &[u8]| metadata.windows(deleted.len()).any(|it| it == deleted);
    let mut left = 0;
    for pod in pods {
        left += usize::from(!is_deleted(&pod.metadata_json()?));
    }
    Ok(left)
}

/// The version of the pods' watch expires while 2,000 pods a second change: the host lists again,
/// and then knows the last change.
async fn list_during_changes() -> Result<()> {
    let sim = server::with_nodes_and_pods(NODES, PODS)?;
    // One more pod has succeeded in the end than the threshold: only who knows all of them sees it.
    let succeeded = PODS / 20 + 20_000 - 20_000 / 20;
    let config = format!("{{terminatedPodThreshold: {}}}", succeeded - 1);
    let bench = Bench::at_rest(sim, "podgc", &config).await?;
    let pods = Match::new("watch", "pods");
    for change in 0..20_000 {
        let due = Duration::from_micros(500) * change;
        sleep(due.saturating_sub(bench.started.elapsed())).await;
        if change == 4_000 {
            ensure!(bench.sim.disturb(&pods, WatchFault::Expire) > 0, "no watch");
        }
        let number = change as usize;
        // They succeed, so that PodGC has to know of each of them in the end.
        let mut pod = objects::changed(number, number);
        if let Some(status) = pod.get_mut("status") {
            *status = json!({"phase": "Succeeded"});
        }
        bench.sim.apply(pod)?;
    }
    let name = "a list of 150,000 pods while 2,000 a second change";
    bench.until_left(name, ("", "pods"), PODS - 1).await
}

/// A pod that tolerates what makes a node unreachable for ten seconds.
fn impatient(number: usize) -> Value {
    let mut pod = objects::pod(number);
    if let Some(tolerations) = pod.pointer_mut("/spec/tolerations") {
        *tolerations = json!([{
            "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 10,
        }]);
    }
    pod
}

/// A pod on a node, which ends as soon as it is deleted and tolerates nothing.
fn bound(number: usize, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number:05}"), "namespace": "team-00"},
        "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "example.com/main"}],
        },
        "status": {"phase": "Running"},
    })
}

fn set_taint(sim: &Sim, node: usize, key: &str, is_set: bool) -> Result<()> {
    let taints = if is_set {
        json!([{"key": key, "effect": "NoExecute"}])
    } else {
        json!([])
    };
    sim.apply(json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": objects::node_name(node)},
        "spec": {"taints": taints},
    }))?;
    Ok(())
}

fn renew(sim: &Sim, node: usize, round: usize) -> Result<()> {
    sim.apply(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": objects::node_name(node), "namespace": "kube-node-lease"},
        "spec": {"renewTime": format!("2026-11-24T10:00:{round:02}.000000Z")},
    }))?;
    Ok(())
}
